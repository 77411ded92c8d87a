"""What holds for every family: evaluation, derivative, nodes, refinement, identity, refusals."""

import copy
import itertools
import json
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import continua as ct
from basis.members import (
    ALL,
    FAMILIES,
    PIECEWISE,
    difference,
    every_basis,
    every_family,
    everywhere,
    eye,
    of_size,
    random,
    tensor,
)
from continua import ArgumentError
from continua._values import from_config
from continua.basis import Basis, Point, sample

sizes = st.integers(1, 24)
inside = st.floats(0.01, 0.99)


def test_every_family_is_public():
    for name, family in FAMILIES.items():
        assert getattr(ct, name) is family
        assert issubclass(family, Basis)


# -- evaluation --------------------------------------------------------------------------------


@every_basis
def test_one_more_dimension_for_the_functions(basis):
    for shape in [(), (0,), (5,), (2, 3), (2, 0, 3)]:
        for side in ("left", "right"):
            assert basis(random(*shape), side).shape == (*shape, basis.size)


@every_basis
def test_a_batch_is_its_depths_one_by_one(basis):
    s = random(3, 4)
    one_by_one = torch.stack([torch.stack([basis(x) for x in row]) for row in s])
    torch.testing.assert_close(basis(s), one_by_one, rtol=1e-14, atol=1e-14)
    assert torch.equal(basis(s.T), basis(s).transpose(0, 1))  # a view that is not contiguous


@every_basis
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_dtype_of_the_depth_is_kept(basis, dtype):
    s = torch.cat([torch.linspace(0, 1, 41, dtype=torch.float64), tensor(*basis.breakpoints)])
    s = s.to(dtype)
    exact = s.double()
    for b in basis.breakpoints:  # rounded to half precision it is still that breakpoint
        exact[s == torch.tensor(b, dtype=dtype)] = b
    for side in ("left", "right"):
        got, expected = basis(s, side), basis(exact, side)
        assert got.dtype == dtype
        tolerance = 4 * basis.size * torch.finfo(dtype).eps * expected.abs().max().item()
        torch.testing.assert_close(got.double(), expected, rtol=0, atol=tolerance)


@every_basis
def test_numbers_are_depths_of_the_default_dtype(basis):
    assert basis(0.25).dtype == torch.get_default_dtype()
    torch.testing.assert_close(basis(0.25), basis(torch.tensor(0.25)), rtol=0, atol=0)
    torch.testing.assert_close(basis(1), basis(1.0), rtol=0, atol=0)
    torch.testing.assert_close(basis(torch.tensor([0, 1])), basis(torch.tensor([0.0, 1.0])))


@every_basis
def test_sides_differ_at_breakpoints_alone(basis):
    s = random(100)
    assert torch.equal(basis(s, "left"), basis(s, "right"))
    assert torch.equal(basis(s), basis(s, "right"))


@every_basis
def test_a_side_is_the_limit_from_it(basis):
    nearby = 1e-9
    for b in basis.breakpoints:
        for side, shift in (("left", -nearby), ("right", nearby)):
            if 0 <= b + shift <= 1:
                at, near = basis(tensor(b), side), basis(tensor(b + shift), side)
                torch.testing.assert_close(at, near, rtol=0, atol=1e3 * basis.size * nearby)


@every_basis
def test_a_depth_that_is_not_a_number_is_in_no_cell(basis):
    for dtype in (torch.float64, torch.float16):
        assert basis(torch.tensor(math.nan, dtype=dtype)).isnan().any()


@every_basis
def test_breakpoints_span_the_interval(basis):
    assert basis.breakpoints[0] == 0
    assert basis.breakpoints[-1] == 1
    assert list(basis.breakpoints) == sorted(set(basis.breakpoints))


