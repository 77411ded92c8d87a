"""A smaller model healed by the one that it was made from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

import continua as ct
from continua.measure import Comparison
from continua.train import Progress, Watch, silent

from ._commands import check_apart, model_of_run, moved
from ._compress import training_inputs
from ._device import find_device, using
from ._model import TrustOptions, check_free, open_model, save_model


@dataclass(frozen=True)
class HealOptions(TrustOptions):
    """What to heal, and by whom."""

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The folder of a compressed model."""

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Where to write the healed model."""

    teacher: Path
    """The larger model: the run folder or model that MODEL was made from."""

    steps: int = 200
    """Train for at most this many steps."""

    samples: int = 2048
    """Use this many training inputs, without labels."""

    batch_size: int = 64
    """Samples per batch."""

    data: Path | None = None
    """The folder with the data, if it has moved since the training."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps, ..."""

    threads: int | None = None
    """CPU threads; all by default."""

    force: bool = False
    """Overwrite an existing model."""


def run_heal(options: HealOptions, watch: Watch = silent) -> Comparison:
    """Write a healed model."""
    device = find_device(options.device)
    check_apart(options.model, options.out)
    check_free(options.out, options.force)
    small, origin = model_of_run(options.model, options.trust)
    teacher, _ = open_model(options.teacher, options.trust)
    run = moved(origin, options.data)
    watch(Progress("reading", 0, 1))
    inputs = training_inputs(run, options.samples, options.batch_size)
    watch(Progress("reading", 1, 1))

    def tell(now: ct.HealProgress) -> None:
        watch(Progress("healing", now.step, options.steps, f"held-back loss {now.loss:.4f}"))

    with using(options.threads):
        healed = ct.heal(
            small.to(device), teacher.to(device), inputs, steps=options.steps, callback=tell
        )
    how = dataclasses.asdict(options)
    kept = {key: how[key] for key in ("steps", "samples", "batch_size")}
    save_model(healed.cpu(), options.out, run, options.force, verb="heal", **kept)
    return ct.compare(teacher.cpu(), healed.cpu(), inputs[0])
