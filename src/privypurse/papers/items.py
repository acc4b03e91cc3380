"""What a table or figure of a paper is here: cells to run, and a way to make a picture, a table and a verdict of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from privypurse.papers.cells import Cell, Results

NOT_PRIVATE = "NOT PRIVATE"
GIVEN_SCALING = "given scaling by the data"  # private if the ranges that the data were scaled by are taken as public
REPRODUCED = "reproduced"
IN_PART = "reproduced in part"
AS_PUBLISHED_ONLY = f"reproduced only as published ({NOT_PRIVATE})"
NOT_REPRODUCED = "not reproduced"
SCOREBOARD = "in no paper: a scoreboard"
SEEDS_APART = 10**7
VERDICTS = (REPRODUCED, IN_PART, AS_PUBLISHED_ONLY, NOT_REPRODUCED, SCOREBOARD)


@dataclass(frozen=True)
class Settings:
    """How much to run.

    Parameters
    ----------
    quick : bool
        A few repetitions and small problems, to see that all works; verdicts then say that they are a look only.
    seed : int
        Where seeds begin; repetition k uses ``seed + k``. It is `SEEDS_APART` times the one that was asked for, so that no two
        share a repetition.
    also : mapping of str to object
        What to put into every comparison that has a place for it: methods, schedules, or functions from a number of steps to the
        relative budget of each. See `privypurse.papers.entries`.
    """

    quick: bool = False
    seed: int = 0
    also: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked_seed(self) -> int:
        """The seed on the command line."""
        return self.seed // SEEDS_APART


@dataclass(frozen=True)
class Verdict:
    """Whether a result of a paper was found again.

    Parameters
    ----------
    word : str
        One of `VERDICTS`.
    why : str
        In a sentence or two, with the numbers it rests on.
    """

    word: str
    why: str

    def __post_init__(self) -> None:
        if self.word not in VERDICTS:
            raise ValueError(f"word must be one of {VERDICTS}; got {self.word!r}")


@dataclass(frozen=True)
class Sheet:
    """A table for the page.

    Parameters
    ----------
    caption : str
        What it shows.
    columns : sequence of str
        Heads.
    rows : sequence of sequences of str
        Cells, as they are to be read.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Finished:
    """What became of a table or figure.

    Parameters
    ----------
    rows : list of dict
        Every number, for the CSV file; all with the same keys. Where methods are compared, the key "private" says "yes" or
        "NOT PRIVATE".
    verdict : Verdict
        Whether the paper's result was found.
    picture : callable
        Draws everything into an empty matplotlib figure, whose size it may set.
    sheets : sequence of Sheet
        Tables for the page, published numbers beside ours.
    notes : sequence of str
        What a reader must know besides.
    """

    rows: list[dict[str, Any]]
    verdict: Verdict
    picture: Callable[[Any], None]
    sheets: Sequence[Sheet] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper.

    Parameters
    ----------
    kind : {"figure", "table"}
        Which of the two.
    number : str
        As in the paper: "1", "2".
    title : str
        What it shows.
    published : str
        What the paper says about it, with its numbers.
    cells : callable
        ``cells(settings)`` returns the work.
    finish : callable
        ``finish(settings, results)`` makes everything of the results; the work is done by then.
    needs : sequence of str
        Data sets without which nothing can be run, as `privypurse.datasets` calls them; "torch" for PyTorch.
    wants : sequence of str
        Data sets that it leaves out where they are not here, and says so.
    """

    kind: Literal["figure", "table"]
    number: str
    title: str
    published: str
    cells: Callable[[Settings], Sequence[Cell]]
    finish: Callable[[Settings, Results], Finished]
    needs: Sequence[str] = ()
    wants: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Such as "figure-1"."""
        return f"{self.kind}-{self.number}"


@dataclass(frozen=True)
class Paper:
    """A document and what it shows.

    Parameters
    ----------
    name : str
        As on the command line.
    title : str
        Of the document.
    about : str
        How it is reproduced here: what all items share.
    items : sequence of Item
        Its tables and figures, in the order of the page.
    reserved : sequence of str
        Names of its own lines, which entries of the user's may not have.
    """

    name: str
    title: str
    about: str
    items: Sequence[Item]
    reserved: Sequence[str] = ()
