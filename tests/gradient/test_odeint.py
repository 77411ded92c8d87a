"""`odeint`: any function of depth and state, beside closed forms and other libraries."""

import math

import pytest
import torch
import torchdiffeq
from scipy.integrate import solve_ivp
from torch import nn

import continua as ct
from continua.solve import SOLVERS
from gradient.rates import Rate, close, doubles, number
from problems import PROBLEMS

FINE = ct.Dopri8(1e-9, 1e-9)
WAYS = [
    (FINE, ct.Backprop()),
    (ct.RK4(steps=40), ct.Backprop()),
    (FINE, ct.Checkpoint()),
    (ct.RK4(steps=40), ct.Checkpoint("sqrt")),
    (FINE, ct.Adjoint()),
    (FINE, ct.Adjoint("backsolve")),
    (ct.RK4(steps=40), ct.Adjoint()),
    (ct.ReversibleHeun(steps=200), ct.Reversible()),
    (ct.AsynchronousLeapfrog(steps=200), ct.Reversible()),
]
every_way = pytest.mark.parametrize(("solver", "gradient"), WAYS, ids=repr)


# -- bad input ---------------------------------------------------------------------------------


def test_depths_given_as_a_span_are_told_where_to_go():
    with pytest.raises(ct.ArgumentError, match="save_at"):
        ct.odeint(lambda s, z: -z, torch.ones(1), torch.linspace(0, 1, 5))


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_reaches_the_closed_form(name, problem):
    p, solver = PROBLEMS[problem], SOLVERS[name](steps=200)
    error = 3e-2 if name == "Euler" else 2e-4
    for one in (p, p.reversed()):
        solution = ct.odeint(one.f, one.start, one.span, solver=solver)
        torch.testing.assert_close(solution.final, one.end, rtol=error, atol=error)
        assert solution.stats.steps >= 200
        assert solution.status is ct.Status.SUCCESS


def test_defaults():
    solution = ct.odeint(lambda s, z: -z, torch.ones(2))
    torch.testing.assert_close(solution.final, torch.full((2,), math.exp(-1)), rtol=1e-3, atol=1e-3)
    assert isinstance(solution, ct.Solution)
    assert solution.cost is None
    assert not solution.final.requires_grad
    assert solution.s.tolist() == [1.0]


@pytest.mark.parametrize("tensor", [True, False])
def test_saved_states(tensor):
    depths = [0.0, 0.1, 0.25, 0.9]
    where = torch.tensor(depths) if tensor else depths
    solution = ct.odeint(Rate(), doubles(2.0), solver=FINE, save_at=where)
    close(solution.s, torch.as_tensor(where).double())
    close(solution.z, 2 * torch.exp(0.7 * solution.s.sin())[:, None])
    close(solution.final, doubles(2 * math.exp(0.7 * math.sin(1))))
    grid = ct.odeint(Rate(), doubles(2.0), solver=ct.RK4(steps=4), save_at="steps")
    assert grid.s.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]


def oscillate(s, z):
    """A spring: q' = p, p' = -q, in the structure of the state."""
    return {"q": z["p"], "p": -z["q"]} if isinstance(z, dict) else (z[1], -z[0])


@every_way
@pytest.mark.parametrize("kind", [tuple, dict])
def test_structured_states(kind, solver, gradient):
    q, p = number(0.8), number(-0.3)
    state = {"q": q, "p": p} if kind is dict else (q, p)
    solution = ct.odeint(oscillate, state, (0.0, 2.0), solver=solver, gradient=gradient)
    assert type(solution.final) is kind
    first, second = solution.final.values() if kind is dict else solution.final
    close(first.detach(), q.detach() * math.cos(2) + p.detach() * math.sin(2))
    close(second.detach(), p.detach() * math.cos(2) - q.detach() * math.sin(2))
    found = torch.autograd.grad(first, [q, p])
    close(torch.stack(found), doubles(math.cos(2), math.sin(2)))


def test_beside_scipy():
    def f(s, z):
        return torch.stack([z[0] * (1 - z[1]), z[1] * (z[0] - 0.7) + 0.1 * s])

    start, times = [0.5, 1.5], [0.0, 1.0, 2.5, 4.0]
    expected = solve_ivp(
        lambda s, z: f(s, torch.from_numpy(z)).numpy(), (0, 4), start, "DOP853", times,
        rtol=1e-11, atol=1e-11,
    ).y.T  # fmt: skip
    found = ct.odeint(f, doubles(*start), (0.0, 4.0), solver=FINE, save_at=times).z
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-7, atol=1e-7)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()

    def forward(self, s, z):
        return self.layers(torch.cat([z, s.to(z).expand(len(z), 1)], 1))


@every_way
def test_beside_torchdiffeq(solver, gradient):
    torch.manual_seed(0)
    net, x = Network(), torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    times = doubles(0.0, 0.4, 1.0)
    tight = {"rtol": 1e-10, "atol": 1e-10, "method": "dopri5"}
    theirs = torchdiffeq.odeint(net, x, times, **tight)
    ours = ct.odeint(net, x, solver=solver, gradient=gradient, save_at=times).z
    close(ours, theirs, atol=1e-4)
    inputs = [x, *net.parameters()]
    for a, b in zip(
        torch.autograd.grad(ours.square().sum(), inputs),
        torch.autograd.grad(theirs.square().sum(), inputs),
        strict=True,
    ):
        close(a, b, rtol=1e-3, atol=2e-4)


# -- further gradients --------------------------------------------------------------


