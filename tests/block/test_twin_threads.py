"""Solves inside solves, and beside each other."""

import contextlib
import copy
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import continua as ct
from block.steps import STEPS, every_gradient, inputs, made, same, tensors, with_and_without_grad
from nets import conv_unit, mlp

THREADS = 8
FINE = ct.RK4(steps=20)
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
#: Python warns of a fork beside other threads, which is what is tested.
quiet = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Decay(nn.Module):
    """dz/ds = -k z."""

    def __init__(self, k: float = 0.8):
        super().__init__()
        self.k = nn.Parameter(torch.tensor(k, dtype=torch.float64))

    def forward(self, z):
        return -self.k * z


def decay(gradient: ct.Gradient, k: float = 0.8) -> tuple[ct.ODEBlock, Tensor, Tensor]:
    """A block, its input, and its rate as a leaf for the closed form."""
    block = ct.ODEBlock(Decay(k), ct.PiecewiseConstant(2), FINE, gradient)
    x = torch.tensor([[0.5], [-1.5]], dtype=torch.float64)
    return block, x, torch.tensor(k, dtype=torch.float64, requires_grad=True)


def slope(value: Tensor, rate: Tensor) -> float:
    """The derivative by a rate, summed over depth where it is a function of it."""
    return float(torch.autograd.grad(value.sum(), rate, retain_graph=True)[0].sum())


# -- inside ------------------------------------------------------------------------------------


@every_gradient
def test_a_cost_that_calls_the_block_itself(gradient):
    """With z' = -k z and l = exp(-k) z, the block again: x exp(-k) (1 - exp(-k)) / k."""
    block, x, k = decay(gradient)
    for _ in range(2):
        cost = block.solve(x, running_cost=lambda s, z: block(z).sum(1)).cost
        expected = x.sum(1) * torch.exp(-k) * (1 - torch.exp(-k)) / k
        torch.testing.assert_close(cost, expected, rtol=1e-6, atol=1e-8)
        assert slope(cost, block.field.k) == pytest.approx(slope(expected, k), rel=1e-4)


@every_gradient
def test_a_field_that_calls_another_block(gradient):
    """With z' = exp(-k) z, the value of the other block: x exp(exp(-k))."""
    other, x, k = decay(gradient)

    class Outer(nn.Module):
        blocks = [other]  # noqa: RUF012 - outside the tree

        def forward(self, z):
            return self.blocks[0](z)

    block = ct.ODEBlock(Outer(), solver=FINE, gradient=gradient)
    allowed = () if isinstance(gradient, ct.Backprop) else (ct.ContinuaError,)
    with contextlib.suppress(*allowed):
        out, expected = block(x.requires_grad_()), x * torch.exp(torch.exp(-k))
        torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-8)
        assert slope(out, other.field.k) == pytest.approx(slope(expected, k), rel=1e-4)


@every_gradient
def test_a_field_that_calls_its_own_block(gradient):
    """With z' = -k exp(-k) z, once inside itself: x exp(-k exp(-k))."""
    depth = [0]

    class Selfish(Decay):
        def forward(self, z):
            if depth[0] == 0:
                depth[0] += 1
                z = self.blocks[0](z)
                depth[0] -= 1
            return super().forward(z)

    _, x, k = decay(gradient)
    block = ct.ODEBlock(Selfish(), ct.PiecewiseConstant(2), FINE, gradient)
    block.field.blocks = [block]
    allowed = () if isinstance(gradient, ct.Backprop) else (ct.ContinuaError,)
    with contextlib.suppress(*allowed):
        out, expected = block(x), x * torch.exp(-k * torch.exp(-k))
        torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-8)
        assert slope(out, block.field.k) == pytest.approx(slope(expected, k), rel=1e-4)
    assert block.field.k.shape == (2,)


# -- beside ------------------------------------------------------------------------------------


class Gate:
    """Holds a thread inside a field until another has looked."""

    def __init__(self):
        self.inside, self.go_on, self.late = threading.Event(), threading.Event(), False

    def wait(self) -> None:
        self.inside.set()
        self.late |= not self.go_on.wait(timeout=5)


@contextlib.contextmanager
def held(grad: bool):
    """A block that another thread is in the middle of."""
    gate = Gate()

    class Waiting(nn.Linear):
        def forward(self, z):
            if threading.current_thread() is not threading.main_thread():
                gate.wait()
            return super().forward(z)

    block, x = made(nn.Sequential(Waiting(4, 4), nn.BatchNorm1d(4))), inputs()

    def solve():
        with torch.set_grad_enabled(grad):
            return block(x).detach()

    expected = solve()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(solve)
        assert gate.inside.wait(timeout=60)
        try:
            yield block, x
        finally:
            gate.go_on.set()
        assert torch.equal(working.result(timeout=60), expected)
    assert not gate.late, "what looked at the block waited for the solve"


