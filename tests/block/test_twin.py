"""A solve leaves the field as it is, and computes what the field would."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import continua as ct
from block.steps import (
    STEPS,
    by_steps,
    every_gradient,
    inputs,
    made,
    same,
    tensors,
    with_and_without_grad,
)
from nets import mlp

# -- hooks -------------------------------------------------------------------------------------


@with_and_without_grad
@every_gradient
@pytest.mark.parametrize("part", ["", "0"])
@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
def test_forward_hooks_see_every_evaluation(kind, part, gradient, grad):
    block, x, fired = made(mlp(4), gradient), inputs(), []
    block(x)  # a twin may exist by now
    place = block.field.get_submodule(part)
    handle = getattr(place, f"register_{kind}_hook")(lambda *_: fired.append(1))
    with torch.set_grad_enabled(grad):
        solution = block.solve(x)
    wanted = solution.stats.evaluations
    assert len(fired) == wanted >= STEPS
    if grad:
        solution.final.sum().backward()
        again = solution.stats.backward
        assert len(fired) == wanted + (0 if again is None else again.evaluations)
    handle.remove()
    before = len(fired)
    block(x)
    assert len(fired) == before


@pytest.mark.parametrize("part", ["", "0", "2"])
@pytest.mark.parametrize("kind", ["full_backward", "full_backward_pre"])
@pytest.mark.parametrize("gradient", [ct.Backprop(), ct.Checkpoint()], ids=repr)
def test_backward_hooks_see_every_evaluation(kind, part, gradient):
    block, x, fired = made(mlp(4), gradient), inputs().requires_grad_(), []
    block(x).sum().backward()
    place = block.field.get_submodule(part)
    getattr(place, f"register_{kind}_hook")(lambda *_: fired.append(1) and None)
    block(x).sum().backward()
    assert len(fired) == STEPS


@with_and_without_grad
def test_a_hook_sees_the_weights_of_the_depth_and_the_coefficients(grad):
    block, seen = made(mlp(4)), []

    def look(module, args, out):
        seen.append((module.weight.shape, block.field[0].weight.shape))
        assert all(len(p) == STEPS for p in block.parameters())
        assert all(len(t) == STEPS for t in block.state_dict().values())

    block.field[0].register_forward_hook(look)
    with torch.set_grad_enabled(grad):
        block(inputs())
    assert set(seen) == {((8, 4), (STEPS, 8, 4))}


@with_and_without_grad
def test_a_hook_may_change_what_it_sees(grad):
    block, x = made(mlp(4)), inputs()
    with torch.set_grad_enabled(grad):
        before = block(x)
        handle = block.field.register_forward_hook(lambda module, args, out: 0 * out)
        assert torch.equal(block(x), x)
        handle.remove()
        assert torch.equal(block(x), before)


@every_gradient
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward"])
@pytest.mark.parametrize("training", [True, False])
def test_a_hook_that_raises_leaves_the_block_as_it_was(kind, gradient, training):
    block, x = made(mlp(4, norm=True), gradient).train(training), inputs().requires_grad_()
    twin, before = copy.deepcopy(block), tensors(block)
    for place in range(1, 3 * STEPS):
        left = [place]

        def fail(*_, left=left):
            left[0] -= 1
            if left[0] == 0:
                raise LookupError("a hook")

        handle = getattr(block.field[1], f"register_{kind}_hook")(fail)
        done = False
        try:
            out = block(x)
            done = True
            out.sum().backward()
        except LookupError:
            pass
        handle.remove()
        if done and training:  # a whole forward pass updates the statistics
            block.load_state_dict(before)
        assert same(block, before), place
    assert torch.equal(block(x), twin(x))


# -- attributes, buffers and modes -------------------------------------------------------------


class Recording(nn.Module):
    """A field that keeps what it sees."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls, self.scale = 0, 1.0
        self.register_buffer("assigned", torch.zeros(2), persistent=False)
        self.register_buffer("written", torch.zeros(2), persistent=False)

    def forward(self, z):
        self.calls += 1
        self.assigned = self.assigned + 1
        self.written.add_(1)
        self.linear.seen = z.detach().clone()
        self.scratch = z
        out = self.scale * self.linear(self.scratch)
        del self.scratch
        return out


@with_and_without_grad
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("basis", [None, ct.Constant(), ct.Fourier(1)], ids=repr)
def test_what_a_forward_sets_is_there_afterwards(training, grad, basis):
    block, x = made(Recording(), basis=basis).train(training), inputs()
    with torch.set_grad_enabled(grad):
        for n in (1, 2, 3):
            block(x)
            assert block.field.calls == n * STEPS
            for table in (block.field.assigned, block.field.written):
                assert torch.equal(table, torch.full((2,), float(n * STEPS)))
            assert block.field.linear.seen.shape == x.shape
            assert not hasattr(block.field, "scratch")
        block.field.scale = 0.0
        assert torch.equal(block(x), x)
    assert isinstance(block.field.linear.weight, nn.Parameter)
    assert "assigned" not in block.state_dict()


