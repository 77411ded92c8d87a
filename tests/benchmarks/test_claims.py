"""The page of claims is what the recorded results say."""

import re

import pytest

from claims.__main__ import PAPERS, page
from claims._pages import PAGE, cell, kept, level, number, ranking, section


def test_the_page_is_what_the_script_writes():
    assert PAGE.read_text("utf-8") == page(), "run: PYTHONPATH=benchmarks python -m claims"


def test_every_claim_has_a_verdict_and_a_run():
    for claim in (claim for claims in PAPERS.values() for claim in claims):
        verdict = claim.line().split(" | ")[5]
        assert re.match(r"holds|holds in part|does not hold here|not tested", verdict), verdict
        assert claim.ours is None or section(claim.where)


def test_what_is_not_there_is_an_error():
    with pytest.raises(LookupError, match="no row 'none such'"):
        cell("nanode.md#memory", "none such", "growth")
    with pytest.raises(LookupError, match="holds no number"):
        number("as trained")


SHORT = "budget: 0.50 of the accuracy; the same order"


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (kept(90.0, 89.5), "holds"),
        (kept(90.0, 88.0), "holds in part"),
        (kept(90.0, 80.0), "does not hold here"),
        (level(94.0, 94.4, 0.1), "holds"),
        (level(90.0, 94.4, 0.1), "not tested (budget)"),
        (level(90.0, 94.4, 1.0), "does not hold here"),
        (ranking("", True, 90.0, 94.4), "holds"),
        (ranking("", False, 90.0, 94.4), "does not hold here"),
        (
            ranking("", True, 47.2, 94.4),
            f"not tested ({SHORT})",
        ),
    ],
)
def test_verdicts(found, verdict):
    assert found[1] == verdict
