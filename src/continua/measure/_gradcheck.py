"""Every gradient against finite differences and against each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua._tables import html_table, text_table
from continua.block import ODEBlock
from continua.field import copied
from continua.gradient import Backprop, Gradient
from continua.solve import Pair, Solver

from ._memory import METHODS
from ._saved import SavedTensors

Loss = Callable[[Tensor], Tensor]
DIRECTIONS = 3
HEAD = ("gradient", "vs differences", "vs backprop", "forward", "backward", "ms", "kB saved")
NOTE = (
    "Differences are good to about 1e-8, but not across kinks, such as those of ReLU.\n"
    "The adjoint is as near to Backprop as the steps are fine, the others as rounding lets them."
)


@dataclass(frozen=True)
class GradientError:
    """One gradient method, measured."""

    gradient: Gradient
    difference: float = float("nan")  # the largest relative error against central differences
    backprop: float = float("nan")  # the relative distance to `Backprop`
    forward: int = 0  # evaluations of the field in the forward pass
    backward: int | None = None  # and in the backward pass; None where autograd replays the forward
    seconds: float = float("nan")  # for one forward and backward
    saved: int = 0  # bytes kept for the backward pass
    refusal: str | None = None  # why the method does not apply, if it does not


@dataclass(frozen=True, repr=False)
class GradientReport:
    """What `gradcheck` found; `print` shows it as a table."""

    solver: Solver
    rows: tuple[GradientError, ...]

    def _table(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [HEAD]
        for row in self.rows:
            if row.refusal is None:
                errors = (f"{row.difference:.1e}", f"{row.backprop:.1e}")
                counts = (str(row.forward), "-" if row.backward is None else str(row.backward))
                costs = (f"{1e3 * row.seconds:.1f}", f"{row.saved / 1e3:.1f}")
                rows.append((repr(row.gradient), *errors, *counts, *costs))
        return rows

    def _notes(self) -> list[str]:
        refusals = {repr(r.gradient): r.refusal for r in self.rows if r.refusal is not None}
        notes = [f"{name}: {why.removeprefix(name).strip()}" for name, why in refusals.items()]
        return [*notes, NOTE]

    def __str__(self) -> str:
        return "\n".join([repr(self.solver), text_table(self._table()), *self._notes()])

    def __repr__(self) -> str:
        refused = sum(row.refusal is not None for row in self.rows)
        worst = max((r.difference for r in self.rows if r.refusal is None), default=0.0)
        return (
            f"GradientReport({self.solver!r}, {len(self.rows)} methods, {refused} refused, "
            f"largest error {worst:.1e})"
        )

    def _repr_html_(self) -> str:
        return html_table(self._table(), repr(self.solver), self._notes())


def gradcheck(block: ODEBlock, x: Tensor, loss: Loss | None = None) -> GradientReport:
    """Check every gradient method on a block of your own.

    The block is copied and converted to double precision. The gradient of each method, with respect
    to parameters and input, is compared along random directions with central differences of a solve
    at much tighter tolerances, and as a whole with `Backprop`.

    Args:
        block: the block, in the mode to check. Every run of it draws the same random numbers.
        x: an input.
        loss: from the state at the end to a number; the mean square by default.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(torch.nn.Linear(2, 2), ct.Fourier(1), ct.Dopri5(1e-8, 1e-8))
        >>> report = ct.gradcheck(block, torch.ones(3, 2))
        >>> all(row.difference < 1e-4 for row in report.rows if row.refusal is None)
        True
    """
    if not isinstance(block, ODEBlock):
        raise ArgumentError(f"gradcheck takes an ODEBlock, not {type(block).__name__}")
    complex_dtypes = {str(t.dtype) for t in (x, *block.parameters()) if t.is_complex()}
    if complex_dtypes:
        raise ArgumentError(f"gradcheck takes real blocks and inputs, not {min(complex_dtypes)}")
    double = copied(block).double()
    z = x.detach().double()
    loss = mean_square if loss is None else loss
    differences = _central_differences(double, z, loss)
    largest = max(abs(value) for _, value in differences) or 1.0
    rows: list[GradientError] = []
    reference: Tensor | None = None
    for method in METHODS:
        trial = copied(double)
        trial.gradient = method
        try:
            _measure(copied(trial), z, loss)  # to warm up
            gradient, row = _measure(trial, z, loss)
        except ArgumentError as error:
            rows.append(GradientError(method, refusal=str(error)))
            continue
        reference = gradient if reference is None else reference
        distance = float((gradient - reference).norm()) / (float(reference.norm()) or 1.0)
        errors = [abs(float(gradient @ along) - value) for along, value in differences]
        rows.append(replace(row, difference=max(errors) / largest, backprop=distance))
    return GradientReport(block.solver, tuple(rows))


def mean_square(z: Tensor) -> Tensor:
    """The loss unless another is given."""
    return z.square().mean()


def _inputs(block: ODEBlock, x: Tensor) -> list[Tensor]:
    return [x, *(p for p in block.parameters() if p.requires_grad)]


def _measure(block: ODEBlock, x: Tensor, loss: Loss) -> tuple[Tensor, GradientError]:
    """The gradient with respect to input and parameters as one vector, and what it cost."""
    x = x.clone().requires_grad_()
    with _same_noise(x):
        started = time.perf_counter()
        with SavedTensors([x, *block.parameters(), *block.buffers()]) as kept:
            solution = block.solve(x)
            value = loss(solution.final)
        saved, inputs, stats = kept.bytes, _inputs(block, x), solution.stats
        gradients = torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)
        seconds = time.perf_counter() - started
    backward = None if stats.backward is None else stats.backward.evaluations
    return torch.cat([g.reshape(-1) for g in gradients]), GradientError(
        block.gradient, forward=stats.evaluations, backward=backward, seconds=seconds, saved=saved
    )


@contextmanager
def _same_noise(x: Tensor) -> Iterator[None]:
    with torch.random.fork_rng([x.device] if x.is_cuda else []):
        torch.manual_seed(0)
        yield


def _central_differences(block: ODEBlock, x: Tensor, loss: Loss) -> list[tuple[Tensor, float]]:
    """Random directions, and the central difference of the loss along each."""
    fine = copied(block)
    fine.gradient = Backprop()
    if isinstance(fine.solver, Pair) and fine.solver.adaptive:
        # A solve that chooses its steps by loose tolerances is not smooth enough to difference.
        fine.solver = type(fine.solver)(rtol=1e-11, atol=1e-11)
    generator, step = torch.Generator().manual_seed(0), 1e-5
    sizes = [t.numel() for t in _inputs(fine, x)]
    differences = []
    for _ in range(DIRECTIONS):
        along = torch.randn(sum(sizes), generator=generator, dtype=x.dtype).to(x.device)
        values = []
        for sign in (1.0, -1.0):
            moved = copied(fine)
            inputs = _inputs(moved, x.clone())
            with torch.no_grad(), _same_noise(x):
                for t, d in zip(inputs, torch.split(along, sizes), strict=True):
                    t.add_(d.reshape(t.shape), alpha=sign * step)
                values.append(float(loss(moved(inputs[0]))))
        differences.append((along, (values[0] - values[1]) / (2 * step)))
    return differences
