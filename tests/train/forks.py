"""A process that trains in children of its own, which may kill themselves with SIGKILL.

Importing torch takes longer than these trainings, so one process imports it and forks for each
request: a line of JSON on its input, a line with the child's exit code on its output.
"""

import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

COURSES = {
    # A checkpoint after every batch, both changes of size, momentum, dropout, augmentation.
    "sgd": {"epochs": 4, "refine_epochs": [1], "project_epochs": [3], "checkpoint_minutes": 1e-9},
    "adamw": {
        "epochs": 4,
        "epoch_steps": 3,
        "optimizer": "adamw",
        "learning_rate": 0.01,
        "schedule": "cosine",
        "warmup": 1.0,
        "clip": 0.5,
        "refine_epochs": [1, 2],
        "checkpoint_minutes": 1e-9,
    },
    # A checkpoint after every epoch only.
    "adam": {
        "epochs": 3,
        "optimizer": "adam",
        "schedule": "step",
        "milestones": [1],
        "precision": "bf16",
        "refine_epochs": [2],
    },
    # The scale of the gradients is part of the state, too.
    "fp16": {"epochs": 2, "epoch_steps": 3, "precision": "fp16", "checkpoint_minutes": 1e-9},
    # Several sizes at once, each with its own statistics, while the model grows.
    "elastic": {
        "epochs": 4,
        "elastic": [4, 2, 1],
        "smoothness": 0.01,
        "refine_epochs": [1, 2],
        "checkpoint_minutes": 1e-9,
    },
    # Images, kernels channel by channel.
    "pictures": {"epochs": 2, "epoch_steps": 3, "refine_epochs": [1], "checkpoint_minutes": 1e-9},
}


class Forks:
    """The process, seen from a test."""

    def __init__(self):
        here = Path(__file__)
        path = os.pathsep.join(
            [str(here.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        self.process = subprocess.Popen(
            [sys.executable, str(here)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )

    def fit(self, folder: Path, course: str, point: str | None = None, number: int = 0) -> int:
        """Train; the exit code, or minus the signal that ended it."""
        request = {"folder": str(folder), "course": course, "point": point, "number": number}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=20)


def killing(function, number: int, after: bool = False):
    """The function, which at its call of this number (from 0) kills the process."""
    calls = itertools.count()

    def wrapped(*arguments, **options):
        last = next(calls) == number
        if last and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **options)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped


def serve_one(request: dict) -> None:
    import torch

    import continua as ct
    from continua.train import Checkpoints, Classification, _loop, fit, silent
    from train.subjects import Picture, course, digits, jittered, small, task

    torch.set_num_threads(1)
    watch, number = silent, request["number"]
    match request["point"]:
        case "batch":
            watch = killing(silent, number)
        case "replace":
            os.replace = killing(os.replace, number)
        case "replaced":
            os.replace = killing(os.replace, number, after=True)
        case "sync":
            os.fsync = killing(os.fsync, number)
        case "refined":
            _loop.refine = killing(_loop.refine, number, after=True)
        case "projected":
            _loop.halved = killing(_loop.halved, number, after=True)
        case "forgotten":
            Checkpoints.forget_best = killing(Checkpoints.forget_best, number, after=True)
        case "tidied":
            Checkpoints._tidy = killing(Checkpoints._tidy, number)
    training = course(**_tuples(COURSES[request["course"]]))
    options = {"device": "cpu", "watch": watch}
    if request["course"] == "pictures":
        subject = Classification(digits(), augment=jittered)
        fit(
            lambda: ct.build(Picture), subject, training, request["folder"],
            channels_last=True, **options,
        )  # fmt: skip
    else:
        fit(small, task(), training, request["folder"], **options)


def _tuples(options: dict) -> dict:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}


def main() -> None:
    # What torch and accelerate import when they are first used is imported once, here.
    with tempfile.TemporaryDirectory() as folder:
        for course in ("adamw", "adam", "pictures"):
            request = {"folder": f"{folder}/{course}", "course": course}
            serve_one(request | {"point": None, "number": 0})
    gc.freeze()  # what is there already need not be searched in every child
    os.fsync = lambda handle: None  # a killed process loses nothing that it wrote
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                serve_one(json.loads(line))
                os._exit(0)
            except BaseException as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                os._exit(1)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
