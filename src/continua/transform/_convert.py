"""Layers as blocks: a list of them, or those that a model calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, Literal, TypeVar, get_args, overload

from torch import Tensor, nn

from continua._errors import ArgumentError, ModuleError
from continua.basis import Constant
from continua.block import ODEBlock
from continua.field import Field, copied
from continua.gradient import Gradient
from continua.solve import Euler

from ._blocks import set_recipe
from ._differences import differences
from ._runs import LayerRun, stacks
from ._stack import list_with_blocks
from ._stacking import Increment, fill, template

Skip = Literal["inside", "outside"]
M = TypeVar("M", bound=nn.Module)


@overload
def convert(
    model: Sequence[nn.Module] | Mapping[str, nn.Module] | nn.ModuleList | nn.Sequential,
    *,
    skip: Skip = "inside",
    ignore: str | Sequence[str] = (),
    gradient: Gradient | None = None,
) -> ODEBlock: ...
@overload
def convert(
    model: M,
    *,
    ignore: str | Sequence[str] = (),
    only: str | Sequence[str] = "*",
    copy: bool = True,
) -> M: ...


def convert(
    model: Any,
    *,
    skip: Skip = "inside",
    ignore: str | Sequence[str] = (),
    gradient: Gradient | None = None,
    only: str | Sequence[str] = "*",
    copy: bool = True,
) -> Any:
    r"""The layers of a model as functions of depth, computing the same at first.

    **A model.** Runs of like layers in its `nn.ModuleList` and `nn.Sequential` become blocks in
    the place of the layers; `stacks` lists them. The forward of the model is its own and iterates
    over them as before, so that masks, caches, further arguments and outputs work as they did. Of
    L layers with weights :math:`\theta_0 \dots \theta_{L-1}`, one bucket of depth each,
    `compress` to n steps makes n layers with the weights :math:`\theta(s)` at their depths;
    `revert` gives plain layers back. An index in a layer, such as that of its cache, and the
    numbers of layers in the `config` of a Hugging Face model follow. A dropout rate that differs
    from layer to layer is that of the nearest layer.

    **A list of layers** that take and return one tensor. It becomes one `ODEBlock` with
    `PiecewiseConstant(L)`, `Euler(steps=L)` and the span (0, L), whose steps have length 1,

    .. math:: z_{l+1} = z_l + f(z_l;\, \theta_l, \sigma_l)

    An `nn.Sequential` of like layers is such a list; one of different parts is a model.

    What comes back equals the layers up to rounding, and trains as they do; `compress`, `refine`,
    `heal` then change its size. Weights of neighbouring layers that were trained apart are often
    far apart: `compress` them with `method="fit"`, and `heal` what is left.

    A tensor that all layers share stays one, constant in depth. One that only some of them share
    becomes several.

    Args:
        model: a module that calls its layers itself, or a list of layers.
        skip: of a list, where a layer's input is added to its output. `"inside"`: in the layer, as
            those of transformers and most residual networks do, :math:`z_{l+1} = layer_l(z_l)`;
            the field is the layer minus its input. `"outside"`: around it,
            :math:`z_{l+1} = z_l + layer_l(z_l)`; the field is the layer.
        ignore: patterns of attributes in which layers may differ, such as `"*.drop_prob"`;
            all depths get the first layer's. Others are refused.
        gradient: of a list, how the block is differentiated; None is back-propagation.
        only: of a model, patterns of the names of its lists of layers, such as `"decoder.*"`.
        copy: of a model, False changes the model itself. The weights are moved, not copied, and
            the parameters are other tensors afterwards: create a new optimizer.

    Example:
        >>> import torch, continua as ct
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
        >>> x, mask = torch.randn(3, 5, 8), torch.zeros(5, 5)
        >>> model = ct.convert(encoder)
        >>> torch.allclose(model(x, mask=mask), encoder(x, mask=mask), atol=1e-5)
        True
        >>> small = ct.compress(model, ct.PiecewiseConstant(2), steps=2)
        >>> len(ct.revert(small).layers)
        2
        >>> ct.convert(encoder.layers).solver  # a list
        Euler(steps=4)
    """
    if skip not in get_args(Skip):
        raise ArgumentError(f"skip is 'inside' or 'outside', not {skip!r}")
    ignored = [ignore] if isinstance(ignore, str) else list(ignore)
    if not isinstance(model, nn.Module) or _is_list_of_layers(model):
        return _convert_layers(_check_layers(model, skip), skip, ignored, gradient)
    if skip != "inside" or gradient is not None:
        raise ArgumentError(
            "skip and gradient are for a list of layers; the forward of a model is its own"
        )
    patterns = [only] if isinstance(only, str) else list(only)
    return _convert_model(model, ignored, patterns, copy)


def _is_list_of_layers(model: nn.Module) -> bool:
    """Whether a module is a list of layers; a sequence of different parts is a model."""
    if isinstance(model, nn.Sequential):
        return len({type(part) for part in model}) <= 1
    return isinstance(model, nn.ModuleList | nn.ModuleDict)


# -- a list of layers


def _check_layers(layers: Any, skip: Skip) -> list[nn.Module]:
    if isinstance(layers, Mapping | nn.ModuleDict):
        layers = layers.values()
    if not isinstance(layers, Iterable) or isinstance(layers, str | bytes | Tensor):
        raise ArgumentError(
            f"convert takes a model, which is an nn.Module, or a list of layers, not "
            f"{type(layers).__name__}"
        )
    listed = list(layers)
    if not listed:
        raise ArgumentError("layers is empty: a block needs at least one")
    for i, layer in enumerate(listed):
        if not isinstance(layer, nn.Module):
            raise ModuleError(f"layer {i} is a {type(layer).__name__}, not an nn.Module")
        if isinstance(layer, Field) and skip == "inside":
            raise ModuleError(
                f"layer {i} is a Field, which gives dz/ds and adds nothing itself: skip='outside'"
            )
    return listed


def _convert_layers(
    layers: Sequence[nn.Module], skip: Skip, ignore: Sequence[str], gradient: Gradient | None
) -> ODEBlock:
    for i, (one, other) in enumerate(pairwise(layers)):
        both = f"layers {i} and {i + 1}"
        for difference in differences(both, one, other, ignore):
            raise ModuleError(difference.sentence(both))
    field, count = template(layers[0]), len(layers)
    field = Increment(field) if skip == "inside" else field
    solver, span = Euler(steps=count), (0.0, float(count))
    block = ODEBlock(field, Constant(), solver, gradient, span=span)
    fill(block, layers)
    return block


# -- a model


def _convert_model(model: M, ignore: Sequence[str], only: Sequence[str], copy: bool) -> M:
    made = copied(model) if copy else model
    found = stacks(made, ignore=ignore)
    runs = [
        run
        for run in found
        if not run.reason and any(fnmatchcase(run.name, pattern) for pattern in only)
    ]
    if not runs:
        raise ModuleError(_why_no_runs(model, found, only))
    return convert_runs(made, runs)


def convert_runs(model: M, runs: Sequence[LayerRun]) -> M:
    """Put blocks in the place of runs of a model's layers, in place."""
    names = dict.fromkeys(run.name for run in runs)
    lists: dict[nn.Module, nn.Module] = {}
    for name in names:
        own = [run for run in runs if run.name == name]
        lists[model.get_submodule(name)] = list_with_blocks(model, name, own, names)
    set_recipe(model, None)  # its factory would make the layers again
    for module in list(model.modules()):
        for name, child in module._modules.items():
            if child in lists:
                module._modules[name] = lists[child]
    return lists.get(model, model)  # type: ignore[return-value]


def _why_no_runs(model: nn.Module, found: Sequence[LayerRun], only: Sequence[str]) -> str:
    """Why a model has no run of like layers."""
    name = type(model).__name__
    taken = [run.name for run in found if not run.reason]
    if taken:
        return f"only={list(only)!r} names none of the lists of layers in {name}: {taken}"
    if any(isinstance(module, ODEBlock) for module in model.modules()):
        return f"{name} has blocks already, and no further layers that are alike"
    why = f": {found[0].name or 'it'}, {found[0].reason}" if found else ""
    return f"{name} has no two like layers in a row{why}"
