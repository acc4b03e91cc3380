"""[PUBLIC] The purse that prices a run of the engine: schedules by name, noise from epsilon, epsilon from noise."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from privypurse.accounting import pld
from privypurse.accounting._filters import GdpFilter, RdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.accounting._totals import Filter
from privypurse.accounting.calibrate import rdp_noise_factor
from privypurse.core._checks import positive, positive_integer, probability, shown, small_probability
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core.charges import Charge, GaussianCharge, RepeatedCharge
from privypurse.methods._dp_sgd import calibrated, fixed_schedule, relative_charges
from privypurse.methods.dynamic import geometric_influences, momentum_influences
from privypurse.purse._opening import check_delta
from privypurse.purse._purse import Purse
from privypurse.pytorch._clip_norms import AdaptiveClip
from privypurse.training.schedules import shapes
from privypurse.training.schedules._base import EvenSplit, Schedule, Weighted

MOST_STEPS = 100_000  # that a run may be extended to
LEAST_NOISE, MOST_NOISE = 0.1, 1e6  # multipliers of a run
SHAPES = ("uniform", "dynamic", "momentum", "exponential", "step", "sigmoid")


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


def rule_at(
    noise_multiplier: float,
    steps: int | None,
    epsilon: float | None,
    delta: float,
    relation: Neighbouring,
    sample_prob: float,
    clip: AdaptiveClip | None,
    expected: float,
) -> FixedSchedule:
    """Return the filter of gradients with this noise: `steps` of them, or all that `epsilon` covers.

    With both it holds all that epsilon covers, so that a run of `steps` can be extended.
    """
    gradient = GaussianCharge(noise_multiplier, sample_prob)

    def listed(count: int) -> list[Charge]:
        if clip is None:
            return [RepeatedCharge(gradient, count)]
        look = GaussianCharge(clip.noise_multiplier(expected, noise_multiplier), sample_prob)
        return [charge for k in range(count) for charge in ([look] * (k % clip.every == 0) + [gradient])]

    def cost(count: int, interval: float) -> float:
        return pld.pld_epsilon(listed(count), delta, relation, interval=interval)

    if epsilon is None:
        if steps is None:
            raise InvalidArgument("steps or epochs must be given for noise_multiplier without epsilon. Pass epochs=10.")
        about = cost(steps, 1e-3)
        if not math.isfinite(about):
            what = f"{counted(steps, 'step')} at {noise_multiplier=} cost more than can be priced"
            raise InvalidArgument(f"{what}. Pass a larger noise_multiplier.")
        interval = pld.default_interval(about)
        epsilon = cost(steps, interval)
        return FixedSchedule(listed(steps), epsilon, delta, relation, interval=interval)
    interval = pld.default_interval(epsilon)
    limit = epsilon

    def fits(count: int) -> bool:
        return cost(count, interval) <= limit

    low = steps or 1
    if not fits(low):
        what = f"epsilon={epsilon:g} does not cover {counted(low, 'step')} at {noise_multiplier=}"
        raise InvalidArgument(f"{what}. Pass fewer steps, more noise or a larger epsilon.")
    high = 2 * low
    while high < MOST_STEPS and fits(high):
        low, high = high, 2 * high
    while high - low > 1 and low < MOST_STEPS:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return FixedSchedule(listed(low), epsilon, delta, relation)


def open_purse(
    *,
    epsilon: float | None = None,
    delta: float,
    neighbouring: Neighbouring | str,
    steps: int | None = None,
    noise_multiplier: float | None = None,
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
    noise_multiplier : float, optional
        Noise of each gradient, in place of `epsilon` or within it, as for `make_private`.
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
    sample_prob = probability(sample_prob=sample_prob)
    clip = clip_norm if isinstance(clip_norm, AdaptiveClip) else None
    if clip is not None and records is None:
        raise InvalidArgument("records must be given for an AdaptiveClip; got None. Pass the public number of records.")
    expected = sample_prob * positive(records=1.0 if records is None else records)
    if noise_multiplier is not None:
        check_noise_multiplier(noise_multiplier, schedule)
        count, relation = None if steps is None else positive_integer(steps=steps), Neighbouring.parse(neighbouring)
        rule: Filter = rule_at(noise_multiplier, count, epsilon, delta, relation, sample_prob, clip, expected)
    else:
        steps = positive_integer(steps=steps)
        target = GdpFilter(epsilon, delta, neighbouring)  # type: ignore[arg-type]  # it refuses None
        rule = rule_for(target, schedule_of(schedule, steps), steps, sample_prob, clip, expected)
    return Purse.with_filter(rule, **settings)


def check_noise_multiplier(noise_multiplier: float, schedule: object) -> float:
    """Raise InvalidArgument for a noise multiplier beside a schedule that divides a budget."""
    if schedule not in (None, "uniform"):
        what = f"schedule divides a budget, but noise_multiplier is the same at each step; got {shown(schedule)}"
        raise InvalidArgument(f"{what}. Pass one of them.")
    if not LEAST_NOISE <= positive(noise_multiplier=noise_multiplier) <= MOST_NOISE:
        what = f"noise_multiplier must be from {LEAST_NOISE} to {MOST_NOISE:g}; got {noise_multiplier!r}"
        raise InvalidArgument(f"{what}. Pass 1.0, say: less noise than a tenth of the clip norm protects nothing.")
    return noise_multiplier


def target_of(
    purse: Purse | None,
    epsilon: Any,
    delta: Any,
    relation: Neighbouring,
    noise: NoiseSource | None,
    records: float,
    noise_multiplier: float | None = None,
) -> GdpFilter | None:
    """Return the budget to plan with, None where a purse is given or the noise leads to it."""
    if purse is None:
        if epsilon is None and noise_multiplier is not None and delta is not None:
            check_delta(small_probability(delta=delta), records)
            return None
        if epsilon is None or delta is None:
            what = f"epsilon and delta must be given without a purse; got {epsilon!r} and {delta!r}"
            raise InvalidArgument(f"{what}. make_private takes noise_multiplier in place of epsilon, too.")
        check_delta(small_probability(delta=delta), records)
        return GdpFilter(epsilon, delta, relation)
    if not isinstance(purse, Purse):
        raise InvalidArgument(f"purse must be a Purse or None; got {shown(purse)}. Open one with open_purse(...).")
    for name, value in (("delta", delta), ("noise", noise)):
        if value is not None:
            raise InvalidArgument(f"{name} is set by the purse; got {shown(value)}. Leave it out.")
    return None


def check_rule(
    rule: Filter,
    sample_prob: float,
    schedule: Schedule,
    steps: int,
    clip: AdaptiveClip | None,
    *,
    followed: bool,
    noise_multiplier: float | None = None,
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
        if noise_multiplier is not None and any(
            not math.isclose(charge.noise_multiplier, noise_multiplier) for charge in of_gradients
        ):
            raise InvalidArgument("purse was opened for other noise. Leave noise_multiplier out, or pass the same.")
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
