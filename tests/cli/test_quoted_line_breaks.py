"""A file with line breaks inside quotes, from the first refusal to predictions, as a person would
go about it.
"""

from tests.cli.commands import payments, refusal, result, run, training
from tests.cli.conftest import write_census
from tests.runs.quoted import write_quoted


def test_a_file_with_quoted_line_breaks_is_refused_converted_and_used_whole(tmp_path):
    write_census(tmp_path, 10)
    write_quoted(tmp_path / "people.csv", 20_000, 4_007)
    write_quoted(tmp_path / "new.csv", 3_000, 645, seed=3)
    drafted = run(tmp_path, "schema", "people.csv", "--target", "high_income", "--out", "draft.toml")
    assert "8,014 of 24,007 lines cannot be read by themselves: 4,007 with a quotation mark" in drafted.stderr
    checked = result(tmp_path, "schema", "people.csv", "--check", "census.toml")
    assert sum(checked["lines_left_out"].values()) == 8_014

    message = refusal(tmp_path, 6, *training("people.csv", "--no-intervals", "--budget", 2))
    assert "data convert people.csv" in message
    assert "could not be read by themselves" in message
    assert payments(tmp_path) == 1

    for name, records, odd in (("people", 20_000, 4_007), ("new", 3_000, 645)):
        converted = result(tmp_path, "data", "convert", f"{name}.csv", f"{name}.parquet")
        assert (converted["records"], converted["with_line_breaks"]) == (records, odd)
    assert "exists already" in refusal(tmp_path, 2, "data", "convert", "new.csv", "new.parquet")

    # The same records have one budget.
    assert "by default --dataset 'people.csv'" in refusal(tmp_path, 2, *training("people.parquet", "--no-intervals"))
    trained = result(tmp_path, *training("people.parquet", "--no-intervals", "--dataset", "people.csv"))
    assert [one["why"] for one in trained["left_out"]] == ["have no target of the schema"]
    assert any("data convert" in item for item in trained["uncovered"])

    lost = run(tmp_path, "evaluate", "model", "new.csv", "--public")
    assert "1,290 of 3,645 lines cannot be read by themselves" in lost.stderr
    assert "(3,000 records)" in run(tmp_path, "evaluate", "model", "new.parquet", "--public").stdout
    assert "data convert new.csv" in refusal(tmp_path, 2, "predict", "model", "new.csv", "--out", "p.csv")
    assert result(tmp_path, "predict", "model", "new.parquet", "--out", "p.csv")["rows"] == 3_000


def test_what_is_left_out_is_said_before_the_training(tmp_path):
    write_census(tmp_path, 10)
    write_quoted(tmp_path / "people.csv", 20_000, 400)
    done = run(tmp_path, *training("people.csv", "--no-intervals"))
    assert done.returncode == 0, done.stderr
    said = done.stderr.index("could not be read by themselves and are left out")
    assert said < done.stderr.index("training ...")
    assert "data convert" in done.stderr[said:]
