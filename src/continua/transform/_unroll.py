"""A plain torch module in place of each block."""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.fx.proxy import GraphAppendingTracer

from continua._errors import ArgumentError, ModuleError
from continua.block import ODEBlock, Plan
from continua.field import Field, put, tensor, values_at
from continua.solve import Dynamics, Evaluate, RungeKutta, Stage, State

from ._blocks import blocks, refuse_elastic
from ._convert import Increment
from ._recipe import set_recipe


def unroll(model: nn.Module) -> nn.Module:
    """The same network as a plain torch module, with no continua inside.

    Each block becomes a `torch.fx.GraphModule`: one copy of its field per distinct depth, with
    the weights read there, and the solver's sums between them. The result computes what the
    model computes, trains like any residual network (batch norm keeps statistics per copy), and
    can be compiled or exported by whatever takes a torch module. Save its `state_dict`, or what
    `torch.export` makes of it: `continua.save` is for models whose blocks can be made again.

    Args:
        model: any module that contains ODE blocks; it is not changed.

    Example:
        >>> import continua as ct
        >>> block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(2), ct.Euler(steps=2))
        >>> print(ct.unroll(block).code.strip())
        def forward(self, input):
            input_1 = input
            stage0 = self.stage0(input_1)
            add = torch.add(input_1, stage0, alpha = 0.5);  input_1 = stage0 = None
            stage1 = self.stage1(add)
            add_1 = torch.add(add, stage1, alpha = 0.5);  add = stage1 = None
            return add_1
    """
    refuse_elastic(model)
    plain = {id(block): _plain(block) for block in blocks(model).values()}
    if isinstance(model, ODEBlock):
        return plain[id(model)]
    # The memo of the copy holds the plain modules in the blocks' place.
    made = _without_our_classes(copy.deepcopy(model, dict(plain)))
    set_recipe(made, None)  # its factory would make the blocks again
    return made


def _plain(block: ODEBlock) -> nn.Module:
    solver = block.solver
    if not isinstance(solver, RungeKutta) or solver.adaptive:
        raise ArgumentError(
            f"{solver!r} cannot be written out, only a Runge-Kutta method on a fixed grid can; "
            "choose one first: continua.compress(model, solver=continua.RK4(steps=8))"
        )
    plan = block.plan
    assert plan is not None
    modules, names = _stages(block, plan)
    attributes: dict[str, nn.Module | Tensor] = dict(modules)
    graph = fx.Graph()
    state, further = _inputs(graph, block.field)
    calls = []
    for i, name in enumerate(names):
        first: tuple[fx.Node, ...] = ()
        last: tuple[fx.Node, ...] = ()
        if isinstance(block.field, Field):
            depth = plan.depths[i].to(next(block.parameters(), torch.empty(0)).dtype)
            attributes[f"depth{i}"] = depth.clone()
            first, last = (graph.get_attr(f"depth{i}"),), (state,)
        calls.append(_Call(name, first, last, further))
    start = fx.Proxy(state, GraphAppendingTracer(graph))
    (end,) = solver.integrate(_Recorded(graph, calls), (start,), block.span).final  # type: ignore[arg-type]
    graph.output(end.node)  # type: ignore[attr-defined]
    return fx.GraphModule(attributes, graph, class_name="Unrolled").train(block.training)


class _Call(NamedTuple):
    """One evaluation of the field as a node of a graph: a module and its arguments."""

    module: str
    before: tuple[fx.Node, ...]
    after: tuple[fx.Node, ...]
    further: dict[str, Any]


class _Recorded(Dynamics):
    """A field on proxies, so that the solver's own arithmetic writes the graph."""

    def __init__(self, graph: fx.Graph, calls: Sequence[_Call]):
        self._graph, self._calls = graph, calls

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        raise NotImplementedError

    def on_grid(self, stages: Callable[[], Sequence[Stage]]) -> Sequence[Evaluate]:
        return [partial(self._evaluate, call) for call in self._calls]

    def _evaluate(self, call: _Call, z: State) -> State:
        (state,) = z
        given = (*call.before, state.node, *call.after)  # type: ignore[attr-defined]
        node = self._graph.call_module(call.module, given, call.further)
        return (fx.Proxy(node, state.tracer),)  # type: ignore[attr-defined, return-value]


