"""Every solver on problems with a known solution, on its own and inside a block."""

import gc
import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
import torchdiffeq
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import continua as ct
from continua import ArgumentError
from continua._values import from_config
from continua.basis import PiecewiseConstant, Point, sample
from continua.solve import SOLVERS, Pair, Solver, Stage
from problems import Problem, advance, rates, saved
from solve.methods import (
    STEPS,
    TORCHDIFFEQ,
    end_errors,
    every_problem,
    every_solver,
    low_order,
    solved,
    spans,
)

# -- stages ------------------------------------------------------------------------------------


def test_euler_with_ten_steps_evaluates_at_tenths():
    stages = ct.Euler(10).stages((0.0, 1.0))
    assert stages == tuple(Stage(Fraction(i, 10), "right") for i in range(10))


@every_solver
@given(steps=st.integers(1, 50), span=spans)
def test_stages_are_exact(method, steps, span):
    solver, start, width = (
        method(steps=steps),
        Fraction(span[0]),
        Fraction(span[1]) - Fraction(span[0]),
    )
    inside = method.tableau.c[: method.tableau.stages]
    expected = [start + width * (n + c) / steps for n in range(steps) for c in inside]
    stages = solver.stages(span)
    assert len(stages) == steps * method.tableau.stages
    assert [stage.depth for stage in stages] == expected
    assert all(isinstance(stage.depth, Fraction) for stage in stages)


@every_solver
@given(steps=st.integers(1, 20), backward=st.booleans())
def test_ends_of_a_step_are_sampled_from_inside(method, steps, backward):
    first, last = ("left", "right") if backward else ("right", "left")
    inside = method.tableau.c[: method.tableau.stages]
    expected = [{0: first, 1: last}.get(c, "right") for c in inside]
    stages = method(steps=steps).stages((1.0, 0.0) if backward else (0.0, 1.0))
    assert [stage.side for stage in stages] == expected * steps


@every_solver
@pytest.mark.parametrize("span", [(0.0, 1.0), (1.0, 0.0)], ids=str)
def test_a_step_reads_its_own_bucket(method, span):
    """Also where floor(K s) of a rounded depth would read the one before."""
    for N in range(1, 108):
        points = [Point(float(depth), side) for depth, side in method(steps=N).stages(span)]
        cell = sample(PiecewiseConstant(N), points).argmax(1).view(N, -1)
        expected = torch.arange(N) if span[0] < span[1] else torch.arange(N).flip(0)
        assert (cell == expected[:, None]).all(), N


# -- accuracy ----------------------------------------------------------------------------------


@every_solver
@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_a_constant_field_adds_up(method, steps):
    z = advance(method(steps=steps), lambda s, z: torch.ones_like(z), torch.ones(1).double())
    assert z.item() == pytest.approx(2, abs=1e-14)


@low_order
@every_problem
def test_order_of_accuracy(method, problem):
    assert rates(end_errors(problem, method)) == pytest.approx([method.tableau.order] * 3, abs=0.15)


@low_order
@every_problem
def test_order_of_accuracy_backward(method, problem):
    observed = rates(end_errors(problem.reversed(), method))
    assert observed == pytest.approx([method.tableau.order] * 3, abs=0.15)


