"""The state of a solve, its running cost, and fields evaluated on them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from continua._errors import ArgumentError, ShapeError
from continua.solve import (
    Dynamics,
    Evaluate,
    Reading,
    Rerun,
    Solution,
    Source,
    Span,
    Stage,
    State,
    Traced,
    Trajectory,
)

from ._checks import autocast_on, checked_params, checked_state, first_call
from ._dependencies import (
    UPDATES,
    dependencies,
    leaves_of,
    refuse_unknown,
    refusing_updates,
    surroundings,
)
from ._gradient import Gradient, leaf
from ._programs import Programs, exchanged, known_shared
from ._trace import Uncompilable

RunningCost = Callable[..., Tensor]


@dataclass(frozen=True)
class Problem:
    """What a solve starts from."""

    z: State  # the leaves of the state, and the integral of the running cost as a further one
    structure: Any  # of the state, None for a single tensor
    cost: RunningCost | None  # as a function of depth, state and input
    given_cost: RunningCost | None  # as it was given
    span: Span
    repeated: bool  # whether a backward pass will evaluate the field again

    @classmethod
    def of(
        cls, x: Any, cost: RunningCost | None, weight: Tensor | None, span: Span, gradient: Gradient
    ) -> Problem:
        """Check a state and a running cost."""
        z, structure = checked_state(x, weight)
        # Under autocast the field may compute in half precision; the sum of its steps may not.
        if autocast_on(z[0].device.type):
            half = (torch.float16, torch.bfloat16)
            z = tuple(part.float() if part.dtype in half else part for part in z)
        repeated = torch.is_grad_enabled() and gradient.job is not None
        if cost is None:
            return cls(z, structure, None, None, span, repeated)
        first = z[0]
        total = torch.zeros(first.shape[:1], dtype=real(first.dtype), device=first.device)
        return cls((*z, total), structure, with_input(cost), cost, span, repeated)

    def state(self, leaves: State) -> Any:
        """The state from its leaves, without the running cost."""
        if self.structure is None:
            return leaves[0]
        own = leaves[: len(leaves) - (self.cost is not None)]
        return pytree.tree_unflatten(own, self.structure)

    def solution(self, trajectory: Trajectory, s: Tensor, z: State, **more: Any) -> Solution:
        """What a solve gives back, with the states z at the depths s."""
        final = trajectory.final
        return Solution(
            s=s,
            z=self.state(z),
            final=self.state(final),
            cost=None if self.cost is None else final[-1],
            stats=trajectory.stats,
            status=trajectory.status,
            failure=trajectory.failure,
            **more,
        )

    def depths(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        """The depths of some stages one by one, in the precision of the state."""
        exact = [float(stage.depth) for stage in stages]
        values = torch.tensor(exact, dtype=torch.float64, device="cpu")
        return values.to(self.z[0].device, real(self.z[0].dtype)).unbind(0)

    def evaluations(
        self, calls: Sequence[Callable[[Any], Any]], depths: Sequence[Tensor], x: Any
    ) -> list[Evaluate]:
        """The field on leaves, the running cost beside it."""
        if self.cost is not None:
            return [self._with_cost(call, s, x) for call, s in zip(calls, depths, strict=True)]
        return [self._without_cost(call) for call in calls]

    def _without_cost(self, call: Callable[[Any], Any]) -> Evaluate:
        if self.structure is None:  # often, and called very often
            return lambda leaves: (call(leaves[0]),)
        return lambda leaves: tuple(pytree.tree_leaves(call(self.state(leaves))))

    def _with_cost(self, call: Callable[[Any], Any], s: Tensor, x: Any) -> Evaluate:
        def evaluate(leaves: State) -> State:
            z, total = self.state(leaves), leaves[-1]
            assert self.cost is not None
            cost = self.cost(s, z, x)
            if not isinstance(cost, Tensor) or cost.shape != total.shape:
                got = list(cost.shape) if isinstance(cost, Tensor) else type(cost).__name__
                raise ShapeError(
                    f"the running cost returns one number per sample, shape {list(total.shape)}, "
                    f"not {got}; sum or average over the other dimensions"
                )
            return (*pytree.tree_leaves(call(z)), cost)

        return evaluate

    def first_evaluations(
        self,
        name: str,
        calls: Sequence[Callable[[Any], Any]],
        depths: Sequence[Tensor],
        x: Any,
        tensors: Sequence[Tensor],
    ) -> list[Evaluate]:
        """The same at the start of a solve, where the first one shows the mistakes of a field."""

        def first(z: Any) -> Any:
            return first_call(name, calls[0], z, self.structure)

        evaluate = self.evaluations([first, *calls[1:]], depths, x)
        if self.repeated:
            evaluate[0] = _refusing(evaluate[0], tensors)
        return evaluate


def _refusing(evaluate: Evaluate, known: Sequence[Tensor]) -> Evaluate:
    """An evaluation that refuses to depend on a tensor which would get no gradient."""

    def checked(z: State) -> State:
        with torch.enable_grad():
            start = leaf(z)
            out = evaluate(start)
        refuse_unknown(out, [*start, *leaves_of(known)])
        return tuple(slope.detach() for slope in out)

    return checked


def real(dtype: torch.dtype) -> torch.dtype:
    """The real type of the same precision."""
    return dtype.to_real() if dtype.is_complex else dtype


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


class CallableDynamics(Dynamics):
    """A callable f(s, z, *args), whose parameters are found or given."""

    varies = driven = True

    def __init__(self, f: Any, problem: Problem, args: tuple[Any, ...], params: Any, x: Any):
        self.f, self.problem = f, problem
        self._args, self._params, self._x = args, checked_params(params), x
        self._name = getattr(f, "__name__", type(f).__name__)
        self._checked = False

    @property
    def tensors(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The tensors among the arguments, and the parameters."""
        return (*self.given, *self.params)

    @property
    def given(self) -> list[Tensor]:
        """The tensors among the arguments and the input that want a gradient."""
        return wanting((self._args, self._x if self.problem.cost is not None else ()))

    @cached_property
    def params(self) -> list[Tensor]:
        """The leaf tensors that the field and the running cost depend on."""
        found = [*dependencies(self.f), *dependencies(self.problem.given_cost)]
        return list({id(t): t for t in (*found, *leaves_of(self._params))}.values())

    @property
    def noisy(self) -> bool:  # type: ignore[override]
        """Whether random numbers may be drawn: nobody knows of a plain function."""
        return not isinstance(self.f, nn.Module) or any(m.training for m in self.f.modules())

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        depths = self.problem.depths(stages)
        calls = _calls(self.f, depths, self._args)
        if self._checked:
            return self.problem.evaluations(calls, depths, self._x)
        self._checked = True
        known: Sequence[Tensor] = ()
        if self.problem.repeated:
            known, calls[0] = self.tensors, refusing_updates(self.f, calls[0])
        return self.problem.first_evaluations(self._name, calls, depths, self._x, known)

    @property
    def reached(self) -> object:
        """What compiled steps depend on besides arguments."""
        return self.f

    def source(self) -> Source:
        return CallableSource(self, self._args, self._x, list(self.tensors))

    @contextlib.contextmanager
    def again(self) -> Iterator[Rerun]:
        """Evaluate once more, with arguments that are cut from the graph they come from."""
        args, x = cut((self._args, self._x))
        given = wanting((args, x if self.problem.cost is not None else ()))
        yield _Again(self, args, x, [*given, *self.params])


