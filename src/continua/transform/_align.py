"""UnitTracker of neighbouring depths put in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ModuleError
from continua.basis import PiecewiseConstant
from continua.block import ODEBlock
from continua.field import copied, evaluated, put, tensor

from ._assignment import assignment
from ._batches import REFUSALS, Batches, call, evaluating
from ._blocks import blocks, refuse_elastic
from ._final import CONVOLUTIONS, LINEAR
from ._stack import as_blocks
from ._symmetry import Group, UnitTracker

if TYPE_CHECKING:
    from numpy.typing import NDArray

M = TypeVar("M", bound=nn.Module)
Tensors = dict[str, Tensor]
#: what a block is called with: positional and by name
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def align(model: M, x: Any = None) -> M:
    r"""A model that computes the same, with its hidden units in an order that is smooth over depth.

    Hidden units of a field can change places without a change of its output: rows of a map with
    the columns of the next one and the entries of the norm between them. Layers that were trained
    apart have them in orders that have nothing to do with each other, so that a mean of two
    layers, which `compress` takes, averages unrelated units. Here the units of each depth are
    permuted so that they are as near as possible to those of the depth before,

    .. math:: \min_{\pi_1, \dots, \pi_{K-1}} \sum_{k} \|\pi_{k+1}\theta_{k+1} - \pi_k\theta_k\|^2

    over weights and statistics; `smoothness` measures that of the weights. Each permutation solves
    an assignment problem exactly. Where a map has permutable units on both sides, its two
    permutations take turns until neither improves.

    Units are hidden units of MLPs, gated ones too, channels between convolutions, and heads of
    attention. They are found by following one evaluation of the field, and each kind is tried out
    before it is used. Batch-norm statistics move with their channels. Blocks whose basis is not
    `PiecewiseConstant` stay as they are. Outputs agree to rounding, in training too, except that
    dropout drops other units.

    Args:
        model: any module that contains ODE blocks, such as `convert` makes; it is not changed.
        x: what the model is called with: a tensor, or a tuple or dictionary of arguments. Only
            shapes matter. None makes up a state for each field from its first or last map.

    Example:
        >>> import continua as ct
        >>> layer = lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> block = ct.convert([layer() for _ in range(4)], skip="outside")
        >>> aligned = ct.align(block)
        >>> bool(ct.smoothness(aligned) < ct.smoothness(block))
        True
        >>> z = torch.randn(5, 2)
        >>> torch.allclose(aligned(z), block(z), atol=1e-6)
        True
    """
    refuse_elastic(model)
    if all(_buckets(block) < 2 for block in blocks(model).values()):
        kinds = {str(b) for block in blocks(model).values() for b in block.expansion.bases.values()}
        raise ArgumentError(
            "align needs a block with PiecewiseConstant of at least 2 functions, one for each "
            f"layer; here the bases are {', '.join(sorted(kinds)) or 'none'}"
        )
    made = copied(model)
    found = {name: block for name, block in blocks(made).items() if _buckets(block) > 1}
    calls = {} if x is None else _record_calls(made, x)
    groups = {block: _groups(block, name, calls.get(block)) for name, block in found.items()}
    if not any(groups.values()):
        raise ModuleError(
            "no block has units that can change places: align looks for a linear map, operations "
            "on each unit and another linear map, or for heads of attention, with the tensors of "
            "all of them in one PiecewiseConstant basis"
        )
    for block, own in groups.items():
        _permute(block, own)
    return made


def _buckets(block: ODEBlock) -> int:
    """The largest number of buckets that a weight of a block has."""
    sizes = [b.size for b in block.expansion.weights.values() if isinstance(b, PiecewiseConstant)]
    return max(sizes, default=0)


# -- what can be permuted


def _groups(block: ODEBlock, name: str, arguments: Arguments | None) -> list[Group]:
    """The units of a block's field that can change places at each depth."""
    module, basis = block.at(block.span[0]).eval(), PiecewiseConstant(_buckets(block))
    given = arguments or _make_arguments(module, block, name)
    tensors = {
        key: tensor(module, key) for key, own in block.expansion.bases.items() if own == basis
    }
    tracker = UnitTracker({key: t for key, t in tensors.items() if t.is_floating_point()})
    with torch.no_grad(), tracker:
        out = _evaluate(module, block, given)
    return [group for group in tracker.groups(out) if _is_symmetry(module, block, given, group)]


def _evaluate(module: nn.Module, block: ODEBlock, given: Arguments) -> Any:
    """The field at the start of the span."""
    args, kwargs = given
    s = torch.tensor(block.span[0], dtype=torch.float64)

    def called(x: Any, *args: Any, control: Any = None, **kwargs: Any) -> Any:  # as a block is
        return evaluated(module, s, x, x if control is None else control, *args, **kwargs)

    return called(*args, **kwargs)


