"""Additive models: what they pay for, what their curves are, and what is refused before payment."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from privypurse import InvalidArgument, Neighbouring, NoiseSource, Norm, Purse
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core.charges import GaussianCharge
from privypurse.estimators import (
    DeclaredOneHot,
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    PrivateLogisticRegression,
    PrivateSearchCV,
)
from privypurse.estimators import _curves as curves
from privypurse.estimators._base import CHECKED
from privypurse.estimators._terms import as_numbers
from privypurse.oracles.statistics import histograms

RANGES = {"age": (0, 1_000), "hours": (0, 100)}  # the first far too wide


@pytest.fixture(autouse=True)
def _simulations():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def people(n=10_000, seed=0):
    """Return a mixed table, and labels whose log-odds bend in age and rise in hours."""
    rng = np.random.default_rng(seed)
    age, hours = rng.uniform(18, 90, n), rng.gamma(4, 10, n).clip(1, 99)
    job = rng.choice(np.array(["law", "care", "none"], dtype=object), n)
    score = 2 - ((age - 50) / 15) ** 2 + (hours - 40) / 20 + np.where(job == "law", 1.0, -0.5)
    y = (rng.random(n) < 1 / (1 + np.exp(-score))).astype(int)
    return pd.DataFrame({"age": age, "hours": hours, "job": job}), y


def classifier(**settings):
    given = {"ranges": RANGES, "categories": {"job": ["law", "care"]}, "classes": [0, 1], "random_state": 0}
    return PrivateAdditiveClassifier(**given | settings)


@pytest.fixture(scope="module")
def model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classifier().fit(*people())


def cells(rows):
    return hnp.arrays(np.intp, st.tuples(rows, st.just(3)), elements=st.integers(-2, 6))


@given(cells(st.integers(0, 6)), cells(st.just(1)), cells(st.just(1)))
def test_one_record_moves_the_histograms_by_their_bound_at_most(table, one, other):
    def build(rows):
        return histograms(rows, sizes=[2, 5, 4])

    added = build(np.vstack([table, one]))._value
    moved = np.linalg.norm(added - build(table)._value)
    replaced = np.linalg.norm(added - build(np.vstack([table, other]))._value)
    box = build(table)
    assert moved <= box.bound(Neighbouring.ADD_REMOVE, Norm.L2)
    assert replaced <= box.bound(Neighbouring.REPLACE_ONE, Norm.L2)


def test_the_bounds_of_histograms_are_reached():
    box, full = histograms(np.zeros((0, 3), dtype=np.intp), sizes=[2, 2, 2]), np.array([[0, 0, 0]])
    moved = np.linalg.norm(histograms(full, sizes=[2, 2, 2])._value)
    assert moved == pytest.approx(box.bound(Neighbouring.ADD_REMOVE, Norm.L2))
    replaced = np.linalg.norm(histograms(full, sizes=[2] * 3)._value - histograms(full + 1, sizes=[2] * 3)._value)
    assert replaced == pytest.approx(box.bound(Neighbouring.REPLACE_ONE, Norm.L2))


@given(hnp.arrays(np.float64, 5, elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_hats_sum_to_one_and_hold_the_number(values):
    knots = np.array([-3.0, 0.0, 0.5, 10.0])
    encoded = curves.hats(values, knots)
    assert encoded.shape == (5, 5)
    assert ((encoded >= 0) & (encoded <= 1)).all()
    np.testing.assert_allclose(encoded[:, 1:].sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(encoded[:, 0], encoded[:, 1:] @ np.linspace(0, 1, 4), atol=1e-6)
    middle = np.where(np.isnan(values), 3.5, np.clip(values, -3, 10))
    np.testing.assert_allclose(encoded[:, 1:] @ knots, middle, atol=1e-5)


def test_a_curve_finds_what_a_line_cannot():
    X, y = people()
    line = PrivateLogisticRegression(classes=[0, 1], random_state=0).fit(X[["age", "hours"]] / 100, y)
    assert classifier().fit(X, y).score(X, y) > line.score(X[["age", "hours"]] / 100, y) + 0.1


def test_the_fit_stays_within_its_budget_and_lists_its_releases(model):
    releases = {group.what: group.count for group in model.certificate_.groups}
    assert releases["histogram of columns"] == 1
    assert releases["number of records"] == 2
    assert sum(releases.values()) == model.privacy_spent_.releases
    assert 0.99 < model.privacy_spent_.epsilon <= 1.0


def test_a_purse_pays_for_knots_and_training():
    X, y = people(2_000)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=0))
    paid = classifier(epsilon=0.4, purse=purse, random_state=None).fit(X, y)
    assert 0.39 < purse.spent.epsilon <= 0.4
    assert paid.privacy_spent_.releases == purse.spent.releases


def test_values_of_shapes_are_the_scores(model):
    X, _ = people(200, seed=1)
    by_name = dict(list(model.shapes(intervals=False).groupby("column")))
    scores = np.zeros(len(X))
    for name in ("age", "hours"):
        scores += np.interp(X[name], by_name[name]["at"], by_name[name]["value"])
    jobs = dict(zip(by_name["job"]["category"], by_name["job"]["value"], strict=True))
    scores += X["job"].map(lambda job: jobs.get(job, jobs["(other)"]))
    # Rows of unusual length are scaled down, so scores agree for most.
    found = model.decision_function(X)
    offset = np.median(found - scores)
    assert np.mean(np.abs(found - scores - offset) < 1e-3) > 0.5
    assert np.corrcoef(found, scores)[0, 1] > 0.99


def test_shapes_are_centred_sorted_and_have_bands(model):
    frame = model.shapes()
    spread = frame.groupby("column", sort=False)[["value", "share"]].apply(
        lambda part: part["share"] @ part["value"] ** 2
    )
    assert spread.is_monotonic_decreasing
    mean = frame.groupby("column")[["value", "share"]].apply(lambda part: part["share"] @ part["value"])
    assert np.abs(mean).max() < 1e-9
    seen = frame[frame["share"] > 0.05]
    assert 0 < (seen["high"] - seen["low"]).median() < 1.5
    age = frame[frame["column"] == "age"]
    assert age["value"][age["at"].between(45, 55)].mean() > age["value"][age["at"].between(80, 95)].mean() + 1


def test_bands_hold_the_mean_of_other_fits(model):
    """A band is for the mean over fresh noise: about 95 of 100 should hold it, where records are."""
    X, y = people()
    knots = [term.knots for term in model.terms_]
    columns = model._encoded(X.to_numpy(dtype=object))
    fits = []
    for seed in range(8):
        other = PrivateLogisticRegression(classes=[0, 1], random_state=seed)
        other._declared_scales, other._parts = True, model._groups()
        other.fit(columns, y)
        fits.append(curves.unfolded(other.coef_, model._groups(), model.preparation_)[0])
    frame, mean = model.shapes(), np.mean(fits, axis=0)
    age = frame[frame["column"] == "age"]
    inside = (age["low"] <= mean[model.terms_[0].values]) & (mean[model.terms_[0].values] <= age["high"])
    assert len(age) == len(knots[0])
    assert inside[age["share"].to_numpy() > 0.02].mean() > 0.7


@pytest.fixture
def rough(monkeypatch):
    """Return a function that turns smoothing off."""

    def unsmoothed(weights, _, preparation, *__, **___):
        return preparation.to_columns(weights)[0]

    return lambda: monkeypatch.setattr("privypurse.estimators._base.smoothed", unsmoothed)


def rises_and_falls(fitted, column):
    frame = fitted.shapes(intervals=False)
    return np.abs(np.diff(frame.loc[frame["column"] == column, "value"])).sum()


@pytest.mark.parametrize("kind", [PrivateAdditiveClassifier, PrivateAdditiveRegressor])
def test_curves_of_columns_without_effect_are_flatter_at_a_small_budget(kind, rough):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8_000, 4))
    settings, y = {"target_bounds": (-5, 5)}, np.sin(2 * X[:, 0])
    if kind is PrivateAdditiveClassifier:
        settings, y = {"classes": [0, 1]}, (rng.random(8_000) < 1 / (1 + np.exp(-2 * y))).astype(int)
    found = []
    for turn_off in (lambda: None, rough):
        turn_off()
        fitted = kind(0.5, ranges=(-6, 6), random_state=0, **settings).fit(X, y)
        assert [term.kind for term in fitted.terms_] == ["curve"] * 4
        found.append([rises_and_falls(fitted, f"x{place}") for place in range(4)])
    assert sum(found[0][1:]) < 0.6 * sum(found[1][1:])
    assert found[0][0] > 0.5 * found[1][0]


def test_a_step_stays_a_step_at_a_large_budget():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (20_000, 2))
    y = (rng.random(20_000) < np.where(X[:, 0] > 0.5, 0.8, 0.2)).astype(int)
    frame = (
        PrivateAdditiveClassifier(8.0, ranges=(0, 1), classes=[0, 1], random_state=0).fit(X, y).shapes(intervals=False)
    )
    step = frame[frame["column"] == "x0"].set_index("at")["value"]
    assert 2.2 < step[0.51:0.55].mean() - step[0.45:0.49].mean() < 3.4  # 2.8 in the records


def test_smoothing_is_charged_nothing(rough):
    X, y = people(3_000)
    smooth = classifier().fit(X, y)
    rough()
    fitted = classifier().fit(X, y)
    assert smooth.privacy_spent_ == fitted.privacy_spent_
    assert smooth.certificate_.groups == fitted.certificate_.groups
    assert (smooth.linear_.coef_ != fitted.linear_.coef_).any()


def test_monotone_curves_rise():
    X, y = people()
    frame = classifier(monotone={"age": 1, "hours": -1}).fit(X, y).shapes(intervals=False)
    for name, sign in (("age", 1), ("hours", -1)):
        assert (np.diff(frame["value"][frame["column"] == name]) * sign >= -1e-9).all()


def test_an_edit_changes_one_curve_and_is_named(model):
    X, y = people(500, seed=2)
    dropped = classifier().fit(*people()).edit("age", drop=True)
    frame = dropped.shapes(intervals=False)
    assert np.abs(frame["value"][frame["column"] == "age"]).max() < 1e-9
    same = ~frame["column"].isin(["age"])
    before = model.shapes(intervals=False)
    assert set(frame["value"][same].round(6)) == set(before["value"][before["column"] != "age"].round(6))
    assert "'age' was dropped" in dropped.certificate_.uncovered[-1]
    assert dropped.linear_.certificate_ == dropped.certificate_
    assert dropped.score(X, y) < model.score(X, y)
    smooth = dropped.edit("hours", smooth=100.0).shapes(intervals=False)
    hours = [one["value"][one["column"] == "hours"].to_numpy() for one in (before, smooth)]
    assert np.abs(np.diff(hours[1], n=2)).sum() < 0.5 * np.abs(np.diff(hours[0], n=2)).sum()


def test_a_column_of_two_values_stays_a_line():
    X, y = people()
    X["job"] = (X["job"] == "law").astype(float)
    fitted = PrivateAdditiveClassifier(ranges=RANGES | {"job": (0, 1)}, classes=[0, 1], random_state=0).fit(X, y)
    assert [len(term.knots) == 2 for term in fitted.terms_] == [False, False, True]


def test_a_budget_too_small_for_curves_leaves_columns_plain():
    X, y = people(300)
    fitted = classifier(epsilon=0.05).fit(X, y)
    assert [term.kind for term in fitted.terms_] == ["number", "number", "categories"]
    assert "histogram of columns" not in {group.what for group in fitted.certificate_.groups}


def test_curves_false_buys_nothing():
    X, y = people(300)
    fitted = classifier(epsilon=4.0, curves=False).fit(X, y)
    assert {group.count for group in fitted.certificate_.groups if group.what == "number of records"} == {1}
    assert [term.kind for term in classifier(epsilon=8.0, curves=["hours"]).fit(*people()).terms_] == [
        "number",
        "curve",
        "categories",
    ]


def test_missing_and_odd_values_count_as_declared(model):
    X, _ = people(3)
    X.loc[0, "age"], X.loc[1, "age"], X.loc[2, "job"] = np.nan, np.inf, None
    assert np.isfinite(model.decision_function(X)).all()
    clipped = X.assign(age=[500.0, 1_000.0, X["age"][2]], job=[*X["job"][:2], "pilot"])
    np.testing.assert_allclose(model.decision_function(X), model.decision_function(clipped))


def test_regression_takes_curves_too():
    X, _ = people()
    target = 100 - (X["age"] - 50) ** 2 / 20 + 10 * (X["job"] == "law")
    fitted = PrivateAdditiveRegressor(
        ranges=RANGES, categories={"job": ["law", "care"]}, target_bounds=(0, 120), random_state=0
    ).fit(X, target)
    assert fitted.score(X, target) > 0.9


def test_three_classes_have_curves_each():
    X, y = people()
    y = y + (X["hours"] > 60).to_numpy()
    fitted = classifier(classes=[0, 1, 2]).fit(X, y)
    assert list(fitted.shapes(intervals=False)["class"].unique()) != []
    assert fitted.predict_proba(X[:5]).shape == (5, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ranges": None}, "ranges must have two increasing numbers for column 'age'"),
        ({"ranges": {"age": (0, 1)}}, "for column 'hours'"),
        ({"ranges": RANGES | {"wage": (0, 1)}}, "ranges must name columns of X"),
        ({"ranges": RANGES | {"age": (5, 5)}}, "two increasing numbers"),
        ({"categories": {}}, "must hold numbers"),
        ({"categories": {"job": ["law", "law"]}}, "different values"),
        ({"monotone": {"job": 1}}, "monotone must have 1 or -1"),
        ({"monotone": {"age": 2}}, "monotone must have 1 or -1"),
        ({"n_public": -1}, "n_public"),
        ({"classes": [0, 2]}, "declared classes"),
    ],
)
def test_mistakes_are_refused_before_payment(settings, message):
    X, y = people(50)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=0))
    ranges = {"ranges": RANGES | {"job": (0, 1)}} if settings.get("categories") == {} else {}
    with pytest.raises(InvalidArgument, match=message):
        classifier(**ranges | settings, purse=purse, random_state=None).fit(X, y)
    assert purse.spent.releases == 0


def test_plot_draws_a_panel_for_each_column(model):
    pytest.importorskip("matplotlib").use("Agg")
    figure = model.plot(intervals=False)
    assert sorted(panel.get_title() for panel in figure.axes) == ["age", "hours", "job"]


def test_a_number_is_read_by_itself_whatever_stands_beside_it():
    known = np.array([np.float32(0.1), 2, True, None, pd.NA], dtype=object)
    read = as_numbers(known, "x")
    assert read[:3].tolist() == [float(np.float32(0.1)), 2.0, 1.0]
    assert np.isnan(read[3:]).all()
    for odd in ("0.1", np.timedelta64(1, "D"), np.datetime64("2020-01-01"), pd.Timestamp(0), 1j):
        with pytest.raises(InvalidArgument, match="column 'x' must hold numbers"):
            as_numbers(np.array([*known, odd], dtype=object), "x")
    with pytest.raises(InvalidArgument, match="column 'x' must hold numbers"):
        as_numbers(np.array(["2020-01-01"], dtype="M8[D]"), "x")


@pytest.fixture(scope="module")
def together():
    """Return a regression with one pair of columns that act together, and its table."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40_000, 4))
    y = 2 * X[:, 0] + X[:, 1] ** 2 + 3 * X[:, 0] * X[:, 2] + 0.3 * rng.standard_normal(len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pairwise().fit(X, y), X, y


def pairwise(**settings):
    given = {"epsilon": 4.0, "ranges": (-1, 1), "target_bounds": (-8, 8), "random_state": 0}
    return PrivateAdditiveRegressor(**given | settings)


def test_a_pair_that_acts_together_is_found(together):
    model, X, y = together
    assert "x0 x x2" in {pair.name for pair in model.pairs_}
    assert model.score(X, y) > pairwise(interactions=False).fit(X, y).score(X, y) + 0.1
    releases = {group.what: group.count for group in model.certificate_.groups}
    assert releases["residuals of pairs of columns"] == 1
    assert sum(releases.values()) == model.privacy_spent_.releases
    assert 3.99 < model.privacy_spent_.epsilon <= 4.0


def test_pairs_say_nothing_of_one_column_alone(together):
    frame = together[0].pairs()
    for _, part in frame.groupby("pair"):
        for own, other in (("first", "second"), ("second", "first")):
            alone = (part["value"] * part["share"]).groupby(part[own]).sum()
            assert np.abs(alone).max() < 1e-6 * np.abs(part["value"]).max(), other


def test_moving_effects_to_curves_leaves_predictions_alone(together, monkeypatch):
    model, X, y = together
    monkeypatch.setattr(PrivateAdditiveRegressor, "_purify", lambda model: None)
    np.testing.assert_allclose(pairwise().fit(X, y).predict(X[:500]), model.predict(X[:500]), atol=1e-4)


def test_interactions_are_bought_only_where_public_numbers_allow_it(together):
    _, X, y = together
    few = pairwise(epsilon=0.1).fit(X[:2_000], y[:2_000])
    assert not few.pairs_
    assert "residuals of pairs of columns" not in {group.what for group in few.certificate_.groups}
    assert len(few.pairs()) == 0
    assert len(pairwise(interactions=1).fit(X, y).pairs_) == 1


def test_columns_of_monotone_curves_are_in_no_pair(together):
    _, X, y = together
    model = pairwise(monotone={"x0": 1}).fit(X, y)
    assert all(0 not in pair.columns for pair in model.pairs_)
    assert (np.diff(model._curve(model.terms_[0])[0]) >= -1e-9).all()


def test_a_dropped_column_is_dropped_from_its_pairs(together):
    _, X, y = together
    model = pairwise().fit(X, y).edit("x0", drop=True)
    moved = X[:200].copy()
    moved[:, 0] = -moved[:, 0]
    # Rows of unusual length are scaled down, by other factors then.
    assert np.median(np.abs(model.predict(moved) - model.predict(X[:200]))) < 1e-6
    again = pairwise().fit(X, y).edit("x0 x x2", drop=True)
    frame = again.pairs()
    assert np.abs(frame["value"][frame["pair"] == "x0 x x2"]).max() == 0


def test_pairs_survive_pickling_and_another_fit(together):
    model, X, y = together
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(X[:100]), model.predict(X[:100]))
    assert not pairwise(interactions=False).fit(X, y).set_params(epsilon=4.0).fit(X, y).pairs_


