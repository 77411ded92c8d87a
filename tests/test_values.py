"""What holds for every value: bases, and whatever else is listed in KINDS."""

import contextlib
import copy
import dataclasses
import inspect
import json
import pickle
from dataclasses import KW_ONLY
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import continua as ct
from basis.members import ALL
from continua import ArgumentError, FrozenError
from continua._values import Value, from_config, known, value

# Members of every class of a kind; a class without a member here fails the first test.
KINDS = {ct.Basis: ALL}


@pytest.mark.parametrize("name", known(Value))
def test_every_argument_is_documented(name):
    documented = inspect.getdoc(known(Value)[name])
    for argument in inspect.signature(known(Value)[name]).parameters:
        assert f"\n    {argument}: " in documented


every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
every_value = pytest.mark.parametrize(
    ("kind", "one"), [(kind, one) for kind, members in KINDS.items() for one in members], ids=repr
)
every_class = pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in KINDS for name in known(kind)]
)


@every_kind
def test_every_class_has_members_and_is_public(kind):
    assert {type(one) for one in KINDS[kind]} == set(known(kind).values())
    assert all(getattr(ct, name) is cls for name, cls in known(kind).items())


@every_value
def test_copies_are_equal(kind, one):
    written = eval(repr(one), vars(ct) | {"inf": float("inf")})
    read = from_config(kind, json.loads(json.dumps(one.config())))
    kept = pickle.loads(pickle.dumps(one))
    for again in (written, read, kept, copy.copy(one), copy.deepcopy(one)):
        assert type(again) is type(one)
        assert again == one
        assert hash(again) == hash(one)
        assert repr(again) == repr(one)
        assert again.config() == one.config()


@every_kind
def test_different_values_are_different(kind):
    members = KINDS[kind]
    assert len(set(members)) == len({repr(one) for one in members}) == len(members)
    assert all(one != repr(one) for one in members)


@every_value
def test_a_value_cannot_be_changed(kind, one):
    before, names = repr(one), [field.name for field in dataclasses.fields(one)]
    for name in (*names, "anything"):
        with pytest.raises(FrozenError, match="cannot be changed; ") as error:
            setattr(one, name, 3)
        assert before in str(error.value)
        assert type(one).remedy in str(error.value)
        with pytest.raises(FrozenError, match="cannot be changed; "):
            delattr(one, name)
    assert repr(one) == before
    assert issubclass(FrozenError, AttributeError)


# -- configs that are wrong --------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@every_class
@given(data=st.data())
def test_arguments_make_a_value_or_one_sentence(kind, name, data):
    names = [field.name for field in dataclasses.fields(known(kind)[name])]
    arguments = data.draw(st.dictionaries(st.sampled_from([*names, "other", "type "]), JSON))
    with contextlib.suppress(ArgumentError):
        made = from_config(kind, {"type": name} | arguments)
        assert from_config(kind, json.loads(json.dumps(made.config()))) == made


@every_kind
@pytest.mark.parametrize("name", ["Nonsense", "", None, 3, ["Euler"], "Value"], ids=repr)
def test_an_unknown_name(kind, name):
    with pytest.raises(ArgumentError, match=f"unknown {kind.__name__.lower()} ") as error:
        from_config(kind, {"type": name})
    assert repr(name) in str(error.value)
    assert all(each in str(error.value) for each in known(kind))


@every_kind
@pytest.mark.parametrize("config", [None, 3, "Euler", ["type"]], ids=repr)
def test_a_config_that_is_no_mapping(kind, config):
    with pytest.raises(ArgumentError, match="is a mapping, not "):
        from_config(kind, config)


@every_class
def test_an_argument_too_many(kind, name):
    with pytest.raises(ArgumentError, match=f"{name} cannot be made from .*unheard_of"):
        from_config(kind, {"type": name, "unheard_of": 1})


def test_a_number_that_no_float_holds():
    with pytest.raises(ArgumentError, match="period"):
        from_config(ct.Basis, {"type": "Fourier", "order": 1, "period": 10**400})


# -- kinds of their own ------------------------------------------------------------------------


class Shape(Value):
    pass


@value
class Round(Shape):
    radius: float
    _: KW_ONLY
    unit: str = "m"


@value
class Two(Shape):
    first: Round
    second: Any = None


def test_a_keyword_only_argument_is_shown_if_it_is_not_the_default():
    assert repr(Round(2.0)) == "Round(radius=2.0)"
    assert repr(Round(2.0, unit="cm")) == "Round(radius=2.0, unit='cm')"
    assert Round(2.0).config() == {"type": "Round", "radius": 2.0}
    assert Round(2.0, unit="cm") != Round(2.0)


def test_values_inside_values():
    nested = Two(Round(1.0), Two(Round(2.0, unit="cm")))
    config = json.loads(json.dumps(nested.config()))
    assert config["first"] == {"type": "Round", "radius": 1.0}
    assert from_config(Shape, config) == nested
    with pytest.raises(ArgumentError, match="Round cannot be made from"):
        from_config(Shape, {"type": "Two", "first": {"type": "Round"}})


def test_classes_are_known_by_kind():
    assert known(Shape) == {"Round": Round, "Two": Two}
    assert not known(Shape).keys() & known(ct.Basis).keys()
    with pytest.raises(ArgumentError, match="unknown basis 'Round'"):
        from_config(ct.Basis, {"type": "Round", "radius": 1.0})


def test_a_name_stands_for_one_class():
    other = type("Round", (Shape,), {"__annotations__": {"side": float}})
    other.__qualname__ = "elsewhere.Round"
    with pytest.raises(ArgumentError, match="choose another name"):
        value(other)
    assert known(Shape)["Round"] is Round


# -- renamed -----------------------------------------------------------------------------------


def test_old_names_warn_and_work():
    with pytest.warns(DeprecationWarning, match=r"continua\.fit is now continua\.fit_coefficients"):
        assert ct.fit is ct.fit_coefficients
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ct.nonsense
    assert "fit" not in ct.__all__
    assert all(hasattr(ct, name) for name in ct.__all__)


def test_numbers_of_numpy_become_those_of_python():
    basis = ct.GaussianRBF(np.int64(4), width=np.float32(0.5))
    assert basis == ct.GaussianRBF(4, width=0.5)
    assert json.loads(json.dumps(basis.config())) == basis.config()
    assert ct.Euler(np.int32(3)).with_steps(np.int64(4)) == ct.Euler(4)
    assert ct.Dopri5(rtol=np.float64(1e-3)) == ct.Dopri5(rtol=1e-3)
    for wrong in (np.float64(2.0), np.bool_(True)):
        with pytest.raises(ArgumentError, match="a whole number"):
            ct.PiecewiseConstant(wrong)
