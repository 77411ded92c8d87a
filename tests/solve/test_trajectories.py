"""The states of Runge-Kutta methods at every depth, not only at the end."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from problems import PROBLEMS, Function, Problem, advance, rates, saved
from solve.methods import STEPS, every_problem, every_solver, low_order, solved, spans


def states_of_the_steps(problem, solver):
    """The state at the start of each step, as the field saw it, and at the end."""
    seen = []
    problem_again = Problem(problem.f, problem.exact, problem.span)
    trajectory = solver.integrate(
        problem_again.dynamics(),
        (problem.start,),
        problem.span,
        observe=lambda s: seen.append(s.z[0]),
    )
    return [*seen, trajectory.final[0]]


def grid(span, steps):
    return [span[0] + (span[1] - span[0]) * n / steps for n in range(steps)] + [span[1]]


@every_solver
@given(steps=st.integers(1, 60), span=spans)
def test_grid_points_are_the_states_of_the_steps(method, steps, span):
    problem = Problem(PROBLEMS["growth"].f, PROBLEMS["growth"].exact, span)
    solver = method(steps=steps)
    states = saved(solver, problem.f, problem.start, span, grid(span, steps))
    assert torch.equal(states, torch.stack(states_of_the_steps(problem, solver)))


@low_order
@every_problem
@pytest.mark.parametrize("backward", [False, True])
def test_convergence_between_grid_points(method, problem, backward):
    problem = problem.reversed() if backward else problem
    save_at = np.linspace(*problem.span, 301).tolist()
    exact = torch.stack([problem.exact(s) for s in save_at])
    errors = []
    for steps in STEPS:
        solver = method(steps=steps)
        states = saved(solver, problem.f, problem.start, problem.span, save_at)
        errors.append((states - exact).norm(dim=1).max().item())
    # An extension of order 3 is off by h^4 within a step: as much as a method of order 4 is.
    assert rates(errors) == pytest.approx([method.tableau.order] * 3, abs=0.25)


@low_order
@every_problem
def test_order_of_the_extension_within_one_step(method, problem):
    """One step of width h: off by h^(q + 1), with q = 1, 2 and 3 for orders 1, 2 and 4."""
    start = problem.span[0]
    order = {4: 3}.get(method.tableau.order, method.tableau.order)
    errors = []
    for steps in STEPS:
        span = (start, start + 1 / steps)
        save_at = np.linspace(*span, 21).tolist()[1:-1]
        solver = method(steps=1)
        states = saved(solver, problem.f, problem.start, span, save_at)
        exact = torch.stack([problem.exact(s) for s in save_at])
        errors.append((states - exact).norm(dim=1).max().item())
    observed = rates(errors)
    assert len(observed) >= 2
    assert observed[-1] == pytest.approx(order + 1, abs=0.25)


@every_solver
@given(steps=st.integers(1, 12), depths=st.lists(st.floats(0, 0.5), max_size=6).map(sorted))
def test_depths_are_saved_one_by_one_as_all_at_once(method, steps, depths):
    problem, solver = PROBLEMS["growth"], method(steps=steps)
    f, z = problem.f, problem.start
    together = saved(solver, f, z, problem.span, depths)
    for s, state in zip(depths, together, strict=True):
        assert torch.equal(saved(solver, f, z, problem.span, [s])[0], state)
    final = problem.solve(solver, depths).final[0]
    assert torch.equal(final, advance(solver, f, z, problem.span))


@every_solver
def test_start_is_saved_as_it_is(method):
    problem, solver = PROBLEMS["rotation"], method(steps=3)
    states = saved(solver, problem.f, problem.start, problem.span, [0.0, 0.0, 1.0])
    assert torch.equal(states[:2], problem.start.expand(2, -1))
    assert torch.equal(states[2], solved(problem, solver))


@every_solver
@given(steps=st.integers(1, 9))
def test_stats_count_the_calls(method, steps):
    calls = []

    def f(s, z):
        calls.append(s)
        return -z

    solver = method(steps=steps)
    stats = solver.integrate(Function(f), (torch.ones(2),), (0.0, 1.0), [0.1, 0.5]).stats
    assert stats.evaluations == len(calls) >= solver.evaluations((0.0, 1.0))
    assert stats.steps == len(stats.step_sizes) == steps
