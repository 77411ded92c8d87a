"""Small valid files of every format that continua reads, and how each is loaded."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import continua as ct
from continua.data import load as load_data
from continua.data import treebank
from continua.data._download import unpack
from continua.files import as_json
from continua.models import continuous_net_mnist, continuous_tagger
from continua.recipes import RECIPES, Run, write_report
from continua.recipes._model import open_model
from continua.train import Checkpoints, Training, fit, load_checkpoint, read_history
from data import layouts
from train.subjects import Small, small, task

FULL = Training(batch_size=8, epochs=2, learning_rate=0.05, schedule="constant")
LONGER = replace(FULL, epochs=3)


@dataclass(frozen=True)
class Format:
    """One kind of file.

    Attributes:
        folder: with valid files.
        files: that are mutated.
        load: reads the folder; what it gives is compared with what the valid files give.
        sealed: files with a checksum: a mutant of these is refused, or loads as the valid one.
        repair: makes the checksums right again, as an attacker does.
        weight: how often it is chosen.
    """

    folder: Path
    files: Sequence[str]
    load: Callable[[Path], Any]
    sealed: Sequence[str] = ()
    repair: Callable[[Path], None] | None = None
    weight: int = 4


def corpus(root: Path) -> dict[str, Format]:
    """Every format, with files in this folder."""
    return {**_models(root), **_runs(root), **_data(root), **_reports(root)}


def digest(value: Any) -> str:
    """Something to compare models and tensors by."""
    found = hashlib.sha256()
    if isinstance(value, nn.Module):
        blocks = [m for m in value.modules() if isinstance(m, ct.ODEBlock)]
        found.update(repr([(b.solver, b.gradient, b.basis) for b in blocks]).encode())
        value = list(value.state_dict().items())
    for item in value if isinstance(value, list | tuple) else [value]:
        name, tensor = item if isinstance(item, tuple) else ("", item)
        found.update(str(name).encode())
        found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


# -- models ----------------------------------------------------------------------------------------


def _models(root: Path) -> dict[str, Format]:
    torch.manual_seed(0)
    depth = {"basis": ct.PiecewiseConstant(4), "solver": ct.Euler(steps=4)}
    net = ct.build(continuous_net_mnist, width=4, **depth)
    sizes = {"vocabulary": 20, "tags": 4, "width": 8, "mlp": 8, "max_length": 8}
    tagger = ct.build(continuous_tagger, basis=ct.Fourier(2), solver=ct.Dopri5(), **sizes)
    elastic = ct.Elastic(ct.build(Small, size=4), [4, 2])
    files = ("config.json", "model.safetensors")
    found = {}
    for name, model in {"model": net, "tagger": tagger, "elastic": elastic}.items():
        factory = Small if name == "elastic" else None
        found[name] = Format(
            ct.save(model, root / name),
            files,
            lambda folder, factory=factory: digest(ct.load(folder, factory=factory)),
            sealed=files[1:],
            repair=_with_weights,
        )
    found["hosted"] = _hosted(root / "hosted")
    return found


def _hosted(folder: Path) -> Format:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 16}
    host = BertModel(BertConfig(num_hidden_layers=4, max_position_embeddings=16, **sizes))
    ct.save(ct.convert(host), folder)
    return Format(
        folder,
        ("config.json", "model.safetensors"),
        lambda folder: digest(ct.load(folder, factory=BertModel)),
        sealed=("model.safetensors",),
        repair=_with_weights,
        weight=2,
    )


def _with_weights(folder: Path) -> None:
    """The right size and checksum of the weights, if there is still a place for them."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
        content = (folder / "model.safetensors").read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        config["weights"] |= {"bytes": len(content), "sha256": digest}
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    path.write_bytes(as_json(config))


# -- runs ------------------------------------------------------------------------------------------


def _runs(root: Path) -> dict[str, Format]:
    run = root / "run"
    fit(small, task(), FULL, run, device="cpu")
    last = Checkpoints(run).last()
    assert last is not None
    inside = last.relative_to(run).as_posix()
    names = ("config.json", "model.safetensors", "training.json", "training.safetensors")
    files = tuple(f"{inside}/{name}" for name in names)

    def repair(folder: Path) -> None:
        _with_weights(folder / inside)
        lines = [
            f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {Path(name).name}\n"
            for name in files
        ]
        (folder / inside / "SHA256SUMS").write_text("".join(lines))

    def resumed(folder: Path) -> Any:
        return digest(fit(small, task(), LONGER, folder, device="cpu").model)

    def index(folder: Path) -> Any:
        found = Checkpoints(folder)
        return [str(path and path.name) for path in (found.last(), found.best())]

    setup = root / "setup"
    setup.mkdir()
    described = RECIPES["stateful/digits"].run("smoke", folder=setup)
    (setup / "run.json").write_bytes(as_json(described.config()))
    sums = f"{inside}/SHA256SUMS"
    sealed = (*files, sums)

    def checkpoint(folder: Path) -> Any:
        return digest(load_checkpoint(folder / inside, factory=Small))

    return {
        "checkpoint": Format(run, sealed, checkpoint, sealed, repair),
        "resume": Format(run, sealed, resumed, sealed, repair, weight=2),
        "index": Format(run, ("checkpoints/index.json",), index),
        "metrics": Format(run, ("metrics.jsonl",), read_history),
        "run.json": Format(setup, ("run.json",), lambda f: repr(Run.open(f).config())),
        "origin": Format(
            _origin(root / "origin", described.config()),
            ("origin.json", "config.json"),
            lambda f: digest(open_model(f)[0]),
        ),
    }  # fmt: skip


