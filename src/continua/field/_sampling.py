"""A basis at the evaluations of a solve, and the weights read there."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from continua.basis import Basis, Constant, Point, least_squares, sample

from ._expansion import Constraint


@dataclass(frozen=True)
class Sampling:
    """A basis at E evaluations, rows that are the same once.

    Attributes:
        rows: those rows, `[R, K]`; None where every row picks a single coefficient, as
            with buckets: then an index does the work of a product.
        index: for each evaluation its row, or the coefficient it picks.
        picks: the same as a tensor, `[E]`.
        steady: whether all evaluations have the same row.
    """

    rows: Tensor | None
    index: tuple[int, ...]
    picks: Tensor
    steady: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steady", len(set(self.index)) == 1)

    @classmethod
    def of(cls, basis: Basis, points: Sequence[Point]) -> Sampling:
        """The basis at these points, in float64."""
        if isinstance(basis, Constant):
            picks = torch.zeros(len(points), dtype=torch.int64, device="cpu")
            return cls(None, (0,) * len(points), picks)
        phi = sample(basis, points)  # [E, K]
        if bool(((phi == 0) | (phi == 1)).all()) and bool((phi.sum(1) == 1).all()):
            picks = phi.argmax(1)
            return cls(None, tuple(picks.tolist()), picks)
        # What is the same follows one another: middles of a step, and where one ends.
        new = [True, *(phi[1:] != phi[:-1]).any(1).tolist()]
        index = tuple(n - 1 for n in itertools.accumulate(new))
        rows = phi[[i for i, first in enumerate(new) if first]]
        return cls(rows, index, torch.tensor(index, device="cpu"))

    def to(self, dtype: torch.dtype, device: torch.device) -> Sampling:
        """The same in this precision and on this device."""
        rows = None if self.rows is None else self.rows.to(device, dtype)
        return Sampling(rows, self.index, self.picks.to(device))

    def pull(self, rows: Sequence[int], gradients: Sequence[Tensor], into: Tensor) -> None:
        """Add the gradients of some rows to those of the coefficients, `[K, ...]`."""
        if self.rows is None:
            for row, gradient in zip(rows, gradients, strict=True):
                into[row] += gradient
        else:
            phi = self.rows[list(rows)].to(into.dtype)  # [R, K]
            along = torch.stack([gradient.reshape(-1) for gradient in gradients])
            into.view(len(into), -1).addmm_(phi.T, along)


class Samplings:
    """Several bases at the evaluations of a solve.

    Args:
        points: the evaluations.
        bases: to sample there.
        inverted: those whose pseudo-inverse there is needed, to update state.
    """

    def __init__(
        self, points: Sequence[Point], bases: Iterable[Basis], inverted: Iterable[Basis] = ()
    ):
        self.points = points
        self.samplings = {basis: Sampling.of(basis, points) for basis in bases}
        self.inverses = {b: least_squares(sample(b, points), rcond=1e-7) for b in inverted}

    def __getitem__(self, basis: Basis) -> Sampling:
        return self.samplings[basis]

    def to(self, dtype: torch.dtype, device: torch.device) -> Samplings:
        """The same in this precision and on this device."""
        made = Samplings(self.points, ())
        made.samplings = {b: sampling.to(dtype, device) for b, sampling in self.samplings.items()}
        made.inverses = {b: inverse.to(device) for b, inverse in self.inverses.items()}
        return made


def values_at(
    bases: Mapping[str, Basis],
    coefficients: Mapping[str, Tensor],
    rows: Mapping[Basis, Tensor | None],
    constraints: Mapping[str, Constraint] | None = None,
) -> dict[str, Tensor]:
    """Tensors that are functions of depth, at R depths: `[R, ...]` each.

    Whoever needs weights or state at a depth gets them here: from the coefficients `[K, ...]` of
    each and the rows `[R, K]` of its basis, None for the coefficients themselves. Constraints
    make state valid that must stay so wherever it is read.
    """
    values = {}
    for name, basis in bases.items():
        phi, value = rows[basis], coefficients[name]
        if phi is not None:
            value = contract(phi, value)
        rule = constraints.get(name) if constraints else None
        values[name] = value if rule is None else rule(value)
    return values


def contract(rows: Tensor, stack: Tensor) -> Tensor:
    """`[R, K]` times `[K, ...]`, in the precision and memory layout of the stack."""
    rows = rows.to(stack.dtype)
    if stack.dim() == 5 and not stack.is_contiguous():
        # A stack of channels-last kernels stays one, or each convolution would convert again.
        inner = stack.permute(0, 1, 3, 4, 2)
        return contract(rows, inner.contiguous()).permute(0, 1, 4, 2, 3)
    if _autocasting(stack):
        with torch.autocast(stack.device.type, enabled=False):
            return _product(rows, stack)
    return _product(rows, stack)


def _autocasting(x: Tensor) -> bool:
    """Whether automatic mixed precision is on for the device of this tensor."""
    kind = "cpu" if x.is_cpu else x.device.type  # which takes longer than everything else here
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _product(rows: Tensor, stack: Tensor) -> Tensor:
    return (rows @ stack.reshape(len(stack), -1)).reshape(len(rows), *stack.shape[1:])
