"""One model in many sizes, each measured."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua._tables import html_table, text_table
from continua._values import whole_number
from continua.transform import Choice, Elastic, blocks, call, check_sizes, compress, size_arguments
from continua.transform import size as size_of


@dataclass(frozen=True)
class Variant:
    """One size of a model."""

    size: Choice  # as in the sizes of `sweep`
    value: float  # what `evaluate` returned
    parameters: int  # how many scalars it has
    bytes: int  # of parameters and state
    evaluations: int | None  # of all fields in one forward; None if a solver chooses its steps
    milliseconds: float | None  # the median time of one forward, if it was measured
    model: nn.Module = field(repr=False, compare=False)  # in evaluation mode


@dataclass(frozen=True, repr=False)
class Front:
    """The sizes that `sweep` measured; `print` shows them as a table, and so does a notebook."""

    variants: tuple[Variant, ...]  # the sizes, the model itself first
    higher: bool = True  # whether more of the measure is better

    def loss(self, variant: Variant) -> float:
        """By how much a size is worse than the model itself; negative if it is better."""
        difference = self.variants[0].value - variant.value
        return difference if self.higher else -difference

    def optimal(self, variant: Variant) -> bool:
        """Whether no other size is at least as good, as small and as fast, and better in one."""
        own = self._costs(variant)
        return not any(
            all(a <= b for a, b in zip(costs, own, strict=True)) and costs != own
            for costs in map(self._costs, self.variants)
        )

    def _costs(self, variant: Variant) -> tuple[float, float, float]:
        return (self.loss(variant), float(variant.parameters), variant.milliseconds or 0.0)

    def pick(self, within: float) -> Variant:
        """The smallest size that is worse than the model by at most `within`; of two the better."""
        if not within >= 0:
            raise ArgumentError(f"within is a number of at least 0, not {within!r}")
        # Values are often quotients of counts, whose difference may round to a bit more.
        limit = within + 1e-9 * max(abs(self.variants[0].value), 1.0)
        close = [v for v in self.variants if self.loss(v) <= limit]
        return min(close, key=lambda v: (v.parameters, self.loss(v)))

    def rows(self) -> list[tuple[str, ...]]:
        """The table: a head, then a row per size; a star where no other size is better."""
        timed = any(v.milliseconds is not None for v in self.variants)
        head = ("size", "value", "change", "parameters", "share", "evaluations")
        rows: list[tuple[str, ...]] = [(*head, "ms", "front") if timed else (*head, "front")]
        full = self.variants[0]
        for v in self.variants:
            row = [
                _as_text(v.size),
                f"{v.value:.6g}",
                f"{v.value - full.value:+.3g}",
                f"{v.parameters:,}",
                f"{v.parameters / full.parameters:.3f}",
                "-" if v.evaluations is None else f"{v.evaluations:,}",
            ]
            if timed:
                row.append("-" if v.milliseconds is None else f"{v.milliseconds:.2f}")
            rows.append((*row, "*" if self.optimal(v) else ""))
        return rows

    def __str__(self) -> str:
        return text_table(self.rows())

    def __repr__(self) -> str:
        counts = [v.parameters for v in self.variants]
        return f"Front({len(counts)} sizes, {min(counts):,} to {max(counts):,} parameters)"

    def _repr_html_(self) -> str:
        return html_table(self.rows())


def sweep(
    model: nn.Module,
    evaluate: Callable[[nn.Module], float],
    sizes: Sequence[Choice] | None = None,
    *,
    x: Any = None,
    higher: bool = True,
    rounds: int = 5,
) -> Front:
    """A model in several sizes, measured by any function: which of them is worth its size?

    Args:
        model: any module that contains ODE blocks, which is not changed. An `Elastic` gives its
            own sizes, with the statistics that it has for each.
        evaluate: a number for a model, an accuracy in percent for instance. It is called with each
            size in evaluation mode, without gradients.
        sizes: numbers of basis functions, with the steps in proportion, or arguments of `compress`
            in dictionaries. By default half as many again and again.
        x: an input of the model, with which a forward is timed: a tensor, or a tuple or dictionary
            of what the model is called with.
        higher: whether more of the measure is better.
        rounds: of the timing, all sizes in turn, of which the median counts.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
        >>> x = torch.ones(1, 2)
        >>> front = ct.sweep(block, lambda m: -float((m(x) - block(x)).norm()))
        >>> [(v.size, v.parameters) for v in front.variants]
        [(4, 24), (2, 12), (1, 6)]
        >>> front.pick(within=10).size
        1
    """
    if not callable(evaluate):
        raise ArgumentError(f"evaluate is a function of a model, not {evaluate!r}")
    whole_number("rounds", rounds)
    models = _models(model, sizes)
    times = [None] * len(models) if x is None else _milliseconds([m for _, m in models], x, rounds)
    variants: list[Variant] = []
    for (size, small), milliseconds in zip(models, times, strict=True):
        with torch.no_grad():
            value: Any = evaluate(small)
        if isinstance(value, Tensor) and value.numel() == 1:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise ArgumentError(
                f"evaluate gives {value!r} for size {_as_text(size)}; it must give a finite number"
            )
        small.eval()  # evaluate may have changed the mode
        costs = size_of(small)
        counts = (costs.parameters, costs.bytes, costs.evaluations)
        variants.append(Variant(size, float(value), *counts, milliseconds, small))
    return Front(tuple(variants), higher)


def _models(model: nn.Module, sizes: Sequence[Choice] | None) -> list[tuple[Choice, nn.Module]]:
    """Each size and its model, in evaluation mode, the model itself first."""
    own = list(model.sizes) if isinstance(model, Elastic) else _halves(model)
    if sizes is None and not own:
        raise ArgumentError(
            "the model's weights have different bases; give sizes as dictionaries such as "
            "{'basis': ..., 'steps': ...}"
        )
    choices = own if sizes is None else [own[0] if own else {}, *check_sizes(sizes)]
    unique = [size for i, size in enumerate(choices) if size not in choices[:i]]
    if isinstance(model, Elastic):
        return [(size, model.at(size).eval()) for size in unique]
    with warnings.catch_warnings():  # of buckets that few steps never read: all sizes are tried
        warnings.simplefilter("ignore", UserWarning)
        return [(size, compress(model, **size_arguments(model, size)).eval()) for size in unique]


def _halves(model: nn.Module) -> list[Choice]:
    """The model's own number of functions, half of it, and so on; none if weights differ."""
    bases = {
        basis
        for block in blocks(model).values()
        for basis in block.expansion.weights.values()
        if basis.size > 1
    }
    if len({(type(basis), basis.size) for basis in bases}) > 1:
        return []
    basis = next(iter(bases), None)
    sizes = [1 if basis is None else basis.size]
    while basis is not None and (basis := basis.halved()).size < sizes[-1]:
        sizes.append(basis.size)
    return [*sizes]


@torch.inference_mode()
def _milliseconds(models: Sequence[nn.Module], x: Any, rounds: int) -> list[float]:
    """The median time of a forward of each; the models take turns."""
    from statistics import median  # slow to import

    times: list[list[float]] = [[] for _ in models]
    for _ in range(rounds + 1):
        for model, own in zip(models, times, strict=True):
            started = time.perf_counter()
            call(model, x)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            own.append(1000 * (time.perf_counter() - started))
    return [median(own[1:]) for own in times]  # the first is to warm up


def _as_text(size: Choice) -> str:
    if isinstance(size, int):
        return str(size)
    return ", ".join(f"{key}={value!r}" for key, value in size.items()) or "as it is"
