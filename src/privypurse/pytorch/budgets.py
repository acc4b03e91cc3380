"""[PUBLIC] Budget of a run of the engine: named schedules, and the purse that prices them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privypurse.accounting.calibrate import rdp_noise_factor
from privypurse.accounting.filters import GdpFilter, RdpFilter
from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.accounting.totals import Filter
from privypurse.core.charges import GaussianCharge
from privypurse.core.checks import positive, positive_integer, probability, shown, small_probability
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.methods.dp_sgd import calibrated, fixed_schedule, relative_charges
from privypurse.methods.dynamic import geometric_influences, momentum_influences
from privypurse.purse.opening import check_delta, part_of
from privypurse.purse.purse import Purse
from privypurse.pytorch.clipping import LEAST_CLIP_NORM, MOST_CLIP_NORM, check_clip_norm
from privypurse.training.schedules import shapes
from privypurse.training.schedules.base import Schedule
from privypurse.training.schedules.weighted import EvenSplit, Weighted

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
        Standard deviation of the noise in the share. Raised where looks would take more than a few
        percent of the budget.
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
        """Return the noise multiplier of a look, at least twice that of gradients.

        Looks then take at most a fortieth of the budget. A record moves the count by 1/2.
        """
        return max(2 * self.error * expected_batch, 2 * of_gradients * math.sqrt(10 / min(self.every, 10)))

    def moved(self, clip_norm: float, noisy_count: float, expected_batch: float) -> float:
        """Return the clip norm after a look."""
        share = min(max(noisy_count / expected_batch + 0.5, 0.0), 1.0)
        return min(max(clip_norm * math.exp(self.rate * (self.quantile - share)), LEAST_CLIP_NORM), MOST_CLIP_NORM)


def shape(name: str, steps: int, *, ratio: float = 4.0, momentum: float = 0.9, stairs: int = 4) -> Weighted:
    """Return a schedule of the papers by name.

    Parameters
    ----------
    name : {"uniform", "dynamic", "momentum", "exponential", "step", "sigmoid"}
        "dynamic" weights a step by the influence of its noise on the result, which for a steady
        contraction equals "exponential"; "momentum" does so for averaged gradients.
    steps : int
        Number of gradients.
    ratio : float, default 4.0
        Budget of the last step relative to the first.
    momentum : float, default 0.9
        Momentum of the optimizer, for "momentum".
    stairs : int, default 4
        Number of levels, for "step".

    Examples
    --------
    >>> shape("exponential", 3).weights
    (1.0, 2.0, 4.0)
    """
    steps, ratio = positive_integer(steps=steps), positive(ratio=ratio)
    # The contraction of a module is unknown; this one leads to the ratio.
    gamma = ratio ** (-2 / max(1, steps - 1))
    if name == "uniform":
        return Weighted(shapes.uniform(steps))
    if name == "dynamic":
        return Weighted(shapes.influence(geometric_influences(steps, gamma).tolist()))
    if name == "momentum":
        return Weighted(shapes.influence(momentum_influences(steps, gamma, momentum).tolist()))
    if name == "exponential":
        return Weighted(shapes.exponential(steps, ratio))
    if name == "step":
        stairs = min(positive_integer(stairs=stairs), steps)
        return Weighted(shapes.step_decay(steps, ratio ** (1 / max(1, stairs - 1)), every=-(-steps // stairs)))
    if name == "sigmoid":
        return Weighted(shapes.sigmoid(steps, 10 / steps, ratio))
    raise InvalidArgument(
        f"schedule must be one of {', '.join(SHAPES)}, or a Schedule; got {shown(name)}. Leave it out."
    )


def schedule_of(schedule: "str | Schedule | Sequence[float]", steps: int) -> Schedule:
    """Return a schedule given its name, its weights or itself."""
    if isinstance(schedule, str):
        return shape(schedule, steps)
    if isinstance(schedule, tuple | list):
        schedule = Weighted(tuple(schedule))
    if isinstance(schedule, type) or not hasattr(schedule, "propose"):
        raise InvalidArgument(
            f"schedule must be one of {', '.join(SHAPES)}, a list of weights or a Schedule; got {shown(schedule)}. "
            "Leave it out."
        )
    if isinstance(schedule, Weighted) and len(schedule.weights) != steps:
        raise InvalidArgument(
            f"schedule has {len(schedule.weights)} weights for {steps} steps. Pass steps={len(schedule.weights)}."
        )
    return schedule  # type: ignore[return-value]


def rule_for(
    target: GdpFilter,
    schedule: Schedule,
    steps: int,
    sample_prob: float,
    clip: AdaptiveClip | None,
    expected_batch: float,
) -> Filter:
    """Return the filter of a run: Gaussian DP for full batches, fixed or Rényi for samples."""
    if sample_prob == 1:
        return target
    if not isinstance(schedule, Weighted | EvenSplit):
        reference = fixed_schedule((1.0,) * steps, sample_prob, target).schedule[0]
        assert isinstance(reference, GaussianCharge)
        return RdpFilter(target.epsilon, target.delta, target.neighbouring, reference=reference)
    weights = schedule.weights if isinstance(schedule, Weighted) else shapes.uniform(steps)
    charges = relative_charges(weights, sample_prob)
    if clip is None:
        return calibrated(charges, target)
    # Noise of looks relative to gradients, from the noise that gradients would have without looks.
    factor = rdp_noise_factor(charges, target.epsilon, target.delta, target.neighbouring)
    alone = [GaussianCharge(factor * charge.noise_multiplier, sample_prob) for charge in charges]
    typical = min(charge.noise_multiplier for charge in alone)
    look = GaussianCharge(clip.noise_multiplier(expected_batch, typical), sample_prob)
    mixed: list[GaussianCharge] = []
    for k, charge in enumerate(alone):
        mixed += [look, charge] if k % clip.every == 0 else [charge]
    return calibrated(mixed, target)


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
    steps : int
        Number of gradients.
    sample_prob : float, default 1.0
        Poisson sampling rate: expected batch size over public number of records.
    schedule, clip_norm, records
        As for `make_private`; `records` is needed for an `AdaptiveClip` only.
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
    purse: Purse | None,
    epsilon: float | None,
    delta: float | None,
    relation: Neighbouring,
    noise: NoiseSource | None,
    records: float,
) -> GdpFilter | None:
    """Return the budget to plan with, None where a purse is given."""
    if purse is None:
        if epsilon is None or delta is None:
            raise InvalidArgument(
                f"epsilon and delta must be given without a purse; got {epsilon!r} and {delta!r}. Pass epsilon=2.0, "
                "delta=1e-5."
            )
        check_delta(small_probability(delta=delta), records)
        return GdpFilter(epsilon, delta, relation)
    if not isinstance(purse, Purse):
        raise InvalidArgument(
            f"purse must be a Purse or None; got {shown(purse)}. Open one with privypurse.pytorch.open_purse(...)."
        )
    for name, value in (("delta", delta), ("noise", noise)):
        if value is not None:
            raise InvalidArgument(f"{name} is set by the purse; got {shown(value)}. Leave it out.")
    return None


def share_of(purse: Purse, epsilon: float, sample_prob: float) -> Purse:
    """Return a part of a purse for one run of full batches."""
    if sample_prob < 1:
        raise InvalidArgument(
            f"epsilon of Poisson samples is set by the purse, which prices the whole schedule; got {shown(epsilon)}. Leave "
            "it out, open a purse of that epsilon with privypurse.pytorch.open_purse(...), or pass full_batch=True."
        )
    return part_of(purse, positive(epsilon=epsilon))


def check_rule(
    rule: Filter,
    sample_prob: float,
    schedule: Schedule,
    steps: int,
    looks: int,
    *,
    every: int | None = None,
    followed: bool = False,
) -> None:
    """Refuse a purse that cannot price the run; `followed`: the schedule is the purse's own."""
    if isinstance(rule, FixedSchedule):
        if len(rule.schedule) < steps + looks:
            raise InvalidArgument(
                f"purse was opened for {len(rule.schedule)} releases, but the run has {steps + looks}. Open it with the "
                "same steps, schedule and clip_norm: privypurse.pytorch.open_purse(...)."
            )
        if not isinstance(schedule, Weighted | EvenSplit):
            raise InvalidArgument(
                f"purse has a schedule fixed in advance, but {type(schedule).__name__} is adaptive. Open it with "
                "privypurse.pytorch.open_purse(..., schedule=...)."
            )
        if not followed and not _alike(schedule, rule, steps, sample_prob, every):
            raise InvalidArgument(
                "purse was opened for another schedule than the one given here. Leave schedule out, or open the purse with "
                "the same."
            )
        wrong = {charge.sample_prob for charge in rule.schedule if isinstance(charge, GaussianCharge)} - {sample_prob}
        if wrong:
            raise InvalidArgument(
                f"purse was opened for sampling rate {sorted(wrong)[0]:g}, but the loader draws samples at "
                f"{sample_prob:g}. Use the same batch_size and records for both."
            )
    elif sample_prob < 1 and rule.name in ("gdp", "zcdp"):
        raise InvalidArgument(
            f"purse has a {rule.name} filter, which cannot price Poisson samples (here {sample_prob:g}). Leave the purse "
            "out and pass epsilon and delta, open it with privypurse.pytorch.open_purse(...), or pass full_batch=True."
        )


