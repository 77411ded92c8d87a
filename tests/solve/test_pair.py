"""Adaptive solvers against SciPy at tight tolerances, and their failures."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import nn

import continua as ct
from continua.solve import SOLVERS, Pair, Status
from nets import mlp, scrambled
from problems import Function

PAIRS = {name: solver for name, solver in SOLVERS.items() if issubclass(solver, Pair)}
every_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)


def vector(f):
    """A field on [..., 2] from a function of two numbers."""
    return lambda s, z: torch.stack(f(s, z[..., 0], z[..., 1]), -1)


FIELDS = {
    "linear": (lambda s, x, y: [-0.5 * x + y, -x - 0.3 * y + math.sin(3 * s)], ()),
    "van der pol": (lambda s, x, y: [y, (1 - x * x) * y - x], ()),
    "lotka volterra": (lambda s, x, y: [1.1 * x - 0.4 * x * y, 0.1 * x * y - 0.4 * y], ()),
    "stiff": (lambda s, x, y: [-50 * (x - math.cos(s)), x - y], ()),
    "branching": (lambda s, x, y: [(3.0 if s >= 1.3 else -1.0) * y, -x], (1.3,)),
}
STARTS = [[2.0, 0.5], [1.0, -0.5], [0.3, 1.2]]
DEPTHS = np.linspace(0, 3, 16)


def reference(name, start, depths):
    """SciPy's DOP853 at 1e-12, restarted where the field branches."""
    f, breaks = FIELDS[name]
    ends = [0.0, *breaks, 3.0]
    out, z = [], np.array(start)
    for a, b in itertools.pairwise(ends):
        inside = [s for s in depths if a <= s < b or (s == b == ends[-1])]
        # The last evaluation of a piece is that of its own side.
        g = lambda s, z, b=b: f(min(s, b - 1e-13), *z)  # noqa: E731
        done = solve_ivp(g, (a, b), z, "DOP853", rtol=1e-12, atol=1e-12, dense_output=True)
        out += [done.sol(s) for s in inside]
        z = done.y[:, -1]
    return np.array(out)


@every_pair
@pytest.mark.parametrize("name", FIELDS)
def test_within_tolerance_of_scipy(pair, name):
    f, breaks = FIELDS[name]
    z = torch.tensor(STARTS, dtype=torch.float64)
    exact = np.stack([reference(name, start, DEPTHS) for start in STARTS], 1)
    errors = {}
    for tolerance in (1e-3, 1e-5, 1e-7):
        dynamics = Sided(vector(f), breaks)
        solver = pair(rtol=tolerance, atol=tolerance)
        done = solver.integrate(dynamics, (z,), (0.0, 3.0), DEPTHS.tolist())
        assert done.status is Status.SUCCESS
        states = torch.stack([state[0] for state in done.saved]).numpy()
        errors[tolerance] = np.abs(states - exact).max()
        assert errors[tolerance] < 60 * tolerance * np.abs(exact).max()
        assert done.stats.steps == len(done.stats.step_sizes)
        assert sum(done.stats.step_sizes) == pytest.approx(3)
    assert errors[1e-7] < errors[1e-3] / 100


class Sided(Function):
    """A function that branches on depth, read from the side that a stage asks for."""

    def at(self, stages):
        def evaluate(stage):
            s = float(stage.depth) + (-1e-12 if stage.side == "left" else 0.0)
            return lambda z: (self._f(s, z[0]),)

        return [evaluate(stage) for stage in stages]


@every_pair
def test_breakpoints_cost_no_accuracy(pair):
    """A bucket basis is solved as well as a smooth one: no step straddles a jump."""
    torch.manual_seed(0)
    field = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    errors = {}
    for basis in (ct.PiecewiseConstant(5), ct.Legendre(5)):
        block = scrambled(ct.ODEBlock(field, basis, pair(rtol=1e-6, atol=1e-6), span=(0, 3)))
        exact = ct.compress(block, solver=ct.Dopri8(1e-12, 1e-12))(x)
        errors[basis.size, type(basis)] = float((block(x) - exact).detach().abs().max())
    assert max(errors.values()) < 1e-4
    # the solver without knowledge of the jumps needs more evaluations and rejects steps
    block = scrambled(ct.ODEBlock(field, ct.PiecewiseConstant(5), pair(1e-6, 1e-6), span=(0, 3)))
    known = block.solve(x).stats
    assert known.rejected <= 3
    block.stretch.breaks = ()
    assert block.solve(x).stats.evaluations > known.evaluations


@every_pair
def test_dense_output_does_not_shrink_steps(pair):
    f = vector(FIELDS["van der pol"][0])
    z = torch.tensor(STARTS, dtype=torch.float64)
    solver = pair(rtol=1e-5, atol=1e-5)
    plain = solver.integrate(Function(f), (z,), (0.0, 3.0))
    dense = solver.integrate(Function(f), (z,), (0.0, 3.0), np.linspace(0, 3, 200).tolist())
    assert plain.stats.step_sizes == dense.stats.step_sizes
    assert torch.equal(plain.final[0], dense.final[0])
    assert len(dense.saved) == 200


