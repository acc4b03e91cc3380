"""From a file to a model folder: what it costs, what its certificate says, and what is in the
folder.
"""

import json
import warnings

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

from privypurse import BudgetExhausted, InvalidArgument
from privypurse.methods._by_name import BY_NAME
from privypurse.runs import _measure as measuring
from privypurse.runs._describe import load_run
from privypurse.runs._rows import CHECKED
from privypurse.runs._train import train_file
from privypurse.runs.folder import load_model
from privypurse.tables._schema import Number, Schema, Source, read_schema
from tests.runs.census import SCHEMA, a_census, charges, lines, regression_schema, settings_for, three_class_schema


def test_the_whole_path(tmp_path):
    result = train_file(settings_for(tmp_path, intervals=True, seed=None))
    assert result.purse.epsilon == 1.0
    assert 0.99 < result.purse.spent.epsilon <= 1.0
    certificate = result.pipeline[-1].certificate_
    assert certificate.private
    assert certificate.epsilon <= 1.0
    assert certificate.recorded_epsilon <= 1.0
    # Nothing was read from the data but what every run has to check.
    assert CHECKED in certificate.uncovered
    assert not [line for line in certificate.uncovered if "without paying" in line or "read from the data" in line]
    assert (tmp_path / "model" / "report.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    loaded, about, measurements = load_run(tmp_path / "model")
    assert measurements == result.measurements
    assert np.shape(about["half_widths"][0]) == loaded[-1].coef_.shape
    frame = arrow_csv.read_csv(a_census(tmp_path)).to_pandas()
    assert set(loaded.predict(frame)) <= {"no", "yes"}
    np.testing.assert_array_equal(loaded.predict(frame), result.pipeline.predict(frame))
    assert loaded.score(frame, frame["high_income"]) > 0.6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["census.csv", "census.toml", "ledger.db", "model"]


def test_the_hold_out_is_two_paid_releases(tmp_path):
    result = train_file(settings_for(tmp_path))
    assert [line.what for line in charges(tmp_path)[-2:]] == [measuring.WHAT, measuring.WHAT_FINER]
    (measurement,) = result.measurements
    assert measurement.paid
    assert 0 <= measurement.low <= measurement.value <= measurement.high <= 1
    # Without one, nothing is measured and all goes to the fit.
    other = train_file(settings_for(tmp_path, out=tmp_path / "other", hold_out=0.0, account=result_account(tmp_path)))
    assert other.measurements == []
    assert not [line for line in charges(tmp_path, "again") if line.what == measuring.WHAT]
    assert 0.99 < other.purse.spent.epsilon <= 1.0


def result_account(tmp_path):
    from privypurse.runs._account import Account

    return Account(dataset="again", ledger=tmp_path / "ledger.db")


def test_a_draft_is_named_on_the_certificate(tmp_path):
    result = train_file(settings_for(tmp_path, schema=None))
    uncovered = "\n".join(result.pipeline[-1].certificate_.uncovered)
    assert "which columns are used" in uncovered
    assert "ranges and categories of columns, read from the data without paying: age, " in uncovered
    assert "classes of the target high_income" in uncovered
    assert "uncovered" in {line.kind for line in lines(tmp_path)}
    assert (tmp_path / "model" / "schema.toml").read_text(encoding="utf-8").startswith("# DRAFT")


def test_ranges_are_bought_on_request(tmp_path):
    result = train_file(settings_for(tmp_path, schema=None, buy_ranges=True, seed=None))
    assert result.purse.spent.epsilon <= 1.0
    ledger = "".join(line.body for line in lines(tmp_path))
    assert "quantile of a column" in ledger
    assert "quantile of a column" in {group.what for group in result.pipeline[-1].certificate_.groups}
    schema = load_model(tmp_path / "model")[0].schema
    numbers = [column for column in schema.columns if isinstance(column, Number)]
    assert {column.source for column in numbers} == {Source.EARLIER}  # for whoever trains with it next
    named = "\n".join(result.pipeline[-1].certificate_.uncovered)
    assert not [column.name for column in numbers if column.name in named]
    assert 'source = "bought"' in (tmp_path / "model" / "schema.toml").read_text(encoding="utf-8")


def test_a_private_range_in_a_declared_schema_leaves_nothing_uncovered(tmp_path):
    private = tuple(Number(name="age") if column.name == "age" else column for column in SCHEMA.columns)
    result = train_file(settings_for(tmp_path, schema=Schema(private, SCHEMA.target), seed=None))
    schema = read_schema(tmp_path / "model" / "schema.toml")
    low, high = schema.columns[0].range
    assert low < 50 < high
    # The knots of the other columns were bought too.
    numbers = "age, school_years, hours_per_week, capital_income, commute_minutes"
    assert schema.uncovered == [
        f"ranges and knots of columns that the schema says were bought in an earlier run: {numbers}"
    ]
    assert not [line for line in result.pipeline[-1].certificate_.uncovered if "without paying" in line]


def test_numbers_are_predicted_within_their_range(tmp_path):
    result = train_file(settings_for(tmp_path, schema=regression_schema()))
    (measurement,) = result.measurements
    assert measurement.metric == "mean absolute error"
    assert measurement.low <= measurement.value <= measurement.high
    assert charges(tmp_path)[-1].what == "sums of errors"
    frame = arrow_csv.read_csv(a_census(tmp_path)).to_pandas()
    model = load_model(tmp_path / "model")
    model[-1].intercept_ += 90.0  # so that many are beyond
    predicted = model.predict(frame)
    assert predicted.max() == 99
    assert predicted.min() >= 0


def test_three_classes_are_answered_by_name(tmp_path):
    result = train_file(settings_for(tmp_path, schema=three_class_schema(), intervals=True))
    frame = arrow_csv.read_csv(a_census(tmp_path)).to_pandas()
    loaded = load_model(tmp_path / "model")
    assert set(loaded.predict(frame)) <= {"public", "private", "non-profit"}
    assert loaded[-1].classes_.tolist() == ["non-profit", "private", "public"]
    known = frame["sector"].isin(loaded[-1].classes_)
    assert 0 < known.mean() < 1  # the others were left out
    assert loaded.score(frame[known], frame["sector"][known]) > 0.5
    assert result.purse.spent.epsilon <= 1.0


@pytest.mark.parametrize("method", sorted(set(BY_NAME) - {"dp-sgd"}))
def test_every_method_trains(tmp_path, method):
    result = train_file(settings_for(tmp_path, method=method))
    assert result.purse.spent.epsilon <= 1.0
    assert result.pipeline[-1].method == method
    assert load_model(tmp_path / "model")[-1].method == method


@pytest.mark.parametrize(("model", "schema"), [("svm", SCHEMA), ("huber", regression_schema())])
@pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
def test_every_model_trains_under_both_relations(tmp_path, model, schema, neighbouring):
    settings = settings_for(tmp_path, schema=schema, model=model)
    object.__setattr__(settings.account, "neighbouring", neighbouring)
    result = train_file(settings)
    assert result.pipeline[-1].certificate_.neighbouring == neighbouring
    assert result.purse.spent.epsilon <= 1.0


def test_other_records_are_measured_exactly_and_named(tmp_path):
    others = tmp_path / "others.csv"
    others.write_bytes(a_census(tmp_path).read_bytes())
    for public in (False, True):
        settings = settings_for(tmp_path, test=others, test_public=public, overwrite=True, budget=3.0, hold_out=0.1)
        result = train_file(settings)
        (measurement,) = result.measurements
        assert (measurement.paid, measurement.public, measurement.epsilon) == (False, public, None)
        frame = arrow_csv.read_csv(a_census(tmp_path)).to_pandas()
        assert measurement.value == pytest.approx(result.pipeline.score(frame, frame["high_income"]))
        named = [line for line in result.pipeline[-1].certificate_.uncovered if "measured exactly" in line]
        assert any("declared public" in line for line in named) == public
    assert len([line for line in lines(tmp_path) if "measured exactly" in line.what]) == 2


def test_runs_share_the_budget_of_their_data_set(tmp_path):
    train_file(settings_for(tmp_path, budget=1.2))
    before = lines(tmp_path)
    with pytest.raises(BudgetExhausted, match="Nothing was spent"):
        train_file(settings_for(tmp_path, out=tmp_path / "second"))
    assert lines(tmp_path) == before
    assert not (tmp_path / "second").exists()
    second = train_file(settings_for(tmp_path, out=tmp_path / "second", epsilon=0.2))
    assert 1.0 < second.purse.spent.epsilon <= 1.2
    assert second.pipeline[-1].certificate_.epsilon <= 0.2


def test_a_model_is_kept_if_others_spend_the_rest_meanwhile(tmp_path):
    def freeze(purse, _):
        frozen.append(purse)

    class FreezesAtTheEnd:
        def stage(self, what, total=None):
            if what.startswith("measuring"):
                frozen[0].freeze("an audit")

        def update(self, done, note=""):
            pass

    frozen = []
    result = train_file(settings_for(tmp_path), FreezesAtTheEnd(), freeze)
    assert result.measurements == []
    load_model(tmp_path / "model")
    with pytest.raises(BudgetExhausted, match="frozen"):
        train_file(settings_for(tmp_path, out=tmp_path / "second", epsilon=0.01))


def test_a_wide_table_is_sparse_all_the_way(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 600, 2_000)
    arrow_csv.write_csv(pa.table({"k": values, "y": np.where(values > 300, "a", "b")}), tmp_path / "census.csv")
    (tmp_path / "s.toml").write_text(
        f'[target]\ncolumn = "y"\nclasses = ["a", "b"]\n[columns.k]\ncategories = {list(range(600))}\n',
        encoding="utf-8",
    )
    for hold_out in (0.1, 0.0):
        settings = settings_for(
            tmp_path, target="y", hold_out=hold_out, overwrite=True, budget=9.0, intervals=hold_out == 0.0
        )
        object.__setattr__(settings, "schema", tmp_path / "s.toml")
        assert train_file(settings).pipeline[-1].coef_.shape == (1, 600)


def test_a_small_table_with_nothing_set_aside_is_trained_on(tmp_path):
    census = a_census(tmp_path).read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "census.csv").write_text("".join(census[:13]), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few records hide nothing
        for seed in range(6):
            settings = settings_for(tmp_path, overwrite=True, budget=50.0, seed=seed, intervals=seed == 0)
            assert len(train_file(settings).measurements) == 1


def test_files_of_a_run_are_valid_json(tmp_path):
    train_file(settings_for(tmp_path, command="privypurse train é"))
    for name in ("run.json", "measurements.json", "trace.json", "certificate.json", "model.json", "manifest.json"):
        json.loads((tmp_path / "model" / name).read_text(encoding="utf-8"))


def test_records_without_a_known_target_are_left_out(tmp_path):
    plain = train_file(settings_for(tmp_path, hold_out=0.0)).pipeline[-1].coef_
    text = a_census(tmp_path).read_text(encoding="utf-8")
    header, first = text.splitlines()[:2]
    place = header.split(",").index("high_income")
    odd = [
        ",".join([*first.split(",")[:place], value, *first.split(",")[place + 1 :]])
        for value in ("", "?", "maybe", "YES")
    ]
    (tmp_path / "census.csv").write_text(text + "\n".join(odd) + "\n", encoding="utf-8")
    again = train_file(settings_for(tmp_path, hold_out=0.0, overwrite=True, account=result_account(tmp_path)))
    np.testing.assert_array_equal(again.pipeline[-1].coef_, plain)


@pytest.mark.parametrize(
    "odd",
    [
        "nonsense", ",,,,,,,,,,,,", "x" * 100_000, "999999999999999999999999,zz,zz,zz,zz,-1e999,zz,zz,zz,nan,inf,x,yes",
        "\x00,\x01,,,,,,,,,,,no", ",".join("é" * 13), "a,b", ",".join("1" * 14),
    ],
)  # fmt: skip
def test_one_more_odd_record_never_raises(tmp_path, odd):
    path = a_census(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + odd + "\n", encoding="utf-8")
    assert train_file(settings_for(tmp_path)).purse.spent.epsilon <= 1.0


def test_a_table_with_next_to_no_targets_is_refused_before_an_account_is_opened(tmp_path):
    census = a_census(tmp_path).read_text(encoding="utf-8").splitlines()
    place = census[0].split(",").index("high_income")
    rows = [line.split(",") for line in census[1:200]]
    blank = [",".join([*row[:place], "", *row[place + 1 :]]) for row in rows]
    (tmp_path / "census.csv").write_text("\n".join([census[0], *blank, census[1]]) + "\n", encoding="utf-8")
    private = tuple(Number(name="age") if column.name == "age" else column for column in SCHEMA.columns)
    for schema in (SCHEMA, Schema(private, SCHEMA.target)):
        with pytest.raises(InvalidArgument, match="fewer than two records"):
            train_file(settings_for(tmp_path, schema=schema))
    assert lines(tmp_path) == []
