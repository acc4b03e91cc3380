"""The pages of the full runs, as they are committed: complete, dated, with the numbers that were
promised.
"""

import csv
import pathlib
import re

import matplotlib
import pytest

from privypurse_lab.papers import prepared_data, reproduce
from privypurse_lab.papers.catalogue import NAMES, paper_named
from privypurse_lab.papers.cells import Results
from privypurse_lab.papers.items import RANKING_WORDS, REACHED_WORDS, Settings

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "reproduction"
VERDICT = r"\*\*Reached: (?P<reached>.+?)\. Ranking: (?P<ranking>.+?)\.\*\* (?P<why>.+)"
ITEMS = [(name, item) for name in NAMES for item in paper_named(name).items]
FULL = Settings(False, 0, {})


def rows(name):
    with (FOLDER / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def section(paper, item):
    text = (FOLDER / f"{paper}.md").read_text(encoding="utf-8")
    return next(part for part in text.split("\n## ") if part.startswith(f"{item.kind.capitalize()} {item.number}:"))


@pytest.mark.parametrize(("paper", "item"), ITEMS, ids=[f"{paper}-{item.name}" for paper, item in ITEMS])
def test_every_item_has_a_verdict_its_command_seed_and_date_and_files(paper, item):
    said = section(paper, item)
    verdict = re.search(VERDICT, said)
    assert verdict["reached"] in REACHED_WORDS
    assert verdict["ranking"] in RANKING_WORDS
    assert any(character.isdigit() for character in verdict["why"])  # it rests on numbers
    assert re.search(
        rf"`privypurse reproduce {paper} --{item.kind} {item.number}`, seed 0(, \d{{4}}-\d\d-\d\d)?\.", said
    )
    for ending in ("png", "svg", "csv"):
        assert (FOLDER / f"{paper}-{item.name}.{ending}").stat().st_size > 500
        assert f"({paper}-{item.name}.{ending})" in said


@pytest.mark.parametrize("paper", NAMES)
def test_pages_say_what_is_missing_and_are_of_full_runs(paper):
    text = (FOLDER / f"{paper}.md").read_text(encoding="utf-8")
    assert "IPUMS-US is not available" in text
    assert "quick" not in text
    assert "not run |" not in text


@pytest.fixture(scope="module")
def made_again(tmp_path_factory):
    """Make all pages of the kept results."""
    missing = {name for _, item in ITEMS for name in (*item.needs, *item.wants) if not prepared_data.is_here(name)}
    if missing:
        pytest.skip(f"{', '.join(sorted(missing))} is not here: set PRIVYPURSE_DATA")
    folder = tmp_path_factory.mktemp("pages")
    (folder / "cells.jsonl.xz").write_bytes((FOLDER / "cells.jsonl.xz").read_bytes())
    kept = Results(folder / ".cells.jsonl")
    assert not [cell.arguments for _, item in ITEMS for cell in item.cells(FULL) if cell not in kept]
    reproduce("all", output=folder, workers=1)
    return folder


@pytest.mark.parametrize("paper", NAMES)
def test_pages_and_numbers_are_made_again_byte_for_byte(made_again, paper):
    committed = sorted(FOLDER.glob(f"{paper}*"))
    assert [path.name for path in sorted(made_again.glob(f"{paper}*"))] == [path.name for path in committed]
    drawn_by_this = f"Matplotlib v{matplotlib.__version__}," in (FOLDER / f"{paper}-verdicts.svg").read_text()
    compared = (".md", ".csv", ".png", ".svg") if drawn_by_this else (".md", ".csv")  # releases draw differently
    for path in committed:
        if path.suffix in compared:
            assert (made_again / path.name).read_bytes() == path.read_bytes(), path.name


def test_no_number_claims_to_be_of_a_data_set_that_is_not_here():
    for path in FOLDER.glob("*.csv"):
        assert "ipums-us" not in path.read_text(encoding="utf-8").lower()


def test_dp_agd_as_published_is_within_half_a_point_of_its_published_accuracy():
    (row,) = [
        row
        for row in rows("dp-agd-figure-2")
        if (row["data"], row["method"], float(row["epsilon"])) == ("adult", "DP-AGD, as published", 0.05)
    ]
    assert row["private"] == "NOT PRIVATE"
    assert int(row["fits"]) == 25
    assert float(row["accuracy"]) == pytest.approx(79.00, abs=0.5)


def test_the_claim_of_pur_is_checked_on_each_data_set_with_intervals():
    said = "".join(section("pur", item) for paper, item in ITEMS if paper == "pur")
    for data in ("Synthetic", "MNIST", "Iris", "Breast cancer", "KDD Cup '99"):
        for ridge in ("0", "0.1"):
            checked = [line for line in said.splitlines() if line.startswith(f"| {data}, {ridge}, ")]
            assert len(checked) >= 4
            assert all(re.search(r"[+-]\d+\.\d+ to [+-]\d+\.\d+ \|", line) for line in checked)


@pytest.mark.parametrize(
    "name", [f"{paper}-{item.name}" for paper, item in ITEMS if paper in ("dp-agd", "adp-sgd", "summary")]
)
def test_what_is_not_private_says_so_in_every_row(name):
    stamps = {(row.get("method") or row.get("version") or row.get("line")): row["private"] for row in rows(name)}
    for who, stamp in stamps.items():
        assert (stamp == "NOT PRIVATE") == any(
            word in who.lower() for word in ("published", "printed", "non-private", "no privacy")
        )


def test_the_readme_leads_to_the_summary():
    assert "](docs/reproduction/summary.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
