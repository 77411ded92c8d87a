"""What every gradient has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
    BackwardField,
    Dynamics,
    Saves,
    Solver,
    Span,
    Stage,
    State,
    Stats,
    Status,
    Trajectory,
    sides,
)

from ._checks import autocast_on, check_end, versions

CHANGED = (
    "weights, arguments or training mode of the field changed between the forward pass and this "
    "backward pass, which evaluates the field again: call backward before they change, or use "
    "Backprop()"
)
WRITTEN = (
    "the state at the start of the solve, or an argument or a buffer of the field, was written to "
    "in place between the forward pass and this backward pass, which reads it; write out of place, "
    "as in y = x + block(x), or to a clone"
)


@dataclass(eq=False)
class Job(ABC):
    """One solve whose backward pass evaluates the field again."""

    gradient: Any
    solver: Any
    dynamics: Dynamics
    span: Span
    save_at: Saves
    leaves: int  # the number of leaves of the state
    #: whether many small tensors are stored, for which a list is faster than autograd
    many: ClassVar[bool] = False
    stored: list[Tensor] = field(default_factory=list)  # what the backward pass needs
    trajectory: Trajectory = field(init=False)  # of the forward pass, without its tensors

    @abstractmethod
    def forward(self, z: State) -> Trajectory:
        """Solve, and add to `stored` what the backward pass needs."""

    @abstractmethod
    def backward(
        self, field: BackwardField, final: State, saved: list[State], stats: Stats
    ) -> State:
        """The gradient of the initial state from those of the final and the saved states."""

    def gradients(self, field: BackwardField) -> Sequence[Tensor | None]:
        """The gradients of `Dynamics.tensors`, after `backward`."""
        return field.gradients

    @property
    @abstractmethod
    def noise(self) -> str | None:
        """Why the backward pass cannot draw the same random numbers again; None if it can."""

    def run(self, z: State) -> Trajectory:
        """Solve as one node of the graph."""
        n = len(z)
        out = _Solve.apply(self, n, *z, *self.dynamics.tensors)  # type: ignore[no-untyped-call]
        final, *saved = split(out, n)
        return replace(self.trajectory, final=final, saved=saved)

    def check_noise(self, z: State) -> None:
        """Refuse a field with random numbers that the backward pass cannot draw again."""
        reason = self.noise
        if not self.dynamics.random:
            reason = (
                "the field draws random numbers in evaluation mode, which nothing has kept to "
                "draw them again: use Backprop(), or training mode"
            )
        if reason is None:
            return
        # Another thread may have drawn them: check that an evaluation does.
        start = Stage(self.span[0], sides(*self.span)[0])
        seen = _RandomOps()  # type: ignore[no-untyped-call]
        with self.dynamics.backward_field() as field, torch.no_grad(), fork_rng(z), seen:
            field.read([start], leaves=False).evaluate[0](z)
        if seen.random:
            raise ArgumentError(reason)


class Gradient(Value, ABC):
    """How a solve is differentiated. A gradient is a value, like a solver.

    Attributes:
        discrete: whether it is the gradient of the solver's steps; they must then resolve every
            weight, also one that is still zero.
        job: the solve whose backward pass evaluates the field again; None if autograd does it all.
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
            return check_and_commit(dynamics, solver.integrate(dynamics, z, span, save_at), span)

    def check(self, solver: Solver, dynamics: Dynamics) -> None:
        """Refuse a solver or a field for which this gradient would be wrong."""
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


def effective_gradient(gradient: Gradient, solver: Solver | None) -> Gradient:
    """The gradient, or `Backprop` inside `torch.func` and `torch.compile`."""
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


