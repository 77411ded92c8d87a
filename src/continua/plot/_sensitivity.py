"""Where in depth a loss cares about the weights."""

from __future__ import annotations

from continua._errors import ArgumentError
from continua.measure import FunctionalGradient

from ._style import COLOURS, DASHES, SOURCE, Figure, figure, styled


@styled
def sensitivity(found: FunctionalGradient, *, count: int = 4) -> Figure:
    r"""The norm of a functional gradient over depth, of all weights and of the largest tensors.

    .. math:: s \mapsto \Big\| \frac{\delta \ell}{\delta \theta(s)} \Big\|

    Args:
        found: what `continua.functional_gradient` returned.
        count: how many tensors to show beside the sum of all.

    Example:
        >>> import continua as ct
        >>> import torch
        >>> block = ct.ODEBlock(torch.nn.Linear(2, 2), ct.Fourier(1), ct.RK4(steps=4))
        >>> s = torch.linspace(0, 1, 9)
        >>> found = ct.functional_gradient(block, torch.ones(3, 2), lambda z: z.sum(), s)
        >>> len(sensitivity(found).axes[0].lines)
        3
    """
    if not found.gradients:
        raise ArgumentError("the functional gradient has no weights to show")
    s = found.s.tolist()
    norms = {name: gradient.flatten(1).norm(dim=1) for name, gradient in found.gradients.items()}
    largest = sorted(norms, key=lambda name: float(norms[name].mean()), reverse=True)[:count]
    drawn = figure(6.4, 3.4)
    axes = drawn.add_subplot()
    axes.plot(s, found.norm.tolist(), color=SOURCE, label="all weights")
    for i, name in enumerate(largest):
        axes.plot(
            s,
            norms[name].tolist(),
            color=COLOURS[i % len(COLOURS)],
            linestyle=DASHES[i % len(DASHES)],
            linewidth=1.4,
            label=name,
        )
    axes.set_xlabel("depth s")
    axes.set_ylabel("‖δℓ/δθ(s)‖")
    axes.set_ylim(bottom=0)
    axes.set_xlim(min(s), max(s))
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return drawn
