"""Matrix products inside compiled programs."""

import itertools

import pytest
import torch

from continua.gradient import _products
from continua.gradient._trace import compiled_program

SIZES = [(64, 16, 64), (64, 64, 2), (2, 64, 3), (17, 19, 37), (9, 2, 8)]


def products(sizes):
    def f(*factors):
        found = []
        for i, (m, k, n) in enumerate(sizes):
            a, b, bias = factors[3 * i : 3 * i + 3]
            left, right = (a, a.reshape(k, m).T), (b, b.reshape(n, k).T)
            found += [x @ y for x, y in itertools.product(left, right)]
            found.append(torch.addmm(bias, a, b))
        return found

    return f


def factors(sizes, dtype):
    torch.manual_seed(0)
    shapes = [shape for m, k, n in sizes for shape in ((m, k), (k, n), (n,))]
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
def test_inlined_products(dtype, error, monkeypatch):
    inlined = []
    operator = _products.product()
    assert operator is not None
    monkeypatch.setattr(_products, "product", lambda: inlined.append(1) or operator)
    f, given = products(SIZES), factors(SIZES, dtype)
    program = compiled_program(f, given, None, "inductor", [], False)
    assert len(inlined) == 5 * len(SIZES)
    for found, expected in zip(program.run(list(given)), f(*given), strict=True):
        torch.testing.assert_close(found, expected, rtol=error, atol=error)
