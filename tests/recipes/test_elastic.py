"""Recipes that train several sizes at once."""

import pytest

import continua as ct
from continua.recipes import RECIPES, Run
from recipes.commands import run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elastic") / "run"
    settings = ("elastic=(4, 2, 1)", "smoothness=0.01", "samples=128", "width=4", "held_out=40")
    made = RECIPES["stateful/digits"].run("smoke", folder=folder, settings=settings)
    return folder, made.train("cpu")


def test_the_result_has_every_size(trained):
    folder, (outcome, result) = trained
    assert list(result["sizes"]) == ["4", "2", "1"]
    assert result["sizes"]["4"]["test"] == result["test"]
    counts = [found["parameters"] for found in result["sizes"].values()]
    assert counts == sorted(counts, reverse=True)
    assert isinstance(outcome.model, ct.Elastic)
    assert Run.open(folder).result() == result


def test_other_commands_see_the_full_size(trained, tmp_path, capsys):
    folder, (outcome, _) = trained
    model = Run.open(folder).model()
    assert not isinstance(model, ct.Elastic)
    assert model.state_dict().keys() == outcome.model.model.state_dict().keys()
    assert run(capsys, "evaluate", folder)[0] == 0
    half = ["--basis", "PiecewiseConstant(2)", "--steps", "2"]
    assert run(capsys, "compress", folder, tmp_path / "half", *half)[0] == 0
