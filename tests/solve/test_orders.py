"""Observed orders of the pairs on a fixed grid, at its points and between them."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

import continua as ct
from problems import PROBLEMS, saved

# The order of the continuous extension: Shampine's quartic, Tsitouras' quartic, Hairer's seventh.
DENSE = {ct.Bosh3: 3, ct.Dopri5: 4, ct.Tsit5: 4, ct.Dopri8: 7}
STEPS = (2, 3, 4, 6, 8, 12, 16)  # few: order 8 reaches rounding within sixteen

every_pair = pytest.mark.parametrize("pair", DENSE, ids=lambda pair: pair.__name__)
every_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def rate(errors):
    """The last observed order before rounding."""
    return [
        math.log(a / b) / math.log(fine / coarse)
        for (a, b), (coarse, fine) in zip(pairwise(errors), pairwise(STEPS), strict=True)
        if b > 2e-13
    ][-1]


@every_pair
@every_problem
def test_order_on_a_fixed_grid(pair, problem):
    errors = [(problem.solve(pair(steps=n)).final[0] - problem.end).norm().item() for n in STEPS]
    # Tsit5's next term is nearly as large as its first on one of the problems.
    assert rate(errors) == pytest.approx(pair.tableau.order, abs=0.75)


@every_pair
@every_problem
def test_order_of_dense_output(pair, problem):
    errors = []
    start, end = problem.span
    for n in STEPS:
        span = (start, start + (end - start) / n)
        save_at = np.linspace(*span, 21).tolist()[1:-1]
        states = saved(pair(steps=1), problem.f, problem.start, span, save_at)
        exact = torch.stack([problem.exact(s) for s in save_at])
        errors.append((states - exact).norm(dim=1).max().item())
    assert rate(errors) == pytest.approx(DENSE[pair] + 1, abs=0.6)
