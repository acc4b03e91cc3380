"""Per-record losses with their public constants. No data."""

from privypurse.losses.bounds import Bounds
from privypurse.losses.linear import Hinge, Huber, HuberHinge, LinearLoss, Logistic, Squared
from privypurse.losses.softmax import OneVsRest, Softmax

__all__ = ["Bounds", "Hinge", "Huber", "HuberHinge", "LinearLoss", "Logistic", "OneVsRest", "Softmax", "Squared"]
