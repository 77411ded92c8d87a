"""A field during one solve: its weights change from evaluation to evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from continua._errors import ModuleError
from continua.basis import Basis, Point, least_squares, sample

from ._expansion import Expansion
from ._sampling import Sampling, values_at
from ._tensors import Registry, slot, tensor
from ._twin import Twin, Twins
from ._views import Views, may_keep_views


class FieldRun:
    r"""A field during one solve.

    `at` works out the weights of many evaluations at once; they are put into a twin of the field.
    If the field is training, `commit` updates its state by the smallest change that fits what the
    accepted evaluations left behind:

    .. math:: \sigma \leftarrow \sigma + \Phi^+ (\sigma' - \Phi\,\sigma)

    Args:
        field: the expanded module.
        expansion: its record.
        twins: where to take a twin from.
        coefficients: to read in place of the field's own, for a solve that is repeated.
    """

    def __init__(
        self,
        field: nn.Module,
        expansion: Expansion,
        twins: Twins,
        coefficients: Mapping[str, Tensor] | None = None,
    ):
        self.field, self.expansion = field, expansion
        self._twins, self._given = twins, coefficients
        has_state = bool(expansion.state or expansion.carried)
        self.updates = field.training and coefficients is None and has_state
        self._accepted: list[StageWeights] = []
        self._rows: dict[str, Sequence[Tensor]] = {}
        self.placed: StageWeights | None = None  #: whose constant weights the twin has
        self.twin: Twin | None = None
        self.views: Views | None = None  #: where nothing is recorded

    def __enter__(self) -> Self:
        if parametrize._cache_enabled and any(
            map(parametrize.is_parametrized, self.field.modules())
        ):
            raise ModuleError(
                "inside parametrize.cached() every depth would get the weights of the first; "
                "call the block outside of it"
            )
        # Compiled code has no modules of its own: `functional_call` does the same there.
        if not torch.compiler.is_compiling():
            self.twin = self._twins.take(self.field, self.expansion)
        if self._given is not None:
            self.coefficients = self._given
        elif self.twin is not None:
            self.coefficients = self.twin.coefficients()
            if may_keep_views(self.coefficients.values()):
                self.views = self.twin.views
        else:
            expansion = self.expansion
            names = (*expansion.weights, *expansion.state, *expansion.carried)
            self.coefficients = {name: tensor(self.field, name) for name in names}
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.twin is not None:
            self._twins.give_back(self.twin)
        self.twin = self.placed = self.views = None
        self._accepted, self._rows = [], {}

    def rows(self, name: str, sampling: Sampling) -> Sequence[Tensor]:
        """A weight at the rows of a sampling, in the graph of its coefficients."""
        bases = {name: self.expansion.weights[name]}
        if sampling.rows is not None:
            return values_at(bases, self.coefficients, {bases[name]: sampling.rows})[name].unbind(0)
        # The coefficients themselves: once is enough for all evaluations of a solve.
        rows = self._rows.get(name)
        if rows is None:
            stack = self.coefficients[name]
            rows = self._rows[name] = (
                _unbound(stack) if self.views is None else self.views.rows(name, stack)
            )
        return rows

    def at(
        self,
        samplings: Mapping[Basis, Sampling],
        points: Sequence[Point],
        inverses: Mapping[Basis, Tensor] | None = None,
        leaves: bool | None = None,
    ) -> StageWeights:
        """The field at these points.

        Args:
            samplings: each of its bases there.
            points: the points themselves.
            inverses: the pseudo-inverses of the bases there, if they are known already.
            leaves: None keeps the weights in the graph of their coefficients; True makes them
                leaves to differentiate by, False constants.
        """
        return StageWeights(self, samplings, points, inverses or {}, leaves)

    def accept(self, weights: StageWeights) -> None:
        """Let evaluations take part in the update of the state."""
        if self.updates:
            self._accepted.append(weights)

    def commit(self) -> None:
        """Update the state by the accepted evaluations."""
        if not self._accepted:
            return
        with torch.no_grad():
            for name, basis in self.expansion.state.items():
                self._update(name, basis)
            for name in self._accepted[-1].counts:
                self.coefficients[name].copy_(self._accepted[-1].count(name))

    def _update(self, name: str, basis: Basis) -> None:
        accepted = self._accepted
        if len(accepted) == 1 and basis in accepted[0].inverses:
            inverse = accepted[0].inverses[basis]
        else:
            points = [point for weights in accepted for point in weights.points]
            inverse = least_squares(sample(basis, points), rcond=1e-7)
        before = torch.cat([weights.state[name][0] for weights in accepted])
        after = torch.cat([weights.left_behind(name) for weights in accepted])
        sigma = self.coefficients[name]
        sigma.copy_(updated(inverse.to(sigma.device), sigma, before, after))


def _unbound(stack: Tensor) -> Sequence[Tensor]:
    return stack.unbind(0) if len(stack) > 1 else (stack.squeeze(0),)


class StageWeights:
    """The weights and the state of a field at several evaluations, and the field called with them.

    Attributes:
        state: for each piece of state its values before the evaluations and after, `[E, ...]`.
        counts: the counters, one for each evaluation.
        read: for each weight its sampling, the rows that are used, and these as leaves.
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
        self.state: dict[str, tuple[Tensor, Tensor]] = {}
        self.counts: dict[str, Tensor] = {}
        self.read: dict[str, tuple[Sampling, list[int], list[Tensor]]] = {}
        self._run, self._keep = run, run.updates and leaves is None
        self._varying: dict[str, Sequence[Tensor]] = {}
        self._fixed: dict[str, Tensor] = {}
        self._replaced: dict[str, dict[int, Tensor]] = {}
        for name, basis in run.expansion.weights.items():
            self._read_weight(name, samplings[basis], leaves)
        if run.expansion.state or run.expansion.carried:
            with torch.no_grad():
                self._read_state(samplings)
        if run.twin is not None:
            self._module, slots = run.twin.module, run.twin.slots
            self._slots: list[tuple[Registry, str, Sequence[Tensor]]] = [
                (registry, key, values)
                for name, values in self._varying.items()
                for registry, key in slots[name]
            ]
            self._written = [
                (name, registry, key, self._varying[name])
                for name in (*self.state, *self.counts)
                for registry, key in slots[name]
                if self._keep
            ]

    def _read_weight(self, name: str, sampling: Sampling, leaves: bool | None) -> None:
        if leaves is None:
            rows: Sequence[Tensor] = self._run.rows(name, sampling)
        else:
            stack, basis = self._run.coefficients[name], self._run.expansion.weights[name]
            with torch.no_grad():
                found = values_at({name: basis}, {name: stack}, {basis: sampling.rows})[name]
            rows = [row.detach() for row in found.detach().unbind(0)]
            if leaves and stack.requires_grad:
                used = sorted(set(sampling.index))
                for i in used:
                    rows[i].requires_grad_()
                self.read[name] = (sampling, used, [rows[i] for i in used])
        if sampling.steady:
            self._fixed[name] = rows[sampling.index[0]]
        else:
            self._varying[name] = [rows[i] for i in sampling.index]

    def _read_state(self, samplings: Mapping[Basis, Sampling]) -> None:
        run = self._run
        bases, rules = run.expansion.state, run.expansion.constraints
        rows = {basis: samplings[basis].rows for basis in bases.values()}
        for name, found in values_at(bases, run.coefficients, rows, rules).items():
            # Evaluations may write to their state: each gets memory of its own.
            picks = samplings[bases[name]].picks
            if run.views is not None and not self._keep:
                self._varying[name] = run.views.copies(name, found, picks)
                continue
            values = found.index_select(0, picks)  # [E, ...]
            if self._keep:
                self.state[name] = (values.clone(), values)
            self._varying[name] = values.unbind(0)
        for name in run.expansion.carried:
            # Where the field is in evaluation, what a part of it counts is thrown away.
            if run.field.get_submodule(name.rpartition(".")[0]).training:
                count = run.coefficients[name]
                self.counts[name] = count.expand(len(self.points), *count.shape).clone()
                self._varying[name] = self.counts[name].unbind(0)
            else:
                self._fixed[name] = run.coefficients[name]

    def calls(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Callable[..., Any]]:
        """The field at each evaluation, as a function of its first arguments."""
        if self._run.twin is None:
            return [self._compiled(i, args, kwargs) for i in range(len(self.points))]
        if not self._varying:
            return [self._steady(args, kwargs)] * len(self.points)
        return [self._call(i, args, kwargs) for i in range(len(self.points))]

    def _call(self, i: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        slots, written, run, module = self._slots, self._written, self._run, self._module
        if not (args or kwargs or written):  # often, and called very often

            def plain(*given: Any) -> Any:
                for registry, key, values in slots:
                    registry[key] = values[i]
                if run.placed is not self:
                    self._place()
                return module(*given)

            return plain

        def call(*given: Any) -> Any:
            for registry, key, values in slots:
                registry[key] = values[i]
            if run.placed is not self:
                self._place()
            out = module(*given, *args, **kwargs)
            for name, registry, key, values in written:
                left = registry[key]
                if left is not values[i] and left is not None:  # replaced, not written in place
                    self._replaced.setdefault(name, {})[i] = left.detach()
            return out

        return call

    def _steady(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        run, module = self._run, self._module

        def call(*given: Any) -> Any:
            if run.placed is not self:
                self._place()
            return module(*given, *args, **kwargs) if args or kwargs else module(*given)

        return call

    def _compiled(
        self, i: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[..., Any]:
        field, names = self._run.field, self._run.expansion.names
        found = self._fixed | {name: values[i] for name, values in self._varying.items()}
        places = [(name, *slot(field, n), v) for name, v in found.items() for n in names(name)]

        def call(*given: Any) -> Any:
            # What `torch.func.functional_call` does, but state that is replaced can be read.
            before = [registry[key] for _, registry, key, _ in places]
            for _, registry, key, value in places:
                registry[key] = value
            out = field(*given, *args, **kwargs)
            for (name, registry, key, value), old in zip(places, before, strict=True):
                left = registry[key]
                if self._keep and left is not value and left is not None:
                    self._replaced.setdefault(name, {})[i] = left.detach()
                registry[key] = old
            return out

        return call

    def _place(self) -> None:
        """Give the twin the weights that are the same at every evaluation."""
        assert self._run.twin is not None
        self._run.twin.put(self._fixed)
        self._run.placed = self

    def count(self, name: str) -> Tensor:
        """A counter after the last evaluation."""
        last = len(self.points) - 1
        return self._replaced.get(name, {}).get(last, self.counts[name][-1])

    def left_behind(self, name: str) -> Tensor:
        """What the evaluations made of a piece of state, `[E, ...]`."""
        values = self.state[name][1]
        if name in self._replaced:
            values = values.clone()
            for i, value in self._replaced[name].items():
                values[i] = value
        return values


def updated(inverse: Tensor, sigma: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """The coefficients after a training forward, worked out in double precision where it exists.

    In single precision the sum of an old value and a difference would lose what a small new
    value consists of; in double, a bucket seen once ends exactly at its new value.
    """
    wide = torch.float32 if sigma.device.type == "mps" else torch.float64
    change = (after.to(wide) - before.to(wide)).reshape(len(before), -1)  # [E, n]
    return sigma.to(wide) + (inverse.to(wide) @ change).reshape(sigma.shape)
