"""How alike two images are."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from continua._errors import ShapeError

#: side and standard deviation of SSIM's Gaussian window, and the constants K1 and K2
WINDOW, DEVIATION = 11, 1.5
K1, K2 = 0.01, 0.03
#: what stands for an error of zero, so that no ratio is infinite: 100 dB
LEAST = 1e-10


def psnr(x: Tensor, y: Tensor) -> Tensor:
    r"""The peak signal-to-noise ratio of images in [0, 1], in decibels.

    .. math:: -10 \log_{10} \operatorname{mean} (x - y)^2

    At most 100: what images have that are the same.

    Args:
        x: `[..., C, H, W]`.
        y: of the same shape.

    Example:
        >>> psnr(torch.zeros(1, 4, 4), torch.full((1, 4, 4), 0.1)).item()
        20.0
    """
    _check(x, y)
    error = (x - y).square().mean((-3, -2, -1))
    return -10 * error.clamp(min=LEAST).log10()


def ssim(x: Tensor, y: Tensor) -> Tensor:
    r"""The structural similarity of images in [0, 1]: 1 for those that are the same.

    .. math:: \frac{(2 \mu_x \mu_y + C_1)(2 \sigma_{xy} + C_2)}
                   {(\mu_x^2 + \mu_y^2 + C_1)(\sigma_x^2 + \sigma_y^2 + C_2)}

    averaged over channels and over all places of a Gaussian window of 11x11 pixels, deviation
    1.5, that lies within the image; :math:`C_1 = 0.01^2`, :math:`C_2 = 0.03^2`.

    Args:
        x: `[..., C, H, W]`.
        y: of the same shape.

    Z. Wang, A. Bovik, H. Sheikh and E. Simoncelli, *Image Quality Assessment*, 2004.

    Example:
        >>> x = torch.rand(5, 3, 16, 16)
        >>> torch.allclose(ssim(x, x), torch.ones(5))
        True
    """
    _check(x, y)
    H, W = x.shape[-2:]
    if min(H, W) < WINDOW:
        raise ShapeError(
            f"SSIM has a window of {WINDOW}x{WINDOW} pixels, which does not fit into images of "
            f"{H}x{W}"
        )
    a, b = (t.reshape(-1, 1, H, W) for t in (x, y))
    away = torch.arange(WINDOW, dtype=a.dtype, device=a.device) - WINDOW // 2
    bell = torch.exp(-away.square() / (2 * DEVIATION**2))
    bell = bell / bell.sum()

    def mean(t: Tensor) -> Tensor:
        """Over the window: first along columns, then along rows."""
        return F.conv2d(F.conv2d(t, bell.view(1, 1, -1, 1)), bell.view(1, 1, 1, -1))

    mean_a, mean_b = mean(a), mean(b)
    var_a = mean(a * a) - mean_a.square()
    var_b = mean(b * b) - mean_b.square()
    both = mean(a * b) - mean_a * mean_b
    c1, c2 = K1**2, K2**2
    top = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    bottom = (mean_a.square() + mean_b.square() + c1) * (var_a + var_b + c2)
    return (top / bottom).mean((1, 2, 3)).reshape(x.shape[:-2]).mean(-1)


def _check(x: Tensor, y: Tensor) -> None:
    if x.shape != y.shape or x.dim() < 3:
        raise ShapeError(
            f"images to compare are [..., C, H, W] of one shape, not {list(x.shape)} and "
            f"{list(y.shape)}"
        )
