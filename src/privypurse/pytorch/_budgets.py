"""[PUBLIC] Budget of a run of the engine: named schedules, the purse that prices them, and releases."""

import contextlib
import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from privypurse.accounting._filters import GdpFilter, RdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Filter, Totals
from privypurse.accounting.calibrate import rdp_noise_factor
from privypurse.core._checks import positive, positive_integer, probability, shown, small_probability
from privypurse.core._errors import BudgetExhausted, InvalidArgument, count_charge
from privypurse.core._formats import counted
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sample
from privypurse.core.charges import GaussianCharge, RepeatedCharge, to_json
from privypurse.core.queries import ModuleGradient, Released, ShareWithin
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._torch_gaussian import SensitiveTensor, TorchGaussian
from privypurse.methods._dp_sgd import calibrated, fixed_schedule, relative_charges
from privypurse.methods.dynamic import geometric_influences, momentum_influences
from privypurse.purse._opening import check_delta
from privypurse.purse._purse import Purse
from privypurse.pytorch._clipping import LEAST_CLIP_NORM, MOST_CLIP_NORM, check_clip_norm
from privypurse.training._checkpoint import single_charge
from privypurse.training._progress import Callback
from privypurse.training._trace import Step, Trace, forget, remembered
from privypurse.training.schedules import shapes
from privypurse.training.schedules._base import Budget, EvenSplit, Schedule, Weighted

SHAPES = ("uniform", "dynamic", "momentum", "exponential", "step", "sigmoid")


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


