"""From weights that a field gives to a basis."""

from __future__ import annotations

import torch

from continua._errors import ArgumentError
from continua.basis import Basis, fit_coefficients
from continua.block import ODEBlock
from continua.field import GivenWeights
from continua.solve import Solver


def fit_hypernetwork(
    block: ODEBlock, basis: Basis, *, solver: Solver | None = None, points: int | None = None
) -> ODEBlock:
    r"""A block whose weights are those of a hypernetwork or a warped basis, in a plain basis.

    .. math:: \theta_k = \arg\min \sum_i \Big\| g_\omega(s_i) - \sum_k \phi_k(s_i)\, \theta_k
              \Big\|^2

    From then on it can be refined and compressed like any other.

    Args:
        block: with a `Hypernetwork` or a `Warped` as its field, or anything else that gives a
            module its weights at every depth; it is not changed.
        basis: for every weight.
        solver: of the new block; the old one's by default.
        points: equispaced depths s_i of the fit; sixteen for each function by default.

    Example:
        >>> import continua as ct
        >>> from torch import nn
        >>> field = ct.Hypernetwork(nn.Linear(2, 2), nn.Linear(1, 6))
        >>> block = ct.ODEBlock(field, solver=ct.RK4(steps=4))
        >>> fitted = fit_hypernetwork(block, ct.Polynomial(2))  # g is linear in depth
        >>> x = torch.ones(3, 2)
        >>> torch.allclose(fitted(x), block(x), atol=1e-5)
        True
    """
    if not isinstance(block, ODEBlock) or not isinstance(block.field, GivenWeights):
        got = type(block.field if isinstance(block, ODEBlock) else block).__name__
        raise ArgumentError(
            "fit_hypernetwork takes an ODEBlock whose field is a Hypernetwork or a Warped, not "
            f"{got}; another block has its weights in a basis already: use continua.compress"
        )
    plain = block.at(block.span[0])
    assert isinstance(plain, GivenWeights)
    count = points or 16 * basis.size
    low, high = sorted(block.span)
    shares = [(i + 0.5) / count for i in range(count)]
    like = next(plain.parameters())
    with torch.no_grad():
        rows = [plain.weights(like.new_tensor(low + (high - low) * share)) for share in shares]
        stacks = {}
        for name in rows[0]:
            values = torch.stack([row[name] for row in rows])
            stacks[name] = (basis, fit_coefficients(basis, shares, values).to(like))
    module, used = plain.module.requires_grad_(), solver or block.solver
    made = ODEBlock(module, basis, used, block.gradient, span=block.span)
    return made.to(like.device, like.dtype).rebase(stacks)