@every_pair
def test_backward_spans(pair):
    f = vector(FIELDS["lotka volterra"][0])
    z = torch.tensor(STARTS, dtype=torch.float64).abs()
    solver = pair(rtol=1e-7, atol=1e-7)
    there = solver.integrate(Function(f), (z,), (0.0, 2.0)).final
    back = solver.integrate(Function(f), there, (2.0, 0.0), [1.5, 0.5, 0.0])
    torch.testing.assert_close(back.final[0], z, rtol=0, atol=1e-5)
    assert torch.equal(back.saved[-1][0], back.final[0])


def test_a_complex_state():
    """Rabi oscillations (SPEC 3.7): U(t) x U(t)† in closed form."""
    hamiltonian = torch.tensor([[0.5, 1.0], [1.0, -0.5]], dtype=torch.complex128)
    rho = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.complex128)
    f = lambda s, z: -1j * (hamiltonian @ z - z @ hamiltonian)  # noqa: E731
    done = ct.Dopri5(rtol=1e-6, atol=1e-8).integrate(Function(f), (rho,), (0.0, 5.0))
    u = torch.linalg.matrix_exp(-5j * hamiltonian)
    torch.testing.assert_close(done.final[0], u @ rho @ u.conj().T, rtol=0, atol=1e-5)


def test_single_precision_and_images():
    torch.manual_seed(0)
    field = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Tanh())
    block = ct.ODEBlock(field, ct.Fourier(1), ct.Dopri5(1e-3, 1e-3))
    x = torch.randn(2, 3, 8, 8)
    solution = block.solve(x, save_at=[0.0, 0.5, 1.0])
    assert solution.z.shape == (3, 2, 3, 8, 8)
    exact = ct.compress(block.double(), solver=ct.Dopri8(1e-9, 1e-9))(x.double())
    torch.testing.assert_close(solution.final.double(), exact, rtol=0, atol=1e-2)


def test_every_sample_may_have_to_meet_the_tolerance():
    """One hard sample among many easy ones vanishes in the mean over the batch."""
    rates = torch.cat([torch.full((255, 1), 0.01), torch.full((1, 1), 20.0)]).double()
    field = lambda s, z: rates * torch.cos(rates * s) * z  # noqa: E731
    z = torch.ones(256, 1, dtype=torch.float64)
    exact = torch.exp(torch.sin(rates))
    errors = {}
    for norm in ("batch", "sample"):
        done = ct.Dopri5(1e-5, 1e-5, norm=norm).integrate(Function(field), (z,), (0.0, 1.0))
        errors[norm] = float((done.final[0] - exact).abs().max())
    assert errors["sample"] < 1e-4 < errors["batch"]


class Pendulum(nn.Module):
    def forward(self, z):
        return {"angle": z["speed"], "speed": -torch.sin(z["angle"])}


class Turn(nn.Module):
    def forward(self, z):
        return -z[1], z[0]


