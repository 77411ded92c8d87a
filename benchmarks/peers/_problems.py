"""The problems of the rows: the same numbers for every side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._sides.protocol import Array, Problem

Arrays = dict[str, Array]


def problems(seed: int = 0) -> dict[str, Callable[[], Problem]]:
    """What makes the problem of each row that has peers."""

    def make(
        row: str, kind: str, parts: Callable[[np.random.Generator], tuple[Arrays, Arrays]],
        **settings: Any,
    ) -> tuple[str, Callable[[], Problem]]:  # fmt: skip
        def problem() -> Problem:
            generator = np.random.default_rng(seed)
            weights, inputs = (
                {name: value.astype(np.float32) for name, value in part.items()}
                for part in parts(generator)
            )
            return Problem(row, kind, weights, inputs, settings)

        return row, problem

    medium, tiny = _mlp(64, 16, 64, 64, 16), _mlp(32, 2, 16, 2)
    fourier = {"harmonics": 5}
    table = [
        make("fixed-small", "mlp", _mlp(64, 16, 64, 16),
             solver="rk4", steps=32, gradient="backprop"),
        make("fixed-large", "mlp", _mlp(4096, 64, 256, 256, 64),
             solver="rk4", steps=20, gradient="backprop"),
        make("adaptive-tiny", "mlp", tiny, solver="dopri5", tolerance=1e-6, gradient="backprop"),
        *(make(f"adaptive-medium/{g}", "mlp", medium,
               solver="dopri5", tolerance=1e-5, gradient=g)
          for g in ("backprop", "checkpoint", "adjoint")),
        *(make(f"galerkin/fixed-{g}", "galerkin", _galerkin(64, 5, 2, 64, 64, 2),
               solver="rk4", steps=32, gradient=g, **fourier) for g in ("backprop", "adjoint")),
        *(make(f"galerkin/adaptive-{g}", "galerkin", _galerkin(64, 5, 2, 64, 64, 2),
               solver="dopri5", tolerance=1e-5, gradient=g, **fourier)
          for g in ("backprop", "adjoint")),
        make("conv-stateful", "conv-norm", _conv_norm, solver="rk4", steps=4, gradient="backprop"),
        make("conv-adaptive", "conv-softplus", _conv_softplus,
             solver="dopri5", tolerance=1e-4, gradient="adjoint"),
        make("transformer", "encoder", _encoder,
             solver="euler", steps=6, gradient="backprop", heads=4),
        *(make(f"cnf/{trace}", "mlp", _moons,
               solver="dopri5", tolerance=1e-5, gradient="backprop", trace=trace)
          for trace in ("exact", "hutchinson")),
        make("per-sample", "mlp", _spans, solver="dopri5", tolerance=1e-5, gradient="backprop"),
    ]  # fmt: skip
    return dict(table)


def _layers(generator: np.random.Generator, widths: Sequence[int]) -> Arrays:
    """Weights as torch draws them."""
    found: Arrays = {}
    for i, (inner, outer) in enumerate(itertools.pairwise(widths)):
        bound = 1 / math.sqrt(inner)
        found[f"W{i}"] = generator.uniform(-bound, bound, (outer, inner))
        found[f"b{i}"] = generator.uniform(-bound, bound, outer)
    return found


def _mlp(batch: int, *widths: int) -> Callable[[np.random.Generator], tuple[Arrays, Arrays]]:
    def parts(generator: np.random.Generator) -> tuple[Arrays, Arrays]:
        weights = _layers(generator, widths)
        return weights, {"x": generator.standard_normal((batch, widths[0]))}

    return parts


def _galerkin(
    batch: int, harmonics: int, *widths: int
) -> Callable[[np.random.Generator], tuple[Arrays, Arrays]]:
    def parts(generator: np.random.Generator) -> tuple[Arrays, Arrays]:
        constant = _layers(generator, widths)
        stacks = {
            name: np.concatenate(
                [value[None], 0.05 * generator.standard_normal((2 * harmonics, *value.shape))]
            )
            for name, value in constant.items()
        }
        return stacks, {"x": generator.standard_normal((batch, widths[0]))}

    return parts


def _conv_norm(generator: np.random.Generator) -> tuple[Arrays, Arrays]:
    buckets, channels = 4, 16
    weights = {
        "conv": generator.standard_normal((buckets, channels, channels, 3, 3))
        * math.sqrt(2 / (9 * channels)),
        "gamma": generator.uniform(0.5, 1.0, (buckets, channels)),
        "beta": generator.uniform(-0.1, 0.1, (buckets, channels)),
    }
    return weights, {"x": generator.standard_normal((64, channels, 32, 32))}


def _conv_softplus(generator: np.random.Generator) -> tuple[Arrays, Arrays]:
    channels = 42
    wide, narrow = 1 / math.sqrt(9 * channels), 1 / math.sqrt(channels)
    weights = {
        "scale0": np.ones(channels),
        "shift0": np.zeros(channels),
        "conv0": generator.uniform(-wide, wide, (channels, channels, 3, 3)),
        "conv1": generator.uniform(-wide, wide, (channels, channels, 3, 3)),
        "scale1": np.ones(channels),
        "shift1": np.zeros(channels),
        "conv2": generator.uniform(-narrow, narrow, (channels, channels, 1, 1)),
        "bias2": generator.uniform(-narrow, narrow, channels),
    }
    return weights, {"x": generator.standard_normal((64, channels, 32, 32))}


def _encoder(generator: np.random.Generator) -> tuple[Arrays, Arrays]:
    layers, width = 6, 128

    def linear(outer: int, inner: int) -> Array:
        bound = 1 / math.sqrt(inner)
        return generator.uniform(-bound, bound, (layers, outer, inner))

    weights = {
        "scale0": np.ones((layers, width)), "shift0": np.zeros((layers, width)),
        "qkv": linear(3 * width, width), "qkv_bias": np.zeros((layers, 3 * width)),
        "out": linear(width, width), "out_bias": np.zeros((layers, width)),
        "scale1": np.ones((layers, width)), "shift1": np.zeros((layers, width)),
        "up": linear(4 * width, width), "up_bias": np.zeros((layers, 4 * width)),
        "down": linear(width, 4 * width), "down_bias": np.zeros((layers, width)),
    }  # fmt: skip
    return weights, {"x": generator.standard_normal((32, 64, width))}


def _moons(generator: np.random.Generator) -> tuple[Arrays, Arrays]:
    samples = 256
    angle = generator.uniform(0, math.pi, samples)
    upper = np.arange(samples) % 2 == 0
    x = np.where(upper, np.cos(angle), 1 - np.cos(angle))
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle))
    points = np.stack([x, y], -1) + 0.05 * generator.standard_normal((samples, 2))
    signs = generator.choice([-1.0, 1.0], (samples, 2))
    return _layers(generator, (2, 64, 64, 2)), {"x": points, "noise": signs}


def _spans(generator: np.random.Generator) -> tuple[Arrays, Arrays]:
    weights, inputs = _mlp(256, 2, 16, 2)(generator)
    return weights, {**inputs, "ends": generator.uniform(0.5, 2.0, 256)}
