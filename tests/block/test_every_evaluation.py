"""Every evaluation that a solver plans is made, counted, and seen by the state, and no other."""

import pytest
import torch
from torch import Tensor, nn

import continua as ct
from continua.basis import FAMILIES
from continua.solve import SOLVERS

STEPS = 4
BASES = [
    ct.PiecewiseConstant(STEPS), ct.PiecewiseLinear(STEPS + 1), ct.DiscontinuousLinear(2 * STEPS),
    ct.BSpline(5), ct.Fourier(1),
]  # fmt: skip
X = torch.linspace(4, 6, 8 * 3).reshape(3, 8).T.contiguous()


class Counted(nn.Module):
    """A linear map of normalised values that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(3, momentum=1.0), nn.Linear(3, 3)
        self.calls = 0

    def forward(self, z: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(self.norm(z))


def made(name: str, basis: ct.Basis) -> ct.ODEBlock:
    torch.manual_seed(0)
    solver = SOLVERS[name](steps=STEPS)
    return ct.ODEBlock(Counted(), basis, solver, state_basis=ct.PiecewiseConstant(STEPS))


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("basis", BASES, ids=repr)
def test_evaluations_are_those_of_the_field(name, basis):
    block = made(name, basis)
    with ct.count_evaluations(block) as count:
        solution = block.solve(X)
    assert block.field.calls == solution.stats.evaluations == count.forward


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("basis", BASES, ids=repr)
def test_statistics_of_the_batch_alone_forget_those_before(name, basis):
    """An evaluation that is planned but not made would leave a part of the old ones behind."""
    found = []
    for start in (0.0, 100.0):
        block = made(name, basis)
        block.field.norm.running_mean.fill_(start)
        block(X)
        found.append(block.field.norm.running_mean)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_buckets_jump_and_splines_bend(family):
    basis = FAMILIES[family].of_size(6)
    apart = family in ("PiecewiseConstant", "DiscontinuousLinear")
    assert basis.jumps == (basis.breakpoints[1:-1] if apart else ())


@pytest.mark.parametrize(
    "solver", [ct.ReversibleHeun(STEPS), ct.AsynchronousLeapfrog(STEPS)], ids=repr
)
def test_what_only_bends_costs_nothing(solver):
    block = ct.ODEBlock(nn.Linear(3, 3), ct.PiecewiseLinear(STEPS + 1), solver)
    assert block.solve(X).stats.evaluations == STEPS + 1
    bent = ct.Signal([0.0, 0.5, 1.0], torch.randn(3, 8, 3), "linear")
    jumping = ct.Signal([0.0, 0.5, 1.0], torch.randn(3, 8, 3), "previous")
    block = ct.ODEBlock(ct.DataControl(nn.Linear(6, 3)), solver=solver)
    assert block.solve(X, control=bent).stats.evaluations == STEPS + 1
    assert block.solve(X, control=jumping).stats.evaluations > STEPS + 1
