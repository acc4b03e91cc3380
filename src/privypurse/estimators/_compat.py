"""Compatibility with scikit-learn from 1.4 on: validation of input and tags."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.utils import check_array

from privypurse.core._checks import check_positions
from privypurse.core._errors import InvalidArgument, spending_noted
from privypurse.core._formats import counted

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # a method before 1.6
    validate_data = None

Kind = TypeVar("Kind")
FLOATS = [np.float64, np.float32]


def all_or_nothing(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Make a `fit` that fails leave its estimator unchanged, with an error that says what was spent.

    It works on a copy, whose attributes replace the estimator's in one step on success.
    """

    @functools.wraps(fit)
    def whole(self: Any, *args: Any, **settings: Any) -> Any:
        fitted = same_attributes(self)
        with spending_noted(call=f"{type(self).__name__}.fit"):
            fit(fitted, *args, **settings)
        self.__dict__ = fitted.__dict__
        return self

    return whole


def same_attributes(estimator: Kind) -> Kind:
    """Return a shallow copy of an estimator, with the same purse."""
    other = object.__new__(type(estimator))
    other.__dict__.update(estimator.__dict__)
    return other


def validate(estimator: Any, X: Any, reset: bool | None, y: Any = "no_validation", **settings: Any) -> Any:
    """Validate a table, or a table and targets, as scikit-learn does, without quoting a value.

    True for `reset` stores the number and names of columns, False compares them with those stored
    by `fit`, if any, None does neither. Settings are those of ``check_array`` in scikit-learn 1.6.
    An estimator with `_takes_any_rows`, as in a trial of a search, refuses nothing about the
    records themselves: not their number, nor a row that is not finite.

    Guarantees
    ----------
    The type that columns of a data frame are converted to depends on the types of its columns alone,
    and not on whether a value is missing: without a `dtype` every value stays as its column has it.
    """
    if sparse.issparse(X):
        check_positions(X)
    if getattr(estimator, "_takes_any_rows", False):
        settings |= {"ensure_min_samples": 0, "ensure_all_finite": False}
    if validate_data is None and "ensure_all_finite" in settings:
        settings["force_all_finite"] = settings.pop("ensure_all_finite")
    names, seen = column_names(X), getattr(estimator, "feature_names_in_", None)
    agree, apart = names is not None and seen is not None and names == list(seen), False
    kinds: set[str] = set()
    if hasattr(X, "columns") and not hasattr(X, "dtype"):
        if apart := settings["dtype"] is None:
            X = _by_value(X)
        elif settings["dtype"] is FLOATS and (kinds := set(map(str, getattr(X, "dtypes", ())))) != {"float32"}:
            settings["dtype"] = np.float64
    what = f"X must have the columns that {type(estimator).__name__} was fitted with, in their order; got others"
    others = InvalidArgument(f"{what}. Select them by name.")
    if (validate_data is None or apart) and not reset and names is not None and seen is not None and not agree:
        raise others
    try:
        if "category" in kinds:  # scikit-learn would make whole numbers of whole categories, missing ones too
            X = X.astype(np.float64)
        if reset is None or (not reset and (agree or not hasattr(estimator, "n_features_in_"))):
            with np.errstate(all="ignore"):  # a warning would tell of one record
                return check_array(X, estimator=estimator, input_name="X", **settings)
        check = functools.partial(validate_data, estimator) if validate_data else estimator._validate_data
        with np.errstate(all="ignore"):
            checked = check(X, y, reset=reset, **settings)
        # Older versions do not read the names of every data frame.
        if reset and names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        elif names is not None and seen is not None:
            raise others
        return checked
    except InvalidArgument:
        raise
    except (ValueError, OverflowError, TypeError) as error:
        if type(error) is TypeError:  # of scikit-learn, and not numpy's for columns of dates beside numbers
            raise
        message = str(error)
    raise InvalidArgument(_without_values(message, estimator, X, y))


def _by_value(frame: Any) -> Any:
    """Return a data frame of pandas, polars or pyarrow as an array of objects, column by column."""
    table = np.empty(frame.shape, dtype=object)
    if hasattr(frame, "iloc"):
        columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
    else:
        columns = frame.get_columns() if hasattr(frame, "get_columns") else frame.columns
    for place, column in enumerate(columns):
        values = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
        table[:, place] = np.fromiter(values, dtype=object, count=len(values))
    return table


# Parts of scikit-learn's messages that name shapes, counts and columns, and never a value.
_HARMLESS = (
    *("inconsistent numbers of samples", "while a minimum of", "contains infinity", "requires y to be passed"),
    *("should be a 1d array, got an array of shape", "features, but", "feature names", "Found array with dim"),
    *("Sparse data was passed", "sparse matrix", "np.matrix"),
)


