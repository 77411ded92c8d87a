"""Weights in a basis of a depth that is learned too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ModuleError
from continua.basis import (
    Basis,
    BSpline,
    Constant,
    DiscontinuousLinear,
    PiecewiseConstant,
    PiecewiseLinear,
)

from ._expansion import BasisChoice, expand
from ._given import GivenWeights
from ._sampling import values_at
from ._tensors import copied, put, real, tensor

#: they break at the ends of [0, 1] even where they have a single cell, since they stop there
PIECEWISE = (PiecewiseConstant, PiecewiseLinear, DiscontinuousLinear, BSpline)


class Warped(GivenWeights):
    r"""A field whose weights are functions of a depth that is stretched and shifted.

    .. math:: \frac{dz}{ds} = f(z;\, \theta(s)), \qquad
              \theta(s) = \sum_k \phi_k(\alpha s + \beta)\, \theta_k

    The dilation α and the shift β are learned together with the coefficients. That is why this
    is a field and not a basis: a basis is a value and holds no tensors.

    s is the depth of the block as it stands. With α = 1 and β = 0 on the span (0, 1) it is what
    `ODEBlock(module, basis)` is, at more cost for each evaluation: that block knows its weights
    before it starts. `continua.fit_hypernetwork` writes the weights in a plain basis once α and β
    are found; then they can be refined and compressed.

    Families that are smooth on the whole line serve: `Fourier`, the polynomials and the radial
    functions. A piecewise one is refused: neither the steps of a solver nor a gradient can see a
    jump or a bend that moves with a parameter.

    Args:
        module: f; it is copied, and its own values are where the weights start.
        basis: one basis, or a mapping from name patterns to bases, of which the first match
            wins. Parameters that no pattern matches stay constant, and so does state.
        dilation: α at the start.
        shift: β at the start.

    The Galerkin layers of Dissecting Neural ODEs (Massaroli et al. 2020).

    Example:
        >>> import continua as ct
        >>> field = Warped(nn.Linear(2, 2), ct.Fourier(2))
        >>> block = ct.ODEBlock(field, solver=ct.RK4(steps=4))
        >>> block(torch.ones(5, 2)).sum().backward()
        >>> block.field.dilation.grad.shape, block.field.expanded.weight.shape
        (torch.Size([1]), torch.Size([1, 5, 2, 2]))
    """

    def __init__(
        self, module: nn.Module, basis: BasisChoice, dilation: float = 1.0, shift: float = 0.0
    ):
        super().__init__()
        chosen = {**basis, "*": basis.get("*", Constant())} if isinstance(basis, Mapping) else basis
        if not isinstance(module, nn.Module):
            raise ModuleError(
                f"a field is an nn.Module, not {module!r}; a function has no weights to warp"
            )
        if not any(p.requires_grad for p in module.parameters()):
            raise ArgumentError(
                f"{type(module).__name__} has no trainable parameter that could vary with depth; "
                "give Warped a module that has one"
            )
        expanded, expansion = expand(module, chosen, state_basis=Constant())
        for name, found in expansion.bases.items():
            if isinstance(found, Constant):
                put(expanded, expansion.names(name), tensor(expanded, name)[0])
        self._bases = {n: b for n, b in expansion.weights.items() if not isinstance(b, Constant)}
        self._aliases = expansion.aliases
        if not self._bases:
            raise ArgumentError(
                f"with {basis!r} no weight varies with depth, so that there is nothing to warp; "
                "choose another basis for some, such as continua.Fourier(2)"
            )
        for name, found in self._bases.items():
            refuse_breaks(name, found)
        like = tensor(expanded, next(iter(self._bases)))
        self.dilation = nn.Parameter(_scalar("dilation", dilation, like))
        self.shift = nn.Parameter(_scalar("shift", shift, like))
        self.expanded = expanded

    def weights(self, s: Tensor) -> dict[str, Tensor]:
        """The weights that vary, at a depth, a scalar tensor."""
        at = self.dilation * s + self.shift
        rows: dict[Basis, Tensor | None] = {
            basis: basis(at).unsqueeze(0) for basis in dict.fromkeys(self._bases.values())
        }
        coefficients = {name: tensor(self.expanded, name) for name in self._bases}
        found = values_at(self._bases, coefficients, rows)
        return {name: value[0] for name, value in found.items()}

    @property
    def module(self) -> nn.Module:
        """A copy of the module, with its weights at depth zero."""
        plain = copied(self.expanded)
        with torch.no_grad():
            for name, value in self.weights(torch.zeros_like(self.dilation)).items():
                put(plain, self._names_of(name), value)
        return plain

    @property
    def depth_frequency(self) -> float:
        trained = {b for n, b in self._bases.items() if tensor(self.expanded, n).requires_grad}
        return self._stretch() * max((basis.frequency for basis in trained), default=0.0)

    def points_on(self, width: float, error: float) -> int:
        bases = set(self._bases.values())
        return max(basis.points_on(self._stretch() * abs(width), error) for basis in bases)

    def _stretch(self) -> float:
        # In a block it is a stack; a basis of the block's own may let it vary with depth.
        return float(self.dilation.detach().abs().max())

    def forward(self, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        return self._call(self.expanded, s, z, x, *args, **kwargs)

    def extra_repr(self) -> str:
        return ", ".join(repr(basis) for basis in dict.fromkeys(self._bases.values()))


def refuse_breaks(name: str, basis: Basis) -> None:
    """One sentence for a basis that is not smooth on the whole line."""
    if isinstance(basis, PIECEWISE) or len(basis.breakpoints) > 2:
        raise ArgumentError(
            f"{name!r} was given {basis!r}, whose functions jump, bend or stop at fixed places; "
            "warped, these would move with a parameter, which neither solver nor gradient can "
            "see: use Fourier, Legendre, Chebyshev or GaussianRBF"
        )


def _scalar(name: str, value: float, like: Tensor) -> Tensor:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise ArgumentError(f"{name} is a finite number, not {value!r}")
    return torch.tensor(float(value), dtype=real(like.dtype), device=like.device)
