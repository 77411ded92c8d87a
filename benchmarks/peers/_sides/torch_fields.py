"""The fields of the problems, as one writes them in PyTorch without a library.

Each is a module called with depth and state, `f(s, z)`, and offers its weights under the names that
the problem gives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .protocol import Case, Outcome, Problem


def tensors(problem: Problem, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """The inputs of a problem."""
    return {name: torch.tensor(value, dtype=dtype) for name, value in problem.inputs.items()}


class Field(nn.Module):
    """Holds the weights of a problem as parameters; `evaluations` counts the calls."""

    def __init__(self, problem: Problem, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.settings = problem.settings
        self.names = list(problem.weights)
        self.evaluations = 0
        for name, value in problem.weights.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(value, dtype=dtype)))
        # Looking them up by name takes as long as a small product, at every evaluation.
        self._weights = [self.get_parameter(name) for name in self.names]

    def weights(self) -> list[nn.Parameter]:
        """In the order of the problem."""
        return self._weights

    def at(self, s: Tensor | float) -> list[Tensor]:
        """The weights at a depth: these do not depend on it."""
        return list(self.weights())

    def forward(self, s: Tensor | float, z: Tensor) -> Tensor:
        """The derivative of the state."""
        self.evaluations += 1
        return self.evaluate(self.at(s), z)

    def evaluate(self, weights: list[Tensor], z: Tensor) -> Tensor:
        """The derivative of the state by weights that are given."""
        raise NotImplementedError


class MLP(Field):
    """W_n tanh(... tanh(W_0 z + b_0)) + b_n, weights W0, b0, W1, b1, ..."""

    def evaluate(self, weights: list[Tensor], z: Tensor) -> Tensor:
        """Layer by layer."""
        for i in range(0, len(weights), 2):
            z = F.linear(z if i == 0 else torch.tanh(z), weights[i], weights[i + 1])
        return z


class GalerkinMLP(MLP):
    """The same with weights that are Fourier series: 1, cos 2πs, sin 2πs, cos 4πs, sin 4πs, ..."""

    frequencies: Tensor

    def __init__(self, problem: Problem, dtype: torch.dtype = torch.float32):
        super().__init__(problem, dtype)
        n = torch.arange(1, problem.settings["harmonics"] + 1, dtype=dtype)
        self.register_buffer("frequencies", 2 * math.pi * n)

    def at(self, s: Tensor | float) -> list[Tensor]:
        """Each stack of coefficients contracted with the basis."""
        basis = self.basis(s * self.frequencies)
        return [torch.tensordot(basis, stack, 1) for stack in self.weights()]

    def basis(self, angle: Tensor) -> Tensor:
        """The functions at angles `[..., harmonics]`, the last axis that of functions."""
        waves = torch.stack([angle.cos(), angle.sin()], -1).flatten(-2)
        return torch.cat([torch.ones_like(waves[..., :1]), waves], -1)


class Buckets(Field):
    """A field whose weights have a first axis of buckets of depth, equal pieces of [0, 1]."""

    def bucket(self, s: Tensor | float) -> int:
        """Which bucket a depth lies in."""
        pieces = int(self.weights()[0].shape[0])
        return min(int(float(s) * pieces + 1e-6), pieces - 1)

    def at(self, s: Tensor | float) -> list[Tensor]:
        """The weights of the bucket that a depth lies in."""
        return self.of(self.bucket(s))

    def of(self, bucket: int) -> list[Tensor]:
        """The weights of a bucket."""
        return [stack[bucket] for stack in self.weights()]

    def inside(self, bucket: int, z: Tensor) -> Tensor:
        """The derivative of the state by the weights of a bucket."""
        self.evaluations += 1
        return self.evaluate(self.of(bucket), z)


class ConvNorm(Buckets):
    """relu(batch_norm(conv(z))) in training mode: weights conv, gamma, beta.

    The statistics of a bucket are updated at each evaluation in it.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, problem: Problem, dtype: torch.dtype = torch.float32):
        super().__init__(problem, dtype)
        gamma = problem.weights["gamma"]
        self.register_buffer("mean", torch.zeros(gamma.shape, dtype=dtype))
        self.register_buffer("variance", torch.ones(gamma.shape, dtype=dtype))

    def of(self, bucket: int) -> list[Tensor]:
        """The weights of a bucket, and its statistics."""
        return [*super().of(bucket), self.mean[bucket], self.variance[bucket]]

    def evaluate(self, weights: list[Tensor], z: Tensor) -> Tensor:
        """Convolution, norm, rectifier; the statistics move."""
        conv, gamma, beta, mean, variance = weights
        z = F.conv2d(z, conv, padding=1)
        return F.relu(F.batch_norm(z, mean, variance, gamma, beta, training=True))


