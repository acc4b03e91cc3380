"""What a model is worth: noise of the right size where it is paid for, exact where it is not."""

import dataclasses
import math

import numpy as np
import pytest

from privypurse import NoiseSource, Purse
from privypurse.accounting import convert
from privypurse.core._errors import BudgetExhausted
from privypurse.runs._measure import WHAT, measure
from privypurse.runs._rows import EncodedRows
from privypurse.tables._schema import ClassTarget, NumberTarget

TARGET = ClassTarget(name="y", classes=("b", "a"))
EPSILON, DELTA = 0.2, 1e-6


class SaysTheColumn:
    """A model whose answers are known."""

    classes_ = np.array([-1.0, 1.0])

    def predict(self, X):
        return X[:, 0]


def some_rows(rows=1_000):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    right = rng.random(rows) < 0.8
    return EncodedRows(np.where(right, 2 * y - 1, 1 - 2 * y)[:, None].astype(np.float32), y), right.mean()


def a_purse(seed, neighbouring="add-remove"):
    return Purse(EPSILON, DELTA, neighbouring=neighbouring, noise=NoiseSource(seed=seed))


def test_without_a_purse_figures_are_exact():
    rows, accuracy = some_rows()
    measured = measure(SaysTheColumn(), rows, TARGET, on="test")
    assert measured.value == pytest.approx(accuracy)
    assert (measured.paid, measured.epsilon) == (False, None)
    assert "1,000 records" in measured.on
    most = max(np.mean(rows.y), 1 - np.mean(rows.y))
    assert dict(measured.compared_with)["always the most frequent class"] == pytest.approx(most)


def test_all_that_is_left_pays_for_one_release():
    purse = a_purse(0)
    measured = measure(SaysTheColumn(), some_rows()[0], TARGET, on="test", purse=purse)
    assert measured.paid
    assert purse.spent.epsilon == pytest.approx(EPSILON)
    assert [line.what for line in purse.ledger.entries() if line.kind == "charge"] == [WHAT]
    with pytest.raises(BudgetExhausted):
        measure(SaysTheColumn(), some_rows()[0], TARGET, on="test", purse=purse)


@pytest.mark.statistical
@pytest.mark.parametrize(("neighbouring", "sensitivity"), [("add-remove", 1.0), ("replace-one", math.sqrt(2))])
@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_the_noise_has_its_scale_and_no_other(neighbouring, sensitivity, kind):
    # Records that are all right, all of one class: hits over total is one unless there is noise, so
    # the total tells.
    if kind == "classes":
        rows, target = EncodedRows(np.ones((5_000, 1), dtype=np.float32), np.ones(5_000, dtype=int)), TARGET
    else:
        rows, target = (
            EncodedRows(np.ones((5_000, 1), dtype=np.float32), np.ones(5_000)),
            NumberTarget(name="y", range=(0, 2)),
        )
        sensitivity = 1.5 * (1 if neighbouring == "add-remove" else 2)
    noise_std = sensitivity / convert.gdp_mu(EPSILON, DELTA)
    found = []
    for seed in range(120):
        measured = measure(SaysTheColumn(), rows, target, on="test", purse=a_purse(seed, neighbouring))
        if kind == "classes":
            # Accuracy is 1 - wrong / total, cut at 1: half of the draws show the noise of two cells
            # of wrong answers.
            found.append((1 - measured.value) * 5_000)
        else:
            found.append(measured.value / 2 * 5_000)
    positive = np.array([value for value in found if value > 0])
    assert 40 <= len(positive) <= 80
    observed = math.sqrt(np.mean(positive**2)) / (math.sqrt(2) if kind == "classes" else 1.0)
    assert 0.82 < observed / noise_std < 1.22  # neither 2/3 nor 3/2


def test_one_record_moves_the_figures_only_within_the_noise():
    rows, _ = some_rows()
    fewer = EncodedRows(rows.X[1:], rows.y[1:])
    one, other = (measure(SaysTheColumn(), part, TARGET, on="t", purse=a_purse(3)) for part in (rows, fewer))
    assert abs(one.value - other.value) < 0.01
    assert {field.name for field in dataclasses.fields(one)} == {field.name for field in dataclasses.fields(other)}


@pytest.mark.parametrize("target", [TARGET, NumberTarget(name="y", range=(0, 2))])
@pytest.mark.parametrize("paid", [False, True])
def test_no_records_at_all_are_measured_too(target, paid):
    empty = EncodedRows(np.zeros((0, 1), dtype=np.float32), np.zeros(0, dtype=int))
    measured = measure(SaysTheColumn(), empty, target, on="t", purse=a_purse(0) if paid else None)
    assert math.isfinite(measured.value)
