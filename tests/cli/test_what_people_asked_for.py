"""Options and words that a first user missed."""

import csv
import json
import os
import pathlib
import re

import numpy as np
import pandas as pd
import pytest
from dp_accounting import pld
from sklearn.pipeline import make_pipeline

from privypurse.core._statement import NOT_STATED
from privypurse.datasets import make_census
from privypurse.estimators import BoundedScaler, PrivateLogisticRegression
from privypurse.runs._describe import coefficients_of, load_run
from privypurse.runs.folder import load_model, save_model
from tests.cli.commands import LEDGER, TARGET, payments, refusal, result, run, training
from tests.readers import priced, read_entry

ROOT = pathlib.Path(__file__).parents[2]


def test_the_officer_gets_the_certificate_of_everything_and_each_job(trained):
    text = run(trained, "ledger", "certificate", "--dataset", "census.csv").stdout
    assert "(3, 1e-06)-differentially private" in text
    assert result(trained, "ledger", "certificate", "--dataset", "census.csv")["part_of"] == ""
    shown = run(trained, "ledger", "show", "--dataset", "census.csv").stdout
    assert f"train census.csv, target {TARGET}, model model" in shown
    assert "not on the ledger" in refusal(trained, 2, "ledger", "show", "--dataset", "nobody")


