"""Latent ODEs of irregular time series."""

import math

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

import continua as ct
from continua.models import LatentODE


def made(**options):
    torch.manual_seed(0)
    options = {"span": (0.0, 3.0), "noise": 0.3, "solver": ct.RK4(steps=6), **options}
    return LatentODE(features=2, latent=3, hidden=8, recurrent=7, **options).double()


def series(batch=4, length=6, seed=1):
    g = torch.Generator().manual_seed(seed)
    times = 3 * torch.rand(batch, length, generator=g, dtype=torch.float64)
    x = torch.randn(batch, length, 2, generator=g, dtype=torch.float64)
    return times.sort(1).values, x


def same(a, b):
    torch.testing.assert_close(a.mean, b.mean)
    torch.testing.assert_close(a.stddev, b.stddev)


def loss(model, *args, **options):
    torch.manual_seed(5)
    return model.loss(*args, **options)


@pytest.mark.parametrize("cell", ["gru", "tanh"])
def test_padding_has_no_effect(cell):
    model, (times, x) = made(cell=cell), series()
    more = torch.cat([times, times[:, -1:].expand(-1, 3)], 1)
    junk = torch.cat([x, torch.full((4, 3, 2), 9.0)], 1)
    mask = torch.arange(9).expand(4, 9) < 6
    same(model.encode(times, x), model.encode(more, junk, mask))
    torch.testing.assert_close(loss(model, times, x), loss(model, more, junk, mask))
    lost = junk.masked_fill(~mask[:, :, None], math.nan)
    torch.testing.assert_close(loss(model, times, x), loss(model, more, lost))


def test_ragged_series_are_as_if_alone():
    model, (times, x) = made(), series()
    mask = torch.arange(6) < torch.tensor([[6], [2], [1], [5]])
    together = model(times, x, mask)
    for n, count in enumerate((6, 2, 1, 5)):
        alone = model(times[n, :count], x[n : n + 1, :count], at=times[n])
        torch.testing.assert_close(together[n], alone[0])


def test_the_order_of_observations_has_no_effect():
    model, (times, x) = made(), series()
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    same(model.encode(times, x), model.encode(times[:, order], x[:, order]))
    torch.testing.assert_close(model(times, x)[:, order], model(times[:, order], x[:, order]))


def test_masked_features_have_no_effect():
    model, (times, x) = made(), series()
    mask = torch.rand(4, 6, 2, generator=torch.Generator().manual_seed(2)) < 0.6
    junk = torch.where(mask, x, 7.0)
    same(model.encode(times, x, mask), model.encode(times, junk, mask))
    torch.testing.assert_close(loss(model, times, x, mask), loss(model, times, junk, mask))
    known = model.encode(times, x).mean - model.encode(times, x, mask).mean
    assert known.abs().max() > 1e-3


def test_when_something_was_observed_matters():
    model, (times, x) = made(), series()
    assert (model.encode(times, x).mean - model.encode(times / 2, x).mean).abs().max() > 1e-3
    first = model.encode(times[:, :1], x[:, :1]).mean
    assert (first - model.encode(times[:, :1] / 2, x[:, :1]).mean).abs().max() > 1e-3


def test_shared_times_are_equal_rows():
    model, (_, x) = made(), series()
    times = torch.linspace(0, 3, 6, dtype=torch.float64)
    torch.testing.assert_close(model(times, x), model(times.expand(4, 6), x))
    torch.testing.assert_close(loss(model, times, x), loss(model, times.expand(4, 6), x))


@pytest.mark.parametrize("beta", [1.0, 0.1])
def test_the_loss_is_the_evidence_lower_bound(beta):
    model, (times, x) = made(), series()
    q = model.encode(times, x)
    torch.manual_seed(5)
    expected = model.decode(q.rsample(), times)
    fit = Independent(Normal(expected, 0.3), 2).log_prob(x)
    prior = Normal(torch.zeros(4, 3, dtype=torch.float64), 1.0)
    bound = fit - beta * kl_divergence(q, prior).sum(1)
    torch.testing.assert_close(loss(model, times, x, beta=beta), -bound.mean())


@pytest.mark.parametrize("gradient", [ct.Checkpoint(), ct.Adjoint()], ids=repr)
def test_every_gradient_trains_it(gradient):
    found = []
    for used in (ct.Backprop(), gradient):
        model = made(gradient=used, solver=ct.RK4(steps=20))
        loss(model, *series()).backward()
        found.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)


