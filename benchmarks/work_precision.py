"""Work and precision of our adaptive solvers beside SciPy's, torchdiffeq's and diffrax's.

Evaluations of the right-hand side are counted, so that the machine does not matter. `--ratios`
prints instead how far errors are from the tolerance on all problems of `detest.py`.

    python benchmarks/work_precision.py [--out docs/results/work-precision.png] [--ratios]
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

import continua as ct
from detest import PROBLEMS, error_ratios, growth, reference, scipy_ratio

NAMES = ("B1", "D3", "E2", "van der Pol 10")
#: by order: tolerances, and the methods of every library
ROWS = {
    3: (np.logspace(-2, -6, 5), {"ours": ["Bosh3"], "SciPy": ["RK23"], "torchdiffeq": ["bosh3"]}),
    5: (
        np.logspace(-3, -9, 4),
        {"ours": ["Dopri5", "Tsit5"], "SciPy": ["RK45"], "torchdiffeq": ["dopri5"],
         "diffrax": ["Dopri5", "Tsit5"]},
    ),
    8: (
        np.logspace(-4, -12, 5),
        {"ours": ["Dopri8"], "SciPy": ["DOP853"], "torchdiffeq": ["dopri8"],
         "diffrax": ["Dopri8"]},
    ),
}  # fmt: skip
COLOURS = {"ours": "C0", "SciPy": "C1", "torchdiffeq": "C2", "diffrax": "C4"}


def ours(name: str, method: str, tolerance: float, f: Callable[..., Tensor]) -> Tensor:
    problem, solver = PROBLEMS[name], getattr(ct, method)(tolerance, tolerance, max_steps=200_000)
    return ct.odeint(f, problem.y, (0.0, problem.end), solver=solver).final


def scipy(name: str, method: str, tolerance: float, f: Callable[..., Tensor]) -> Tensor:
    problem = PROBLEMS[name]
    found = solve_ivp(
        lambda t, y: f(t, torch.from_numpy(y)).numpy(),
        (0.0, problem.end), problem.start, method=method, rtol=tolerance, atol=tolerance,
    )  # fmt: skip
    return torch.from_numpy(found.y[:, -1])


def torchdiffeq(name: str, method: str, tolerance: float, f: Callable[..., Tensor]) -> Tensor:
    from torchdiffeq import odeint

    problem = PROBLEMS[name]
    ends = torch.tensor([0.0, problem.end], dtype=torch.float64)
    return odeint(f, problem.y, ends, method=method, rtol=tolerance, atol=tolerance)[-1]


def diffrax(name: str, method: str, tolerance: float, f: Callable[..., Tensor]) -> Tensor:
    import diffrax as dfx
    import jax

    jax.config.update("jax_enable_x64", True)
    problem = PROBLEMS[name]
    shape = jax.ShapeDtypeStruct((len(problem.start),), np.float64)

    def call(t, y):
        return f(float(t), torch.tensor(np.asarray(y))).numpy()

    term = dfx.ODETerm(lambda t, y, args: jax.pure_callback(call, shape, t, y))
    control = dfx.PIDController(rtol=tolerance, atol=tolerance)
    found = dfx.diffeqsolve(
        term, getattr(dfx, method)(), 0.0, problem.end, None, jax.numpy.array(problem.start),
        stepsize_controller=control, max_steps=200_000,
    )  # fmt: skip
    return torch.tensor(np.asarray(found.ys[-1]))


LIBRARIES = {"ours": ours, "SciPy": scipy, "torchdiffeq": torchdiffeq, "diffrax": diffrax}


def point(library: str, name: str, method: str, tolerance: float) -> tuple[int, float]:
    """Evaluations, and the relative error at the end of the span."""
    calls = 0

    def counted(t, y):
        nonlocal calls
        calls += 1
        return PROBLEMS[name].f(t, y)

    with torch.no_grad():
        end = LIBRARIES[library](name, method, float(tolerance), counted)
    exact = torch.from_numpy(reference(name)(PROBLEMS[name].end))
    return calls, float((end - exact).norm() / exact.norm())


def figure(out: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    there = [x for x in LIBRARIES if x in ("ours", "SciPy") or importlib.util.find_spec(x)]
    fig, axes = plt.subplots(
        len(ROWS), len(NAMES), figsize=(12, 8.5), sharey=True, layout="constrained"
    )
    for row, (order, (tolerances, methods)) in zip(axes, ROWS.items(), strict=True):
        for ax, name in zip(row, NAMES, strict=True):
            for library in (x for x in there if x in methods):
                for method, style in zip(methods[library], ("o-", "s--"), strict=False):
                    points = [point(library, name, method, t) for t in tolerances]
                    row_of = " ".join(f"{n}:{e:.1e}" for n, e in points)
                    print(f"{name:<16}{library:<13}{method:<8}{row_of}", flush=True)
                    label = f"{library} {method}"
                    ax.loglog(
                        *zip(*points, strict=True), style, c=COLOURS[library], ms=4, label=label
                    )
            ax.set_xlim(1e2, 1e4)
            ax.grid(alpha=0.3)
            if order == 3:
                ax.set_title(name)
            if order == 8:
                ax.set_xlabel("evaluations")
        row[0].set_ylabel(f"order {order}\nrelative error at the end")
        row[-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    fig.savefig(out, dpi=110)


def tried(call: Callable[[], object]) -> object | None:
    try:
        return call()
    except ct.SolveError:
        return None


def ratios(tolerances: Sequence[float]) -> None:
    """Errors in units of the tolerance: a row per pair, then the problems outside 0.1 ... 10."""
    outside = []
    print("| pair | tolerance | local: median, range | global: median, range | solved |")
    print("|---|---|---|---|---|")
    for pair in ("Bosh3", "Dopri5", "Tsit5", "Dopri8"):
        for tolerance in tolerances:
            if pair == "Bosh3" and tolerance < 1e-7:
                continue  # about a hundred thousand steps
            solver = getattr(ct, pair)(tolerance, tolerance, max_steps=200_000)
            every = {n: tried(lambda n=n, s=solver: error_ratios(n, s)) for n in PROBLEMS}
            found = {name: each for name, each in every.items() if each is not None}
            local, globally = map(spread, zip(*found.values(), strict=True))
            print(f"| `{pair}` | {tolerance:g} | {local} | {globally} "
                  f"| {len(found)} of {len(every)} |", flush=True)  # fmt: skip
            outside.append((pair, tolerance, {name: each[1] for name, each in found.items()}))
    print("\n| pair | tolerance | within | SciPy within | below 0.1 | above 10 | also / growth |")
    print("|---|---|---|---|---|---|---|")
    for pair, tolerance, errors in outside:
        theirs: list[float | None] = []
        if method := {"Bosh3": "RK23", "Dopri5": "RK45", "Dopri8": "DOP853"}.get(pair):
            theirs = [scipy_ratio(name, method, tolerance) for name in PROBLEMS]
        inside = sum(x is not None and within(x) for x in theirs) if theirs else "–"
        low = told({n: x for n, x in errors.items() if x < 0.1})
        high = told({n: x for n, x in errors.items() if x > 10})
        still = {n: x / growth(n) for n, x in errors.items() if x / growth(n) > 10}
        count = sum(map(within, errors.values()))
        print(f"| `{pair}` | {tolerance:g} | {count} | {inside} | {low} | {high} "
              f"| {told(still)} |", flush=True)  # fmt: skip
    print("\ngrowth:", told({name: growth(name) for name in PROBLEMS}))


def within(ratio: float) -> bool:
    return 0.1 <= ratio <= 10


def told(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2g}" for name, value in values.items()) or "–"


def spread(values) -> str:
    return f"{statistics.median(values):.2g}, {min(values):.1g}–{max(values):.1g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="docs/results/work-precision.png")
    parser.add_argument("--ratios", action="store_true")
    tolerances = [1e-3, 1e-5, 1e-7, 1e-9]
    parser.add_argument("--tolerances", type=float, nargs="*", default=tolerances)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ratios(options.tolerances) if options.ratios else figure(options.out)


if __name__ == "__main__":
    main()
