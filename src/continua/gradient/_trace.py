"""Functions of tensors, traced by AOTAutograd and compiled by inductor."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, fx

from ._cache import compile_with_inductor

Run = Callable[[list[Tensor]], Sequence[Tensor]]
Function = Callable[..., Sequence[Tensor | None]]
Backend = Literal["inductor", "aot_eager"]
#: shape, precision, device of each input, and whether it gets a gradient
Kinds = tuple[tuple[torch.Size, torch.dtype, torch.device, bool], ...]


class Uncompilable(Exception):  # noqa: N818  (no error of the user's: eager does it)
    """Why a solve is not compiled."""


class Program:
    """A function of tensors, or its vector-Jacobian product."""

    def __init__(self, run: Run, wanted: Sequence[int], sizes: Sizes, back: Run | None = None):
        self.run, self.wanted = run, wanted  #: the inputs that the results are gradients of
        self.sizes = sizes
        #: the vector-Jacobian product from what `run` gives besides its results
        self.back = back


class Sizes:
    """Which sizes of a program's inputs are symbols, and what it assumes of them."""

    def __init__(self, inputs: Sequence[Tensor], others: Sequence[Kinds]):
        from torch._dynamo.source import ConstantSource
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental import symbolic_shapes as symbolic

        self._shapes = symbolic.ShapeEnv()
        mode, dynamic = FakeTensorMode(shape_env=self._shapes), symbolic.DimDynamic
        self.fakes: list[Any] = []
        self.symbols = False
        for i, t in enumerate(inputs):
            differs = [any(o[i][0][d] != n for o in others) for d, n in enumerate(t.shape)]
            self.symbols |= any(differs)
            kinds = [dynamic.DYNAMIC if d else dynamic.STATIC for d in differs]
            context: Any = symbolic.StatelessSymbolicContext(dynamic_sizes=kinds)
            name = ConstantSource(f"input{i}")
            fake = mode.from_tensor(t.detach(), symbolic_context=context, source=name)
            self.fakes.append(fake.requires_grad_(t.requires_grad))

    def take(self, inputs: Sequence[Tensor]) -> bool:
        """Whether the program is right for inputs of other sizes."""
        plain = [t.detach() for t in inputs]
        return self.symbols and bool(self._shapes.evaluate_guards_for_args(self.fakes, plain))


def compiled_program(
    function: Function,
    inputs: Sequence[Tensor],
    outputs: int | None,
    backend: Backend,
    others: Sequence[Kinds],
    keep: bool,
) -> Program:
    """The program of a function for inputs like these; `Programs.get` says what the rest is."""
    from torch._functorch.partitioners import default_partition

    sizes = Sizes(inputs, others)
    if keep and sizes.symbols:
        raise Uncompilable("sizes change")  # symbols would have to be kept too
    graph, wanted = _traced(function, sizes.fakes, outputs, keep)
    for node in graph.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Uncompilable("the field draws random numbers")
    try:
        if not keep:
            return Program(_run(graph, backend), wanted, sizes)
        _repeat_views(graph.graph)
        first, second = default_partition(graph, sizes.fakes, num_fwd_outputs=outputs)  # type: ignore[arg-type]
        return Program(_run(first, backend), wanted, sizes, _run(second, backend))
    except Exception as error:
        raise Uncompilable(_because(error)) from error


def _repeat_views(graph: fx.Graph) -> None:
    """Let the backward part of a joint graph make its own views, instead of keeping them."""
    place = {node: float(i) for i, node in enumerate(graph.nodes)}
    tag = "partitioner_tag"
    last = max((i for node, i in place.items() if node.meta.get(tag) == "is_forward"), default=-1)
    for node in reversed(list(graph.nodes)):
        users = [u for u in node.users if place[u] > last and u.op != "output"]
        if place[node] > last or not users or not _is_view(node):
            continue
        first = min(users, key=place.__getitem__)
        with graph.inserting_before(first):
            again = graph.node_copy(node, lambda n: n)
        again.meta = {key: value for key, value in node.meta.items() if key != tag}
        place[again] = math.nextafter(place[first], -math.inf)  # as it stands now
        for user in users:
            user.replace_input_with(node, again)


def _is_view(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and _is_view(node.args[0])
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def _run(graph: fx.GraphModule, backend: Backend) -> Run:
    if backend == "aot_eager":
        return lambda given: graph(*given)
    return compile_with_inductor(graph)


def _traced(
    function: Function, inputs: Sequence[Tensor], outputs: int | None, keep: bool
) -> tuple[fx.GraphModule, list[int]]:
    """The operations of a function, of its vector-Jacobian product, or of both."""
    from torch._functorch.aot_autograd import aot_export_joint_simple
    from torch._inductor.decomposition import select_decomp_table

    joint = outputs is not None
    given = tuple(t if joint else t.detach() for t in inputs)
    table = {**select_decomp_table(), torch.ops.aten.tanh.default: _tanh}
    try:
        with torch.enable_grad():
            graph = aot_export_joint_simple(
                function, given, trace_joint=joint, decompositions=table
            )
    except Uncompilable:
        raise
    except Exception as error:
        raise Uncompilable(_because(error)) from error
    assert isinstance(graph, fx.GraphModule)
    graph.graph.set_codegen(fx.graph.CodeGen())
    end = graph.graph.output_node()
    found = list(end.args[0])[outputs or 0 :]  # type: ignore[arg-type]
    wanted = [i for i, node in enumerate(found) if node is not None]
    if not keep:
        end.args = ([found[i] for i in wanted],)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph, wanted


#: x P(x²) / Q(x²) is tanh up to 1e-8 on [-8, 8]: a fit of least relative error
TANH = (
    (1.523029947551e-8, 2.189457591472e-5, 3.571592805178e-3, 1.344449357787e-1, 0.9999999935619),
    (8.522397590776e-7, 3.411283482815e-4, 2.616442306309e-2, 4.677782089466e-1, 1.0),
)


def _tanh(x: Tensor) -> Any:
    """The hyperbolic tangent up to 4e-7 in single precision, in a quarter of torch's time."""
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return NotImplemented
    x = x.clamp(-8.0, 8.0)
    t = x * x
    above, below = (torch.full_like(t, first) for first, *_ in TANH)
    for p, q in zip(TANH[0][1:], TANH[1][1:], strict=True):
        above, below = above * t + p, below * t + q
    return x * above / below


def _because(error: Exception) -> str:
    """The first line of what torch says."""
    if "InvalidCxxCompiler" in f"{type(error).__name__} {error}":
        return "no C++ compiler was found: install one such as g++, or name it in CXX"
    text = str(error).strip().partition("\n")[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
