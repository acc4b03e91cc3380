"""The default method."""

import math
from dataclasses import dataclass
from typing import ClassVar

from privypurse.core._checks import positive
from privypurse.core._errors import InvalidArgument
from privypurse.methods._nesterov import balanced_steps
from privypurse.methods.base import PlannedMethod
from privypurse.training._plan import Facts, Recipe
from privypurse.training.optimizers._base import Averaged
from privypurse.training.optimizers._gradient_descent import GradientDescent
from privypurse.training.schedules._base import EvenSplit

MOST_STEPS = 120
# Models with this many weights are worse conditioned.
MANY_WEIGHTS, MOST_STEPS_OF_MANY, MOST_MOMENTUM_OF_MANY = 1_000, 300, 0.98
# Total reach, in steps of 1/M for each step of ``n mu/sqrt(d)``.
REACH = 5.0
# Noise in a score grows with the reach, not with the columns, so few columns do not extend it.
FEWEST_DIMENSIONS = 64
MOST_MOMENTUM = 0.95
# With a known curvature: steps, their sum in units of one over the curvature, and share of the
# first steps that the mean leaves out.
FLAT_STEPS, FLAT_REACH, FLAT_SKIP = 60, 8.0, 0.4


def reach(facts: Facts) -> float:
    """Return the total reach that the budget pays for, in steps of 1/M."""
    return REACH * math.sqrt(min(1.0, facts.dimension / FEWEST_DIMENSIONS)) / facts.noise_floor


@dataclass(frozen=True)
class Auto(PlannedMethod):
    """Default method: Nesterov descent whose reach is set by the budget.

    In a flat direction the noise of a run depends on the number and size of its steps only through
    their product, the *reach* ``steps * step size / (1 - momentum)``: splitting a budget over more
    steps adds noise to each and shortens each alike. The reach is proportional to ``n mu/sqrt(d)``,
    the number of steps whose gradients stand out of their noise. Steps have size 1/M, as many as
    that number up to 120 (300 for a thousand weights and more); momentum makes up the rest.

    Nothing is tuned on the data; the constants were chosen on public tables
    (``docs/estimators.md``).

    Parameters
    ----------
    slack : float, default 1.0
        Length of the row limit relative to most rows, 1 or more. The curvature of the mean loss is
        then below the worst case, and steps may be longer than 1/M.
    curvature : float or None
        Curvature of the mean loss, if it is known to be about the same in all directions. The run is
        then plain descent, 60 steps of ``0.13/curvature``, and returns the mean of the last 36
        points.
    smoothness : float or None
        Largest curvature of the mean loss near its minimum, where it is far below the worst case. The
        reach is then in units of one over this, and steps half as long as that, since the curvature
        may be higher on the way.
    """

    slack: float = 1.0
    curvature: float | None = None
    smoothness: float | None = None
    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        if positive(slack=self.slack) < 1:
            raise InvalidArgument(f"slack must be 1 or more; got {self.slack!r}. Omit it.")
        for name in ("curvature", "smoothness"):
            if getattr(self, name) is not None:
                positive(**{name: getattr(self, name)})

    def recipe(self, facts: Facts) -> Recipe:
        if self.curvature is not None:
            size = FLAT_REACH / (FLAT_STEPS * (self.curvature + facts.l2))
            descent = GradientDescent(size, facts.records, facts.clip_norm, l2=facts.l2)
            averaged = Averaged(descent, skip=round(FLAT_SKIP * FLAT_STEPS))
            return Recipe(averaged, EvenSplit(), FLAT_STEPS, step_sizes=(size,))
        many = facts.dimension >= MANY_WEIGHTS
        steps = balanced_steps(facts, most=MOST_STEPS_OF_MANY if many else MOST_STEPS)
        # Less than slack^2, which would require that no row is longer than most.
        longest = self.slack**1.5 / (self.smoothness + facts.l2 if self.smoothness else facts.smoothness)
        # Required reach of one step, momentum included.
        effective = reach(facts) * longest / steps
        longest /= 2 if self.smoothness else 1
        size = min(longest, effective)
        momentum = min(1 - size / effective, MOST_MOMENTUM_OF_MANY if many else MOST_MOMENTUM)
        optimizer = GradientDescent(size, facts.records, facts.clip_norm, momentum, nesterov=True, l2=facts.l2)
        return Recipe(optimizer, EvenSplit(), steps, step_sizes=(size,))
