"""Time series observed at irregular times."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from continua._errors import ArgumentError, ShapeError
from continua.block import ODEBlock
from continua.field import BasisChoice
from continua.gradient import Gradient, checked_span
from continua.solve import Solver, Span

from ._with_block import WithBlock

CELLS: dict[str, type[nn.GRUCell] | type[nn.RNNCell]] = {"gru": nn.GRUCell, "tanh": nn.RNNCell}


class LatentODE(WithBlock):
    r"""A variational autoencoder of time series, whose latent state follows an ODE.

    .. math:: z(s_0) \sim q(z \mid x), \qquad \frac{dz}{ds} = f(z;\, \theta(s)), \qquad
              x(t) \sim \mathcal N(g(z(t)), \sigma^2)

    Depth is time. A recurrent network reads the observations of each series backward in time, with
    the gaps between them, and gives the distribution of the latent state at the start of the span.

    Times are `[T]`, shared by all series, or `[B, T]`, in any order. `mask` is True where a value
    was observed: `[B, T]` or, by feature, `[B, T, F]`. Without a mask all values that are not NaN
    count. What is masked has no effect, so shorter series can be padded with anything.

    Args:
        features: F, numbers per observation.
        latent: size of the latent state.
        hidden: width of the two hidden layers of the field, and of the one of the decoder.
        recurrent: width of the recurrent network.
        cell: `"gru"`, or `"tanh"`, which is quicker and forgets more.
        noise: the standard deviation σ of an observation.
        span: from the time of the latent state that is inferred to that of the last observation.
        basis: of the field's weights over time; `Constant()` by default.
        solver: `RK4(steps=8)` by default.
        gradient: `Backprop()` by default.

    Latent ODEs (Chen et al. 2018; Rubanova et al. 2019).

    Example:
        >>> import torch
        >>> model = LatentODE(features=2, span=(0.0, 3.0))
        >>> times, x = 3 * torch.rand(8, 5), torch.randn(8, 5, 2)
        >>> model.loss(times, x).backward()
        >>> model(times, x, at=torch.linspace(0, 4, 50)).shape  # beyond the span too
        torch.Size([8, 50, 2])
    """

    def __init__(
        self,
        *,
        features: int,
        latent: int = 4,
        hidden: int = 20,
        recurrent: int = 25,
        cell: Literal["gru", "tanh"] = "gru",
        noise: float = 0.1,
        span: Span = (0.0, 1.0),
        basis: BasisChoice | None = None,
        solver: Solver | None = None,
        gradient: Gradient | None = None,
    ):
        super().__init__()
        start, end = checked_span(span)
        if start > end:
            raise ArgumentError(f"time runs forward, but the span is ({start:g}, {end:g})")
        if not noise > 0:
            raise ArgumentError(f"noise is a positive standard deviation, not {noise!r}")
        if cell not in CELLS:
            raise ArgumentError(f"cell is 'gru' or 'tanh', not {cell!r}")
        self.noise = float(noise)
        # An observation, which of its features are known, and the time since the one before.
        self.cell = CELLS[cell](2 * features + 1, recurrent)
        self.posterior = nn.Linear(recurrent, 2 * latent)
        field = nn.Sequential(
            nn.Linear(latent, hidden),
            nn.ELU(),
            nn.Linear(hidden, hidden),
            nn.ELU(),
            nn.Linear(hidden, latent),
        )
        self.block = ODEBlock(field, basis, solver, gradient, span=(start, end))
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, features)
        )

    def forward(
        self, times: Tensor, x: Tensor, mask: Tensor | None = None, *, at: Tensor | None = None
    ) -> Tensor:
        """The expected series `[B, T, F]`, from the mean of the latent state.

        Args:
            times: of the observations.
            x: the observations, `[B, T, F]`.
            mask: which of them there are.
            at: the times to predict, also beyond the span; those of the observations by default.
        """
        z = self.encode(times, x, mask).mean
        if at is None:  # what is masked may have any time
            _, known = self._observed(x, mask)
            at = self._placed(times, known | (times >= self.block.span[0]).unsqueeze(-1))
        return self.decode(z, at)

    def loss(
        self, times: Tensor, x: Tensor, mask: Tensor | None = None, *, beta: float = 1.0
    ) -> Tensor:
        r"""The negative evidence lower bound, its mean over the series.

        .. math:: -\mathbb E_q \log p(x \mid z) + \beta\, \mathrm{KL}(q(z \mid x) \,\|\, p(z))

        Args:
            times: of the observations.
            x: the observations, `[B, T, F]`.
            mask: which of them there are.
            beta: the weight of the second term; 1 is the bound.
        """
        x, known = self._observed(x, mask)
        times = self._placed(times, known)
        q = self.encode(times, x, known)
        expected = self.decode(q.rsample(), times)
        apart = ((x - expected) * known).square().sum((1, 2)) / (2 * self.noise**2)
        constant = math.log(self.noise) + 0.5 * math.log(2 * math.pi)
        prior = Normal(torch.zeros_like(q.mean), torch.ones_like(q.stddev))
        divergence = kl_divergence(q, prior).sum(1)
        return (apart + constant * known.sum((1, 2)) + beta * divergence).mean()

    def encode(self, times: Tensor, x: Tensor, mask: Tensor | None = None) -> Normal:
        """The distribution of the latent state at the start of the span, given observations."""
        x, known = self._observed(x, mask)
        times, seen = self._placed(times, known).to(x), known.any(2)
        # Observations from the last to the first, then all that is masked.
        key = torch.where(seen, -times, torch.inf)
        order = key.argsort(dim=1, stable=True)
        count = seen.sum(1, keepdim=True)
        start, end = self.block.span
        at = times.gather(1, order)
        last = torch.arange(at.shape[1], device=at.device) >= count - 1
        before = at.roll(-1, 1).masked_fill(last, start)
        gap = (at - before) / (end - start)
        inputs = torch.cat([x, known.to(x.dtype)], 2)
        inputs = inputs.gather(1, order[:, :, None].expand_as(inputs))
        mean, variance = self.posterior(
            self._read(torch.cat([inputs, gap[:, :, None]], 2), count)
        ).chunk(2, 1)
        return Normal(mean, (0.5 * variance).exp())

    def _read(self, inputs: Tensor, count: Tensor) -> Tensor:
        """The state of the recurrent network after so many inputs `[B, T, C]` of each series."""
        h = inputs.new_zeros(len(inputs), self.cell.hidden_size)
        least, most = (int(n) for n in count.aminmax()) if len(count) else (0, 0)
        for n, now in enumerate(inputs[:, :most].transpose(0, 1).contiguous()):
            new = self.cell(now, h)
            h = new if n < least else torch.where(count > n, new, h)
        return h

    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        """The expected series `[B, T, F]` from the latent state at the start of the span."""
        start, end = self.block.span
        times, solver = self._checked(times, len(z)), self.block.solver
        last = float(times.detach().max()) if times.numel() else end
        span = (start, end) if last <= end else (start, last)
        if last > end and solver.steps is not None:
            solver = solver.with_steps(math.ceil(solver.steps * (last - start) / (end - start)))
        path = self.block.solve(z, save_at=times, dense=True, span=span, solver=solver).z
        if times.dim() == 1:
            path = path.transpose(0, 1).contiguous()  # or the decoder's gradient is slow
        decoded: Tensor = self.decoder(path)
        return decoded

    def sample(self, count: int, times: Tensor) -> Tensor:
        """Series `[count, T, F]` without noise, from latent states drawn from their prior."""
        weight = self.posterior.weight
        z = torch.randn(count, len(weight) // 2, dtype=weight.dtype, device=weight.device)
        return self.decode(z, times)

    def _observed(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The observations with zeros where there are none, and where there are."""
        features = (self.cell.input_size - 1) // 2
        if not isinstance(x, Tensor):
            raise ShapeError(f"observations are a tensor, not {type(x).__name__}")
        if x.dim() != 3 or x.shape[2] != features:
            raise ShapeError(f"observations have shape [B, T, {features}], not {list(x.shape)}")
        kind = self.posterior.weight.dtype
        if x.dtype != kind and not torch.is_autocast_enabled(x.device.type):
            raise ShapeError(
                f"the observations are {x.dtype} but the model's weights are {kind}; use "
                f"x.to({kind})" + (f" or model.to({x.dtype})" if x.is_floating_point() else "")
            )
        known = ~x.isnan() if mask is None else mask.bool()
        if known.shape not in (x.shape, x.shape[:2]):
            raise ShapeError(
                f"the mask has shape {list(x.shape[:2])} or {list(x.shape)}, "
                f"not {list(known.shape)}"
            )
        known = known if known.dim() == 3 else known[:, :, None].expand_as(x)
        x = x.masked_fill(~known, 0.0)
        if not x.isfinite().all():
            raise ArgumentError(
                "an observation is NaN or infinite; set mask to False there, or clean the data"
            )
        return x, known

    def _placed(self, times: Tensor, known: Tensor) -> Tensor:
        """The times `[B, T]`, with the start of the span where nothing is known."""
        times, (batch, length) = self._checked(times, len(known)), known.shape[:2]
        if times.shape[-1] != length:
            raise ShapeError(
                f"{length} observations of each series need times of shape [{length}] or "
                f"[{batch}, {length}], not {list(times.shape)}"
            )
        placed = torch.where(known.any(2), times.expand(batch, length), self.block.span[0])
        if not placed.isfinite().all():
            raise ArgumentError(
                "the time of an observation is NaN or infinite; where there is no observation, "
                "set mask to False"
            )
        return placed

    def _checked(self, times: Tensor, batch: int) -> Tensor:
        if not isinstance(times, Tensor):
            raise ShapeError(f"times are a tensor, not {type(times).__name__}")
        if times.dim() not in (1, 2) or (times.dim() == 2 and len(times) != batch):
            raise ShapeError(f"times have shape [T] or [{batch}, T], not {list(times.shape)}")
        return times
