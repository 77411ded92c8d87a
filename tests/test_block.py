"""The block as its users meet it."""

import copy
import math

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from continua.solve import SOLVERS
from nets import conv_unit, mlp, scrambled

FLOAT_BINNING_FAILS = (7, 9, 12, 14, 17, 18, 19, 21, 49)  # SPEC 1.15.1


def example_basis(name: str, size: int = 5) -> ct.Basis:
    return FAMILIES[name].of_size(size)


# -- a ResNet is a special case ----------------------------------------------------------------


@pytest.mark.parametrize("steps", range(1, 50))
def test_euler_with_one_bucket_per_step_is_a_resnet(steps):
    torch.manual_seed(steps)
    block = scrambled(
        ct.ODEBlock(
            mlp(4, norm=True).double(),
            ct.PiecewiseConstant(steps),
            ct.Euler(steps=steps),
            span=(0, steps),
        )
    )
    layers = [block.at(k + 0.5) for k in range(steps)]
    x = torch.randn(16, 4, dtype=torch.float64)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()

    y = block(ours)
    z = theirs
    for layer in layers:
        z = z + layer(z)
    torch.testing.assert_close(y, z, rtol=1e-10, atol=0)

    y.square().sum().backward()
    z.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-12)
    for name, stack in block.field.named_parameters():
        rows = torch.stack([layer.get_parameter(name).grad for layer in layers])
        torch.testing.assert_close(stack.grad, rows, rtol=1e-8, atol=1e-12 * rows.abs().max())
    for name, stack in block.field.named_buffers():
        rows = [layer.get_buffer(name) for layer in layers]
        if stack.is_floating_point():
            torch.testing.assert_close(stack, torch.stack(rows), rtol=1e-12, atol=0)
        else:
            assert all(torch.equal(stack, row) for row in rows)


@pytest.mark.parametrize("steps", [1, 3, *FLOAT_BINNING_FAILS])
def test_the_convolutional_resnet_in_single_precision(steps):
    torch.manual_seed(0)
    block = scrambled(
        ct.ODEBlock(
            conv_unit(), ct.PiecewiseConstant(steps), ct.Euler(steps=steps), span=(0, steps)
        )
    )
    layers = [block.at(k + 0.5) for k in range(steps)]
    x = torch.randn(4, 4, 6, 6)
    y, z = block(x), x
    for layer in layers:
        z = z + layer(z)
    torch.testing.assert_close(y, z, rtol=1e-6, atol=0)
    y.square().mean().backward()
    z.square().mean().backward()
    for name, stack in block.field.named_parameters():
        rows = torch.stack([layer.get_parameter(name).grad for layer in layers])
        assert (stack.grad - rows).norm() <= 1e-6 * rows.norm()
    for name in block.expansion.state:
        rows = torch.stack([layer.get_buffer(name) for layer in layers])
        torch.testing.assert_close(block.field.get_buffer(name), rows, rtol=1e-6, atol=0)


# -- state -------------------------------------------------------------------------------------


def test_state_is_left_alone_in_evaluation_mode():
    block = scrambled(ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(3), ct.RK4(steps=3))).eval()
    before = copy.deepcopy(block.state_dict())
    block(torch.randn(2, 4, 5, 5))
    assert all(torch.equal(value, before[name]) for name, value in block.state_dict().items())


