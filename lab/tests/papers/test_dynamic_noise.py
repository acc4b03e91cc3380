"""The dynamic-noise paper: budget, influences, schedules; what is published is stamped, what is
sound keeps its budget.
"""

import math
import os
import pathlib

import numpy as np
import pytest
from scipy import stats

from privypurse import NoiseSource, Purse
from privypurse.accounting.convert import zcdp_rho
from privypurse.training.schedules import shapes
from privypurse.training.schedules._base import Weighted
from privypurse_lab.papers.cells import Cell, Results
from privypurse_lab.papers.dynamic_noise import PAPER, cells, figure_2, figure_3, influence, panels, problems, theory
from privypurse_lab.papers.intervals import half_width
from privypurse_lab.papers.items import (
    AS_IN_PAPER,
    IN_PART,
    NOT_PRIVATE,
    NOT_REACHED,
    RANKING_WORDS,
    REACHED,
    REACHED_WORDS,
    UNDECIDED,
    Settings,
)

QUICK = Settings(quick=True)
SYNTHETIC = "logistic, synthetic"
SMALL = {
    "counts": [6, 12],
    "at": [3, 8, 12],
    "sigmas": [20.0, 200.0],
    "retrainings": 1,
    "runs": 3,
    "rehearsals": 2,
    "seed": 0,
}


@pytest.fixture
def mnist():
    folder = pathlib.Path(os.environ.get("PRIVYPURSE_DATA", "nowhere"))
    for part in ("images-idx3", "labels-idx1"):
        for kind in ("train", "t10k"):
            file = f"mnist/{kind}-{part}-ubyte.gz"
            if not (folder / file).exists():
                pytest.skip(f"{file} is not in PRIVYPURSE_DATA")


def item(kind, number):
    return next(each for each in PAPER.items if (each.kind, each.number) == (kind, number))


def finished(which, settings, folder):
    results = Results(folder / "cells.jsonl")
    for cell in which.cells(settings):
        if cell not in results:
            results.keep(cell, cell())
    return which.finish(settings, results)


# The set-up


def test_the_published_budget_is_twice_the_rho_of_the_classic_conversion():
    assert 2 * zcdp_rho(problems.EPSILON, problems.DELTA, "classic") == pytest.approx(problems.BUDGET, abs=1e-4)


@pytest.mark.parametrize("sound", [False, True])
def test_a_run_has_the_noise_of_the_paper_and_never_spends_more(sound):
    steps = 10
    purse = problems.seeded_purse(sound, seed=1)
    _, noise = problems.problem(SYNTHETIC, 10.0, sound, 0).train(Weighted(shapes.uniform(steps)), purse, steps, 1)
    shared = sum((problems.CLIP_NORM / std) ** 2 for std in noise)  # noise_std on the sum is sigma_t G
    budget = purse.filter.mu**2 if sound else problems.BUDGET
    assert shared == pytest.approx(budget, rel=1e-3)
    assert problems.EPSILON - 1e-6 < purse.spent.epsilon <= problems.EPSILON
    assert len(noise) == steps


def test_the_certificate_of_a_run_as_published_says_that_it_is_not_private(monkeypatch):
    purses = {sound: problems.seeded_purse(sound, seed=1) for sound in (False, True)}
    problem, schedule = problems.problem(SYNTHETIC, 10.0, False, 0), Weighted(shapes.uniform(3))
    loss, _ = problem.train(schedule, purses[False], 3, 1)
    assert NOT_PRIVATE in str(purses[False].certificate())
    assert "same private records" in str(purses[False].certificate())
    assert NOT_PRIVATE not in str(purses[True].certificate())
    # To say so changes no number.
    monkeypatch.setattr(Purse, "declare_uncovered", lambda self, what: None)
    silent = problems.seeded_purse(False, seed=1)
    assert problem.train(schedule, silent, 3, 1)[0] == loss
    assert silent.spent == purses[False].spent


@pytest.mark.parametrize("sound", [False, True])
def test_no_row_is_longer_than_the_data_scale(sound):
    for public in (False, True):
        data = problems.records("synthetic", 7.0, sound, 0, public=public)
        lengths = np.linalg.norm(data.rows, axis=1)
        assert data.rows.shape == (problems.RECORDS, problems.SYNTHETIC_COLUMNS)
        assert lengths.max() <= 7.0 * (1 + 1e-12)
    if not sound:
        longest = np.linalg.norm(problems.records("synthetic", 7.0, sound, 0).rows, axis=1).max()
        assert longest == pytest.approx(7.0)


