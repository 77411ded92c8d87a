"""A run of layers in a model as a block: each step of its solver is a layer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.basis import Basis, Constant
from continua.block import ODEBlock
from continua.field import put, tensor, values_at
from continua.solve import Euler, Solver, Span

from ._stacking import LayerIncrement, fill, hidden, template
from ._steps import Steps
from ._traced import traced


class Group(nn.ModuleList):
    """Layers that recur together, as one layer."""

    def forward(self, z: Any, *args: Any, **kwargs: Any) -> Any:
        out = z
        for layer in self:
            out = layer(z, *args, **kwargs)
            z = hidden(out)
        return out


@dataclass
class Count:
    """Where a model's own config says how many layers there are.

    Attributes:
        config: the object.
        name: of its attribute, a number or a list with an entry per layer.
        place: in a list of numbers, which one.
    """

    config: Any
    name: str
    place: int | None = None

    def change(self, start: int, before: int, now: int) -> None:
        """Take note that so many layers are now another number, from `start` on."""
        value = getattr(self.config, self.name)
        if self.place is not None:
            value = [v + (now - before) * (i == self.place) for i, v in enumerate(value)]
        elif isinstance(value, list | tuple):
            run = value[start : start + before] or value[-1:]
            run = [run[i % len(run)] for i in range(now)]
            value = [*value[:start], *run, *value[start + before :]]
        else:
            value += now - before
        setattr(self.config, self.name, value)


@dataclass
class Index:
    """An attribute of a layer outside of runs that counts layers."""

    part: nn.Module
    name: str

    def shift(self, by: int) -> None:
        """Take note that there are so many more layers before this one."""
        setattr(self.part, self.name, getattr(self.part, self.name) + by)


@dataclass
class Layout:
    """What is known of a run besides the weights of its layers.

    Attributes:
        start: the number of its first layer in the model's list.
        units: how often the layers recur.
        period: how many layers recur together.
        indices: attributes that count layers, with their value in the first unit minus `start`.
        rates: attributes that differ from unit to unit, with all values.
        counts: where the model says how many layers it has.
        beside: what else in the model has an entry for each layer of the list.
        total: how many layers the list has.
        ignore: patterns of attributes in which the layers may differ.
        names: of its layers in the model's list.
        behind: what stands behind the run in the model's list.
    """

    start: int
    units: int
    period: int = 1
    indices: dict[str, int] = field(default_factory=dict)
    rates: dict[str, list[Any]] = field(default_factory=dict)
    counts: list[Count] = field(default_factory=list)
    beside: Sequence[str] = ()
    total: int = 0
    ignore: Sequence[str] = ()
    names: Sequence[str] = ()
    behind: list[Layout | Index] = field(default_factory=list)

    def note(self, before: int, now: int) -> None:
        """Let the model say that there are so many units now."""
        for count in self.counts:
            count.change(self.start, before * self.period, now * self.period)
        for other in self.behind:
            other.shift((now - before) * self.period)

    def shift(self, by: int) -> None:
        """Take note that there are so many more layers before the run."""
        self.start += by

    def settings(self, step: int, steps: int) -> Iterator[tuple[str, str, Any]]:
        """The attributes of the layer at a step, each with its part of the layer."""
        nearest = int((step + 0.5) * self.units / steps)
        at = self.start + step * self.period
        own: dict[str, Any] = {path: at + first for path, first in self.indices.items()}
        own |= {path: values[nearest] for path, values in self.rates.items()}
        for path, value in own.items():
            part, _, name = path.rpartition(".")
            yield part, name, value


class LayerBlock(ODEBlock):
    r"""A run of layers that a model calls one after another, as a block.

    .. math:: z_{n+1} = z_n + h\,\big(\text{layer}(z_n;\, \theta(s_n)) - z_n\big)

    With as many steps as layers, or fewer, h is 1 and each step is a layer: a block of six steps
    made from twelve layers is six layers, which `revert` gives back as plain ones. With more steps
    than layers, a step is a part of one.

    Args:
        units: the layers, or groups of them; they have one structure.
        layout: what else is known of them.
        move: whether the layers give up their memory.
    """

    layout: Layout
    _kept: KeptSteps

    def __init__(self, units: Sequence[nn.Module], layout: Layout, *, move: bool = False):
        vars(self).update(layout=layout, _kept=KeptSteps())
        count = len(units)
        # Of layers with and without dropout, one that has it.
        full = max(units, key=lambda unit: sum(type(m) is not nn.Identity for m in unit.modules()))
        increment = LayerIncrement(template(full))
        super().__init__(increment, Constant(), Euler(steps=count), span=(0.0, float(count)))
        fill(self, "layer.", units, move=move)

    @property
    def steps(self) -> int:
        """How many steps its solver takes."""
        return self._checked(self.solver)

    @property
    def width(self) -> float:
        """How much of a layer a step is."""
        return min(self.layout.units / self.steps, 1.0)

    def __len__(self) -> int:
        return self.steps * self.layout.period

    def rebase(
        self,
        stacks: Mapping[str, tuple[Basis, Tensor]],
        solver: Solver | None = None,
        span: Span | None = None,
    ) -> Self:
        """The same as for any block, but its steps decide on the span: none is above one layer.

        The config of the model follows the number of steps.
        """
        before = None
        if solver is not None:
            before = self.steps if "_solver" in vars(self) else None  # none in the constructor
            span = (0.0, float(min(self._checked(solver), self.layout.units)))
        super().rebase(stacks, solver, span)
        if before is not None and before != self.steps:
            self.layout.note(before, self.steps)
        return self

    def _checked(self, solver: Solver) -> int:
        """The steps of a solver that a run of layers can have."""
        if not isinstance(solver, Euler) or solver.steps is None:
            raise ArgumentError(
                f"a model calls its layers one by one, which are steps of Euler, not of {solver!r}"
            )
        if self.layout.period > 1 and solver.steps > self.layout.units:
            raise ArgumentError(
                f"layers that recur in groups of {self.layout.period} cannot be refined, from "
                f"{self.layout.units} groups to {solver.steps}"
            )
        return solver.steps

    def layers(self) -> list[nn.Module]:
        """The layers at its steps, with the weights there, to be called one after another.

        They are kept from call to call; their tensors are views of the coefficients.
        """
        if torch.compiler.is_compiling() and not (self.training and self.expansion.state):
            return traced(self)
        key = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        steps = self._kept.get(key)
        if steps is None or not steps.current(self):
            steps = self._kept[key] = Steps(self)
        steps.refresh()
        return steps.layers

    def plain_layers(self, memo: dict[Any, Any]) -> list[nn.Module]:
        """The layers at its steps as modules of their own.

        Args:
            memo: of a deep copy of the model, whose objects they share.
        """
        if self.width != 1:
            raise ArgumentError(
                f"{self.steps} steps over {self.layout.units} layers are parts of layers, which no "
                f"plain layer is; compress to at most {self.layout.units} steps first"
            )
        assert self.plan is not None
        field, expansion, samplings = self.field, self.expansion, self.plan.samplings
        old = {name: tensor(field, name) for name in expansion.bases}
        stacks = {name: value.detach() for name, value in old.items()}
        device = next(iter(stacks.values())).device
        rows = {b: None if s.rows is None else s.rows.to(device) for b, s in samplings.items()}
        read = values_at(expansion.bases, stacks, rows, expansion.constraints)
        shared: dict[str, Tensor] = {}
        made: list[nn.Module] = []
        for i in range(self.steps):
            # What a copy of the field does not copy: no stack is copied only to be replaced.
            own = {id(t): t for t in old.values()}
            # Under "torch" a memo has the memory of tensors; each layer has its own.
            unit: Any = copy.deepcopy(self.field, memo | own | {"torch": {}}).layer
            for name, basis in expansion.bases.items():
                value: Tensor = read[name][samplings[basis].index[i]].clone()
                if isinstance(old[name], nn.Parameter):
                    value = nn.Parameter(value, requires_grad=old[name].requires_grad)
                if isinstance(basis, Constant):  # layers that were tied remain so
                    value = shared.setdefault(name, value)
                names = [n.removeprefix("layer.") for n in expansion.names(name)]
                put(unit, tuple(names), value)
            for part, name, setting in self.layout.settings(i, self.steps):
                setattr(unit.get_submodule(part), name, setting)
            made += list(unit) if isinstance(unit, Group) else [unit]
        return made


class KeptSteps(dict[tuple[bool, bool], Steps]):
    """Layers that were made; copies of a block make their own."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()
