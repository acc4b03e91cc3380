"""[RAW DATA] Looking at the data before a search is paid for, so that no record can make a trial fail afterwards."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from privypurse.core.errors import InvalidArgument
from privypurse.estimators._search_steps import learns, look_through, with_parameters
from privypurse.estimators.base import CHECKED
from privypurse.preprocessing._compat import validate
from privypurse.preprocessing._ranges import FLOATS
from privypurse.preprocessing.private_range_scaler import PrivateRangeScaler

# Where a step that learns, or pays and is of another library, stands before the model.
TARGETS_CHECKED = "that the table and its targets passed the checks that could be made before payment"
# There, and where the model is of another library.
NOT_CHECKED = (
    "that no record made the search fail: some of its steps were not asked before payment if they take these records"
)
# How likely it may be that a step of another library has one record to train on, or none, and refuses that.
SMALL = 1e-18


@dataclass(frozen=True, eq=False)
class Checked:
    """Data that was looked at before the search is paid for.

    Parameters
    ----------
    X, y
        The data, as the model sees it where nothing stands before it.
    classes : dict
        The class labels to set in each trial, where they are not declared: a trial's part of the records may lack a rare one.
    uncovered : tuple of str
        What was looked at, and what was not, for the certificate.
    """

    X: Any
    y: Any
    classes: dict[str, Any]
    uncovered: tuple[str, ...]


def check_data(estimator: Any, candidates: list[dict[str, Any]], X: Any, y: Any, validation: float) -> Checked:
    """Let every step that can be asked refuse the data, and the values of the candidates, before the search is paid for.

    Behind steps that pay or learn, the model is asked about the targets only. In a trial it takes what such steps make of the
    rows: those that are not finite contribute nothing (`no_refusals`).
    """
    checked, targets, classes = X, y, dict[str, Any]()
    uncovered: dict[str, None] = {}
    for candidate in candidates:
        whole = with_parameters(estimator, candidate)
        uncovered |= dict.fromkeys(_enough_rows(X, validation) if look_through(whole).foreign else ())
        model, table, prefix, asked = _before_the_model(whole, X)
        if not hasattr(model, "check_input"):
            uncovered[NOT_CHECKED] = None
            continue
        model.set_params(purse=None, epsilon=1.0, warm_start=False)
        seen, targets = model.check_input(np.zeros((_records(X), 1)) if table is None else table, y)
        if table is not None:
            checked = seen if prefix == "" and not hasattr(X, "columns") else X
        if getattr(model, "classes", ...) is None:
            classes = {f"{prefix}classes": np.unique(targets)}
        uncovered |= dict.fromkeys((CHECKED,) if asked else (TARGETS_CHECKED, NOT_CHECKED))
    return Checked(checked, targets, classes, tuple(uncovered))


def _before_the_model(model: Any, X: Any) -> tuple[Any, Any, str, bool]:
    """Send the data through a pipeline as far as that costs nothing.

    Returns the model at its end with the prefix of its parameters, the table that it will see, or None where only a trial can
    tell, and whether every step was asked that could refuse a record.
    """
    table, prefix, asked = X, "", True
    while isinstance(model, Pipeline):
        *earlier, (name, last) = model.steps
        for step in (step for _, step in earlier if step is not None and step != "passthrough"):
            ours = isinstance(step, PrivateRangeScaler)
            if not ours and ("purse" in step.get_params(deep=False) or learns(step)):
                table, asked = None, False
            elif ours and table is not None:
                # What it makes of finite numbers is finite, which is what steps behind it ask for.
                validate(step, table, None, dtype=list(FLOATS))
                table = None
            elif table is not None:
                table = step.fit(table).transform(table)
        model, prefix = last, f"{prefix}{name}__"
    return model, table, prefix, asked


def _enough_rows(X: Any, validation: float) -> tuple[str, ...]:
    """Refuse a table so small that nothing may be left to train on; return what the certificate says of that."""
    least = least_rows(validation)
    if _records(X) < least:
        raise InvalidArgument(
            f"X must have at least {least} rows where a step of another library is searched over with "
            f"validation={validation:g}; it has fewer. Such a step may refuse what is left to train on, and that would tell how "
            "many there are. Use a smaller validation, or steps of this library. Nothing was spent."
        )
    return (f"that there are at least {least} records, which was checked before payment",)


def least_rows(validation: float) -> int:
    """Return from how many records on more than one of them is trained on, but for a probability of `SMALL`.

    Of n records, none or one is trained on with a probability of at most ``(n + 1) v^(n - 1)``, which falls from where n is
    ``1 / ln(1 / v)`` on.

    Examples
    --------
    >>> least_rows(0.2), least_rows(0.95), least_rows(1 - 1e-9)
    (29, 943, 66364968693)
    """
    falls = -math.log(validation)
    low = max(1, math.floor(1 / falls))  # too few
    high = 2 * low
    while math.log(high + 1) - (high - 1) * falls > math.log(SMALL):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        enough = math.log(middle + 1) - (middle - 1) * falls <= math.log(SMALL)
        low, high = (low, middle) if enough else (middle, high)
    return high


def _records(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
