"""What every gradient has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._C._autograd import _get_current_graph_task_keep_graph as graph_is_kept
from torch._C._autograd import _top_saved_tensors_default_hooks as saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from continua._errors import ArgumentError, SolveError
from continua._values import Value, value
from continua.solve import (
    Dynamics,
    Rerun,
    Saves,
    Solver,
    Span,
    Stage,
    State,
    Stats,
    Status,
    Trajectory,
    sides,
)  # fmt: skip

from ._checks import autocast_on, versions, with_finite_end

CHANGED = (
    "weights, arguments or training mode of the field changed between the forward pass and this "
    "backward pass, which evaluates the field again: call backward before they change, or use "
    "Backprop()"
)


@dataclass(eq=False)
class Job(ABC):
    """One solve that is differentiated by evaluating the field again."""

    gradient: Any
    solver: Any
    dynamics: Dynamics
    span: Span
    save_at: Saves
    leaves: int  # of the state
    #: whether many small tensors are stored, which autograd takes longer to keep than a list does
    many: ClassVar[bool] = False
    stored: list[Tensor] = field(default_factory=list)  # for the backward pass; autograd keeps it
    trajectory: Trajectory = field(init=False)  # what the forward pass found, without its tensors

    @abstractmethod
    def forward(self, z: State) -> Trajectory:
        """Solve, and fill `stored`."""

    @abstractmethod
    def backward(self, again: Rerun, final: State, saved: list[State], stats: Stats) -> State:
        """The gradient of the initial state from those of the results."""

    def gradients(self, again: Rerun) -> Sequence[Tensor | None]:
        """Those of `Dynamics.tensors`, after `backward`."""
        return again.gathered

    @property
    @abstractmethod
    def noise(self) -> str | None:
        """Why random numbers cannot be drawn again as they were; None if they can."""

    def run(self, z: State) -> Trajectory:
        """The trajectory, attached to the graph."""
        n = len(z)
        out = _Solve.apply(self, n, *z, *self.dynamics.tensors)  # type: ignore[no-untyped-call]
        final, *saved = split(out, n)
        return replace(self.trajectory, final=final, saved=saved)

    def check_noise(self, z: State) -> None:
        """Refuse a field that draws random numbers which cannot be drawn again."""
        reason = self.noise
        if not self.dynamics.noisy:
            reason = (
                "the field draws random numbers in evaluation mode, which nothing has kept to "
                "draw them again: use Backprop(), or training mode"
            )
        if reason is not None and self._draws(z):
            raise ArgumentError(reason)

    def _draws(self, z: State) -> bool:
        """Whether an evaluation draws random numbers; another thread may have done so as well."""
        start = Stage(self.span[0], sides(*self.span)[0])
        seen = _RandomOps()  # type: ignore[no-untyped-call]
        with self.dynamics.again() as again, torch.no_grad(), kept_rng(z), seen:
            again.read([start], leaves=False).evaluate[0](z)
        return seen.random


class Gradient(Value, ABC):
    """How a solve is differentiated. A gradient is a value, like a solver.

    Attributes:
        discrete: whether it is the gradient of the solver's steps, which must then resolve
            whatever is differentiated by.
        job: a solve whose backward pass evaluates the field again; None if autograd does it all.
    """

    remedy: ClassVar[str] = "assign another one, as in block.gradient = continua.Checkpoint()"
    discrete: ClassVar[bool] = False
    job: ClassVar[type[Job] | None] = None

    def solve(
        self, solver: Solver, dynamics: Dynamics, z: State, span: Span, save_at: Saves
    ) -> Trajectory:
        """Solve so that the result can be differentiated in this way."""
        if self.job is not None and torch.is_grad_enabled():
            return self.job(self, solver, dynamics, span, save_at, len(z)).run(z)
        with dynamics:
            return committed(dynamics, solver.integrate(dynamics, z, span, save_at), span)

    def check(self, solver: Solver, dynamics: Dynamics) -> None:
        """Refuse what this gradient cannot do right."""
        return None


@value
class Backprop(Gradient):
    """Differentiate the solver's own operations: exact for the discrete solution.

    Autograd keeps what every evaluation of the field needs, so memory grows with the number of
    evaluations. Second derivatives work.
    """

    discrete = True


def checked_gradient(gradient: Gradient) -> Gradient:
    """The gradient, if it is one."""
    if not isinstance(gradient, Gradient):
        raise ArgumentError(
            f"gradient is an instance such as continua.Backprop(), not {gradient!r}"
        )
    return gradient


def gradient_here(gradient: Gradient, solver: Solver | None) -> Gradient:
    """The gradient to use here: `torch.func` and `torch.compile` differentiate the steps."""
    compiling = torch.compiler.is_compiling()
    transforms = compiling or torch._C._are_functorch_transforms_active()
    if not transforms or not torch.is_grad_enabled():
        return gradient
    adaptive = solver is None or solver.adaptive
    if compiling and adaptive and not gradient.discrete:  # there may be many steps to keep
        raise ArgumentError(
            f"torch.compile does not take {gradient!r} with adaptive steps: use block.compile(), "
            "steps=, Backprop() or torch.no_grad()"
        )
    return Backprop()


def committed(dynamics: Dynamics, trajectory: Trajectory, span: Span) -> Trajectory:
    """The trajectory, looked at; the field's state is updated if it is a success."""
    trajectory = with_finite_end(trajectory, span[1])
    if trajectory.status is Status.SUCCESS:
        dynamics.commit()
    return trajectory


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, job: Job, n: int, *inputs: Tensor) -> tuple[Tensor, ...]:
        z = tuple(x.detach() for x in inputs[:n])
        before = rng_state(z)
        with job.dynamics:
            trajectory = job.forward(z)
            if any(not torch.equal(a, b) for a, b in zip(before, rng_state(z), strict=True)):
                job.check_noise(z)
            job.trajectory = committed(job.dynamics, trajectory, job.span)
        ctx.job = job
        device = z[0].device.type
        ctx.autocast = (device, torch.get_autocast_dtype(device)) if autocast_on(device) else None
        # Hooks of saved tensors are to see them all.
        hooked = saved_tensors_hooks(True) is not None
        ctx.held = job.stored if job.many and not hooked else None
        # One of them tells whether the graph was freed.
        ctx.save_for_backward(*(job.stored if ctx.held is None else job.stored[:1]))
        ctx.read, ctx.versions = inputs[n:], versions(inputs[n:])
        out = [job.trajectory.final, *job.trajectory.saved]
        job.stored, job.trajectory = [], replace(job.trajectory, final=(), saved=[])
        # A result that is an input would be taken for a view of it.
        return tuple(leaf.clone() for state in out for leaf in state)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            found = _Solve._gradients(ctx, grads)
        reason = f"{ctx.job.gradient!r} has no second derivatives; use Backprop()"
        sources = (*grads, *ctx.read)
        return (None, None, *(g if g is None else once(g, reason, *sources) for g in found))

    @staticmethod
    def _gradients(ctx: Any, grads: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        job: Job = ctx.job
        if ctx.versions != versions(ctx.read):
            raise SolveError(CHANGED)
        job.stored = list(ctx.saved_tensors)
        if ctx.held is not None:
            job.stored = ctx.held
            if not graph_is_kept():
                ctx.held = []
        final, *saved = split(grads, job.leaves)
        stats = job.trajectory.stats.backward = Stats()
        mixed: AbstractContextManager[object] = nullcontext()
        if ctx.autocast is not None:
            mixed = torch.autocast(ctx.autocast[0], dtype=ctx.autocast[1])
        with mixed, job.dynamics.again() as again:
            first = job.backward(again, final, saved, stats)
            gradients = job.gradients(again)
        job.stored = []
        return (*first, *gradients)


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, reason: str, value: Tensor, *sources: Tensor) -> Tensor:
        ctx.reason = reason
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise SolveError(ctx.reason)


