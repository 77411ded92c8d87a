"""What a flow contributes."""

import pytest
import torch
from torch import nn

import continua as ct


class Push(nn.Module):
    """Moves everything by one."""

    def forward(self, z):
        return torch.ones_like(z)


def test_a_flow_that_does_the_work():
    model = nn.Sequential(ct.ODEBlock(Push(), solver=ct.RK4(steps=2)), nn.Identity())
    x = torch.zeros(5, 1)
    report = ct.ablate(model, x, torch.ones(5, 1))
    assert report.measure == "mean squared error"
    assert report.whole == pytest.approx(0, abs=1e-12)
    assert report.without == {"0": pytest.approx(1)}


def test_a_superfluous_flow():
    torch.manual_seed(0)

    class Rest(nn.Module):
        def forward(self, z):
            return 0 * z

    head = nn.Linear(2, 2)
    model = nn.Sequential(ct.ODEBlock(Rest(), solver=ct.RK4(steps=2)), head)
    x = torch.randn(20, 2)
    report = ct.ablate(model, x, head(x).argmax(1))
    assert (report.whole, report.without["0"]) == (1.0, 1.0)
    assert report.movement["0"] == 0
    assert "without the flow 0" in str(report)


def test_flows_of_every_kind_are_found_once():
    block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(2), ct.RK4(steps=2))
    model = nn.Sequential(
        ct.AdaptiveDepth(block, nn.Linear(2, 1)),
        ct.Jumps(ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(2)), [nn.Linear(2, 2)]),
        ct.ODEBlock(nn.Linear(2, 2)),
        nn.Linear(2, 1),
    )
    report = ct.ablate(model, torch.randn(6, 2), torch.randint(0, 2, (6,)))
    assert list(report.without) == ["0", "1", "2"]
    assert report.measure == "accuracy"
    alone = ct.ablate(block, torch.randn(6, 2), torch.randn(6, 2))
    assert list(alone.without) == [""]


def test_a_measure_of_ones_own():
    block = ct.ODEBlock(Push(), solver=ct.RK4(steps=2))
    x = torch.zeros(3, 1)
    report = ct.ablate(block, x, x, lambda out, y: float((out - y).abs().max()), "worst")
    assert (report.measure, round(report.whole, 6), report.without[""]) == ("worst", 1.0, 0.0)


def test_mistakes():
    with pytest.raises(ct.ArgumentError, match="no ODE block"):
        ct.ablate(nn.Linear(2, 2), torch.ones(2, 2), torch.ones(2))
    with pytest.raises(ct.ShapeError, match="need 2 targets"):
        ct.ablate(ct.ODEBlock(Push()), torch.ones(2, 2), torch.ones(3))
    with pytest.raises(ct.ShapeError, match=r"\[B, D\]"):
        ct.local_exponents(ct.ODEBlock(Push()), torch.ones(2, 2, 2), [0.0])


@pytest.mark.parametrize("basis", [ct.Constant(), ct.PiecewiseConstant(2)], ids=repr)
def test_exponents_of_a_linear_field(basis):
    block = ct.ODEBlock(nn.Linear(2, 2, bias=False).double(), basis, ct.RK4(steps=8))
    x = torch.randn(3, 2, dtype=torch.float64)
    depths = [0.0, 0.3, 0.7, 1.0]
    found = ct.local_exponents(block, x, depths)
    for depth, row in zip(depths, found, strict=True):
        matrix = block.at(depth, "left" if depth == 1 else "right").weight.detach()
        expected = torch.linalg.eigvalsh((matrix + matrix.T) / 2)[-1]
        torch.testing.assert_close(row, expected.expand(3))
