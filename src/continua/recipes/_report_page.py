"""report.html: one page that needs no network, of a sweep, a demonstration or a study.

It is made from the files beside it, so it can be made again. The charts are drawn by uPlot, whose
source and licence are in the folder `_page`.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import continua as ct
from continua._values import known
from continua.files import read_bytes, read_json, write_whole

REPORT = "report.html"
#: bytes of a file that a page is made of
MOST = 2**24
#: what comes of files with other content than expected
BROKEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, csv.Error)
#: scripts and styles of the page itself; images in it; nothing else is ever loaded
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Page:
    """What a report shows, from top to bottom.

    Attributes:
        title: of the page.
        about: a paragraph below it.
        points: models of the chart, the first of them the trained one: name, series, parameters,
            accuracy (a share), milliseconds or None, and the command that makes it.
        latency: what milliseconds are the time of.
        text: in Markdown.
        predictions: of the first samples: a name and a value per column.
        figures: PNG files and what each shows.
        facts: settings and environment, by heading.
    """

    title: str
    about: str
    points: Sequence[Mapping[str, Any]] = ()
    latency: str = "ms"
    text: str = ""
    predictions: Sequence[Mapping[str, Any]] = ()
    figures: Mapping[Path, str] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def write_report(folder: Path, page: Page | None = None) -> Path:
    """Write report.html into a folder; its path.

    Args:
        folder: of a sweep, a demonstration or a study; of a run, its sweep.
        page: what it shows; None reads the files of the folder.
    """
    try:
        place, found = (folder, page) if page is not None else page_of(folder)
        content = as_html(found).encode()
    except ct.ContinuaError:
        raise
    except BROKEN as error:
        if page is not None:
            raise
        raise ct.FileError(
            f"{folder} holds files that no sweep, demonstration or study wrote ({error!r:.200}); "
            "run the command that wrote them again"
        ) from error
    write_whole(place / REPORT, content)
    return place / REPORT


def page_of(folder: Path) -> tuple[Path, Page]:
    """The folder that the report belongs into, and what its files tell."""
    for place in (folder, folder / "sweep"):
        if (place / "trials.csv").exists() and (place / "sweep.json").exists():
            return place, _sweep(place)
    if (folder / "report.json").exists() and (folder / "report.md").exists():
        return folder, _study(folder)
    if (folder / "metrics.json").exists():
        return folder, _demo(folder)
    raise ct.FileError(
        f"{folder} has no sweep, demo or study to report on; run continua sweep {folder} first"
    )


def _sweep(folder: Path) -> Page:
    facts = _object(folder / "sweep.json")
    rows = list(csv.DictReader(io.StringIO(_text(folder / "trials.csv"))))
    # Quoted: people copy these commands into a shell.
    own = f" --recipe {shlex.quote(facts['run'])}" if ".py:" in facts["run"] else ""
    model = shlex.quote(facts.get("folder", "RUN"))
    points = []
    for row in rows:
        basis = repr(known(ct.Basis)[row["basis"]].of_size(int(row["size"])))
        solver = f"{row['scheme']}(steps={row['steps']})"
        made = row["method"] != "source"
        command = f"continua compress {model} OUT --basis {shlex.quote(basis)}"
        command += f" --solver {shlex.quote(solver)}"
        command += f" --method {row['method']}" if row["method"] == "interpolate" else ""
        name = f"{basis}, {solver}" + (f", {row['method']}" if made else ", as trained")
        points.append(
            {
                "name": name,
                "series": f"{row['basis']}, {row['method']}" if made else "as trained",
                "parameters": int(row["parameters"]),
                "accuracy": float(row["accuracy"]),
                "milliseconds": float(row["milliseconds"]) if row["milliseconds"] else None,
                "command": (command if made else f"continua export {model} OUT") + own,
            }
        )
    timing = facts["timing"]
    return Page(
        title=f"{facts['run']}, {facts['scale']}: one model in {len(points)} sizes",
        about=f"Accuracy on {facts['samples']:,} samples of the {facts['part']} part, without "
        f"retraining. Choose a size here, and measure it on the test part once.",
        points=points,
        latency=f"ms, {timing['statistic']} of a batch of {timing['batch']}",
        predictions=facts.get("predictions", ()),
        figures={_figure(folder, name): text for name, text in facts["sentences"].items()},
        facts={"Environment": facts["environment"], "Settings": facts.get("settings", {})},
    )


def _demo(folder: Path) -> Page:
    facts = _object(folder / "metrics.json")
    if not isinstance(facts, dict) or facts.get("recipe") != "demo":
        raise ct.FileError(f"{folder / 'metrics.json'} is not of a demonstration")
    points = [
        {
            "name": f"{row['basis']}, {row['solver']}(steps={row['steps']})",
            "series": "as trained" if row["name"] == "source" else row["basis"].partition("(")[0],
            "parameters": row["parameters"],
            "accuracy": row["accuracy"],
            "milliseconds": row["milliseconds"],
            "command": f"continua export {shlex.quote(str(folder / 'models' / row['name']))} OUT",
        }
        for row in facts["rows"]
    ]
    captions = {
        "accuracy.png": "Accuracy over size.",
        "weights.png": "Weights over depth, before and after.",
        "variance.png": "Batch-norm variance over depth, before and after.",
    }
    text = "| K, steps | parameters | one elastic run, % | trained alone, % |\n|---|---|---|---|\n"
    for row in facts.get("family", ()):
        text += f"| {row['size']} | {row['parameters']:,} "
        text += f"| {100 * row['elastic']:.2f} | {100 * row['alone']:.2f} |\n"
    latency = facts["latency"]
    settings = facts["options"] | {k: v for k, v in facts["training"].items() if k != "history"}
    return Page(
        title="Handwritten digits: one network in many sizes",
        about=f"Accuracy on {facts['held_out_images']} held-out images, without retraining.",
        points=points,
        latency=f"ms, {latency['statistic']} of a batch of {latency['batch']}",
        text=text if "family" in facts else "",
        figures={folder / name: caption for name, caption in captions.items()},
        facts={"Environment": facts["versions"], "Settings": settings},
    )


def _object(path: Path) -> dict[str, Any]:
    """A JSON object of this folder."""
    return read_json(_own(path))


def _own(path: Path) -> Path:
    """A file of this folder: a page shows no file from elsewhere."""
    if path.is_symlink():
        raise ValueError(f"{path.name} is a link")
    return path


def _text(path: Path) -> str:
    """A text of this folder."""
    path = _own(path)
    return read_bytes(path, MOST).decode("utf-8")


def _figure(folder: Path, name: str) -> Path:
    """A figure of this folder: a page shows no file from elsewhere."""
    if Path(name).name != name or not name.endswith(".png"):
        raise ValueError(f"{name!r} is no figure")
    return folder / name


def _study(folder: Path) -> Page:
    facts = _object(folder / "report.json")
    text = _text(folder / "report.md")
    title, _, rest = text.removeprefix("# ").partition("\n")
    figures = {path: path.stem.replace("-", " ") for path in sorted(folder.glob("*.png"))}
    return Page(
        title=title,
        about="",
        text=rest,
        figures=figures,
        facts={"Environment": facts.get("environment", {})},
    )


# -- the page --------------------------------------------------------------------------------------


def as_html(page: Page) -> str:
    """The page as one file."""
    data: dict[str, Any] = {"front": None}
    if page.points:
        data["front"] = {
            "points": list(page.points), "latency": page.latency, "measure": "accuracy, %",
        }  # fmt: skip
    body = [f"<h1>{html.escape(page.title)}</h1>"]
    body += [f"<p>{html.escape(page.about)}</p>"] if page.about else []
    body += [CHOICE, _points(page.points)] if page.points else []
    body += [_markdown(page.text)] if page.text else []
    for file, caption in page.figures.items():
        if file.is_file() and not file.is_symlink():
            coded = base64.b64encode(read_bytes(file, MOST)).decode()
            shown = f'<img alt="{html.escape(file.stem)}" src="data:image/png;base64,{coded}">'
            body.append(f"<figure>{shown}<figcaption>{html.escape(caption)}</figcaption></figure>")
    if page.predictions:
        rows = [list(row.values()) for row in page.predictions]
        table = _table(list(page.predictions[0]), rows)
        body.append(f"<h2>Predictions for the first samples</h2>{table}")
    for heading, facts in page.facts.items():
        if facts:
            body.append(f"<h2>{html.escape(heading)}</h2>{_table((), _pairs(facts))}")
    # "</script>" in a name must not end the script.
    written = json.dumps(data).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(page.title)}</title>\n"
        f"<style>{_part('uPlot.min.css')}{_part('page.css')}</style></head>\n<body>\n"
        + "\n".join(body)
        + f'\n<script type="application/json" id="data">{written}</script>\n'
        f"<!--\nuPlot\n{_part('uPlot-LICENSE.txt')}-->\n"
        f"<script>{_part('uPlot.iife.min.js')}</script>\n<script>{_part('page.js')}</script>\n"
        "</body></html>\n"
    )


CHOICE = """<div class="choice">
<label>size, at most <input type="range" id="budget"><span id="budget-value"></span></label>
<label>allowed loss <input type="range" id="loss"><span id="loss-value"></span></label>
<div id="take"></div><pre><code id="take-command"></code></pre>
</div>
<div class="charts"><div id="chart-parameters"></div><div id="chart-milliseconds"></div></div>
<p>Hover over a point to see its numbers and the command that makes it. Click to copy the command.
The ring marks the model that the sliders choose.</p>"""


def _points(points: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            point["name"],
            f"{point['parameters']:,}",
            f"{100 * point['accuracy']:.2f} %",
            "" if point["milliseconds"] is None else f"{point['milliseconds']:.2f}",
        )
        for point in points
    ]
    table = _table(("model", "parameters", "accuracy", "ms"), rows)
    return f"<details><summary>All {len(rows)} models</summary>{table}</details>"


def _pairs(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and values; those of a dictionary as `training.epochs`."""
    pairs: list[tuple[str, Any]] = []
    for name, value in facts.items():
        if isinstance(value, dict):
            pairs += [(f"{name}.{inner}", each) for inner, each in value.items()]
        else:
            pairs.append((name, value))
    return pairs


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [f"<tr>{''.join(f'<th>{html.escape(c)}</th>' for c in head)}</tr>"] if head else []
    lines += [f"<tr>{''.join(f'<td>{html.escape(str(c))}</td>' for c in row)}</tr>" for row in rows]
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _markdown(text: str) -> str:
    from markdown_it import MarkdownIt

    # Without HTML in it, and without images, which are added as figures.
    made: str = (
        MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(text)
    )
    return made


def _part(name: str) -> str:
    return (resources.files(__package__) / "_page" / name).read_text("utf-8")
