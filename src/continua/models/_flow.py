"""Densities that a flow carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self, get_args

import torch
from torch import Size, Tensor, nn
from torch.distributions import Distribution

from continua._errors import ArgumentError, ShapeError
from continua._values import whole_number
from continua.basis import Constant
from continua.block import ODEBlock
from continua.field import BasisChoice, Field
from continua.gradient import Backend, Gradient
from continua.solve import Dopri5, Solver

from ._flow_fields import Carried, Divergence, Regulariser, Trace, slopes
from ._flow_parts import check_context, check_found, mapped
from ._with_block import WithBlock

Noise = Literal["rademacher", "gaussian"]


class ContinuousFlow(WithBlock):
    r"""A density, defined by an ODE that leads from data to a prior.

    Depth leads from the data x = z(0) to the prior z(1):

    .. math:: \log p(x) = \log q(z(1)) + \int_0^1 \operatorname{tr}
              \frac{\partial f}{\partial z}(s, z(s))\, ds

    It has `log_prob`, `sample`, `rsample`, `event_shape` and `has_rsample` like a
    `torch.distributions.Distribution`; a conditional one takes a context with each of them. Train
    it by `-flow.log_prob(x).mean()`, or without any solve by `flow.matching_loss(x)`.

    Args:
        field: a module z -> dz/ds on `[B, D]`, or a `Field` whose x is the context:
            `DataControl(module)` puts it beside the state.
        prior: a distribution on vectors of D numbers, such as
            `Independent(Normal(zeros, ones), 1)`; or a function from contexts `[B, ...]` to one
            with batch shape `[B]`.
        trace: `"exact"`, D derivatives per evaluation, or `"hutchinson"`, one: an unbiased
            estimate with noise that stays the same within a solve.
        noise: of that estimate.
        basis: of the field's weights over depth.
        solver: of the flow.
        gradient: of the flow.
        context: `"none"`, `"given"` for a tensor with every call (classes as one-hot vectors, or
            any vector), or `"sample"`: the field sees the prior's sample z(1) as its x; a context
            is then for a prior that is a function.
        compile: True takes compiled steps; see `ODEBlock.compile`.

    With `context="sample"` the field depends on the sample itself, so the trace alone is not the
    log-determinant: the total derivative dz/dz(1) is carried along. Sampling is one solve;
    `log_prob` finds the prior's sample of each x by Newton's method, to first order
    differentiable.

    FFJORD (Grathwohl et al. 2019); data-controlled flows of Dissecting Neural ODEs (Massaroli et
    al. 2020).

    Example:
        >>> from torch.distributions import Independent, Normal
        >>> prior = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
        >>> flow = ContinuousFlow(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)), prior)
        >>> flow.log_prob(torch.zeros(5, 2)).shape, flow.sample((3,)).shape
        (torch.Size([5]), torch.Size([3, 2]))
    """

    has_rsample = True

    def __init__(
        self,
        field: nn.Module,
        prior: Distribution | Callable[[Tensor], Distribution],
        *,
        trace: Trace = "exact",
        noise: Noise = "rademacher",
        basis: BasisChoice | None = None,
        solver: Solver | None = None,
        gradient: Gradient | None = None,
        context: Literal["none", "given", "sample"] = "none",
        compile: bool | Backend = False,
    ):
        super().__init__()
        for name, value, kinds in (("trace", trace, Trace), ("noise", noise, Noise)):
            if value not in get_args(kinds):
                raise ArgumentError(f"{name} is one of {', '.join(get_args(kinds))}, not {value!r}")
        if context not in ("none", "given", "sample"):
            raise ArgumentError(f"context is 'none', 'given' or 'sample', not {context!r}")
        if context != "none" and not isinstance(field, Field):
            raise ArgumentError(
                f"a conditional flow needs a field that reads its context, such as "
                f"continua.DataControl(module), not {type(field).__name__}"
            )
        if isinstance(prior, Distribution) and len(prior.event_shape) != 1:
            raise ArgumentError(
                f"the prior is a distribution on vectors: its event shape has one dimension, not "
                f"{list(prior.event_shape)}; use torch.distributions.Independent(prior, 1)"
            )
        if not isinstance(prior, Distribution) and context == "none":
            raise ArgumentError("a prior that is a function needs context='given' or 'sample'")
        self.prior, self.trace, self.noise, self.context = prior, trace, noise, context
        flow: Field = Carried(field) if context == "sample" else Divergence(field, trace)
        arguments: dict[str, Any] = {} if gradient is None else {"gradient": gradient}
        used = solver or Dopri5(1e-5, 1e-5)
        self.block = ODEBlock(flow, basis or Constant(), used, compile=compile, **arguments)

    # -- as a distribution ---------------------------------------------------------------------

    @property
    def event_shape(self) -> Size:
        """Of one sample."""
        if isinstance(self.prior, Distribution):
            return self.prior.event_shape
        raise ArgumentError("the prior depends on the context: ask the distribution it gives")

    def log_prob(
        self, x: Tensor, context: Tensor | None = None, *, noise: Tensor | None = None
    ) -> Tensor:
        """The log-density `[B]` at x, `[B, D]`.

        Args:
            x: the samples.
            context: of each x, `[B, ...]`, for a flow with context.
            noise: for `trace="hutchinson"`, the noise of the estimate, `[B, D]`; drawn if None.
        """
        self._check(x, context)
        if noise is not None:
            self._check_noise(noise, x)
        if self.context == "sample":
            return self._log_prob_of_samples(x, self._prior(context))
        control = self._control(x, context)
        zeros = x.new_zeros(len(x))
        args: tuple[Tensor, ...] = ()
        if self.trace == "hutchinson":
            args = (self._draw(x) if noise is None else noise,)
        z, change = self.block((x, zeros), *args, control=control)
        prior = self._prior(context)
        out: Tensor = prior.log_prob(z) + change
        return out

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, noise: Tensor | None = None
    ) -> Tensor:
        """The log-density: see `log_prob`."""
        return self.log_prob(x, context, noise=noise)

    def matching_loss(
        self, x: Tensor, context: Tensor | None = None, *, depths: int = 16
    ) -> Tensor:
        r"""The loss of flow matching, one number.

        It trains the field to lead samples x to samples c of the prior on straight lines. Nothing
        is integrated, so a step costs a small part of a step on the likelihood:

        .. math:: \mathbb{E}\, \| f(s, (1 - s)\, x + s\, c) - (c - x) \|^2

        Args:
            x: the samples, `[B, D]`.
            context: of each x, `[B, ...]`, for a flow with context.
            depths: how many depths s to draw, if weights vary with depth; the samples are shared
                out among them. With constant weights every sample has a depth of its own.

        Flow Matching for Generative Modeling (Lipman et al. 2023).
        """
        if self.context == "sample":
            raise ArgumentError("flow matching is not there for context='sample'")
        depths = whole_number("depths", depths)
        self._check(x, context)
        prior = self._prior(context)
        c = prior.sample(() if prior.batch_shape else (len(x),))
        seen = self._control(x, context)
        expansion = self.block.expansion
        if not expansion.state and set(map(type, expansion.bases.values())) <= {Constant}:
            s = (torch.arange(len(x), device=x.device) + torch.rand_like(x[:, 0])) / len(x)
            z = x + s.unsqueeze(1) * (c - x)
            return (slopes(self.block, s, z, seen) - (c - x)).square().mean()
        groups = torch.arange(len(x), device=x.device).chunk(depths)
        drawn = (torch.arange(len(groups)) + torch.rand(len(groups))) / len(groups)
        total = x.new_zeros(())
        for s, group in zip(drawn.tolist(), groups, strict=True):
            z = (1 - s) * x[group] + s * c[group]
            slope = self.block.slope(s, z, control=seen[group])
            total = total + (slope - (c[group] - x[group])).square().sum()
        return total / x.numel()

    def rsample(self, shape: tuple[int, ...] | Size = (), context: Tensor | None = None) -> Tensor:
        """Samples through which gradients flow, `[*shape, D]`, or `[*shape, B, D]` with context.

        Args:
            shape: how many.
            context: `[B, ...]`, for a flow with context.
        """
        if not isinstance(shape, tuple | list):
            raise ArgumentError(f"the shape of a sample is a tuple such as (3,), not {shape!r}")
        shape = Size(shape)
        if self._takes_context:
            if context is None:
                raise ArgumentError("this flow is conditional: give sample a context [B, ...]")
            check_context(context)
            prior = self._prior(context)
            if prior.batch_shape not in ((), (len(context),)):
                raise ShapeError(
                    f"{len(context)} contexts need a prior of batch shape [{len(context)}] or [], "
                    f"not {list(prior.batch_shape)}"
                )
            # [*shape, B, D]; a batch of priors draws one sample for each context by itself.
            drawn = prior.rsample(shape if prior.batch_shape else Size((*shape, len(context))))
            flat = drawn.reshape(-1, drawn.shape[-1])
            seen = context.expand(*shape, *context.shape).reshape(len(flat), *context.shape[1:])
        else:
            if context is not None:
                raise ArgumentError("this flow takes no context; make it with context='given'")
            drawn = self._prior(None).rsample(shape)
            flat = drawn.reshape(-1, drawn.shape[-1])
            seen = self._control(flat, None)
        if len(flat) == 0:
            return drawn
        if self.context == "sample":
            return self._carried(flat)[0].reshape(drawn.shape)
        solution = self.block.solve(flat, span=(1.0, 0.0), control=seen)
        out: Tensor = solution.final.reshape(drawn.shape)
        return out

    @torch.no_grad()
    def sample(self, shape: tuple[int, ...] | Size = (), context: Tensor | None = None) -> Tensor:
        """Samples, `[*shape, D]`, or `[*shape, B, D]` with context."""
        return self.rsample(shape, context)

    def costs(
        self, x: Tensor, kind: Regulariser = "kinetic", context: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        r"""The log-density and a regulariser of the trajectory, both `[B]`.

        .. math:: \int \|f\|^2 ds \quad\text{or}\quad
                  \int \|\epsilon^\top \partial f/\partial z\|^2 ds

        Args:
            x: where.
            kind: `"kinetic"` or `"jacobian"`, the latter estimated with one noise vector.
            context: of each x.

        How to Train Your Neural ODE (Finlay et al. 2020).
        """
        if kind not in get_args(Regulariser):
            raise ArgumentError(f"kind is 'kinetic' or 'jacobian', not {kind!r}")
        if self.context == "sample":
            raise ArgumentError("regularisers are not there for context='sample'")
        self._check(x, context)
        control = self._control(x, context)
        noise = self._draw(x) if self.trace == "hutchinson" or kind == "jacobian" else None
        zeros = x.new_zeros(len(x))
        solution = self.block.solve((x, zeros, zeros), noise, kind, control=control)
        z, change, cost = solution.final
        return self._prior(context).log_prob(z) + change, cost

    @property
    def _takes_context(self) -> bool:
        return self.context == "given" or not isinstance(self.prior, Distribution)

    # -- inside --------------------------------------------------------------------------------

    def _prior(self, context: Tensor | None) -> Distribution:
        if isinstance(self.prior, Distribution):
            return self.prior
        assert context is not None
        made = self.prior(context)
        if not isinstance(made, Distribution) or len(made.event_shape) != 1:
            raise ArgumentError("the prior's function gives a distribution on vectors")
        return made

    def _control(self, x: Tensor, context: Tensor | None) -> Tensor:
        """What the field sees as its x: the context, or nothing, since x itself is the state."""
        return context if self.context == "given" and context is not None else x[:, :0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if isinstance(self.prior, Distribution):
            self.prior = mapped(self.prior, fn)
        return self

    def _check(self, x: Tensor, context: Tensor | None) -> None:
        if not isinstance(x, Tensor) or x.dim() != 2:
            shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ShapeError(f"a flow takes samples of shape [B, D], not {shape}")
        if isinstance(self.prior, Distribution) and x.shape[1:] != self.prior.event_shape:
            raise ShapeError(
                f"this flow carries vectors of {self.prior.event_shape[0]} numbers, as its prior "
                f"gives them: samples [B, {self.prior.event_shape[0]}], not {list(x.shape)}"
            )
        if self._takes_context:
            if context is None:
                raise ArgumentError(f"this flow is conditional: give a context [{len(x)}, ...]")
            check_context(context)
            if len(context) != len(x):
                raise ShapeError(
                    f"{len(x)} samples need {len(x)} contexts, not {len(context)}: repeat the "
                    "context, or give each sample its own"
                )
        elif context is not None:
            raise ArgumentError("this flow takes no context; make it with context='given'")

    def _check_noise(self, noise: Tensor, x: Tensor) -> None:
        if self.trace != "hutchinson" or self.context == "sample":
            raise ArgumentError("noise is for a flow with trace='hutchinson' only")
        if noise.shape != x.shape:
            raise ShapeError(
                f"noise has the shape of the samples, {list(x.shape)}, not {list(noise.shape)}"
            )

    def _draw(self, x: Tensor) -> Tensor:
        if self.noise == "gaussian":
            return torch.randn_like(x)
        return torch.randint(0, 2, x.shape, device=x.device).to(x.dtype) * 2 - 1

    def _carried(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """The data that samples of the prior are carried to, and its derivative by them."""
        eye = torch.eye(c.shape[1], dtype=c.dtype, device=c.device).expand(len(c), -1, -1)
        solution = self.block.solve((c, eye.contiguous()), span=(1.0, 0.0), control=c)
        x, jacobian = solution.final
        return x, jacobian

    def _log_prob_of_samples(self, x: Tensor, prior: Distribution, steps: int = 30) -> Tensor:
        """Newton's method for the prior's sample c with x(c) = x, then one step with a graph."""
        c = x.detach()
        with torch.no_grad():
            for _ in range(steps):
                found, jacobian = self._carried(c)
                # Where the map folds, a step may be anything; another may still lead out of it.
                change = torch.linalg.solve_ex(jacobian, (found - x).unsqueeze(-1))[0].squeeze(-1)
                change = change.nan_to_num(1.0, 1.0, -1.0).clamp(-1, 1)
                c = c - change
                if float(change.abs().max()) < 1e-6:
                    break
        found, jacobian = self._carried(c)
        check_found(found.detach(), x.detach())
        inverse = torch.linalg.inv(jacobian.detach())
        c = c - (inverse @ (found - x).unsqueeze(-1)).squeeze(-1)
        _, jacobian = self._carried(c)
        out: Tensor = prior.log_prob(c) - torch.linalg.slogdet(jacobian)[1]
        return out
