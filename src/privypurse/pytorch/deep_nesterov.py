"""Default method for modules: full batches with momentum."""

from dataclasses import dataclass
from typing import ClassVar

from privypurse.core.errors import InvalidArgument
from privypurse.methods.base import PlannedMethod, check_steps_and_size
from privypurse.methods.noisy_pgd import balanced_steps
from privypurse.training.facts import Facts
from privypurse.training.optimizers.shrinking_nesterov import ShrinkingNesterov
from privypurse.training.plan import Recipe
from privypurse.training.schedules.weighted import EvenSplit

MOST_STEPS = 2_000


@dataclass(frozen=True)
class DeepNesterov(PlannedMethod):
    """Default method for modules: Nesterov descent on full batches, with ``n mu/sqrt(d)`` steps.

    A step is 1.5 clip norms long. Gradients are in units of the clip norm, so that the step size
    depends on neither loss nor clip norm. The weights shrink by 1/T at each of the T steps. The
    last tenth of the points is averaged.

    Parameters
    ----------
    steps : int or None
        By default ``n mu/sqrt(d)``, between 10 and 2,000.
    momentum : float, default 0.9
        Momentum coefficient.
    pace : float, default 1.5
        Step size for gradients in units of the clip norm.
    shrink : float, default 1.0
        Without gradients the weights would shrink by ``exp(-shrink)`` over the run.
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
                "clip_norm must be given: nothing else bounds the gradients of a module. Pass clip_norm=0.1."
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