def test_soundly_prepared_records_do_not_depend_on_each_other(monkeypatch):
    rows, labels = problems._pool("synthetic", 0)
    changed = rows.copy()
    changed[0] *= 100.0
    before = {sound: problems.records("synthetic", 5.0, sound, 0).rows[1:] for sound in (False, True)}
    problems._standard.cache_clear()
    monkeypatch.setattr(problems, "_pool", lambda name, seed: (changed, labels))
    after = {sound: problems.records("synthetic", 5.0, sound, 0).rows[1:] for sound in (False, True)}
    problems._standard.cache_clear()
    assert np.array_equal(before[True], after[True])
    assert not np.allclose(before[False], after[False])


def test_the_made_records_are_told_apart_by_a_hyperplane():
    rows, labels = problems._pool("synthetic", 0)
    centres = [rows[labels == label].mean(axis=0) for label in (0, 1)]
    assert np.linalg.norm(centres[1] - centres[0]) == pytest.approx(problems.SYNTHETIC_DISTANCE, rel=0.02)
    middle, normal = (centres[0] + centres[1]) / 2, centres[1] - centres[0]
    assert np.array_equal((rows - middle) @ normal > 0, labels == 1)


# Influence


def test_stated_noise_is_what_is_added():
    stated = problems.StatedNoise((3.0, 5.0, 2.0))
    purse = Purse.not_private(noise=NoiseSource(seed=0))
    _, noise = problems.problem(SYNTHETIC, 5.0, False, 0).train(stated, purse, 3, 0)
    assert noise == pytest.approx([3.0 * problems.CLIP_NORM, 5.0 * problems.CLIP_NORM, 2.0 * problems.CLIP_NORM])
    assert math.isinf(purse.epsilon)  # declared not private


def test_a_parabola_is_found_again():
    sigmas = [20.0, 110.0, 200.0]
    assert influence.parabola(sigmas, 3e-6 * np.square(sigmas) + 0.4) == pytest.approx((3e-6, 0.4))


def test_retraining_finds_the_influence_that_curvature_predicts():
    # Rows so short that nothing is clipped: the descent is linear, and the prediction exact on
    # average.
    data = problems.records("synthetic", 2.0, False, 0)
    problem = problems.LinearProblem(data, "squared")
    steps, sigmas = 15, [20.0, 200.0]
    predicted = influence.by_curvature(problem.curvatures(), steps)
    for step in (2, 14):
        losses = influence.retrain(problem, steps, step, sigmas, 80, 0)
        found = [influence.parabola(sigmas, row)[0] for row in losses]
        error = np.std(found, ddof=1) / math.sqrt(len(found))
        assert error < 0.3 * predicted[step - 1]
        assert abs(np.mean(found) - predicted[step - 1]) < 4 * error


def test_the_fitted_exponential_keeps_the_budget_only_once_brought_back():
    influences = np.geomspace(1e-3, 1.0, 40) + 0.05
    dynamic = Weighted(shapes.influence(influences.tolist()))
    made = influence.schedules(influences, {"more": influences})
    assert list(made) == ["uniform", "dynamic", "exponential", "more"]
    assert influence.spent_by_fit(influences) != pytest.approx(1.0, abs=0.01)
    for schedule in made.values():
        assert schedule.shares.sum() == pytest.approx(1.0)
    noise = np.log(1 / np.sqrt(made["exponential"].shares))
    assert np.diff(noise) == pytest.approx(np.full(39, np.diff(noise)[0]))  # a straight line: an exponential
    assert made["dynamic"].shares == pytest.approx(dynamic.shares)


def test_influences_that_come_out_below_zero_are_small_and_positive():
    found = influence.at_every_step([1, 5, 9], [-1.0, 1.0, 4.0], 9)
    assert found[4] == pytest.approx(1.0)
    assert found[8] == pytest.approx(4.0)
    assert found[0] == pytest.approx(4.0 * influence.LEAST)
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("sound", [False, True])
def test_a_comparison_is_at_the_same_budget_with_the_users_schedule_in_it(sound):
    also = cells.also(Settings(also={"mine": lambda steps: range(1, steps + 1)}))
    result = influence.compare(SYNTHETIC, 5.0, sound, also=also, **SMALL)
    assert list(result["schedules"]) == ["uniform", "dynamic", "exponential", "mine"]
    for each in result["schedules"].values():
        assert problems.EPSILON - 1e-6 < each["spent"] <= problems.EPSILON
        assert len(each["noise"]) == each["steps"] == int(min(each["by_steps"], key=each["by_steps"].get))
        assert len(each["losses"]) == SMALL["runs"]
    budgets = [sum((problems.CLIP_NORM / std) ** 2 for std in each["noise"]) for each in result["schedules"].values()]
    assert budgets == pytest.approx([budgets[0]] * 4, rel=1e-6)
    mine = np.array(result["schedules"]["mine"]["noise"]) ** -2.0
    assert mine / mine[0] == pytest.approx(np.arange(1, mine.size + 1))


