"""Video prediction from the recipe to the table."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch

import continua as ct
from continua import cli
from continua.models import video_predictor
from continua.recipes import RECIPES, STUDIES, Run, VideoSetup
from continua.recipes.nanode._video import FULL, KINDS, activations, sentence
from continua.train import Training
from data import layouts

SETTINGS = ("--scale", "smoke", "--device", "cpu", "--threads", "1")
TINY = VideoSetup(
    data="frames", size=None, width=2, stages=2, features=4, latent=2, hidden=4, predicted=2,
    training=Training(epochs=1, batch_size=2, optimizer="adam", learning_rate=1e-3),
)  # fmt: skip


def run(capsys, *arguments):
    code = cli.run([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table2")
    name = "nanode/table2-moving-mnist"
    assert cli.run(["reproduce", name, *SETTINGS, "--run-dir", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_the_table(study):
    report = (study / "report.md").read_text()
    for label in KINDS.values():
        assert re.search(rf"^\| {label} \| [\d.]+ \|", report, re.M)
    facts = json.loads((study / "report.json").read_text())
    assert facts["svg"]["parameter_bytes"] == facts["auto"]["parameter_bytes"]
    assert facts["nanode"]["parameter_bytes"] > 2 * facts["svg"]["parameter_bytes"]
    for kind in KINDS:
        test = facts[kind]["result"]["test"]
        assert {"loss", "reconstruction", "kl", "psnr", "ssim"} <= test.keys()
        assert test["loss"] == pytest.approx(test["reconstruction"] + 1e-4 * test["kl"], rel=1e-4)
    saved = {kind: facts[kind]["activation_bytes"] for kind in KINDS}
    assert saved["svg"].keys() == {"backprop"}
    for kind in ("auto", "nanode"):
        assert saved[kind]["checkpoint"] < saved["svg"]["backprop"] < saved[kind]["backprop"]
    assert sentence(facts, "moving-mnist") in report
    for kind in KINDS:
        assert (study / f"{kind}-1.png").stat().st_size > 5000
        assert (study / f"{kind}.gif").stat().st_size > 5000


@pytest.mark.slow
def test_a_run_of_the_study_is_evaluated_and_not_swept(study, capsys):
    code, out, _ = run(capsys, "evaluate", study / "nanode", "--device", "cpu", "--json")
    assert code == 0
    found = json.loads(out)
    result = json.loads((study / "nanode" / "result.json").read_text())
    assert found["psnr"] == pytest.approx(result["test"]["psnr"], rel=1e-5)
    code, out, _ = run(capsys, "evaluate", study / "nanode", "--device", "cpu")
    assert code == 0
    assert re.search(
        r"loss [\d.]+, reconstruction .*, ssim_mean .* on the test part, 4 samples", out
    )
    code, _, err = run(capsys, "sweep", study / "nanode")
    assert code == 2
    assert "is measured by its loss; use continua compress" in err
    code, out, _ = run(
        capsys, "train", "nanode/moving-mnist-nanode", *SETTINGS, "--run-dir", study / "nanode"
    )
    assert code == 0
    assert "Next: continua evaluate" in out
    model = Run.open(study / "nanode").model()
    gradients = {type(m.gradient) for m in model.modules() if isinstance(m, ct.ODEBlock)}
    assert gradients == {ct.Checkpoint}


@pytest.mark.parametrize("data", ["moving-mnist", "bair"])
@pytest.mark.parametrize("kind", KINDS)
def test_recipes_are_of_their_kind(data, kind):
    recipe = RECIPES[f"nanode/{data}-{kind}"]
    assert {setup.kind for setup in recipe.scales.values()} == {kind}
    assert recipe.scales["full"].data == data
    assert (recipe.scales["full"].conditioning, recipe.scales["full"].predicted) == (2, 10)
    assert f"nanode/table2-{data}" in STUDIES


def test_weights_at_full_scale_are_those_of_the_paper_nearly():
    """Its table says 4.6e-3, 4.6e-3 and 1.9e-2 GB."""
    for kind, gigabytes in (("svg", 4.6e-3), ("auto", 4.6e-3), ("nanode", 1.9e-2)):
        model = video_predictor(
            kind=kind, size=64, width=FULL.width, stages=FULL.stages, features=FULL.features,
            latent=FULL.latent, hidden=FULL.hidden,
        )  # fmt: skip
        found = sum(4 * p.numel() for p in model.parameters()) / 1e9
        assert found == pytest.approx(gigabytes, rel=0.15)


def test_activations_are_affine_in_the_batch(tmp_path):
    np.save(tmp_path / "clips.npy", np.zeros((8, 4, 8, 8), np.uint8))
    setup = TINY
    dataset = setup.dataset(tmp_path)
    task, model = setup.task(dataset), setup.make(dataset)
    found = activations(model, task, 5)
    frames = task.batch("train", torch.zeros(5, dtype=torch.long), None)[0]
    rows = ct.memory(model.train(), frames, methods=(ct.Backprop(), ct.Checkpoint())).rows
    assert found == {"backprop": rows[0].saved, "checkpoint": rows[1].saved}


def test_bair_trains_from_its_records(tmp_path):
    layouts.bair(tmp_path, train=(8, 3), test=1, frames=30)
    setup = RECIPES["nanode/bair-auto"].run(
        "laptop",
        data_folder=tmp_path,
        folder=tmp_path / "run",
        settings=(
            "width=2", "features=4", "hidden=4", "latent=2", "epochs=1", "epoch_steps=1",
            "batch_size=2", "futures=1", "schedule=constant", "held_out=1",
        ),
    )  # fmt: skip
    _, result = setup.train("cpu")
    assert result["test_samples"] == 1
    assert {"psnr", "ssim"} <= result["test"].keys()


def test_some_clips_of_bair_are_read_from_an_array(tmp_path):
    clips = np.random.default_rng(0).integers(0, 256, (8, 12, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "few.npz", bair=clips, other=np.zeros((3, 2, 4, 4), np.uint8))
    setup = RECIPES["nanode/bair-svg"].scales["laptop"]
    dataset = setup.dataset(tmp_path / "few.npz")
    assert dataset.name == "bair (few.npz)"
    assert dataset.shape == (3, 16, 16)
    assert len(dataset.train) + len(dataset.validation) + len(dataset.test) == 8
    np.savez(tmp_path / "none.npz", kth=clips)
    with pytest.raises(ct.ArgumentError, match="there is no array 'bair'; there are 'kth'"):
        setup.dataset(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"stages": 1, "predicted": 20},
            "have 6 frames, fewer than the 2 given and the 20 predicted",
        ),
        ({}, "size=10 cannot be halved 2 times"),
        ({"stages": 1, "gradient": "adjoint"}, "gradient is 'checkpoint' or 'backprop'"),
        ({"held_out": 0}, "held_out is at least 1, not 0"),
        ({"data": "moving-digits"}, "moving digits need a frame: give size"),
        ({"data": "digits"}, "digits are no clips"),
    ],
)
def test_what_cannot_work_is_told(tmp_path, changes, match):
    np.save(tmp_path / "clips.npy", np.zeros((8, 6, 10, 10), np.uint8))
    setup = dataclasses.replace(TINY, **changes)

    def begin():
        dataset = setup.dataset(tmp_path)
        setup.make(dataset)
        setup.task(dataset)

    with pytest.raises(ct.ArgumentError, match=match):
        begin()


def test_frames_that_are_not_square(tmp_path):
    np.save(tmp_path / "clips.npy", np.zeros((8, 6, 8, 10), np.uint8))
    with pytest.raises(ct.ArgumentError, match="are 8x10, not square; give size="):
        TINY.make(TINY.dataset(tmp_path))
