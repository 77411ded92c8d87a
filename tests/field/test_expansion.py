"""Any module becomes a function of depth, or says in a sentence why it cannot."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import continua as ct
from continua.basis import FAMILIES
from nets import conv_unit, mlp, scrambled


def block_of(module, basis=None, **options):
    return ct.ODEBlock(module, basis or ct.PiecewiseConstant(3), ct.Euler(steps=3), **options)


def test_parameters_and_floating_buffers_become_stacks():
    block = block_of(conv_unit())
    assert block.field[2].weight.shape == (3, 4, 4, 3, 3)
    assert block.field[0].running_mean.shape == (3, 4)
    assert block.field[0].num_batches_tracked.shape == ()
    assert set(block.expansion.state) == {
        "0.running_mean", "0.running_var", "3.running_mean", "3.running_var"
    }  # fmt: skip
    assert block.expansion.carried == ("0.num_batches_tracked", "3.num_batches_tracked")


def test_a_basis_per_name_pattern_first_match_wins():
    block = block_of(
        conv_unit(),
        {"2.*": ct.Fourier(2), "*.weight": ct.PiecewiseLinear(4), "*": ct.Constant()},
    )
    weights = block.expansion.weights
    assert weights["2.weight"] == ct.Fourier(2)
    assert weights["5.weight"] == weights["0.weight"] == ct.PiecewiseLinear(4)
    assert weights["0.bias"] == block.expansion.state["0.running_var"] == ct.Constant()
    block(torch.randn(2, 4, 5, 5)).sum().backward()


def test_frozen_parameters_stay_constants():
    module = mlp()
    module[0].weight.requires_grad_(False)
    block = block_of(module)
    assert block.field[0].weight.shape == (8, 6)
    assert not block.field[0].weight.requires_grad
    block(torch.randn(2, 6)).sum().backward()
    assert block.field[0].weight.grad is None
    assert block.field[0].bias.grad.shape == (3, 8)


def test_everything_frozen_still_counts_once():
    module = nn.BatchNorm1d(3, affine=False)
    module.register_buffer("running_mean", None)
    module.register_buffer("running_var", None)
    block = block_of(module)
    block(torch.randn(4, 3))
    assert block.field.num_batches_tracked == 1


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight

    def forward(self, z):
        return self.second(torch.tanh(self.first(z)))


def test_tied_parameters_stay_tied():
    block = scrambled(block_of(Tied(), ct.Fourier(1)))
    assert block.field.first.weight is block.field.second.weight
    assert len(list(block.parameters())) == 1
    x = torch.randn(3, 4)
    layer = block.at(0.2)
    assert layer.first.weight is layer.second.weight
    z = x
    for n in range(3):
        w = block.at(n / 3).first.weight
        z = z + torch.tanh(z @ w.T) @ w.T / 3
    torch.testing.assert_close(block(x), z)
    for changed in (ct.refine(block), ct.compress(block, ct.PiecewiseConstant(2))):
        assert changed.field.first.weight is changed.field.second.weight
    unrolled = ct.unroll(block)
    torch.testing.assert_close(unrolled(x), block(x))
    assert unrolled.stage0.first.weight is unrolled.stage0.second.weight


def test_tied_parameters_need_one_basis():
    with pytest.raises(ct.ArgumentError, match=r"same tensor.*Fourier.*Constant"):
        block_of(Tied(), {"first*": ct.Fourier(1), "*": ct.Constant()})


def test_dropout_draws_at_every_evaluation():
    torch.manual_seed(0)
    block = block_of(nn.Sequential(nn.Linear(50, 50), nn.Dropout(0.5)))
    x = torch.ones(1, 50)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))


@pytest.mark.parametrize("family", FAMILIES)
def test_weight_norm(family):
    torch.manual_seed(0)
    basis = FAMILIES[family].of_size(4)
    block = block_of(nn.Sequential(weight_norm(nn.Linear(3, 3)), nn.Tanh()), basis)
    assert block.field[0].parametrizations.weight.original1.shape[0] == basis.size
    x = torch.randn(2, 3)
    scrambled(block)(x).sum().backward()
    assert all(p.grad is not None for p in block.parameters())
    plain = ct.unroll(block)
    torch.testing.assert_close(plain(x), block(x))


@pytest.mark.parametrize("family", FAMILIES)
def test_spectral_norm_keeps_its_norm_at_every_depth(family):
    """Between nodes the power iteration's vectors are averages; they are read at unit length."""
    torch.manual_seed(0)
    module = nn.Sequential(spectral_norm(nn.Linear(4, 4, bias=False), n_power_iterations=3))
    block = block_of(module, FAMILIES[family].of_size(3), init="copy")
    for _ in range(20):
        block.train()(torch.randn(2, 4))
    block.eval()
    for s in (0.0, 0.4, 1.0):
        norm = torch.linalg.matrix_norm(block.at(s)[0].weight, ord=2)
        torch.testing.assert_close(norm, torch.tensor(1.0), rtol=0.02, atol=0)
    small = ct.compress(block, ct.PiecewiseConstant(1))
    norm = torch.linalg.matrix_norm(small.at(0.5)[0].weight, ord=2)
    torch.testing.assert_close(norm, torch.tensor(1.0), rtol=0.02, atol=0)


