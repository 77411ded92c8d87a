"""The functions of depth that a basis consists of, and those that it makes."""

from __future__ import annotations

import itertools

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from torch import Tensor

from continua._values import whole_number
from continua.basis import Basis, sample
from continua.block import ODEBlock
from continua.field import tensor as stack_of

from ._depth import cell_points, checked, chosen, most_varying, read
from ._style import COLOURS, DASHES, Figure, figure, styled

#: more functions are told apart by a scale of colours, not by a legend
NAMED = len(COLOURS)


@styled
def functions_of_depth(
    block: ODEBlock, tensor: str | None = None, *, count: int = 6, points: int = 200
) -> Figure:
    r"""The basis functions of a weight, and the entries of that weight which vary most.

    .. math:: \theta_i(s) = \sum_k \phi_k(s)\, \theta_{ik}

    Where a function jumps, both sides of the jump are drawn at the same depth.

    Args:
        block: the weight of which is shown.
        tensor: the name of a parameter in `block.field`; by default the one with most scalars,
            among those that vary with depth if there are such.
        count: how many entries.
        points: at how many depths a function is drawn, about; level pieces need only their
            ends.

    Example:
        >>> import continua as ct
        >>> from torch import nn
        >>> block = ct.ODEBlock(nn.Linear(3, 3), ct.Fourier(2), init="independent")
        >>> figure = functions_of_depth(block, "weight", count=4)
        >>> [len(ax.lines) for ax in figure.axes]
        [5, 4]
    """
    for name, number in (("count", count), ("points", points)):
        whole_number(name, number)
    bases = checked(block).expansion.weights
    varying = {name: basis for name, basis in bases.items() if basis.size > 1}
    name = chosen(varying if tensor is None and varying else bases, block, tensor, "parameter")
    basis = bases[name]
    cells = len(basis.breakpoints) - 1
    at = cell_points(basis, max(points // cells - 1, 1))
    low, high = sorted(block.span)
    depths = [low + (high - low) * point.depth for point in at]
    fig = figure(7.6, 3.3)
    left, right = fig.subplots(1, 2, sharex=True)
    _draw_basis(left, basis, depths, sample(basis, at))
    values = read(block, name, at)  # [P, n]
    shape = stack_of(block.field, name).shape[1:]
    looks = zip(itertools.cycle(COLOURS), itertools.cycle(DASHES), strict=False)
    for i, (colour, dashes) in zip(most_varying(block, name, count, False), looks, strict=False):
        index = ", ".join(str(int(j)) for j in torch.unravel_index(torch.tensor(i), shape))
        right.plot(
            depths,
            values[:, i].tolist(),
            color=colour,
            linestyle=dashes,
            linewidth=1.5,
            label=f"[{index}]",
        )
    right.set_title(f"{name}: entries that vary most", fontsize=9)
    right.set_ylabel("$\\theta_i(s)$")
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)
    for ax in (left, right):
        ax.set_xlabel("depth s")
        ax.margins(x=0.01)
        ax.locator_params(axis="y", nbins=5)
    return fig


def _draw_basis(ax: Axes, basis: Basis, depths: list[float], phi: Tensor) -> None:
    """Draw basis functions, given their values `[P, K]`."""
    size = basis.size
    named = size <= NAMED
    # The yellow end of the scale is too faint for a line on white.
    shades = ListedColormap([colormaps["viridis"](0.9 * k / max(size - 1, 1)) for k in range(size)])
    for k in range(size):
        ax.plot(
            depths,
            phi[:, k].tolist(),
            color=COLOURS[k] if named else shades(k),
            linestyle=DASHES[k % len(DASHES)] if named else "-",
            linewidth=1.5,
            label=f"$\\phi_{{{k + 1}}}$",
        )
    ax.set_title(f"{size} basis function{'s' if size > 1 else ''}: {basis!r}", fontsize=9)
    ax.set_ylabel("$\\phi_k(s)$")
    if named:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=min(size, 3))
        return
    bar = ax.figure.colorbar(
        ScalarMappable(Normalize(0.5, size + 0.5), shades),
        cax=ax.inset_axes((0, -0.32, 1, 0.05)),  # where the other panel has its legend
        orientation="horizontal",
    )
    bar.set_ticks([1, (1 + size) // 2, size], labels=["k = 1", f"{(1 + size) // 2}", f"{size}"])
    bar.ax.grid(visible=False)
    bar.ax.tick_params(length=0)
