"""Auditing something of your own, in one call, with the verdicts of the command."""

from privypurse.audit.black_box import FEWEST_MODELS
from privypurse.audit.gray_box import checked
from privypurse.audit.lines import black_box_line, gray_box_line, noise_line, white_box_line
from privypurse.audit.results import Line
from privypurse.audit.subjects import Subject
from privypurse.audit.white_box import attack


def audit_subject(
    subject: Subject, *, mu: float = 3.0, runs: int = 400, seed: int = 0, secure: bool = True
) -> tuple[Line, ...]:
    """Audit a subject: compare neighbouring runs, look at its noise, and attack it with all that it releases.

    Parameters
    ----------
    subject : Subject
        What to audit.
    mu : float, default 3.0
        The budget to run it at.
    runs : int, default 400
        Runs of the attack, half of them without the canary; as many comparisons of a run with its replay are made.
    seed : int, default 0
        Of the first run.
    secure : bool, default True
        Whether to draw exact noise.

    Returns
    -------
    tuple of Line
        "gray box", "noise", "white box", and "black box" where the subject has a score for final models. Only "holds" is good:
        "weak" means that the attack shows less than half of `mu`, as it also does where the tables are the same or nothing is
        released; "too small" that so few runs could not have refuted the claim.
    """
    mu = checked(subject, mu)
    scores = attack(subject, mu, runs, seed, secure=secure)
    lines = [
        gray_box_line(subject, mu, pairs=4, seed=seed, secure=secure),
        noise_line(subject, mu, runs=4, secure=secure),
        white_box_line(subject, scores, mu),
    ]
    if min(scores.models_absent.size, scores.models_present.size) >= FEWEST_MODELS:
        lines.append(black_box_line(subject, scores, mu))
    return tuple(lines)
