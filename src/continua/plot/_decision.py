"""What a classifier of points in the plane decides where."""

from __future__ import annotations

import torch
from matplotlib.colors import to_rgb
from torch import Tensor, nn

from continua._errors import ArgumentError, ShapeError
from continua.field import copied

from ._axes import look
from ._plane import (
    Extent,
    around,
    checked_extent,
    evaluate,
    grid,
    groups,
    handles,
    points,
    scatter,
    show_plane,
    size_for,
    whole_numbers,
)
from ._style import SOURCE, Figure, figure, styled


@styled
def decision(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    extent: Extent | None = None,
    resolution: int = 200,
    threshold: float = 0.0,
) -> Figure:
    """The decisions of a classifier over the plane, the data on top, its accuracy in the title.

    The colour is that of the class decided for, the stronger the more probable it is (a sigmoid
    or a softmax of the scores); black lines are the boundaries.

    Args:
        model: from points `[B, 2]` to one score (`[B]` or `[B, 1]`: class 1 above the threshold,
            else class 0) or to one score per class, `[B, C]`. It is evaluated in evaluation mode
            and not changed.
        x: the data, `[B, 2]`.
        labels: their classes, whole numbers from 0.
        extent: left, right, bottom and top of the plane; by default where the data is.
        resolution: points of the map along each axis.
        threshold: of a single score.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        >>> figure = decision(nn.Linear(2, 2), x, torch.tensor([0, 1]), resolution=20)
        >>> figure.axes[0].get_title(loc="left").startswith("accuracy")
        True
    """
    data = points(x, "data")
    classes = whole_numbers(labels, len(data))
    twin = copied(model).eval()
    view = around(data) if extent is None else checked_extent(extent)
    across, up, where = grid(view, resolution)
    seen = scores(evaluate(twin, data, x), len(data))
    single = seen.shape[1] == 1
    known = 2 if single else seen.shape[1]
    outside = [int(k) for k in torch.unique(classes) if not 0 <= k < known]
    if outside:
        raise ArgumentError(
            f"the model tells classes 0 to {known - 1} apart, but the labels have {outside[0]}"
        )
    maps = scores(evaluate(twin, where, x), len(where))
    if single:
        seen, maps = against(seen - threshold), against(maps - threshold)
    right = float((decided(seen) == classes).double().mean())

    fig = figure(5.8, 4.4)
    ax = fig.subplots()
    ax.imshow(
        painted(maps).reshape(resolution, resolution, 3).numpy(),
        extent=view,
        origin="lower",
        interpolation="nearest",
        zorder=0,
    )
    for k in range(1 if known == 2 else 0, known):  # two classes have one boundary
        others = torch.cat([maps[:, :k], maps[:, k + 1 :]], 1).amax(1)
        margin = (maps[:, k] - others).reshape(resolution, resolution)
        # A class that wins nowhere, or everywhere, has no boundary.
        if float(margin.min()) < 0 < float(margin.max()):
            ax.contour(
                across.numpy(), up.numpy(), margin.numpy(), [0.0], colors=SOURCE, linewidths=1.1
            )
    found = groups(classes, len(data))
    scatter(ax, data, found, size_for(len(data)))
    show_plane(ax, view)
    ax.set_title(f"accuracy {100 * right:.1f} % of {len(data):,}")
    ax.set_xlabel("$x_1$")
    ax.set_ylabel("$x_2$")
    ax.legend(handles=handles(found), loc="center left", bbox_to_anchor=(1.01, 0.5))
    return fig


def scores(out: Tensor, count: int) -> Tensor:
    """What a model gave, `[B, C]`."""
    if out.dim() == 1:
        out = out.unsqueeze(1)
    if out.dim() != 2 or len(out) != count or not out.shape[1]:
        raise ShapeError(
            f"a classifier gives {count} points scores of shape [{count}] or [{count}, C], "
            f"not {list(out.shape)}"
        )
    if not bool(out.isfinite().all()):
        raise ArgumentError("the model gives scores that are not finite; choose a smaller extent")
    return out


def against(score: Tensor) -> Tensor:
    """A single score as two, `[B, 2]`, of which the second is the larger above 0."""
    return torch.cat([torch.zeros_like(score), score], 1)


def decided(scores: Tensor) -> Tensor:
    """The class of the largest score, the first among equals."""
    return scores.argmax(1)


def painted(scores: Tensor) -> Tensor:
    """The colour of the class decided for, paler where it is less probable, `[B, 3]`."""
    known = scores.shape[1]
    palette = torch.tensor([to_rgb(look(k)[0]) for k in range(known)], dtype=torch.float64)
    sure = (scores.softmax(1).amax(1) * known - 1) / (known - 1)  # 0 to 1
    strength = (0.12 + 0.38 * sure).unsqueeze(1)
    return 1 - strength * (1 - palette[decided(scores)])
