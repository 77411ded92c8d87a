"""Dissecting neural ODEs."""

from __future__ import annotations

import statistics

from ._pages import HOLDS, NOT, PART, Claim, cell, every, fact, number, percents, ranking, said

TABLE1 = {"MNIST": "dissecting.md#mnist", "CIFAR-10": "dissecting.md#cifar-10"}
ROWS = ("second order", "input layer", "0-augmented", "vanilla")
#: where the evaluations are: of the trained model, or the mean over training
NFE = {"MNIST": "NFE, trained model", "CIFAR-10": "NFE forward"}


def column(data: str, name: str) -> list[float]:
    return [number(cell(TABLE1[data], row, name)) for row in ROWS]


def accuracy(data: str) -> tuple[str, str]:
    """Input layer and second order, nearly equal in the paper, then 0-augmented, then vanilla."""
    ours = column(data, "test accuracy")
    holds = min(ours[:2]) > ours[2] > ours[3]
    return ranking(percents(*ours), holds, max(ours), max(column(data, "paper: accuracy")))


def evaluations(data: str) -> tuple[str, str]:
    """The order of the evaluations, with the same exception, judged with the accuracies."""
    ours, paper = column(data, NFE[data]), column(data, "paper: NFE")
    fewer = [found[2] < found[3] for found in (ours, paper)]
    holds = max(ours[:2]) < min(ours[2:]) and fewer[0] == fewer[1]
    best = max(column(data, "test accuracy")) / max(column(data, "paper: accuracy"))
    shown = ", ".join(f"{value:g}" for value in ours)
    return ranking(shown, holds, best, 1.0)


def share(data: str) -> float:
    """Images seen over those of 20 epochs."""
    (steps,) = said(TABLE1[data], r"(\d+) steps")
    images = 60_000 if data == "MNIST" else 50_000
    (batch,) = said("dissecting.md#augmentation-of-image-classifiers", r"batches of (\d+)")
    return steps * batch / (20 * images)


def reflection() -> tuple[str, str]:
    rows = ("vanilla", "depth-concat", "data-controlled")
    found = [number(cell("seeds.md#reflection", row, "mean squared error")) for row in rows]
    return fact(", ".join(f"{v:g}" for v in found), min(found[:2]) > 0.3 and found[2] < 1e-3)


def annuli() -> tuple[str, str]:
    rows = ("vanilla", "depth-concat", "Galerkin", "data-controlled")
    found = [
        number(cell("dissecting.md#annuli", row, "held-out accuracy, 512 points")) for row in rows
    ]
    return fact(percents(*found), min(found) > 95)


def both() -> tuple[str, str]:
    where, name = "seeds.md#galerkin-stacked", "held-out accuracy"
    found = [number(cell(where, row, name)) for row in ("Galerkin", "stacked")]
    return fact(percents(*found), min(found) > 95)


def tracking() -> tuple[str, str]:
    (distance,) = max(every("seeds.md#tracking", r"stays (0\.\d+)"))
    return fact(f"distance {distance:g} from the circle of radius 1", distance < 0.05)


def superfluous() -> tuple[str, str]:
    """By the mean over seeds of what the flow adds."""
    found = every("seeds.md#input-network", r"(\d+\.\d+) % with the flow and (\d+\.\d+) % without")
    added = statistics.fmean(whole - without for whole, without in found)
    verdict = HOLDS if added < 5 else PART if added < 20 else NOT
    whole, without = (percents(*each) for each in zip(*found, strict=True))
    return f"{whole}; without the flow {without}", verdict


def swapped() -> tuple[str, str]:
    where, name = "seeds.md#conditional-flow", "negative log-likelihood"
    ours, plain = (number(cell(where, row, name)) for row in ("by the prior", "unconditional"))
    return fact(f"nats: {ours:g}; unconditional {plain:g}", ours < 0.5 < plain)


def functional() -> tuple[str, str]:
    """By the final losses of the largest basis of every family."""
    where, rows = "seeds.md#functional-gradient", (("buckets", 3), ("Fourier", 2), ("monomials", 2))

    def factor(name: str) -> float:
        found = [number(cell(where, row, name, skip)) for row, skip in rows]
        return max(found) / min(found)

    whole, plain = factor("loss, functional"), factor("loss, plain")
    shown = f"final losses within a factor of {whole:.2f}; plain {plain:.2f}"
    return fact(shown, whole < 1.5 < plain)


def adaptive() -> tuple[str, str]:
    (error,) = max(every("seeds.md#adaptive-depth", r"squared error is ([\d.]+(?:e-\d+)?)"))
    return fact(f"error {error:g}", error < 1e-3)


def proposition() -> tuple[str, str]:
    error = said("dissecting.md#reflection", r"holds to (\d+e-\d+)")[0]
    return fact(f"to {error:g}", error < 1e-6)


def paper(data: str, name: str, unit: str = "") -> str:
    return ", ".join(f"{value:g}{unit}" for value in column(data, name))


NAMES = "second order, input layer, 0-augmented, vanilla"
DISSECTING = (
    *(Claim(f"ranking by accuracy, {data}: {NAMES}", paper(data, "paper: accuracy", " %"),
            lambda data=data: accuracy(data), TABLE1[data], lambda data=data: share(data))
      for data in TABLE1),
    *(Claim(f"ranking by evaluations, {data}: {NAMES}", paper(data, "paper: NFE"),
            lambda data=data: evaluations(data), TABLE1[data], lambda data=data: share(data))
      for data in TABLE1),
    Claim("x → −x: neither vanilla nor depth-concat learns it, data-control does", "figure",
          reflection, "seeds.md#reflection", "full"),
    Claim("proposition 2: z(1) = −x + 2x·exp(−θ)", "exact", proposition,
          "dissecting.md#reflection"),
    Claim("x → −x with a depth per sample (figure 5)", "figure", adaptive,
          "seeds.md#adaptive-depth",
          lambda: said("dissecting.md#adaptive-depth", r"([\d,]+) steps, full")[0]
          / said("dissecting.md#adaptive-depth", r"full: ([\d,]+)")[0]),
    Claim("annuli without augmentation: vanilla, depth-concat, Galerkin, data-controlled", "figure",
          annuli, "dissecting.md#annuli", "other settings"),
    Claim("Galerkin and stacked flows solve a binary classification", "figure", both,
          "seeds.md#galerkin-stacked", "other data"),
    Claim("an integral loss alone makes a flow follow a signal beyond the trained depth", "figure",
          tracking, "seeds.md#tracking",
          lambda: said("dissecting.md#tracking-a-signal", r"with (\d+) initial states")[0]
          / said("dissecting.md#tracking-a-signal", r"code has ([\d,]+)")[0]),
    Claim("two nonlinear layers before a flow make it superfluous", "figure", superfluous,
          "seeds.md#input-network", "not known"),
    Claim("a data-controlled flow swaps two densities on a line", "figure", swapped,
          "seeds.md#conditional-flow", "not known"),
    Claim("theorem 1: descent on functions of depth, whatever the basis", "theorem", functional,
          "seeds.md#functional-gradient", "no run in the paper"),
)  # fmt: skip
