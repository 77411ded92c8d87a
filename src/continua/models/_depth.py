"""Depth as a function of the input."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.functional import softplus
from torch.nn.modules.batchnorm import _NormBase

from continua._errors import ArgumentError, ModuleError, ShapeError, SolveError
from continua.basis import Basis, Constant
from continua.block import ODEBlock
from continua.field import Field, Signal, Slots, evaluated, fields_of, tensor, values_at
from continua.gradient import (
    CHANGED,
    CallableDynamics,
    Gradient,
    Problem,
    Programs,
    Uncompilable,
    compiled_first,
    solve,
)
from continua.solve import Solution

from ._with_block import WithBlock

Positive = Literal["softplus", "exp", "absolute"]


class AdaptiveDepth(WithBlock):
    r"""An ODE block that integrates each sample to its own depth, which a network predicts.

    .. math:: y = z(S(x)), \qquad \frac{dz}{ds} = f(s, z, x;\, \theta(s)), \qquad z(s_0) = x

    All samples are solved together over u in [0, 1], with

    .. math:: \frac{dz}{du} = S(x)\, f(s_0 + S(x)\,u,\, z, x;\, \theta(s_0 + S(x)\,u))

    so that each reads the weights at its own depth, and gradients reach the network that gives
    S. Depth is measured in the block's own units: S = 1 is the whole of a span of length one,
    and a sample may go beyond it, where a basis continues.

    Each sample meets the jumps of the weights at another step, so steps cannot stop at them: with
    buckets, prefer many fixed steps, or smooth bases.

    Args:
        block: field, weights, solver and gradient. Its own parameters are trained.
        depth_net: from x to one number per sample, `[B]` or `[B, 1]`.
        positive: how that number is made positive: `softplus(g)`, `exp(g)` or `|1 + g|`; None
            takes it as it is, and refuses zero and less.

    Dissecting Neural ODEs (Massaroli et al. 2020), section 5.

    Example:
        >>> import torch
        >>> import continua as ct
        >>> model = AdaptiveDepth(
        ...     ct.ODEBlock(nn.Linear(2, 2), solver=ct.RK4(steps=4)), nn.Linear(2, 1)
        ... )
        >>> x = torch.randn(5, 2)
        >>> model(x).shape, model.depths(x).shape
        (torch.Size([5, 2]), torch.Size([5]))
    """

    def __init__(
        self, block: ODEBlock, depth_net: nn.Module, positive: Positive | None = "softplus"
    ):
        super().__init__()
        if not isinstance(block, ODEBlock):
            raise ArgumentError(f"block is an ODEBlock, not {type(block).__name__}")
        if positive is not None and positive not in get_args(Positive):
            known = ", ".join(get_args(Positive))
            raise ArgumentError(f"positive is one of {known} or None, not {positive!r}")
        self.block, self.depth_net, self.positive = block, depth_net, positive

    def depths(self, x: Tensor) -> Tensor:
        """How deep each sample goes, `[B]`."""
        raw = self.depth_net(x)
        if not isinstance(raw, Tensor) or raw.shape not in ((len(x),), (len(x), 1)):
            got = list(raw.shape) if isinstance(raw, Tensor) else type(raw).__name__
            raise ShapeError(
                f"depth_net gives one number per sample, [{len(x)}] or [{len(x)}, 1], not {got}; "
                "give its last layer one output"
            )
        raw = raw.reshape(len(x))
        if self.positive == "softplus":
            depth = softplus(raw)
        elif self.positive == "exp":
            depth = raw.exp()
        elif self.positive == "absolute":
            depth = (1 + raw).abs()
        else:
            depth = raw
        bad = ~(depth.detach().isfinite() & (depth.detach() > 0))
        if bool(bad.any()):
            first = int(bad.nonzero()[0, 0])
            value = float(depth[first].detach())
            if not isfinite(value):
                remedy = "look for large or non-finite values in its input and its weights"
            elif self.positive is None:
                remedy = "use positive='softplus'"
            else:
                remedy = f"its number is {float(raw[first].detach()):g}: lower its learning rate"
            raise SolveError(
                f"depth_net gives sample {first} the depth {value:g}, but depths are finite and "
                f"positive: {remedy}"
            )
        return depth

    def forward(self, x: Tensor, *, control: Any = None) -> Tensor:
        """The state of every sample at its own depth."""
        final: Tensor = self.solve(x, control=control).final
        return final

    def solve(
        self,
        x: Tensor,
        *,
        save_at: Sequence[float] | None = None,
        control: Any = None,
    ) -> Solution:
        """The trajectory; depths to save are shares of each sample's own depth, from 0 to 1."""
        block = self.block
        if block.expansion.state and block.expansion.trains(block.field):
            raise ModuleError(
                "batch norm in training mode mixes samples that stand at different depths: put "
                "block.field in evaluation mode, or use another norm"
            )
        if isinstance(control, Signal):
            raise ArgumentError(
                "a Signal cannot control samples that stand at different depths; give "
                "AdaptiveDepth a tensor as its control"
            )
        depths = self.depths(x)
        varying = [
            name
            for name, basis in block.expansion.state.items()
            if not isinstance(basis, Constant)
            and isinstance(block.field.get_submodule(name.rpartition(".")[0]), _NormBase)
        ]
        if varying and depths.requires_grad and torch.is_grad_enabled():
            raise ModuleError(
                f"{varying[0]!r} varies with depth, and batch norm has no gradient by its "
                "statistics, so none reaches depth_net: make the block with "
                "state_basis=continua.Constant()"
            )
        names = tuple(block.expansion.bases)
        stacks = [tensor(block.field, name) for name in names]
        deepest = float(depths.detach().max()) if len(depths) else 0.0
        f = _PerSample(block, names)
        args = (depths, x if control is None else control, *stacks)

        def run(gradient: Gradient, programs: Programs | None) -> Solution:
            if programs is not None and f.varies:
                raise Uncompilable(
                    "AdaptiveDepth is compiled with constant weights only, and without a Field"
                )
            problem = Problem.of(x, None, None, (0.0, 1.0), gradient)
            dynamics = _Depths(f, problem, args, [], x)
            dynamics.deepest = deepest
            if block.solver.adaptive and gradient.discrete and torch.is_grad_enabled():
                dynamics.frequency = dynamics.fastest()
            return solve(dynamics, problem, block.solver, gradient, save_at, programs=programs)

        solution = compiled_first(block.programs, block.gradient, block.solver, run)
        block.record(solution.stats)
        return solution

    def extra_repr(self) -> str:
        """What stands in the repr."""
        return f"positive={self.positive!r}"


