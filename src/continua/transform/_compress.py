"""Fewer basis functions and steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, get_args

from torch import nn

from continua._errors import ArgumentError
from continua.basis import Constant
from continua.block import warn_unread
from continua.field import BasisChoice, choose, copied, gathered, matches
from continua.solve import Solver

from ._batches import Batches
from ._blocks import blocks, refuse_elastic
from ._budget import Budget, check_budget, search_budget, search_loss
from ._change import KEYS, Choices, Compression, Method, Names
from ._sensitivity import Weight, sensitivity
from ._warn import log_error, warn_beside, warn_negative, warn_post_norm

M = TypeVar("M", bound=nn.Module)


def compress(
    model: M,
    basis: BasisChoice | None = None,
    *,
    steps: int | Mapping[str, int] | None = None,
    solver: Solver | Mapping[str, Solver] | None = None,
    state_basis: BasisChoice | None = None,
    method: Method = "project",
    per_block: Mapping[str, Mapping[str, Any]] | None = None,
    calibrate: Iterable[Any] | None = None,
    weight: Weight | None = None,
    budget: Budget | None = None,
    within: float | None = None,
    evaluate: Callable[[nn.Module], float] | None = None,
    final: str | None = None,
) -> M:
    r"""A smaller model, by a change of basis: no retraining, no data.

    Every weight and every piece of state is a function of depth; it is replaced by its best
    approximation in the new basis (`projection`), or by the function that agrees with it at the
    new basis' nodes (`interpolation`). Solver and steps are free to change with it. Tensors that
    are constant in depth already stay as they are.

    A running variance that its projection would push below the smallest value it has at any
    depth is drawn towards its mean over depth until it no longer is, so that it stays positive.

    Args:
        model: any module that contains ODE blocks; it is not changed. Weights that blocks share
            stay shared, which needs the same new basis.
        basis: the new basis, or a mapping from patterns of tensor names to bases as `ODEBlock`
            takes it. None leaves the bases as they are.
        steps: the new number of steps, or a mapping from patterns of block names to numbers.
        solver: the new solver, or a mapping from patterns of block names to solvers; `steps`
            overrides its number of steps.
        state_basis: the new basis of the state, or patterns of tensor names; None takes `basis`.
        method: `"project"`, `"interpolate"`, or `"fit"`: then the last linear or convolutional map
            of each field is fitted, by least squares, so that the smaller network follows the
            states of the larger one; one batch of `calibrate` in four, the second, sixth and so
            on, is held back to choose by. This is for layers that were trained apart, as those
            that `convert` takes: of these, groups of neighbours become one layer each, which keeps
            the weights of one of them. The groups are those that change the output least, and
            steps keep the length 1, so a stack of L layers made into one of N spans (0, N).
        per_block: choices for some blocks: a mapping from patterns of block names to choices
            among `basis`, `steps`, `solver` and `state_basis`, of which the first match wins.
            A choice made here goes before the one for all blocks.
        calibrate: inputs without labels, in batches, from which the batch-norm statistics are
            re-estimated at the end. A few hundred are enough, augmented as in training. The
            statistics of `model` are taken to be right: they are compared with those that the same
            inputs give, and the difference is removed. If they are out of date, `recalibrate`
            first.
        weight: projects so that weights come nearest where they matter most, as the inputs of
            `calibrate` show. `"fisher"`: by the squared gradient of the outputs with respect to
            each weight. `"activation"`: by the mean square of what a linear or convolutional map
            is given, per input channel. None weights all depths equally.
        budget: how large the model may be; basis, steps and solver are then chosen per block. A
            number up to 1 is a share of the parameters, a whole number above 1 a number of them.
            A mapping limits some of `"parameters"`, `"bytes"`, `"evaluations"` and `"latency"`
            likewise, latency only as a share. Each block is cut alone in every way, and the
            combination is taken for which the squared errors of the outputs have the smallest
            sum, on the inputs of `calibrate`.
        within: instead of a budget, how much worse the model may be: the fewest parameters are
            looked for.
        evaluate: for `within`, a number for a model in evaluation mode, of which more is better.
        final: the name of the map that `"fit"` changes, or a pattern of it, as `"*.linear2"`; by
            default the last that a field calls.

    Example:
        >>> import torch, continua as ct
        >>> model = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(8), ct.Euler(steps=8))
        >>> ct.compress(model, ct.PiecewiseConstant(4), steps=4)
        ODEBlock(
          basis=PiecewiseConstant(4)
          solver=Euler(steps=4), span=(0, 1)
          parameters=24, state=0
          (field): Linear(in_features=2, out_features=2, bias=True)
        )

        One choice for the first block, another for the rest:

        >>> pair = nn.Sequential(model, ct.refine(model))
        >>> first = {"basis": ct.PiecewiseConstant(2), "steps": 2}
        >>> small = ct.compress(pair, ct.PiecewiseConstant(4), steps=4, per_block={"0": first})
        >>> small[0].basis, small[1].basis
        (PiecewiseConstant(2), PiecewiseConstant(4))

        Half the parameters, cut where it matters least:

        >>> small = ct.compress(pair, budget=0.5, calibrate=torch.randn(64, 2).split(32))
        >>> sum(p.numel() for p in small.parameters()) <= 0.5 * (48 + 96)
        True
    """
    refuse_elastic(model)
    model = gathered(model)
    _check_method(method, weight, calibrate, final)
    for_all = {"basis": basis, "state_basis": state_basis, "steps": steps, "solver": solver}
    given = {name: v for name, v in (for_all | {"per_block": per_block}).items() if v is not None}
    searched = _check_search(budget, within, evaluate, calibrate, given)
    names = Names.of(model)
    if not (given or searched) and calibrate is None:
        raise _without_choice(model)
    choices = _choices(names, for_all, {} if per_block is None else per_block)
    # One batch is held back, and one must be left.
    least = 2 if method == "fit" else 1
    batches = None if calibrate is None else Batches(copied(model), calibrate, least, "calibrate")
    weights = {} if weight is None or batches is None else sensitivity(model, batches, weight)
    compression = Compression(model, names, method, batches, weights, final)
    if batches is None or not searched:
        small = compression(choices)
    elif budget is not None:
        small = search_budget(compression, batches, budget)
    else:
        small = search_loss(compression, batches, within, evaluate)
    for name, block in blocks(small).items():
        warn_unread(block, f" of block {name!r}" if name else "")
        warn_beside(name, block)
        warn_post_norm(name, block)
        if calibrate is not None:
            warn_negative(name, block)
    if batches is not None:
        remedy = "heal" if method == "fit" else "method='fit', and then heal,"
        log_error(model, small, next(iter(batches)), remedy)
    return small


# -- what is refused before the work


def _check_method(method: Any, weight: Any, calibrate: Any, final: Any) -> None:
    """Refuse a method that lacks what it needs."""
    if method not in get_args(Method):
        raise ArgumentError(f"method is 'project', 'interpolate' or 'fit', not {method!r}")
    if method == "fit" and calibrate is None:
        raise ArgumentError("method='fit' needs inputs to fit to: calibrate=[x, ...]")
    if final is not None and method != "fit":
        raise ArgumentError(f"final={final!r} names the map that method='fit' changes")
    if weight is None:
        return
    if weight not in get_args(Weight):
        raise ArgumentError(f"weight is 'fisher', 'activation' or None, not {weight!r}")
    if method == "interpolate":
        raise ArgumentError("weight= is for projections, and method is 'interpolate'")
    if calibrate is None:
        raise ArgumentError(f"weight={weight!r} needs inputs to look at: calibrate=[x, ...]")


def _check_search(
    budget: Any, within: Any, evaluate: Any, calibrate: Any, given: Mapping[str, Any]
) -> bool:
    """Whether the choices are to be searched; refuse a search that lacks what it needs."""
    if budget is None and within is None:
        if evaluate is not None:
            raise ArgumentError("evaluate= goes with within=, the largest loss to accept")
        return False
    if budget is not None and within is not None:
        raise ArgumentError("give a budget or within, not both")
    name = "within" if budget is None else "budget"
    if given:
        raise ArgumentError(f"{name}= chooses {next(iter(given))}; give one of the two")
    if budget is not None:
        check_budget(budget)
    if calibrate is None:
        raise ArgumentError(f"{name}= needs inputs to measure each cut on: calibrate=[x, ...]")
    return True


def _without_choice(model: nn.Module) -> ArgumentError:
    block = next(iter(blocks(model).values()))
    half = next((basis.halved() for basis in block.expansion.weights.values()), Constant())
    return ArgumentError(
        "compress needs a choice: a smaller basis, fewer steps, or both, as in "
        f"compress(model, basis={half}, steps=4); the first block has {block.basis!r} and "
        f"{block.solver!r}"
    )


# -- what to do with each block


def _choices(names: Names, for_all: Mapping[str, Any], per_block: Any) -> Choices:
    """For each block its basis, state basis, steps and solver, as far as they are given."""
    own = _own_choices(per_block, names.blocks)
    tensors = {"basis": names.weights + names.state, "state_basis": names.state}
    old = [k for k, known in tensors.items() if _names_blocks(for_all[k], names.blocks, known)]
    chosen = {
        key: choose(value, names.blocks, "block")
        if key in ("steps", "solver", *old)
        else dict.fromkeys(names.blocks, value)
        for key, value in for_all.items()
    }
    if old:
        new = {name: {key: chosen[key][name] for key in old} for name in names.blocks}
        warnings.warn(
            f"patterns of blocks in {' and '.join(old)} are now per_block={new}; "
            "the next version takes patterns of tensors there alone",
            DeprecationWarning,
            stacklevel=3,
        )
    return {name: {key: chosen[key][name] for key in KEYS} | own[name] for name in names.blocks}


def _own_choices(per_block: Any, blocks: list[str]) -> dict[str, dict[str, Any]]:
    """What each block is given in `per_block`."""
    if not isinstance(per_block, Mapping):
        raise ArgumentError(f"per_block maps patterns of blocks to choices, not {per_block!r}")
    for pattern, own in per_block.items():
        if not isinstance(own, Mapping):
            raise ArgumentError(
                f"per_block[{pattern!r}] is a mapping such as {{'basis': basis, 'steps': 4}}, "
                f"not {own!r}"
            )
        if unknown := [key for key in own if key not in KEYS]:
            raise ArgumentError(
                f"per_block[{pattern!r}] has {unknown[0]!r}; the choices are {', '.join(KEYS)}"
            )
    chosen = choose({**per_block, "*": per_block.get("*", {})}, blocks, "block")
    return {name: dict(own) for name, own in chosen.items()}


def _names_blocks(choice: Any, blocks: list[str], tensors: list[str]) -> bool:
    """Whether the patterns are of blocks, as in earlier versions; both means tensors."""
    if not isinstance(choice, Mapping):
        return False
    if any(isinstance(value, Mapping) for value in choice.values()):
        return True
    return not all(matches(p, tensors) for p in choice) and all(matches(p, blocks) for p in choice)
