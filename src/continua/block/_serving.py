"""A block in use, where nothing is trained and nothing is differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor as wrapped
from torch.nn.utils.parametrize import is_parametrized

from continua.field import Binding, Constraint, Expansion, Field, tensor, turn
from continua.solve import RungeKutta, Solver, Span

from ._checks import KINDS, check_kind, check_values, finite
from ._first import check_slope, explain_failure, first_call
from ._plan import Plan

#: the modules that only read their state in evaluation
READERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class Serving:
    """The solve on a fixed grid whose evaluations pick coefficients, as those of buckets do.

    Weights are views of the coefficients, made once: they see whatever is written to those, and
    making them for every call costs as much as a small field does. So are the statistics of batch
    norms in a field of torch's own modules, which only read them; all other state is copied. If a
    variance has become negative behind autograd's back, which a result that is not finite shows,
    the solve is done again. `holds` tells whether modules, tensors and their memory are still the
    same. What is done once per call counts here: on one image all of it takes as long as a fifth
    of an evaluation.

    Args:
        module: the expanded module.
        expansion: its record.
        plan: the grid; `Serving.of` looks whether it does here.
        solver: whose grid it is.
        span: from which depth to which.
    """

    def __init__(
        self,
        module: nn.Module,
        expansion: Expansion,
        plan: Plan,
        solver: RungeKutta,
        span: Span,
    ):
        assert solver.steps is not None
        self._module, self._solver = module, solver
        self._made_of = (module, expansion, plan, solver, span)
        self._instead: Serving | None = None  # made when a statistic had broken its rule
        self._terms = solver.terms((span[1] - span[0]) / solver.steps)
        self._inference = torch.is_inference_mode_enabled()  # its tensors serve nowhere else
        lent = _lent(module, expansion)
        self._lent = [(t, t._version) for t in (tensor(module, name) for name in lent)]
        self._ruled = {
            tensor(module, name): rule
            for name, rule in expansion.constraints.items()
            if name in lent
        }
        with Binding(module, expansion, update=False, lent=lent) as binding:
            frame = self._frame = binding.frame(plan.samplings, plan.points)
            self._unwatched, *self._others = frame.maps((), {})
        self._name = type(module).__name__
        self._binding = binding
        self._turn = turn(module)
        self._weight = next((binding.originals[name] for name in expansion.weights), None)
        self._tried: torch.Size | None = None  # the shape on which the field is known to do
        self._places = [
            (registry, key, binding.originals[name])
            for name, places in binding.slots.items()
            if name not in expansion.carried
            for registry, key in places
        ]
        self._parts = _Parts(module, self._places)
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
        if any(part.training for part in module.modules()):
            return None
        if not _own_views(module, expansion, plan):
            return None
        return cls(module, expansion, plan, solver, span)

    def holds(self, module: nn.Module | None) -> bool:
        """Whether this is still made of this, and of the same tensors in the same memory."""
        if self._instead is not None:
            return self._instead.holds(module)
        if module is not self._module or not self._parts.same():
            return False
        for value, version in self._lent:
            if value._version != version:
                return False
        return self._inference == torch.is_inference_mode_enabled()

    def __call__(self, z: Tensor) -> Tensor:
        """The state at the end of the span."""
        if self._instead is not None:
            return self._instead(z)
        weight = next(self._module.parameters(), None) if self._weight is None else self._weight
        if weight is None or z.dtype != weight.dtype or z.device != weight.device:
            check_kind(z, weight)
        for stack, sampling, rule, copy in self._state:
            if not (sampling.in_order and len(stack) == len(copy)):
                stack = torch.index_select(stack, 0, sampling.picks, out=copy)
            if rule is not None:
                rule(stack, out=copy)
            elif stack is not copy:
                copy.copy_(stack)
        self._turn.begin()
        try:
            self._frame.show()
            out = self._solver.march([self._first, *self._others], z, self._terms)
            self._tried = z.shape
        except Exception:
            if z.is_cpu and not wrapped(z):
                check_values(z)  # on which many a field fails
            raise
        finally:
            self._binding.shown = None
            for registry, key, value in self._places:
                registry[key] = value
            self._turn.end()
        if out.is_cpu and not wrapped(out) and not finite(out):
            check_values(z)  # a state that is not finite never becomes so
            if not all(map(_obeys, self._ruled, self._ruled.values())):
                self._instead = type(self)(*self._made_of)
                return self._instead(z)
        return out

    def _first(self, z: Tensor) -> Any:
        """The first evaluation, which shows the mistakes of a field."""
        new = z.shape != self._tried
        if new or not z.is_inference():
            return first_call(self._name, lambda: self._unwatched(z), z, None, compare=new)
        # What was made in inference mode does not tell when it is written to: once must do.
        try:
            out = self._unwatched(z)
        except Exception as error:
            explain_failure(self._name, z, error)
        check_slope(self._name, out, z, None)
        return out


class _Parts:
    """The parts of a module in evaluation and their tensors, and where they are registered.

    Args:
        module: all of whose parts are in evaluation.
        places: registry, key and tensor of each.
    """

    def __init__(self, module: nn.Module, places: Sequence[tuple[dict[str, Any], str, Tensor]]):
        self._modules = list(module.modules())
        self._tensors = [value for _, _, value in places]
        self._memory = [value.detach() for value in self._tensors]
        known: list[tuple[dict[str, Any], str, object]] = [*places]
        for part in self._modules:
            known += [(part._modules, key, child) for key, child in part._modules.items()]
        self._registries = [registry for registry, _, _ in known]
        self._keys = [key for _, key, _ in known]
        self._values = [value for _, _, value in known]

    def same(self) -> bool:
        """Whether all are where they were, in the same memory, and still in evaluation."""
        if not all(map(is_, map(dict.get, self._registries, self._keys), self._values)):
            return False
        if not all(map(Tensor.is_set_to, self._tensors, self._memory)):
            return False
        return not any(map(attrgetter("training"), self._modules))


def _lent(module: nn.Module, expansion: Expansion) -> list[str]:
    """The state that can be read in place.

    In modules of torch, of which it is known that they read it only: a tensor that tells when it is
    written to, and coefficients that obey the rule for what may be read, on a device where it costs
    little to look at the result.
    """
    if not all(type(part).__module__.startswith("torch.nn.") for part in module.modules()):
        return []
    owners = {name: module.get_submodule(name.rpartition(".")[0]) for name in expansion.state}
    return [
        name
        for name, owner in owners.items()
        if type(owner) in READERS
        and not tensor(module, name).is_inference()
        and _may_lend(tensor(module, name), expansion.constraints.get(name))
    ]


def _may_lend(values: Tensor, rule: Constraint | None) -> bool:
    return rule is None or (values.is_cpu and _obeys(values, rule))


def _obeys(values: Tensor, rule: Constraint) -> bool:
    return torch.equal(values, rule(values))


def _own_views(module: nn.Module, expansion: Expansion, plan: Plan) -> bool:
    """Whether every weight is a view of its coefficients, and every tensor the module's own.

    What `torch.func` lends to a module for one call is no parameter, or is wrapped.
    """
    return (
        all(sampling.rows is None for sampling in plan.samplings.values())
        and not any(map(is_parametrized, module.modules()))
        and all(t.device.type in KINDS for t in (*module.parameters(), *module.buffers()))
        and all(type(parameter) is nn.Parameter for parameter in module.parameters())
        and not any(
            wrapped(tensor(module, name)) for name in (*expansion.bases, *expansion.carried)
        )
    )
