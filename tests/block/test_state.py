"""State over depth."""

import copy

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from nets import conv_unit, scrambled


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
    basis = FAMILIES[family].of_size(5)
    block = scrambled(ct.ODEBlock(nn.BatchNorm1d(3).double(), basis, ct.Midpoint(steps=3)))
    bn, sigma = block.field, block.field.running_mean.clone()
    left = []
    handle = bn.register_forward_hook(lambda m, i, o: left.append(m.running_mean.clone()))
    block(torch.randn(8, 3, dtype=torch.float64))
    handle.remove()
    stages = [
        ct.basis.Point(float(stage.depth), stage.side) for stage in block.solver.stages((0, 1))
    ]
    expected = ct.fit_coefficients(basis, stages, torch.stack(left), prior=sigma)
    phi = ct.basis.sample(basis, stages)
    # Compared as functions: nearly dependent bases have large coefficients that cancel.
    torch.testing.assert_close(phi @ bn.running_mean, phi @ expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_fewer_stages_than_functions_leave_no_nan_and_no_negative_variance(family, steps):
    torch.manual_seed(0)
    block = ct.ODEBlock(conv_unit(), FAMILIES[family].of_size(9), ct.Euler(steps=steps))
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
    with pytest.warns(UserWarning, match="reads 2 of the 8 buckets"):
        block = ct.ODEBlock(nn.BatchNorm1d(3), ct.PiecewiseConstant(8), ct.Euler(steps=2))
    before = scrambled(block).field.running_var.clone()
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


@pytest.mark.parametrize("grad", [True, False])
def test_a_norm_that_trains_in_a_block_in_evaluation_updates_its_statistics(grad):
    field = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.Euler(steps=2)).eval()
    block.field[0].train()
    x, norm = 3 * torch.randn(16, 3) + 1, nn.BatchNorm1d(3)
    with torch.set_grad_enabled(grad):
        block(x), norm(x)
    torch.testing.assert_close(block.field[0].running_mean[0], norm.running_mean)
    assert block.field[0].num_batches_tracked == 1
    assert block.field[2].num_batches_tracked == 0
    assert not block.field[2].running_mean.any()


def test_a_norm_in_evaluation_in_a_block_that_trains_does_not_count():
    block = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    block.field[3].eval()
    for n in range(1, 4):
        block(torch.randn(2, 4, 5, 5))
        assert block.field[0].num_batches_tracked == n
        assert block.field[3].num_batches_tracked == 0


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
