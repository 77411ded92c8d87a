"""Table 1 of Dissecting Neural ODEs: its models, its course and its report."""

import csv
import json
from dataclasses import replace

import pytest
import torch

import continua as ct
from continua import cli
from continua.data import Dataset, Part
from continua.measure import count_evaluations
from continua.recipes import RECIPES, STUDIES, Run
from continua.recipes._setup import shortened
from continua.recipes.dissecting import _table1
from continua.recipes.dissecting._table1 import KINDS, PAPER, Trained, as_csv, verdicts
from continua.train import evaluate

COUNTS = {
    "mnist": {"vanilla": 21_487, "zero": 20_398, "input-layer": 20_686, "second-order": 20_014},
    "cifar": {"vanilla": 37_091, "zero": 34_954, "input-layer": 36_088, "second-order": 34_618},
}
SHAPES = {"mnist": (1, 28, 28), "cifar": (3, 32, 32)}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", ["laptop", "full"])
def test_the_models_have_the_papers_size(name, kind, scale):
    study = STUDIES[f"dissecting/table1-{name}"]
    settings = (f"kind={kind}",)
    if kind == "vanilla":
        settings += (f"width={study.vanilla}",)
    setup = RECIPES[f"dissecting/table1-{name}"].run(scale, settings=settings).setup
    images = Part(torch.zeros(1, *SHAPES[name]), torch.zeros(1, dtype=torch.long))
    model = setup.make(Dataset("images", images, images, images, classes=10))
    assert sum(p.numel() for p in model.parameters()) == COUNTS[name][kind]
    assert model.block.solver == ct.Dopri5(1e-4, 1e-4)
    cheap = (name, scale) == ("mnist", "laptop")
    assert model.block.gradient == (ct.Backprop() if cheap else ct.Adjoint())
    # in the paper's thousands; it writes 21.4 for the vanilla model on MNIST
    assert COUNTS[name][kind] / 1000 == pytest.approx(study.paper[kind][2], abs=0.1)


def test_the_full_course_is_the_papers():
    for name in ("mnist", "cifar"):
        setup = RECIPES[f"dissecting/table1-{name}"].run("full").setup
        assert setup.training == PAPER
        assert (setup.samples, setup.held_out, setup.validation) == (None, None, 0.0)
        assert (setup.pad, setup.mirror, setup.label_smoothing) == (0, False, 0.0)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weight], lr=1e-3, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.9)
    for epoch in range(20):
        assert PAPER.rate(epoch + 0.5) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    made = PAPER.make_optimizer(torch.nn.Linear(1, 1))
    assert isinstance(made, torch.optim.AdamW)
    assert (made.defaults["lr"], made.defaults["weight_decay"]) == (1e-3, 5e-4)
    assert (PAPER.batch_size, PAPER.epochs, _table1.SEEDS["full"]) == (64, 20, 10)


def test_the_night_scale_rises_and_falls_once():
    setup = RECIPES["dissecting/table1-mnist"].run("night").setup
    course = setup.training
    assert (course.schedule, course.batch_size, course.optimizer) == ("one-cycle", 16, "adamw")
    assert course.rate(course.warmup) == pytest.approx(10 * PAPER.learning_rate)
    assert course.rate(0) == course.rate(course.epochs) == 0
    assert course.epochs * course.epoch_steps == 384
    # coarse steps need the exact gradient of the steps that were taken
    assert (setup.solver, setup.gradient) == ("Dopri5(1e-2, 1e-2)", "Backprop()")


def test_the_trained_model_is_measured_with_the_papers_solver(tmp_path):
    run = RECIPES["dissecting/table1-mnist"].run(
        "smoke", folder=tmp_path / "coarse", settings=("solver=Dopri5(1e-1, 1e-1)",)
    )
    run.train("cpu")
    found = _table1.with_papers_solver(run)
    _, task = run.load()
    model = run.model()
    model.block.solver = ct.Dopri5(1e-4, 1e-4)
    with count_evaluations(model) as count:
        expected = evaluate(model, task, "test", batch_size=64)
    assert found == (count.forward / count.solves, expected["accuracy"])
    assert count.solves == 1  # 64 images
    assert run.model().block.solver == ct.Dopri5(1e-1, 1e-1)
    # measured once: the second time it is read
    (path,) = (tmp_path / "coarse").glob("papers_solver.json")
    path.write_text('{"evaluations": 7.0, "accuracy": 0.5}')
    assert _table1.with_papers_solver(run) == (7.0, 0.5)


