"""A block after its field was changed, compiled, or called with other coefficients."""

import collections
import contextlib
import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.func import functional_call

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
from nets import conv_unit, mlp, scrambled

# -- changes between calls ---------------------------------------------------------------------


def other_module(block):
    block.field[0] = copy.deepcopy(block.field[0])
    with torch.no_grad():
        block.field[0].weight.mul_(2)


def other_parameter(block):
    block.field[0].weight = nn.Parameter(block.field[0].weight.detach() * 2)


def other_data(block):
    block.field[0].weight.data = block.field[0].weight.data * 2


def in_place(block):
    with torch.no_grad():
        block.field[0].weight.mul_(2)


def loaded(block, assign):
    state = {name: 2 * value for name, value in block.state_dict().items()}
    block.load_state_dict(state, assign=assign)


CHANGES = {
    "another module": other_module,
    "another activation": lambda block: block.field.__setitem__(1, nn.ReLU()),
    "another parameter": other_parameter,
    "other data": other_data,
    "in place": in_place,
    "loaded": lambda block: loaded(block, False),
    "assigned": lambda block: loaded(block, True),
    "double": lambda block: block.double(),
    "field alone": lambda block: block.field.double(),
    "frozen": lambda block: block.requires_grad_(False),
    "another solver": lambda block: setattr(block, "solver", ct.Euler(steps=STEPS)),
}


@with_and_without_grad
@pytest.mark.parametrize("basis", [None, ct.Fourier(1)], ids=repr)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_calls_is_seen(change, basis, grad):
    block, x = made(mlp(4), basis=basis), inputs()
    with torch.set_grad_enabled(grad):
        before = block(x)
        CHANGES[change](block)
        x = x.to(next(block.parameters()).dtype)
        for _ in range(2):
            after = block(x).detach()
            torch.testing.assert_close(after, by_steps(block, x))
    unchanged = change in ("double", "field alone", "frozen", "another solver")
    assert torch.allclose(after.float(), before) == unchanged


# -- other ways to call ------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(STEPS), ct.Legendre(2)], ids=repr)
def test_compiled_and_exported(basis, training):
    block = made(conv_unit(), basis=basis).train(training)
    twin, x = copy.deepcopy(block), torch.randn(2, 4, 5, 5)
    before = tensors(block)
    program = torch.export.export(copy.deepcopy(block).eval(), (x,))
    torch.compiler.reset()
    compiled = torch.compile(block, fullgraph=True, backend="eager")
    expected = twin(x)
    torch.testing.assert_close(compiled(x), expected)
    expected.sum().backward()
    compiled(x.clone()).sum().backward()
    for p, q in zip(block.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)
    twin.load_state_dict(before)
    torch.testing.assert_close(program.module()(x), twin.eval()(x))
    assert all(p.shape == before[name].shape for name, p in block.named_parameters())


@with_and_without_grad
@every_gradient
def test_functional_call_with_other_coefficients(gradient, grad):
    block, x = made(mlp(4, norm=True), gradient), inputs()
    other = scrambled(copy.deepcopy(block))
    before = tensors(block)
    names = [name for name, _ in other.named_parameters()]
    given = {k: v.clone().requires_grad_(k in names) for k, v in other.state_dict().items()}
    with torch.set_grad_enabled(grad):
        found, expected = functional_call(block, given, (x,)), other(x)
    assert torch.equal(found, expected)
    if grad:
        two = torch.autograd.grad(expected.square().sum(), list(other.parameters()))
        # The backward pass runs after the call: a gradient that evaluates again may refuse.
        allowed = () if isinstance(gradient, ct.Backprop) else (ct.SolveError,)
        with contextlib.suppress(*allowed):
            one = torch.autograd.grad(found.square().sum(), [given[name] for name in names])
            for a, b in zip(one, two, strict=True):
                torch.testing.assert_close(a, b)
    assert same(block, before)


