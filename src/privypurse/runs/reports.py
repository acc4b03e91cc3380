"""Reports of models that were fitted from Python."""

import contextlib
import math
import os
import pathlib
import platform
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import sklearn
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._version import __version__
from privypurse.estimators import DeclaredOneHot
from privypurse.estimators._additive import Additive
from privypurse.estimators._base import PrivateLinearModel
from privypurse.estimators._noise_intervals import NOTE
from privypurse.estimators._uncovered import check_named
from privypurse.purse._certificate import Certificate
from privypurse.purse._purse import Purse
from privypurse.report._content import Coefficient, ReportContent, Term
from privypurse.report._page import render
from privypurse.runs._describe import describe_budget, named_coefficients, prepared
from privypurse.runs.folder import replace_file

__all__ = ["report"]


def report(
    model: Any,
    path: str | os.PathLike[str],
    *,
    title: str = "",
    names: Sequence[str] | None = None,
    one_hot: Sequence[Sequence[str]] | None = None,
    intervals: bool = True,
) -> None:
    """Write the report of a fitted model as one HTML page: guarantee, spending, trace, coefficients.

    It holds what was released or declared, and nothing is spent. How good the model is is not in it:
    `model.score` on private records is exact, and not covered.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted private model of this library, or a pipeline that ends with one. Steps before it
        must be declared, or named on the certificate of the model: see `declare_pipeline`.
    path : str or path
        File to write. An existing one is replaced.
    title : str, optional
        Default: the kind of model and the data set.
    names, one_hot, intervals
        As for ``model.coefficients``. Default for a pipeline: names and one-hot columns of its last
        step before the model, if that is a `DeclaredOneHot`, or a ``ColumnTransformer`` with some.

    Raises
    ------
    InvalidArgument
        The model is not fitted, or a step before it learned from the data, and the certificate does
        not name it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from privypurse.estimators import PrivateLogisticRegression
    >>> X = np.random.default_rng(0).standard_normal((2_000, 2))
    >>> model = PrivateLogisticRegression(1.0, classes=[0, 1]).fit(X, (X[:, 0] > 0).astype(int))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = pathlib.Path(folder) / "report.html"
    ...     report(model, page, names=["age", "income"], intervals=False)
    ...     "differentially private" in page.read_text(encoding="utf-8")
    True
    """
    before = model.steps[:-1] if isinstance(model, Pipeline) else []
    steps, fitted = (model[:-1], model[-1]) if isinstance(model, Pipeline) else ((), model)
    if not isinstance(fitted, PrivateLinearModel | Additive) or not hasattr(fitted, "certificate_"):
        got = f"got {shown(fitted) if isinstance(fitted, type) else type(fitted).__name__}"
        raise InvalidArgument(f"model must be a fitted private model, or a pipeline that ends with one; {got}. Fit it.")
    certificate, purse = fitted.certificate_, fitted.purse if isinstance(fitted.purse, Purse) else None
    if isinstance(model, Pipeline):
        check_named(model)
    if isinstance(fitted, Additive):
        if names is not None or one_hot is not None:
            got = f"expected names and one_hot of a linear model only; got some with {type(fitted).__name__}"
            raise InvalidArgument(f"{got}, which has its own. Leave them out.")
        coefficients, terms = _of_curves(fitted, intervals)
    else:
        if names is None and steps:
            # Steps that do not tell leave the columns without names.
            with warnings.catch_warnings(), contextlib.suppress(AttributeError, ValueError, TypeError):
                warnings.simplefilter("ignore")
                found = [str(name) for name in steps.get_feature_names_out()]
                names = found if len(found) == fitted.n_features_in_ else None
        if one_hot is None and steps and names is not None:
            one_hot = _one_hot_groups(steps[-1], names) or None
        frame = fitted.coefficients(names, one_hot=one_hot, intervals=intervals)
        coefficients, terms = tuple(_coefficient(row) for row in frame.to_dict("records")), ()
    linear: Any = fitted.linear_ if isinstance(fitted, Additive) else fitted
    with_intervals = any(one.low is not None for one in coefficients)
    kind, sort = type(fitted).__name__, "A linear" if linear is fitted else "An additive"
    lines = [*prepared(linear), *([f"step {name}", shown(step)] for name, step in before)]
    content = ReportContent(
        title=title or f"{kind}, {certificate.dataset}",
        task=f"{sort} model ({kind}){_scale(linear)} of {fitted.n_features_in_:,} columns, fitted from Python.",
        certificate=certificate,
        trace=fitted.trace_,
        method=linear.method if isinstance(linear.method, str) else linear.method.name,
        step_sizes=fitted.trace_.step_sizes,
        budget=_budget(certificate, purse),
        prepared=tuple((first, second) for first, second in lines),
        coefficients=coefficients,
        terms=terms,
        coefficients_note=NOTE if with_intervals else "",
        settings=(
            ("model", kind),
            ("delta", f"{certificate.delta:g}"),
            ("relation", certificate.neighbouring),
            ("privypurse", __version__),
            ("scikit-learn, Python", f"{sklearn.__version__}, {platform.python_version()}"),
        ),
        schema="",
    )
    replace_file(pathlib.Path(path), render(content))


