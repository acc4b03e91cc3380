"""Who takes part in comparisons: nobody overspends, flags tell the truth, seeds repeat; and the
numbers are worked out right.
"""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from privypurse.accounting._filters import DeclaredNonPrivate, GdpFilter
from privypurse.core._errors import BudgetExhausted, DataUnavailable, InvalidArgument
from privypurse.core._randomness import NoiseSource
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.methods import Nesterov
from privypurse.oracles import DenseOracle
from privypurse.purse._purse import Purse
from privypurse.training import fit
from privypurse_lab.data import Table
from privypurse_lab.papers import dp_agd, drawing, methods_compared, prepared_data
from privypurse_lab.papers.accuracy_study import (
    FOLDS,
    QUICK_ROWS,
    Measured,
    Study,
    accuracy_sheet,
    at,
    mean_loss,
    one_repetition,
    paired,
)
from privypurse_lab.papers.catalogue import paper_named
from privypurse_lab.papers.cells import Results
from privypurse_lab.papers.intervals import half_width
from privypurse_lab.papers.items import GIVEN_SCALING, NOT_PRIVATE, RANKING_WORDS, REACHED_WORDS, Finished, Settings
from privypurse_lab.papers.methods_compared import (
    CONTESTANTS,
    DEFAULT,
    DELTA,
    NAMES,
    PLAIN,
    UNIT,
    Contestant,
    PublishedSGDMA,
    cannot_run,
    fitted,
    is_private,
    sgd_ma_in_words,
)
from privypurse_lab.papers.published_numbers import ADULT, SOUND, Comparison, Published, compared, numbers_sheet

ROWS = 2_000
MA = "SGD-MA (orders to 32)"
UNSOUND = {"DP-AGD, as published", "ADP-SGD, as published", "Non-private"}


def made(rows=ROWS, seed=0):
    random = np.random.default_rng(seed)
    X = random.random((rows, 5))
    return X, (X @ [3.0, -2.0, 1.0, 0.0, 0.0] + 0.3 * random.standard_normal(rows) > 1).astype(np.int64)


def oracle_for(who, model):
    loss, limit = (PLAIN[model], None) if who.plain_rows else (UNIT[model], 1.0)
    return DenseOracle(*made(), loss=loss, row_limit=limit, threads=1), loss, limit


# Budgets.


@pytest.mark.parametrize(
    ("model", "epsilon"),
    [("logistic", 0.1), ("logistic", 1.0), ("svm", 1.0), pytest.param("svm", 0.1, marks=pytest.mark.slow)],
)
def test_nobody_spends_more_than_epsilon(model, epsilon):
    """`fitted` looks into the purse after each run; the rule that fills it is looked at here."""
    X, y = made()
    for name in NAMES:
        if cannot_run(name, epsilon, ROWS):
            continue
        scores = fitted(name, model, X, y, epsilon, ROWS, seed=1).scores(X)
        assert scores.shape == (ROWS,)
        assert np.isfinite(scores).all()
        if name == DEFAULT or not is_private(name):
            continue
        oracle, loss, limit = oracle_for(CONTESTANTS[name], model)
        rule = methods_compared._rule(CONTESTANTS[name], model, epsilon, ROWS, oracle.dimension, loss, limit)
        assert rule is not None
        assert rule.epsilon <= epsilon * (1 + 1e-12)
        assert rule.delta <= DELTA
        assert rule.neighbouring.value == "add-remove"


class Greedy(Nesterov):
    """Says that it has twice the budget."""

    def filter(self, facts):
        return GdpFilter(2 * facts.epsilon, facts.delta, facts.neighbouring)


class Shameless(Nesterov):
    """Says that it needs no limit."""

    def filter(self, facts):
        return DeclaredNonPrivate(facts.delta, facts.neighbouring)


