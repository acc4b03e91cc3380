"""Write the declared steps of a pipeline as JSON, and make them again from it.

Kept are the settings of each step, never what a fit stored: steps made again are fitted on a table
of zeros with the columns of the original. No step that is kept learns more than that.
"""

import inspect
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._reading import MISSHAPEN, read_json
from privypurse.core._version import __version__
from privypurse.estimators import BoundedScaler, DeclaredOneHot, PrivateRangeScaler, RowNormalizer
from privypurse.estimators._compat import needs_fit
from privypurse.estimators._uncovered import is_ours

FORMAT, MOST_COLUMNS = 1, 1_000_000
_LISTED = (Pipeline, ColumnTransformer, FeatureUnion, DeclaredOneHot, BoundedScaler, RowNormalizer)
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (*_LISTED, Normalizer, FunctionTransformer, SimpleImputer)}
_CONTAINERS = (Pipeline, ColumnTransformer, FeatureUnion)
# Parameters of a process, and those that would run code or read other files.
_NOT_KEPT = ("memory", "n_jobs", "verbose", "func", "inverse_func", "kw_args", "inv_kw_args")
_AS_PLAIN = "Use steps with declared settings, such as BoundedScaler; or save the pipeline with skops."


def steps_to_json(pipeline: Pipeline) -> str:
    """Return the steps of a fitted pipeline before its model as JSON. Raise InvalidArgument if one cannot be kept."""
    names = getattr(pipeline, "feature_names_in_", None)
    fields = {
        **{"format": FORMAT, "version": __version__, "columns": int(getattr(pipeline, "n_features_in_", 0))},
        "names": None if names is None else [str(name) for name in names],
        "steps": [[name, _encoded(step, name)] for name, step in pipeline.steps[:-1]],
        "model": pipeline.steps[-1][0],
    }
    text = json.dumps(fields, indent=1, allow_nan=False)
    try:
        pipeline_from_json(text, pipeline[-1])
    except MISSHAPEN as error:
        raise InvalidArgument(f"the steps cannot be made again from their settings. {_AS_PLAIN}") from error
    return text


def pipeline_from_json(text: str, model: Any) -> Pipeline:
    """Make the steps again from `steps_to_json`, with this model at their end."""
    fields = read_json(text)
    if fields["format"] != FORMAT:
        formats = f"the steps have format {fields['format']!r}; this version reads format {FORMAT}"
        raise InvalidArgument(f"{formats}. Install the privypurse that wrote them, {fields.get('version')}.")
    if not 0 <= fields["columns"] <= MOST_COLUMNS:
        raise ValueError("more columns than a table has")
    table: Any = np.zeros((2, fields["columns"]), dtype=object)
    if fields["names"] is not None:
        import pandas

        table = pandas.DataFrame(table, columns=fields["names"])
    steps = [(name, _decoded(step)) for name, step in fields["steps"]]
    if steps and Pipeline(steps).fit_transform(table).shape[1] != model.n_features_in_:
        raise ValueError("steps and model do not fit together")
    return Pipeline([*steps, (fields["model"], model)])


def _encoded(value: Any, place: str) -> Any:
    """Return a setting, or a step, as JSON."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list | range):
        return [_encoded(one, place) for one in value]
    if isinstance(value, tuple):
        named = len(value) > 1 and hasattr(value[1], "fit")  # a step in a container
        return {"tuple": [_encoded(one, f"{place}__{value[0]}" if named else place) for one in value]}
    if isinstance(value, slice):
        return {"slice": [_encoded(one, place) for one in (value.start, value.stop, value.step)]}
    if isinstance(value, Mapping):
        return {"dict": [[_encoded(name, place), _encoded(one, place)] for name, one in value.items()]}
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic | float | int)):
        return {"dtype": np.dtype(value).name}
    if hasattr(value, "fit") and not isinstance(value, type):
        return _encoded_step(value, place)
    raise InvalidArgument(f"step {place!r} has a setting that is not kept as plain text: {shown(value)}. {_AS_PLAIN}")


def _encoded_step(step: Any, place: str) -> dict[str, Any]:
    kind = type(step)
    given = step.get_params(deep=False) if hasattr(step, "get_params") else {}
    if kind is PrivateRangeScaler and hasattr(step, "lower_"):  # scales by what it released
        kind = BoundedScaler
        given = {"lower": step.lower_, "upper": step.upper_, "feature_range": step.feature_range}
    learned = not isinstance(step, _CONTAINERS) and not is_ours(step) and needs_fit(step)
    if KINDS.get(kind.__name__) is not kind or learned:
        why = "learned from the data, which" if learned else "is of a kind that"
        raise InvalidArgument(f"step {place!r} ({type(step).__name__}) {why} is not kept as plain text. {_AS_PLAIN}")
    if isinstance(step, ColumnTransformer):  # its columns, where a function chose them
        given["transformers"] = [part for part in step.transformers_ if part[0] != "remainder"]
        given["remainder"] = next((part[1] for part in step.transformers_ if part[0] == "remainder"), "drop")
    if isinstance(step, SimpleImputer):
        given["fill_value"] = step.statistics_[0]  # without one, it is chosen by the type of a column
    if getattr(step, "func", None) is not None:
        raise InvalidArgument(f"step {place!r} is a function, which is not kept as plain text. {_AS_PLAIN}")
    parameters = inspect.signature(kind).parameters.items()
    defaults = {name: None if one.default is one.empty else one.default for name, one in parameters}
    kept = {name: _encoded(value, place) for name, value in given.items() if name not in _NOT_KEPT}
    params = {name: one for name, one in kept.items() if one != _encoded(defaults[name], place)}
    output = getattr(step, "_sklearn_output_config", {}).get("transform")
    return {"kind": kind.__name__, "params": params} | ({"output": output} if output else {})


def _decoded(value: Any) -> Any:
    """Make a setting, or a step, again."""
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "kind" in value:
        if unwanted := [name for name in value["params"] if name in _NOT_KEPT]:
            raise ValueError(f"settings that are not kept: {unwanted}")
        step = KINDS[value["kind"]](**{name: _decoded(one) for name, one in value["params"].items()})
        return step.set_output(transform=value["output"]) if "output" in value else step
    ((kind, inner),) = value.items()
    if kind == "float":
        return float(inner)
    if kind == "dtype":
        return np.dtype(inner)
    if kind == "dict":
        return {_decoded(name): _decoded(one) for name, one in inner}
    made: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "slice": lambda ends: slice(*ends)}
    return made[kind](_decoded(inner))
