"""Stacks of layers made shorter: groups of neighbours, norms at the end, what is warned of."""

import logging

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import continua as ct
from nets import mlp, scrambled


def inputs(*shape: int, n: int = 6) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(*shape, dtype=torch.float64) for _ in range(n)]


def residual_stack(count: int, idle: tuple[int, ...] = ()) -> ct.ODEBlock:
    """Layers z + f(z), of which some add nothing."""
    torch.manual_seed(0)
    layers = [mlp(norm=True) for _ in range(count)]
    for i in idle:
        nn.init.zeros_(layers[i][-1].weight)
        nn.init.zeros_(layers[i][-1].bias)
    block = ct.convert(layers, skip="outside").double().eval()
    return ct.recalibrate(block, inputs(32, 6)).eval()


def post_norm_stack(count: int, idle: tuple[int, ...] = ()) -> ct.ODEBlock:
    """Transformer layers with norms at their ends; an idle one gives back a normalized state."""
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(count)]
    for i in idle:
        for map_ in (layers[i].self_attn.out_proj, layers[i].linear2):
            nn.init.zeros_(map_.weight)
            nn.init.zeros_(map_.bias)
    return ct.convert(layers).double().eval()


def halved(model: nn.Module, size: int, batches: list[Tensor], **more: str) -> nn.Module:
    basis = ct.PiecewiseConstant(size)
    return ct.compress(model, basis, steps=size, method="fit", calibrate=batches, **more)


def gap(model: nn.Module, small: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        return float((model(x) - small(x)).norm() / model(x).norm())


@pytest.mark.parametrize("idle", [(1, 2), (0, 1), (2, 3), (0, 3)])
def test_layers_that_add_nothing_are_the_ones_that_go(idle):
    model, batches = residual_stack(4, idle), inputs(32, 6)
    small = halved(model, 2, batches)
    kept = [i for i in range(4) if i not in idle]
    torch.testing.assert_close(small.field[1].weight, model.field[1].weight[kept])
    assert gap(model, small, torch.randn(16, 6, dtype=torch.float64)) < 1e-5
    assert small.span == (0.0, 2.0)


@pytest.mark.parametrize("idle", [1, 2])
def test_a_layer_norm_at_the_end_is_reached_through(idle):
    """Steps keep their length, or a layer would not be a layer."""
    model = post_norm_stack(3, (idle,))
    small = halved(model, 2, inputs(16, 5, 8))
    kept = [i for i in range(3) if i != idle]
    torch.testing.assert_close(
        small.field.layer.linear1.weight, model.field.layer.linear1.weight[kept]
    )
    assert gap(model, small, torch.randn(16, 5, 8, dtype=torch.float64)) < 1e-3


def test_post_norm_layers_are_nearer_than_any_that_are_dropped():
    model, batches = post_norm_stack(4), inputs(32, 5, 8)
    small, x = halved(model, 2, batches), torch.randn(16, 5, 8, dtype=torch.float64)
    dropped = []
    for kept in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]:
        layers = [model.at(float(i)).layer for i in kept]
        dropped.append(gap(model, nn.Sequential(*layers).eval(), x))
    assert gap(model, small, x) < 0.9 * min(dropped)


def test_heal_goes_on_from_groups():
    model, batches = residual_stack(6), inputs(32, 6)
    small = halved(model, 2, batches)
    healed = ct.heal(small, model, batches, steps=40, lr=3e-4, check_every=20).eval()
    x = torch.randn(64, 6, dtype=torch.float64)
    assert gap(model, healed, x) < gap(model, small.eval(), x)


def make_stack(count: int) -> nn.Module:
    return ct.convert([mlp(norm=True) for _ in range(count)], skip="outside")


def test_a_file_keeps_the_span(tmp_path):
    model = residual_stack(4)
    small = halved(model, 2, inputs(32, 6)).eval()
    ct.save(small, tmp_path / "small", factory=make_stack, arguments={"count": 4})
    again = ct.load(tmp_path / "small").double()
    assert again.span == (0.0, 2.0)
    x = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(again(x), small(x))


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, z: Tensor) -> Tensor:
        return self.one(z.tanh()) + self.other(z)


@pytest.mark.parametrize(("final", "changed"), [(None, "other"), ("one", "one"), ("o?e", "one")])
def test_the_map_can_be_named(final, changed):
    torch.manual_seed(0)
    model = ct.ODEBlock(Sum(), ct.PiecewiseConstant(4), ct.Euler(steps=4)).double()
    model = scrambled(model)
    small = halved(model, 2, inputs(32, 6), **({} if final is None else {"final": final}))
    plain = ct.compress(model, ct.PiecewiseConstant(2), steps=2)
    near = ct.compress(model, ct.PiecewiseConstant(2), steps=2, method="interpolate")
    for name in ("one", "other"):
        weight = small.field.get_submodule(name).weight
        same = [torch.equal(weight, m.field.get_submodule(name).weight) for m in (plain, near)]
        assert any(same) == (name != changed)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"method": "fit", "final": "three"}, "final='three'"),
        ({"final": "one"}, "method='fit'"),
    ],
)
def test_a_name_that_is_no_map(given, match):
    model = ct.ODEBlock(Sum(), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    with pytest.raises(ct.ContinuaError, match=match):
        ct.compress(model, ct.PiecewiseConstant(2), calibrate=[torch.randn(4, 6)] * 2, **given)


def test_a_norm_at_the_end_needs_one_bucket_per_step():
    model = post_norm_stack(4)
    with pytest.raises(ct.ModuleError, match=r"layer norm.*Euler"):
        ct.compress(model, ct.Legendre(2), steps=2, method="fit", calibrate=inputs(8, 5, 8))


def test_the_groups_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="continua"):
        halved(residual_stack(4, (1, 2)), 2, inputs(32, 6))
    assert "groups of layers" in caplog.text


class Counted(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.rows, self.reads = torch.randn(48, 6, dtype=torch.float64), 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Tensor:
        self.reads += 1
        return self.rows[i]


def test_a_loader_that_shuffles_is_read_once():
    """Otherwise what is held back would be fitted to in the next pass."""
    model, data = residual_stack(4), Counted()
    halved(model, 2, DataLoader(data, batch_size=12, shuffle=True))
    assert data.reads == len(data)


# -- warnings ----------------------------------------------------------------------------------


def test_buckets_that_are_never_read():
    block = ct.ODEBlock(mlp(), ct.PiecewiseConstant(8), ct.Euler(steps=8))
    with pytest.warns(UserWarning, match=r"reads 4 of the 8 buckets of PiecewiseConstant\(8\)"):
        ct.compress(block, steps=4)
    ct.compress(block, ct.PiecewiseConstant(4), steps=4)  # which warns of nothing


def test_steps_that_post_norm_layers_were_not_made_for():
    model = post_norm_stack(4)
    with pytest.warns(UserWarning, match="end in a norm"):
        ct.compress(model, ct.PiecewiseConstant(2), steps=2)
    ct.compress(model, ct.PiecewiseConstant(2), steps=4)
    layers = [nn.TransformerEncoderLayer(8, 2, 16, norm_first=True) for _ in range(4)]
    ct.compress(ct.convert(layers), ct.PiecewiseConstant(2), steps=2)
