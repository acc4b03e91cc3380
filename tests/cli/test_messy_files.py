"""A messy table, from its draft to a model: what is said on the way, word for word where it matters."""

import datetime
import json
import random
import zipfile

import pytest

from tests.cli.commands import payments, refusal, result, run

SECRET = "Xanthippe-4711"
HEADER = "patient_id;admitted;bmi;cost;age;visits;ward;note;readmitted"
SIGNS = str.maketrans(",.", ".,")


def patients(rows, seed=0):
    """Dates, decimal commas, thousands, a rare category, and line breaks inside quotes."""
    rng, lines = random.Random(seed), []
    for index in range(rows):
        day = datetime.date(2019, 1, 1) + datetime.timedelta(days=rng.randrange(1_800))
        age, bmi, cost = rng.randrange(18, 95), rng.gauss(26, 4), rng.lognormvariate(8, 1)
        ward = "rheumatology" if index % 997 == 0 else rng.choice(["surgery", "medicine"])
        note = f'"called;\n{SECRET}"' if index % 50 == 7 else "seen"
        answer = "yes" if rng.random() < (0.8 if age > 60 else 0.2) else "no"
        cells = [
            10_000 + index,
            f"{day:%d.%m.%Y}",
            f"{bmi:.1f}".replace(".", ","),
            f"{cost:,.2f}".translate(SIGNS),
            age,
        ]
        lines.append(";".join(map(str, [*cells, rng.randrange(1, 8), ward, note, answer])))
    return lines


@pytest.fixture
def messy(tmp_path):
    (tmp_path / "patients.csv").write_text("\n".join([HEADER, *patients(4_000)]) + "\n", encoding="utf-8")
    return tmp_path


def test_a_draft_says_what_it_took_each_column_for_and_what_to_check(messy):
    done = run(messy, "schema", "patients.csv", "--target", "readmitted", "--out", "patients.toml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "readmitted  classes     few different values",
        "patient_id  left out    almost every record has a number of its own, as an identifier does",
        "admitted    dates       its values are dates, as %d.%m.%Y",
        "bmi         numbers     its values are numbers, with a comma for decimals",
        "cost        numbers     its values are numbers, with a comma for decimals, thousands separated by a point",
        "age         numbers     its values are numbers",
        "visits      categories  few different whole numbers, as codes are",
        "ward        categories  few different values",
        "note        left out    all records have one value",
        "draft: patients.toml",
    ]
    quantity = "numbers became a list of categories. If they are a quantity, write a range instead."
    assert f"column 'visits', taken for categories: {quantity}" in done.stderr
    assert "column 'ward', taken for categories: some listed values are rare" in done.stderr
    assert "160 of 4,080 lines cannot be read by themselves" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    text = (messy / "patients.toml").read_text()
    assert 'dates = [2019-01-01, 2023-12-31]\nformat = "%d.%m.%Y"' in text
    assert "# CHECK: numbers became a list" in text
    columns = result(messy, "schema", "patients.csv", "--target", "readmitted")["columns"]
    assert columns["bmi"] == {
        "taken_for": "numbers", "why": "its values are numbers, with a comma for decimals", "warning": ""
    }  # fmt: skip


def test_a_check_says_what_a_training_would_leave_out_and_a_declared_share_decides(messy):
    run(messy, "schema", "patients.csv", "--target", "readmitted", "--out", "patients.toml")
    text = (messy / "patients.toml").read_text().replace('classes = ["no", "yes"]', 'classes = ["No", "yes"]')
    (messy / "odd.toml").write_text(text)
    done = run(messy, "schema", "patients.csv", "--check", "odd.toml")
    found = result(messy, "schema", "patients.csv", "--check", "odd.toml")
    unused = found["without_target"]
    assert (found["lines"], found["used"]) == (4_080, 3_920 - unused)
    assert 1_000 < unused < 3_000
    assert (
        f"train would use {3_920 - unused:,} of 4,080 lines; left out: 80 with a quotation mark that is not closed, 80 with "
        f"too many or too few fields, {unused:,} whose target is missing, or on no list of the schema"
    ) in done.stdout
    assert "exact figures of private records, not covered by any guarantee" in done.stderr
    assert "no record has the target 'No'. Is it spelt as in patients.csv?" in done.stderr
    assert found["classes_without_records"] == ["No"]
    assert "may refuse" not in done.stderr
    assert not found["too_many_unreadable"]
    assert not (messy / "privypurse-ledger.db").exists()

    strict = "unreadable = 0.01\n" + (messy / "patients.toml").read_text()
    (messy / "strict.toml").write_text(strict)
    done = run(messy, "schema", "patients.csv", "--check", "strict.toml")
    assert "train may refuse this file: more of its lines cannot be read than 1.0 % (unreadable = 0.01" in done.stderr
    arguments = ["train", "patients.csv", "--target", "readmitted", "--epsilon", 8, "--no-intervals", "--budget", 20]
    message = refusal(messy, 6, *arguments, "--schema", "strict.toml")
    assert "more than 1.0 % of 'patients.csv', which is what the schema allows (unreadable)" in message
    assert payments(messy) == 1
    assert result(messy, *arguments, "--schema", "patients.toml")["left_out"][0]["low"] > 0


