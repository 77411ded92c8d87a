"""The video predictor: its terms, its futures, its three kinds."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

import continua as ct
from continua.models import VideoPredictor, video_predictor
from continua.models._video import divergence
from continua.transform import blocks

SMALL = {"size": 8, "width": 4, "stages": 2, "features": 5, "latent": 3, "hidden": 6}
KINDS = ("svg", "auto", "nanode")


def make(kind="nanode", **changes):
    torch.manual_seed(0)
    return video_predictor(kind=kind, **SMALL | changes).eval()


def clips(B=3, T=5, C=1, size=8, seed=0):
    return torch.rand(B, T, C, size, size, generator=torch.Generator().manual_seed(seed))


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_divergence_is_that_of_normal_distributions():
    p, q = (tuple(drawn(7, 3, seed=s + i) for i in range(2)) for s in (0, 2))
    expected = kl_divergence(Normal(p[0], (0.5 * p[1]).exp()), Normal(q[0], (0.5 * q[1]).exp()))
    torch.testing.assert_close(divergence(p, q), expected)
    assert torch.equal(divergence(p, p), torch.zeros(7, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_the_terms_are_the_error_of_the_reconstruction_and_a_divergence(kind):
    model, x = make(kind), clips()
    noise = drawn(3, 4, 3)
    terms = model(x, noise)
    found = model.reconstruct(x, noise)
    assert found.shape == (3, 4, 1, 8, 8)
    assert found.min() >= 0
    assert found.max() <= 1
    torch.testing.assert_close(terms[..., 0], (found - x[:, 1:]).square().mean((2, 3, 4)))
    assert (terms[..., 1] > 0).all()


def test_the_formulas_by_hand():
    model, x, noise = make("svg"), clips(B=2, T=4), drawn(2, 3, 3)
    memory = {"posterior": None, "prior": None, "predictor": None}
    for t in range(1, 4):
        h, _ = model.encoder(x[:, t])
        before, skips = model.encoder(x[:, t - 1])
        if t > 2:  # two frames are given
            _, skips = model.encoder(x[:, 1])
        (mean, logvar), memory["posterior"] = model.posterior(h, memory["posterior"])
        prior, memory["prior"] = model.prior(before, memory["prior"])
        z = mean + (logvar / 2).exp() * noise[:, t - 1]
        g, memory["predictor"] = model.predictor(torch.cat([before, z], 1), memory["predictor"])
        frame = model.decoder(model.head(g), skips)
        terms = model(x, noise, conditioning=2)[:, t - 1]
        torch.testing.assert_close(terms[:, 0], (frame - x[:, t]).square().mean((1, 2, 3)))
        torch.testing.assert_close(terms[:, 1], divergence((mean, logvar), prior).sum(1))


def test_noise_is_drawn_in_training_and_zero_in_evaluation():
    model, x = make(), clips()
    assert torch.equal(model(x), model(x, torch.zeros(3, 4, 3)))
    model.train()
    torch.manual_seed(1)
    one = model.reconstruct(x)
    torch.manual_seed(1)
    assert torch.equal(model.reconstruct(x), one)
    torch.manual_seed(2)
    assert not torch.equal(model.reconstruct(x), one)


def test_futures_follow_the_generator_and_differ():
    model, x = make(), clips(T=2)
    generator = torch.Generator().manual_seed(5)
    futures = model.sample(x, 3, samples=4, generator=generator)
    assert futures.shape == (4, 3, 3, 1, 8, 8)
    again = model.sample(x, 3, samples=4, generator=torch.Generator().manual_seed(5))
    assert torch.equal(futures, again)
    assert not torch.equal(futures[0], futures[1])
    given = drawn(4, 3, 3, 3, seed=5)
    assert torch.equal(model.sample(x, 3, samples=4, noise=given), futures)
    assert not futures.requires_grad


def test_a_future_does_not_depend_on_the_others():
    model, x, noise = make(), clips(T=2), drawn(4, 3, 5, 3)
    futures = model.sample(x, 5, samples=4, noise=noise)
    alone = model.sample(x[1:2], 5, noise=noise[2:3, 1:2])
    torch.testing.assert_close(futures[2:3, 1:2], alone)
    shorter = model.sample(x, 2, samples=4, noise=noise[:, :, :2])
    torch.testing.assert_close(futures[:, :, :2], shorter)


def test_the_first_predicted_frame_by_hand():
    model, x, noise = make("auto"), clips(B=2, T=2), drawn(1, 2, 1, 3)
    h0, _ = model.encoder(x[:, 0])
    h1, skips = model.encoder(x[:, 1])
    (z, _), _ = model.posterior(h1, None)
    _, prior = model.prior(h0, None)
    _, predictor = model.predictor(torch.cat([h0, z], 1), None)
    (mean, logvar), _ = model.prior(h1, prior)
    z = mean + (logvar / 2).exp() * noise[0, :, 0]
    g, _ = model.predictor(torch.cat([h1, z], 1), predictor)
    frame = model.decoder(model.head(g), skips)
    torch.testing.assert_close(model.sample(x, 1, noise=noise)[0, :, 0], frame)


def test_one_given_frame_is_enough():
    assert make().sample(clips(T=1), 2).shape == (1, 3, 2, 1, 8, 8)


def convolutions(model):
    found = [m for part in (model.encoder, model.decoder) for m in part.stages.modules()]
    return sum(m.weight.numel() for m in found if isinstance(m, nn.Conv2d))


def test_two_of_every_three_convolutions_become_one_block():
    models = {kind: make(kind) for kind in KINDS}
    found = [[m for m in models[kind].modules() if isinstance(m, ct.ODEBlock)] for kind in KINDS]
    assert [len(of_kind) for of_kind in found] == [0, 4, 4]
    # As in the paper's table: as many weights, and seven times as many where they vary.
    assert convolutions(models["svg"]) == convolutions(models["auto"])
    inside = {
        kind: sum(
            m.weight.numel()
            for block in blocks(models[kind]).values()
            for m in block.field.modules()
            if isinstance(m, nn.Conv2d)
        )
        for kind in ("auto", "nanode")
    }
    assert inside["nanode"] == 7 * inside["auto"]
    for kind, basis in (("auto", ct.Constant()), ("nanode", ct.Fourier(3, 2 * math.pi))):
        for block in blocks(models[kind]).values():
            assert set(block.expansion.weights.values()) == {basis}
            assert set(block.expansion.state.values()) == {ct.PiecewiseConstant(3)}
            assert (block.solver, block.span) == (ct.Euler(steps=3), (0.0, 1.0))
            assert [type(m).__name__ for m in block.field] == [
                "Conv2d", "BatchNorm2d", "LeakyReLU", "Conv2d", "BatchNorm2d",
            ]  # fmt: skip


def test_statistics_of_every_step_are_learned():
    model = make("auto").train()
    for _ in range(2):
        model(clips())
    block = blocks(model)["encoder.stages.0.1"]
    variance = block.field[1].running_var
    assert variance.shape[0] == 3
    assert (variance != 1).all()
    assert not torch.equal(variance[0], variance[1])


@pytest.mark.parametrize("kind", KINDS[1:])
def test_checkpoints_give_the_same_gradient_with_less_memory(kind):
    plain, frugal = make(kind), make(kind, gradient=ct.Checkpoint())
    frugal.load_state_dict(plain.state_dict())
    x, noise = clips(), drawn(3, 4, 3)
    for model in (plain, frugal):
        model.train()(x, noise).mean().backward()
    for (name, p), q in zip(plain.named_parameters(), frugal.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, atol=1e-5, rtol=1e-4, msg=name)
    for a, b in zip(plain.buffers(), frugal.buffers(), strict=True):
        torch.testing.assert_close(a, b)


def test_it_goes_through_the_verbs(tmp_path):
    torch.manual_seed(0)
    model = ct.build(video_predictor, kind="nanode", **SMALL).eval()
    for block in blocks(model).values():
        block.gradient = ct.Checkpoint()
    x = clips()
    again = ct.load(ct.save(model, tmp_path / "model"))
    assert isinstance(again, VideoPredictor)
    assert torch.equal(again(x), model(x))
    assert {type(b.gradient) for b in blocks(again).values()} == {ct.Checkpoint}
    fine = ct.refine(model)
    assert fine.sample(x[:, :2], 2).shape == (1, 3, 2, 1, 8, 8)
    small = ct.compress(model, ct.Constant())
    # Weights that start the same at every depth are a constant already.
    torch.testing.assert_close(small(x), model(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"kind": "lstm"}, "kind is 'svg', 'auto' or 'nanode', not 'lstm'"),
        ({"size": 10}, "size=10 cannot be halved 2 times; choose a multiple of 4"),
        ({"width": 0}, "width is a whole number of at least 1, not 0"),
        ({"latent": 1.5}, "latent is a whole number"),
    ],
)
def test_arguments_that_cannot_work(changes, match):
    with pytest.raises(ct.ArgumentError, match=match):
        make(**{"kind": "svg"} | changes)


def test_frames_that_cannot_work():
    model = make()
    with pytest.raises(ct.ShapeError, match=r"T from 2 on, not torch.float32 of shape \[3, 1, "):
        model(clips(T=1))
    with pytest.raises(ct.ShapeError, match=r"not torch.uint8"):
        model(clips().byte())
    with pytest.raises(ct.ArgumentError, match="of 5 frames 1 to 4 can be given, not cond"):
        model(clips(), conditioning=5)
    with pytest.raises(ct.ShapeError, match=r"noise is \[3, 4, 3\], not \[3, 5, 3\]"):
        model(clips(), drawn(3, 5, 3))
    with pytest.raises(ct.ShapeError, match=r"noise is \[1, 3, 2, 3\], not"):
        model.sample(clips(), 2, noise=drawn(3))
