"""[PUBLIC] Optimizers: pure state machines that ask for noisy answers and are told them. No data, no noise."""

from privypurse.optimizers.averaging import Averaged
from privypurse.optimizers.base import Optimizer, State
from privypurse.optimizers.gradient_descent import GradientDescent
from privypurse.optimizers.line_search import LineSearch
from privypurse.optimizers.projections import Ball, Box, Projection, Simplex
from privypurse.optimizers.smoothed_descent import SmoothedDescent

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