class _PerSample:
    """The field of a block at a depth of its own for every sample.

    Args:
        block: whose field it is.
        names: of the weights and the state, in the order in which their coefficients are given.
    """

    def __init__(self, block: ODEBlock, names: tuple[str, ...]):
        self.block, self._names = block, names
        self._modes = [module.training for module in block.field.modules()]
        bases = block.expansion.bases.values()
        self.varies = isinstance(block.field, Field) or any(
            not isinstance(basis, Constant) for basis in bases
        )

    def __call__(self, s: Tensor, z: Tensor, depth: Tensor, x: Any, *stacks: Tensor) -> Tensor:
        block = self.block
        if self._modes != [module.training for module in block.field.modules()]:
            raise SolveError(CHANGED)
        depth = depth if block.span[1] > block.span[0] else -depth
        at = block.span[0] + depth * s  # [B]
        twin = block.twins.take(block.field, block.expansion)
        try:
            slope = self._slope(twin, at, z, x, dict(zip(self._names, stacks, strict=True)))
        finally:
            block.twins.give_back(twin)
        return slope * depth.reshape(-1, *[1] * (z.dim() - 1))

    def _slope(
        self, twin: Slots, at: Tensor, z: Tensor, x: Any, coefficients: dict[str, Tensor]
    ) -> Tensor:
        expansion = self.block.expansion
        if not self.varies:
            twin.put({name: stack[0] for name, stack in coefficients.items()})
            out: Tensor = twin.module(z)
            return out
        low, high = sorted(self.block.span)
        place = (at - low) / (high - low)
        ones = torch.ones(len(z), 1, dtype=place.dtype, device=place.device)
        rows: dict[Basis, Tensor | None] = {
            basis: ones if isinstance(basis, Constant) else basis(place)  # [B, K]
            for basis in set(expansion.bases.values())
        }
        each = values_at(expansion.bases, coefficients, rows, expansion.constraints)

        def one(weights: dict[str, Tensor], depth: Tensor, z: Tensor, x: Any) -> Tensor:
            twin.put(weights)
            return evaluated(twin.module, depth, z.unsqueeze(0), x.unsqueeze(0))[0]

        slopes: Tensor = vmap(one, randomness="different")(each, at, z, x)
        return slopes


class _Depths(CallableDynamics):
    """The same as dynamics that know how fast the weights vary.

    Attributes:
        deepest: how far the deepest sample goes, for which depth runs fastest.
    """

    deepest = 0.0

    def fastest(self) -> float:
        """How fast the weights vary, in radians per share of the depth."""
        block = self._block
        trained = [
            basis
            for name, basis in block.expansion.weights.items()
            if tensor(block.field, name).requires_grad
        ]
        own = max((field.depth_frequency for field in fields_of(block.field)), default=0.0)
        fastest = max((basis.frequency for basis in trained), default=0.0)
        return self.deepest * (fastest / abs(block.span[1] - block.span[0]) + own)

    def points(self, width: float, error: float) -> int:
        block, reach = self._block, self.deepest * abs(width)
        share = reach / abs(block.span[1] - block.span[0])
        own = max((f.points_on(reach, error) for f in fields_of(block.field)), default=1)
        bases = block.expansion.weights.values()
        # Products of functions of depth: their degrees add.
        return own - 1 + max((b.points_on(share, error) for b in bases), default=1)

    @property
    def reached(self) -> object:
        block = self._block
        return (block.field, repr(block.expansion.bases), block.span)

    @property
    def _block(self) -> ODEBlock:
        assert isinstance(self.f, _PerSample)
        return self.f.block
