"""The image studies of NANODE: their models, their claims and their reports."""

import csv
import math
from dataclasses import replace

import pytest
import torch

import continua as ct
from continua import cli
from continua.data import Dataset, Part
from continua.recipes import RECIPES, STUDIES, Run
from continua.recipes.nanode import _figures, _polynomials
from continua.recipes.nanode._compress import targets
from continua.recipes.nanode._rows import (
    AUTO,
    CONSTRAINED,
    UNCONSTRAINED,
    Trained,
    activations,
    bucketed,
    cifar10,
    remarks,
    setting,
    steps_of,
    unread,
    waves,
)
from continua.recipes.nanode._table1 import BELOW, BEST, PAPER_10, PAPER_100, rows, verdicts
from recipes.commands import reproduced

SHAPE = (3, 32, 32)


def made(row, scale, classes=10):
    setup = cifar10.run(scale, settings=tuple(row.settings())).setup
    images = Part(torch.zeros(1, *SHAPE), torch.zeros(1, dtype=torch.long))
    return setup.make(Dataset("images", images, images, images, classes=classes))


# -- the rows ----------------------------------------------------------------------------------


def test_the_rows_are_the_papers():
    assert {row.name for row in rows(100)} == PAPER_10.keys() == PAPER_100.keys()
    assert {BEST, *BELOW} <= PAPER_10.keys()
    for row in rows(100):
        model = made(row, "full")
        flow = model.flow1
        if row.residual:
            assert (flow.solver, flow.gradient) == (ct.Euler(steps=10), ct.Backprop())
            assert flow.span == (0.0, 10.0)
        else:
            assert flow.solver == ct.AsynchronousLeapfrog(steps=100)
            assert flow.gradient == ct.Reversible()
            assert flow.span == (0.0, 1.0)
    # in units of one set of weights: 1, 10, 21 and 100, as the paper's 2.8e-4 to 2.8e-2 GB
    sizes = {row.name: weights(made(row, "full")) for row in rows(100)}
    one = sizes["Auto"]
    assert 4 * one == pytest.approx(2.8e-4 * 1e9, rel=0.02)
    assert sizes["Con. ResNet"] == one
    assert sizes["Uncon. ResNet"] == sizes["B-NANODE-10"] == 10 * one
    assert sizes["T-NANODE-10"] == 21 * one
    assert sizes["B-NANODE-100"] == 100 * one


def weights(model):
    return sum(p.numel() for name, p in model.named_parameters() if name.startswith("flow"))


def test_laptop_names_its_own_buckets():
    steps = steps_of(cifar10, "laptop")
    assert steps == 20
    assert rows(steps)[-1].name == "B-NANODE-20"
    assert steps_of(cifar10, "full") == 100


def test_activations_are_affine_in_the_batch_and_constant_in_the_steps():
    model = made(waves(2), "laptop")
    small = (3, 8, 8)
    three = ct.memory(model, torch.zeros(3, *small), methods=[ct.Reversible()]).rows[0].saved
    assert activations(model, small, 3) == three
    for block in (model.flow1, model.flow2, model.flow3):
        block.solver = ct.AsynchronousLeapfrog(steps=5)
    assert activations(model, small, 3) == three
    for block in (model.flow1, model.flow2, model.flow3):
        block.gradient = ct.Backprop()  # trained faster, counted as the paper does
    assert activations(model, small, 3) == three
    assert activations(made(CONSTRAINED, "laptop"), small, 3) > 3 * three


def test_the_night_scale_is_cheaper():
    setup = cifar10.scales["night"]
    assert (setup.samples, setup.held_out, setup.training.epochs) == (20_000, None, 15)
    for row in rows(steps_of(cifar10, "night")):
        model = made(row, "night")
        assert model.stem(torch.zeros(1, *SHAPE)).shape == (1, 32, 8, 8)
        block = model.flow2
        assert block.gradient == ct.Backprop()
        assert block.solver == ct.Euler(steps=10 if row.residual else 20)
    assert [row.name for row in rows(20)][-1] == "B-NANODE-20"
    # counted with reversible steps, which keep one step's activations
    assert activations(made(AUTO, "night"), SHAPE, 3) < activations(
        made(CONSTRAINED, "night"), SHAPE, 3
    )
    assert isinstance(made(AUTO, "night").flow1.solver, ct.Euler)


