"""[PUBLIC] Optimizers: pure state machines that receive noisy answers. No data, no noise."""

from privypurse.training.optimizers._base import Optimizer, State
from privypurse.training.optimizers._gradient_descent import GradientDescent
from privypurse.training.optimizers._projections import Ball, Box, Simplex

__all__ = ["Ball", "Box", "GradientDescent", "Optimizer", "Simplex", "State"]