def once(value: Tensor, reason: str, *sources: Tensor) -> Tensor:
    """A derivative that has none of its own, by its sources neither, and says why if asked."""
    if not torch.is_grad_enabled():
        return value
    start = value.detach().requires_grad_()
    refusing: Tensor = _Once.apply(reason, start, *sources)  # type: ignore[no-untyped-call]
    return refusing


class _RandomOps(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether an operation draws random numbers."""

    random: bool = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.random = self.random or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def rng_state(z: State) -> list[Tensor]:
    """The states of the generators that a field on this device may draw from."""
    states = [torch.get_rng_state()]
    if z[0].is_cuda:
        states.append(torch.cuda.get_rng_state(z[0].device))
    return states


@contextmanager
def kept_rng(z: State, states: Sequence[Tensor] = ()) -> Iterator[None]:
    """Put the generators into other states, and back afterwards."""
    with torch.random.fork_rng([z[0].device] if z[0].is_cuda else []):
        if states:
            torch.set_rng_state(states[0])
        if len(states) > 1:
            torch.cuda.set_rng_state(states[1], z[0].device)
        yield


def vector_jacobian(
    outputs: Sequence[State], gradients: Sequence[State], z: State, leaves: Sequence[Tensor]
) -> tuple[State, list[Tensor | None]]:
    """The gradients of a state and of leaves; None where nothing depends on a leaf."""
    pairs = [
        (out, gradient)
        for state, along in zip(outputs, gradients, strict=True)
        for out, gradient in zip(state, along, strict=True)
        if out.requires_grad
    ]
    wanted = [x for x in (*z, *leaves) if x.requires_grad]
    if not pairs or not wanted:
        return tuple(map(torch.zeros_like, z)), [None] * len(leaves)
    ends, along = zip(*pairs, strict=True)
    # The graph of a tensor that the field closes over is needed by the next evaluation too.
    grad = torch.autograd.grad(ends, wanted, along, allow_unused=True, retain_graph=True)
    remaining = iter(grad)
    found = [next(remaining) if x.requires_grad else None for x in (*z, *leaves)]
    of_state = (torch.zeros_like(x) if g is None else g for g, x in zip(found, z, strict=False))
    return tuple(of_state), found[len(z) :]


def split(tensors: Sequence[Tensor], n: int) -> list[State]:
    """Tensors in a row as states of n leaves."""
    return [tuple(tensors[i : i + n]) for i in range(0, len(tensors), n)]


def leaf(z: State) -> State:
    """The state cut from its graph, to differentiate by."""
    return tuple(x.detach().requires_grad_() for x in z)
