"""Seeded cuts that keep every class in proportion."""

from __future__ import annotations

import torch
from torch import Tensor

from continua._errors import ArgumentError
from continua._values import whole_number

from ._dataset import Part


def checked_seed(seed: int) -> int:
    """The seed, if every generator accepts it."""
    return whole_number("seed", seed, 0, 2**32 - 1)


def checked_share(share: float, name: str = "validation") -> float:
    """The share, if it leaves something."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 <= share < 1.0:
        raise ArgumentError(f"{name} is a share from 0 up to but not including 1, not {share!r}")
    return float(share)


def cut(part: Part, share: float, seed: int) -> tuple[Part, Part]:
    """What stays and what is cut out, both in the order of the part.

    Targets are sorted with ties in random order, and items at equal distances are taken: the cut
    has exactly the size asked for and every class is in it in proportion, up to one item.

    Args:
        part: with one target for each input.
        share: of the items to cut out.
        seed: of the choice.
    """
    share, count = checked_share(share), len(part)
    size = round(share * count)
    if share > 0 and not 0 < size < count:
        raise ArgumentError(
            f"a share of {share!r} of {count:,} items leaves a part empty; choose another share"
        )
    generator = torch.Generator().manual_seed(checked_seed(seed))
    shuffled = torch.randperm(count, generator=generator)
    by_class = shuffled[torch.argsort(part.targets[shuffled], stable=True)]
    spaced = (2 * torch.arange(size) + 1) * count // (2 * size) if size else torch.arange(0)
    taken = torch.zeros(count, dtype=torch.bool)
    taken[by_class[spaced]] = True
    return _chosen(part, ~taken), _chosen(part, taken)


def _chosen(part: Part, mask: Tensor) -> Part:
    index = mask.nonzero().squeeze(1)
    return Part(part.inputs[index], part.targets[index])
