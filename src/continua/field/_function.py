"""Functions as modules, and modules that take the depth first."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from continua._errors import ModuleError

from ._field import Field

#: what torchdiffeq's users call the depth
DEPTHS = ("t", "s", "time")


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def extra_repr(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


class FunctionOfState(_Function):
    """A function z -> dz/ds, as a module without parameters."""

    def forward(self, z: Any, *args: Any, **kwargs: Any) -> Any:
        return self.function(z, *args, **kwargs)


class FunctionOfDepth(_Function, Field):
    """A function (s, z) -> dz/ds, as a field without parameters."""

    def forward(self, s: Tensor, z: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        return self.function(s, z, *args, **kwargs)


def as_module(field: Any) -> nn.Module:
    """A function as a module; a module itself, unless it takes the depth and is no `Field`."""
    if isinstance(field, nn.Module):
        if not isinstance(field, Field) and _takes_depth(field.forward):
            raise ModuleError(
                f"{type(field).__name__}.forward{inspect.signature(field.forward)} takes the depth "
                "first; derive from continua.Field and write forward(self, s, z, x), where x is "
                "the block's input, or use continua.odeint"
            )
        return field
    if inspect.isclass(field) and issubclass(field, nn.Module):
        raise ModuleError(f"the field is the class {field.__name__}; call it: {field.__name__}()")
    if not callable(field):
        raise ModuleError(
            f"a field is an nn.Module or a function, not {type(field).__name__}; "
            "derive from nn.Module or continua.Field"
        )
    _refuse_parameters(field)
    return FunctionOfDepth(field) if _takes_depth(field) else FunctionOfState(field)


def _takes_depth(function: Callable[..., Any]) -> bool:
    """Whether the first of at least two arguments that must be given is called like a depth."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin such as torch.tanh
        return False
    needed = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(needed) > 1 and needed[0] in DEPTHS


def refuse_functions(module: nn.Module) -> None:
    """Functions that hold a part of a module: a copy of the module has the same functions."""
    parts = {*module.modules(), *module.parameters()}
    for owner in module.modules():
        for name, function in vars(owner).items():
            for one in _referenced(function):
                if isinstance(one, nn.Module | Tensor) and one in parts:
                    raise ModuleError(
                        f"{type(owner).__name__}.{name} is a function that uses a "
                        f"{type(one).__name__} of the field itself, but a block works on a copy of "
                        "the field: make it a method"
                    )


def _referenced(function: Any) -> list[Any]:
    """What a function closes over, and the globals that it uses; nothing if it is no function."""
    if not inspect.isfunction(function):
        return []
    found = inspect.getclosurevars(function)
    return [*found.nonlocals.values(), *found.globals.values()]


def _refuse_parameters(function: Callable[..., Any]) -> None:
    """Parameters inside a function would neither vary with depth nor be trained."""
    for one in (getattr(function, "__self__", None), *_referenced(function)):
        trains = isinstance(one, nn.Module) and next(one.parameters(), None) is not None
        if trains or isinstance(one, nn.Parameter):
            raise ModuleError(
                f"the function uses a {type(one).__name__}, whose weights could not vary with "
                "depth; give the module itself, or a module that contains it"
            )
