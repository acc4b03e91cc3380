"""Numbers and guarantees in words, as plain text."""

import datetime
import decimal
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from privypurse.core import _formats as formats
from privypurse.core._formats import NO_PROTECTION_EPSILON, WEAK_EPSILON, grouped, weakness
from privypurse.core._neighbouring import Neighbouring
from privypurse.purse._certificate import Certificate
from privypurse.report._content import Estimate, Measurement

SHARES = ("accuracy", "precision", "recall", "share", "correct", "auc", "f1")
STOPS = {
    "steps": "made all planned steps",
    "budget": "stopped because another step did not fit in the budget",
    "others": "was CUT SHORT: others spent from the same budget in the meantime, and not all planned steps fit",
    "interrupt": "was interrupted",
}
QUERIES = {
    "GradientAt": "gradient",
    "ModuleGradient": "gradient",
    "ShareWithin": "share of gradients within the clip norm",
    "LossesAlong": "line search",
    "LossesAt": "choice among models",
    "Objective": "minimiser",
    "Count": "number of records",
    "ClassCounts": "records of each class",
}
PURPOSES = {name: f"noisy {QUERIES[name]}" for name in ("GradientAt", "ModuleGradient", "ShareWithin")} | {
    "LossesAlong": "step size, selected",
    "LossesAt": "candidate model, selected",
    "Count": "number of records",
}
_SPACE = "\u00a0"


def rounded_up(value: float, digits: int = 4) -> str:
    """Format a number rounded up, such as a spent epsilon."""
    return grouped(float(formats.rounded_up(value, digits)), digits)


def percent(share: float, places: int = 1) -> str:
    """Format a share in percent."""
    return formats.percent(share, places, space=_SPACE)


def percent_up(share: float) -> str:
    """Format a share in percent, rounded up."""
    return f"{min(100.0, math.ceil(share * 1000 - 1e-9) / 10):.1f}{_SPACE}%"


def chance(delta: float) -> str:
    """Format a small probability as one in so many, rounded up.

    >>> chance(1e-6).split(), chance(0.0)
    (['1', 'in', '1,000,000'], 'none at all')
    """
    if delta <= 0:
        return "none at all"
    one_in = decimal.Context(prec=3, rounding=decimal.ROUND_FLOOR).divide(1, decimal.Decimal(repr(delta)))
    written = f"{int(one_in):,}" if one_in < decimal.Decimal(10) ** 15 else f"{float(one_in):.3g}"
    return f"1{_SPACE}in{_SPACE}{written}"


def factor(epsilon: float) -> str:
    """Format e^epsilon with three digits, rounded up.

    >>> factor(1.0), factor(0.5), factor(1000.0)
    ('2.72', '1.65', 'more than 10^300')
    """
    return rounded_up(math.exp(epsilon), 3) if epsilon < 690 else "more than 10^300"


def right_guesses(epsilon: float, delta: float) -> float:
    """Return the largest probability of guessing right whether a record with prior 1/2 took part.

    A guess says yes with probability p where the record is in and q where it is not, and is right
    with probability s/2, s = p + 1 - q. Add p <= e^epsilon q + delta and 1 - q <= e^epsilon (1 - p)
    + delta: s/2 <= (e^epsilon + delta)/(1 + e^epsilon), with equality at p = 1 - q.

    >>> right_guesses(0.0, 0.0), round(right_guesses(1.0, 1e-6), 4)
    (0.5, 0.7311)
    """
    # Divided by e^epsilon, which would overflow for a large epsilon.
    shrunk = math.exp(-epsilon)
    return min(1.0, (1 + delta * shrunk) / (1 + shrunk))


class Status(NamedTuple):
    """State of a guarantee, the reason if it is not the best one, and the style of its badge."""

    state: str  # PRIVATE, WEAK or NOT PRIVATE
    why: str
    style: str

    @property
    def badge(self) -> str:
        """Text of the badge."""
        return f"{self.state}: {self.why}" if self.why else self.state


