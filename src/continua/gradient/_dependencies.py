"""The tensors and other objects that a function depends on besides its arguments."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError


def dependencies(f: object) -> list[Tensor]:
    """The leaf tensors that require a gradient and that a callable can reach.

    Modules, methods, callable objects and the closures and globals of functions are searched. A
    tensor that was computed counts as the leaves of its graph.
    """
    return leaves_of(t for t in _reached(f, objects=False) if isinstance(t, Tensor))


def leaves_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The leaf tensors that require a gradient and from which some tensors are computed."""
    found: dict[int, Tensor] = {}
    nodes: list[Any] = []
    for tensor in tensors:
        if tensor.grad_fn is not None:
            nodes.append(tensor.grad_fn)
        elif tensor.requires_grad:
            found[id(tensor)] = tensor
    seen: set[Any] = {None}
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(leaf := getattr(node, "variable", None), Tensor):
            found[id(leaf)] = leaf
        nodes.extend(following for following, _ in node.next_functions)
    return list(found.values())


#: types that are compared by value
PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
KINDS = frozenset(PLAIN)  # a lookup here is faster than `isinstance`
REGISTRIES = frozenset((dict, OrderedDict, set))  # types of a module's registries


def reachable(things: object) -> tuple[list[Tensor], list[object]]:
    """Every tensor that can be reached from objects, and every other object, in a fixed order."""
    tensors: list[Tensor] = []
    others: list[object] = []
    for thing in _reached(things, objects=True):
        if isinstance(thing, Tensor):
            tensors.append(thing)
        elif isinstance(thing, FunctionType):
            others.append(thing.__code__)
        elif type(thing) in KINDS or not isinstance(thing, Mapping | list | tuple | set):
            others.append(thing)
    return tensors, others


def same_objects(now: Sequence[object], then: Sequence[object]) -> bool:
    """Whether two lists of objects from `reachable` are equal."""
    if now is then:
        return True
    return len(now) == len(then) and all(
        a is b or (type(a) is type(b) and isinstance(a, (*PLAIN, pytree.TreeSpec)) and a == b)
        for a, b in zip(now, then, strict=True)
    )


def _reached(things: object, objects: bool) -> Iterator[object]:
    """Every object that can be reached, once.

    Args:
        things: where the search starts.
        objects: whether to search objects that are not callable, too.
    """
    seen: set[int] = set()
    remaining = [things]
    while remaining:
        thing = remaining.pop()
        if type(thing) in KINDS or isinstance(thing, PLAIN):
            yield thing
            continue
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, Tensor):
            continue
        if isinstance(thing, nn.Module):
            held = vars(thing).values()  # most of a module's registries are empty
            remaining.extend(v for v in held if type(v) not in REGISTRIES or v)
        elif parts := _parts(thing):
            remaining.extend(parts)
        elif objects and hasattr(thing, "__dict__") and not isinstance(thing, type | ModuleType):
            remaining.append(vars(thing))


def _parts(thing: Any) -> Iterable[Any]:
    """The objects that a callable or a container refers to."""
    if isinstance(thing, Mapping):
        return list(thing.values())
    if isinstance(thing, list | tuple | set | frozenset):
        return thing
    if isinstance(thing, functools.partial):
        return [thing.func, thing.args, thing.keywords]
    if inspect.ismethod(thing):
        return [thing.__self__, thing.__func__]
    if inspect.isfunction(thing):
        return _closed_over(thing)
    if callable(thing) and not isinstance(thing, type) and hasattr(thing, "__dict__"):
        return [vars(thing), type(thing).__call__]
    return ()


def _closed_over(function: Callable[..., Any]) -> list[Any]:
    if (function.__module__ or "").partition(".")[0] == torch.__name__:
        return []
    found: list[Any] = [function.__defaults__, function.__kwdefaults__]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a variable that is not assigned yet
            found.append(cell.cell_contents)
    code, outside = function.__code__, function.__globals__
    inner = [const for const in code.co_consts if inspect.iscode(const)]
    names = dict.fromkeys(name for part in (code, *inner) for name in part.co_names)
    return [*found, *(outside[name] for name in names if name in outside)]


def detach(given: Any) -> Any:
    """The structure with every tensor detached; those that required a gradient still do."""
    if isinstance(given, Tensor):
        return given.detach().requires_grad_(given.requires_grad)
    if type(given) is tuple:  # the usual case, in which `pytree` would be slow
        return tuple(map(detach, given))
    if type(given) is dict and not given:
        return {}
    return pytree.tree_map_only(Tensor, detach, given)


def tensors_in(given: Any) -> list[Tensor]:
    """The tensors in a structure."""
    if isinstance(given, Tensor):
        return [given]
    if type(given) is tuple:
        return [t for part in given for t in tensors_in(part)]
    if type(given) is dict and not given:
        return []
    return [t for t in pytree.tree_leaves(given) if isinstance(t, Tensor)]


def requiring_grad(given: Any) -> list[Tensor]:
    """The tensors in a structure that require a gradient."""
    return [t for t in tensors_in(given) if t.requires_grad]


UPDATES = (
    "updates its state in training mode, and this gradient evaluates it again: use Backprop(), "
    "evaluation mode, or an ODEBlock, whose state is updated once"
)


def with_update_check(f: object, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The call, refusing to update the state of a module, such as that of batch norm."""
    _, found = reachable(f)
    modules = [m for one in found if isinstance(one, nn.Module) for m in one.modules()]
    buffers = [b for m in modules if m.training for b in m.buffers(recurse=False)]

    def checked(z: Any) -> Any:
        before = [b.clone() for b in buffers]  # batch norm does not increment their versions
        out = call(z)
        if not all(map(torch.equal, before, buffers)):
            raise ArgumentError(f"a module that the field calls {UPDATES}")
        return out

    return checked if buffers else call
