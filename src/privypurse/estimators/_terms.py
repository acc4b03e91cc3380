"""Terms of an additive model: the curve, the line or the categories of each column, and how they are encoded."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privypurse.core._checks import FloatArray, shown
from privypurse.core._errors import InvalidArgument
from privypurse.estimators._curves import hats, width_of
from privypurse.estimators._declared_one_hot import DeclaredOneHot


@dataclass(frozen=True, eq=False)
class Term:
    """One column of the table in the model: its curve, or its categories."""

    name: str
    place: int  # of its first encoded column
    width: int
    knots: FloatArray | None = None  # None for categories
    categories: DeclaredOneHot | None = None

    @property
    def kind(self) -> str:
        """The kind of its encoded columns, for `grouped_rows`."""
        return "categories" if self.knots is None else "curve" if self.width > 1 else "number"

    @property
    def values(self) -> slice:
        """The encoded columns with a value of their own: categories, or hats, or the line."""
        return slice(self.place + (self.kind == "curve"), self.place + self.width)

    def encode(self, column: Any) -> Any:
        """Encode a column."""
        if self.knots is not None:
            return hats(as_numbers(column, self.name), self.knots)
        return self.categories.transform(np.asarray(column, dtype=object)[:, None])  # type: ignore[union-attr]


class Columns:
    """The columns of a table, by name or place."""

    def __init__(self, count: int, names: list[str] | None) -> None:
        self.count, self._names = count, names

    def named(self, place: int) -> str:
        """Return the name of a column; x0, x1 and so on without names."""
        return f"x{place}" if self._names is None else self._names[place]

    def by_place(self, setting: str, given: Any) -> dict[int, Any]:
        """Return what is declared by name or place, by place."""
        if given is not None and not isinstance(given, Mapping):
            raise InvalidArgument(f"{setting} must be a dict by column; got {shown(given)}. Pass {{'age': ...}}.")
        places = {self.named(place): place for place in range(self.count)}
        places |= {place: place for place in range(self.count)}  # type: ignore[misc]
        if unknown := [key for key in given or {} if key not in places]:
            raise InvalidArgument(f"{setting} must name columns of X; got {shown(unknown[0])}. Pass names or places.")
        return {places[key]: value for key, value in (given or {}).items()}


_PLAIN = {float, int, bool, type(None)}


def as_numbers(column: NDArray[Any], name: str) -> FloatArray:
    """Return a column as numbers, with NaN for missing ones."""
    try:
        if column.dtype.kind == "O" and not set(map(type, column)) <= _PLAIN:
            return np.array([_as_number(one) for one in column], dtype=np.float64)
        if column.dtype.kind == "O":
            return column.astype(np.float64)  # None is NaN
        if column.dtype.kind in "biuf":
            with np.errstate(over="ignore"):
                return column.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidArgument(
        f"column {name!r} must hold numbers; got something else. Declare it in categories=..., or convert it."
    )


def _as_number(one: Any) -> float:
    if one is None or type(one).__name__ == "NAType":
        return math.nan
    if isinstance(one, Real | Decimal | np.bool_):
        return float(one)
    raise TypeError


def members_of(term: Term, rows: Any) -> FloatArray:
    """Return the membership of encoded rows in each value of a term, from 0 to 1."""
    values = rows[:, term.values]
    values = values.toarray() if sparse.issparse(values) else values
    return np.hstack([1 - values, values]) if term.kind == "number" else np.asarray(values)


def cell_names(term: Term, group: NDArray[np.intp]) -> list[str]:
    """Name each cell of a term: its categories, or the knots at its ends."""
    if term.knots is None:
        listed: Any = term.categories
        names = np.array([*map(str, listed.categories[0]), "(other)"])
        return [", ".join(names[group == cell]) for cell in range(group.max() + 1)]
    ends = [term.knots[group == cell] for cell in range(group.max() + 1)]
    return [f"{one[0]:g} to {one[-1]:g}" if len(one) > 1 else f"{one[0]:g}" for one in ends]


def cell_of_rows(term: Term, rows: Any, group: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the cell of each encoded row: that of the value of which it is most a member."""
    return np.asarray(group[members_of(term, rows).argmax(axis=1)])


def width_of_list(listed: DeclaredOneHot) -> int:
    return len(listed.categories[0]) + 1  # type: ignore[index]


def terms_of(columns: Columns, knots: Mapping[int, FloatArray], listed: Mapping[int, DeclaredOneHot]) -> list[Term]:
    terms: list[Term] = []
    for place in range(columns.count):
        start = terms[-1].place + terms[-1].width if terms else 0
        own = knots.get(place)
        width = width_of_list(listed[place]) if own is None else width_of(len(own))
        terms.append(Term(columns.named(place), start, width, own, listed.get(place)))
    return terms
