"""Small matrix products of compiled programs: inlined, since a call of a library takes longer."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import torch
from torch import Tensor, fx

#: up to how many multiplications a product is inlined
LARGEST = 1 << 21
#: and how many numbers it may copy, on the stack
COPIED = 1 << 16

# The sums of R rows and V vectors stay in registers, while k runs. What is not contiguous along the
# vectors is copied first.
SOURCE = """
#ifndef CONTINUA_PRODUCT
#define CONTINUA_PRODUCT
namespace continua {
template <typename T, int R, int V, int K, bool whole>
inline void block(
    const T* a, int64_t ra, int64_t ca, const T* b, int64_t rb, T* y, int64_t ry, int count) {
  using Vec = at::vec::Vectorized<T>;
  Vec sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sum[r][v] = Vec(T(0));
  for (int k = 0; k < K; ++k) {
    Vec row[V];
    for (int v = 0; v < V; ++v) {
      const T* at = b + k * rb + v * Vec::size();
      row[v] = whole ? Vec::loadu(at) : Vec::loadu(at, count);
    }
    for (int r = 0; r < R; ++r) {
      const Vec x(a[r * ra + k * ca]);
      for (int v = 0; v < V; ++v) sum[r][v] = at::vec::fmadd(x, row[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) {
      T* at = y + r * ry + v * Vec::size();
      whole ? sum[r][v].store(at) : sum[r][v].store(at, count);
    }
}

template <typename T, int V, int M, int K, bool whole>
inline void columns(
    const T* a, int64_t ra, int64_t ca, const T* b, int64_t rb, T* y, int64_t ry, int count) {
  constexpr int R = sizeof(at::vec::Vectorized<T>) == 64 ? 8 : 4, last = M - M % R;
  for (int i = 0; i < last; i += R)
    block<T, R, V, K, whole>(a + i * ra, ra, ca, b, rb, y + i * ry, ry, count);
  if constexpr (last < M)
    block<T, M - last, V, K, whole>(a + last * ra, ra, ca, b, rb, y + last * ry, ry, count);
}

template <typename T, int M, int N, int K, int ra, int ca, int rb, int cb>
inline void product(const T* a, const T* b, T* y) {
  constexpr int W = at::vec::Vectorized<T>::size();
  if constexpr (N < W && N < M) {
    alignas(64) T turned[N * M];
    product<T, N, M, K, cb, rb, ca, ra>(b, a, turned);
    at::vec::transpose_mxn<T>(turned, M, y, N, N, M);
  } else if constexpr (cb != 1) {
    alignas(64) T copy[K * N];
    if constexpr (rb == 1) {
      at::vec::transpose_mxn<T>(b, cb, copy, N, N, K);
    } else {
      for (int k = 0; k < K; ++k)
        for (int j = 0; j < N; ++j) copy[k * N + j] = b[k * rb + j * cb];
    }
    product<T, M, N, K, ra, ca, N, 1>(a, copy, y);
  } else {
    int j = 0;
    for (; j + 2 * W <= N; j += 2 * W) columns<T, 2, M, K, true>(a, ra, ca, b + j, rb, y + j, N, W);
    if constexpr (N % (2 * W) >= W) {
      columns<T, 1, M, K, true>(a, ra, ca, b + j, rb, y + j, N, W);
      j += W;
    }
    if constexpr (N % W != 0) columns<T, 1, M, K, false>(a, ra, ca, b + j, rb, y + j, N, N % W);
  }
}
}
#endif
"""

#: tells programs on disk with another source apart
PRODUCTS = hashlib.sha256(SOURCE.encode()).hexdigest()
_kept: list[Any] = []


@functools.cache
def product() -> Any:
    """The operator that stands for an inlined product; None without templates or vectors."""
    try:
        import torch._inductor.lowering as lowering  # first: others import each other
        from torch._inductor.codegen.cpp_template import CppTemplate
        from torch._inductor.cpu_vec_isa import pick_vec_isa
        from torch._inductor.kernel.mm_common import mm_args
    except ImportError:
        return None
    if not pick_vec_isa():
        return None

    class Product(CppTemplate):
        def __init__(self, inputs: Any, layout: Any):
            super().__init__("product", inputs, layout, num_threads=1)

        def render(self, kernel: Any, template_buffer_node: Any = None, **more: Any) -> str:  # type: ignore[override]
            a, b = self.input_nodes
            y = template_buffer_node or self.output_node
            head = kernel.def_kernel(inputs={"a": a, "b": b}, outputs={"y": y})
            sizes = [kernel.size(a, 0), kernel.size(b, 1), kernel.size(a, 1)]
            strides = [kernel.stride(t, i) for t in (a, b) for i in (0, 1)]
            first = [f"&{kernel.index(t, [0, 0])}" for t in (a, b)]
            arguments = ", ".join([kernel.dtype(y), *sizes, *strides])
            call = f"continua::product<{arguments}>({', '.join(first)}, y);"
            return f'{self.header().getvalue()}{SOURCE}extern "C"\n{head}\n{{\n  {call}\n}}\n'

    library: Any = torch.library.Library("continua", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("product(Tensor a, Tensor b) -> Tensor")
    library.impl("product", torch.mm, "CompositeExplicitAutograd")
    operator = torch.ops.continua.product.default

    def lowered(a: Any, b: Any) -> Any:
        *_, layout, a, b = mm_args(a, b)  # type: ignore[no-untyped-call]
        for t in (a, b):
            t.freeze_layout()
        return Product([a, b], layout).generate().output_node()  # type: ignore[no-untyped-call]

    lowering.register_lowering(operator, type_promotion_kind=None)(lowered)
    _kept.append(library)  # the operator lives as long
    return operator


def inline_products(graph: fx.GraphModule) -> None:
    """Let small matrix products of a graph be inlined."""
    aten = torch.ops.aten
    for node in list(graph.graph.nodes):
        if node.kwargs or node.target not in (aten.mm.default, aten.addmm.default):
            continue
        *more, first, second = node.args
        factors = first, second
        a, b = (factor.meta["val"] for factor in factors)
        if not _is_small(a, b) or (operator := product()) is None:
            continue
        with graph.graph.inserting_before(node):
            new = graph.graph.call_function(operator, factors)
            new.meta["val"] = node.meta["val"]
            if more:
                total = graph.graph.call_function(aten.add.Tensor, (new, *more))
                total.meta["val"] = node.meta["val"]
                new = total
        node.replace_all_uses_with(new)
        graph.graph.erase_node(node)
    graph.recompile()


def _is_small(a: Tensor, b: Tensor) -> bool:
    sizes: list[Any] = [*a.shape, b.shape[1], *a.stride(), *b.stride()]
    if a.device.type != "cpu" or a.dtype not in (torch.float32, torch.float64):
        return False
    if any(type(n) is not int for n in sizes):  # symbols
        return False
    m, k, n = *a.shape, b.shape[1]
    copied = k * n + (m * n + m * k if n < 16 else 0)
    return 0 < m * k * n <= LARGEST and copied <= COPIED
