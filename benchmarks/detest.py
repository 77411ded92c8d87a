"""The problems of DETEST, some that are stiff, and how far a solver's errors are from a tolerance.

DETEST: Hull, Enright, Fellen and Sedgwick, Comparing numerical methods for ordinary differential
equations, SIAM J. Numer. Anal. 9 (1972); five problems in each of five classes, all over (0, 20).
The stiff ones are those of Hairer and Wanner, Solving Ordinary Differential Equations II, over
spans that an explicit method can manage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.integrate import OdeSolution, solve_ivp
from torch import Tensor

import continua as ct

Right = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """y' = f(t, y) from y(0), with f on any batch: y `[..., n]`, t a number or `[...]`."""

    f: Right
    start: tuple[float, ...]
    end: float = 20.0

    @property
    def y(self) -> Tensor:
        return torch.tensor(self.start, dtype=torch.float64)


def system(f: Callable[..., tuple[Tensor, ...]]) -> Right:
    """A right-hand side written by components."""
    return lambda t, y: torch.stack(f(t, *y.unbind(-1)), -1)


def linear(rows: Tensor) -> Right:
    return lambda t, y: y @ rows.T


def chain(rates: list[float]) -> Tensor:
    """Decay from each component to the next."""
    rates = torch.tensor([*rates, 0.0], dtype=torch.float64)
    return torch.diag(rates[:-1], -1) - torch.diag(rates)


def diffusion(n: int) -> Tensor:
    ones = torch.ones(n - 1, dtype=torch.float64)
    return torch.diag(ones, 1) + torch.diag(ones, -1) - 2 * torch.eye(n, dtype=torch.float64)


def torus(t, a, b, c):
    r = (a * a + b * b).sqrt()
    return -b - a * c / r, a - b * c / r, a / r


MASSES = torch.tensor(
    [9.54786104043e-4, 2.85583733151e-4, 4.37273164546e-5, 5.17759138449e-5, 2.77777777778e-6],
    dtype=torch.float64,
)
PLANETS = (
    3.42947415189, 3.35386959711, 1.35494901715, 6.64145542550, 5.97156957878, 2.18231499728,
    11.2630437207, 14.6952576794, 6.27960525067, -30.1552268759, 1.65699966404, 1.43785752721,
    -21.1238353380, 28.4465098142, 15.3882659679,
    -0.557160570446, 0.505696783289, 0.230578543901, -0.415570776342, 0.365682722812,
    0.169143213293, -0.325325669158, 0.189706021964, 0.0877265322780, -0.0240476254170,
    -0.287659532608, -0.117219543175, -0.176860753121, -0.216393453025, -0.0148647893090,
)  # fmt: skip


def planets(t: Tensor, y: Tensor) -> Tensor:
    """The five outer planets, seen from the sun: places, then velocities, `[..., 30]`."""
    place, velocity = y.unflatten(-1, (2, 5, 3)).unbind(-3)  # [..., 5, 3]
    own = place / place.square().sum(-1, keepdim=True).pow(1.5)
    apart = place.unsqueeze(-3) - place.unsqueeze(-2)  # [..., j, k, 3], from j to k
    distance = apart.square().sum(-1, keepdim=True) + torch.eye(5, dtype=y.dtype)[..., None]
    pull = apart / distance.pow(1.5) - own.unsqueeze(-3)
    others = MASSES[:, None] * pull * (1 - torch.eye(5, dtype=y.dtype))[..., None]
    force = 2.95912208286 * (others.sum(-2) - (1.00000597682 + MASSES)[:, None] * own)
    return torch.stack([velocity, force], -3).flatten(-3)


def orbit(t, a, b, u, v):
    r3 = (a * a + b * b).pow(1.5)
    return u, v, -a / r3, -b / r3


def orbit_from(e: float) -> Problem:
    return Problem(system(orbit), (1 - e, 0.0, 0.0, math.sqrt((1 + e) / (1 - e))))


def first(n: int) -> tuple[float, ...]:
    return (1.0, *[0.0] * (n - 1))


def oscillator(stiffness: float) -> Right:
    """Van der Pol's."""
    return system(lambda t, a, b: (b, stiffness * (1 - a * a) * b - a))


DETEST = {
    "A1": Problem(lambda t, y: -y, (1.0,)),
    "A2": Problem(lambda t, y: -(y**3) / 2, (1.0,)),
    "A3": Problem(system(lambda t, y: (y * torch.as_tensor(t).cos(),)), (1.0,)),
    "A4": Problem(lambda t, y: y / 4 * (1 - y / 20), (1.0,)),
    "A5": Problem(system(lambda t, y: ((y - t) / (y + t),)), (4.0,)),
    "B1": Problem(system(lambda t, a, b: (2 * (a - a * b), -(b - a * b))), (1.0, 3.0)),
    "B2": Problem(linear(torch.tensor([[-1.0, 1, 0], [1, -2, 1], [0, 1, -1]]).double()), (2, 0, 1)),
    "B3": Problem(system(lambda t, a, b, c: (-a, a - b * b, b * b)), first(3)),
    "B4": Problem(system(torus), (3.0, 0.0, 0.0)),
    "B5": Problem(system(lambda t, a, b, c: (b * c, -a * c, -0.51 * a * b)), (0.0, 1.0, 1.0)),
    "C1": Problem(linear(chain([1.0] * 9)), first(10)),
    "C2": Problem(linear(chain([1.0 * i for i in range(1, 10)])), first(10)),
    "C3": Problem(linear(diffusion(10)), first(10)),
    "C4": Problem(linear(diffusion(51)), first(51)),
    "C5": Problem(planets, PLANETS),
    **{f"D{i}": orbit_from(e) for i, e in enumerate((0.1, 0.3, 0.5, 0.7, 0.9), 1)},
    "E1": Problem(
        system(lambda t, a, b: (b, -(b / (t + 1) + (1 - 0.25 / (t + 1) ** 2) * a))),
        (0.6713967071418030, 0.09540051444747446),
    ),
    "E2": Problem(oscillator(1.0), (2.0, 0.0)),
    "E3": Problem(
        system(lambda t, a, b: (b, a**3 / 6 - a + 2 * torch.as_tensor(2.78535 * t).sin())),
        (0.0, 0.0),
    ),
    "E4": Problem(system(lambda t, a, b: (b, 0.032 - 0.4 * b * b)), (30.0, 0.0)),
    "E5": Problem(system(lambda t, a, b: (b, (1 + b * b).sqrt() / (25 - t))), (0.0, 0.0)),
}


