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
from ._tensors import has_memory, slot, tensor
from ._twin import Kept, Twin, Twins
from ._weights import StageWeights


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
        self.updates = False  # whether the solve updates the state
        self._accepted: list[StageWeights] = []
        self._rows: dict[str, Sequence[Tensor]] = {}
        self.twin: Twin | None = None

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
        else:
            expansion = self.expansion
            names = (*expansion.weights, *expansion.state, *expansion.carried)
            self.coefficients = {name: tensor(self.field, name) for name in names}
        self.updates = self._given is None and self.expansion.trains(self.field)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.twin is not None:
            self._twins.give_back(self.twin)
        self.twin = None
        self._accepted, self._rows = [], {}

    def rows(self, name: str, sampling: Sampling) -> Sequence[Tensor]:
        """A weight at the rows of a sampling, in the graph of its coefficients."""
        bases = {name: self.expansion.weights[name]}
        if sampling.rows is not None:
            return values_at(bases, self.coefficients, {bases[name]: sampling.rows})[name].unbind(0)
        # The coefficients themselves: once is enough for all evaluations of a solve.
        rows = self._rows.get(name)
        if rows is None:
            rows = self._rows[name] = _unbound(self.coefficients[name])
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

    def on_grid(
        self,
        samplings: Mapping[Basis, Sampling],
        points: Sequence[Point],
        inverses: Mapping[Basis, Tensor],
    ) -> StageWeights:
        """The same at all points of a fixed grid.

        Without a graph, the twin keeps views of the coefficients for its next solve, which only
        reads the state again, since an evaluation may write to it. `python benchmarks/views.py`
        measures what this saves.
        """
        twin = self.twin
        if twin is None or self.updates or recording():
            return self.at(samplings, points, inverses)
        if twin.kept is not None and twin.kept.reads(samplings, self.coefficients.values()):
            twin.kept.weights.read_state_again(self.coefficients)
            return twin.kept.weights
        plain = all(map(has_memory, self.coefficients.values()))
        if not plain or any(samplings[b].rows is not None for b in self.expansion.weights.values()):
            return self.at(samplings, points, inverses)
        found = self.coefficients
        # Views of the coefficients themselves would forbid `torch.utils.swap_tensors`.
        self.coefficients = memory = {name: t.detach() for name, t in found.items()}
        weights = self.at(samplings, points, inverses)
        twin.kept = Kept(weights, [*found.values()], [*memory.values()])
        self.coefficients = found
        return weights

    def calls(
        self, weights: StageWeights, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Callable[..., Any]]:
        """The field at each evaluation, as a function of its first arguments."""
        twin = self.twin
        if twin is None:
            return [self._compiled(weights, i, args, kwargs) for i in range(len(weights.points))]
        module, placed = twin.module, twin.placed  # and not the twin, which may keep these calls
        fixed = [(*place, v) for name, v in weights.fixed.items() for place in twin.slots[name]]
        slots = [(*place, v) for name, v in weights.varying.items() for place in twin.slots[name]]
        written = [
            (name, *place)
            for name in ((*weights.state, *weights.counts) if self.updates else ())
            for place in twin.slots[name]
        ]

        def at(i: int) -> Callable[..., Any]:
            def call(*given: Any) -> Any:
                for registry, key, values in slots:
                    registry[key] = values[i]
                if placed[0] is not weights:
                    for registry, key, value in fixed:
                        registry[key] = value
                    placed[0] = weights
                out = module(*given, *args, **kwargs)
                for name, registry, key in written:
                    left = registry[key]
                    if left is not weights.varying[name][i] and left is not None:
                        weights.replaced.setdefault(name, {})[i] = left.detach()
                return out

            return call

        count = len(weights.points)
        return [at(i) for i in range(count)] if slots else [at(0)] * count

    def _compiled(
        self, weights: StageWeights, i: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[..., Any]:
        field, names = self.field, self.expansion.names
        found = weights.fixed | {name: values[i] for name, values in weights.varying.items()}
        places = [(name, *slot(field, n), v) for name, v in found.items() for n in names(name)]

        def call(*given: Any) -> Any:
            # What `torch.func.functional_call` does, but state that is replaced can be read.
            before = [registry[key] for _, registry, key, _ in places]
            try:
                for _, registry, key, value in places:
                    registry[key] = value
                return field(*given, *args, **kwargs)
            finally:
                for (name, registry, key, value), old in zip(places, before, strict=True):
                    left = registry[key]
                    if self.updates and left is not value and left is not None:
                        weights.replaced.setdefault(name, {})[i] = left.detach()
                    registry[key] = old

        return call

    def accept(self, weights: StageWeights) -> None:
        """Let evaluations take part in the update of the state."""
        if self.updates:
            self._accepted.append(weights)

    def commit(self) -> None:
        """Update the state by the accepted evaluations."""
        if not self._accepted:
            return
        last = self._accepted[-1]
        with torch.no_grad():
            new = {name: self._updated(name, b) for name, b in self.expansion.state.items()}
            new |= {name: last.count(name) for name in last.counts}
            # All or nothing: these copies allocate no memory, and `map` is not interrupted.
            list(map(Tensor.copy_, [self.coefficients[name] for name in new], new.values()))

    def _updated(self, name: str, basis: Basis) -> Tensor:
        accepted = self._accepted
        if len(accepted) == 1 and basis in accepted[0].inverses:
            inverse = accepted[0].inverses[basis]
        else:
            points = [point for weights in accepted for point in weights.points]
            inverse = least_squares(sample(basis, points), rcond=1e-7)
        before = torch.cat([weights.state[name][0] for weights in accepted])
        after = torch.cat([weights.left_behind(name) for weights in accepted])
        sigma = self.coefficients[name]
        return updated(inverse.to(sigma.device), sigma, before, after)


def recording() -> bool:
    """Whether operations become part of a graph or of a trace."""
    return bool(
        torch.is_grad_enabled()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state()
    )


def _unbound(stack: Tensor) -> Sequence[Tensor]:
    return stack.unbind(0) if len(stack) > 1 else (stack.squeeze(0),)


def updated(inverse: Tensor, sigma: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """The coefficients after a training forward, worked out in double precision where it exists.

    In single precision the sum of an old value and a difference would lose what a small new
    value consists of; in double, a bucket seen once ends exactly at its new value.
    """
    wide = torch.float32 if sigma.device.type == "mps" else torch.float64
    change = (after.to(wide) - before.to(wide)).reshape(len(before), -1)  # [E, n]
    return sigma.to(wide) + (inverse.to(wide) @ change).reshape(sigma.shape)
