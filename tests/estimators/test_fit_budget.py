"""Opening a budget for a fit: a purse of its own, or no more of a shared one than is left and was
asked for.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV, cross_val_score

from privypurse import (
    BudgetExhausted,
    FixedSchedule,
    Gaussian,
    GaussianCharge,
    InvalidArgument,
    Neighbouring,
    NoiseSource,
    Norm,
    Purse,
    Sensitive,
)
from privypurse.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from privypurse.estimators._fit_budget import UncountedSpending, open_budget, seed_from
from privypurse.purse._allowance import Allowance

BOX = Sensitive([3.0, 4.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
NOTHING = {"epsilon": None, "delta": None, "neighbouring": None, "purse": None, "random_state": None}


def budget(**settings):
    return open_budget(SimpleNamespace(**NOTHING | settings))


def a_purse(epsilon=1.0, **more):
    return Purse(epsilon, 1e-6, **{"neighbouring": "add-remove"} | more)


# ---------------------------------------------------------------------------------- without a purse


def test_a_fit_without_a_purse_has_one_of_its_own():
    made = budget(epsilon=0.5)
    assert (made.epsilon, made.delta, made.neighbouring) == (0.5, 1e-6, Neighbouring.ADD_REMOVE)
    assert not made.noise.simulation
    other = budget(epsilon=0.5, delta=1e-9, neighbouring="replace-one", random_state=7)
    assert (other.delta, other.neighbouring, other.noise.simulation) == (1e-9, Neighbouring.REPLACE_ONE, True)
    assert not isinstance(made, Allowance)
    made.release(BOX, Gaussian.spending(made.remaining))
    assert 0.4995 <= made.spent.epsilon <= 0.5
    assert budget(epsilon=0.5).spent.releases == 0, "each has its own"


def test_seeds():
    assert seed_from(None) is None
    assert seed_from(0) == 0
    assert seed_from(np.int64(12)) == 12
    assert type(seed_from(np.int64(12))) is int
    for make in (np.random.default_rng, np.random.RandomState):
        source = make(5)
        first, second = seed_from(source), seed_from(source)
        assert first != second, "two fits with one generator do not share their noise"
        assert (first, second) == tuple(map(seed_from, [same := make(5), same]))
    for wrong in (True, np.True_, -1, 1.0, "7", [7], np.random):
        with pytest.raises(InvalidArgument, match="random_state must be"):
            seed_from(wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "epsilon must be given"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"epsilon": True}, "epsilon must be"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must be"),
        ({"epsilon": 1.0, "neighbouring": "swap"}, "neighbouring must be"),
        ({"epsilon": 1.0, "random_state": -3}, "random_state must be"),
        ({"purse": 1.0}, "purse must be a Purse"),
        ({"purse": Purse}, "purse must be a Purse"),
        ({"purse": a_purse(), "delta": 1e-5}, "delta must be that of the purse"),
        ({"purse": a_purse(), "neighbouring": "replace-one"}, "neighbouring must be that of the purse"),
        ({"purse": a_purse(), "random_state": 0}, "random_state must be None with a purse"),
        ({"purse": a_purse(), "epsilon": -1.0}, "epsilon must be"),
    ],
    ids=repr,
)
def test_wrong_arguments_are_refused_with_nothing_spent(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        budget(**changes)
    if isinstance(changes.get("purse"), Purse):
        assert len(list(changes["purse"].ledger.entries())) == 1


# -------------------------------------------------------------------------------- a part of a purse


@pytest.mark.parametrize("rule", ["gdp", "zcdp", "rdp"])
@settings(max_examples=40)
@given(
    epsilon=st.floats(0.05, 30.0),
    log_delta=st.floats(-9.0, -3.0),
    relation=st.sampled_from(list(Neighbouring)),
    spent=st.floats(0.0, 0.999),
    parts=st.integers(1, 7),
)
def test_all_that_is_left_and_never_more(rule, epsilon, log_delta, relation, spent, parts):
    """Spent through the allowance in any number of Gaussian releases, none of which the purse
    refuses.
    """
    purse = Purse(epsilon, 10.0**log_delta, neighbouring=relation, filter=rule)
    if spent > 0.001:
        purse.release(BOX, Gaussian(purse.remaining.noise_multiplier / math.sqrt(spent)))
    left = purse.fraction_left
    assume(purse.remaining.epsilon > 0)  # a remainder that the delta alone covers is refused as nothing
    allowance = budget(purse=purse)
    for _ in range(parts - 1):
        allowance.release(BOX, Gaussian(allowance.filter.smallest_noise_multiplier(allowance.filter.start()) * parts))
    allowance.release(BOX, Gaussian.spending(allowance.remaining))
    assert purse.fraction_left <= 1e-3 * left, "nothing is left behind"
    assert purse.fraction_left >= 0
    assert purse.spent.epsilon <= epsilon
    assert allowance.spent.epsilon <= allowance.epsilon
    if rule == "gdp":
        assert purse.spent.epsilon >= 0.999 * epsilon


def test_no_more_than_was_asked_for():
    purse = a_purse(ledger=None)
    some = budget(purse=purse, epsilon=0.25)
    assert isinstance(some, Allowance)
    assert (some.epsilon, some.delta, some.neighbouring, some.purse) == (0.25, 1e-6, purse.neighbouring, purse)
    some.release(BOX, Gaussian.spending(some.remaining))
    assert purse.spent.epsilon == some.spent.epsilon <= 0.25
    with pytest.raises(BudgetExhausted, match=r"epsilon=50 was requested, but 0\.9\d+ is left"):
        budget(purse=purse, epsilon=50.0)
    rest = budget(purse=purse)
    rest.release(BOX, Gaussian.spending(rest.remaining))
    assert 0.999 <= purse.spent.epsilon <= 1.0


def test_a_fit_may_be_a_part_of_a_part():
    purse = a_purse()
    inner = budget(purse=budget(purse=purse, epsilon=0.25))
    inner.release(BOX, Gaussian.spending(inner.remaining))
    assert 0.2499 <= purse.spent.epsilon <= 0.25


@pytest.mark.parametrize("rule", ["gdp", "zcdp", "rdp"])
def test_an_empty_purse_is_refused_with_nothing_spent(rule, tmp_path):
    purse = a_purse(ledger=tmp_path / "budget.db", filter=rule, dataset="adult")
    purse.release(BOX, Gaussian.spending(purse.remaining))
    before = (purse.totals, purse.ledger.head())
    for epsilon in (None, 0.5):
        with pytest.raises(BudgetExhausted, match=r"nothing is left.*'adult'"):
            budget(purse=purse, epsilon=epsilon)
    X, y = a_table()
    with pytest.raises(BudgetExhausted, match=r"PrivateLogisticRegression\.fit spent nothing"):
        PrivateLogisticRegression(0.5, purse=purse).fit(X, y)
    assert (purse.totals, purse.ledger.head()) == before


def test_a_fixed_schedule_is_handed_through():
    plan = FixedSchedule([GaussianCharge(20.0), GaussianCharge(30.0)], 1.0, 1e-6, "add-remove")
    purse = Purse.with_filter(plan)
    assert budget(purse=purse) is purse
    purse.release(BOX, Gaussian(20.0))
    assert budget(purse=purse) is purse
    purse.release(BOX, Gaussian(30.0))
    with pytest.raises(BudgetExhausted):
        budget(purse=purse)


def test_a_purse_that_is_not_private_gives_what_is_asked():
    purse = Purse.not_private()
    assert budget(purse=purse) is purse
    some = budget(purse=purse, epsilon=0.3)
    with pytest.raises(BudgetExhausted):
        some.release(BOX, Gaussian(1.0))
    some.release(BOX, Gaussian.spending(some.remaining))
    assert some.spent.epsilon <= 0.3
    assert purse.spent.releases == 1
    assert not purse.certificate().private


# ------------------------------------------------------------------------------- uncounted spending


def a_table(rows=90):
    X = np.random.default_rng(0).standard_normal((rows, 2))
    return X, (X[:, 0] > 0).astype(int)


MODELS = [PrivateLogisticRegression, PrivateLinearSVC, lambda *a, **k: PrivateRidge(*a, target_bounds=(0, 1), **k)]


@pytest.mark.parametrize("model", MODELS, ids=["logistic", "svc", "ridge"])
def test_cross_validation_without_a_purse_warns(model):
    X, y = a_table()
    with pytest.warns(UncountedSpending, match=r"epsilon=0\.5.*not added up"):
        cross_val_score(model(0.5), X, y, cv=2, error_score="raise")
    with pytest.warns(UncountedSpending):
        GridSearchCV(model(0.5), {"l2": [0.0, 0.1]}, cv=2, error_score="raise").fit(X, y)


@pytest.mark.filterwarnings("error::privypurse.estimators.UncountedSpending")
@pytest.mark.parametrize("model", MODELS, ids=["logistic", "svc", "ridge"])
def test_no_warning_where_spending_is_counted_or_simulated(model):
    X, y = a_table()
    cross_val_score(model(0.5, random_state=0), X, y, cv=2, error_score="raise")
    purse = a_purse(2.0)
    cross_val_score(model(0.1, purse=purse), X, y, cv=3, error_score="raise")
    assert 0.1 < purse.spent.epsilon < 0.3, "three fits: more than one costs, less than their sum"
    model(0.5).fit(X, y)  # nobody searches


def test_a_shared_purse_counts_fits_in_squares():
    """Three fits of epsilon 0.1 are one of the same mu as three releases."""
    X, y = a_table()
    purse, alike = a_purse(2.0, noise=NoiseSource(seed=1)), a_purse(2.0)
    for _ in range(3):
        PrivateLogisticRegression(0.1, purse=purse).fit(X, y)
        part = budget(purse=alike, epsilon=0.1)
        part.release(BOX, Gaussian.spending(part.remaining))
    assert purse.spent.epsilon == pytest.approx(alike.spent.epsilon, rel=1e-3)


def test_a_budget_that_protects_nothing_warns():
    X, y = a_table()
    with pytest.warns(UserWarning, match="epsilon 1,000,000 protects nothing"):
        PrivateLogisticRegression(1e6).fit(X, y)