def test_three_classes_have_pairs_too():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (30_000, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 0.5)
    model = PrivateAdditiveClassifier(4.0, ranges=(-1, 1), classes=[0, 1, 2], random_state=0).fit(X, y)
    assert "x0 x x1" in set(model.pairs()["pair"])
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("interactions", [True, None, -1, 1.5, "all"])
def test_wrong_interactions_are_refused(interactions):
    X, y = people(50)
    with pytest.raises(InvalidArgument, match="interactions"):
        classifier(interactions=interactions).fit(X, y)


def test_curves_together_have_few_columns():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (20_000, 12))
    y = (rng.random(len(X)) < X[:, 0]).astype(int)
    fitted = PrivateAdditiveClassifier(8.0, ranges=(0, 1), classes=[0, 1], interactions=False, random_state=0)
    assert 300 < sum(term.width for term in fitted.fit(X, y).terms_) <= curves.MOST_ENCODED


def test_the_certificate_of_the_linear_model_includes_the_knots(model):
    assert model.linear_.certificate_ == model.certificate_
    X, y = people(2_000)
    plain = classifier(random_state=None)
    found = PrivateSearchCV(plain, {"curves": [True, False]}, epsilon=2.0).fit(X, y)
    assert found.best_estimator_.linear_.certificate_ == found.certificate_


