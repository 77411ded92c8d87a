"""`nn.TransformerEncoder` with padded batches, which it nests where no gradient is needed."""

import pytest
import torch
from torch import nn

import continua as ct


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(16, 3)

    def forward(self, x, pad):
        return self.head(self.encoder(x, src_key_padding_mask=pad))


def made():
    torch.manual_seed(0)
    model = Encoder().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.1, 0.2)
    pad = torch.zeros(4, 7, dtype=torch.bool)
    pad[1:, 5:] = True
    return model, [{"x": torch.randn(4, 7, 16), "pad": pad} for _ in range(4)]


pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


@torch.no_grad()
def test_padded_batches():
    model, (batch, *_) = made()
    converted = ct.convert(model)
    assert model.encoder(batch["x"], src_key_padding_mask=batch["pad"])[1, 6].eq(0).all()  # nested
    assert torch.equal(converted(**batch), model(**batch))
    small = ct.compress(converted, ct.PiecewiseConstant(2), steps=2)
    assert torch.equal(ct.revert(small)(**batch), small(**batch))
    fine = ct.refine(converted)
    with torch.enable_grad():
        expected = fine(**batch)  # without nesting
    kept = ~batch["pad"]
    torch.testing.assert_close(fine(**batch)[kept], expected[kept])


def test_fit_and_heal():
    model, batches = made()
    converted = ct.convert(model)
    choice = {"basis": ct.PiecewiseConstant(2), "steps": 2}
    small = ct.compress(converted, **choice)
    fitted = ct.compress(converted, **choice, method="fit", calibrate=batches)
    healed = ct.heal(small, converted, batches, steps=8, check_every=4, lr=1e-3)
    assert torch.backends.mha.get_fastpath_enabled()

    @torch.no_grad()
    def error(other):
        return float((other(**batches[1]) - model(**batches[1])).square().mean())

    assert error(fitted) < error(small)
    assert error(healed) < error(small)
