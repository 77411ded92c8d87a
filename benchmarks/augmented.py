"""What a training step of the augmented classifiers costs, and why the 0-augmented one costs most.

Table 1 of Dissecting Neural ODEs, MNIST: each kind is trained for a few steps of 16 images. Then
one batch is differentiated by every gradient: evaluations forward and backward, seconds of process
time, and the error relative to `Checkpoint` in float64 at tolerances of 1e-8. The 0-augmented model
is trained once more with other values of eps in its group norms, which divide the zeros by
sqrt(variance + eps); the sizes of the steps show where the flow is hard to follow. One seed.

With `--cheaper` each kind is differentiated by `Backprop` alone, as it is and with coarser
tolerances, in bfloat16, and channels-last.

    python benchmarks/augmented.py --root FOLDER [--steps 24] [--cheaper]
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import continua as ct
from continua.data import load
from continua.models import augmented_classifier

WIDTHS = {"zero": 32, "second-order": 32, "input-layer": 32, "vanilla": 48}
GRADIENTS = (ct.Adjoint(), ct.Adjoint("backsolve"), ct.Checkpoint(), ct.Backprop())
EPS = (1e-5, 1e-3, 1e-1)
TOLERANCES = (1e-4, 1e-3, 1e-2)


def trained(kind: str, x: Tensor, y: Tensor, steps: int, eps: float = 1e-5) -> nn.Module:
    torch.manual_seed(0)
    net = augmented_classifier(kind=kind, in_channels=1, width=WIDTHS[kind], gradient=ct.Backprop())
    for norm in (m for m in net.modules() if isinstance(m, nn.GroupNorm)):
        norm.eps = eps
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=5e-4)
    for _ in range(steps):
        rows = torch.randint(len(x), (16,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    return net


def gradient(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    net.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    return torch.cat([p.grad.flatten() for p in net.parameters()])


def true_gradient(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    exact = copy.deepcopy(net).double()
    exact.block.solver, exact.block.gradient = ct.Dopri8(1e-8, 1e-8), ct.Checkpoint()
    return gradient(exact, x.double(), y)


def row(kind: str, name: str, net: nn.Module, truth: Tensor, x: Tensor, y: Tensor) -> None:
    """Differentiate once, and print what it cost."""
    started = time.process_time()
    found = gradient(net, x, y)
    seconds, stats = time.process_time() - started, net.block.stats
    backward = 0 if stats.backward is None else stats.backward.evaluations
    error = float((found - truth).norm() / truth.norm())
    print(
        f"{kind:<14}{name:<32}forward {stats.evaluations:>4}  backward {backward:>4}  "
        f"{seconds:5.2f} s  error {error:.1e}",
        flush=True,
    )


def cheaper(kind: str, net: nn.Module, truth: Tensor, x: Tensor, y: Tensor) -> None:
    """The same gradient with coarser steps and other formats."""
    for tolerance in TOLERANCES:
        net.block.solver = ct.Dopri5(tolerance, tolerance)
        row(kind, f"tolerance {tolerance:g}", net, truth, x, y)
        with torch.autocast("cpu", torch.bfloat16):
            row(kind, f"tolerance {tolerance:g}, bfloat16", net, truth, x, y)
    net.block.solver = ct.Dopri5(1e-4, 1e-4)
    last = torch.channels_last
    # The image asks for a gradient, because torch 2.13 crashes where only weights do.
    x = x.contiguous(memory_format=last).requires_grad_()
    row(kind, "channels-last", copy.deepcopy(net).to(memory_format=last), truth, x, y)


def hard_flow(x: Tensor, y: Tensor, steps: int) -> None:
    """The 0-augmented model with other values of eps."""
    for eps in EPS:
        net = trained("zero", x, y, steps, eps)
        net.block.gradient = ct.Adjoint()
        gradient(net, x[:16], y[:16])
        stats = net.block.stats
        sizes = ", ".join(f"{h:.3f}" for h in stats.step_sizes)
        print(
            f"zero, eps={eps:g}: forward {stats.evaluations}, backward "
            f"{stats.backward.evaluations}, steps of {sizes}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="the folder of MNIST")
    parser.add_argument("--steps", type=int, default=24, help="of training before measuring")
    parser.add_argument("--cheaper", action="store_true", help="coarser steps, other formats")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load("mnist", folder=options.root, validation=0.0)
    x, y = data.prepared(data.train.inputs[:2048]), data.train.targets[:2048]
    for kind in WIDTHS:
        net = trained(kind, x, y, options.steps)
        truth = true_gradient(net, x[:16], y[:16])
        if options.cheaper:
            cheaper(kind, net, truth, x[:16], y[:16])
            continue
        for method in GRADIENTS:
            net.block.gradient = method
            row(kind, repr(method), net, truth, x[:16], y[:16])
    if not options.cheaper:
        hard_flow(x, y, options.steps)


if __name__ == "__main__":
    main()
