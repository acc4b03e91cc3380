"""Name the steps of a pipeline that learn without paying, for the certificate."""

from collections.abc import Iterator
from typing import Any

from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.estimators._compat import needs_fit
from privypurse.purse._allowance import OUTSIDE, Allowance
from privypurse.purse._purse import Purse


def declare_pipeline(purse: Purse, pipeline: Any) -> list[str]:
    """Declare every step of a pipeline that learns without paying from this purse.

    A private estimator at the end of a pipeline does not know that a scaler before it was fitted on
    the data. Call this with the pipeline that is fitted on the private data.

    A step is left out if its tags say that it needs no fit, or if its ``fit`` is of this library
    and pays from the purse. Every other ``fit`` is listed, even if it learns nothing with its
    settings, and so is every function of a ``FunctionTransformer``, which may use several rows. Not
    detected: earlier processing of the data.

    Parameters
    ----------
    purse : Purse
        Purse whose certificate names them.
    pipeline : estimator
        A ``Pipeline``, ``ColumnTransformer``, ``FeatureUnion`` or single step, fitted or not.

    Returns
    -------
    list of str
        The words on the certificate; empty if all is covered.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from privypurse.estimators import RowNormalizer
    >>> purse = Purse(epsilon=1.0, delta=1e-6, neighbouring="add-remove")
    >>> declare_pipeline(purse, make_pipeline(StandardScaler(), RowNormalizer()))
    ["StandardScaler (step 'standardscaler'), fitted on the data without paying"]
    """
    if not isinstance(purse, Purse):
        raise InvalidArgument(f"purse must be a Purse; got {shown(purse)}. Pass purse and pipeline, in this order.")
    if not hasattr(pipeline, "fit") or isinstance(pipeline, type):
        raise InvalidArgument(f"pipeline must be an estimator; got {shown(pipeline)}. Pass make_pipeline(...).")
    listed = uncovered_steps(purse, pipeline)
    for words in listed:
        purse.declare_uncovered(words)
    return listed


def uncovered_steps(purse: Purse | None, pipeline: Any, *, part: bool = False) -> list[str]:
    """Return what `declare_pipeline` declares, for steps that pay from this purse, or from none.

    With `part`, the certificate is of a part of the purse, in which no step of the pipeline paid.
    """
    listed: dict[str, None] = {}
    for name, step in innermost_steps(None, pipeline):
        words = type(step).__name__ + (f" (step {name!r})" if name else "")
        if not is_ours(step) and needs_fit(step):
            listed[f"{words}, fitted on the data without paying"] = None
        elif is_ours(step) and hasattr(step, "purse"):
            if purse is None or not _is_same(step.purse, purse):
                listed[f"{words}, paid from another budget than this purse"] = None
            elif part:
                listed[f"{words}, {OUTSIDE}"] = None
        elif isinstance(step, FunctionTransformer) and step.func is not None:
            listed[f"that the function in {words} treats each record alone"] = None
    return list(listed)


def check_named(pipeline: Pipeline) -> None:
    """Raise InvalidArgument unless the certificate of a fitted model names what the steps before it learned."""
    model, steps = pipeline[-1], pipeline[:-1]
    purse = model.purse if isinstance(model.purse, Purse) else None
    listed = uncovered_steps(purse, steps, part=bool(model.certificate_.part_of)) if len(steps) else []
    if unnamed := [words for words in listed if words not in model.certificate_.uncovered]:
        why = f"the certificate of the model does not name {'; '.join(unnamed)}"
        raise InvalidArgument(f"{why}. Call declare_pipeline(purse, pipeline) before the fit, or declare the settings.")


def innermost_steps(name: str | None, step: Any) -> Iterator[tuple[str | None, Any]]:
    """Yield the innermost steps of a pipeline with their names."""
    lists = (getattr(step, name, None) for name in ("steps", "transformer_list", "transformers_", "transformers"))
    named = (
        found
        for found in lists
        if isinstance(found, list) and all(isinstance(part, tuple) and len(part) >= 2 for part in found)
    )
    inner = next(named, None)
    # A container of its own may learn in its own fit, and a function that is given the table to choose columns by.
    if inner is None or _home_of_fit(step) != "sklearn" or _chooses_by_the_table(step):
        if hasattr(step, "fit"):  # "drop", "passthrough" and None do not
            yield name, step
        return
    # The transformer of the remaining columns; a fitted ColumnTransformer lists it with the others.
    if not hasattr(step, "transformers_") and hasattr(getattr(step, "remainder", None), "fit"):
        inner = [*inner, ("remainder", step.remainder)]
    for part in inner:
        yield from innermost_steps(part[0] if name is None else f"{name}__{part[0]}", part[1])


def _chooses_by_the_table(step: Any) -> bool:
    """Whether a ColumnTransformer has a function that chooses columns, other than by name and type."""
    listed = step.transformers if isinstance(step, ColumnTransformer) else []
    return any(callable(part[-1]) and not isinstance(part[-1], make_column_selector) for part in listed)


def is_ours(step: Any) -> bool:
    """Whether the class that defines `fit` is of this library."""
    return _home_of_fit(step) == "privypurse"


def _home_of_fit(step: Any) -> str:
    """Return the package of the class that defines `fit`."""
    definer = next((cls for cls in type(step).__mro__ if "fit" in vars(cls)), object)
    return definer.__module__.partition(".")[0]


def _is_same(payer: Any, purse: Purse) -> bool:
    """Whether a purse is, or is an allowance of, another one or the same account of its ledger."""
    while isinstance(payer, Allowance):
        if payer is purse:
            return True
        payer = payer.purse
    if payer is purse or not isinstance(payer, Purse):
        return payer is purse
    file = getattr(payer.ledger, "path", None)
    same_ledger = payer.ledger is purse.ledger or (file is not None and file == getattr(purse.ledger, "path", None))
    return same_ledger and payer.dataset == purse.dataset