def test_the_study_at_smoke_scale(tmp_path):
    arguments = ["--scale", "smoke", "--device", "cpu", "--threads", "1"]
    folder = tmp_path / "study"
    command = ["reproduce", "dissecting/table1-mnist", *arguments, "--run-dir", str(folder)]
    assert cli.run(command) == 0
    report = (folder / "report.md").read_text()
    for name in KINDS.values():
        assert f"| {name} |" in report
    assert "98.9 % | 71 | 20.4K" in report
    assert "accuracy (paper)" in report
    assert "this holds here" in report or "this does not hold here" in report
    assert "Seeds alone change an accuracy by up to" in report
    facts = json.loads((folder / "report.json").read_text())
    assert [(run["kind"], run["seed"]) for run in facts["runs"]] == [
        (kind, seed) for kind in KINDS for seed in (0, 1)
    ]
    with (folder / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    for row, run in zip(rows, facts["runs"], strict=True):
        assert row["kind"] == run["kind"]
        assert float(row["forward"]) == run["forward"] >= 7
        assert float(row["backward"]) >= 7
        assert float(row["final"]) == run["final"] >= 8
        assert 0 <= run["fine"] <= 1
        assert len(run["course"]) == 2
        assert run["forward"] == pytest.approx(sum(run["course"]) / 2)
    assert (folder / "evaluations.png").stat().st_size > 1000
    # one of its runs is a run like any other
    run = Run.open(folder / "second-order-1")
    assert isinstance(run.model().block.field, ct.HigherOrder)
    assert cli.run(["evaluate", str(folder / "zero-0")]) == 0
    half = ["compress", str(folder / "zero-0"), str(tmp_path / "fixed"), "--solver", "RK4(steps=4)"]
    assert cli.run(half) == 0
    assert ct.load(tmp_path / "fixed").block.solver == ct.RK4(steps=4)


def results(accuracy, forward):
    return {
        kind: [Trained(kind, 0, 1, a, f, 2.0 * f, 0.1, (f,))]
        for kind, a, f in zip(KINDS, accuracy, forward, strict=True)
    }


@pytest.mark.parametrize(
    ("accuracy", "forward", "expected"),
    [
        ((0.6, 0.7, 0.75, 0.72), (93, 169, 65, 59), (True, True)),
        ((0.6, 0.7, 0.75, 0.69), (93, 169, 65, 59), (False, True)),
        ((0.7, 0.6, 0.75, 0.72), (50, 169, 65, 59), (False, False)),
    ],
)
def test_the_verdict_follows_the_numbers(accuracy, forward, expected):
    found = verdicts(results(accuracy, forward))
    assert tuple("this holds here" in sentence for sentence in found) == expected
    assert tuple("this does not hold here" in sentence for sentence in found) == tuple(
        not holds for holds in expected
    )
    assert f"0-augmented {100 * accuracy[1]:.2f} %" in found[0]


def test_evaluations_are_judged_in_the_trained_models():
    runs = results((0.6, 0.7, 0.75, 0.72), (93, 169, 65, 59))
    cost = dict(zip(KINDS, (20.0, 60.0, 30.0, 40.0), strict=True))
    final = {k: [replace(each[0], final=cost[k])] for k, each in runs.items()}
    assert "this holds here" in verdicts(runs)[1]
    assert "this does not hold here" in verdicts(final)[1]
    assert "vanilla 20.0, input layer 30.0" in verdicts(final)[1]
    assert "with the paper's solver" in verdicts(final)[1]


def test_a_kind_that_diverged_is_said():
    runs = results((0.6, 0.7, 0.75, 0.72), (93, 169, 65, 59)) | {"zero": [Trained("zero", 0)]}
    assert verdicts(runs) == [
        "The order cannot be compared: no training of 0-augmented came to an end."
    ]
    assert STUDIES["dissecting/table1-mnist"]._row("zero", runs["zero"])[2] == "diverged"
    assert "zero,0,,,,," in as_csv(runs)


def test_parts_can_be_shortened():
    part = Part(torch.zeros(10, 2), torch.zeros(10, dtype=torch.long))
    data = Dataset("points", part, part, part, classes=2)
    small = shortened(data, 7, 3)
    assert [len(p) for p in (small.train, small.validation, small.test)] == [7, 3, 3]
    with pytest.raises(ct.ArgumentError, match="held_out is at least 1, not 0"):
        shortened(data, None, 0)
