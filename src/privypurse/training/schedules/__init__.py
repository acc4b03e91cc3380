"""[PUBLIC] Schedules: the noise of each release, chosen from public values."""

from privypurse.training.schedules._adaptive import FollowGradientNorm
from privypurse.training.schedules._base import Budget, EvenSplit, Schedule, Weighted

__all__ = ["Budget", "EvenSplit", "FollowGradientNorm", "Schedule", "Weighted"]
