"""A ResNet is a special case of a block."""

import pytest
import torch

import continua as ct
from nets import conv_unit, mlp, scrambled

FLOAT_BINNING_FAILS = (7, 9, 12, 14, 17, 18, 19, 21, 49)  # SPEC 1.15.1


@pytest.mark.parametrize("steps", range(1, 50))
def test_euler_with_one_bucket_per_step_is_a_resnet(steps):
    torch.manual_seed(steps)
    block = scrambled(
        ct.ODEBlock(
            mlp(4, norm=True).double(),
            ct.PiecewiseConstant(steps),
            ct.Euler(steps=steps),
            span=(0, steps),
        )
    )
    layers = [block.at(k + 0.5) for k in range(steps)]
    x = torch.randn(16, 4, dtype=torch.float64)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()

    y = block(ours)
    z = theirs
    for layer in layers:
        z = z + layer(z)
    torch.testing.assert_close(y, z, rtol=1e-10, atol=0)

    y.square().sum().backward()
    z.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-12)
    for name, stack in block.field.named_parameters():
        rows = torch.stack([layer.get_parameter(name).grad for layer in layers])
        torch.testing.assert_close(stack.grad, rows, rtol=1e-8, atol=1e-12 * rows.abs().max())
    for name, stack in block.field.named_buffers():
        rows = [layer.get_buffer(name) for layer in layers]
        if stack.is_floating_point():
            torch.testing.assert_close(stack, torch.stack(rows), rtol=1e-12, atol=0)
        else:
            assert all(torch.equal(stack, row) for row in rows)


@pytest.mark.parametrize("steps", [1, 3, *FLOAT_BINNING_FAILS])
def test_the_convolutional_resnet_in_single_precision(steps):
    torch.manual_seed(0)
    block = scrambled(
        ct.ODEBlock(
            conv_unit(), ct.PiecewiseConstant(steps), ct.Euler(steps=steps), span=(0, steps)
        )
    )
    layers = [block.at(k + 0.5) for k in range(steps)]
    x = torch.randn(4, 4, 6, 6)
    y, z = block(x), x
    for layer in layers:
        z = z + layer(z)
    torch.testing.assert_close(y, z, rtol=1e-6, atol=0)
    y.square().mean().backward()
    z.square().mean().backward()
    for name, stack in block.field.named_parameters():
        rows = torch.stack([layer.get_parameter(name).grad for layer in layers])
        assert (stack.grad - rows).norm() <= 1e-6 * rows.norm()
    for name in block.expansion.state:
        rows = torch.stack([layer.get_buffer(name) for layer in layers])
        torch.testing.assert_close(block.field.get_buffer(name), rows, rtol=1e-6, atol=0)
