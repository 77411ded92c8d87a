"""The models of NANODE's image studies: one recipe, and what makes it one row or another."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace

import torch
from torch import nn

import continua as ct
from continua.basis import Point, sample
from continua.train import Training, evaluate, read_history

from .._image_setup import ImageSetup
from .._output import csv_text
from .._parse import parse_basis, parse_solver
from .._recipe import Recipe
from .._run import Run
from .._setup import Scale
from .._study import Circumstances

#: layers of the residual networks, whatever the steps of the flows
LAYERS = 10


def trigonometric(order: int) -> str:
    """The basis of T-NANODE: whole frequencies on a depth from 0 to 1."""
    return f"Fourier({order}, period={2 * math.pi!r})"


def setup_of(data: str, widths: tuple[int, ...], steps: int, training: Training) -> ImageSetup:
    """T-NANODE-10, of which the other rows differ by settings."""
    return ImageSetup(
        data=data, validation=0.0, model="residual_flow", widths=widths, basis=trigonometric(10),
        solver=f"AsynchronousLeapfrog(steps={steps})", gradient="Reversible()", training=training,
        channels_last=True,
    )  # fmt: skip


#: the paper states no course; this one is ours
FULL = Training(
    epochs=100, batch_size=128, optimizer="sgd", learning_rate=0.1, weight_decay=5e-4,
    schedule="cosine", warmup=2, clip=1.0,
)  # fmt: skip
LAPTOP = Training(
    epochs=6, batch_size=32, optimizer="adamw", learning_rate=3e-3, weight_decay=5e-4,
    schedule="one-cycle", warmup=1, clip=1.0,
)  # fmt: skip
NIGHT = replace(LAPTOP, epochs=15, batch_size=256, learning_rate=4e-3)
SMOKE = replace(
    setup_of("digits", (8, 12), 4, replace(LAPTOP, epochs=2, epoch_steps=2, batch_size=16)),
    samples=64, held_out=64,
)  # fmt: skip

IMAGES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
RECIPES = tuple(
    Recipe(
        f"nanode/{data}",
        f"{name} by T-NANODE-10; basis=, solver=, epsilon= and append_time= make it another row",
        {
            "smoke": SMOKE,
            "laptop": replace(
                setup_of(data, (16, 32, 64), 20, LAPTOP), samples=4_000, held_out=2_000
            ),
            # The cheapest flows that we found, for more images and epochs (benchmarks/steps.py).
            # Euler's are the steps of the paper's equation.
            "night": replace(
                setup_of(data, (32, 64), 20, NIGHT), solver="Euler(steps=20)",
                gradient="Backprop()", stem_stride=4, mirror=True, channels_last=False,
                samples=20_000,
            ),
            "full": replace(setup_of(data, (64, 128, 212), 100, FULL), pad=4, mirror=True),
        },
        {
            "smoke": "seconds, on the embedded digits",
            "laptop": "ten minutes on two cores",
            "night": "three minutes of one core",
            "full": "use a GPU",
        },
    )
    for data, name in IMAGES.items()
)  # fmt: skip
cifar10, cifar100 = RECIPES


@dataclass(frozen=True)
class Row:
    """One of the models.

    Attributes:
        name: as the paper writes it.
        basis: of its weights over depth.
        residual: whether it is a residual network of ten layers, by back-propagation, and not a
            flow with reversible steps.
        append_time: whether its convolutions see the depth.
    """

    name: str
    basis: str
    residual: bool = False
    append_time: bool = False

    @property
    def folder(self) -> str:
        """Where its run lies."""
        return self.name.lower().replace(". ", "-").replace(" ", "-")

    def settings(self) -> list[str]:
        """What changes a recipe of the flow into this row."""
        out = [f"basis={self.basis}", f"append_time={str(self.append_time).lower()}"]
        if self.residual:
            out += [f"solver=Euler(steps={LAYERS})", f"epsilon={LAYERS}.0", "gradient=Backprop()"]
        return out


AUTO = Row("Auto", "Constant()")
APPENDED = Row("AppNODE", "Constant()", append_time=True)
CONSTRAINED = Row("Con. ResNet", "Constant()", residual=True)
UNCONSTRAINED = Row("Uncon. ResNet", f"PiecewiseConstant({LAYERS})", residual=True)


def bucketed(size: int) -> Row:
    """B-NANODE with so many buckets."""
    return Row(f"B-NANODE-{size}", f"PiecewiseConstant({size})")


def waves(order: int) -> Row:
    """T-NANODE of this order."""
    return Row(f"T-NANODE-{order}", trigonometric(order))


def steps_of(recipe: Recipe, scale: Scale) -> int:
    """L, the steps of its flows."""
    steps = parse_solver(recipe.scales[scale].config()["solver"]).steps
    assert steps is not None
    return steps


@dataclass(frozen=True)
class Trained:
    """What one training came to.

    Attributes:
        row: the name of the model.
        seed: of the training.
        parameters: how many.
        accuracy: on the test images; None if the training diverged.
        train_accuracy: on the training images, as they are; None if not asked for.
        seconds: per step.
        saved: bytes that autograd keeps of one training step.
        weights: bytes of the parameters.
        samples: test images.
        functions: sets of weights in the flows, one for each function of the basis.
    """

    row: str
    seed: int
    parameters: int | None = None
    accuracy: float | None = None
    train_accuracy: float | None = None
    seconds: float | None = None
    saved: int | None = None
    weights: int | None = None
    samples: int | None = None
    functions: int | None = None


def train(
    here: Circumstances, recipe: Recipe, row: Row, *, train_part: bool = False
) -> tuple[Run | None, Trained]:
    """Train a row, and measure it; a training that diverged has no run."""
    try:
        run, result = here.train(recipe, f"{row.folder}-{here.seed}", row.settings())
    except ct.SolveError:
        return None, Trained(row.name, here.seed)
    model = run.model()
    last = read_history(run.folder)[-1]
    dataset, task = run.load()
    shape = tuple(dataset.train.inputs.shape[1:])
    return run, Trained(
        row.name,
        here.seed,
        result["parameters"],
        result["test"]["accuracy"],
        evaluate(model, task, "train")["accuracy"] if train_part else None,
        last["seconds"] / last["step"],
        activations(model, shape, run.setup.training.batch_size),
        sum(p.numel() * p.element_size() for p in model.parameters()),
        result["test_samples"],
        last["functions"],
    )


def activations(model: nn.Module, shape: Sequence[int], batch: int) -> int:
    """The bytes that autograd keeps of a training step with so many images.

    Flows are counted with reversible steps, however they were trained. The bytes are affine in the
    batch: two small ones tell.
    """
    model = copy.deepcopy(model).train()
    flows = [m for m in model.modules() if isinstance(m, ct.ODEBlock) and m.span == (0.0, 1.0)]
    for block in flows:
        assert block.solver.steps is not None
        block.solver = ct.AsynchronousLeapfrog(steps=block.solver.steps)
    gradient = ct.Reversible() if flows else ct.Backprop()
    one, two = (
        ct.memory(model, torch.zeros(n, *shape), methods=[gradient]).rows[0].saved for n in (1, 2)
    )
    return one + (two - one) * (batch - 1)


def setting(recipe: Recipe, scale: Scale) -> str:
    """The data and the course, in words."""
    setup = recipe.scales[scale].config()
    course = recipe.scales[scale].training
    taken = {"training": setup["samples"], "test": setup["held_out"]}
    images = {
        part: f"all {part} images" if n is None else f"the first {n:,} {part} images"
        for part, n in taken.items()
    }
    done = [f"shifted by up to {setup['pad']} pixels"] if setup["pad"] else []
    done += ["mirrored at random"] if setup["mirror"] else []
    augmented = " and ".join(done) or "without data augmentation"
    steps = "" if course.epoch_steps is None else f" of {course.epoch_steps} steps"
    stride = setup["stem_stride"]
    stem = "" if stride == 1 else f"The first convolution has stride {stride}. "
    solver = type(parse_solver(setup["solver"])).__name__
    exact = ", which gives the exact gradient of the discrete flow at a memory that does not grow"
    gradient = {
        "Reversible()": f"`Reversible()`{exact} with the steps",
        "Backprop()": "`Backprop()`; activations are counted with as many reversible steps",
    }[setup["gradient"]]
    return (
        f"{setup['data']}: {images['training']} {augmented}, {course.epochs} epochs{steps} in "
        f"batches of {course.batch_size}, {course.optimizer} with a rate of "
        f"{course.learning_rate:g} ({course.schedule}), the model of the last step, tested on "
        f"{images['test']}. {stem}Flows of widths {', '.join(map(str, setup['widths']))} with "
        f"{steps_of(recipe, scale)} steps of {solver} and {gradient}. The residual networks have "
        f"{LAYERS} layers per flow and are differentiated by back-propagation. The paper states "
        "neither widths nor a course: they are ours."
    )


def unread(basis: ct.Basis, solver: ct.Solver) -> int:
    """How many functions of a basis are zero wherever a fixed grid reads them.

    Example:
        >>> unread(ct.PiecewiseConstant(8), ct.Euler(steps=2))
        6
    """
    stages = solver.schedule((0.0, 1.0), basis.jumps)
    assert stages is not None
    points = [Point(float(stage.depth), stage.side) for stage in stages]
    return int((sample(basis, points) == 0).all(0).sum())


def remarks(rows: Iterable[Row], steps: int) -> list[str]:
    """A sentence where a model has weights that are never read, and so never trained."""
    solver = ct.AsynchronousLeapfrog(steps)
    told = [
        f"{n} of {row.name}"
        for row in rows
        if not row.residual and (n := unread(parse_basis(row.basis), solver))
    ]
    if not told:
        return []
    return [
        f"With {steps} steps some buckets are never read, and no gradient reaches them: "
        f"{', '.join(told)}. They count as parameters and do nothing; take more steps or fewer "
        "buckets."
    ]


def as_csv(runs: Iterable[Trained]) -> str:
    """Every run as a line."""
    return csv_text([f.name for f in fields(Trained)], map(astuple, runs))
