"""Least squares from accumulated normal equations."""

from __future__ import annotations

import torch
from torch import Tensor

#: relative to the mean square of the features; an infinite one changes nothing
RIDGES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)


class Ridge:
    r"""A linear map fitted to pairs of features and targets that come in batches.

    .. math:: \min_W \sum_n \|r_n - W x_n\|^2 + \lambda \|W\|^2

    Only the sums of x xᵀ, x rᵀ and r² are kept, over batches in float64, for the pairs to fit and
    for those held back. These give the error of any map on either, so the ridge λ is chosen
    without a second pass; the map is then fitted to all pairs.

    Args:
        x: features `[g, N, d]` of the size of those to come, for g maps side by side.
        r: targets `[g, N, o]` of the size of those to come.
    """

    def __init__(self, x: Tensor, r: Tensor):
        g, d, o = x.shape[0], x.shape[2], r.shape[2]
        wide = torch.float32 if x.device.type == "mps" else torch.float64
        self._xx = torch.zeros(2, g, d, d, dtype=wide, device=x.device)
        self._xr = torch.zeros(2, g, d, o, dtype=wide, device=x.device)
        self._rr = torch.zeros(2, g, o, dtype=wide, device=x.device)

    def add(self, x: Tensor, r: Tensor, held: bool) -> None:
        """Take in some pairs.

        Args:
            x: the features, `[g, N, d]`.
            r: the targets, `[g, N, o]`.
            held: whether these choose the ridge rather than the map.
        """
        x = x if x.dtype == torch.float64 else x.float()
        self._xx[int(held)] += x.mT @ x
        self._xr[int(held)] += x.mT @ r.to(x)
        self._rr[int(held)] += r.to(self._rr).square().sum(1)

    @property
    def held_error(self) -> float:
        """The error on the pairs held back without a map."""
        return float(self._rr[1].sum())

    def solve(self, parts: int = 1) -> list[tuple[float, Tensor]]:
        """For each part of the targets the error on the pairs held back, and the map `[g, d, o]`.

        A map is zero if no ridge makes that error smaller.

        Args:
            parts: the number of equal parts of the targets, each of which has its own ridge.
        """
        least = self._rr[1].sum(0).reshape(parts, -1).sum(1)  # [parts]
        best, last = torch.zeros_like(least), torch.full_like(least, torch.inf)
        for ridge in RIDGES:  # the error falls and then rises, so smaller ones need no trial
            w = self._map(ridge, all_pairs=False)
            change = (w * (self._xx[1] @ w - 2 * self._xr[1])).sum(1)  # [g, o]
            errors = (self._rr[1] + change).sum(0).reshape(parts, -1).sum(1)
            best = torch.where(errors < least, ridge, best)
            least = torch.minimum(errors, least)
            if not bool((errors < last).any()):
                break
            last = errors
        maps = [torch.zeros_like(w) for w in self._xr[0].chunk(parts, -1)]
        for ridge in set(best.tolist()) - {0.0}:
            found = self._map(ridge, all_pairs=True).chunk(parts, -1)
            maps = [w if r == ridge else old for w, old, r in zip(found, maps, best, strict=True)]
        return list(zip(least.tolist(), maps, strict=True))

    def _map(self, ridge: float, all_pairs: bool) -> Tensor:
        """The map with one ridge, fitted to all pairs or without those held back."""
        xx, xr = (a.sum(0) if all_pairs else a[0] for a in (self._xx, self._xr))
        scale = xx.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)  # [g, 1]
        scale = scale.clamp(min=torch.finfo(xx.dtype).tiny)
        system = xx.clone()
        system.diagonal(dim1=-2, dim2=-1).add_(ridge * scale)
        factor, failed = torch.linalg.cholesky_ex(system)
        found = torch.cholesky_solve(xr, factor)
        return torch.where((failed > 0)[:, None, None], torch.zeros_like(found), found)
