"""How much memory `recalibrate` and `compress(method="fit")` take beside a forward pass.

A ContinuousNet of 1.6 million parameters and 512 random images of 32 x 32 in batches. Each task
runs in a process of its own; counted is by how much its peak rises above what it holds with the
model and the images. Batches come one after another, so `--images 128` takes as much.

    python benchmarks/fit_memory.py [--images 512] [--batch 64] [--tasks forward recalibrate fit]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import torch

import continua as ct
from continua.models import continuous_net


def peak() -> float:
    """The largest size that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(task: str, images: int, batch: int) -> None:
    torch.manual_seed(0)
    buckets = ct.PiecewiseConstant(4)
    model = continuous_net(in_channels=3, width=32, basis=buckets, solver=ct.Euler(steps=4)).eval()
    batches = torch.randn(images, 3, 32, 32).split(batch)
    with torch.inference_mode():
        model(batches[0][:1])
    before, start = peak(), time.process_time()
    with torch.no_grad():
        match task:
            case "forward":
                model(batches[0])
            case "recalibrate":
                ct.recalibrate(model, batches)
            case "fit":
                half = ct.PiecewiseConstant(2)
                ct.compress(model, half, steps=2, method="fit", calibrate=batches)
    count = sum(p.numel() for p in model.parameters())
    seconds = time.process_time() - start
    print(f"{task:<12}{count:>10,} parameters {peak() - before:8.0f} MB {seconds:8.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tasks", nargs="*", default=["forward", "recalibrate", "fit"])
    options = parser.parse_args()
    if len(options.tasks) == 1:
        run(options.tasks[0], options.images, options.batch)
        return
    for task in options.tasks:
        given = ["--images", str(options.images), "--batch", str(options.batch), "--tasks", task]
        subprocess.run([sys.executable, __file__, *given], check=True)


if __name__ == "__main__":
    main()
