"""Which token looks at which, over depth."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from continua._errors import ArgumentError, ShapeError

from ._axes import shortened
from ._style import Axes, Figure, figure, styled

#: more maps would be too small, more tokens too crowded, longer ones too wide
MAPS = 6
TOKENS = 14
LETTERS = 12


@styled
def attention(
    maps: Tensor, depths: Sequence[float], tokens: Sequence[str], *, head: int = 0
) -> Figure:
    """The attention within one sentence at several depths, on one colour scale.

    A row is a token, its colours where it looks. Of more than six depths, four to six are shown,
    evenly chosen with the first and the last; of more than fourteen tokens, every second or
    third is written.

    Args:
        maps: attention after the softmax, `[S, T, T]`, or `[S, H, T, T]` of H heads.
        depths: the depth of each map.
        tokens: the words of the sentence.
        head: the head that is shown; it is named in the figure.

    Example:
        >>> import torch
        >>> maps = torch.rand(3, 4, 4).softmax(-1)
        >>> figure = attention(maps, [0.0, 0.5, 1.0], ["Depth", "is", "a", "choice"])
        >>> figure.axes[0].get_title(loc="left")
        's = 0.00'
    """
    values = checked(maps, depths)
    if values.dim() == 4:
        if not 0 <= head < values.shape[1]:
            raise ArgumentError(f"head {head!r} of {values.shape[1]}; heads count from 0")
        values = values[:, head]
    if len(tokens) != values.shape[-1]:
        raise ShapeError(f"{len(tokens)} tokens, but maps of {values.shape[-1]}; give each its own")
    chosen = evenly(len(values), MAPS)
    fig = figure(2.0 + 1.35 * len(chosen), 2.4)
    grid = fig.subplots(1, len(chosen), sharex=True, sharey=True, squeeze=False)
    top = float(values[chosen].max()) or 1.0
    for ax, i in zip(grid[0], chosen, strict=True):
        image = ax.imshow(values[i].numpy(), cmap="Blues", vmin=0, vmax=top, aspect="equal")
        ax.set_title(f"s = {depths[i]:.2f}", fontsize=9)
        ax.grid(visible=False)
        ax.tick_params(length=0, labelleft=False, labelbottom=False)
    label_tokens(grid[0, 0], tokens)
    beside = grid[0, -1].inset_axes((1.08, 0, 0.07, 1))  # as high as the maps
    bar = fig.colorbar(image, cax=beside)
    bar.set_label(f"attention, head {head}", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.ax.grid(visible=False)
    return fig


def describe_attention(maps: Tensor, depths: Sequence[float]) -> str:
    r"""What the figure shows, in a sentence: how much attention changes from depth to depth.

    .. math:: \frac{1}{T^2} \sum_{ij} |A_{ij}(s_{n+1}) - A_{ij}(s_n)|

    Args:
        maps: attention after the softmax, `[S, T, T]` or `[S, H, T, T]`.
        depths: the depth of each map.

    Example:
        >>> import torch
        >>> maps = torch.stack([torch.eye(2), torch.full((2, 2), 0.5)])
        >>> describe_attention(maps, [0.0, 1.0])
        'Between neighbouring depths (2 from 0.00 to 1.00) attention changes by 0.500 on average,
        most from depth 0.00 to 1.00, by 0.500.'
    """
    values = checked(maps, depths)
    if len(values) == 1:
        return f"Attention was measured at one depth only, {depths[0]:.2f}."
    changes = values.diff(dim=0).abs().flatten(1).mean(dim=1)  # [S - 1]
    i = int(changes.argmax())
    return (
        f"Between neighbouring depths ({len(depths)} from {depths[0]:.2f} to {depths[-1]:.2f}) "
        f"attention changes by {float(changes.mean()):.3f} on average, most from depth "
        f"{depths[i]:.2f} to {depths[i + 1]:.2f}, by {float(changes[i]):.3f}."
    )


def checked(maps: Tensor, depths: Sequence[float]) -> Tensor:
    """The maps in float64, if they are attention at these depths."""
    shape = tuple(maps.shape)
    if maps.dim() not in (3, 4) or shape[-1] != shape[-2] or 0 in shape:
        raise ShapeError(f"maps are [S, T, T] or [S, H, T, T], not {list(shape)}")
    if len(depths) != len(maps):
        raise ShapeError(f"{len(depths)} depths, but {len(maps)} maps; give each its own")
    values = maps.detach().cpu().double()
    if not bool((values >= 0).all() & values.isfinite().all()):
        raise ArgumentError(
            f"attention is finite and not negative, but the maps reach from "
            f"{float(values.min()):g} to {float(values.max()):g}; give them after the softmax"
        )
    return values


def evenly(total: int, count: int) -> list[int]:
    """At most `count` indices of `total`, the first and the last among them."""
    if total <= count:
        return list(range(total))
    # A few less, if only then all gaps are equal.
    for fewer in range(count, 3, -1):
        if (total - 1) % (fewer - 1) == 0:
            count = fewer
            break
    return [round(i * (total - 1) / (count - 1)) for i in range(count)]


def label_tokens(ax: Axes, tokens: Sequence[str]) -> None:
    """Write the tokens beside and below a map, every one or every few."""
    places = range(0, len(tokens), -(-len(tokens) // TOKENS))
    words = [shortened(tokens[i], LETTERS) for i in places]
    # A token may be a dollar sign, which is no mathematics here.
    ax.set_xticks(list(places), words, rotation=90, fontsize=6, parse_math=False)
    ax.set_yticks(list(places), words, fontsize=6, parse_math=False)
    ax.tick_params(labelleft=True, labelbottom=True)
    ax.set_xlabel("attends to", fontsize=9)
    ax.set_ylabel("token", fontsize=9)
