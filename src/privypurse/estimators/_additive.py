"""Additive models: a sum of curves, one for each column."""

import contextlib
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.isotonic import isotonic_regression
from sklearn.utils.validation import check_is_fitted

from privypurse.accounting import convert
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core._checks import FloatArray, non_negative, shown
from privypurse.core._errors import InvalidArgument, PrivypurseError
from privypurse.core._neighbouring import Neighbouring
from privypurse.estimators._base import CHECKED, NoisyTags, PrivateLinearModel, with_common_parameters
from privypurse.estimators._compat import FLOATS, all_or_nothing, column_names, same_attributes, validate
from privypurse.estimators._curves import (
    COUNT_SHARE,
    MOST_ENCODED,
    MOST_IN_REGRESSION,
    TURN_HATS_AT,
    Pair,
    buy_knots,
    line_shares,
    shares_of,
    unfolded,
)
from privypurse.estimators._declared_one_hot import DeclaredOneHot
from privypurse.estimators._fit_budget import LeavesItsPurse, open_budget, uncharged_around_fits
from privypurse.estimators._interactions import (
    CELLS,
    FEWEST_COLUMNS,
    FIRST_SHARE,
    MOST_PAIRS,
    CellPair,
    buy_pairs,
    cells_of,
    purified,
    scored_columns,
)
from privypurse.estimators._linear_models import LABELS_READ, PrivateLogisticRegression, PrivateRidge, encode_labels
from privypurse.estimators._noise_intervals import half_widths
from privypurse.estimators._preparation import MOST_TURNED
from privypurse.estimators._private_statistics import gaussian, private_count
from privypurse.estimators._terms import (
    Columns,
    Term,
    as_numbers,
    cell_names,
    cell_of_rows,
    members_of,
    terms_of,
    width_of_list,
)
from privypurse.oracles._encoding import check_target_bounds
from privypurse.purse._holds import held
from privypurse.purse._opening import check_delta
from privypurse.purse._purse import Purse

if TYPE_CHECKING:
    import pandas

MOST_DENSE_COLUMNS = 512  # with more encoded columns rows are a sparse matrix
_MOST = 1e100


