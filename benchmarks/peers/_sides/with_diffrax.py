"""The problems as one solves them with diffrax: everything, with the gradient, in one `jax.jit`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from diffrax import AbstractERK, ButcherTableau, ThirdOrderHermitePolynomialInterpolation
from jax import Array

from . import jax_fields
from .jax_fields import Field, Weights
from .protocol import Case, Outcome, Problem, Side, serve

# Of the problem's weights and the state at depth 0: the loss, then the state of the outcome.
Run = Callable[[Weights, dict[str, Array]], tuple[Array, Array]]

# More than any row takes: backpropagation then recomputes nothing but the step at hand.
CHECKPOINTS = 128

GRADIENTS = {
    "backprop": "RecursiveCheckpointAdjoint with a checkpoint for each step",
    "checkpoint": "RecursiveCheckpointAdjoint",
    "adjoint": "BacksolveAdjoint",
}


class RK4(AbstractERK):  # type: ignore[misc]
    """The classical method of four stages, which diffrax does not have."""

    tableau: ClassVar[ButcherTableau] = ButcherTableau(
        a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
        b_sol=np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6]),
        b_error=np.zeros(4),
        c=np.array([0.5, 0.5, 1.0]),
    )
    interpolation_cls: ClassVar[Callable[..., Any]] = (
        ThirdOrderHermitePolynomialInterpolation.from_k
    )

    def order(self, terms: Any) -> int:
        """Of convergence."""
        return 4


def solve(
    problem: Problem, field: Field, weights: Weights, x: Any, span: tuple[Any, Any] = (0.0, 1.0)
) -> Any:
    """The state at the end of the span, by the solver and the gradient of the problem."""
    settings = problem.settings
    controller: Any
    backward: Any
    if "steps" in settings:
        solver = diffrax.Euler() if settings["solver"] == "euler" else RK4()
        controller = backward = diffrax.ConstantStepSize()
        dt0, max_steps = 1 / settings["steps"], None
        # The spans that are parts of [0, 1] are so in whole steps.
        checkpoints = round((span[1] - span[0]) * settings["steps"])
    else:
        tolerance = settings["tolerance"]
        solver, dt0, max_steps = diffrax.Dopri5(), None, 4096
        controller, checkpoints = diffrax.PIDController(rtol=tolerance, atol=tolerance), CHECKPOINTS
        # Its documentation tells of this norm as the faster choice.
        norm = diffrax.adjoint_rms_seminorm
        backward = diffrax.PIDController(rtol=tolerance, atol=tolerance, norm=norm)
    adjoint: Any = {
        "backprop": lambda: diffrax.RecursiveCheckpointAdjoint(checkpoints),
        "checkpoint": diffrax.RecursiveCheckpointAdjoint,
        "adjoint": lambda: diffrax.BacksolveAdjoint(stepsize_controller=backward),
    }[settings["gradient"]]()
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda s, z, args: field(args, s, z)), solver, *span, dt0, x,
        args=weights, stepsize_controller=controller, adjoint=adjoint, max_steps=max_steps,
        throw=False,
    )  # fmt: skip
    return jax.tree.map(lambda leaf: leaf[-1], solution.ys)


class Counted:
    """A field that counts its evaluations as they happen, in a program of its own."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.evaluations = 0

    def __call__(self, weights: Weights, s: Any, z: Any) -> Any:
        jax.debug.callback(self.more)
        return self.field(weights, s, z)

    def more(self) -> None:
        """One more."""
        self.evaluations += 1


