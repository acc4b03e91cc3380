"""Files that are not as they should be: a clear message, no payment, and no value of a record in
it.
"""

import csv
import pathlib

import pytest

from tests.cli.commands import TARGET, leftovers, payments, refusal, result, run, training

SECRET = "Xanthippe-4711"


def rows_of(folder: pathlib.Path, name: str = "census.csv") -> list[list[str]]:
    """Read a CSV file."""
    with (folder / name).open(newline="") as file:
        return list(csv.reader(file))


def write(folder: pathlib.Path, rows: list[list[str]], name: str = "odd.csv", delimiter: str = ",") -> None:
    """Write one."""
    with (folder / name).open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)


def plant(rows: list[list[str]]) -> list[list[str]]:
    """Put a secret into every text of the first record."""
    region = rows[0].index("region")
    return [rows[0], [SECRET if index == region else value for index, value in enumerate(rows[1])], *rows[2:]]


def other_delimiter(folder):
    write(folder, plant(rows_of(folder)), delimiter=";")
    return ["--delimiter", ","]


def no_target(folder):
    write(folder, [row[:-1] for row in plant(rows_of(folder))])
    return []


def header_only(folder):
    write(folder, rows_of(folder)[:1])
    return []


def empty(folder):
    (folder / "odd.csv").write_text("")
    return []


def all_ragged(folder):
    header, *rows = plant(rows_of(folder))
    write(folder, [header, *(row[:5] for row in rows)])
    return []


def secret_classes(folder):
    header, *rows = rows_of(folder)
    write(folder, [header, *([*row[:-1], SECRET] for row in rows)])
    return []


def secret_numbers(folder):
    header, *rows = rows_of(folder)
    write(folder, [header, *([SECRET, *row[1:]] for row in rows)])
    return []


def not_utf8(folder):
    text = (folder / "census.csv").read_text().replace("male", f"{SECRET}é")
    (folder / "odd.csv").write_bytes(text.encode("latin-1"))
    return []


def not_text(folder):
    (folder / "odd.csv").write_bytes(bytes(range(256)) * 64)
    return []


def cut_off_gzip(folder):
    import gzip

    whole = gzip.compress((folder / "census.csv").read_bytes())
    (folder / "odd.csv").write_bytes(whole[: len(whole) // 2])
    return []


@pytest.mark.parametrize(
    ("spoil", "code", "hint"),
    [
        (other_delimiter, 2, "--delimiter"),
        (no_target, 2, TARGET),
        (header_only, 2, "no rows"),
        pytest.param(empty, 2, "empty", marks=pytest.mark.slow),
        (all_ragged, 2, "delimiter"),
        (secret_classes, 2, "does not match the schema"),
        pytest.param(secret_numbers, 2, "'age'", marks=pytest.mark.slow),
        (not_utf8, 2, "--encoding"),
        pytest.param(not_text, 2, "odd.csv", marks=pytest.mark.slow),
        (cut_off_gzip, 5, "truncated"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_file_that_cannot_be_used_is_refused_before_payment_without_quoting_it(spoil, code, hint, census):
    more = spoil(census)
    done = run(census, *training("odd.csv", *more, "--json"))
    assert done.returncode == code, done.stderr
    assert hint in done.stdout
    assert hint in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert payments(census) == 0
    assert not (census / "model").exists()
    assert not leftovers(census)


def test_misspelt_categories_in_the_schema_are_noticed_before_payment(census):
    described = (census / "census.toml").read_text()
    for right, wrong in (("female", "femal"), ("male", "mal")):
        described = described.replace(f'"{right}"', f'"{wrong}"')
    (census / "census.toml").write_text(described)
    message = refusal(census, 2, *training("census.csv"))
    assert "'sex'" in message
    assert "none of its first values is on its list" in message
    assert payments(census) == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range = [17, 90]", "range = [90, 17]"),
        pytest.param("[columns.age]", "[columns.ages]", marks=pytest.mark.slow),
        pytest.param("[target]", "[target", marks=pytest.mark.slow),
    ],
    ids=["range", "name", "toml"],
)
def test_a_schema_that_makes_no_sense_is_refused(old, new, census):
    described = (census / "census.toml").read_text()
    assert old in described
    (census / "census.toml").write_text(described.replace(old, new))
    refusal(census, 2, *training("census.csv"))
    assert payments(census) == 0


@pytest.mark.slow
def test_a_few_ragged_lines_are_left_out_of_a_training(census):
    header, *rows = rows_of(census)
    write(census, [header, rows[0][:4], *rows, [*rows[1], "one too many"]])
    done = run(census, *training("odd.csv", "--no-intervals"))
    assert done.returncode == 0, done.stderr
    assert "one too many" not in done.stdout + done.stderr


def test_unseen_categories_are_told_and_rows_stay_in_step(trained):
    header, *rows = rows_of(trained, "new.csv")
    region = header.index("region")
    odd = [
        [SECRET if index % 2 and place == region else value for place, value in enumerate(row)]
        for index, row in enumerate(rows)
    ]
    write(trained, [header, *odd])
    done = run(trained, "predict", "model", "odd.csv", "--out", "answers.csv")
    assert done.returncode == 0
    assert "column 'region': 250 of 500 values" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    plain = result(trained, "predict", "model", "new.csv")
    assert plain["unknown"] == {}
    answers = [row[0] for row in rows_of(trained, "answers.csv")[1:]]
    assert len(answers) == 500
    assert answers[::2] == plain["predictions"][::2], "those that were not changed"


def test_ragged_lines_in_new_records_are_refused_so_that_rows_stay_in_step(trained):
    rows = rows_of(trained, "new.csv")
    rows[7] = [SECRET, *rows[7]]
    write(trained, rows)
    done = run(trained, "predict", "model", "odd.csv", "--out", "answers.csv")
    assert done.returncode == 2
    assert "too many or too few fields" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert not (trained / "answers.csv").exists()
    assert not leftovers(trained)


def test_other_delimiters_are_read_off_the_header(census):
    write(census, rows_of(census), delimiter=";")
    drafted = result(census, "schema", "odd.csv", "--target", TARGET)
    assert "[columns.age]" in drafted["schema"]


def test_blank_lines_of_a_file_to_predict_are_counted_and_said(trained):
    header, *lines = (trained / "new.csv").read_text(encoding="utf-8").splitlines()
    for end, name in (("\n", "odd.csv"), ("\r\n", "odd2.csv")):
        (trained / name).write_bytes(end.join([header, "", *lines[:9], "", "", *lines[9:20], ""]).encode())
        done = run(trained, "predict", "model", name, "--out", f"p-{name}")
        assert done.returncode == 0
        assert f"{name} has 3 blank lines, without a prediction" in done.stderr
    found = result(trained, "predict", "model", "odd.csv")
    assert (found["rows"], found["blank_lines"]) == (20, 3)
    assert "blank" not in run(trained, "predict", "model", "new.csv", "--out", "p.csv").stderr
