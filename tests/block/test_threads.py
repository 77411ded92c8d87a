"""Threads that share a block: each gets what it would get alone, and the weights stay."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import continua as ct
from nets import conv_unit, scrambled

THREADS, CALLS = 4, 12


def made(gradient: ct.Gradient | None = None, basis: ct.Basis | None = None) -> ct.ODEBlock:
    torch.manual_seed(0)
    basis = ct.PiecewiseConstant(3) if basis is None else basis
    return scrambled(ct.ODEBlock(conv_unit(), basis, ct.RK4(steps=3), gradient)).eval()


def inputs() -> list[torch.Tensor]:
    return [torch.randn(1 + i % 3, 4, 5, 5, generator=torch.Generator().manual_seed(i))
            for i in range(CALLS)]  # fmt: skip


def together(work, items):
    """The work on all items by threads that begin at once."""
    barrier = threading.Barrier(THREADS)

    def share(n: int):
        barrier.wait(timeout=60)
        return [work(item) for item in items[n::THREADS]]

    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(share, range(THREADS)))
    found = [None] * len(items)
    for n, part in enumerate(parts):
        found[n::THREADS] = part
    return found


@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(3), ct.Chebyshev(3)], ids=str)
@pytest.mark.parametrize("how", ["no_grad", "inference_mode", "enable_grad"])
def test_calls_from_threads(how, basis):
    block = made(basis=basis)
    before = {name: value.clone() for name, value in block.state_dict().items()}

    def call(x):
        with getattr(torch, how)():
            return block(x).detach()

    expected = [call(x) for x in inputs()]
    for found, wanted in zip(together(call, inputs()), expected, strict=True):
        assert torch.equal(found, wanted)
    for name, value in block.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()], ids=str)
def test_gradients_from_threads(gradient):
    block = made(gradient)

    def slope(x):
        x = x.clone().requires_grad_()
        (found,) = torch.autograd.grad(block(x).square().sum(), x)
        return found

    expected = [slope(x) for x in inputs()]
    for found, wanted in zip(together(slope, inputs()), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_other_readers_wait_for_their_turn():
    """While one thread is inside the field, another sees neither its weights nor a copy."""

    class Waiting(nn.Linear):
        inside = threading.Event()
        go_on = threading.Event()

        def forward(self, z):
            if threading.current_thread() is not threading.main_thread():
                self.inside.set()
                assert self.go_on.wait(timeout=60)
            return super().forward(z)

    block = ct.ODEBlock(Waiting(2, 2), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    with ThreadPoolExecutor(2) as pool, torch.no_grad():
        first = pool.submit(block, torch.ones(1, 2))
        assert Waiting.inside.wait(timeout=60)
        copy = pool.submit(block.at, 0.0)
        with pytest.raises(TimeoutError):
            copy.result(timeout=0.1)
        Waiting.go_on.set()
        assert first.result(timeout=60).shape == (1, 2)
        assert copy.result(timeout=60).weight.shape == (2, 2)


def test_a_failed_call_ends_its_turn():
    block = made()
    with pytest.raises(ct.ShapeError):
        block(torch.randn(1, 5, 5, 5))
    assert together(lambda x: block(x).shape, inputs())[0] == (1, 4, 5, 5)
