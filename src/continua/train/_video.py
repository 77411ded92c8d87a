"""Predicting video: the evidence lower bound, and how good the futures are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from continua._errors import ArgumentError, ModuleError
from continua._values import whole_number
from continua.data import VideoDataset
from continua.models import VideoPredictor, psnr, ssim

from ._random import mix_seeds
from ._task import PartName, Tally, Task

#: clips at a time in evaluation, whatever the batch size
CHUNK = 16
# What noise is for, so that no two draw the same numbers.
POSTERIOR, PRIOR = 0, 1


class VideoPrediction(Task):
    r"""The frames that follow, given the first ones.

    The loss is the negative evidence lower bound, averaged over clips and over every frame from
    the second on,

    .. math:: \text{reconstruction} + \beta \cdot \text{kl}

    with the squared error averaged over pixels, and the divergence summed over latent numbers, in
    nats. On the test part futures are drawn from the learned prior, and `psnr` and `ssim` are
    those of the predicted frames, each of the best of a clip's futures (Denton and Fergus 2018),
    averaged over frames and clips; `psnr_mean` and `ssim_mean` are of all futures. In evaluation
    the noise of a clip depends on its number alone: measures do not depend on the batch size.

    Args:
        dataset: clips of at least as many frames as are given and predicted.
        conditioning: frames that are given.
        predicted: frames that follow.
        beta: the weight of the divergence.
        futures: of each clip of the test part.
    """

    measure = "loss"
    higher = False

    def __init__(
        self,
        dataset: VideoDataset,
        *,
        conditioning: int = 2,
        predicted: int = 10,
        beta: float = 1e-4,
        futures: int = 5,
    ):
        whole_number("conditioning", conditioning)
        whole_number("predicted", predicted)
        whole_number("futures", futures)
        if not 0 <= beta < float("inf"):
            raise ArgumentError(f"beta is a number of at least 0, not {beta!r}")
        if not isinstance(dataset, VideoDataset):
            raise ArgumentError(f"{dataset.name} are no clips: video is predicted from clips")
        if dataset.frames < conditioning + predicted:
            raise ArgumentError(
                f"clips of {dataset.name} have {dataset.frames} frames, fewer than the "
                f"{conditioning} given and the {predicted} predicted"
            )
        self.dataset, self.beta, self.futures = dataset, beta, futures
        self.conditioning, self.predicted = conditioning, predicted

    @property
    def frames(self) -> int:
        """Given and predicted, together."""
        return self.conditioning + self.predicted

    def size(self, part: PartName) -> int:
        return len(getattr(self.dataset, part))

    def batch(
        self, part: PartName, index: Tensor, generator: torch.Generator | None
    ) -> Sequence[Tensor]:
        """Frames, the numbers of the clips, and how many futures to draw of each."""
        clips = self.dataset.clips(part, index, frames=self.frames, generator=generator)
        futures = self.futures if part == "test" else 0
        return self.dataset.prepared(clips), index, torch.tensor(futures)

    def loss(self, model: nn.Module, batch: Sequence[Tensor]) -> tuple[Tensor, Tally]:
        frames, index, futures = batch
        tally = Tally()
        if model.training:
            terms = model(frames, conditioning=self.conditioning)  # [B, T-1, 2]
            return self._bound(terms, tally), tally
        if not isinstance(model, VideoPredictor):
            raise ModuleError(f"{type(model).__name__} is no VideoPredictor")
        losses = []
        chunks = zip(torch.split(frames, CHUNK), torch.split(index, CHUNK), strict=True)
        for clips, numbers in chunks:
            noise = draw_noise(numbers, POSTERIOR, self.frames - 1, model.latent)
            terms = model(clips, noise, conditioning=self.conditioning)
            losses.append(self._bound(terms, tally) * len(clips))
            if int(futures):
                self._judge(model, clips, numbers, int(futures), tally)
        return torch.stack(losses).sum() / len(frames), tally

    def _bound(self, terms: Tensor, tally: Tally) -> Tensor:
        reconstruction, kl = terms.flatten(0, 1).mean(0)
        loss: Tensor = reconstruction + self.beta * kl
        for name, value in (("loss", loss), ("reconstruction", reconstruction), ("kl", kl)):
            tally.add(name, float(value.detach()) * len(terms), len(terms))
        return loss

    def _judge(
        self, model: VideoPredictor, frames: Tensor, numbers: Tensor, futures: int, tally: Tally
    ) -> None:
        """Add the quality of the futures."""
        first, truth = frames[:, : self.conditioning], frames[:, self.conditioning :]
        noise = draw_noise(numbers, PRIOR, futures * self.predicted, model.latent)
        noise = noise.view(len(frames), futures, self.predicted, -1).transpose(0, 1)
        predicted = model.sample(first, self.predicted, samples=futures, noise=noise)
        for name, judge in (("psnr", psnr), ("ssim", ssim)):
            each = judge(predicted, truth.expand_as(predicted)).mean(2)  # [futures, B]
            tally.add(name, float(each.amax(0).sum()), len(frames))
            tally.add(f"{name}_mean", float(each.mean(0).sum()), len(frames))


def draw_noise(numbers: Tensor, purpose: int, count: int, latent: int) -> Tensor:
    """Standard normal numbers for each clip, `[B, count, latent]`, the same in every batch."""
    generators = (torch.Generator().manual_seed(mix_seeds(purpose, n)) for n in numbers.tolist())
    return torch.stack([torch.randn(count, latent, generator=g) for g in generators])
