"""The residual of a transformer encoder, as a field."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from continua._errors import ArgumentError

from ._units import check_whole


class SelfAttention(nn.Module):
    """Dot-product attention of a sequence to itself, without biases.

    Args:
        width: of the sequence's vectors.
        heads: into how many the width is split.
    """

    def __init__(self, width: int, heads: int = 1):
        super().__init__()
        check_whole(width=width, heads=heads)
        if width % heads:
            raise ArgumentError(f"width {width} cannot be split into {heads} heads of equal width")
        self.heads = heads
        # Four layers rather than one fused: each weight is a function of depth by its own name.
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        for layer in (self.q, self.k, self.v, self.o):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attended values, `[B, T, width]`.

        Args:
            x: the sequences, `[B, T, width]`.
            mask: True for the keys to attend to, `[B, 1, 1, T]` for instance.
        """
        q, k, v = self._split(self.q(x)), self._split(self.k(x)), self._split(self.v(x))
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask)  # [B, heads, T, width / heads]
        result: Tensor = self.o(out.transpose(1, 2).flatten(2))
        return result

    def weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """How much each position attends to each other one, `[B, heads, T, T]`."""
        q, k = self._split(self.q(x)), self._split(self.k(x))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        attention: Tensor = scores.softmax(-1)
        return attention

    def _split(self, x: Tensor) -> Tensor:
        parts: Tensor = x.unflatten(-1, (self.heads, -1))  # type: ignore[no-untyped-call]
        return parts.transpose(1, 2)  # [B, heads, T, width / heads]


class EncoderLayer(nn.Module):
    r"""What a pre-norm transformer encoder layer adds to its input.

    .. math:: R(z) = a + \mathrm{MLP}(\mathrm{LN}(z + a)),
              \qquad a = \mathrm{Attention}(\mathrm{LN}(z))

    The layer itself is z + R(z); the field of an ODE block is R. Kernels start Xavier-uniform,
    the biases of the MLP, which is linear-ELU-linear, with a deviation of 1e-6.

    Args:
        width: of the sequence's vectors.
        heads: of the attention.
        mlp: hidden units of the MLP.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(EncoderLayer(8), ct.PiecewiseConstant(4), ct.Euler(steps=4))
        >>> keep = torch.tensor([[True, True, False]])
        >>> block(torch.randn(1, 3, 8), mask=keep).shape
        torch.Size([1, 3, 8])
        >>> block.field.attention.q.weight.shape
        torch.Size([4, 8, 8])
    """

    def __init__(self, width: int = 128, heads: int = 1, mlp: int = 128):
        super().__init__()
        check_whole(mlp=mlp)
        self.norm1 = layer_norm(width)
        self.attention = SelfAttention(width, heads)
        self.norm2 = layer_norm(width)
        self.mlp = nn.Sequential(dense(width, mlp), nn.ELU(), dense(mlp, width))

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """The increment, of the shape of z.

        Args:
            z: the sequences, `[B, T, width]`.
            mask: True for the keys to attend to, `[B, 1, 1, T]` for instance.
        """
        a = self.attention(self.norm1(z), mask)
        increment: Tensor = a + self.mlp(self.norm2(z + a))
        return increment


def layer_norm(width: int) -> nn.LayerNorm:
    """Layer norm with the small constant of the reference."""
    return nn.LayerNorm(width, eps=1e-6)


def dense(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that starts with a Xavier-uniform kernel and a bias of almost zero."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.normal_(layer.bias, std=1e-6)
    return layer
