"""[PUBLIC] Schedules: how the noise moves over time, from what is already public."""

from privypurse.schedules.base import Budget, Past, Schedule
from privypurse.schedules.constant import ConstantNoise, EvenSplit

__all__ = ["Budget", "ConstantNoise", "EvenSplit", "Past", "Schedule"]