# Table 1 and Figure 1


def test_table_1_shows_the_gap(tmp_path):
    found = finished(item("table", "1"), QUICK, tmp_path)
    assert found.verdict.reached == IN_PART
    assert "to the power 1.46 and 3.84" in found.verdict.why
    gap = {row["N"]: row["value"] for row in found.rows if row["bound"] == theory.UNIFORM}
    least = {row["N"]: row["value"] for row in found.rows if row["bound"] == theory.DYNAMIC}
    ratios = [gap[size] / least[size] for size in gap]
    assert ratios == sorted(ratios)
    # Four times as many records: a little less than a sixteenth, since ln N grows.
    assert all(1 < ratio < 10 for ratio in ratios)


def test_the_power_of_ln_n_decides_table_1():
    sizes = [10**3, 10**5, 10**7]
    assert theory.power(sizes, [math.log(size) ** 1.5 for size in sizes]) == pytest.approx(1.5)
    assert theory.word_of_powers([1.1, 2.1], [1.0, 2.0]) == REACHED
    assert theory.word_of_powers([1.5, 3.8], [1.0, 2.1]) == IN_PART
    assert theory.word_of_powers([1.5, 3.8], [1.5, 3.0]) == NOT_REACHED
    # Far out, no bound is cut off by the most steps that are tried.
    assert all(
        theory.exact_bounds(theory.FAR_SIZES[-1])[name][1] < theory.MOST_STEPS
        for name in (theory.UNIFORM, theory.DYNAMIC, theory.LOOSE)
    )


def test_figure_1_agrees_with_what_can_be_computed(tmp_path):
    found = finished(item("figure", "1"), QUICK, tmp_path)
    assert found.verdict.reached == IN_PART
    assert "reversed" in found.verdict.why
    steps, runs = 50, 150
    curvature = theory.CURVATURES["sharp"]
    losses = np.array(theory.trajectories(curvature, 0.1, steps, runs, 0)["losses"])
    assert losses.shape == (runs, steps + 1)
    mu = problems.seeded_purse(True, 0).filter.mu
    noise = problems.CLIP_NORM * math.sqrt(steps) / mu / problems.RECORDS
    expected = curvature / 2 * (0.1 * noise) ** 2 / (1 - 0.8**2)
    assert losses[:, -1].mean() == pytest.approx(expected, rel=5 * math.sqrt(2 / runs))


# Figures 2 and 3


def test_gaps_are_between_pairs():
    losses = {
        "uniform": {"losses": [1.0, 2.0, 4.0], "noise": [1.0]},
        "half": {"losses": [0.5, 1.0, 2.0], "noise": [1.0]},
    }
    found = panels.gaps(losses)
    assert found["half"].mean == pytest.approx(-50.0)
    assert found["half"].half == pytest.approx(0.0, abs=1e-9)
    assert found["half"].lower(tests=12)
    assert not found["half"].higher(tests=12)
    assert not found["uniform"].lower(tests=1)


def test_more_tests_ask_for_more():
    random = np.random.default_rng(0)
    over = (-0.5 + random.standard_normal(20)).tolist()
    for tests in (1, 12, 44):
        level = stats.ttest_1samp(over, 0.0).pvalue
        assert panels.Gap(float(np.mean(over)), 0.0, 1, 1.0, tuple(over)).lower(tests) is bool(level < 0.05 / tests)
    assert half_width(over) < half_width(over, 12) < half_width(over, 44)
    # Of nothing but chance, hardly ever is any of twelve below.
    draws = random.standard_normal((400, 12, 10))
    any_of = [min(each.mean(axis=1) + [half_width(row.tolist(), 12) for row in each]) < 0 for each in draws]
    assert np.mean(any_of) < 0.06