def test_a_search_checks_records_before_payment():
    X, y = people(400)
    X["age"] = X["age"].astype(object)
    X.loc[7, "age"] = "text"
    purse = Purse(3.0, 1e-6, neighbouring="add-remove", filter="rdp")
    search = PrivateSearchCV(classifier(random_state=None), {"curves": [True, False]}, epsilon=2.0, purse=purse)
    with pytest.raises(InvalidArgument, match="must hold numbers"):
        search.fit(X, y)
    assert purse.spent.epsilon == 0


def test_a_fixed_schedule_is_refused_before_knots_are_paid_for():
    purse = Purse.with_filter(FixedSchedule([GaussianCharge(30.0)] * 4, 1.0, 1e-6, "add-remove"))
    with pytest.raises(InvalidArgument, match="fixed schedule"):
        classifier(epsilon=None, purse=purse, random_state=None).fit(*people(400))
    assert purse.totals.releases == 0


def test_an_interrupt_after_the_knots_leaves_what_is_not_covered_on_the_ledger(monkeypatch):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    X, y = people(2_000)
    wide = make_pipeline(FunctionTransformer(pd.DataFrame), classifier(epsilon=None, purse=purse, random_state=None))
    monkeypatch.setattr(PrivateAdditiveClassifier, "_encoded", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        wide.fit(X, y)
    assert purse.spent.epsilon > 0
    certificate = purse.certificate()
    assert CHECKED in certificate.uncovered
    assert any("FunctionTransformer" in line for line in certificate.uncovered)


def _interrupted(*_):
    raise KeyboardInterrupt


IDS = [2**60 + 1, 2**60 + 2]  # one number as doubles


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_missing_value_of_one_record_does_not_change_how_others_are_read(kind):
    library = pytest.importorskip(kind)
    ids, numbers = [*IDS, IDS[0]], [1, 2, None]
    if kind == "pandas":
        frame = library.DataFrame({"id": ids, "n": library.Series(numbers, dtype="Int64")})
    else:
        frame = (library.table if kind == "pyarrow" else library.DataFrame)({"id": ids, "n": numbers})
    hot = DeclaredOneHot([IDS, [1, 2]], sparse_output=False)
    assert hot.transform(frame)[:, :2].tolist() == [[1, 0], [0, 1], [1, 0]]
    if kind != "pyarrow":  # whose columns have no names here
        model = PrivateAdditiveClassifier(ranges={"n": (0, 5)}, categories={"id": IDS}, classes=[0, 1])
        rows, numbers = model._check(frame, [0, 1, 0])[0], model._check(frame, [0, 1, 0])[-1]
        assert rows[:, 0].tolist() == ids
        np.testing.assert_array_equal(numbers[1], [1.0, 2.0, np.nan])


def test_a_category_of_whole_numbers_may_be_missing():
    column = pd.Categorical([0, 1, None], categories=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers = PrivateAdditiveClassifier(ranges=(0, 5), classes=[0, 1])._check(
            pd.DataFrame({"n": column, "m": [1.0, 2.0, 3.0]}), [0, 1, 0]
        )[-1]
    np.testing.assert_array_equal(numbers[0], [0.0, 1.0, np.nan])


def test_columns_of_text_or_dates_are_refused_with_the_setting_that_takes_them():
    dates = pd.date_range("2020-01-01", periods=4)
    for other in (["a", "b", "a", "b"], dates):
        with pytest.raises(InvalidArgument, match=r"Declare columns of text in categories="):
            PrivateAdditiveClassifier(ranges=(0, 5)).fit(pd.DataFrame({"n": range(4), "k": other}), [0, 1, 0, 1])
    with pytest.raises(InvalidArgument, match=r"two increasing numbers for column 'n'; got none"):
        PrivateAdditiveClassifier(ranges={"k": (0, 1)}).fit(pd.DataFrame({"n": range(4), "k": range(4)}), [0, 1, 0, 1])


@pytest.mark.parametrize("pairs", [False, 2])
@pytest.mark.parametrize("regression", [False, True])
def test_an_additive_model_takes_no_rows_at_all_in_a_trial(regression, pairs):
    kind = PrivateAdditiveRegressor if regression else PrivateAdditiveClassifier
    settings = {"target_bounds": (0, 1)} if regression else {"classes": [0, 1]}
    trial = kind(ranges=RANGES, categories={"job": ["law"]}, random_state=0, interactions=pairs, **settings)
    trial._takes_any_rows = True
    X, y = people(3)
    assert trial.fit(X[:0], y[:0]).n_features_in_ == 3
