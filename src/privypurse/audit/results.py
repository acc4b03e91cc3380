"""What audits report: one line for each, the same for all kinds, that goes to tables, pages and JSON."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from scipy import special

HOLDS, REFUTED, WEAK, TOO_SMALL, NOT_RUN = "holds", "REFUTED", "weak", "too small", "not run"
ABOUT_EPSILON = (
    "The lower bound on epsilon is had from the error rates at delta in the white and the black box, where it may be far below "
    "what the bound on mu comes to; in one run it is converted from the bound on mu."
)


@dataclass(frozen=True)
class Line:
    """One audit of one subject.

    Parameters
    ----------
    subject, kind : str
        What was audited: its name, and "method", "baseline", "estimator", "preprocessing", "pytorch", "mutant" or "as published".
    audit : str
        How: "white box", "one run", "black box", "gray box", "noise", "frequencies", "enumeration", "integration", "frequencies",
        "rounding".
    claimed_mu, claimed_epsilon : float
        What is claimed; NaN where the claim is of another kind.
    shown_mu, shown_epsilon : float
        Lower bounds; NaN where the audit gives none.
    ceiling_mu : float
        The lower bound that the audit would have shown if it had always been right: the most it can say with so many trials. NaN
        where there is no such limit.
    delta, confidence : float
        Of the bounds.
    trials : int
        How many runs, guesses or cases.
    verdict : str
        "holds"; "REFUTED"; "weak" for an attack that should have shown more, so that its silence proves little; "too small" for
        one that could not have refuted the claim with so many trials, whatever happened; "not run".
    findings : tuple of str
        What is wrong, in words.
    """

    subject: str
    kind: str
    audit: str
    claimed_mu: float = math.nan
    claimed_epsilon: float = math.nan
    shown_mu: float = math.nan
    shown_epsilon: float = math.nan
    ceiling_mu: float = math.nan
    delta: float = math.nan
    confidence: float = math.nan
    trials: int = 0
    verdict: str = HOLDS
    findings: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Describe the line with plain JSON types; numbers that there are none of are left out."""
        fields = asdict(self)
        kept = {name: value for name, value in fields.items() if not (isinstance(value, float) and math.isnan(value))}
        return {**kept, "findings": list(self.findings)}

    @classmethod
    def from_json(cls, described: dict[str, Any]) -> "Line":
        """Rebuild a line."""
        return cls(**{**described, "findings": tuple(described.get("findings", ()))})


def runs_needed(mu: float, audit: str, confidence: float = 0.95) -> int:
    """Return the fewest runs with which an attack that is always right would refute a mu; with fewer it is "too small".

    Parameters
    ----------
    mu : float
        The claim.
    audit : str
        "white box"; or "black box", which spends one half of the runs on its threshold.
    confidence : float
        Of the bound.

    Examples
    --------
    >>> [runs_needed(mu, "white box") for mu in (1, 2, 3, 4)]
    [20, 44, 108, 322]
    >>> runs_needed(4, "black box")
    644
    """
    # Without an error in n runs on a table, Clopper and Pearson's upper end is 1 - s ** (1 / n), where s is one half of the
    # significance; two such rates refute mu where they are below Phi(-mu / 2).
    rate = float(special.ndtr(-mu / 2))
    of_each_table = math.floor(math.log((1 - confidence) / 2) / math.log1p(-rate)) + 1
    return of_each_table * (4 if audit == "black box" else 2)


def too_small_in_words(lines: Sequence[Line]) -> str:
    """Say how many runs would have sufficed where there were too few; nothing where there were enough."""
    few = {
        (line.claimed_mu, line.audit): runs_needed(line.claimed_mu, line.audit, line.confidence)
        for line in lines
        if line.verdict == TOO_SMALL and line.audit in ("white box", "black box")
    }
    if not few:
        return ""
    said = (f"{needed:,} runs in the {audit} at mu {mu:g}" for (mu, audit), needed in sorted(few.items()))
    return f'Where it says "too small", an attack that is always right would need at least {", ".join(said)}.'


def waived_in_words(names: Sequence[str]) -> str:
    """Name the subjects whose white box may show less than half of mu; nothing where there are none."""
    if not names:
        return ""
    return (
        f"Not asked to show half of mu, as no one record is sure to use up what it is charged for: {', '.join(names)}. "
        'There "holds" says only that no more than the claim was shown.'
    )