def status(certificate: Certificate, declared: bool) -> Status:
    """Return the state of a guarantee. `declared`: all of the schema was declared or paid for."""
    if certificate.simulation:
        return Status("NOT PRIVATE", "simulation", "alarm")
    if not bounded(certificate):
        return Status("NOT PRIVATE", "", "alarm")
    weak = weakness(certificate.epsilon)
    if certificate.epsilon > NO_PROTECTION_EPSILON:
        return Status("NOT PRIVATE", weak, "alarm")
    reasons = [weak] if weak else []
    reasons += [] if declared else ["schema read from the data"]
    return Status("WEAK", ", ".join(reasons), "caution") if reasons else Status("PRIVATE", "", "calm")


def bounded(certificate: Certificate) -> bool:
    """Whether there is a guarantee."""
    return certificate.private and math.isfinite(certificate.epsilon)


def _replaces(certificate: Certificate) -> bool:
    return certificate.neighbouring == Neighbouring.REPLACE_ONE.value


def guarantee(certificate: Certificate) -> str:
    """Return the guarantee in one sentence."""
    if certificate.simulation:
        return "No guarantee: the noise was seeded for a simulation, so whoever knows the seed can remove it."
    if not bounded(certificate):
        return "No guarantee: values were released without a limit, so they may reveal everything about a record."
    if certificate.epsilon > NO_PROTECTION_EPSILON:
        said = f"No protection: with epsilon {grouped(certificate.epsilon)} a result may be {factor(certificate.epsilon)} times"
        return f"{said} as likely with one person's record as without, so it may reveal everything about that record."
    whose = (
        "one record" if "unit" in certificate.statement else "one person's record"
    )  # else several may be one person's
    change = f"adding or taking away {whose}"
    if _replaces(certificate):
        change = f"changing what {whose} says"
    apart = f", apart from a chance of at most {chance(certificate.delta)}" if certificate.delta > 0 else ""
    most = f"by at most a factor of {factor(certificate.epsilon)}{apart}"
    return f"Whatever an attacker already knows, {change} makes any result more or less likely {most}."


def strength(certificate: Certificate) -> str:
    """Explain the relation, and warn of a weak guarantee."""
    relation, details = "The guarantee covers a record's presence", ": whether its owner takes part or not."
    if unit := certificate.statement.get("unit"):
        details = f": whether it is there or not. A record is, as was stated: {unit.rstrip('.')}."
    if _replaces(certificate):
        relation, details = "The guarantee covers a record's contents; the number of records is public", "."
    if certificate.epsilon <= WEAK_EPSILON:
        return relation + details
    if certificate.epsilon > NO_PROTECTION_EPSILON:
        return f"{weakness(certificate.epsilon).capitalize()}. Do not publish this model as private; train again with less."
    weak = f"a factor of {factor(certificate.epsilon)} is very large, so this guarantee is weak"
    hides = "in the worst case it hides almost nothing"
    return f"{relation}. But {weak}: {hides}. Do not rely on it without a further argument."


def guesser(certificate: Certificate) -> str:
    """Explain the bound on guesses about one record."""
    bound = percent_up(right_guesses(certificate.epsilon, certificate.delta))
    asked = "which of two records was used" if _replaces(certificate) else "whether one record was used"
    right = f"right half of the time by chance, and at most {bound} of the time with everything that was released"
    return f"An attacker who knows all other records and has to guess {asked} is {right}."


def in_full(certificate: Certificate) -> str:
    """Return the guarantee in technical terms."""
    part = "this part of the purse" if certificate.part_of else "this purse"
    epsilon, delta = rounded_up(certificate.epsilon, 9), rounded_up(certificate.delta, 9)
    private = f"({epsilon}, {delta})-differentially private under the relation {certificate.neighbouring}"
    return f"Everything released through {part} together is {private}."


def sentence(text: str) -> str:
    """Capitalize the first letter."""
    return text[:1].upper() + text[1:]


