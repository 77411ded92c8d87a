"""The fields of the problems, as one writes them in JAX without a library.

Each is a function of weights, depth and state, `f(weights, s, z)`, where `weights` is the list of
the problem's arrays in its order. Images have their channels last, which is the layout that XLA
computes convolutions in; the weights keep the layout of the problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .protocol import Problem

Weights = list[Array]
Field = Callable[[Weights, Any, Array], Array]


def mlp(weights: Weights, z: Array) -> Array:
    """W_n tanh(... tanh(W_0 z + b_0)) + b_n, weights W0, b0, W1, b1, ..."""
    for i in range(0, len(weights), 2):
        z = (z if i == 0 else jnp.tanh(z)) @ weights[i].T + weights[i + 1]
    return z


def fourier(harmonics: int, stacks: Weights, s: Any) -> Weights:
    """Weights at a depth: 1, cos 2πs, sin 2πs, cos 4πs, ... contracted with each stack."""
    angle = s * (2 * math.pi) * jnp.arange(1, harmonics + 1, dtype=jnp.float32)
    waves = jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1).ravel()
    basis = jnp.concatenate([jnp.ones(1, waves.dtype), waves])
    return [jnp.tensordot(basis, stack, 1) for stack in stacks]


def _convolved(z: Array, kernel: Array) -> Array:
    return jax.lax.conv_general_dilated(
        z, kernel.transpose(2, 3, 1, 0), (1, 1), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip


@jax.custom_vjp  # type: ignore[untyped-decorator]
def conv(z: Array, kernel: Array) -> Array:
    """A convolution of the same size, by a kernel whose axes are outputs, inputs, height, width.

    XLA is an order of magnitude slower at the gradient of a kernel inside a loop on a CPU (JAX
    issue 12868), so that is written as matrix products, one for each place of the kernel.
    """
    return _convolved(z, kernel)


def _conv_forward(z: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _convolved(z, kernel), (z, kernel)


def _conv_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    z, kernel = saved
    height, width = z.shape[1:3]
    size = kernel.shape[-1]
    around = (size // 2, size // 2)
    padded = jnp.pad(z, ((0, 0), around, around, (0, 0)))
    flat = gradient.reshape(-1, kernel.shape[0])
    places = [
        flat.T @ padded[:, i : i + height, j : j + width].reshape(flat.shape[0], -1)
        for i in range(size)
        for j in range(size)
    ]
    of_kernel = jnp.stack(places, -1).reshape(kernel.shape)
    return _convolved(gradient, jnp.flip(kernel, (2, 3)).swapaxes(0, 1)), of_kernel


conv.defvjp(_conv_forward, _conv_backward)


def normalised(z: Array, axes: tuple[int, ...], scale: Array, shift: Array) -> Array:
    """Mean 0 and variance 1 over `axes`, then a scale and a shift of the last axis."""
    mean = z.mean(axes, keepdims=True)
    centred = z - mean
    variance = jnp.square(centred).mean(axes, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def conv_norm(weights: Weights, z: Array) -> Array:
    """relu(batch_norm(conv(z))) by the statistics of the batch: weights conv, gamma, beta."""
    kernel, gamma, beta = weights
    return jax.nn.relu(normalised(conv(z, kernel), (0, 1, 2), gamma, beta))


def conv_softplus(weights: Weights, z: Array) -> Array:
    """Norm, two 3 x 3 convolutions with softplus, norm, a 1 x 1 convolution."""
    scale0, shift0, conv0, conv1, scale1, shift1, conv2, bias2 = weights
    # Groups of one channel: the statistics are those of one image's channel.
    z = normalised(z, (1, 2), scale0, shift0)
    z = jax.nn.softplus(conv(z, conv0))
    z = jax.nn.softplus(conv(z, conv1))
    z = normalised(z, (1, 2), scale1, shift1)
    return conv(z, conv2) + bias2


def encoder(heads: int, weights: Weights, z: Array) -> Array:
    """The increment of a pre-norm transformer encoder: attention, then two layers, both added."""
    scale0, shift0, qkv, qkv_bias, out, out_bias, *rest = weights
    scale1, shift1, up, up_bias, down, down_bias = rest
    batch, tokens, width = z.shape
    y = normalised(z, (-1,), scale0, shift0) @ qkv.T + qkv_bias
    parts = y.reshape(batch, tokens, 3, heads, width // heads)
    q, k, v = (parts[:, :, i] for i in range(3))
    y = jax.nn.dot_product_attention(q, k, v).reshape(z.shape)
    attended = y @ out.T + out_bias
    y = normalised(z + attended, (-1,), scale1, shift1) @ up.T + up_bias
    return attended + jax.nn.gelu(y, approximate=False) @ down.T + down_bias


def bucket(weights: Weights, s: Any) -> Weights:
    """The weights of the bucket that a depth lies in."""
    pieces = weights[0].shape[0]
    # A depth that should be k / pieces may be a rounding error below it.
    index = jnp.clip((s * pieces + 1e-4).astype(jnp.int32), 0, pieces - 1)
    return [stack[index] for stack in weights]


def field_of(problem: Problem) -> Field:
    """The field of a problem. That of "conv-norm" takes the weights of one bucket."""
    if problem.kind == "mlp":
        return lambda weights, s, z: mlp(weights, z)
    if problem.kind == "galerkin":
        harmonics = problem.settings["harmonics"]
        return lambda weights, s, z: mlp(fourier(harmonics, weights, s), z)
    if problem.kind == "conv-norm":
        return lambda weights, s, z: conv_norm(weights, z)
    if problem.kind == "conv-softplus":
        return lambda weights, s, z: conv_softplus(weights, z)
    heads = problem.settings["heads"]
    return lambda weights, s, z: encoder(heads, bucket(weights, s), z)


def loss(z: Array) -> Array:
    """What is differentiated in every row but those of flows."""
    return jnp.square(z).sum()


def normal_log_prob(z: Array) -> Array:
    """Of the standard normal distribution, for each sample."""
    return -0.5 * (jnp.square(z).sum(-1) + z.shape[-1] * math.log(2 * math.pi))
