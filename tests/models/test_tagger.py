"""The taggers: their size, their padding, and attention along their depth."""

import math

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import (
    EncoderLayer,
    attention_maps,
    continuous_tagger,
    linear_tagger,
    transformer_tagger,
)

TOKENS = torch.tensor([[2, 5, 10, 3, 0], [2, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
SMALL = {"vocabulary": 11, "tags": 3, "width": 8, "mlp": 6, "max_length": 7}


def continuous(K=3, **changes):
    torch.manual_seed(0)
    arguments = {"basis": ct.PiecewiseConstant(K), "solver": ct.Euler(steps=K)}
    model = continuous_tagger(**SMALL | arguments | changes)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.2 * torch.randn_like(p)
    return model.eval()


def discrete_like(model, K):
    """The discrete transformer with the weights of a continuous one."""
    other = transformer_tagger(layers=K, heads=model.encoder.field.attention.heads, **SMALL)
    state = other.state_dict()
    for name, value in model.state_dict().items():
        if name.startswith("encoder.field."):
            for k in range(K):
                state[f"encoder.layers.{k}.{name.removeprefix('encoder.field.')}"].copy_(value[k])
        else:
            state[name].copy_(value)
    return other.eval()


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("V", "T", "K"), [(1, 1, 1), (500, 17, 2), (1234, 45, 5)])
def test_parameters_of_the_paper(V, T, K):
    model = continuous_tagger(
        vocabulary=V, tags=T, basis=ct.PiecewiseConstant(K), solver=ct.Euler(steps=K)
    )
    assert count(model) == 128 * V + 99_072 * K + 256 + 129 * T
    assert count(transformer_tagger(vocabulary=V, tags=T, layers=K)) == count(model)
    assert count(linear_tagger(vocabulary=V, tags=T)) == 128 * V + 129 * T


@pytest.mark.parametrize("heads", [1, 2])
def test_the_discrete_transformer_is_the_continuous_one_with_euler_and_buckets(heads):
    K = 3
    model = continuous(K, epsilon=float(K), heads=heads)
    torch.testing.assert_close(discrete_like(model, K)(TOKENS), model(TOKENS))


@pytest.mark.parametrize("heads", [1, 2])
def test_a_layer_is_the_encoder_layer_of_torch(heads):
    torch.manual_seed(0)
    ours = EncoderLayer(8, heads, 6).double()
    theirs = nn.TransformerEncoderLayer(
        8,
        heads,
        6,
        dropout=0.0,
        activation=nn.functional.elu,
        layer_norm_eps=1e-6,
        batch_first=True,
        norm_first=True,
    ).double()
    at, to = ours.attention, theirs.self_attn
    with torch.no_grad():
        to.in_proj_weight.copy_(torch.cat([at.q.weight, at.k.weight, at.v.weight]))
        to.in_proj_bias.zero_(), to.out_proj.bias.zero_()
        to.out_proj.weight.copy_(at.o.weight)
        theirs.linear1.load_state_dict(ours.mlp[0].state_dict())
        theirs.linear2.load_state_dict(ours.mlp[2].state_dict())
    z = torch.randn(2, 5, 8, dtype=torch.float64)
    keep = torch.tensor([[True] * 5, [True, True, True, False, False]])
    expected = theirs(z, src_key_padding_mask=~keep)
    torch.testing.assert_close(z + ours(z, keep[:, None, None]), expected)


@pytest.mark.parametrize("make", ["continuous", "discrete"])
def test_padding_changes_nothing(make):
    model = continuous(epsilon=3.0)
    model = model if make == "continuous" else discrete_like(model, 3)
    y = model(TOKENS)
    torch.testing.assert_close(model(TOKENS[:1, :4]), y[:1, :4])
    torch.testing.assert_close(model(TOKENS[1:2, :2]), y[1:2, :2])
    longer = nn.functional.pad(TOKENS, (0, 2))
    torch.testing.assert_close(model(longer)[:2, :5], y[:2])


def test_a_sentence_of_padding_is_finite_in_value_and_gradient():
    model = continuous()
    y = model(torch.zeros(2, 5, dtype=torch.int64))
    y.square().sum().backward()
    assert y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_words_see_each_other_and_their_order():
    model = continuous()
    a, b = torch.tensor([[2, 5, 10]]), torch.tensor([[2, 10, 5]])
    assert not torch.allclose(model(a)[0, 0], model(b)[0, 0])
    assert not torch.allclose(model(a)[0, 1], model(b)[0, 2])
    linear = linear_tagger(vocabulary=11, tags=3, width=8)
    assert torch.equal(linear(a)[0, 0], linear(b)[0, 0])


def test_positions_are_sines_and_cosines_that_are_not_saved():
    model = continuous()
    assert model.positions.shape == (7, 8)
    assert "positions" not in model.state_dict()
    rate = 10_000 ** (-2 / 8)
    expected = [math.sin(3), math.cos(3), math.sin(3 * rate), math.cos(3 * rate)]
    torch.testing.assert_close(model.positions[3, :4], torch.tensor(expected))
    odd = linear_tagger(vocabulary=11, tags=3, width=5)
    assert odd(TOKENS).shape == (3, 5, 3)


def test_first_weights():
    torch.manual_seed(0)
    model = continuous_tagger(
        vocabulary=2000, tags=50, basis=ct.PiecewiseConstant(2), solver=ct.Euler(steps=2)
    )
    field = model.encoder.field
    bound = (6 / 256) ** 0.5
    for weight in (field.attention.q.weight, field.mlp[0].weight, field.mlp[2].weight):
        assert (weight == weight[:1]).all()
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert field.mlp[0].bias.std().item() == pytest.approx(1e-6, rel=0.2)
    assert model.head.weight.abs().max().item() == pytest.approx((6 / 178) ** 0.5, rel=0.01)
    assert model.embedding.weight.std().item() == pytest.approx(128**-0.5, rel=0.01)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_whole_numbers_of_both_lengths(dtype):
    model = continuous()
    assert torch.equal(model(TOKENS.to(dtype)), model(TOKENS))


@pytest.mark.parametrize(
    ("tokens", "error", "said"),
    [
        (torch.zeros(1, 8, dtype=torch.int64), ct.ShapeError, "8 tokens, more than max_length=7"),
        (torch.zeros(5, dtype=torch.int64), ct.ShapeError, r"whole numbers \[B, T\], not .* \[5\]"),
        (torch.zeros(1, 5), ct.ShapeError, r"whole numbers \[B, T\], not torch.float32"),
        (torch.tensor([[2, 11]]), ct.ArgumentError, "token 11 is not in the vocabulary"),
        (torch.tensor([[2, -1]]), ct.ArgumentError, "token -1 is not in the vocabulary"),
    ],
)
def test_tokens_that_cannot_work_are_refused(tokens, error, said):
    for model in (continuous(), linear_tagger(vocabulary=11, tags=3, max_length=7)):
        with pytest.raises(error, match=said):
            model(tokens)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"heads": 3}, "width 8 cannot be split into 3 heads"),
        ({"tags": 0}, "tags is a whole number of at least 1, not 0"),
        ({"mlp": 0}, "mlp is a whole number of at least 1, not 0"),
        ({"max_length": 0}, "max_length is a whole number of at least 1, not 0"),
        ({"epsilon": -1.0}, "epsilon, the length of the span, is positive, not -1.0"),
    ],
)
def test_arguments_that_cannot_work_are_refused(changes, said):
    with pytest.raises(ct.ArgumentError, match=said):
        continuous(**changes)


