"""The notebooks of the gallery run, at their smoke size."""

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def cells(notebook, kind):
    found = json.loads(notebook.read_text("utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, monkeypatch, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    monkeypatch.setenv("CONTINUA_SMOKE", "1")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for i, cell in enumerate(cells(notebook, "code")):
        exec(compile("".join(cell["source"]), f"{notebook.name}, code cell {i}", "exec"), names)
    plt.close("all")


@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_has_its_outputs_and_is_small(notebook):
    outputs = [out for cell in cells(notebook, "code") for out in cell["outputs"]]
    assert any("image/png" in out.get("data", {}) for out in outputs)
    assert not any(out["output_type"] == "error" for out in outputs)
    assert notebook.stat().st_size < 200_000
