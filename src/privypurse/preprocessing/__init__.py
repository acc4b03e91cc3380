"""Preprocessing that does not peek: by what is declared, or by what is bought from a purse."""

from privypurse.preprocessing.bounded_scaler import BoundedScaler
from privypurse.preprocessing.declared_one_hot import DeclaredOneHot
from privypurse.preprocessing.private_range_scaler import PrivateRangeScaler
from privypurse.preprocessing.private_statistics import (
    default_candidates,
    private_class_counts,
    private_count,
    private_mean,
    private_quantiles,
)
from privypurse.preprocessing.row_normalizer import RowNormalizer
from privypurse.preprocessing.uncovered import declare_fitted, declare_pipeline, uncovered_steps

__all__ = [
    "BoundedScaler",
    "DeclaredOneHot",
    "PrivateRangeScaler",
    "RowNormalizer",
    "declare_fitted",
    "declare_pipeline",
    "default_candidates",
    "private_class_counts",
    "private_count",
    "private_mean",
    "private_quantiles",
    "uncovered_steps",
]
