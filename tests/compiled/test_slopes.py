"""Compiled steps of fields whose slopes are parts of the state."""

import pytest
import torch

import continua as ct


@pytest.mark.parametrize(
    "gradient", [ct.Backprop(), ct.Checkpoint(), ct.Adjoint(), ct.Adjoint("backsolve")], ids=str
)
@pytest.mark.parametrize("solver", [ct.RK4(steps=3), ct.Dopri5(1e-5, 1e-5)], ids=str)
def test_a_slope_that_is_a_part_of_the_state(solver, gradient, caplog):
    """An oscillator as a pair of numbers: states without dimensions, one of them a slope."""
    w = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)

    def f(s, z):
        return z[1], -w * z[0]

    def solved(compiled):
        z = tuple(torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (1.0, 0.5))
        end = ct.odeint(f, z, (0, 1), solver=solver, gradient=gradient, compile=compiled).final
        return [*end, *torch.autograd.grad(end[0] + 2 * end[1], [w, *z])]

    for found, expected in zip(solved("aot_eager"), solved(False), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    eager = [r.message for r in caplog.records if r.name == "continua"]
    assert not eager