class Additive(LeavesItsPurse, BaseEstimator):  # type: ignore[misc]
    """Base class of the additive models.

    Parameters
    ----------
    epsilon : float or None, default 1.0
        Budget of one fit. With a purse, the most that this fit may spend from it; None for all that
        is left.
    ranges : pair, list of pairs or dict
        Public range of each column of numbers, required: one pair for all, one for each, or pairs
        by name or place. A range may be far too wide. Numbers beyond it are clipped; missing ones
        count as its middle.
    categories : dict, optional
        Public list of the categories of each column that has some, by name or place. Others, and
        missing ones, are a category of their own.
    curves : bool or list, default True
        Whether columns of numbers get curves, or the names or places of those that do. Others get a
        line.
    monotone : dict, optional
        1 or -1 for each column whose curve is to rise or fall, by name or place. Costs nothing:
        curves are changed after training.
    interactions : "auto", int or False, default "auto"
        Whether pairs of columns may have an effect together: at most so many pairs. They are
        selected by a noisy score, which costs a quarter of the budget. "auto" pays for it only
        beside curves, where the budget can tell effects from noise, by public numbers. Columns of
        `monotone` are in no pair.
    delta, neighbouring, n_public, purse, random_state, noise
        As for `PrivateLogisticRegression`.
    """

    _takes_any_rows: bool = False  # see `validate`
    _last_share: float = 1.0  # of the budget, in squares of mu, for the last fit
    linear_: PrivateLinearModel
    terms_: list[Term]
    pairs_: Sequence[CellPair] = ()
    _most_encoded = MOST_ENCODED  # columns of curves, together with categories

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        ranges: Any = None,
        categories: Mapping[Any, Sequence[Any]] | None = None,
        curves: bool | Sequence[Any] = True,
        monotone: Mapping[Any, int] | None = None,
        interactions: int | str = "auto",
        delta: float | None = None,
        neighbouring: Neighbouring | str | None = None,
        n_public: int | None = None,
        purse: Purse | None = None,
        random_state: Any = None,
        noise: str = "auto",
    ) -> None:
        self.epsilon = epsilon
        self.ranges = ranges
        self.categories = categories
        self.curves = curves
        self.monotone = monotone
        self.interactions = interactions
        self.delta = delta
        self.neighbouring = neighbouring
        self.n_public = n_public
        self.purse = purse
        self.random_state = random_state
        self.noise = noise

    def _linear(self) -> PrivateLinearModel:
        """Return the linear model for the encoded rows."""
        raise NotImplementedError

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Any:
        """Train on private rows.

        Parameters
        ----------
        X : array_like or data frame of shape (n, d)
            The records: numbers, or a mixed table with declared `categories`. Not kept.
        y : array_like of shape (n,)
            Their labels or targets. Not kept.

        Returns
        -------
        self
        """
        X, y, linear, columns, ranges, listed, signs, drawn, most, numbers = self._check(X, y)
        paid = open_budget(self)
        if isinstance(paid.filter, FixedSchedule):
            what = "purse has a fixed schedule, which allows no release of knots"
            raise InvalidArgument(f"{what}. Pass a purse with a limit, such as Purse(1.0, 1e-6, ...).")
        check_delta(paid.delta, self.n_public)
        uncovered = [CHECKED, *uncharged_around_fits(paid)]
        if isinstance(self, ClassifierMixin) and self.classes is None:
            uncovered.append(LABELS_READ)
        with held(paid):
            for what in uncovered:  # now: an interrupt may come before the linear model says it
                paid.declare_uncovered(what)
            knots = {place: np.array(pair, dtype=np.float64) for place, pair in ranges.items()}
            whole = 0.0 if math.isinf(paid.epsilon) else 1 / gaussian(paid, 1.0).noise_multiplier  # mu
            if math.isinf(paid.epsilon) or (self.interactions == "auto" and not drawn):
                most = 0
            records = 0.0 if self.n_public is None else float(self.n_public)
            if self.n_public is None and (drawn or most):
                records = private_count(X, purse=paid, share=COUNT_SHARE)
            if drawn:
                table = np.column_stack([numbers[place] for place in drawn])
                room = self._most_encoded - sum(map(width_of_list, listed.values()))
                bought = buy_knots(table, [ranges[place] for place in drawn], paid, records=records, most=room)
                knots |= dict(zip(drawn, bought, strict=True))
            self.terms_, self.pairs_ = terms_of(columns, knots, listed), ()
            rows = self._encoded(X)
            if most:
                free = [place for place in range(columns.count) if place not in signs]
                self._buy_pairs(rows, y, linear, paid, most, free, records)
            linear._parts = self._groups()
            self._last_share = 1.0 if math.isinf(paid.epsilon) else (whole * gaussian(paid, 1.0).noise_multiplier) ** -2
            self.linear_ = linear.set_params(purse=paid, epsilon=None).fit(self._with_pairs(rows), y)
            linear._begin = None
        self.linear_.set_params(purse=None)
        self.n_iter_, self.stop_reason_ = linear.n_iter_, linear.stop_reason_
        self.trace_, self.preparation_ = linear.trace_, linear.preparation_
        self.privacy_spent_ = paid.spent
        self.certificate_ = self.linear_.certificate_ = paid.certificate()  # the knots are in both
        if isinstance(self, ClassifierMixin):
            self.classes_ = linear.classes_
        self._purify()
        for place, sign in signs.items():
            for output in range(len(np.atleast_2d(linear.coef_))):
                values, shares = self._curve(self.terms_[place], output)
                # `isotonic_regression` needs a positive weight at every knot.
                rising = isotonic_regression(values, sample_weight=shares + 1e-9, increasing=sign > 0)
                self._change(self.terms_[place], output, rising)

    def check_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Check settings, rows and targets as `fit` does, and return both. Nothing is spent or changed."""
        X, y, *_ = same_attributes(self)._check(X, y)
        return X, y

    def _check(self, X: Any, y: Any) -> tuple[Any, ...]:
        """Return rows, targets and settings, checked before anything is spent."""
        names, linear = column_names(X), self._linear()
        linear._declared_scales, linear._takes_any_rows = True, self._takes_any_rows
        X, y = self._checked(X, True, y)
        linear.check_input(np.zeros((len(X), 1)), y)  # settings and targets
        columns = Columns(X.shape[1], names)
        ranges, listed = self._declared(columns)
        classes = linear._declared(np.asarray(y)) if isinstance(linear, ClassifierMixin) else ()
        signs, drawn, most = self._signs(columns, ranges, classes), self._drawn(columns, ranges), self._most_pairs()
        numbers = {place: as_numbers(X[:, place], columns.named(place)) for place in ranges}
        return X, y, linear, columns, ranges, listed, signs, drawn, most, numbers

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class, or the predicted target within `target_bounds`, of each row.

        No guarantee covers predictions for private rows.
        """
        rows = self._rows(X)
        return self.linear_.predict(rows)  # type: ignore[no-any-return]

    def _most_pairs(self) -> int:
        """Return how many pairs there may be."""
        most = self.interactions
        if isinstance(most, str) and most == "auto":
            return MOST_PAIRS
        if isinstance(most, bool | np.bool_) and not most:
            return 0
        if isinstance(most, int | np.integer) and not isinstance(most, bool) and most > 0:
            return int(most)
        raise InvalidArgument(f"interactions must be 'auto', a number of pairs or False; got {shown(most)}. Omit it.")

    def _buy_pairs(
        self,
        rows: Any,
        y: Any,
        linear: PrivateLinearModel,
        paid: Purse,
        most: int,
        places: Sequence[int],
        records: float,
    ) -> None:
        """Choose pairs of these columns by the residuals of a first model, if public numbers allow."""
        count, fewest = min(len(places), scored_columns(records, paid)), FEWEST_COLUMNS
        if self.interactions == "auto":
            fewest = max(fewest, math.isqrt(len(places)))  # the few pairs of a few of many columns rarely pay
        else:
            count = min(len(places), max(count, fewest))
        most = min(most, self._room_for_pairs(records, paid))
        part = convert.gdp_epsilon(1 / gaussian(paid, FIRST_SHARE).noise_multiplier, paid.delta)
        if count < min(len(places), fewest) or count < 2 or most < 1 or part <= 0:
            return
        linear._parts = self._groups()
        self.linear_ = linear.set_params(purse=paid, epsilon=part).fit(rows, y)
        self.preparation_ = linear.preparation_
        if linear.preparation_.centre is None:
            return
        residuals, clip_norm = self._residuals(rows, y)
        importance, groups = [], []
        for term in (self.terms_[place] for place in places):
            curves = [self._curve(term, output) for output in range(len(np.atleast_2d(linear.coef_)))]
            own = curves[0][1]
            importance.append(float(sum(own @ values**2 for values, _ in curves)))
            groups.append(np.arange(2) if term.kind == "number" else cells_of(own, ordered=term.kind == "curve"))
        top = sorted(np.argsort(importance)[::-1][:count])
        cells = np.column_stack([cell_of_rows(self.terms_[places[at]], rows, groups[at]) for at in top])
        sizes = [int(groups[at].max()) + 1 for at in top]
        chosen = buy_pairs(cells, residuals, paid, sizes=sizes, clip_norm=clip_norm, most=most)
        found: list[CellPair] = []
        start = self.terms_[-1].place + self.terms_[-1].width
        for i, j in chosen:
            both = places[top[i]], places[top[j]]
            name = " x ".join(self.terms_[at].name for at in both)
            found.append(CellPair(name, both, (groups[top[i]], groups[top[j]]), start))
            start = found[-1].values.stop
        self.pairs_ = found
        known = np.atleast_2d(linear.coef_)
        more = np.zeros((len(known), start - known.shape[1]))
        linear._begin = np.hstack([known, more]), np.asarray(linear.intercept_ - linear._class_shift)

    def _room_for_pairs(self, records: float, paid: Purse) -> int:
        return MOST_PAIRS

    def _residuals(self, rows: Any, y: Any) -> tuple[FloatArray, float]:
        """Return residuals of the first model, and their clip norm."""
        raise NotImplementedError

    def _purify(self) -> None:
        """Move what pairs say of one column alone to the curve of that column."""
        linear = self.linear_
        for pair in self.pairs_:
            terms = [self.terms_[at] for at in pair.columns]
            shares = self._cell_shares(pair)
            for output in range(len(np.atleast_2d(linear.coef_))):
                values = np.atleast_2d(self.linear_.coef_)[output, pair.values].reshape(pair.sizes)
                own, *alone = purified(values, shares)
                self._set_pair(pair, output, own)
                for term, group, moved in zip(terms, pair.groups, alone, strict=True):
                    self._change(term, output, self._curve(term, output)[0] + moved[group])

    def _cell_shares(self, pair: CellPair) -> tuple[FloatArray, FloatArray]:
        first, second = (self._curve(self.terms_[at])[1] for at in pair.columns)
        return np.bincount(pair.groups[0], first).astype(float), np.bincount(pair.groups[1], second).astype(float)

    def _set_pair(self, pair: CellPair, output: int, values: FloatArray) -> None:
        linear = self.linear_ = same_attributes(self.linear_)
        coefficients = np.atleast_2d(linear.coef_).copy()
        coefficients[output, pair.values] = values.ravel()
        linear.coef_ = coefficients.reshape(np.shape(linear.coef_))

    def _checked(self, X: Any, reset: bool, y: Any = "no_validation") -> Any:
        kinds = FLOATS if self.categories is None else None
        if kinds is None and not hasattr(X, "dtype") and not hasattr(X, "columns"):
            X = np.array(X, dtype=object)  # numpy would convert numbers in a mixed list to text
        more = {"ensure_min_samples": 2, "y_numeric": isinstance(self, RegressorMixin)} if reset else {}
        return validate(self, X, reset, y, dtype=kinds, ensure_all_finite=False, **more)

    def _declared(self, columns: "Columns") -> tuple[dict[int, Pair], dict[int, DeclaredOneHot]]:
        """Return the range or the categories of each column, by place."""
        listed = {}
        for place, values in columns.by_place("categories", self.categories).items():
            listed[place] = DeclaredOneHot([values], unknown="other", sparse_output=False, dtype=np.float32)
            listed[place]._takes_any_rows = True  # the model has checked them, if it does
            listed[place].transform(np.zeros((1, 1), dtype=object))  # raise now for a wrong list
        others = [place for place in range(columns.count) if place not in listed]
        given = self.ranges
        if isinstance(given, Mapping):
            pairs = columns.by_place("ranges", given)
        elif isinstance(given, Sequence | np.ndarray) and len(given) and np.ndim(given[0]):
            pairs = dict(enumerate(given)) if len(given) == columns.count else {}
        else:
            pairs = dict.fromkeys(others, given)
        ranges = {}
        for place in others:
            pair = pairs.get(place)
            try:
                low, high = map(float, pair)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                low = high = math.nan
            if not -_MOST <= low < high <= _MOST or high - low <= 1e-9 * max(abs(low), abs(high)):
                got = "none" if pair is None else shown(pair)
                raise InvalidArgument(
                    f"ranges must have two increasing numbers for column {columns.named(place)!r}; got {got}. Pass for "
                    "example ranges=(0, 100), or ranges={'age': (0, 120)} and categories={'job': ['law', 'care']}."
                )
            ranges[place] = (low, high)
        return ranges, listed

    def _drawn(self, columns: "Columns", ranges: Mapping[int, Pair]) -> list[int]:
        """Return the places of the columns of numbers that get curves."""
        if isinstance(self.curves, bool | np.bool_):
            return [*ranges] * bool(self.curves)
        named = columns.by_place("curves", dict.fromkeys(self.curves))
        return [place for place in ranges if place in named]

    def _signs(self, columns: "Columns", ranges: Mapping[int, Pair], classes: Sequence[Any]) -> dict[int, int]:
        signs = columns.by_place("monotone", self.monotone)
        if wrong := [place for place, sign in signs.items() if place not in ranges or sign not in (1, -1)]:
            raise InvalidArgument(
                f"monotone must have 1 or -1 for columns of numbers; got {shown(signs[wrong[0]])} for column "
                f"{columns.named(wrong[0])!r}. Pass for example monotone={{'age': 1}}."
            )
        if signs and len(classes) > 2:
            raise InvalidArgument(
                f"monotone needs two classes or a regression; got {len(classes)} classes. Leave it out."
            )
        return signs

    def _encoded(self, X: Any) -> Any:
        parts = [term.encode(X[:, place]) for place, term in enumerate(self.terms_)]
        if sum(part.shape[1] for part in parts) > MOST_DENSE_COLUMNS:
            return self._with_pairs(sparse.hstack([sparse.csr_matrix(part) for part in parts], format="csr"))
        return self._with_pairs(np.hstack(parts))

    def _with_pairs(self, rows: Any) -> Any:
        """Return encoded rows with the columns of pairs."""
        terms = [[self.terms_[at] for at in pair.columns] for pair in self.pairs_]
        found = [
            pair.encode(*(members_of(one, rows) for one in both)) for pair, both in zip(self.pairs_, terms, strict=True)
        ]
        if sparse.issparse(rows):
            return sparse.hstack([rows, *map(sparse.csr_matrix, found)], format="csr")
        return np.hstack([rows, *found]) if found else rows

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._encoded(self._checked(X, False))

    def _groups(self) -> list[tuple[int, str]]:
        pairs = [(math.prod(pair.sizes), "categories") for pair in self.pairs_]
        return [*((term.width, term.kind) for term in self.terms_), *pairs]

    def _curve(self, term: Term, output: int = 0) -> tuple[FloatArray, FloatArray]:
        """Return the centred values of a term, and the released shares of its knots or categories."""
        weights = unfolded(self.linear_.coef_, self._groups(), self.preparation_)[output]
        if term.kind == "number":
            values = weights[term.place] * np.array([0.0, 1.0])
            shares = line_shares(self.preparation_, term.place)
        else:
            values, shares = weights[term.values], shares_of(self.preparation_, term.values)
        return values - shares @ values, shares

    def _change(self, term: Term, output: int, values: FloatArray) -> None:
        """Replace the centred values of a term."""
        linear = self.linear_ = same_attributes(self.linear_)
        coefficients, intercept = np.atleast_2d(linear.coef_).copy(), np.atleast_1d(linear.intercept_).astype(float)
        change = values - self._curve(term, output)[0]
        if term.kind == "number":
            coefficients[output, term.place] += change[1] - change[0]
            intercept[output] += change[0]
        else:
            coefficients[output, term.values] += change
        linear.coef_ = coefficients.reshape(np.shape(linear.coef_))
        linear.intercept_ = intercept if np.ndim(linear.intercept_) else float(intercept[0])

    def edit(
        self, column: str, *, drop: bool = False, smooth: float | None = None, values: Sequence[float] | None = None
    ) -> Any:
        """Change the curve of a column by hand: drop it, smooth it, or set its values.

        The guarantee stays as it is, if nobody looked at the records to choose the edit. The
        certificate names the edit.

        Parameters
        ----------
        column : str
            Name of the column, as in `shapes`, or of a pair to drop, as in `pairs`.
        drop : bool
            Set the curve to zero, and the pairs of the column, which the other edits leave.
        smooth : float, optional
            Penalty on second differences of the values at the knots, relative to the evenness of
            the curve: 1 is a little, 100 close to a line. For curves only.
        values : sequence of float, optional
            The new centred values, in the order of `shapes`, of the first output if there are several.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        term = next((one for one in self.terms_ if one.name == column), None)
        pairs = [pair for pair in self.pairs_ if column in (pair.name, *(self.terms_[at].name for at in pair.columns))]
        if (term is None and not (drop and pairs)) or (smooth is not None and getattr(term, "knots", None) is None):
            raise InvalidArgument(
                f"column must be a column of the model, of numbers to smooth it; got {shown(column)}."
            )
        if sum((bool(drop), smooth is not None, values is not None)) != 1:
            raise InvalidArgument("edit needs one of drop=True, smooth=... and values=... . Pass one of them.")
        for output in range(1 if values is not None else len(np.atleast_2d(self.linear_.coef_))):
            for pair in pairs if drop else ():
                self._set_pair(pair, output, np.zeros(pair.sizes))
            if term is None:
                continue
            old, shares = self._curve(term, output)
            new = np.zeros_like(old)
            if smooth is not None:
                bends = np.diff(np.eye(len(old)), n=2, axis=0)
                weights = np.diag(shares + 1e-6)
                penalty = non_negative(smooth=smooth) / len(old) * bends.T @ bends
                new = np.asarray(np.linalg.solve(weights + penalty, weights @ old), dtype=np.float64)
            if values is not None:
                new = np.asarray(values, dtype=np.float64)
                if new.shape != old.shape or not np.isfinite(new).all():
                    raise InvalidArgument(f"values must be {old.size} finite numbers; got {shown(values)}.")
            self._change(term, output, new)
        how = "dropped" if drop else f"smoothed by {smooth:g}" if smooth is not None else "set by hand"
        what = f"what was known when the curve of {column!r} was {how} after training: the edit itself used no record"
        self.certificate_ = replace(self.certificate_, uncovered=(*self.certificate_.uncovered, what))
        self.linear_.certificate_ = self.certificate_
        return self

    def shapes(self, *, intervals: bool = True) -> "pandas.DataFrame":
        """Return the curves as a data frame, the most important column first.

        Parameters
        ----------
        intervals : bool, default True
            Whether to rehearse the fit for bands, as ``PrivateLogisticRegression.coefficients``
            does: they are about noise alone, and nothing is spent.

        Returns
        -------
        pandas.DataFrame
            With columns "column", "at" (a knot, between which a curve is linear) or "category",
            "value" (in log-odds, or in units of the target), "low", "high" (NaN without a band),
            and "share", the released share of the records. Values of a column are centred by these
            shares. "class" comes first if there are several.
        """
        import pandas

        check_is_fitted(self)
        half = self._half_widths() if intervals else None
        outputs = np.atleast_2d(self.linear_.coef_)
        found: list[tuple[float, dict[str, Any]]] = []
        for output in range(len(outputs)):
            for term in self.terms_:
                values, shares = self._curve(term, output)
                widths = np.full(len(values), np.nan)
                if half is not None:
                    widths = half[0][output, term.values]
                    if term.kind == "number":  # of a line through its middle
                        widths = widths[0] * np.abs(np.linspace(0.0, 1.0, 2) - shares[1])
                importance = float(np.sqrt(shares @ values**2))
                at: Any = [math.nan] * len(values) if term.knots is None else term.knots.tolist()
                names: Any = [None] * len(values)
                if term.categories is not None:
                    names = [*term.categories.categories[0], "(other)"]  # type: ignore[index]
                rows: dict[str, Any] = {"column": term.name, "at": at, "category": names, "value": values}
                rows |= {"low": values - widths, "high": values + widths, "share": shares}
                if len(outputs) > 1:
                    rows = {"class": self.linear_.classes_[output]} | rows
                found.append((importance, rows))
        found.sort(key=lambda pair: -pair[0])
        return pandas.concat([pandas.DataFrame(rows) for _, rows in found], ignore_index=True)

    def _half_widths(self) -> tuple[FloatArray, FloatArray] | None:
        """Rehearse the fit for half-widths of bands, if that is possible."""
        with contextlib.suppress(PrivypurseError):
            return half_widths(self.linear_, self._groups(), share=self._last_share)
        return None

    def _cells_of(self, pair: CellPair) -> list[tuple[str, ...]]:
        """Name each pair of cells."""
        terms = [self.terms_[at] for at in pair.columns]
        return list(itertools.product(*(cell_names(*one) for one in zip(terms, pair.groups, strict=True))))

    def pairs(self) -> "pandas.DataFrame":
        """Return what pairs of columns add to their curves, as a data frame, the best pair first.

        Returns
        -------
        pandas.DataFrame
            With columns "pair", "first" and "second" (a cell of each column: categories, or the
            knots at its ends, between which cells merge), "value", as in `shapes`, and "share", the
            product of the released shares of both cells. Values have a mean of zero over each cell
            of one column: what it says alone is in its curve. "class" comes first if there are
            several. Empty without pairs.
        """
        import pandas

        check_is_fitted(self)
        parts: list[Any] = [pandas.DataFrame(columns=["pair", "first", "second", "value", "share"])]
        outputs = np.atleast_2d(self.linear_.coef_)
        for output, pair in itertools.product(range(len(outputs)), self.pairs_):
            shares = self._cell_shares(pair)
            first, second = zip(*self._cells_of(pair), strict=True)
            rows: dict[str, Any] = {"pair": pair.name, "first": first, "second": second}
            rows |= {"value": outputs[output, pair.values], "share": np.outer(shares[0], shares[1]).ravel()}
            if len(outputs) > 1:
                rows = {"class": self.linear_.classes_[output]} | rows
            parts.append(pandas.DataFrame(rows))
        return pandas.concat(parts[1:] or parts, ignore_index=True)

    def plot(self, *, most: int = 12, intervals: bool = True) -> Any:
        """Draw the curves of the most important columns, with their bands, as a matplotlib figure."""
        from matplotlib import pyplot

        frame = self.shapes(intervals=intervals)
        keys = ["class", "column"] if "class" in frame else ["column"]
        parts = list(frame.groupby(keys, sort=False))[:most]
        across = min(3, len(parts))
        down = -(-len(parts) // across)
        figure, panels = pyplot.subplots(
            down, across, figsize=(4 * across, 3 * down), squeeze=False, layout="constrained"
        )
        for panel, (key, part) in zip(panels.flat, parts, strict=False):
            if part["category"].isna().all():
                panel.plot(part["at"], part["value"])
                panel.fill_between(part["at"], part["low"], part["high"], alpha=0.25)
            else:
                far = np.vstack([part["value"] - part["low"], part["high"] - part["value"]])
                panel.errorbar(part["value"], part["category"].astype(str), xerr=np.nan_to_num(far), fmt="o")
            panel.set_title(", ".join(map(str, key)))
        for panel in panels.flat[len(parts) :]:
            panel.remove()
        return figure


class _Tags(NoisyTags):
    """Tags of both additive models, which take missing values, and no sparse matrix."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse, tags.input_tags.allow_nan = False, True
        tags.input_tags.categorical = tags.input_tags.string = self.categories is not None  # type: ignore[attr-defined]
        return tags

    def _more_tags(self) -> dict[str, bool]:
        return super()._more_tags() | {"allow_nan": True}


