"""The parameters and attributes all private models share, written once and put into each docstring."""

import inspect
import textwrap
from typing import TypeVar

from privypurse.estimators.base import PrivateLinearModel

Model = TypeVar("Model", bound=type)

_ATTRIBUTES = """\
coef_, intercept_ : ndarray
    The model, for rows as they are given to `fit`: ``X @ coef_.T + intercept_`` is the score of a row. A row that is longer,
    after preparation, than the limit of training is scaled down to it in prediction too, so that outliers cannot run away.
n_iter_ : int
    Releases of the training itself.
n_features_in_, feature_names_in_
    As in every scikit-learn estimator.
privacy_spent_ : Spent
    ``epsilon``, ``delta`` and number of releases of this fit.
certificate_ : Certificate
    What is guaranteed, what was paid for what, and what is not covered. With a shared purse this is the statement for this fit
    alone; ``purse.certificate()`` is the one for everything.
trace_ : Trace
    The public record of the training, step by step.
stop_reason_ : str
    Why the training ended: "steps" or "budget".
preparation_ : Preparation
    The public numbers that rows were prepared with."""


def with_common_parameters(model: Model) -> Model:
    """Fill the places marked ``{common}`` and ``{attributes}`` in a class's docstring."""
    if model.__doc__:  # absent under python -OO
        common = inspect.cleandoc(PrivateLinearModel.__doc__ or "").split("----------\n")[1]
        text = inspect.cleandoc(model.__doc__)
        model.__doc__ = text.replace("{common}", common).replace("{attributes}", textwrap.dedent(_ATTRIBUTES))
    return model
