"""[PUBLIC] Optimizers: pure state machines that receive noisy answers. No data, no noise."""

from privypurse.training.optimizers.base import Optimizer, State
from privypurse.training.optimizers.gradient_descent import GradientDescent, SmoothedDescent
from privypurse.training.optimizers.line_search import LineSearch
from privypurse.training.optimizers.projections import Averaged, Ball, Box, Projection, Simplex

__all__ = [
    "Averaged",
    "Ball",
    "Box",
    "GradientDescent",
    "LineSearch",
    "Optimizer",
    "Projection",
    "Simplex",
    "SmoothedDescent",
    "State",
]
