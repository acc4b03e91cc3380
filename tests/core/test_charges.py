"""Charges are frozen, hashable, and go to JSON and back without loss."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privypurse.core._errors import InvalidArgument
from privypurse.core.charges import (
    BoundedRangeCharge,
    GaussianCharge,
    NonPrivateCharge,
    PureCharge,
    RepeatedCharge,
    from_json,
    to_json,
)

positive = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
probability = st.floats(min_value=0, max_value=1, exclude_min=True)
single_charges = st.one_of(
    st.builds(GaussianCharge, positive, probability),
    st.builds(BoundedRangeCharge, positive, probability),
    st.builds(PureCharge, positive, probability),
    st.builds(NonPrivateCharge, st.text(min_size=1).filter(str.strip)),
)
all_charges = st.one_of(single_charges, st.builds(RepeatedCharge, single_charges, st.integers(1, 10**9)))


@given(all_charges)
def test_json_round_trip(charge):
    back = from_json(json.loads(json.dumps(to_json(charge))))
    assert back == charge
    assert hash(back) == hash(charge)


@pytest.mark.parametrize("kind", [GaussianCharge, BoundedRangeCharge, PureCharge])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, True, "1"], ids=repr)
def test_wrong_values_are_refused(kind, value):
    with pytest.raises(InvalidArgument):
        kind(value)
    with pytest.raises(InvalidArgument):
        kind(1.0, sample_prob=value)


def test_charges_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        GaussianCharge(1.0).noise_multiplier = 2.0


def test_numbers_are_stored_as_plain_floats():
    assert type(GaussianCharge(1).noise_multiplier) is float


@pytest.mark.parametrize("inner", [RepeatedCharge(GaussianCharge(1.0), 2), 3.0, None, "gaussian"])
def test_only_single_charges_are_repeated(inner):
    with pytest.raises(InvalidArgument):
        RepeatedCharge(inner, 2)


@pytest.mark.parametrize(
    "described",
    [
        {},
        [],
        None,
        "gaussian",
        {"kind": "laplace", "scale": 1.0},
        {"kind": "gaussian"},
        {"kind": "gaussian", "noise_multiplier": 1.0, "surprise": 2},
        {"kind": "gaussian", "noise_multiplier": "1"},
        {"kind": "repeated", "charge": {"kind": "gaussian", "noise_multiplier": 1.0}, "count": 0},
        {"kind": ["gaussian"]},
    ],
    ids=repr,
)
def test_unknown_descriptions_are_refused(described):
    with pytest.raises(InvalidArgument):
        from_json(described)