def test_columns_are_kept_beside_predictions(trained):
    done = run(trained, "predict", "model", "new.csv", "--keep", "age", "--keep", "job")
    head, first, *_ = csv.reader(done.stdout.splitlines())
    assert head[:3] == ["age", "job", "prediction"]
    with (trained / "new.csv").open(encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    assert first[:2] == [row["age"], row["job"]]


def test_a_schema_with_work_in_it_is_not_overwritten_and_the_target_is_checked_too(trained):
    before = (trained / "census.toml").read_text()
    assert "--overwrite" in refusal(trained, 2, "schema", "census.csv", "--target", TARGET, "--out", "census.toml")
    assert (trained / "census.toml").read_text() == before
    (trained / "wrong.toml").write_text(before.replace('"yes"', '"Yes"'))
    found = result(trained, "schema", "census.csv", "--check", "wrong.toml")["columns"]
    assert found[-1]["column"] == TARGET
    assert found[-1]["unknown"] > 0


def test_a_plan_counts_the_columns_of_a_schema(trained):
    found = result(trained, "plan", "-n", 5_000, "-e", 0.5, "--schema", "census.toml", "--no-rehearse")
    by_hand = result(trained, "plan", "-n", 5_000, "-e", 0.5, "--features", 51, "--no-rehearse")
    assert found["steps"] == by_hand["steps"]
    assert "got both or none" in refusal(trained, 2, "plan", "-n", 5_000, "-e", 0.5)
    hopeless = run(trained, "plan", "-n", 100, "-e", 0.05, "--features", 51, "--no-rehearse")
    assert "little can be learnt" in hopeless.stderr


def test_a_paid_comparison_wants_a_budget_before_it_opens_an_account(census):
    arguments = [
        "compare",
        "census.csv",
        "--target",
        TARGET,
        "--schema",
        "census.toml",
        "--methods",
        "auto",
        "--epsilons",
        0.3,
    ]
    assert "--budget" in refusal(census, 2, *arguments, "--pay")
    assert payments(census) == 0
    assert not (census / LEDGER).exists()


def test_the_first_run_says_that_its_epsilon_is_all(census):
    (census / "deep").mkdir()
    done = run(census / "deep", *training("../census.csv", schema="../census.toml"))
    assert done.returncode == 0, done.stderr
    assert "all that may ever be spent" in done.stderr
    assert (census / LEDGER).exists()  # beside the data, not where it was run
    (census / "deep" / "linked.csv").symlink_to(census / "census.csv")
    for data in ("census.csv", "deep/linked.csv"):  # a link to records is no other record
        again = run(census, *training(data, "--out", "again"))
        assert again.returncode == 3, again.stderr


def test_a_name_is_no_formula_in_a_spreadsheet(census):
    name = "=1+1"
    assert run(census, *training("census.csv", "--dataset", name, "--no-intervals")).returncode == 0
    rows = list(csv.DictReader(run(census, "ledger", "export").stdout.splitlines()))
    assert {row["dataset"] for row in rows} == {f"'{name}"}
    entries = json.loads(run(census, "ledger", "export", "--json").stdout)["entries"]
    assert {entry["dataset"] for entry in entries} == {name}


def test_raw_adult_with_a_schema_written_by_hand_reaches_84_percent(tmp_path):
    folder = pathlib.Path(os.environ.get("PRIVYPURSE_DATA", ""))
    if not (folder / "adult.train.csv.gz").exists():
        pytest.skip("adult.train.csv.gz is not in PRIVYPURSE_DATA")
    arguments = ["train", folder / "adult.train.csv.gz", "--target", "classification", "--epsilon", 1]
    arguments += ["--schema", ROOT / "examples" / "adult.toml", "--test", folder / "adult.test.csv.gz", "--test-public"]
    found = result(tmp_path, *arguments, "--ledger", "ledger.db", "--no-intervals")
    (measured,) = found["measurements"]
    assert measured["value"] >= 0.84
    assert found["spent_epsilon"] <= 1
    assert found["private"]


def predicted_yes(folder, model):
    rows = csv.DictReader(run(folder, "predict", model, "new.csv").stdout.splitlines())
    return np.mean([row["prediction"] == "yes" for row in rows])


def test_class_weights_find_a_rare_class_and_are_named_wherever_they_matter(trained):
    for weight, name, where in (
        ("yes=9", "class weights (yes=9)", ("report.html", "certificate.txt")),
        ("balanced", "class weights (balanced, by the released class counts)", ("report.html",)),
    ):
        arguments = training("census.csv", "--class-weight", weight, "--out", weight, "--no-intervals", epsilon=0.4)
        told = run(trained, *arguments, "--dry-run")
        assert f"the rest prepares and trains it; {name} move its intercept, for nothing" in told.stdout
        assert "cost:    epsilon 0.4 at delta 1e-06" in told.stdout
        assert run(trained, *arguments).returncode == 0
        assert predicted_yes(trained, weight) > predicted_yes(trained, "model") + 0.1
        for file in where:
            assert name in (trained / weight / file).read_text(encoding="utf-8")
        assert load_model(trained / weight)[-1].class_weight == ({"yes": 9} if weight == "yes=9" else "balanced")
    certificate = result(trained, "ledger", "certificate", "--dataset", "census.csv")
    assert any("how the class weights (yes=9), which move the intercept" in one for one in certificate["uncovered"])


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (["yes"], "expected --class-weight balanced, or a class and a number such as yes=9"),
        (["yes=nine"], "expected --class-weight balanced, or a class and a number such as yes=9"),
        (["yes=2", "yes=3"], "each class once"),
        (["balanced", "yes=3"], "expected --class-weight balanced, or"),
        (["maybe=2"], "expected class_weight for 'no', 'yes', got 'maybe'. Write a class as in the schema."),
        (["yes=-2"], "class_weight must be a finite number above 0"),
    ],
    ids=" ".join,
)
def test_wrong_class_weights_are_refused_before_payment(census, given, hint):
    weights = [part for one in given for part in ("--class-weight", one)]
    assert hint in refusal(census, 2, *training("census.csv", *weights))
    assert payments(census) == 0


def test_classes_that_were_read_from_the_data_are_not_quoted(tmp_path):
    kinds = ["healthy", "ill"] * 150 + ["a rare one"]
    pd.DataFrame({"x": np.random.default_rng(0).normal(size=301), "kind": kinds}).to_csv(
        tmp_path / "people.csv", index=False
    )
    said = refusal(tmp_path, 2, "train", "people.csv", "--target", "kind", "--epsilon", 1, "--class-weight", "sick=9")
    assert "expected class_weight for classes of the target, got 'sick'" in said
    assert "rare" not in said


def test_class_weights_are_refused_for_a_number(census):
    arguments = ["train", "census.csv", "--target", "age", "--epsilon", 1, "--class-weight", "balanced"]
    said = refusal(census, 2, *arguments)
    assert "expected class_weight with a target of classes only; the target 'age' has a range. Leave it out." in said


