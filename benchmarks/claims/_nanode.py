"""Time dependence in non-autonomous neural ODEs."""

from __future__ import annotations

from collections.abc import Sequence

from ._pages import HOLDS, NOT, UNTESTED, Claim, cell, fact, number, percents, ranking, said

TABLE1, ORDER, VIDEO = (
    "nanode.md#seven-classifiers", "nanode.md#order-of-the-weights", "nanode.md#video-moving-mnist",
)  # fmt: skip
PAPER = "accuracy (paper)"
BEST = 93.22
#: orders of the figures
RISING, ORDERS = (1, 4, 10), (4, 10)


def nanode(row: str, column: str = "test accuracy") -> float:
    return number(cell(TABLE1, row, column))


def unknown(where: str) -> str:
    images, passes = said(where, r"first ([\d,]+) training images .*? (\d+) epochs")
    return f"unknown (ours: {images:,.0f} images, {passes:.0f} epochs)"


def table1(row: str, below: Sequence[str]) -> tuple[str, str]:
    """Whether a model is above the others, by the best of the table."""
    best = max(nanode(name) for name in (row, *below))
    shown = f"{percents(nanode(row))}; others up to {percents(max(map(nanode, below)))}"
    return ranking(shown, nanode(row) > max(map(nanode, below)), best, BEST)


def theirs(row: str, below: Sequence[str]) -> str:
    high = max(nanode(name, PAPER) for name in below)
    return f"{percents(nanode(row, PAPER))}; others up to {percents(high)}"


def proportions() -> tuple[str, str]:
    names = ("Auto", "B-NANODE-10", "T-NANODE-10")
    sets = [nanode(name, "sets of weights") for name in names]
    holds = all(abs(n / p - 1) < 0.25 for n, p in zip(sets, (1, 10, 20), strict=True))
    return ", ".join(f"{n:g}" for n in sets), HOLDS if holds else NOT


def order_rises() -> tuple[str, str]:
    rows = [number(cell(ORDER, f"T-NANODE-{d}", "training accuracy")) for d in RISING]
    return ranking(percents(*rows), rows == sorted(rows), max(rows), BEST)


def smooth() -> tuple[str, str]:
    pairs = [
        [number(cell(ORDER, f"{kind}-NANODE-{d}", "test accuracy")) for kind in "TB"]
        for d in ORDERS
    ]
    best = max(max(pair) for pair in pairs)
    return ranking("; ".join(percents(*p) for p in pairs), all(t > b for t, b in pairs), best, BEST)


def growth() -> tuple[str, str]:
    where = "nanode.md#memory"
    flow, plain = (number(cell(where, row, "growth")) for row in ('Adjoint("backsolve")', "ResNet"))
    return (
        f"× {flow:g} from 1 to 200 steps; ResNet × {plain:g}",
        HOLDS if flow < 1.1 < plain else NOT,
    )


def video(where: str) -> tuple[str, str]:
    found = [number(cell(where, row, "−ELBO")) for row in ("NANODE", "SVG", "Auto")]
    order = "the same" if found == sorted(found) else "another"
    return ", ".join(f"{v:g}" for v in found), f"{UNTESTED} (budget; {order} order)"


def crossing(row: str) -> float:
    return number(cell("seeds.md#crossing", row, "mean squared error of h(x) = -x"))


def monomials() -> tuple[str, str]:
    plain, *rest = (
        number(cell("seeds.md#polynomials", row, "training loss at last"))
        for row in ("Polynomial(16)", "Legendre(16)", "Chebyshev(16)")
    )
    return fact(f"loss {plain:g}; orthogonal {max(rest):g}", plain > 2 * max(rest))


SMALL = ("Auto", "AppNODE", "Con. ResNet", "Uncon. ResNet", "B-NANODE-10")
NANODE = (
    Claim("T-NANODE-10 is above Auto, AppNODE, both ResNets and B-NANODE-10, CIFAR-10",
          theirs("T-NANODE-10", SMALL), lambda: table1("T-NANODE-10", SMALL), TABLE1,
          unknown(TABLE1)),
    Claim("one bucket per step is best of all, CIFAR-10 (100 steps; ours 20)",
          theirs("B-NANODE-20", (*SMALL, "T-NANODE-10")),
          lambda: table1("B-NANODE-20", (*SMALL, "T-NANODE-10")), TABLE1, unknown(TABLE1)),
    Claim("the same on CIFAR-100", "66.49 % (T-NANODE-10)"),
    Claim("training accuracy increases with the order (figure 1)", "orders 1 to 30", order_rises,
          ORDER, unknown(ORDER)),
    Claim("smooth weights are better than buckets at the same order (figure 2)", "orders 4 to 10",
          smooth, ORDER, unknown(ORDER)),
    Claim("activation memory does not grow with depth", "0.3 GB; ResNet 3 GB", growth,
          "nanode.md#memory"),
    Claim("memory of weights: sets for Auto, B-NANODE-10, T-NANODE-10", "1, 10, 20", proportions,
          TABLE1),
    Claim("no autonomous flow on a line maps x to −x", "cannot",
          lambda: fact(f"error {crossing('line, constant'):g}", crossing("line, constant") > 0.3),
          "seeds.md#crossing", "no run in the paper"),
    Claim("a non-autonomous flow maps x to −x, on the line", "can",
          lambda: fact(f"error {crossing('line, weights'):g}", crossing("line, weights") < 1e-3),
          "seeds.md#crossing", "no run in the paper"),
    Claim("a non-autonomous flow maps x to −x, in the plane", "can",
          lambda: fact(f"error {crossing('plane, weights'):g}", crossing("plane, weights") < 1e-3),
          "seeds.md#crossing", "no run in the paper"),
    Claim("polynomials of high order are hard to train", "–", monomials, "seeds.md#polynomials",
          "other data"),
    Claim("video, Moving MNIST: −ELBO of NANODE, SVG, Auto", "8.5e-6, 2.2e-5, 3.3e-5",
          lambda: video(VIDEO), VIDEO,
          lambda: said(VIDEO, r"([\d,]+) steps of 16")[0] / said(VIDEO, r"has ([\d,]+) steps")[0]),
    Claim("video, BAIR: −ELBO of NANODE, SVG, Auto", "7.6e-5, 9.5e-5, 9.0e-5",
          lambda: video("nanode.md#video-bair-robot-pushing"),
          "nanode.md#video-bair-robot-pushing", "two test clips"),
)  # fmt: skip
