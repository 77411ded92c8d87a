"""Galerkin and stacked flows, densities in the plane, descent in functions: parts and wholes."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

import continua as ct
from continua import plot
from continua.data import Part, load
from continua.recipes import STUDIES
from continua.recipes._study import Circumstances
from continua.recipes.dissecting import _density, _functional, _galerkin

NORMAL = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)


@pytest.fixture
def performed(monkeypatch, tmp_path):
    """Runs a study; its report and the names of its figures, which are drawn but not rendered."""

    def perform(name, module):
        names = []

        def keep(path, figure):
            assert isinstance(figure, plot.Figure)
            names.append(path.stem)

        monkeypatch.setattr(module, "write_figure", keep)
        report = STUDIES[f"dissecting/{name}"].run(Circumstances(tmp_path, "smoke"))
        return report, sorted(names)

    return perform


# Galerkin and stacked


def test_galerkin_and_stacked(performed):
    report, figures = performed("galerkin-stacked", _galerkin)
    kinds = ("decision", "flow", "plane", "weights")
    assert figures == [f"{name}-{kind}" for name in ("galerkin", "stacked") for kind in kinds]
    for name, size in (("Galerkin", 11), ("stacked", 5)):
        found = report.facts[name]
        # 2 - 32 - 2 and a read-out of 2 weights and an offset
        assert found["parameters"] == size * (2 * 32 + 32 + 32 * 2 + 2) + 3
        assert 0 <= found["accuracy"] <= 1
        assert found["variation"] > 0
        assert f"{100 * found['accuracy']:.2f} %" in report.text


def test_the_share_that_varies_with_depth():
    block = ct.ODEBlock(nn.Linear(1, 1, bias=False), ct.Fourier(1))
    assert _galerkin.variation(block) == pytest.approx(0)
    with torch.no_grad():
        block.field.weight.copy_(torch.tensor([3.0, 4.0, 0.0]).reshape(3, 1, 1))
    # 3 + 4 cos has the mean square 9 + 8, of which 8 vary.
    assert _galerkin.variation(block) == pytest.approx(math.sqrt(8 / 17))


# Densities


def test_densities(performed):
    report, figures = performed("density", _density)
    sets = ("checkerboard", "moons")
    assert figures == [f"{s}{rest}" for s in sets for rest in ("", "-class-0", "-class-1")]
    for name in sets:
        for kind, classes in (("unconditional", 1), ("conditional", 2)):
            for trace in ("exact", "hutchinson"):
                found = report.facts[name][kind][trace]
                assert len(found["masses"]) == len(found["masses_by_estimate"]) == classes
                # Trained or not, a flow has a density; the grid is coarse here.
                assert found["masses"] == pytest.approx([1] * classes, abs=0.02)
                assert found["noise"] > 0
                assert math.isfinite(found["log_likelihood"])
                assert f"{found['log_likelihood']:.3f}" in report.text
    assert report.facts["checkerboard"]["unconditional"]["best"] == pytest.approx(-math.log(8))


def test_the_mass_of_a_normal_distribution():
    whole, error = _density.mass(NORMAL.log_prob, (-6.0, 6.0, -7.0, 7.0), 61)
    assert whole == pytest.approx(1, abs=1e-5)
    assert error < 1e-4
    half, _ = _density.mass(NORMAL.log_prob, (0.0, 6.0, -7.0, 7.0), 201)
    assert half == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("name", ["moons", "checkerboard"])
def test_the_true_densities(name):
    """They integrate to one over the plane, and to the entropies that their sets have."""
    truth, extent = _density.TRUTHS[name], _density.EXTENTS[name]
    data = load(name, n=8192, validation=0.0, noise=_density.NOISES[name])
    apart, together = (float(truth(data.test, flag).mean()) for flag in (True, False))
    assert 0 < apart - together <= math.log(2) + 1e-6
    if name == "checkerboard":
        assert (apart, together) == pytest.approx((-math.log(4), -math.log(8)))
        return
    for label in (0, 1, None):
        whole, _ = _density.mass(
            lambda x, label=label: truth(
                Part(x, torch.full((len(x),), label or 0)), label is not None
            ).float(),
            extent,
            141,
        )
        assert whole == pytest.approx(1, abs=1e-4)
    # Points of the other moon are not likely under this one.
    swapped = Part(data.test.inputs, 1 - data.test.targets)
    assert float(truth(swapped, True).mean()) < apart - 5


# Descent in functions


def test_functional_descent(performed):
    report, figures = performed("functional-gradient", _functional)
    assert figures == ["losses"]
    whole = report.facts["functional_gradient_norm"]
    for family, bases in _functional.FAMILIES.items():
        lengths = [report.facts[f"{family} {size}"]["first_step"]["functional"] for size in bases]
        # A projection is shorter than what it projects, and the larger span has more of it.
        assert lengths == sorted(lengths)
        assert lengths[0] < lengths[-1] < whole * 1.001
    for size in _functional.FAMILIES["buckets"]:
        first = report.facts[f"buckets {size}"]["first_step"]
        assert first["functional"] == pytest.approx(size * first["plain"])
    assert report.facts["monomials 8"]["condition"] > 1e9


def test_buckets_by_functions_are_buckets_at_a_larger_rate(tmp_path, monkeypatch):
    """The Gram matrix of K buckets is I/K, in training as in the first step."""
    x = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    here = Circumstances(tmp_path, "smoke")
    values = {}
    for functional, rate in ((True, 0.02), (False, 0.08)):
        monkeypatch.setattr(_functional, "RATE", rate)
        block = _functional.made(ct.PiecewiseConstant(4), 0)
        values[functional] = _functional.descend(
            block, x, 4, functional=functional, name="", here=here
        )
    assert values[True] == pytest.approx(values[False], rel=1e-10)
    assert values[True][-1] < values[True][0]