def test_a_part_in_evaluation_keeps_its_statistics():
    block, x = made(mlp(4, norm=True)), inputs()
    block(x)
    before = tensors(block)
    block.train()
    block.field[0].eval()
    block(x)
    assert same(block, before)
    block.field[0].train()
    block(x)
    assert not same(block, before)


# -- modules that know their parts by other names ----------------------------------------------


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, z):
        return self.b(torch.tanh(self.a(z)))


class Listed(Pair):
    def __init__(self):
        super().__init__()
        self.parts = [self.a, nn.Tanh(), self.b]

    def forward(self, z):
        for part in self.parts:
            z = part(z)
        return z


class Mapped(Pair):
    def __init__(self):
        super().__init__()
        self.parts = {"deep": ({"a": self.a}, self.b)}

    def forward(self, z):
        first, second = self.parts["deep"]
        return second(torch.tanh(first["a"](z)))


class Method(Pair):
    def __init__(self):
        super().__init__()
        self.act, self.last = self.helper, functools.partial(self.other, factor=2.0)

    def helper(self, z):
        return torch.tanh(self.a(z))

    def other(self, z, factor):
        return factor * self.b(z)

    def forward(self, z):
        return self.last(self.act(z))


class MethodOfAPart(Pair):
    def __init__(self):
        super().__init__()
        self.first, self.second = self.a.forward, self.b.__call__

    def forward(self, z):
        return self.second(torch.tanh(self.first(z)))


class Child(nn.Linear):
    def forward(self, z):
        (owner,) = self.owner
        return owner.b(super().forward(z))


class Family(Pair):
    """A part that knows the whole."""

    def __init__(self):
        super().__init__()
        self.a = Child(4, 4)
        self.a.owner = (self,)

    def forward(self, z):
        return self.a(z)


class Tied(Pair):
    def __init__(self):
        super().__init__()
        self.b.weight = self.a.weight


class Shared(Pair):
    def __init__(self):
        super().__init__()
        self.b = self.a


class Normed(Pair):
    def __init__(self):
        super().__init__()
        self.a, self.b = weight_norm(self.a), spectral_norm(self.b)


KINDS = [Pair, Listed, Mapped, Method, MethodOfAPart, Family, Tied, Shared, Normed]


@with_and_without_grad
@pytest.mark.parametrize("basis", [None, ct.Fourier(1)], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_every_part_has_the_weights_of_the_depth(kind, basis, grad):
    block, x = made(kind().eval(), basis=basis), inputs()
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            torch.testing.assert_close(block(x).detach(), by_steps(block, x))


@every_gradient
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_steps(kind, gradient):
    plain = kind().eval()
    block, x = made(plain, gradient), inputs()
    if isinstance(gradient, ct.Adjoint):
        block.solver = ct.RK4(steps=30 * STEPS)
    block(x).square().sum().backward()
    parts = dict(block.field.named_parameters()) | dict(block.field.named_buffers())
    stacks = {name: parts[name].detach().requires_grad_() for name in block.expansion.bases}
    rules = block.expansion.constraints
    weights, solver = list(block.expansion.weights), block.solver
    z, count = x, solver.steps
    for n in range(count):

        def f(z, n=n):
            own = {name: stack[n * STEPS // count] for name, stack in stacks.items()}
            own |= {name: rules[name](own[name]) for name in rules}
            return functional_call(plain, own, (z,))

        h, k = 1 / count, f(z)
        if isinstance(solver, ct.RK4):
            l = f(z + h / 2 * k)
            m = f(z + h / 2 * l)
            k = (k + 2 * l + 2 * m + f(z + h * m)) / 6
        z = z + h * k
    expected = torch.autograd.grad(z.square().sum(), [stacks[name] for name in weights])
    for name, wanted in zip(weights, expected, strict=True):
        torch.testing.assert_close(parts[name].grad, wanted, rtol=1e-3, atol=1e-4)
    if kind is Tied:
        assert block.field.a.weight is block.field.b.weight


class Helper:
    """An object that refers to a layer and to another object."""

    def __init__(self, layer):
        self.layer, self.calls, self.other = layer, 0, None


class Noting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.notes = {"layer": self.layer, "calls": 0}
        self.first, self.second = Helper(self.layer), Helper(self.layer)
        self.first.other, self.second.other = self.second, self.first

    def forward(self, z):
        self.notes["calls"] += 1
        self.second.other.calls += 1
        return self.notes["layer"](z) + self.first.layer(z)


def test_what_a_forward_notes_beside_a_layer_is_there_afterwards():
    block = ct.ODEBlock(Noting(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    for n in (1, 2):
        block(torch.randn(4, 3)).sum().backward()
        assert (block.field.notes["calls"], block.field.first.calls) == (2 * n, 2 * n)
    assert block.field.notes["layer"] is block.field.layer
    block.field.notes["calls"] = 10
    block(torch.randn(4, 3))
    assert block.field.notes["calls"] == 12