@with_and_without_grad
def test_others_see_the_coefficients_meanwhile(grad):
    with held(grad) as (block, x):
        shapes = {name: value.shape for name, value in block.state_dict().items()}
        assert shapes["field.0.weight"] == (STEPS, 4, 4)
        assert dict(block.named_parameters())["field.0.weight"].shape == (STEPS, 4, 4)
        twin = copy.deepcopy(block)
        assert same(twin, tensors(block))
        assert block.at(0.0)[0].weight.shape == (4, 4)
        refined = ct.refine(block)
        assert refined.field[0].weight.shape == (2 * STEPS, 4, 4)
        torch.testing.assert_close(block(x), twin(x))
        block.solver = ct.RK4(steps=2)
        block.solver = ct.Euler(steps=STEPS)


def well(block: ct.ODEBlock, before: dict[str, Tensor]) -> bool:
    """In a child process: whether it has the coefficients and can solve."""
    torch.set_num_threads(1)
    return same(block, before) and all(isinstance(p, nn.Parameter) for p in block.parameters())


def passes_in_a_child(check) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@forks
@quiet
@with_and_without_grad
def test_a_fork_while_another_thread_solves(grad):
    with held(grad) as (block, x):
        before, expected = tensors(block), block(x).detach()
        assert passes_in_a_child(
            lambda: well(block, before) and torch.equal(block(x).detach(), expected)
        )


@forks
@quiet
@with_and_without_grad
def test_a_fork_inside_the_field(grad):
    block, x, results = made(mlp(4)), inputs(), []
    before = tensors(block)
    block.field[1].register_forward_hook(
        lambda *_: results.append(passes_in_a_child(lambda: well(block, before)))
    )
    with torch.set_grad_enabled(grad):
        block(x)
    assert results == [True] * STEPS


def together(work, count: int = THREADS):
    """What the threads that begin at once return."""
    barrier = threading.Barrier(count)

    def begin(n: int):
        barrier.wait(timeout=60)
        return [work(n, i) for i in range(6)]

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(STEPS), ct.Fourier(1)], ids=repr)
@pytest.mark.parametrize("how", ["no_grad", "inference_mode", "enable_grad"])
def test_eight_threads_in_evaluation(how, basis):
    block = made(conv_unit(), basis=basis)
    before = tensors(block)
    xs = torch.randn(THREADS, 6, 2, 4, 5, 5)

    def call(n, i):
        with getattr(torch, how)():
            return block(xs[n, i]).detach()

    expected = [[call(n, i) for i in range(6)] for n in range(THREADS)]
    for found, wanted in zip(together(call), expected, strict=True):
        assert all(map(torch.equal, found, wanted))
    assert same(block, before)


@every_gradient
def test_eight_threads_with_gradients(gradient):
    block = made(conv_unit(), gradient)
    before = tensors(block)
    xs = torch.randn(THREADS, 6, 2, 4, 5, 5)

    def slopes(n, i):
        x = xs[n, i].clone().requires_grad_()
        return torch.autograd.grad(block(x).square().sum(), [x, *block.parameters()])

    expected = [[slopes(n, i) for i in range(6)] for n in range(THREADS)]
    for found, wanted in zip(together(slopes), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    assert same(block, before)


@every_gradient
def test_two_threads_train_a_batch_norm(gradient):
    block = made(conv_unit(), gradient).train()

    def train(n, i):
        block(torch.randn(4, 4, 5, 5, generator=torch.Generator().manual_seed(n)))

    together(train, 2)
    for name, buffer in block.field.named_buffers():
        assert buffer.isfinite().all(), name
    norm = block.field[0]
    assert norm.running_mean.shape == (STEPS, 4)
    assert (norm.running_var >= 0).all()
    assert 1 <= int(norm.num_batches_tracked) <= 12
    # In the first cell the first mean is a mixture of those of the inputs and of the start.
    means = [
        torch.randn(4, 4, 5, 5, generator=torch.Generator().manual_seed(n)).mean((0, 2, 3))
        for n in (0, 1)
    ]
    known = torch.stack([*means, made(conv_unit()).field[0].running_mean[0]])
    found = norm.running_mean[0]
    assert ((found >= known.amin(0) - 1e-5) & (found <= known.amax(0) + 1e-5)).all()
    assert not torch.equal(found, known[2])
