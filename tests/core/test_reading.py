"""Files are read strictly: what is malformed gives one documented error."""

import math
from dataclasses import dataclass
from typing import Any

import pytest

from privypurse.core._errors import BudgetExhausted, InvalidArgument, LedgerCorrupt
from privypurse.core._reading import check_fields, finite_or_none, read_json, refusing


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1, "a": 2}', "occurs twice"),
        ("NaN", "NaN is not a number of JSON"),
        ("1e999", "too large"),
        ("{", "Expecting"),
    ],
)
def test_json_that_may_be_read_in_two_ways_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        read_json(text)


def test_numbers_that_are_not_finite_are_read_where_they_are_allowed():
    assert read_json("[1e999, 1.5]", strict=False) == [math.inf, 1.5]
    assert read_json('{"a": [1.5, null]}') == {"a": [1.5, None]}


def test_errors_of_reading_become_one_error_and_others_pass():
    with pytest.raises(InvalidArgument, match="not a model"), refusing("not a model."):
        {}["missing"]
    with pytest.raises(LedgerCorrupt, match="not a ledger"), refusing("not a ledger.", (OSError,), LedgerCorrupt):
        raise OSError
    with pytest.raises(BudgetExhausted, match="empty"), refusing("not a model."):
        raise BudgetExhausted("empty")


def test_what_json_cannot_hold_becomes_none():
    assert finite_or_none({1: (math.inf, 2.0, [math.nan])}) == {"1": [None, 2.0, [None]]}
    kept = finite_or_none([math.nan, -math.inf, "inf"], nan=False)
    assert math.isnan(kept[0])
    assert kept[1:] == [None, "inf"]


@dataclass
class Inner:
    count: int


@dataclass
class Outer:
    share: float
    names: list[str]
    pair: tuple[int, str]
    numbers: tuple[float, ...]
    inner: Inner
    by_name: dict[str, Inner]
    maybe: int | None
    anything: Any


GOOD = {
    "share": 1,
    "names": ["a"],
    "pair": (1, "a"),
    "numbers": (1.0, 2),
    "inner": Inner(1),
    "by_name": {"a": Inner(2)},
    "maybe": None,
    "anything": object(),
}


def test_fields_hold_what_their_annotations_say():
    check_fields(Outer(**GOOD))
    check_fields(Outer(**GOOD | {"maybe": 3, "numbers": ()}))


@pytest.mark.parametrize(
    "changed",
    [
        {"share": math.nan},
        {"share": True},
        {"share": 2**63},
        {"share": "1"},
        {"names": ("a",)},
        {"names": [1]},
        {"pair": (1, "a", 2)},
        {"pair": [1, "a"]},
        {"numbers": (1.0, "2")},
        {"inner": {"count": 1}},
        {"inner": Inner(1.5)},
        {"by_name": {1: Inner(2)}},
        {"by_name": {"a": 2}},
        {"maybe": "3"},
    ],
    ids=str,
)
def test_fields_of_another_type_are_refused(changed):
    with pytest.raises(TypeError, match="expected"):
        check_fields(Outer(**GOOD | changed))