def _alike(
    schedule: Weighted | EvenSplit, rule: FixedSchedule, steps: int, sample_prob: float, every: int | None
) -> bool:
    """Whether the noise of a fixed schedule is proportional to that of `schedule`, looks aside."""
    weights = schedule.weights if isinstance(schedule, Weighted) else shapes.uniform(steps)
    wanted = [charge.noise_multiplier for charge in relative_charges(weights, sample_prob)]
    planned = [charge.noise_multiplier for charge in rule.schedule if isinstance(charge, GaussianCharge)]
    if every is not None:  # a look comes before every so many gradients
        planned = [noise for k, noise in enumerate(planned) if k % (every + 1)]
    ratios = [a / b for a, b in zip(planned, wanted, strict=False)]
    return max(ratios) <= min(ratios) * (1 + 1e-6)


def default_steps(rule: GdpFilter, records: float, parameters: int) -> int:
    """Return ``n mu / sqrt(d)`` full-batch steps, half under replace-one, between 10 and 1,000.

    The noise of that many steps leaves enough signal in each; replace-one has twice the noise.
    """
    factor = 1 if rule.neighbouring is Neighbouring.ADD_REMOVE else 2
    return min(max(round(records * rule.mu / (factor * math.sqrt(parameters))), 10), 1_000)
