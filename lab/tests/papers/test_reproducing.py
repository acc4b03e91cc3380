"""The whole job on a toy paper: what is refused, what is written, and that the same seed gives the
same files.
"""

import csv
import dataclasses
import json
import pathlib
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from privypurse.core._errors import DataUnavailable, FileUnusable, InvalidArgument
from privypurse.core._version import __version__
from privypurse_lab.papers import drawing, prepared_data, reproducing
from privypurse_lab.papers.catalogue import NAMES, paper_named
from privypurse_lab.papers.cells import Cell
from privypurse_lab.papers.items import (
    AS_IN_PAPER,
    NONE_CLAIMED,
    NOT_PRIVATE,
    NOT_REACHED,
    RANKING_WORDS,
    REACHED,
    REACHED_WORDS,
    Finished,
    Item,
    Paper,
    Sheet,
    Short,
    Verdict,
    ranking_word,
    reached_word,
)
from privypurse_lab.papers.reproducing import reproduce

# The third field of Finished, whatever it is called.
PICTURE = dataclasses.fields(Finished)[2].name


def draw_number(seed: int, steps: int, folder: str = "", entry: object = None) -> dict:
    """Return random numbers, and leave a mark."""
    if folder:
        with (pathlib.Path(folder) / "ran").open("a") as marks:
            marks.write(f"{seed} {steps}\n")
    values = np.random.default_rng([seed, steps]).standard_normal(steps)
    return {"values": values.tolist() if entry is None else list(entry(steps))}