@every_basis
def test_beyond_the_ends_cells_hold_and_formulas_continue(basis):
    end, beyond = tensor(0, 0, 1, 1), tensor(-1e-6, -3.0, 1 + 1e-6, 4.0)
    if isinstance(basis, PIECEWISE):
        assert torch.equal(basis(beyond), basis(end))
        assert torch.equal(slope(basis, beyond), torch.zeros_like(beyond))
    else:
        assert torch.equal(basis(beyond, "left"), basis(beyond, "right"))
        here, there = slope(basis, beyond)[::2], slope(basis, 2 * end - beyond)[::2]
        torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-3 * steepness(basis))


@every_family
def test_a_basis_made_and_evaluated_in_a_compiled_function(family):
    def evaluate(s):
        return family.of_size(4)(s)

    torch.compiler.reset()  # the families share the function's code
    s = tensor(0.3, 0.5)
    compiled = torch.compile(evaluate, backend="eager", fullgraph=True)
    assert torch.equal(compiled(s), evaluate(s))


# -- derivative --------------------------------------------------------------------------------


def slope(basis, s, side="right"):
    """The derivative of one generic function of the basis, by backward differentiation."""
    s = s.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(generic(basis, s, side).sum(), s)
    return gradient


def generic(basis, s, side="right"):
    """A function in which every function of the basis takes part."""
    return basis(s, side) @ torch.arange(1, basis.size + 1, dtype=s.dtype).sqrt()


def steepness(basis):
    """How fast the functions of a basis change, at most, or one."""
    s = torch.linspace(0, 1, 1001, dtype=torch.float64)
    return 1 + 1000 * generic(basis, s).diff().abs().median().item()


@every_basis
def test_derivative_passes_gradcheck(basis):
    ends = tensor(*basis.breakpoints)
    s = ends[:-1] + 0.3 * ends.diff()
    assert torch.autograd.gradcheck(basis, s.requires_grad_(), atol=1e-5 * steepness(basis))


@every_family
@given(size=st.integers(1, 12), at=inside)
def test_derivative_against_central_differences(family, size, at):
    basis = of_size(family, size) or family.of_size(size + 1)
    ends = tensor(*basis.breakpoints)
    s, h = ends[:-1] + at * ends.diff(), 1e-5
    expected = (generic(basis, s + h) - generic(basis, s - h)) / (2 * h)
    tolerance = 1e-6 * steepness(basis)
    torch.testing.assert_close(slope(basis, s), expected, rtol=1e-6, atol=tolerance)


@every_family
@pytest.mark.parametrize("size", [2, 9, 24, 50, 99, 108])
def test_derivative_at_a_breakpoint_is_one_sided(family, size):
    basis = family.of_size(size)
    ends, width = tensor(*basis.breakpoints), 1 / (len(basis.breakpoints) - 1)
    for side, at, inwards in (("left", ends[1:], -1e-9), ("right", ends[:-1], 1e-9)):
        within = slope(basis, at + inwards * width, side)
        tolerance = 1e-3 * steepness(basis)
        torch.testing.assert_close(slope(basis, at, side), within, rtol=1e-3, atol=tolerance)


@every_basis
def test_derivative_in_half_precision(basis):
    ends = tensor(*basis.breakpoints)
    for dtype, side in itertools.product((torch.float16, torch.bfloat16), ("left", "right")):
        got = slope(basis, ends.to(dtype), side).double()
        tolerance = 8 * basis.size * torch.finfo(dtype).eps * steepness(basis)
        torch.testing.assert_close(got, slope(basis, ends, side), rtol=0, atol=tolerance)


def test_buckets_have_a_derivative_and_it_is_zero():
    s = tensor(0.0, 0.3, 0.5, 1.0)
    assert torch.equal(slope(ct.PiecewiseConstant(4), s), torch.zeros_like(s))


# -- nodes -------------------------------------------------------------------------------------


@every_basis
def test_one_node_per_function(basis):
    assert len(basis.nodes) == basis.size
    assert len(set(basis.nodes)) == basis.size
    assert all(isinstance(node, Point) and 0 <= node.depth <= 1 for node in basis.nodes)
    depths = [node.depth for node in basis.nodes]
    assert depths == sorted(depths)


