"""Taggers: a label for every word of a sentence."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ShapeError
from continua.block import ODEBlock
from continua.field import BasisChoice
from continua.gradient import Gradient
from continua.solve import Solver

from ._attention import EncoderLayer, dense, layer_norm
from ._units import check_epsilon, check_whole

PADDING = 0


class Tagger(nn.Module):
    """Embedding and positions, an encoder, a linear layer to one logit per tag.

    Takes the numbers of the words, `[B, T]`, of which 0 is padding, and gives `[B, T, tags]`.
    Logits at padding are there but mean nothing.

    Args:
        vocabulary: how many words there are, padding among them.
        tags: how many labels.
        width: of the vectors.
        max_length: of a sentence; positions are a fixed table of sines.
        encoder: called with the vectors `[B, T, width]` and `mask=`, which is True for the keys
            to attend to, `[B, 1, 1, T]`; a layer norm follows it. None: neither.
    """

    positions: Tensor

    def __init__(
        self, vocabulary: int, tags: int, width: int, max_length: int, encoder: nn.Module | None
    ):
        super().__init__()
        check_whole(vocabulary=vocabulary, tags=tags, width=width, max_length=max_length)
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.register_buffer("positions", sinusoids(max_length, width), persistent=False)
        self.encoder = encoder
        self.norm = nn.Identity() if encoder is None else layer_norm(width)
        self.head = dense(width, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of every tag for every word, `[B, T, tags]`."""
        z, mask = self.embed(tokens)
        if self.encoder is not None:
            z = self.encoder(z, mask=mask)
        logits: Tensor = self.head(self.norm(z))
        return logits

    def embed(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """What the encoder sees: the vectors `[B, T, width]` and the mask `[B, 1, 1, T]`."""
        # A tracer hands over something that is no tensor yet.
        if isinstance(tokens, Tensor):
            self._check(tokens)
        # narrow, because a slice cannot be traced.
        z = self.embedding(tokens) + self.positions.narrow(0, 0, tokens.shape[1])
        keep = tokens != PADDING
        # A sentence of nothing but padding attends to all of it: a mean over nothing is NaN.
        keep = keep | ~keep.any(1, keepdim=True)
        return z, keep[:, None, None, :]

    def _check(self, tokens: Tensor) -> None:
        if tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32):
            raise ShapeError(
                f"tokens are whole numbers [B, T], not {tokens.dtype} of shape {list(tokens.shape)}"
            )
        if torch.compiler.is_compiling():
            return
        if tokens.shape[1] > self.max_length:
            raise ShapeError(
                f"a sentence has {tokens.shape[1]} tokens, more than max_length="
                f"{self.max_length}; cut it, or make the tagger with a larger one"
            )
        if tokens.numel() and not tokens.is_meta:
            low, high = (int(end) for end in tokens.aminmax())
            if low < 0 or high >= self.vocabulary:
                raise ArgumentError(
                    f"token {low if low < 0 else high} is not in the vocabulary, whose "
                    f"{self.vocabulary} words are numbered from 0"
                )


class EncoderStack(nn.Module):
    r"""A discrete transformer encoder.

    .. math:: z_{k+1} = z_k + R_k(z_k)

    Args:
        layers: how many.
        width: of the sequence's vectors.
        heads: of the attention.
        mlp: hidden units of the MLP.
    """

    def __init__(self, layers: int, width: int, heads: int, mlp: int):
        super().__init__()
        check_whole(layers=layers)
        self.layers = nn.ModuleList(EncoderLayer(width, heads, mlp) for _ in range(layers))

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            z = z + layer(z, mask)
        return z


def continuous_tagger(
    *,
    vocabulary: int,
    tags: int,
    basis: BasisChoice,
    solver: Solver,
    width: int = 128,
    heads: int = 1,
    mlp: int = 128,
    max_length: int = 256,
    state_basis: BasisChoice | None = None,
    gradient: Gradient | None = None,
    epsilon: float = 1.0,
) -> Tagger:
    r"""A transformer encoder of continuous depth that tags words.

    Embedding and fixed positions, then an ODE block whose field is the whole increment of an
    encoder layer (`EncoderLayer`), then layer norm and a linear layer. With V words, T tags and
    K functions of depth it has :math:`128 V + 99{,}072 K + 256 + 129 T` parameters. Embeddings
    start with a deviation of one over the root of the width. There is no dropout.

    Args:
        vocabulary: how many words there are, padding (0) among them.
        tags: how many labels.
        basis: how the weights of the encoder vary with depth.
        solver: of the block.
        width: of the vectors.
        heads: of the attention.
        mlp: hidden units of the MLP.
        max_length: of a sentence.
        state_basis: of the encoder's state, of which it has none; here for its likes.
        gradient: how the block is differentiated; None is back-propagation.
        epsilon: the length of the span.

    Stateful ODE-Nets (Queiruga et al. 2021), for Universal Dependencies.

    Example:
        >>> import continua as ct
        >>> net = continuous_tagger(
        ...     vocabulary=1000, tags=17, basis=ct.PiecewiseConstant(4), solver=ct.Euler(steps=4)
        ... )
        >>> sum(p.numel() for p in net.parameters()) == 128 * 1000 + 99_072 * 4 + 256 + 129 * 17
        True
        >>> net(torch.tensor([[2, 7, 8, 0]])).shape
        torch.Size([1, 4, 17])
    """
    check_epsilon(epsilon)
    block = ODEBlock(
        EncoderLayer(width, heads, mlp),
        basis,
        solver,
        gradient,
        state_basis=state_basis,
        span=(0.0, epsilon),
    )
    return Tagger(vocabulary, tags, width, max_length, block)


def transformer_tagger(
    *,
    vocabulary: int,
    tags: int,
    layers: int,
    width: int = 128,
    heads: int = 1,
    mlp: int = 128,
    max_length: int = 256,
) -> Tagger:
    """The discrete transformer beside `continuous_tagger`: every layer has weights of its own.

    It has as many parameters as that with `layers` buckets, and with the same weights is the
    same function as that with one Euler step per bucket and epsilon equal to `layers`.

    Args:
        vocabulary: how many words there are, padding (0) among them.
        tags: how many labels.
        layers: how many.
        width: of the vectors.
        heads: of the attention.
        mlp: hidden units of the MLP.
        max_length: of a sentence.

    Example:
        >>> net = transformer_tagger(vocabulary=1000, tags=17, layers=2)
        >>> net(torch.tensor([[2, 7, 8, 0]])).shape
        torch.Size([1, 4, 17])
    """
    return Tagger(vocabulary, tags, width, max_length, EncoderStack(layers, width, heads, mlp))


def linear_tagger(*, vocabulary: int, tags: int, width: int = 128, max_length: int = 256) -> Tagger:
    """The tagger without an encoder: embedding, positions and a linear layer.

    Args:
        vocabulary: how many words there are, padding (0) among them.
        tags: how many labels.
        width: of the vectors.
        max_length: of a sentence.

    Example:
        >>> net = linear_tagger(vocabulary=1000, tags=17)
        >>> sum(p.numel() for p in net.parameters()) == 128 * 1000 + 129 * 17
        True
    """
    return Tagger(vocabulary, tags, width, max_length, None)


def sinusoids(length: int, width: int) -> Tensor:
    """Sines and cosines in turn, of wavelengths from 2π to 10,000 times that: `[T, width]`."""
    place = torch.arange(length, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(1e4) / width))
    both = torch.stack([(place * rate).sin(), (place * rate).cos()], -1)  # [T, width / 2, 2]
    return both.flatten(1)[:, :width].to(torch.get_default_dtype())
