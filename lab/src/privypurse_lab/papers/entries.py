"""The user's own schedules or methods in the comparisons."""

import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.queries import Query, Released
from privypurse.mechanisms._base import Mechanism
from privypurse.methods._nesterov import Nesterov
from privypurse.methods.base import PlannedMethod
from privypurse.purse._purse import Purse
from privypurse.training._plan import Facts, Method, Recipe
from privypurse.training.schedules._base import Budget, Schedule, Weighted
from privypurse_lab.papers.cells import pickler

REMEDY = (
    "Pass a function from the number of steps to the relative budget of each, an object with propose(query, past, budget), or a "
    "method with recipe(facts)."
)


@dataclass(frozen=True)
class ByWeights:
    """Schedule of a function: ``weights(steps)`` returns relative budgets of the steps."""

    weights: Callable[[int], Sequence[float]]
    _made: dict[int, Weighted] = field(default_factory=dict, repr=False, compare=False)

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> Mechanism:
        """Return the mechanism for this step's share."""
        return self.of(budget.steps).propose(query, past, budget)

    def of(self, steps: int) -> Weighted:
        """Return the schedule for this many steps."""
        if steps not in self._made:
            weights = tuple(float(weight) for weight in self.weights(steps))
            if len(weights) != steps:
                raise InvalidArgument(
                    f"weights({steps}) must return {steps} numbers, one for each step; got {len(weights)}."
                )
            self._made[steps] = Weighted(weights)
        return self._made[steps]


@dataclass(frozen=True)
class Scheduled(PlannedMethod):
    """A method of the library with the user's schedule.

    Parameters
    ----------
    schedule : Schedule
        Distribution of the budget over the steps.
    base : Method
        Method that sets optimizer and number of steps: by default `Nesterov`.
    """

    schedule: Schedule
    base: Method = field(default_factory=Nesterov)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the base, marked for its schedule."""
        return f"{self.base.name}, own schedule"

    def recipe(self, facts: Facts) -> Recipe:
        """Plan as the base does."""
        return replace(self.base.recipe(facts), schedule=self.schedule)


def as_schedule(entry: Any) -> Schedule | None:
    """Return the schedule of an entry; None for a method."""
    if hasattr(entry, "recipe"):
        return None
    return entry if hasattr(entry, "propose") else ByWeights(entry)


def as_method(entry: Any, base: Method | None = None) -> Method:
    """Return the method of an entry: itself, or the base with its schedule."""
    schedule = as_schedule(entry)
    if schedule is None:
        return entry  # type: ignore[no-any-return]
    return Scheduled(schedule, base or Nesterov())


def check_entries(also: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for entries that cannot be compared."""
    if not isinstance(also, Mapping):
        raise InvalidArgument(f"also must map names to entries; got {also!r}. Pass for example {{'cosine': ...}}.")
    for name, entry in also.items():
        if not isinstance(name, str) or not name.strip():
            raise InvalidArgument(
                f"also must name each entry; got the name {name!r}. Pass for example {{'cosine': ...}}."
            )
        if isinstance(entry, type):
            raise InvalidArgument(
                f"also[{name!r}] is the class {entry.__name__}, expected an instance. Pass {entry.__name__}()."
            )
        if not (hasattr(entry, "recipe") or hasattr(entry, "propose") or callable(entry)):
            raise InvalidArgument(f"also[{name!r}] cannot be compared; got {entry!r}. {REMEDY}")
        if hasattr(entry, "recipe") and not (hasattr(entry, "plan") and hasattr(entry, "filter")):
            raise InvalidArgument(
                f"also[{name!r}] has recipe(facts) but not plan and filter; got {entry!r}. Make it a subclass of "
                "privypurse.methods.base.PlannedMethod, which has them."
            )
        if not hasattr(entry, "recipe") and not hasattr(entry, "propose"):
            try:
                ByWeights(entry).of(10)
            except InvalidArgument as error:
                raise InvalidArgument(f"also[{name!r}]: {error}") from error
            except Exception as error:
                raise InvalidArgument(f"also[{name!r}](10) fails with {error!r}. {REMEDY}") from error


def check_spent(name: str, purse: Purse, epsilon: float, delta: float, neighbouring: str) -> None:
    """Raise InvalidArgument if a run spent more than its budget, or under other terms."""
    if purse.delta > delta * (1 + 1e-9) or purse.neighbouring is not Neighbouring.parse(neighbouring):
        raise InvalidArgument(
            f"{name} was run at delta {purse.delta:g} under {purse.neighbouring.value}, expected {delta:g} under {neighbouring}: "
            "its filter() changes them. Return facts.rule from filter()."
        )
    if not purse.spent.epsilon <= epsilon * (1 + 1e-9):
        raise InvalidArgument(
            f"{name} spent epsilon {purse.spent.epsilon:g} where {epsilon:g} was given: its filter() is for a larger budget. "
            "Return facts.rule from filter(), or a rule for facts.epsilon."
        )


def load_entry(spec: str) -> tuple[str, Any]:
    """Load an entry from ``mine.py:cosine`` or ``my_package.schedules:cosine``. Runs that file.

    Returns
    -------
    (name, entry)
        Name of the object, and the object.
    """
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise InvalidArgument(
            f"also must be FILE.py:NAME or MODULE:NAME; got {spec!r}. Pass for example mine.py:cosine."
        )
    if place.endswith(".py"):
        path = pathlib.Path(place)
        if not path.is_file():
            raise InvalidArgument(f"also names the file {place!r}, which does not exist. Check the path.")
        # Under a private name: a file called random.py must not replace that module.
        found = importlib.util.spec_from_file_location(f"privypurse_entry_{path.stem}", path)
        if found is None or found.loader is None:
            raise InvalidArgument(f"also names {place!r}, which is no Python module. Pass a .py file.")
        module = importlib.util.module_from_spec(found)
        sys.modules[module.__name__] = module  # dataclasses look their module up
        try:
            found.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[module.__name__]
            raise InvalidArgument(f"also names {place!r}, which fails with {error!r}. Fix the file.") from error
        # Other processes do not have this module: pickle its objects by value.
        pickler().register_pickle_by_value(module)
    else:
        try:
            module = importlib.import_module(place)
        except (Exception, SystemExit) as error:
            raise InvalidArgument(
                f"also names the module {place!r}, which cannot be imported ({error!r}). Install it."
            ) from error
    if not hasattr(module, name):
        raise InvalidArgument(f"also names {name!r}, which {place!r} does not have. Check the spelling.")
    return name, getattr(module, name)
