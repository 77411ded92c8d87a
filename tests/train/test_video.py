"""The task of predicting video, in the one loop."""

import pytest
import torch

import continua as ct
from continua.data import load
from continua.models import VideoPredictor, psnr, ssim, video_predictor
from continua.train import Training, VideoPrediction, evaluate, fit
from train.subjects import points

SMALL = {"size": 16, "width": 2, "stages": 2, "features": 4, "latent": 2, "hidden": 4}


def clips(**options):
    return load("moving-digits", **{"n": 30, "test": 5, "frames": 6, "size": 16} | options)


def task(**options):
    return VideoPrediction(clips(), **{"conditioning": 2, "predicted": 3, "futures": 3} | options)


def make(kind="nanode") -> VideoPredictor:
    torch.manual_seed(0)
    return ct.build(video_predictor, kind=kind, **SMALL)


@pytest.mark.parametrize("part", ["validation", "test"])
def test_measures_do_not_depend_on_the_batch_size(part):
    model, whole = make().eval(), task()
    found = [evaluate(model, whole, part, batch_size=n) for n in (1, 2, 50)]
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-4)
    assert {"loss", "reconstruction", "kl"} <= found[0].keys()
    assert ("psnr" in found[0]) == ("ssim" in found[0]) == (part == "test")


def test_the_loss_is_the_bound():
    model, whole = make().eval(), task(beta=0.5)
    found = evaluate(model, whole)
    assert found["loss"] == pytest.approx(found["reconstruction"] + 0.5 * found["kl"], rel=1e-5)
    batch = whole.batch("validation", torch.arange(3), None)
    loss, tally = whole.loss(model, batch)
    assert tally.means()["loss"] == pytest.approx(loss.item(), rel=1e-5)
    model.train()
    torch.manual_seed(4)
    loss, tally = whole.loss(model, batch)
    assert loss.requires_grad
    assert tally.means()["loss"] == pytest.approx(loss.item(), rel=1e-5)
    torch.manual_seed(4)
    terms = model(batch[0], conditioning=2)
    assert loss.item() == pytest.approx((terms[..., 0] + 0.5 * terms[..., 1]).mean().item())


def test_the_best_future_counts_and_the_mean_beside_it():
    model, whole = make().eval(), task()
    frames, _, futures = whole.batch("test", torch.arange(5), None)
    assert int(futures) == 3
    found = evaluate(model, whole, "test")
    assert found["psnr"] >= found["psnr_mean"]
    assert found["ssim"] >= found["ssim_mean"]
    one = evaluate(model, task(futures=1), "test")
    assert one["psnr"] == one["psnr_mean"]
    # Futures of an untrained model hardly differ: any of them tells.
    future = model.sample(frames[:, :2], 3)[0]
    assert one["psnr"] == pytest.approx(float(psnr(future, frames[:, 2:]).mean()), abs=0.2)
    assert one["ssim"] == pytest.approx(float(ssim(future, frames[:, 2:]).mean()), abs=0.05)


def test_frames_are_given_and_predicted():
    whole = task()
    frames, index, futures = whole.batch("train", torch.arange(4), torch.Generator())
    assert frames.shape == (4, 5, 1, 16, 16)
    assert torch.equal(index, torch.arange(4))
    assert int(futures) == 0


@pytest.mark.parametrize("kind", ["svg", "nanode"])
def test_it_trains_in_the_loop(kind, tmp_path):
    training = Training(
        epochs=2, batch_size=9, optimizer="adam", learning_rate=2e-3, schedule="constant"
    )
    outcome = fit(lambda: make(kind), task(), training, tmp_path, device="cpu")
    lines = outcome.history
    assert {"loss", "reconstruction", "kl"} == lines[-1]["validation"].keys()
    assert lines[-1]["train"]["loss"] < lines[0]["train"]["loss"]
    found = evaluate(outcome.model, task())
    assert found["loss"] == pytest.approx(min(line["validation"]["loss"] for line in lines))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"predicted": 5}, "have 6 frames, fewer than the 2 given and the 5 predicted"),
        ({"conditioning": 0}, "conditioning is a whole number of at least 1, not 0"),
        ({"futures": 1.5}, "futures is a whole number"),
        ({"beta": -1}, "beta is a number of at least 0, not -1"),
    ],
)
def test_what_cannot_work_is_refused(options, match):
    with pytest.raises(ct.ArgumentError, match=match):
        task(**options)


def test_what_is_no_video_is_refused():
    with pytest.raises(ct.ArgumentError, match="are no clips"):
        VideoPrediction(points())
    with pytest.raises(ct.ModuleError, match="Linear is no VideoPredictor"):
        evaluate(torch.nn.Linear(2, 2), task())
