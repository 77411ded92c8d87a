"""How results show themselves: short text, and a table in a notebook."""

import re

import pytest
import torch
from torch import nn

import continua as ct
from continua.train import Outcome, Position

BLOCK = ct.ODEBlock(nn.Linear(64, 64), ct.PiecewiseConstant(8), ct.Euler(steps=8))
X = torch.ones(32, 64)


def outcome():
    history = [{"train": {"loss": 0.5}, "validation": {"accuracy": 0.9}}]
    return Outcome(BLOCK, Position(epoch=1, step=10, seconds=2.0, best=0.9), history)


SHOWN = {
    "Solution": lambda: BLOCK.solve(X, save_at="steps"),
    "Comparison": lambda: ct.compare(BLOCK, ct.compress(BLOCK, ct.PiecewiseConstant(4)), X),
    "Front": lambda: ct.sweep(BLOCK, lambda m: float(m(X).mean())),
    "GradientReport": lambda: ct.gradcheck(
        ct.ODEBlock(nn.Tanh(), solver=ct.Euler(steps=2)), torch.ones(1, 2)
    ),
    "Outcome": outcome,
    "ODEBlock": lambda: BLOCK,
}


@pytest.mark.parametrize("name", SHOWN)
def test_shown_in_a_few_lines(name):
    made = SHOWN[name]()
    assert repr(made).startswith(name)
    assert len(repr(made)) < 400
    assert "tensor(" not in repr(made)
    table = made._repr_html_()
    assert table.startswith("<table>")
    assert table.endswith("</table>")
    assert len(table.splitlines()) < 40
    assert "tensor(" not in table
    for tag in ("table", "tr", "td", "th", "caption"):
        assert len(re.findall(f"<{tag}[ >]", table)) == table.count(f"</{tag}>")


def test_a_solution_names_its_shapes():
    solution = BLOCK.solve(X, save_at=[0.0, 1.0])
    assert repr(solution) == (
        "Solution(s=float64[2], z=float32[2, 32, 64], final=float32[32, 64], evaluations=8, "
        "steps=8, status=success)"
    )
    pair = ct.odeint(lambda s, z: {"a": -z["a"]}, {"a": torch.ones(2)}, solver=ct.Euler(steps=1))
    assert "{a: float32[2]}" in repr(pair)


def test_a_method_that_does_not_apply_is_a_row_of_its_own():
    table = SHOWN["GradientReport"]()._repr_html_()
    (row,) = [line for line in table.splitlines() if "ReversibleHeun" in line]
    assert re.fullmatch(r"<tr><td colspan=7>Reversible\(\): needs .*</td></tr>", row)


def test_names_cannot_break_the_table():
    model = nn.ModuleDict({"<b>": ct.ODEBlock(nn.Linear(1, 1), ct.Constant())})
    shown = ct.compare(model, model)._repr_html_()
    assert "<b>" not in shown
    assert "&lt;b&gt;" in shown


def test_a_figure_is_a_picture():
    plot = pytest.importorskip("continua.plot")
    assert plot.weights(BLOCK)._repr_png_().startswith(b"\x89PNG")
