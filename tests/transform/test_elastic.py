"""Elastic models: the gradient of a smaller size, its statistics, and what is refused."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import continua as ct
from continua.field import tensor
from nets import Net, conv_unit, make_pair, mixed, mlp, scrambled

GRADIENTS = [ct.Backprop(), ct.Checkpoint(), ct.Adjoint()]


def net(gradient=None, basis=None, solver=None, norm=False) -> nn.Sequential:
    """A block between two layers, in double precision, its weights varying with depth."""
    torch.manual_seed(0)
    block = ct.ODEBlock(
        mlp(6, norm=norm), basis or ct.PiecewiseConstant(4), solver or ct.Euler(steps=4), gradient
    )
    return nn.Sequential(nn.Linear(3, 6), scrambled(block), nn.Linear(6, 3)).double()


@pytest.fixture
def data():
    torch.manual_seed(1)
    return torch.randn(7, 3, dtype=torch.float64), torch.randint(3, (7,))


@pytest.mark.parametrize("gradient", GRADIENTS, ids=repr)
@pytest.mark.parametrize(
    ("basis", "small"),
    [
        (ct.PiecewiseConstant(4), ct.PiecewiseConstant(2)),
        (ct.PiecewiseLinear(5), ct.PiecewiseLinear(3)),
        (ct.Legendre(4), ct.Legendre(2)),
        (ct.Fourier(2, period=2.0), ct.Fourier(1, period=2.0)),
        (ct.BSpline(6, degree=2), ct.BSpline(4, degree=2)),
    ],
    ids=repr,
)
def test_the_gradient_is_that_of_the_compressed_model_pulled_back(gradient, basis, small, data):
    x, y = data
    model = net(gradient, basis)
    compressed = ct.compress(model, small, steps=2)
    cross_entropy(compressed(x), y).backward()
    size = {"basis": small, "steps": 2}
    elastic = ct.Elastic(model, [{}, size])
    cross_entropy(elastic(x, size=size), y).backward()
    P = ct.projection(basis, small)
    for name in model[1].expansion.weights:
        expected = torch.einsum("jk,j...->k...", P, tensor(compressed[1].field, name).grad)
        found = tensor(model[1].field, name).grad
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(model[0].weight.grad, compressed[0].weight.grad)


def test_buckets_are_means_over_cells(data):
    model = net()
    small = ct.Elastic(model, [4, 2, 1]).at(1)
    stack = model[1].field[0].weight
    torch.testing.assert_close(small[1].field[0].weight[0], stack.mean(0))


@pytest.mark.parametrize("size", [4, 2, 1])
def test_a_size_is_what_compress_makes_with_statistics_of_its_own(size, data):
    x, y = data
    model = net(norm=True)
    elastic = ct.Elastic(model, [4, 2, 1])
    for step in range(6):
        elastic.loss(x, lambda out: cross_entropy(out, y), step)
    plain = elastic.at(size).eval()
    expected = ct.compress(model, ct.PiecewiseConstant(size), steps=size).eval()
    assert plain[1].solver == expected[1].solver
    for name, value in expected.named_parameters():
        assert torch.equal(plain.get_parameter(name), value)
    assert torch.equal(plain(x), elastic.eval()(x, size=size))
    # The oracle of the statistics: the compressed model itself, seen the same batches.
    torch.manual_seed(0)
    alone = ct.compress(net(norm=True), ct.PiecewiseConstant(size), steps=size)
    for _ in range(2 if size == 2 else 6):
        alone(x)
    for name, value in alone.named_buffers():
        torch.testing.assert_close(plain.get_buffer(name), value, rtol=1e-12, atol=1e-14)


def test_sizes_do_not_touch_the_statistics_of_others(data):
    x, _ = data
    elastic = ct.Elastic(net(norm=True), [4, 2, 1])
    before = {name: value.clone() for name, value in elastic.named_buffers()}
    elastic(x, size=2)
    changed = {n for n, v in elastic.named_buffers() if not torch.equal(v, before[n])}
    assert changed
    assert all(name.startswith("statistics.0.") for name in changed)


def test_batch_norm_outside_of_blocks_is_per_size_too():
    torch.manual_seed(0)
    block = ct.ODEBlock(conv_unit(), ct.PiecewiseConstant(2), ct.Euler(steps=2))
    elastic = ct.Elastic(nn.Sequential(nn.BatchNorm2d(4), block), [2, 1])
    elastic(torch.randn(2, 4, 5, 5) + 3, size=1)
    assert elastic.model[0].running_mean.abs().max() == 0
    assert elastic.at(1)[0].running_mean.abs().min() > 0.1


def test_the_loss_is_the_mean_of_the_full_size_and_of_smaller_ones(data):
    x, y = data
    model = net()
    elastic = ct.Elastic(model, [4, 2, 1])
    full, half, one = (cross_entropy(elastic(x, size=n), y) for n in (4, 2, 1))
    losses = [elastic.loss(x, lambda out: cross_entropy(out, y), step) for step in range(3)]
    two, three = (full + one) / 2, (full + one + half) / 3
    torch.testing.assert_close(torch.stack(losses), torch.stack([three, two, two]))


def test_the_sizes_between_take_turns():
    elastic = ct.Elastic(net(None, ct.PiecewiseConstant(8), ct.Euler(steps=8)), [8, 4, 2, 1])
    assert [elastic.trained(n) for n in range(5)] == [(1, 4), (1,), (1,), (1, 2), (1,)]
    assert ct.Elastic(net(), [4]).trained(1) == ()


def test_the_only_parameters_are_those_of_the_model():
    model = net(norm=True)
    elastic = ct.Elastic(model, [4, 2, 1])
    assert [id(p) for p in elastic.parameters()] == [id(p) for p in model.parameters()]


def test_state_dict_copy_and_device_move_keep_every_size(data):
    x, y = data
    elastic = ct.Elastic(net(norm=True), [4, 2, 1])
    for step in range(3):
        elastic.loss(x, lambda out: cross_entropy(out, y), step).backward()
    other = ct.Elastic(net(norm=True), [4, 2, 1])
    other.load_state_dict(elastic.state_dict())
    twin = copy.deepcopy(elastic)
    for size in (4, 2, 1):
        expected = elastic.eval()(x, size=size)
        assert torch.equal(other.eval()(x, size=size), expected)
        assert torch.equal(twin.eval()(x, size=size), expected)
    single = copy.deepcopy(elastic).float()
    assert single(x.float(), size=1).dtype == torch.float32
    with torch.no_grad():
        twin.model[1].field[1].weight.add_(1)
    assert torch.equal(elastic(x, size=2), other(x, size=2))


def test_modes_are_those_of_the_model(data):
    x, _ = data
    model = net(norm=True)
    elastic = ct.Elastic(model, [4, 2])
    model.eval()
    before = elastic.at(2).state_dict()
    elastic(x, size=2)
    for name, value in elastic.at(2).state_dict().items():
        assert torch.equal(value, before[name])


def test_refine_grows_an_elastic_model(data):
    x, y = data
    elastic = ct.Elastic(
        net(norm=True, basis=ct.PiecewiseConstant(2), solver=ct.Euler(steps=2)), [2, 1]
    )
    for step in range(2):
        elastic.loss(x, lambda out: cross_entropy(out, y), step)
    grown = ct.refine(elastic)
    assert grown.sizes == (4, 2, 1)
    elastic.eval(), grown.eval()
    for size in (2, 1):
        assert torch.equal(grown(x, size=size), elastic(x, size=size))
    assert torch.equal(grown(x), ct.refine(elastic.model)(x))


def test_tied_weights_stay_tied():
    torch.manual_seed(0)
    field = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    field[2].weight = field[0].weight
    model = ct.ODEBlock(field, ct.PiecewiseConstant(4), ct.Euler(steps=4))
    x = torch.randn(5, 3)
    elastic = ct.Elastic(model, [4, 2])
    assert torch.equal(elastic(x, size=2), elastic.at(2)(x))
    small = elastic.at(2)
    assert small.field[0].weight is small.field[2].weight


def test_evaluations_of_all_sizes_are_counted(data):
    x, _ = data
    elastic = ct.Elastic(net(), [4, 2])
    with ct.count_evaluations(elastic) as count:
        elastic(x), elastic(x, size=2)
    assert count.forward == 6


def test_weights_of_different_bases_take_dictionaries():
    model = mixed()
    bases = {"0.weight": ct.Fourier(2, period=2 * torch.pi), "*": ct.PiecewiseConstant(4)}
    with pytest.raises(ct.ArgumentError, match="different sizes"):
        ct.Elastic(model, [8, 4])
    with pytest.raises(
        ct.ArgumentError, match=r"PiecewiseConstant\(4\) is not contained in BSpline"
    ):
        ct.Elastic(model, [{}, {"basis": bases}])
    nested = {"0.bias": ct.BSpline(4, degree=2), **bases}
    elastic = ct.Elastic(model, [{}, {"basis": nested, "steps": 2}])
    assert elastic(torch.ones(2, 3), size=elastic.sizes[1]).shape == (2, 3)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ([], "empty"),
        (4, r"a list such as \[4, 2, 1\], not 4"),
        ("42", "a list"),
        ([2, 1], "begin with the model's own, 4 or {}, not with 2"),
        ([4, 3], r"3 after 4 does not: PiecewiseConstant\(3\) is not contained"),
        ([4, 1, 2], "2 after 1 does not"),
        ([8, 4], "8 is larger than the model, which has 4"),
        ([4, 4], "same model"),
        ([4, 0], "at least 1"),
        ([4, True], "at least 1"),
        ([4, 2.0], "at least 1"),
        ([4, {"budget": 0.5}], "'budget'"),
        ([{"steps": 8}, 2], "begin with the model's own"),
    ],
)
def test_bad_sizes(sizes, match):
    with pytest.raises(ct.ArgumentError, match=match):
        ct.Elastic(Net(), sizes)


def test_bad_models():
    with pytest.raises(ct.ArgumentError, match="no ODEBlock"):
        ct.Elastic(nn.Linear(2, 2), [1])
    with pytest.raises(ct.ArgumentError, match="different sizes"):
        ct.Elastic(make_pair(3), [4])
    with pytest.raises(ct.ArgumentError, match="no member of 4 functions"):
        ct.Elastic(net(basis=ct.Fourier(2)), [5, 4])
    elastic = ct.Elastic(Net(), [4, 2])
    with pytest.raises(ct.ArgumentError, match="elastic already"):
        ct.Elastic(elastic, [4, 2])
    with pytest.raises(ct.ArgumentError, match="there is no size 3; there are 4, 2"):
        elastic.at(3)
    for verb in (lambda m: ct.compress(m, steps=2), ct.unroll):
        with pytest.raises(ct.ArgumentError, match=r"elastic\.at"):
            verb(elastic)


@pytest.mark.parametrize(
    "verb", [lambda m: ct.compress(m, steps=2), ct.refine, ct.unroll, ct.revert, ct.align]
)
def test_an_elastic_part_of_a_model_is_named(verb):
    with pytest.raises(ct.ArgumentError, match="in the place of '1'"):
        verb(nn.Sequential(nn.Linear(3, 3), ct.Elastic(net(), [4, 2])))


def test_sizes_follow_the_solver_and_the_gradient_of_the_model(data):
    x, _ = data
    elastic = ct.Elastic(net(solver=ct.RK4(steps=4), norm=True), [4, {"steps": 2}])
    size = elastic.sizes[1]
    elastic(x, size=size)  # has statistics, which stay
    elastic.model[1].solver, elastic.model[1].gradient = ct.Euler(steps=8), ct.Checkpoint()
    elastic.eval()
    assert torch.equal(elastic(x, size=size), elastic.at(size)(x))
    found = []
    elastic.model[1].recorders.append(found.append)
    out = elastic(x, size=size)
    out.sum().backward()
    assert found[0].evaluations == found[0].backward.evaluations == 2