def test_the_setting_in_words():
    told = {scale: setting(cifar10, scale) for scale in ("laptop", "night", "full")}
    assert "the first 4,000 training images without data augmentation, 6 epochs" in told["laptop"]
    assert "20 steps of AsynchronousLeapfrog and `Reversible()`, which" in told["laptop"]
    assert "the first 20,000 training images mirrored at random, 15 epochs" in told["night"]
    assert "tested on all test images. The first convolution has stride 4." in told["night"]
    assert "20 steps of Euler and `Backprop()`" in told["night"]
    assert "shifted by up to 4 pixels and mirrored at random" in told["full"]


def test_the_full_setting_fits_two_gigabytes():
    """Of 128 images the flow keeps what one step needs, whatever the number of steps."""
    model = made(waves(10), "full")
    for block in (model.flow1, model.flow2, model.flow3):
        block.solver = ct.AsynchronousLeapfrog(steps=2)
    assert activations(model, SHAPE, 128) < 0.3e9


def test_unread_buckets_are_those_without_gradient():
    for size, steps in ((10, 4), (4, 4), (7, 3), (3, 10)):
        basis, solver = ct.PiecewiseConstant(size), ct.AsynchronousLeapfrog(steps=steps)
        block = ct.ODEBlock(torch.nn.Linear(1, 1), basis, solver)
        block(torch.ones(1, 1)).sum().backward()
        still = int((block.field.bias.grad.flatten() == 0).sum())
        assert unread(basis, solver) == still
    assert unread(ct.Fourier(9), ct.Euler(steps=2)) == 0


def test_remarks_name_what_is_never_read():
    assert remarks((AUTO, UNCONSTRAINED, bucketed(10), waves(10)), 20) == []
    (said,) = remarks((bucketed(50),), 20)
    assert "B-NANODE-50" in said
    assert "never read" in said


# -- table 1 -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table1(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table1")
    return folder, *reproduced("nanode/table1", folder)


