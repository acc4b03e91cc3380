"""Public constants of a training problem."""

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
        Largest excess of the mean loss at zero over its minimum: the loss at zero, since losses are
        not negative.
    """

    gradient: float
    smoothness: float
    initial_gap: float
