"""Write docs/results/claims.md.

    PYTHONPATH=benchmarks python -m claims

Our numbers are read from the tables and sentences of the other pages in docs/results; only the
numbers of the papers are written here. Verdicts are worked out from both.
"""

from __future__ import annotations

from ._dissecting import DISSECTING
from ._nanode import NANODE
from ._pages import PAGE, REACH, RESULTS
from ._stateful import STATEFUL

HEAD = f"""# Claims of the papers

Each row has a claim of a paper, its number, ours, and a verdict. This page is
written by `PYTHONPATH=benchmarks python -m claims` from the tables of the other pages, and a test
compares the two. Date, machine and command of each run are on the page that it links to.

- *Budget* is our training over the paper's: epochs, steps or images seen.
- A ranking by accuracy is judged only if our best model has at least {REACH:g} of the accuracy of
  the paper's best; otherwise it is not tested, and the verdict only says which order was seen. An
  accuracy by itself is not judged with less than half the budget.
- *No better than* and *as well as* hold if the difference is at most 1 point. Compression without
  retraining: a loss of up to 1 point holds, up to 3 points holds in part.
- In the rankings of Dissecting, second order and input layer, nearly equal in the paper, count as
  equal.
- With several seeds, numbers are means. Most large runs have one seed.

| claim | paper | ours | budget | seeds | verdict | run |
|---|---|---|---|---|---|---|
"""

PAPERS = {
    "Stateful ODE-Nets": STATEFUL,
    "Time-varying weights (NANODE)": NANODE,
    "Dissecting Neural ODEs": DISSECTING,
}


def page() -> str:
    """The page as it should be."""
    head, _, table = HEAD.rpartition("\n\n")
    parts = [head]
    for name, claims in PAPERS.items():
        parts.append(f"## {name}\n\n{table}" + "\n".join(claim.line() for claim in claims))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(RESULTS.parents[1])} is written.")
