"""A solution as a function of depth: `dense=True`, gradients of depths, depths per sample."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import continua as ct
from continua.solve import SOLVERS
from gradient.rates import Rate, close, doubles, number

FINE = ct.Dopri5(1e-7, 1e-7)
WAYS = [
    (FINE, ct.Backprop()),
    (ct.RK4(steps=20), ct.Backprop()),
    (FINE, ct.Checkpoint()),
    (ct.RK4(steps=20), ct.Checkpoint("sqrt")),
    (FINE, ct.Adjoint()),
    (FINE, ct.Adjoint("backsolve")),
    (ct.RK4(steps=20), ct.Adjoint()),
    (ct.ReversibleHeun(steps=60), ct.Reversible()),
    (ct.AsynchronousLeapfrog(steps=60), ct.Reversible()),
]
every_way = pytest.mark.parametrize(("solver", "gradient"), WAYS, ids=repr)


def exact(s, w=0.7, x=2.0):
    return x * torch.exp(w * torch.sin(s))


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [(0.0, 2.0), (2.0, 0.0)])
@pytest.mark.parametrize("name", SOLVERS)
def test_it_is_what_the_solver_saves(name, span):
    solver = SOLVERS[name](steps=7)
    depths = torch.linspace(*span, 23, dtype=torch.float64)
    saved = ct.odeint(Rate(), doubles(2.0, 3.0), span, solver=solver, save_at=depths)
    dense = ct.odeint(Rate(), doubles(2.0, 3.0), span, solver=solver, dense=True)
    torch.testing.assert_close(dense(depths), saved.z, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dense.final, saved.final, rtol=0, atol=0)
    assert dense.stats.steps == 7


@pytest.mark.parametrize("solver", [ct.Bosh3(1e-6, 1e-6), ct.Dopri5(), ct.Tsit5(), FINE], ids=repr)
def test_adaptive_steps_are_not_changed_by_it(solver):
    depths = torch.linspace(0, 3, 50, dtype=torch.float64)
    saved = ct.odeint(Rate(), doubles(2.0), (0.0, 3.0), solver=solver, save_at=depths)
    dense = ct.odeint(Rate(), doubles(2.0), (0.0, 3.0), solver=solver, dense=True, save_at=depths)
    torch.testing.assert_close(dense.z, saved.z, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dense.s, saved.s)
    assert dense.stats.step_sizes == saved.stats.step_sizes


def test_shapes():
    solution = ct.odeint(lambda s, z: -z, torch.ones(3, 2), dense=True)
    assert solution(0.5).shape == (3, 2)
    assert solution(torch.tensor(0.5)).shape == (3, 2)
    assert solution([0.1, 0.2]).shape == (2, 3, 2)
    assert solution(torch.rand(3, 5)).shape == (3, 5, 2)
    assert solution(torch.empty(0)).shape == (0, 3, 2)
    assert solution(0.5).dtype == torch.float32


def test_structures_and_costs():
    state = {"q": doubles(1.0, 2.0), "p": doubles(0.0, 1.0)[:, None]}
    solution = ct.odeint(
        lambda s, z: {"q": -z["q"], "p": z["p"]},
        state,
        solver=FINE,
        running_cost=lambda s, z: z["q"],
        dense=True,
    )
    close(solution(0.5)["q"], state["q"] * math.exp(-0.5))
    rows = solution(doubles(0.0, 0.5)[:, None])
    assert rows["p"].shape == (2, 1, 1)
    close(rows["q"][:, 0], doubles(1.0, 2 * math.exp(-0.5)))
    close(solution.cost, state["q"] * (1 - math.exp(-1)))


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Adjoint()], ids=repr)
def test_a_block(gradient):
    torch.manual_seed(0)
    block = ct.ODEBlock(
        nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)),
        basis=ct.PiecewiseConstant(4),
        solver=ct.Dopri5(),
        gradient=gradient,
    )
    x, depths = torch.randn(3, 2), [0.1, 0.3, 0.8]
    saved = block.solve(x, save_at=depths).z
    torch.testing.assert_close(block.solve(x, dense=True)(depths), saved)
    rows = torch.tensor(depths).expand(3, 3)
    torch.testing.assert_close(block.solve(x, save_at=rows).z, saved.transpose(0, 1))


def test_mistakes():
    solution = ct.odeint(lambda s, z: -z, torch.ones(3, 2))
    with pytest.raises(ct.ArgumentError, match="dense=True"):
        solution(0.5)
    solution = ct.odeint(lambda s, z: -z, torch.ones(3, 2), dense=True)
    with pytest.raises(ct.ArgumentError, match=r"depth 1.5 is outside the span \(0, 1\)"):
        solution(1.5)
    with pytest.raises(ct.ArgumentError, match="depth nan is outside"):
        solution(math.nan)
    with pytest.raises(ct.ShapeError, match="one row per sample"):
        solution(torch.rand(2, 5))
    with pytest.raises(ct.ShapeError, match="one row per sample"):
        ct.odeint(lambda s, z: -z, torch.ones(3, 2), save_at=torch.rand(2, 5))
    with pytest.raises(ct.ArgumentError, match="depth 2 is outside"):
        ct.odeint(lambda s, z: -z, torch.ones(3, 2), save_at=torch.full((3, 5), 2.0))
    with pytest.raises(ct.ShapeError, match=r"\[T\] or \[B, T\]"):
        ct.odeint(lambda s, z: -z, torch.ones(3, 2), save_at=torch.rand(3, 2, 2))


def test_a_solve_that_fails_keeps_what_it_reached():
    def explode(s, z):
        return z.square()  # z(s) = 1 / (1 - s)

    options = {"solver": ct.Dopri5(max_steps=30), "raise_on_failure": False, "dense": True}
    solution = ct.odeint(explode, doubles(1.0), (0.0, 2.0), save_at=[0.5, 1.9], **options)
    assert solution.status is not ct.Status.SUCCESS
    assert solution.s.tolist() == [0.5]
    close(solution(0.5), doubles(2.0), rtol=1e-3)
    rows = ct.odeint(explode, doubles(1.0), (0.0, 2.0), save_at=doubles(0.5, 1.9)[None], **options)
    assert rows.z.shape == (1, 0)
    at_once = ct.odeint(lambda s, z: z / 0, doubles(1.0), save_at=[0.5], **options)
    assert at_once.z.shape == (0, 1)


# -- gradients ---------------------------------------------------------------------------------


@every_way
def test_gradients_of_weights_and_start(solver, gradient):
    field, x, s = Rate(), number(2.0), doubles(0.3, 0.77, 1.4)
    solution = ct.odeint(field, x[None], (0.0, 2.0), solver=solver, gradient=gradient, dense=True)
    (solution(s)[:, 0] * doubles(1.0, -2.0, 3.0)).sum().backward()
    w, y = number(0.7), number(2.0)
    (exact(s, w, y) * doubles(1.0, -2.0, 3.0)).sum().backward()
    close(field.w.grad, w.grad, rtol=1e-3)
    close(x.grad, y.grad, rtol=1e-3)


@every_way
def test_depths_get_gradients(solver, gradient):
    s = torch.tensor([0.3, 0.77, 2.0], dtype=torch.float64, requires_grad=True)
    solution = ct.odeint(
        Rate(), doubles(2.0), (0.0, 2.0), solver=solver, gradient=gradient, save_at=s
    )
    close(solution.z.detach()[:, 0], exact(s.detach()), rtol=1e-3)
    solution.z.sum().backward()
    close(s.grad, 0.7 * s.detach().cos() * exact(s.detach()), rtol=1e-3)  # f(s, z(s))


@every_way
def test_depths_per_sample(solver, gradient):
    field, x = Rate(), doubles(2.0, -1.0)[:, None].requires_grad_()
    s = doubles(0.3, 0.9, 0.9, 1.7, 0.1, 2.0).reshape(2, 3).requires_grad_()  # in any order
    solution = ct.odeint(field, x, (0.0, 2.0), solver=solver, gradient=gradient, save_at=s)
    assert solution.z.shape == (2, 3, 1)
    assert not solution.s.requires_grad
    w, y, t = number(0.7), x.detach().requires_grad_(), s.detach().requires_grad_()
    expected = exact(t, w, y)
    close(solution.z[..., 0].detach(), expected.detach(), rtol=1e-3)
    solution.z.square().sum().backward()
    expected.square().sum().backward()
    close(field.w.grad, w.grad, rtol=1e-3)
    close(x.grad, y.grad, rtol=1e-3)
    close(s.grad, t.grad, rtol=1e-3)


def test_gradients_of_the_discrete_solution_are_exact():
    def f(x, w, s):
        return ct.odeint(lambda _, z: w * z.sin(), x, solver=ct.RK4(steps=3), save_at=s).z

    x, w = doubles(0.3, 2.0).requires_grad_(), number(0.7)
    for s in (doubles(0.2, 0.8), doubles(0.2, 0.8, 0.5, 0.9).reshape(2, 2)):
        assert torch.autograd.gradcheck(f, (x, w, s.requires_grad_()))
        assert torch.autograd.gradgradcheck(f, (x, w, s))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(1, 9))
def test_cubics_are_exact(depths, steps):
    s = torch.tensor(depths, dtype=torch.float64)
    solution = ct.odeint(
        lambda s, z: 3 * s**2 + z * 0, doubles(1.0), solver=ct.RK4(steps=steps), dense=True
    )
    torch.testing.assert_close(solution(s)[:, 0], 1 + s**3, rtol=1e-12, atol=1e-12)
