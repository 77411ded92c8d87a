"""What becomes of a trained residual network that is converted and then made smaller.

The plain ResNet of 8 units per stage is trained, its stages are converted to blocks, and these are
compressed: projected, with statistics read again, fitted from 512 images without labels, on digits
also after `align`; healed without labels, or trained a little with labels. Beside it stand networks
with every second layer dropped, or with those dropped whose absence changes the output least. The
ContinuousNet that was refined 1, 2, 4, 8 while training as long gets the same without `align`, on
digits alone. Accuracies on all test images.

    python benchmarks/convert.py [--seeds 0 1 2] [--epochs 8] [--after 2] [--steps 200]
                                 [--sizes 4 2] [--sources converted] [--json]
    python benchmarks/convert.py --data cifar10 --root FOLDER --runs RUNS --epochs 10
                                 --after 1 --steps 1000 --sizes 4 --sources converted

CIFAR-10 is taken at 16x16, with bfloat16 in training and in `heal`; inputs without labels are moved
and mirrored as in training. Trained networks are kept in RUNS.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import statistics
import time
from datetime import date
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

import continua as ct
from continua.data import augmented, load
from continua.models import continuous_net, resnet

RATE = 0.05
AFTER = 0.4  #: the learning rate of what is trained again, of the first
CALIBRATION = 512  #: images without labels


class Data(NamedTuple):
    """Images as a network takes them, their labels, and how a network learns from them."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    batch: int = 64
    rate: float = RATE
    moved: int = 0  #: by up to so many pixels, and mirrored, in training

    def seen(self, rows: Tensor) -> Tensor:
        """Images as the training shows them."""
        x = self.images[rows]
        if not self.moved:
            return x
        x = augmented(x, torch.default_generator, self.moved)
        return x.contiguous(memory_format=torch.channels_last)

    def unlabelled(self, count: int) -> list[Tensor]:
        """The first images, in batches."""
        return [self.seen(rows) for rows in torch.arange(count).split(64)]


def embedded_digits() -> Data:
    found = load("digits")
    train, test = found.train, found.test
    return Data(
        found.prepared(train.inputs), train.targets, found.prepared(test.inputs), test.targets
    )


def cifar10(options: argparse.Namespace) -> Data:
    """CIFAR-10 at 16x16: the first training images, and all test images."""
    found = load("cifar10", folder=options.root)
    train, test = found.train, found.test
    n = options.samples
    small = [
        nn.functional.avg_pool2d(found.prepared(x), 2) for x in (train.inputs[:n], test.inputs)
    ]
    return Data(small[0], train.targets[:n], small[1], test.targets, 128, 0.1, 2)


