"""The sealed box never shows or yields its value."""

import contextlib
import copy
import json
import math
import os
import pickle

import numpy as np
import pytest

from privypurse.core._errors import (
    InvalidArgument,
    SealedValue,
    SharedAcrossProcesses,
    UnboundedSensitivity,
    UnsupportedCharge,
)
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._sensitive import Norm, Sample, Sensitive

SECRET = 8675309.25


def box(**changes):
    arguments = {"norm": Norm.L2, "add_remove": 1.0, "replace_one": 2.0} | changes
    return Sensitive([SECRET, SECRET], **arguments)


@pytest.mark.parametrize(  # every way to make text of an object
    "show", [repr, str, format, lambda b: f"{b}", lambda b: f"{b!r:>9}", lambda b: "%s" % (b,), lambda b: f"{b:.3f}"]
)
def test_text_shows_bounds_and_never_the_value(show):
    shown = show(box())
    assert "bound 1.0" in shown
    assert "8675309" not in shown


@pytest.mark.parametrize(
    "look",
    [
        float,
        int,
        complex,
        bool,
        len,
        iter,
        list,
        tuple,
        sum,
        max,
        hash,
        np.asarray,
        np.array,
        np.float64,
        np.sum,
        np.mean,
        np.linalg.norm,
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        json.dumps,
        math.sqrt,
        lambda b: b[0],
        lambda b: SECRET in b,
        lambda b: b == SECRET,
        lambda b: b != SECRET,
        lambda b: b == b,
        lambda b: b < 1,
        lambda b: b >= 1,
        lambda b: b + 1,
        lambda b: 1 + b,
        lambda b: b * 2.0,
        lambda b: np.ones(2) + b,
        lambda b: np.ones(2) @ b,
        lambda b: np.ones(2) == b,
        lambda b: np.add(b, 1),
        lambda b: np.isfinite(b),
        lambda b: np.array([b, b], dtype=float),
        lambda b: [*b],
        lambda b: "x" if b else "y",
        lambda b: memoryview(b),
        lambda b: pickle.dumps(b, protocol=0),
        vars,
    ],
)
def test_no_operation_yields_the_value(look):
    with pytest.raises((SealedValue, TypeError)) as refusal:
        look(box())
    assert "8675309" not in str(refusal.value)


def test_a_sample_is_taken_once_and_a_refusal_gives_it_back():
    sample = Sample()
    with contextlib.suppress(RuntimeError), sample.take():
        raise RuntimeError("payment refused")
    with sample.take():
        pass
    with pytest.raises(UnsupportedCharge, match="already released once"), sample.take():
        pass


def test_a_sample_belongs_to_the_process_that_drew_it():
    sample = Sample()
    child = os.fork()
    if child == 0:
        try:
            with sample.take():
                os._exit(0)
        except SharedAcrossProcesses:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_an_array_of_boxes_does_not_open_them():
    held = np.empty(1, dtype=object)
    held[0] = box()
    assert "8675309" not in repr(held)


def test_the_box_keeps_its_own_copy():
    values = np.array([1.0, 2.0])
    kept = Sensitive(values, norm=Norm.L2, add_remove=1.0, replace_one=2.0)
    values[:] = 77.0
    assert kept._value.tolist() == [1.0, 2.0]
    assert not kept._value.flags.writeable


def test_public_facts():
    sampled = box(sample_prob=0.25)
    assert (sampled.shape, sampled.norm, sampled.sample_prob) == ((2,), Norm.L2, 0.25)
    assert "0.25" in repr(sampled)
    assert sampled.bound(Neighbouring.ADD_REMOVE, Norm.L2) == 1.0
    assert sampled.bound(Neighbouring.REPLACE_ONE, Norm.L2) == 2.0


@pytest.mark.parametrize(
    "name", ["add_remove", "replace_one", "norm", "sample", "sample_prob", "shape", "_value", "new"]
)
def test_nothing_in_a_box_can_be_set_again(name):
    with pytest.raises(AttributeError, match="cannot be set"):
        setattr(box(sample_prob=0.25), name, 0.5)
    with pytest.raises(AttributeError):
        delattr(box(), name)


def test_a_missing_bound_or_the_wrong_norm_is_an_error_with_the_remedy():
    one_sided = box(replace_one=None)
    assert one_sided.replace_one is None
    with pytest.raises(UnboundedSensitivity, match="a purse with the other relation"):
        one_sided.bound(Neighbouring.REPLACE_ONE, Norm.L2)
    with pytest.raises(UnboundedSensitivity, match=r"Norm\.RANGE"):
        one_sided.bound(Neighbouring.ADD_REMOVE, Norm.RANGE)


@pytest.mark.parametrize(
    "changes",
    [
        {"add_remove": 0.0},
        {"add_remove": 1e-101, "replace_one": None},
        {"add_remove": 1e101, "replace_one": None},
        {"add_remove": -1.0},
        {"add_remove": math.nan},
        {"add_remove": True},
        {"replace_one": math.inf},
        {"replace_one": 0.5},
        {"replace_one": 2.5},
        {"norm": "l2"},
        {"sample_prob": 0.0},
        {"sample_prob": 1.5},
    ],
    ids=repr,
)
def test_wrong_bounds_are_refused(changes):
    with pytest.raises(InvalidArgument):
        box(**changes)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e201])
def test_a_value_that_is_not_finite_is_refused_without_showing_it(value):
    with pytest.raises(UnboundedSensitivity, match="must be finite") as refusal:
        Sensitive([SECRET, value], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
    assert "8675309" not in str(refusal.value)


def test_the_sensitivity_is_the_bound_or_not_known():
    box = Sensitive([1.0], norm=Norm.RANGE, add_remove=0.5, replace_one=None)
    assert box.sensitivity(Neighbouring.ADD_REMOVE) == 0.5
    assert box.sensitivity(Neighbouring.REPLACE_ONE) is None
