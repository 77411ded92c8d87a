"""Projections that keep best what matters most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from continua.basis import Basis, PiecewiseConstant, interpolation, projection, quadrature
from continua.block import ODEBlock
from continua.field import copied, tensor
from continua.solve import Euler

from ._batches import Batches, call, inputs_of
from ._blocks import blocks, transformed
from ._final import CONVOLUTIONS, LINEAR
from ._stack import as_blocks

Weight = Literal["fisher", "activation"]
#: for each block and tensor how much its entries matter in cells of depth, `[M, ...]`
Sensitivity = Mapping[str, Mapping[str, Tensor]]
#: the smallest weight, relative to the mean over depth
FLOOR = 1e-3
#: entries that are projected at a time
CHUNK = 1 << 15


def weighted_projection(source: Basis, target: Basis, stack: Tensor, weight: Tensor) -> Tensor:
    r"""The coefficients of the best approximation in a weighted mean square, for each entry.

    .. math:: \min_c \int_0^1 w(s) \Big( \sum_j \phi_j(s)\, c_j - \theta(s) \Big)^2 ds

    With the plain projection Pθ, its residual r = θ − Pθ, and functions q that are orthonormal
    and span those of the target, the solution is

    .. math:: c = P\theta + \sum_j a_j q_j, \qquad
              \sum_k \Big( \int w\, q_j q_k\, ds \Big) a_k = \int w\, q_j\, r\, ds

    so a weight that is the same at all depths changes nothing. Weights are taken relative to their
    mean over depth, and none is below a thousandth of it.

    Args:
        source: the old basis.
        target: the new one.
        stack: the coefficients, `[K, ...]`.
        weight: one value for each of M cells of equal width, `[M, ...]`; its further dimensions
            are broadcast to those of the stack.

    Example:
        >>> theta, weight = torch.tensor([[1.0], [5.0]]), torch.tensor([[3.0], [1.0]])
        >>> weighted_projection(PiecewiseConstant(2), PiecewiseConstant(1), theta, weight)
        tensor([[2.]])
    """
    matrix = projection(source, target)
    plain = transformed(matrix, stack)
    cells = PiecewiseConstant(len(weight))
    s, w = quadrature(source, target, cells)
    root = w.sqrt()[:, None]
    q, r = torch.linalg.qr(root * target(s))  # [P, J], [J, J]
    rest = root * (source(s) - target(s) @ matrix)  # [P, K]
    wide = torch.promote_types(stack.dtype, torch.float64)
    old = stack.detach().cpu().to(wide).reshape(source.size, -1)  # [K, n]
    every = weight.detach().cpu().double().expand(-1, *stack.shape[1:])
    every = every.reshape(len(weight), -1)  # [M, n]
    mean = every.mean(0)
    every = torch.where(mean > 0, every / mean, 1.0).clamp(min=FLOOR)
    at = cells(s).argmax(-1)
    changes = []
    for start in range(0, old.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        each = every[:, part][at]  # [P, n]
        left = torch.einsum("pj,pn,pk->njk", q, each, q).to(wide)
        right = torch.einsum("pj,pn->nj", q.to(wide), each * (rest.to(wide) @ old[:, part]))
        changes.append(torch.linalg.solve(left, right).T)
    change: Tensor = torch.linalg.lstsq(r.to(wide), torch.cat(changes, 1), driver="gelsd").solution
    moved: Tensor = plain + change.reshape(plain.shape).to(plain)
    return moved


def sensitivity(model: nn.Module, batches: Batches, kind: Weight) -> Sensitivity:
    r"""How much each weight of a model's blocks matters at each depth.

    `"fisher"`: the diagonal of the Gauss-Newton matrix of the squared error of the outputs y,

    .. math:: w_i(s) = \sum_x \Big\| \frac{\partial y(x)}{\partial \theta_i(s)} \Big\|^2

    which is the Fisher information of a Gaussian around y. It is estimated by one backward pass
    per batch, of the outputs with random signs. `"activation"`: the mean square of what a linear or
    convolutional map is given, for each of its input channels; other tensors count the same at
    every depth.

    Args:
        model: which is not changed.
        batches: of inputs.
        kind: which of the two.
    """
    if kind == "activation":
        return _activations(copied(model).eval(), batches)
    return _fisher(copied(model).eval(), batches)


def _varying(block: ODEBlock) -> dict[str, Basis]:
    return {name: basis for name, basis in block.expansion.weights.items() if basis.size > 1}


def _cells(block: ODEBlock) -> int:
    """Into how many cells of depth to look: one for each function, and for each step."""
    bases = _varying(block).values()
    if all(isinstance(basis, PiecewiseConstant) for basis in bases):
        return max((basis.size for basis in bases), default=1)
    return max(block.solver.steps or 1, *(basis.size for basis in bases))


def _fisher(model: nn.Module, batches: Batches) -> Sensitivity:
    """Sums of squares of gradients, in a model whose weights are constant in cells of depth."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, block in blocks(model).items():
        cells, stacks = PiecewiseConstant(_cells(block)), {}
        for key, basis in _varying(block).items():
            stack = transformed(interpolation(basis, cells), tensor(block.field, key))
            stacks[key] = (cells, stack)
        block.rebase(stacks)
        found[name] = {key: torch.zeros_like(stack) for key, (_, stack) in stacks.items()}
    generator = torch.Generator().manual_seed(0)
    for batch in batches:
        model.zero_grad()
        with torch.enable_grad():
            leaves = [y for y in tree_leaves(call(model, batch)) if isinstance(y, Tensor)]
            leaves = [y for y in leaves if y.requires_grad]
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
    return {name: _given(model, block, batches) for name, block in blocks(model).items()}


def _given(model: nn.Module, block: ODEBlock, batches: Batches) -> dict[str, Tensor]:
    count, field = _cells(block), block.field
    modules = {key: field.get_submodule(key.rpartition(".")[0]) for key in _varying(block)}
    maps = {k: m for k, m in modules.items() if isinstance(m, LINEAR) and k.endswith("weight")}
    seen: dict[str, list[Tensor]] = {}
    found: dict[str, Tensor] = {}
    handles = [
        module.register_forward_pre_hook(
            lambda m, args, key=key: seen.setdefault(key, []).append(_squares(m, args[0]))
        )
        for key, module in maps.items()
    ]
    try:
        for batch in batches:
            with as_blocks(model):
                args, kwargs = inputs_of(model, block, batch)
            seen.clear()  # the way there may call them too
            block.solve(*args, solver=Euler(steps=count), **kwargs)
            for key, squares in seen.items():  # perhaps several calls per evaluation
                each = torch.stack(squares)
                each = each.reshape(count, -1, *each.shape[1:]).mean(1)
                found[key] = found[key] + each if key in found else each
    finally:
        for handle in handles:
            handle.remove()
    return found


def _squares(module: nn.Module, x: Tensor) -> Tensor:
    """The mean square of each input channel, in a shape that is broadcast to the weight's."""
    channel = -1 if isinstance(module, nn.Linear) else 1
    squares = x.movedim(channel, 0).flatten(1).abs().square().mean(1)
    if isinstance(module, nn.Linear):
        return squares[None]
    assert isinstance(module, CONVOLUTIONS)
    rows = squares.reshape(module.groups, -1)
    if module.groups > 1:
        rows = rows.repeat_interleave(module.out_channels // module.groups, 0)
    return rows[(..., *[None] * len(module.kernel_size))]  # [1 or out, in, 1, ...]