def fake(over, runs=10, retrained=(1.0, 2.0, 4.0)):
    """Make the result of a comparison in which schedules end so many percent above even noise."""
    even = np.linspace(0.9, 1.1, runs)
    ripple = np.resize([0.1, -0.1], runs)
    losses = {"uniform": even, **{name: even * (1 + (each + ripple) / 100) for name, each in over.items()}}
    found = {name: {"losses": each.tolist(), "noise": [1.0], "steps": 3} for name, each in losses.items()}
    return {
        "at": [1, 2, 3],
        "retrained": list(retrained),
        "steps": 3,
        "variance": 1.0,
        "fit_spends": 1.0,
        "schedules": found,
    }


def test_what_is_not_in_the_paper_decides_nothing():
    results = {scale: fake({"dynamic": 3.0, "exponential": 2.0, "dynamic, retrained": -5.0}) for scale in (5.0, 10.0)}
    relative = cells.gaps(results)
    assert cells.number_of_tests(relative) == 4
    assert cells.lower(relative, 4) == []
    assert cells.best(relative).startswith("exponential")
    said = cells.said_of_retrained({False: relative, True: relative})
    assert "not counted" in said
    assert "at scales 5, 10 as published" in said
    assert "2 tests each" in said


def test_a_few_scales_decide_nothing_about_the_variance_of_influence():
    results = {scale: fake({"dynamic": -scale}) | {"variance": scale} for scale in (1.0, 2.0, 3.0, 4.0)}
    said = figure_2.said_of_link(results, cells.gaps(results))
    assert "+1.00 over 4 scales" in said
    assert "p = 0.04" in said  # one order of 24
    assert "not counted" in said


def test_the_schedules_of_the_network_are_compared_pair_by_pair():
    near = {"expinfl": 0.5, "momexpinfl": 0.5, "dynamic": 0.2}
    network = {scale: fake(near) | {"no_noise": [0.5] * 10} for scale in (5.0, 25.0)}
    held, said = figure_2.said_of_network(network)
    assert held == [True, False]
    assert "corrected for 2 tests" in said
    assert "near one another says nothing" in said
    assert "noise itself helps" not in said
    network[25.0] = fake({**near, "momexpinfl": -5.0}) | {"no_noise": [2.0] * 10}
    held, said = figure_2.said_of_network(network)
    assert held == [True, True]
    assert "At scale 25 noise itself helps" in said
    assert {scale for _, scale in figure_2.noise_helped(network)} == {25.0}
    network[5.0] = fake({**near, "momexpinfl": 5.0}) | {"no_noise": [0.5] * 10}
    assert figure_2.said_of_network(network)[0] == [False, True]


def test_where_noise_helps_no_schedule_is_given_credit():
    def judged(retrained):
        results = {5.0: fake({"dynamic": -17.0, "exponential": -4.0}, retrained=retrained)}
        found = {"row": dict.fromkeys((False, True), results)}
        relative = {"row": {sound: cells.gaps(results) for sound in (False, True)}}
        sigmas = [1.0, 2.0, 3.0]
        line = {"losses": [[2.0, 5.0, 10.0]], "c2": 1.0, "c0": 1.0, "coefficients": [1.0]}
        single = {"row": {1: (Cell(influence.one_step, {"sigmas": sigmas}), line)}}
        return figure_3._figure_3_verdict(single, found, relative, {})

    assert judged((1.0, 2.0, 4.0)).ranking == AS_IN_PAPER
    helped = judged((-9.0, 2.0, 4.0))
    assert helped.ranking == UNDECIDED
    assert "not counted: dynamic at scale 5, -17.00 %" in helped.why
    assert "noise itself helps" in helped.why


def test_fits_are_told_by_row_and_scale():
    spends = {("a", 5.0): 0.1, ("b", 5.0): 7.0, ("a", 10.0): 1.0}
    said = cells.said_of_fits({key: {"fit_spends": each} for key, each in spends.items()})[0]
    assert "0.1 (a, at scale 5) to 7 (b, at scale 5)" in said


def test_published_variances_stand_beside_the_same_quantity():
    losses = np.array([[1.0, 2.0], [3.0, 2.5]])
    result = {"losses": losses.tolist(), "coefficients": [1.0, 3.0], "c2": 2.0, "c0": 0.0}
    steps = {step: (Cell(influence.one_step, {"sigmas": [1.0, 2.0]}), result) for step in (10, 60, 90)}
    (sheet,) = figure_3._variance_sheets({problems.SQUARED: steps, figure_3.LOGISTIC: steps})
    assert [row[2] for row in sheet.rows] == ["final loss"] * 3 + ["coefficient c2"] * 3
    assert [row[3] for row in sheet.rows] == ["0.14", "0.032", "0.016", "0.025", "0.024", "0.027"]
    assert sheet.rows[0][4] == f"{0.125 / 2.25:.3g} to {2 / 2:.3g}"
    assert sheet.rows[3][4:] == ["1", "0.5"]
    assert NOT_PRIVATE in sheet.caption
    assert all(NOT_PRIVATE in row[0] for row in figure_3._fit_sheet({"row": steps}).rows)
    assert "Of the 3 published" in figure_3._said_of_variances(steps)