def test_json_lines_are_trained_on_and_predicted_and_never_quoted(tmp_path):
    rng = random.Random(1)
    records = [
        {"name": SECRET, "age": age, "day": f"2020-{index % 12 + 1:02d}-03", "rich": "yes" if age > 50 else "no"}
        for index, age in enumerate(rng.randrange(18, 90) for _ in range(3_000))
    ]
    (tmp_path / "people.jsonl").write_text("\n".join([*map(json.dumps, records), f"{SECRET} {{", ""]))
    (tmp_path / "people.toml").write_text(
        '[target]\ncolumn = "rich"\nclasses = ["no", "yes"]\n[columns.age]\nrange = [18, 90]\n'
        '[columns.day]\ndates = [2020-01-01, 2020-12-31]\nparts = ["month", "weekday"]\n'
    )
    training = ["train", "people.jsonl", "--epsilon", 1, "--schema", "people.toml", "--target"]
    done = run(tmp_path, *training, "rich", "--budget", 3)
    assert done.returncode == 0, done.stderr
    wrong = (tmp_path / "people.toml").read_text().replace("[columns.age]", "[columns.years]")
    (tmp_path / "wrong.toml").write_text(wrong)
    training[5] = "wrong.toml"
    message = refusal(tmp_path, 2, *training, "rich", "--out", "other")
    assert "none of the first records of 'people.jsonl' has 'years'. Check the name, in the schema too." in message
    refused = run(tmp_path, "predict", "model", "people.jsonl", "--out", "p.csv")
    assert refused.returncode == 2
    assert "Write each record as one object on one line" in refused.stderr
    (tmp_path / "new.jsonl").write_text("\n".join(map(json.dumps, records[:20])))
    assert result(tmp_path, "predict", "model", "new.jsonl", "--keep", "age", "--out", "p.csv")["rows"] == 20
    assert (tmp_path / "p.csv").read_text().splitlines()[1].startswith(f"{records[0]['age']},")
    drafted = run(tmp_path, "schema", "people.jsonl", "--target", "income")
    assert "no record of 'people.jsonl' has 'income'" in drafted.stderr
    assert SECRET not in "".join(one.stdout + one.stderr for one in (done, refused, drafted)) + message


def test_files_that_are_not_read_are_refused_by_name_with_a_command(tmp_path):
    with zipfile.ZipFile(tmp_path / "people.xlsx", "w") as book:
        book.writestr("xl/workbook.xml", SECRET)
    (tmp_path / "people.json").write_text(json.dumps([{"name": SECRET}]))
    (tmp_path / "people.dta").write_bytes(bytes(range(256)) + SECRET.encode())
    sheet = (
        "is a spreadsheet. Save it as CSV in UTF-8, or convert its first sheet (after pip install openpyxl): `python"
    )
    said = {
        "people.xlsx": f"file 'people.xlsx' {sheet} -c ",
        "people.json": "file 'people.json' is one JSON document. Write its records line by line: `python -c ",
        "people.dta": "file 'people.dta' is a binary file of an unknown kind. Save it as CSV in UTF-8, or as Parquet.",
    }
    for name, expected in said.items():
        message = refusal(tmp_path, 2, "schema", name)
        assert message.startswith(expected)
        assert SECRET not in message


def test_a_check_names_columns_whose_values_are_mostly_not_as_described(tmp_path):
    lines = "".join(f"{day}/02/2024,{day % 2}\n" for day in range(13, 29)) * 10
    (tmp_path / "stays.csv").write_text(f"came,late\n{lines}")
    (tmp_path / "stays.toml").write_text(
        '[target]\ncolumn = "late"\nclasses = ["0", "1"]\n\n[columns.came]\ndates = [2024-01-01, 2024-12-31]\n'
        'format = "%m/%d/%Y"\n'
    )
    done = run(tmp_path, "schema", "stays.csv", "--check", "stays.toml")
    assert done.returncode == 0, done.stderr
    assert "most values of 'came' are not as the schema describes. Check its list, range, date format" in done.stderr


def test_declared_words_are_missing_in_a_check_in_training_and_in_predictions(tmp_path):
    rng = random.Random(2)
    cells = ["n/a" if index % 33 == 0 else f"{rng.randrange(100)} %" for index in range(2_000)]
    lines = [f"{cell},{'yes' if cell > '5' else 'no'}" for cell in cells]
    (tmp_path / "a.csv").write_text("\n".join(["share,late", *lines]) + "\n")
    run(tmp_path, "schema", "a.csv", "--target", "late", "--out", "a.toml")
    assert '# numbers: its values are numbers, with the unit %; cells that read \'n/a\' are' in (
        text := (tmp_path / "a.toml").read_text()
    )  # fmt: skip
    assert 'unit = "%"\nmissing = ["n/a"]' in text
    counts = result(tmp_path, "schema", "a.csv", "--check", "a.toml")["columns"][0]
    assert counts == {"column": "share", "rows": 2_000, "unknown": 0, "missing": 61, "beyond": 0}
    training = ["--schema", "a.toml", "--epsilon", 1, "--budget", 3, "--no-intervals"]
    result(tmp_path, "train", "a.csv", "--target", "late", *training)
    (tmp_path / "new.csv").write_text('share\nn/a\n""\n7 %\n7\nNULL\n')
    told = result(tmp_path, "predict", "model", "new.csv", "--out", "p.csv")
    assert (told["missing"], told["unknown"]) == ({"share": 3}, {})
    missing, empty, percent, plain, null = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert missing == empty == null
    assert percent == plain != missing
