"""Life as a module."""

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import prune

import continua as ct
from continua.basis import FAMILIES
from continua.solve import SOLVERS
from nets import conv_unit, mlp, scrambled


def test_inside_sequential_with_a_plain_optimizer_it_learns():
    torch.manual_seed(0)
    x = torch.randn(64, 6)
    y = torch.roll(x, 1, dims=1)
    model = nn.Sequential(
        nn.Linear(6, 6),
        ct.ODEBlock(mlp(norm=True), ct.Fourier(1), ct.RK4(steps=3)),
        nn.Linear(6, 6),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("solver", SOLVERS.values())
def test_gradients_in_double_precision(family, solver):
    torch.manual_seed(0)
    block = ct.ODEBlock(mlp(2).double(), FAMILIES[family].of_size(3), solver(steps=2))
    scrambled(block)
    x = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    names, values = zip(*block.named_parameters(), strict=True)

    def f(x, *values):
        return torch.func.functional_call(block, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(f, (x, *values))


def test_copies_are_independent():
    block = scrambled(ct.ODEBlock(conv_unit(), ct.BSpline(5), ct.RK4(steps=2)))
    twin = copy.deepcopy(block)
    x = torch.randn(2, 4, 5, 5)
    twin(x)  # trains only the twin's state
    assert not torch.equal(twin.field[0].running_mean, block.field[0].running_mean)
    block.eval()
    twin.load_state_dict(block.state_dict())
    torch.testing.assert_close(twin.eval()(x), block(x), rtol=0, atol=0)


def test_the_wrapped_module_is_untouched():
    module = conv_unit()
    before = copy.deepcopy(module.state_dict())
    block = ct.ODEBlock(module, ct.PiecewiseConstant(3), ct.Euler(steps=3))
    block(torch.randn(2, 4, 5, 5)).sum().backward()
    assert all(torch.equal(module.state_dict()[name], value) for name, value in before.items())
    assert all(p.grad is None for p in module.parameters())


def test_precision_survives_a_trip_through_half():
    """The plan of a block is kept exactly, not converted back and forth with its weights."""
    block = ct.ODEBlock(mlp().double(), ct.Fourier(3), ct.RK4(steps=3))
    reference = copy.deepcopy(block)
    block.to(torch.bfloat16).to(torch.float64)
    for mine, exact in zip(block.buffers(), reference.buffers(), strict=True):
        assert torch.equal(mine, exact)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_to_dtype(dtype):
    block = ct.ODEBlock(conv_unit(), ct.Legendre(3), ct.RK4(steps=2)).to(dtype)
    y = block(torch.randn(2, 4, 5, 5, dtype=dtype))
    assert y.dtype == dtype
    assert y.isfinite().all()


def test_the_bases_of_a_block():
    buckets = ct.PiecewiseConstant(2)
    block = ct.ODEBlock(
        conv_unit(), ct.Fourier(1), state_basis={"*mean": ct.Constant(), "*": buckets}
    )
    assert block.basis == ct.Fourier(1)
    names = ("0.running_mean", "0.running_var", "3.running_mean", "3.running_var")
    assert block.state_basis == dict(zip(names, [ct.Constant(), buckets] * 2, strict=True))
    assert ct.ODEBlock(conv_unit(), buckets).state_basis == buckets
    mixed = ct.ODEBlock(nn.Linear(2, 2), {"bias": ct.Constant(), "*": buckets})
    assert mixed.basis == {"weight": buckets, "bias": ct.Constant()}
    assert mixed.state_basis == {}


def test_meta_device():
    block = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.Euler(steps=2)).to("meta")
    assert block(torch.empty(2, 4, 5, 5, device="meta")).shape == (2, 4, 5, 5)


def test_autocast_sums_the_steps_in_single_precision():
    torch.manual_seed(0)
    block = ct.ODEBlock(
        conv_unit(), ct.Fourier(1), ct.RK4(steps=2), state_basis=ct.PiecewiseConstant(2)
    )
    scrambled(block).eval()
    x = torch.randn(2, 4, 5, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = block(x)
        z = block(x.to(torch.bfloat16))
    assert y.dtype == z.dtype == torch.float32
    torch.testing.assert_close(y, block(x), rtol=0.05, atol=0.05)
    y.sum().backward()


def test_no_grad_and_inference_mode():
    block = ct.ODEBlock(conv_unit(), ct.Fourier(1), ct.Euler(steps=2))
    x = torch.randn(2, 4, 5, 5)
    with torch.no_grad():
        assert not block(x).requires_grad
    assert block.field[0].num_batches_tracked == 1
    with torch.inference_mode():
        block.eval()(x)


def test_two_forwards_before_one_backward_and_accumulation():
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.Heun(steps=2)).double())
    a, b = torch.randn(2, 2, 4, 5, 5, dtype=torch.float64)
    twin = copy.deepcopy(block)
    (block(a).square().sum() + block(b).square().sum()).backward()
    twin(a).square().sum().backward()
    twin(b).square().sum().backward()
    for p, q in zip(block.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def test_an_evaluation_forward_survives_a_later_training_forward():
    block = scrambled(ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.Euler(steps=2)))
    x = torch.randn(2, 4, 5, 5)
    y = block.eval()(x)
    block.train()(x)
    y.sum().backward()


