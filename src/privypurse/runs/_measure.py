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
from privypurse.estimators._private_statistics import gaussian, private_count, private_quantiles
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.oracles.statistics import clipped_sum, counts
from privypurse.purse._ledger import now
from privypurse.purse._purse import Purse
from privypurse.report._content import Estimate, Measurement
from privypurse.runs._estimates import COUNT_WEIGHT, Cells, Noise, area, class_estimates, combined, errors
from privypurse.runs._rehearse import made_rows
from privypurse.runs._rows import EncodedRows
from privypurse.tables._schema import ClassTarget, NumberTarget, Schema, Target

WHAT, WHAT_FINER = "right and wrong answers in each class", "records of each class by prediction"
MEDIAN = "always the median"
MEASURE_SHARE = 0.03  # of the budget of a run
# Of that of a measurement: right and wrong answers, which also decide how finely they are counted then.
COARSE_SHARE = 0.4
COUNT_SHARE = 0.02  # of that of a measurement: the number of records
CLIP_SHARE = 0.15  # of that of a measurement: the scale of errors
# Errors are clipped at a multiple of this quantile, which few exceed. A larger quantile would need
# more records to be told from the largest error.
CLIP_QUANTILE, CLIP_FACTOR = 0.75, 3.0
ROW_NORM = 2.04  # of a row of the sums, at most: a count, and four numbers up to 1
LITTLE = 0.2  # with a half-width above this the value is too noisy to report
MOST_CELLS = 12  # of scores
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


def epsilon_beside_measuring(run: Purse) -> float:
    """Return the epsilon that a fit may spend so that the share for measuring remains."""
    mu = 1 / run.filter.smallest_noise_multiplier(run.totals)
    return convert.gdp_epsilon(mu * math.sqrt(1 - MEASURE_SHARE), run.delta)


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
    scores = _in_blocks(lambda X: _scores(model, X), rows.X) if _has_scores(model, len(classes)) else None
    labels = rows.y, predicted, scores
    if purse is None:
        cells = _exact_cells(model, scores, len(classes))
        table = np.bincount(_places(*labels, cells), minlength=len(classes) * cells.number).astype(float)
        table, noise = table.reshape(len(classes), -1), Noise.none((len(classes), cells.number))
    else:
        coarse = Cells(answers=None)
        first, mechanism = table_of(*labels, coarse, len(classes)), gaussian(purse, COARSE_SHARE)
        answers = purse.release(first, mechanism, what=WHAT).value.reshape(len(classes), -1)
        cells = _cells(model, schema, answers, mechanism.noise_std(first, purse.neighbouring))
        fine, finer = _release(table_of(*labels, cells, len(classes)), purse, WHAT_FINER)
        stds = mechanism.noise_std(first, purse.neighbouring), finer
        table, noise = combined(answers, fine.reshape(len(classes), -1), cells.right(len(classes)), stds)
    found = class_estimates(classes, table, cells, noise)
    if purse is None and scores is not None:  # without noise there is no need for cells
        found["estimates"] += _exact_areas(rows.y, scores, classes)
    half = (found["high"] - found["low"]) / 2
    total = max(float(table.sum()), 0.0 if purse is None else 1.0)
    return Measurement(metric="accuracy", on="", paid=False, says_little=half > LITTLE, **found), total


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


def _has_scores(model: Any, classes: int) -> bool:
    """Whether a model has a score for each of the classes."""
    has_some = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    return has_some and len(model.classes_) == classes


def _scores(model: Any, X: Any) -> FloatArray:
    """Return the probability or the score of the second of two classes, or of each of several."""
    if not hasattr(model, "predict_proba"):
        return np.asarray(np.nan_to_num(model.decision_function(X)))
    chances = np.nan_to_num(model.predict_proba(X))
    return np.asarray(chances[:, 1] if chances.shape[1] == 2 else chances)