@every_basis
def test_values_at_the_nodes_determine_the_function(basis):
    assert torch.linalg.matrix_rank(sample(basis, basis.nodes)) == basis.size
    assert difference(basis, ct.interpolation(basis, basis), basis, eye(basis.size)) < 1e-10


@every_basis
def test_sample_takes_each_point_from_its_side(basis):
    points = everywhere(basis)
    expected = torch.stack([basis(tensor(p.depth)[0], p.side) for p in points])
    assert torch.equal(sample(basis, points), expected)


# -- identity ----------------------------------------------------------------------------------


@every_basis
def test_config_round_trip(basis):
    config = json.loads(json.dumps(basis.config()))
    assert config["type"] == type(basis).__name__
    again = from_config(Basis, config)
    assert again == basis
    assert hash(again) == hash(basis)
    assert again.config() == basis.config()


@every_basis
def test_a_basis_is_a_value(basis):
    for again in (
        eval(repr(basis), dict(FAMILIES)),
        copy.deepcopy(basis),
        pickle.loads(pickle.dumps(basis)),
    ):
        assert again == basis
        assert hash(again) == hash(basis)
        assert again.nodes == basis.nodes
        assert torch.equal(again(tensor(0.3)), basis(tensor(0.3)))
    assert basis != repr(basis)


def test_different_bases_are_different():
    assert len(set(ALL)) == len(ALL)
    for a, b in itertools.combinations(ALL, 2):
        assert a != b
        assert repr(a) != repr(b)


@every_family
@given(size=sizes)
def test_of_size_is_the_largest_that_fits(family, size):
    basis = of_size(family, size)
    if basis is None:
        assert (family, size) == (ct.DiscontinuousLinear, 1)
        return
    assert basis.size <= size
    assert basis == family.of_size(basis.size)
    if family is not ct.Constant:
        assert size - basis.size <= 1  # pairs: of sines and cosines, of ends of a cell


# -- refusals ----------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("size", [0, -1, 2.5, 3.0, True, None, "3", math.nan], ids=repr)
def test_a_size_that_cannot_be(family, size):
    with pytest.raises(ArgumentError, match=repr(size)):
        family.of_size(size)
    if family is ct.Constant or (family is ct.Fourier and size == 0 and size is not False):
        return  # no size to give; no harmonics is a constant
    with pytest.raises(ArgumentError, match=repr(size)):
        family(size)


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64, torch.complex128], ids=str)
@every_family
def test_a_depth_that_is_no_real_number(family, dtype):
    with pytest.raises(ArgumentError, match=str(dtype)):
        of_size(family, 4)(torch.zeros(2, dtype=dtype))


@every_family
@pytest.mark.parametrize("side", ["middle", "", None, 1, "Left"], ids=repr)
def test_a_side_that_is_none(family, side):
    with pytest.raises(ArgumentError, match=f"'left' or 'right', not {side!r}"):
        of_size(family, 4)(0.5, side)


@pytest.mark.parametrize("name", ["Wavelet", "", None, 3, ["Legendre"], "legendre"], ids=repr)
def test_a_family_that_is_unknown(name):
    with pytest.raises(ArgumentError, match="unknown basis") as error:
        from_config(Basis, {"type": name, "size": 3})
    assert repr(name) in str(error.value)
    assert all(family in str(error.value) for family in FAMILIES)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"size": 3},
        {"type": "Legendre"},
        {"type": "Legendre", "size": 0},
        {"type": "Legendre", "size": 3, "degree": 2},
        {"type": "Constant", "size": 1},
        {"type": "Fourier", "order": 2, "period": None},
    ],
    ids=repr,
)
def test_a_config_that_is_damaged(config):
    with pytest.raises(ArgumentError):
        from_config(Basis, config)
