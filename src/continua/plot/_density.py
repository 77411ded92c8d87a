"""Densities, and samples of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from matplotlib.colors import LinearSegmentedColormap
from torch import Tensor

from continua._errors import ArgumentError, ShapeError

from ._plane import Extent, checked_extent, evaluate, finite, grid, points, show_plane
from ._style import COLOURS, DASHES, SOURCE, Figure, figure, styled

#: from nothing, which is white
DENSE = LinearSegmentedColormap.from_list("dense", ["#FFFFFF", "#9ECAE1", "#3182BD", "#08306B"])

#: of filled contours
LEVELS = 14

#: bars of a histogram
BARS = 50


@styled
def density(
    log_prob: Callable[[Tensor], Tensor],
    samples: Tensor | None = None,
    *,
    extent: Extent,
    data: Tensor | None = None,
    resolution: int = 150,
) -> Figure:
    r"""A density in the plane, beside samples of it and the data it was learnt from.

    The title of the density has its integral over what is shown, which is 1 for a density that
    lies within, and less if it reaches beyond:

    .. math:: \int p(x)\, dx

    Args:
        log_prob: from points `[B, 2]` to log-densities `[B]`, such as `ContinuousFlow.log_prob`.
        samples: of the model, `[B, 2]`.
        extent: left, right, bottom and top of the plane.
        data: the data, `[B, 2]`.
        resolution: points of the map along each axis.

    Example:
        >>> from torch.distributions import Independent, Normal
        >>> normal = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
        >>> figure = density(normal.log_prob, normal.sample((99,)), extent=(-4, 4, -4, 4))
        >>> [ax.get_title(loc="left") for ax in figure.axes]
        ['density, integral 1.00', '99 samples']
    """
    view = checked_extent(extent)
    clouds = {
        f"{len(x):,} {what}": points(x, what)
        for x, what in ((samples, "samples"), (data, "data points"))
        if x is not None
    }
    across, up, where = grid(view, resolution)
    values = evaluate(log_prob, where, samples if samples is not None else data)
    if values.shape != (len(where),):
        raise ShapeError(
            f"log_prob gives {len(where)} points one number each, not {list(values.shape)}"
        )
    if bool(values.isnan().any() | (values == torch.inf).any()):
        raise ArgumentError("log_prob gives values that are nan or infinite; choose another extent")
    p = values.exp().reshape(resolution, resolution)
    mass = float(torch.trapezoid(torch.trapezoid(p, across), up))

    count = 1 + len(clouds)
    fig = figure(0.5 + 2.5 * count if count > 1 else 3.8, 3.2 if count > 1 else 3.6)
    panels = fig.subplots(1, count, sharex=True, sharey=True, squeeze=False)[0]
    if float(p.max()) > 0:
        levels = [float(p.max()) * i / LEVELS for i in range(LEVELS + 1)]
        shades = [DENSE(i / (LEVELS - 1)) for i in range(LEVELS)]
        image = panels[0].contourf(across.numpy(), up.numpy(), p.numpy(), levels, colors=shades)
        image.set_edgecolor("face")  # no white seams between the contours in a vector file
        image.set_linewidth(0.2)
    panels[0].set_title(f"density, integral {mass:.2f}")
    looks = zip(clouds.items(), (COLOURS[1], SOURCE), strict=False)
    for ax, ((title, cloud), colour) in zip(panels[1:], looks, strict=False):
        ax.scatter(
            cloud[:, 0].numpy(),
            cloud[:, 1].numpy(),
            s=min(max(6000 / len(cloud), 2.0), 14.0),
            c=colour,
            alpha=min(max(600 / len(cloud), 0.25), 0.8),
            linewidths=0,
        )
        ax.set_title(title)
    for ax in panels:
        show_plane(ax, view)
        ax.set_xlabel("$x_1$")
    panels[0].set_ylabel("$x_2$")
    return fig


@styled
def densities(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    samples: Mapping[str, Tensor] | None = None,
) -> Figure:
    """Densities on a line, each with the histogram of its samples.

    Args:
        curves: where, and how dense it is there, under the names to show.
        samples: some of these names and samples of them, in a row.

    Example:
        >>> x = torch.linspace(-4, 4, 99)
        >>> curve = (-x.square() / 2).exp() / (2 * torch.pi) ** 0.5
        >>> figure = densities({"normal": (x.tolist(), curve.tolist())}, {"normal": torch.randn(9)})
        >>> [text.get_text() for text in figure.legends[0].get_texts()]
        ['normal']
    """
    if not curves:
        raise ArgumentError("no curves; give at least one")
    found = {name: checked_curve(name, curve) for name, curve in curves.items()}
    drawn = {name: in_a_row(name, x) for name, x in (samples or {}).items()}
    for name in drawn:
        if name not in found:
            raise ArgumentError(f"samples of {name!r}, which is none of {', '.join(found)}")
    low = min(float(x[0]) for x, _ in found.values())
    high = max(float(x[-1]) for x, _ in found.values())

    fig = figure(6.4, 3.6)
    ax = fig.subplots()
    for i, (name, (x, p)) in enumerate(found.items()):
        colour = COLOURS[i % len(COLOURS)]
        if name in drawn:
            values = drawn[name]
            edges = torch.linspace(low, high, BARS + 1, dtype=torch.float64)
            # Heights are shares of all samples, also of those beyond the curves.
            counts = torch.histogram(values, edges).hist / len(values) / edges.diff()
            ax.stairs(counts.numpy(), edges.numpy(), fill=True, color=colour, alpha=0.3)
        ax.plot(
            x.tolist(),
            p.tolist(),
            color=colour,
            linestyle=DASHES[i % len(DASHES)],
            label=name,
        )
    ax.set_xlim(low, high)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("x")
    ax.set_ylabel("density")
    if drawn:
        ax.set_title("lines: densities; bars: samples", fontsize=9)
    fig.legend(loc="outside lower center", ncols=min(len(found), 4))
    return fig


def checked_curve(
    name: str, curve: tuple[Sequence[float], Sequence[float]]
) -> tuple[Tensor, Tensor]:
    """Places and densities in float64, if they are a curve."""
    x, p = (torch.as_tensor(part, dtype=torch.float64).detach().cpu() for part in curve)
    if x.dim() != 1 or x.shape != p.shape or len(x) < 2:
        raise ShapeError(
            f"curve {name!r} has {x.numel()} places and {p.numel()} densities; give two rows of "
            "the same length, at least 2"
        )
    if not bool((x.diff() > 0).all()):
        raise ArgumentError(f"the places of curve {name!r} increase; sort them")
    if not bool(((p >= 0) & p.isfinite()).all()):
        raise ArgumentError(
            f"a density is finite and not negative, but curve {name!r} reaches from "
            f"{float(p.min()):g} to {float(p.max()):g}; give it without the logarithm"
        )
    return x, p


def in_a_row(name: str, x: Tensor) -> Tensor:
    """Samples on a line, `[B]` or `[B, 1]`."""
    if not isinstance(x, Tensor) or not x.numel() or len(x) != x.numel():
        shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(f"samples of {name!r} are numbers in a row, [B], not {shape}")
    return finite(x.reshape(-1), f"samples of {name!r}")
