"""Latency and bytes of one trained size and of the sizes made from it.

The deep ContinuousNet of Stateful ODE-Nets at 16 basis functions and 16 Euler steps (1.63 M
parameters), half the functions, half the functions with half the steps, the plain ResNet of as
many parameters, and the first and third unrolled into plain modules, all in evaluation mode and
interleaved in one run. Weights are random: speed does not depend on them. The time of `compress`
itself is measured too.

    python benchmarks/inference.py [--rounds 20] [--threads 2] [--json]

A batch of one image is measured in ten times as many rounds, since each takes milliseconds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from datetime import date

import torch
from torch import nn

import continua as ct
from continua.models import continuous_net, resnet

GOAL = 0.55  # of half the functions with half the steps
COMPRESS_GOAL = 0.2  # seconds


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


@torch.inference_mode()
def latencies(made: dict[str, nn.Module], batch: int, rounds: int) -> dict[str, list[float]]:
    x = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    times: dict[str, list[float]] = {name: [] for name in made}
    for i in range(rounds + 2):  # two to warm up
        for name, model in made.items():
            started = time.perf_counter()
            model(x)
            if i > 1:
                times[name].append(1000 * (time.perf_counter() - started))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    made, seconds = models()
    rows = {name: {"bytes": held(model)} for name, model in made.items()}
    for batch in (1, 128):
        times = latencies(made, batch, options.rounds * (10 if batch == 1 else 1))
        for name, values in times.items():
            unrolled = ", unrolled" if name.endswith("unrolled") else ""
            median = statistics.median(values)
            source = statistics.median(times[f"K=16, 16 steps{unrolled}"])
            rows[name] |= {f"ms_{batch}": median, f"ratio_{batch}": median / source}
    if options.json:
        facts = {
            "date": str(date.today()), "machine": platform.machine(), "torch": torch.__version__,
            "threads": options.threads, "rounds": options.rounds,
        }  # fmt: skip
        print(json.dumps({**facts, "compress_seconds": seconds, "rows": rows}))
        return
    print(
        f"{options.rounds} rounds, {options.threads} threads, torch {torch.__version__}; "
        "medians, and their ratios to 16 functions with 16 steps"
    )
    print(f"{'':<26}{'bytes':>12}{'ms, batch 1':>14}{'ratio':>8}{'ms, batch 128':>16}{'ratio':>8}")
    for name, row in rows.items():
        print(
            f"{name:<26}{row['bytes']:>12,}{row['ms_1']:>14.2f}{row['ratio_1']:>8.2f}"
            f"{row['ms_128']:>16.1f}{row['ratio_128']:>8.2f}"
        )
    print(f"half the functions and half the steps: goal {GOAL:.2f}")
    print(f"compress of the first row: {seconds:.3f} s (goal {COMPRESS_GOAL} s)")


if __name__ == "__main__":
    main()