def toy_item(kind: str, number: str, folder: str = "", needs=(), word: str = REACHED) -> Item:
    def cells(settings):
        steps = 3 if settings.quick else 5
        shared = {"steps": steps, "folder": folder}
        own = [Cell(draw_number, {**shared, "seed": settings.seed + k}) for k in range(2)]
        also = [Cell(draw_number, {**shared, "seed": 0, "entry": entry}) for entry in settings.also.values()]
        return own + also

    def finish(settings, results):
        names = ["ours", "as published | here", *settings.also]
        rows = [
            {"method": name, "private": NOT_PRIVATE if "published" in name else "yes", "step": step, "value": value}
            for name, cell in zip(names, cells(settings), strict=True)
            for step, value in enumerate(results[cell]["values"])
        ]

        def picture(figure):
            axes = drawing.panels(figure, 1, 1)[0][0]
            for place, name in enumerate(names):
                private = "published" not in name
                values = [row["value"] for row in rows if row["method"] == name]
                axes.plot(values, label=drawing.label(name, private), **drawing.style(place, private))
            drawing.legend_below(figure, [axes])

        sheet = Sheet("Published and found:", ["", "value"], [[name, "1.25"] for name in names])
        why = f"The mean is {np.mean([row['value'] for row in rows]):.3f}."
        return Finished(
            rows=rows,
            verdict=Verdict(word, NONE_CLAIMED, why),
            sheets=[sheet],
            notes=["A note to read."],
            short=Short("toys play", "1.25", "1.26", "1.27"),
            **{PICTURE: picture},
        )

    return Item(
        kind=kind,
        number=number,
        title=f"toy {kind} {number}",
        published="The paper says 1.25.",
        cells=cells,
        finish=finish,
        needs=needs,
    )


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """Two toy papers; returns the folder to write to, beside which cells leave their marks."""
    one = Paper(
        name="toy",
        title="A toy paper",
        about="About toys.",
        items=(
            toy_item("figure", "1", str(tmp_path)),
            toy_item("table", "1", word=NOT_REACHED),
            toy_item("figure", "2", str(tmp_path)),  # of the same cells as figure 1
        ),
    )
    far = Paper(
        name="far",
        title="One that needs data",
        about="Far away.",
        items=(toy_item("figure", "1", needs=("adult", "bank")),),
    )
    mixed = Paper(name="mixed", title="Mixed", about="Both.", items=(far.items[0], one.items[1]))
    papers = {paper.name: paper for paper in (one, far, mixed)}
    monkeypatch.setattr(reproducing, "NAMES", ("toy", "mixed"))
    monkeypatch.setattr(reproducing, "paper_named", papers.__getitem__)
    return tmp_path / "out"


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    """A machine without data sets."""
    monkeypatch.setenv("PRIVYPURSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("PRIVYPURSE_CACHE", str(tmp_path / "cache"))
    prepared_data.table.cache_clear()
    yield
    prepared_data.table.cache_clear()


def flat(steps):
    return [1.0] * steps


# Refused before anything is run or written.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"paper": "toys"}, ["paper must be one of toy, mixed or all", "'toys'", "Pass"]),
        ({"paper": "toy", "figure": "9"}, ["toy has no figure 9", "--figure 1, --table 1, --figure 2"]),
        ({"paper": "toy", "table": "2"}, ["toy has no table 2", "--table 1"]),
        ({"paper": "toy", "figure": "1", "table": "1"}, ["figure and table", "'1' and '1'", "Leave one out"]),
        ({"paper": "all", "figure": "1"}, ["figure 1 needs a paper", "toy, mixed"]),
        ({"paper": "all", "table": "1"}, ["table 1 needs a paper"]),
        *(
            ({"seed": seed}, ["seed must be a whole number", repr(seed), "Pass"])
            for seed in (True, -1, 1.5, "0", 2**31)
        ),
        *(({"workers": workers}, ["workers must be a whole number", repr(workers)]) for workers in (0, -2, 1.5)),
        ({"also": {"": flat}}, ["also must name each entry", "''"]),
        ({"also": {3: flat}}, ["also must name each entry", "3"]),
        ({"also": {"mine": 7}}, ["also['mine'] cannot be compared", "7", "Pass a function"]),
        ({"also": {"mine": Paper}}, ["also['mine'] is the class Paper", "expected an instance"]),
        ({"also": {"mine": lambda steps: [1.0]}}, ["also['mine']", "weights(10) must return 10 numbers", "got 1"]),
        ({"also": {"mine": lambda steps: [-1.0] * steps}}, ["also['mine']", "positive", "-1.0"]),
        ({"also": {"mine": lambda steps: [float("nan")] * steps}}, ["also['mine']", "finite"]),
        ({"also": {"mine": lambda steps: 1 / 0}}, ["also['mine'](10) fails", "ZeroDivisionError", "Pass a function"]),
        ({"also": [flat]}, ["also must map names to entries", "Pass"]),
        ({"also": "mine.py:flat"}, ["also must map names to entries", "mine.py:flat"]),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_mistakes_are_named_before_anything_is_done(arguments, said, toy, tmp_path):
    with pytest.raises(InvalidArgument) as caught:
        reproduce(**{"paper": "toy", "output": toy, **arguments})
    for words in said:
        assert words in str(caught.value)
    assert not toy.exists()
    assert not (tmp_path / "ran").exists()


def test_a_figure_may_be_given_as_a_number(toy):
    [outcome] = reproduce("toy", figure=1, output=toy, workers=1)
    assert outcome.item == "figure-1"


def test_every_paper_of_the_catalogue_refuses_a_figure_it_does_not_have(tmp_path):
    for name in NAMES:
        with pytest.raises(InvalidArgument, match=f"{name} has no figure 77. It has: --"):
            reproduce(name, figure="77", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("first", [True, False])
def test_quick_and_full_runs_do_not_share_a_folder(first, toy):
    reproduce("toy", figure="1", output=toy, quick=first, workers=1)
    before = {path.name: path.read_bytes() for path in toy.iterdir()}
    have, want = ("quick", "full") if first else ("full", "quick")
    with pytest.raises(InvalidArgument, match=f"holds a {have} run, but this is a {want} one.*another folder"):
        reproduce("toy", figure="1", output=toy, quick=not first, workers=1)
    assert {path.name: path.read_bytes() for path in toy.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_named(toy, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileUnusable, match=r"output .*file.* cannot be written"):
        reproduce("toy", output=tmp_path / "file" / "out", workers=1)


# What is written.


def test_the_page_says_everything(toy):
    outcomes = reproduce("toy", output=toy, workers=1)
    assert [outcome.reached for outcome in outcomes] == [REACHED, NOT_REACHED, REACHED]
    page = (toy / "toy.md").read_text(encoding="utf-8")
    dates = {json.loads(line)["date"] for line in (toy / ".cells.jsonl").read_text().splitlines()}
    for words in (
        "# A toy paper",
        "About toys.",
        "## Figure 1: toy figure 1",
        "## Table 1: toy table 1",
        "**In the paper.** The paper says 1.25.",
        "**Reached: reached. Ranking: none claimed.** The mean is",
        "**Reached: not reached. Ranking: none claimed.** The mean is",
        "| Table 1: toy table 1 | toys play | 1.25 | 1.26 | 1.27 | not reached | none claimed |",
        "`privypurse reproduce toy`",
        "`privypurse reproduce toy --figure 1`, seed 0, ",
        "`privypurse reproduce toy --table 1`, seed 0, ",
        "![toy figure 1](toy-figure-1.png)",
        "[toy-figure-1.csv](toy-figure-1.csv)",
        "[toy-figure-1.svg](toy-figure-1.svg)",
        "| as published \\| here | 1.25 |",
        "A note to read.",
        "IPUMS-US is not available",
        "It was not run",
        "simulations",
        f"privypurse {__version__}",
        *dates,
    ):
        assert words in page
    assert "quick" not in page
    for outcome in outcomes:
        assert outcome.why.startswith("The mean is")
        assert [path.suffix for path in outcome.files] == [".csv", ".png", ".svg"]
        assert all(f"({path.name})" in page for path in outcome.files)
    # A picture and a table come first.
    assert page.index("(toy-verdicts.png)") < page.index("toys play") < page.index("About toys.")
    assert all(
        words in (toy / "toy-verdicts.svg").read_text() for words in ("toy table 1", "not reached", "none claimed")
    )


def test_a_quick_page_says_that_it_is_one(toy):
    reproduce("toy", figure="1", output=toy, quick=True, seed=3, workers=1)
    page = (toy / "toy.md").read_text(encoding="utf-8")
    assert "A quick look" in page
    assert "`privypurse reproduce toy --figure 1 --quick --seed 3`, seed 3, " in page


def test_files_are_what_they_say(toy):
    outcomes = reproduce("toy", figure="1", output=toy, workers=1)
    table, png, svg = outcomes[0].files
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert {row["private"] for row in rows} == {"yes", NOT_PRIVATE}
    exact = np.random.default_rng([0, 5]).standard_normal(5)
    assert [float(row["value"]) for row in rows[:5]] == pytest.approx(exact.tolist(), rel=1e-6)
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    matplotlib = pytest.importorskip("matplotlib.image")
    pixels = matplotlib.imread(png)
    assert pixels.shape[0] > 100
    assert pixels.std() > 0.01  # something was drawn
    root = ElementTree.parse(svg).getroot()
    assert root.tag.endswith("svg")
    text = " ".join(root.itertext())
    assert f"as published | here ({NOT_PRIVATE})" in text
    assert "stroke-dasharray" in svg.read_text()


def test_the_same_seed_gives_the_same_files_and_another_one_does_not(toy):
    def files():
        return {path.name: path.read_bytes() for path in toy.iterdir() if path.suffix in (".csv", ".svg", ".png")}

    reproduce("toy", output=toy, workers=1)
    first = files()
    reproduce("toy", output=toy, workers=1, fresh=True)
    assert files() == first
    reproduce("toy", output=toy, workers=1, seed=5)
    assert all(files()[name] != first[name] for name in first if "verdicts" not in name)


def test_what_was_finished_is_not_run_again_unless_asked(toy, tmp_path):
    def ran():
        return len((tmp_path / "ran").read_text().splitlines())

    reproduce("toy", figure="1", output=toy, workers=1)
    assert ran() == 2
    reproduce("toy", output=toy, workers=1)  # figure 2 is made of the same cells
    assert ran() == 2
    reproduce("toy", output=toy, workers=1, fresh=True)
    assert ran() == 4  # and is not run twice when all is to be run again
    reproduce("toy", output=toy, workers=1, seed=1)
    assert ran() == 6  # no seed shares a repetition with another


def test_one_figure_keeps_the_sections_of_others(toy):
    reproduce("toy", table="1", output=toy, workers=1)
    page = (toy / "toy.md").read_text(encoding="utf-8")
    assert "| Figure 1: toy figure 1 |  |  |  |  | not run | not run |" in page
    assert "## Figure 1" not in page
    reproduce("toy", figure="1", output=toy, workers=1)
    page = (toy / "toy.md").read_text(encoding="utf-8")
    assert page.index("## Figure 1") < page.index("## Table 1")  # in the order of the paper
    assert "| Figure 1: toy figure 1 | toys play | 1.25 | 1.26 | 1.27 | reached | none claimed |" in page
    assert "| Table 1: toy table 1 | toys play | 1.25 | 1.26 | 1.27 | not reached | none claimed |" in page
    assert "| Figure 2: toy figure 2 |  |  |  |  | not run | not run |" in page


@pytest.mark.parametrize("content", ["[]", '{"figure-1": {"reached": "reached"'])
def test_a_damaged_state_file_is_begun_anew(content, toy):
    reproduce("toy", figure="1", output=toy, workers=1)
    (toy / ".toy.json").write_text(content)
    (toy / ".scale.json").write_text(content)
    reproduce("toy", table="1", output=toy, workers=1)
    assert "## Table 1" in (toy / "toy.md").read_text(encoding="utf-8")


def test_entries_of_the_user_reach_cells_csv_and_picture(toy):
    reproduce("toy", figure="1", output=toy, workers=1, also={"flat one": flat})
    assert "flat one,yes,0,1\n" in (toy / "toy-figure-1.csv").read_text()
    assert "flat one" in (toy / "toy-figure-1.svg").read_text()
    assert "| flat one | 1.25 |" in (toy / "toy.md").read_text(encoding="utf-8")


# Missing data.


def test_missing_data_is_said(toy, no_data):
    outcomes = reproduce("mixed", output=toy, workers=1)
    assert [(each.reached, each.ranking) for each in outcomes] == [
        ("not run", "not run"),
        (NOT_REACHED, NONE_CLAIMED),
    ]
    assert outcomes[0].files == ()
    assert "adult and bank is not here" in outcomes[0].why
    assert "PRIVYPURSE_DATA" in outcomes[0].why
    assert "privypurse data adult" in outcomes[0].why
    page = (toy / "mixed.md").read_text(encoding="utf-8")
    assert "| Figure 1: toy figure 1 |  |  |  |  | not run | not run |" in page
    assert "**Not run:** adult, bank is not here." in page
    assert "**Reached: not reached. Ranking: none claimed.**" in page


def test_nothing_at_all_to_run_is_an_error(toy, no_data, monkeypatch):
    monkeypatch.setattr(reproducing, "NAMES", ("toy", "far"))
    with pytest.raises(
        DataUnavailable, match=r"nothing could be run\. adult and bank is not here: set PRIVYPURSE_DATA"
    ):
        reproduce("far", output=toy, workers=1)
    assert "**Not run:**" in (toy / "far.md").read_text(encoding="utf-8")
    assert [outcome.reached for outcome in reproduce("all", output=toy, workers=1)].count("not run") == 1


def test_a_section_that_was_made_with_data_stays_without(toy, no_data, monkeypatch):
    with monkeypatch.context() as machine_with_data:
        machine_with_data.setattr(prepared_data, "is_here", lambda name: True)
        reproduce("mixed", output=toy, workers=1)
    outcomes = reproduce("mixed", output=toy, workers=1)
    assert outcomes[0].reached == "not run"
    page = (toy / "mixed.md").read_text(encoding="utf-8")
    assert "Not run" not in page
    assert "| Figure 1: toy figure 1 | toys play | 1.25 | 1.26 | 1.27 | reached | none claimed |" in page


# The catalogue.


def test_items_of_the_catalogue_are_whole():
    for name in NAMES:
        paper = paper_named(name)
        assert paper.name == name
        assert paper.items
        names = [item.name for item in paper.items]
        assert len(set(names)) == len(names)
        for item in paper.items:
            assert item.kind in ("figure", "table")
            assert item.title
            assert item.published
            assert all(need == "torch" or need in prepared_data.load.__globals__["NAMES"] for need in item.needs)


def test_a_verdict_is_one_of_a_few_words():
    for words in (REACHED_WORDS, RANKING_WORDS):
        assert any(NOT_PRIVATE in word for word in words)
    with pytest.raises(ValueError, match="reached must be one of"):
        Verdict(AS_IN_PAPER, AS_IN_PAPER, "because")
    with pytest.raises(ValueError, match="ranking must be one of"):
        Verdict(REACHED, REACHED, "because")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((0, 0), "nothing printed"),
        ((3, 3), "reached"),
        ((1, 3), "in part"),
        ((1, 3, 3), "in part"),
        ((0, 3, 1), "only as published (NOT PRIVATE)"),
        ((0, 3), "not reached"),
    ],
)
def test_the_first_word_counts_what_is_reached(arguments, word):
    assert reached_word(*arguments) == word


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((0, 0, 0), "none claimed"),
        ((3, 3, 0), "as in the paper"),
        ((1, 3, 2), "in part"),
        ((0, 3, 1, 2), "only as published (NOT PRIVATE)"),
        ((0, 3, 1), "another"),
        ((0, 3, 0), "undecided"),
    ],
)
def test_the_second_word_counts_cases_ranked_as_in_the_paper(arguments, word):
    assert ranking_word(*arguments) == word


def test_a_verdict_says_which_data_sets_it_does_not_speak_of(toy, monkeypatch):
    wanting = [dataclasses.replace(item, wants=("iris", "nowhere")) for item in reproducing.paper_named("toy").items]
    paper = dataclasses.replace(reproducing.paper_named("toy"), items=wanting)
    monkeypatch.setattr(reproducing, "paper_named", lambda name: paper)
    monkeypatch.setattr(prepared_data, "is_here", lambda name: name == "iris")
    outcome, *_ = reproduce(
        "toy", figure="figure-1", output=toy, workers=1
    )  # and the name that results have is understood
    assert outcome.why.startswith("Without nowhere, which is not here. ")
    assert "Without nowhere, which is not here. " in (toy / "toy.md").read_text(encoding="utf-8")


def test_names_of_lines_that_are_there_are_refused(toy, monkeypatch):
    paper = dataclasses.replace(reproducing.paper_named("toy"), reserved=("ours",))
    monkeypatch.setattr(reproducing, "paper_named", lambda name: paper)
    with pytest.raises(InvalidArgument, match="also names 'ours', which toy has a line of"):
        reproduce("toy", output=toy, also={"ours": flat})
