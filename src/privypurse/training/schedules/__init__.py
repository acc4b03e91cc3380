"""[PUBLIC] Schedules: the noise of each release, chosen from public values."""

from privypurse.training.schedules.base import Budget, Schedule
from privypurse.training.schedules.gradient_norm import FollowGradientNorm
from privypurse.training.schedules.growing import GrowingBudget
from privypurse.training.schedules.sigmoid import SigmoidPurse
from privypurse.training.schedules.weighted import ConstantNoise, EvenSplit, Weighted

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