def check_and_commit(dynamics: Dynamics, trajectory: Trajectory, span: Span) -> Trajectory:
    """Check the end of a trajectory, and update the field's state if the solve succeeded."""
    trajectory = check_end(trajectory, span[1])
    if trajectory.status is Status.SUCCESS:
        dynamics.commit()
    return trajectory


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, job: Job, n: int, *inputs: Tensor) -> tuple[Tensor, ...]:
        z = tuple(x.detach() for x in inputs[:n])
        before = rng_states(z)
        with job.dynamics:
            trajectory = job.forward(z)
            if any(not torch.equal(a, b) for a, b in zip(before, rng_states(z), strict=True)):
                job.check_noise(z)
            job.trajectory = check_and_commit(job.dynamics, trajectory, job.span)
        ctx.job, ctx.autocast, device = job, nullcontext(), z[0].device.type
        if autocast_on(device):
            ctx.autocast = torch.autocast(device, torch.get_autocast_dtype(device))
        # Hooks of saved tensors are to see them all.
        hooked = saved_tensors_hooks(True) is not None
        ctx.held = job.stored if job.many and not hooked else None
        # One of them tells whether the graph was freed.
        ctx.save_for_backward(*(job.stored if ctx.held is None else job.stored[:1]))
        # Some are memory of the state or of arguments, which may be written to.
        ctx.held_versions = versions(ctx.held or ())
        ctx.read, ctx.versions = inputs[n:], versions(inputs[n:])
        out = [job.trajectory.final, *job.trajectory.saved]
        job.stored, job.trajectory = [], replace(job.trajectory, final=(), saved=[])
        # Autograd would take a result that is an input for a view of it.
        return tuple(leaf.clone() for state in out for leaf in state)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        job: Job = ctx.job
        if ctx.versions != versions(ctx.read):
            raise SolveError(CHANGED)
        job.stored = list(ctx.saved_tensors)
        if ctx.held is not None:
            if ctx.held_versions != versions(ctx.held):
                raise SolveError(WRITTEN)
            job.stored = ctx.held
        final, *saved = split(grads, job.leaves)
        stats = job.trajectory.stats.backward = Stats()
        with torch.no_grad(), ctx.autocast, job.dynamics.backward_field() as field:
            first = job.backward(field, final, saved, stats)
            found = (*first, *job.gradients(field))
        job.stored = []
        if ctx.held is not None and not graph_is_kept():
            ctx.held = []  # not before: a backward pass that fails may be tried again
        reason = f"{job.gradient!r} has no second derivatives; use Backprop()"
        sources = (*grads, *ctx.read)
        once = (g if g is None else once_differentiable(g, reason, *sources) for g in found)
        return (None, None, *once)


class _OnceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, reason: str, gradient: Tensor, *sources: Tensor) -> Tensor:
        ctx.reason = reason
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Tensor:
        raise SolveError(ctx.reason)


def once_differentiable(gradient: Tensor, reason: str, *sources: Tensor) -> Tensor:
    """The gradient, whose own derivative by any of its sources raises an error with a reason."""
    if not torch.is_grad_enabled():
        return gradient
    start = gradient.detach().requires_grad_()
    out: Tensor = _OnceDifferentiable.apply(reason, start, *sources)  # type: ignore[no-untyped-call]
    return out


class _RandomOps(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records whether an operation draws random numbers."""

    random: bool = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.random = self.random or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def rng_states(z: State) -> list[Tensor]:
    """The states of the generators that a field on this device may draw from."""
    states = [torch.get_rng_state()]
    if z[0].is_cuda:
        states.append(torch.cuda.get_rng_state(z[0].device))
    return states


@contextmanager
def fork_rng(z: State, states: Sequence[Tensor] = ()) -> Iterator[None]:
    """Restore the generators afterwards; start from other states of them if they are given."""
    with torch.random.fork_rng([z[0].device] if z[0].is_cuda else []):
        if states:
            torch.set_rng_state(states[0])
        if len(states) > 1:
            torch.cuda.set_rng_state(states[1], z[0].device)
        yield


def vector_jacobian(
    outputs: Sequence[State], gradients: Sequence[State], z: State, leaves: Sequence[Tensor]
) -> tuple[State, list[Tensor | None]]:
    """The gradients of a state and of leaves; None for a leaf that nothing depends on."""
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
    # The next evaluation needs the graph of a tensor that the field closes over, too.
    grad = torch.autograd.grad(ends, wanted, along, allow_unused=True, retain_graph=True)
    remaining = iter(grad)
    found = [next(remaining) if x.requires_grad else None for x in (*z, *leaves)]
    of_state = (torch.zeros_like(x) if g is None else g for g, x in zip(found, z, strict=False))
    return tuple(of_state), found[len(z) :]


def split(tensors: Sequence[Tensor], n: int) -> list[State]:
    """A list of tensors as states of n leaves."""
    return [tuple(tensors[i : i + n]) for i in range(0, len(tensors), n)]


def as_leaves(z: State) -> State:
    """The state as leaves of a new graph."""
    return tuple(x.detach().requires_grad_() for x in z)
