"""The weights and the state of a field at several evaluations of a solve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from continua.basis import Basis, Point

from ._sampling import Sampling, values_at

if TYPE_CHECKING:
    from ._run import FieldRun


class StageWeights:
    """The weights and the state of a field at several evaluations.

    Attributes:
        fixed: the tensors that are the same at every evaluation.
        varying: for each of the others its values, one for each evaluation.
        state: for each piece of state its values before the evaluations and after, `[E, ...]`.
        counts: the counters, one for each evaluation.
        read: for each weight its sampling, the rows that are used, and these as leaves.
        replaced: for each piece of state the values that evaluations put in its place.
    """

    def __init__(
        self,
        run: FieldRun,
        samplings: Mapping[Basis, Sampling],
        points: Sequence[Point],
        inverses: Mapping[Basis, Tensor],
        leaves: bool | None,
    ):
        self.points, self.inverses = points, inverses
        self.samplings, self._expansion = samplings, run.expansion
        self.fixed: dict[str, Tensor] = {}
        self.varying: dict[str, Sequence[Tensor]] = {}
        self.state: dict[str, tuple[Tensor, Tensor]] = {}
        self.counts: dict[str, Tensor] = {}
        self.read: dict[str, tuple[Sampling, list[int], list[Tensor]]] = {}
        self.replaced: dict[str, dict[int, Tensor]] = {}
        for name, basis in run.expansion.weights.items():
            self._read_weight(run, name, samplings[basis], leaves)
        if run.expansion.state or run.expansion.carried:
            with torch.no_grad():
                self._read_state(run, run.updates and leaves is None)

    def _read_weight(
        self, run: FieldRun, name: str, sampling: Sampling, leaves: bool | None
    ) -> None:
        if leaves is None:
            rows: Sequence[Tensor] = run.rows(name, sampling)
        else:
            stack, basis = run.coefficients[name], run.expansion.weights[name]
            with torch.no_grad():
                found = values_at({name: basis}, {name: stack}, {basis: sampling.rows})[name]
            rows = [row.detach() for row in found.detach().unbind(0)]
            if leaves and stack.requires_grad:
                used = sorted(set(sampling.index))
                for i in used:
                    rows[i].requires_grad_()
                self.read[name] = (sampling, used, [rows[i] for i in used])
        if sampling.steady:
            self.fixed[name] = rows[sampling.index[0]]
        else:
            self.varying[name] = [rows[i] for i in sampling.index]

    def _read_state(self, run: FieldRun, updates: bool) -> None:
        for name, (found, picks) in self._distinct_state(run.coefficients).items():
            values = found.index_select(0, picks)  # [E, ...]
            self.state[name] = (values.clone() if updates else values, values)
            self.varying[name] = values.unbind(0)  # evaluations may write to their state
        for name in run.expansion.carried:
            # Where the field is in evaluation, what a part of it counts is thrown away.
            if run.field.get_submodule(name.rpartition(".")[0]).training:
                count = run.coefficients[name]
                self.counts[name] = count.expand(len(self.points), *count.shape).clone()
                self.varying[name] = self.counts[name].unbind(0)
            else:
                self.fixed[name] = run.coefficients[name]

    def read_state_again(self, coefficients: Mapping[str, Tensor]) -> None:
        """Put the state as it is now where it was read before."""
        for name, (found, picks) in self._distinct_state(coefficients).items():
            torch.index_select(found, 0, picks, out=self.state[name][1])

    def _distinct_state(
        self, coefficients: Mapping[str, Tensor]
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """For each piece of state its distinct values, and which of them each evaluation has."""
        bases, rules = self._expansion.state, self._expansion.constraints
        rows = {basis: self.samplings[basis].rows for basis in bases.values()}
        found = values_at(bases, coefficients, rows, rules)
        return {name: (found[name], self.samplings[bases[name]].picks) for name in bases}

    def count(self, name: str) -> Tensor:
        """A counter after the last evaluation."""
        last = len(self.points) - 1
        return self.replaced.get(name, {}).get(last, self.counts[name][-1])

    def left_behind(self, name: str) -> Tensor:
        """What the evaluations made of a piece of state, `[E, ...]`."""
        values = self.state[name][1]
        if name in self.replaced:
            values = values.clone()
            for i, value in self.replaced[name].items():
                values[i] = value
        return values
