"""Two examples that torchdiffeq ships, in both libraries.

`demo`: the damped spiral. A field of one hidden layer of 50 learns from stretches of ten points of
one trajectory, 20 stretches per step, by RMSprop at 0.001. Both sides start from the same weights
and see the same batches. The other side solves as the example does, with `odeint` and its default
tolerances; ours takes an `RK4` step from point to point.

`latent`: a latent ODE of 1,000 noisy spirals. Both sides have a latent state of 4 numbers, a field
of two hidden layers of 20, a decoder of 20 and a recurrent encoder of 25 with tanh cells, and use
Adam at 0.01 on all spirals at once. The other side is written as the example is: a tanh cell in a
loop over the observations, and `odeint` with its default tolerances. Ours is
`continua.models.LatentODE`.

The two take steps in turn, on one thread, each with its own clock of CPU time. The loss is a mean
over the last steps. Ours is ahead when its loss is at most as high at half the time.

    python benchmarks/spiral.py demo [--steps 2000] [--seeds 0 1 2]
    python benchmarks/spiral.py latent [--steps 500] [--seeds 0 1 2]

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

# -- the damped spiral -----------------------------------------------------------------------------

STRETCH, STRETCHES = 10, 20  # points of a stretch, stretches of a batch


def damped() -> tuple[Tensor, Tensor]:
    """Times `[T]` and the trajectory `[T, 1, 2]`."""
    times = torch.linspace(0, 25, 1000)
    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    start = torch.tensor([[2.0, 0.0]])
    return times, torchdiffeq.odeint(lambda t, y: y**3 @ matrix, start, times)


class Cubic(nn.Module):
    """The field of the example."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        for layer in (self.net[0], self.net[2]):
            nn.init.normal_(layer.weight, std=0.1)
            nn.init.zeros_(layer.bias)

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y**3)


class Theirs(Cubic):
    def loss(self, times: Tensor, x: Tensor) -> Tensor:
        return (torchdiffeq.odeint(self, x[0], times) - x).abs().mean()


class Ours(Cubic):
    def loss(self, times: Tensor, x: Tensor) -> Tensor:
        solver = ct.RK4(steps=len(times) - 1)
        path = ct.odeint(self, x[0], (0.0, float(times[-1])), solver=solver, save_at="steps").z
        return (path - x).abs().mean()


def demo(steps: int, seed: int) -> None:
    times, truth = damped()
    generator = torch.Generator().manual_seed(seed)

    def batch() -> tuple[Tensor, Tensor]:
        start = torch.randperm(len(times) - STRETCH, generator=generator)[:STRETCHES]
        return times[:STRETCH], truth[start + torch.arange(STRETCH)[:, None]]  # [T, B, 1, 2]

    a, b = (Training(make, seed, torch.optim.RMSprop, 1e-3, every=100) for make in (Theirs, Ours))
    compared(a, b, steps, seed, batch)
    for name, run in (("torchdiffeq", a), ("continua", b)):
        with torch.no_grad():
            path = torchdiffeq.odeint(run.model, truth[0], times)
        apart = (path - truth).abs().mean()
        print(f"seed {seed}: error of {name} on the whole trajectory {apart:.3f}", flush=True)


# -- the latent ODE --------------------------------------------------------------------------------

SPIRALS, POINTS, OBSERVED, NOISE = 1000, 500, 100, 0.3
LATENT, HIDDEN, RECURRENT = 4, 20, 25


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


class TheirLatent(nn.Module):
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


def our_latent(times: Tensor) -> LatentODE:
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


def with_solver(model: LatentODE, solver: ct.Solver, times: Tensor, x: Tensor) -> float:
    """The loss with another solver, to see whether the one of the training was fine enough."""
    model.block.solver = solver
    torch.manual_seed(0)
    with torch.no_grad():
        return model.loss(times, x).item()


def latent(steps: int, seed: int) -> None:
    times, x = spirals(seed)
    a, b = (
        Training(make, seed, torch.optim.Adam, 0.01, every=25)
        for make in (TheirLatent, lambda: our_latent(times))
    )
    compared(a, b, steps, seed, lambda: (times, x))
    four = with_solver(b.model, ct.RK4(steps=4), times, x)
    fine = with_solver(b.model, ct.Dopri5(1e-7, 1e-9), times, x)
    print(f"seed {seed}: loss of continua with its four steps {four:.1f}, finely {fine:.1f}")


# -- both ------------------------------------------------------------------------------------------


class Training:
    """One model, its optimizer, its clock and its losses."""

    def __init__(
        self,
        make: Callable[[], nn.Module],
        seed: int,
        optimizer: type[torch.optim.Optimizer],
        rate: float,
        *,
        every: int,
    ):
        torch.manual_seed(seed)
        self.model = make()
        self.optimizer = optimizer(self.model.parameters(), rate)
        self.every = every  # steps that a loss is averaged over
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
        return statistics.mean(self.losses[max(0, step - self.every) : step])

    def until(self, loss: float) -> float:
        """The time that a mean loss as low took."""
        steps = range(self.every, len(self.losses) + 1)
        return next((self.clock[n - 1] for n in steps if self.at(n) <= loss), math.inf)


def compared(
    a: Training, b: Training, steps: int, seed: int, batch: Callable[[], tuple[Tensor, Tensor]]
) -> None:
    """Train both in turn, then ours on to half the time of the other."""
    print(f"seed {seed}    torchdiffeq            continua")
    for step in range(1, steps + 1):
        given = batch()
        a.step(*given)
        b.step(*given)
        if step % (4 * a.every) == 0 or step == steps:
            print(
                f"step {step:5d}  {a.at(step):9.5g} {a.seconds:7.1f} s  "
                f"{b.at(step):9.5g} {b.seconds:7.1f} s",
                flush=True,
            )
    per_step = b.seconds / a.seconds
    while b.seconds < a.seconds / 2:
        b.step(*batch())
    reached = b.until(a.at(steps)) / a.seconds
    print(f"seed {seed}: loss of continua at half the time {b.at(len(b.losses)):.5g}")
    print(
        f"seed {seed}: continua takes {per_step:.2f} of the time per step, and "
        f"{reached:.2f} of it to the loss of torchdiffeq",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("example", choices=["demo", "latent"])
    parser.add_argument("--steps", type=int, help="2000 by default, 500 for latent")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    example, steps = {"demo": (demo, 2000), "latent": (latent, 500)}[options.example]
    for seed in options.seeds:
        example(options.steps or steps, seed)


if __name__ == "__main__":
    main()
