"""Results that were wrong once: one test for each."""

import contextlib
import math
import subprocess
import sys
import threading

import pytest
import torch
from torch import Tensor, nn

import continua as ct
from nets import mlp, scrambled

PAIRS = [ct.Bosh3, ct.Dopri5, ct.Tsit5, ct.Dopri8]
FINE = ct.Dopri8(1e-9, 1e-9)
RECOMPUTED = [
    (FINE, ct.Adjoint()),
    (FINE, ct.Adjoint("backsolve")),
    (FINE, ct.Checkpoint()),
    (ct.ReversibleHeun(steps=200), ct.Reversible()),
    (ct.AsynchronousLeapfrog(steps=200), ct.Reversible()),
]
recomputed = pytest.mark.parametrize(("solver", "gradient"), RECOMPUTED, ids=repr)


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


class Decay(nn.Module):
    """dz/ds = -k z."""

    def __init__(self, k: float = 0.8):
        super().__init__()
        self.k = nn.Parameter(torch.tensor(k, dtype=torch.float64))

    def forward(self, z):
        return -self.k * z


class Calls(nn.Module):
    """A field that is a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, z):
        return self.function(z)


class Explodes(nn.Module):
    """A batch norm, and a state that overflows in a few steps."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, z):
        return 0 * self.norm(z) + z.square() * 1e20


def slope(compute, w: Tensor) -> Tensor:
    """The derivative of a loss by w, which must have one."""
    (found,) = torch.autograd.grad(compute(), [w], allow_unused=True)
    assert found is not None, "the tensor got no gradient, and nothing was said"
    return found


def right_or_refused(compute, w: Tensor, expected: float) -> None:
    with contextlib.suppress(ct.ContinuaError):
        assert slope(compute, w).item() == pytest.approx(expected, rel=1e-4)