@pytest.mark.parametrize(
    "solver", [ct.Dopri5(1e-8, 1e-8), ct.RK4(steps=50), ct.ReversibleHeun(steps=500)], ids=repr
)
def test_tuples_and_dictionaries(solver):
    z = (torch.ones(2, 3).double(), torch.zeros(2, 3).double())
    block = ct.ODEBlock(Turn(), solver=solver)
    solution = block.solve(z, save_at=[0.5, 1.0])
    assert isinstance(solution.z, tuple)
    torch.testing.assert_close(solution.z[0][1], math.cos(1.0) * z[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(block(z)[1], math.sin(1.0) * z[0], rtol=0, atol=1e-5)
    start = {"angle": torch.ones(4).double(), "speed": torch.zeros(4).double()}
    end = ct.ODEBlock(Pendulum(), solver=solver)(start)
    assert set(end) == {"angle", "speed"}
    energy = end["speed"].square() / 2 - torch.cos(end["angle"])
    torch.testing.assert_close(energy, -torch.cos(start["angle"]), rtol=0, atol=1e-5)


def test_knobs():
    f = vector(FIELDS["van der pol"][0])
    z = torch.tensor(STARTS, dtype=torch.float64)

    def stats(**options):
        return ct.Dopri5(1e-4, 1e-4, **options).integrate(Function(f), (z,), (0.0, 3.0)).stats

    assert max(stats(max_step=0.05).step_sizes) <= 0.05 + 1e-12
    assert stats(first_step=1e-3).step_sizes[0] == pytest.approx(1e-3)
    assert stats(first_step=2.0).rejected > 0
    growth = stats(grow=1.5, first_step=1e-3).step_sizes[:8]
    assert all(b / a < 1.5 + 1e-9 for a, b in itertools.pairwise(growth))


def test_batch_norm_counts_accepted_steps_only():
    torch.manual_seed(0)
    block = ct.ODEBlock(
        mlp(4, norm=True).double(), ct.PiecewiseConstant(2), ct.Dopri5(1e-6, 1e-6, first_step=0.5)
    )
    scrambled(block)
    before = block.field[0].running_mean.clone()
    solution = block.solve(torch.randn(16, 4, dtype=torch.float64))
    assert solution.stats.rejected > 0
    assert block.field[0].num_batches_tracked == 1
    assert not torch.equal(block.field[0].running_mean, before)
    # the update is one step of the running average, not one per evaluation
    assert (block.field[0].running_mean - before).abs().max() < 0.5


# -- failures ----------------------------------------------------------------------------------


class Blows(nn.Module):
    """z' = z²: from z = 1 it reaches infinity at s = 1."""

    def forward(self, z):
        return z * z


class Breaks(ct.Field):
    """Not a number from s = 0.6 on, in one sample."""

    def forward(self, s, z, x):
        bad = torch.zeros_like(z)
        bad[2] = math.nan
        return torch.where(s > 0.6, bad, torch.ones_like(z))


def failing(field, solver, span=(0, 2)):
    block = ct.ODEBlock(field, solver=solver, span=span)
    x = torch.ones(4, 1, dtype=torch.float64)
    solution = block.solve(x, raise_on_failure=False)
    with pytest.raises(ct.SolveError) as caught:
        block.solve(x)
    with pytest.raises(ct.SolveError):
        block(x)
    return solution, str(caught.value)


@every_pair
def test_a_solution_that_blows_up(pair):
    solution, message = failing(Blows(), pair(1e-6, 1e-6))
    assert solution.status in (Status.STEP_TOO_SMALL, Status.NON_FINITE, Status.MAX_STEPS)
    assert solution.failure.depth == pytest.approx(1.0, abs=0.05)
    assert "depth 1" in message or "depth 0.99" in message
    assert "sample" in message


def test_a_field_that_is_not_a_number():
    solution, message = failing(Breaks(), ct.Dopri5(1e-6, 1e-6))
    assert solution.status is Status.NON_FINITE
    assert solution.failure.depth == pytest.approx(0.6, abs=0.02)
    assert "not finite" in message


def test_a_step_limit():
    class Stiff(nn.Module):
        def forward(self, z):
            return -1e4 * (z - 0.5)

    solution, message = failing(Stiff(), ct.Dopri5(1e-6, 1e-6, max_steps=50))
    assert solution.status is Status.MAX_STEPS
    assert 0 < solution.failure.depth < 2
    assert "raise max_steps" in message


def test_a_smallest_step():
    solution, _ = failing(Blows(), ct.Dopri5(1e-9, 1e-9, min_step=1e-2))
    assert solution.status is Status.STEP_TOO_SMALL


@pytest.mark.parametrize(
    "options",
    [
        {"rtol": 0}, {"atol": -1e-3}, {"rtol": math.nan}, {"safety": 1.5}, {"shrink": 0},
        {"grow": 0.5}, {"first_step": 0}, {"min_step": -1}, {"max_step": 0}, {"max_steps": 0},
        {"norm": "max"}, {"steps": 0},
    ],
    ids=str,
)  # fmt: skip
@every_pair
def test_bad_arguments(pair, options):
    with pytest.raises(ct.ArgumentError, match=next(iter(options))):
        pair(**options)


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=repr)
@pytest.mark.parametrize(
    "basis",
    [
        {"0.*": ct.Constant(), "*": ct.PiecewiseConstant(4)},
        {"0.*": ct.PiecewiseConstant(2), "*": ct.PiecewiseConstant(4)},
    ],
    ids=["constant first", "coarse first"],
)
def test_bases_that_change_at_different_depths(basis, gradient):
    """Each weight is read anew in every step, also where another one stays what it was."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    block = ct.ODEBlock(module, basis, ct.Dopri5(1e-9, 1e-9), gradient)
    with torch.no_grad():
        for p in block.parameters():
            p.add_(torch.randn_like(p))
    fine = ct.compress(block, solver=ct.RK4(steps=800))
    fine.gradient = ct.Backprop()
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(block(x), fine(x), rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(block(x).square().sum(), list(block.parameters()))
    exact = torch.autograd.grad(fine(x).square().sum(), list(fine.parameters()))
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pair", [ct.Bosh3, ct.Dopri5, ct.Tsit5, ct.Dopri8])
def test_a_field_that_is_zero(pair, dtype):
    """As residuals with a gain of zero start."""
    x = torch.randn(3, 2, dtype=dtype)
    solution = pair(1e-5, 1e-5).integrate(Function(lambda s, z: 0 * z), (x,), (0.0, 1.0))
    assert solution.status is Status.SUCCESS
    assert torch.equal(solution.final[0], x)
