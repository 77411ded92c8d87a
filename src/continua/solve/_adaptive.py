"""Adaptive steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor

from ._dynamics import Dynamics, Side, Span, Stage, State, linear
from ._interpolant import EveryStep
from ._solver import Failure, Saves, Stats, Status, Trajectory, saved_at_start
from ._step import Scaled, Step, sides, stages_between, step

if TYPE_CHECKING:
    from ._pair import Pair


class Adaptive:
    """The step control of one solve: which steps a pair of methods takes."""

    def __init__(
        self, pair: Pair, dynamics: Dynamics, z: State, span: Span, save_at: Saves, observe: Any
    ):
        self.pair, self.dynamics, self.observe = pair, dynamics, observe
        self.z, self.s, self.end = z, float(span[0]), float(span[1])
        self.direction = 1.0 if span[1] > span[0] else -1.0
        self.every = save_at if isinstance(save_at, EveryStep) else None
        depths = () if isinstance(save_at, EveryStep) else save_at
        self.save_at = [s for s in depths if s != self.s]
        self.saved = saved_at_start(z, save_at, len(self.save_at))
        self.ends, self.stopped = [self.s], False
        self.stats = Stats()
        low, high = sorted(span)
        inner = sorted({b for b in dynamics.breakpoints if low < b < high})
        self.targets = [*(inner if self.direction > 0 else inner[::-1]), self.end]
        self.last_error, self.h, self.longest = 1.0, 0.0, pair.max_step
        if dynamics.frequency > 0:
            # A wave over a step of a radians is integrated up to about 1e-4 a^order; up to ten
            # times the tolerance is allowed.
            angle = min(math.pi / 2, (1e5 * pair.rtol) ** (1 / pair.tableau.order))
            self.longest = min(self.longest, angle / dynamics.frequency)

    def run(self) -> Trajectory:
        for target in self.targets:
            if not self.stopped and (failed := self._reach(target)) is not None:
                return failed
        return Trajectory(self.z, self.saved, self.stats, ends=self.ends)

    def _reach(self, target: float) -> Trajectory | None:
        """Step to the next breakpoint or to the end, starting afresh."""
        k = self._first(target)
        if not all(bool(_plain(leaf).isfinite().all()) for leaf in k):
            return self._failure(Status.NON_FINITE, k, 0.0)
        if self.h == 0.0:
            self.h = self.pair.first_step or self._first_step(k, target)
        while self.s != target and not self.stopped:
            if self.stats.steps + self.stats.rejected >= self.pair.max_steps:
                return self._failure(Status.MAX_STEPS, k, self.h)
            left = abs(target - self.s)
            h = min(self.h, self.longest)
            # A last step that would leave a sliver takes the sliver along.
            whole = h >= left * (1 - 1e-6)
            end = target if whole else self.s + self.direction * h
            if not whole and h > left / 2:
                end = self.s + self.direction * left / 2
            length = abs(end - self.s)
            resolution = 8 * torch.finfo(self.z[0].dtype).eps * max(abs(self.s), abs(end))
            if not whole and (length <= resolution or length < self.pair.min_step):
                bad = Status.NON_FINITE if math.isnan(self.last_error) else Status.STEP_TOO_SMALL
                return self._failure(bad, k, length)
            k = self._attempt(k, end)
        return None

    def _attempt(self, k: State, end: float) -> State:
        """Try one step; the first stage of the next try."""
        pair, tableau, z = self.pair, self.pair.tableau, self.z
        h, ks = end - self.s, [k]
        used = stages_between(tableau, self.s, end)[1 : tableau.stages + tableau.fsal]
        self.stats.evaluations += len(used)
        if self.dynamics.steps is not None:
            new, ks, error = self.dynamics.steps.attempt(used, h, z, k)
        else:
            new = step(Scaled(tableau, h), self.dynamics.at(used), z, ks)
            with torch.no_grad():
                error = abs(h) * _number(error_norm(pair, ks, z, new))
        if not error <= 1:  # a comparison that also refuses NaN
            self.stats.rejected += 1
            self.last_error = error if math.isnan(error) else 1.0
            factor = pair.shrink
            if math.isfinite(error):
                order = tableau.error_order + 1
                factor = max(pair.shrink, min(1.0, pair.safety * error ** (-1 / order)))
            self.h = abs(h) * factor
            return k
        self.dynamics.accept()
        self._save(ks, new, end)
        self.stats.steps += 1
        self.stats.step_sizes.append(abs(h))
        self.h = abs(h) * self._growth(error)
        self.last_error = max(error, 1e-4)
        self.s, self.z = end, new
        return ks[-1] if tableau.fsal else self._first(end + self.direction)

    def _growth(self, error: float) -> float:
        pair, order = self.pair, self.pair.tableau.error_order + 1
        if error == 0:
            return pair.grow
        last = 1.0 if math.isnan(self.last_error) else self.last_error
        factor: float = pair.safety * error ** (-0.85 / order) * last ** (0.2 / order)
        return min(pair.grow, max(pair.shrink, factor))

    def _first(self, target: float) -> State:
        """The field where the next step starts, from its side."""
        if self.s == self.end:
            return self.z  # not used any more
        k = self._slope(self.s, sides(self.s, target)[0], self.z)
        self.dynamics.accept()
        return k

    def _slope(self, s: float, side: Side, z: State) -> State:
        self.stats.evaluations += 1
        if self.dynamics.steps is not None:
            return self.dynamics.steps.first(Stage(s, side), z)
        (evaluate,) = self.dynamics.at([Stage(s, side)])
        return evaluate(z)

    def _save(self, ks: list[State], new: State, end: float) -> None:
        fractions = list(self.every.fractions) if self.every else []
        while self.save_at and (end - self.save_at[0]) * self.direction >= 0:
            fractions.append((self.save_at.pop(0) - self.s) / (end - self.s))
        made = Step(self.pair.tableau, self.s, end, self.z, new, ks, fractions)
        states = made.saved(self.dynamics, self.stats)
        self.saved += states
        self.ends.append(end)
        self.stopped = self.every is not None and self.every.stops(self.s, end, states)
        if self.observe is not None:
            self.observe(made)

    def _first_step(self, k: State, target: float) -> float:
        """A guess from how large the field is, and how fast it changes over a short Euler step.

        Hairer's guess takes the derivative that the error consists of to be as large as the
        first ones. If derivatives grow at the rate at which the field changes, it is far
        smaller: the step may be longer, ten times at most.
        """
        with torch.no_grad():
            steps = self.dynamics.steps
            known = [self._size(self.z), self._size(k)] if steps is None else steps.sizes.tolist()
            size, slope = known
            small = 1e-6 if min(size, slope) < 1e-5 else 0.01 * size / slope
            small = min(small, abs(target - self.s))
            h = self.direction * small
            side = sides(self.s, self.s + h)[1]
            if steps is None:
                ahead = linear([1, h], [self.z, k])
                after = self._slope(self.s + h, side, ahead)
                change = self._size(linear([1, -1], [after, k]))
            else:
                self.stats.evaluations += 1
                change = steps.change(Stage(self.s + h, side), h, self.z, k)
            curvature = change / small
        left, steepest = abs(target - self.s), max(slope, curvature)
        if not math.isfinite(steepest):
            return small
        if steepest <= 1e-15:
            return 0.01 * left
        tableau = self.pair.tableau
        cautious: float = (0.01 / steepest) ** (1 / tableau.order)
        guess = cautious
        if slope > 0:
            power = tableau.error_order
            rate: float = max(curvature / slope, 1 / left)
            guess = (0.01 / (tableau.leading * slope * rate**power)) ** (1 / (power + 1))
        first = min(100 * small, max(cautious, min(guess, 10 * cautious)))
        # Guesses aim at a hundredth of what is allowed; a half is enough if it spares a step.
        return left if left <= first * 50 ** (1 / (tableau.error_order + 1)) else first

    def _size(self, values: State) -> float:
        return _number(size_norm(self.pair, values, self.z))

    def _failure(self, status: Status, k: State, h: float) -> Trajectory:
        with torch.no_grad():
            leaf, slope = _plain(self.z[0]), _plain(k[0])
            sample = None
            if leaf.dim() > 0 and len(leaf) > 0:
                size = slope.abs().reshape(len(leaf), -1).amax(1)
                size = torch.where(size.isfinite(), size, torch.full_like(size, math.inf))
                sample = int(size.argmax())
            norm = float(slope.abs().square().mean().sqrt()) if slope.numel() else 0.0
        failure = Failure(self.s, sample, norm, abs(h))
        return Trajectory(self.z, self.saved, self.stats, status, failure, self.ends)


def error_norm(pair: Pair, ks: list[State], z: State, new: State) -> Tensor:
    """The norm of the estimated error of a step of length 1, relative to the tolerances."""
    rows = pair.tableau.floats.errors
    norms = [tolerance_norm(pair, linear(row, ks), z, new) for row in rows]
    if len(norms) == 1:
        return _largest(norms[0])
    # DOP853: the estimate of order 5, tempered by that of order 3
    fifth, third = (norm.square() for norm in norms)
    tiny = torch.finfo(fifth.dtype).tiny
    return _largest(fifth / (fifth + 0.01 * third).sqrt().clamp(min=tiny))


def size_norm(pair: Pair, values: State, z: State) -> Tensor:
    """How large values are in units of the tolerance at a state."""
    return _largest(tolerance_norm(pair, values, z, z))


def tolerance_norm(pair: Pair, values: State, z: State, new: State) -> Tensor:
    """The root mean square over the batch, or per sample, of values in units of tolerance."""
    norms, count = [], 0
    for value, before, after in zip(values, z, new, strict=True):
        scale = torch.maximum(before.abs(), after.abs()).mul_(pair.rtol).add_(pair.atol)
        ratio = value / scale
        if pair.norm == "sample" and ratio.dim() > 0:
            ratio = ratio.unsqueeze(1).flatten(1)  # [B, n], also of an empty batch
            norms.append(torch.linalg.vector_norm(ratio, dim=1))
            count += ratio.shape[1]
        else:
            norms.append(torch.linalg.vector_norm(ratio))
            count += ratio.numel()
    norm = norms[0] if len(norms) == 1 else torch.stack(norms).square().sum(0).sqrt()
    # Of a program for any batch size, the count is a symbol.
    return norm / (math.sqrt(max(count, 1)) if isinstance(count, int) else count**0.5)


def _largest(norms: Tensor) -> Tensor:
    """The norm of the batch or of its worst sample; an empty batch has none."""
    return norms.max() if norms.numel() else norms.new_zeros(())


def _number(x: Tensor) -> float:
    """The largest value; under `vmap` over all samples, which take the same steps."""
    return float(_plain(x).max())


def _plain(x: Tensor) -> Tensor:
    """The values; under `vmap` those of all samples."""
    while is_functorch_wrapped_tensor(x):
        x = get_unwrapped(x)
    return x.detach()