def train(
    data: Data, model: nn.Module, epochs: int, rate: float, doublings: tuple[int, ...] = ()
) -> nn.Module:
    """Some epochs with one cycle of the learning rate, refined before some of them."""
    batches = -(-len(data.images) // data.batch)

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
        for rows in torch.randperm(len(data.images)).split(data.batch):
            for group in optimizer.param_groups:
                group["lr"] = rate * schedule(step)
            optimizer.zero_grad()
            with mixed(data):
                loss = nn.functional.cross_entropy(model(data.seen(rows)), data.labels[rows])
            loss.backward()
            optimizer.step()
            step += 1
    return model


def mixed(data: Data) -> torch.autocast:
    """bfloat16 on CIFAR-10."""
    return torch.autocast("cpu", torch.bfloat16, enabled=data.moved > 0)


@torch.inference_mode()
def accuracy(data: Data, model: nn.Module) -> float:
    model.eval()
    found = torch.cat([model(x).argmax(1) for x in data.test_images.split(500)])
    return float((found == data.test_labels).float().mean())


def converted(net: nn.Module) -> nn.Module:
    for name, child in net.named_children():
        if name.startswith("stage"):
            setattr(net, name, ct.convert(child))
    return net


def dropped(net: nn.Module, kept: dict[str, list[int]]) -> nn.Module:
    """The plain network with some layers of each stage."""
    net = copy.deepcopy(net)
    for name, layers in kept.items():
        stage = list(net.get_submodule(name))
        setattr(net, name, nn.Sequential(*(stage[i] for i in layers)))
    return net


@torch.inference_mode()
def by_influence(net: nn.Module, size: int, images: torch.Tensor) -> dict[str, list[int]]:
    """The layers of each stage without which the output changes most."""
    net.eval()
    target, kept = net(images), {}
    for name, stage in net.named_children():
        if name.startswith("stage"):
            others = [[j for j in range(len(stage)) if j != i] for i in range(len(stage))]
            changes = [(dropped(net, {name: some})(images) - target).norm() for some in others]
            kept[name] = sorted(torch.stack(changes).topk(size).indices.tolist())
    return kept


def without_labels(data: Data, source: nn.Module, size: int, steps: int) -> dict[str, float]:
    """Accuracies of a network made smaller, with seconds for what takes some."""
    some = data.unlabelled(CALIBRATION)
    basis = ct.PiecewiseConstant(size)
    found = {"project": accuracy(data, ct.compress(source, basis, steps=size))}
    found["+ statistics"] = accuracy(data, ct.compress(source, basis, steps=size, calibrate=some))
    start = time.process_time()
    small = ct.compress(source, basis, steps=size, method="fit", calibrate=some)
    found["fit, seconds"] = time.process_time() - start
    found["fit"] = accuracy(data, small)
    start = time.process_time()
    with mixed(data):
        healed = ct.heal(small, source, data.unlabelled(len(data.images)), steps=steps)
    found["fit + heal, seconds"] = time.process_time() - start
    found["fit + heal"] = accuracy(data, healed)
    return found


def after_align(data: Data, source: nn.Module, size: int) -> dict[str, float]:
    """Accuracies of a network made smaller after its channels were put in order."""
    some = data.unlabelled(CALIBRATION)
    start = time.process_time()
    aligned = ct.align(source)
    found = {"align, seconds": time.process_time() - start, "aligned": accuracy(data, aligned)}
    fallen = 1 - ct.smoothness(aligned).item() / ct.smoothness(source).item()
    found["aligned, smoothness fallen by"] = fallen
    choice = {"basis": ct.PiecewiseConstant(size), "steps": size}
    found["aligned, project"] = accuracy(data, ct.compress(aligned, **choice))
    found["aligned, + statistics"] = accuracy(data, ct.compress(aligned, **choice, calibrate=some))
    fitted = ct.compress(aligned, **choice, method="fit", calibrate=some)
    return found | {"aligned, fit": accuracy(data, fitted)}


def measured(seed: int, options: argparse.Namespace) -> dict[str, float]:
    """The accuracies of one seed."""
    torch.manual_seed(seed)
    epochs, after = options.epochs, options.after
    if options.data == "digits":
        data = embedded_digits()
        plain = train(data, resnet(in_channels=1, width=8, units=8), epochs, data.rate)
    else:
        data = cifar10(options)
        plain = resnet(units=8).to(memory_format=torch.channels_last)
        file = options.runs / f"{options.samples}-{epochs}-{seed}.safetensors"
        if not file.exists():
            options.runs.mkdir(parents=True, exist_ok=True)
            start = time.process_time()
            train(data, plain, epochs, data.rate)
            print(f"trained in {time.process_time() - start:.0f} s", flush=True)
            save_model(plain, file)
        load_model(plain, file)
    found = {"ResNet, 8 units": accuracy(data, plain)}
    net = converted(copy.deepcopy(plain))
    found["converted, 8 functions"] = accuracy(data, net)
    sources = {"converted": net}
    if "refined" in options.sources and options.data == "digits":
        smooth = continuous_net(
            in_channels=1, width=8, basis=ct.PiecewiseConstant(1), solver=ct.Euler(1), epsilon=8.0
        )
        smooth = train(data, smooth, epochs, data.rate, tuple(range(1, 4)))
        found["refined while training, 8 functions"] = accuracy(data, smooth)
        sources["refined while training"] = smooth
    some = data.unlabelled(CALIBRATION)
    stages = [name for name, _ in plain.named_children() if name.startswith("stage")]
    for size in options.sizes:
        even = {name: list(range(0, 8, 8 // size)) for name in stages}
        chosen = by_influence(plain, size, torch.cat(some))
        for way, kept in (("evenly", even), ("by influence", chosen)):
            name, small = f"layers dropped {way}, {size} kept", dropped(plain, kept)
            found[name] = accuracy(data, small)
            found[f"{name}, + statistics"] = accuracy(data, ct.recalibrate(small, some))
            found[f"{name}, {after} epochs after"] = accuracy(
                data, train(data, small, after, AFTER * data.rate)
            )
        aligned = after_align(data, net, size) if options.data == "digits" else {}
        found |= {f"converted, {size} functions, {label}": v for label, v in aligned.items()}
        for name, source in sources.items():
            for label, value in without_labels(data, source, size, options.steps).items():
                found[f"{name}, {size} functions, {label}"] = value
            if options.data != "digits":
                continue
            small = ct.compress(source, ct.PiecewiseConstant(size), steps=size)
            trained = train(data, small, after, AFTER * data.rate)
            found[f"{name}, {size} functions, {after} epochs after"] = accuracy(data, trained)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=("digits", "cifar10"), default="digits")
    parser.add_argument("--root", type=Path, help="where CIFAR-10 is")
    parser.add_argument("--runs", type=Path, default=Path("runs/convert"), help="of CIFAR-10")
    parser.add_argument("--samples", type=int, default=20000, help="of CIFAR-10")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--after", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200, help="of heal")
    parser.add_argument("--sizes", type=int, nargs="*", default=[4, 2])
    parser.add_argument("--sources", nargs="*", default=["converted", "refined"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    every = [measured(seed, options) for seed in options.seeds]
    rows = {name: [one[name] for one in every] for name in every[0]}
    if options.json:
        facts = {"date": str(date.today()), "machine": platform.machine(), **vars(options)}
        print(json.dumps({**facts, "torch": torch.__version__, "rows": rows}, default=str))
        return
    print(f"test accuracy on {options.data}, seeds {options.seeds}, torch {torch.__version__}")
    for name, values in rows.items():
        unit, scale = ("s", 1) if name.endswith("seconds") else ("%", 100)
        each = " ".join(f"{scale * value:6.2f}" for value in values)
        print(f"{name:<56}{scale * statistics.mean(values):6.2f} {unit}   ({each})")


if __name__ == "__main__":
    main()
