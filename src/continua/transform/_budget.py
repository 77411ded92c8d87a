"""Which block to cut, and how far, for a given size."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from continua._errors import ArgumentError, SolveError
from continua.field import copied

from ._batches import Batches, call
from ._blocks import blocks
from ._count import size
from ._smaller import smaller_choices
from ._stack import as_blocks

M = TypeVar("M", bound=nn.Module)
Budget = float | Mapping[str, float]
#: for some blocks their arguments of `compress`
Choices = Mapping[str, Mapping[str, Any]]
#: a smaller model for such choices, with re-estimated statistics if there are batches
Smaller = Callable[[Choices, Batches | None], M]
MEASURES = ("parameters", "bytes", "evaluations", "latency")
#: of the timing
ROUNDS = 7
LOG = logging.getLogger(__name__)


class Cut(NamedTuple):
    """One way to make one block smaller.

    Attributes:
        choice: the arguments of `compress` for the block; none to leave it as it is.
        costs: of the model with this cut alone, less those of the model itself.
        error: of its outputs, squared and relative.
    """

    choice: Mapping[str, Any]
    costs: tuple[float, ...]
    error: float


class Plan(NamedTuple):
    """One cut for each of some blocks, with the sums of their costs and errors."""

    cuts: tuple[Cut, ...]
    costs: tuple[float, ...]
    error: float


def within_budget(model: M, smaller: Smaller[M], batches: Batches, budget: Budget) -> M:
    """The model of the smallest predicted error that costs no more than a budget.

    Args:
        model: whose blocks are cut; it is not changed.
        smaller: how they are cut.
        batches: of inputs.
        budget: as `compress` takes it.
    """
    asked = checked_budget(budget)
    own, cuts = _cuts(model, smaller, batches, list(asked))
    limits = []
    for i, (name, value) in enumerate(asked.items()):
        limit = value * own[i] if value <= 1 else value
        least = own[i] + sum(min(cut.costs[i] for cut in some) for some in cuts.values())
        if limit < least * (1 - 1e-9):
            raise ArgumentError(
                f"a budget of {_amount(name, limit)} is below the smallest that this model can be: "
                f"{_amount(name, least)}, {least / own[i]:.3g} of its own"
            )
        limits.append((limit - own[i]) + 1e-9 * own[i])
    every = _combined(_measured(model, smaller, batches, cuts))
    plans = [plan for plan in every if _no_more(plan.costs, limits)]
    if not plans:
        raise ArgumentError("with every cut that meets the budget a solve fails; give a larger one")
    best = min(plans, key=lambda plan: (plan.error, plan.costs))
    _log_gap(next(iter(asked)), own[0], limits[0], best, every)
    return smaller(_chosen(cuts, best), batches)


def _log_gap(name: str, own: float, limit: float, best: Plan, plans: Sequence[Plan]) -> None:
    """Say so if the model is much smaller than its budget, for want of a size between."""
    found, most = own + best.costs[0], own + limit
    larger = [plan.costs[0] for plan in plans if plan.costs[0] > limit]
    if larger and found < 0.8 * most:
        LOG.warning(
            "a budget of %s gives %s, %.3g of the model; the next larger choice has %.3g of it",
            _amount(name, most), _amount(name, found), found / own, 1 + min(larger) / own,
        )  # fmt: skip


def smallest_within(
    model: M, smaller: Smaller[M], batches: Batches, within: Any, evaluate: Any
) -> M:
    """The model with the fewest parameters that is worse by so much at most.

    The combinations of cuts that no other beats, in predicted error and in parameters, are searched
    by bisection; each that is tried is evaluated, and so is the one that is returned.

    Args:
        model: whose blocks are cut; it is not changed.
        smaller: how they are cut.
        batches: of inputs.
        within: in the units of the measure.
        evaluate: more is better.
    """
    if not _finite(within) or within < 0:
        raise ArgumentError(f"within is a number of at least 0, not {within!r}")
    if not callable(evaluate):
        raise ArgumentError(
            f"within={within!r} needs a function of a model, more being better: evaluate=accuracy"
            + ("" if evaluate is None else f", not {evaluate!r}")
        )
    own = _value(evaluate, model)
    # Values are often quotients of counts, whose difference may round to a bit more.
    lowest = own - float(within) - 1e-9 * max(abs(own), 1.0)
    _, cuts = _cuts(model, smaller, batches, ["parameters"])
    plans = _combined(_measured(model, smaller, batches, cuts))
    plans = sorted(plans, key=lambda plan: plan.costs)
    best = smaller({}, None)
    low, high = 0, len(plans)  # where none is good enough, the model itself remains
    while low < high:
        middle = (low + high) // 2
        found = smaller(_chosen(cuts, plans[middle]), batches)
        if _value(evaluate, found) >= lowest:
            best, high = found, middle
        else:
            low = middle + 1
    return best


def checked_budget(budget: Budget) -> dict[str, float]:
    """The limit of each measure: up to 1 a share of the model's own, above 1 a number."""
    asked = budget if isinstance(budget, Mapping) else {"parameters": budget}
    if not asked:
        raise ArgumentError(f"budget is empty; limit one of {', '.join(MEASURES)}")
    value: Any
    for name, value in asked.items():
        if name not in MEASURES:
            raise ArgumentError(f"a budget limits {', '.join(MEASURES)}, not {name!r}")
        number = _finite(value) and value > 0
        if not number or (value > 1 and (name == "latency" or value != int(value))):
            whole = "" if name == "latency" else f" or a whole number of {name}"
            raise ArgumentError(
                f"a budget of {name} is a share above 0 and up to 1{whole}, not {value!r}"
            )
    return {name: float(value) for name, value in asked.items()}


