"""Accuracy, loss and time of contestants over epsilon, by repeated cross-validation."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from privypurse.core._errors import InvalidArgument
from privypurse_lab.papers import drawing, prepared_data
from privypurse_lab.papers.cells import Cell, Result, Results
from privypurse_lab.papers.entries import as_method
from privypurse_lab.papers.intervals import half_width
from privypurse_lab.papers.items import GIVEN_SCALING, NOT_PRIVATE, Settings, Sheet
from privypurse_lab.papers.methods_compared import (
    NON_PRIVATE,
    Contestant,
    Model,
    cannot_run,
    fitted,
    is_private,
    sgd_ma_in_words,
)

EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
FOLDS = 5
SHUFFLES = 5
SGD_MA_SHUFFLES: dict[Model, int] = {"logistic": 3, "svm": 1}  # it makes up to 50,000 steps
QUICK_ROWS = 4_000
LABELS = {"adult": "Adult", "bank": "Bank", "ipums-br": "IPUMS-BR", "kddcup99": "KDD Cup '99"}


def one_repetition(
    data: str, model: Model, contestant: str, epsilon: float, seed: int, rows: int | None = None, entry: Any = None
) -> Result:
    """Fit one contestant on every fold of one shuffle.

    Parameters
    ----------
    data, model, contestant, epsilon
        Data set, loss, method and budget.
    seed : int
        Seed of shuffle and noise.
    rows : int, optional
        Use only this many rows.
    entry : object, optional
        The user's own method or schedule, instead of a contestant of that name.

    Returns
    -------
    dict
        ``accuracy`` in percent on the held-out fold, ``loss`` (mean training loss without ridge)
        and ``seconds``, one for each fold; empty where the accountant cannot price the budget.
    """
    X, y, records, who = _contest(data, contestant, rows, entry)
    if entry is None and cannot_run(contestant, epsilon, records):
        return {"accuracy": [], "loss": [], "seconds": []}
    _compile(model)
    fits = enumerate(prepared_data.folds(len(y), FOLDS, seed))
    return in_columns(fit_and_measure(who, model, X, y, rows, epsilon, records, 1_000 * seed + k) for k, rows in fits)


def fit_and_measure(
    who: Contestant | str,
    model: Model,
    X: Any,
    y: np.ndarray,
    rows: tuple[np.ndarray, np.ndarray],
    epsilon: float,
    records: int,
    seed: int,
) -> dict[str, float]:
    """Fit on some rows; return accuracy on the others, training loss and time."""
    train, test = rows
    X_train, y_train = X[train], y[train]
    made = fitted(who, model, X_train, y_train, epsilon, records, seed)
    right = (made.scores(X[test]) > 0) == (y[test] == 1)
    loss = mean_loss(model, made.scores(X_train), y_train)
    return {"accuracy": 100 * float(right.mean()), "loss": loss, "seconds": made.seconds}


def in_columns(fits: Iterable[dict[str, float]]) -> Result:
    """Return a list for each measure."""
    found = list(fits)
    return {name: [each[name] for each in found] for name in found[0]}


def one_timing(
    data: str, model: Model, contestant: str, epsilon: float, seed: int, rows: int | None = None, entry: Any = None
) -> Result:
    """Time three fits on the first fold, on one thread. See `one_repetition`."""
    X, y, records, who = _contest(data, contestant, rows, entry)
    if entry is None and cannot_run(contestant, epsilon, records):
        return {"accuracy": [], "loss": [], "seconds": []}
    _compile(model)
    rows_of_fold = prepared_data.folds(len(y), FOLDS, seed)[0]
    seeds = range(1_000 * seed, 1_000 * seed + 3)
    return in_columns(fit_and_measure(who, model, X, y, rows_of_fold, epsilon, records, each) for each in seeds)


def _contest(data: str, contestant: str, rows: int | None, entry: Any) -> tuple[Any, np.ndarray, int, Contestant | str]:
    """Return rows, labels, the public number of training records, and the contestant."""
    table = prepared_data.table(data)
    X, y = table.X, table.y
    if rows is not None:
        some = np.sort(np.random.default_rng(0).permutation(len(y))[:rows])
        X, y = X[some], y[some]
    return X, y, round(len(y) * (FOLDS - 1) / FOLDS), contestant if entry is None else _of_the_user(contestant, entry)


def mean_loss(model: Model, scores: np.ndarray, y: np.ndarray) -> float:
    """Return the mean logistic or hinge loss of scores."""
    margins = np.where(y == 1, scores, -scores)
    return float(np.mean(np.logaddexp(0, -margins) if model == "logistic" else np.maximum(0, 1 - margins)))


def _of_the_user(name: str, entry: Any) -> Contestant:
    return Contestant(name, functools.partial(_same, as_method(entry)))


def _same(method: Any, epsilon: float, records: int) -> Any:
    return method


@functools.cache
def _compile(model: Model) -> None:
    """Compile what a fit needs (gradients, losses, minimisers), so that no time includes it."""
    X = sparse.csr_matrix(np.random.default_rng(0).random((500, 5)))
    y = (X[:, [0]].toarray().ravel() > 0.5).astype(int)
    for contestant in ("Nesterov", "DP-AGD", "DP-AGD, mended", "ObjPert", "SGD-Adv"):
        fitted(contestant, model, X, y, 1.0, 500, 0)


@dataclass(frozen=True)
class Study:
    """A grid of data sets, contestants and budgets for one model.

    Parameters
    ----------
    data : sequence of str
        Data sets; those that are not available are omitted.
    model : {"logistic", "svm"}
        The loss.
    contestants : sequence of str
        Names of the contestants.
    repetitions : int
        Shuffles, of five folds each.
    epsilons : sequence of float
        Budgets.
    fewer : mapping of str to int
        Repetitions of slow contestants.
    work : callable
        `one_repetition`, or `one_timing`, whose cells run one at a time.
    """

    data: Sequence[str]
    model: Model
    contestants: Sequence[str]
    repetitions: int
    epsilons: Sequence[float] = EPSILONS
    fewer: Mapping[str, int] | None = None
    work: Callable[..., Result] = one_repetition

    def cells(self, settings: Settings) -> list[Cell]:
        """Return the cells."""
        return [cell for _, _, _, cells in self._grid(settings) for cell in cells]

    def _grid(self, settings: Settings) -> "list[tuple[str, str, float, list[Cell]]]":
        for name in settings.also:
            if name in self.contestants:
                raise InvalidArgument(f"also names {name!r}, which takes part already. Pass it under another name.")
        epsilons = (self.epsilons[0], self.epsilons[-2]) if settings.quick else self.epsilons
        data = prepared_data.here(self.data)[: 1 if settings.quick else None]
        grid = []
        for name in data:
            for contestant in (*self.contestants, *settings.also):
                repetitions = 1 if settings.quick else (self.fewer or {}).get(contestant, self.repetitions)
                for epsilon in epsilons:
                    budget = epsilons[0] if contestant == NON_PRIVATE else epsilon  # has none: is fitted once
                    shared = {"data": name, "model": self.model, "contestant": contestant, "epsilon": budget}
                    shared |= {"rows": QUICK_ROWS} if settings.quick else {}
                    shared |= {"entry": settings.also[contestant]} if contestant in settings.also else {}
                    seeds = range(settings.seed, settings.seed + repetitions)
                    cells = [Cell(self.work, {**shared, "seed": seed}, self.work is one_timing) for seed in seeds]
                    grid.append((name, contestant, epsilon, cells))
        return grid

    def measured(self, settings: Settings, results: Results) -> "list[Measured]":
        """Return the results, one for each data set, contestant and budget."""
        found, timed = [], self.work is one_timing
        for name, contestant, epsilon, cells in self._grid(settings):
            # Folds of one shuffle overlap; only shuffles are repetitions.
            runs = [results[cell] for cell in cells]
            found.append(
                Measured(name, self.model, contestant, epsilon, [run for run in runs if run["accuracy"]], timed)
            )
        return found


@dataclass(frozen=True)
class Measured:
    """One contestant at one budget on one data set."""

    data: str
    model: str
    contestant: str
    epsilon: float
    runs: list[Result]
    timed: bool = False

    @property
    def ran(self) -> bool:
        """Whether it made any step."""
        return bool(self.runs)

    def mean(self, what: str) -> float:
        """Return the mean over folds and repetitions, the median for times."""
        values = [value for run in self.runs for value in run[what]]
        return float(np.median(values) if what == "seconds" else np.mean(values))

    def spread(self, what: str) -> float:
        """Return the standard deviation over all fits."""
        return float(np.std([value for run in self.runs for value in run[what]]))

    def least(self, what: str) -> float:
        """Return the smallest value of all fits."""
        return float(min(value for run in self.runs for value in run[what]))

    def most(self, what: str) -> float:
        """Return the largest value of all fits."""
        return float(max(value for run in self.runs for value in run[what]))

    def row(self) -> dict[str, Any]:
        """Return a row of the CSV file."""
        known: dict[str, Any] = {
            "data": self.data,
            "model": self.model,
            "method": self.contestant,
            "private": stamp(self.contestant, self.data),
            "epsilon": self.epsilon,
            "fits": sum(len(run["accuracy"]) for run in self.runs),
        }
        # Times measured while other cells ran are meaningless.
        for what in ("accuracy", "loss", "seconds") if self.timed else ("accuracy", "loss"):
            known[what] = self.mean(what) if self.ran else ""
            known[f"{what}_spread"] = self.spread(what) if self.ran else ""
        return known


def stamp(contestant: str, data: str) -> str:
    """Return whether a run is private, for the CSV file: not on tables scaled by their records."""
    if not is_private(contestant):
        return NOT_PRIVATE
    return GIVEN_SCALING if data in prepared_data.SCALED else "yes"


def sgd_ma_note(data: Sequence[str]) -> str:
    """Return how many steps SGD-MA makes on the available ones of some data sets."""
    sizes = {name: len(prepared_data.table(name).y) for name in prepared_data.here(data)}
    return sgd_ma_in_words({LABELS[name]: round(size * (FOLDS - 1) / FOLDS) for name, size in sizes.items()})


def uncovered_notes(data: Sequence[str]) -> list[str]:
    """Name the tables that were scaled by their own records."""
    named = [f"{LABELS.get(name, name)}: {prepared_data.SCALED[name]}" for name in data if name in prepared_data.SCALED]
    if not named:
        return []
    return [
        f"Outside any purse, as in the papers ({'; '.join(named)}): a sound method is private only if that is taken as public."
    ]


def paired(one: "Measured", other: "Measured", what: str = "accuracy") -> tuple[float, float]:
    """Return mean difference and half of its 95 % interval, over common shuffles."""
    gaps = [float(np.mean(a[what]) - np.mean(b[what])) for a, b in zip(one.runs, other.runs, strict=False)]
    return float(np.mean(gaps)), half_width(gaps) if len(gaps) > 1 else float("nan")


def lines(found: Sequence[Measured], data: str) -> dict[str, list[Measured]]:
    """Return the results on a data set, by contestant."""
    names = dict.fromkeys(entry.contestant for entry in found if entry.data == data)
    return {name: [entry for entry in found if entry.data == data and entry.contestant == name] for name in names}


def draw_over_epsilon(axes: Any, found: Sequence[Measured], data: str, what: str, order: Sequence[str]) -> None:
    """Draw one line for each contestant; colours follow its place in `order`."""
    for name, entries in lines(found, data).items():
        ran = [entry for entry in entries if entry.ran]
        private = is_private(name)
        look = drawing.style(order.index(name) if name in order else len(order), private)
        x, y = [entry.epsilon for entry in ran], [entry.mean(what) for entry in ran]
        axes.plot(x, y, label=drawing.label(name, private), **look)
    axes.set_xscale("log")
    drawing.number_ticks(axes.xaxis, sorted({entry.epsilon for entry in found}))
    others = [
        entry.mean(what) for entry in found if entry.data == data and entry.ran and entry.contestant != "Majority"
    ]
    # The constant prediction must not hide the rest.
    if what != "seconds" and len(others) > 1 and max(others) > min(others):
        reach = max(others) - min(others)
        axes.set_ylim(min(others) - 0.05 * reach, max(others) + 0.05 * reach)
    axes.set(title=LABELS.get(data, data), xlabel="epsilon")


def accuracy_sheet(found: Sequence[Measured], data: str, what: str = "accuracy") -> Sheet:
    """Return a table of contestants by epsilon."""
    epsilons = sorted({entry.epsilon for entry in found})
    unit = {"accuracy": "accuracy in percent", "loss": "mean training loss", "seconds": "seconds of one fit"}[what]
    rows = []
    for name, entries in lines(found, data).items():
        cells = {entry.epsilon: entry for entry in entries}
        shown = [_shown(cells[epsilon], what) for epsilon in epsilons]
        rows.append([drawing.label(name, is_private(name)), *shown])
    caption = f"{LABELS.get(data, data)}: {unit} by epsilon, mean ± standard deviation over fits:"
    if what == "seconds":
        caption = f"{LABELS.get(data, data)}: {unit} by epsilon, median:"
    return Sheet(caption, ["", *(f"{epsilon:g}" for epsilon in epsilons)], rows)


def _shown(entry: Measured, what: str) -> str:
    if not entry.ran:
        return "no step"
    if what == "seconds":
        return f"{entry.mean(what):.3f}"
    digits = 2 if what == "accuracy" else 3
    return f"{entry.mean(what):.{digits}f} ± {entry.spread(what):.{digits}f}"


def at(found: Sequence[Measured], data: str, contestant: str, epsilon: float) -> Measured | None:
    """Return one result, if it was run and made a step."""
    for entry in found:
        if (entry.data, entry.contestant, entry.epsilon) == (data, contestant, epsilon) and entry.ran:
            return entry
    return None
