"""The demonstration, in a run that is too short to be good."""

import dataclasses
import json
import math
import shutil

import pytest
import torch

import continua as ct
from continua.data import digits
from continua.recipes import DemoOptions, _demo, _demo_training, run_demo

MODELS = ("source", *(variant.name for variant in _demo.VARIANTS))


def tiny(folder, **changes):
    return DemoOptions(run_dir=folder, epochs=4, width=4, seed=1, **changes)


def weights_of(folder, name):
    return (folder / "models" / name / "model.safetensors").read_bytes()


@pytest.fixture(autouse=True, scope="module")
def few_rounds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_demo, "LATENCY_ROUNDS", 2)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    seen = []
    (folder / "mine.txt").write_text("not the demo's")
    return folder, run_demo(tiny(folder), seen.append), seen


def test_every_file_is_there_and_nothing_else(run):
    folder, report, _ = run
    figures = {"accuracy.png", "weights.png", "variance.png"}
    others = {"metrics.json", "models", "mine.txt", "report.html"}
    assert {p.name for p in folder.iterdir()} == figures | others
    assert {p.name for p in (folder / "models").iterdir()} == {*MODELS, "elastic"}
    for name in figures:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    assert all((folder / name).exists() for name in report.files)


def test_the_metrics_are_those_of_the_table(run):
    folder, report, _ = run
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics == json.loads(json.dumps(report.metrics))
    assert metrics["recipe"] == "demo"
    assert metrics["held_out_images"] == report.held_out == 450
    assert metrics["rows"] == [dataclasses.asdict(row) for row in report.rows]
    assert metrics["options"]["epochs"] == 4
    assert metrics["seconds"]["total"] >= metrics["seconds"]["training"] > 0
    assert metrics["versions"]["torch"] == torch.__version__


def test_one_elastic_run_beside_networks_trained_alone(run):
    folder, report, _ = run
    family = report.metrics["family"]
    assert [row["size"] for row in family] == [4, 2, 1]
    for row in family:
        model = ct.load(folder / "models" / "elastic", size=row["size"]).eval()
        assert sum(p.numel() for p in model.parameters()) == row["parameters"]
        split = digits(1)
        right = (model(split.test_images).argmax(1) == split.test_labels).sum()
        assert row["elastic"] == int(right) / 450
        assert 0 < row["alone"] <= 1


def test_training_doubles_the_functions(run):
    _, report, _ = run
    history = report.metrics["training"]["history"]
    assert [epoch["functions"] for epoch in history] == [1, 2, 4, 8]
    assert history[-1]["loss"] < history[0]["loss"]
    assert (report.source.basis, report.source.steps) == ("PiecewiseConstant(8)", 8)


def test_the_rows_are_relative_to_the_source(run):
    _, report, _ = run
    assert tuple(row.name for row in report.rows) == MODELS
    source = report.source
    assert (source.parameter_ratio, source.accuracy_change, source.latency_ratio) == (1, 0, 1)
    assert (report.half.basis, report.half.steps) == ("PiecewiseConstant(4)", 8)
    for row in report.rows:
        assert row.accuracy == row.correct / 450
        assert row.accuracy_change == pytest.approx(
            100 * (row.accuracy - source.accuracy), abs=1e-3
        )
        assert row.parameter_ratio == pytest.approx(row.parameters / source.parameters, abs=1e-3)
        assert row.milliseconds > 0


def test_it_is_better_than_chance(run):
    assert run[1].source.accuracy > 0.15


def test_the_saved_models_have_the_accuracy_of_the_table(run):
    folder, report, _ = run
    split = digits(seed=1)
    for row in report.rows:
        model = ct.load(folder / "models" / row.name)
        with torch.no_grad():
            found = model(split.test_images).argmax(1)
        assert int((found == split.test_labels).sum()) == row.correct
        assert sum(p.numel() for p in model.parameters()) == row.parameters


def test_progress_runs_through_every_stage_to_its_end(run):
    _, _, seen = run
    stages = dict.fromkeys(p.stage for p in seen)
    assert list(stages) == ["training", "sizes", "evaluating", "timing", "writing"]
    for stage in stages:
        done = [p.done for p in seen if p.stage == stage]
        assert done == sorted(done)
        assert done[-1] == next(p.total for p in seen if p.stage == stage)


