"""Descriptions of releases (charges), without their cost.

A charge holds all that an accountant needs to price one release. Charges are written into ledgers,
so this module is a compatibility contract. Fields are never renamed or removed. A new field has a
default that keeps the meaning of old ledgers. A kind is never reused for something else.

Charges are frozen, hashable and convert to JSON and back without loss.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from privypurse.core._checks import non_negative, positive, positive_integer, probability, text
from privypurse.core._errors import InvalidArgument

__all__ = ["PureCharge"]


@dataclass(frozen=True)
class GaussianCharge:
    """A value was released with Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the L2 sensitivity under the purse's relation.
        Zero means no noise and costs infinity.
    sample_prob : float, default 1.0
        Poisson sampling rate of the records behind the value. Under replace-one, a sampled charge
        states that the sensitivity is twice the add/remove sensitivity, as for a clipped sum.
    """

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: float
    sample_prob: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", non_negative(noise_multiplier=self.noise_multiplier))
        object.__setattr__(self, "sample_prob", probability(sample_prob=self.sample_prob))


@dataclass(frozen=True)
class _EpsilonCharge:
    """A release whose privacy losses are bounded."""

    epsilon: float
    sample_prob: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive(epsilon=self.epsilon))
        object.__setattr__(self, "sample_prob", probability(sample_prob=self.sample_prob))


@dataclass(frozen=True)
class BoundedRangeCharge(_EpsilonCharge):
    """One of several candidates was selected by the exponential mechanism.

    The privacy losses of any two outcomes differ by at most `epsilon` (bounded range). The selection
    is therefore epsilon-DP.
    """

    kind: ClassVar[str] = "bounded-range"


@dataclass(frozen=True)
class PureCharge(_EpsilonCharge):
    """A value was released by a mechanism known only to be epsilon-DP.

    Parameters
    ----------
    epsilon : float
        The privacy loss of any outcome is at most epsilon.
    sample_prob : float, default 1.0
        Poisson sampling rate of the records behind the value.
    """

    kind: ClassVar[str] = "pure"


@dataclass(frozen=True)
class ObjectivePerturbationCharge:
    """The minimiser of a randomly perturbed convex objective was released, plus a little noise.

    `noise_multiplier` is the standard deviation of the linear perturbation divided by the largest
    norm of one record's gradient: the same number under either relation, unlike for a Gaussian
    release. `curvature_ratio` is the largest second derivative of one record's loss divided by the
    ridge, below 1. `output_noise_multiplier` is the standard deviation of the noise on the
    minimiser divided by twice its largest distance from the exact minimiser.
    """

    kind: ClassVar[str] = "objective-perturbation"
    noise_multiplier: float
    curvature_ratio: float
    output_noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", positive(noise_multiplier=self.noise_multiplier))
        if probability(curvature_ratio=self.curvature_ratio) >= 1:
            raise InvalidArgument(f"curvature_ratio must be below 1; got {self.curvature_ratio!r}. Use a larger ridge.")
        positive(output_noise_multiplier=self.output_noise_multiplier)


@dataclass(frozen=True)
class RepeatAndSelectCharge:
    """The best of a random number of trials was released, and nothing of the others.

    Each trial, with everything it would release, is as private as one Gaussian release with this
    noise multiplier. Their number is truncated negative binomial with this mean, 1 or more, and
    shape: 0 is the logarithmic distribution, 1 the geometric one.
    """

    kind: ClassVar[str] = "repeat-and-select"
    noise_multiplier: float
    mean: float
    shape: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", positive(noise_multiplier=self.noise_multiplier))
        object.__setattr__(self, "mean", positive(mean=self.mean))
        object.__setattr__(self, "shape", non_negative(shape=self.shape))
        if self.mean < 1:
            raise InvalidArgument(f"mean must be 1 or more; got {self.mean!r}. There is always at least one trial.")


@dataclass(frozen=True)
class NonPrivateCharge:
    """A value was released without noise. Costs infinity; only a non-private purse admits it.

    The reason is shown on the certificate.
    """

    kind: ClassVar[str] = "non-private"
    reason: str

    def __post_init__(self) -> None:
        text(reason=self.reason)


@dataclass(frozen=True)
class RepeatedCharge:
    """A single charge repeated `count` times, priced like a list of that length."""

    kind: ClassVar[str] = "repeated"
    charge: "SingleCharge"
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.charge, SingleCharge):
            raise InvalidArgument(f"charge must be a single charge; got {self.charge!r}. Pass GaussianCharge(2.0).")
        object.__setattr__(self, "count", positive_integer(count=self.count))


SingleCharge = (
    GaussianCharge
    | BoundedRangeCharge
    | PureCharge
    | ObjectivePerturbationCharge
    | RepeatAndSelectCharge
    | NonPrivateCharge
)
Charge = SingleCharge | RepeatedCharge

_KINDS: dict[str, type[SingleCharge]] = {kind.kind: kind for kind in get_args(SingleCharge)}


def to_json(charge: Charge) -> dict[str, Any]:
    """Describe a charge with plain JSON types."""
    if isinstance(charge, RepeatedCharge):
        return {"kind": charge.kind, "charge": to_json(charge.charge), "count": charge.count}
    return {"kind": charge.kind, **vars(charge)}


def from_json(described: dict[str, Any]) -> Charge:
    """Rebuild a charge from `to_json`. Raise InvalidArgument for an unknown kind or field."""
    if not isinstance(described, dict):
        raise InvalidArgument(f"a charge must be a JSON object; got {described!r}. Pass what to_json returned.")
    fields = dict(described)
    kind = fields.pop("kind", None)
    try:
        if kind == RepeatedCharge.kind:
            inner = from_json(fields.pop("charge"))
            return RepeatedCharge(charge=inner, **fields)  # type: ignore[arg-type]
        return _KINDS[kind](**fields)
    except (KeyError, TypeError) as error:
        why = f"not a charge this version of privypurse knows: {described!r}"
        raise InvalidArgument(f"{why}. It may come from a newer version: install that version to read it.") from error
