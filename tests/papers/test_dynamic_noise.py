"""The dynamic-noise paper: budget, influences, schedules; what is published is stamped, what is sound keeps its budget."""

import math
import os
import pathlib

import numpy as np
import pytest

from privypurse import NoiseSource, Purse
from privypurse.accounting.convert import zcdp_rho
from privypurse.papers.cells import Results
from privypurse.papers.dynamic_noise import PAPER, cells, influence, panels, problems, theory
from privypurse.papers.items import IN_PART, NOT_PRIVATE, REPRODUCED, VERDICTS, Settings
from privypurse.schedules import shapes
from privypurse.schedules.weighted import Weighted

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
    purse = problems.open_purse(sound, seed=1)
    _, noise = problems.problem(SYNTHETIC, 10.0, sound, 0).train(Weighted(shapes.uniform(steps)), purse, steps, 1)
    shared = sum((problems.CLIP_NORM / std) ** 2 for std in noise)  # noise_std on the sum is sigma_t G
    budget = purse.filter.mu**2 if sound else problems.BUDGET
    assert shared == pytest.approx(budget, rel=1e-3)
    assert problems.EPSILON - 1e-6 < purse.spent.epsilon <= problems.EPSILON
    assert len(noise) == steps


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
    # Rows so short that nothing is clipped: the descent is linear, and the prediction exact on average.
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
    assert found.verdict.word == REPRODUCED
    gap = {row["N"]: row["value"] for row in found.rows if row["bound"] == theory.UNIFORM}
    least = {row["N"]: row["value"] for row in found.rows if row["bound"] == theory.DYNAMIC}
    ratios = [gap[size] / least[size] for size in gap]
    assert ratios == sorted(ratios)
    # Four times as many records: a little less than a sixteenth, since ln N grows.
    assert all(1 < ratio < 10 for ratio in ratios)


def test_figure_1_agrees_with_what_can_be_computed(tmp_path):
    found = finished(item("figure", "1"), QUICK, tmp_path)
    assert found.verdict.word == IN_PART
    assert "reversed" in found.verdict.why
    steps, runs = 50, 150
    curvature = theory.CURVATURES["sharp"]
    losses = np.array(theory.trajectories(curvature, 0.1, steps, runs, 0)["losses"])
    assert losses.shape == (runs, steps + 1)
    mu = problems.open_purse(True, 0).filter.mu
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
    assert found["half"].lower
    assert not found["uniform"].lower


def test_figure_3_runs_without_any_data_and_stamps_what_is_not_private(monkeypatch, tmp_path):
    from privypurse.papers import drawing
    from privypurse.papers.dynamic_noise import figure_3

    monkeypatch.setattr(figure_3.prepared, "is_here", lambda name: False)
    settings = Settings(quick=True, also={"mine": lambda steps: range(1, steps + 1)})
    found = finished(item("figure", "3"), settings, tmp_path)
    assert found.verdict.word in VERDICTS
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
    purse = problems.open_purse(False, 0)
    problem = problems.problem(problems.NETWORK, 10.0, False, 0)
    loss, noise = problem.train(Weighted(shapes.uniform(5)), purse, 5, 0)
    assert math.isfinite(loss)
    assert sum((problems.CLIP_NORM / std) ** 2 for std in noise) == pytest.approx(problems.BUDGET, rel=1e-3)
    assert purse.spent.epsilon <= problems.EPSILON
    assert problem.curvatures() is None
