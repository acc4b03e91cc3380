"""[PUBLIC] Schedules: the noise of each release, chosen from public values."""

from privypurse.training.schedules.adaptive import FollowGradientNorm, GrowingBudget, SigmoidPurse
from privypurse.training.schedules.base import Budget, Schedule
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
