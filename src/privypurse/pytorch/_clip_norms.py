"""[PUBLIC] Clip norms of a run: one number, one for each step or part of the module, or adapted."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from privypurse.core._checks import positive, positive_integer, probability, shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted
from privypurse.pytorch._clipping import check_clip_norm


@dataclass(frozen=True)
class AdaptiveClip:
    """Clip norm that is adapted every few steps, by the share of gradients within it.

    Each look is a release on a fresh sample, with its own ledger entry; no step is made with it.
    (Andrew et al. 2021, arXiv:1905.03871, count in the samples of the gradients.)

    Parameters
    ----------
    start : float, default 1.0
        Initial clip norm. Public.
    quantile : float, default 0.5
        Target share of gradients within the norm.
    every : int, default 10
        Gradients between two looks.
    rate : float, default 1.0
        A look multiplies the norm by ``exp(rate (quantile - share))``.
    error : float, default 0.05
        Standard deviation of the noise in the share; more where looks would cost a few percent.
    """

    start: float = 1.0
    quantile: float = 0.5
    every: int = 10
    rate: float = 1.0
    error: float = 0.05

    def __post_init__(self) -> None:
        check_clip_norm(start=self.start)
        if probability(quantile=self.quantile) >= 1:
            raise InvalidArgument(f"quantile must be below 1; got {self.quantile!r}. Pass for example 0.5.")
        positive_integer(every=self.every)
        positive(rate=self.rate)
        positive(error=self.error)

    def looks(self, steps: int) -> int:
        """Return the number of looks for a number of gradients."""
        return math.ceil(steps / self.every)

    def noise_multiplier(self, expected_batch: float, of_gradients: float) -> float:
        """Return the noise multiplier of a look, at least twice that of gradients."""
        # Looks then take at most a fortieth of the budget. A record moves the count by 1/2.
        return max(2 * self.error * expected_batch, 2 * of_gradients * math.sqrt(10 / min(self.every, 10)))


@dataclass(frozen=True)
class ByStep:
    """A clip norm for each step; where the run is extended, by the same rule, or the last one."""

    norms: tuple[float, ...]
    rule: Callable[[int], float] | None = field(default=None, repr=False)

    def at(self, step: int) -> float:
        """Return the clip norm of a step, counted from 0."""
        return self.norms[min(step, len(self.norms) - 1)]

    def extended(self, steps: int) -> "ByStep":
        """Return the norms of a longer run."""
        if self.rule is None:
            return self
        more = (check_clip_norm(clip_norm=self.rule(step)) for step in range(len(self.norms), steps))
        return ByStep((*self.norms, *more), self.rule)  # what was clipped to already stays


@dataclass(frozen=True)
class ByPart:
    """A clip norm for each part of a module, and the part of each parameter."""

    norms: tuple[float, ...]
    parts: dict[str, int]

    @property
    def total(self) -> float:
        """Bound on the whole gradient of a record: the root of the sum of squares."""
        return math.hypot(*self.norms)


def by_step(clip_norm: Sequence[float] | Callable[[int], float], steps: int) -> ByStep:
    """Return clip norms from a list, or from a function of the step, which sees nothing else."""
    rule = clip_norm if callable(clip_norm) else None
    norms = [rule(step) for step in range(steps)] if rule is not None else list(clip_norm)  # type: ignore[arg-type]
    if len(norms) != steps:
        what = f"clip_norm has {counted(len(norms), 'number')} for {counted(steps, 'step')}"
        raise InvalidArgument(f"{what}. Pass one for each step, or a function of the step.")
    return ByStep(tuple(check_clip_norm(clip_norm=norm) for norm in norms), rule)


def by_part(clip_norm: Mapping[str, float], names: Iterable[str]) -> ByPart:
    """Return clip norms from names of layers; "" names all parameters that no other name covers."""
    keys, parts = list(clip_norm), {}
    for name in names:
        found = [key for key in keys if key in ("", name) or name.startswith(f"{key}.")]
        if not found:
            raise InvalidArgument(f'clip_norm has no layer of {name}; got {shown(keys)}. Add it, or "" for all others.')
        parts[name] = keys.index(max(found, key=len))
    idle = [key for place, key in enumerate(keys) if place not in parts.values()]
    if idle:
        what = f"clip_norm names {shown(idle[0])}, which has no parameters to train of its own"
        raise InvalidArgument(f"{what}. Use names from module.named_modules().")
    return ByPart(tuple(check_clip_norm(**{f"clip_norm[{key!r}]": norm}) for key, norm in clip_norm.items()), parts)


ClipNorm = float | AdaptiveClip | Sequence[float] | Callable[[int], float] | Mapping[str, float]
Clip = float | AdaptiveClip | ByStep | ByPart


def clip_of(clip_norm: ClipNorm, steps: int, names: Iterable[str]) -> Clip:
    """Return the clip norms of a run of so many steps, on parameters of these names."""
    if isinstance(clip_norm, AdaptiveClip):
        return clip_norm
    if isinstance(clip_norm, Mapping):
        return by_part(clip_norm, names)
    if isinstance(clip_norm, tuple | list | np.ndarray) or (callable(clip_norm) and not isinstance(clip_norm, type)):
        return by_step(clip_norm, steps)
    return check_clip_norm(clip_norm=clip_norm)  # type: ignore[arg-type]