@torch.no_grad()
def _is_symmetry(module: nn.Module, block: ODEBlock, given: Arguments, group: Group) -> bool:
    """Whether the output stays when the units change places, tried out with random weights.

    Those of the module may hide a change, such as a map of zeros.
    """
    module, generator = copied(module), torch.Generator().manual_seed(0)
    values: Tensors = {}
    for name in dict.fromkeys(name for name, _ in group):
        value = tensor(module, name)
        noise = torch.rand(value.shape, generator=generator).to(value)
        values[name] = value * (0.5 + noise) + 0.1 * noise
        put(module, block.expansion.names(name), values[name])
    before = _evaluate(module, block, given)
    order = torch.randperm(len(next(iter(group.values()))), generator=generator)
    _reorder(values, group, order)  # which the module has now
    after = _evaluate(module, block, given)
    if not isinstance(before, Tensor):
        return False
    close = torch.finfo(before.dtype).eps ** 0.5 * before.abs().max()
    return bool((after - before).abs().max() <= close)


def _record_calls(model: nn.Module, x: Any) -> dict[nn.Module, Arguments]:
    """What the blocks of a model are called with."""
    (batch,) = Batches(model, [x])
    found: dict[nn.Module, Arguments] = {}

    def note(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found[block] = (args, kwargs)

    handles = [
        block.register_forward_pre_hook(note, with_kwargs=True) for block in blocks(model).values()
    ]
    try:
        with torch.no_grad(), as_blocks(model), evaluating(model):
            call(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _make_arguments(module: nn.Module, block: ODEBlock, name: str) -> Arguments:
    """A state that the field takes."""
    maps = [part for part in module.modules() if isinstance(part, LINEAR)]
    like = next(module.parameters(), torch.empty(0))
    shapes = [*_state_shapes(maps[0], "in"), *_state_shapes(maps[-1], "out")] if maps else []
    for shape in shapes:
        # Not constant, which a norm would turn into zeros that hide a change.
        state = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(like)
        given: Arguments = ((state,), {})
        try:
            with torch.no_grad():
                if _evaluate(module, block, given).shape == torch.Size(shape):
                    return given
        except REFUSALS:
            continue
    where = f"the field of block {name!r}" if name else "the field"
    raise ModuleError(f"{where} takes no state that align could make up; give one: align(model, x)")


def _state_shapes(part: nn.Module, end: str) -> list[tuple[int, ...]]:
    """Shapes of states that a map may take or give, those of fewer dimensions first."""
    if isinstance(part, CONVOLUTIONS):
        return [(2, getattr(part, f"{end}_channels"), *[8] * len(part.kernel_size))]
    width = getattr(part, f"{end}_features")
    return [(2, width), (2, 3, width)]


# -- the permutations


@torch.no_grad()
def _permute(block: ODEBlock, groups: list[Group]) -> None:
    """Permute the units of each depth to be near those of the depth before, in place."""
    names = dict.fromkeys(name for group in groups for name, _ in group)
    stacks = {name: tensor(block.field, name).detach().clone() for name in names}
    for k in range(1, _buckets(block)):
        near = {name: stack[k - 1].cpu().double() for name, stack in stacks.items()}
        here = {name: stack[k].cpu().double() for name, stack in stacks.items()}
        better = True
        while better:
            better = False
            for group in groups:
                order = torch.from_numpy(assignment(-_inner_products(near, here, group)))
                tried = here | {name: here[name].clone() for name, _ in group}
                _reorder(tried, group, order)
                if _distance(near, tried) < (1 - 1e-12) * _distance(near, here):
                    here, better = tried, True
        for name, stack in stacks.items():
            stack[k] = here[name]
    block.rebase({name: (block.expansion.bases[name], stack) for name, stack in stacks.items()})


def _inner_products(near: Tensors, here: Tensors, group: Group) -> NDArray[np.float64]:
    """The inner products of all units at one depth with all at the next, `[n, n]`."""
    total = torch.zeros(())
    for (name, dim), positions in group.items():
        one, other = (values[name].movedim(dim, 0)[positions].flatten(1) for values in (near, here))
        total = total + one @ other.T
    return total.numpy()


def _distance(near: Tensors, here: Tensors) -> float:
    return float(sum((here[name] - value).square().sum() for name, value in near.items()))


def _reorder(values: Tensors, group: Group, order: Tensor) -> None:
    """Put unit `order[i]` in the place of unit i, in place."""
    for (name, dim), positions in group.items():
        rows = values[name].movedim(dim, 0)
        rows[positions] = rows[positions[order]]