def test_exports_with_a_free_batch_size_and_length():
    model = continuous()
    batch = torch.export.Dim("batch", min=1, max=64)
    length = torch.export.Dim("length", min=1, max=7)
    program = torch.export.export(model, (TOKENS,), dynamic_shapes=({0: batch, 1: length},))
    for tokens in (TOKENS[:1], TOKENS[:2, :3]):
        torch.testing.assert_close(program.module()(tokens), model(tokens))


# Attention along depth.


@pytest.mark.parametrize("heads", [1, 2])
def test_maps_are_rows_that_sum_to_one_and_leave_padding_out(heads):
    maps = attention_maps(continuous(heads=heads), TOKENS, [0.0, 0.4, 1.0])
    assert maps.shape == (3, 3, heads, 5, 5)
    torch.testing.assert_close(maps.sum(-1), torch.ones(3, 3, heads, 5))
    assert not maps[:, 0, :, :, 4].any()
    assert not maps[:, 1, :, :, 2:].any()
    assert not maps.requires_grad


def test_maps_are_what_the_attention_uses():
    model = continuous()
    layer = model.encoder.at(0.0)
    z, mask = model.embed(TOKENS)
    x = layer.norm1(z)
    expected = layer.attention.o(
        attention_maps(model, TOKENS, [0.0])[0, :, 0] @ layer.attention.v(x)
    )
    torch.testing.assert_close(layer.attention(x, mask), expected)


def test_maps_of_the_discrete_transformer_are_those_of_the_continuous_one():
    model = continuous(epsilon=3.0)
    by_layer = attention_maps(discrete_like(model, 3), TOKENS)
    torch.testing.assert_close(attention_maps(model, TOKENS), by_layer)
    torch.testing.assert_close(attention_maps(model, TOKENS, [2.0, 0.0]), by_layer[[2, 0]])


def test_maps_vary_smoothly_with_smooth_weights():
    model = continuous(basis=ct.PiecewiseLinear(3), solver=ct.RK4(steps=4))
    near, far = (
        (attention_maps(model, TOKENS, [0.2, 0.2 + h])).diff(dim=0).abs().max() for h in (1e-3, 0.5)
    )
    assert 0 < near < 0.1 * far


def test_maps_with_a_solver_that_finds_its_own_steps():
    model = continuous(solver=ct.Dopri5(rtol=1e-4, atol=1e-4), basis=ct.PiecewiseLinear(2))
    assert attention_maps(model, TOKENS, [0.0, 0.5]).shape == (2, 3, 1, 5, 5)
    with pytest.raises(ct.ArgumentError, match="has no fixed grid; say at which depths"):
        attention_maps(model, TOKENS)


def test_maps_that_cannot_be_are_refused():
    model = continuous()
    with pytest.raises(ct.ArgumentError, match=r"depths lie in the span \(0, 1\), unlike 1.5"):
        attention_maps(model, TOKENS, [0.0, 1.5])
    with pytest.raises(ct.ArgumentError, match="unlike an empty list"):
        attention_maps(model, TOKENS, [])
    with pytest.raises(ct.ArgumentError, match="one map per layer; leave depths out"):
        attention_maps(discrete_like(model, 3), TOKENS, [0.0])
    with pytest.raises(ct.ArgumentError, match="Tagger has no attention"):
        attention_maps(linear_tagger(vocabulary=11, tags=3), TOKENS)
    with pytest.raises(ct.ArgumentError, match="Linear has no attention"):
        attention_maps(nn.Linear(1, 1), TOKENS)
