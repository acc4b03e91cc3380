"""[PUBLIC] Optimizers: pure state machines that ask for noisy answers and are told them. No data, no noise."""

from privypurse.optimizers.base import Optimizer, State
from privypurse.optimizers.gradient_descent import GradientDescent

__all__ = ["GradientDescent", "Optimizer", "State"]
