"""How well the effect of a cut is predicted, and what a budget gives.

Networks with three blocks of 8 buckets and 8 Euler steps are trained on the embedded digits: one
that was refined 1, 2, 4, 8 while training, and a plain ResNet whose stages are converted. Some
random combinations of cuts to 8, 4, 2 or 1 buckets per block are made, with statistics read again
from 512 images, and measured on the 450 test images: the error of the outputs, and the increase of
the cross entropy. Beside this stand predictions, each a sum over the blocks:

- weights: the squared relative error of the weights, in the mean of the tensors.
- first order: the gradient of the cross entropy on the 512 images (with labels) times the change.
- second order: the same plus half the Gauss-Newton form of the change.
- fisher: the squared change of the weights, times the diagonal of the Gauss-Newton matrix.
- alone: the error of the outputs on the 512 images with this block cut alone. `compress` uses this.

    python benchmarks/budget.py [--seeds 3] [--epochs 8] [--combinations 16] [--json]
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import platform
import random
import statistics
from datetime import date
from typing import Any

import torch
from torch import Tensor, nn

import continua as ct
from continua.models import continuous_net, resnet
from convert import CALIBRATION, RATE, accuracy, converted, embedded_digits, train

SIZES = (8, 4, 2, 1)
BUDGETS = (0.58, 0.35)
PREDICTIONS = ("weights", "first order", "second order", "fisher", "alone")


def network(kind: str, seed: int, epochs: int) -> nn.Module:
    torch.manual_seed(seed)
    if kind == "converted":
        return converted(train(DATA, resnet(in_channels=1, width=8, units=8), epochs, RATE))
    smooth = continuous_net(
        in_channels=1, width=8, basis=ct.PiecewiseConstant(1), solver=ct.Euler(1), epsilon=8.0
    )
    return train(DATA, smooth, epochs, RATE, (1, 2, 3))


def cut(model: nn.Module, sizes: dict[str, int], **options: Any) -> nn.Module:
    """The model with so many buckets per block; steps and statistics' bases stay."""
    own = {
        name: {"basis": ct.PiecewiseConstant(n), "state_basis": ct.PiecewiseConstant(8)}
        for name, n in sizes.items()
    }
    return ct.compress(model, per_block=own, calibrate=options.pop("calibrate", SOME), **options)


