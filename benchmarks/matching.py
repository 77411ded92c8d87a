"""A density of two moons, trained by flow matching and by likelihood.

Both train the same field from the same start, one thread each, in turn with its own clock. After
every few steps the mean log-density of the test points is compared with that of the true density;
measuring is not part of the time. A training stops when it is within 0.1 nats, or out of steps.

    python benchmarks/matching.py [--seeds 0 1 2] [--steps 4000]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

import continua as ct
from continua.data import load
from continua.recipes.dissecting._truths import NOISE, log_moons

GOAL = 0.1  # nats
EVERY = 50  # steps between measurements


def made() -> ct.ContinuousFlow:
    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    prior = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
    return ct.ContinuousFlow(net, prior, basis=ct.PiecewiseConstant(4), solver=ct.RK4(steps=8))


def trained(
    loss: Callable[[ct.ContinuousFlow, Tensor], Tensor], batch: int, seed: int, steps: int
) -> tuple[float, int, float]:
    """Seconds and steps until the goal, and the gap there."""
    torch.manual_seed(seed)
    data = load("moons", seed=seed, n=20000, noise=NOISE)
    x, test = data.train.inputs, data.test.inputs[:2000]
    truth = float(log_moons(data.test, conditional=False)[:2000].mean())
    flow = made()
    optimizer = torch.optim.Adam(flow.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    seconds, gap = 0.0, float("inf")
    for step in range(1, steps + 1):
        started = time.thread_time()
        optimizer.zero_grad()
        loss(flow, x[torch.randint(0, len(x), (batch,))]).backward()
        optimizer.step()
        schedule.step()
        seconds += time.thread_time() - started
        if step % EVERY == 0:
            with torch.no_grad():
                measuring = ct.Dopri5(1e-5, 1e-5)
                used, flow.block.solver = flow.block.solver, measuring
                gap = truth - float(flow.log_prob(test).mean())
                flow.block.solver = used
            if gap < GOAL:
                break
    return seconds, step, gap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=4000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ways = {
        "matching": (lambda flow, x: flow.matching_loss(x), 1024),
        "likelihood": (lambda flow, x: -flow.log_prob(x).mean(), 256),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for seed in options.seeds:
        for name, (loss, batch) in ways.items():
            seconds, steps, gap = trained(loss, batch, seed, options.steps)
            times[name].append(seconds)
            print(f"seed {seed}, {name}: {gap:.3f} nats after {steps} steps, {seconds:.1f} s")
    ratio = statistics.mean(times["matching"]) / statistics.mean(times["likelihood"])
    print(f"time of matching / likelihood: {ratio:.3f}")


if __name__ == "__main__":
    main()
