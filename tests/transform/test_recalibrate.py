"""Statistics read again."""

import copy

import pytest
import torch
from torch import nn

import continua as ct
from nets import conv_unit, mlp, scrambled


def model_of(solver: ct.Solver, basis: ct.Basis) -> nn.Sequential:
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(conv_unit(), basis, solver, span=(0.0, 2.0)))
    for name in block.expansion.state:  # a function that is positive in every basis
        block.field.get_buffer(name)[1:] *= 0.1
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), block, nn.BatchNorm2d(4)).double()


def images(n: int = 1) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(8, 2, 7, 7, dtype=torch.float64) for _ in range(n)]


def test_one_batch_gives_its_own_statistics_at_every_layer():
    """Against the same network, written out as layers, in training mode with momentum 1."""
    model = model_of(ct.Euler(steps=4), ct.PiecewiseConstant(4))
    (x,) = images()
    found = ct.recalibrate(model, [x])

    layers = ct.unroll(model).train()
    for module in layers.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    layers(x)
    for outer in ("1", "3"):
        for key in ("running_mean", "running_var"):
            here, there = (m.get_submodule(outer).get_buffer(key) for m in (found, layers))
            torch.testing.assert_close(here, there)
    for step in range(4):
        stage = layers[2].get_submodule(f"stage{step}")
        for name in found[2].expansion.state:
            torch.testing.assert_close(
                found[2].field.get_buffer(name)[step], stage.get_buffer(name)
            )


@pytest.mark.parametrize(
    "basis", [ct.PiecewiseConstant(2), ct.Legendre(2), ct.Constant()], ids=repr
)
def test_the_mean_over_batches(basis):
    model = model_of(ct.Midpoint(steps=3), basis)
    every = images(3)
    found = ct.recalibrate(model, every).state_dict()
    alone = [ct.recalibrate(model, [x]).state_dict() for x in every]
    for name, value in found.items():
        if "running" in name:
            torch.testing.assert_close(value, torch.stack([one[name] for one in alone]).mean(0))


def test_neither_momentum_nor_old_statistics_matter():
    model = model_of(ct.Euler(steps=2), ct.PiecewiseConstant(2))
    other = copy.deepcopy(model)
    for module in other.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.7
    for name, buffer in other.named_buffers():
        if "running" in name:
            buffer.add_(1.0)
    here, there = (ct.recalibrate(m, images(2)).state_dict() for m in (model, other))
    torch.testing.assert_close(here, there)


def test_weights_modes_and_the_argument_are_untouched():
    model = model_of(ct.Euler(steps=2), ct.PiecewiseConstant(2))
    model[2].eval()
    before = copy.deepcopy(model.state_dict())
    found = ct.recalibrate(model, images())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    for name, parameter in found.named_parameters():
        assert torch.equal(parameter, before[name])
    modes = [module.training for module in model.modules()]
    assert [module.training for module in found.modules()] == modes
    assert all(m.momentum == 0.1 for m in found.modules() if isinstance(m, nn.BatchNorm2d))


def test_dropout_is_off():
    torch.manual_seed(0)
    field = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3), nn.Linear(3, 3))
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.Euler(steps=2))
    x = torch.randn(16, 3)
    found = ct.recalibrate(block, [x])
    torch.testing.assert_close(found.field[1].running_mean[0], x.mean(0))


def test_instance_norm():
    field = nn.Sequential(nn.InstanceNorm1d(3, track_running_stats=True), nn.Tanh())
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.Euler(steps=2))
    every = [torch.randn(4, 3, 9), torch.randn(4, 3, 9)]
    found = ct.recalibrate(block, every).field[0].running_mean[0]
    torch.testing.assert_close(found, torch.stack(every).mean((0, 1, 3)))


