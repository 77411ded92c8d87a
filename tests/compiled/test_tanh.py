"""The hyperbolic tangent of compiled steps."""

import math

import pytest
import torch

from continua.gradient._trace import compiled_program


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 4e-7), (torch.float64, 1e-15)])
def test_tanh_is_right_to_a_few_roundings(dtype, error):
    x = torch.cat(
        [torch.linspace(-20, 20, 20001, dtype=dtype), torch.logspace(-30, 1, 1000).to(dtype)]
    )
    program = compiled_program(lambda x: (torch.tanh(x),), [x], None, "aot_eager", [], False)
    (found,) = program.run([x])
    expected = torch.tanh(x.double())
    assert ((found - expected).abs() <= error * expected.abs()).all()
    assert (found.abs() <= 1).all()


def test_tanh_beyond_all_numbers():
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0])
    program = compiled_program(lambda x: (torch.tanh(x),), [x], None, "aot_eager", [], False)
    (found,) = program.run([x])
    assert torch.allclose(found, torch.tanh(x), rtol=0, atol=4e-7, equal_nan=True)
    assert found[3] == 0


def test_the_vjp_of_tanh():
    x = torch.linspace(-10, 10, 2001, requires_grad=True)
    program = compiled_program(lambda x: (torch.tanh(x),), [x], 1, "aot_eager", [], False)
    (found,) = program.run([x.detach(), torch.ones_like(x)])
    (expected,) = torch.autograd.grad(torch.tanh(x).sum(), x)
    assert ((found - expected).abs() <= 1e-6).all()