def test_beyond_the_span():
    model, (times, x) = made(solver=ct.RK4(steps=30)), series()
    at = torch.tensor([0.5, 2.5, 4.5], dtype=torch.float64)
    far, adaptive = model(times, x, at=at), made(solver=ct.Dopri5(1e-8, 1e-8))
    torch.testing.assert_close(far, adaptive(times, x, at=at), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(far[:, :2], model(times, x, at=at[:2]), rtol=1e-4, atol=1e-5)
    assert model(times, x, at=at[:0]).shape == (4, 0, 2)
    with pytest.raises(ct.ArgumentError, match="-1 is outside"):
        model(times, x, at=at - 1.5)


def test_a_series_without_observations():
    model, (times, x) = made(), series()
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[2] = False
    value = loss(model, times, x, mask)
    value.backward()
    assert value.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_samples():
    model = made()
    assert model.sample(5, torch.linspace(0, 3, 7)).shape == (5, 7, 2)
    assert model.sample(2, 3 * torch.rand(2, 7)).dtype == torch.float64


def test_it_learns():
    """Oscillations of random phase, seen at ten random times each."""
    torch.manual_seed(0)
    phase, times = 6.3 * torch.rand(32, 1), 3 * torch.rand(32, 10)
    x = torch.stack([(times + phase).sin(), (times + phase).cos()], 2)
    model = LatentODE(features=2, span=(0.0, 3.0), noise=0.2, solver=ct.RK4(steps=3))
    before = (model(times, x) - x).square().mean().item()
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    for _ in range(50):
        optimizer.zero_grad()
        model.loss(times, x).backward()
        optimizer.step()
    assert (model(times, x) - x).square().mean() < 0.3 * before


def test_files(tmp_path):
    model = ct.build(LatentODE, features=2, span=(0.0, 3.0), cell="tanh", solver=ct.RK4(steps=2))
    ct.save(model, tmp_path / "model")
    times, x = (t.float() for t in series())
    torch.testing.assert_close(ct.load(tmp_path / "model")(times, x), model(times, x))


def test_mistakes():
    model, (times, x) = made(), series()
    with pytest.raises(ct.ArgumentError, match="runs forward"):
        made(span=(1.0, 0.0))
    with pytest.raises(ct.ArgumentError, match="'lstm'"):
        made(cell="lstm")
    with pytest.raises(ct.ArgumentError, match="-1"):
        made(noise=-1)
    with pytest.raises(ct.ShapeError, match=r"\[B, T, 2\], not \[4, 6, 1\]"):
        model(times, x[:, :, :1])
    with pytest.raises(ct.ShapeError, match=r"times have shape \[T\] or \[4, T\], not \[3, 6\]"):
        model(times[:3], x)
    with pytest.raises(ct.ShapeError, match=r"mask has shape \[4, 6\] or \[4, 6, 2\], not \[6\]"):
        model(times, x, torch.ones(6))


@pytest.mark.parametrize("wrong", [lambda t: t[:, :3], lambda t: t[0, :3], lambda t: t[:, :1]])
def test_there_are_as_many_times_as_observations(wrong):
    model, (times, x) = made(), series()
    with pytest.raises(ct.ShapeError, match=r"6 observations of each series need times of shape"):
        model(wrong(times), x)


def test_the_time_of_an_observation_is_finite_and_that_of_none_may_be_nan():
    model, (times, x) = made(), series()
    absent = torch.zeros(4, 6, dtype=torch.bool)
    absent[1, 2] = True
    missing = times.masked_fill(absent, math.nan)
    with pytest.raises(ct.ArgumentError, match="the time of an observation is NaN"):
        model.loss(missing, x)
    same(model.encode(missing, x, ~absent), model.encode(times, x, ~absent))


def test_observations_have_the_dtype_of_the_weights():
    model, (times, x) = made(), series()
    with pytest.raises(ct.ShapeError, match=r"are torch.float32 but .* are torch.float64"):
        model(times, x.float())
    with pytest.raises(ct.ShapeError, match=r"use x.to\(torch.float64\)$"):
        model(times, x.long())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_observation_is_finite(value):
    model, (times, x) = made(), series()
    x[2, 3, 1] = value
    mask = torch.ones(4, 6, dtype=torch.bool)
    with pytest.raises(ct.ArgumentError, match="an observation is NaN or infinite"):
        model(times, x, mask)
    mask[2, 3] = False
    assert model(times, x, mask).isfinite().all()


def test_observations_and_times_are_tensors():
    model, (times, x) = made(), series()
    with pytest.raises(ct.ShapeError, match="observations are a tensor, not ndarray"):
        model(times, x.numpy())
    with pytest.raises(ct.ShapeError, match="times are a tensor, not list"):
        model(times.tolist(), x)
