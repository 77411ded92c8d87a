"""What compiled solves store for their backward pass."""

import pytest
import torch
from torch import nn

import continua as ct
from continua.gradient._rows import WeightGradients


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=str)
def test_what_is_stored_is_freed_and_seen_by_hooks(gradient):
    field = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
    block = ct.ODEBlock(field, ct.Fourier(1), ct.RK4(steps=2), gradient, compile="aot_eager")
    x = torch.randn(4, 3, requires_grad=True)
    y = block(x).sum()
    (first,) = torch.autograd.grad(y, [x])
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(y, [x])
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        y = block(x).sum()
    assert len(seen) > 1
    assert torch.equal(torch.autograd.grad(y, [x])[0], first)


class Swapped(nn.Module):
    """A field on a pair of states."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, z):
        return self.a(z[1]).tanh(), self.b(z[0]).tanh()


@pytest.mark.parametrize("leaf", [0, 1])
@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint()], ids=str)
def test_a_start_that_is_written_to_before_the_backward_pass_is_refused(gradient, leaf):
    block = ct.ODEBlock(Swapped(), ct.Fourier(1), ct.RK4(steps=2), gradient, compile="aot_eager")
    z = tuple(torch.randn(4, 3) for _ in range(2))
    out = block(z)
    z[leaf].add_(10.0)
    with pytest.raises((RuntimeError, ct.SolveError), match="place"):
        (out[0] + out[1]).sum().backward()


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=str)
@pytest.mark.parametrize("solver", [ct.RK4(steps=3), ct.Dopri5()], ids=str)
def test_a_backward_pass_that_failed_can_be_tried_again(solver, gradient, monkeypatch):
    field = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    block = ct.ODEBlock(field, ct.Fourier(1), solver, gradient, compile="aot_eager")
    x = torch.randn(4, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(block(x).sum(), [x])
    y = block(x).sum()
    with monkeypatch.context() as patch:
        patch.setattr(WeightGradients, "pull", lambda *given, **named: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            torch.autograd.grad(y, [x])
    torch.testing.assert_close(torch.autograd.grad(y, [x])[0], expected)


@pytest.mark.parametrize("solver", [ct.RK4(steps=10), ct.Dopri5()], ids=str)
@pytest.mark.parametrize("save_at", [None, [0.03, 0.55]])
def test_steps_are_recomputed_whose_program_the_forward_pass_had_no_use_for(save_at, solver):
    field = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    block = ct.ODEBlock(field, ct.Fourier(1), solver)
    x = torch.randn(4, 3, requires_grad=True)
    found = []
    for gradient, compile in [(ct.Backprop(), False), (ct.Checkpoint("sqrt"), "aot_eager")]:
        block.gradient = gradient
        solution = block.compile(compile).solve(x, save_at=save_at)
        found.append(torch.autograd.grad(solution.final.sum() + solution.z.sum(), [x])[0])
    torch.testing.assert_close(*found)


def test_weights_without_elements():
    field = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    field.register_parameter("none", nn.Parameter(torch.empty(0)))
    bases = {"none": ct.Fourier(1), "*": ct.Chebyshev(3)}
    block = ct.ODEBlock(field, bases, ct.RK4(steps=3), compile="aot_eager")
    block(torch.randn(4, 3)).sum().backward()
    assert all(p.grad is not None for p in block.field[0].parameters())