def test_one_that_would_overspend_is_found_out():
    X, y = made()
    fitted(Contestant("honest", lambda epsilon, records: Nesterov()), "logistic", X, y, 1.0, ROWS, seed=0)
    with pytest.raises(InvalidArgument, match=r"greedy spent epsilon (1\.9|2).* where 1 was given"):
        fitted(Contestant("greedy", lambda epsilon, records: Greedy()), "logistic", X, y, 1.0, ROWS, seed=0)
    with pytest.raises(InvalidArgument):
        fitted(Contestant("shameless", lambda epsilon, records: Shameless()), "logistic", X, y, 1.0, ROWS, seed=0)


@pytest.mark.parametrize("name", CONTESTANTS)
def test_flags_tell_the_truth(name):
    assert is_private(name) == (name not in UNSOUND)
    who = CONTESTANTS[name]
    if who.private:
        return  # runs on a private purse, as the tests above show
    oracle, _, _ = oracle_for(who, "logistic")
    purse = Purse(1.0, DELTA, neighbouring="add-remove", noise=NoiseSource(seed=0))
    with pytest.raises(InvalidArgument, match="NOT PRIVATE"):
        fit(oracle, who.make(1.0, ROWS), purse, records=ROWS, l2=who.l2, clip_norm=who.clip)
    assert purse.spent.releases == 0


def test_names_of_the_users_are_taken_at_their_word():
    assert is_private(DEFAULT)
    assert is_private("mine")


def test_the_moments_accountant_with_few_orders_has_no_price_for_small_budgets():
    # What orders up to 32 make of delta alone, whatever the noise.
    floor = math.log(1 / DELTA) / 31 + math.log(31 / 32) - math.log(32) / 31
    assert 0.45 < floor < 0.46
    for records in (2_000, 36_000):
        for epsilon in (0.05, 0.1, 0.4, 0.999 * floor):
            assert cannot_run(MA, epsilon, records)
        assert not cannot_run(MA, 0.8, records)
    assert not any(cannot_run(name, 0.05, 2_000) for name in NAMES if name != MA)


# Seeds.


def test_seeds_repeat():
    X, y = made(800)
    for name in NAMES:
        first, again, other = (fitted(name, "logistic", X, y, 1.0, 800, seed=seed).scores(X) for seed in (3, 3, 4))
        assert (first == again).all(), name
        if name not in ("Non-private", "Majority"):
            assert (first != other).any(), name


# What is measured.


def test_losses_of_scores():
    scores, y = np.array([2.0, -1.0, 0.5, -3.0]), np.array([1, 1, 0, 0])
    margins = [2.0, -1.0, -0.5, 3.0]
    assert mean_loss("logistic", scores, y) == pytest.approx(np.mean([math.log1p(math.exp(-m)) for m in margins]))
    assert mean_loss("svm", scores, y) == pytest.approx(np.mean([0.0, 2.0, 1.5, 0.0]))
    assert mean_loss("logistic", np.array([-1e4]), np.array([1])) == pytest.approx(1e4)


def some(name="Nesterov", data="adult", epsilon=0.1, accuracies=((80.0, 82.0), (81.0, 85.0), (79.0, 80.0))):
    runs = [{"accuracy": list(a), "loss": [1.0] * len(a), "seconds": [1.0, 100.0][: len(a)]} for a in accuracies]
    return Measured(data, "logistic", name, epsilon, runs)


