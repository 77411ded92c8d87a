"""A block in use, where nothing is trained and nothing is differentiated."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from continua.field import Binding, Expansion, Field, tensor
from continua.solve import RungeKutta, Solver, Span

from ._checks import check_tensor
from ._first import first_call
from ._plan import Plan

#: of devices, where two tensors can be asked whether they are the same memory
KINDS = ("cpu", "cuda", "mps")


class Serving:
    """The solve on a fixed grid whose evaluations pick coefficients, as those of buckets do.

    Weights are views of the coefficients, made once: they see whatever is written to those, and
    making them for every call costs as much as a small field does. State is copied, since a
    module may write to it, and copied anew for every call. Nothing that depends on values is
    kept; `holds` tells whether modules, tensors and their memory are still the same. What is done
    once per call counts here: on one image it takes as long as half an evaluation.

    Args:
        module: the expanded module.
        expansion: its record.
        plan: the grid; `Serving.of` looks whether it does here.
        solver: whose grid it is.
        span: from which depth to which.
    """

    def __init__(
        self, module: nn.Module, expansion: Expansion, plan: Plan, solver: RungeKutta, span: Span
    ):
        assert solver.steps is not None
        self._module, self._plan, self._solver = module, plan, solver
        self._terms = solver.terms((span[1] - span[0]) / solver.steps)
        self._inference = torch.is_inference_mode_enabled()  # its tensors serve nowhere else
        with Binding(module, expansion, update=False) as binding:
            frame = self._frame = binding.frame(plan.samplings, plan.points)
            maps = frame.maps((), {})
        self._binding = binding
        self._weight = next((binding.originals[name] for name in expansion.weights), None)
        self._tree = [
            (parent._modules, key, child)
            for parent in module.modules()
            for key, child in parent._modules.items()
        ]
        name = type(module).__name__
        self._maps = [lambda z: first_call(name, lambda: frame.call(0, z), z, None), *maps[1:]]
        self._places = [
            (registry, key, binding.originals[name], binding.originals[name].detach())
            for name, places in binding.slots.items()
            for registry, key in places
        ]
        self._state = [
            (binding.originals[name], plan.samplings[basis], expansion.constraints.get(name), copy)
            for name, copy in frame.copies.items()
            for basis in [expansion.state[name]]
        ]

    @classmethod
    def of(
        cls, module: nn.Module, expansion: Expansion, plan: Plan, solver: Solver, span: Span
    ) -> Self | None:
        """The solve, or None where it is not so simple."""
        if not isinstance(solver, RungeKutta) or isinstance(module, Field):
            return None
        if not _own_views(module, expansion, plan):
            return None
        return cls(module, expansion, plan, solver, span)

    def holds(self, module: nn.Module, plan: Plan) -> bool:
        """Whether this is still made of these, and of the same tensors in the same memory."""
        if module is not self._module or plan is not self._plan:
            return False
        for modules, key, child in self._tree:
            if modules.get(key) is not child:
                return False
        for registry, key, value, memory in self._places:
            if registry.get(key) is not value or not value.is_set_to(memory):
                return False
        return self._inference == torch.is_inference_mode_enabled()

    def __call__(self, z: Tensor) -> Tensor:
        """The state at the end of the span."""
        weight = self._weight
        check_tensor(z, next(self._module.parameters(), None) if weight is None else weight)
        for stack, sampling, rule, copy in self._state:
            if not (sampling.in_order and len(stack) == len(copy)):
                stack = torch.index_select(stack, 0, sampling.picks, out=copy)
            if rule is not None:
                rule(stack, out=copy)
            elif stack is not copy:
                copy.copy_(stack)
        try:
            self._frame.show()
            return self._solver.march(self._maps, z, self._terms)
        finally:
            self._binding.shown = None
            for registry, key, value, _ in self._places:
                registry[key] = value


def _own_views(module: nn.Module, expansion: Expansion, plan: Plan) -> bool:
    """Whether every weight is a view of its coefficients, and every tensor the module's own.

    What `torch.func` lends to a module for one call is no parameter, or is wrapped.
    """
    return (
        all(sampling.rows is None for sampling in plan.samplings.values())
        and all(t.device.type in KINDS for t in (*module.parameters(), *module.buffers()))
        and all(type(parameter) is nn.Parameter for parameter in module.parameters())
        and not any(
            torch._C._functorch.is_functorch_wrapped_tensor(tensor(module, name))
            for name in (*expansion.bases, *expansion.carried)
        )
    )
