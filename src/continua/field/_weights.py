"""The weights and the state of a field at several evaluations of a solve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ._sampling import Sampling, Samplings, values_at
from ._tensors import owner

if TYPE_CHECKING:
    from ._run import FieldRun


class Leaves(NamedTuple):
    """The values of a weight that are differentiated by, instead of its coefficients."""

    sampling: Sampling
    rows: list[int]  # those of the sampling that evaluations read
    values: list[Tensor]  # there


class StageWeights:
    """The weights and the state of a field at several evaluations.

    Args:
        run: of the field.
        samplings: the bases at the evaluations.
        leaves: None keeps the weights in the graph of their coefficients; True makes them leaves
            to differentiate by, False constants.

    Attributes:
        fixed: the tensors that are the same at every evaluation.
        varying: for each of the others its values, one for each evaluation.
        state: for each piece of state its values before the evaluations and after, `[E, ...]`.
        counts: the counters that are updated, one for each evaluation.
        leaves: of each weight that requires a gradient.
        replaced: for each piece of state the values that evaluations put in its place.
    """

    def __init__(self, run: FieldRun, samplings: Samplings, leaves: bool | None):
        self.points, self.inverses = samplings.points, samplings.inverses
        self.fixed: dict[str, Tensor] = {}
        self.varying: dict[str, Sequence[Tensor]] = {}
        self.state: dict[str, tuple[Tensor, Tensor]] = {}
        self.counts: dict[str, Tensor] = {}
        self.leaves: dict[str, Leaves] = {}
        self.replaced: dict[str, dict[int, Tensor]] = {}
        for name, basis in run.expansion.weights.items():
            self._read_weight(run, name, samplings[basis], leaves)
        with torch.no_grad():
            self._read_state(run, samplings, updates=run.updates and leaves is None)

    def _read_weight(
        self, run: FieldRun, name: str, sampling: Sampling, leaves: bool | None
    ) -> None:
        if leaves is None:
            values = run.values(name, sampling)
        else:
            with torch.no_grad():
                values = [value.detach() for value in run.values(name, sampling)]
            if leaves and run.coefficients[name].requires_grad:
                rows = sorted(set(sampling.index))
                own = [values[row].requires_grad_() for row in rows]
                self.leaves[name] = Leaves(sampling, rows, own)
        if sampling.steady:
            self.fixed[name] = values[sampling.index[0]]
        else:
            self.varying[name] = [values[row] for row in sampling.index]

    def _read_state(self, run: FieldRun, samplings: Samplings, updates: bool) -> None:
        expansion, coefficients = run.expansion, run.coefficients
        rows = {basis: samplings[basis].rows for basis in expansion.state.values()}
        distinct = values_at(expansion.state, coefficients, rows, expansion.constraints)
        for name, basis in expansion.state.items():
            values = distinct[name].index_select(0, samplings[basis].picks)  # [E, ...]
            self.state[name] = (values.clone() if updates else values, values)
            self.varying[name] = values.unbind(0)  # evaluations may write to their state
        for name in expansion.carried:
            count = coefficients[name]
            # Where the field is in evaluation, what a part of it counts is thrown away.
            if owner(run.field, name).training:
                self.counts[name] = count.expand(len(self.points), *count.shape).clone()
                self.varying[name] = self.counts[name].unbind(0)
            else:
                self.fixed[name] = count

    def count(self, name: str) -> Tensor:
        """A counter after the last evaluation."""
        last = len(self.points) - 1
        return self.replaced.get(name, {}).get(last, self.counts[name][-1])

    def after(self, name: str) -> Tensor:
        """A piece of state after the evaluations, `[E, ...]`."""
        values = self.state[name][1]
        if name in self.replaced:
            values = values.clone()
            for i, value in self.replaced[name].items():
                values[i] = value
        return values
