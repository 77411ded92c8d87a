"""Solves that need no graph: what is kept from one to the next, and that nobody notices."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

import continua as ct
from block.inference import X, anew, made
from nets import scrambled


def test_a_constant_is_the_same_at_every_evaluation(without_graph):
    block = made(4, ct.Constant())
    with without_graph():
        outputs = [block(X) for _ in range(2)]
    assert torch.equal(*outputs)
    torch.testing.assert_close(outputs[0].clone(), anew(block))


def test_evaluations_are_counted_all_the_same():
    block = made()
    with torch.no_grad():
        block(X)
        with ct.count_evaluations(block) as count:
            block(X)
    assert (count.forward, count.solves) == (3, 1)


def test_mixed_precision_goes_the_usual_way():
    block = made()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert block(X.bfloat16()).dtype is torch.float32


def test_blocks_share_their_grid():
    one, two = (ct.ODEBlock(nn.Linear(2, 2), ct.Fourier(1), ct.Heun(steps=11)) for _ in range(2))
    assert one.plan is two.plan
    assert copy.deepcopy(one).plan is one.plan


def test_a_block_trains_after_an_evaluation_in_inference_mode():
    field = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))
    for basis in (ct.Fourier(1), ct.PiecewiseConstant(5)):
        with torch.inference_mode():  # one is made there, of a grid that others share
            ct.ODEBlock(copy.deepcopy(field), basis, ct.Heun(steps=7))
        block = ct.ODEBlock(copy.deepcopy(field), basis, ct.Heun(steps=7))
        with torch.inference_mode():
            block.eval()(torch.randn(4, 3))
        block.train()(torch.randn(4, 3)).sum().backward()
        assert all(p.grad is not None for p in block.parameters())


def step(block):
    for parameter in block.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(block.parameters(), 0.1).step()


def behind_autograd(block):
    for tensor in (*block.parameters(), block.field[0].running_mean, block.field[0].running_var):
        tensor.data.mul_(1.1)


def exchange_memory(block):
    for parameter in block.parameters():
        parameter.data = parameter.data * 0.9


def exchange_tensors(block):
    block.field[2].weight = nn.Parameter(block.field[2].weight.detach() * 0.9)


def load(block):
    block.load_state_dict({k: v + 1 for k, v in block.state_dict().items()})


def below_zero(block):
    block.field[0].running_var.data[0] = 4.0
    block.field[0].running_var.data[1] = -1.0


def train(block):
    block.train()(X + 1)
    block.eval()


def double(block):
    block.double()


def fewer_steps(block):
    block.solver = ct.Euler(steps=2)


def turn_in_memory(block):
    weight = block.field[2].weight
    weight.data = weight.data.transpose(-1, -2)


def another_field(block):
    block.field = scrambled(made()).field


def another_part(block):
    block.field[0] = scrambled(made()).field[0].eval()


CHANGES = [
    step, behind_autograd, exchange_memory, exchange_tensors, load, below_zero, train, double,
    fewer_steps, turn_in_memory, another_field, another_part,
]  # fmt: skip


@pytest.mark.parametrize("steps", [3, 5])
@pytest.mark.parametrize("change", CHANGES)
def test_a_later_solve_sees_every_change(change, steps, without_graph):
    block = made(steps)
    with without_graph():
        before = block(X)
    change(block)
    with without_graph():
        after = block(X.to(block.field[0].weight.dtype))
    torch.testing.assert_close(after.clone(), anew(block))
    if change is not double:
        assert not torch.equal(after, before)


def test_tensors_lent_for_a_call_are_not_kept():
    block = made()
    with torch.no_grad():
        plain = block(X)
        lent = {name: value.detach() * 0.9 for name, value in block.named_parameters()}
        other = torch.func.functional_call(block, lent, (X,))
        assert torch.equal(block(X), plain)
    assert not torch.equal(other, plain)


def test_statistics_lent_in_a_batch():
    block = made()
    means = torch.stack([block.field[0].running_mean * n for n in (1.0, 2.0)])

    def call(mean):
        return torch.func.functional_call(block, {"field.0.running_mean": mean}, (X,))

    with torch.no_grad():
        block(X)
        found = torch.vmap(call)(means)
        torch.testing.assert_close(found[0], block(X))
        torch.testing.assert_close(found[1], call(means[1]))


def test_a_copy_of_a_compiled_block_is_no_view_of_it():
    block = made()
    block.compile(backend="eager")
    with torch.no_grad():
        block(X)
        for other in (copy.deepcopy(block), ct.refine(block), pickle.loads(pickle.dumps(block))):
            for parameter in other.parameters():
                parameter.zero_()
            assert torch.equal(other(X), X)


class Overwriting(nn.Module):
    """A field that overwrites its state in evaluation mode, too."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("level", torch.zeros(4))

    def forward(self, z):
        self.level += z.mean(0)
        return z + self.weight * self.level


@pytest.mark.parametrize("steps", [3, 4])
def test_state_that_an_evaluation_overwrites_is_read_again(steps, without_graph):
    block = ct.ODEBlock(Overwriting(), ct.PiecewiseConstant(3), ct.Euler(steps=steps)).eval()
    with without_graph():
        outputs = torch.stack([block(X[:, :4, 0, 0]) for _ in range(3)])
    assert torch.equal(outputs, outputs[:1].expand_as(outputs))
    assert not block.field.level.any()


def test_a_block_that_is_converted_frees_its_old_memory():
    block = made()
    with torch.no_grad():
        block(X)
    memory = StorageWeakRef(block.field[2].weight.untyped_storage())
    block.double()
    assert memory.expired()


def test_nothing_keeps_a_block_alive():
    block = made()
    with torch.no_grad():
        block(X)
    weight = weakref.ref(block.field[2].weight)
    gc.disable()
    try:
        del block
        assert weight() is None
    finally:
        gc.enable()


def test_torch_may_exchange_the_parameters():
    block, other = made(), made()
    with torch.no_grad():
        before = block(X)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        block.load_state_dict(other.state_dict())
        with torch.no_grad():
            block(X)
        block.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    with torch.no_grad():
        torch.testing.assert_close(block(X.double()).float(), before)


@pytest.mark.parametrize("steps", [3, 4])
def test_spectral_norm_reads_vectors_of_unit_length(steps, without_graph):
    torch.manual_seed(0)
    field = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    block = scrambled(ct.ODEBlock(field, ct.PiecewiseConstant(3), ct.Euler(steps=steps))).eval()
    x = torch.randn(2, 4)
    with without_graph():
        outputs = [block(x) for _ in range(2)]
    assert torch.equal(*outputs)
    torch.testing.assert_close(outputs[0].clone(), block(x).detach())