def _origin(folder: Path, config: dict[str, Any]) -> Path:
    depth = {"basis": ct.BSpline(5), "solver": ct.RK4(steps=2)}
    ct.save(ct.build(continuous_net_mnist, width=4, **depth), folder)
    (folder / "origin.json").write_bytes(as_json(config | {"made": {"by": "compress"}}))
    return folder


# -- data ------------------------------------------------------------------------------------------


def _data(root: Path) -> dict[str, Format]:
    layouts.mnist(root / "mnist", train=6, test=4)
    layouts.cifar10(root / "cifar10", count=2)
    layouts.treebank(root / "treebank", compress=True)
    layouts.bair(root / "bair", train=(2, 1), test=1, frames=2)
    clips = np.random.default_rng(0).integers(0, 256, (6, 2, 6, 6, 3), dtype=np.uint8)
    for name in ("npz", "npy", "png"):
        (root / name).mkdir()
    np.savez_compressed(root / "npz" / "clips.npz", clips=clips, other=np.arange(3))
    np.save(root / "npy" / "clips.npy", clips / np.float32(255))
    from PIL import Image

    for i, clip in enumerate(clips):
        (root / "png" / f"clip{i}").mkdir()
        for j, frame in enumerate(clip):
            Image.fromarray(frame).save(root / "png" / f"clip{i}" / f"frame{j}.png")

    def loaded(name: str, **options: Any) -> Callable[[Path], str]:
        def load(folder: Path) -> str:
            found = load_data(name, folder=folder, download=False, **options)
            parts = (found.train, found.validation, found.test)
            return digest([tensor for part in parts for tensor in (part.inputs, part.targets)])

        return load

    def words(folder: Path) -> str:
        found = treebank(folder, max_length=12)
        return digest([part.inputs for part in (found.train, found.validation, found.test)])

    def named(folder: str) -> list[str]:
        place = root / folder
        return sorted(p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file())

    frames = loaded("frames", validation=0.2)
    bair = loaded("bair", frames=2, validation=0.4)
    return {
        "idx.gz": Format(
            root / "mnist", named("mnist"), loaded("mnist", any_size=True), named("mnist")
        ),
        "cifar": Format(root / "cifar10", named("cifar10"), loaded("cifar10", any_size=True)),
        "conllu.gz": Format(root / "treebank", named("treebank"), words, named("treebank")),
        "tfrecord": Format(root / "bair", named("bair"), bair),
        "npz": Format(root / "npz", ["clips.npz"], frames, ["clips.npz"]),
        "npy": Format(root / "npy", ["clips.npy"], frames),
        "png": Format(root / "png", named("png")[:3], frames),
        "tar.gz": _tar(root / "tar"),
    }


def _tar(folder: Path) -> Format:
    folder.mkdir()
    with tarfile.open(folder / "a.tar.gz", "w:gz") as tar:
        for name in ("cifar/data.bin", "cifar/readme.html"):
            info = tarfile.TarInfo(name)
            info.size = 2000
            tar.addfile(info, io.BytesIO(bytes(range(250)) * 8))

    def unpacked(folder: Path) -> bytes:
        unpack(folder / "a.tar.gz", ["data.bin"], folder / "out")
        return (folder / "out" / "data.bin").read_bytes()

    return Format(folder, ["a.tar.gz"], unpacked, ["a.tar.gz"])


# -- reports ---------------------------------------------------------------------------------------

ROW = {"name": "source", "basis": "PiecewiseConstant(4)", "solver": "Euler", "steps": 4}
DEMO = {
    "recipe": "demo",
    "rows": [ROW | {"parameters": 100, "accuracy": 0.99, "milliseconds": 1.5}],
    "latency": {"statistic": "median", "batch": 8},
    "options": {"seed": 0},
    "training": {"history": [], "epochs": 2},
    "held_out_images": 450,
    "versions": {"torch": "2"},
}
TRIALS = """basis,size,scheme,steps,method,parameters,accuracy,milliseconds
PiecewiseConstant,4,Euler,4,source,100,0.99,1.5
PiecewiseLinear,2,RK4,2,project,60,0.98,
"""
SWEEP = {
    "run": "stateful/digits",
    "folder": "runs/x",
    "scale": "smoke",
    "part": "validation",
    "samples": 90,
    "timing": {"batch": 8, "statistic": "median"},
    "sentences": {"accuracy.png": "Accuracy over size."},
    "predictions": [{"sample": 0, "true": 1, "PiecewiseConstant(4)": 1}],
    "environment": {"torch": "2"},
    "settings": {"epochs": 2},
}


def _reports(root: Path) -> dict[str, Format]:
    contents: dict[str, dict[str, bytes]] = {
        "demo": {"metrics.json": as_json(DEMO)},
        "sweep": {"sweep.json": as_json(SWEEP), "trials.csv": TRIALS.encode()},
        "study": {
            "report.json": as_json({"environment": {"torch": "2"}}),
            "report.md": b"# A study\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
        },
    }

    def reported(folder: Path) -> str:
        return write_report(folder).read_text("utf-8")[-200:]

    found = {}
    for name, files in contents.items():
        folder = root / f"report-{name}"
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        found[f"report-{name}"] = Format(folder, list(files), reported)
    return found
