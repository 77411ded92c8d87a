"""A block in use, where nothing is trained and nothing is differentiated."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from continua.field import Binding, Expansion
from continua.solve import RungeKutta, Span

from ._first import first_call
from ._plan import Plan


class Serving:
    """The solve on a fixed grid whose evaluations pick coefficients, as those of buckets do.

    Weights are views of the coefficients, made once: they see whatever becomes of those, and
    making them for every call costs as much as a small field does. State is copied, since a
    module may write to it, and copied anew for every call. Nothing that depends on values is
    kept, so that nothing can be out of date.

    Args:
        module: the expanded module.
        expansion: its record.
        plan: the grid; `may_serve` tells whether it does here.
        solver: whose grid it is.
        span: from which depth to which.
    """

    def __init__(
        self, module: nn.Module, expansion: Expansion, plan: Plan, solver: RungeKutta, span: Span
    ):
        assert solver.steps is not None
        self.plan, self._solver, self._h = plan, solver, (span[1] - span[0]) / solver.steps
        self._inference = torch.is_inference_mode_enabled()  # its tensors serve nowhere else
        with Binding(module, expansion, update=False) as binding:
            frame = self._frame = binding.frame(plan.samplings, plan.points)
            maps = frame.maps((), {})
        name = type(module).__name__
        self._maps = [lambda z: first_call(name, lambda: frame.call(0, z), z, None), *maps[1:]]
        self._places = [
            (registry, key, binding.originals[name], binding.originals[name].data_ptr())
            for name, places in binding.slots.items()
            for registry, key in places
        ]
        self._state = [
            (binding.originals[name], plan.samplings[basis], expansion.constraints.get(name), copy)
            for name, copy in frame.copies.items()
            for basis in [expansion.state[name]]
        ]

    def holds(self) -> bool:
        """Whether the module still has the tensors, in the same memory, that this was made of."""
        for registry, key, value, address in self._places:
            if registry.get(key) is not value or value.data_ptr() != address:
                return False
        return self._inference == torch.is_inference_mode_enabled()

    def __call__(self, z: Tensor) -> Tensor:
        """The state at the end of the span."""
        for stack, sampling, rule, copy in self._state:
            if not (sampling.in_order and len(stack) == len(copy)):
                stack = torch.index_select(stack, 0, sampling.picks, out=copy)
            if rule is not None:
                rule(stack, out=copy)
            elif stack is not copy:
                copy.copy_(stack)
        try:
            self._frame.show()
            return self._solver.march(self._maps, z, self._h)
        finally:
            for registry, key, value, _ in self._places:
                registry[key] = value


def may_serve(module: nn.Module, plan: Plan) -> bool:
    """Whether every weight is a view of its coefficients, and the module's own.

    Tensors that `torch.func` lends to a module for one call are not parameters.
    """
    return all(sampling.rows is None for sampling in plan.samplings.values()) and all(
        type(parameter) is nn.Parameter for parameter in module.parameters()
    )