def test_statistics_of_runs():
    entry = some()
    everything = [80.0, 82.0, 81.0, 85.0, 79.0, 80.0]
    assert entry.mean("accuracy") == pytest.approx(np.mean(everything))
    assert entry.spread("accuracy") == pytest.approx(np.std(everything))
    means = [81.0, 83.0, 79.5]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(means), scale=stats.sem(means))
    assert half_width(means) == pytest.approx((high - low) / 2)
    assert math.isnan(paired(some(accuracies=((80.0, 81.0),)), entry)[1])
    assert entry.mean("seconds") == pytest.approx(50.5)  # the median: one slow fit does not count
    assert entry.row() == {
        "data": "adult",
        "model": "logistic",
        "method": "Nesterov",
        "private": GIVEN_SCALING,
        "epsilon": 0.1,
        "fits": 6,
        "accuracy": pytest.approx(np.mean(everything)),
        "accuracy_spread": pytest.approx(np.std(everything)),
        "loss": 1.0,
        "loss_spread": 0.0,
    }
    timed = dataclasses.replace(entry, timed=True).row()  # only where fits were made one at a time
    assert (timed["seconds"], timed["seconds_spread"]) == (50.5, pytest.approx(49.5))
    assert some(data="made").row()["private"] == "yes"
    assert some("DP-AGD, as published").row()["private"] == NOT_PRIVATE


def test_one_that_made_no_step_is_shown_as_such():
    none = some(MA, accuracies=())
    assert not none.ran
    assert none.row()["accuracy"] == ""
    assert none.row()["fits"] == 0
    assert none.row().keys() == some().row().keys()
    assert at([none], "adult", MA, 0.1) is None
    sheet = accuracy_sheet([none, some(), some("DP-AGD, as published")], "adult")
    assert sheet.rows[0] == [MA, "no step"]
    assert sheet.rows[1] == ["Nesterov", "81.17 ± 1.95"]
    assert sheet.rows[2][0] == f"DP-AGD, as published ({NOT_PRIVATE})"


@pytest.fixture
def two_tables(monkeypatch):
    """Adult and Bank are here, and small; nothing else is."""
    tables = {name: Table(name, *made(500, seed)) for seed, name in enumerate(("adult", "bank"))}

    def small(name, part="all"):
        if name not in tables:
            raise DataUnavailable(f"{name} is not here")
        return tables[name]

    monkeypatch.setattr(prepared_data, "table", small)


def test_a_study_has_the_cells_that_it_says(two_tables):
    study = Study(("adult", "ipums-br", "bank"), "svm", ("Nesterov", "PrivGene"), repetitions=10, fewer={"PrivGene": 1})
    full = study.cells(Settings())
    assert len(full) == 2 * 6 * (10 + 1)
    assert len({cell.key for cell in full}) == len(full)
    assert {cell.arguments["data"] for cell in full} == {"adult", "bank"}
    assert {cell.arguments["seed"] for cell in full} == set(range(10))
    assert all("rows" not in cell.arguments for cell in full)
    quick = study.cells(Settings(quick=True, seed=7))
    assert len(quick) == 1 * 2 * 2
    assert {cell.arguments["epsilon"] for cell in quick} == {0.05, 0.8}
    assert {(cell.arguments["seed"], cell.arguments["rows"]) for cell in quick} == {(7, QUICK_ROWS)}
    mine = study.cells(Settings(also={"mine": Nesterov()}))
    assert len(mine) == len(full) + 2 * 6 * 10
    # Neighbouring seeds share repetitions, so that what was run is found again.
    shifted = {cell.key for cell in study.cells(Settings(seed=1))}
    assert len(shifted & {cell.key for cell in full}) == 2 * 6 * 9


def test_an_entry_may_not_take_the_name_of_another(two_tables):
    with pytest.raises(InvalidArgument, match="also names 'Nesterov', which takes part already"):
        Study(("adult",), "svm", ("Nesterov",), 1).cells(Settings(also={"Nesterov": Nesterov()}))


def test_one_repetition_measures_each_fold_and_repeats_by_seed(two_tables):
    arguments = {"data": "adult", "model": "logistic", "contestant": "Nesterov", "epsilon": 1.0}
    first = one_repetition(**arguments, seed=0)
    assert {len(values) for values in first.values()} == {FOLDS}
    assert all(0 <= value <= 100 for value in first["accuracy"])
    assert all(value > 0 for value in first["seconds"])
    again, other = one_repetition(**arguments, seed=0), one_repetition(**arguments, seed=1)
    assert (again["accuracy"], again["loss"]) == (first["accuracy"], first["loss"])
    assert other["loss"] != first["loss"]
    assert len(set(first["loss"])) == FOLDS
    nothing = one_repetition("adult", "logistic", MA, 0.05, seed=0)
    assert nothing == {"accuracy": [], "loss": [], "seconds": []}


