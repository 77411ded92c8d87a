"""The adjoint where the field itself varies with depth, and other things that it cannot see."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import continua as ct

X = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)
AGAIN = [
    (ct.RK4(steps=8), ct.Checkpoint()),
    (ct.RK4(steps=8), ct.Checkpoint("sqrt")),
    (ct.RK4(steps=8), ct.Adjoint()),
    (ct.ReversibleHeun(steps=8), ct.Reversible()),
]


class Driven(ct.Field):
    """The state knows little of what the weight is multiplied by."""

    def __init__(self, frequency: float):
        super().__init__()
        self.linear, self.frequency = nn.Linear(3, 3, bias=False), frequency

    def forward(self, s, z, x):
        given = x(s) if isinstance(x, ct.Signal) else x
        return torch.cos(self.frequency * s) * torch.tanh(self.linear(given)) - z


def gradient(field, solver, method, control):
    torch.manual_seed(0)
    block = ct.ODEBlock(field(), ct.Constant(), solver, method).double()
    block(X, control=control).square().sum().backward()
    return block.field.linear.weight.grad


def signal(kind):
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(21, 2, 3, generator=generator, dtype=torch.float64)
    return ct.Signal(torch.linspace(0, 1, 21), values, kind)


CASES = {
    "slow": (1.0, None), "fast": (20.0, None), "faster": (40.0, None),
    "cubic": (0.0, signal("cubic")), "linear": (0.0, signal("linear")),
    "jumps": (0.0, signal("previous")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("pair", [ct.Dopri5, ct.Tsit5, ct.Dopri8])
def test_a_factor_that_the_adjoint_does_not_see(case, pair):
    frequency, control = CASES[case]
    tight = ct.Dopri8(rtol=1e-10, atol=1e-10)
    exact = gradient(lambda: Driven(frequency), tight, ct.Backprop(), control)
    solver = pair(rtol=1e-8, atol=1e-8)
    found = gradient(lambda: Driven(frequency), solver, ct.Adjoint(), control)
    assert float((found - exact).norm() / exact.norm()) < 1e-4


@pytest.mark.parametrize("span", [(0.0, 0.7), (0.1, 1.1), (1.0, 0.0), (0.0, 2 * torch.pi)])
@pytest.mark.parametrize("solver", [ct.ReversibleHeun, ct.AsynchronousLeapfrog])
@pytest.mark.parametrize("cells", [3, 6, 9])
def test_jumps_of_any_span_are_found(span, solver, cells):
    """Ends of steps and of buckets are rounded in different ways."""
    found = []
    for method in (ct.Backprop(), ct.Reversible()):
        torch.manual_seed(0)
        field = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
        block = ct.ODEBlock(
            field, ct.PiecewiseConstant(cells), solver(2 * cells), method,
            span=span, init="independent",
        ).double()  # fmt: skip
        assert sum(len(stages) > 1 for stages in block.solver.plan(span, block.stretch.jumps)) == (
            cells - 1
        )
        x = X.clone().requires_grad_()
        block(x).square().sum().backward()
        found.append([x.grad, *(p.grad for p in block.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


class Noisy(nn.Module):
    def __init__(self, always: bool):
        super().__init__()
        self.linear, self.dropout, self.always = nn.Linear(3, 3), nn.Dropout(0.5), always

    def forward(self, z):
        z = torch.tanh(self.linear(z))
        return F.dropout(z, 0.5, training=True) if self.always else self.dropout(z)


@pytest.mark.parametrize(("solver", "method"), AGAIN, ids=repr)
def test_noise_of_one_part_in_evaluation(solver, method):
    found = []
    for gradient in (ct.Backprop(), method):
        torch.manual_seed(0)
        block = ct.ODEBlock(Noisy(False), ct.PiecewiseConstant(2), solver, gradient).double().eval()
        block.field.dropout.train()
        if isinstance(gradient, ct.Adjoint | ct.Reversible):
            with pytest.raises(ct.ArgumentError, match="noise such as dropout"):
                block(X)
            return
        out = block(X)
        torch.manual_seed(7)
        out.square().sum().backward()
        found.append(block.field.linear.weight.grad)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(("solver", "method"), AGAIN, ids=repr)
def test_noise_that_nothing_turns_off(solver, method):
    block = ct.ODEBlock(Noisy(True), ct.PiecewiseConstant(2), solver, method).double().eval()
    with pytest.raises(ct.ArgumentError, match="random numbers in evaluation mode"):
        block(X)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.frozen = nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False)

    def forward(self, z, c):
        return torch.tanh(self.linear(self.frozen(z))) * c


@pytest.mark.parametrize("what", ["argument", "frozen weight", "memory"])
@pytest.mark.parametrize(("solver", "method"), AGAIN, ids=repr)
def test_what_is_read_again_must_not_change(what, solver, method):
    block = ct.ODEBlock(Scaled(), ct.PiecewiseConstant(2), solver, method).double()
    c = torch.ones(2, 3, dtype=torch.float64)
    out = block(X, c)
    weight = block.field.linear.weight
    if what == "memory":
        weight.data = torch.zeros_like(weight)
    else:
        with torch.no_grad():
            (c if what == "argument" else block.field.frozen.weight).zero_()
    with pytest.raises(ct.SolveError, match="changed between the forward pass"):
        out.sum().backward()


@pytest.mark.parametrize(("solver", "method"), AGAIN, ids=repr)
def test_a_weight_that_was_replaced_meanwhile_gets_its_gradient(solver, method):
    block = ct.ODEBlock(Scaled(), ct.PiecewiseConstant(2), solver, method).double()
    c = torch.ones(2, 3, dtype=torch.float64)
    weight = block.field.linear.weight
    (expected,) = torch.autograd.grad(block(X, c).sum(), weight)
    out = block(X, c)
    block.field.linear.weight = nn.Parameter(torch.zeros_like(weight))
    out.sum().backward()
    assert torch.equal(weight.grad, expected)
    assert block.field.linear.weight.grad is None
