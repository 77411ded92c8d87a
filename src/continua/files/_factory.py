"""A factory and its arguments as JSON: how to make a model again.

A file names a factory, which is called only if it is listed: `FACTORIES` has those of continua and
layers of torch, and a caller adds a factory or a package of their own. Names are checked before
anything is imported.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from torch import nn
from torch.utils._pytree import tree_leaves

from continua._errors import ArgumentError, FileError
from continua._values import Value, from_config
from continua.basis import Basis
from continua.gradient import Gradient
from continua.solve import Solver
from continua.transform import Recipe

Factory = Callable[..., nn.Module]
KINDS: dict[str, type[Value]] = {"$basis": Basis, "$solver": Solver, "$gradient": Gradient}
V = TypeVar("V", bound=Value)

#: bounds of numbers in a file: the functions of a basis, steps or any other, and trials
MOST_FUNCTIONS, MOST_STEPS, MOST_TRIALS = 512, 4096, 10**6
#: steps of all blocks, and steps times functions: these are made in seconds
MOST_ALL_STEPS, MOST_VALUES = 2**13, 2**19
#: layers of torch.nn that a file may name
LAYERS = (
    "Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "Embedding", "LayerNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d",
    "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "RNN", "LSTM", "GRU",
    "RNNCell", "LSTMCell", "GRUCell", "MultiheadAttention", "TransformerEncoderLayer",
    "TransformerDecoderLayer", "PReLU",
)  # fmt: skip

#: packages with functions that run code in their arguments; of torch only torch.nn can be trusted
NEVER = {"torch", "continua", *sys.stdlib_module_names}
#: every factory that a file may name if the caller adds none, by its names
FACTORIES: dict[str, Factory] = {}


def allow(package: str, factories: Mapping[str, Factory]) -> None:
    """Let files name these factories, as `package:name` and by where they are defined."""
    for name, factory in factories.items():
        FACTORIES[qualified(factory)] = FACTORIES[f"{package}:{name}"] = factory


def qualified(factory: Factory) -> str:
    """The module and the name of a factory."""
    return f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', '?')}"


allow("torch.nn", {name: getattr(nn, name) for name in LAYERS})


def find_factory(name: str, trust: Sequence[str] = ()) -> Factory:
    """The factory that a file names, if it is listed or in a package that the caller trusts.

    Args:
        name: as in `my_package.nets:Net`.
        trust: names of packages. Of these a file may name the `nn.Module` classes, and the
            functions that are annotated to return one.
    """
    _check_trust(trust)
    if name in FACTORIES:
        return FACTORIES[name]
    module_name, _, path = name.partition(":")
    if not any(_is_inside(module_name, package) for package in trust):
        raise FileError(_refusal(name, module_name))
    if not re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", name) or "__" in module_name:
        raise FileError(
            f"it names the factory {name[:99]!r}, which is not of the form module:name, with a "
            "module that is no script"
        )
    try:
        factory: Any = importlib.import_module(module_name)
        for part in path.split("."):
            factory = getattr(factory, part)
    except (ImportError, AttributeError) as error:
        raise FileError(
            f"the factory {name!r} cannot be imported: {error}; Python looks for it in the folders "
            "of PYTHONPATH"
        ) from error
    # What a trusted package itself imports, such as `os`, is not trusted with it.
    own = any(_is_inside(str(getattr(factory, "__module__", "")), package) for package in trust)
    if not own or not _makes_module(factory):
        raise FileError(
            f"the factory {name!r} is neither an nn.Module class nor a function annotated to "
            "return one, defined in the trusted package"
        )
    return factory  # type: ignore[no-any-return]


def _refusal(name: str, module_name: str) -> str:
    """Why a file may not name this factory, and what to do."""
    if module_name == "continua.recipes._own":
        return (
            "it is a model of a recipe of your own: call "
            "continua.recipes.open_recipe('my_file.py:recipe') before you load it"
        )
    why = (
        f"it names the factory {name[:99]!r}, which is not on the list of what a file may call; if "
        "you know it, hand it over with continua.load(folder, factory=...)"
    )
    top = module_name.partition(".")[0]
    if top in NEVER or top == "__main__":
        return why
    top = top[:60] if name.isprintable() else "..."
    return f"{why}, or trust its package with trust=[{top!r}], on the command line --trust {top}"


def _check_trust(trust: Sequence[str]) -> None:
    if isinstance(trust, str) or not all(isinstance(package, str) for package in trust):
        raise ArgumentError(f"trust is a list of names of packages, as in [{str(trust)!r}]")
    for package in trust:
        if package.partition(".")[0] in NEVER and not _is_inside(package, "torch.nn"):
            raise ArgumentError(
                f"trust={package!r} would let a file run code of its own through functions of "
                f"{package}; hand the factory over with factory=..."
            )


def _is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _makes_module(found: Any) -> bool:
    made = found if inspect.isclass(found) else None
    if inspect.isfunction(found):
        with contextlib.suppress(Exception):
            made = typing.get_type_hints(found).get("return")
    return inspect.isclass(made) and issubclass(made, nn.Module)


def describe(factory: Factory, arguments: dict[str, Any]) -> Recipe:
    """A call of a factory, with its name and its arguments ready for JSON."""
    if not callable(factory) or isinstance(factory, nn.Module):
        given = f"a {type(factory).__name__}" if callable(factory) else repr(factory)
        raise ArgumentError(
            f"factory is a class or a function that makes the model, such as MyNet, not {given}"
        )
    name = qualified(factory)
    try:
        signature = inspect.signature(factory)
        signature.bind(**arguments)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} cannot be called so: {error}") from None
    encoded, leaves = encode(arguments, name), tree_leaves(arguments)
    bases = [leaf for leaf in leaves if isinstance(leaf, Basis)]
    # Blocks with equal solvers share a grid.
    check_grids((bases, solver) for solver in {leaf for leaf in leaves if isinstance(leaf, Solver)})
    return Recipe(factory, name, _defaults(signature) | encoded)


def _defaults(signature: inspect.Signature) -> dict[str, Any]:
    """The defaults that JSON can hold, so that a file means the same when a default changes."""
    encoded = {}
    for name, p in signature.parameters.items():
        if p.kind is not p.POSITIONAL_ONLY and p.default is not p.empty:
            with contextlib.suppress(ArgumentError):
                encoded[name] = encode(p.default, name)
    return encoded


def encoded_value(value: Value) -> dict[str, Any]:
    """A basis, solver or gradient, ready for JSON, if a file may hold it."""
    return bounded(value).config()


def decoded_value(kind: type[V], config: Any) -> V:
    """The inverse of `encoded_value`."""
    return bounded(from_config(kind, config))


def bounded(value: V) -> V:
    """The value, if its numbers are of a size that a file may ask for."""
    if isinstance(value, Basis) and value.size > MOST_FUNCTIONS:
        raise ArgumentError(f"{value!r} has more than the {MOST_FUNCTIONS:,} functions of a file")
    for name, argument in value.arguments().items():
        most = MOST_TRIALS if name == "max_steps" else MOST_STEPS
        if isinstance(argument, int) and abs(argument) > most:
            raise ArgumentError(f"{value!r} has {name}={argument:,}, and a file at most {most:,}")
        if isinstance(argument, Value):
            bounded(argument)
    return value


def check_grids(grids: Iterable[tuple[Iterable[Basis], Solver]]) -> None:
    """Refuse fixed grids that take long to make: the bases and the solver of each block."""
    sizes = [(solver.steps or 0, sum(b.size for b in set(bases))) for bases, solver in grids]
    for name, total, most in (
        ("steps in all blocks", sum(steps for steps, _ in sizes), MOST_ALL_STEPS),
        ("steps times functions", sum(steps * size for steps, size in sizes), MOST_VALUES),
    ):
        if total > most:
            raise ArgumentError(f"there are {total:,} {name}, and a file has at most {most:,}")


def encode(value: Any, where: str) -> Any:
    """An argument as a value that JSON can hold."""
    for mark, kind in KINDS.items():
        if isinstance(value, kind):
            return {mark: encoded_value(value)}
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) or key.startswith("$") for key in value):
            raise ArgumentError(f"the arguments of {where} have a key that JSON cannot hold")
        return {key: encode(item, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item, where) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ArgumentError(
        f"the arguments of {where} contain {value!r}, which JSON cannot hold; "
        "use numbers, strings, lists, bases, solvers and gradients"
    )


def decode(value: Any) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, Mapping):
        for mark, kind in KINDS.items():
            if mark in value:
                return decoded_value(kind, value[mark])
        return {key: decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode(item) for item in value]
    return value
