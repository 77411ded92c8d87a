"""The peers, each at a pinned version, in environments that the product never sees."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ._workers import WorkerError

#: `tell(line)`, called as something begins
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Peer:
    """A library to compare with.

    Args:
        side: of its script.
        environment: the folder it is installed in; peers that agree on a torch share one.
        packages: pinned, with what they need.
        alone: packages to install without what they ask for, because that is another torch.
    """

    side: str
    environment: str
    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()


TORCH = f"torch=={torch.__version__.partition('+')[0]}"

DIFFEQ = (TORCH, "numpy==2.4.6", "scipy==1.17.1", "torchdiffeq==0.2.5")

PEERS = (
    Peer("torchdiffeq", "torch", DIFFEQ),
    Peer(
        "torchdyn",
        "torch",
        (
            *DIFFEQ,
            "attrs==26.1.0",
            "packaging==26.3",
            "tqdm==4.70.1",
            "PyYAML==6.0.3",
            "fsspec==2026.9.0",
            "trampoline==0.1.2",
        ),
        (
            "torchdyn==1.0.6",
            "torchcde==0.2.5",
            "torchsde==0.2.6",
            "pytorch-lightning==2.6.6",
            "lightning-utilities==0.15.3",
            "torchmetrics==1.9.0",
        ),
    ),
    Peer(
        "torchode",
        "torch",
        (TORCH, "numpy==2.4.6", "sympy==1.14.0"),
        ("torchode==1.0.1", "torchtyping==0.1.5", "typeguard==2.13.3"),
    ),
    Peer("zuko", "torch", (TORCH, "numpy==2.4.6", "zuko==1.6.0")),
    Peer(
        "diffrax",
        "jax",
        (
            "jax==0.10.2",
            "jaxlib==0.10.2",
            "diffrax==0.7.2",
            "equinox==0.13.8",
            "numpy==2.4.6",
            "scipy==1.17.1",
            "jaxtyping==0.3.11",
            "lineax==0.1.1",
            "optimistix==0.1.0",
            "ml_dtypes==0.6.0",
            "opt_einsum==3.4.0",
            "wadler_lindig==0.1.8",
            "typing_extensions==4.16.0",
        ),
    ),
)


def interpreter(peer: Peer, folder: Path, tell: Tell) -> Path:
    """The interpreter of a peer's environment, which is made if it is not there.

    Args:
        peer: which.
        folder: of all environments.
        tell: is told what is being installed.

    Raises:
        WorkerError: it cannot be installed; the text is the installer's own.
    """
    home = folder / peer.environment
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = sorted((*peer.packages, *peer.alone))
    stamp = home / f".{peer.side}.json"
    try:
        if python.exists() and stamp.exists() and json.loads(stamp.read_text()) == wanted:
            return python
    except (OSError, ValueError):
        pass  # An installation that was cut short is done again.
    tell(f"installing {peer.side} into {home}")
    try:
        if not python.exists():
            venv.create(home, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise WorkerError(f"its environment {home} cannot be made: {error}") from error
    for packages, options in ((peer.packages, ()), (peer.alone, ("--no-deps",))):
        if packages:
            _install(python, packages, options)
    stamp.write_text(json.dumps(wanted))
    return python


def _install(python: Path, packages: tuple[str, ...], options: tuple[str, ...]) -> None:
    command = [
        str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--no-input", *options, *packages,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise WorkerError(f"it cannot be installed: {lines[-1]}")