def test_figure_3_runs_without_any_data_and_stamps_what_is_not_private(monkeypatch, tmp_path):
    from privypurse_lab.papers import drawing

    monkeypatch.setattr(figure_3.prepared_data, "is_here", lambda name: False)
    settings = Settings(quick=True, also={"mine": lambda steps: range(1, steps + 1)})
    found = finished(item("figure", "3"), settings, tmp_path)
    assert found.verdict.reached in REACHED_WORDS
    assert found.verdict.ranking in RANKING_WORDS
    assert any("MNIST" in note for note in found.notes)
    stamps = {row["panel"]: row["private"] for row in found.rows}
    assert {panel for panel, said in stamps.items() if said == "yes"} == {panel for panel in stamps if "sound" in panel}
    assert set(stamps.values()) == {"yes", NOT_PRIVATE}
    assert {row["line"] for row in found.rows if "right" in row["panel"]} == {
        "uniform",
        "dynamic",
        "exponential",
        "mine",
    }
    assert NOT_PRIVATE in found.sheets[0].caption  # retraining on private records
    assert any(line[0] == f"mine ({NOT_PRIVATE})" for line in found.sheets[1].rows)
    files = drawing.save(found.picture, tmp_path / "figure")
    assert NOT_PRIVATE in files[1].read_text(encoding="utf-8")


@pytest.mark.usefixtures("mnist")
def test_mnist35_is_projected_and_keeps_to_its_scale():
    data = problems.records("mnist35", 10.0, False, 0)
    assert data.rows.shape == (problems.RECORDS, problems.COMPONENTS)
    assert np.linalg.norm(data.rows, axis=1).max() == pytest.approx(10.0)
    assert data.rows.mean(axis=0) == pytest.approx(np.zeros(problems.COMPONENTS), abs=1e-6)
    assert data.rows.std(axis=0) == pytest.approx(np.full(problems.COMPONENTS, data.rows.std(axis=0)[0]), rel=1e-6)
    assert set(data.labels.tolist()) == {0, 1}


@pytest.mark.usefixtures("mnist")
def test_the_deep_network_compares_every_schedule_and_spends_each_budget_to_the_end():
    pytest.importorskip("torch")
    also = {"mine": Weighted(tuple(range(1, 9)))}
    result = cells.momentum_cell(
        scale=10.0, steps=8, ratios=[2.0, 5.0], rehearsals=1, runs=2, test_rows=500, seed=0, also=also
    )
    assert list(result["schedules"]) == ["uniform", "expinfl", "momexpinfl", "dynamic", "mine"]
    for each in result["schedules"].values():
        assert len(each["losses"]) == len(each["test_losses"]) == len(result["no_noise"]) == 2
        assert all(math.isfinite(loss) for loss in each["losses"] + each["test_losses"])
        # Never more than the budget, and all of it.
        assert problems.EPSILON - 1e-6 < each["spent"] <= problems.EPSILON
    shared = [sum((problems.CLIP_NORM / std) ** 2 for std in each["noise"]) for each in result["schedules"].values()]
    assert shared == pytest.approx([shared[0]] * 5, rel=1e-6)  # the same budget, shared out otherwise
    assert len({tuple(each["noise"]) for each in result["schedules"].values()}) == 5


@pytest.mark.usefixtures("mnist")
def test_the_deep_network_on_two_digits_is_trained_by_the_same_rules():
    pytest.importorskip("torch")
    purse = problems.seeded_purse(False, 0)
    problem = problems.problem(problems.NETWORK, 10.0, False, 0)
    loss, noise = problem.train(Weighted(shapes.uniform(5)), purse, 5, 0)
    assert math.isfinite(loss)
    assert sum((problems.CLIP_NORM / std) ** 2 for std in noise) == pytest.approx(problems.BUDGET, rel=1e-3)
    assert purse.spent.epsilon <= problems.EPSILON
    assert problem.curvatures() is None
