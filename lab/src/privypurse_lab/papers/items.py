"""Items of a paper: cells to run, and the figure, table and verdict made from their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from privypurse_lab.papers.cells import Cell, Results

NOT_PRIVATE = "NOT PRIVATE"
GIVEN_SCALING = "given scaling by the data"  # private if the ranges used for scaling are public
REPRODUCED = "reproduced"
IN_PART = "reproduced in part"
AS_PUBLISHED_ONLY = f"reproduced only as published ({NOT_PRIVATE})"
NOT_REPRODUCED = "not reproduced"
SCOREBOARD = "in no paper: a scoreboard"
SEEDS_APART = 10**7
VERDICTS = (REPRODUCED, IN_PART, AS_PUBLISHED_ONLY, NOT_REPRODUCED, SCOREBOARD)


@dataclass(frozen=True)
class Settings:
    """Extent of a reproduction.

    Parameters
    ----------
    quick : bool
        Few repetitions and small problems; verdicts then say so.
    seed : int
        First seed; repetition k uses ``seed + k``. It is `SEEDS_APART` times the seed of the
        command line, so that no two seeds share a repetition.
    also : mapping of str to object
        Entries for every comparison that takes them: methods, schedules, or functions from a number
        of steps to relative budgets. See `privypurse_lab.papers.entries`.
    """

    quick: bool = False
    seed: int = 0
    also: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked_seed(self) -> int:
        """Seed of the command line."""
        return self.seed // SEEDS_APART


@dataclass(frozen=True)
class Verdict:
    """Whether a result of a paper was reproduced."""

    word: str
    why: str

    def __post_init__(self) -> None:
        if self.word not in VERDICTS:
            raise ValueError(f"word must be one of {VERDICTS}; got {self.word!r}")


@dataclass(frozen=True)
class Sheet:
    """A table for the page."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Finished:
    """Result of a table or figure.

    Parameters
    ----------
    rows : list of dict
        All numbers, for the CSV file, with the same keys. Where methods are compared, the key
        "private" is "yes" or "NOT PRIVATE".
    verdict : Verdict
        Whether the paper's result was reproduced.
    picture : callable
        Draws into an empty matplotlib figure, whose size it may set.
    sheets : sequence of Sheet
        Tables for the page, published numbers beside ours.
    notes : sequence of str
        Remarks.
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
        Kind of item.
    number : str
        As in the paper: "1", "2".
    title : str
        Title.
    published : str
        What the paper says about it, with its numbers.
    cells : callable
        ``cells(settings)`` returns the cells.
    finish : callable
        ``finish(settings, results)`` computes the result after all cells were run.
    needs : sequence of str
        Required data sets, by their names in `privypurse.datasets`; "torch" for PyTorch.
    wants : sequence of str
        Optional data sets.
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
        """Name such as "figure-1"."""
        return f"{self.kind}-{self.number}"


@dataclass(frozen=True)
class Paper:
    """A paper and its items.

    Parameters
    ----------
    name : str
        Name on the command line.
    title : str
        Title of the document.
    about : str
        How it is reproduced.
    items : sequence of Item
        Its tables and figures, in the order of the page.
    reserved : sequence of str
        Names of its own lines, which the user's entries may not have.
    """

    name: str
    title: str
    about: str
    items: Sequence[Item]
    reserved: Sequence[str] = ()
