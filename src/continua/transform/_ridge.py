"""Least squares from accumulated normal equations."""

from __future__ import annotations

import torch
from torch import Tensor

#: relative to the mean square of the features; an infinite one changes nothing
RIDGES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


class Ridge:
    r"""A linear map fitted to pairs of features and targets that come in batches.

    .. math:: \min_W \sum_n \|r_n - W x_n\|^2 + \lambda \|W\|^2

    Only the sums of x xᵀ, x rᵀ and r² are kept, in float64, for the pairs to fit and for those
    held back. These give the error of any map on either, so the ridge λ is chosen without a second
    pass; the map is then fitted to all pairs.

    Args:
        groups: maps side by side, as a grouped convolution has.
        features: d, the length of x.
        targets: o, the length of r.
    """

    def __init__(self, groups: int, features: int, targets: int, device: torch.device):
        wide = torch.float32 if device.type == "mps" else torch.float64
        self._xx = torch.zeros(2, groups, features, features, dtype=wide, device=device)
        self._xr = torch.zeros(2, groups, features, targets, dtype=wide, device=device)
        self._rr = torch.zeros(2, groups, targets, dtype=wide, device=device)

    def add(self, x: Tensor, r: Tensor, held: bool) -> None:
        """Take in some pairs.

        Args:
            x: the features, `[g, N, d]`.
            r: the targets, `[g, N, o]`.
            held: whether these choose the ridge rather than the map.
        """
        x, r = x.to(self._xx), r.to(self._xr)
        self._xx[int(held)] += x.mT @ x
        self._xr[int(held)] += x.mT @ r
        self._rr[int(held)] += r.square().sum(1)

    def solve(self) -> Tensor:
        """The map, `[g, d, o]`; zero if no ridge makes the error on the pairs held back smaller."""
        best, least = None, float(self._rr[1].sum())
        for ridge in RIDGES:
            error = float(self._held(self._map(ridge, 0)).sum())
            if error < least:
                best, least = ridge, error
        return torch.zeros_like(self._xr[0]) if best is None else self._map(best, slice(None))

    def errors(self) -> Tensor:
        """The smallest error of any ridge on the pairs held back, for each target, `[o]`."""
        found = [self._rr[1], *(self._held(self._map(ridge, 0)) for ridge in RIDGES)]
        return torch.stack(found).sum(1).amin(0)

    def _held(self, w: Tensor) -> Tensor:
        """The error of a map on the pairs held back, `[g, o]`."""
        return self._rr[1] + (w * (self._xx[1] @ w - 2 * self._xr[1])).sum(1)

    def _map(self, ridge: float, of: int | slice) -> Tensor:
        """The map with one ridge, fitted to the first pairs or to all."""
        xx, xr = (a[of] if isinstance(of, int) else a[of].sum(0) for a in (self._xx, self._xr))
        scale = xx.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
        scale = scale.clamp(min=torch.finfo(xx.dtype).tiny)
        eye = torch.eye(xx.shape[-1], dtype=xx.dtype, device=xx.device)
        factor, failed = torch.linalg.cholesky_ex(xx + ridge * scale * eye)
        found = torch.cholesky_solve(xr, factor)
        return torch.where((failed > 0)[:, None, None], torch.zeros_like(found), found)
