"""The taggers of Stateful ODE-Nets."""

from __future__ import annotations

from dataclasses import replace

from continua.train import Training

from .._recipe import Recipe
from .._setup import Scale
from .._tagging_setup import TaggingSetup

#: the paper's own course: AdamW, 50,000 steps of 64 sentences, the rate up for 8,000 steps and
#: down by the inverse root; an epoch is 500 steps, after which the dev part is measured
PAPER = Training(
    epochs=100,
    epoch_steps=500,
    batch_size=64,
    optimizer="adamw",
    learning_rate=0.1 / 8000**0.5,
    betas=(0.9, 0.98),
    eps=1e-9,
    weight_decay=0.1,
    schedule="inverse-root",
    warmup=16,
    refine_epochs=(2, 4, 6, 8, 10, 12),
)
SMOKE = replace(PAPER, epochs=3, epoch_steps=10, warmup=1, refine_epochs=(1, 2), learning_rate=1e-3)
LAPTOP = replace(
    PAPER, epochs=10, epoch_steps=100, warmup=1, refine_epochs=(1, 2, 3, 4), learning_rate=2e-3,
    schedule="cosine",
)  # fmt: skip
TAKES: dict[Scale, str] = {
    "smoke": "seconds",
    "laptop": "about half an hour on two cores",
    "full": "the paper's 50,000 steps; use a GPU",
}


def tagger(name: str, about: str, treebank: str, model: str, layers: int = 1) -> Recipe:
    """A tagger at every scale; only the continuous one is refined."""
    scales: dict[Scale, TaggingSetup] = {}
    for scale, course in (("smoke", SMOKE), ("laptop", LAPTOP), ("full", PAPER)):
        refined = course.refine_epochs if model == "continuous_tagger" else ()
        scales[scale] = TaggingSetup(  # type: ignore[index]
            data=treebank,
            model=model,
            layers=layers,
            epsilon=1.0,
            samples=512 if scale == "smoke" else None,
            training=replace(course, refine_epochs=refined),
        )
    return Recipe(name, about, scales, TAKES)


TAGGERS = [
    recipe
    for short, treebank in (("ewt", "ud-english-ewt"), ("gum", "ud-english-gum"))
    for recipe in (
        tagger(
            f"stateful/{short}",
            f"tagging {treebank} with the continuous transformer, refined while training",
            treebank,
            "continuous_tagger",
        ),
        tagger(
            f"stateful/{short}-transformer",
            f"tagging {treebank} with a discrete transformer",
            treebank,
            "transformer_tagger",
            layers=4,
        ),
        tagger(
            f"stateful/{short}-linear",
            f"tagging {treebank} word by word",
            treebank,
            "linear_tagger",
        ),
    )
]