def test_folds_hold_every_row_once():
    cuts = prepared_data.folds(103, 5, seed=2)
    assert sorted(np.concatenate([test for _, test in cuts]).tolist()) == list(range(103))
    for train, test in cuts:
        assert sorted([*train.tolist(), *test.tolist()]) == list(range(103))
    assert any(
        (a[1].shape != b[1].shape) or (a[1] != b[1]).any()
        for a, b in zip(cuts, prepared_data.folds(103, 5, 3), strict=True)
    )


# From results to pages, for every figure that compares methods.


def made_up(cell):
    """Return numbers that a cell could have returned."""
    if cell.arguments.get("contestant") == MA and cell.arguments["epsilon"] < 0.45:
        return {"accuracy": [], "loss": [], "seconds": []}
    random = np.random.default_rng(int(cell.key, 16) % 2**32)
    names = {"accuracy": 70 + 15 * random.random(5), "loss": random.random(5), "seconds": random.random(5)}
    resampled = {"attacks": 80.0, "rows": 50} if "variant" in cell.arguments else {}
    return {name: values.tolist() for name, values in names.items()} | resampled


STUDIES = [("dp-agd", "1"), *((name, number) for name in ("adp-sgd", "dp-agd") for number in "234"), ("adp-sgd", "5")]


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
@pytest.mark.parametrize(("name", "number"), [*STUDIES, ("summary", "1"), ("summary", "2")])
def test_whatever_is_found_has_a_verdict_and_rows(name, number, quick, monkeypatch, tmp_path):
    monkeypatch.setattr(prepared_data, "table", lambda name, part="all": Table(name, *made(50)))
    item = next(item for item in paper_named(name).items if (item.kind, item.number) == ("figure", number))
    settings = Settings(quick=quick, also={"my own one": Nesterov()})
    results = Results(tmp_path / "cells.jsonl")
    cells = {cell.key: cell for cell in item.cells(settings)}
    results._known = {key: made_up(cell) for key, cell in cells.items()}  # thousands: not one by one
    finished = item.finish(settings, results)
    assert finished.verdict.reached in REACHED_WORDS
    assert finished.verdict.ranking in RANKING_WORDS
    assert finished.verdict.why
    assert "nan" not in finished.verdict.why
    assert finished.rows
    assert len({tuple(row) for row in finished.rows}) == 1
    assert {row["private"] for row in finished.rows} - {"yes", GIVEN_SCALING} == {NOT_PRIVATE}
    mine = {row.get("method") for row in finished.rows}
    assert ("my own one" in mine) or (name, number) == ("dp-agd", "1")  # which has no place for methods
    for sheet in finished.sheets:
        assert all(len(row) == len(sheet.columns) for row in sheet.rows)
    if quick:
        picture = getattr(finished, dataclasses.fields(Finished)[2].name)
        _, svg = drawing.save(picture, tmp_path / "drawn")
        shown = svg.read_text(encoding="utf-8")
        assert NOT_PRIVATE in shown
        assert "my own one" in shown or (name, number) == ("dp-agd", "1")


@pytest.mark.parametrize(("accuracies", "reason"), [((99.0, 98.5), "the data"), ((99.0, 96.9), "the method")])
def test_the_verdict_on_kdd_cup_names_the_reason(accuracies, reason):
    without, private = accuracies
    variants = {
        (variant, method): {"accuracy": [without if method == "Non-private" else private], "attacks": 80.3, "rows": 50}
        for variant in dp_agd.KDD_VARIANTS
        for method in dp_agd.KDD_METHODS
    }
    found = [some(name, data="kddcup99", epsilon=0.05) for name in (dp_agd.MENDED, dp_agd.PUBLISHED, "ObjPert")]
    verdict = dp_agd._kdd_verdict(found, variants)
    assert f"So it is {reason}:" in verdict.why
    assert "80.30 % attacks, the whole one 80.14 %" in verdict.why
    assert verdict.reached == "nothing printed"