def test_the_table(table1):
    folder, text, facts = table1
    for row in rows(4):
        assert f"| {row.name} |" in text
    assert "90.10 % | 0.3 GB | 5.60 MB" in text
    assert "accuracy (paper)" in text
    assert "this holds here" in text or "this does not hold here" in text
    assert "B-NANODE-100 has a hundred" in text
    assert "never read" in text  # ten buckets, four steps
    with (folder / "runs.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["row"] for line in lines] == [run["row"] for run in facts["runs"]]
    saved = {run["row"]: run["saved"] for run in facts["runs"]}
    flows = {saved[row.name] for row in rows(4) if not row.residual}
    assert len(flows) == 1
    assert saved["Con. ResNet"] == saved["Uncon. ResNet"] > 2 * flows.pop()


def test_a_run_of_the_table_is_a_run_like_any_other(table1, tmp_path):
    folder, _, facts = table1
    run = Run.open(folder / "t-nanode-10-0")
    assert run.model().flow1.gradient == ct.Reversible()
    assert cli.run(["evaluate", str(run.folder)]) == 0
    small = ["compress", str(run.folder), str(tmp_path / "small"), "--basis", "BSpline(4)"]
    assert cli.run(small) == 0
    # performed again, it finds its runs
    again = STUDIES["nanode/table1"].run(circumstances(folder))
    assert again.facts["runs"] == facts["runs"]


def circumstances(folder):
    from continua.recipes._study import Circumstances

    return Circumstances(folder, "smoke", device="cpu")


def results(**accuracy):
    names = {"auto": "Auto", "con": "Con. ResNet", "b": "B-NANODE-10", "t": "T-NANODE-10"}
    return {
        names[k]: [Trained(names[k], 0, 1, v, None, 0.1, 10, 4, 400)] for k, v in accuracy.items()
    }


def test_the_verdict_follows_the_numbers():
    (said,) = verdicts(results(auto=0.5, con=0.4, b=0.45, t=0.6))
    assert "this holds here" in said
    assert "2.45 points" in said
    (said,) = verdicts(results(auto=0.5, con=0.4, b=0.65, t=0.6))
    assert "this does not hold here, where it is above Auto and Con. ResNet" in said
    (said,) = verdicts(results(auto=0.5, con=None, b=0.65, t=0.6))
    assert said == "The order cannot be compared: Con. ResNet diverged."


def test_a_diverged_row_is_told(tmp_path, monkeypatch):
    def diverges(*_, **__):
        raise ct.SolveError("the training loss is nan")

    monkeypatch.setattr("continua.recipes._study.Circumstances.train", diverges)
    report = STUDIES["nanode/table1-cifar100"].run(circumstances(tmp_path))
    assert "| Auto | diverged |" in report.text
    assert "66.49 %" in report.text


# -- the figures -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["figure1", "figure2"])
def test_the_figures(name, tmp_path):
    text, facts = reproduced(f"nanode/{name}", tmp_path)
    study = STUDIES[f"nanode/{name}"]
    assert facts["lines"].keys() == set(study.families)
    assert (tmp_path / "orders.png").stat().st_size > 5_000
    for row in study.references:
        assert f"| {row.name} |" in text
    measure = "train_accuracy" if name == "figure1" else "accuracy"
    measured = {run["row"]: run[measure] for run in facts["runs"]}
    assert facts["lines"]["T-NANODE"]["2"] == measured["T-NANODE-2"]


def test_the_orders_are_the_papers():
    assert list(STUDIES["nanode/figure1"].orders["full"]) == list(range(1, 31))
    assert list(STUDIES["nanode/figure2"].orders["full"]) == list(range(4, 11))
    for study in (STUDIES["nanode/figure1"], STUDIES["nanode/figure2"]):
        assert len(study.orders["night"]) >= 4
        assert study.takes.keys() == study.orders.keys()


def test_the_figures_sentences_follow_the_numbers():
    lines = {"T-NANODE": {1: 0.5, 2: 0.6, 3: 0.6}, "B-NANODE": {1: 0.4, 2: 0.3, 3: 0.35}}
    first, second, third = _figures.sentences(lines, {"Con. ResNet": 0.55})
    assert "never falling" in first
    assert "above it at 2" in first
    assert "not rising all the way" in second
    assert "nowhere above it" in second
    assert "this holds here, where it is so at 3 of 3" in third
    two = {"T-NANODE": {1: 0.5, 2: 0.6}}
    assert "in between" not in _figures.sentences(two, {})[0]
    lines["B-NANODE"][2] = 0.7
    assert "this does not hold here" in _figures.sentences(lines, {})[-1]


# -- compression and polynomials ---------------------------------------------------------------


def test_compression(tmp_path):
    text, facts = reproduced("nanode/compress-nanode", tmp_path)
    assert [trial["basis"] for trial in facts["trials"]] == [
        "Fourier", "Fourier", "Fourier", "PiecewiseConstant", "BSpline",
    ]  # fmt: skip
    source, *others = facts["trials"]
    assert all(trial["parameters"] < source["parameters"] for trial in others)
    assert "`BSpline(4, degree=3)`" in text
    assert (tmp_path / "accuracy.png").stat().st_size > 5_000


def test_fewer_harmonics_keep_the_period():
    for scale in ("smoke", "laptop", "full"):
        for basis in targets(scale):
            assert basis.size < 21
            if isinstance(basis, ct.Fourier):
                assert basis.period == 2 * math.pi


def test_polynomials(tmp_path):
    text, facts = reproduced("nanode/polynomials", tmp_path)
    curves = facts["curves"]
    assert len(curves) == 5
    assert len({curve["parameters"] for curve in curves}) == 1  # grown to the same size
    assert all(len(curve["losses"]) == 3 for curve in curves)
    assert (tmp_path / "losses.png").stat().st_size > 5_000
    assert "hard to train" in text
    grown = Run.open(tmp_path / "polynomial-4-grown-1").model()
    assert next(iter(grown.flow1.expansion.weights.values())) == ct.Polynomial(4)
    assert grown.flow1.solver == ct.AsynchronousLeapfrog(steps=4)


def test_the_polynomials_sentence_follows_the_numbers():
    curve = _polynomials.Curve
    curves = [
        curve("Polynomial(4)", (1.0, 0.4), 0.8, 1), curve("Legendre(4)", (1.0, 0.2), 0.9, 1),
        curve("Chebyshev(4)", (1.0, 0.3), 0.9, 1), curve("grown", (1.0,)),
    ]  # fmt: skip
    said = _polynomials.sentence(curves)
    assert "Legendre(4) ends at 0.50 times that" in said
    assert "monomials are harder to train than both" in said
    assert "the training of grown diverged" in said
    curves[1] = replace(curves[1], losses=(1.0, 0.5))
    assert "not harder" in _polynomials.sentence(curves)
    assert "diverged" in _polynomials.sentence([curve("Polynomial(4)", ()), *curves[1:]])


def test_every_recipe_has_every_scale():
    for name in ("nanode/cifar10", "nanode/cifar100"):
        assert RECIPES[name].scales.keys() == {"smoke", "laptop", "night", "full"}
    assert RECIPES["nanode/digits"].scales.keys() == {"smoke", "laptop", "full"}
