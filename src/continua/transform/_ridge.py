"""Least squares from accumulated normal equations."""

from __future__ import annotations

import torch
from torch import Tensor

#: relative to the mean square of the features; an infinite one changes nothing
RIDGES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


class Ridge:
    r"""A linear map fitted to pairs of features and targets that come in batches.

    .. math:: \min_W \sum_n \|r_n - W x_n\|^2 + \lambda \|W\|^2

    Only the sums of x xᵀ and x rᵀ are kept, in float64, for the pairs to fit and for those held
    back. These give the error of any map on either, so the ridge λ is chosen without a second
    pass.

    Args:
        groups: maps side by side, as a grouped convolution has.
        features: d, the length of x.
        targets: o, the length of r.
    """

    def __init__(self, groups: int, features: int, targets: int, device: torch.device):
        wide = torch.float32 if device.type == "mps" else torch.float64
        self._xx = torch.zeros(2, groups, features, features, dtype=wide, device=device)
        self._xr = torch.zeros(2, groups, features, targets, dtype=wide, device=device)

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

    def solve(self) -> Tensor:
        """The map, `[g, d, o]`; zero if no ridge makes the error on the pairs held back smaller."""
        values, vectors = torch.linalg.eigh(self._xx[0])  # [g, d], [g, d, d]
        values = values.clamp(min=0)
        scale = values.mean(-1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
        along = vectors.mT @ self._xr[0]
        best, least = torch.zeros_like(along), 0.0
        for ridge in RIDGES:
            w = vectors @ (along / (values + ridge * scale).unsqueeze(-1))
            error = float((w * (self._xx[1] @ w - 2 * self._xr[1])).sum())
            if error < least:
                best, least = w, error
        return best