@pytest.mark.parametrize(
    ("positives", "share", "expected"), [(None, 1.0, (80, 20)), (0.5, 1.0, (20, 20)), (0.9, 1.0, (80, 9))]
)
def test_resampled_rows_have_the_share_asked_for(positives, share, expected):
    y = np.repeat([1, 0], (80, 20))
    kept = dp_agd.resampled(y, positives, share)
    assert len(set(kept.tolist())) == len(kept)
    assert (int(y[kept].sum()), int((y[kept] == 0).sum())) == expected
    assert len(dp_agd.resampled(y, None, 0.1)) == 10


@pytest.mark.parametrize(("records", "epsilon", "steps"), [(39_074, 0.8, 13_095), (39_074, 1.6, 50_554)])
def test_sgd_ma_runs_until_its_accountant_ends_it(records, epsilon, steps):
    method = PublishedSGDMA(records**-0.5)
    rule = method.accountant(epsilon, 1e-8, "add-remove")
    assert method.steps_in(rule) == steps
    charge = GaussianCharge(4.0, records**-0.5)
    rule.admit(rule.start(), RepeatedCharge(charge, steps))
    with pytest.raises(BudgetExhausted):
        rule.admit(rule.start(), RepeatedCharge(charge, steps + 1))
    said = sgd_ma_in_words({"Adult": 39_074, "KDD Cup '99": 395_217})
    assert "Adult 13,095 and 50,554; KDD Cup '99 133,371 and 513,441." in said


# Published numbers beside ours.


def test_published_numbers_stand_beside_ours():
    ours = some("DP-AGD, as published", epsilon=0.05, accuracies=((79.1, 79.3), (79.0, 79.2)))
    sound = some("DP-AGD, mended", epsilon=0.05, accuracies=((82.0, 82.0),))
    elsewhere = some("DP-AGD, as published", data="bank", epsilon=0.05)
    [comparison] = compared([ours, sound, elsewhere], "logistic")
    assert comparison.published.accuracy == 79.0
    assert comparison.ours is ours
    assert comparison.sound is sound
    assert comparison.off == pytest.approx(0.15)
    assert comparison.close
    assert compared([ours], "logistic", ("ADP-SGD, as published",)) == []
    assert compared([ours], "svm") == [Comparison(ADULT[2], ours, None)]
    sheet = numbers_sheet([comparison])
    assert sheet.rows == [
        ["DP-AGD at epsilon 0.05", "79.00", "79.15 ± 0.11 (NOT PRIVATE)", "DP-AGD, mended: 82.00 ± 0.00"]
    ]
    assert len(sheet.columns) == len(sheet.rows[0])


@pytest.mark.parametrize(("accuracy", "close"), [(79.5, True), (78.5, True), (79.51, False), (78.49, False)])
def test_close_is_half_a_point(accuracy, close):
    ours = some("DP-AGD, as published", epsilon=0.05, accuracies=((accuracy, accuracy),))
    assert Comparison(Published("logistic", 0.05, "DP-AGD, as published", 79.0, 1.0), ours, None).close is close


def test_what_is_published_is_run_and_has_a_sound_version():
    for number in ADULT:
        assert number.method in CONTESTANTS
        assert is_private(SOUND[number.method])


@pytest.mark.parametrize("name", ["iris", *prepared_data.SCALED])
def test_tables_that_were_scaled_by_their_own_records_are_known(name):
    try:
        table = prepared_data.table(name)
    except DataUnavailable as error:
        pytest.skip(str(error)[:80])
    assert bool(table.uncovered) == (name in prepared_data.SCALED)
