"""A density of two moons, trained by flow matching and by likelihood.

Both train the same field from the same start on one thread, with a clock of CPU time. After every
few steps the mean log-density of the test points is compared with that of the true density;
measuring is not part of the time. Matching stops when it is within 0.1 nats. Likelihood then gets
ten times that time: its one-cycle schedule has as many steps as fit into it, and it stops within
0.1 nats too.

    python benchmarks/matching.py [--seeds 0 1 2] [--steps 3000] [--solver-steps 8]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

import continua as ct
from continua.data import load
from continua.recipes.dissecting._truths import NOISE, log_moons

GOAL = 0.1  # nats


class Way(NamedTuple):
    """A loss and how to train by it."""

    loss: Callable[[ct.ContinuousFlow, Tensor], Tensor]
    batch: int
    rate: float  # the largest of a one-cycle schedule
    steps: int | None  # None: as many as fit into the time
    every: int  # steps between measurements


class Net(ct.Field):
    """Three layers that read the depth by a few waves."""

    def __init__(self, width: int = 64):
        super().__init__()
        layers = [nn.Linear(2 + 5, width), nn.SiLU()]
        for _ in range(2):
            layers += [nn.Linear(width, width), nn.SiLU()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 2))

    def forward(self, s: Tensor, z: Tensor, x: Tensor) -> Tensor:
        waves = torch.pi * s * torch.tensor([1.0, 2.0])
        read = torch.cat([s.reshape(1), waves.cos(), waves.sin()]).to(z.dtype)
        return self.net(torch.cat([z, read.expand(len(z), -1)], 1))


def made(solver_steps: int) -> ct.ContinuousFlow:
    prior = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
    return ct.ContinuousFlow(Net(), prior, solver=ct.RK4(steps=solver_steps))


def seconds_of_a_step(way: Way, flow: ct.ContinuousFlow, x: Tensor, count: int = 10) -> float:
    """CPU time of a loss and its gradients, a mean after one for warming up."""
    for n in range(count + 1):
        if n == 1:
            started = time.thread_time()
        way.loss(flow, x[: way.batch]).backward()
    return (time.thread_time() - started) / count


def trained(way: Way, seed: int, most: float, solver_steps: int) -> tuple[float, int, float]:
    """Seconds and steps until the goal, the steps or the seconds are reached, and the gap then."""
    data = load("moons", seed=seed, n=20000, noise=NOISE)
    x, test = data.train.inputs, data.test.inputs[:2000]
    truth = float(log_moons(data.test, conditional=False)[:2000].mean())
    steps = way.steps or int(most / seconds_of_a_step(way, made(solver_steps), x))
    torch.manual_seed(seed)
    flow = made(solver_steps)
    optimizer = torch.optim.Adam(flow.parameters(), way.rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, way.rate, steps, pct_start=0.1)
    seconds = 0.0
    for step in range(1, steps + 1):
        started = time.thread_time()
        optimizer.zero_grad()
        way.loss(flow, x[torch.randint(0, len(x), (way.batch,))]).backward()
        optimizer.step()
        schedule.step()
        seconds += time.thread_time() - started
        if step % way.every == 0 or step == steps or seconds > most:
            with torch.no_grad():
                used, flow.block.solver = flow.block.solver, ct.RK4(steps=32)
                gap = truth - float(flow.log_prob(test).mean())
                flow.block.solver = used
            print(f"  step {step}, {seconds:.1f} s: {gap:.3f} nats", flush=True)
            if gap < GOAL or seconds > most:
                break
    return seconds, step, gap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=3000, help="of flow matching, at most")
    parser.add_argument("--solver-steps", type=int, default=8, help="of RK4 in the likelihood")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ways = {
        "matching": Way(lambda flow, x: flow.matching_loss(x), 1024, 1e-2, options.steps, 250),
        "likelihood": Way(lambda flow, x: -flow.log_prob(x).mean(), 256, 1e-2, None, 100),
    }
    for seed in options.seeds:
        most = math.inf
        for name, way in ways.items():
            seconds, steps, gap = trained(way, seed, most, options.solver_steps)
            print(f"seed {seed}, {name}: {gap:.3f} nats after {steps} steps, {seconds:.1f} s")
            most = 10 * seconds


if __name__ == "__main__":
    main()
