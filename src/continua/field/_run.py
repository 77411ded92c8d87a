"""A field during one solve: its weights change from evaluation to evaluation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from continua._errors import ModuleError
from continua.basis import Basis, least_squares, sample

from ._expansion import Expansion
from ._sampling import Sampling, Samplings, contract
from ._tensors import has_memory, real
from ._twin import Slots, Twins, Views
from ._weights import StageWeights


class FieldRun:
    r"""A field during one solve.

    `at` works out the weights of many evaluations at once; `calls` puts them into a twin of the
    field. If the field is training, `commit` updates its state by the smallest change that fits
    what the accepted evaluations left behind:

    .. math:: \sigma \leftarrow \sigma + \Phi^+ (\sigma' - \Phi\,\sigma)

    Args:
        field: the expanded module.
        expansion: its record.
        twins: where to take a twin from.
        coefficients: to read in place of the field's own, for a solve that is repeated. Then the
            state is not updated.

    Attributes:
        updates: whether the solve updates the state.
    """

    twin: Slots
    coefficients: Mapping[str, Tensor]

    def __init__(
        self,
        field: nn.Module,
        expansion: Expansion,
        twins: Twins,
        coefficients: Mapping[str, Tensor] | None = None,
    ):
        self.field, self.expansion = field, expansion
        self._twins, self._given = twins, coefficients
        self.updates = False
        self._accepted: list[StageWeights] = []
        self._rows: dict[str, Sequence[Tensor]] = {}

    def __enter__(self) -> Self:
        if parametrize._cache_enabled and any(
            map(parametrize.is_parametrized, self.field.modules())
        ):
            raise ModuleError(
                "inside parametrize.cached() every depth would get the weights of the first; "
                "call the block outside of it"
            )
        self.twin = self._twins.take(self.field, self.expansion)
        self.coefficients = self.twin.coefficients() if self._given is None else self._given
        self.updates = self._given is None and self.expansion.trains(self.field)
        self._recording = recording()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._twins.give_back(self.twin)
        del self.twin
        self._accepted, self._rows = [], {}

    def values(self, name: str, sampling: Sampling) -> Sequence[Tensor]:
        """A weight at the rows of a sampling, in the graph of its coefficients."""
        if sampling.rows is None:
            if name not in self._rows:  # once is enough for all evaluations of a solve
                self._rows[name] = self._coefficients_of(name)
            return self._rows[name]
        return contract(sampling.rows, self.coefficients[name]).unbind(0)

    def _coefficients_of(self, name: str) -> Sequence[Tensor]:
        """The coefficients of a weight one by one; without a graph, views that solves share.

        `python benchmarks/views.py` measures what these save.
        """
        stack, views = self.coefficients[name], self._twins.views
        if self._recording or not has_memory(stack):
            return _unbound(stack)
        known = views.get(name)
        if known is None or known.stack is not stack or not stack.is_set_to(known.memory):
            memory = stack.detach()  # its own views would forbid `torch.utils.swap_tensors`
            known = views[name] = Views(stack, memory, _unbound(memory))
        return known.rows

    def at(self, samplings: Samplings, leaves: bool | None = None) -> StageWeights:
        """The weights and the state at some evaluations; see `StageWeights` for the arguments."""
        read = [self.coefficients[name] for name in self.expansion.bases]
        if read:  # in the finest precision
            dtype = functools.reduce(torch.promote_types, {stack.dtype for stack in read})
            samplings = samplings.to(real(dtype), read[-1].device)
        return StageWeights(self, samplings, leaves)

    def calls(
        self, weights: StageWeights, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Callable[..., Any]]:
        """The field at each evaluation, as a function of its first arguments."""
        twin, module = self.twin, self.twin.module

        def places(tensors: Mapping[str, Any]) -> list[tuple[dict[str, Any], str, Any]]:
            return [(*place, v) for name, v in tensors.items() for place in twin.slots[name]]

        fixed, varying = places(weights.fixed), places(weights.varying)
        written = [
            (name, *place)
            for name in ((*weights.state, *weights.counts) if self.updates else ())
            for place in twin.slots[name]
        ]

        def at(i: int) -> Callable[..., Any]:
            def call(*given: Any) -> Any:
                for registry, key, values in varying:
                    registry[key] = values[i]
                if twin.placed is not weights:
                    for registry, key, value in fixed:
                        registry[key] = value
                    twin.placed = weights
                out = module(*given, *args, **kwargs)
                for name, registry, key in written:
                    left = registry[key]
                    if left is not weights.varying[name][i] and left is not None:
                        weights.replaced.setdefault(name, {})[i] = left.detach()
                return out

            return call

        count = len(weights.points)
        return [at(i) for i in range(count)] if varying else [at(0)] * count

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
        after = torch.cat([weights.after(name) for weights in accepted])
        sigma = self.coefficients[name]
        return updated(inverse.to(sigma.device), sigma, before, after)


def recording() -> bool:
    """Whether operations become part of a graph or of a trace."""
    return bool(
        torch.compiler.is_compiling()
        or torch.is_grad_enabled()
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
