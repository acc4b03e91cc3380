"""The default method for modules: full batches, momentum, as many steps as the noise leaves signal for."""

from dataclasses import dataclass
from typing import ClassVar

from privypurse.core.errors import InvalidArgument
from privypurse.methods.base import PlannedMethod, check_steps_and_size
from privypurse.optimizers.shrinking_nesterov import ShrinkingNesterov
from privypurse.planning.facts import Facts
from privypurse.planning.noisy_descent import balanced_steps
from privypurse.planning.plan import Recipe
from privypurse.schedules.weighted import EvenSplit

MOST_STEPS = 2_000


@dataclass(frozen=True)
class DeepNesterov(PlannedMethod):
    """One rule for every budget: ``n mu/sqrt(d)`` steps on all records, 1.5 clip norms long each, with Nesterov's momentum.

    The gradient is in units of the clip norm, so that neither the loss nor the clip norm sets the pace; the weights shrink by
    1/T at each of the T steps; the last tenth of the points is averaged.

    Parameters
    ----------
    steps : int or None
        By default ``n mu/sqrt(d)``, between 10 and 2,000.
    momentum : float, default 0.9
        Share of the last step that is taken again.
    pace : float, default 1.5
        Length of a step on gradients in units of the clip norm.
    shrink : float, default 1.0
        The weights would shrink by ``exp(-shrink)`` over the run if there were no gradients.
    tail : float, default 0.1
        Share of the last points that are averaged.
    """

    steps: int | None = None
    momentum: float = 0.9
    pace: float = 1.5
    shrink: float = 1.0
    tail: float = 0.1
    name: ClassVar[str] = "deep-nesterov"

    def __post_init__(self) -> None:
        check_steps_and_size(self.steps, self.pace)
        self._optimizer(10, 1.0, 1.0, 0.0)

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent."""
        if facts.clip_norm is None:
            raise InvalidArgument(
                "clip_norm is needed: nothing else bounds the gradients of a module. Pass clip_norm=0.1."
            )
        steps = self.steps or balanced_steps(facts, most=MOST_STEPS)
        optimizer = self._optimizer(steps, facts.records, facts.clip_norm, facts.l2)
        return Recipe(optimizer, EvenSplit(), steps, step_sizes=(optimizer.step_size,))

    def _optimizer(self, steps: int, records: float, clip_norm: float, l2: float) -> ShrinkingNesterov:
        return ShrinkingNesterov(
            step_size=self.pace / clip_norm,
            records=records,
            steps=steps,
            clip_norm=clip_norm,
            momentum=self.momentum,
            shrink=self.shrink,
            tail=self.tail,
            l2=l2,
        )
