import copy
import io

import pytest
import torch
from torch import nn

import continua as ct
from continua.basis import FAMILIES
from continua.solve import SOLVERS, RungeKutta
from nets import Net, conv_unit, make_pair, mlp, scrambled

METHODS = [solver for solver in SOLVERS.values() if issubclass(solver, RungeKutta)]


def ours(model: nn.Module) -> list[str]:
    return [
        name
        for name, module in model.named_modules()
        if type(module).__module__.startswith("continua")
        or any(c.__module__.startswith("continua") for c in type(module).__mro__)
    ]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("solver", METHODS)
def test_same_outputs_without_continua(family, solver):
    torch.manual_seed(0)
    basis = FAMILIES[family].of_size(3)
    block = scrambled(ct.ODEBlock(mlp(norm=True).double(), basis, solver(steps=2), span=(1, 0)))
    plain = ct.unroll(block)
    assert not ours(plain)
    x = torch.randn(4, 6, dtype=torch.float64)
    assert plain.training
    torch.testing.assert_close(plain(x), copy.deepcopy(block)(x))
    plain = ct.unroll(block.eval())
    assert not plain.training
    torch.testing.assert_close(plain(x), block(x))


def test_the_resnet_trains_like_the_block():
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(3), ct.Euler(steps=3)))
    plain = ct.unroll(block)
    x = torch.randn(4, 4, 5, 5)
    block(x).square().sum().backward()
    plain(x).square().sum().backward()
    for k in range(3):
        stage = plain.get_submodule(f"stage{k}")
        torch.testing.assert_close(stage[2].weight.grad, block.field[2].weight.grad[k])
        torch.testing.assert_close(stage[0].running_var, block.field[0].running_var[k])
        assert stage[0].num_batches_tracked == 1


def test_weights_in_common_stay_in_common():
    model = ct.ODEBlock(
        mlp(), {"0.*": ct.PiecewiseConstant(2), "*": ct.Fourier(1)}, ct.RK4(steps=4)
    )
    plain = ct.unroll(model)
    rows = 2 * (6 * 8 + 8) + 9 * (8 * 6 + 6)  # two buckets, nine depths
    assert sum(p.numel() for p in plain.parameters()) == rows


def test_frozen_weights_are_not_repeated():
    field = mlp()
    field[0].weight.requires_grad_(False)
    plain = ct.unroll(ct.ODEBlock(field, ct.PiecewiseConstant(3), ct.Euler(steps=3)))
    assert plain.stage0[0].weight is plain.stage2[0].weight
    assert plain.stage0[0].bias is not plain.stage2[0].bias


def test_a_model_with_blocks_inside():
    for model, x in ((Net(), torch.randn(5, 3)), (make_pair(4), torch.randn(5, 4))):
        model.eval()
        plain = ct.unroll(model)
        assert not ours(plain)
        torch.testing.assert_close(plain(x), model(x))
        assert any(isinstance(m, ct.ODEBlock) for m in model.modules())


def test_a_block_used_twice():
    block = ct.ODEBlock(mlp(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    plain = ct.unroll(nn.Sequential(block, block))
    assert plain[0] is plain[1]


class Driven(ct.Field):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, s, z, x, *, gain=1.0):
        return gain * torch.tanh(self.linear(z)) + s * x


class Branching(ct.Field):
    def forward(self, s, z, x):
        return z if z.sum() > 0 else -z


def test_fields_are_traced():
    torch.manual_seed(0)
    block = scrambled(ct.ODEBlock(Driven(), ct.Fourier(1), ct.RK4(steps=2), span=(0, 2)))
    plain = ct.unroll(block)
    x = torch.randn(2, 3)
    assert not ours(plain)
    torch.testing.assert_close(plain(x), block(x))
    with pytest.raises(ct.ModuleError, match="Branching cannot be written out"):
        ct.unroll(ct.ODEBlock(Branching(), solver=ct.Euler(steps=1)))


@pytest.mark.parametrize("solver", [ct.Dopri5(), ct.ReversibleHeun(steps=2)], ids=repr)
def test_only_a_fixed_grid_can_be_written_out(solver):
    with pytest.raises(ct.ArgumentError, match="only a Runge-Kutta method on a fixed grid"):
        ct.unroll(ct.ODEBlock(mlp(), solver=solver))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, z, gate, bias=0.5):
        return gate * self.linear(z) + bias


def test_further_arguments_stay_arguments():
    block = ct.ODEBlock(Gated(), ct.PiecewiseConstant(2), ct.Heun(steps=2))
    plain = ct.unroll(block)
    x, gate = torch.randn(2, 3), torch.randn(2, 3)
    torch.testing.assert_close(plain(x, gate), block(x, gate))
    torch.testing.assert_close(plain(x, gate, bias=0.1), block(x, gate, bias=0.1))


def test_onnx_of_the_unrolled_model():
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    block = scrambled(ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.RK4(steps=2))).eval()
    for model in (block, ct.unroll(block)):
        x = torch.randn(2, 4, 5, 5)
        file = io.BytesIO()
        shapes = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(model, (x,), dynamic_shapes=shapes, verbose=False).save(file)
        session = onnxruntime.InferenceSession(file.getvalue())
        other = torch.randn(5, 4, 5, 5)
        (y,) = session.run(None, {session.get_inputs()[0].name: other.numpy()})
        expected = model(other).detach()
        torch.testing.assert_close(torch.from_numpy(y), expected, rtol=1e-4, atol=1e-4)


FIELDS = {
    "depth": lambda: ct.DepthConcat(nn.Linear(5, 8), nn.Linear(9, 4)),
    "control": lambda: ct.DataControl(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))),
    "order": lambda: ct.HigherOrder(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))),
    "control and order": lambda: ct.HigherOrder(ct.DataControl(nn.Linear(8, 2))),
}


@pytest.mark.parametrize("name", FIELDS)
def test_our_own_fields_can_be_written_out(name):
    torch.manual_seed(0)
    block = ct.ODEBlock(FIELDS[name](), ct.Legendre(2), ct.RK4(steps=3))
    scrambled(block)
    x = torch.randn(5, 4)
    torch.testing.assert_close(ct.unroll(block)(x), block(x))


def test_the_plain_model_does_not_claim_a_factory_that_makes_blocks(tmp_path):
    model = ct.build(
        ct.models.continuous_net, basis=ct.PiecewiseConstant(2), solver=ct.Euler(steps=2)
    )
    plain = ct.unroll(model)
    with pytest.raises(ct.ArgumentError, match="how to make this"):
        ct.save(plain, tmp_path / "plain")
    assert not (tmp_path / "plain").exists()
    ct.save(model, tmp_path / "model")


def test_frozen_norms_stay_frozen():
    field = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4))
    block = ct.ODEBlock(field, ct.PiecewiseConstant(2), ct.Euler(steps=2)).train()
    block.field[0].eval()
    x = 3 * torch.randn(8, 4) + 5
    plain = ct.unroll(block)
    assert plain.training
    torch.testing.assert_close(plain(x), block(x))
