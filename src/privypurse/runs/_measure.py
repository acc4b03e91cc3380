"""[RAW DATA] Measure a model on unseen records, by noisy releases or exactly."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from privypurse.accounting import convert
from privypurse.core._checks import FloatArray
from privypurse.core._formats import about, short
from privypurse.core._sensitive import Sensitive
from privypurse.estimators._noise_intervals import grouped_rows
from privypurse.estimators._private_statistics import gaussian
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.oracles.statistics import clipped_sum, counts
from privypurse.purse._ledger import now
from privypurse.purse._purse import Purse
from privypurse.report._content import Estimate, Measurement
from privypurse.runs._estimates import COUNT_WEIGHT, Cells, Noise, area, area_of_sum, class_estimates, combined, errors
from privypurse.runs._rehearse import groups_of
from privypurse.runs._rows import EncodedRows
from privypurse.tables._schema import ClassTarget, NumberTarget, Schema, Target

WHAT, WHAT_FINER = "right and wrong answers in each class", "records of each class by prediction"
MEDIAN = "always the median"
# Of the budget of a run: the least that makes so many records held out as large as the noise of one
# count of them, within limits.
MEASURE_SHARES, CLEAR = (0.03, 0.1), 150.0
# Of that of a measurement: right and wrong answers, which also decide how finely they are counted then.
COARSE_SHARE = 0.5
# Of that of a measurement: sizes of errors and targets, which decide where they are clipped.
SIZE_SHARE, SIZES, WHAT_SIZES = 0.4, 16, "records by size of error or target"
ROW_NORM = 2.04  # of a row of the sums, at most: a count, and four numbers up to 1
LITTLE = 0.2  # with a half-width above this the value is too noisy to report
CELLS = 10  # of scores
MATRIX_FROM = 20.0  # records for each class and unit of noise, to count by predicted class
_ROWS, _PUBLIC_ROWS = 65_536, 2_000


def measure(
    model: Any,
    rows: EncodedRows,
    target: Target,
    *,
    on: str,
    purse: Purse | None = None,
    public: bool = False,
    schema: Schema | None = None,
) -> Measurement:
    """Measure a classifier for the sorted classes of the target, or a regressor, on unseen records.

    `on` names the records. Two or three releases spend all that is left in the purse. Without a
    purse the values are exact and not covered, unless the records are declared `public`. With the
    schema of the model, cells of its scores are placed by synthetic rows.

    Guarantees
    ----------
    With a purse everything returned is computed from noisy releases and public numbers. A record is
    in one count of each table of a classifier, and is one row of the sums of a regressor.
    """
    epsilon = None if purse is None else purse.remaining.epsilon
    if isinstance(target, ClassTarget):
        found, total = _classes(model, rows, sorted(target.classes), purse, schema)
    else:
        found, total = _numbers(model, rows, target, purse)
    found = replace(found, on=f"{on} ({total:,.0f} records)", public=public, epsilon=epsilon, when=now())
    if purse is None:
        return found
    return replace(found, on=f"{on} (about {about(total)} records)", paid=True, simulated=purse.noise.simulation)


def measured_exactly(model: str, records: str, target: Target | None) -> str:
    """Return what an exact measurement releases, for certificates."""
    cells = isinstance(target, ClassTarget) and len(target.classes) == 2
    found = f"the quality of {model} on the records of {records}{', the deciles of its scores' if cells else ''}"
    return f"{found}, and how many are left out, measured exactly"


def measure_share(noise_multiplier: float, records: float) -> float:
    """Return the share of a run to measure on so many records with, from public numbers.

    The multiplier is that of one release which spends all of the run.
    """
    least, most = MEASURE_SHARES
    return min(max((CLEAR * noise_multiplier / max(records, 1.0)) ** 2, least), most)


def epsilon_beside_measuring(run: Purse, records: float) -> float:
    """Return the epsilon that a fit may spend so that the share for measuring on these records remains."""
    multiplier = run.filter.smallest_noise_multiplier(run.totals)
    kept = 1 - measure_share(multiplier, records)
    return convert.gdp_epsilon(math.sqrt(kept) / multiplier, run.delta)


def _release(box: Sensitive, purse: Purse, what: str) -> tuple[FloatArray, float]:
    """Spend what is left. Return the noisy numbers and the standard deviation of their noise."""
    mechanism = Gaussian.spending(purse.remaining)
    noisy = purse.release(box, mechanism, what=what).value
    return noisy, mechanism.noise_std(box, purse.neighbouring)


def _classes(
    model: Any, rows: EncodedRows, classes: list[str], purse: Purse | None, schema: Schema | None
) -> tuple[Measurement, float]:
    """Return the figures of a classifier, and the number of records."""
    predicted = _in_blocks(lambda X: _answers(model, X, len(classes)), rows.X).astype(int)
    has_scores = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    of_all = has_scores and len(model.classes_) == len(classes)
    scores = _in_blocks(lambda X: _scores(model, X), rows.X) if of_all else None
    labels = rows.y, predicted, scores
    areas: tuple[Estimate, ...] = ()
    if purse is None:
        cells = _exact_cells(model, scores, len(classes))
        table = np.bincount(_places(*labels, cells), minlength=len(classes) * cells.number).astype(float)
        table, noise = table.reshape(len(classes), -1), Noise.none((len(classes), cells.number))
        areas = () if scores is None else _exact_areas(rows.y, scores, classes)
    elif len(classes) == 2 and scores is not None:
        cells, made = _cells(model, schema)
        log_odds = getattr(getattr(model, "preparation_", None), "log_odds", None)
        few = 1 if log_odds is None else int(np.argmin(log_odds))  # of fewer records in training, as released there
        table, noise, found = _by_scores(*labels, cells, made, few, purse)
        areas = (Estimate(kind="AUC", **found),)
    else:
        coarse = Cells(answers=None)
        first, mechanism = table_of(*labels, coarse, len(classes)), gaussian(purse, COARSE_SHARE)
        answers = purse.release(first, mechanism, what=WHAT).value.reshape(len(classes), -1)
        std = mechanism.noise_std(first, purse.neighbouring)
        # Finer counts show more, and add up more noise.
        by_class = answers.sum() >= MATRIX_FROM * std * len(classes)
        cells = Cells(answers=np.arange(len(classes)) if by_class else None)
        fine, finer = _release(table_of(*labels, cells, len(classes)), purse, WHAT_FINER)
        table, noise = combined(answers, fine.reshape(len(classes), -1), cells.right(len(classes)), (std, finer))
    found = class_estimates(classes, table, cells, noise)
    found["estimates"] += areas
    half = (found["high"] - found["low"]) / 2
    total = max(float(table.sum()), 0.0 if purse is None else 1.0)
    return Measurement(metric="accuracy", on="", paid=False, says_little=half > LITTLE, **found), total


def _by_scores(
    y: Any, predicted: Any, scores: Any, cells: Cells, made: FloatArray, few: int, purse: Purse
) -> tuple[FloatArray, Noise, dict[str, Any]]:
    """Return counts by class and cell, their noise, and the area under the ROC curve.

    The class `few` is counted by right and wrong answers first, the other by cells. These give the
    share of the other class below each score. Then it is summed over the first class, in place of
    counting that by cells, which would add up their noise: the other class adds to other numbers
    of the same release.
    """
    many, right, cell = 1 - few, cells.right(2).astype(int), cells.of(y, predicted, scores)
    place = np.where(y == few, cells.number + right[few][cell], cell)
    first = counts(place.tolist(), categories=range(cells.number + 2))
    mechanism = gaussian(purse, COARSE_SHARE)
    released = purse.release(first, mechanism, what=WHAT).value
    std = mechanism.noise_std(first, purse.neighbouring)
    by_cell, answers = released[: cells.number], released[cells.number :]
    below = cells.below(scores, by_cell, made)
    # Of the row of a record, the part for cells: more where these can be told from noise.
    part = float(np.clip(answers.sum() / (40 * std), 0.1, 0.8))
    second = sums_of_ranks(y == few, below, cell, right[many], part, cells.number)
    sums, finer = _release(second, purse, WHAT_FINER)
    whole = 2 * math.sqrt(1 - part**2)
    fine, coarse, stds = np.empty((2, cells.number)), np.empty((2, 2)), np.empty((2, 2))
    fine[few], fine[many], coarse[few], coarse[many] = sums[1:-2] / part, by_cell, answers, sums[-2:]
    stds[:, few], stds[:, many] = (std, finer / part), (finer, std)
    table, noise = combined(coarse, fine, right, (stds[0], stds[1]))
    own = np.repeat(np.arange(2)[:, None] == few, cells.number, axis=1).astype(float)
    number = float(table[few].sum()), math.sqrt(noise.form(own, own))
    found = area_of_sum(float(sums[0]) / whole * (1 if few else -1), finer / whole, number, by_cell, std)
    return table, noise, found


def sums_of_ranks(of_few: Any, below: FloatArray, cell: Any, right: Any, part: float, cells: int) -> Sensitive:
    """Sum one row for each record.

    In the smaller class it is a share of the other class below, and the cell; in the other the answer.
    """
    rows = np.zeros((len(cell), cells + 3))
    every = np.arange(len(cell))
    rows[every, np.where(of_few, 1 + cell, cells + 1 + right[cell])] = np.where(of_few, part, 1.0)
    rows[:, 0] = np.where(of_few, math.sqrt(1 - part**2) * (2 * below - 1), 0.0)
    return clipped_sum(rows, clip_norm=1.0)


def table_of(y: Any, predicted: Any, scores: Any, cells: Cells, classes: int) -> Sensitive:
    """Count records by class and cell of the prediction: each record is in one of them."""
    categories = range(classes * cells.number)
    return counts(_places(y, predicted, scores, cells).tolist(), categories=categories)


def _places(y: Any, predicted: Any, scores: Any, cells: Cells) -> NDArray[Any]:
    place: NDArray[Any] = np.asarray(y, dtype=int) * cells.number + cells.of(y, predicted, scores)
    return place


def _answers(model: Any, X: Any, classes: int) -> NDArray[Any]:
    """Return the place of each predicted class among the sorted classes."""
    # A model fitted on places in the list lacks those of rare classes that it did not see.
    known = np.sort(model.classes_) if len(model.classes_) == classes else np.arange(classes)
    return np.asarray(np.minimum(np.searchsorted(known, model.predict(X)), classes - 1))


def _scores(model: Any, X: Any) -> FloatArray:
    """Return the probability or the score of the second of two classes, or of each of several."""
    if not hasattr(model, "predict_proba"):
        return np.asarray(np.nan_to_num(model.decision_function(X)))
    chances = np.nan_to_num(model.predict_proba(X))
    return np.asarray(chances[:, 1] if chances.shape[1] == 2 else chances)


def _cells(model: Any, schema: Schema | None) -> tuple[Cells, FloatArray]:
    """Place cells of scores by public numbers. Return also the scores of synthetic records, in order."""
    chances, preparation = hasattr(model, "predict_proba"), getattr(model, "preparation_", None)
    middle = 0.5 if chances else 0.0
    if preparation is None or schema is None:
        scores = 1.5 * stats.norm.ppf((np.arange(_PUBLIC_ROWS) + 0.5) / _PUBLIC_ROWS)
        scores = special.expit(scores) if chances else scores
    else:
        # The columns of these rows are independent, which is near enough to place cells.
        X = grouped_rows(groups_of(schema), preparation, _PUBLIC_ROWS, np.random.default_rng(0), 0.0)
        scores, positive = _scores(model, X), _answers(model, X, 2) == 1
        if np.any((scores > middle) != positive):  # the model has a threshold of its own
            middle = float(scores[~positive].max(initial=scores.min()) + scores[positive].min(initial=scores.max())) / 2
    return Cells.around(np.quantile(scores, np.arange(1, CELLS) / CELLS), middle, chances), np.sort(scores)


def _exact_cells(model: Any, scores: FloatArray | None, classes: int) -> Cells:
    if classes != 2 or scores is None:
        return Cells(answers=np.arange(classes))
    chances = hasattr(model, "predict_proba")
    edges = np.quantile(scores, np.arange(1, 10) / 10) if len(scores) else np.zeros(0)
    return Cells.around(edges, 0.5 if chances else 0.0, chances)


def _exact_areas(y: Any, scores: FloatArray, classes: list[str]) -> tuple[Estimate, ...]:
    """Return the area under the ROC curve, or that of each of several classes against the others."""
    found = []
    for place, column in [(1, scores)] if scores.ndim == 1 else enumerate(scores.T):
        _, cell = np.unique(column, return_inverse=True)
        levels = cell.max(initial=0) + 1
        positive, negative = (np.bincount(cell[of], minlength=levels) for of in (y == place, y != place))
        three = area(positive.astype(float), negative.astype(float))
        found.append(Estimate(kind="AUC", of="" if scores.ndim == 1 else classes[place], **three))
    return tuple(found)


def _numbers(model: Any, rows: EncodedRows, target: NumberTarget, purse: Purse | None) -> tuple[Measurement, float]:
    """Return the figures of a regressor, and the number of records."""
    low, high = target.range
    y = np.clip(rows.y, low, high)
    off = np.nan_to_num(np.abs(np.clip(_in_blocks(model.predict, rows.X), low, high) - y), nan=high - low)
    preparation, note = getattr(model, "preparation_", None), ""
    middle = (low + high) / 2 if preparation is None else _middle(model)
    limit, hidden, noise = high - low, 0.0, 0.0
    if purse is None:
        middle = middle if preparation is not None or not len(y) else float(np.median(y))
        sums = np.ascontiguousarray(terms_of(off, y - middle, limit).T).sum(axis=1)
    else:
        # One limit, or the figure with the lower one would look better than it is.
        box, mechanism = sizes_of(np.maximum(off, np.abs(y - middle)), limit), gaussian(purse, SIZE_SHARE)
        sizes = purse.release(box, mechanism, what=WHAT_SIZES).value
        place, hidden = _limit(sizes, mechanism.noise_std(box, purse.neighbouring))
        limit *= 0.5**place
        sums, noise = _release(sums_of(off, y - middle, limit), purse, "sums of errors")
        if place:
            share = min(hidden * COUNT_WEIGHT / max(float(sums[0]), COUNT_WEIGHT), 1.0)
            beyond = f"Errors, and distances from the median, above {short(limit)} count as {short(limit)}"
            beyond += f": at most {100 * share:.2g} % of the records"
            note = f"{beyond}. Intervals have room for these to be twice as far, and not for a longer tail."
    found = errors(sums, limit, noise, hidden)
    estimates = (Estimate(kind="R2", **found["r2"]), Estimate(kind=MEDIAN, **found["constant"]))
    half = (found["error"]["high"] - found["error"]["low"]) / 2
    compared = ((MEDIAN, found["constant"]["value"]),)
    how: Any = {"says_little": half > found["error"]["value"], "compared_with": compared, "estimates": estimates}
    measured = Measurement(
        metric="mean absolute error", on="", paid=False, note=note, limit=limit, **found["error"], **how
    )
    return measured, max(float(sums[0]) / COUNT_WEIGHT, 1.0 if noise else 0.0)


def _middle(model: Any) -> float:
    """Return the middle of targets that a regressor released, in units of the target."""
    middle = float(model.preparation_.target[0])
    if getattr(model.preparation_, "target_reach", None) is not None:  # the logarithm of the mean
        return math.exp(middle)
    return middle if getattr(model, "target_transform", None) is None else math.expm1(middle)


def sizes_of(values: FloatArray, unit: float) -> Sensitive:
    """Count values by the power of two below `unit` that holds them."""
    place = np.floor(np.log2(unit / np.maximum(values, unit * 0.5**SIZES))).clip(0, SIZES - 1).astype(int)
    return counts(place.tolist(), categories=range(SIZES))


def _limit(sizes: FloatArray, std: float) -> tuple[int, float]:
    """Return the place of the smallest size such that no noisy count beyond it, or a larger one, is clear.

    Return also how many records are beyond it, at most, at 95 %.
    """
    clear = np.cumsum(sizes) > 3 * std * np.sqrt(np.arange(1, SIZES + 1))
    place = int(np.argmax(clear)) if clear.any() else 0
    return place, max(float(sizes[:place].sum()), 0.0) + float(stats.norm.isf(0.05)) * std * math.sqrt(place)


def terms_of(off: FloatArray, beyond: FloatArray, limit: float) -> FloatArray:
    """Return one row for each record: a constant, its error, the distance of its target from another, and squares."""
    u, t = np.clip(off / limit, 0, 1), np.clip(beyond / limit, -1, 1)
    return np.column_stack([np.full_like(u, COUNT_WEIGHT), u, u**2, np.maximum(t, 0), np.maximum(-t, 0), t**2])


def sums_of(off: FloatArray, beyond: FloatArray, limit: float) -> Sensitive:
    """Sum the rows of `terms_of`, clipped."""
    return clipped_sum(terms_of(off, beyond, limit), clip_norm=ROW_NORM)


def _in_blocks(work: Any, X: Any) -> NDArray[Any]:
    if X.shape[0] == 0:  # models reject empty tables
        return np.zeros(0)
    return np.concatenate([work(X[start : start + _ROWS]) for start in range(0, X.shape[0], _ROWS)])