def _amount(name: str, value: float) -> str:
    return f"{1000 * value:.3g} ms" if name == "latency" else f"{math.floor(value):,} {name}"


def _chosen(names: Mapping[str, Any], plan: Plan) -> Choices:
    return {name: cut.choice for name, cut in zip(names, plan.cuts, strict=True)}


# -- the cuts of single blocks


def _cuts(
    model: M, smaller: Smaller[M], batches: Batches, measures: Sequence[str]
) -> tuple[tuple[float, ...], dict[str, list[Cut]]]:
    """What the model costs, and all cuts of each block with what they save; errors to come."""
    found = blocks(model)
    solvers = "evaluations" in measures or "latency" in measures
    choices = {name: smaller_choices(block, solvers) for name, block in found.items()}
    seconds = _timed(copied(model).eval(), batches) if "latency" in measures else {}

    def costs(one: nn.Module) -> tuple[float, ...]:
        counted = size(one)
        shares = {
            name: (block.solver.evaluations(block.span) or 0)
            / (found[name].solver.evaluations(block.span) or 1)
            for name, block in blocks(one).items()
        }
        latency = seconds.get(None, 0.0) + sum(seconds.get(n, 0.0) * s for n, s in shares.items())
        known = {
            "parameters": counted.parameters,
            "bytes": counted.bytes,
            "evaluations": counted.evaluations or 0,
            "latency": latency,
        }
        return tuple(float(known[measure]) for measure in measures)

    own = costs(model)
    cuts: dict[str, list[Cut]] = {}
    for name, some in choices.items():
        cuts[name] = []
        for choice in some:
            now = costs(smaller({name: choice}, None))
            saved = tuple(a - b for a, b in zip(now, own, strict=True))
            cuts[name].append(Cut(choice, saved, math.nan))
    return own, cuts


@torch.inference_mode()
def _timed(model: nn.Module, batches: Batches) -> dict[str | None, float]:
    """The seconds of each block in one forward of the first batch, and under None all else."""
    batch = next(iter(batches))
    spent: dict[str | None, float] = {}
    handles = []

    def clock() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    def add(name: str, sign: int) -> None:
        spent[name] = spent.get(name, 0.0) + sign * clock()

    for name, block in blocks(model).items():
        before = block.register_forward_pre_hook(lambda _m, _a, name=name: add(name, -1))
        after = block.register_forward_hook(lambda _m, _a, _o, name=name: add(name, 1))
        handles += [before, after]
    best: dict[str | None, float] = {}
    for i in range(ROUNDS + 1):
        spent.clear()
        started = clock()
        with as_blocks(model):
            call(model, batch)
        spent[None] = clock() - started - sum(spent.values())
        if i:  # the first warms up
            best = {name: min(best.get(name, math.inf), spent[name]) for name in spent}
    for handle in handles:
        handle.remove()
    return best


def _measured(
    model: M, smaller: Smaller[M], batches: Batches, cuts: Mapping[str, Sequence[Cut]]
) -> list[list[Cut]]:
    r"""The cuts with the error of the outputs ŷ of the model with each cut alone.

    .. math:: e = \frac{\sum_x \|\hat y(x) - y(x)\|^2}{\sum_x \|y(x)\|^2}

    The outputs y are those of the uncut model. Cuts with which a solve fails are left out.
    """
    teacher = copied(model).eval()
    found: list[list[Cut]] = []
    for name, some in cuts.items():
        found.append([some[0]._replace(error=0.0)])  # as it is
        for cut in some[1:]:
            try:
                error = output_error(teacher, smaller({name: cut.choice}, batches), batches)
            except SolveError:
                continue
            if math.isfinite(error):
                found[-1].append(cut._replace(error=error))
    return found


@torch.no_grad()
def output_error(teacher: nn.Module, small: nn.Module, batches: Batches) -> float:
    """The squared error of the outputs of a model, relative to those of another."""
    small = copied(small).eval()
    error = norm = 0.0
    for batch in batches:
        pairs = zip(tree_leaves(call(teacher, batch)), tree_leaves(call(small, batch)), strict=True)
        for y, other in pairs:
            if isinstance(y, Tensor) and (y.is_floating_point() or y.is_complex()):
                error += float((other - y).abs().square().sum())
                norm += float(y.abs().square().sum())
    return error / (norm or 1.0)


# -- combinations


def _combined(cuts: Sequence[Sequence[Cut]]) -> list[Plan]:
    """The combinations of one cut per block that no other beats in error and in all costs.

    Dynamic programming: what is beaten among the first blocks is beaten with any cuts of the
    others, since costs and errors are sums.
    """
    none = (0.0,) * len(cuts[0][0].costs)
    plans = [Plan((), none, 0.0)]
    for some in cuts:
        joined = [
            Plan(
                (*plan.cuts, cut),
                tuple(a + b for a, b in zip(plan.costs, cut.costs, strict=True)),
                plan.error + cut.error,
            )
            for plan in plans
            for cut in some
        ]
        plans = []
        for one in sorted(joined, key=lambda plan: (plan.error, plan.costs)):
            if not any(_no_more(plan.costs, one.costs) for plan in plans):
                plans.append(one)
    return plans


def _no_more(costs: Sequence[float], limits: Sequence[float]) -> bool:
    return all(cost <= limit for cost, limit in zip(costs, limits, strict=True))


@torch.no_grad()
def _value(evaluate: Callable[[nn.Module], float], model: nn.Module) -> float:
    value: Any = evaluate(copied(model).eval())
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if not _finite(value):
        raise ArgumentError(f"evaluate gives {value!r}; it must give a finite number")
    return float(value)


def _finite(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Real) and math.isfinite(value)
