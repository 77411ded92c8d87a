"""Calling an expanded module with its weights at each depth of a solve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from continua.basis import Basis, Point

from ._expansion import Expansion
from ._sampling import Sampling
from ._tensors import slot, tensor


class Binding:
    r"""A module bound to the evaluations of one solve.

    All weights of all evaluations are worked out on entry. `call` puts those of one evaluation
    in their place and calls the module. On exit the coefficients are back; if the module is
    training and nothing failed, its state is updated by the smallest change that fits what the
    evaluations left behind:

    .. math:: \sigma \leftarrow \sigma + \Phi^+ (\sigma' - \Phi\,\sigma)

    Args:
        module: the expanded module.
        expansion: its record.
        samplings: each of its bases at the evaluations of the solve.
        evaluations: how many there are, E.
    """

    def __init__(
        self,
        module: nn.Module,
        expansion: Expansion,
        samplings: Mapping[Basis, Sampling],
        evaluations: int,
    ):
        self._module = module
        self._expansion = expansion
        self._samplings = samplings
        self._evaluations = evaluations
        self._slots: list[tuple[dict[str, Tensor | None], str, list[Tensor]]] = []
        self._written: list[tuple[dict[str, Tensor | None], str, list[Tensor]]] = []
        self._state: list[tuple[Sampling, Tensor, Tensor, Tensor]] = []
        self._counted: list[tuple[Tensor, Tensor]] = []
        self._originals: list[tuple[dict[str, Tensor | None], str, Tensor | None]] = []

    def __enter__(self) -> Self:
        for name, basis in self._expansion.weights.items():
            sampling = self._samplings[basis]
            rows = sampling.distinct(tensor(self._module, name))
            self._bind(name, [rows[i] for i in sampling.index])
        with torch.no_grad():
            for name, basis in self._expansion.state.items():
                self._enter_state(name, self._samplings[basis])
            if self._module.training:
                for name in self._expansion.carried:
                    self._enter_counter(name)
        return self

    def _enter_state(self, name: str, sampling: Sampling) -> None:
        sigma = tensor(self._module, name)
        values = sampling.every(sigma)  # [E, ...]
        if name in self._expansion.constraints:
            values = self._expansion.constraints[name](values)
        self._bind(name, list(values.unbind(0)), written=True)
        if self._module.training:
            self._state.append((sampling, sigma, values.clone(), values))

    def _enter_counter(self, name: str) -> None:
        count = tensor(self._module, name)
        values = count.expand(self._evaluations, *count.shape).clone()
        self._bind(name, list(values.unbind(0)), written=True)
        self._counted.append((count, values[-1]))

    def _bind(self, name: str, values: list[Tensor], written: bool = False) -> None:
        for alias in self._expansion.names(name):
            registry, key = slot(self._module, alias)
            self._originals.append((registry, key, registry[key]))
            self._slots.append((registry, key, values))
            if written and self._module.training:
                self._written.append((registry, key, values))

    def call(self, i: int, *args: Any, **kwargs: Any) -> Tensor:
        """The module's output at evaluation i."""
        for registry, key, values in self._slots:
            registry[key] = values[i]
        out: Tensor = self._module(*args, **kwargs)
        for registry, key, values in self._written:
            left = registry[key]
            if left is not values[i] and left is not None:  # replaced, not written in place
                values[i].copy_(left)
        return out

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for registry, key, original in self._originals:
            registry[key] = original
        if kind is None:
            with torch.no_grad():
                for sampling, sigma, before, after in self._state:
                    sigma.copy_(updated(sampling.inverse, sigma, before, after))
                for count, last in self._counted:
                    count.copy_(last)


def updated(inverse: Tensor, sigma: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """The coefficients after a training forward, worked out in double precision where it exists.

    In single precision the sum of an old value and a difference would lose what a small new
    value consists of; in double, a bucket seen once ends exactly at its new value.
    """
    wide = torch.float32 if sigma.device.type == "mps" else torch.float64
    change = (after.to(wide) - before.to(wide)).reshape(len(before), -1)  # [E, n]
    return sigma.to(wide) + (inverse.to(wide) @ change).reshape(sigma.shape)


def values_at(module: nn.Module, expansion: Expansion, point: Point) -> dict[str, Tensor]:
    """Every expanded tensor of the module at one depth, detached."""
    values = {}
    for name, basis in expansion.bases.items():
        stack = tensor(module, name).detach()
        sampling = Sampling.of(basis, [point])
        if sampling.rows is not None:
            rows = sampling.rows.to(stack.device)
            sampling = Sampling(rows, sampling.index, sampling.picks, sampling.inverse)
        value = sampling.distinct(stack)[sampling.index[0]].clone()
        rule = expansion.constraints.get(name)
        values[name] = value if rule is None else rule(value)
    return values
