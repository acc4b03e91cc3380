"""What audits report: one line for each, the same for all kinds, that goes to tables, pages and JSON."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

HOLDS, REFUTED, WEAK, TOO_SMALL, NOT_RUN = "holds", "REFUTED", "weak", "too small", "not run"


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
