"""Rehearsals without data: how far noise moves coefficients, plans for every method, and
comparisons that are paid for.
"""

import numpy as np
import pytest

from privypurse import BudgetExhausted, InvalidArgument, Purse
from privypurse.accounting import convert
from privypurse.datasets import make_census
from privypurse.estimators import PrivateLogisticRegression
from privypurse.purse._certificate import Certificate
from privypurse.runs._compare import HOLD_OUT, NOT_PRIVATE, check_choices, compare_not_private, compare_paid, price
from privypurse.runs._progress import Silent
from privypurse.runs._rehearse import METHODS, RUNS, PlanSettings, noise_intervals, plan_for, rehearse_accuracy
from privypurse.runs.folder import model_from_json, model_to_json
from privypurse.tables._encoder import TableEncoder
from privypurse.tables._files import TableFile
from privypurse.tables._schema import ClassTarget, Number, Schema
from tests.runs.census import SCHEMA, a_census

EASY = PlanSettings(records=5_000, features=8, epsilon=1.0)


@pytest.mark.statistical
def test_intervals_are_about_as_wide_as_the_noise():
    from scipy import stats

    census = make_census(20_000, 0)
    X, y = TableEncoder(SCHEMA).transform(census.X), census.y
    models = [PrivateLogisticRegression(1.0, classes=[0, 1], random_state=seed).fit(X, y) for seed in range(12)]
    real = np.std([model.coef_ for model in models], axis=0, ddof=1)
    # From JSON, there is no data to look at.
    model = model_from_json(model_to_json(models[0]))
    model.certificate_ = Certificate.from_json(models[0].certificate_.to_json())
    halves, intercept = noise_intervals(model, SCHEMA, Silent())
    ratio = halves / stats.t.ppf(0.975, RUNS - 1) / real
    assert 0.7 < np.median(ratio) < 1.4
    assert intercept.shape == model.intercept_.shape
    again, _ = noise_intervals(model, SCHEMA, Silent())
    np.testing.assert_array_equal(halves, again)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_plan_without_data(method):
    plan = plan_for(method, EASY)
    assert plan.steps >= 1
    assert plan_for(method, EASY) == plan


def test_there_are_ten_methods():
    assert len(METHODS) == 10


def test_a_rehearsal_is_the_same_every_time_and_less_noise_is_better():
    first, again = (rehearse_accuracy("auto", EASY, Silent()) for _ in range(2))
    assert first == again
    assert first.loss == pytest.approx(first.non_private - first.private)
    worse = rehearse_accuracy("auto", PlanSettings(records=5_000, features=8, epsilon=0.01), Silent())
    assert worse.loss > first.loss


def test_a_paid_comparison_costs_its_price(tmp_path):
    file = TableFile(a_census(tmp_path, 2_000))
    methods, epsilons = ["nesterov", "noisy-pgd"], [0.3, 0.5]
    cost = price(methods, epsilons, 1e-6)
    squares = 2 * sum(convert.gdp_mu(epsilon, 1e-6) ** 2 for epsilon in epsilons)
    assert convert.gdp_mu(cost, 1e-6) ** 2 == pytest.approx(squares)
    purse = Purse(3.0, 1e-6, neighbouring="add-remove")
    compared = compare_paid(file, SCHEMA, methods, epsilons, lambda: purse, Silent())
    assert purse.spent.epsilon == pytest.approx(cost, rel=1e-4)
    assert purse.spent.epsilon <= cost
    assert compared.private
    assert [(entry.method, entry.epsilon) for entry in compared.entries] == [
        (method, epsilon) for epsilon in epsilons for method in methods
    ]
    poor = Purse(0.9 * cost, 1e-6, neighbouring="add-remove")
    with pytest.raises(BudgetExhausted, match="Nothing was spent"):
        compare_paid(file, SCHEMA, methods, epsilons, lambda: poor, Silent())
    assert poor.spent.releases == 0


def test_a_comparison_that_is_not_private_says_so(tmp_path):
    compared = compare_not_private(TableFile(a_census(tmp_path, 2_000)), SCHEMA, ["auto"], [1.0], 2, Silent())
    assert not compared.private
    assert compared.note == NOT_PRIVATE
    assert compared.note.startswith("NOT PRIVATE")
    assert {entry.epsilon for entry in compared.entries} == {1.0, None}


def test_a_class_that_no_training_record_has_does_not_move_the_others(tmp_path):
    held_out = np.random.default_rng(0).random(400) < HOLD_OUT  # in the first repetition
    classes = np.where(np.arange(400) % 2, "b", "c")
    classes[np.flatnonzero(held_out)[0]] = "a"
    lines = "".join(f"{float(name == 'c')},{name}\n" for name in classes)
    (tmp_path / "rare.csv").write_text(f"x,y\n{lines}")
    schema = Schema((Number(name="x", range=(0, 1)),), ClassTarget(name="y", classes=("a", "b", "c")))
    compared = compare_not_private(TableFile(tmp_path / "rare.csv"), schema, ["auto"], [1.0], 1, Silent())
    found = {entry.method: entry.value for entry in compared.entries}
    assert found["scikit-learn, not private"] == 1 - 1 / held_out.sum()


@pytest.mark.parametrize(
    "wrong", [(["magic"], [1.0], 1), (["dp-sgd"], [1.0], 1), (["auto"], [0.0], 1), ([], [1.0], 1), (["auto"], [], 1)]
)
def test_wrong_choices_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        check_choices(*wrong)
