"""What becomes of a trained residual network that is converted and then made smaller.

The plain ResNet of 8 units per stage is trained on the embedded digits, its stages are converted to
blocks, and these are compressed, as they are and with a little training afterwards. Beside it the
ContinuousNet that was refined 1, 2, 4, 8 while training as long. Accuracies on the 450 test images.

    python benchmarks/convert.py [--seeds 3] [--epochs 8] [--after 2] [--json]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from datetime import date

import torch
from torch import nn

import continua as ct
from continua.data import load
from continua.models import continuous_net, resnet

RATE, RATE_AFTER = 0.05, 0.02


def train(model: nn.Module, epochs: int, rate: float, doublings: tuple[int, ...] = ()) -> nn.Module:
    """Some epochs with one cycle of the learning rate, refined before some of them."""
    images, labels = DIGITS.prepared(DIGITS.train.inputs), DIGITS.train.targets
    batches = -(-len(images) // 64)

    def schedule(step: int) -> float:
        done = step / (epochs * batches)
        return min(4 * done, 4 * (1 - done) / 3)

    step = 0
    for epoch in range(epochs):
        if epoch in doublings:
            model = ct.refine(model)
        if epoch == 0 or epoch in doublings:
            optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, weight_decay=5e-4)
        model.train()
        for rows in torch.randperm(len(images)).split(64):
            for group in optimizer.param_groups:
                group["lr"] = rate * schedule(step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
            step += 1
    return model


@torch.inference_mode()
def accuracy(model: nn.Module) -> float:
    model.eval()
    found = model(DIGITS.prepared(DIGITS.test.inputs)).argmax(1)
    return float((found == DIGITS.test.targets).float().mean())


def converted(net: nn.Module) -> nn.Module:
    for name, child in net.named_children():
        if name.startswith("stage"):
            setattr(net, name, ct.convert(child))
    return net


def measured(seed: int, epochs: int, after: int) -> dict[str, float]:
    """The accuracies of one seed."""
    torch.manual_seed(seed)
    net = train(resnet(in_channels=1, width=8, units=8), epochs, RATE)
    found = {"ResNet, 8 units": accuracy(net)}
    net = converted(net)
    found["converted, 8 functions"] = accuracy(net)
    smooth = continuous_net(
        in_channels=1, width=8, basis=ct.PiecewiseConstant(1), solver=ct.Euler(1), epsilon=8.0
    )
    smooth = train(smooth, epochs, RATE, tuple(range(1, 4)))
    for name, source in (("converted", net), ("refined while training", smooth)):
        if source is smooth:
            found[f"{name}, 8 functions"] = accuracy(source)
        for size in (4, 2):
            small = ct.compress(source, ct.PiecewiseConstant(size), steps=size)
            found[f"{name}, {size} functions"] = accuracy(small)
            trained = train(small, after, RATE_AFTER)
            found[f"{name}, {size} functions, {after} epochs after"] = accuracy(trained)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--after", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    every = [measured(seed, options.epochs, options.after) for seed in range(options.seeds)]
    rows = {name: [one[name] for one in every] for name in every[0]}
    if options.json:
        facts = {"date": str(date.today()), "machine": platform.machine(), **vars(options)}
        print(json.dumps({**facts, "torch": torch.__version__, "rows": rows}))
        return
    print(f"test accuracy on digits, seeds 0 to {options.seeds - 1}, torch {torch.__version__}")
    for name, values in rows.items():
        each = " ".join(f"{100 * value:6.2f}" for value in values)
        print(f"{name:<52}{100 * statistics.mean(values):6.2f} %   ({each})")


DIGITS = load("digits")

if __name__ == "__main__":
    main()
