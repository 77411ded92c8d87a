"""The 25 problems of DETEST: errors are of the size of the tolerance, for every pair."""

import statistics

import pytest

import continua as ct
from continua.solve import SOLVERS, Pair
from detest import DETEST, PROBLEMS, error_ratios, growth

PAIRS = [solver for solver in SOLVERS.values() if issubclass(solver, Pair)]


def check(pair, tolerance, problems):
    found = {name: error_ratios(name, pair(tolerance, tolerance)) for name in problems}
    # One step is off by ten times the tolerance at most, and usually by less.
    assert {name: local for name, (local, _) in found.items() if local > 10} == {}
    # How far steps add up depends on the problem: orbits amplify errors, decays forget them.
    assert 0.1 < statistics.median(total for _, total in found.values()) < 10
    return found


@pytest.mark.parametrize("pair", PAIRS)
def test_errors_and_tolerance(pair):
    check(pair, 1e-5, [name for name in DETEST if name not in ("C4", "D5")])


@pytest.mark.every
@pytest.mark.parametrize("tolerance", [1e-5, 1e-7, 1e-9])
@pytest.mark.parametrize("pair", PAIRS)
def test_errors_and_tolerance_of_all_problems(pair, tolerance):
    if pair is ct.Bosh3 and tolerance < 1e-7:
        pytest.skip("takes a hundred thousand steps")
    names = [n for n in PROBLEMS if n != "Robertson" or tolerance < 1e-6]
    found = check(pair, tolerance, names)
    # Above, that is the problem: an error of the past grows so much, whatever the solver does.
    assert {n: total for n, (_, total) in found.items() if total > 20 * growth(n)} == {}
