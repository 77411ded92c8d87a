"""Latency and bytes of one trained size and of the sizes made from it.

The deep ContinuousNet of Stateful ODE-Nets at 16 basis functions and 16 Euler steps (1.63 M
parameters), half the functions, half the functions with half the steps, the plain ResNet of as
many parameters, and the first and third unrolled into plain modules, all in evaluation mode and
interleaved. Weights are random: speed does not depend on them. The time of `compress` itself is
measured too.

    python benchmarks/inference.py [--rounds 5] [--processes 10] [--threads 2] [--json] [--release]
                                   [--onnx]

A ratio is the median over rounds of times from the same round. Where its tensors happen to lie in
memory changes the ratio of a process by up to 0.015, so several are asked, one after another; the
table has their medians. They keep the memory they free (glibc only): with `--release`, fresh pages
from the system take up to a third of the time of a large batch, more in some models than in
others. One image takes milliseconds: each of its rounds, six times as many, is the median of five
calls in a row, as a model in use would get them, with its weights and its code in the caches.
With `--onnx` the first and third are written by `export` and run by onnxruntime too, last of all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import continua as ct
from continua.models import continuous_net, resnet
from keeping import KEEP

GOAL = 0.55  # of half the functions with half the steps
COMPRESS_GOAL = 0.2  # seconds
BATCHES = {1: (6, 5), 128: (1, 1)}  # how many times the rounds, how many calls in each


def models() -> tuple[dict[str, nn.Module], float]:
    torch.manual_seed(0)
    source = continuous_net(basis=ct.PiecewiseConstant(16), solver=ct.Euler(steps=16), epsilon=16.0)
    with torch.no_grad():  # some variation over depth
        for parameter in source.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    source.eval()
    times = []
    for _ in range(5):
        started = time.perf_counter()
        half = ct.compress(source, ct.PiecewiseConstant(8))
        times.append(time.perf_counter() - started)
    made: dict[str, nn.Module] = {
        "K=16, 16 steps": source,
        "K=8, 16 steps": half,
        "K=8, 8 steps": ct.compress(source, ct.PiecewiseConstant(8), steps=8),
        "ResNet, 16 units": resnet(units=16, first_stitch=True),
    }
    for name in ("K=16, 16 steps", "K=8, 8 steps"):
        made[f"{name}, unrolled"] = ct.unroll(made[name])
    kept = {n: m.to(memory_format=torch.channels_last).eval() for n, m in made.items()}
    return kept, statistics.median(times)


def held(model: nn.Module) -> int:
    """Bytes of what a file of the model holds."""
    return sum(t.numel() * t.element_size() for t in model.state_dict().values())


def sessions(made: dict[str, nn.Module]) -> tuple[dict[str, Callable[[Tensor], Any]], list[int]]:
    """The source and the smallest size in onnxruntime, and the bytes of their files."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    found: dict[str, Callable[[Tensor], Any]] = {}
    sizes = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("K=16, 16 steps", "K=8, 8 steps"):
            file = Path(folder) / "model.onnx"
            sizes.append(ct.export(made[name], file, torch.randn(2, 3, 32, 32)).bytes)
            session = onnxruntime.InferenceSession(file.read_bytes(), options)
            key = session.get_inputs()[0].name
            found[f"{name}, ONNX"] = lambda x, s=session, k=key: s.run(None, {k: x.numpy()})
    return found, sizes


@torch.inference_mode()
def latencies(
    made: Mapping[str, Callable[[Tensor], Any]], batch: int, rounds: int, calls: int, layout: Any
) -> dict[str, list[float]]:
    x = torch.randn(batch, 3, 32, 32).contiguous(memory_format=layout)
    times: dict[str, list[float]] = {name: [] for name in made}
    for i in range(rounds + 2):  # two to warm up
        for name, model in made.items():
            each = []
            for _ in range(calls):
                started = time.perf_counter()
                model(x)
                each.append(1000 * (time.perf_counter() - started))
            if i > 1:
                times[name].append(statistics.median(each))
    return times


