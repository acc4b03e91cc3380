"""scikit-learn from 1.4 on: the two ways of checking input, and the two ways of saying what an estimator takes."""

from typing import Any, ClassVar

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.utils import check_array

from privypurse.core.errors import InvalidArgument
from privypurse.core.no_refusals import nothing_is_refused

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before 1.6 this was a method, and a setting had another name
    validate_data = None


def validate(estimator: Any, X: Any, reset: bool | None, y: Any = "no_validation", **settings: Any) -> Any:
    """Check a table (and targets) as scikit-learn does, and remember or compare the number and names of its columns.

    Parameters
    ----------
    estimator, X
        Who asks, and the table.
    reset : bool or None
        True remembers, False compares, None does neither. An estimator that needs no fit may be asked before it: then there is
        nothing to compare with.
    y : array_like, optional
        Targets; with them, a pair is returned.
    **settings
        As for ``check_array``, in the words of scikit-learn 1.6 and later.

    Guarantees
    ----------
    Within `no_refusals` nothing about the records themselves is refused.
    """
    if nothing_is_refused():
        settings = {**settings, "ensure_min_samples": 0, "ensure_all_finite": False}
    if validate_data is None and "ensure_all_finite" in settings:
        settings["force_all_finite"] = settings.pop("ensure_all_finite")
    names, seen = column_names(X), getattr(estimator, "feature_names_in_", None)
    agree = names is not None and seen is not None and names == list(seen)
    if validate_data is None and not reset and names is not None and seen is not None and not agree:
        raise InvalidArgument(
            f"X must have the columns that {type(estimator).__name__} was fitted with, in their order; got others. "
            "Select them by name."
        )
    try:
        if reset is None or (not reset and (agree or not hasattr(estimator, "n_features_in_"))):
            return check_array(X, estimator=estimator, input_name="X", **settings)
        if validate_data is not None:
            checked = validate_data(estimator, X, y, reset=reset, **settings)
        else:
            checked = estimator._validate_data(X, y, reset=reset, **settings)
        # Older versions cannot read the names of every data frame.
        if reset and names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        elif names is not None and seen is not None:
            raise InvalidArgument(
                f"X must have the columns that {type(estimator).__name__} was fitted with, in their order; got others. "
                "Select them by name."
            )
        return checked
    except InvalidArgument:
        raise
    except (ValueError, OverflowError) as error:
        message = str(error)
    raise InvalidArgument(_without_values(message, estimator, X))


# Beginnings and parts of scikit-learn's messages that name shapes, counts and columns, and never a value.
_HARMLESS = (
    "inconsistent numbers of samples",
    "while a minimum of",
    "contains infinity",
    "should be a 1d array, got an array of shape",
    "requires y to be passed",
    "features, but",
    "feature names",
    "Found array with dim",
    "Sparse data was passed",
    "sparse matrix",
    "np.matrix",
)


def _without_values(message: str, estimator: Any, X: Any) -> str:
    """Return what a message of scikit-learn says, unless it may quote a record."""
    name = type(estimator).__name__
    if "contains NaN" in message:
        return (
            f"Input {'y' if 'Input y' in message else 'X'} contains NaN. {name} does not accept missing values: drop such rows, "
            "or fill them with a number chosen without looking, as DataFrame.fillna(0) or SimpleImputer(strategy='constant', "
            "fill_value=0, keep_empty_features=True) do. An imputer that learns is not covered. Nothing was spent here."
        )
    if "Expected 2D array" in message:
        return (
            "Expected 2D array, got another number of dimensions. Reshape your data: a single column is X.reshape(-1, 1), a "
            "single row X.reshape(1, -1)."
        )
    if "Complex data" in message:
        return "Complex data not supported. Pass real numbers, such as X.real."
    if any(part in message for part in _HARMLESS):
        return message
    return (
        f"X must hold numbers for {name}, and y too in a regression; got {type(X).__name__} with something else in it. "
        "Encode text columns first, for example with DeclaredOneHot."
    )


def column_names(X: Any) -> list[str] | None:
    """Return the names of a data frame's columns, or None where they are not all text or X has none."""
    columns = getattr(X, "columns", None)
    names = None if columns is None else list(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def needs_fit(estimator: Any) -> bool:
    """Whether an estimator says that it has to be fitted before use; one that says nothing does."""
    if isinstance(estimator, SimpleImputer) and estimator.strategy == "constant" and estimator.keep_empty_features:
        return False  # it says that it has, but it learns nothing
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
    """What an estimator tells scikit-learn about itself, in the words of both versions.

    All of ours let NaN through: an error that one record can cause would give that record away.
    """

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