def test_a_model_from_a_folder_has_the_coefficients_of_its_report(trained):
    model = load_model(trained / "model")[-1]
    frame = model.coefficients()
    pipeline, about, _ = load_run(trained / "model")
    reported = coefficients_of(pipeline, about["half_widths"])
    assert frame.name.tolist() == [one.name for one in reported]
    for column in ("value", "low", "high"):
        assert frame[column].tolist() == [getattr(one, column) for one in reported]
    assert model.coefficients(intervals=False).low.isna().all()


def test_an_exact_measurement_names_the_deciles_that_it_stores(trained):
    found = result(trained, "evaluate", "model", "census.csv", "--dataset", "census.csv")
    assert any(one["kind"] == "calibration" for one in found["estimates"])
    certificate = result(trained, "ledger", "certificate", "--dataset", "census.csv")
    words = "the quality of a model on the records of census.csv, the deciles of its scores, and how many are left out"
    assert any(words in one for one in certificate["uncovered"])


def test_a_model_without_a_schema_is_not_for_files(trained):
    X = np.random.default_rng(0).standard_normal((300, 1))
    model = PrivateLogisticRegression(1.0, classes=[0, 1], random_state=0)
    save_model(make_pipeline(BoundedScaler(-3, 3), model).fit(X, X[:, 0] > 0), trained / "arrays")
    assert "expected a model with a schema" in refusal(trained, 2, "predict", "arrays", "new.csv")


SHARE = r"\d+\.\d %"
BETWEEN = rf"{SHARE} \({SHARE} to {SHARE}\)"
PLAIN = r"-?[\d.]+ \(-?[\d.]+ to -?[\d.]+\)"


def test_unbalanced_classes_are_measured_by_the_auc_too(trained):
    done = run(trained, "evaluate", "model", "new.csv", "--public")
    first, no, yes, *_ = done.stdout.splitlines()
    figures = rf"accuracy {BETWEEN}, AUC {PLAIN} on new\.csv \(500 records\), public records"
    assert re.fullmatch(rf"{figures}; always the most frequent class: {BETWEEN}", first), first
    for name, line in (("no", no), ("yes", yes)):
        assert re.fullmatch(rf"  '{name}': share {BETWEEN}, recall {BETWEEN}, precision {BETWEEN}", line), line
    paid = result(trained, "evaluate", "model", "new.csv", "--epsilon", 4, "--dataset", "new")
    assert {one["kind"] for one in paid["estimates"]} >= {"AUC", "recall", "precision", "share", "calibration"}
    assert paid["budget"]["spent_epsilon"] <= 4
    page = (trained / "model" / "report.html").read_text(encoding="utf-8")
    assert all(part in page for part in ("Confusion matrix", "plot-calibration-1", "plot-classes-2"))


def test_a_regression_is_measured_against_the_median_and_stays_in_its_range(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=20_000)
    pd.DataFrame({"x": x, "stay": np.clip(4 + x + rng.laplace(scale=1.5, size=20_000), 0, 54)}).to_csv(
        tmp_path / "stays.csv"
    )
    (tmp_path / "stays.toml").write_text('[target]\ncolumn = "stay"\nrange = [0, 54]\n\n[columns.x]\nrange = [-4, 4]\n')
    arguments = ["--target", "stay", "--schema", "stays.toml", "--epsilon", 4, "--out", "model"]
    done = run(tmp_path, "train", "stays.csv", *arguments)
    assert done.returncode == 0, done.stderr
    worth = next(line for line in done.stdout.splitlines() if line.startswith("worth:"))
    figures = rf"worth:   mean absolute error ({PLAIN}), R\u00b2 ({PLAIN}|too noisy to report) on .*, paid for"
    clipped = (
        r"errors, and distances from the median, above (?P<limit>\S+) count as (?P=limit): at most \S+ % of the records"
    )
    found = re.fullmatch(rf"{figures}; always the median: ({PLAIN}); {clipped}", worth)
    assert found, worth
    # The declared range is thirty times the errors.
    low, high = map(float, re.search(r"\((.*) to (.*)\)", found[1]).groups())
    assert low < 1.8
    assert high > 1.2
    assert high - low < 1
    pd.DataFrame({"x": [-1e9, 0.0, 1e9]}).to_csv(tmp_path / "new.csv")
    predicted = run(tmp_path, "predict", "model", "new.csv").stdout.split()[1:]
    assert all(0 <= float(value) <= 54 for value in predicted)