def _cells(model: Any, schema: Schema | None, answers: FloatArray, noise: float) -> Cells:
    """Choose cells by released counts and their noise: finer ones show more, and add up more noise."""
    of_class, classes = answers.sum(axis=1), len(answers)
    if classes != 2 or not _has_scores(model, classes):
        return Cells(answers=np.arange(classes) if of_class.sum() >= MATRIX_FROM * noise * classes else None)
    chances, preparation = hasattr(model, "predict_proba"), getattr(model, "preparation_", None)
    number = min(max(round((max(of_class.min(), 0.0) / noise) ** (2 / 3)), 1), MOST_CELLS)
    levels = np.arange(1, number) / number
    middle = 0.5 if chances else 0.0
    if preparation is None or schema is None:
        scores = 1.5 * stats.norm.ppf(levels)
        return Cells.around(special.expit(scores) if chances else scores, middle, chances)
    # The columns of these rows are independent, which is near enough to place cells.
    X = made_rows(schema, preparation, _PUBLIC_ROWS, np.random.default_rng(0), 0.0)
    scores, positive = _scores(model, X), _answers(model, X, 2) == 1
    if np.any((scores > middle) != positive):  # the model has a threshold of its own
        middle = float(scores[~positive].max(initial=scores.min()) + scores[positive].min(initial=scores.max())) / 2
    return Cells.around(np.quantile(scores, levels), middle, chances)


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
        positive, negative = (
            np.bincount(cell[of], minlength=cell.max(initial=0) + 1) for of in (y == place, y != place)
        )
        exact = Noise.none(positive.size)
        three = area(positive.astype(float), negative.astype(float), exact, exact)
        found.append(Estimate(kind="AUC", of="" if scores.ndim == 1 else classes[place], **three))
    return tuple(found)


def _numbers(model: Any, rows: EncodedRows, target: NumberTarget, purse: Purse | None) -> tuple[Measurement, float]:
    """Return the figures of a regressor, and the number of records."""
    low, high = target.range
    y = np.clip(rows.y, low, high)
    off = np.nan_to_num(np.abs(np.clip(_in_blocks(model.predict, rows.X), low, high) - y), nan=high - low)
    preparation, note = getattr(model, "preparation_", None), ""
    middle, room = ((low + high) / 2, (high - low) / 2) if preparation is None else preparation.target
    if purse is None:
        clip = room = high - low
        middle = middle if preparation is not None or not len(y) else float(np.median(y))
        sums, noise = np.ascontiguousarray(terms_of(off, y - middle, clip, room).T).sum(axis=1), 0.0
    else:
        records = private_count(rows.y, purse=purse, share=COUNT_SHARE)
        candidates = (high - low) * 2.0 ** (np.arange(-30, 1) / 2)
        quantile = private_quantiles(off, CLIP_QUANTILE, purse=purse, share=CLIP_SHARE, candidates=candidates)
        # With little noise clip less: the tail beyond must stay small beside the noise.
        wider = max(math.log(max(records / purse.remaining.noise_multiplier, 1.0)) / 4.5, 1.0)
        clip, room = min(CLIP_FACTOR * wider * float(quantile), high - low), min(room * wider, high - low)
        sums, noise = _release(sums_of(off, y - middle, clip, room), purse, "sums of errors")
        note = f"Errors above {short(clip)} count as {short(clip)}. "
    note += f"The median, {short(middle)}, was selected in training." if preparation is not None else ""
    found = errors(sums, clip, room, noise)
    estimates = (Estimate(kind="R2", **found["r2"]), Estimate(kind=MEDIAN, **found["constant"]))
    half = (found["error"]["high"] - found["error"]["low"]) / 2
    compared = ((MEDIAN, found["constant"]["value"]),)
    how: Any = {"says_little": half > found["error"]["value"], "compared_with": compared, "estimates": estimates}
    measured = Measurement(metric="mean absolute error", on="", paid=False, note=note.strip(), **found["error"], **how)
    return measured, max(float(sums[0]) / COUNT_WEIGHT, 1.0 if noise else 0.0)


def terms_of(off: FloatArray, beyond: FloatArray, clip: float, room: float) -> FloatArray:
    """Return one row for each record: a constant, its error, and the distance of its target from a constant.

    Squares of errors and of distances have one limit, or R2, which compares them, would be biased.
    """
    u, v, t = np.clip(off / clip, 0, 1), np.clip(off / room, 0, 1), np.clip(beyond / room, -1, 1)
    return np.column_stack([np.full_like(u, COUNT_WEIGHT), u, v**2, np.maximum(t, 0), np.maximum(-t, 0), t**2])


def sums_of(off: FloatArray, beyond: FloatArray, clip: float, room: float) -> Sensitive:
    """Sum the rows of `terms_of`, clipped."""
    return clipped_sum(terms_of(off, beyond, clip, room), clip_norm=ROW_NORM)


def _in_blocks(work: Any, X: Any) -> NDArray[Any]:
    if X.shape[0] == 0:  # models reject empty tables
        return np.zeros(0)
    return np.concatenate([work(X[start : start + _ROWS]) for start in range(0, X.shape[0], _ROWS)])
