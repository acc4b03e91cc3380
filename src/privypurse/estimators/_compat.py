"""What changed in scikit-learn between 1.4 and now, in one place."""

import importlib
from typing import Any


def validate(estimator: Any, X: Any, y: Any = "no_validation", **settings: Any) -> Any:
    """Check X (and y) as scikit-learn's estimators do, and set or compare feature names and number."""
    validation = importlib.import_module("sklearn.utils.validation")
    if hasattr(validation, "validate_data"):
        return validation.validate_data(estimator, X, y, **settings)
    return estimator._validate_data(X, y, **settings)


def set_tags(tags: Any) -> Any:
    """Fill in the tags all private linear models share."""
    tags.input_tags.sparse = True
    for kind in (tags.classifier_tags, tags.regressor_tags):
        if kind is not None:
            # A dozen records hide each other, as they should: no score can be promised on toy data.
            kind.poor_score = True
    return tags
