"""Items of a paper: cells to run, and the figure, table and verdict made from their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from privypurse_lab.papers.cells import Cell, Results

NOT_PRIVATE = "NOT PRIVATE"
GIVEN_SCALING = "given scaling by the data"  # private if the ranges used for scaling are public
SEEDS_APART = 10**7
IN_PART, AS_PUBLISHED_ONLY, SCOREBOARD = "in part", f"only as published ({NOT_PRIVATE})", "in no paper"
REACHED, NOT_REACHED, NOTHING_PRINTED = "reached", "not reached", "nothing printed"
AS_IN_PAPER, ANOTHER, UNDECIDED, NONE_CLAIMED = "as in the paper", "another", "undecided", "none claimed"
REACHED_WORDS = (REACHED, IN_PART, AS_PUBLISHED_ONLY, NOT_REACHED, NOTHING_PRINTED, SCOREBOARD)
RANKING_WORDS = (AS_IN_PAPER, IN_PART, AS_PUBLISHED_ONLY, ANOTHER, UNDECIDED, NONE_CLAIMED, SCOREBOARD)


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
    """Verdict on a result of a paper: two questions, answered apart.

    Parameters
    ----------
    reached : str
        Whether a sound method gives the printed numbers or bears out the claim: one of
        `REACHED_WORDS`.
    ranking : str
        Whether the methods rank as in the paper: one of `RANKING_WORDS`.
    why : str
        The numbers that both words follow from.
    """

    reached: str
    ranking: str
    why: str

    def __post_init__(self) -> None:
        for name, words in (("reached", REACHED_WORDS), ("ranking", RANKING_WORDS)):
            if getattr(self, name) not in words:
                raise ValueError(f"{name} must be one of {words}; got {getattr(self, name)!r}")


def reached_word(sound: int, total: int, published: int = 0) -> str:
    """Return the word for `sound` of `total` numbers reached soundly, `published` as published."""
    if total == 0:
        return NOTHING_PRINTED
    if sound:
        return REACHED if sound == total else IN_PART
    return AS_PUBLISHED_ONLY if published else NOT_REACHED


def ranking_word(sound: int, total: int, against: int, published: int = 0) -> str:
    """Return the word for cases ranked as in the paper.

    Parameters
    ----------
    sound, total : int
        Cases in which sound methods rank so beyond the interval, and all cases.
    against : int
        Cases in which they rank the other way beyond the interval.
    published : int
        Cases in which the methods as published rank so.
    """
    if total == 0:
        return NONE_CLAIMED
    if sound:
        return AS_IN_PAPER if sound == total else IN_PART
    if published:
        return AS_PUBLISHED_ONLY
    return ANOTHER if against else UNDECIDED


@dataclass(frozen=True)
class Short:
    """Row of the table at the top of a page: what is claimed, printed and found, in few words."""

    claim: str = ""
    printed: str = ""
    as_published: str = ""
    sound: str = ""


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
        Whether the paper's numbers were reached, and whether the methods rank as in the paper.
    picture : callable
        Draws into an empty matplotlib figure, whose size it may set.
    sheets : sequence of Sheet
        Tables for the page, published numbers beside ours.
    notes : sequence of str
        Remarks.
    short : Short
        Row of the table at the top of the page.
    """

    rows: list[dict[str, Any]]
    verdict: Verdict
    picture: Callable[[Any], None]
    sheets: Sequence[Sheet] = ()
    notes: Sequence[str] = ()
    short: Short = field(default_factory=Short)


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