def test_batches_of_every_form():
    block = ct.ODEBlock(mlp(norm=True), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    x = torch.randn(8, 6)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=8)
    expected = ct.recalibrate(block, [x]).state_dict()
    for batches in (iter([x]), [(x,)], [{"x": x}], loader):
        found = ct.recalibrate(block, batches).state_dict()
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_model_without_statistics_comes_back_as_a_copy():
    block = ct.ODEBlock(mlp(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    found = ct.recalibrate(block, [torch.randn(8, 6)])
    assert found is not block
    torch.testing.assert_close(found.state_dict(), block.state_dict())


class Growing(nn.Module):
    """Five times the state at each step of length 1, seen by a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return 4 * z + 0 * self.norm(z)


def test_variances_that_a_basis_cannot_follow():
    """A straight line through 1, 25, 625 and 15,625 is negative at first."""
    basis, x = ct.Legendre(2), [torch.randn(16, 2)]
    block = ct.ODEBlock(Growing(), basis, ct.Euler(steps=4), span=(0.0, 4.0))
    with pytest.warns(UserWarning, match=r"'norm.running_var' is negative.*PiecewiseConstant\(4\)"):
        ct.recalibrate(block, x)
    with pytest.warns(UserWarning, match="of block '0' is negative"):
        ct.compress(nn.Sequential(block), basis, calibrate=x)
    ct.compress(block, basis, state_basis=ct.PiecewiseConstant(4), calibrate=x)  # no warning


X = torch.randn(8, 6)


@pytest.mark.parametrize(
    ("batches", "match"),
    [
        ([], "no batches"),
        (X, r"not one tensor of shape \[8, 6\]"),
        (3, "not int"),
        ([X, X[0]], "batch 1 is"),
        ([X, X.double()], r"batch 1 is \[8, 6\] in float64"),
        ([X, X[:, :4]], r"batch 1: the model refuses \[8, 4\]"),
        ([torch.zeros(8, dtype=torch.int64)], "without labels"),
        ([(X, torch.zeros(8, dtype=torch.int64))], "without labels"),
        ([X, X * float("nan")], "batch 1 contains NaN"),
        ([X[:0]], r"batch 0 is empty, of shape \[0, 6\]"),
        (["text"], "batch 0 is a str"),
    ],
)
def test_bad_batches(batches, match):
    model = nn.Sequential(ct.ODEBlock(mlp(norm=True), ct.PiecewiseConstant(2), ct.Euler(steps=2)))
    with pytest.raises(ct.ArgumentError, match=match):
        ct.recalibrate(model, batches)


# -- statistics of a compressed model ------------------------------------------------------------


def halved(model: nn.Module, **options) -> nn.Module:
    return ct.compress(model, ct.PiecewiseConstant(2), steps=2, **options)


def statistics(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: b for name, b in model.named_buffers() if "running" in name}


@pytest.mark.parametrize("method", ["project", "fit"])
def test_a_model_of_the_same_inputs_gets_their_statistics(method):
    x = images(3)
    model = ct.recalibrate(model_of(ct.Euler(steps=4), ct.PiecewiseConstant(4)), x)
    small = halved(model, calibrate=x, method=method)
    expected = ct.recalibrate(small, x)
    torch.testing.assert_close(statistics(small), statistics(expected))


def test_a_model_that_is_not_cut_keeps_its_statistics():
    """Whatever inputs it is shown."""
    model = ct.recalibrate(model_of(ct.Euler(steps=4), ct.PiecewiseConstant(4)), images(3))
    other = [0.7 * x + 0.2 for x in images(2)]
    same = ct.compress(model, steps=4, calibrate=other)
    torch.testing.assert_close(statistics(same), statistics(model))


def test_statistics_that_no_evaluation_reads_stay():
    x = images(3)
    model = model_of(ct.Euler(steps=8), ct.PiecewiseConstant(8))
    with pytest.warns(UserWarning, match="reads 4 of the 8 buckets"):
        small = ct.compress(model, steps=4, calibrate=x)
    for name, before in statistics(model[2]).items():
        found = statistics(small[2])[name]
        torch.testing.assert_close(found[1::2], before[1::2], rtol=0, atol=0)
        assert not torch.equal(found[0::2], before[0::2])


def test_statistics_of_the_training_are_met_from_few_other_inputs():
    """Inputs that are brighter than those of the training, and few, as in calibration."""
    torch.manual_seed(0)
    field = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
    block = ct.ODEBlock(field, ct.PiecewiseConstant(4), ct.Euler(steps=4), init="independent")
    many = [torch.randn(64, 4, 8, 8) for _ in range(4)]
    few = [1.2 * torch.randn(8, 4, 8, 8) + 0.1]
    model = ct.recalibrate(block, many)
    small, plain = halved(model, calibrate=few), halved(model)
    truth, read = (statistics(ct.recalibrate(plain, x)) for x in (many, few))

    def away(found: dict[str, torch.Tensor]) -> float:
        return float(sum((found[name] - truth[name]).norm() for name in truth))

    assert away(statistics(small)) < 0.5 * away(read)
    assert away(statistics(small)) < away(statistics(plain))


def test_statistics_in_smooth_functions_are_those_that_were_read():
    x = images(3)
    model = model_of(ct.Euler(steps=4), ct.PiecewiseConstant(4))
    small = ct.compress(model, ct.Legendre(2), state_basis=ct.Legendre(2), calibrate=x)
    expected = ct.recalibrate(small, x)
    inside = {n for n in statistics(small) if n.startswith("2.")}
    assert inside
    for name in inside:
        torch.testing.assert_close(statistics(small)[name], statistics(expected)[name])


def test_layers_kept_for_a_group_bring_their_statistics():
    """What is taken off is that of one layer, not the mean of its group."""
    torch.manual_seed(0)
    layer = [nn.Sequential(conv_unit(), nn.Conv2d(4, 4, 3, padding=1)) for _ in range(4)]
    model = ct.recalibrate(ct.convert(layer, skip="outside"), [torch.randn(8, 4, 6, 6)])
    other = [torch.randn(8, 4, 6, 6) for _ in range(2)]
    options = {"steps": 2, "method": "fit", "calibrate": other}
    small = ct.compress(model, ct.PiecewiseConstant(2), **options)

    def shift(one: nn.Module) -> torch.Tensor:
        own, read = (statistics(m)["field.0.0.running_mean"] for m in (one, again(one)))
        return own - read

    def again(one: nn.Module) -> nn.Module:
        return ct.recalibrate(one, other)

    assert shift(small).shape == (2, 4)
    for row in shift(small):
        assert any(torch.allclose(row, known, atol=1e-5) for known in shift(model))
    one = ct.compress(model, ct.PiecewiseConstant(2), state_basis=ct.Constant(), **options)
    assert set(one.expansion.state.values()) == {ct.Constant()}


class Labels(nn.Module):
    """A network whose output has no floating-point numbers."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x).argmax(-1)


def test_outputs_that_cannot_be_compared():
    block = ct.ODEBlock(nn.Linear(3, 3), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    batches = list(torch.randn(8, 3).split(4))
    small = ct.compress(Labels(block), ct.PiecewiseConstant(2), steps=2, calibrate=batches)
    assert small.block.solver == ct.Euler(steps=2)
    with pytest.raises(ct.ArgumentError, match="no real or complex numbers"):
        ct.heal(small, Labels(block), batches, steps=1)


def test_complex_outputs_are_compared(caplog):
    field = nn.Linear(3, 3, dtype=torch.complex64)
    block = ct.ODEBlock(field, ct.PiecewiseConstant(4), ct.Euler(steps=4))
    with torch.no_grad():
        block.field.weight.copy_(10j * torch.tensor([1, -1, 1, -1])[:, None, None])
    batches = list(torch.randn(8, 3, dtype=torch.complex64).split(4))
    ct.compress(block, ct.PiecewiseConstant(2), steps=2, calibrate=batches)
    assert "the outputs of the smaller model differ" in caplog.text