def test_a_module_without_parameters():
    block = block_of(nn.Tanh())
    x = torch.randn(2, 3, requires_grad=True)
    block(x).sum().backward()
    assert not list(block.parameters())
    assert "parameters=0" in repr(block)


def test_attention():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    block = scrambled(block_of(layer, ct.Fourier(1)))
    x = torch.randn(2, 5, 8)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    train = block(x, src_key_padding_mask=mask)
    train.sum().backward()
    block.eval()
    with torch.no_grad():
        torch.testing.assert_close(block(x), train, rtol=1e-4, atol=1e-4)


def test_masks_and_tables_are_not_state():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf, 0.0]))
            self.register_buffer("table", torch.ones(3), persistent=False)

        def forward(self, z):
            return torch.softmax(self.linear(z) + self.mask, -1) * self.table

    block = block_of(Masked(), ct.Fourier(1))
    assert block.expansion.state == {}
    assert block(torch.randn(2, 3)).isfinite().all()


def test_state_that_the_module_replaces_instead_of_writing():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(2, dtype=torch.float64))

        def forward(self, z):
            if self.training:
                self.mean = 0.5 * self.mean + 0.5 * z.mean(0)
            return z - self.mean

    block = ct.ODEBlock(Mean(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    x = torch.ones(3, 2, dtype=torch.float64)
    block(x)
    torch.testing.assert_close(block.field.mean, torch.tensor([[0.5] * 2, [0.625] * 2]).double())
    assert block.field._buffers["mean"].shape == (2, 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_copy_starts_as_the_module_at_every_depth(family):
    torch.manual_seed(0)
    module = conv_unit().double()
    basis = FAMILIES[family].of_size(6)
    block = block_of(module, basis)
    # The radial families contain the constants only nearly.
    tolerance = 0.05 if family.endswith("RBF") else 1e-12
    for s in (0.0, 0.31, 1.0):
        for name, value in block.at(s).state_dict().items():
            scale = float(module.state_dict()[name].double().abs().max()) or 1.0
            error = (value - module.state_dict()[name]).abs().max() / scale
            assert error <= tolerance, (name, s)


@pytest.mark.parametrize("family", FAMILIES)
def test_independent_draws_differ_over_depth_and_stay_in_scale(family):
    torch.manual_seed(0)
    basis = FAMILIES[family].of_size(9)
    block = block_of(nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32)), basis,
                     init="independent")  # fmt: skip
    spread = nn.Linear(32, 32).weight.std()
    deviations = [block.at(s)[0].weight.std() / spread for s in torch.linspace(0, 1, 21).tolist()]
    assert min(deviations) > 0.2
    assert max(deviations) < 3
    if basis.size > 1:
        assert (block.at(0.1)[0].weight - block.at(0.6)[0].weight).std() > 0.3 * spread
    # what every draw has in common stays as it is
    if not family.endswith("RBF"):
        torch.testing.assert_close(block.at(0.7)[1].weight, torch.ones(32), rtol=0.02, atol=0)


def test_independent_draws_follow_the_generator():
    blocks = []
    for _ in range(2):
        torch.manual_seed(3)
        blocks.append(block_of(mlp(), init="independent"))
    assert torch.equal(blocks[0].field[0].weight, blocks[1].field[0].weight)


# -- refusals ----------------------------------------------------------------------------------


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, z):
        return self.gain * z


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: block_of(nn.LSTM(3, 3)), "use LSTMCell"),
        (lambda: block_of(nn.LazyLinear(3)), "call the module once"),
        (lambda: block_of(Scale(), init="independent"), r"Scale\) does not offer"),
        (
            lambda: block_of(nn.Sequential(weight_norm(nn.Linear(2, 2))), init="independent"),
            "use init='copy'",
        ),
        (lambda: block_of(mlp(), {"conv*": ct.Constant(), "*": ct.Constant()}), r"'conv\*'"),
        (lambda: block_of(mlp(), {"0.*": ct.Constant()}), "no pattern matches tensor '2.weight'"),
        (lambda: block_of(mlp(), {"*": "fourier"}), "'fourier', which is not a basis"),
        (
            lambda: block_of(conv_unit(), state_basis={"*mean": ct.Constant()}),
            "no pattern matches buffer '0.running_var'",
        ),
    ],
)
def test_refusals(make, match):
    with pytest.raises(ct.ContinuaError, match=match):
        make()
