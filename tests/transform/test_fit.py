"""Smaller blocks fitted to what larger ones do."""

import copy

import pytest
import torch
from torch import Tensor, nn

import continua as ct
from nets import conv_unit, mlp, scrambled


def batches(*shape: int, n: int = 6) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(*shape, dtype=torch.float64) for _ in range(n)]


def gap(model: nn.Module, small: nn.Module, inputs: list[Tensor]) -> float:
    with torch.no_grad():
        pairs = [(model.eval()(x), small.eval()(x)) for x in inputs]
    return float(sum((a - b).square().sum() for a, b in pairs) ** 0.5)


@pytest.mark.parametrize("bias", [True, False])
def test_affine_layers_are_composed_exactly(bias):
    """Two affine steps are one, which the mean of their weights is not."""
    torch.manual_seed(0)
    model = scrambled(
        ct.ODEBlock(nn.Linear(3, 3, bias), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    ).double()
    inputs = batches(16, 3)
    small = ct.compress(model, ct.PiecewiseConstant(2), steps=2, method="fit", calibrate=inputs)
    w, eye = model.field.weight.detach() / 4, torch.eye(3, dtype=torch.float64)
    exact = ((eye + w[1]) @ (eye + w[0]) - eye) * 2
    torch.testing.assert_close(small.field.weight[0], exact, rtol=1e-5, atol=1e-5)
    assert gap(model, small, batches(8, 3)) < 1e-4
    assert gap(model, ct.compress(model, ct.PiecewiseConstant(2), steps=2), inputs) > 0.1


class OfInput(ct.Field):
    """A map of the input alone."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, s: Tensor, z: Tensor, x: Tensor) -> Tensor:
        return self.module(x)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(4, 4), (5, 3, 4)),
        (nn.Conv1d(4, 4, 3, padding=1, groups=2), (5, 4, 9)),
        (nn.Conv2d(4, 4, (3, 1), padding="same", bias=False), (5, 4, 6, 5)),
        (nn.Conv2d(4, 4, 3, padding=2, dilation=2, padding_mode="circular"), (5, 4, 6, 6)),
        (nn.Conv2d(4, 4, 3, padding=1, groups=4, padding_mode="reflect"), (5, 4, 6, 6)),
        (nn.Conv3d(2, 2, 3, padding=1), (3, 2, 4, 4, 5)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_every_linear_map_is_recovered(module, shape):
    """Euler sums left ends: with θ0 + θ1 s on 4 steps, one step has to have θ0 + 0.375 θ1."""
    torch.manual_seed(0)
    model = scrambled(ct.ODEBlock(OfInput(module), ct.Polynomial(2), ct.Euler(steps=4))).double()
    inputs = batches(*shape)
    small = ct.compress(model, ct.Constant(), steps=1, method="fit", calibrate=inputs)
    for name in model.expansion.weights:
        theta = model.field.get_parameter(name)
        found = small.field.get_parameter(name)[0]
        torch.testing.assert_close(found, theta[0] + 0.375 * theta[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("basis", [ct.PiecewiseConstant(2), ct.Legendre(2), ct.PiecewiseLinear(3)])
@pytest.mark.parametrize(
    "solver", [ct.Euler(2), ct.RK4(2), ct.Dopri5(steps=2), ct.ReversibleHeun(2)], ids=repr
)
def test_any_basis_and_solver_on_a_fixed_grid(basis, solver):
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(mlp(norm=True), ct.PiecewiseConstant(8), ct.Euler(steps=8)))
    model = nn.Sequential(nn.Linear(6, 6), block, nn.BatchNorm1d(6)).double()
    model = ct.recalibrate(model, batches(32, 6))
    before = copy.deepcopy(model.state_dict())
    given = {"basis": basis, "solver": solver, "calibrate": batches(32, 6)}
    plain = ct.compress(model, **given)
    small = ct.compress(model, method="fit", **given)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert small[1].solver == solver
    assert all(module.training for module in small.modules())
    assert set(small[1].expansion.weights.values()) == {basis}
    new = torch.randn(64, 6, dtype=torch.float64)
    assert gap(model, small, [new]) < 0.8 * gap(model, plain, [new])


def test_convolutions_with_batch_norm():
    torch.manual_seed(0)
    units = nn.Sequential(*[conv_unit() for _ in range(4)]).double()
    model = nn.Sequential(ct.convert(units, skip="outside"), nn.BatchNorm2d(4)).double()
    inputs = batches(16, 4, 8, 8)
    model = ct.recalibrate(model, inputs)
    plain = ct.compress(model, ct.PiecewiseConstant(2), steps=2, calibrate=inputs)
    small = ct.compress(model, ct.PiecewiseConstant(2), steps=2, method="fit", calibrate=inputs)
    assert gap(model, small, inputs) < 0.8 * gap(model, plain, inputs)
    again = ct.recalibrate(small, inputs)  # the statistics are those of the smaller network
    torch.testing.assert_close(small[0].field[3].running_var, again[0].field[3].running_var)


def test_transformer_layers_with_a_mask():
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, norm_first=True)
        for _ in range(4)
    ]

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = ct.convert(layers)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.block(x, src_key_padding_mask=mask)

    model = Encoder().double().eval()
    mask = torch.zeros(16, 5, dtype=torch.bool)
    mask[:, 4] = True
    inputs = [(x, mask) for x in batches(16, 5, 8)]
    plain = ct.compress(model, ct.PiecewiseConstant(2), steps=2)
    small = ct.compress(model, ct.PiecewiseConstant(2), steps=2, method="fit", calibrate=inputs)
    x = torch.randn(16, 5, 8, dtype=torch.float64)
    with torch.no_grad():
        target, one, other = (m(x, mask) for m in (model, plain, small))
    assert (other - target).norm() < 0.9 * (one - target).norm()


# -- what is refused ---------------------------------------------------------------------------


def block_of(field: nn.Module, solver: ct.Solver | None = None) -> ct.ODEBlock:
    return ct.ODEBlock(field, ct.PiecewiseConstant(4), solver or ct.Euler(steps=4))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = block_of(mlp())

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.block(x))


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (block_of(nn.Tanh()), "no linear or convolutional map"),
        (block_of(nn.Sequential(nn.Linear(6, 6), nn.Tanh())), "'0'.* behind it changes its output"),
        (
            block_of(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))),
            "behind it changes its output",
        ),
        (block_of(mlp(), ct.Dopri5()), "chooses its own steps"),
        (Twice(), "2 times"),
    ],
)
def test_fields_that_cannot_be_fitted(model, match):
    inputs = [torch.randn(4, 6) for _ in range(3)]
    with pytest.raises(ct.ContinuaError, match=match):
        ct.compress(model, ct.PiecewiseConstant(2), method="fit", calibrate=inputs)


def test_a_later_block_is_refused_before_an_earlier_one_is_fitted():
    first, calls = block_of(mlp()), []
    first.field.register_forward_pre_hook(lambda *_: calls.append(1))
    model = nn.Sequential(first, block_of(nn.Tanh()))
    inputs = torch.randn(64, 6).split(1)
    with pytest.raises(ct.ModuleError, match="block '1' calls no linear or convolutional map"):
        ct.compress(model, ct.PiecewiseConstant(2), steps=2, method="fit", calibrate=inputs)
    assert len(calls) < 64  # a fit runs on every batch


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"method": "fit"}, "calibrate="),
        (
            {"method": "fit", "calibrate": [torch.randn(4, 6)]},
            "calibrate has 1 batch of.*at least 2",
        ),
        (
            {"method": "fit", "calibrate": [torch.full((4, 6), float("nan"))] * 2},
            "of calibrate contains NaN",
        ),
        ({"calibrate": []}, "calibrate has no batches"),
        ({"calibrate": torch.randn(4, 6)}, "calibrate is a list"),
        ({"calibrate": [torch.randn(4, 5)]}, "batch 0 of calibrate: the model refuses"),
        ({"method": "guess"}, "'fit', not 'guess'"),
    ],
)
def test_bad_arguments(given, match):
    with pytest.raises(ct.ArgumentError, match=match):
        ct.compress(block_of(mlp()), ct.PiecewiseConstant(2), **given)
