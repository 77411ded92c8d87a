"""Reports of files that hold something else than a sweep, a demonstration or a study."""

import json

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
