"""An interrupt or an error of memory anywhere in a solve leaves the block as before or as after it.

A signal handler runs between two lines of Python, so each line is a place for an interrupt. An
operation of torch that writes in place allocates nothing and cannot run out of memory.
"""

import random
import sys

import pytest
import torch
from torch import nn

import continua as ct
from nets import mlp, scrambled

ROOMS = tuple(f"continua/{room}/" for room in ("field", "block", "solve", "gradient"))


class Interrupt:
    """Raises at the n-th line of the rooms that solve."""

    error = KeyboardInterrupt

    def __init__(self, place: int):
        self.place = self.left = place

    def __enter__(self):
        sys.settrace(self._call)
        return self

    def __exit__(self, *error):
        sys.settrace(None)

    def _call(self, frame, event, argument):
        return self._line if any(room in frame.f_code.co_filename for room in ROOMS) else None

    def _line(self, frame, event, argument):
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise self.error
        return self._line


class OutOfMemory(torch.overrides.TorchFunctionMode):
    """Raises at the n-th operation of torch that may allocate memory."""

    error = torch.OutOfMemoryError

    def __init__(self, place: int):
        super().__init__()
        self.place = self.left = place

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, tensors = func.__name__, any(isinstance(arg, torch.Tensor) for arg in args)
        in_place = name.endswith("_") and not name.endswith("__")
        if tensors and not in_place:  # others are such as the end of `no_grad`
            self.left -= 1
            if self.left == 0:
                raise self.error("no memory left")
        return func(*args, **(kwargs or {}))


KINDS = [
    (ct.Backprop(), ct.Euler(2)),
    (ct.Checkpoint(), ct.Euler(2)),
    (ct.Adjoint(), ct.Euler(2)),
    (ct.Reversible(), ct.ReversibleHeun(2)),
    (ct.Backprop(), ct.Dopri5(1e-1, 1e-1)),
]
SOME = 40


class Trial:
    """A block whose solves, forward and backward, can be compared in everything they leave."""

    def __init__(self, kind, training):
        torch.manual_seed(0)
        gradient, solver = kind
        field = mlp(3, norm=True)
        block = ct.ODEBlock(field, ct.PiecewiseConstant(2), solver, gradient)
        self.block, self.x, self.calls = scrambled(block).train(training), torch.randn(4, 3), 0
        block.field.register_forward_hook(self._count)
        self.before = self.state()
        self.reset()
        self.result = self.solve()
        self.after = self.state()

    def _count(self, *_):
        self.calls += 1

    def state(self):
        return {name: value.clone() for name, value in self.block.state_dict().items()}

    def reset(self):
        self.block.load_state_dict(self.before)
        self.block.zero_grad()
        self.calls = 0

    def solve(self):
        y = self.block(self.x)
        y.square().sum().backward()
        gradients = [p.grad for p in self.block.parameters()]
        return self.calls, self.block.stats, y.detach(), *gradients

    def survives(self, fault):
        """Whether the solve went through, and with it all places for a fault are done."""
        self.reset()
        try:
            with torch.enable_grad(), fault:  # an interrupt may hit torch inside its `no_grad`
                self.solve()
        except fault.error:
            pass
        now = self.state()
        assert equal(now, self.before) or equal(now, self.after), fault.place
        self.reset()
        for found, expected in zip(self.solve(), self.result, strict=True):
            same = torch.equal if isinstance(expected, torch.Tensor) else lambda a, b: a == b
            assert same(found, expected), fault.place
        assert equal(self.state(), self.after), fault.place
        return fault.left > 0


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize("fault", [Interrupt, OutOfMemory])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_some_places(kind, training, fault):
    trial = Trial(kind, training)
    counting = fault(sys.maxsize)
    assert trial.survives(counting)
    places = random.Random(0).sample(range(1, sys.maxsize - counting.left + 1), SOME)
    for place in places:
        trial.survives(fault(place))


@pytest.mark.every
@pytest.mark.parametrize("fault", [Interrupt, OutOfMemory])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_every_place(kind, training, fault):
    trial, place = Trial(kind, training), 1
    while not trial.survives(fault(place)):
        place += 1
    assert place > SOME


@pytest.mark.parametrize("strict", [True, False])
def test_an_export_that_fails(strict):
    class Picky(nn.Linear):
        def forward(self, z):
            if z.shape[0] > 1:
                raise KeyError("a batch of one")
            return super().forward(z)

    block = ct.ODEBlock(Picky(2, 2), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    expected = block(torch.ones(1, 2))
    with pytest.raises(Exception, match="a batch of one"):
        torch.export.export(block, (torch.ones(2, 2),), strict=strict)
    assert block.field.weight.shape == (2, 2, 2)
    assert torch.equal(block(torch.ones(1, 2)), expected)