@torch.no_grad()
def outputs(model: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([model.eval()(x) for x in images.split(64)])


def gap(y: Tensor, reference: Tensor) -> float:
    return float((y - reference).square().sum() / reference.square().sum())


class Predictor:
    """Predictions for the cuts of single blocks."""

    def __init__(self, model: nn.Module):
        self.model = copy.deepcopy(model).double().eval()
        self.images, self.labels = torch.cat(SOME).double(), LABELS
        self.y = outputs(self.model, self.images)
        self.fisher = self._squares()
        self.gradient = self._gradient()

    def _squares(self) -> dict[str, Tensor]:
        """The diagonal of the Gauss-Newton matrix of the squared error, by random signs."""
        torch.manual_seed(0)
        found = {name: torch.zeros_like(p) for name, p in self.model.named_parameters()}
        for x in self.images.split(64):
            self.model.zero_grad()
            y = self.model(x)
            y.backward(torch.randint_like(y, 2) * 2 - 1)
            for name, p in self.model.named_parameters():
                found[name] += p.grad.square()
        return found

    def _gradient(self) -> dict[str, Tensor]:
        self.model.zero_grad()
        for x, labels in zip(self.images.split(64), self.labels.split(64), strict=True):
            loss = nn.functional.cross_entropy(self.model(x), labels, reduction="sum")
            (loss / len(self.images)).backward()
        return {name: p.grad.clone() for name, p in self.model.named_parameters()}

    def __call__(self, name: str, n: int) -> dict[str, float]:
        """Predictions for one block with n buckets."""
        if n == 8:
            return dict.fromkeys(PREDICTIONS, 0.0)
        small = cut(self.model, {name: n}, calibrate=None)
        same = cut(small, {name: 8}, calibrate=None)  # the same functions, as 8 buckets
        old, new = dict(self.model.named_parameters()), dict(same.named_parameters())
        change = {key: (new[key] - p).detach() for key, p in old.items()}
        moved = {key: p for key, p in change.items() if bool(p.any())}
        errors = [float((p.norm() / old[key].detach().norm()) ** 2) for key, p in moved.items()]
        first = sum(float((self.gradient[key] * p).sum()) for key, p in moved.items())
        diagonal = sum(float((self.fisher[key] * p.square()).sum()) for key, p in moved.items())
        real = ct.compress(self.model, per_block={name: _own(n)}, calibrate=self._batches())
        return {
            "weights": statistics.mean(errors),
            "first order": first,
            "second order": first + self._curvature(change) / 2,
            "fisher": diagonal,
            "alone": gap(outputs(real, self.images), self.y),
        }

    def _batches(self) -> list[Tensor]:
        return [x.double() for x in SOME]

    @torch.no_grad()
    def _curvature(self, change: dict[str, Tensor], h: float = 1e-4) -> float:
        """The Gauss-Newton form of the mean cross entropy, with the jvp by a difference."""
        for key, p in self.model.named_parameters():
            p += h * change[key]
        v = (outputs(self.model, self.images) - self.y) / h
        for key, p in self.model.named_parameters():
            p -= h * change[key]
        q = self.y.softmax(1)
        return float(((q * v.square()).sum(1) - (q * v).sum(1).square()).mean())


def _own(n: int) -> dict[str, Any]:
    return {"basis": ct.PiecewiseConstant(n), "state_basis": ct.PiecewiseConstant(8)}


def measured(kind: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Rank correlations, and rows of budgets."""
    model = network(kind, seed, options.epochs)
    names = [name for name, m in model.named_modules() if isinstance(m, ct.ODEBlock)]
    reference = outputs(model, TEST)
    before = float(nn.functional.cross_entropy(reference, DATA.test_labels))
    predict = Predictor(model)
    alone = {(name, n): predict(name, n) for name in names for n in SIZES}
    every = list(itertools.product(SIZES, repeat=len(names)))[1:]  # the first cuts nothing
    some = random.Random(seed).sample(every, options.combinations)
    errors, losses = [], []
    for sizes in some:
        y = outputs(cut(model, dict(zip(names, sizes, strict=True))), TEST)
        errors.append(gap(y, reference))
        losses.append(float(nn.functional.cross_entropy(y, DATA.test_labels)) - before)
    found: dict[str, Any] = {"accuracy": accuracy(DATA, model), "correlation": {}, "points": {}}
    for prediction in PREDICTIONS:
        values = [
            sum(alone[name, n][prediction] for name, n in zip(names, sizes, strict=True))
            for sizes in some
        ]
        found["correlation"][prediction] = [spearman(values, errors), spearman(values, losses)]
        found["points"][prediction] = values
    found["points"] |= {"measured error": errors, "measured loss": losses}
    found["rows"] = rows(model, names, reference)
    return found


def rows(model: nn.Module, names: list[str], reference: Tensor) -> dict[str, list[float]]:
    """Share of parameters, error of the outputs and accuracy of some smaller models."""
    whole = sum(p.numel() for p in model.parameters())
    made = {
        f"{n} buckets in every block{f', {w}' if w else ''}": cut(
            model, dict.fromkeys(names, n), weight=w
        )
        for n in (4, 1)
        for w in (None, "activation", "fisher")
    }
    for budget in BUDGETS:
        made[f"budget={budget}"] = ct.compress(model, budget=budget, calibrate=SOME)
    return {
        name: [
            sum(p.numel() for p in small.parameters()) / whole,
            gap(outputs(small, TEST), reference),
            accuracy(DATA, small),
        ]
        for name, small in made.items()
    }


def spearman(a: list[float], b: list[float]) -> float:
    """The correlation of ranks."""
    ranks = [torch.tensor(x).argsort().argsort().double() for x in (a, b)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--combinations", type=int, default=16)
    parser.add_argument("--kinds", nargs="+", default=["refined", "converted"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for kind in options.kinds:
        every = [measured(kind, seed, options) for seed in range(options.seeds)]
        if options.json:
            facts = {"date": str(date.today()), "machine": platform.machine(), **vars(options)}
            print(json.dumps({**facts, "torch": torch.__version__, "kind": kind, "found": every}))
            continue
        whole = _told([100 * one["accuracy"] for one in every])
        print(f"{kind}, test accuracy {whole} %, seeds 0 to {options.seeds - 1}")
        print("rank correlation with: error of the outputs, increase of the cross entropy")
        for name in PREDICTIONS:
            pairs = zip(*(one["correlation"][name] for one in every), strict=True)
            print(f"  {name:<40}", *(_told(list(values)) for values in pairs), sep="   ")
        print("share of parameters, error of the outputs, test accuracy")
        for name in every[0]["rows"]:
            share, error, right = zip(*(one["rows"][name] for one in every), strict=True)
            percent = _told([100 * value for value in right])
            print(f"  {name:<40}", _told(list(share)), _told(list(error)), percent, sep="   ")


def _told(values: list[float]) -> str:
    each = " ".join(f"{value:.4f}" for value in values)
    return f"{statistics.mean(values):.4f} ({each})"


DATA = embedded_digits()
SOME = DATA.images[:CALIBRATION].split(64)
LABELS = DATA.labels[:CALIBRATION]
TEST = DATA.test_images

if __name__ == "__main__":
    main()
