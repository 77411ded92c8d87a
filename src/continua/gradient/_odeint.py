"""One entry for any field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from continua._errors import ArgumentError, SolveError
from continua.solve import (
    Dopri5,
    Dynamics,
    EveryStep,
    Saves,
    Solution,
    Solver,
    Stage,
    State,
    Status,
    Trajectory,
    sides,
)

from ._checks import Ends, SaveAt, check_values, checked_depths, checked_solver, explain
from ._compiled import compiled_first, compiled_solve
from ._dense import Event, dense_solution, depths_tensor
from ._gradient import Backprop, Gradient, checked_gradient, once_differentiable
from ._problem import CallableDynamics, Problem, RunningCost, refuse_state
from ._programs import Programs, programs_of
from ._trace import Backend

ONE_DERIVATIVE = (
    "a solve has no second derivatives through an end of its span; make the length of the span a "
    "factor of the field on (0, 1) instead, or use first derivatives alone"
)


def odeint(
    f: Callable[..., Any],
    z: Any,
    span: Ends = (0.0, 1.0),
    *,
    solver: Solver | None = None,
    gradient: Gradient | None = None,
    params: Iterable[Tensor] | None = None,
    args: tuple[Any, ...] = (),
    save_at: SaveAt = None,
    dense: bool = False,
    event: Callable[[Tensor, Any], Tensor] | None = None,
    running_cost: RunningCost | None = None,
    raise_on_failure: bool = True,
    compile: bool | Backend = False,
) -> Solution:
    r"""Integrate any field f(s, z).

    .. math:: \frac{dz}{ds} = f(s, z), \qquad z(s_0) = z_0

    Every gradient works. `Backprop` needs no parameters: autograd finds them. The others evaluate
    f again, so they have to know what it depends on. Parameters are found in modules and in what
    functions close over; others are named in `params`. A tensor that requires a gradient and was
    not found is refused.

    Args:
        f: a function or a module, called as f(s, z, *args) with a scalar tensor s.
        z: the state at the start: a tensor, or a tuple or dictionary of tensors.
        span: from where to where, also backward. End points that require a gradient get one.
        solver: `Dopri5()` by default.
        gradient: `Backprop()` by default.
        params: tensors that f or the running cost depend on, besides those that are found.
        args: further arguments of f. Tensors among them get gradients.
        save_at: the depths to return, along the span; `"steps"` for the start and the end of
            every step of a fixed grid, None for the end alone. A tensor `[B, T]` has a row of
            depths, in any order, for each sample. Depths that require a gradient get one.
        dense: True returns a solution that can be called at any depth of the span.
        event: g(s, z), one number or one per sample. The solve ends where g first changes its
            sign, at `Solution.event_at`; both are differentiable.
        running_cost: l(s, z), one number per sample; `Solution.cost` is its integral.
        raise_on_failure: False returns the status of a solve that stopped instead.
        compile: True takes steps that are compiled once for a function or module f, which is to
            be the same object at every call; see `ODEBlock.compile`.

    Example:
        >>> import torch, continua as ct
        >>> rate = torch.tensor(-1.0, requires_grad=True)
        >>> end = ct.odeint(lambda s, z: rate * z, torch.ones(1), gradient=ct.Adjoint()).final
        >>> end.backward()
        >>> round(end.item(), 3), round(rate.grad.item(), 3)  # exp(-1) twice
        (0.368, 0.368)
    """
    if not callable(f):
        raise ArgumentError(f"a field is a function f(s, z) or a module, not {f!r}")
    method = checked_gradient(Backprop() if gradient is None else gradient)
    used = checked_solver(Dopri5() if solver is None else solver)

    def run(gradient: Gradient, programs: Programs | None) -> Solution:
        problem = Problem.of(z, running_cost, None, span, gradient)
        if gradient.job is not None:
            refuse_state(f, programs)
        dynamics = CallableDynamics(f, problem, tuple(args), params, z)
        options = (save_at, raise_on_failure, dense, event, programs)
        return solve(dynamics, problem, used, gradient, *options)

    return compiled_first(programs_of(f, compile), method, used, run)


def solve(
    dynamics: Dynamics,
    problem: Problem,
    solver: Solver,
    gradient: Gradient,
    save_at: SaveAt = None,
    raise_on_failure: bool = True,
    dense: bool = False,
    event: Callable[[Tensor, Any], Tensor] | None = None,
    programs: Programs | None = None,
) -> Solution:
    """Solve for any dynamics, as `odeint` does for a function."""

    def run(save_at: Saves) -> Trajectory:
        return integrate(dynamics, problem, solver, gradient, save_at, raise_on_failure, programs)

    if event is not None:
        if save_at is not None:
            raise ArgumentError(
                "an event ends the solve at a depth not known before: leave save_at out, and "
                "call the solution at the depths you want"
            )
        found = Event(event, problem, solver)
        every = EveryStep.of(solver.degree, found.stop)
        return found.solution(run(every), every)
    if isinstance(save_at, Tensor) and (save_at.dim() != 1 or save_at.requires_grad):
        dense = True  # read from the interpolant
    if dense:
        depths, every = depths_tensor(save_at, problem, solver), EveryStep.of(solver.degree)
        return dense_solution(run(every), every, depths, problem)
    where = checked_depths(save_at, problem.span, solver)
    return _solution(run(where), where, problem)


def integrate(
    dynamics: Dynamics,
    problem: Problem,
    solver: Solver,
    gradient: Gradient,
    save_at: Saves = (),
    raise_on_failure: bool = True,
    programs: Programs | None = None,
) -> Trajectory:
    """Solve for any dynamics; a trajectory takes less time to build than a `Solution`."""
    z, span = _with_end(dynamics, problem.z, problem, at_end=False), problem.span
    if programs is None:
        gradient.check(solver, dynamics)
        trajectory = gradient.solve(solver, dynamics, z, span, save_at)
    else:
        trajectory = compiled_solve(programs, gradient, solver, dynamics, z, span, save_at)
    if trajectory.status is Status.NON_FINITE:
        check_values(problem.z)
    if trajectory.status is not Status.SUCCESS and raise_on_failure:
        raise SolveError(explain(trajectory, solver))
    trajectory.final = _with_end(dynamics, trajectory.final, problem, at_end=True)
    return trajectory


def _with_end(dynamics: Dynamics, z: State, problem: Problem, at_end: bool) -> State:
    """The state with the gradient of an end point of the span attached.

    By Leibniz, moving the end by ds moves the state there by f ds, and moving the start
    moves the state that starts from it by -f ds.
    """
    end = problem.ends[int(at_end)]
    if not (isinstance(end, Tensor) and end.requires_grad and torch.is_grad_enabled()):
        return z
    stage = Stage(problem.span[int(at_end)], sides(*problem.span)[int(at_end)])
    with torch.no_grad(), dynamics.backward_field() as field:
        (evaluate,) = field.read([stage], leaves=False).evaluate
        slope = evaluate(z)
    move = end - end.detach()  # zero, with the gradient of the end
    move.register_hook(  # type: ignore[no-untyped-call]
        lambda gradient: once_differentiable(gradient, ONE_DERIVATIVE, gradient)
    )
    sign = 1.0 if at_end else -1.0
    moved = [
        move.to(leaf.device, leaf.dtype) * (sign * k.to(leaf.dtype))
        for leaf, k in zip(z, slope, strict=True)
    ]
    # A slope that is not finite leaves the state as it is; the gradient is then not finite.
    return tuple(leaf + torch.where(m.isfinite(), m, 0.0) for leaf, m in zip(z, moved, strict=True))


def _solution(trajectory: Trajectory, where: Sequence[float], problem: Problem) -> Solution:
    """The solution at the depths that were saved."""
    final, saved = trajectory.final, trajectory.saved
    if saved and len(saved) == len(where) and where[-1] == problem.span[1]:
        saved = [*saved[:-1], final]  # the final state has the gradients of the span's ends
    z = tuple(leaf.new_empty(0, *leaf.shape) for leaf in final)
    if saved:
        z = tuple(map(torch.stack, zip(*saved, strict=True)))
    depths = torch.tensor(where[: len(saved)], dtype=torch.float64, device="cpu")
    return problem.solution(trajectory, depths.to(final[0].device), z)