def shape(name: str, steps: int, *, ratio: float = 4.0, momentum: float = 0.9) -> Weighted:
    """Return a schedule of the papers by name, for a number of gradients.

    "dynamic" weights a step by the influence of its noise on the result, which for a steady
    contraction equals "exponential"; "momentum" does so for averaged gradients. `ratio` is the
    budget of the last step relative to the first. "step" has four levels.

    Examples
    --------
    >>> shape("exponential", 3).weights
    (1.0, 2.0, 4.0)
    """
    steps, ratio = positive_integer(steps=steps), positive(ratio=ratio)
    if name not in SHAPES:
        raise InvalidArgument(f"schedule must be one of {', '.join(SHAPES)}, or a Schedule; got {shown(name)}.")
    gamma = ratio ** (-2 / max(1, steps - 1))  # a module's contraction is unknown: this one leads to the ratio
    levels = min(4, steps)
    return Weighted(
        {
            "uniform": lambda: shapes.uniform(steps),
            "dynamic": lambda: shapes.influence(geometric_influences(steps, gamma).tolist()),
            "momentum": lambda: shapes.influence(momentum_influences(steps, gamma, momentum).tolist()),
            "exponential": lambda: shapes.exponential(steps, ratio),
            "step": lambda: shapes.step_decay(steps, ratio ** (1 / max(1, levels - 1)), every=-(-steps // levels)),
            "sigmoid": lambda: shapes.sigmoid(steps, 10 / steps, ratio),
        }[name]()
    )


def schedule_of(schedule: "str | Schedule | Sequence[float]", steps: int) -> Schedule:
    """Return a schedule given its name, its weights or itself."""
    if isinstance(schedule, str):
        return shape(schedule, steps)
    if isinstance(schedule, tuple | list):
        schedule = Weighted(tuple(schedule))
    if isinstance(schedule, type) or not hasattr(schedule, "propose"):
        raise InvalidArgument(f"schedule must be a name, a list of weights or a Schedule; got {shown(schedule)}.")
    if isinstance(schedule, Weighted) and (weights := len(schedule.weights)) != steps:
        what = f"schedule has {counted(weights, 'weight')} for {counted(steps, 'step')}"
        raise InvalidArgument(f"{what}. Pass steps={weights}.")
    return schedule  # type: ignore[return-value]


def rule_for(
    target: GdpFilter, schedule: Schedule, steps: int, sample_prob: float, clip: AdaptiveClip | None, expected: float
) -> Filter:
    """Return the filter of a run: Gaussian DP for full batches, fixed or Rényi for samples."""
    if sample_prob == 1:
        return target
    if not isinstance(schedule, Weighted | EvenSplit):
        reference = fixed_schedule((1.0,) * steps, sample_prob, target).schedule[0]
        assert isinstance(reference, GaussianCharge)
        return RdpFilter(target.epsilon, target.delta, target.neighbouring, reference=reference)
    charges = _relative_charges(schedule, steps, sample_prob)
    if clip is None:
        return calibrated(charges, target)
    # Noise of looks relative to gradients, from the noise that gradients would have without looks.
    factor = rdp_noise_factor(charges, target.epsilon, target.delta, target.neighbouring)
    alone = [GaussianCharge(factor * charge.noise_multiplier, sample_prob) for charge in charges]
    typical = min(charge.noise_multiplier for charge in alone)
    look = GaussianCharge(clip.noise_multiplier(expected, typical), sample_prob)
    mixed = ([look, charge] if k % clip.every == 0 else [charge] for k, charge in enumerate(alone))
    return calibrated(list(itertools.chain.from_iterable(mixed)), target)


def open_purse(
    *,
    epsilon: float,
    delta: float,
    neighbouring: Neighbouring | str,
    steps: int,
    sample_prob: float = 1.0,
    schedule: "str | Schedule | Sequence[float]" = "uniform",
    clip_norm: "float | AdaptiveClip" = 1.0,
    records: float | None = None,
    **settings: Any,
) -> Purse:
    """Open the purse that prices a run of `make_private`, for a ledger file or several runs.

    Parameters
    ----------
    epsilon, delta, neighbouring
        Budget. The schedule is calibrated to spend exactly this.
    steps, schedule, clip_norm, records
        As for `make_private`; `records` is needed for an `AdaptiveClip` only.
    sample_prob : float, default 1.0
        Poisson sampling rate: expected batch size over public number of records.
    **settings
        ``ledger``, ``dataset``, ``noise``, ``who``: as for `Purse`.

    Examples
    --------
    >>> open_purse(epsilon=2.0, delta=1e-5, neighbouring="add-remove", steps=100, sample_prob=0.01).filter
    <FixedSchedule: 100 releases, epsilon=2, delta=1e-05>
    """
    steps, sample_prob = positive_integer(steps=steps), probability(sample_prob=sample_prob)
    clip = clip_norm if isinstance(clip_norm, AdaptiveClip) else None
    if clip is not None and records is None:
        raise InvalidArgument("records must be given for an AdaptiveClip; got None. Pass the public number of records.")
    expected = sample_prob * positive(records=1.0 if records is None else records)
    target = GdpFilter(epsilon, delta, neighbouring)
    rule = rule_for(target, schedule_of(schedule, steps), steps, sample_prob, clip, expected)
    return Purse.with_filter(rule, **settings)


def target_of(
    purse: Purse | None, epsilon: Any, delta: Any, relation: Neighbouring, noise: NoiseSource | None, records: float
) -> GdpFilter | None:
    """Return the budget to plan with, None where a purse is given."""
    if purse is None:
        if epsilon is None or delta is None:
            raise InvalidArgument(f"epsilon and delta must be given without a purse; got {epsilon!r} and {delta!r}.")
        check_delta(small_probability(delta=delta), records)
        return GdpFilter(epsilon, delta, relation)
    if not isinstance(purse, Purse):
        raise InvalidArgument(f"purse must be a Purse or None; got {shown(purse)}. Open one with open_purse(...).")
    for name, value in (("delta", delta), ("noise", noise)):
        if value is not None:
            raise InvalidArgument(f"{name} is set by the purse; got {shown(value)}. Leave it out.")
    return None


def check_rule(
    rule: Filter, sample_prob: float, schedule: Schedule, steps: int, clip: AdaptiveClip | None, *, followed: bool
) -> None:
    """Refuse a purse that cannot price the run; `followed`: the schedule is the purse's own."""
    if isinstance(rule, FixedSchedule):
        releases = steps + (0 if clip is None else clip.looks(steps))
        if len(rule.schedule) < releases:
            opened = f"purse was opened for {counted(len(rule.schedule), 'release')}, but the run has {releases}"
            raise InvalidArgument(f"{opened}. Pass the same steps, schedule and clip_norm to open_purse(...).")
        if not isinstance(schedule, Weighted | EvenSplit):
            adaptive = f"purse has a fixed schedule, but {type(schedule).__name__} is adaptive"
            raise InvalidArgument(f"{adaptive}. Pass it to open_purse(...) too.")
        charges = [charge for charge in rule.schedule if isinstance(charge, GaussianCharge)]
        # A look comes before every so many gradients.
        of_gradients = [charge for k, charge in enumerate(charges) if clip is None or k % (clip.every + 1)]
        pairs = zip(of_gradients, _relative_charges(schedule, steps, sample_prob), strict=False)
        ratios = [planned.noise_multiplier / wanted.noise_multiplier for planned, wanted in pairs]
        if not followed and max(ratios) > min(ratios) * (1 + 1e-6):
            raise InvalidArgument("purse was opened for another schedule. Leave schedule out, or pass the same.")
        wrong = sorted({charge.sample_prob for charge in charges} - {sample_prob})
        if wrong:
            opened = f"purse was opened for sampling rate {wrong[0]:g}, not {sample_prob:g}"
            raise InvalidArgument(f"{opened}. Pass the same batch_size and records.")
    elif sample_prob < 1 and rule.name in ("gdp", "zcdp"):
        cannot = f"purse has a {rule.name} filter, which cannot price Poisson samples"
        raise InvalidArgument(f"{cannot}. Open it with open_purse(...), or pass full_batch=True.")


def _relative_charges(schedule: Weighted | EvenSplit, steps: int, sample_prob: float) -> list[GaussianCharge]:
    weights = schedule.weights if isinstance(schedule, Weighted) else shapes.uniform(steps)
    return relative_charges(weights, sample_prob)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Public settings of a run, fixed before it begins."""

    steps: int
    sample_prob: float
    expected_batch: float
    chunks: int
    samples_per_pass: int
    piece: int
    mean_loss: bool
    block: int


class Payments:
    """Chooses the noise of each release before its sample is drawn, and charges it.

    The noise depends on earlier releases only. The bound in the box is the clip norm that gradients
    were clipped to, which changes only after a look at gradient norms, itself a release.
    """

    def __init__(
        self,
        purse: Purse,
        schedule: Schedule,
        clip_norm: float | AdaptiveClip,
        settings: Settings,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.purse, self.schedule, self.clip, self.settings = purse, schedule, clip_norm, settings
        self._adaptive = clip_norm if isinstance(clip_norm, AdaptiveClip) else None
        self.clip_norm = clip_norm.start if isinstance(clip_norm, AdaptiveClip) else clip_norm  # the current one
        self._looks = 0 if self._adaptive is None else self._adaptive.looks(settings.steps)  # in the whole run
        self._rule, self._callbacks = purse.filter, list(callbacks)
        self._fixed = isinstance(purse.filter, FixedSchedule)  # it decides what comes next, not the schedule
        self._divides = isinstance(schedule, Weighted | EvenSplit)  # such schedules always fit, and see no values
        self.trace, self.gradients = Trace(), 0
        self.looking = False  # whether the next release is a look at gradient norms, for an adaptive clip norm
        self._past: Sequence[Released] = ()
        self._look_noise, self._budget = self._begin()
        self._next: TorchGaussian | None = None
        self._started = self._reserved = False
        self._blocks = contextlib.ExitStack()

    def plan(self) -> None:
        """Choose the noise of the next release, or end the run if none fits the budget."""
        self._next = None
        if self.gradients >= self.settings.steps:
            self.finish("steps")
        if self.trace.stop_reason:
            return
        looks = len(self.trace.steps) - self.gradients
        self.looking = self._adaptive is not None and self.gradients == looks * self._adaptive.every
        try:
            if self._fixed:
                now = self.purse.totals
                multiplier = self._rule.smallest_noise_multiplier(now, self.settings.sample_prob)
                if math.isinf(multiplier):  # raises: nothing is left, or another release comes next
                    replace(self._budget, now=now).gaussian(1.0)
            else:
                multiplier = self._proposed()
            self._next = TorchGaussian(multiplier)
        except BudgetExhausted:
            self.finish("budget")

    def _proposed(self) -> float:
        """Return the noise multiplier of a look, or that which the schedule proposes."""
        multiplier, least = self._look_noise, 0.0
        if not self.looking:
            mechanism = self.schedule.propose(ModuleGradient(clip_norm=self.clip_norm), self._past, self._budget)
            if not isinstance(mechanism, Gaussian):
                proposed = (
                    f"{type(self.schedule).__name__} proposed {shown(mechanism)}. Return budget.gaussian(0.01), say"
                )
                raise InvalidArgument(f"schedule must propose a Gaussian mechanism; {proposed}.")
            multiplier = mechanism.noise_multiplier
        if not self._divides:
            least = self._rule.smallest_noise_multiplier(self.purse.totals, self.settings.sample_prob)
        if multiplier < least or math.isinf(multiplier):
            raise BudgetExhausted("what is left of the budget does not cover the next release.")
        return multiplier

    def pay(self, value: Tensor, sample: Sample) -> Tensor:
        """Release a sum through the purse and add it to the trace."""
        assert self._next is not None
        if not self._reserved:
            self._blocks.enter_context(self.purse.reserve(self.settings.block))
            self._reserved = True
        # A look counts 1/2 for a record within the norm and -1/2 for others.
        bound, rate = 0.5 if self.looking else self.clip_norm, self.settings.sample_prob
        box = SensitiveTensor(
            value, norm=Norm.L2, add_remove=bound, replace_one=2 * bound, sample_prob=rate, sample=sample
        )
        name = (ShareWithin if self.looking else ModuleGradient).__name__
        released = self.purse.release(box, self._next, what=name)
        noisy: Any = released.value
        self.gradients += not self.looking
        if not (self.looking or self._fixed):
            seen = np.empty(0) if self._divides else noisy.detach().cpu().numpy()
            self._past = remembered(self._past, replace(released, value=seen))
            forget(self._past)
            self._budget = self._budget.after(released.charge)
        left, done = self.purse.fraction_left, len(self.trace.steps)
        step = Step(done + 1, name, to_json(released.charge), released.noise_std, None, left)
        self.trace.steps.append(step)
        for callback in self._callbacks:
            if not self._started:
                callback.on_start(self.settings.steps + self._looks, done)
            callback.on_step(step)
        self._started = True
        return noisy  # type: ignore[no-any-return]

    def follow(self) -> None:
        """Count a release in a process that does not charge the purse."""
        count_charge()  # charged by the first process
        query = ShareWithin if self.looking else ModuleGradient
        self.gradients += not self.looking
        self.trace.steps.append(Step(len(self.trace.steps) + 1, query.__name__, {}, None, None, 0.0))

    def move_clip_norm(self, noisy_count: float) -> None:
        """Update the clip norm from the result of a look."""
        clip = self._adaptive
        assert clip is not None
        share = min(max(noisy_count / self.settings.expected_batch + 0.5, 0.0), 1.0)
        moved = self.clip_norm * math.exp(clip.rate * (clip.quantile - share))
        self.clip_norm = min(max(moved, LEAST_CLIP_NORM), MOST_CLIP_NORM)

    def finish(self, reason: str) -> None:
        """End the run."""
        if self.trace.stop_reason:
            return
        self.trace.stop_reason = reason
        self.close()
        if reason == "budget" and not self.trace.steps:
            left = f"what is left of the budget of data set {self.purse.dataset!r} does not cover the first one"
            warnings.warn(f"no step was made: {left}. The module is unchanged.", UserWarning, stacklevel=4)
        for callback in self._callbacks:
            callback.on_end(self.trace)

    def close(self) -> None:
        """Return the unused part of the reservation."""
        self._blocks.close()
        self._reserved = False

    def state(self) -> dict[str, Any]:
        """Return the state of the run in JSON types, without `vectors`."""
        start = self._budget.start
        return {
            "settings": repr(self.settings),
            "schedule": repr(self.schedule),
            "clip": repr(self.clip),
            "trace": self.trace.to_json(),
            "start": [list(start.quanta), start.releases, start.non_private],
            "clip_norm": self.clip_norm,
            "look_noise": self._look_noise,
        }

    @property
    def vectors(self) -> list[Any]:
        """Latest noisy gradients, where the schedule uses them."""
        return [released.value for released in self._past if released.value.size]

    def go_on(self, state: dict[str, Any], vectors: list[Any]) -> None:
        """Continue a run from its `state`."""
        self.trace = Trace.from_json(state["trace"])
        self.clip_norm, self._look_noise = state["clip_norm"], state["look_noise"]
        gradients = [step for step in self.trace.steps if step.query == ModuleGradient.__name__]
        self.gradients = len(gradients)
        quanta, releases, non_private = state["start"]
        start = Totals(tuple(quanta), releases, non_private)
        self._budget, self._past = replace(self._budget, start=start, now=start), ()
        empty = [np.empty(0)] * (len(gradients) - len(vectors))
        for step, vector in zip(gradients, [*empty, *vectors], strict=True):
            charge = single_charge(step.charge) if step.charge else None  # none in a process that does not charge
            if charge is not None and not self._fixed:
                self._past = (*self._past, Released(vector, charge, step.noise_std))
                self._budget = self._budget.after(charge)

    def _begin(self) -> tuple[float, Budget]:
        """Return the noise of looks, and the budget of gradients: the remaining one less their cost."""
        rule, start, steps, rate = self.purse.filter, self.purse.totals, self.settings.steps, self.settings.sample_prob
        whole = Budget(rule, start, start, steps, rate)
        if self._adaptive is None or self._fixed:
            return 0.0, whole
        try:
            even = whole.gaussian(1 / steps)
        except BudgetExhausted:
            return math.inf, whole  # a finished run may be opened again
        noise = self._adaptive.noise_multiplier(self.settings.expected_batch, even.noise_multiplier)
        if math.isfinite(noise):
            start = rule.after(start, RepeatedCharge(GaussianCharge(noise, rate), self._looks))
        return noise, Budget(rule, start, start, steps, rate)