def test_ensembles_and_gradients_of_functions():
    x, members = inputs(), [made(mlp(4, norm=True)) for _ in range(3)]
    members = [scrambled(member) for member in members]
    weights, state = torch.func.stack_module_state(members)
    expected = torch.stack([member(x) for member in members])

    def call(weights, state, x):
        return functional_call(members[0], (weights, state), (x,))

    torch.testing.assert_close(torch.vmap(call, (0, 0, None))(weights, state, x), expected)
    own = dict(members[1].named_parameters())
    loss = torch.func.grad(lambda w: call(w, dict(members[1].named_buffers()), x).sum())
    members[1](x).sum().backward()
    for name, found in loss({k: v.detach() for k, v in own.items()}).items():
        torch.testing.assert_close(found, own[name].grad)


def test_a_field_that_is_compiled_by_itself():
    block = ct.ODEBlock(mlp(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    x = torch.randn(3, 6)
    expected = block(x)
    block.field.compile(backend="eager")
    torch.testing.assert_close(block(x), expected)


class Replaced(nn.Module):
    """State that is replaced at every call, not written in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, z):
        self.mean = 0.9 * self.mean + 0.1 * z.detach().mean(0)
        return z * 0.1


def test_a_compiled_forward_keeps_state_that_is_replaced():
    torch.compiler.reset()
    block = ct.ODEBlock(Replaced(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    other, x = copy.deepcopy(block), torch.randn(3, 6)
    block(x)
    torch.compile(other, backend="eager")(x)
    torch.testing.assert_close(other.field.mean, block.field.mean)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_parts_in_any_container_have_the_weights_of_the_depth(kind):
    class Held(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.ops = kind(a=self.a)

        def forward(self, z):
            return self.ops["a"](z)

    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(Held(), ct.PiecewiseConstant(4), ct.Euler(steps=4)))
    z = x = torch.randn(4, 4)
    for k in range(4):
        z = z + block.at((k + 0.5) / 4).a(z) / 4
    torch.testing.assert_close(block(x), z)


def test_index_tables_reach_samples_of_their_own_depth():
    class Permuted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.register_buffer("order", torch.tensor([2, 0, 3, 1]))

        def forward(self, z):
            return self.weight * z[:, self.order]

    model = ct.AdaptiveDepth(
        ct.ODEBlock(Permuted(), ct.Legendre(2), ct.RK4(steps=2)), nn.Linear(4, 1)
    )
    x = torch.randn(3, 4)
    torch.testing.assert_close(model(x), model(x))


def test_a_frozen_weight_that_is_replaced_is_read():
    field = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False))
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.Euler(steps=2))
    x = torch.randn(3, 4)
    before = block(x)
    block.field[1].weight = nn.Parameter(2 * field[1].weight, requires_grad=False)
    assert not torch.allclose(block(x), before)
    torch.testing.assert_close(block(x), copy.deepcopy(block)(x))


def test_a_solve_keeps_no_weights_alive():
    block = ct.ODEBlock(nn.Linear(4, 4), ct.Fourier(1), ct.RK4(steps=2))
    seen = []
    block.field.register_forward_hook(lambda m, i, o: seen.append(weakref.ref(m.weight)))
    out = block(torch.randn(3, 4))
    assert len(seen) == 8
    del out
    gc.collect()
    assert not any(ref() is not None for ref in seen)


class Choosing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, z):
        self.chosen = self.layers[0]
        return self.chosen(z)


def test_a_part_that_a_forward_names_is_a_part_of_the_field():
    block, x = made(Choosing()), inputs()
    for _ in range(3):
        torch.testing.assert_close(block(x).detach(), by_steps(block, x))
        assert block.field.chosen is block.field.layers[0]


class Looked(nn.Module):
    """A forward that finds its layer in a mapping that is no dictionary, and stores it."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), None
        self.parts = collections.UserDict({"layer": self.layer})

    def forward(self, z):
        self.last = self.parts["layer"]
        return self.last(z)


def test_a_layer_in_another_mapping_and_one_that_a_forward_stores():
    block, x = made(Looked(), basis=ct.Fourier(1)), inputs()
    torch.testing.assert_close(block(x).detach(), by_steps(block, x))
    assert block.field.last is block.field.layer
    assert block.field.parts["layer"] is block.field.layer
