"""Events: solves that end where g(s, z) = 0."""

import math

import pytest
import torch

import continua as ct
from gradient.rates import close, doubles, number

FINE = ct.Dopri5(1e-8, 1e-8)
WAYS = [
    (FINE, ct.Backprop()),
    (ct.RK4(steps=60), ct.Backprop()),
    (FINE, ct.Checkpoint()),
    (FINE, ct.Adjoint()),
    (FINE, ct.Adjoint("backsolve")),
    (ct.RK4(steps=60), ct.Checkpoint("sqrt")),
]
every_way = pytest.mark.parametrize(("solver", "gradient"), WAYS, ids=repr)


def fall(gravity):
    """A ball: height and speed, `[B, 2]`."""
    return lambda s, z: torch.stack([z[:, 1], -gravity * torch.ones_like(z[:, 1])], 1)


def height(s, z):
    return z[:, 0]


@every_way
def test_a_ball_hits_the_floor(solver, gradient):
    gravity = number(9.81)
    start = doubles(10.0, 2.0, 5.0, -1.0).reshape(2, 2).requires_grad_()
    solution = ct.odeint(
        fall(gravity), start, (0.0, 5.0), solver=solver, gradient=gradient, event=height
    )
    g, z = number(9.81), start.detach().requires_grad_()
    h, v = z.unbind(1)
    hit = (v + (v.square() + 2 * g * h).sqrt()) / g
    close(solution.event_at.detach(), hit.detach())
    close(solution.final.detach()[:, 0], doubles(0.0, 0.0), atol=1e-6)
    close(solution.final.detach()[:, 1], (v - g * hit).detach())
    (solution.event_at.sum() + solution.final[:, 1].square().sum()).backward()
    (hit.sum() + (v - g * hit).square().sum()).backward()
    close(gravity.grad, g.grad, rtol=1e-3)
    close(start.grad, z.grad, rtol=1e-3)


@every_way
def test_one_event_for_the_whole_state(solver, gradient):
    rate, level = number(1.3), number(0.2)
    solution = ct.odeint(
        lambda s, z: (-rate * z[0], z[1]),
        (doubles(1.0), doubles(1.0)),
        (0.0, 9.0),
        solver=solver,
        gradient=gradient,
        event=lambda s, z: z[0][0] - level,
    )
    assert solution.event_at.shape == ()
    close(solution.event_at.detach(), doubles(math.log(5) / 1.3)[0], rtol=1e-3)
    solution.final[1].sum().backward()  # exp(log(1 / level) / rate)
    r, b = number(1.3), number(0.2)
    ((1 / b).log() / r).exp().backward()
    close(rate.grad, r.grad, rtol=3e-3)
    close(level.grad, b.grad, rtol=3e-3)


def test_a_bouncing_ball():
    """Three bounces, each of which keeps four fifths of the speed, and their gradient."""
    gravity, keeps = number(9.81), number(0.8)
    z, total = doubles(2.0, 0.0)[None], 0.0
    for _ in range(3):
        solution = ct.odeint(fall(gravity), z, (0.0, 10.0), solver=FINE, event=height)
        total = total + solution.event_at
        z = torch.stack([torch.zeros_like(solution.event_at), -keeps * solution.final[:, 1]], 1)
    g, e = number(9.81), number(0.8)
    expected = (2 * 2.0 / g).sqrt() * (1 + 2 * e + 2 * e.square())
    close(total.detach()[0], expected.detach())
    total.sum().backward()
    expected.backward()
    close(gravity.grad, g.grad)
    close(keeps.grad, e.grad)


def test_samples_without_an_event_go_on_to_the_end():
    z = doubles(1.0, -1.0)[:, None]
    solution = ct.odeint(
        lambda s, z: torch.ones_like(z),
        z.requires_grad_(),
        (0.0, 3.0),
        solver=FINE,
        event=lambda s, z: z[:, 0],
    )
    assert solution.event_at.isnan().tolist() == [True, False]
    close(solution.final.detach()[:, 0], doubles(4.0, 0.0))
    solution.final.sum().backward()
    close(z.grad[:, 0], doubles(1.0, 0.0))


def test_the_depth_itself_backward_and_early():
    calls = []

    def field(s, z):
        calls.append(float(s))
        return -z

    solution = ct.odeint(
        field, doubles(1.0, 2.0), (9.0, 0.0), solver=FINE, event=lambda s, z: s - 8.5
    )
    close(solution.event_at, doubles(8.5)[0])
    close(solution.final, doubles(1.0, 2.0) * math.exp(0.5))
    assert min(calls) > 5  # it stopped soon after
    close(solution(8.75), doubles(1.0, 2.0) * math.exp(0.25))
    grid = ct.odeint(
        field, doubles(1.0), (0.0, 1.0), solver=ct.RK4(steps=10), event=lambda s, z: s - 0.25
    )
    assert grid.stats.steps == len(grid.stats.step_sizes) == 3
    assert grid.stats.evaluations == 12


def test_costs_end_at_the_event():
    solution = ct.odeint(
        lambda s, z: torch.ones_like(z),
        doubles(0.0, 1.0)[:, None],
        (0.0, 9.0),
        solver=FINE,
        event=lambda s, z: z[:, 0] - 3,
        running_cost=lambda s, z: z[:, 0],
    )
    close(solution.cost, doubles(4.5, 4.0))


def test_against_torchdiffeq():
    torchdiffeq = pytest.importorskip("torchdiffeq")
    at, states = torchdiffeq.odeint_event(
        lambda s, z: torch.stack([z[1], -z[0].sin()]),
        doubles(1.0, 0.0),
        torch.tensor(0.0, dtype=torch.float64),
        event_fn=lambda s, z: z[0] + 0.5,
        rtol=1e-9,
        atol=1e-9,
    )
    solution = ct.odeint(
        lambda s, z: torch.stack([z[1], -z[0].sin()]),
        doubles(1.0, 0.0),
        (0.0, 10.0),
        solver=FINE,
        event=lambda s, z: z[0] + 0.5,
    )
    close(solution.event_at, at)
    close(solution.final, states[-1])


def test_mistakes():
    def f(s, z):
        return -z

    z = torch.ones(3, 2)
    with pytest.raises(ct.ArgumentError, match="not 3"):
        ct.odeint(f, z, event=3)
    with pytest.raises(ct.ArgumentError, match="leave save_at out"):
        ct.odeint(f, z, event=height, save_at=[0.5])
    with pytest.raises(ct.ShapeError, match=r"one per sample, shape \[3\], not \[3, 2\]"):
        ct.odeint(f, z, event=lambda s, z: z)
    with pytest.raises(ct.ShapeError, match="not float"):
        ct.odeint(f, z, event=lambda s, z: 1.0)
    with pytest.raises(ct.ArgumentError, match="Runge-Kutta"):
        ct.odeint(f, z, event=height, solver=ct.ReversibleHeun(steps=3))


def test_a_solve_that_fails():
    options = {"solver": ct.Dopri5(max_steps=30), "raise_on_failure": False, "event": height}
    with pytest.raises(ct.SolveError):
        ct.odeint(
            lambda s, z: z**2, torch.ones(1, 1), (0.0, 2.0), **{**options, "raise_on_failure": True}
        )
    solution = ct.odeint(lambda s, z: z**2, torch.ones(1, 1), (0.0, 2.0), **options)
    assert solution.status is not ct.Status.SUCCESS
    assert solution.event_at.isnan().all()
    at_once = ct.odeint(lambda s, z: z / 0, torch.ones(1, 1), (0.0, 2.0), **options)
    assert at_once.status is ct.Status.NON_FINITE
