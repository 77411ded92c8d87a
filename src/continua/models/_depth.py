"""Depth as a function of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import softplus
from torch.nn.modules.batchnorm import _NormBase

from continua._errors import ArgumentError, ModuleError, ShapeError, SolveError
from continua.basis import Constant
from continua.block import ODEBlock
from continua.field import Field, Path, contract, evaluated, fields_of, tensor, turn
from continua.solve import Solution

Positive = Literal["softplus", "exp", "absolute"]


class AdaptiveDepth(nn.Module):
    r"""A block in which every sample goes as deep as a network says.

    .. math:: y = z(S(x)), \qquad \frac{dz}{ds} = f(s, z, x;\, \theta(s)), \qquad z(s_0) = x

    All samples are solved together over u in [0, 1], with

    .. math:: \frac{dz}{du} = S(x)\, f(s_0 + S(x)\,u,\, z, x;\, \theta(s_0 + S(x)\,u))

    so that each reads the weights at its own depth, and gradients reach the network that gives
    S. Depth is measured in the block's own units: S = 1 is the whole of a span of length one,
    and a sample may go beyond it, where a basis continues.

    A step cannot stop at a jump of the weights that every sample meets elsewhere: with buckets
    prefer many fixed steps, or smooth bases.

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
        with turn(self.block.field).lock:  # every evaluation lends weights to that field
            return self._solve(x, save_at, control)

    def _solve(self, x: Tensor, save_at: Sequence[float] | None, control: Any) -> Solution:
        block = self.block
        if block.expansion.state and block.field.training:
            raise ModuleError(
                "batch norm in training mode mixes samples that stand at different depths: put "
                "block.field in evaluation mode, or use another norm"
            )
        if isinstance(control, Path):
            raise ArgumentError(
                "a Path cannot control samples that stand at different depths; give "
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
        names = [*block.expansion.weights, *block.expansion.state]
        stacks = [tensor(block.field, name) for name in names]
        deepest = float(depths.detach().max()) if len(depths) else 0.0
        field = _PerSample(block, names, deepest)
        inner = ODEBlock(field, Constant(), block.solver, block.gradient)
        seen = x if control is None else control
        return inner.solve(x, depths, *stacks, save_at=save_at, control=seen)

    def extra_repr(self) -> str:
        """What stands in the repr."""
        return f"positive={self.positive!r}"


class _PerSample(Field):
    """The field of a block at a depth of its own for every sample; it has no parameters.

    Args:
        block: whose field it is.
        names: of the weights and the state, in the order in which their stacks are given.
        deepest: how far the deepest sample goes, for which depth runs fastest.
    """

    def __init__(self, block: ODEBlock, names: Sequence[str], deepest: float):
        super().__init__()
        self._deepest, self._width = deepest, abs(block.span[1] - block.span[0])
        self._modes = _modes(block)
        self._hidden = _Hidden(block, tuple(names))
        bases = block.expansion.bases
        self._varies = isinstance(block.field, Field) or any(
            not isinstance(bases[name], Constant) for name in names
        )

    @property
    def depth_frequency(self) -> float:
        weights = self._hidden.block.expansion.weights.items()
        module = self._hidden.block.field
        trained = [basis for name, basis in weights if tensor(module, name).requires_grad]
        own = max((field.depth_frequency for field in fields_of(module)), default=0.0)
        fastest = max((basis.frequency for basis in trained), default=0.0)
        return self._deepest * (fastest / self._width + own)

    def points_on(self, width: float, error: float) -> int:
        reach = self._deepest * width
        bases = self._hidden.block.expansion.weights.values()
        fields = fields_of(self._hidden.block.field)
        own = max((field.points_on(reach, error) for field in fields), default=1)
        # Products of functions of depth: their degrees add.
        return own - 1 + max((b.points_on(reach / self._width, error) for b in bases), default=1)

    def forward(self, s: Tensor, z: Tensor, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        with turn(self._hidden.block.field).lock:
            return self._slope(s, z, x, *args)

    def _slope(self, s: Tensor, z: Tensor, x: Any, *args: Any) -> Tensor:
        depth: Tensor = args[0]
        stacks = args[1:]
        block, names = self._hidden.block, self._hidden.names
        if self._modes != _modes(block):
            raise SolveError(
                "training mode of the field changed between the forward pass and the backward "
                "pass that evaluates it again; call backward first"
            )
        low, high = sorted(block.span)
        slope: Tensor
        if not self._varies:
            weights = {name: stack[0] for name, stack in zip(names, stacks, strict=True)}
            slope = functional_call(block.field, weights, (z,))
        else:
            at = block.span[0] + depth * s * (1 if block.span[1] > block.span[0] else -1)  # [B]
            place = (at - low) / (high - low)
            each = {}
            for name, stack in zip(names, stacks, strict=True):
                basis = block.expansion.bases[name]
                if isinstance(basis, Constant):  # no function of the depth, which may be learned
                    value = stack.expand(len(z), *stack.shape[1:])
                else:
                    value = contract(basis(place), stack)  # [B, K] by [K, ...]
                rule = block.expansion.constraints.get(name)
                each[name] = value if rule is None else rule(value)

            def one(weights: dict[str, Tensor], depth: Tensor, z: Tensor, x: Tensor) -> Tensor:
                given = _Call(block.field)
                out: Tensor = functional_call(
                    given,
                    {f"module.{name}": value for name, value in weights.items()},
                    (depth, z.unsqueeze(0), x.unsqueeze(0)),
                )
                return out[0]

            slope = vmap(one, randomness="different")(each, at, z, x)
        shape = (-1, *[1] * (z.dim() - 1))
        return slope * depth.reshape(shape)


@dataclass(frozen=True)
class _Hidden:
    """A block outside the module tree, the same one in every copy.

    Its stacks come as arguments, so that every gradient method hands theirs back.
    """

    block: ODEBlock
    names: tuple[str, ...]

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hidden:
        return self


def _modes(block: ODEBlock) -> tuple[bool, ...]:
    """Which parts of the field are training."""
    return tuple(module.training for module in block.field.modules())


class _Call(nn.Module):
    """A module or field called the same way."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, s: Tensor, z: Tensor, x: Any) -> Tensor:
        return evaluated(self.module, s, z, x)