def measured(rounds: int, onnx: bool) -> dict[str, Any]:
    """What one process finds: seconds of `compress`, and for each model bytes, ms and ratios."""
    made, seconds = models()
    rows: dict[str, dict[str, float]] = {name: {"bytes": held(m)} for name, m in made.items()}
    for batch, (factor, calls) in BATCHES.items():
        times = latencies(made, batch, rounds * factor, calls, torch.channels_last)
        for name, values in times.items():
            unrolled = ", unrolled" if name.endswith("unrolled") else ""
            source = times[f"K=16, 16 steps{unrolled}"]
            ratios = [a / b for a, b in zip(values, source, strict=True)]
            rows[name][f"ms_{batch}"] = statistics.median(values)
            rows[name][f"ratio_{batch}"] = statistics.median(ratios)
    if onnx:
        files, sizes = sessions(made)
        rows |= {name: {"bytes": size} for name, size in zip(files, sizes, strict=True)}
        for batch, (factor, calls) in BATCHES.items():
            times = latencies(files, batch, rounds * factor, calls, torch.contiguous_format)
            for name, values in times.items():
                row = rows[name]
                row[f"ms_{batch}"] = statistics.median(values)
                row[f"ratio_{batch}"] = row[f"ms_{batch}"] / rows["K=16, 16 steps"][f"ms_{batch}"]
    return {"compress_seconds": seconds, "rows": rows}


def asked(options: argparse.Namespace) -> list[dict[str, Any]]:
    """What several processes find, one after another."""
    command = [sys.executable, __file__, "--alone", "--rounds", str(options.rounds)]
    command += ["--threads", str(options.threads), *(["--onnx"] if options.onnx else [])]
    found = []
    for i in range(options.processes):
        print(f"process {i + 1} of {options.processes}", end="\r", file=sys.stderr, flush=True)
        environment = {**os.environ} if options.release else {**os.environ, **KEEP}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, check=True, text=True
        )
        found.append(json.loads(done.stdout))
    return found


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians over processes, and the extremes of ratios."""
    rows: dict[str, dict[str, Any]] = {}
    for name, first in found[0]["rows"].items():
        rows[name] = {}
        for key in first:
            values = [one["rows"][name][key] for one in found]
            rows[name][key] = statistics.median(values)
            if key.startswith("ratio"):
                rows[name][f"{key}_range"] = (min(values), max(values))
    seconds = statistics.median(one["compress_seconds"] for one in found)
    return {"compress_seconds": seconds, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--release", action="store_true", help="give freed memory back")
    parser.add_argument("--onnx", action="store_true", help="run files in onnxruntime too")
    parser.add_argument("--alone", action="store_true", help="what each of the processes does")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.alone:
        print(json.dumps(measured(options.rounds, options.onnx)))
        return
    result = summary(asked(options))
    if options.json:
        facts = {
            "date": str(date.today()), "machine": platform.machine(), "torch": torch.__version__,
            "threads": options.threads, "rounds": options.rounds, "processes": options.processes,
        }  # fmt: skip
        print(json.dumps({**facts, **result}))
        return
    print(
        f"{options.rounds} rounds in each of {options.processes} processes, {options.threads} "
        f"threads, torch {torch.__version__};\nmedians, ratios to 16 functions with 16 steps, "
        "and their least and greatest in a process"
    )
    columns = "".join(f"{f'ms, batch {batch}':>16}{'ratio':>20}" for batch in BATCHES)
    print(f"{'':<26}{'bytes':>10}{columns}")
    for name, row in result["rows"].items():
        line = f"{name:<26}{row['bytes']:>10,.0f}"
        for batch in BATCHES:
            low, high = row[f"ratio_{batch}_range"]
            ratio = f"{row[f'ratio_{batch}']:.3f} ({low:.3f}-{high:.3f})"
            line += f"{row[f'ms_{batch}']:>16.2f}{ratio:>20}"
        print(line)
    print(f"half the functions and half the steps: goal {GOAL:.2f}")
    print(f"compress of the first row: {result['compress_seconds']:.3f} s (goal {COMPRESS_GOAL} s)")


if __name__ == "__main__":
    main()