def course(values: Sequence[float]) -> str:
    """Describe a series: even, falling, rising, or between bounds.

    >>> course([30.0, 30.0]), course([4.0, 2.0]), course([1.0, 3.0, 2.0])
    ('is even: 30', 'falls from 4 to 2', 'moves between 1 and 3, and ends at 2')
    """
    seen = [float(f"{value:.4g}") for value in values]
    first, last, low, high = map(grouped, (seen[0], seen[-1], min(seen), max(seen)))
    if min(seen) == max(seen):
        return f"is even: {first}"
    steps = [after - before for before, after in itertools.pairwise(seen)]
    if all(step <= 0 for step in steps):
        return f"falls from {first} to {last}"
    if all(step >= 0 for step in steps):
        return f"rises from {first} to {last}"
    return f"moves between {low} and {high}, and ends at {last}"


def moment(iso: str) -> str:
    """Format an ISO time as a date and a minute.

    >>> moment("2026-03-05T17:44:06.9+00:00")
    '5 March 2026, 17:44 UTC'
    """
    try:
        when = datetime.datetime.fromisoformat(iso)
    except ValueError:
        return iso
    zone = " UTC" if when.utcoffset() == datetime.timedelta(0) else when.strftime(" %z").rstrip()
    return f"{when.day} {when:%B %Y, %H:%M}{zone}"


def _is_share(metric: str) -> bool:
    """Whether a metric is a share, better if larger."""
    return any(word in metric.lower() for word in SHARES) and "error" not in metric.lower()


def measured(metric: str, value: float) -> str:
    """Format a value of a metric."""
    return percent(value) if _is_share(metric) and 0 <= value <= 1 else grouped(value)


def covered_by(measurement: Measurement) -> tuple[str, str]:
    """Return how a measurement is covered, and its style."""
    if measurement.simulated:
        return "simulated: NOT private", "alarm"
    if measurement.paid:
        cost = f", epsilon {rounded_up(measurement.epsilon)}" if measurement.epsilon is not None else ""
        if measurement.share is not None:  # shares add up, epsilons do not
            cost = f", {percent(measurement.share, 0)} of it"
        payer = f"the budget of {measurement.payer}" if measurement.payer else "this budget"
        return f"paid for from {payer}{cost}", "calm"
    if measurement.public:
        return "on public records: costs nothing", "calm"
    return "NOT covered by the guarantee", "alarm"


def comparison(measurement: Measurement, other: str, value: float) -> str:
    """Compare a measurement with a baseline, which is noisy too where it has an interval."""
    metric, low, high = measurement.metric, measurement.low, measurement.high
    than = f"{other}: {measured(metric, value)}"
    for one in measurement.estimated(other):
        than += f" ({between(metric, one.low, one.high)})"
        lead = measurement.estimated("lead", other)
        if lead and lead[0].low <= 0 <= lead[0].high:
            return f"{than}. The difference may be zero: {points(lead[0])}"
        if lead:
            return f"{than}. The model is {'better' if lead[0].value > 0 else 'WORSE'} by {points(lead[0])}"
        if low is not None and high is not None and low <= one.high and one.low <= high:
            return f"{than}. The intervals overlap, so this shows no clear difference"
        return than
    if low is not None and high is not None and low <= value <= high:
        return f"{than}. The interval includes that, so this shows no difference"
    if _is_share(metric):
        difference = 100 * (measurement.value - value)
        return f"{than}, which is {abs(difference):.1f} points {'lower' if difference >= 0 else 'HIGHER'}"
    return than


def between(metric: str, low: float, high: float) -> str:
    """Format an interval of a metric."""
    return f"{measured(metric, low)} to {measured(metric, high)}"


def points(lead: Estimate) -> str:
    """Format a difference of shares and its interval."""
    low, value, high = (100 * one for one in (lead.low, lead.value, lead.high))
    if value < 0 and high < 0:
        low, value, high = -high, -value, -low
    return f"{value:.1f} points ({low:.1f} to {high:.1f})"


def estimate(one: Estimate) -> str:
    """Format an estimate and its interval."""
    if one.says_little:
        return "too few records, or too noisy, to say"
    if one.kind in ("AUC", "R2"):
        return f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f})"
    return f"{percent(one.value)} ({percent(one.low)} to {percent(one.high)})"
