"""A latent ODE of noisy spirals, the example that torchdiffeq ships, in both libraries.

Both have a latent state of 4 numbers, a field of two hidden layers of 20, a decoder of 20 and a
recurrent encoder of 25 with tanh cells. Both use Adam at 0.01 on all 1,000 spirals at once.
The other side is written as the example is: a tanh cell in a loop over the observations, and
`odeint` with its default tolerances. Ours is `continua.models.LatentODE`.

The two take steps in turn, on one thread, each with its own clock of CPU time. The loss is the
negative evidence lower bound, as a mean over the last steps. Ours is ahead when its loss is at most
as high at half the time.

    python benchmarks/spiral.py [--steps 500] [--seeds 0 1 2]

Needs torchdiffeq.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import torch
import torchdiffeq
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

import continua as ct
from continua.models import LatentODE

SPIRALS, POINTS, OBSERVED, NOISE = 1000, 500, 100, 0.3
LATENT, HIDDEN, RECURRENT = 4, 20, 25
EVERY = 25  # steps that a loss is averaged over


def spirals(seed: int) -> tuple[Tensor, Tensor]:
    """Times `[T]` and noisy stretches `[B, T, 2]` of a spiral inward and of one outward."""
    g = torch.Generator().manual_seed(seed)
    times = torch.linspace(0, 6 * math.pi, POINTS)
    back = 6 * math.pi + 1 - times
    inward, outward = (0.3 * 50 / back, back, -5.0), (0.3 * times, times, 5.0)
    curves = torch.stack(
        [
            torch.stack([r * angle.cos() + shift, r * angle.sin()], 1)
            for r, angle, shift in (inward, outward)
        ]
    )
    which = torch.randint(0, 2, (SPIRALS, 1), generator=g)
    start = torch.randint(OBSERVED, POINTS - OBSERVED, (SPIRALS, 1), generator=g)
    x = curves[which, start + torch.arange(OBSERVED)]  # [B, T, 2]
    return times[:OBSERVED], x + NOISE * torch.randn(x.shape, generator=g)


class Theirs(nn.Module):
    """The model of the example, on `torchdiffeq.odeint`."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(2 + RECURRENT, RECURRENT)
        self.posterior = nn.Linear(RECURRENT, 2 * LATENT)
        self.field = nn.Sequential(
            nn.Linear(LATENT, HIDDEN),
            nn.ELU(inplace=True),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ELU(inplace=True),
            nn.Linear(HIDDEN, LATENT),
        )
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, HIDDEN), nn.ReLU(inplace=True), nn.Linear(HIDDEN, 2)
        )

    def loss(self, times: Tensor, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), RECURRENT)
        for n in reversed(range(x.shape[1])):
            h = torch.tanh(self.cell(torch.cat([x[:, n], h], 1)))
        mean, variance = self.posterior(h).chunk(2, 1)
        q = Normal(mean, (0.5 * variance).exp())
        path = torchdiffeq.odeint(lambda t, z: self.field(z), q.rsample(), times)
        expected = self.decoder(path.transpose(0, 1))
        prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
        fit = Normal(expected, NOISE).log_prob(x).sum((1, 2))
        return (kl_divergence(q, prior).sum(1) - fit).mean()


def ours(times: Tensor) -> LatentODE:
    return LatentODE(
        features=2,
        latent=LATENT,
        hidden=HIDDEN,
        recurrent=RECURRENT,
        cell="tanh",
        noise=NOISE,
        span=(0.0, float(times[-1])),
        solver=ct.RK4(steps=4),
    )


class Training:
    """One model, its optimizer, its clock and its losses."""

    def __init__(self, make: Callable[[], nn.Module], seed: int):
        torch.manual_seed(seed)
        self.model = make()
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.01)
        self.seconds, self.losses, self.clock = 0.0, [], []

    def step(self, times: Tensor, x: Tensor) -> None:
        started = time.thread_time()
        self.optimizer.zero_grad()
        loss = self.model.loss(times, x)
        loss.backward()
        self.optimizer.step()
        self.seconds += time.thread_time() - started
        self.losses.append(loss.item())
        self.clock.append(self.seconds)

    def at(self, step: int) -> float:
        """The mean loss of the last steps until this one."""
        return statistics.mean(self.losses[max(0, step - EVERY) : step])

    def until(self, loss: float) -> float:
        """The time that a mean loss as low took."""
        steps = range(EVERY, len(self.losses) + 1)
        return next((self.clock[n - 1] for n in steps if self.at(n) <= loss), math.inf)


def with_solver(model: LatentODE, solver: ct.Solver, times: Tensor, x: Tensor) -> float:
    """The loss with another solver, to see whether the one of the training was fine enough."""
    model.block.solver = solver
    torch.manual_seed(0)
    with torch.no_grad():
        return model.loss(times, x).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for seed in options.seeds:
        times, x = spirals(seed)
        a, b = Training(Theirs, seed), Training(lambda times=times: ours(times), seed)
        print(f"seed {seed}    torchdiffeq            continua")
        for step in range(1, options.steps + 1):
            a.step(times, x)
            b.step(times, x)
            if step % EVERY == 0 and (step % (4 * EVERY) == 0 or step == options.steps):
                print(
                    f"step {step:5d}  {a.at(step):9.1f} {a.seconds:7.1f} s  "
                    f"{b.at(step):9.1f} {b.seconds:7.1f} s",
                    flush=True,
                )
        while b.seconds < a.seconds / 2:
            b.step(times, x)
        print(f"seed {seed}: loss of continua at half the time {b.at(len(b.losses)):.1f}")
        per_step = b.clock[options.steps - 1] / a.seconds
        reached = b.until(a.at(options.steps))
        print(
            f"seed {seed}: continua takes {per_step:.2f} of the time per step, and "
            f"{reached / a.seconds:.2f} of it to the loss of torchdiffeq"
        )
        four = with_solver(b.model, ct.RK4(steps=4), times, x)
        fine = with_solver(b.model, ct.Dopri5(1e-7, 1e-9), times, x)
        print(f"seed {seed}: loss of continua with its four steps {four:.1f}, finely {fine:.1f}")


if __name__ == "__main__":
    main()
