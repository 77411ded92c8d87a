"""Reports of files that hold something else than a sweep, a demonstration or a study."""

import json
import re
import shlex
from contextlib import suppress

import pytest

import continua as ct
from continua.recipes import write_report

TRIALS = "basis,size,scheme,steps,method,parameters,accuracy,milliseconds\n"
ROW = "PiecewiseConstant,4,Euler,4,source,100,0.99,\n"
SWEEP = {
    "run": "r", "scale": "smoke", "samples": 9, "part": "validation", "sentences": {},
    "timing": {"batch": 8, "statistic": "median"}, "environment": {},
}  # fmt: skip
DEMO = {
    "recipe": "demo", "rows": [], "latency": {"statistic": "median", "batch": 8}, "options": {},
    "training": {}, "held_out_images": 4, "versions": {},
}  # fmt: skip


def made(folder, files):
    for name, content in files.items():
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


VALID = {
    "sweep": {"sweep.json": SWEEP, "trials.csv": TRIALS + ROW},
    "demo": {"metrics.json": DEMO},
    "study": {"report.json": {}, "report.md": "# A study\n"},
}


@pytest.mark.parametrize("kind", VALID)
def test_whole_files_make_a_page(kind, tmp_path):
    assert write_report(made(tmp_path, VALID[kind])).exists()


CHANGES = {
    "an unknown basis": ("sweep", {"trials.csv": TRIALS + "x" + ROW}),
    "a size that is a text": ("sweep", {"trials.csv": TRIALS + ROW.replace(",4,", ",x,")}),
    "no columns": ("sweep", {"trials.csv": ROW + ROW}),
    "not UTF-8": ("sweep", {"trials.csv": b"\xff" + TRIALS.encode()}),
    "a missing entry": ("sweep", {"sweep.json": {k: v for k, v in SWEEP.items() if k != "scale"}}),
    "a number for an object": ("sweep", {"sweep.json": SWEEP | {"timing": 3}}),
    "predictions of another kind": ("sweep", {"sweep.json": SWEEP | {"predictions": [3]}}),
    "facts of another kind": ("sweep", {"sweep.json": SWEEP | {"environment": 3}}),
    "a figure without a name": ("sweep", {"sweep.json": SWEEP | {"sentences": {"": "x"}}}),
    "a figure elsewhere": ("sweep", {"sweep.json": SWEEP | {"sentences": {"../x.png": "x"}}}),
    "a file that is no figure": ("sweep", {"sweep.json": SWEEP | {"sentences": {"x.txt": "x"}}}),
    "a huge size": ("sweep", {"trials.csv": TRIALS + ROW.replace(",4,", f",{'9' * 5000},")}),
    "rows of another kind": ("demo", {"metrics.json": DEMO | {"rows": [{"name": 3}]}}),
    "options of another kind": ("demo", {"metrics.json": DEMO | {"options": 3}}),
    "a study that is not UTF-8": ("study", {"report.md": b"# \xff"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_files_are_refused(change, tmp_path):
    kind, files = CHANGES[change]
    folder = made(tmp_path, VALID[kind] | files)
    with pytest.raises(ct.FileError, match="no sweep, demonstration or study wrote"):
        write_report(folder)
    assert not (folder / "report.html").exists()


SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def test_a_script_in_every_text(tmp_path):
    """Whatever the files say is text: in the page, in its data and in its attributes."""
    row = f'PiecewiseConstant,4,"{SCRIPT}",4,"{SCRIPT}",100,0.99,\n'
    timing = {"batch": SCRIPT, "statistic": SCRIPT}
    told = SWEEP | {"run": SCRIPT, "scale": SCRIPT, "part": SCRIPT, "timing": timing}
    told |= {"predictions": [{SCRIPT: SCRIPT}], "environment": {SCRIPT: {SCRIPT: SCRIPT}}}
    told |= {"settings": {SCRIPT: SCRIPT}, "folder": SCRIPT, "sentences": {"a.png": SCRIPT}}
    demo = DEMO | {"versions": {SCRIPT: SCRIPT}, "held_out_images": SCRIPT}
    study = (
        f"# {SCRIPT}\n\n{SCRIPT}\n\n| {SCRIPT} |\n|---|\n| {SCRIPT} |\n\n[x](javascript:alert)\n"
    )
    pages = {
        "sweep": {"sweep.json": told, "trials.csv": TRIALS + ROW + row, "a.png": b"x"},
        "demo": {"metrics.json": demo},
        "study": {"report.json": {"environment": {SCRIPT: SCRIPT}}, "report.md": study},
    }
    for kind, files in pages.items():
        folder = tmp_path / kind
        folder.mkdir()
        page = write_report(made(folder, files)).read_text("utf-8")
        assert "alert" in page
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert 'href="javascript' not in page
        assert page.count("<script") == 3  # its own


def test_commands_to_copy_are_quoted(tmp_path):
    evil = "'; touch owned; echo '"
    row = f'PiecewiseConstant,4,"{evil}","{evil}",project,100,0.99,\n'
    told = SWEEP | {"folder": evil, "run": f"a.py:b{evil}"}
    page = write_report(made(tmp_path, {"sweep.json": told, "trials.csv": TRIALS + ROW + row}))
    data = re.search(r'id="data">(.*?)</script>', page.read_text("utf-8"))[1]
    for point in json.loads(data)["front"]["points"]:
        words = shlex.split(point["command"])
        assert words[0] == "continua"
        assert evil in words[2]
        assert ";" not in "".join(w for w in words if "touch" not in w)


@pytest.mark.parametrize("kind", VALID)
def test_a_page_shows_no_file_from_elsewhere(kind, tmp_path):
    (tmp_path / "secret").write_text("# not to be shown")
    folder = tmp_path / "folder"
    folder.mkdir()
    made(folder, VALID[kind])
    names = {"sweep": ["a.png"], "demo": ["accuracy.png"], "study": ["a.png", "report.md"]}[kind]
    if kind == "sweep":
        (folder / "sweep.json").write_text(json.dumps(SWEEP | {"sentences": {"a.png": "x"}}))
    for name in names:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(tmp_path / "secret")
        with suppress(ct.FileError):
            page = write_report(folder).read_text("utf-8")
            assert "not to be shown" not in page
            assert "<figure>" not in page


def test_a_figure_without_end(tmp_path):
    folder = made(tmp_path, VALID["demo"])
    with (folder / "accuracy.png").open("wb") as file:
        file.truncate(2**40)  # a hole
    with pytest.raises(ct.FileError, match="more than 16,777,216 bytes"):
        write_report(folder)