class _Again(Rerun):
    def __init__(
        self, dynamics: CallableDynamics, args: tuple[Any, ...], x: Any, leaves: list[Tensor]
    ):
        super().__init__(len(leaves))
        self._dynamics, self._args, self._x, self._leaves = dynamics, args, x, leaves

    def read(self, stages: Sequence[Stage], leaves: bool = True) -> Reading:
        problem = self._dynamics.problem
        depths = problem.depths(stages)
        calls = _calls(self._dynamics.f, depths, self._args)
        evaluate = problem.evaluations(calls, depths, self._x)
        wanted = self._leaves if leaves else []
        return Reading(evaluate, wanted, self._pull, [range(len(wanted))] * len(stages))

    def _pull(self, gradients: Sequence[Tensor | None]) -> None:
        for place, gradient in enumerate(gradients):
            self.gather(place, gradient)

    def source(self) -> Source:
        return CallableSource(self._dynamics, self._args, self._x, self._leaves)


class CallableSource(Source):
    """A callable for compiled steps: depths vary, and everything that it reaches is shared."""

    def __init__(
        self, dynamics: CallableDynamics, args: tuple[Any, ...], x: Any, leaves: list[Tensor]
    ):
        self._f, self._problem, self._args, self._x = dynamics.f, dynamics.problem, args, x
        self._leaves, self.code = leaves, (dynamics.reached, self._problem.given_cost)
        read = x if self._problem.cost is not None else ()
        tensors, plain = surroundings((self.code, args, read, leaves))
        self.signature = [*plain, self._problem.structure]
        self.shared = known_shared(tensors, leaves)

    def rows(self, stages: Sequence[Stage]) -> Sequence[Tensor]:
        return [torch.stack(list(self._problem.depths(stages)))]

    def traced(self, stages: Sequence[Stage]) -> Traced:
        depths = self._problem.depths(stages)
        calls = _calls(self._f, depths, self._args)
        evaluate = self._problem.evaluations(calls, depths, self._x)

        def on(shared: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[list[Evaluate], Any]:
            others = zip((*self.shared, *depths), (*shared, *rows[0].unbind(0)), strict=True)
            table = {id(t): other for t, other in others}
            return [exchanged(f, table) for f in evaluate], lambda h: ()

        return on

    def pull(self, stages: Sequence[Stage], gradients: Mapping[int, Sequence[Tensor]]) -> None:
        return None

    def gradients(self, shared: Mapping[int, Tensor]) -> Sequence[Tensor | None]:
        place, remaining = {id(t): i for i, t in enumerate(self.shared)}, dict(shared)
        return [remaining.pop(place[id(t)], None) for t in self._leaves]  # one may be there twice


def _calls(
    f: Callable[..., Any], depths: Sequence[Tensor], args: tuple[Any, ...]
) -> list[Callable[[Any], Any]]:
    if not args:
        return [partial(f, s) for s in depths]
    return [lambda z, s=s: f(s, z, *args) for s in depths]  # type: ignore[misc]


def cut(given: Any) -> Any:
    """The same with every tensor cut from the graph it comes from, to differentiate by."""
    if isinstance(given, Tensor):
        return given.detach().requires_grad_(given.requires_grad)
    if type(given) is tuple:  # the usual case, in which a tree takes long
        return tuple(map(cut, given))
    if type(given) is dict and not given:
        return {}
    return pytree.tree_map_only(Tensor, cut, given)


def tensors_in(given: Any) -> list[Tensor]:
    """The tensors in a structure."""
    if isinstance(given, Tensor):
        return [given]
    if type(given) is tuple:
        return [t for part in given for t in tensors_in(part)]
    if type(given) is dict and not given:
        return []
    return [t for t in pytree.tree_leaves(given) if isinstance(t, Tensor)]


def wanting(given: Any) -> list[Tensor]:
    """The tensors in a structure that require a gradient."""
    return [t for t in tensors_in(given) if t.requires_grad]


def refuse_state(f: Callable[..., Any], programs: Programs | None = None) -> None:
    """Refuse a module that updates its state, which a second evaluation would update again."""
    if not isinstance(f, nn.Module):
        return
    for name, module in f.named_modules():
        if module.training and any(b.is_floating_point() for b in module.buffers(recurse=False)):
            if programs is not None:
                raise Uncompilable("a function's state is not updated by programs: use an ODEBlock")
            raise ArgumentError(f"{name or type(f).__name__!r} {UPDATES}")
