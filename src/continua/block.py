"""The block: a basis, a field and a solver put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ModuleError, ShapeError
from continua.basis import Basis, Constant, Point, Side
from continua.field import (
    BasisChoice,
    Binding,
    Expansion,
    Field,
    Init,
    Sampling,
    autocasting,
    copied,
    expand,
    put,
    tensor,
    values_at,
)
from continua.solve import RK4, RungeKutta, Solution, Span

__all__ = ["ODEBlock"]


class ODEBlock(nn.Module):
    r"""A residual network of continuous depth, made from any module.

    .. math:: \frac{dz}{ds} = f(z;\, \theta(s), \sigma(s)), \qquad z(s_0) = x, \quad y = z(s_1)

    The module's parameters θ and its state σ (batch-norm statistics, say) become functions of
    depth; `block.field` is the module with its names unchanged and each of those tensors as a
    stack of K coefficients. In training mode each forward updates the state by the smallest
    change that fits what the evaluations left behind (Stateful ODE-Nets, Queiruga et al. 2021).

    Args:
        field: any `nn.Module` that maps z to dz/ds, or a `Field`. It is copied.
        basis: how the weights may vary with depth: one basis, or a mapping from name patterns to
            bases, of which the first match wins.
        solver: how the trajectory is computed.
        state_basis: the same for the module's state; None takes `basis`.
        span: from which depth to which. The basis is stretched over it.
        init: `"copy"`, the module's own values at every depth, or `"independent"`, a fresh draw
            of `reset_parameters` at each node of the basis.

    Example:
        >>> import continua as ct
        >>> residual = nn.Sequential(nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 4))
        >>> block = ct.ODEBlock(residual, basis=ct.PiecewiseConstant(8), solver=ct.Euler(steps=8))
        >>> block(torch.randn(32, 4)).shape
        torch.Size([32, 4])
        >>> block.field[2].weight.shape
        torch.Size([8, 4, 4])
    """

    _depths: Tensor

    def __init__(
        self,
        field: nn.Module,
        basis: BasisChoice | None = None,
        solver: RungeKutta | None = None,
        *,
        state_basis: BasisChoice | None = None,
        span: Span = (0.0, 1.0),
        init: Init = "copy",
    ):
        super().__init__()
        if isinstance(field, nn.Module):
            for name, child in field.named_modules():
                if isinstance(child, ODEBlock):
                    raise ModuleError(
                        f"the field contains an ODEBlock ({name or 'itself'}); "
                        "put blocks one after another instead of inside each other"
                    )
        self.span = checked_span(span)
        self.solver = checked_solver(RK4(steps=8) if solver is None else solver)
        self.field, self.expansion = expand(
            field, Constant() if basis is None else basis, state_basis, init
        )
        self._rebase({}, self.solver)

    # -- what a user calls ---------------------------------------------------------------------

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The state at the end of the span.

        Args:
            x: the state at its start, of any shape.
            args: further arguments, handed to the field at every evaluation.
            kwargs: further arguments, handed to the field at every evaluation.
        """
        self._check_input(x)
        with self._bound(self._samplings()) as binding:
            f = self._evaluate(binding, x, self._depths, args, kwargs)
            return self.solver.advance(f, self._start(x), self.span)

    def solve(
        self,
        x: Tensor,
        *args: Any,
        save_at: Sequence[float] | Tensor | Literal["steps"] | None = None,
        span: Span | None = None,
        **kwargs: Any,
    ) -> Solution:
        """The trajectory.

        Args:
            x: the state at the start of the span.
            args: further arguments, handed to the field at every evaluation.
            save_at: the depths to return, along the span; `"steps"` for the start and the end
                of every step, None for the end alone.
            span: another span than the block's, backward for instance; the weights remain the
                functions of depth that they are.
            kwargs: further arguments, handed to the field at every evaluation.

        Example:
            >>> import continua as ct
            >>> block = ct.ODEBlock(nn.Tanh(), solver=ct.RK4(steps=4))
            >>> solution = block.solve(torch.ones(1, 2), save_at=[0.0, 0.5, 1.0])
            >>> solution.z.shape, solution.stats.evaluations
            (torch.Size([3, 1, 2]), 16)
        """
        self._check_input(x)
        span = self.span if span is None else checked_span(span)
        depths, samplings = self._depths, self._samplings()
        if span != self.span:
            depths, samplings = self._sample(span)
            samplings = {b: place(s, self._dtype_of(b), x.device) for b, s in samplings.items()}
            depths = depths.to(x.device)
        where = checked_depths(save_at, span, self.solver.steps)
        with self._bound(samplings) as binding:
            f = self._evaluate(binding, x, depths, args, kwargs)
            return self.solver.solve(f, self._start(x), span, where)

    def at(self, s: float, side: Side = "right") -> nn.Module:
        """The plain module at one depth, its tensors detached copies.

        Args:
            s: the depth.
            side: the limit to take where a basis jumps.
        """
        if not math.isfinite(s):
            raise ArgumentError(f"a depth is a finite number, not {s!r}")
        module = copied(self.field)
        for name, value in values_at(module, self.expansion, self._point(s, side)).items():
            put(module, self.expansion.names(name), value)
        return module

    def extra_repr(self) -> str:
        """What stands in the first lines of the repr."""
        weights, state = self.expansion.weights, self.expansion.state
        lines = [f"basis={summary(weights)}"]
        if state and (set(state.values()) != set(weights.values())):
            lines.append(f"state_basis={summary(state)}")
        lines.append(f"solver={self.solver!r}, span=({self.span[0]:g}, {self.span[1]:g})")
        count = sum(p.numel() for p in self.parameters())
        scalars = sum(tensor(self.field, name).numel() for name in state)
        lines.append(f"parameters={count:,}, state={scalars:,}")
        return "\n".join(lines)

    # -- what the verbs use --------------------------------------------------------------------

    def _rebase(
        self,
        stacks: Mapping[str, tuple[Basis, Tensor]],
        solver: RungeKutta,
    ) -> Self:
        """Take other bases and coefficients for some tensors, and another solver."""
        for name, (_, stack) in stacks.items():
            put(self.field, self.expansion.names(name), stack)
        bases = self.expansion.bases | {name: basis for name, (basis, _) in stacks.items()}
        self.expansion = Expansion(
            weights={name: bases[name] for name in self.expansion.weights},
            state={name: bases[name] for name in self.expansion.state},
            carried=self.expansion.carried,
            aliases=self.expansion.aliases,
            constraints=self.expansion.constraints,
        )
        self.solver = checked_solver(solver)
        self._plan = self._sample(self.span)
        self._place()
        return self

    # -- the grid ------------------------------------------------------------------------------

    def _point(self, s: float | Fraction, side: Side) -> Point:
        """A depth of the span as a point of the bases, which live on [0, 1]."""
        low, high = map(Fraction, sorted(self.span))
        return Point(float((Fraction(s) - low) / (high - low)), side)

    def _sample(self, span: Span) -> tuple[Tensor, dict[Basis, Sampling]]:
        """The depths of all evaluations over a span, and every basis there, in float64."""
        stages = self.solver.stages(span)
        points = [self._point(stage.depth, stage.side) for stage in stages]
        depths = torch.tensor([float(stage.depth) for stage in stages], dtype=torch.float64)
        bases = dict.fromkeys(self.expansion.bases.values())
        return depths, {basis: Sampling.of(basis, points) for basis in bases}

    def _dtype_of(self, basis: Basis) -> torch.dtype:
        """The precision in which a basis is read: the finest of the tensors that use it."""
        dtype = torch.float16
        for name, other in self.expansion.bases.items():
            if other == basis:
                dtype = torch.promote_types(dtype, tensor(self.field, name).dtype)
        return dtype.to_real() if dtype.is_complex else dtype

    def _place(self) -> None:
        """Lay the plan out as buffers in the weights' precision and on their device.

        The exact plan stays apart in float64: a trip through half precision costs nothing.
        """
        depths, samplings = self._plan
        held: list[Tensor] = [*self.field.parameters(), *self.field.buffers()]
        reference = held[0] if held else torch.empty(0)
        real = reference.dtype if reference.is_floating_point() else torch.get_default_dtype()
        self._hold("_depths", depths.to(reference.device, real))
        for i, (basis, sampling) in enumerate(samplings.items()):
            placed = place(sampling, self._dtype_of(basis), reference.device)
            self._hold(f"_rows{i}", placed.rows)
            self._hold(f"_picks{i}", placed.picks)
            self._hold(f"_inverse{i}", placed.inverse)

    def _hold(self, name: str, value: Tensor | None) -> None:
        self.register_buffer(name, value, persistent=False)

    def _samplings(self) -> dict[Basis, Sampling]:
        return {
            basis: Sampling(
                rows=getattr(self, f"_rows{i}"),
                index=sampling.index,
                picks=getattr(self, f"_picks{i}"),
                inverse=getattr(self, f"_inverse{i}"),
            )
            for i, (basis, sampling) in enumerate(self._plan[1].items())
        }

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(by_rows(fn), recurse)  # type: ignore[no-untyped-call]
        self._place()
        return self

    # -- one evaluation ------------------------------------------------------------------------

    def _bound(self, samplings: Mapping[Basis, Sampling]) -> Binding:
        return Binding(self.field, self.expansion, samplings, len(self._plan[0]))

    def _start(self, x: Tensor) -> Tensor:
        # Under autocast the field may compute in half precision; the sum of its steps may not.
        if autocasting(x.device) and x.dtype in (torch.float16, torch.bfloat16):
            return x.float()
        return x

    def _evaluate(
        self,
        binding: Binding,
        x: Tensor,
        depths: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Callable[[int, Tensor], Tensor]:
        if isinstance(self.field, Field):
            s = depths.unbind(0)

            def f(i: int, z: Tensor) -> Tensor:
                return binding.call(i, s[i], z, x, *args, **kwargs)
        else:

            def f(i: int, z: Tensor) -> Tensor:
                return binding.call(i, z, *args, **kwargs)

        def checked(i: int, z: Tensor) -> Tensor:
            if i > 0:
                return f(i, z)
            try:
                out = f(i, z)
            except RuntimeError as error:
                raise ShapeError(
                    f"the field {type(self.field).__name__} fails on a state of shape "
                    f"{list(z.shape)} and {z.dtype}: {error}"
                ) from error
            self._check_output(out, z)
            return out

        return checked

    def _check_input(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise ShapeError(f"the state is a tensor, not {type(x).__name__}")
        if not (x.is_floating_point() or x.is_complex()):
            raise ShapeError(f"the state must be floating-point, not {x.dtype}; use x.float()")
        weight = next(iter(self.field.parameters()), None)
        if weight is not None and weight.device != x.device:
            raise ShapeError(
                f"the input is on {x.device} but the block's weights are on {weight.device}; "
                f"use block.to({str(x.device)!r}) or move the input"
            )
        if (
            weight is not None
            and not autocasting(x.device)
            and weight.dtype.is_floating_point
            and x.dtype != weight.dtype
            and x.dtype.is_floating_point
        ):
            raise ShapeError(
                f"the input is {x.dtype} but the block's weights are {weight.dtype}; "
                f"use block.to({x.dtype}) or convert the input"
            )
        if _has_values(x) and not torch.isfinite(x.detach()).all():
            raise ArgumentError(f"the input of the block has {_non_finite(x)}")

    def _check_output(self, out: Tensor, z: Tensor) -> None:
        name = type(self.field).__name__
        if not isinstance(out, Tensor):
            raise ShapeError(f"the field {name} returned {type(out).__name__}, not a tensor")
        if out.shape != z.shape:
            raise ShapeError(
                f"the field {name} maps a state of shape {list(z.shape)} to "
                f"{list(out.shape)}; dz/ds must have the shape of z"
            )


def checked_span(span: Span) -> Span:
    """The span as two different finite floats."""
    try:
        start, end = map(float, span)
    except (TypeError, ValueError):
        raise ArgumentError(f"a span is a pair of depths, not {span!r}") from None
    if not (math.isfinite(start) and math.isfinite(end)) or start == end:
        raise ArgumentError(f"a span goes from one finite depth to another, not {span!r}")
    return start, end


def checked_solver(solver: RungeKutta) -> RungeKutta:
    """The solver, if it is one."""
    if not isinstance(solver, RungeKutta):
        raise ArgumentError(f"solver is an instance such as continua.RK4(steps=8), not {solver!r}")
    return solver


def checked_depths(
    save_at: Sequence[float] | Tensor | Literal["steps"] | None, span: Span, steps: int
) -> list[float]:
    """The depths to save, sorted along the span and inside it."""
    start, end = span
    if save_at is None:
        return [end]
    if isinstance(save_at, str):
        if save_at != "steps":
            raise ArgumentError(f"save_at is 'steps' or a list of depths, not {save_at!r}")
        return [start + (end - start) * n / steps for n in range(steps)] + [end]
    depths = [float(s) for s in save_at]
    for s in depths:
        if not min(span) <= s <= max(span):
            raise ArgumentError(f"save_at has depth {s:g}, outside the span ({start:g}, {end:g})")
    if depths != sorted(depths, reverse=end < start):
        raise ArgumentError(f"save_at must run along the span ({start:g}, {end:g}): sort it")
    return depths


def place(sampling: Sampling, dtype: torch.dtype, device: torch.device) -> Sampling:
    """A sampling in this precision and on this device."""
    return Sampling(
        rows=None if sampling.rows is None else sampling.rows.to(device, dtype),
        index=sampling.index,
        picks=sampling.picks.to(device),
        inverse=sampling.inverse.to(device, dtype),
    )


def by_rows(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A conversion that also takes a stack of images' kernels.

    `model.to(memory_format=torch.channels_last)` refuses five dimensions; on a stack of
    kernels it means each kernel.
    """

    def convert(t: Tensor) -> Tensor:
        try:
            return fn(t)
        except RuntimeError:
            if t.dim() != 5:
                raise
            rows = [fn(row).permute(0, 2, 3, 1) for row in t.unbind(0)]
            return torch.stack(rows).permute(0, 1, 4, 2, 3)

    return convert


def summary(bases: Mapping[str, Basis]) -> str:
    """The bases in use, and how many tensors use each where there are several."""
    counts: dict[Basis, int] = {}
    for basis in bases.values():
        counts[basis] = counts.get(basis, 0) + 1
    if len(counts) == 1:
        return repr(next(iter(counts)))
    return ", ".join(f"{basis!r} for {n}" for basis, n in counts.items()) or "none"


def _has_values(x: Tensor) -> bool:
    """Whether the tensor can be looked at: not while tracing, nor under vmap."""
    if torch.compiler.is_compiling() or x.is_meta:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(x)


def _non_finite(x: Tensor) -> str:
    """Where a tensor is not finite, in words."""
    bad = ~torch.isfinite(x.detach())
    kind = "NaN" if x.detach().isnan().any() else "infinite"
    sample = f", first in sample {int(bad.nonzero()[0, 0])}" if x.dim() else ""
    return f"{int(bad.sum())} {kind} of {x.numel()} values{sample}; clean the data before"
