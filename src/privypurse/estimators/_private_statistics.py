"""Release quantiles, means and counts of a table from a purse."""

from collections.abc import Hashable, Iterable, Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privypurse.core._checks import FloatArray, finite_vector, ordinary, positive, probability, shown, small_probability
from privypurse.core._errors import InvalidArgument, spending_noted
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._selection import ExponentialSelection
from privypurse.oracles._scores import covering_scores
from privypurse.oracles.statistics import clipped_sum, counts, record_count
from privypurse.purse._allowance import Allowance
from privypurse.purse._purse import Purse
from privypurse.training.schedules._base import Budget


def default_candidates() -> FloatArray:
    """Return the default grid: 0, and ten numbers a decade from 0.001 to 1e6, of both signs."""
    sizes = np.logspace(-3, 6, 91)
    return np.concatenate([-sizes[::-1], [0.0], sizes])


@spending_noted(call="private_quantiles")
def private_quantiles(
    values: ArrayLike,
    quantiles: Sequence[float] | float,
    *,
    purse: Purse,
    share: float = 1.0,
    candidates: ArrayLike | None = None,
) -> FloatArray:
    """Release quantiles of a column, or of each column of a table.

    Parameters
    ----------
    values : array_like of shape (n,) or (n, d)
        One number, or row of numbers, for each record. NaN is left out, entry by entry.
    quantiles : float or sequence of float
        Quantiles strictly between 0 and 1.
    purse : Purse
        Purse to charge.
    share : float, default 1.0
        Share of what is left in the purse, split evenly over all quantiles of all columns.
    candidates : array_like of shape (k,), optional
        The public grid that answers are chosen from, increasing; see `default_candidates`. Answers
        are rounded away from the median: a range between two quantiles covers at least what was
        asked for.

    Returns
    -------
    ndarray of shape (q,) or (q, d), or (d,) or () for a single quantile
        The answers, in the order of `quantiles`, sorted to be monotone in each column.

    Notes
    -----
    Each quantile of each column is one selection by the exponential mechanism, charged before it is
    drawn. All arguments are checked, and the whole table read, before the first charge.

    An answer is off by some ``2 ln(k) / epsilon`` records, where k is the number of candidates and
    epsilon that of one selection: for a quantile of 0.05 the table should be much longer than
    twenty times that.

    Examples
    --------
    >>> from privypurse import NoiseSource
    >>> ages = np.random.default_rng(0).uniform(18, 90, size=5_000)
    >>> purse = Purse(epsilon=1.0, delta=1e-6, neighbouring="add-remove", noise=NoiseSource(seed=1))
    >>> private_quantiles(ages, [0.05, 0.95], purse=purse, share=0.1, candidates=np.arange(121))
    array([21., 87.])
    """
    listed: Any = quantiles if np.ndim(quantiles) == 1 else [quantiles]
    if not len(listed):
        raise InvalidArgument(f"quantiles must not be empty; got {shown(quantiles)}. Pass for example [0.05, 0.95].")
    asked = np.array([small_probability(quantiles=quantile) for quantile in listed])
    grid = default_candidates() if candidates is None else finite_vector(candidates=candidates)
    table = _numbers("values", values)
    columns = table[:, None] if table.ndim == 1 else table
    releases = asked.size * columns.shape[1]
    mechanism = selection(purse, share, releases)
    boxes = [
        covering_scores(column, quantile=quantile, candidates=grid, side="lower" if quantile < 0.5 else "upper")
        for column in columns.T
        for quantile in asked
    ]
    with purse.reserve(releases):
        places = [int(purse.release(box, mechanism, what="quantile of a column").value) for box in boxes]
    chosen = grid[places].reshape(columns.shape[1], asked.size).T
    # Post-processing.
    answers = np.empty_like(chosen)
    answers[np.argsort(asked, kind="stable")] = np.sort(chosen, axis=0)
    answers = answers[:, 0] if table.ndim == 1 else answers
    return answers if np.ndim(quantiles) else np.asarray(answers[0])


@spending_noted(call="private_count")
def private_count(X: Sized, *, purse: Purse, share: float) -> float:
    """Release the number of records.

    Parameters
    ----------
    X : table or list
        One row for each record.
    purse, share
        Purse to charge, and the share of what is left. Under replace-one the number is public
        already.

    Returns
    -------
    float
        The noisy count, at least zero, not rounded.
    """
    if isinstance(X, str) or not (hasattr(X, "__len__") or hasattr(X, "shape")) or getattr(X, "shape", None) == ():
        raise InvalidArgument(f"X must have one row for each record; got {shown(X)}. Pass the table itself, or a list.")
    box, mechanism = record_count(X), gaussian(purse, share)
    return max(0.0, float(purse.release(box, mechanism, what="number of records").value[0]))


