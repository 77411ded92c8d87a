"""An expanded module as dynamics that solvers and gradients can follow."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import is_
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor as wrapped
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ShapeError, SolveError
from continua.basis import Basis, Constant, PiecewiseConstant, Point
from continua.field import (
    Binding,
    Expansion,
    Field,
    Frame,
    Path,
    Sampling,
    fields_of,
    real,
    tensor,
    turn,
)
from continua.solve import Dynamics, Evaluate, Map, Reading, Stage, State, in_parts

from ._checks import KINDS
from ._first import first_call
from ._plan import Plan

RunningCost = Callable[..., Tensor]


class BlockDynamics(Dynamics):
    """The field of a block, its running cost beside it, for one solve.

    Args:
        module: the expanded module.
        expansion: its record.
        plan: the fixed grid of the solver, if it has one.
        point: from a stage to a point of the bases.
        place: from a basis and a sampling to the sampling in the weights' precision.
        breakpoints: the depths at which weights or the input may jump or bend.
        jumps: those at which they may jump.
        width: of the span on which the bases live.
        like: a leaf of the state, whose precision and device depths take.
        x: the input of the block.
        structure: of the state, a tensor or a tuple or dictionary of tensors.
        args: further arguments of the field.
        kwargs: further arguments of the field.
        cost: the running cost.
        recomputed: whether a backward pass will evaluate the field again.
        resolve: whether the steps of the solver will be differentiated.
    """

    def __init__(
        self,
        module: nn.Module,
        expansion: Expansion,
        plan: Plan | None,
        point: Callable[[Stage], Point],
        place: Callable[[Basis, Sampling], Sampling],
        breakpoints: tuple[float, ...],
        jumps: tuple[float, ...],
        width: float,
        like: Tensor,
        x: Any,
        structure: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        cost: RunningCost | None = None,
        recomputed: bool = False,
        resolve: bool = False,
    ):
        self._like, self._recomputed = like, recomputed
        self._module, self._expansion, self._plan = module, expansion, plan
        self._width = width
        if resolve:
            trained = {b for n, b in expansion.weights.items() if tensor(module, n).requires_grad}
            self.frequency = max((b.frequency for b in trained), default=0.0) / width
            # Coefficients of a field's own basis that vary with depth: products, so they add.
            self.frequency += max((f.depth_frequency for f in self._fields), default=0.0)
        self._point, self._place = point, place
        self._x, self._structure, self._args, self._kwargs = x, structure, args, kwargs
        self._cost = None if cost is None else with_input(cost)
        self._checked = False
        self._binding = Binding(module, expansion)
        self._frame: Frame | None = None
        self.breakpoints, self.jumps = breakpoints, jumps
        self._names = tuple(expansion.weights)
        self._costs_own = list(cost.parameters()) if isinstance(cost, nn.Module) else []
        self._gathered: dict[int, Tensor] = {}
        self._before: dict[str, Tensor] = {}
        self._seen: _Seen | None = None

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The stacks of the weights, then the input and arguments, then constants that train.

        It is asked for before the weights are swapped, and only by gradients that evaluate the
        field again.
        """
        weights = [tensor(self._module, name) for name in self._names]
        # Parameters that are not functions of depth, but train: the cost's own, and those that
        # were unfrozen after the module was wrapped.
        known = {id(weight) for weight in weights}
        own = [*self._module.parameters(), *self._costs_own]
        self._constants = [p for p in own if p.requires_grad and id(p) not in known]
        return (*weights, *self._given(), *self._constants)

    @cached_property
    def _fields(self) -> list[Field]:
        return fields_of(self._module)

    def _given(self) -> list[Tensor]:
        """The tensors among input and arguments that want a gradient."""
        given = (self._x if self._reads_depth else (), self._args, self._kwargs)
        return [t for t in pytree.tree_leaves(given) if isinstance(t, Tensor) and t.requires_grad]

    @property
    def varies(self) -> bool:  # type: ignore[override]
        """Whether a weight is other than a bucket or a constant, or a field has such a factor."""
        plain = (Constant, PiecewiseConstant)
        bases = {self._expansion.weights[name] for name in self._names}
        return self.driven or any(not isinstance(basis, plain) for basis in bases)

    @property
    def driven(self) -> bool:  # type: ignore[override]
        """Whether a field reads the depth itself, or its input is a signal."""
        return isinstance(self._x, Path) or any(field.reads_depth for field in self._fields)

    @property
    def noisy(self) -> bool:  # type: ignore[override]
        """Whether a part of the module is training: then it may draw random numbers."""
        return any(module.training for module in self._module.modules())

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        """Whether batch norm, or anything else with state, is training."""
        return bool(self._expansion.state) and any(
            self._module.get_submodule(name.rpartition(".")[0]).training
            for name in self._expansion.state
        )

    def __enter__(self) -> Self:
        self._binding.__enter__()
        if self._recomputed:
            self._before = {n: tensor(self._module, n).clone() for n in self._expansion.state}
            self._seen = self._fingerprint()
        return self

    def _fingerprint(self) -> _Seen:
        """What must not change between a forward pass and the backward pass that repeats it."""
        modes = [module.training for module in self._module.modules()]
        given = (self._x if self._reads_depth else (), self._args, self._kwargs)
        tensors = [
            *(tensor(self._module, name) for name in self._names),
            *(p for p in self._module.parameters() if not p.requires_grad),
            *(t for t in pytree.tree_leaves(given) if isinstance(t, Tensor)),
        ]
        return _Seen(modes, tensors)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._binding.__exit__(kind, error, trace)
        self._frame = None  # a backward pass that evaluates again keeps this object alive

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with turn(self._module).lock, self._repeated():
            yield

    @contextlib.contextmanager
    def _repeated(self) -> Iterator[None]:
        if self._seen is not None and not self._seen.same(self._fingerprint()):
            raise SolveError(
                "weights, arguments or training mode of the field changed between the forward "
                "pass and the backward pass that evaluates it again; call backward first"
            )
        self._gathered, _ = {}, self.tensors  # found now, before anything is swapped
        kept = (self._binding, self._x, self._args, self._kwargs)
        self._binding = Binding(self._module, self._expansion, update=False, state=self._before)
        # Cut from whatever graph they come from: their gradients are handed to autograd.
        given, structure = pytree.tree_flatten(kept[1:])
        cut = [
            t.detach().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t
            for t in given
        ]
        self._x, self._args, self._kwargs = pytree.tree_unflatten(cut, structure)
        try:
            with self._binding:
                yield
        finally:
            self._binding, self._x, self._args, self._kwargs = kept

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        self._frame, depths = self._frame_at(stages, None)
        return self._evaluations(self._frame, depths)

    def on_grid(self, stages: Callable[[], Sequence[Stage]]) -> Sequence[Evaluate]:
        plan = self._plan
        if plan is None:
            return self.at(stages())
        if self._in_parts(plan):
            return in_parts(len(plan.points), lambda i, j: self._part(plan.part(i, j)))
        self._frame = self._planned(plan)
        return self._evaluations(self._frame, self._depths_of(plan))

    def _depths_of(self, plan: Plan) -> Sequence[Tensor]:
        if isinstance(self._x, Path):
            return self._sided(plan.stages)
        return self._depths(plan.depths) if self._reads_depth else ()

    def _in_parts(self, plan: Plan) -> bool:
        """Whether weights are to be read a few evaluations at a time.

        A gradient that evaluates the field again keeps nothing of the first time: the weights of
        all evaluations would be all that grows with their number.
        """
        if not self._recomputed or torch.is_grad_enabled():
            return False
        updated = self._binding.update and (self._expansion.state or self._expansion.carried)
        return not updated and plan.heavy and not torch.compiler.is_compiling()

    def _part(self, plan: Plan) -> Sequence[Evaluate]:
        return self._evaluations(self._planned(plan), self._depths_of(plan))

    def maps(self) -> Sequence[Map] | None:
        plan = self._plan
        if plan is None or self._reads_depth or self._structure is not None:
            return None
        if self._in_parts(plan):
            return None
        frame = self._frame = self._planned(plan)
        maps = frame.maps(self._args, self._kwargs)
        return [lambda z: self._first(frame, 0, (z,), z), *maps[1:]]

    def _planned(self, plan: Plan) -> Frame:
        return self._binding.frame(plan.samplings, plan.points, plan.inverses)

    def points(self, width: float, error: float) -> int:
        share = min(abs(width) / self._width, 1.0)
        bases = {self._expansion.weights[name] for name in self._names}
        own = max((field.points_on(abs(width), error) for field in self._fields), default=1)
        # Products of functions of depth: their degrees add.
        return own - 1 + max((basis.points_on(share, error) for basis in bases), default=1)

    def accept(self) -> None:
        if self._frame is not None:  # none if weights are read in parts, without an update
            self._binding.accept(self._frame)

    def read(self, stages: Sequence[Stage], leaves: bool = True) -> Reading:
        frame, depths = self._frame_at(stages, leaves)
        rows = [row for _, _, rows in frame.read.values() for row in rows]

        def pull(gradients: Sequence[Tensor | None]) -> None:
            remaining = iter(gradients)
            for name, (sampling, used, _) in frame.read.items():
                found = [(i, next(remaining)) for i in used]
                kept = [(i, g) for i, g in found if g is not None]
                if kept:
                    at = self._names.index(name)
                    into = self._gathered.get(at)
                    if into is None:
                        into = self._gathered[at] = torch.zeros_like(
                            self.tensors[at], memory_format=torch.contiguous_format
                        )
                    sampling.pulled([i for i, _ in kept], [g for _, g in kept], into)
            for i, gradient in enumerate(remaining, start=len(self._names)):
                if gradient is not None:
                    known = self._gathered.get(i)
                    self._gathered[i] = gradient if known is None else known + gradient

        others = [*self._given(), *self._constants] if leaves else []
        shared = range(len(rows), len(rows) + len(others))
        used: list[list[int]] = [[] for _ in stages]
        first = 0
        for sampling, known, found in frame.read.values():
            place = {row: first + i for i, row in enumerate(known)}
            for row, own in zip(sampling.index, used, strict=True):
                own.append(place[row])
            first += len(found)
        return Reading(
            self._evaluations(frame, depths),
            [*rows, *others],
            pull,
            [[*own, *shared] for own in used],
        )

    def gradients(self) -> Sequence[Tensor | None]:
        gathered, self._gathered = self._gathered, {}
        return [gathered.get(i) for i in range(len(self.tensors))]

    def _frame_at(
        self, stages: Sequence[Stage], leaves: bool | None
    ) -> tuple[Frame, Sequence[Tensor]]:
        points = [self._point(stage) for stage in stages]
        bases = dict.fromkeys(self._expansion.bases.values())
        samplings = {basis: self._place(basis, Sampling.of(basis, points)) for basis in bases}
        depths: Sequence[Tensor] = ()
        if isinstance(self._x, Path):
            depths = self._sided(stages)
        elif self._reads_depth:
            values = [float(stage.depth) for stage in stages]
            depths = self._depths(torch.tensor(values, dtype=torch.float64, device="cpu"))
        return self._binding.frame(samplings, points, None, leaves), depths

    def _depths(self, values: Tensor) -> Sequence[Tensor]:
        """The depths of the stages one by one, in the precision of the state."""
        return values.to(self._like.device, real(self._like.dtype)).unbind(0)

    def _sided(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        """The depths, each on its own side of a jump of the signal when rounded."""
        exact = torch.tensor(
            [float(stage.depth) for stage in stages], dtype=torch.float64, device="cpu"
        )
        depths = exact.to(real(self._like.dtype))
        for i, stage in enumerate(stages):
            if float(exact[i]) in self.breakpoints:
                if stage.side == "left" and depths[i] >= exact[i]:
                    depths[i] = torch.nextafter(depths[i], depths[i] - 1)
                elif stage.side == "right" and depths[i] < exact[i]:
                    depths[i] = torch.nextafter(depths[i], depths[i] + 1)
        return depths.to(self._like.device).unbind(0)

    @property
    def _reads_depth(self) -> bool:
        return isinstance(self._module, Field) or self._cost is not None

    def _evaluations(self, frame: Frame, depths: Sequence[Tensor]) -> Sequence[Evaluate]:
        field, args, kwargs = isinstance(self._module, Field), self._args, self._kwargs
        single = self._structure is None

        def plain(i: int) -> Evaluate:
            """The usual case, without detours: it is called very often."""
            return lambda leaves: (frame.call(i, leaves[0], *args, **kwargs),)

        def same(leaves: State) -> State:
            return (frame.always(leaves[0], args, kwargs),)

        def evaluate(i: int) -> Evaluate:
            def f(leaves: State) -> State:
                count = len(leaves) - (self._cost is not None)
                z = leaves[0] if single else pytree.tree_unflatten(leaves[:count], self._structure)
                given = (depths[i], z, self._x) if field else (z,)
                if self._checked:
                    out = frame.call(i, *given, *args, **kwargs)
                else:
                    out = self._first(frame, i, given, z)
                slope = (out,) if single else tuple(pytree.tree_leaves(out))
                if self._cost is None:
                    return slope
                return (*slope, self._cost_at(depths[i], z, leaves[-1]))

            return f

        count = len(frame.points)
        if not single or field or self._cost is not None:
            return [evaluate(i) for i in range(count)]
        each = [same] * count if frame.steady else [plain(i) for i in range(count)]
        return each if self._checked else [evaluate(0), *each[1:]]

    def _first(self, frame: Frame, i: int, given: tuple[Any, ...], z: Any) -> Any:
        def call() -> Any:
            return frame.call(i, *given, *self._args, **self._kwargs)

        out = first_call(type(self._module).__name__, call, z, self._structure)
        self._checked = True
        return out

    def _cost_at(self, s: Tensor, z: Any, total: Tensor) -> Tensor:
        assert self._cost is not None
        value = self._cost(s, z, self._x)
        if not isinstance(value, Tensor) or value.shape != total.shape:
            got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ShapeError(
                f"the running cost returns one number per sample, shape {list(total.shape)}, "
                f"not {got}; sum or average over the other dimensions"
            )
        return value


class _Seen:
    """The modes of modules and the tensors of a forward pass, and what they hold.

    Args:
        modes: whether each module was training.
        tensors: which must stay where and as they are.
    """

    def __init__(self, modes: list[bool], tensors: list[Tensor]):
        self._modes, self._tensors = modes, tensors
        self._versions = [None if t.is_inference() else t._version for t in tensors]
        self._memory = [None if wrapped(t) else t.detach() for t in tensors]

    def same(self, later: _Seen) -> bool:
        """Whether all is as it was."""
        if (self._modes, self._versions) != (later._modes, later._versions):
            return False
        if not all(map(is_, self._tensors, later._tensors)):
            return False
        return all(
            memory is None or tensor.device.type not in KINDS or tensor.is_set_to(memory)
            for tensor, memory in zip(self._tensors, self._memory, strict=True)
        )


def with_input(cost: RunningCost) -> RunningCost:
    """The cost as a function of depth, state and input, whichever of them it takes."""
    if not callable(cost):
        raise ArgumentError(f"running_cost is a function or a module, not {cost!r}")
    function = cost.forward if isinstance(cost, nn.Module) else cost
    required = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return cost if len(required) > 2 else lambda s, z, x: cost(s, z)