def _inputs(graph: fx.Graph, field: nn.Module) -> tuple[fx.Node, dict[str, Any]]:
    """The state as the first input, and whatever else the field's forward takes, by name."""
    called = field.layer if isinstance(field, Increment) else field
    parameters = list(inspect.signature(called.forward).parameters.values())
    own = 3 if isinstance(field, Field) else 1
    state = graph.placeholder(parameters[own - 2].name if own == 3 else parameters[0].name)
    further = {
        p.name: graph.placeholder(p.name, default_value=p.default)
        for p in parameters[own:]
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    return state, further


def _stages(block: ODEBlock, plan: Plan) -> tuple[dict[str, nn.Module], list[str]]:
    """The field at each distinct depth, by name, and the name for each evaluation.

    Weights that several depths read in common stay one tensor.
    """
    expansion, samplings = block.expansion, plan.samplings
    old = {name: tensor(block.field, name) for name in expansion.bases}
    detached = {name: t.detach() for name, t in old.items()}
    rows = {
        basis: s.rows if s.rows is None else s.rows.to(next(iter(old.values())).device)
        for basis, s in samplings.items()
    }
    found = values_at(expansion.bases, detached, rows, expansion.constraints)
    read: dict[str, list[Tensor]] = {}
    for name, values in found.items():
        fresh = [value.clone() for value in values.unbind(0)]
        if isinstance(old[name], nn.Parameter):
            fresh = [nn.Parameter(value, old[name].requires_grad) for value in fresh]
        read[name] = fresh
    counters = {id(tensor(block.field, name)) for name in expansion.carried}
    expanded = {id(tensor(block.field, name)) for name in expansion.bases}
    everything = [*block.field.parameters(), *block.field.buffers()]
    shared = {id(t): t for t in everything if id(t) not in counters | expanded}
    hollow = {
        id(tensor(block.field, name)): read[name][0] for name in expansion.bases
    }  # so that no stack is copied only to be replaced

    modules: dict[str, nn.Module] = {}
    known: dict[tuple[int, ...], str] = {}
    names = []
    for at in range(len(plan.points)):
        key = tuple(sampling.index[at] for sampling in samplings.values())
        if key not in known:
            known[key] = f"stage{len(known)}"
            module = copy.deepcopy(block.field, {**shared, **hollow})
            for name, basis in expansion.bases.items():
                put(module, expansion.names(name), read[name][samplings[basis].index[at]])
            modules[known[key]] = _traced(module) if _is_ours(module) else module
        names.append(known[key])
    return modules, names


def _is_ours(module: nn.Module) -> bool:
    return isinstance(module, Field) or type(module).__module__.partition(".")[0] == "continua"


def _without_our_classes(model: nn.Module) -> nn.Module:
    if _is_ours(model):
        return _traced(model)
    for name, child in model.named_children():
        setattr(model, name, _without_our_classes(child))
    return model


class _Tracer(fx.Tracer):
    """Looks into continua's own classes and into nothing else."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not _is_ours(m)


class _Called(nn.Module):
    """A field that is given nothing but depth, state and input.

    A tracer cannot hand on arguments whose number it does not know.
    """

    def __init__(self, field: Field):
        super().__init__()
        self.field = field

    def forward(self, s: Tensor, z: Tensor, x: Any) -> Any:
        return self.field(s, z, x)


def _traced(module: nn.Module) -> nn.Module:
    name = type(module).__name__
    if isinstance(module, Increment):
        return _written_out(module)
    if isinstance(module, Field) and len(_named(module)) == 3:
        module = _Called(module)
    try:
        graph = _Tracer().trace(module)
    except Exception as error:
        raise ModuleError(
            f"{name} cannot be written out as a graph ({error}); "
            "a field that is unrolled may not branch on values"
        ) from error
    return fx.GraphModule(module, graph, class_name=name).train(module.training)


def _written_out(increment: Increment) -> nn.Module:
    """What a layer adds to its input, with all that the layer takes."""
    graph = fx.Graph()
    state, further = _inputs(graph, increment)
    out = graph.call_module("layer", (state,), further)
    graph.output(graph.call_function(operator.sub, (out, state)))
    return fx.GraphModule(increment, graph, class_name="Increment").train(increment.training)


def _named(module: nn.Module) -> list[str]:
    """The arguments of a module that have a name."""
    given = inspect.signature(module.forward).parameters.values()
    return [p.name for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