def case(problem: Problem, run: Callable[[Field], Run], *extra: str, images: bool = False) -> Case:
    """What a run makes of a problem, with gradients of all weights.

    Args:
        problem: the problem.
        run: makes the loss and the state of a field.
        extra: notes.
        images: the state has channels, which the field wants last.
    """
    weights = [jnp.asarray(value) for value in problem.weights.values()]
    inputs = {name: jnp.asarray(value) for name, value in problem.inputs.items()}
    if images:
        inputs["x"] = inputs["x"].transpose(0, 2, 3, 1)
    field = jax_fields.field_of(problem)
    program = jax.jit(jax.value_and_grad(run(field), has_aux=True))

    def step() -> Any:
        return jax.block_until_ready(program(weights, inputs))

    def outcome() -> Outcome:
        (_, state), gradients = step()
        found = {n: np.asarray(g) for n, g in zip(problem.weights, gradients, strict=True)}
        state = np.asarray(state.transpose(0, 3, 1, 2) if images else state)
        return Outcome(state, found, counted())

    def counted() -> int:
        counting = Counted(field)
        counting_program = jax.jit(jax.value_and_grad(run(counting), has_aux=True))
        jax.block_until_ready(counting_program(weights, inputs))
        jax.effects_barrier()
        return counting.evaluations

    notes = [GRADIENTS[problem.settings["gradient"]]]
    if problem.settings["gradient"] == "adjoint" and "tolerance" in problem.settings:
        notes.append("seminorm")
    if problem.settings["solver"] == "rk4":
        notes.append("its tableau by hand")
    return Case(step, outcome, "; ".join([*notes, *extra]))


def plain(problem: Problem) -> Case:
    """The state at depth 1 and its loss."""

    def run(field: Field) -> Run:
        def solved(weights: Weights, inputs: dict[str, Array]) -> tuple[Array, Array]:
            z = solve(problem, field, weights, inputs["x"])
            return jax_fields.loss(z), z

        return solved

    return case(problem, run, images=problem.kind == "conv-softplus")


def stateful(problem: Problem) -> Case:
    """One solve for each bucket, of the one step that lies in it."""

    def run(field: Field) -> Run:
        def solved(weights: Weights, inputs: dict[str, Array]) -> tuple[Array, Array]:
            z, buckets = inputs["x"], weights[0].shape[0]
            for k in range(buckets):
                span = k / buckets, (k + 1) / buckets
                z = solve(problem, field, [stack[k] for stack in weights], z, span)
            return jax_fields.loss(z), z

        return solved

    note = "one solve per bucket; no running statistics"
    return case(problem, run, note, images=True)


def flow(problem: Problem) -> Case:
    """The log-density, by a state of points and their divergence so far."""
    exact = problem.settings["trace"] == "exact"

    def run(field: Field) -> Run:
        def solved(weights: Weights, inputs: dict[str, Array]) -> tuple[Array, Array]:
            x, noise = inputs["x"], inputs["noise"]

            # The noise is an argument like the weights: nothing may be closed over.
            def augmented(args: Any, s: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
                weights, noise = args
                f, along = jax.linearize(lambda z: field(weights, s, z), state[0])
                if not exact:
                    return f, (along(noise) * noise).sum(-1)
                basis = jnp.eye(f.shape[-1], dtype=f.dtype)
                rows = jax.vmap(lambda e: along(jnp.broadcast_to(e, f.shape)))(basis)
                return f, jnp.einsum("ibi->b", rows)

            args: Any = (weights, noise)
            z, change = solve(problem, augmented, args, (x, jnp.zeros_like(x[:, 0])))
            log_prob = jax_fields.normal_log_prob(z) + change
            return -log_prob.mean(), log_prob

        return solved

    return case(problem, run, "trace by hand, with jax.linearize")


def per_sample(problem: Problem) -> Case:
    """Each sample by itself over its own span, under `jax.vmap`."""

    def run(field: Field) -> Run:
        def solved(weights: Weights, inputs: dict[str, Array]) -> tuple[Array, Array]:
            def one(x: Array, end: Array) -> Array:
                state: Array = solve(problem, field, weights, x, (0.0, end))
                return state

            z = jax.vmap(one)(inputs["x"], inputs["ends"])
            return jax_fields.loss(z), z

        return solved

    return case(problem, run, "jax.vmap over samples")


def threads(count: int) -> None:
    """Set how many threads XLA uses; it asks when the first program is compiled."""
    os.environ["NPROC"] = str(count)
    if count == 1:
        # Without this, matrix products go through a pool of one and wait for it.
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"


def side() -> Side:
    """Of diffrax."""
    rows = (
        "fixed-small", "fixed-large", "adaptive-tiny", "adaptive-medium", "galerkin",
        "conv-adaptive", "transformer",
    )  # fmt: skip
    special = {"conv-stateful": stateful, "cnf": flow, "per-sample": per_sample}
    return Side("diffrax", diffrax.__version__, dict.fromkeys(rows, plain) | special, threads)


if __name__ == "__main__":
    serve(side())
