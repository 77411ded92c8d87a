"""The crossing study of NANODE."""

import math

import pytest
import torch

import continua as ct
from continua.recipes.nanode._crossing import (
    LABELS,
    Crossing,
    disk,
    line,
    lowest_error,
    models,
    rotation,
    sentences,
)
from recipes.commands import reproduced


@pytest.mark.parametrize("angle", [0.3, math.pi / 2, math.pi])
def test_the_rotation_has_its_closed_form(angle):
    x = disk().double()
    turn = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]],
        dtype=torch.float64,
    )
    torch.testing.assert_close(rotation(angle)(x), x @ turn.T, atol=1e-6, rtol=0)


def test_half_a_turn_is_the_crossing():
    x = disk().double()
    torch.testing.assert_close(rotation()(x), -x, atol=1e-6, rtol=0)
    alone = line().double()
    beside = Crossing(rotation(), zeros=1)
    torch.testing.assert_close(beside(alone), -alone, atol=1e-6, rtol=0)


def test_the_bound_on_a_line_is_that_of_the_constant():
    """Isotonic regression of a falling function gives its mean."""
    isotonic = pytest.importorskip("sklearn.isotonic").IsotonicRegression()
    x = line()
    best = torch.tensor(isotonic.fit_transform(x[:, 0].numpy(), -x[:, 0].numpy()))
    assert float((best + x[:, 0]).square().mean()) == pytest.approx(lowest_error(x))


@pytest.mark.parametrize("name", ["line", "line-nanode"])
@pytest.mark.parametrize("seed", range(3))
def test_no_flow_on_a_line_crosses(name, seed):
    """Whatever its weights do over depth, and however large they are."""
    torch.manual_seed(seed)
    model, x = models()[name]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
        model.block.solver = ct.RK4(steps=200)
        out = model(x)
    assert bool((out.diff(dim=0) > -1e-5).all())
    assert float((out + x).square().mean()) >= lowest_error(x) - 1e-4


def test_the_crossing_study(tmp_path):
    text, facts = reproduced("nanode/crossing", tmp_path)
    for sentence in sentences(facts):
        assert sentence in text
    assert facts["rotation_error"] < 1e-6
    for name in LABELS:
        assert f"| {LABELS[name]} |" in text
        assert (tmp_path / f"{name}.png").stat().st_size > 5_000
    assert (tmp_path / "rotation.png").stat().st_size > 5_000


def test_the_crossing_sentence_follows_the_numbers():
    facts = {
        "rotation_error": 1e-8, "lowest_on_a_line": 0.34, "line": 0.35, "line-nanode": 0.341,
        "plane": 1e-5, "plane-nanode": 1e-5, "augmented": 0.2,
        "augmented-nanode": 1e-6,
    }  # fmt: skip
    said = " ".join(sentences(facts))
    assert "neither below it" in said
    assert LABELS["plane"] in said
    assert f"; not {LABELS['augmented']} (0.2), which can cross too" in said
    assert "which is below it" in " ".join(sentences(facts | {"line": 0.1}))
