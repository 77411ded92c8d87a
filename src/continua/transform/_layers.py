"""A run of layers in a model as a block: each step of its solver is a layer."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError
from continua.basis import Basis, Constant
from continua.block import ODEBlock
from continua.field import tensor
from continua.solve import Euler, Solver, Span

from ._compiled_layers import compiled_layers
from ._layout import Layout
from ._stacking import LayerIncrement, copy_like, fill, hidden, stage_tensors, template
from ._steps import Steps


class Group(nn.ModuleList):
    """Layers that recur together, as one layer."""

    def forward(self, z: Any, *args: Any, **kwargs: Any) -> Any:
        out = z
        for layer in self:
            out = layer(z, *args, **kwargs)
            z = hidden(out)
        return out


class LayerBlock(ODEBlock):
    r"""A run of layers that a model calls one after another, as a block.

    .. math:: z_{n+1} = z_n + h\,\big(\text{layer}(z_n;\, \theta(s_n)) - z_n\big)

    With as many steps as layers, or fewer, h is 1 and each step is a layer: a block of six steps
    made from twelve layers is six layers, which `revert` gives back as plain ones. With more steps
    than layers, a step is a part of one.

    Args:
        units: the layers, or groups of them; they have one structure, and give up their memory.
        layout: where they stand in the model.
    """

    layout: Layout
    _step_cache: dict[tuple[bool, bool], Steps]  # by the modes of autograd

    def __init__(self, units: Sequence[nn.Module], layout: Layout):
        count = len(units)
        vars(self).update(layout=layout, _step_cache={}, _solver=Euler(steps=count))
        # Of layers with and without dropout, one that has it.
        full = max(units, key=lambda unit: sum(type(m) is not nn.Identity for m in unit.modules()))
        increment = LayerIncrement(template(full))
        super().__init__(increment, Constant(), self._solver, span=(0.0, float(count)))
        fill(self, units, move=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_step_cache": {}}  # a copy makes its own

    @property
    def steps(self) -> int:
        """How many steps its solver takes."""
        return self._steps_of(self.solver)

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
        before = self.steps
        now = before if solver is None else self._steps_of(solver)
        super().rebase(stacks, solver, (0.0, float(min(now, self.layout.units))))
        if now != before:
            self.layout.note(before, now)
        return self

    def _steps_of(self, solver: Solver) -> int:
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

        They are cached. Their tensors are views of the coefficients.
        """
        if torch.compiler.is_compiling() and not (self.training and self.expansion.state):
            return compiled_layers(self)
        modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        steps = self._step_cache.get(modes)
        if steps is None or not steps.current(self):
            steps = self._step_cache[modes] = Steps(self)
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
        bases = self.expansion.bases
        stacks = {name: tensor(self.field, name) for name in bases}
        with torch.no_grad():
            values = stage_tensors(self)
        constant = [name for name, basis in bases.items() if isinstance(basis, Constant)]
        tied = {id(stacks[n]): copy_like(stacks[n], values[n][0]) for n in constant}
        layers: list[nn.Module] = []
        for i in range(self.steps):
            # The memo has the values of the step in the place of the stacks, and its own memory of
            # tensors, which the key "torch" is for.
            own = {id(stack): copy_like(stack, values[name][i]) for name, stack in stacks.items()}
            unit: Any = copy.deepcopy(self.field, memo | own | tied | {"torch": {}}).layer
            for part, name, setting in self.layout.settings(i, self.steps):
                setattr(unit.get_submodule(part), name, setting)
            layers += list(unit) if isinstance(unit, Group) else [unit]
        return layers
