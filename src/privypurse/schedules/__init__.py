"""[PUBLIC] Schedules: how the noise moves over time, from what is already public."""

from privypurse.schedules.base import Budget, Schedule
from privypurse.schedules.constant import ConstantNoise
from privypurse.schedules.gradient_norm import FollowGradientNorm
from privypurse.schedules.growing import GrowingBudget
from privypurse.schedules.sigmoid import SigmoidPurse
from privypurse.schedules.weighted import EvenSplit, Weighted

__all__ = [
    "Budget",
    "ConstantNoise",
    "EvenSplit",
    "FollowGradientNorm",
    "GrowingBudget",
    "Schedule",
    "SigmoidPurse",
    "Weighted",
]
