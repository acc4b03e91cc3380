"""[RAW DATA] Measure a model on unseen records, by a noisy release or exactly."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.accounting import convert
from privypurse.core._checks import FloatArray
from privypurse.core._formats import about
from privypurse.core._sensitive import Sensitive
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.oracles.statistics import clipped_sum, counts
from privypurse.purse._ledger import now
from privypurse.purse._purse import Purse
from privypurse.report._content import Measurement
from privypurse.runs._rows import EncodedRows
from privypurse.tables._schema import ClassTarget, NumberTarget, Target

WHAT = "how many records are classified right"
Z95 = 1.959963984540054
_ROWS = 65_536
MEASURE_SHARE = 0.03  # of the budget of a run
LITTLE = 0.2  # with a half-width above this the value is too noisy to report


def measure(
    model: Any, rows: EncodedRows, target: Target, *, on: str, purse: Purse | None = None, public: bool = False
) -> Measurement:
    """Measure a classifier for the sorted classes of the target, or a regressor, on unseen records.

    `on` names the records. One release spends all that is left in the purse. Without a purse the
    values are exact and not covered, unless the records are declared `public`.

    Guarantees
    ----------
    With a purse everything returned is computed from one noisy release and public numbers.
    """
    if isinstance(target, ClassTarget):
        found, total = _accuracy(model, rows, target, purse)
    else:
        found, total = _error(model, rows, target, purse)
    if purse is None:
        return Measurement(**found, on=f"{on} ({total:,.0f} records)", paid=False, public=public, when=now())
    on, simulated = f"{on} (about {about(total)} records)", purse.noise.simulation
    return Measurement(**found, on=on, paid=True, public=public, simulated=simulated, when=now())


def epsilon_beside_measuring(run: Purse) -> float:
    """Return the epsilon that a fit may spend so that the share for measuring remains."""
    mu = 1 / run.filter.smallest_noise_multiplier(run.totals)
    return convert.gdp_epsilon(mu * math.sqrt(1 - MEASURE_SHARE), run.delta)


def _release(box: Sensitive, purse: Purse, what: str) -> tuple[FloatArray, float, float]:
    """Spend what is left. Return the noisy numbers, the noise's standard deviation and epsilon."""
    left = purse.remaining
    mechanism = Gaussian.spending(left)
    noisy = purse.release(box, mechanism, what=what).value
    return noisy, mechanism.noise_std(box, purse.neighbouring), left.epsilon


def _accuracy(model: Any, rows: EncodedRows, target: ClassTarget, purse: Purse | None) -> tuple[dict[str, Any], float]:
    """Return the fields of a measurement, and the number of records."""
    classes = sorted(target.classes)
    # A model fitted on places in the list lacks those of rare classes that it did not see.
    known = np.sort(model.classes_) if len(model.classes_) == len(classes) else np.arange(len(classes))
    right = _in_blocks(lambda X: np.searchsorted(known, model.predict(X)), rows.X) == rows.y
    cells = [(place, hit) for place in range(len(classes)) for hit in (False, True)]
    labels = list(zip(rows.y.tolist(), right.tolist(), strict=True))
    if purse is None:
        table, error, epsilon = np.array([float(labels.count(cell)) for cell in cells]), 0.0, None
    else:
        table, error, epsilon = _release(counts(labels, categories=cells), purse, WHAT)
    wrong, hits = table.reshape(len(classes), 2).T
    total = max(float(table.sum()), 1.0, 2 * error)
    value = min(max(float(hits.sum()) / total, 0.0), 1.0)
    # Error of a ratio of noisy sums, and sampling error.
    noise = error * math.sqrt(len(classes) * ((1 - value) ** 2 + value**2)) / total
    half = Z95 * math.hypot(noise, math.sqrt(max(value * (1 - value), 0.25 / total) / total))
    of_class = np.maximum(wrong + hits, 0.0)
    # Leave out classes that may have no records.
    recalls = [
        (f"recall for {name!r}", float(np.clip(hit / size, 0.0, 1.0)))
        for name, hit, size in zip(classes, hits, of_class, strict=True)
        if size > max(4 * error, 0.5)
    ]
    return {
        "metric": "accuracy",
        "value": value,
        "low": max(value - half, 0.0),
        "high": min(value + half, 1.0),
        "epsilon": epsilon,
        "says_little": half > LITTLE,
        "compared_with": (("always the most frequent class", float(np.clip(of_class.max() / total, 0.0, 1.0))),),
        "details": tuple(recalls),
    }, total


def _error(model: Any, rows: EncodedRows, target: NumberTarget, purse: Purse | None) -> tuple[dict[str, Any], float]:
    """Return the fields of a measurement, and the number of records."""
    low, high = target.range
    width, middle = high - low, (low + high) / 2
    off = np.abs(np.clip(_in_blocks(model.predict, rows.X), low, high) - rows.y) / width
    table = np.column_stack([np.ones(len(off)), off, np.abs(rows.y - middle) / width])
    if purse is None:
        sums, error, epsilon = table.sum(axis=0), 0.0, None
    else:
        box = clipped_sum(table, clip_norm=math.sqrt(1 + 1 + 0.25))
        sums, error, epsilon = _release(box, purse, "sum of absolute errors")
    total = max(float(sums[0]), 1.0, 2 * error)
    mean, baseline = (min(max(float(part) / total, 0.0), 1.0) for part in sums[1:])
    # The variance of an error between 0 and 1 with this mean is at most mean * (1 - mean).
    spread = math.sqrt(max(mean * (1 - mean), 0.0) / total)
    half = Z95 * math.hypot(error * math.sqrt(1 + mean**2) / total, spread)
    return {
        "metric": "mean absolute error",
        "value": mean * width,
        "low": max(mean - half, 0.0) * width,
        "high": (mean + half) * width,
        "epsilon": epsilon,
        "says_little": half > max(mean, LITTLE / 2),
        "compared_with": (("always the middle of the range", baseline * width),),
    }, total


def _in_blocks(work: Any, X: Any) -> NDArray[Any]:
    if X.shape[0] == 0:  # models reject empty tables
        return np.zeros(0)
    return np.concatenate([work(X[start : start + _ROWS]) for start in range(0, X.shape[0], _ROWS)])
