"""The lecture: its problems are what they claim to be, its bounds are the formulas, its verdicts
follow the numbers.
"""

import math

import numpy as np
import pytest

from privypurse.accounting import convert
from privypurse.accounting._filters import GdpFilter
from privypurse.accounting.pld import pld_epsilon
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import GaussianCharge
from privypurse.methods._noisy_pgd import NoisyPGD
from privypurse_lab.papers.cells import Results
from privypurse_lab.papers.exact_measurements import Exactly
from privypurse_lab.papers.items import IN_PART, NOT_PRIVATE, NOT_REACHED, REACHED, Settings
from privypurse_lab.papers.lecture import PAPER, bounds, composition, descent, problems, sampling
from privypurse_lab.papers.reproducing import reproduce

QUICK = Settings(quick=True)


def finished(item, settings, folder):
    results = Results(folder / "cells.jsonl")
    for cell in item.cells(settings):
        if cell not in results:
            results.keep(cell, cell())
    return item.finish(settings, results)


def rising(steps):
    return np.arange(1.0, steps + 1)


@pytest.fixture(scope="module")
def figure_1(tmp_path_factory):
    settings = Settings(quick=True, also={"rising": rising})
    return settings, finished(descent.FIGURE_1, settings, tmp_path_factory.mktemp("figure1"))


# The problems.


def test_no_point_of_the_ball_is_better_than_the_best():
    problem = problems.smooth_problem(0)
    random = np.random.default_rng(0)
    for _ in range(50):
        point = random.standard_normal(problems.DIMENSION)
        point *= problem.radius * random.random() / np.linalg.norm(point)
        assert problem.excess(point) > 0


def test_the_best_point_lies_on_the_edge_of_the_ball_and_the_gap_is_a_bound():
    problem = problems.smooth_problem(0)
    exactly = Exactly(problem.oracle, problem.records)
    best = problems.least_point(problem.oracle, problem.radius)
    assert np.linalg.norm(best) == pytest.approx(problem.radius)
    assert problem.excess(best) == pytest.approx(0, abs=1e-9)
    elsewhere = best / 2
    gap = problems.distance_to_best(exactly.gradient(elsewhere), elsewhere, problem.radius)
    assert 0 < problem.excess(elsewhere) <= gap


@pytest.mark.parametrize("epsilon", [0.1, 1.6])
def test_the_hardest_problem_is_linear_and_its_best_value_is_in_closed_form(epsilon):
    problem = problems.hardest_problem(epsilon)
    exactly = Exactly(problem.oracle, problem.records)
    middle, edge = (
        np.zeros(problems.DIMENSION),
        np.full(problems.DIMENSION, problems.DIMENSION**-0.5),
    )
    assert problem.excess(edge) == pytest.approx(0, abs=1e-6)
    assert exactly.loss(edge / 2) == pytest.approx((exactly.loss(middle) + exactly.loss(edge)) / 2, abs=1e-6)
    # The common direction is as long as the noise of one release of the whole budget.
    noise = 2 * math.sqrt(problems.DIMENSION) / (problem.records * convert.gdp_mu(epsilon, problems.DELTA))
    assert 1 - problem.best == pytest.approx(noise, rel=0.2)


# Figure 1.


def test_the_bound_is_the_formula_of_the_theorem():
    found = descent.descend(0.4, 16, seed=0, data_seed=0)
    rho = convert.gdp_mu(0.4, problems.DELTA) ** 2 / 2
    n, d, radius = problems.RECORDS, problems.DIMENSION, 3.0
    assert found["bound"] == pytest.approx(radius * math.sqrt(1 / 16 + 2 * d / (n**2 * rho)), rel=1e-6)


def test_a_run_spends_its_budget_and_no_more():
    found = descent.descend(0.4, 16, seed=0, data_seed=0)
    assert 0.399 < found["spent"] <= 0.4


def test_the_three_ends_of_a_run_are_different_and_seeded():
    first, again, other = (descent.descend(0.4, 16, seed=seed, data_seed=0) for seed in (0, 0, 1))
    assert first == again
    assert first["last"] != other["last"]
    assert len({first["all"], first["shifted"], first["last"]}) == 3


def test_without_noise_the_step_and_the_bound_are_the_lectures_and_it_says_not_private(figure_1):
    _, made = figure_1
    rows = [row for row in made.rows if row["epsilon"] == "" and row["point"] == descent.AVERAGES["all"]]
    assert [row["bound"] for row in rows] == pytest.approx([3 / math.sqrt(row["steps"]) for row in rows])
    assert {row["private"] for row in rows} == {NOT_PRIVATE}
    assert all(row["excess"] < row["bound"] for row in rows)


def test_everything_lies_below_the_bound(figure_1):
    _, made = figure_1
    assert made.verdict.reached == REACHED
    assert "15 of 15 means lie below" in made.verdict.why


def test_a_users_schedule_is_in_the_rows_the_table_and_the_picture(figure_1):
    _, made = figure_1
    rows = [row for row in made.rows if row["schedule"] == "rising"]
    assert len(rows) == 3
    assert {row["private"] for row in rows} == {"yes"}
    assert any("rising" in line[0] for line in made.sheets[0].rows)
    figure = pytest.importorskip("matplotlib.figure").Figure()
    made.picture(figure)
    assert "rising" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_users_schedule_spends_the_same_budget():
    found = descent.with_entry(rising, 0.4, 16, seed=0, data_seed=0)
    assert found["private"]
    assert 0.399 < found["spent"] <= 0.4


class Greedy(NoisyPGD):
    def filter(self, facts):
        return GdpFilter(10 * facts.epsilon, facts.delta, facts.neighbouring)