def test_a_bucket_gets_the_mean_of_what_its_stages_left():
    """SPEC 1.4: with buckets the least-squares update is the mean over the stages of a cell."""
    torch.manual_seed(0)
    block = ct.ODEBlock(nn.BatchNorm1d(3).double(), ct.PiecewiseConstant(2), ct.RK4(steps=2))
    block = scrambled(block)
    seen: list[tuple[int, torch.Tensor]] = []
    bn = block.field
    start = bn.running_mean.clone()

    def record(module, inputs, output):
        seen.append((len(seen) // 4, module.running_mean.clone()))

    handle = bn.register_forward_hook(record)
    block(torch.randn(8, 3, dtype=torch.float64))
    handle.remove()
    for cell in range(2):
        left = torch.stack([value for c, value in seen if c == cell])
        assert len(left) == 4
        torch.testing.assert_close(bn.running_mean[cell], left.mean(0))
    assert not torch.equal(bn.running_mean, start)
    assert bn.num_batches_tracked == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_the_update_is_the_least_squares_fit_nearest_to_the_old_state(family):
    torch.manual_seed(0)
    basis = example_basis(family)
    block = scrambled(ct.ODEBlock(nn.BatchNorm1d(3).double(), basis, ct.Midpoint(steps=3)))
    bn, sigma = block.field, block.field.running_mean.clone()
    left = []
    handle = bn.register_forward_hook(lambda m, i, o: left.append(m.running_mean.clone()))
    block(torch.randn(8, 3, dtype=torch.float64))
    handle.remove()
    stages = [
        ct.basis.Point(float(stage.depth), stage.side) for stage in block.solver.stages((0, 1))
    ]
    expected = ct.fit(basis, stages, torch.stack(left), prior=sigma)
    phi = ct.basis.sample(basis, stages)
    # Compared as functions: nearly dependent bases have large coefficients that cancel.
    torch.testing.assert_close(phi @ bn.running_mean, phi @ expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_fewer_stages_than_functions_leave_no_nan_and_no_negative_variance(family, steps):
    torch.manual_seed(0)
    block = ct.ODEBlock(conv_unit(), example_basis(family, 9), ct.Euler(steps=steps))
    scrambled(block)
    for _ in range(3):
        block(3 * torch.randn(4, 4, 5, 5))
    for buffer in block.field.buffers():
        assert buffer.isfinite().all()
    for s in torch.linspace(0, 1, 23).tolist():
        module = block.at(s)
        assert (module[0].running_var >= 0).all()
        assert (module[3].running_var >= 0).all()


def test_buckets_that_no_stage_saw_keep_their_value():
    block = scrambled(ct.ODEBlock(nn.BatchNorm1d(3), ct.PiecewiseConstant(8), ct.Euler(steps=2)))
    before = block.field.running_var.clone()
    block(torch.randn(8, 3))
    changed = [not torch.equal(a, b) for a, b in zip(before, block.field.running_var, strict=True)]
    assert changed == [True, False, False, False, True, False, False, False]


def test_frozen_batch_norm_does_not_drift():
    block = scrambled(ct.ODEBlock(conv_unit(), ct.Fourier(2), ct.RK4(steps=3))).train()
    for module in block.field.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    before = {name: block.field.get_buffer(name).clone() for name in block.expansion.state}
    for _ in range(5):
        block(torch.randn(2, 4, 5, 5))
    assert all(torch.equal(block.field.get_buffer(n), value) for n, value in before.items())


def test_cumulative_batch_norm_counts_once_per_forward():
    """momentum=None averages over all forwards: the count must not run with the stages."""
    block = ct.ODEBlock(nn.BatchNorm1d(2, momentum=None), ct.PiecewiseConstant(2), ct.Heun(steps=2))
    for n in range(1, 4):
        block(torch.randn(8, 2))
        assert block.field.num_batches_tracked == n


def test_state_may_have_a_basis_of_its_own():
    block = ct.ODEBlock(
        conv_unit(), ct.Fourier(3), ct.RK4(steps=4), state_basis=ct.PiecewiseConstant(2)
    )
    block(torch.randn(2, 4, 5, 5))
    assert block.field[0].weight.shape[0] == 7
    assert block.field[0].running_var.shape[0] == 2
    assert "state_basis=PiecewiseConstant(2)" in repr(block)


def test_a_failed_forward_leaves_weights_and_state_as_they_were():
    class FailsLate(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.calls = 0

        def forward(self, z):
            self.calls += 1
            if self.calls == 3:
                raise KeyError("late")
            return self.norm(z)

    block = ct.ODEBlock(FailsLate(), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    before = copy.deepcopy(block.state_dict())
    with pytest.raises(KeyError, match="late"):
        block(torch.randn(4, 3))
    after = block.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert isinstance(block.field.norm.weight, nn.Parameter)


# -- life as a module --------------------------------------------------------------------------


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
    block = ct.ODEBlock(mlp(2).double(), example_basis(family, 3), solver(steps=2))
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


# -- solve, at, repr ---------------------------------------------------------------------------


def test_solve_saves_where_asked_and_counts():
    block = scrambled(ct.ODEBlock(mlp().double(), ct.PiecewiseConstant(4), ct.RK4(steps=4)))
    x = torch.randn(3, 6, dtype=torch.float64)
    solution = block.solve(x, save_at=[0.0, 0.25, 0.6, 1.0])
    assert solution.z.shape == (4, 3, 6)
    assert solution.s.tolist() == [0.0, 0.25, 0.6, 1.0]
    assert torch.equal(solution.z[0], x)
    torch.testing.assert_close(solution.z[-1], block(x))
    torch.testing.assert_close(solution.final, block(x))
    assert (solution.stats.evaluations, solution.stats.steps) == (16, 4)
    grid = block.solve(x, save_at="steps")
    assert grid.s.tolist() == [0, 0.25, 0.5, 0.75, 1]
    torch.testing.assert_close(grid.z[1], solution.z[1])
    assert block.solve(x).z.shape == (1, 3, 6)


@pytest.mark.parametrize("family", FAMILIES)
def test_solving_backward_undoes_solving_forward(family):
    torch.manual_seed(0)
    field = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double()
    block = scrambled(ct.ODEBlock(field, example_basis(family, 4), ct.RK4(steps=24), span=(0, 2)))
    x = torch.randn(4, 3, dtype=torch.float64)
    back = block.solve(block(x), span=(2, 0))
    torch.testing.assert_close(back.final, x, rtol=0, atol=1e-3)


def test_a_backward_span_reads_the_same_functions():
    forward = scrambled(ct.ODEBlock(mlp(3), ct.PiecewiseConstant(3), ct.Euler(steps=3)))
    backward = ct.ODEBlock(mlp(3), ct.PiecewiseConstant(3), ct.Euler(steps=3), span=(1, 0))
    backward.load_state_dict(forward.state_dict())
    x = torch.randn(2, 3)
    z = x
    for cell in (2, 1, 0):
        z = z - forward.at((cell + 0.5) / 3)(z) / 3
    torch.testing.assert_close(backward(x), z)
    torch.testing.assert_close(forward.solve(x, span=(1, 0)).final, z)


def test_part_of_a_span():
    block = scrambled(ct.ODEBlock(mlp(3).double(), ct.PiecewiseConstant(2), ct.Euler(steps=4)))
    x = torch.randn(2, 3, dtype=torch.float64)
    half = block.solve(x, span=(0, 0.5)).final
    both = block.solve(half, span=(0.5, 1)).final
    fine = ct.compress(block, steps=8)(x)
    torch.testing.assert_close(both, fine)


@pytest.mark.parametrize("family", FAMILIES)
def test_at_reads_the_functions_of_depth(family):
    basis = example_basis(family)
    block = scrambled(ct.ODEBlock(conv_unit(), basis, ct.RK4(steps=2), span=(-1, 3)))
    for s in (-1.0, 0.2, 3.0):
        module = block.at(s)
        phi = basis(torch.tensor((s + 1) / 4, dtype=torch.float64)).float()
        expected = torch.tensordot(phi, block.field[2].weight, dims=1)
        torch.testing.assert_close(module[2].weight, expected, rtol=1e-5, atol=1e-6)
        assert isinstance(module[2].weight, nn.Parameter)
        module(torch.randn(2, 4, 5, 5))


def test_at_a_jump_takes_the_side_that_is_asked_for():
    block = scrambled(ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(2), ct.Euler(steps=2)))
    assert torch.equal(block.at(0.5).weight, block.field.weight[1])
    assert torch.equal(block.at(0.5, side="left").weight, block.field.weight[0])


def test_a_field_sees_depth_and_input():
    class Relax(ct.Field):
        def forward(self, s, z, x):
            assert s.shape == ()
            return s * (x - z) + 1

    block = ct.ODEBlock(Relax().double(), solver=ct.RK4(steps=50), span=(0, 2))
    x = torch.ones(1, 2, dtype=torch.float64)
    # z - x satisfies u' = 1 - s u, u(0) = 0: Dawson's integral
    s = torch.linspace(0, 2, 20001, dtype=torch.float64)
    dawson = math.exp(-2) * torch.trapezoid(torch.exp(s.square() / 2), s)
    torch.testing.assert_close(block(x), x + dawson, rtol=1e-6, atol=0)


def test_further_arguments_reach_every_evaluation():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, z, gate, *, scale=1.0):
            return gate * self.linear(z) * scale

    block = ct.ODEBlock(Gated(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    x, gate = torch.randn(4, 3), torch.zeros(4, 3)
    assert torch.equal(block(x, gate), x)
    torch.testing.assert_close(block(x, gate + 1, scale=0.5), block(x, gate + 0.5))


def test_repr_says_what_it_is():
    text = repr(ct.ODEBlock(mlp(norm=True), ct.PiecewiseConstant(8), ct.Euler(steps=8)))
    for part in ("PiecewiseConstant(8)", "Euler(steps=8)", "parameters=976", "state=96", "Linear"):
        assert part in text
    mixed = ct.ODEBlock(mlp(), {"0.*": ct.Fourier(2), "*": ct.Constant()}, ct.RK4(steps=1))
    assert "Fourier(2, period=1.0) for 2, Constant() for 2" in repr(mixed)


def test_another_solver_may_be_assigned_but_no_other_span():
    block = scrambled(ct.ODEBlock(mlp(), ct.Fourier(2), ct.RK4(steps=8)))
    x = torch.randn(2, 6)
    expected = ct.compress(block, solver=ct.Euler(steps=4))(x)
    block.solver = ct.Euler(steps=4)
    torch.testing.assert_close(block(x), expected)
    with pytest.raises(AttributeError):
        block.span = (0, 2)


def test_a_fixed_grid_that_overflows_says_so():
    class Blows(nn.Module):
        def forward(self, z):
            return 1e30 * z * z

    block = ct.ODEBlock(Blows(), solver=ct.Euler(steps=4))
    x = torch.ones(3, 2)
    assert block.solve(x, raise_on_failure=False).status is ct.Status.NON_FINITE
    with bad("not finite", ct.SolveError):
        block.solve(x)


# -- bad input ---------------------------------------------------------------------------------


def bad(match, error=ct.ContinuaError):
    return pytest.raises(error, match=match)


def test_bad_states():
    block = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    x = torch.randn(2, 4, 5, 5)
    before = copy.deepcopy(block.state_dict())
    with bad(r"floating-point, not torch.int64"):
        block(torch.ones(2, 4, 5, 5, dtype=torch.int64))
    with bad(r"3 NaN of 400 values, first in sample 1"):
        y = torch.randn(4, 4, 5, 5)
        y[1, 0, 0, :3] = math.nan
        block(y)
    with bad("infinite"):
        block(x / 0)
    with bad(r"torch.float64 but the block's weights are torch.float32"):
        block(x.double())
    with bad(r"Sequential fails on a state of shape \[2, 4\]"):
        block(torch.randn(2, 4))
    with bad(r"Sequential fails on a state of shape \[2, 3, 5, 5\]"):
        block(torch.randn(2, 3, 5, 5))
    with bad("a tensor, or a tuple or dictionary of tensors, not list"):
        block([1.0])
    with bad("on meta but the block's weights are on cpu"):
        block(x.to("meta"))
    assert all(torch.equal(block.state_dict()[name], value) for name, value in before.items())


def test_bad_fields():
    with bad(r"Linear maps a state of shape \[5, 3\] to \[5, 4\]", ct.ShapeError):
        ct.ODEBlock(nn.Linear(3, 4), solver=ct.Euler(steps=1))(torch.randn(5, 3))

    class Pair(nn.Module):
        def forward(self, z):
            return z, z

    with bad("Pair returned tuple"):
        ct.ODEBlock(Pair(), solver=ct.Euler(steps=1))(torch.randn(5, 3))
    with bad("not function"):
        ct.ODEBlock(lambda z: z)
    with bad("in place; a solver needs that state again: use inplace=False"):
        ct.ODEBlock(nn.ReLU(inplace=True), solver=ct.Euler(steps=1))(torch.randn(5, 3))
    with bad("contains an ODEBlock"):
        ct.ODEBlock(nn.Sequential(ct.ODEBlock(mlp()), nn.Tanh()))


def test_bad_arguments():
    with bad("at least 1, not 0"):
        ct.Euler(steps=0)
    with bad("at least 1, got -3"):
        ct.PiecewiseConstant(-3)
    with bad("even: use 4 or 6, not 5"):
        ct.DiscontinuousLinear(5)
    with bad("such as continua.RK4"):
        ct.ODEBlock(mlp(), solver=ct.RK4)
    with bad("not 'rk4'"):
        ct.ODEBlock(mlp(), solver="rk4")
    with bad("which is not a basis"):
        ct.ODEBlock(mlp(), ct.PiecewiseConstant)
    with bad("from one finite depth to another"):
        ct.ODEBlock(mlp(), span=(1, 1))
    with bad("from one finite depth to another"):
        ct.ODEBlock(mlp(), span=(0, math.inf))
    with bad("pair of depths"):
        ct.ODEBlock(mlp(), span=3)
    with bad("'copy' or 'independent'"):
        ct.ODEBlock(mlp(), init="zeros")


def test_bad_depths():
    block = ct.ODEBlock(mlp(), solver=ct.Euler(steps=2))
    x = torch.randn(2, 6)
    with bad("list of depths, not 0.5"):
        block.solve(x, save_at=0.5)
    with bad("finite number, not '0.5'"):
        block.at("0.5")
    with bad("function or a module, not 3"):
        block.solve(x, running_cost=3)
    with bad("depth 1.5, outside the span"):
        block.solve(x, save_at=[0.5, 1.5])
    with bad("sort it"):
        block.solve(x, save_at=[0.7, 0.5])
    with bad("save_at is a list of depths, or 'steps'"):
        block.solve(x, save_at="all")
    with bad("finite number"):
        block.at(math.nan)
    with bad("finite depth"):
        block.solve(x, span=(0, 0))
