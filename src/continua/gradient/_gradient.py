"""What every gradient has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import TorchDispatchMode

from continua._errors import ArgumentError, SolveError
from continua._values import Value
from continua.solve import (
    Dynamics,
    Rerun,
    Solver,
    Span,
    Stage,
    State,
    Stats,
    Status,
    Trajectory,
    sides,
)

from ._finite import with_finite_end

CHANGED = (
    "weights, arguments or training mode of the field changed between the forward pass and the "
    "backward pass that evaluates it again; call backward first"
)


class Gradient(Value, ABC):
    """How a solve is differentiated. A gradient is a value, like a solver.

    Attributes:
        discrete: whether it is the gradient of the solver's steps, which must then resolve
            whatever is differentiated by.
    """

    remedy: ClassVar[str] = "assign another one, as in block.gradient = continua.Checkpoint()"
    discrete: ClassVar[bool] = False

    @abstractmethod
    def solve(
        self, solver: Solver, dynamics: Dynamics, z: State, span: Span, save_at: Sequence[float]
    ) -> Trajectory:
        """Solve so that the result can be differentiated in this way."""

    def check(self, solver: Solver, dynamics: Dynamics) -> None:
        """Refuse what this gradient cannot do right."""
        return None


def follow(
    solver: Solver, dynamics: Dynamics, z: State, span: Span, save_at: Sequence[float]
) -> Trajectory:
    """Solve as the grad mode says; state is updated if the solve succeeds."""
    with dynamics:
        trajectory = solver.integrate(dynamics, z, span, save_at)
        return committed(dynamics, trajectory, span)


def committed(dynamics: Dynamics, trajectory: Trajectory, span: Span) -> Trajectory:
    """The trajectory, looked at; the field's state is updated if it is a success."""
    trajectory = with_finite_end(trajectory, span[1])
    if trajectory.status is Status.SUCCESS:
        dynamics.commit()
    return trajectory


class Job(ABC):
    """One solve that is differentiated by evaluating the field again.

    Attributes:
        stored: the tensors that the backward pass needs; autograd keeps them.
        trajectory: what the forward pass found, cut from the graph.
    """

    trajectory: Trajectory

    def __init__(
        self, solver: Solver, dynamics: Dynamics, span: Span, save_at: Sequence[float], leaves: int
    ):
        self.solver, self.dynamics, self.span, self.leaves = solver, dynamics, span, leaves
        self.save_at = list(save_at)
        self.stored: list[Tensor] = []

    @abstractmethod
    def forward(self, z: State) -> Trajectory:
        """Solve, and fill `stored`."""

    @abstractmethod
    def backward(self, again: Rerun, final: State, saved: list[State], stats: Stats) -> State:
        """The gradient of the initial state from those of the results."""

    @property
    @abstractmethod
    def noise(self) -> str | None:
        """Why random numbers cannot be drawn again as they were; None if they can."""

    def run(self, z: State) -> Trajectory:
        """The trajectory, attached to the graph."""
        if not torch.is_grad_enabled():
            return follow(self.solver, self.dynamics, z, self.span, self.save_at)
        out = _Solve.apply(self, len(z), *z, *self.dynamics.tensors)  # type: ignore[no-untyped-call]
        n = len(z)
        states = [tuple(out[i : i + n]) for i in range(0, len(out), n)]
        made = self.trajectory
        return Trajectory(states[0], states[1:], made.stats, made.status, made.failure)

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
        ctx.save_for_backward(*job.stored)
        ctx.read, ctx.versions = inputs[n:], _versions(inputs[n:])
        out = [job.trajectory.final, *job.trajectory.saved]
        job.stored, job.trajectory = [], replace(job.trajectory, final=(), saved=[])
        # A result that is an input would be taken for a view of it.
        return tuple(leaf.clone() for state in out for leaf in state)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        job: Job = ctx.job
        if ctx.versions != _versions(ctx.read):
            raise SolveError(CHANGED)
        job.stored = list(ctx.saved_tensors)
        n = job.leaves
        states = [tuple(grads[i : i + n]) for i in range(0, len(grads), n)]
        stats = job.trajectory.stats.backward = Stats()
        mixed: AbstractContextManager[object] = nullcontext()
        if ctx.autocast is not None:
            mixed = torch.autocast(ctx.autocast[0], dtype=ctx.autocast[1])
        with mixed, job.dynamics.again() as again:
            first = job.backward(again, states[0], states[1:], stats)
            gradients = again.gradients()
        job.stored = []
        return (None, None, *first, *gradients)


def _versions(tensors: Sequence[Tensor]) -> list[int | None]:
    """How often each tensor was written to, where that can be known."""
    return [None if t.is_inference() else t._version for t in tensors]


def autocast_on(device: str) -> bool:
    """Whether automatic mixed precision is on for a kind of device."""
    if device == "meta" or not torch.amp.is_autocast_available(device):
        return False
    return torch.is_autocast_enabled(device)


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


class kept_rng:  # noqa: N801
    """Puts the generators back afterwards as they are now."""

    def __init__(self, z: State, states: list[Tensor] | None = None):
        self._z, self._states = z, states

    def __enter__(self) -> None:
        self._now = rng_state(self._z)
        if self._states is not None:
            self._set(self._states)

    def __exit__(self, *error: object) -> None:
        self._set(self._now)

    def _set(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        if self._z[0].is_cuda:
            torch.cuda.set_rng_state(states[1], self._z[0].device)


def vector_jacobian(
    outputs: Sequence[State], inputs: Sequence[Tensor], gradients: Sequence[State]
) -> list[Tensor | None]:
    """The gradients of inputs from those of outputs; None where nothing depends on one."""
    pairs = [
        (out, gradient)
        for state, along in zip(outputs, gradients, strict=True)
        for out, gradient in zip(state, along, strict=True)
        if out.requires_grad
    ]
    wanted = [x for x in inputs if x.requires_grad]
    if not pairs or not wanted:
        return [None] * len(inputs)
    # The graph of a tensor that the field closes over is needed by the next evaluation too.
    found = torch.autograd.grad(
        [out for out, _ in pairs],
        wanted,
        [g for _, g in pairs],
        allow_unused=True,
        retain_graph=True,
    )
    remaining = iter(found)
    return [next(remaining) if x.requires_grad else None for x in inputs]


def or_zero(gradients: Sequence[Tensor | None], like: State) -> State:
    """Gradients with zeros in place of None."""
    return tuple(
        torch.zeros_like(x) if g is None else g for g, x in zip(gradients, like, strict=True)
    )


def added(a: State, b: State) -> State:
    """The sum of two states."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def leaf(z: State) -> State:
    """The state cut from its graph, to differentiate by."""
    return tuple(x.detach().requires_grad_() for x in z)