_ATTRIBUTES = """\
Attributes
----------
linear_ : PrivateLogisticRegression or PrivateRidge
    The linear model of the encoded rows.
privacy_spent_ : Spent
    ``epsilon``, ``delta`` and number of releases of this fit.
certificate_ : Certificate
    The guarantee of this fit, its releases, and what is not covered.
preparation_, trace_, n_iter_, stop_reason_
    Those of the linear model."""
_additive = functools.partial(with_common_parameters, base=Additive, attributes=_ATTRIBUTES)


@_additive
class PrivateAdditiveClassifier(_Tags, ClassifierMixin, Additive):  # type: ignore[misc]
    """A sum of curves, one for each column, for classes, under differential privacy.

    A curve is the log-odds that a column adds, piecewise linear between knots. The knots are chosen
    by a noisy histogram of each column, for 6 % of the budget; nothing is to be tuned. `shapes` and
    `plot` show the curves, `edit` changes one by hand.

    {parameters}
    classes, class_weight
        As for `PrivateLogisticRegression`.

    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse.estimators import PrivateAdditiveClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (10_000, 2))
    >>> y = (X[:, 0] ** 2 + X[:, 1] > 3).astype(int)
    >>> model = PrivateAdditiveClassifier(ranges=(-10, 10), classes=[0, 1], random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), sorted(set(model.shapes()["column"]))
    (True, ['x0', 'x1'])
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        classes: Sequence[Any] | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        **common: Any,
    ) -> None:
        super().__init__(epsilon, **common)
        self.classes = classes
        self.class_weight = class_weight

    def _linear(self) -> PrivateLinearModel:
        return PrivateLogisticRegression(
            None, classes=self.classes, class_weight=self.class_weight, n_public=self.n_public
        )

    def _residuals(self, rows: Any, y: Any) -> tuple[FloatArray, float]:
        chances = self.linear_.predict_proba(rows)
        residuals = np.eye(chances.shape[1])[encode_labels(y, self.linear_.classes_)] - chances
        two = residuals.shape[1] == 2
        return residuals[:, 1:] if two else residuals, 0.5 if two else math.sqrt(1 - 1 / residuals.shape[1])

    def decision_function(self, X: Any) -> FloatArray:
        """Return scores: positive for the second of two classes, or one column for each class."""
        rows = self._rows(X)
        return self.linear_.decision_function(rows)  # type: ignore[no-any-return]

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class, one column for each, in the order of `classes_`."""
        rows = self._rows(X)
        return self.linear_.predict_proba(rows)  # type: ignore[no-any-return]

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of the probability of each class."""
        rows = self._rows(X)
        return self.linear_.predict_log_proba(rows)  # type: ignore[no-any-return]


@_additive
class PrivateAdditiveRegressor(_Tags, RegressorMixin, Additive):  # type: ignore[misc]
    """A sum of curves, one for each column, for numbers, under differential privacy.

    As `PrivateAdditiveClassifier`, with a regression as by `PrivateRidge`: a curve is what a column
    adds to the target.

    {parameters}
    target_bounds : pair of float
        Public range of the target, required. y is clipped to it.
    target_transform : "log1p" or None
        As for `PrivateRidge`: with "log1p" a curve is what a column adds to ``log(1 + y)``.

    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse.estimators import PrivateAdditiveRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (10_000, 2))
    >>> y = X[:, 0] ** 2 + X[:, 1]
    >>> model = PrivateAdditiveRegressor(ranges=(-10, 10), target_bounds=(-20, 20), random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    _most_encoded = MOST_IN_REGRESSION

    def __init__(
        self,
        epsilon: float | None = 1.0,
        *,
        target_bounds: tuple[float, float] | None = None,
        target_transform: str | None = None,
        **common: Any,
    ) -> None:
        super().__init__(epsilon, **common)
        self.target_bounds = target_bounds
        self.target_transform = target_transform

    def _linear(self) -> PrivateLinearModel:
        check_target_bounds(self.target_bounds)
        settings: dict[str, Any] = {"target_bounds": self.target_bounds, "target_transform": self.target_transform}
        linear = PrivateRidge(None, n_public=self.n_public, **settings)
        linear._turn_at = TURN_HATS_AT
        return linear

    def _room_for_pairs(self, records: float, paid: Purse) -> int:
        """Return how many pairs leave columns that can be decorrelated few enough for that."""
        mu, columns = 1 / gaussian(paid, 1.0).noise_multiplier, sum(term.width for term in self.terms_)
        most = min(MOST_TURNED, int((records * mu / TURN_HATS_AT) ** (2 / 3)))
        return (most - columns) // CELLS**2 if columns <= most else MOST_PAIRS

    def _residuals(self, rows: Any, y: Any) -> tuple[FloatArray, float]:
        linear = self.linear_  # before the smearing of a transformed target
        targets, bounds = linear._transformed(y)
        residuals = np.clip(np.asarray(targets, dtype=np.float64), *bounds) - np.clip(linear._scores(rows), *bounds)
        return residuals[:, None], 0.4 * linear.preparation_.target[1]
