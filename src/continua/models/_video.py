"""Video prediction with a learned prior: what may come next, several times over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ShapeError
from continua.gradient import Gradient

from ._units import check_whole
from ._vgg import Kind, VGGDecoder, VGGEncoder, pair_of

#: hidden state and cell of every layer of an LSTM
Memory = list[tuple[Tensor, Tensor]]
#: mean and logarithm of the variance
Moments = tuple[Tensor, Tensor]


class Recurrent(nn.Module):
    """A linear layer and some LSTM layers, one step of time per call.

    Args:
        inputs: of the linear layer.
        hidden: of every LSTM layer.
        layers: how many.
    """

    def __init__(self, inputs: int, hidden: int, layers: int):
        super().__init__()
        self.embed = nn.Linear(inputs, hidden)
        self.cells = nn.ModuleList(nn.LSTMCell(hidden, hidden) for _ in range(layers))

    def forward(self, x: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """The output `[B, hidden]`, and the memory for the next step."""
        x = self.embed(x)
        kept: Memory = []
        for i, cell in enumerate(self.cells):
            h, c = cell(x, None if memory is None else memory[i])
            kept.append((h, c))
            x = h
        return x, kept


class GaussianLSTM(nn.Module):
    """What it has seen so far, as a normal distribution of independent numbers.

    Args:
        inputs: seen at each step.
        hidden: of the LSTM layer.
        outputs: of the distribution.
    """

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__()
        self.recurrent = Recurrent(inputs, hidden, 1)
        self.mean = nn.Linear(hidden, outputs)
        self.logvar = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, memory: Memory | None) -> tuple[Moments, Memory]:
        """Mean and logarithm of the variance, and the memory for the next step."""
        h, memory = self.recurrent(x, memory)
        return (self.mean(h), self.logvar(h)), memory


class VideoPredictor(nn.Module):
    r"""Stochastic video generation with a learned prior (SVG-LP).

    With h the encoder's vector of a frame, for every frame t from the second on

    .. math::
        \mu_\phi, \sigma_\phi &= \mathrm{LSTM}_\phi(h_t) &\text{(posterior, sees the frame)} \\
        \mu_\psi, \sigma_\psi &= \mathrm{LSTM}_\psi(h_{t-1}) &\text{(prior, does not)} \\
        g_t &= \mathrm{LSTM}_\theta(h_{t-1}, z_t), \quad z_t \sim N(\mu_\phi, \sigma_\phi) \\
        \hat x_t &= \mathrm{Dec}(g_t, \text{skips})

    and the negative evidence lower bound is :math:`\sum_t \|x_t - \hat x_t\|^2 + \beta\,
    \mathrm{KL}(N(\mu_\phi, \sigma_\phi) \| N(\mu_\psi, \sigma_\psi))`. Skips are those of frame
    t - 1, but of the last given frame from then on.

    Args:
        encoder: frames to vectors and skips.
        decoder: vectors and skips to frames.
        features: of a vector.
        latent: how many numbers z has.
        hidden: of every LSTM layer.
        layers: of the frame predictor.

    E. Denton and R. Fergus, *Stochastic Video Generation with a Learned Prior*, 2018.
    """

    def __init__(
        self,
        encoder: VGGEncoder,
        decoder: VGGDecoder,
        *,
        features: int,
        latent: int,
        hidden: int,
        layers: int,
    ):
        super().__init__()
        self.latent = latent
        self.encoder, self.decoder = encoder, decoder
        self.posterior = GaussianLSTM(features, hidden, latent)
        self.prior = GaussianLSTM(features, hidden, latent)
        self.predictor = Recurrent(features + latent, hidden, layers)
        self.head = nn.Sequential(nn.Linear(hidden, features), nn.Tanh())

    def forward(
        self, frames: Tensor, noise: Tensor | None = None, *, conditioning: int = 2
    ) -> Tensor:
        """The two terms of the negative evidence lower bound at each step, `[B, T - 1, 2]`.

        They are the squared error, averaged over the pixels of the frame, and the divergence of
        the posterior from the prior, summed over the latent numbers, in nats.

        Args:
            frames: `[B, T, C, H, W]` in [0, 1].
            noise: `[B, T - 1, latent]`, standard normal; None draws it in training, and is zero
                in evaluation, which takes the mean of the posterior.
            conditioning: how many frames are given, when the model is used; skips come from them.
        """
        found, posterior, prior = self._unfolded(frames, noise, conditioning)
        error = (found - frames[:, 1:]).square().mean((2, 3, 4))  # [B, T-1]
        return torch.stack([error, divergence(posterior, prior).sum(-1)], -1)

    def reconstruct(
        self, frames: Tensor, noise: Tensor | None = None, *, conditioning: int = 2
    ) -> Tensor:
        """The frames from the second on, each seen by the posterior: `[B, T - 1, C, H, W]`.

        Args:
            frames: `[B, T, C, H, W]` in [0, 1].
            noise: as in `forward`.
            conditioning: as in `forward`.
        """
        return self._unfolded(frames, noise, conditioning)[0]

    @torch.no_grad()
    def sample(
        self,
        frames: Tensor,
        predicted: int = 10,
        *,
        samples: int = 1,
        noise: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Futures of some clips, drawn from the learned prior: `[samples, B, predicted, C, H, W]`.

        While the frames are given z is the mean of the posterior; afterwards it is drawn from
        the prior, and every frame is the next one's past. Call `eval()` before.

        Args:
            frames: those given, `[B, T, C, H, W]` in [0, 1].
            predicted: how many frames to go on.
            samples: futures of each clip.
            noise: `[samples, B, predicted, latent]`, standard normal, instead of a generator.
            generator: on the CPU, so that a seed gives the same futures on every device.
        """
        self._check(frames, 1)
        check_whole(predicted=predicted, samples=samples)
        B = len(frames)
        shape = (samples, B, predicted, self.latent)
        if noise is None:
            noise = torch.randn(shape, generator=generator)
        elif noise.shape != shape:
            raise ShapeError(f"noise is {list(shape)}, not {list(noise.shape)}")
        noise = noise.to(frames)
        h, skips = self._encoded(frames)
        memories: list[Memory | None] = [None, None, None]
        for t in range(1, frames.shape[1]):
            (z, _), memories[0] = self.posterior(h[:, t], memories[0])
            _, memories[1] = self.prior(h[:, t - 1], memories[1])
            _, memories[2] = self.predictor(torch.cat([h[:, t - 1], z], 1), memories[2])
        # From here on every future is a clip of its own: [samples * B, ...].
        now = h[:, -1].repeat(samples, 1)
        prior, predictor = (_repeated(memory, samples) for memory in memories[1:])
        seen = [skip[:, -1].repeat(samples, 1, 1, 1) for skip in skips]
        found = []
        for t in range(predicted):
            moments, prior = self.prior(now, prior)
            z = _drawn(moments, noise[:, :, t].flatten(0, 1))
            g, predictor = self.predictor(torch.cat([now, z], 1), predictor)
            frame = self.decoder(self.head(g), seen)
            found.append(frame)
            now = self.encoder(frame)[0]
        futures = torch.stack(found, 1)
        return futures.view(samples, B, *futures.shape[1:])

    # -- parts ---------------------------------------------------------------------------------

    def _unfolded(
        self, frames: Tensor, noise: Tensor | None, conditioning: int
    ) -> tuple[Tensor, Moments, Moments]:
        """The frames from the second on, and the moments of both distributions there."""
        self._check(frames, 2)
        B, T = frames.shape[:2]
        if not 1 <= conditioning < T:
            raise ArgumentError(
                f"of {T} frames 1 to {T - 1} can be given, not conditioning={conditioning!r}"
            )
        shape = (B, T - 1, self.latent)
        if noise is None:
            noise = torch.randn(shape) if self.training else torch.zeros(shape)
        elif noise.shape != shape:
            raise ShapeError(f"noise is {list(shape)}, not {list(noise.shape)}")
        noise = noise.to(frames)
        h, skips = self._encoded(frames)  # [B, T, features]
        memories: list[Memory | None] = [None, None, None]
        seen: list[Moments] = []
        expected: list[Moments] = []
        vectors = []
        for t in range(1, T):
            posterior, memories[0] = self.posterior(h[:, t], memories[0])
            prior, memories[1] = self.prior(h[:, t - 1], memories[1])
            z = _drawn(posterior, noise[:, t - 1])
            g, memories[2] = self.predictor(torch.cat([h[:, t - 1], z], 1), memories[2])
            seen.append(posterior)
            expected.append(prior)
            vectors.append(self.head(g))
        past = [min(t, conditioning - 1) for t in range(T - 1)]
        # All frames at once: decoding is most of the work.
        chosen = [skip[:, past].flatten(0, 1) for skip in skips]
        found = self.decoder(torch.stack(vectors, 1).flatten(0, 1), chosen)
        return found.unflatten(0, (B, T - 1)), _stacked(seen), _stacked(expected)

    def _encoded(self, frames: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Vectors `[B, T, features]` and skips `[B, T, ...]` of all frames at once."""
        lead = tuple(frames.shape[:2])
        h, skips = self.encoder(frames.flatten(0, 1))
        return h.unflatten(0, lead), [skip.unflatten(0, lead) for skip in skips]

    def _check(self, frames: Tensor, least: int) -> None:
        if frames.dim() != 5 or frames.shape[1] < least or not frames.is_floating_point():
            raise ShapeError(
                f"frames are fractions [B, T, C, H, W] with T from {least} on, not "
                f"{frames.dtype} of shape {list(frames.shape)}"
            )


def divergence(p: Moments, q: Moments) -> Tensor:
    r"""The Kullback-Leibler divergence of normal distributions, number by number.

    .. math:: \mathrm{KL}(p \| q) = \log\frac{\sigma_q}{\sigma_p}
              + \frac{\sigma_p^2 + (\mu_p - \mu_q)^2}{2 \sigma_q^2} - \frac12

    Args:
        p: mean and logarithm of the variance.
        q: the same of the other.
    """
    (mean_p, log_p), (mean_q, log_q) = p, q
    spread = (log_p - log_q).exp() + (mean_p - mean_q).square() * (-log_q).exp()
    return 0.5 * (log_q - log_p + spread - 1)


def _drawn(moments: Moments, noise: Tensor) -> Tensor:
    mean, logvar = moments
    return mean + (0.5 * logvar).exp() * noise


def _stacked(moments: Sequence[Moments]) -> Moments:
    return torch.stack([m for m, _ in moments], 1), torch.stack([v for _, v in moments], 1)


def _repeated(memory: Memory | None, times: int) -> Memory | None:
    if memory is None:
        return None
    return [(h.repeat(times, 1), c.repeat(times, 1)) for h, c in memory]


def video_predictor(
    *,
    kind: Kind = "nanode",
    size: int = 64,
    channels: int = 1,
    width: int = 64,
    stages: int = 4,
    features: int = 128,
    latent: int = 10,
    hidden: int = 256,
    layers: int = 2,
    order: int = 3,
    steps: int = 3,
    gradient: Gradient | None = None,
) -> VideoPredictor:
    r"""A stochastic video predictor whose encoder and decoder are discrete or continuous in depth.

    Every stage has three 3x3 convolutions. In kind `"svg"` they are three layers. In the other
    two the second and third are the field of one ODE block, solved by Euler steps of 1/3 on
    [0, 1]: with the same weights at every depth (`"auto"`), or with trigonometric polynomials of
    depth (`"nanode"`),

    .. math:: W(s) = a_0 + \sum_{n=1}^{3} a_n \cos(n s) + b_n \sin(n s)

    `"svg"` and `"auto"` thus have equally many convolution weights, as in the paper's table,
    and `"nanode"` seven times as many in its blocks.

    Args:
        kind: `"svg"`, `"auto"` or `"nanode"`.
        size: side of a frame; 2 to the power of `stages` divides it.
        channels: of a frame.
        width: channels of the first stage; each of the next has twice as many, up to 8 times.
        stages: how many, each halving the resolution.
        features: of a frame's vector.
        latent: how many numbers are drawn for each frame.
        hidden: of every LSTM layer.
        layers: of the frame predictor.
        order: of the trigonometric polynomials.
        steps: of Euler's method.
        gradient: how the blocks are differentiated; None is back-propagation. `Checkpoint()`
            has the memory of the paper's reversible model, and allows batch norm.

    Time Dependence in Non-Autonomous Neural ODEs (Davis et al. 2020), after Denton and Fergus
    (2018).

    Example:
        >>> net = video_predictor(size=16, width=4, stages=2, features=8, hidden=8)
        >>> net(torch.rand(2, 5, 1, 16, 16)).shape
        torch.Size([2, 4, 2])
        >>> net.eval().sample(torch.rand(2, 2, 1, 16, 16), 3, samples=4).shape
        torch.Size([4, 2, 3, 1, 16, 16])
    """
    check_whole(size=size, channels=channels, width=width, stages=stages, features=features)
    check_whole(latent=latent, hidden=hidden, layers=layers, order=order, steps=steps)
    if kind not in get_args(Kind):
        raise ArgumentError(f"kind is 'svg', 'auto' or 'nanode', not {kind!r}")
    if max(steps, 2 * order + 1) > 512:
        raise ArgumentError(f"steps is at most 512 and order 255, not {steps} and {order}")
    if size % 2**stages:
        raise ArgumentError(
            f"size={size} cannot be halved {stages} times; choose a multiple of {2**stages}, or "
            "fewer stages"
        )
    widths = [width * min(2**i, 8) for i in range(stages)]
    pair = pair_of(kind, order, steps, gradient)
    parts = (channels, widths, size // 2**stages, features, pair)
    return VideoPredictor(
        VGGEncoder(*parts),
        VGGDecoder(*parts),
        features=features,
        latent=latent,
        hidden=hidden,
        layers=layers,
    )