# -- gradients ---------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", [ct.Adjoint(), ct.Adjoint("backsolve")], ids=repr)
def test_the_adjoint_resolves_a_cost_that_reads_depth(gradient):
    """With l = w sin(50 s) the derivative by w is (1 - cos 50) / 50."""

    class Wave(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(number(1.0).detach())

        def forward(self, s, z):
            return self.w * torch.sin(50 * s) * torch.ones_like(z[:, 0])

    cost, x = Wave(), torch.ones(1, 1, dtype=torch.float64)
    block = ct.ODEBlock(Decay(), solver=ct.Dopri5(1e-6, 1e-6), gradient=gradient)
    (found,) = torch.autograd.grad(block.solve(x, running_cost=cost).cost.sum(), cost.w)
    assert found.item() == pytest.approx((1 - math.cos(50)) / 50, abs=1e-5)


@recomputed
def test_a_cost_that_closes_over_a_tensor(solver, gradient):
    """With l = w z^2 and z = exp(-k s) the derivative by w is (1 - exp(-2 k)) / 2 k."""
    w, x = number(0.5), torch.ones(1, 1, dtype=torch.float64)
    block = ct.ODEBlock(Decay(), solver=solver, gradient=gradient)

    def loss():
        return block.solve(x, running_cost=lambda s, z: w * z.square().sum(1)).cost.sum()

    right_or_refused(loss, w, (1 - math.exp(-1.6)) / 1.6)


@recomputed
def test_a_field_that_closes_over_a_tensor(solver, gradient):
    """With z' = -w z the derivative of z(1) by w is -exp(-w)."""
    w, x = number(0.5), torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    block = ct.ODEBlock(Calls(lambda z: -w * z), solver=solver, gradient=gradient)
    right_or_refused(lambda: block(x).sum(), w, -math.exp(-0.5))


@pytest.mark.parametrize("solver", [ct.RK4(steps=40), FINE], ids=repr)
@pytest.mark.parametrize("by", ["rate", "input", "start", "end"])
@pytest.mark.parametrize("moved", ["start", "end"])
def test_second_derivatives_through_an_end_of_the_span(solver, by, moved):
    """With L = z(T)^2 and z' = a z from z(t) = x: L = x^2 exp(2 a (T - t))."""
    a, x, t, T = (number(value) for value in (0.7, 1.3, 0.1, 0.9))
    inputs = {"rate": a, "input": x, "start": t, "end": T}

    def second(energy: Tensor) -> float:
        (first,) = torch.autograd.grad(energy, inputs[moved], create_graph=True)
        (found,) = torch.autograd.grad(first, inputs[by], allow_unused=True)
        return 0.0 if found is None else found.item()

    expected = second((x * torch.exp(a * (T - t))).square())
    block = ct.ODEBlock(Calls(lambda z: a * z), solver=solver)
    with contextlib.suppress(ct.ContinuaError):
        solution = block.solve(x.reshape(1, 1), span=(t, T))
        assert second(solution.final.square().sum()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("gradient", [ct.Adjoint(), ct.Checkpoint()], ids=repr)
def test_random_numbers_of_another_thread(gradient, training):
    class Disturbed(Decay):
        def forward(self, z):
            other = threading.Thread(target=torch.rand, args=(1,))
            other.start()
            other.join()
            return super().forward(z)

    block = ct.ODEBlock(Disturbed(0.5), solver=ct.RK4(steps=40), gradient=gradient).train(training)
    x = torch.ones(1, 1, dtype=torch.float64)
    found = slope(lambda: block(x).sum(), block.field.k)
    assert found.item() == pytest.approx(-math.exp(-0.5), rel=1e-5)


def test_functional_gradient_leaves_batch_norm_alone():
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(mlp(3, norm=True), ct.PiecewiseConstant(2), ct.RK4(steps=4)))
    before = {name: value.clone() for name, value in block.state_dict().items()}
    ct.functional_gradient(block, torch.randn(5, 3), lambda z: z.sum(), [0.0, 0.5, 1.0])
    for name, value in block.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert block.field[0].training


# -- one solve and another ---------------------------------------------------------------------


def test_costs_that_call_the_other_block_from_two_threads():
    """In a process of its own: what waits for ever cannot be stopped from inside."""
    code = """
import threading, torch, continua as ct
one, other = (ct.ODEBlock(torch.nn.Linear(2, 2), solver=ct.Euler(steps=2)) for _ in range(2))
both = threading.Barrier(2)
def solve(mine, others):
    def cost(s, z):
        both.wait(timeout=60)
        return others(z).sum(1)
    mine.solve(torch.ones(1, 2), running_cost=cost)
threads = [threading.Thread(target=solve, args=pair) for pair in ((one, other), (other, one))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
"""
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(command, timeout=60, capture_output=True, text=True, check=True)
    except subprocess.TimeoutExpired:
        pytest.fail("the threads wait for each other")
    assert (done.stdout.strip(), done.stderr) == ("done", "")


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=repr)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "solver", [ct.Euler(steps=6), ct.RK4(steps=4), ct.Dopri5(steps=4)], ids=repr
)
def test_a_diverging_solve_says_so_and_changes_nothing(gradient, grad, training, solver):
    block = ct.ODEBlock(Explodes(), solver=solver, gradient=gradient).train(training)
    x = torch.ones(4, 3)
    before = {name: value.clone() for name, value in block.state_dict().items()}
    with torch.set_grad_enabled(grad):
        for call in (block, block.solve):
            with pytest.raises(ct.SolveError, match="not finite"):
                call(x)
        assert block.solve(x, raise_on_failure=False).status is ct.Status.NON_FINITE
    for name, value in block.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("norm", ["batch", "sample"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.__name__)
@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=repr)
def test_an_empty_batch(pair, norm, gradient):
    block = ct.ODEBlock(nn.Linear(3, 3), ct.Fourier(1), pair(1e-4, 1e-4, norm=norm), gradient)
    out = block(torch.empty(0, 3))
    assert out.shape == (0, 3)
    assert block.solve(torch.empty(0, 3)).status is ct.Status.SUCCESS


def test_a_hypernetwork_leaves_the_net_alone():
    net = nn.Linear(1, 6)
    before = net.bias.clone()
    ct.Hypernetwork(nn.Linear(2, 2), net)
    assert torch.equal(net.bias, before)
