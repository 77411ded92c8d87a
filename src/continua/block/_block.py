"""The block: a basis, a field and a solver put together."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ModuleError, SolveError
from continua.basis import Basis, Constant, Side
from continua.field import (
    BasisChoice,
    Expansion,
    Init,
    Path,
    Sampling,
    autocasting,
    copied,
    expand,
    in_turn,
    put,
    real,
    tensor,
    values_at,
)
from continua.gradient import Backprop, Gradient
from continua.solve import (
    RK4,
    RungeKutta,
    Solution,
    Solver,
    Span,
    Stage,
    State,
    Status,
    Trajectory,
    sides,
)

from ._checks import (
    adaptive,
    by_rows,
    checked_control,
    checked_depths,
    checked_gradient,
    checked_solver,
    checked_span,
    checked_state,
    explain,
    summary,
    tracing,
    unflat,
    with_finite_end,
)
from ._dynamics import BlockDynamics, RunningCost
from ._ends import solution, with_end
from ._plan import Plan, Stretch
from ._serving import Serving

#: of the names of the buffers that hold the plan
PREFIX = "_plan_"


class ODEBlock(nn.Module):
    r"""A residual network of continuous depth, made from any module.

    .. math:: \frac{dz}{ds} = f(z;\, \theta(s), \sigma(s)), \qquad z(s_0) = x, \quad y = z(s_1)

    The module's parameters θ and its state σ (batch-norm statistics, say) become functions of
    depth; `block.field` is the module with its names unchanged and each of those tensors as a
    stack of K coefficients. In training mode each forward updates the state by the smallest
    change that fits what the evaluations left behind (Stateful ODE-Nets, Queiruga et al. 2021).
    Threads that share a block take turns in it; to work side by side they need a copy each.

    Args:
        field: any `nn.Module` that maps z to dz/ds, or a `Field`. It is copied.
        basis: how the weights may vary with depth: one basis, or a mapping from name patterns to
            bases, of which the first match wins.
        solver: how the trajectory is computed.
        gradient: how it is differentiated.
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

    def __init__(
        self,
        field: nn.Module,
        basis: BasisChoice | None = None,
        solver: Solver | None = None,
        gradient: Gradient | None = None,
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
        self._span = checked_span(span)
        self._solver = checked_solver(RK4(steps=8) if solver is None else solver)
        self.field, self.expansion = expand(
            field, Constant() if basis is None else basis, state_basis, init
        )
        self.gradient = checked_gradient(Backprop() if gradient is None else gradient)
        self._rebase({}, self._solver)

    @property
    def span(self) -> Span:
        """From which depth to which; fixed, since the basis is stretched over it."""
        return self._span

    @property
    def solver(self) -> Solver:
        """How the trajectory is computed; another one may be assigned."""
        return self._solver

    @solver.setter
    @in_turn
    def solver(self, solver: Solver) -> None:
        self._rebase({}, checked_solver(solver))

    # -- what a user calls ---------------------------------------------------------------------

    @in_turn
    def forward(self, x: Any, *args: Any, control: Any = None, **kwargs: Any) -> Any:
        """The state at the end of the span.

        Args:
            x: the state at its start: a tensor of any shape, or a tuple or dictionary of tensors.
            args: further arguments, handed to the field at every evaluation.
            control: what a `Field` sees as the input x, a tensor or a `Path`; the state at the
                start by default.
            kwargs: further arguments, handed to the field at every evaluation.
        """
        if control is None and not (args or kwargs) and isinstance(x, Tensor):
            serving = self._served()
            if serving is not None and not autocasting(x):
                return serving(x)
        leaves, structure = checked_state(x, self._weight())
        plan = self._plan_of(self.span)
        seen = x if control is None else checked_control(control, self.span)
        solver = self.solver
        dynamics = self._dynamics(leaves[0], seen, structure, args, kwargs, plan, None, solver)
        trajectory = self._run(dynamics, leaves, self.span, (), solver)
        if trajectory.status is not Status.SUCCESS:
            raise SolveError(explain(trajectory, self.solver))
        return trajectory.final[0] if structure is None else unflat(trajectory.final, structure)

    @in_turn
    def solve(
        self,
        x: Any,
        *args: Any,
        save_at: Sequence[float] | Tensor | Literal["steps"] | None = None,
        span: tuple[float | Tensor, float | Tensor] | None = None,
        running_cost: RunningCost | None = None,
        control: Any = None,
        solver: Solver | None = None,
        raise_on_failure: bool = True,
        **kwargs: Any,
    ) -> Solution:
        r"""The trajectory, and what it cost.

        Args:
            x: the state at the start of the span.
            args: further arguments, handed to the field at every evaluation.
            save_at: the depths to return, along the span; `"steps"` for the start and the end
                of every step of a fixed grid, None for the end alone.
            span: another span than the block's, backward for instance; the weights remain the
                functions of depth that they are. End points that require a gradient get one.
            running_cost: l(s, z) or l(s, z, x), one number per sample, a function or a module
                with parameters of its own; `Solution.cost` is its integral over the span.
            control: what a `Field` and the running cost see as the input x; the state at the
                start by default.
            solver: another one than the block's, for this solve alone.
            raise_on_failure: False returns the status of a solve that stopped instead.
            kwargs: further arguments, handed to the field at every evaluation.

        Example:
            >>> import continua as ct
            >>> block = ct.ODEBlock(nn.Tanh(), solver=ct.RK4(steps=4))
            >>> solution = block.solve(torch.ones(1, 2), save_at=[0.0, 0.5, 1.0])
            >>> solution.z.shape, solution.stats.evaluations
            (torch.Size([3, 1, 2]), 16)
        """
        leaves, structure = checked_state(x, self._weight())
        ends = self.span if span is None else span
        values = checked_span(ends)
        used = self.solver if solver is None else checked_solver(solver)
        where = checked_depths(save_at, values, used)
        if running_cost is not None:
            first = leaves[0]
            batch = first.shape[:1]
            leaves = (*leaves, torch.zeros(batch, dtype=real(first.dtype), device=first.device))
        plan = self._plan_of(values) if solver is None else None
        seen = x if control is None else checked_control(control, values)
        dynamics = self._dynamics(
            leaves[0], seen, structure, args, kwargs, plan, running_cost, used
        )
        leaves = with_end(dynamics, leaves, ends, values, at_end=False)
        trajectory = self._run(dynamics, leaves, values, where, used)
        trajectory = with_finite_end(trajectory, values[1])
        if trajectory.status is not Status.SUCCESS and raise_on_failure:
            raise SolveError(explain(trajectory, used))
        final = with_end(dynamics, trajectory.final, ends, values, at_end=True)
        return solution(trajectory, final, where, values[1], structure, running_cost is not None)

    @in_turn
    def at(self, s: float, side: Side = "right") -> nn.Module:
        """The plain module at one depth, its tensors detached copies.

        Args:
            s: the depth.
            side: the limit to take where a basis jumps.
        """
        if not isinstance(s, int | float) or not math.isfinite(s):
            raise ArgumentError(f"a depth is a finite number, not {s!r}")
        module = copied(self.field)
        for name, value in values_at(module, self.expansion, self._stretch.point(s, side)).items():
            put(module, self.expansion.names(name), value)
        return module

    def extra_repr(self) -> str:
        """What stands in the first lines of the repr."""
        weights, state = self.expansion.weights, self.expansion.state
        lines = [f"basis={summary(weights)}"]
        if state and (set(state.values()) != set(weights.values())):
            lines.append(f"state_basis={summary(state)}")
        lines.append(f"solver={self.solver!r}, span=({self.span[0]:g}, {self.span[1]:g})")
        if self.gradient != Backprop():
            lines.append(f"gradient={self.gradient!r}")
        count = sum(p.numel() for p in self.parameters())
        scalars = sum(tensor(self.field, name).numel() for name in state)
        lines.append(f"parameters={count:,}, state={scalars:,}")
        return "\n".join(lines)

    # -- what the verbs use --------------------------------------------------------------------

    def _rebase(self, stacks: Mapping[str, tuple[Basis, Tensor]], solver: Solver) -> Self:
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
        self._solver = checked_solver(solver)
        self._stretch = Stretch(self.span, bases.values())
        stages = self.solver.schedule(self.span, self._stretch.jumps)
        plan = None if stages is None else Plan.of(stages, self._stretch, self.expansion)
        self._exact = plan
        self._place()
        return self

    # -- the grid ------------------------------------------------------------------------------

    def _dtype_of(self, basis: Basis) -> torch.dtype:
        """The precision in which a basis is read: the finest of the tensors that use it."""
        dtype = torch.float16
        for name, other in self.expansion.bases.items():
            if other == basis:
                dtype = torch.promote_types(dtype, tensor(self.field, name).dtype)
        return real(dtype)

    def _reference(self) -> Tensor:
        """Some tensor of the field, whose device is the block's."""
        weight = self._weight()
        found = next(self.field.buffers(), None) if weight is None else weight
        return torch.empty(0) if found is None else found

    def _kind(self) -> tuple[torch.dtype, torch.device]:
        reference = self._reference()
        return reference.dtype, reference.device

    def _weight(self) -> Tensor | None:
        """The first of the field's weights."""
        name = next(iter(self.expansion.weights), None)
        return next(self.field.parameters(), None) if name is None else tensor(self.field, name)

    def _place(self) -> None:
        """Lay the plan out as buffers in the weights' precision and on their device.

        The exact plan stays apart in float64: a trip through half precision costs nothing.
        """
        self._serving: Serving | None = None
        self._placed_for = self._kind()
        self._dtypes = {basis: self._dtype_of(basis) for basis in self.expansion.bases.values()}
        for name in [name for name in self._buffers if name.startswith(PREFIX)]:
            del self._buffers[name]
        if self._exact is None:
            return
        for name, value in self._exact.tensors(self._dtypes, self._reference()).items():
            self.register_buffer(PREFIX + name, value, persistent=False)
        tensors = self._plan_tensors()
        known = [(PREFIX + name, t) for name, t in tensors.items()]
        self._placed = (known, self._exact.holding(tensors))

    def _served(self) -> Serving | None:
        """What does the solve of a block in use, where nothing else is asked for."""
        if (
            torch.is_grad_enabled()
            or type(self.gradient) is not Backprop  # others may count or keep something
            or torch.compiler.is_compiling()
            or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
            or tracing()
        ):
            return None
        serving = self._serving
        if serving is None or not serving.holds(self._modules["field"]):
            field, plan = self.field, self._plan_of(self.span)
            if plan is None:
                return None
            serving = Serving.of(field, self.expansion, plan, self.solver, self.span)
            self._serving = serving
        return serving

    @in_turn
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The coefficients, as of any module; never those of a depth that a solve shows."""
        return super().state_dict(*args, **kwargs)

    @in_turn
    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made: Self = type(self).__new__(type(self))
        memo[id(self)] = made
        state = copy.deepcopy(self.__getstate__(), memo)
        made.__setstate__(state)  # type: ignore[no-untyped-call]
        return made

    def __getstate__(self) -> dict[str, Any]:
        own: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**own, "_serving": None}  # a copy has tensors of its own

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._serving = None  # torch may exchange tensors only if nobody else holds them
        super()._load_from_state_dict(*args, **kwargs)

    def _plan_tensors(self) -> dict[str, Tensor | None]:
        buffers = self._buffers.items()
        return {name[len(PREFIX) :]: t for name, t in buffers if name.startswith(PREFIX)}

    def _plan_of(self, span: Span) -> Plan | None:
        """The plan of a solve over this span; None where the solver finds its own way."""
        if self._exact is None or span != self.span:
            return None
        if not torch.compiler.is_compiling() and self._placed_for != self._kind():
            self._place()  # weights were exchanged behind the back of the block
        (known, plan), buffers = self._placed, self._buffers
        # Tracing and `torch.func` exchange buffers for a call.
        if not torch.compiler.is_compiling():
            for name, t in known:
                if buffers[name] is not t:
                    break
            else:
                return plan
        return self._exact.holding(self._plan_tensors())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._serving = None
        super()._apply(by_rows(fn), recurse)  # type: ignore[no-untyped-call]
        self._place()
        return self

    # -- one solve -----------------------------------------------------------------------------

    def _dynamics(
        self,
        like: Tensor,
        x: Any,
        structure: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        plan: Plan | None,
        cost: RunningCost | None,
        solver: Solver,
    ) -> BlockDynamics:
        breaks, jumps = self._stretch.breaks, self._stretch.jumps
        if isinstance(x, Path):
            breaks, jumps = (*breaks, *x.breakpoints), (*jumps, *x.jumps)
            if not isinstance(solver, RungeKutta):
                plan = None  # a reversible method has further stages where the signal jumps

        def place(basis: Basis, sampling: Sampling) -> Sampling:
            return sampling.placed(self._dtypes[basis], self._reference().device)

        return BlockDynamics(
            self.field,
            self.expansion,
            plan,
            lambda stage: self._stretch.point(stage.depth, stage.side),
            place,
            breaks,
            jumps,
            abs(self.span[1] - self.span[0]),
            like,
            x,
            structure,
            args,
            kwargs,
            cost,
            recomputed=not isinstance(self.gradient, Backprop),
            resolve=self.gradient.discrete and torch.is_grad_enabled() and adaptive(solver),
        )

    def _run(
        self,
        dynamics: BlockDynamics,
        z: State,
        span: Span,
        save_at: Sequence[float],
        solver: Solver,
    ) -> Trajectory:
        # Under autocast the field may compute in half precision; the sum of its steps may not.
        if autocasting(z[0]):
            half = (torch.float16, torch.bfloat16)
            z = tuple(leaf.float() if leaf.dtype in half else leaf for leaf in z)
        self.gradient.check(solver, dynamics)
        return self.gradient.solve(solver, dynamics, z, span, save_at)

    def _field_at(self, x: Any, s: float) -> tuple[dict[str, Tensor], Callable[[Tensor], Tensor]]:
        """The field at one depth as a function of the state, and its weights there as leaves."""
        state, structure = checked_state(x, self._weight())
        dynamics = self._dynamics(state[0], x, structure, (), {}, None, None, self.solver)
        start, end = self.span
        side = sides(start, end)[int(s == end)]

        def f(z: Tensor) -> Tensor:
            with dynamics.again():
                return reading.evaluate[0]((z,))[0]

        with dynamics.again():
            reading = dynamics.read([Stage(s, side)])
        names = [name for name in self.expansion.weights if tensor(self.field, name).requires_grad]
        return dict(zip(names, reading.leaves, strict=False)), f
