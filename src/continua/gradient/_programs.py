"""The programs of a field, and what it reads."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Self

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from continua._errors import ArgumentError
from continua.solve import Evaluate, Source, State

from ._dependencies import reachable, same_objects
from ._trace import Backend, Function, Kinds, Program, Uncompilable, compiled_program

logger = logging.getLogger("continua")

#: how many versions of one step are kept: other attributes, modes or shapes of the field
VERSIONS = 8


class Programs:
    """The programs of one field, shared by all its solves."""

    def __init__(self, backend: Backend = "inductor"):
        self.backend = backend
        self._known: dict[Hashable, list[_Version]] = {}
        self._lock = threading.Lock()
        self._logged: set[str] = set()
        self._signatures: list[Sequence[object]] = []
        self.checked: set[Hashable] = set()  #: kinds of states on which the field was tried

    def get(
        self,
        key: Hashable,
        source: Source,
        inputs: Sequence[Tensor],
        make: Callable[[], Function],
        wants: Sequence[bool] = (),
        outputs: int | None = None,
        keep: bool = False,
    ) -> Program:
        """The program for these inputs; it is made if there is none.

        The first is made for the sizes that it sees. At others one is made in which whatever
        differs is a symbol; where a field branches on its sizes, one for each.

        Args:
            key: what the function is, besides what the source says.
            source: of the field.
            inputs: an example of each.
            make: gives the function to trace.
            wants: which inputs get a gradient.
            outputs: of the function, for its vector-Jacobian product; None for itself.
            keep: both, the first of which also gives what the second needs of it.
        """
        wants = wants or [False] * len(inputs)
        kinds = tuple((t.shape, t.dtype, t.device, w) for t, w in zip(inputs, wants, strict=True))
        versions = self._known.setdefault((key, outputs), [])
        for version in versions:
            if version.fits(kinds, source):
                return version.program()
        with self._lock:
            for version in versions:  # another thread may have made it
                if version.fits(kinds, source) or version.takes(kinds, source, inputs):
                    return version.program()
            if len(versions) >= VERSIONS:
                raise Uncompilable(
                    f"the field changes, or sizes do, in more than {VERSIONS} different ways"
                )
            found: Program | Uncompilable
            others = [v for v in versions if v.alike(kinds, source)]
            try:
                before = _refused(source)
                dynamic = [v.kinds for v in others]
                inputs = [t.detach().requires_grad_(w) for t, w in zip(inputs, wants, strict=True)]
                found = compiled_program(make(), inputs, outputs, self.backend, dynamic, keep)
                if not same_objects(_attributes(source), before):
                    raise Uncompilable("the field changes its own attributes")
            except Uncompilable as why:
                found = why
            versions.append(_Version(kinds, source, found))
        return versions[-1].program()

    def recognise(self, source: Source) -> None:
        """Give a source the list that an equal one had, so that they are compared only once."""
        for known in self._signatures:
            if same_objects(source.signature, known):
                source.signature = known
                return
        self._signatures = [source.signature, *self._signatures[: VERSIONS - 1]]

    def log(self, why: Uncompilable) -> None:
        """Say once why a solve is not compiled."""
        reason = str(why)
        if reason not in self._logged:
            self._logged.add(reason)
            logger.warning("not compiled, and evaluated eagerly: %s", reason)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(self.backend)

    def __reduce__(self) -> tuple[type[Self], tuple[Backend]]:
        return type(self), (self.backend,)


#: the programs of functions and modules that `odeint` was given
_of_functions: weakref.WeakKeyDictionary[Any, dict[Backend, Programs]] = weakref.WeakKeyDictionary()


def checked_backend(compile: bool | Backend) -> Backend | None:
    """What compiles; None if nothing is to be compiled."""
    if compile not in (True, False, "inductor", "aot_eager"):
        raise ArgumentError(f"compile is True, False, 'inductor' or 'aot_eager', not {compile!r}")
    return "inductor" if compile is True else (compile or None)


def programs_of(f: Any, compile: bool | Backend) -> Programs | None:
    """The programs of a function or a module, as long as it lives."""
    backend = checked_backend(compile)
    if backend is None:
        return None
    # A bound method is a new object at each call.
    owner = getattr(f, "__self__", f)
    try:
        known = _of_functions.setdefault(owner, {})
    except TypeError:  # no weak references to it
        return Programs(backend)
    return known.setdefault(backend, Programs(backend))


class _Version:
    """A program for a field as it was, and the sizes that it was made for or takes as well."""

    def __init__(self, kinds: Kinds, source: Source, found: Program | Uncompilable):
        self.kinds, self.signature, self.found = kinds, source.signature, found
        self._taken = {kinds}

    def program(self) -> Program:
        if isinstance(self.found, Uncompilable):
            raise self.found
        return self.found

    def fits(self, kinds: Kinds, source: Source) -> bool:
        """Whether it is known to be for such inputs."""
        return kinds in self._taken and same_objects(source.signature, self.signature)

    def alike(self, kinds: Kinds, source: Source) -> bool:
        """Whether nothing but sizes differs."""
        return same_objects(source.signature, self.signature) and all(
            len(a[0]) == len(b[0]) and a[1:] == b[1:]
            for a, b in zip(kinds, self.kinds, strict=True)
        )

    def takes(self, kinds: Kinds, source: Source, inputs: Sequence[Tensor]) -> bool:
        """Whether sizes that it has as symbols are all that differs."""
        if isinstance(self.found, Uncompilable) or not self.alike(kinds, source):
            return False
        if not self.found.sizes.take(inputs):
            return False
        self._taken.add(kinds)
        return True


def _refused(source: Source) -> list[object]:
    """What the field reaches, if it can be traced."""
    for thing in source.signature:
        if isinstance(thing, nn.Module) and any(
            (thing._forward_hooks, thing._forward_pre_hooks, thing._backward_hooks)
        ):
            raise Uncompilable(f"{type(thing).__name__} has hooks")
    return _attributes(source)


def _attributes(source: Source) -> list[object]:
    """What the field reaches besides tensors, which may come and go in their slots."""
    return [thing for thing in reachable(source.code)[1] if thing is not None]


class Exchanged(TorchFunctionMode):
    """Operations on known tensors act on others in their place.

    A field finds its tensors where it has them: in modules, in closures. While it is traced, they
    stand for the inputs of the program.
    """

    def __init__(self, others: Mapping[int, Tensor]):
        super().__init__()
        self._others = others

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(Tensor, self._other, (args, kwargs or {}))
        return func(*args, **kwargs)

    def _other(self, tensor: Tensor) -> Tensor:
        other = self._others.get(id(tensor))
        if other is not None:
            return other
        if type(tensor) in (Tensor, nn.Parameter):
            raise Uncompilable(
                f"the field reads a tensor of shape {list(tensor.shape)} that was not found in "
                "it: make it an attribute, an argument or a variable that the function closes over"
            )
        return tensor


def exchanged(evaluate: Evaluate, others: Mapping[int, Tensor]) -> Evaluate:
    """An evaluation on other tensors."""

    def on_others(z: State) -> State:
        with Exchanged(others):
            return evaluate(z)

    return on_others


def known_shared(tensors: Sequence[Tensor], known: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, if those that require a gradient are among the known ones."""
    listed = {id(t) for t in known}
    for t in tensors:
        if t.requires_grad and id(t) not in listed:
            raise Uncompilable(
                f"the field or the running cost reads a computed tensor of shape {list(t.shape)}: "
                "hand it over as an argument"
            )
    return list(tensors)


def contiguous(z: Sequence[Tensor]) -> State:
    """The tensors in the memory layout that programs are compiled for."""
    return tuple(x if x.is_contiguous() else x.contiguous() for x in z)