class ConvSoftplus(Field):
    """The field of the image models of Dissecting Neural ODEs, with groups of one channel.

    Weights: scale0, shift0, conv0, conv1, scale1, shift1, conv2, bias2.
    """

    def evaluate(self, weights: list[Tensor], z: Tensor) -> Tensor:
        """Norm, two 3 x 3 convolutions with softplus, norm, a 1 x 1 convolution."""
        scale0, shift0, conv0, conv1, scale1, shift1, conv2, bias2 = weights
        z = F.group_norm(z, z.shape[1], scale0, shift0)
        z = F.softplus(F.conv2d(z, conv0, padding=1))
        z = F.softplus(F.conv2d(z, conv1, padding=1))
        z = F.group_norm(z, z.shape[1], scale1, shift1)
        return F.conv2d(z, conv2, bias2)


class Encoder(Buckets):
    """The increment of a pre-norm transformer encoder.

    Weights: scale0, shift0, qkv, qkv_bias, out, out_bias, scale1, shift1, up, up_bias, down,
    down_bias.
    """

    def evaluate(self, weights: list[Tensor], z: Tensor) -> Tensor:
        """Attention, then two layers, both added."""
        scale0, shift0, qkv, qkv_bias, out, out_bias, *rest = weights
        scale1, shift1, up, up_bias, down, down_bias = rest
        batch, tokens, width = z.shape
        heads = self.settings["heads"]
        y = F.linear(F.layer_norm(z, (width,), scale0, shift0), qkv, qkv_bias)
        q, k, v = y.view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(z.shape)
        attended = F.linear(y, out, out_bias)
        y = F.linear(F.layer_norm(z + attended, (width,), scale1, shift1), up, up_bias)
        return attended + F.linear(F.gelu(y), down, down_bias)


FIELDS: dict[str, type[Field]] = {
    "mlp": MLP,
    "galerkin": GalerkinMLP,
    "conv-norm": ConvNorm,
    "conv-softplus": ConvSoftplus,
    "encoder": Encoder,
}


def field_of(problem: Problem, dtype: torch.dtype = torch.float32) -> Field:
    """The field of a problem."""
    return FIELDS[problem.kind](problem, dtype)


def loss(z: Tensor) -> Tensor:
    """What is differentiated in every row but those of flows."""
    return z.square().sum()


def normal_log_prob(z: Tensor) -> Tensor:
    """Of the standard normal distribution, for each sample."""
    return -0.5 * (z.square().sum(-1) + z.shape[-1] * math.log(2 * math.pi))


def case(
    field: Field,
    forward: Callable[[], Tensor],
    of: Callable[[Tensor], Tensor] = loss,
    note: str = "",
) -> Case:
    """One forward and backward of a field; `of` what `forward` gives is differentiated."""
    weights = field.weights()

    def results() -> Outcome:
        field.evaluations = 0
        state = forward()
        gradients = torch.autograd.grad(of(state), weights)
        return outcome(state, field.names, gradients, field.evaluations)

    return Case(lambda: torch.autograd.grad(of(forward()), weights), results, note)


def outcome(
    state: Tensor, names: Iterable[str], gradients: Iterable[Tensor], evaluations: int | None
) -> Outcome:
    """As arrays."""
    found = {n: g.detach().numpy() for n, g in zip(names, gradients, strict=True)}
    return Outcome(state.detach().numpy(), found, evaluations)
