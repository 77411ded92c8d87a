"""Calling an expanded module with its weights at the depths of a solve."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from continua._errors import ModuleError
from continua.basis import Basis, Point, least_squares, sample

from ._expansion import Expansion
from ._sampling import Sampling
from ._tensors import held, real, slot, tensor
from ._turn import turn

Registry = dict[str, Tensor | None]
Slot = tuple[Registry, str, Sequence[Tensor]]


class Binding:
    r"""A module bound to a solve: its weights change from evaluation to evaluation.

    `frame` works out the weights of many evaluations at once. On exit the coefficients are back
    in their place; if the module is training and nothing failed, its state is updated by the
    smallest change that fits what the accepted evaluations left behind:

    .. math:: \sigma \leftarrow \sigma + \Phi^+ (\sigma' - \Phi\,\sigma)

    Args:
        module: the expanded module.
        expansion: its record.
        update: whether state may be updated at all.
        state: what to read in place of the module's state, for a solve that is repeated.
        lent: the state of which evaluations that pick coefficients read the module's own, in place
            of a copy that they may write to.
    """

    def __init__(
        self,
        module: nn.Module,
        expansion: Expansion,
        update: bool = True,
        state: Mapping[str, Tensor] | None = None,
        lent: Collection[str] = (),
    ):
        self.module, self.expansion = module, expansion
        self.state, self.lent = state or {}, lent
        self.update = update and module.training
        self._accepted: list[Frame] = []
        self._picked: dict[str, tuple[Tensor, ...]] = {}
        self.shown: Frame | None = None  #: whose constant weights the module has

    def __enter__(self) -> Self:
        if parametrize._cache_enabled and any(
            parametrize.is_parametrized(part) for part in self.module.modules()
        ):
            raise ModuleError(
                "inside parametrize.cached() every depth would get the weights of the first; "
                "call the block outside of it"
            )
        names = [*self.expansion.weights, *self.expansion.state, *self.expansion.carried]
        self.slots = {
            name: [slot(self.module, alias) for alias in self.expansion.names(name)]
            for name in names
        }
        self.originals = {name: held(*places[0]) for name, places in self.slots.items()}
        self._picked, self.shown = {}, None
        self._turn = turn(self.module)
        self._turn.begin()
        return self

    def rows(self, name: str, sampling: Sampling) -> tuple[Tensor, ...]:
        """A weight at the rows of a sampling, in the graph of its coefficients."""
        stack = self.originals[name]
        if sampling.rows is not None:
            return sampling.distinct(stack)
        # An index reads the coefficients themselves: once is enough for all frames of a solve.
        picked = self._picked.get(name)
        if picked is None:
            picked = self._picked[name] = stack.unbind(0) if len(stack) > 1 else (stack.squeeze(0),)
        return picked

    def frame(
        self,
        samplings: Mapping[Basis, Sampling],
        points: Sequence[Point],
        inverses: Mapping[Basis, Tensor] | None = None,
        leaves: bool | None = None,
    ) -> Frame:
        """The module at these points.

        Args:
            samplings: each of its bases there.
            points: the points themselves.
            inverses: the pseudo-inverses of the bases there, if they are known already.
            leaves: None keeps the weights in the graph of their coefficients; True makes them
                leaves to differentiate by, False constants.
        """
        return Frame(self, samplings, points, inverses or {}, leaves)

    def accept(self, frame: Frame) -> None:
        """Let a frame take part in the update of the state."""
        if self.update:
            self._accepted.append(frame)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for name, places in self.slots.items():
            for registry, key in places:
                registry[key] = self.originals[name]
        self._turn.end()
        if kind is None and self._accepted:
            with torch.no_grad():
                for name, basis in self.expansion.state.items():
                    self._commit(name, basis)
                for name in self._accepted[-1].counts:
                    self.originals[name].copy_(self._accepted[-1].count(name))
        self._accepted, self._picked, self.shown = [], {}, None

    def _commit(self, name: str, basis: Basis) -> None:
        frames = self._accepted
        if len(frames) == 1 and basis in frames[0].inverses:
            inverse = frames[0].inverses[basis]
        else:
            points = [point for frame in frames for point in frame.points]
            inverse = least_squares(sample(basis, points), rcond=1e-7)
        before = torch.cat([frame.state[name][0] for frame in frames])
        after = torch.cat([frame.left_behind(name) for frame in frames])
        sigma = self.originals[name]
        sigma.copy_(updated(inverse.to(sigma.device), sigma, before, after))


class Frame:
    """A module at several evaluations of a solve."""

    def __init__(
        self,
        binding: Binding,
        samplings: Mapping[Basis, Sampling],
        points: Sequence[Point],
        inverses: Mapping[Basis, Tensor],
        leaves: bool | None,
    ):
        self.points, self.inverses = points, inverses
        self.state: dict[str, tuple[Tensor, Tensor]] = {}
        self.counts: dict[str, Tensor] = {}
        self.read: dict[str, tuple[Sampling, list[int], list[Tensor]]] = {}
        self._module, self._binding = binding.module, binding
        self._slots: list[Slot] = []
        self._fixed: list[tuple[Registry, str, Tensor]] = []
        self._written: list[tuple[str, Registry, str, Sequence[Tensor]]] = []
        self._replaced: dict[str, dict[int, Tensor]] = {}
        self.copies: dict[str, Tensor] = {}  #: of the state, which the evaluations read
        self._keep = binding.update and leaves is None
        for name, basis in binding.expansion.weights.items():
            self._read_weight(binding, name, samplings[basis], leaves)
        if binding.expansion.state or binding.expansion.carried:
            self._read_all_state(binding, samplings)

    def _read_all_state(self, binding: Binding, samplings: Mapping[Basis, Sampling]) -> None:
        with torch.no_grad():
            for name, basis in binding.expansion.state.items():
                self._read_state(binding, name, samplings[basis])
            for name in binding.expansion.carried:
                # Where the module is in evaluation, what a part of it counts is thrown away.
                if binding.module.get_submodule(name.rpartition(".")[0]).training:
                    count = binding.originals[name]
                    each = count.expand(len(self.points), *count.shape).clone()
                    self.counts[name] = each
                    self._bind(binding, name, each.unbind(0), written=True)

    def _read_weight(
        self, binding: Binding, name: str, sampling: Sampling, leaves: bool | None
    ) -> None:
        stack = binding.originals[name]
        if leaves is None:
            rows: Sequence[Tensor] = binding.rows(name, sampling)
        else:
            rows = [row.detach() for row in sampling.distinct(stack.detach())]
            if leaves and stack.requires_grad:
                used = sorted(set(sampling.index))
                for i in used:
                    rows[i].requires_grad_()
                self.read[name] = (sampling, used, [rows[i] for i in used])
        if sampling.steady:
            value = rows[sampling.index[0]]
            self._fixed += [(registry, key, value) for registry, key in binding.slots[name]]
        else:
            self._bind(binding, name, [rows[i] for i in sampling.index])

    def _read_state(self, binding: Binding, name: str, sampling: Sampling) -> None:
        stack = binding.state.get(name, binding.originals[name])
        if name in binding.lent:
            rows = stack.unbind(0)
            self._bind(binding, name, [rows[i] for i in sampling.index])
            return
        values = sampling.every(stack)  # [E, ...]
        if name in binding.expansion.constraints:
            values = binding.expansion.constraints[name](values)
        if self._keep:
            self.state[name] = (values.clone(), values)
        self.copies[name] = values
        self._bind(binding, name, values.unbind(0), written=True)

    def _bind(
        self, binding: Binding, name: str, values: Sequence[Tensor], written: bool = False
    ) -> None:
        for registry, key in binding.slots[name]:
            self._slots.append((registry, key, values))
            if written and self._keep:
                self._written.append((name, registry, key, values))

    @property
    def steady(self) -> bool:
        """Whether all evaluations are the same."""
        return not self._slots

    def call(self, i: int, *args: Any, **kwargs: Any) -> Any:
        """The module's output at evaluation i."""
        for registry, key, values in self._slots:
            registry[key] = values[i]
        if self._binding.shown is not self:
            self.show()
        out = self._module(*args, **kwargs)
        for name, registry, key, values in self._written:
            left = registry[key]
            if left is not values[i] and left is not None:  # replaced, not written in place
                self._replaced.setdefault(name, {})[i] = left.detach()
        return out

    def always(self, z: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The module's output where all evaluations are the same."""
        if self._binding.shown is not self:
            self.show()
        return self._module(z, *args, **kwargs)

    def maps(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Callable[[Tensor], Any]]:
        """The module at each evaluation, as long as no other frame is used."""

        def at(i: int) -> Callable[[Tensor], Any]:
            return lambda z: self.call(i, z, *args, **kwargs)

        if not self.steady:
            return [at(i) for i in range(len(self.points))]
        self.show()
        same = at(0) if args or kwargs else self._module
        return [same] * len(self.points)

    def show(self) -> None:
        """Give the module the weights that are the same at every evaluation."""
        for registry, key, value in self._fixed:
            registry[key] = value
        self._binding.shown = self

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


def values_at(module: nn.Module, expansion: Expansion, point: Point) -> dict[str, Tensor]:
    """Every expanded tensor of the module at one depth, detached."""
    values = {}
    for name, basis in expansion.bases.items():
        stack = tensor(module, name).detach()
        sampling = Sampling.of(basis, [point]).placed(real(stack.dtype), stack.device)
        value = sampling.distinct(stack)[sampling.index[0]].clone()
        rule = expansion.constraints.get(name)
        values[name] = value if rule is None else rule(value)
    return values
