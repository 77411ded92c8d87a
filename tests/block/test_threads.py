"""Threads that share a block: each gets what it would get alone, and the weights stay."""

import copy
import os
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


def test_a_failed_call_leaves_the_block_usable():
    block = made()
    with pytest.raises(ct.ShapeError):
        block(torch.randn(1, 5, 5, 5))
    assert together(lambda x: block(x).shape, inputs())[0] == (1, 4, 5, 5)


@pytest.fixture
def in_use():
    """A block that another thread calls again and again."""
    block, over = made(basis=ct.PiecewiseConstant(3)), threading.Event()
    x = inputs()[0]

    def work():
        while not over.is_set():
            with torch.no_grad():
                block(x)

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield block
        finally:
            over.set()
            working.result(timeout=60)


def test_what_is_read_while_another_thread_solves(in_use):
    shapes = {name: value.shape for name, value in copy.deepcopy(in_use).state_dict().items()}
    for _ in range(20):
        for one in (in_use, copy.deepcopy(in_use), ct.refine(in_use, 1), nn.Sequential(in_use)[0]):
            found = {name: value.shape for name, value in one.state_dict().items()}
            assert found == shapes


def test_another_solver_while_another_thread_solves(in_use):
    for steps in (2, 4, 3, 6):
        in_use.solver = ct.RK4(steps=steps)
    assert in_use.solver == ct.RK4(steps=6)


def test_samples_of_their_own_depth():
    torch.manual_seed(0)
    block = ct.ODEBlock(nn.Linear(3, 3), ct.Legendre(2), ct.RK4(steps=2), ct.Checkpoint())
    model = ct.AdaptiveDepth(block, nn.Linear(3, 1))
    xs = [torch.randn(5, 3) for _ in range(CALLS)]

    def slope(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(model(x).square().sum(), x)[0]

    expected = [slope(x) for x in xs]
    for found, wanted in zip(together(slope, xs), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    assert all(isinstance(p, nn.Parameter) for p in block.field.parameters())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_while_others_solve(in_use):
    for _ in range(3):
        child = os.fork()
        if child == 0:
            stacks = dict(in_use.named_parameters())
            os._exit(0 if all(len(value) == 3 for value in stacks.values()) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