@every_way
def test_both_ends_of_the_span(solver, gradient):
    """With z' = w cos(s) z from a to b: z = x exp(w (sin b - sin a))."""
    a, b, module = number(0.2), number(1.1), Rate()
    x = doubles(0.5).requires_grad_()
    found = ct.odeint(module, x, (a, b), solver=solver, gradient=gradient).final
    expected = x * torch.exp(module.w * (b.sin() - a.sin()))
    inputs = [a, b, x, module.w]
    for one, other in zip(
        torch.autograd.grad(found.sum(), inputs),
        torch.autograd.grad(expected.sum(), inputs),
        strict=True,
    ):
        close(one, other)


@every_way
def test_running_cost(solver, gradient):
    """With z' = -k z and l = w (1 + s) z^2, everything found in closures."""
    k, w, x = number(0.6), number(1.4), torch.rand(3, 1, dtype=torch.float64).requires_grad_()
    solution = ct.odeint(
        lambda s, z: -k * z,
        x,
        solver=solver,
        gradient=gradient,
        running_cost=lambda s, z: w * (1 + s) * z.square().sum(1),
    )
    first = (1 - torch.exp(-2 * k)) / (2 * k)
    second = (1 - (1 + 2 * k) * torch.exp(-2 * k)) / (4 * k.square())
    expected = w * x.square().sum(1) * (first + second)
    assert solution.cost.shape == (3,)
    close(solution.cost, expected)
    inputs = [k, w, x]
    for one, other in zip(
        torch.autograd.grad(solution.cost.sum(), inputs),
        torch.autograd.grad(expected.sum(), inputs),
        strict=True,
    ):
        close(one, other)


@every_way
@pytest.mark.parametrize("inside", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=repr)
def test_one_inside_another(inside, solver, gradient):
    """With z' = (exp(w) - 1) z, the exponential by an inner solve: z(1) = x exp(exp(w) - 1)."""
    w, x = number(0.3), doubles(0.5, -1.0).requires_grad_()

    def f(s, z):
        grown = ct.odeint(lambda u, y: w * y, z, solver=ct.RK4(steps=4), gradient=inside)
        return grown.final - z

    # Few steps: each is a solve.
    solver = ct.RK4(steps=8) if solver in (FINE, ct.RK4(steps=40)) else solver.with_steps(60)
    final = ct.odeint(f, x, solver=solver, gradient=gradient).final
    expected = x * torch.exp(torch.exp(w) - 1)
    torch.testing.assert_close(final, expected, rtol=1e-4, atol=1e-4)
    found = torch.autograd.grad(final.sum(), [w, x])
    for one, other in zip(found, torch.autograd.grad(expected.sum(), [w, x]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_second_derivatives_by_backprop():
    def energy(x, w):
        return ct.odeint(lambda s, z: w * z.sin(), x, solver=ct.RK4(steps=6)).final.square().sum()

    assert torch.autograd.gradgradcheck(energy, (doubles(0.4, 1.0).requires_grad_(), number(0.5)))


# -- what cannot work --------------------------------------------------------------------------


def grow(s, z):
    return z


X = torch.ones(2, 3)
BAD = {
    "f no function": lambda: ct.odeint(3.0, X),
    "another shape": lambda: ct.odeint(lambda s, z: z[:1], X),
    "no tensor": lambda: ct.odeint(lambda s, z: None, X),
    "another structure": lambda: ct.odeint(lambda s, z: z[0], (X, X)),
    "not finite": lambda: ct.odeint(grow, torch.tensor([1.0, math.nan])),
    "integers": lambda: ct.odeint(grow, torch.ones(2, dtype=torch.int64)),
    "a list": lambda: ct.odeint(grow, [1.0, 2.0]),
    "an empty tuple": lambda: ct.odeint(grow, ()),
    "an empty span": lambda: ct.odeint(grow, X, (0.5, 0.5)),
    "an endless span": lambda: ct.odeint(grow, X, (0.0, math.inf)),
    "no span": lambda: ct.odeint(grow, X, 1.0),
    "numbers as params": lambda: ct.odeint(grow, X, params=[1.0]),
    "a name as params": lambda: ct.odeint(grow, X, params="w"),
    "outside the span": lambda: ct.odeint(grow, X, save_at=[2.0]),
    "against the span": lambda: ct.odeint(grow, X, save_at=[1.0, 0.0]),
    "a solver's class": lambda: ct.odeint(grow, X, solver=ct.RK4),
    "a gradient's class": lambda: ct.odeint(grow, X, gradient=ct.Adjoint),
    "no cost": lambda: ct.odeint(grow, X, running_cost=1.0),
    "a cost of the batch": lambda: ct.odeint(grow, X, running_cost=lambda s, z: z.sum()),
    "reversible": lambda: ct.odeint(grow, X, gradient=ct.Reversible()),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_in_a_sentence(what):
    with pytest.raises(ct.ContinuaError) as caught:
        BAD[what]()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("solver", [ct.Dopri5(), ct.RK4(steps=100)], ids=repr)
def test_a_solve_that_stops(solver):
    """z' = z^2 from 1 is infinite at s = 1."""

    def solve(**options):
        return ct.odeint(
            lambda s, z: z.square(), torch.ones(1), (0.0, 2.0), solver=solver, **options
        )

    with pytest.raises(ct.SolveError):
        solve()
    stopped = solve(raise_on_failure=False)
    assert stopped.status is not ct.Status.SUCCESS
    assert stopped.failure is not None


@pytest.mark.parametrize("gradient", [ct.Checkpoint(), ct.Adjoint()], ids=repr)
def test_a_parameter_that_changes_before_the_backward_pass_is_refused(gradient):
    w = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
    out = ct.odeint(lambda s, z: w * z, torch.ones(1, dtype=torch.float64), gradient=gradient).final
    with torch.no_grad():
        w.mul_(3)
    with pytest.raises(ct.SolveError, match="changed between the forward pass"):
        out.sum().backward()