def test_the_report_of_the_demo_compares_with_training_without_privacy(tmp_path):
    assert run(tmp_path, "demo", "--rows", 5_000).returncode == 0
    page = (tmp_path / "demo" / "model" / "report.html").read_text(encoding="utf-8")
    assert "The same model, trained without privacy: 8" in page
    assert "the private one may look better on these people, and worse on others" in page


def test_the_demo_can_be_put_in_the_registry_and_priced_by_others(tmp_path):
    assert run(tmp_path, "demo", "--rows", 5_000).returncode == 0
    issue = ["ledger", "certificate", "--ledger", f"demo/{LEDGER}", "--dataset", "census.csv", "--format"]
    written = run(tmp_path, *issue, "registry").stdout
    entry = read_entry(written)["deployment"]
    assert NOT_STATED not in written
    assert entry["administrative"]["tier"] == 3
    assert "GradientAt: Gaussian mechanism" in entry["implementation"]["mechanisms"]
    assert "sensitivity not recorded" not in written
    found = priced(json.loads(run(tmp_path, *issue, "events").stdout), pld.PLDAccountant)
    recorded = json.loads(run(tmp_path, *issue, "json").stdout)["guarantee"]["add-remove"]["recorded_epsilon"]
    assert found == pytest.approx(recorded, rel=2e-3)
    assert "What people stated" in (tmp_path / "demo" / "model" / "report.html").read_text(encoding="utf-8")
    certificate = ["ledger", "verify", "--ledger", f"demo/{LEDGER}", "--certificate", "demo/model/certificate.json"]
    assert run(tmp_path, *certificate).returncode == 0


def test_the_demo_ends_with_three_lines_and_can_be_run_again(tmp_path):
    for _ in range(2):
        done = run(tmp_path, "demo", "--rows", 5_000)
        assert done.returncode == 0, done.stderr
    worth, spent, report = done.stdout.strip().splitlines()
    assert all(word in worth for word in ("private", "not private", "majority"))
    assert spent == "spent: epsilon 1 of 1 at delta 1e-06"
    assert (tmp_path / report.removeprefix("report: ")).exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("work")
    assert "other files" in refusal(tmp_path, 2, "demo", "--out", "mine")


def test_parquet_files_are_trained_on_and_predicted_too(census):
    pd.DataFrame(make_census(3_000, 1).columns).to_parquet(census / "census.parquet")
    found = result(census, *training("census.parquet", "--no-intervals"))
    assert found["private"]
    assert result(census, "predict", "model", "census.parquet", "--out", "p.csv")["rows"] == 3_000
    text = run(census, "predict", "model", "census.csv").stdout.splitlines()
    assert text[0] == (census / "p.csv").read_text().splitlines()[0]


ILL = '[target]\ncolumn = "ill"\nclasses = ["no", "yes"]\n\n[columns.x]\nrange = [0, 1]\n'


def test_a_class_that_is_never_predicted_gets_a_hint(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 20_000)
    pd.DataFrame({"x": x, "ill": np.where(rng.random(20_000) < 0.12 * x, "yes", "no")}).to_csv(tmp_path / "people.csv")
    (tmp_path / "people.toml").write_text(ILL, encoding="utf-8")
    given = ["train", "people.csv", "--target", "ill", "--schema", "people.toml", "--epsilon", 4, "--no-intervals"]
    told = run(tmp_path, *given, "--budget", 10)
    assert told.returncode == 0, told.stderr
    assert "hardly ever answers 'yes'. `--class-weight balanced` moves the threshold" in told.stderr
    weighed = run(tmp_path, *given, "--class-weight", "balanced", "--out", "weighed")
    assert "hardly ever" not in weighed.stderr


def test_a_handful_of_records_is_said_to_be_too_few(tmp_path):
    pd.DataFrame({"x": [0.5] * 30, "ill": ["no", "yes"] * 15}).to_csv(tmp_path / "people.csv")
    (tmp_path / "people.toml").write_text(ILL, encoding="utf-8")
    told = run(tmp_path, "train", "people.csv", "--target", "ill", "--schema", "people.toml", "--epsilon", 1)
    assert told.returncode == 0, told.stderr
    assert "a model of some use needs a few thousand" in told.stderr
