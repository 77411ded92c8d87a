"""A block in use, where nothing is trained and nothing is differentiated."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor as wrapped

from continua.field import Binding, Constraint, Expansion, Field, tensor
from continua.solve import Map, RungeKutta, Solver, Span

from ._checks import check_kind, check_values
from ._first import first_call
from ._plan import Plan

#: of devices, where two tensors can be asked whether they are the same memory
KINDS = ("cpu", "cuda", "mps")
#: the modules that only read their state in evaluation, whatever they are given
READERS = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip


class Serving:
    """The solve on a fixed grid whose evaluations pick coefficients, as those of buckets do.

    Weights are views of the coefficients, made once: they see whatever is written to those, and
    making them for every call costs as much as a small field does. So is the state of modules
    that are known to only read it, as long as it is valid; where others have some, all of it is
    copied for every call, since they may write to it. `holds` tells whether modules, tensors and
    their memory are still the same. What is done once per call counts here: on one image all of
    it takes as long as a third of an evaluation.

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
        self._module, self._solver = module, solver
        self._terms = solver.terms((span[1] - span[0]) / solver.steps)
        self._inference = torch.is_inference_mode_enabled()  # its tensors serve nowhere else
        owners = {module.get_submodule(name.rpartition(".")[0]) for name in expansion.state}
        ruled = {tensor(module, name): rule for name, rule in expansion.constraints.items()}
        lent = all(map(_reads_only, owners)) and all(_obeys(t, rule) for t, rule in ruled.items())
        self._readers = owners if lent else ()
        self._valid = [(t, t._version) for t in ruled] if lent else []
        with Binding(module, expansion, update=False, lent=lent) as binding:
            frame = self._frame = binding.frame(plan.samplings, plan.points)
            self._maps = frame.maps((), {})
        self._binding = binding
        self._weight = next((binding.originals[name] for name in expansion.weights), None)
        self._tree = [
            (parent._modules, key, child)
            for parent in module.modules()
            for key, child in parent._modules.items()
        ]
        self._tried: torch.Size | None = None  # the shape on which the field is known to do
        self._places = [
            (registry, key, binding.originals[name], binding.originals[name].detach())
            for name, places in binding.slots.items()
            if name not in expansion.carried
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

    def holds(self, module: nn.Module | None) -> bool:
        """Whether this is still made of this, and of the same tensors in the same memory."""
        if module is not self._module or module.training:
            return False
        for modules, key, child in self._tree:
            if modules.get(key) is not child:
                return False
        for registry, key, value, memory in self._places:
            if registry.get(key) is not value or not value.is_set_to(memory):
                return False
        for reader in self._readers:
            if reader.training:
                return False
        for value, version in self._valid:
            if value._version != version:
                return False
        return self._inference == torch.is_inference_mode_enabled()

    def __call__(self, z: Tensor) -> Tensor:
        """The state at the end of the span."""
        weight = next(self._module.parameters(), None) if self._weight is None else self._weight
        if weight is None or z.dtype != weight.dtype or z.device != weight.device:
            check_kind(z, weight)
        if z.is_cpu and not wrapped(z):
            check_values(z)
        for stack, sampling, rule, copy in self._state:
            if not (sampling.in_order and len(stack) == len(copy)):
                stack = torch.index_select(stack, 0, sampling.picks, out=copy)
            if rule is not None:
                rule(stack, out=copy)
            elif stack is not copy:
                copy.copy_(stack)
        try:
            self._frame.show()
            maps = self._maps if z.shape == self._tried else self._watched()
            out = self._solver.march(maps, z, self._terms)
            self._tried = z.shape
            return out
        finally:
            self._binding.shown = None
            for registry, key, value, _ in self._places:
                registry[key] = value

    def _watched(self) -> list[Map]:
        """The same evaluations, of which the first looks for mistakes of the field."""
        first, *others = self._maps
        name = type(self._module).__name__
        return [lambda z: first_call(name, lambda: first(z), z, None), *others]


def _reads_only(module: nn.Module) -> bool:
    return type(module) in READERS and not module.training


def _obeys(value: Tensor, rule: Constraint) -> bool:
    """Whether state is valid as it is, and tells when it is written to."""
    return not value.is_inference() and torch.equal(rule(value), value)


def _own_views(module: nn.Module, expansion: Expansion, plan: Plan) -> bool:
    """Whether every weight is a view of its coefficients, and every tensor the module's own.

    What `torch.func` lends to a module for one call is no parameter, or is wrapped.
    """
    return (
        all(sampling.rows is None for sampling in plan.samplings.values())
        and all(t.device.type in KINDS for t in (*module.parameters(), *module.buffers()))
        and all(type(parameter) is nn.Parameter for parameter in module.parameters())
        and not any(
            wrapped(tensor(module, name)) for name in (*expansion.bases, *expansion.carried)
        )
    )
