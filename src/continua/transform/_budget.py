"""Which blocks to cut, and how far, for a given size."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.field import copied

from ._batches import Batches
from ._change import Compression
from ._cuts import Costs, Cut, cost_function, list_cuts, measure_errors

M = TypeVar("M", bound=nn.Module)
Budget = float | Mapping[str, float]
MEASURES = ("parameters", "bytes", "evaluations", "latency")
LOG = logging.getLogger(__name__)


def search_budget(compression: Compression[M], batches: Batches, budget: Budget) -> M:
    """The model of the smallest predicted error that costs no more than a budget."""
    asked = check_budget(budget)
    costs = cost_function(compression.model, batches, list(asked))
    own = costs(compression.model)
    solvers = "evaluations" in asked or "latency" in asked
    cuts = list_cuts(compression, costs, solvers=solvers)
    limits = []
    for i, (name, value) in enumerate(asked.items()):
        limit = value * own[i] if value <= 1 else value
        least = own[i] + sum(min(cut.costs[i] for cut in some) for some in cuts)
        if limit < least * (1 - 1e-9):
            raise ArgumentError(
                f"a budget of {_amount(name, limit)} is below the smallest that this model can be: "
                f"{_amount(name, least)}, {least / own[i]:.3g} of its own"
            )
        limits.append((limit - own[i]) + 1e-9 * own[i])
    every = _combine(measure_errors(compression, batches, cuts))
    plans = [plan for plan in every if _fits(plan.costs, limits)]
    if not plans:
        raise ArgumentError("with every cut that meets the budget a solve fails; give a larger one")
    best = min(plans, key=lambda plan: (plan.error, plan.costs))
    _log_gap(next(iter(asked)), own[0], limits[0], best, every)
    return compression(best.choices)


def _log_gap(name: str, own: float, limit: float, best: Cut, plans: Sequence[Cut]) -> None:
    """Say so if the model is much smaller than its budget because there is no size between."""
    found, most = own + best.costs[0], own + limit
    larger = [plan.costs[0] for plan in plans if plan.costs[0] > limit]
    if larger and found < 0.8 * most:
        LOG.warning(
            "a budget of %s gives %s, %.3g of the model; the next larger choice has %.3g of it",
            _amount(name, most), _amount(name, found), found / own, 1 + min(larger) / own,
        )  # fmt: skip


def search_loss(compression: Compression[M], batches: Batches, within: Any, evaluate: Any) -> M:
    """The model with the fewest parameters that is worse by `within` at most.

    The combinations of cuts that no other beats, in predicted error and in parameters, are searched
    by bisection; each that is tried is evaluated, and so is the one that is returned.
    """
    if not _is_finite(within) or within < 0:
        raise ArgumentError(f"within is a number of at least 0, not {within!r}")
    if not callable(evaluate):
        raise ArgumentError(
            f"within={within!r} needs a function of a model, more being better: evaluate=accuracy"
            + ("" if evaluate is None else f", not {evaluate!r}")
        )
    own = _evaluate(evaluate, compression.model)
    # Values are often quotients of counts, whose difference may round to a bit more.
    lowest = own - float(within) - 1e-9 * max(abs(own), 1.0)
    costs = cost_function(compression.model, batches, ["parameters"])
    cuts = list_cuts(compression, costs, solvers=False)
    plans = _combine(measure_errors(compression, batches, cuts))
    plans = sorted(plans, key=lambda plan: plan.costs)
    best = copied(compression.model)
    low, high = 0, len(plans)  # where none is good enough, the model itself remains
    while low < high:
        middle = (low + high) // 2
        found = compression(plans[middle].choices)
        if _evaluate(evaluate, found) >= lowest:
            best, high = found, middle
        else:
            low = middle + 1
    return best


def check_budget(budget: Budget) -> dict[str, float]:
    """The limit of each measure: up to 1 a share of the model's own, above 1 a number."""
    asked = budget if isinstance(budget, Mapping) else {"parameters": budget}
    if not asked:
        raise ArgumentError(f"budget is empty; limit one of {', '.join(MEASURES)}")
    value: Any
    for name, value in asked.items():
        if name not in MEASURES:
            raise ArgumentError(f"a budget limits {', '.join(MEASURES)}, not {name!r}")
        number = _is_finite(value) and value > 0
        if not number or (value > 1 and (name == "latency" or value != int(value))):
            whole = "" if name == "latency" else f" or a whole number of {name}"
            raise ArgumentError(
                f"a budget of {name} is a share above 0 and up to 1{whole}, not {value!r}"
            )
    return {name: float(value) for name, value in asked.items()}


def _combine(cuts: Sequence[Sequence[Cut]]) -> list[Cut]:
    """The combinations of one cut per block that no other beats in error and in all costs.

    Dynamic programming: what is beaten among the first blocks is beaten with any cuts of the
    others, since costs and errors are sums.
    """
    plans = [Cut({}, (0.0,) * len(cuts[0][0].costs), 0.0)]
    for some in cuts:
        joined = [
            Cut(
                {**plan.choices, **cut.choices},
                tuple(a + b for a, b in zip(plan.costs, cut.costs, strict=True)),
                plan.error + cut.error,
            )
            for plan in plans
            for cut in some
        ]
        plans = []
        for one in sorted(joined, key=lambda plan: (plan.error, plan.costs)):
            if not any(_fits(plan.costs, one.costs) for plan in plans):
                plans.append(one)
    return plans


def _fits(costs: Costs, limits: Sequence[float]) -> bool:
    return all(cost <= limit for cost, limit in zip(costs, limits, strict=True))


def _amount(name: str, value: float) -> str:
    return f"{1000 * value:.3g} ms" if name == "latency" else f"{math.floor(value):,} {name}"


@torch.no_grad()
def _evaluate(evaluate: Callable[[nn.Module], float], model: nn.Module) -> float:
    value: Any = evaluate(copied(model).eval())
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if not _is_finite(value):
        raise ArgumentError(f"evaluate gives {value!r}; it must give a finite number")
    return float(value)


def _is_finite(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Real) and math.isfinite(value)
