"""report.html: what it says, and what a browser makes of it."""

import itertools
import json
import os
import random
import re
import shlex
import shutil
import time
import webbrowser

import pytest

from continua import cli
from continua.recipes import Page, write_report
from recipes.commands import run

POINTS = [
    {"name": "large", "series": "as trained", "parameters": 800, "accuracy": 0.99,
     "milliseconds": 8.0, "command": "continua export RUN OUT"},
    {"name": "half", "series": "project", "parameters": 400, "accuracy": 0.985,
     "milliseconds": 4.0, "command": "continua compress RUN OUT --steps 4"},
    {"name": "tiny </script>", "series": "project", "parameters": 100, "accuracy": 0.9,
     "milliseconds": None, "command": "continua compress RUN OUT --steps 1"},
]  # fmt: skip


def front(file):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', file.read_text())
    return json.loads(found[1])["front"]


@pytest.fixture(scope="module")
def swept(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept") / "sweep"
    few = ("--bases", "PiecewiseConstant", "--schemes", "Euler", "--steps", "4", "--threads", "1")
    assert cli.run(["sweep", str(trained), *few, "--out", str(folder)]) == 0
    return folder


def test_a_sweep_writes_a_page(swept, trained):
    points = front(swept / "report.html")["points"]
    rows = (swept / "trials.csv").read_text().splitlines()[1:]
    assert len(points) == len(rows)
    assert points[0]["series"] == "as trained"
    for point in points:
        assert str(trained) in point["command"]
        made = cli.parse(shlex.split(point["command"])[1:])  # it is a command that exists
        assert str(made.out) == "OUT"


def test_speeds_are_compared_only_if_the_clock_is_steady(trained, tmp_path, monkeypatch):
    few = ("--bases", "PiecewiseConstant", "--schemes", "Euler", "--steps", "4", "--threads", "1")

    def said(name, clock):
        monkeypatch.setattr(time, "perf_counter", clock.__next__)
        assert cli.run(["sweep", str(trained), *few, "--out", str(tmp_path / name)]) == 0
        return json.loads((tmp_path / name / "sweep.json").read_text())["sentences"]["latency.png"]

    generator = random.Random(0)
    assert "fastest" in said("steady", itertools.count())
    noisy = itertools.accumulate(generator.uniform(1, 5) for _ in itertools.count())
    assert "too much to compare" in said("noisy", noisy)


def test_sample_predictions(swept):
    rows = json.loads((swept / "sweep.json").read_text())["predictions"]
    assert len(rows) == 12
    large_to_small = [f"PiecewiseConstant({size})" for size in (4, 2, 1)]
    assert list(rows[0]) == ["sample", "true", *large_to_small]
    assert "Predictions for the first samples" in (swept / "report.html").read_text()


def test_the_page_is_alone(swept):
    text = (swept / "report.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "Permission is hereby granted" in text  # the licence of the charts' library
    assert text.count("data:image/png;base64,") >= 2


def test_made_again_and_opened(swept, trained, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    before = (swept / "report.html").read_text()
    (swept / "report.html").unlink()
    code, out, _ = run(capsys, "report", swept, "--open")
    assert code == 0
    assert str(swept / "report.html") in out
    assert (swept / "report.html").read_text() == before
    assert opened == [(swept / "report.html").resolve().as_uri()]


def test_a_folder_without_anything_to_report(tmp_path, capsys):
    code, _, err = run(capsys, "report", tmp_path)
    assert code == 2
    assert "continua sweep" in err


def test_a_sweep_is_not_overwritten_unasked(swept, trained, capsys):
    code, _, err = run(capsys, "sweep", trained, "--out", swept)
    assert code == 2
    assert "--force overwrites it" in err


def test_a_study(tmp_path):
    (tmp_path / "report.json").write_text(json.dumps({"environment": {"torch": "2"}}))
    (tmp_path / "report.md").write_text("# a/b\n\nAbout <b>it</b>.\n\n| x |\n|---|\n| 1 |\n")
    text = write_report(tmp_path).read_text()
    assert "<td>1</td>" in text
    assert "&lt;b&gt;it" in text
    assert front(tmp_path / "report.html") is None


# -- in a browser ------------------------------------------------------------------------------


@pytest.fixture
def browser():
    """Chromium: the one that CONTINUA_CHROMIUM names, an installed one, or that of playwright."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as driver:
        flags = ["--no-sandbox", "--single-process", "--no-zygote", "--disable-gpu"]
        try:
            path = os.environ.get("CONTINUA_CHROMIUM") or shutil.which("chromium")
            found = driver.chromium.launch(executable_path=path, args=flags)
        except api.Error as error:
            pytest.skip(f"there is no browser here: {str(error).splitlines()[0]}")
        yield found
        found.close()


def test_a_browser_shows_it(browser, tmp_path):
    file = write_report(tmp_path, Page("A <title>", "about", points=POINTS))
    page = browser.new_page(locale="en-US", viewport={"width": 1100, "height": 900})
    errors, requests = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready]")
    assert errors == []
    assert requests == [file.as_uri()]
    page.set_viewport_size({"width": 480, "height": 900})
    for _ in range(200):  # `wait_for_function` is refused by the policy of the page
        if (wide := page.evaluate("document.documentElement.scrollWidth")) <= 480:
            break
        page.wait_for_timeout(50)
    assert wide <= 480  # nothing is cut off
    page.set_viewport_size({"width": 1100, "height": 900})

    def set_to(slider, value):
        page.evaluate(
            "([id, value]) => { const e = document.getElementById(id); e.value = value;"
            "e.dispatchEvent(new Event('input')); }",
            [slider, value],
        )
        return page.inner_text("#take")

    assert page.inner_text("#take").startswith("half: 400 parameters, 98.50 %, 4.00 ms")
    assert page.inner_text("#take-command") == POINTS[1]["command"]
    assert set_to("loss", 9).startswith("tiny </script>")
    assert set_to("loss", 0).startswith("large")
    assert set_to("budget", 1).startswith("No model within this budget")
    assert "0.50 points" in page.inner_text("#take")
    box = page.query_selector("#chart-parameters .u-over").bounding_box()
    tip = page.locator("#chart-parameters .tip")
    for share in range(40):  # along the upper edge, where the two best are
        page.mouse.move(box["x"] + box["width"] * share / 40, box["y"] + 0.1 * box["height"])
        if tip.is_visible():
            break
    assert "continua" in tip.inner_text()