def _without_values(message: str, estimator: Any, X: Any, y: Any) -> str:
    """Return a message of scikit-learn, or a substitute if it may quote a record."""
    name = type(estimator).__name__
    if "contains NaN" in message:
        imputer = "SimpleImputer(strategy='constant', fill_value=0, keep_empty_features=True)"
        remedy = f"drop such rows, or fill them with a public number, as DataFrame.fillna(0) or {imputer} do"
        labels = [] if isinstance(y, str) else np.asarray(y, dtype=object).ravel().tolist()
        in_y = "Input y" in message or any(one is None or one != one for one in labels)
        what = f"Input {'y' if in_y else 'X'} contains NaN. {name} does not accept missing values"
        return f"{what}: {remedy}. An imputer that learns is not covered."
    if "Expected 2D array" in message:
        remedy = "Reshape your data: a single column is X.reshape(-1, 1), a single row X.reshape(1, -1)."
        return f"Expected 2D array, got another number of dimensions. {remedy}"
    if "Complex data" in message:
        return "Complex data not supported. Pass real numbers, such as X.real."
    if any(part in message for part in _HARMLESS):
        return message
    remedy = "Encode text columns first, for example with DeclaredOneHot"
    if hasattr(estimator, "categories"):
        remedy = "Declare columns of text in categories={'job': ['law', 'care']}"
    got = f"got {type(X).__name__} with something else in it. {remedy}."
    return f"X must hold numbers for {name}, and y too in a regression; {got}"


def column_names(X: Any) -> list[str] | None:
    """Return the column names of a data frame, or None if there are none or not all are text."""
    columns = getattr(X, "columns", None)
    names = None if columns is None else list(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def by_column_name(name: str, value: Any, features: int, names: list[str] | None, each: str) -> list[Any]:
    """Return what is declared for each column of a data frame, in the order of its columns."""
    if names is None:
        what = f"{name} {'are' if name.endswith('s') else 'is'} declared by column name, but X has no named columns"
        remedy = f"Pass a data frame, or a list with one {each} for each of the {counted(features, 'column')}"
        raise InvalidArgument(f"{what}. {remedy}.")
    missing = [column for column in names if column not in value]
    if missing:
        why = f"{name} must have a {each} for every column of X; got none for {', '.join(map(repr, missing[:5]))}"
        raise InvalidArgument(f"{why}. Add it.")
    return [value[column] for column in names]


def needs_fit(estimator: Any) -> bool:
    """Whether an estimator has to be fitted, by its tags; True without tags.

    Inherited tags say nothing of a `fit` that somebody wrote over the inherited one.
    """
    definer = next((cls for cls in type(estimator).__mro__ if "fit" in vars(cls)), object)
    tagged = "__sklearn_tags__" in vars(definer) or "_more_tags" in vars(definer)
    if definer.__module__.partition(".")[0] not in ("sklearn", "privypurse") and not tagged:
        return True
    if isinstance(estimator, SimpleImputer) and estimator.strategy == "constant":
        # Its tags say that it needs a fit. With these settings it learns nothing.
        return not estimator.keep_empty_features or estimator.add_indicator
    try:
        from sklearn.utils import get_tags
    except ImportError:
        tags = estimator._get_tags() if hasattr(estimator, "_get_tags") else {}
        return bool(tags.get("requires_fit", True)) and not tags.get("stateless", False)
    try:
        return bool(get_tags(estimator).requires_fit)
    except (AttributeError, TypeError):
        return True


class Tagged:
    """Tags for scikit-learn before and after 1.6. NaN is accepted: an error would reveal a record."""

    _takes_any_rows: bool = False  # see `validate`
    _takes_sparse: ClassVar[bool] = False
    _takes_text: ClassVar[bool] = False
    _needs_fit: ClassVar[bool] = True
    _keeps_float32: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = self._takes_sparse
        tags.input_tags.categorical = tags.input_tags.string = self._takes_text
        tags.requires_fit = self._needs_fit
        tags.transformer_tags.preserves_dtype = ["float64", "float32"] if self._keeps_float32 else []
        return tags

    def _more_tags(self) -> dict[str, Any]:
        return {
            "allow_nan": True,
            "X_types": ["2darray", *(["sparse"] * self._takes_sparse), *(["categorical", "string"] * self._takes_text)],
            "requires_fit": self._needs_fit,
            "stateless": not self._needs_fit,
            "preserves_dtype": ["float64", "float32"] if self._keeps_float32 else [],
        }
