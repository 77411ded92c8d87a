"""Our solvers and gradients beside torchdiffeq's and, where it is installed, torchdyn's.

Every pair solves the same problem at the same tolerances, interleaved in one process on one thread;
a row is the median ratio of the times of one forward and backward, with the gradient errors of both
sides against a float64 reference.

    python benchmarks/solvers.py [--rounds 30] [--json]
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from datetime import date

import torch
import torch.nn.functional as F
import torchdiffeq
from torch import Tensor, nn

import continua as ct

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import torchdyn.core as torchdyn
    except ImportError as error:
        torchdyn, MISSING = None, str(error)

Run = Callable[[], tuple[float, list[Tensor]]]


def field() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 16)
    )


def step(model: Callable[[Tensor], Tensor], parameters: list[Tensor], x: Tensor) -> Run:
    def run() -> tuple[float, list[Tensor]]:
        started = time.perf_counter()
        gradients = torch.autograd.grad(model(x).square().sum(), parameters)
        return time.perf_counter() - started, list(gradients)

    return run


def ours(module: nn.Module, solver: ct.Solver, gradient: ct.Gradient, x: Tensor) -> Run:
    block = ct.ODEBlock(module, ct.Constant(), solver, gradient)
    return step(block, list(block.parameters()), x)


def diffeq(module: nn.Module, method: str, x: Tensor, adjoint: bool, **options: object) -> Run:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, s: Tensor, z: Tensor) -> Tensor:
            return self.module(z)

    wrapped = Wrapped()
    solve = torchdiffeq.odeint_adjoint if adjoint else torchdiffeq.odeint
    ends = torch.tensor([0.0, 1.0], dtype=x.dtype)

    def model(x: Tensor) -> Tensor:
        return solve(wrapped, x, ends, method=method, **options)[-1]

    return step(model, list(module.parameters()), x)


def dyn(module: nn.Module, x: Tensor) -> Run:
    assert torchdyn is not None
    node = torchdyn.NeuralODE(
        module, solver="dopri5", sensitivity="autograd", rtol=1e-5, atol=1e-5, return_t_eval=False
    )
    ends = torch.tensor([0.0, 1.0])
    return step(lambda x: node(x, ends)[-1], list(module.parameters()), x)


class FourierMLP(nn.Module):
    """The field with 11 Fourier coefficients per weight, as one would write it by hand."""

    def __init__(self, block: ct.ODEBlock):
        super().__init__()
        self.stacks = nn.ParameterList([p.detach().clone() for p in block.field.parameters()])
        self.register_buffer("n", torch.arange(1, 6, dtype=self.stacks[0].dtype))

    def forward(self, s: Tensor, z: Tensor) -> Tensor:
        angle = 2 * math.pi * s * self.n
        waves = torch.stack([angle.cos(), angle.sin()], -1).flatten()
        phi = torch.cat([torch.ones_like(waves[:1]), waves])
        W1, b1, W2, b2, W3, b3 = (torch.tensordot(phi, p, 1) for p in self.stacks)
        return F.linear(torch.tanh(F.linear(torch.tanh(F.linear(z, W1, b1)), W2, b2)), W3, b3)


def adaptive(gradient: ct.Gradient, peer: str) -> tuple[Run, Run, list[Tensor]]:
    x, module = torch.randn(64, 16), field()
    exact = ours(copy.deepcopy(module).double(), ct.Dopri8(1e-11, 1e-11), ct.Backprop(), x.double())
    mine = ours(module, ct.Dopri5(1e-5, 1e-5), gradient, x)
    if peer == "torchdyn":
        theirs = dyn(module, x)
    else:
        theirs = diffeq(module, "dopri5", x, peer == "adjoint", rtol=1e-5, atol=1e-5)
    return mine, theirs, exact()[1]


def backprop(peer: str) -> Callable[[], tuple[Run, Run, list[Tensor]]]:
    return lambda: adaptive(ct.Backprop(), peer)


def galerkin() -> tuple[Run, Run, list[Tensor]]:
    x = torch.randn(64, 16)
    block = ct.ODEBlock(field(), ct.Fourier(5), ct.Dopri5(1e-5, 1e-5), ct.Adjoint())
    with torch.no_grad():
        for p in block.parameters():
            p[1:] += 0.02 * torch.randn_like(p[1:])
    hand = FourierMLP(block)
    ends = torch.tensor([0.0, 1.0])

    def model(x: Tensor) -> Tensor:
        return torchdiffeq.odeint_adjoint(hand, x, ends, method="dopri5", rtol=1e-5, atol=1e-5)[-1]

    fine = ct.compress(block.double(), solver=ct.Dopri8(1e-11, 1e-11))
    fine.gradient = ct.Backprop()
    exact = step(fine, list(fine.parameters()), x.double())()[1]
    block = block.float()
    return (
        step(block, list(block.parameters()), x),
        step(model, list(hand.parameters()), x),
        exact,
    )


def overhead(rounds: int) -> dict[str, object]:
    """Seconds per evaluation above the bare field, RK4 on 32 steps, forward only."""
    x, module = torch.randn(64, 16), nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))
    block = ct.ODEBlock(module, ct.Constant(), ct.RK4(steps=32))
    wrapped = lambda s, z: module(z)  # noqa: E731
    ends = torch.tensor([0.0, 1.0])
    step_size = {"step_size": 1 / 32}

    def bare() -> None:
        z = x
        for _ in range(128):
            module(z)

    runs: dict[str, Callable[[], object]] = {
        "bare": bare,
        "ours": lambda: block(x),
        "torchdiffeq": lambda: torchdiffeq.odeint(
            wrapped, x, ends, method="rk4", options=step_size
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    with torch.no_grad():
        for _ in range(10 * rounds + 3):
            for name, run in runs.items():
                started = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - started)
    above = {
        name: [(t - bare) / 128 for t, bare in zip(times[name][3:], times["bare"][3:], strict=True)]
        for name in ("ours", "torchdiffeq")
    }
    ratios = [a / b for a, b in zip(*above.values(), strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    middle = {name: 1e6 * statistics.median(values) for name, values in above.items()}
    return {"ratio": ratio, "low": low, "high": high, "microseconds": middle}


def relative(gradients: list[Tensor], exact: list[Tensor]) -> float:
    error = sum(
        float((g.double().reshape(-1) - e.double().reshape(-1)).square().sum())
        for g, e in zip(gradients, exact, strict=True)
    )
    return math.sqrt(error / sum(float(e.double().square().sum()) for e in exact))


def measure(mine: Run, theirs: Run, exact: list[Tensor], rounds: int) -> dict[str, float]:
    errors = [relative(run()[1], exact) for run in (mine, theirs)]
    ratios = []
    for i in range(rounds + 3):
        pair = [(mine, 0), (theirs, 1)][:: 1 if i % 2 else -1]
        times = [0.0, 0.0]
        for run, at in pair:
            times[at] = run()[0]
        if i >= 3:
            ratios.append(times[0] / times[1])
    low, ratio, high = statistics.quantiles(ratios, n=4)
    return {
        "ratio": ratio, "low": low, "high": high,
        "gradient_error": errors[0], "peer_gradient_error": errors[1],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="at least 2")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    table = [
        ("Dopri5 1e-5, Backprop ÷ torchdiffeq odeint", 0.5, backprop("plain")),
        ("Dopri5 1e-5, Backprop ÷ torchdyn autograd", 0.8, backprop("torchdyn")),
        ("Dopri5 1e-5, Adjoint ÷ odeint_adjoint", 0.5, lambda: adaptive(ct.Adjoint(), "adjoint")),
        ("Fourier(5) weights, Adjoint ÷ odeint_adjoint by hand", 0.25, galerkin),
    ]  # fmt: skip
    rows: list[dict[str, object]] = []
    for name, goal, make in table:
        if "torchdyn" in name and torchdyn is None:
            rows.append({"row": name, "goal": goal, "missing": MISSING})
            continue
        rows.append({"row": name, "goal": goal, **measure(*make(), options.rounds)})
    name = "RK4 x 32, overhead per evaluation ÷ torchdiffeq"
    rows.append({"row": name, "goal": 0.25, **overhead(options.rounds)})
    if options.json:
        facts = {"machine": platform.machine(), "torch": torch.__version__}
        print(json.dumps({"date": str(date.today()), **facts, "rows": rows}))
        return
    print(f"{options.rounds} rounds, 1 thread, torch {torch.__version__}, torchdiffeq "
          f"{torchdiffeq.__version__}; MLP 16-64-64-16, batch 64, fwd+bwd")  # fmt: skip
    print(f"{'ours ÷ peer':<54}{'ratio':>7}{'quartiles':>14}{'goal':>6}{'errors ours / peer':>21}")
    for row in rows:
        if "missing" in row:
            print(f"{row['row']:<54}  not run: {row['missing']}")
            continue
        spread = f"{row['low']:.2f}-{row['high']:.2f}" if "low" in row else ""
        errors = (
            f"{row['gradient_error']:.0e} / {row['peer_gradient_error']:.0e}"
            if "gradient_error" in row
            else ", ".join(f"{v:.1f} µs" for v in row["microseconds"].values())
        )
        print(f"{row['row']:<54}{row['ratio']:>7.2f}{spread:>14}{row['goal']:>6.2f}{errors:>21}")


if __name__ == "__main__":
    main()
