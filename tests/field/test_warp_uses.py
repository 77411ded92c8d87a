"""A warped field in the verbs, in files, in `AdaptiveDepth`, compiled and in other dtypes."""

import pytest
import torch
from torch import nn

import continua as ct
from field.warps import pair
from nets import conv_unit, mlp


@pytest.mark.parametrize("span", [(0.0, 1.0), (2.0, -1.0)])
def test_onto_a_plain_basis_and_smaller(span):
    torch.manual_seed(0)
    field = ct.Warped(mlp(3).double(), {"0.*": ct.Fourier(1)}, 0.5, 0.2)
    with torch.no_grad():
        for p in field.expanded.parameters():
            p.add_(0.3 * torch.randn_like(p))
    block = ct.ODEBlock(field, solver=ct.RK4(steps=8), span=span)
    fitted = ct.fit_hypernetwork(block, ct.Legendre(20))
    x = torch.randn(3, 3, dtype=torch.float64)
    torch.testing.assert_close(fitted(x), block(x), rtol=1e-6, atol=1e-6)
    small = ct.compress(fitted, ct.Legendre(4))
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in fitted.parameters())


@pytest.mark.parametrize(
    "field",
    [
        ct.Warped(mlp(3), ct.Fourier(2), 0.8, 0.1),
        ct.Warped(ct.DataControl(nn.Linear(6, 3)), {"*weight": ct.GaussianRBF(3)}),
        ct.Hypernetwork(nn.Linear(3, 3), nn.Linear(1, 12)),
    ],
    ids=["warped", "controlled", "hypernetwork"],
)
def test_compiles_as_one_graph(field):
    block = ct.ODEBlock(field, solver=ct.RK4(steps=1))
    x = torch.randn(2, 3)
    torch.compiler.reset()
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    y = compiled(x)
    torch.testing.assert_close(y, block(x), rtol=1e-5, atol=1e-5)
    trained = [p for p in block.parameters() if p.requires_grad]
    found = torch.autograd.grad(y.sum(), trained)
    exact = torch.autograd.grad(block(x).sum(), trained)
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)


def warped_block(width: int, dilation: float) -> ct.ODEBlock:
    return ct.ODEBlock(ct.Warped(mlp(width), ct.Fourier(1), dilation), solver=ct.RK4(steps=2))


def test_files(tmp_path):
    block = ct.build(warped_block, width=3, dilation=0.5)
    with torch.no_grad():
        block.field.dilation.fill_(0.7)
    other = ct.load(ct.save(block, tmp_path / "model"), factory=warped_block)
    assert other.field.dilation.item() == pytest.approx(0.7)
    x = torch.randn(2, 3)
    assert torch.equal(other(x), block.eval()(x))


def test_every_sample_at_its_own_depth():
    warped, plain = pair(ct.Legendre(3), ct.RK4(steps=4))
    net = nn.Linear(3, 1).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    ends = [ct.AdaptiveDepth(block, net)(x) for block in (warped, plain)]
    torch.testing.assert_close(*ends, rtol=1e-10, atol=1e-10)
    ends[0].sum().backward()
    assert float(warped.field.dilation.grad) != 0
    norm = ct.Warped(conv_unit(2), {"2.weight": ct.Fourier(1)})
    block = ct.ODEBlock(norm, solver=ct.RK4(steps=2)).eval()
    image = ct.AdaptiveDepth(block, nn.Sequential(nn.Flatten(), nn.Linear(18, 1)))
    image(torch.randn(2, 2, 3, 3)).sum().backward()
    assert image.depth_net[1].weight.grad.abs().sum() > 0


def test_precision_and_autocast():
    block = ct.ODEBlock(ct.Warped(mlp(3), ct.Fourier(2), 0.5), solver=ct.RK4(steps=2))
    x = torch.randn(2, 3)
    wide = block(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = block(x)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, wide, rtol=0.05, atol=0.05)
    assert block.double()(x.double()).dtype == torch.float64
