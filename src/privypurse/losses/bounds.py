"""What is known about a training problem before its data is seen."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Public constants of the mean loss over records whose rows have a limited length.

    Parameters
    ----------
    gradient : float
        Largest norm of one record's gradient; infinity where nothing bounds it.
    smoothness : float
        Largest curvature of the mean loss; infinity where there is a kink.
    initial_gap : float
        How far the mean loss at zero is above its minimum, at most. Losses are never negative, so the loss at zero.
    """

    gradient: float
    smoothness: float
    initial_gap: float
