"""Every listed model: it builds, runs, trains, and goes through every verb."""

import copy
import inspect

import pytest
import torch
from torch import nn

import continua as ct
from continua.measure import size
from continua.models import MODELS
from continua.transform import blocks

VARYING = {"basis": ct.PiecewiseConstant(2), "solver": ct.Euler(steps=2)}
WORDS = {"vocabulary": 11, "tags": 3, "width": 8, "max_length": 7}

# A small one of each: arguments, input, shape of the output.
IMAGES = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
POINTS = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
CLIPS = torch.rand(4, 4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
FRAMES = {"size": 8, "width": 4, "stages": 2, "features": 5, "latent": 3, "hidden": 6}
TOKENS = torch.tensor([[2, 5, 10, 3, 0], [2, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
SMALL = {
    "continuous_net": ({"width": 4, "in_channels": 1, **VARYING}, IMAGES, (4, 10)),
    "continuous_net_small": ({"width": 4, "in_channels": 1, **VARYING}, IMAGES, (4, 10)),
    "continuous_net_mnist": ({"width": 4, **VARYING}, IMAGES, (4, 10)),
    "resnet": ({"units": 1, "width": 4, "in_channels": 1}, IMAGES, (4, 10)),
    "wide_resnet": ({"units": 1, "alpha": 1, "in_channels": 1}, IMAGES, (4, 100)),
    "residual_flow": ({"widths": (8, 12), "in_channels": 1, **VARYING}, IMAGES, (4, 10)),
    "augmented_classifier": ({"width": 4, "in_channels": 1, **VARYING}, IMAGES, (4, 10)),
    "continuous_classifier": (VARYING, POINTS, (4, 1)),
    "continuous_tagger": ({"mlp": 8, **WORDS, **VARYING}, TOKENS, (3, 5, 3)),
    "transformer_tagger": ({"layers": 2, "mlp": 8, **WORDS}, TOKENS, (3, 5, 3)),
    "linear_tagger": (WORDS, TOKENS, (3, 5, 3)),
    "video_predictor": (FRAMES, CLIPS, (4, 3, 2)),
}
CONTINUOUS = [name for name, f in MODELS.items() if "basis" in inspect.signature(f).parameters]


def make(name, **changes):
    """A model whose weights differ at every depth, after a training forward or two."""
    torch.manual_seed(0)
    arguments, x, _ = SMALL[name]
    model = ct.build(MODELS[name], **arguments | changes)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
        model(x), model(x)
    return model.eval(), x


def test_every_model_has_a_small_one():
    assert SMALL.keys() == MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_every_argument_has_a_name(name):
    kinds = {p.kind for p in inspect.signature(MODELS[name]).parameters.values()}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


@pytest.mark.parametrize("name", MODELS)
def test_shape_and_gradients(name):
    model, x = make(name)
    y = model.train()(x)
    assert y.shape == SMALL[name][2]
    y.square().mean().backward()
    for key, p in model.named_parameters():
        assert p.grad is not None, key
        assert p.grad.isfinite().all(), key
        assert p.grad.abs().max() > 0, key


@pytest.mark.parametrize("name", MODELS)
def test_save_and_load(name, tmp_path):
    model, x = make(name)
    again = ct.load(ct.save(model, tmp_path / "model"))
    assert torch.equal(again(x), model(x))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_refine(name, tmp_path):
    model, x = make(name)
    fine = ct.refine(model)
    assert ct.compare(model, fine).target.evaluations == 2 * size(model).evaluations
    assert max(change.error for change in ct.compare(model, fine).tensors) < 1e-6
    again = ct.load(ct.save(fine, tmp_path / "model"))
    assert torch.equal(again(x), fine(x))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_compress(name, tmp_path):
    model, x = make(name)
    small = ct.compress(model, ct.PiecewiseConstant(1), steps=1)
    in_blocks = sum(p.numel() for b in blocks(model).values() for p in b.parameters())
    assert size(small).parameters == size(model).parameters - in_blocks // 2
    again = ct.load(ct.save(small, tmp_path / "model"))
    assert torch.equal(again(x), small(x))


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("solver", [ct.Euler(steps=2), ct.RK4(steps=1)])
def test_unroll(name, solver):
    model, x = make(name, solver=solver, basis=ct.PiecewiseLinear(2))
    plain = ct.unroll(model)
    assert not [m for m in plain.modules() if type(m).__module__.startswith("continua")]
    torch.testing.assert_close(plain(x), model(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("gradient", [ct.Checkpoint(), ct.Adjoint()])
def test_other_gradients(name, gradient):
    model, x = make(name, solver=ct.RK4(steps=32 if name == "residual_flow" else 8))
    other = copy.deepcopy(model)
    for block in blocks(other).values():
        block.gradient = gradient
    for net in (model, other):
        net(x).square().mean().backward()
    # The adjoint is exact up to the solver's error, which the kinks of ReLU keep large.
    bound = 1e-5
    if isinstance(gradient, ct.Adjoint):
        bound = 0.05 if name in ("continuous_net", "residual_flow") else 1e-3
    for (key, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        error = (p.grad - q.grad).norm() / p.grad.norm()
        assert error < bound, key


@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_gradient_can_be_given(name):
    arguments, _, _ = SMALL[name]
    model = MODELS[name](**arguments, gradient=ct.Checkpoint())
    found = {type(block.gradient) for block in blocks(model).values()}
    assert found == {ct.Checkpoint}


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("basis", [ct.Constant(), ct.Fourier(1), {"*": ct.Chebyshev(2)}])
def test_any_basis(name, basis):
    model, x = make(name, basis=basis)
    assert model(x).isfinite().all()


# Those of images: test_image.py.
@pytest.mark.parametrize("name", [name for name in MODELS if "net" not in name])
def test_compiles_without_graph_breaks(name):
    model, x = make(name)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["continuous_net_small", "continuous_net_mnist"])
def test_shallow_networks_use_gelu_everywhere(name):
    model, _ = make(name)
    layers = list(model.modules())
    assert not any(isinstance(m, nn.ReLU) for m in layers)
    assert isinstance(model.head[1], nn.GELU)
    assert len(blocks(model)) == (2 if name.endswith("small") else 1)


@pytest.mark.parametrize("K", [1, 4, 16])
def test_parameters_of_the_shallow_networks(K):
    def count(factory, **arguments):
        net = factory(basis=ct.PiecewiseConstant(K), solver=ct.Euler(steps=K), **arguments)
        return sum(p.numel() for p in net.parameters())

    assert count(MODELS["continuous_net_small"]) == 20_026 + 23_232 * K
    assert count(MODELS["continuous_net_mnist"]) == 5_050 + 4_672 * K


def test_options_reach_the_shallow_network():
    model, _ = make("continuous_net_mnist", width=6, classes=3, norm="group", epsilon=2.0)
    assert model.block1.span == (0.0, 2.0)
    assert isinstance(model.block1.field[0], nn.GroupNorm)
    assert model.head[-1].weight.shape == (3, 6)


def test_the_toy_is_what_it_says():
    model, x = make("continuous_classifier", hidden=5)
    at = model.block.at(0.25)
    assert [type(m) for m in at] == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh]
    assert at[0].weight.shape == (5, 3)
    z = model.stem(x)
    for s in (0.25, 0.75):
        z = z + 0.5 * model.block.at(s)(z)
    torch.testing.assert_close(model(x), model.head(z))


@pytest.mark.parametrize("changes", [{"dim": 0}, {"hidden": 0}, {"inputs": 1.5}, {"epsilon": 0.0}])
def test_the_toy_refuses_what_cannot_work(changes):
    (name,) = changes
    with pytest.raises(ct.ArgumentError, match=rf"^{name}.* not {changes[name]}"):
        make("continuous_classifier", **changes)