def test_a_second_run_over_the_first_gives_the_same_models_and_sees_no_held_out_image(
    run, tmp_path, monkeypatch
):
    folder, report, _ = run
    again_in = shutil.copytree(folder, tmp_path / "again")
    for name in MODELS:
        (again_in / "models" / name / "model.safetensors").write_bytes(b"to be replaced")

    def garbage(seed):
        split = digits(seed)
        return dataclasses.replace(
            split,
            test_images=torch.full_like(split.test_images, 0.5),
            test_labels=torch.zeros_like(split.test_labels),
        )

    monkeypatch.setattr(_demo, "digits", garbage)
    torch.manual_seed(5)
    with pytest.raises(ct.FileError, match="--force"):
        run_demo(tiny(again_in))
    again = run_demo(dataclasses.replace(tiny(again_in), force=True))
    after = torch.rand(1)

    assert again.metrics["training"]["history"] == report.metrics["training"]["history"]
    assert again.source.accuracy != report.source.accuracy
    for name in MODELS:
        assert weights_of(again_in, name) == weights_of(folder, name)
    assert (again_in / "mine.txt").read_text() == "not the demo's"
    assert not list(again_in.rglob(".*"))
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))  # the caller's random numbers are as they were


def test_the_number_of_threads_is_given_back():
    before = torch.get_num_threads()
    with _demo.threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 3}, "epochs is a whole number of at least 4, not 3"),
        ({"epochs": -1}, "epochs is a whole number of at least 4"),
        ({"width": 0}, "width is a whole number of at least 1, not 0"),
        ({"threads": 0}, "threads is a whole number of at least 1, not 0"),
        ({"seed": -1}, "seed is a whole number of at least 0, not -1"),
        ({"seed": 2**32}, "seed is at most"),
        ({"device": "abacus"}, "no device 'abacus' here"),
        ({"device": "cuda:99"}, "no device 'cuda:99' here"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(changes, said, tmp_path, monkeypatch):
    monkeypatch.setattr(_demo, "train", lambda *_, **__: pytest.fail("it began to train"))
    with pytest.raises(ct.ContinuaError, match=said):
        run_demo(dataclasses.replace(tiny(tmp_path), **changes))


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(_demo, "train", lambda *_, **__: pytest.fail("it began to train"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ct.FileError, match=r"cannot write to the run folder .*file"):
        run_demo(tiny(tmp_path / "file" / "below"))


@pytest.mark.parametrize("content", ["{}", "not JSON", '{"recipe": "other"}', "[1]"])
def test_files_of_someone_else_are_not_replaced(content, tmp_path, monkeypatch):
    monkeypatch.setattr(_demo, "train", lambda *_, **__: pytest.fail("it began to train"))
    (tmp_path / "metrics.json").write_text(content)
    with pytest.raises(ct.FileError, match=r"has 'metrics\.json', which no run of the demo wrote"):
        run_demo(tiny(tmp_path))
    assert (tmp_path / "metrics.json").read_text() == content


def test_learning_rate_rises_and_falls_over_the_whole_training():
    rates = [_demo_training.learning_rate(i / 1000) for i in range(1001)]
    top = rates.index(max(rates))
    assert rates[0] == 0
    assert rates[-1] == pytest.approx(0, abs=1e-12)
    assert rates[top] == pytest.approx(_demo_training.LEARNING_RATE)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)


@pytest.mark.parametrize("epochs", [4, 5, 6, 7, 10, 40])
def test_every_level_gets_an_epoch(epochs):
    starts = _demo_training.level_starts(epochs)
    assert 0 < starts[0] < starts[1] < starts[2] < epochs


def test_augmentation_moves_most_images_a_little():
    image = torch.zeros(1000, 1, 8, 8)
    image[:, :, 3:5, 3:5] = 1.0
    moved = _demo_training.augmented(image, torch.Generator().manual_seed(0))
    same = (moved == image).all((1, 2, 3))
    assert same.float().mean().item() == pytest.approx(1 - _demo_training.WARPED, abs=0.05)
    moved = moved[~same, 0]
    assert (moved >= 0).all()
    assert (moved <= 1).all()
    grid = torch.arange(8) - 3.5
    for axis in (1, 2):
        centre = (moved.sum(axis) * grid).sum(1) / moved.sum((1, 2))
        assert centre.abs().max() < _demo_training.SHIFT + 0.5
        assert centre.std().item() == pytest.approx(_demo_training.SHIFT / math.sqrt(3), rel=0.2)
