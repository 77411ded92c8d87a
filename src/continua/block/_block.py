"""The block: a basis, a field, a solver and a gradient put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

from torch import Tensor, nn

from continua._errors import ModuleError
from continua.basis import Basis, Constant, Side
from continua.field import BasisChoice, Init, Twins, expand, gathering, put
from continua.gradient import (
    Backend,
    Backprop,
    Ends,
    Gradient,
    Programs,
    RunningCost,
    SaveAt,
    checked_backend,
    checked_gradient,
    checked_solver,
    checked_span,
    compiled_first,
    integrate,
    solve,
)
from continua.solve import RK4, Solution, Solver, Span, Stage, Stats

from ._dynamics import called
from ._layout import checked_depth, common_basis, describe, html, module_at, per_kernel, weight_vjp
from ._plan import Plan, Stretch, make_plan, warn_unread


class ODEBlock(nn.Module):
    r"""A residual network of continuous depth, made from any module.

    .. math:: \frac{dz}{ds} = f(z;\, \theta(s), \sigma(s)), \qquad z(s_0) = x, \quad y = z(s_1)

    The module's parameters θ and its state σ (batch-norm statistics, say) become functions of
    depth; `block.field` is the module with its names unchanged and each of those tensors as a
    stack of K coefficients. In training mode each forward updates the state by the smallest
    change that fits what the evaluations left behind (Stateful ODE-Nets, Queiruga et al. 2021).

    A solve runs on a second tree of the same modules, so `block.field` holds its coefficients at
    every moment. Threads may share a block, and solves may nest.

    Args:
        field: any `nn.Module` that maps z to dz/ds, or a `Field`. It is copied. A function of z,
            or of s and z, works too.
        basis: how the weights may vary with depth: one basis, or a mapping from name patterns to
            bases, of which the first match wins. `Constant()` by default.
        solver: how the trajectory is computed. `RK4(steps=8)` by default.
        gradient: how it is differentiated. `Backprop()` by default.
        state_basis: the same for the module's state; None takes `basis`.
        span: from which depth to which. The basis is stretched over it.
        init: `"copy"`, the module's own values at every depth, or `"independent"`, a fresh draw
            of `reset_parameters` at each node of the basis.
        compile: True takes compiled steps; see `compile()`.

    Attributes:
        stats: what the last solve cost; `stats.backward` is filled by its backward pass.
        recorders: called with the `Stats` of every solve.

    Example:
        >>> import torch, continua as ct
        >>> residual = nn.Sequential(nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 4))
        >>> block = ct.ODEBlock(residual, basis=ct.PiecewiseConstant(8), solver=ct.Euler(steps=8))
        >>> block(torch.randn(32, 4)).shape
        torch.Size([32, 4])
        >>> block.field[2].weight.shape
        torch.Size([8, 4, 4])
    """

    stats: Stats | None
    recorders: list[Callable[[Stats], None]]
    stretch: Stretch
    programs: Programs | None  #: the compiled steps
    _solver: Solver

    def __init__(
        self,
        field: nn.Module | Callable[..., Any],
        basis: BasisChoice | None = None,
        solver: Solver | None = None,
        gradient: Gradient | None = None,
        *,
        state_basis: BasisChoice | None = None,
        span: Span = (0.0, 1.0),
        init: Init = "copy",
        compile: bool | Backend = False,
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
        used = checked_solver(RK4(steps=8) if solver is None else solver)
        self.gradient = Backprop() if gradient is None else gradient
        chosen = Constant() if basis is None else basis
        self.field, self.expansion = expand(field, chosen, state_basis, init)
        self.twins = Twins()
        self.stats, self.recorders = None, []
        self.compile(compile)
        self.rebase({}, used)
        warn_unread(self)

    @property
    def span(self) -> Span:
        """From which depth to which; fixed, since the basis is stretched over it."""
        return self._span

    @property
    def basis(self) -> Basis | dict[str, Basis]:
        """The basis that all weights share; where they differ, each by the weight's name."""
        return common_basis(self.expansion.weights)

    @property
    def state_basis(self) -> Basis | dict[str, Basis]:
        """The same for the state; empty without any."""
        return common_basis(self.expansion.state)

    @property
    def solver(self) -> Solver:
        """How the trajectory is computed; another one may be assigned."""
        return self._solver

    @solver.setter
    def solver(self, solver: Solver) -> None:
        self.rebase({}, solver)

    @property
    def gradient(self) -> Gradient:
        """How it is differentiated; another one may be assigned."""
        return self._gradient

    @gradient.setter
    def gradient(self, gradient: Gradient) -> None:
        self._gradient = checked_gradient(gradient)

    # -- what a user calls ---------------------------------------------------------------------

    @gathering
    def forward(self, x: Any, *args: Any, control: Any = None, **kwargs: Any) -> Any:
        """The state at the end of the span.

        Args:
            x: the state at its start: a tensor of any shape, or a tuple or dictionary of tensors.
            args: further arguments, handed to the field at every evaluation.
            control: what a `Field` sees as the input x, a tensor or a `Signal`; the state at the
                start by default.
            kwargs: further arguments, handed to the field at every evaluation.
        """

        def run(gradient: Gradient, programs: Programs | None) -> Any:
            dynamics = called(self, x, args, kwargs, control, gradient=gradient)
            problem = dynamics.call.problem
            trajectory = integrate(dynamics, problem, self.solver, gradient, programs=programs)
            self.record(trajectory.stats)
            return problem.state(trajectory.final)

        return compiled_first(self.programs, self.gradient, self.solver, run)

    @gathering
    def solve(
        self,
        x: Any,
        *args: Any,
        save_at: SaveAt = None,
        dense: bool = False,
        span: Ends | None = None,
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
                of every step of a fixed grid, None for the end alone. A tensor `[B, T]` has a
                row for each sample. Depths that require a gradient get one.
            dense: True returns a solution that can be called at any depth of the span.
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
            >>> import torch, continua as ct
            >>> block = ct.ODEBlock(nn.Tanh(), solver=ct.RK4(steps=4))
            >>> solution = block.solve(torch.ones(1, 2), save_at=[0.0, 0.5, 1.0])
            >>> solution.z.shape, solution.stats.evaluations
            (torch.Size([3, 1, 2]), 16)
        """
        used = self.solver if solver is None else checked_solver(solver)

        def run(gradient: Gradient, programs: Programs | None) -> Solution:
            dynamics = called(self, x, args, kwargs, control, span, running_cost, used, gradient)
            problem, options = dynamics.call.problem, (save_at, raise_on_failure, dense)
            return solve(dynamics, problem, used, gradient, *options, programs=programs)

        out = compiled_first(self.programs, self.gradient, used, run)
        self.record(out.stats)
        return out

    def compile(  # type: ignore[override]
        self, compile: bool | Backend = True, **options: Any
    ) -> Self:
        """Take compiled steps from now on, in place.

        One step and its vector-Jacobian product are traced and compiled by inductor at the first
        solve, for any length and number of steps; a solve calls them in a loop and is one node of
        the graph. Small fields gain most. First derivatives work. What cannot be compiled (noise,
        hooks, `Reversible`, autocast) is evaluated as without, and logged once.

        Args:
            compile: False for plain evaluation again; `"aot_eager"` traces without compiling,
                to find mistakes.
            options: those of `torch.compile`, which then compiles the whole forward instead.
        """
        if options:
            super().compile(**options)
            return self
        backend = checked_backend(compile)
        self.programs = None if backend is None else Programs(backend)
        return self

    def slope(self, s: float, z: Any, *args: Any, control: Any = None, **kwargs: Any) -> Any:
        """The field at one depth: dz/ds, in the graph of its coefficients. State is not updated.

        Args:
            s: the depth.
            z: the state there.
            args: further arguments of the field.
            control: what a `Field` sees as the input x; z by default.
            kwargs: further arguments of the field.
        """
        # Autograd follows it, whatever the gradient of a solve is.
        with called(self, z, args, kwargs, control, gradient=Backprop()) as dynamics:
            problem = dynamics.call.problem
            (evaluate,) = dynamics.at([Stage(checked_depth(s), "right")])
            return problem.state(evaluate(problem.z))

    def at(self, s: float, side: Side = "right") -> nn.Module:
        """The plain module at one depth, its tensors detached copies.

        Args:
            s: the depth.
            side: the limit to take where a basis jumps.
        """
        return module_at(self, checked_depth(s), side)

    def weight_vjp(self, s: float, z: Tensor, a: Tensor, control: Any = None) -> dict[str, Tensor]:
        r"""The vector-Jacobian product of the field with its weights at one depth.

        .. math:: a^\top \frac{\partial f}{\partial \theta(s)}(s, z, x;\, \theta(s))

        Args:
            s: the depth.
            z: the state there.
            a: the vector, of the shape of z.
            control: what a `Field` sees as the input x; z by default.

        Returns:
            For each parameter that trains a tensor of the shape it has at one depth.
        """
        return weight_vjp(self, s, z, a, control)

    def extra_repr(self) -> str:
        lines = describe(self)
        return "\n".join(", ".join(f"{name}={text}" for name, text in line) for line in lines)

    def _repr_html_(self) -> str:
        return html(self)

    # -- what the verbs use --------------------------------------------------------------------

    @property
    def plan(self) -> Plan | None:
        """Every evaluation of a solve on the fixed grid; None for an adaptive solver."""
        return self._plan

    def rebase(
        self,
        stacks: Mapping[str, tuple[Basis, Tensor]],
        solver: Solver | None = None,
        span: Span | None = None,
    ) -> Self:
        """Take other bases and coefficients for some tensors, solver and span, in place.

        Args:
            stacks: for each tensor its basis and its coefficients `[K, ...]`.
            solver: None keeps it.
            span: None keeps it; the bases are stretched over another one.
        """
        self._span = self._span if span is None else checked_span(span)
        used = self._solver if solver is None else checked_solver(solver)
        for name, (_, stack) in stacks.items():
            put(self.field, self.expansion.names(name), stack)
        bases = self.expansion.bases | {name: basis for name, (basis, _) in stacks.items()}
        self.expansion = replace(
            self.expansion,
            weights={name: bases[name] for name in self.expansion.weights},
            state={name: bases[name] for name in self.expansion.state},
        )
        self.stretch = Stretch(self.span, tuple(dict.fromkeys(bases.values())))
        state = tuple(dict.fromkeys(self.expansion.state.values()))
        self._plan = make_plan(used, self.span, self.stretch.jumps, self.stretch, state)
        self._solver = used
        return self

    def record(self, stats: Stats) -> None:
        """Note what a solve of the block's field cost."""
        self.stats = stats
        for recorder in self.recorders:
            recorder(stats)

    def __prepare_scriptable__(self) -> Self:
        raise ModuleError("TorchScript cannot follow a solve; script continua.unroll(model)")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.twins = Twins()  # they hold views of the tensors as they were
        super()._apply(per_kernel(fn), recurse)  # type: ignore[no-untyped-call]
        return self
