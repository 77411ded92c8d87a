"""The tensors that a function depends on besides its arguments."""

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
from torch.utils._pytree import TreeSpec

from continua._errors import ArgumentError


def dependencies(f: object) -> list[Tensor]:
    """The leaf tensors that require a gradient and that a callable can reach.

    They are looked for in modules, methods, callable objects, and in what functions close over. A
    tensor that was computed stands for the leaves of its graph.
    """
    reached = (thing for thing in _reached(f, objects=False) if isinstance(thing, Tensor))
    return leaves_of(t for t in reached if t.requires_grad)


def leaves_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The leaf tensors behind some tensors that require a gradient, each once."""
    found: dict[int, Tensor] = {}
    for tensor in tensors:
        if tensor.requires_grad and tensor.grad_fn is None:
            found[id(tensor)] = tensor
        else:
            found.update((id(leaf), leaf) for leaf in graph_leaves([tensor]))
    return list(found.values())


def graph_leaves(outputs: Iterable[Tensor]) -> Iterator[Tensor]:
    """The leaf tensors of the graph that made these."""
    nodes: list[Any] = [out.grad_fn for out in outputs]
    seen: set[Any] = set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(leaf := getattr(node, "variable", None), Tensor):
            yield leaf
        nodes.extend(after for after, _ in node.next_functions)


def refuse_unknown(outputs: Iterable[Tensor], known: Iterable[Tensor]) -> None:
    """Refuse a result that depends on a leaf tensor which would get no gradient."""
    listed = {id(tensor) for tensor in known}
    for leaf in graph_leaves(outputs):
        if id(leaf) not in listed:
            raise ArgumentError(
                f"the field or the running cost depends on a tensor of shape {list(leaf.shape)} "
                "that requires a gradient but was not found; name it in params=, make it a "
                "parameter of the field's module, or use Backprop()"
            )


#: what is compared by value
PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
KINDS = frozenset(PLAIN)  # found faster
REGISTRIES = frozenset((dict, OrderedDict, set))  # of a module


def surroundings(things: object) -> tuple[list[Tensor], list[object]]:
    """Every tensor that things can reach, and everything else that they can, in a fixed order."""
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


def same(now: Sequence[object], then: Sequence[object]) -> bool:
    """Whether what things reach besides tensors is what it was."""
    if now is then:
        return True
    return len(now) == len(then) and all(
        a is b or (type(a) is type(b) and isinstance(a, (*PLAIN, TreeSpec)) and a == b)
        for a, b in zip(now, then, strict=True)
    )


def _reached(things: object, objects: bool) -> Iterator[object]:
    """Everything that things can reach, each once; `objects` looks into those not callable too."""
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
            held = vars(thing).values()  # most of them are registries that hold nothing
            remaining.extend(v for v in held if type(v) not in REGISTRIES or v)
        elif parts := _parts(thing):
            remaining.extend(parts)
        elif objects and hasattr(thing, "__dict__") and not isinstance(thing, type | ModuleType):
            remaining.append(vars(thing))


def _parts(thing: Any) -> Iterable[Any]:
    """What a callable or a container is made of."""
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


UPDATES = (
    "updates its state in training mode, and this gradient evaluates it again: use Backprop(), "
    "evaluation mode, or an ODEBlock, whose state is updated once"
)


def refusing_updates(f: object, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A call of a function that refuses to update the state of a module, such as batch norm's."""
    _, found = surroundings(f)
    modules = [m for one in found if isinstance(one, nn.Module) for m in one.modules()]
    buffers = [b for m in modules if m.training for b in m.buffers(recurse=False)]

    def checked(z: Any) -> Any:
        before = [b.clone() for b in buffers]  # batch norm counts no version of its statistics
        out = call(z)
        if not all(map(torch.equal, before, buffers)):
            raise ArgumentError(f"a module that the field calls {UPDATES}")
        return out

    return checked if buffers else call