@pytest.mark.parametrize("name", TORCHDIFFEQ)
@every_problem
@pytest.mark.parametrize("steps", [1, 7, 20])
def test_against_torchdiffeq(name, problem, steps):
    start, end = problem.span
    # A grid of its own, or it takes one more step where its last one falls short by a rounding.
    grid = torch.linspace(start, end, steps + 1, dtype=torch.float64)
    expected = torchdiffeq.odeint(
        lambda s, z: problem.f(s.item(), z),
        problem.start,
        torch.tensor(problem.span, dtype=torch.float64),
        method=TORCHDIFFEQ[name],
        options={"grid_constructor": lambda f, z, t: grid},
    )[-1]
    got = solved(problem, SOLVERS[name](steps=steps))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def block_errors(method, basis):
    """The errors of a block whose weights stretch and turn the plane, a(s) I + b(s) J."""
    stretch, turn = torch.tensor([[0.6, -0.8, -0.2], [-0.4, -0.2, -0.2]], dtype=torch.float64)
    one, i = torch.eye(2).double(), torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()
    stack = stretch[:, None, None] * one + turn[:, None, None] * i
    # The matrices commute, so the solution is the exponential of their integral.
    x = torch.tensor([0.8, -0.6], dtype=torch.float64)
    integral = torch.tensordot(ct.gram(ct.Constant(), basis)[0], stack, 1)
    expected = torch.linalg.matrix_exp(integral) @ x
    errors = []
    for steps in STEPS:
        block = ct.ODEBlock(nn.Linear(2, 2, bias=False).double(), basis, method(steps=steps))
        with torch.no_grad():
            block.field.weight.copy_(stack)
            errors.append((block(x) - expected).norm().item())
    return errors


@low_order
@pytest.mark.parametrize("basis", [ct.Fourier(1, period=2 * math.pi), ct.Legendre(3)], ids=repr)
def test_order_of_accuracy_in_a_block(method, basis):
    observed = rates(block_errors(method, basis))[-2:]
    assert observed == pytest.approx([method.tableau.order] * 2, abs=0.15)


# -- backward ----------------------------------------------------------------------------------


@low_order
@every_problem
def test_there_and_back_again(method, problem):
    errors = []
    for solver in (method(steps=n) for n in STEPS):
        there = solved(problem, solver)
        back = problem.reversed()
        again = advance(solver, back.f, there, back.span)
        errors.append((again - problem.start).norm().item())
    # The leading errors of an even order have opposite signs there and back.
    order = method.tableau.order + (method.tableau.order % 2 == 0)
    observed = rates(errors)
    assert observed
    assert observed == pytest.approx([order] * len(observed), abs=0.15)


@every_solver
@every_problem
@pytest.mark.parametrize("steps", [1, 6])
def test_a_reversed_span_is_the_negated_field(method, problem, steps):
    solver = method(steps=steps)
    backward = problem.reversed()
    f = backward.f
    start, end = backward.span
    got = advance(solver, f, backward.start, (start, end))
    mirror = lambda s, z: -f(start + end - s, z)  # noqa: E731
    expected = advance(solver, mirror, backward.start, (end, start))
    torch.testing.assert_close(got, expected, rtol=1e-14, atol=1e-14)
    both = Fraction(start) + Fraction(end)
    mirrored = [both - stage.depth for stage in solver.stages((end, start))]
    assert [stage.depth for stage in solver.stages((start, end))] == mirrored


# -- states ------------------------------------------------------------------------------------


@every_solver
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3, 4, 4)], ids=str)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64], ids=str
)
def test_states_of_any_shape_and_dtype(method, shape, dtype):
    solver, z = method(steps=4), torch.ones(shape, dtype=dtype)
    states = saved(solver, lambda s, z: -z, z, (0.0, 1.0), [0.0, 0.3, 0.5, 1.0])
    assert states.shape == (4, *shape)
    assert states.dtype == dtype
    scalar = saved(solver, lambda s, z: -z, torch.ones((), dtype=dtype), (0.0, 1.0), [0.3])
    tolerance = 8 * torch.finfo(dtype).eps  # a vectorised loop may fuse what a scalar one rounds
    torch.testing.assert_close(states[1], scalar[0].expand(shape), rtol=0, atol=tolerance)


@low_order
def test_a_complex_state_turns(method):
    turn = Problem(
        f=lambda s, z: 1j * math.cos(s) * z,
        exact=lambda s: torch.tensor([1, 2j], dtype=torch.complex128) * np.exp(1j * math.sin(s)),
    )
    errors = [(solved(turn, method(steps=n)) - turn.end).abs().max().item() for n in STEPS]
    assert rates(errors) == pytest.approx([method.tableau.order] * 3, abs=0.15)