@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(2), ct.Fourier(1)], ids=repr)
def test_channels_last_stays(basis):
    block = ct.ODEBlock(conv_unit(8), basis, ct.RK4(steps=2))
    x = torch.randn(2, 8, 6, 6)
    expected = block.eval()(x)
    block = block.to(memory_format=torch.channels_last)
    kernels = block.at(0.3)[2].weight
    assert block.field[2].weight[0].is_contiguous(memory_format=torch.channels_last)
    y = block(x.to(memory_format=torch.channels_last))
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert kernels.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(2), ct.Fourier(1)], ids=repr)
@pytest.mark.parametrize("training", [True, False])
def test_compiles_as_one_graph(basis, training):
    torch.manual_seed(0)
    model = nn.Sequential(ct.ODEBlock(conv_unit(), basis, ct.RK4(steps=2)), nn.Flatten())
    model.train(training)
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(compiled(x), twin(x), rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


GRID = [kind(steps=2) for kind in SOLVERS.values()]


@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(3), ct.Fourier(1)], ids=repr)
@pytest.mark.parametrize("solver", GRID, ids=repr)
def test_every_fixed_grid_is_one_graph(solver, basis):
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(mlp(), basis, solver)).eval()
    x = torch.randn(3, 6)
    torch.compiler.reset()  # each solver counts as a recompilation of the same code
    compiled = torch.compile(block, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), block(x), rtol=1e-5, atol=1e-5)
    program = torch.export.export(block, (x,))
    torch.testing.assert_close(program.module()(x), block(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(2), ct.BSpline(4)], ids=repr)
def test_exports_with_a_dynamic_batch(basis):
    model = nn.Sequential(ct.ODEBlock(conv_unit(), basis, ct.RK4(steps=2)), nn.Flatten()).eval()
    x = torch.randn(2, 4, 5, 5)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    other = torch.randn(5, 4, 5, 5)
    torch.testing.assert_close(program.module()(other), model(other), rtol=1e-5, atol=1e-5)


def test_under_function_transforms():
    block = scrambled(ct.ODEBlock(mlp(3).double(), ct.Fourier(1), ct.RK4(steps=2)))
    x = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(block)(x), block(x))
    jacobian = torch.func.jacrev(block)(x[0])
    torch.testing.assert_close(jacobian, torch.func.jacfwd(block)(x[0]))
    _, tangent = torch.func.jvp(block, (x[0],), (torch.ones_like(x[0]),))
    torch.testing.assert_close(tangent, jacobian.sum(1))


@pytest.mark.parametrize("training", [True, False])
def test_the_same_call_is_compiled_once(training):
    torch._dynamo.reset()
    block = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.RK4(steps=2)).train(training)
    counter = CompileCounter()
    compiled = torch.compile(block, backend=counter)
    with torch.set_grad_enabled(training):
        for _ in range(3):
            compiled(torch.randn(2, 4, 5, 5))
    assert counter.frame_count == 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("grad", [True, False])
def test_weights_assigned_to_a_block_without_memory(family, grad):
    """The way of large models: built on the meta device, filled from a file."""
    basis = FAMILIES[family].of_size(4)

    def made():
        field = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4))
        return ct.ODEBlock(field, basis, ct.Euler(steps=4))

    source = made()
    source(torch.randn(32, 4) * 3 + 1)
    with torch.device("meta"):
        block = made()
    block.load_state_dict(source.state_dict(), assign=True)
    x = torch.randn(2, 4)
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(block.eval()(x), source.eval()(x))
    block.train()(x)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_field_that_is_converted_by_itself(family):
    block = ct.ODEBlock(nn.Linear(4, 4), FAMILIES[family].of_size(4), ct.RK4(steps=3))
    whole = copy.deepcopy(block).double()
    block.field.double()
    x = torch.randn(2, 4, dtype=torch.float64)
    torch.testing.assert_close(block(x), whole(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        lambda field: prune.l1_unstructured(field[1], "weight", 0.5),
        lambda field: nn.utils.parametrizations.weight_norm(field[1]),
        lambda field: setattr(field, "1", nn.Sequential(field[1])),
        lambda field: setattr(field[0], "running_mean", None),
    ],
    ids=["pruned", "weight norm", "nested", "without statistics"],
)
def test_a_field_that_lost_a_tensor_is_named(change):
    field = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4))
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.Euler(steps=2)).eval()
    change(block.field)
    with pytest.raises(ct.ModuleError, match="any more"):
        block(torch.randn(2, 4))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_an_exception_of_a_users_own_is_handed_on(grad, known):
    class FullError(ValueError):
        pass

    class Choosy(nn.Module):
        def forward(self, z):
            if z.max() > 1:
                raise FullError("of it")
            return z

    block = ct.ODEBlock(Choosy(), solver=ct.Euler(steps=4)).eval()
    with torch.set_grad_enabled(grad):
        if known:
            block(torch.zeros(1, 2))
        for start in (0.7, 2.0):  # in a later evaluation, in the first
            with pytest.raises(FullError):
                block(torch.full((1, 2), start))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("grad", [True, False])
def test_operations_can_be_recorded(mode, grad):
    block = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.Euler(steps=2)).eval()
    x = torch.randn(1, 4, 5, 5)
    with torch.set_grad_enabled(grad):
        block(x)
        graph = make_fx(block, tracing_mode=mode, _allow_non_fake_inputs=True)(x)
        torch.testing.assert_close(graph(x), block(x))
