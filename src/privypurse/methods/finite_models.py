"""The exponential mechanism over a finite public set of models."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privypurse.core.checks import FloatArray, positive
from privypurse.core.errors import InvalidArgument
from privypurse.methods.base import PlannedMethod
from privypurse.training.facts import Facts
from privypurse.training.optimizers.genetic import ChooseModel
from privypurse.training.plan import Recipe
from privypurse.training.schedules.weighted import EvenSplit


@dataclass(frozen=True)
class FiniteModels(PlannedMethod):
    """Select the best of several models known in advance, for example from public data or a grid.

    The error is about ``range/epsilon * ln(models)`` in the sum of losses, whatever the dimension.

    Parameters
    ----------
    models : sequence of sequences of float
        One model a row, as long as the oracle's points.
    clip_loss : float or None
        Clip each record's loss. By default the distance between the models bounds its range.
    """

    models: tuple[tuple[float, ...], ...]
    clip_loss: float | None = None
    name: ClassVar[str] = "finite-models"

    def __post_init__(self) -> None:
        try:
            points: FloatArray = np.asarray(self.models, dtype=np.float64)
        except (TypeError, ValueError):
            points = np.empty(0)
        if points.ndim != 2 or points.size == 0 or not np.isfinite(points).all():
            raise InvalidArgument(
                "models must be a table of finite numbers, one model of the same length in each row. "
                "Pass for example [[0.0, 1.0], [1.0, 0.0]]."
            )
        if self.clip_loss is not None:
            positive(clip_loss=self.clip_loss)
        object.__setattr__(self, "models", tuple(map(tuple, points.tolist())))

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the one selection."""
        if len(self.models[0]) != facts.dimension:
            raise InvalidArgument(
                f"models must have {facts.dimension} numbers each, like the oracle's points; got {len(self.models[0])}. "
                "Include the constant column."
            )
        return Recipe(ChooseModel(self.models, self.clip_loss), EvenSplit(), 1)