@every_solver
def test_nothing_of_the_caller_is_changed(method):
    z, k = torch.ones(3), torch.full((3,), 2.0)
    states = saved(method(steps=3), lambda s, z: k, z, (0.0, 1.0), [0.0, 0.4, 1.0])
    assert torch.equal(z, torch.ones(3))
    assert torch.equal(k, torch.full((3,), 2.0))
    torch.testing.assert_close(states[:, 0], torch.tensor([1.0, 1.8, 3.0]))
    itself = advance(method(steps=1), lambda s, z: z, torch.ones(1), (0.0, 0.5))
    assert itself > 1  # a field that hands back the very tensor it was given


@every_solver
def test_gradients_pass_gradcheck(method):
    solver = method(steps=3)
    z = torch.tensor([0.3, -0.8], dtype=torch.float64, requires_grad=True)
    w = torch.tensor([[0.2, -1.0], [0.7, 0.4]], dtype=torch.float64, requires_grad=True)

    def trajectory(z, w):
        def f(s, z):
            return torch.tanh(w @ z) + s * z

        return saved(solver, f, z, (0.0, 1.0), [0.1, 0.5, 1.0])

    assert torch.autograd.gradcheck(trajectory, (z, w))


# -- identity and refusals ---------------------------------------------------------------------


@every_solver
@given(steps=st.integers(1, 1000))
def test_a_solver_is_a_value(method, steps):
    solver = method(steps=steps)
    config = json.loads(json.dumps(solver.config()))
    assert config == {"type": method.__name__, "steps": steps}
    for again in (
        from_config(Solver, config),
        eval(repr(solver), dict(SOLVERS)),
        method(steps=steps + 1).with_steps(steps),
    ):
        assert type(again) is method
        assert again == solver
        assert hash(again) == hash(solver)
    assert solver != method(steps=steps + 1)
    assert solver != config


def test_different_solvers_are_different():
    assert len({method(steps=8) for method in SOLVERS.values()}) == len(SOLVERS)
    for name, method in SOLVERS.items():
        assert getattr(ct, name) is method


@every_solver
@pytest.mark.parametrize("steps", [0, -1, 1.0, 2.5, True, None, "8", math.nan], ids=repr)
def test_steps_that_cannot_be(method, steps):
    with pytest.raises(ArgumentError, match=re.escape(repr(steps))):
        method(steps=1).with_steps(steps)
    if steps is not None or not issubclass(method, Pair):  # None lets a pair choose its own steps
        with pytest.raises(ArgumentError):
            from_config(Solver, {"type": method.__name__, "steps": steps})


@pytest.mark.parametrize("name", ["RK5", "", None, 4, ["RK4"], "rk4"], ids=repr)
def test_a_solver_that_is_unknown(name):
    with pytest.raises(ArgumentError, match="unknown solver") as error:
        from_config(Solver, {"type": name, "steps": 3})
    assert repr(name) in str(error.value)
    assert all(solver in str(error.value) for solver in SOLVERS)


@pytest.mark.parametrize(
    "config", [{}, {"steps": 3}, {"type": "RK4"}, {"type": "RK4", "steps": 3, "order": 4}], ids=repr
)
def test_a_config_that_is_damaged(config):
    with pytest.raises(ArgumentError):
        from_config(Solver, config)


def test_spans_that_were_seen_are_forgotten():
    def kept():
        gc.collect()
        return sum(type(thing) is Stage for thing in gc.get_objects())

    def solve(first):
        for i in range(first, first + 200):
            ct.odeint(lambda s, z: -z, torch.ones(1), (0.0, 1.0 + i), solver=ct.Euler(steps=2))
        return kept()

    full = solve(0)  # more spans than are kept
    assert solve(200) <= full
    assert solve(400) <= full
