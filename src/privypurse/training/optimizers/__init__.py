"""[PUBLIC] Optimizers: pure state machines that receive noisy answers. No data, no noise."""

from privypurse.training.optimizers._base import Ball, Box, Optimizer, Simplex, State
from privypurse.training.optimizers._gradient_descent import GradientDescent

__all__ = ["Ball", "Box", "GradientDescent", "Optimizer", "Simplex", "State"]
