"""Fitted private models as JSON and back. Numbers are written so that they come back the same to the last bit."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.reading import check_fields, read_json, refusing
from privypurse.core.version import __version__
from privypurse.estimators import PrivateHuberRegressor, PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from privypurse.estimators.base import PrivateLinearModel
from privypurse.estimators.preparation import Preparation
from privypurse.methods.by_name import BY_NAME
from privypurse.purse.purse import Spent

FORMAT = 1
KINDS: dict[str, type[PrivateLinearModel]] = {
    kind.__name__: kind for kind in (PrivateLogisticRegression, PrivateLinearSVC, PrivateRidge, PrivateHuberRegressor)
}
# Who pays, who watches and where noise came from belong to a process, not to a model.
_NOT_KEPT = ("purse", "callbacks", "random_state", "verbose", "method", "warm_start", "copy_X")
_ARRAYS = ("unit", "centre", "stretch", "log_odds")


def model_to_json(model: PrivateLinearModel) -> str:
    """Write a fitted model.

    Parameters
    ----------
    model : estimator
        One of this library's private models, fitted.
    """
    kind = type(model).__name__
    if KINDS.get(kind) is not type(model) or not hasattr(model, "certificate_"):
        raise InvalidArgument(f"model must be a fitted {', '.join(KINDS)}; got {kind}. Fit it first.")
    params = {name: _plain(value) for name, value in model.get_params(deep=False).items() if name not in _NOT_KEPT}
    method = model.method if isinstance(model.method, str) else model.method.name
    fitted = {
        "coef": model.coef_.tolist(),
        "intercept": np.asarray(model.intercept_).tolist(),
        "n_features_in": int(model.n_features_in_),
        "n_iter": model.n_iter_,
        "stop_reason": model.stop_reason_,
        "spent": asdict(model.privacy_spent_),
        "preparation": {name: _plain(value) for name, value in vars(model.preparation_).items()},
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
    }
    fields = {"format": FORMAT, "version": __version__, "kind": kind, "method": method}
    return json.dumps(fields | {"params": params, "fitted": fitted}, indent=1, allow_nan=False)


def model_from_json(text: str) -> PrivateLinearModel:
    """Read a model back from `model_to_json`."""
    with refusing("this is not a privypurse model. Pass what model_to_json wrote."):
        fields = read_json(text)
        if fields["format"] != FORMAT:
            raise InvalidArgument(
                f"the model has format {fields['format']!r}; this version reads format {FORMAT}. Install the version of "
                f"privypurse that wrote it, {fields.get('version')}."
            )
        fitted, method = fields["fitted"], fields["method"]
        model = KINDS[fields["kind"]](**fields["params"], method=method if method in BY_NAME else "auto")
        model.coef_ = np.array(fitted["coef"], dtype=np.float64)
        intercept = np.array(fitted["intercept"], dtype=np.float64)
        model.intercept_ = intercept if intercept.ndim else float(intercept)
        model.n_features_in_ = fitted["n_features_in"]
        model.n_iter_, model.stop_reason_ = fitted["n_iter"], fitted["stop_reason"]
        model.privacy_spent_ = Spent(**fitted["spent"])
        model.preparation_ = _preparation(fitted["preparation"])
        if fitted["classes"] is not None:
            model.classes_ = np.array(fitted["classes"])
        _check(model)
    return model


def _check(model: Any) -> None:
    """Raise ValueError unless the parts of a model fit together, so that it answers for every row."""
    columns, classes = model.n_features_in_, getattr(model, "classes_", None)
    outputs = np.atleast_1d(model.intercept_).shape
    count = 1 if classes is None or len(classes) == 2 else len(classes)
    shapes = [np.atleast_2d(model.coef_).shape == (count, columns), outputs == (count,)]
    shapes.append(model.coef_.ndim == (1 if classes is None else 2))
    check_fields(model.privacy_spent_)
    check_fields(model.preparation_)
    for name in ("centre", "stretch", "unit"):
        array = getattr(model.preparation_, name)
        shapes.append(array is None or np.ndim(array) == 0 or np.shape(array) == (columns,))
    if isinstance(model, PrivateRidge | PrivateHuberRegressor) != (classes is None) or not all(shapes):
        raise ValueError("parts have other shapes")
    if classes is not None and (classes.ndim != 1 or len(classes) < 2 or len(set(classes.tolist())) < len(classes)):
        raise ValueError("classes are not different from each other")
    if type(columns) is not int or type(model.n_iter_) is not int or not isinstance(model.stop_reason_, str):
        raise TypeError("counts must be whole numbers")


def _preparation(fields: dict[str, Any]) -> Preparation:
    for name in _ARRAYS:
        if isinstance(fields[name], list):
            fields[name] = np.array(fields[name], dtype=np.float64)
    return Preparation(**fields | {"target": tuple(fields["target"])})


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Neighbouring):
        return value.value
    return list(value) if isinstance(value, tuple | range) else value
