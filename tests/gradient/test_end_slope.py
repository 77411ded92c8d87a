"""Ends of the span that require a gradient, where the field is not finite."""

import torch

import continua as ct


def test_a_field_that_is_infinite_at_the_end_leaves_the_state_there_finite():
    end = torch.tensor(1.0, requires_grad=True)
    found = []
    for span in [(0.0, 1.0), (0.0, end)]:
        z = torch.ones(2, 3)
        found.append(ct.odeint(lambda s, z: z / (1 - s) ** 0.25, z, span, solver=ct.Midpoint(4)))
    assert torch.equal(found[0].final, found[1].final)
    found[1].final.sum().backward()
    assert not end.grad.isfinite()
