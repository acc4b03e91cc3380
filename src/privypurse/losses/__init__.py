"""Per-record losses with their public constants. No data."""

from privypurse.losses._bounds import Bounds
from privypurse.losses._linear import Hinge, Huber, HuberHinge, Logistic, Softmax, Squared

__all__ = ["Bounds", "Hinge", "Huber", "HuberHinge", "Logistic", "Softmax", "Squared"]
