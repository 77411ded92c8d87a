"""The memory that a process of its own measures."""

import sys

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import continua as ct
from nets import Net


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_process_of_its_own_confirms_the_peak():
    torch.manual_seed(0)
    model = ct.build(Net, width=64, solver=ct.Midpoint(steps=20)).train()
    model.head.requires_grad_(False)
    x = torch.randn(2048, 3)
    report = ct.memory(model, x, methods=[ct.Backprop()], loss=mean_square_of_net, confirm=True)
    (row,) = report.rows
    assert row.saved > 20e6
    assert row.process == pytest.approx(row.peak, rel=0.15)
    assert "process peak" in str(report)


def test_a_converted_model_of_transformers_in_a_process_of_its_own():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=8,
        num_attention_heads=2,
        intermediate_size=8,
        num_hidden_layers=2,
        vocab_size=32,
    )
    model = ct.convert(transformers.BertModel(config).eval())
    ids = torch.arange(1, 9)[None]
    (row,) = ct.memory(
        model, ids, methods=[ct.Backprop()], loss=mean_square_of_state, confirm=True
    ).rows
    assert row.process >= 0


def mean_square_of_state(out):
    return out.last_hidden_state.square().mean()


def mean_square_of_net(out):
    return mse_loss(out, torch.zeros_like(out))


def test_what_another_process_cannot_get():
    model = ct.build(Net, width=4)
    with pytest.raises(ct.ArgumentError, match="another process can import"):
        ct.memory(
            model, torch.ones(2, 3), methods=[ct.Backprop()], confirm=True, loss=lambda y: y.sum()
        )
    pair = ct.build(nn.Bilinear, in1_features=2, in2_features=2, out_features=1)
    with pytest.raises(ct.ArgumentError, match="inputs that are tensors"):
        ct.memory(_WithScale(pair), torch.ones(1, 2), 2.0, confirm=True, methods=[ct.Backprop()])


class _WithScale(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, scale):
        return scale * self.inner(x, x)
