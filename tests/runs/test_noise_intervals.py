"""Noise intervals: they hold what they claim for every kind of column, and say what they claim."""

import dataclasses

import numpy as np
import pytest

from privypurse.estimators import PrivateLogisticRegression
from privypurse.estimators._noise_intervals import grouped_rows
from privypurse.runs._progress import Silent
from privypurse.runs._rehearse import groups_of, noise_intervals
from privypurse.runs._train import train_file
from privypurse.tables._schema import Category, Number, Schema
from tests.estimators.tables import a_table_with_rare_categories
from tests.runs.census import charges, settings_for

VALUES, FITS = 40, 12
SCHEMA = Schema(
    (
        Number(name="first", range=(0, 1)),
        Number(name="second", range=(0, 1)),
        Category(name="diagnosis", categories=tuple(f"G{index}" for index in range(VALUES))),
    )
)


def fitted(X, y, epsilon, seed):
    model = PrivateLogisticRegression(epsilon, classes=[0, 1], random_state=seed)
    model._declared_scales = True
    return model.fit(X, y)


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_intervals_hold_the_mean_over_noise_for_every_kind_of_column(epsilon):
    _, X, y = a_table_with_rare_categories(8_000, VALUES)
    records = X.sum(axis=0)
    kinds = np.where(records == 0, "empty", np.where(records < 20, "rare", "common"))
    kinds[:2] = "numeric"
    kinds = np.append(kinds, "intercept")
    models = [fitted(X, y, epsilon, seed) for seed in range(FITS)]
    values = np.array([np.append(model.coef_, model.intercept_) for model in models])
    halves = np.array(
        [
            np.concatenate([part.ravel() for part in noise_intervals(model, SCHEMA, Silent(), seed=seed)])
            for seed, model in enumerate(models)
        ]
    )
    others = (values.sum(axis=0) - values) / (FITS - 1)
    holds = np.abs(values - others) <= halves
    for kind in set(kinds.tolist()):
        assert holds[:, kinds == kind].mean() >= 0.85, kind


def test_made_rows_have_the_released_centre_and_spread():
    _, X, y = a_table_with_rare_categories(8_000, VALUES)
    preparation = fitted(X, y, 3.0, 0).preparation_
    made = grouped_rows(groups_of(SCHEMA), preparation, 8_000, np.random.default_rng(0), 0.0)
    assert made.mean(axis=0) == pytest.approx(X.mean(axis=0), abs=0.02)
    assert made[:, :2].std(axis=0) == pytest.approx(X[:, :2].std(axis=0), rel=0.3)  # long rows are limited
    assert (
        made[:, 2:].sum(axis=1) == 1
    ).all()  # noise in forty shares makes no record without a category, and none with two


def test_a_noisy_share_that_may_be_noise_makes_no_records():
    _, X, y = a_table_with_rare_categories(8_000, VALUES)
    model = fitted(X, y, 1.0, 0)
    noisy = model.preparation_.centre.copy()
    noisy[-1] = 0.01 / model.preparation_.unit
    preparation = dataclasses.replace(model.preparation_, centre=noisy)
    groups = groups_of(SCHEMA)
    drawn = [
        grouped_rows(groups, preparation, 2_000, np.random.default_rng(0), error)[:, -1].any() for error in (0, 0.01)
    ]
    assert drawn == [True, False]


def test_training_with_a_schema_pays_for_no_units_of_columns(tmp_path):
    result = train_file(settings_for(tmp_path, epsilon=3.0))
    assert np.ndim(result.pipeline[-1].preparation_.unit) == 0
    assert not any("size of" in str(line) for line in charges(tmp_path))