def _of_curves(model: Additive, intervals: bool) -> tuple[tuple[Coefficient, ...], tuple[Term, ...]]:
    """Return the values of an additive model, and which of them make up a curve, a list of categories or a pair."""
    names, terms, number = ["intercept"], list[Term](), 1
    for term in model.terms_:
        if term.kind == "categories":
            own = [f"{term.name} = {one}" for one in [*term.categories.categories[0], "(other)"]]  # type: ignore
        else:
            own = [term.name] * term.width  # of a curve, the position and its hats
        shares, count = model._curve(term)[1], term.width - (term.kind == "curve")
        at = () if term.knots is None else tuple(term.knots.tolist())
        terms.append(Term(name=term.name, first=number, count=count, at=at, shares=tuple(shares.tolist())))
        names, number = names + own, number + count
    for pair in model.pairs_:
        names += [f"{pair.name} = {', '.join(both)}" for both in model._cells_of(pair)]
        shares = np.outer(*model._cell_shares(pair)).ravel()
        terms.append(Term(name=pair.name, first=number, count=len(shares), shares=tuple(shares.tolist())))
        number += len(shares)
    half = model._half_widths() if intervals else None
    return named_coefficients(model.linear_, model._groups(), names, half), tuple(terms)


def _scale(model: PrivateLinearModel) -> str:
    """Say what the coefficients add up to, where it is not the target."""
    if getattr(model, "target_transform", None) is not None:
        return " of the logarithm of one plus the target"
    return " of the logarithm of the mean" if model.preparation_.target_reach is not None else ""


def _one_hot_groups(step: Any, names: Sequence[str]) -> list[Sequence[str]]:
    """Return the names of columns that come from one column, by `DeclaredOneHot`."""
    parts = [(0, step)]
    if isinstance(step, ColumnTransformer):
        parts = [(step.output_indices_[name].start, inner) for name, inner, _ in step.transformers_]
    groups = []
    for start, hot in parts:
        for listed in hot.categories_ if isinstance(hot, DeclaredOneHot) else ():
            end = start + len(listed) + len(hot._extra)
            groups.append(names[start:end])
            start = end
    return groups


def _budget(certificate: Certificate, purse: Purse | None) -> dict[str, Any]:
    """Describe the budget that was charged: the purse's, or that of a fit without a purse, all its own."""
    if purse is not None:
        in_file = getattr(purse.ledger, "path", None) is not None
        return describe_budget(purse) | ({} if in_file else {"ledger": ""})
    limit, spent = certificate.epsilon, certificate.recorded_epsilon
    left = max(0.0, 1 - spent / limit) if math.isfinite(limit) else 1.0
    terms = {"dataset": certificate.dataset, "epsilon": limit, "delta": certificate.delta}
    return terms | {"ledger": "", "spent_epsilon": spent, "fraction_left": left, "runs": []}


def _coefficient(row: dict[str, Any]) -> Coefficient:
    ends = {end: None if row[end] != row[end] else float(row[end]) for end in ("low", "high")}
    return Coefficient(name=str(row["name"]), output=str(row.get("class", "")), value=float(row["value"]), **ends)
