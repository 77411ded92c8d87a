import pytest
import torch
from torch import nn

import continua as ct
from nets import make_pair, mlp, scrambled


def test_comparison_counts_and_measures():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 6),
        scrambled(ct.ODEBlock(mlp(norm=True).double(), ct.PiecewiseConstant(8), ct.Heun(steps=8))),
    ).double()
    small = ct.compress(model, ct.PiecewiseConstant(4), steps=2)
    report = ct.compare(model, small)
    assert (report.source.parameters, report.target.parameters) == (42 + 8 * 122, 42 + 4 * 122)
    assert (report.source.state, report.target.state) == (96, 48)
    assert report.source.bytes == 8 * (42 + 8 * 122 + 96)
    assert (report.source.evaluations, report.target.evaluations) == (16, 4)
    change = next(c for c in report.tensors if c.name == "1.1.weight")
    stack = model[1].field[1].weight.detach()
    mean = (stack[0::2] + stack[1::2]).repeat_interleave(2, 0) / 2
    torch.testing.assert_close(change.error, float((stack - mean).norm() / stack.norm()))
    text = str(report)
    assert "1.1.weight" in text
    assert f"{change.error:.3e}" in text


@pytest.mark.parametrize(
    ("other", "match"),
    [(make_pair(4), "has shape"), (make_pair(3)[:1], "different blocks")],
    ids=["shapes", "blocks"],
)
def test_refusals(other, match):
    with pytest.raises(ct.ArgumentError, match=match):
        ct.compare(make_pair(3), other)


def test_outputs_and_predictions():
    torch.manual_seed(0)
    model = nn.Sequential(
        scrambled(ct.ODEBlock(mlp(norm=True), ct.PiecewiseConstant(4), ct.Euler(steps=4))),
        nn.Linear(6, 3),
    )
    small = ct.compress(model, ct.Constant(), steps=1)
    x = torch.randn(500, 6)
    report = ct.compare(model, small, x)
    assert model.training
    with torch.no_grad():
        a, b = (m.eval()(x).double() for m in (model, small))
    assert report.outputs.error == pytest.approx(float((a - b).norm() / a.norm()))
    same = float((a.argmax(1) == b.argmax(1)).double().mean())
    assert report.outputs.agreement == pytest.approx(same)
    assert 0 < same < 1
    assert str(report).startswith("outputs: relative L2 error")
    assert f"same prediction {100 * same:.2f} %" in str(report)
    assert ct.compare(model, model, (x,)).outputs.error == 0
    assert ct.compare(model, small).outputs is None


def test_outputs_that_are_nan_agree_with_nothing():
    model, broken = mlp(), mlp()
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    block = ct.ODEBlock(nn.Tanh(), solver=ct.Euler(steps=2))
    model, broken = nn.Sequential(block, model), nn.Sequential(block, broken)
    assert ct.compare(model, broken, torch.randn(4, 6)).outputs.agreement == 0.0
    with pytest.raises(ct.ArgumentError, match="give compare at least one input"):
        ct.compare(model, broken, torch.randn(0, 6))
