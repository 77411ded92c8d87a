"""Every method keeps what its order promises, in exact arithmetic."""

from fractions import Fraction
from functools import cache
from math import prod

import pytest

from continua.solve import SOLVERS, RungeKutta, Tableau

METHODS = {name: solver for name, solver in SOLVERS.items() if issubclass(solver, RungeKutta)}
every_tableau = pytest.mark.parametrize(
    "tableau", [solver.tableau for solver in METHODS.values()], ids=METHODS
)
# Published as decimals, not as fractions.
DECIMAL = [METHODS[name].tableau for name in ("Tsit5", "Dopri8")]
# What the continuous extension keeps of the order within a step.
DENSE = {"RK4": 3, "RK38": 3, "Dopri5": 4, "Tsit5": 4, "Dopri8": 7}
DENSE_ORDER = {
    solver.tableau: DENSE.get(name, solver.tableau.order) for name, solver in METHODS.items()
}


def near(a, b, tableau):
    return abs(float(a - b)) < 1e-11 if tableau in DECIMAL else a == b


F = Fraction

# Stateful ODE-Nets, and any textbook: c, a, b, order.
KNOWN = {
    "Euler": ([0], [[]], [1], 1),
    "Midpoint": ([0, "1/2"], [[], ["1/2"]], [0, 1], 2),
    "Heun": ([0, 1], [[], [1]], ["1/2", "1/2"], 2),
    "RK4": (
        [0, "1/2", "1/2", 1],
        [[], ["1/2"], [0, "1/2"], [0, 0, 1]],
        ["1/6", "1/3", "1/3", "1/6"],
        4,
    ),
    "RK38": (
        [0, "1/3", "2/3", 1],
        [[], ["1/3"], ["-1/3", 1], [1, -1, 1]],
        ["1/8", "3/8", "3/8", "1/8"],
        4,
    ),
}


# -- Butcher's trees: one condition each -------------------------------------------------------

# A rooted tree is the sorted tuple of its subtrees; () is the single node.


@cache
def trees(order):
    """All rooted trees with this many nodes."""
    return sorted({tuple(sorted(forest)) for forest in forests(order - 1)})


def forests(nodes):
    if nodes == 0:
        yield ()
    for size in range(1, nodes + 1):
        for tree in trees(size):
            for rest in forests(nodes - size):
                yield (tree, *rest)


def nodes(tree):
    return 1 + sum(map(nodes, tree))


def density(tree):
    return nodes(tree) * prod(map(density, tree))


def stage_weights(tableau, tree):
    """Per stage the product over the subtrees of Σ_j a_ij (their weight at stage j)."""
    one = 1.0 if tableau in DECIMAL else F(1)
    weights = [one] * len(tableau.c)
    for subtree in tree:
        inner = stage_weights(tableau, subtree)
        for i, row in enumerate(tableau.a):
            weights[i] *= sum((a * w for a, w in zip(row, inner, strict=False)), 0 * one)
    return weights


def defect(tableau, tree):
    """How far the condition of a tree is from being met at the end of a step."""
    weights = stage_weights(tableau, tree)
    return sum(b * w for b, w in zip(tableau.b, weights, strict=True)) - F(1, density(tree))


def test_trees():
    assert [len(trees(order)) for order in range(1, 7)] == [1, 1, 2, 4, 9, 20]
    assert sorted(density(tree) for tree in trees(3)) == [3, 6]  # Σ b c² = 1/3, Σ b a c = 1/6
    assert sorted(density(tree) for tree in trees(4)) == [4, 8, 12, 24]


# -- the conditions ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOWN)
def test_known_coefficients(name):
    c, a, b, order = KNOWN[name]
    tableau = SOLVERS[name].tableau
    assert tableau.c == tuple(map(F, c))
    assert tableau.a == tuple(tuple(map(F, row)) for row in a)
    assert tableau.b == tuple(map(F, b))
    assert tableau.order == order


@every_tableau
def test_shapes(tableau):
    count = tableau.stages + tableau.fsal + tableau.extra
    assert len(tableau.a) == len(tableau.b) == len(tableau.c) == len(tableau.dense) == count
    assert all(len(row) <= tableau.stages + tableau.fsal for row in tableau.errors)
    assert all(len(row) <= i for i, row in enumerate(tableau.a))  # explicit


@every_tableau
def test_row_sums_are_where_the_stages_lie(tableau):
    for row, c in zip(tableau.a, tableau.c, strict=True):
        assert near(sum(row, F(0)), c, tableau)


@every_tableau
def test_order_conditions(tableau):
    for order in range(1, tableau.order + 1):
        for tree in trees(order):
            assert near(defect(tableau, tree), 0, tableau), (order, tree)


@every_tableau
def test_the_stated_order_is_not_too_modest(tableau):
    assert any(abs(defect(tableau, tree)) > 1e-7 for tree in trees(tableau.order + 1))


@every_tableau
def test_error_estimates_see_nothing_below_their_order(tableau):
    """The weights of an estimate annihilate every tree up to the order of the lower method."""
    for row, order in zip(tableau.errors, (tableau.error_order, 3), strict=False):
        order = 5 if tableau.order == 8 and order == 7 else order
        for r in range(1, order + 1):
            for tree in trees(r):
                weights = stage_weights(tableau, tree)
                total = sum(e * w for e, w in zip(row, weights, strict=False))
                assert near(total, 0, tableau), (r, tree)


def test_the_first_stage_of_the_next_step_is_the_last_of_this_one():
    fsal = {name for name, solver in METHODS.items() if solver.tableau.fsal}
    assert fsal == {"Bosh3", "Dopri5", "Tsit5", "Dopri8"}


# -- the continuous extension ------------------------------------------------------------------


@every_tableau
def test_extension_ends_at_the_step(tableau):
    for row, b in zip(tableau.dense, tableau.b, strict=True):
        assert near(sum(row, F(0)), b, tableau)
    assert tableau.weights(1.0) == pytest.approx([float(b) for b in tableau.b], abs=1e-11)
    assert tableau.weights(0.0) == [0] * len(tableau.c)


@every_tableau
def test_order_conditions_of_the_extension(tableau):
    """Σ b_i(θ) w_i = θ^r / density for trees of r nodes, coefficient by coefficient of θ."""
    powers = max(map(len, tableau.dense))
    for order in range(1, DENSE_ORDER[tableau] + 1):
        for tree in trees(order):
            got = [0.0 if tableau in DECIMAL else F(0)] * max(powers, order)
            for row, weight in zip(tableau.dense, stage_weights(tableau, tree), strict=True):
                for power, coefficient in enumerate(row):
                    got[power] += coefficient * weight
            expected = [F(0)] * len(got)
            expected[order - 1] = F(1, density(tree))
            assert all(near(g, e, tableau) for g, e in zip(got, expected, strict=True)), tree


@every_tableau
@pytest.mark.parametrize("theta", [0.0, 0.125, 0.5, 0.75, 1.0])
def test_weights_are_the_polynomials(tableau, theta):
    expected = [
        float(sum(d * F(theta) ** power for power, d in enumerate(row, start=1)))
        for row in tableau.dense
    ]
    assert tableau.weights(theta) == pytest.approx(expected, abs=1e-11)
    assert sum(tableau.weights(theta)) == pytest.approx(theta, abs=1e-11)


def test_numbers_may_be_written_as_fractions():
    tableau = Tableau(c=[0, "2/3"], a=[[], [F(2, 3)]], dense=[[1, "-3/4"], [0, "3/4"]], order=2)
    assert tableau.b == (F(1, 4), F(3, 4))
    assert tableau.stages == 2