@spending_noted(call="private_class_counts")
def private_class_counts(
    y: Iterable[Hashable], *, classes: Sequence[Hashable], purse: Purse, share: float
) -> FloatArray:
    """Release the number of records of each declared class.

    Parameters
    ----------
    y : iterable
        One label for each record. Labels that are not declared are not counted.
    classes : sequence
        The public list of classes.
    purse, share
        Purse to charge, and the share of what is left.

    Returns
    -------
    ndarray of shape (len(classes),)
        The noisy counts, at least zero, not rounded.
    """
    listed = list(classes) if isinstance(classes, Sequence | np.ndarray) and not isinstance(classes, str) else []
    if not listed or not all(isinstance(one, Hashable) for one in listed) or len(set(listed)) != len(listed):
        raise InvalidArgument(f"classes must be a list of different labels; got {shown(classes)}. Pass ['no', 'yes'].")
    if getattr(y, "ndim", 1) != 1:
        raise InvalidArgument(f"y must be in one dimension; got {shown(y)}. Pass for example y.ravel().")
    box, mechanism = counts(y, categories=listed), gaussian(purse, share)
    return np.maximum(0.0, purse.release(box, mechanism, what="number of records of each class").value)


@spending_noted(call="private_mean")
def private_mean(
    X: ArrayLike, *, purse: Purse, share: float, clip_norm: float, records: float | None = None
) -> FloatArray:
    """Release the mean of clipped rows.

    Parameters
    ----------
    X : array_like of shape (n, d)
        The records. A row with NaN or infinity is left out.
    purse, share
        Purse to charge, and the share of what is left.
    clip_norm : float
        Public Euclidean norm that rows are clipped to.
    records : float, optional
        The public number of records, if any. Without it a part of the share, ``1 / (1 + sqrt(d))``,
        is spent on a noisy count: the best split if all rows are equal and of norm `clip_norm`.

    Returns
    -------
    ndarray of shape (d,)
        The noisy sum divided by the number of records, clipped to `clip_norm`.
    """
    clip_norm = ordinary(clip_norm=clip_norm)
    divisor = None if records is None else positive(records=records)
    table = _numbers("X", X)
    if table.ndim != 2 or table.shape[1] == 0:
        raise InvalidArgument(f"X must be a table of records; got shape {table.shape}. Pass values.reshape(-1, 1).")
    table = table[np.isfinite(table).all(axis=1)]
    box, share = clipped_sum(table, clip_norm=clip_norm), probability(share=share)
    part = 1 / (1 + float(np.sqrt(table.shape[1])))
    mechanism = gaussian(purse, share if divisor is not None else share * (1 - part) * _SPLIT)
    if divisor is None:
        divisor = max(1.0, private_count(table, purse=purse, share=share * part * _SPLIT))
    mean = purse.release(box, mechanism, what="sum of clipped records").value / divisor
    length = float(np.linalg.norm(mean))
    return np.asarray(mean * min(1.0, clip_norm / length) if length > 0 else mean)


# Makes parts of a share slightly smaller, so that rounding does not exceed the whole.
_SPLIT = 1 - 1e-12


def selection(purse: Purse, share: float, releases: int) -> ExponentialSelection:
    """Return the selection whose `releases` cost this share of what is left."""
    share = probability(share=share) / releases * (_SPLIT if releases > 1 else 1.0)
    return min((budget.selection(share) for budget in _budgets(purse, releases)), key=lambda chosen: chosen.epsilon)


def gaussian(purse: Purse, share: float) -> Gaussian:
    """Return the Gaussian mechanism that costs this share of what is left."""
    share = probability(share=share)
    return max((budget.gaussian(share) for budget in _budgets(purse, 1)), key=lambda chosen: chosen.noise_multiplier)


def _budgets(purse: Any, releases: int) -> list[Budget]:
    """Return what is left in a purse and in the purses behind an allowance, which also pay."""
    if not isinstance(purse, Purse):
        said = f"purse must be a Purse; got {shown(purse)}"
        raise InvalidArgument(f"{said}. Pass for example Purse(1.0, 1e-6, neighbouring='add-remove').")
    chain = [purse]
    while isinstance(chain[-1], Allowance):
        chain.append(chain[-1].purse)
    limited = [one for one in chain if one.epsilon < float("inf")]
    if not limited:
        why = f"purse must have a finite epsilon; got {purse!r}. Pass a purse with a limit"
        raise InvalidArgument(f"{why}, or release the boxes of privypurse.oracles.statistics with your own mechanism.")
    return [Budget(one.filter, one.totals, one.totals, steps=releases) for one in limited]


def _numbers(name: str, values: Any) -> NDArray[Any]:
    """Return a column or a table of numbers, without a copy if possible."""
    try:
        plain = np.asarray(values)
        # A missing value (None) becomes NaN.
        table = plain.astype(np.float64) if plain.dtype.kind == "O" else plain
    except (TypeError, ValueError, OverflowError):
        plain = table = np.empty((), dtype="U1")
    if table.ndim not in (1, 2) or table.dtype.kind not in "iufb" or 0 in table.shape[1:]:
        got = f"got {type(values).__name__} with shape {plain.shape} of {plain.dtype}"
        remedy = "Leave text columns out, and pass a sparse matrix as X.toarray()"
        raise InvalidArgument(f"{name} must be a column or a table of numbers; {got}. {remedy}.")
    return table