def test_a_users_method_with_too_large_a_filter_is_refused():
    with pytest.raises(InvalidArgument, match=r"spent epsilon .* where 0\.4 was given"):
        descent.with_entry(Greedy(steps=4), 0.4, 4, seed=0, data_seed=0)


def test_what_ends_below_the_least_loss_of_the_ball_is_said_and_not_drawn(figure_1):
    settings, made = figure_1
    assert "Own entries" in made.notes[-1]
    assert "not in the picture" not in made.notes[-1]
    rows = [
        {**row, "excess": -0.1} if row["schedule"] == "rising" and row["epsilon"] == 1.6 else row for row in made.rows
    ]
    (said,) = descent.said_of_entries(rows)
    assert "not in the picture: rising at epsilon 1.6" in said
    figure = pytest.importorskip("matplotlib.figure").Figure()
    descent.draw(settings, rows, figure)
    found = dict(zip(*reversed(figure.axes[1].get_legend_handles_labels()), strict=True))["rising"]
    assert found.lines[0].get_xdata().tolist() == [0.1, 0.4]
    assert descent.said_of_entries([row for row in rows if row["schedule"] == "even"]) == []


def test_the_verdict_follows_the_numbers(figure_1):
    settings, made = figure_1
    rows = [{**row, "excess": 2 * row["bound"] if row["schedule"] == "even" else 1.0} for row in made.rows]
    assert descent.judge(settings, rows).reached == NOT_REACHED
    steep = [
        {**row, "excess": row["excess"] / row["epsilon"] ** 2 / 1e4} if row["problem"] == "hardest" else row
        for row in made.rows
    ]
    assert descent.judge(settings, steep).reached == IN_PART


# Figures 2 and 3.


def test_bounds_of_the_textbooks():
    assert bounds.amplified(1.0, 1.0) == pytest.approx(1.0)
    assert bounds.added(50.0, 1, 1e-5) == convert.gdp_epsilon(1 / 50, 1e-5)
    assert bounds.advanced(0.1, 100, 1e-5) == pytest.approx(0.1 * math.sqrt(200 * math.log(1e5)) + 10 * math.expm1(0.1))
    assert bounds.boxed_lemma(50.0, 100, 1e-5) == pytest.approx(math.sqrt(200 * math.log(1e5)) / 50)


@pytest.mark.parametrize(("steps", "rate"), [(1, 0.01), (100, 0.01), (100, 1.0)])
def test_advanced_composition_is_a_bound(steps, rate):
    exact = pld_epsilon([GaussianCharge(3.0, rate)] * steps, 1e-5, Neighbouring.ADD_REMOVE)
    assert bounds.advanced_gaussian(3.0, steps, 1e-5, rate) > exact


@pytest.mark.parametrize(("delta", "limit"), [(1e-5, 7.968), (1e-8, 8.943)])
def test_the_lemma_holds_up_to_a_limit_and_not_beyond(delta, limit):
    # By 40-digit arithmetic.
    assert bounds.lemma_holds_up_to(delta) == pytest.approx(limit, abs=1e-3)
    for epsilon, true in ((limit - 0.01, True), (0.05, True), (limit + 0.01, False)):
        mu = epsilon / math.sqrt(2 * math.log(1 / delta))
        assert (convert.gdp_epsilon(mu, delta) <= epsilon) is true


def test_one_sampled_step_costs_what_the_lemma_says():
    found = sampling.one_step(1.0, 0.1)
    assert found["exact"] == pytest.approx(found["lemma"], rel=1e-4)


def test_figure_2(tmp_path):
    made = finished(sampling.FIGURE_2, QUICK, tmp_path)
    assert made.verdict.reached == REACHED
    wrong = [{**row, "lemma": row["lemma"] and 2 * row["lemma"]} for row in made.rows]
    assert sampling.judge(wrong).reached == NOT_REACHED


def test_figure_3_and_the_order_of_the_lines(tmp_path):
    made = finished(composition.FIGURE_3, QUICK, tmp_path)
    assert made.verdict.reached == IN_PART
    assert "7.97" in made.verdict.why
    lines = {name: composition.curve(made.rows, "all", name) for name in composition.BETTER}
    exact = lines[composition.GAUSSIAN]
    assert (exact <= lines[composition.OPTIMAL]).all()
    assert (lines[composition.OPTIMAL] <= lines[composition.CLASSIC]).all()
    assert (exact <= lines[composition.RENYI]).all()
    stamps = {(row["counted_by"], row["epsilon"]): row["private"] for row in made.rows}
    wrong = {key for key, said in stamps.items() if said == NOT_PRIVATE}
    assert wrong == {(name, epsilon) for name, epsilon in stamps if name == composition.LEMMA and epsilon > 7.97}
    assert wrong
    figure = pytest.importorskip("matplotlib.figure").Figure()
    made.picture(figure)
    assert f"the lecture's lemma ({NOT_PRIVATE} above epsilon 7.97)" in [
        text.get_text() for text in figure.legends[0].get_texts()
    ]
    # An independent computation on a grid.
    assert lines[composition.NUMERICAL] == pytest.approx(exact, rel=1e-3)


def test_the_page(tmp_path):
    pytest.importorskip("matplotlib")
    (outcome,) = reproduce("lecture", figure="3", quick=True, output=tmp_path, workers=1)
    assert {path.suffix for path in outcome.files} == {".csv", ".png", ".svg"}
    assert "**Reached: in part. Ranking: as in the paper.**" in (tmp_path / "lecture.md").read_text(encoding="utf-8")
    assert [item.name for item in PAPER.items] == ["figure-1", "figure-2", "figure-3"]
