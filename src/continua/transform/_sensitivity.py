"""How much each weight matters at each depth."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from continua.basis import Basis, PiecewiseConstant, interpolation
from continua.block import ODEBlock
from continua.field import copied, tensor
from continua.solve import Euler

from ._batches import Batches, call, inputs_of, tensors_in
from ._blocks import blocks, change_basis
from ._final import CONVOLUTIONS, LINEAR
from ._stack import as_blocks

Weight = Literal["fisher", "activation"]
#: for each block and tensor how much its entries matter in cells of depth, `[M, ...]`
Sensitivity = Mapping[str, Mapping[str, Tensor]]


def sensitivity(model: nn.Module, batches: Batches, kind: Weight) -> Sensitivity:
    r"""How much each weight of a model's blocks matters at each depth.

    `"fisher"`: the diagonal of the Gauss-Newton matrix of the squared error of the outputs y,

    .. math:: w_i(s) = \sum_x \Big\| \frac{\partial y(x)}{\partial \theta_i(s)} \Big\|^2

    which is the Fisher information of a Gaussian around y. It is estimated by one backward pass
    per batch, of the outputs with random signs. `"activation"`: the mean square of what a linear or
    convolutional map is given, for each of its input channels; other tensors count the same at
    every depth.

    The model is not changed.
    """
    measure = _activations if kind == "activation" else _fisher
    return measure(copied(model).eval(), batches)


def _varying_bases(block: ODEBlock) -> dict[str, Basis]:
    return {name: basis for name, basis in block.expansion.weights.items() if basis.size > 1}


def _cell_count(block: ODEBlock) -> int:
    """Into how many cells of depth to look: one for each function, and for each step."""
    bases = _varying_bases(block).values()
    if all(isinstance(basis, PiecewiseConstant) for basis in bases):
        return max((basis.size for basis in bases), default=1)
    return max(block.solver.steps or 1, *(basis.size for basis in bases))


def _fisher(model: nn.Module, batches: Batches) -> Sensitivity:
    """Sums of squares of gradients, in a model whose weights are constant in cells of depth."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, block in blocks(model).items():
        cells, stacks = PiecewiseConstant(_cell_count(block)), {}
        for key, basis in _varying_bases(block).items():
            stack = change_basis(interpolation(basis, cells), tensor(block.field, key))
            stacks[key] = (cells, stack)
        block.rebase(stacks)
        found[name] = {key: torch.zeros_like(stack) for key, (_, stack) in stacks.items()}
    generator = torch.Generator().manual_seed(0)
    for batch in batches:
        model.zero_grad()
        with torch.enable_grad():
            leaves = [y for y in tensors_in(call(model, batch)) if y.requires_grad]
            signs = [torch.randint(2, y.shape, generator=generator).to(y) for y in leaves]
            torch.autograd.backward(leaves, [2 * v - 1 for v in signs])
        for name, block in blocks(model).items():
            for key, total in found[name].items():
                gradient = tensor(block.field, key).grad
                if gradient is not None:
                    total += gradient.abs().square()
    return found


@torch.no_grad()
def _activations(model: nn.Module, batches: Batches) -> Sensitivity:
    """Mean squares of what linear maps are given, at one evaluation per cell of depth."""
    return {name: _mean_squares(model, block, batches) for name, block in blocks(model).items()}


def _mean_squares(model: nn.Module, block: ODEBlock, batches: Batches) -> dict[str, Tensor]:
    cells, varying = _cell_count(block), _varying_bases(block)
    parts = {key: block.field.get_submodule(key.rpartition(".")[0]) for key in varying}
    maps = {k: m for k, m in parts.items() if isinstance(m, LINEAR) and k.endswith("weight")}
    squares, found = dict[str, list[Tensor]](), dict[str, Tensor]()

    def note(key: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        squares.setdefault(key, []).append(_mean_square(module, args[0]))

    for batch in batches:
        with as_blocks(model):
            inputs = inputs_of(model, block, batch)
        squares.clear()
        with ExitStack() as hooks:
            for key, module in maps.items():
                hooks.enter_context(module.register_forward_pre_hook(partial(note, key)))
            inputs.solve(block, solver=Euler(steps=cells))
        for key, each in squares.items():  # perhaps several calls per evaluation
            stack = torch.stack(each)
            mean = stack.reshape(cells, -1, *stack.shape[1:]).mean(1)
            found[key] = found[key] + mean if key in found else mean
    return found


def _mean_square(module: nn.Module, x: Tensor) -> Tensor:
    """The mean square of each input channel, in a shape that is broadcast to the weight's."""
    channel = 1 if isinstance(module, CONVOLUTIONS) else -1
    squares = x.movedim(channel, 0).flatten(1).abs().square().mean(1)
    if not isinstance(module, CONVOLUTIONS):
        return squares[None]
    rows = squares.reshape(module.groups, -1)
    if module.groups > 1:
        rows = rows.repeat_interleave(module.out_channels // module.groups, 0)
    return rows[(..., *[None] * len(module.kernel_size))]  # [1 or out, in, 1, ...]
