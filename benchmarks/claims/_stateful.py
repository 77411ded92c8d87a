"""Stateful ODE-Nets."""

from __future__ import annotations

from ._pages import (
    HOLDS,
    NOT,
    PART,
    Claim,
    cell,
    fact,
    kept,
    level,
    number,
    percents,
    ranking,
    said,
)

SCHEMES = ("Euler", "Midpoint", "RK4")
CIFAR, MNIST, INTEGRATORS = "stateful.md#cifar-10", "stateful.md#mnist", "stateful.md#integrators"
TAGGING, NORMS = ("stateful.md#tagging", "stateful.md#gum"), "stateful.md#normalisation"
REFINED, EQUAL = "seeds.md#integrators-refined", "seeds.md#tagging-equal-ewt"
SEVERAL = "elastic.md#a-refined-network-on-cifar-10"
TEST = "test accuracy, 10,000 images"


def cifar(row: str) -> float:
    return number(cell(CIFAR, row, TEST))


def epochs() -> float:
    theirs, ours = said(CIFAR, r"(\d+) epochs instead of (\d+)")
    return ours / theirs


def several(row: str) -> float:
    """Half the functions and steps, three seeds."""
    return number(cell(SEVERAL, row, "K = 2, 2 steps"))


def tag_budget() -> float:
    ours, theirs = said(TAGGING[0], r"([\d,]+) steps of 64 sentences where the paper has ([\d,]+)")
    return ours / theirs


def resnet() -> tuple[str, str]:
    ours = cifar("as trained")
    plain = said(CIFAR, r"has (\d+\.\d+) % test accuracy with")[0]
    return f"{percents(ours)}; ResNet {percents(plain)}", HOLDS if plain - ours <= 1 else NOT


def norm(name: str) -> float:
    return number(cell(NORMS, name, "test"))


def norm_budget() -> float:
    images, passes = said(NORMS, r"on ([\d,]+) images of CIFAR-10 .*? (\d+) epochs each")
    return images * passes / (180 * 50_000)


def as_equation() -> tuple[str, str]:
    """The worst accuracy over steps of RK4, trained with Euler and with RK4."""
    euler, rk4 = (number(cell(INTEGRATORS, row, "with RK4")) for row in ("Euler", "RK4"))
    return (
        f"RK4 {percents(rk4)}, Euler {percents(euler)} at worst",
        HOLDS if rk4 - euler > 10 else NOT,
    )


def orders_compress() -> tuple[str, str]:
    """Half the functions kept, by the scheme of training."""
    found = [[number(cell(INTEGRATORS, row, k)) for row in SCHEMES] for k in ("(3)", "(2)")]
    return order_matters(found)


def refined_compress() -> tuple[str, str]:
    """The same for networks that were refined while training."""
    columns = ("PiecewiseConstant(3)", "PiecewiseConstant(2)")
    return order_matters([[number(cell(REFINED, row, k)) for row in SCHEMES] for k in columns])


def order_matters(found: list[list[float]]) -> tuple[str, str]:
    above = [min(higher) > euler for euler, *higher in found]
    shown = "; ".join(f"{k} of 4: {percents(*row)}" for k, row in zip((3, 2), found, strict=True))
    return f"{shown} (Euler, Midpoint, RK4)", HOLDS if all(above) else PART if any(above) else NOT


def latency() -> tuple[str, str]:
    where, row = "stateful.md#latency", "8 functions, 8 steps"
    time = number(cell(where, row, "ratio"))
    size = number(cell(where, row, "bytes")) / number(cell(where, "16 functions, 16", "bytes"))
    return f"time × {time:.2f}, bytes × {size:.2f}", HOLDS if max(time, size) < 0.6 else NOT


def tagger(where: str) -> tuple[str, str]:
    ours, plain = (number(cell(where, row, "test")) for row in ("continuous", "discrete"))
    shown = f"{percents(ours)}; discrete {percents(plain)}"
    return shown, f"{HOLDS if plain - ours <= 1 else NOT} (at this budget)"


def half_gum() -> tuple[str, str]:
    before = number(cell(TAGGING[1], "continuous", "dev"))
    return kept(before, said(TAGGING[1], r"at 16 steps: (\d+\.\d+)")[0])


STATEFUL = (
    Claim("CIFAR-10 accuracy", "94.4 %", lambda: level(cifar("as trained"), 94.4, epochs()),
          CIFAR, epochs),
    Claim("CIFAR-100 accuracy", "79.9 %"),
    Claim("a ResNet with the same number of parameters is no better, CIFAR-10",
          "93.11 %; ResNet 93.11 % (authors' code)", resnet, CIFAR, epochs),
    Claim("half the basis functions without retraining, CIFAR-10", "92.7 → 92.7 % (authors' code)",
          lambda: kept(cifar("as trained"), cifar("continua compress … --basis")), CIFAR, epochs),
    Claim("half the functions and half the steps, CIFAR-10", "92.7 → 92.0 % (authors' code)",
          lambda: kept(several("as trained"), several("projected, no data")), SEVERAL,
          lambda: said(SEVERAL, r"(\d+) epochs in")[0] / 180),
    Claim("half the basis functions without retraining, MNIST", "nearly the same",
          lambda: kept(number(cell(MNIST, "as trained", TEST)),
                       number(cell(MNIST, "… --basis 'PiecewiseConstant(4)', w", TEST))),
          MNIST, lambda: said(MNIST, r"(\d+) epochs \(")[0] / said(MNIST, r"\((\d+) at full")[0]),
    Claim("half the basis functions without retraining, tagging EWT", "nearly the same",
          lambda: kept(number(cell(TAGGING[0], "PiecewiseConstant(16)", "accuracy")),
                       number(cell(TAGGING[0], "PiecewiseConstant(8)", "accuracy"))),
          TAGGING[0], tag_budget),
    Claim("half the basis functions without retraining, tagging GUM", "nearly the same",
          half_gum, TAGGING[1], tag_budget),
    Claim("a continuous transformer tags as well as a discrete one, EWT", "not known to us",
          lambda: tagger(TAGGING[0]), TAGGING[0], tag_budget),
    Claim("a continuous transformer tags as well as a discrete one, GUM", "not known to us",
          lambda: tagger(TAGGING[1]), TAGGING[1], tag_budget),
    Claim("the same with equal depth and parameters, EWT", "not known to us",
          lambda: tagger(EQUAL), EQUAL, tag_budget),
    Claim("batch norm needs statistics over depth", "–",
          lambda: fact(f"{percents(norm('batch norm, statistics'))}; one statistic "
                       f"{percents(norm('batch norm, one'))}",
                       norm("batch norm, statistics") - norm("batch norm, one") > 10),
          NORMS, norm_budget),
    Claim("batch norm over depth is better than none with a gain (SkipInit)",
          "93.5 %; 91.9 % (authors' code)",
          lambda: ranking(percents(norm("batch norm, statistics"), norm("none, gain")),
                          norm("batch norm, statistics") > norm("none, gain"),
                          norm("batch norm, statistics"), 93.5), NORMS, norm_budget),
    Claim("networks trained with higher order behave like the differential equation",
          "RK4 87.4 %, Euler 39.9 % at worst (authors' code, Fashion-MNIST)", as_equation,
          INTEGRATORS, "other data"),
    Claim("higher-order integrators compress better", "theorem 1", orders_compress, INTEGRATORS,
          "other data"),
    Claim("the same for networks that are refined while training", "theorem 1", refined_compress,
          REFINED, "other data"),
    Claim("half the functions and steps save time and memory", "both lower", latency,
          "stateful.md#latency"),
)  # fmt: skip
