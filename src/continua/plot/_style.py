"""How all figures look."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any, ParamSpec

from continua._errors import MissingPackageError

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingPackageError("figures are drawn by matplotlib, which is not installed") from error

__all__ = ["COLOURS", "DASHES", "MARKERS", "SOURCE", "Axes", "Figure", "figure", "styled"]

P = ParamSpec("P")

#: what everything else is compared with
SOURCE = "#000000"

#: the palette of Okabe and Ito (2008), which colour-blind eyes tell apart; its yellow is too
#: faint for a line on white
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

#: a second way to tell lines and points apart, for print in grey
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P")

RC: dict[Any, Any] = {
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.labelcolor": "#222222",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.titlesize": 11,
    "font.size": 10,
    "grid.color": "#E4E4E4",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.hashsalt": "continua",  # the same figure gives the same file
    "xtick.color": "#444444",
    "ytick.color": "#444444",
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw with these settings; the global ones stay as they are."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc_context(RC):
            return draw(*args, **kwargs)

    return drawn


class _Shown(Figure):
    """A figure that a notebook shows, also when nothing has imported pyplot there."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=100)
        return out.getvalue()


def figure(width: float, height: float) -> Figure:
    """An empty figure, its size in inches, apart from pyplot and its state."""
    return _Shown(figsize=(width, height), dpi=150, layout="constrained")
