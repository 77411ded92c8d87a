"""Steps as compiled programs: traced by AOTAutograd, compiled by inductor, kept by what they read."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from continua._errors import ArgumentError
from continua.solve import Evaluate, Source, State

from ._cache import compile_with_inductor
from ._dependencies import same

Run = Callable[[list[Tensor]], Sequence[Tensor]]
Function = Callable[..., Sequence[Tensor]]
Backend = Literal["inductor", "aot_eager"]

logger = logging.getLogger("continua")

#: how many versions of one step are kept: other attributes, modes or shapes of the field
VERSIONS = 8


class Uncompilable(Exception):  # noqa: N818  (no error of the user's: eager does it)
    """Why a solve is not compiled."""


class Program:
    """A function of tensors, and its vector-Jacobian product."""

    def __init__(self, run: Run, wanted: Sequence[int] = ()):
        self.run, self.wanted = run, wanted  #: the inputs that the results are gradients of


class Programs:
    """The programs of one field, shared by all its solves."""

    def __init__(self, backend: Backend = "inductor"):
        self.backend = backend
        self._known: dict[Hashable, list[tuple[Sequence[object], Program | Uncompilable]]] = {}
        self._lock = threading.Lock()
        self._logged: set[str] = set()
        self.checked: set[Hashable] = set()  #: kinds of states on which the field was tried

    def get(
        self,
        key: Hashable,
        source: Source,
        inputs: Sequence[Tensor],
        make: Callable[[], Function],
        outputs: int | None = None,
    ) -> Program:
        """The program for these inputs; it is made if there is none.

        Args:
            key: what the function is, besides what the source says.
            source: of the field.
            inputs: an example of each; those that require a gradient get one.
            make: gives the function to trace.
            outputs: of the function, for its vector-Jacobian product; None for itself.
        """
        kinds = tuple((t.shape, t.dtype, t.device, t.requires_grad) for t in inputs)
        versions = self._known.setdefault((key, outputs, kinds), [])
        for signature, known in versions:
            if same(source.signature, signature):
                return _usable(known)
        with self._lock:
            for signature, known in versions:  # another thread may have made it
                if same(source.signature, signature):
                    return _usable(known)
            if len(versions) >= VERSIONS:
                raise Uncompilable(f"the field has changed more than {VERSIONS} times")
            made: Program | Uncompilable
            try:
                made = _compiled(make(), inputs, outputs, self.backend)
            except Uncompilable as why:
                made = why
            versions.append((list(source.signature), made))
        return _usable(made)

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


def _usable(made: Program | Uncompilable) -> Program:
    if isinstance(made, Uncompilable):
        raise made
    return made


def _compiled(
    function: Function, inputs: Sequence[Tensor], outputs: int | None, backend: Backend
) -> Program:
    graph, wanted = _traced(function, inputs, outputs)
    for node in graph.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Uncompilable("the field draws random numbers")
    if backend == "aot_eager":
        return Program(lambda given: graph(*given), wanted)
    try:
        return Program(compile_with_inductor(graph), wanted)
    except Exception as error:
        raise Uncompilable(_because(error)) from error


def _traced(
    function: Function, inputs: Sequence[Tensor], outputs: int | None
) -> tuple[fx.GraphModule, list[int]]:
    """The operations of a function, or of its vector-Jacobian product, without mutation."""
    from torch._functorch.aot_autograd import aot_export_joint_simple
    from torch._inductor.decomposition import select_decomp_table

    joint = outputs is not None
    given = tuple(t.detach().requires_grad_(joint and t.requires_grad) for t in inputs)
    table = select_decomp_table()  # type: ignore[no-untyped-call]
    try:
        with torch.enable_grad():
            graph = aot_export_joint_simple(
                function, given, trace_joint=joint, decompositions=table
            )
    except Uncompilable:
        raise
    except Exception as error:
        raise Uncompilable(_because(error)) from error
    assert isinstance(graph, fx.GraphModule)
    graph.graph.set_codegen(fx.graph.CodeGen())
    end = graph.graph.output_node()
    found = list(end.args[0])[outputs or 0 :]  # type: ignore[arg-type]
    wanted = [i for i, node in enumerate(found) if node is not None]
    end.args = ([found[i] for i in wanted],)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph, wanted


def _because(error: Exception) -> str:
    """The first line of what torch says."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Exchanged(TorchFunctionMode):
    """Operations on known tensors act on others in their place.

    A field finds its tensors where it has them: in modules, in closures. While it is traced, they
    stand for the inputs of the program.
    """

    def __init__(self, others: Mapping[int, Tensor]):
        super().__init__()  # type: ignore[no-untyped-call]
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
