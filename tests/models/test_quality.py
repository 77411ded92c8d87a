"""PSNR and SSIM against closed cases and against their definition, pixel by pixel."""

import math

import pytest
import torch

import continua as ct
from continua.models import psnr, ssim


def images(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_images_that_are_the_same():
    x = images(2, 3, 1, 16, 16)
    assert torch.equal(psnr(x, x), torch.full((2, 3), 100.0, dtype=torch.float64))
    torch.testing.assert_close(ssim(x, x), torch.ones(2, 3, dtype=torch.float64))


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (0.2, 0.7), (0.5, 0.5), (0.0, 0.0)])
def test_constant_images(a, b):
    x, y = (torch.full((1, 12, 12), v, dtype=torch.float64) for v in (a, b))
    c1 = 0.01**2
    assert ssim(x, y).item() == pytest.approx((2 * a * b + c1) / (a * a + b * b + c1), rel=1e-9)
    if a != b:
        assert psnr(x, y).item() == pytest.approx(-20 * math.log10(abs(a - b)))


def test_an_image_and_its_negative_are_less_than_unlike():
    x = images(1, 16, 16)
    assert ssim(x, 1 - x) < 0
    assert ssim(x, images(1, 16, 16, seed=1)).abs() < 0.2


def test_ssim_is_its_definition():
    x, y = images(2, 13, 12), images(2, 13, 12, seed=1)
    at = torch.arange(11, dtype=torch.float64) - 5
    bell = torch.exp(-at.square() / 4.5)
    window = bell[:, None] * bell / bell.sum() ** 2
    values = []
    for c in range(2):
        for i in range(3):
            for j in range(2):
                a, b = (t[c, i : i + 11, j : j + 11] for t in (x, y))
                ma, mb = (window * a).sum(), (window * b).sum()
                va, vb = (window * (a - ma) ** 2).sum(), (window * (b - mb) ** 2).sum()
                cov = (window * (a - ma) * (b - mb)).sum()
                values.append(
                    (2 * ma * mb + 1e-4) * (2 * cov + 9e-4)
                    / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))
                )  # fmt: skip
    torch.testing.assert_close(ssim(x, y), torch.stack(values).mean())
    torch.testing.assert_close(ssim(x, y), ssim(y, x))


def test_psnr_is_its_definition():
    x, y = images(4, 1, 3, 3), images(4, 1, 3, 3, seed=1)
    expected = [10 * math.log10(1 / float((x[i] - y[i]).square().mean())) for i in range(4)]
    assert psnr(x, y).tolist() == pytest.approx(expected)


def test_shapes_that_cannot_be_compared():
    with pytest.raises(ct.ShapeError, match=r"not \[1, 9, 9\] and \[1, 9, 8\]"):
        psnr(images(1, 9, 9), images(1, 9, 8))
    with pytest.raises(ct.ShapeError, match="does not fit into images of 10x12"):
        ssim(images(1, 10, 12), images(1, 10, 12))
