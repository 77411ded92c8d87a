"""A plain torch module in place of each block."""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.proxy import GraphAppendingTracer

from continua._errors import ArgumentError, ModuleError
from continua.block import ODEBlock, Plan
from continua.field import Field, gathered, tensor
from continua.solve import Dynamics, Evaluate, RungeKutta, Stage

from ._blocks import blocks, blocks_if_any, refuse_elastic, set_recipe
from ._revert import to_plain_layers
from ._stack import converted
from ._stacking import Increment, copy_like, stage_tensors

#: arguments whose number a tracer does not know
UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def unroll(model: nn.Module) -> nn.Module:
    """The same network as a plain torch module, with no continua inside.

    Layers that `convert` found in a model become plain again, as with `revert`. Every other block
    becomes a `torch.fx.GraphModule`: one copy of its field per distinct depth, with
    the weights read there, and the solver's sums between them. The result computes what the
    model computes, trains like any residual network (batch norm keeps statistics per copy), and
    can be compiled or exported by whatever takes a torch module. Save its `state_dict`, or what
    `torch.export` makes of it: `continua.save` is for models whose blocks can be made again.

    The field sees the block's input as x; there is no `control`. `continua.export` writes models
    that call a block with `control=`.

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
    model = gathered(model)
    if converted(model):
        model, _ = to_plain_layers(model)
        if not blocks_if_any(model):
            return model
    plain = {id(block): _unroll_block(block) for block in blocks(model).values()}
    if isinstance(model, ODEBlock):
        return plain[id(model)]
    # The memo of the copy holds the plain modules in the blocks' place.
    made = _trace_our_modules(copy.deepcopy(model, dict(plain)))
    set_recipe(made, None)  # its factory would make the blocks again
    return made


def _unroll_block(block: ODEBlock) -> nn.Module:
    solver = block.solver
    if not isinstance(solver, RungeKutta) or solver.adaptive:
        raise ArgumentError(
            f"{solver!r} cannot be written out, only a Runge-Kutta method on a fixed grid can; "
            "choose one first: continua.compress(model, solver=continua.RK4(steps=8))"
        )
    plan = block.plan
    assert plan is not None
    graph, stages = fx.Graph(), _stages(block, plan)
    state, further = _inputs(graph, block.field)
    attributes: dict[str, nn.Module | Tensor] = dict(stages)
    like = next(block.parameters(), torch.empty(0))
    remaining = iter(enumerate(stages))

    def evaluate(z: Any) -> Any:
        """The next evaluation of the field as a node of the graph."""
        i, (name, _) = next(remaining)
        args = [z[0].node]
        if isinstance(block.field, Field):
            attributes[f"depth{i}"] = plan.depths[i].to(like.dtype).clone()
            args = [graph.get_attr(f"depth{i}"), *args, state]
        node = graph.call_module(name, tuple(args), further)
        return (fx.Proxy(node, z[0].tracer),)

    start: Any = fx.Proxy(state, GraphAppendingTracer(graph))
    final: Any = solver.integrate(_Recorder(evaluate), (start,), block.span).final
    graph.output(final[0].node)
    return _graph_module(attributes, graph, "Unrolled", block.training)


class _Recorder(Dynamics):
    """A field on proxies, so that the solver's own arithmetic writes the graph."""

    def __init__(self, evaluate: Evaluate):
        self._evaluate = evaluate

    def at(self, stages: Sequence[Stage]) -> Sequence[Evaluate]:
        return [self._evaluate] * len(stages)


def _inputs(graph: fx.Graph, field: nn.Module) -> tuple[fx.Node, dict[str, Any]]:
    """The state as the first input, and whatever else the field's forward takes, by name."""
    called = field.layer if isinstance(field, Increment) else field
    parameters = list(inspect.signature(called.forward).parameters.values())
    at, own = (1, 3) if isinstance(field, Field) else (0, 1)
    state = graph.placeholder(parameters[at].name)
    further = {
        p.name: graph.placeholder(p.name, default_value=p.default)
        for p in parameters[own:]
        if p.kind not in UNNAMED
    }
    return state, further


def _stages(block: ODEBlock, plan: Plan) -> list[tuple[str, nn.Module]]:
    """The field at each evaluation, with a name. Where the weights are the same, so is the module.

    Weights that several depths read in common stay one tensor.
    """
    field = block.field
    stacks = {name: tensor(field, name) for name in block.expansion.bases}
    counters = {tensor(field, name) for name in block.expansion.carried}
    # The memo of a copy holds what is not copied.
    shared = {id(t): t for t in (*field.parameters(), *field.buffers()) if t not in counters}
    with torch.no_grad():
        values = stage_tensors(block)
    copies: dict[Tensor, Tensor] = {}
    for name, rows in values.items():
        copies |= {row: copy_like(stacks[name], row) for row in dict.fromkeys(rows)}
    found: dict[tuple[int, ...], tuple[str, nn.Module]] = {}
    stages = []
    for at in range(len(plan.points)):
        own = {id(stacks[name]): copies[rows[at]] for name, rows in values.items()}
        key = tuple(map(id, own.values()))
        if key not in found:
            module = copy.deepcopy(field, shared | own)
            found[key] = f"stage{len(found)}", _trace(module) if _is_ours(module) else module
        stages.append(found[key])
    return stages


def _is_ours(module: nn.Module) -> bool:
    return isinstance(module, Field) or type(module).__module__.partition(".")[0] == "continua"


def _trace_our_modules(model: nn.Module) -> nn.Module:
    if _is_ours(model):
        return _trace(model)
    for name, child in model.named_children():
        setattr(model, name, _trace_our_modules(child))
    return model


class _Tracer(fx.Tracer):
    """Looks into continua's own classes and into nothing else."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not _is_ours(m)


class _ThreeArguments(nn.Module):
    """A field that is given nothing but depth, state and input."""

    def __init__(self, field: Field):
        super().__init__()
        self.field = field

    def forward(self, s: Tensor, z: Tensor, x: Any) -> Any:
        return self.field(s, z, x)


def _trace(module: nn.Module) -> nn.Module:
    name = type(module).__name__
    if isinstance(module, Increment):  # what a layer adds to its input, with all that it takes
        graph = fx.Graph()
        state, further = _inputs(graph, module)
        out = graph.call_module("layer", (state,), further)
        added = graph.call_function(operator.sub, (out, state))
        graph.output(added)
        return _graph_module(module, graph, name, module.training)
    given = inspect.signature(module.forward).parameters.values()
    if isinstance(module, Field) and sum(p.kind not in UNNAMED for p in given) == 3:
        module = _ThreeArguments(module)
    try:
        graph = _Tracer().trace(module)
    except Exception as error:
        raise ModuleError(
            f"{name} cannot be written out as a graph ({error}); "
            "a field that is unrolled may not branch on values"
        ) from error
    return _graph_module(module, graph, name, module.training)


def _graph_module(root: Any, graph: fx.Graph, name: str, training: bool) -> nn.Module:
    made = fx.GraphModule(root, graph, class_name=name)
    made.training = training  # and not `train()`: its parts have their own modes
    return made