def robertson(t, a, b, c):
    slow, fast, back = 0.04 * a, 3e7 * b * b, 1e4 * b * c
    return back - slow, slow - back - fast, fast


def hires(t, a, b, c, d, e, f, g, h):
    return (
        -1.71 * a + 0.43 * b + 8.32 * c + 0.0007,
        1.71 * a - 8.75 * b,
        -10.03 * c + 0.43 * d + 0.035 * e,
        8.32 * b + 1.71 * c - 1.12 * d,
        -1.745 * e + 0.43 * f + 0.43 * g,
        -280 * f * h + 0.69 * d + 1.71 * e - 0.43 * f + 0.69 * g,
        280 * f * h - 1.81 * g,
        -280 * f * h + 1.81 * g,
    )


STIFF = {
    "van der Pol 10": Problem(oscillator(10.0), (2.0, 0.0)),
    "Robertson": Problem(system(robertson), first(3), end=0.3),
    "HIRES": Problem(system(hires), (*first(7), 0.0057), end=20.0),
}
PROBLEMS = DETEST | STIFF


@cache
def reference(name: str) -> OdeSolution:
    """The solution as a function of t, by SciPy's DOP853 at a relative tolerance of 1e-13."""
    problem, f = PROBLEMS[name], _in_numpy(PROBLEMS[name])
    options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-15, "dense_output": True}
    return solve_ivp(f, (0.0, problem.end), np.array(problem.start), **options).sol


def _in_numpy(problem: Problem) -> Callable[[float, np.ndarray], np.ndarray]:
    return lambda t, y: problem.f(t, torch.from_numpy(y)).numpy()


def error_ratios(name: str, solver: ct.Solver) -> tuple[float, float]:
    """The largest local and the largest global error of a solve, divided by the tolerance.

    Both are root mean squares over the components, each relative to atol + rtol |y|: the norm in
    which a step is accepted. The local error is that of one step, from where the solver is; the
    global error is that of the solution at the ends of steps.
    """
    problem = PROBLEMS[name]
    with torch.no_grad():
        solution = ct.odeint(problem.f, problem.y, (0, problem.end), solver=solver, dense=True)
        h = torch.tensor(solution.stats.step_sizes, dtype=torch.float64)
        ends = torch.cat([torch.zeros(1), h.cumsum(0)]).clamp(max=problem.end)
        y = solution(ends)  # [steps + 1, n]
        start, h = ends[:-1], ends.diff()

        def step(s: Tensor, z: Tensor) -> Tensor:
            return h[:, None] * problem.f(start + s * h, z)

        exact = ct.odeint(step, y[:-1], solver=ct.Dopri8(steps=4)).final
    largest = torch.maximum(y[:-1].abs(), y[1:].abs())
    local = relative(y[1:] - exact, largest, solver)
    true = torch.from_numpy(reference(name)(ends.numpy()).T.copy())
    return local, relative(y - true, true.abs(), solver)


def scipy_ratio(name: str, method: str, tolerance: float) -> float | None:
    """The largest global error of SciPy's method, divided by the tolerance; None if it stops."""
    problem = PROBLEMS[name]
    solver = ct.Dopri5(tolerance, tolerance)  # for the norm only
    options = {"method": method, "rtol": tolerance, "atol": tolerance}
    found = solve_ivp(_in_numpy(problem), (0.0, problem.end), np.array(problem.start), **options)
    if not found.success or not np.isfinite(found.y).all():
        return None
    true = torch.from_numpy(reference(name)(found.t).T.copy())
    return relative(torch.from_numpy(found.y.T.copy()) - true, true.abs(), solver)


@cache
def growth(name: str) -> float:
    """How much larger an error can become later, however small the steps after it are.

    The largest over ten places where it happens, all directions, and 40 later times, in the norm
    of `error_ratios`.
    """
    problem, solver, small = PROBLEMS[name], ct.Dopri8(1e-11, 1e-11, max_steps=10**6), 1e-5
    times = torch.linspace(0, problem.end, 41, dtype=torch.float64).tolist()
    with torch.no_grad():
        states = ct.odeint(problem.f, problem.y, (0, problem.end), solver=solver, save_at=times).z
        largest = 0.0
        for k in range(0, 40, 4):
            y = states[k]
            start = torch.cat([y[None], y + small * torch.diag(1 + y.abs())])  # [1 + n, n]
            options = {"solver": solver, "save_at": times[k:]}
            z = ct.odeint(problem.f, start, (times[k], problem.end), **options).z
            change = (z[:, 1:] - z[:, :1]) / (1 + z[:, :1].abs()) / small  # [times, n, n]
            largest = max(largest, float(torch.linalg.matrix_norm(change, 2).max()))
    return largest


def relative(error: Tensor, size: Tensor, solver: ct.Solver) -> float:
    scale = solver.atol + solver.rtol * size
    return float((error / scale).square().mean(-1).sqrt().max())
