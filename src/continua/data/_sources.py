"""The datasets that `load` knows, by name."""

from __future__ import annotations

from ._image_sources import IMAGES
from ._source import Source
from ._toy import Generate, annuli, checkerboard, circles, moons, read_toy, spirals
from ._treebank_sources import TREEBANKS
from ._video_sources import CLIPS


def _toy(name: str, what: str, generate: Generate, noise: float) -> Source:
    return Source(
        name=name,
        what=what,
        sizes=(614, 154, 256),
        licence="free of rights",
        kind="generated",
        read=lambda files, seed, validation, options: read_toy(
            name, generate, seed=seed, validation=validation, n=options["n"], noise=options["noise"]
        ),
        validation=0.2,
        options={"n": 1024, "noise": noise},
    )


_POINTS = (
    _toy("moons", "two half circles in the plane, 2 classes", moons, 0.1),
    _toy("circles", "two circles in the plane, 2 classes", circles, 0.05),
    _toy("annuli", "two annuli in the plane, 2 classes", annuli, 0.1),
    _toy("spirals", "two spirals in the plane, 2 classes", spirals, 0.05),
    _toy("checkerboard", "squares of one colour in the plane, 2 classes", checkerboard, 0.0),
)

DATASETS: dict[str, Source] = {
    source.name: source for source in (*IMAGES, *TREEBANKS, *_POINTS, *CLIPS)
}
