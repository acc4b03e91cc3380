"""Audit reports as JSON, Markdown and one HTML file."""

import datetime
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from scipy import special

from privypurse.audit._verdicts import HOLDS, NOT_RUN, REFUTED, TOO_SMALL, Line
from privypurse.audit.subjects import COLUMNS, DELTA, RECORDS
from privypurse.core._errors import FileUnusable
from privypurse.core._version import __version__

Row = tuple[str, ...]
# Whether an audit ended as expected.
Check = Callable[[Line], bool]

# The verdict is the second column, visible on narrow screens.
HEADS = (
    *("subject", "verdict", "audit", "claimed mu", "shown mu", "at most"),
    *("claimed epsilon", "shown epsilon", "trials"),
)
CAUGHT, MISSED, ALSO_WITHOUT = "caught, silent without it", "MISSED", "caught, but also found without it"
NOT_COMPARED = "caught, but not known to be silent without it"
WHITE_BOX = "White box: lower bounds on mu from all releases"
PLAIN_MARK = " (plain noise)"
WORDS = (
    "An audit attacks the real training code. It runs the code many times on synthetic tables that differ in one record, and "
    "measures how well they can be told apart. The result is a lower bound: with the stated confidence, the privacy loss is at "
    "least that. A bound above the claim refutes the claim. A bound below it does not prove the claim.",
    "A low bound means little if the attack is weak. So attacks that see everything must show at least half of the claimed "
    'mu where one record can use up what it is charged for, or their verdict is "weak"; and every planted bug has to be caught. '
    'An attack whose bound could not have passed the claim with so many runs, even if it had always been right, is "too small" '
    'and says nothing; "at most" is the largest bound it could have shown.',
)

ABOUT_SOUND = (
    "Every bound must stay below its claim. Where the white box shows little, no one record can use up what it is charged "
    "for, as where survivors are selected from many models, or the likelihood of what is released is not known, as for objective "
    "perturbation: a low bound means less there."
)
ABOUT_EPSILON = (
    "The lower bound on epsilon is had from the error rates at delta in the white and the black box, where it may be far below "
    "what the bound on mu comes to; in one run it is converted from the bound on mu."
)


def runs_needed(mu: float, audit: str, confidence: float = 0.95) -> int:
    """Return the fewest runs with which an attack without errors refutes a claim of mu.

    A black box uses half of the runs to choose its threshold.

    Examples
    --------
    >>> [runs_needed(mu, "white box") for mu in (1, 2, 3, 4)]
    [20, 44, 108, 322]
    >>> runs_needed(4, "black box")
    644
    """
    # Without errors in n runs on a table, Clopper and Pearson's upper end is 1 - s ** (1 / n), with
    # s half of the significance; two such rates refute mu where they are below Phi(-mu / 2).
    rate = float(special.ndtr(-mu / 2))
    of_each_table = math.floor(math.log((1 - confidence) / 2) / math.log1p(-rate)) + 1
    return of_each_table * (4 if audit == "black box" else 2)


def too_small_in_words(lines: Sequence[Line]) -> str:
    """Say how many runs would suffice for lines that are "too small"; empty if there are none."""
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
    """Name the subjects whose white box may show less than half of mu; empty if there are none."""
    if not names:
        return ""
    return (
        f"Not asked to show half of mu, as no one record is sure to use up what it is charged for: {', '.join(names)}. "
        'There "holds" says only that no more than the claim was shown.'
    )


def tables_in_words() -> str:
    """Describe the tables of the audits."""
    return (
        f"All tables are synthetic. Methods are run on {RECORDS} records of {COLUMNS} columns, with and without a canary: a "
        "record that contradicts all others, so that its gradient has the full length at every step. No real data is used."
    )


def confidence_in_words(lines: Sequence[Line]) -> str:
    """Describe the confidence of the bounds, single and joint."""
    bounds = [line for line in lines if math.isfinite(line.confidence) and line.confidence < 1]
    levels = sorted({line.confidence for line in bounds})
    if not bounds:
        return "These audits are exact computations."
    return (
        f"Each bound holds with a confidence of {' or '.join(f'{100 * level:g} %' for level in levels)}, by itself. Of all "
        f"audits here, those of planted bugs and of what is not private included, {len(bounds)} give such a bound: even if "
        "nothing is wrong, one among many may pass its claim by chance. Repeat it with another --seed. The others compare "
        "runs or noise and give no bound, or enumerate or integrate and are exact."
    )


@dataclass(frozen=True)
class AuditReport:
    """Content of the pages.

    Parameters
    ----------
    lines : tuple of Line
        Results.
    command : str
        Command that repeats the audit.
    seed : int
        First seed.
    quick, secure : bool
        Whether it was a quick audit; whether noise was exact.
    source : str
        Digest of the library's sources.
    mus, runs
        Budgets that were attacked, and runs at each.
    date : str
        Date; today by default.
    floating : tuple of str
        Subjects that cannot use exact noise, whatever `secure` says.
    waived : tuple of str
        Subjects whose white box need not show half of mu.
    """

    lines: tuple[Line, ...]
    command: str
    seed: int
    quick: bool
    secure: bool
    source: str
    mus: tuple[float, ...]
    runs: tuple[int, ...]
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    floating: tuple[str, ...] = ()
    waived: tuple[str, ...] = ()

    def of_kinds(self, *kinds: str) -> list[Line]:
        """Return the lines of some kinds, except those on rounding."""
        return [line for line in self.lines if line.kind in kinds and line.audit != "rounding"]

    @property
    def sound(self) -> list[Line]:
        """Lines of subjects that claim to be private."""
        return [
            line
            for line in self.lines
            if line.kind not in ("mutant", "without the bug", "as published", "mechanism") and line.audit != "rounding"
        ]

    @property
    def rounding(self) -> list[Line]:
        """Lines of attacks on the last digits."""
        return [line for line in self.lines if line.audit == "rounding"]

    def about(self) -> list[tuple[str, str]]:
        """Describe how the audit was made."""
        said = [
            ("command", self.command),
            ("date", self.date),
            ("library", f"privypurse {__version__}, sources with SHA-256 {self.source[:16]}"),
            ("seed", f"{self.seed}; the audit of noise takes real entropy"),
            ("noise", self._noise_in_words()),
        ]
        runs = self._runs_in_words()
        return [*said, ("runs", f"of each subject, {runs}; delta {DELTA:g}")] if runs else said

    def _runs_in_words(self) -> str:
        attacked = [line for line in self.sound if line.audit == "white box" and line.trials]
        at: dict[str, list[str]] = {}
        for mu in sorted({line.claimed_mu for line in attacked}):
            numbers = sorted({line.trials for line in attacked if line.claimed_mu == mu})
            said = f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}, by its kind,"
            at.setdefault(said, []).append(f"{mu:g}")
        return _listed([f"{said} at mu {_listed(mus)}" for said, mus in at.items()])

    def _noise_in_words(self) -> str:
        if not self.secure:
            return "plain: floating point"
        but = f"; but plain, in floating point, where there is no exact one: {', '.join(self.floating)}"
        return f"secure: exact arithmetic{but if self.floating else ''}"

    def marked(self, subject: str) -> str:
        """Return the name of a subject, marked if its noise differs from the rest."""
        return f"{subject}{PLAIN_MARK}" if subject in self.floating else subject


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def write_pages(report: AuditReport, folder: pathlib.Path, good: Check) -> list[pathlib.Path]:
    """Write ``audit.json``, ``audit.md`` and ``audit.html``."""
    from privypurse_lab.audits.html_page import as_html

    contents = {
        "audit.json": as_json(report, good),
        "audit.md": as_markdown(report, good),
        "audit.html": as_html(report, good),
    }
    try:
        for name, text in contents.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileUnusable(
            f"output {str(folder)!r} cannot be written ({error.strerror}). Pass another folder."
        ) from error
    return [folder / name for name in contents]


def as_json(report: AuditReport, good: Check) -> str:
    """Return the report as JSON."""
    about = {name: getattr(report, name) for name in ("command", "date", "seed", "quick", "source")}
    return json.dumps(
        {
            **about,
            "version": __version__,
            "noise": "secure" if report.secure else "plain",
            "plain_noise_only": list(report.floating),
            "half_not_asked": list(report.waived),
            "mus": list(report.mus),
            "runs": list(report.runs),
            "passed": all(map(good, report.lines)),
            "lines": [line.to_json() for line in report.lines],
        },
        indent=1,
    )


def number(value: float) -> str:
    """Format a bound, rounded down; empty for NaN."""
    if math.isnan(value):
        return ""
    return f"{math.floor(value * 100 + 1e-9) / 100:.2f}" if value < 100 else f"{math.floor(value)}"


def claim(value: float) -> str:
    """Format a claim; empty for NaN."""
    return "" if math.isnan(value) else f"{value:.4g}"


def row(line: Line) -> Row:
    """Return a line as a row under `HEADS`."""
    of_mu = (claim(line.claimed_mu), number(line.shown_mu), number(line.ceiling_mu))
    of_epsilon = (claim(line.claimed_epsilon), number(line.shown_epsilon))
    return (line.subject, line.verdict, line.audit, *of_mu, *of_epsilon, f"{line.trials:,}" if line.trials else "")


def evidence(line: Line) -> str:
    """Describe the findings by the first of them."""
    said = [*line.findings[:1], *([f"and {len(line.findings) - 1} more"] if len(line.findings) > 1 else [])]
    if math.isfinite(line.shown_mu) and line.shown_mu > 0 and math.isfinite(line.claimed_mu):
        said.insert(0, f"mu is at least {number(line.shown_mu)}, claimed {claim(line.claimed_mu)}")
    elif math.isfinite(line.shown_epsilon) and line.shown_epsilon > 0:
        said.insert(0, f"epsilon is at least {number(line.shown_epsilon)}, claimed {claim(line.claimed_epsilon)}")
    if line.verdict == TOO_SMALL and line.audit in ("white box", "black box"):
        needed = runs_needed(line.claimed_mu, line.audit, line.confidence)
        said.append(
            f"of {line.trials:,} runs counted no bound passes {number(line.ceiling_mu)}, so take {needed:,} or more"
        )
    return "; ".join(said) or "nothing"


def pivot(lines: Sequence[Line], audit: str) -> tuple[Row, list[Row]]:
    """Return heads and rows of one audit: subjects by claimed mu."""
    own = [line for line in lines if line.audit == audit]
    mus = sorted({line.claimed_mu for line in own})
    epsilons = {line.claimed_mu: line.claimed_epsilon for line in own}
    rows = []
    for subject in dict.fromkeys(line.subject for line in own):
        found = {line.claimed_mu: line for line in own if line.subject == subject}
        verdicts = list(dict.fromkeys(line.verdict for line in found.values() if line.verdict != HOLDS)) or [HOLDS]
        cells = (_of_at_most(found[mu]) if mu in found else "" for mu in mus)
        rows.append((subject, ", ".join(verdicts), next(iter(found.values())).kind, *cells))
    return ("subject", "verdict", "kind", *(f"mu {mu:g} (epsilon {epsilons[mu]:.3g})" for mu in mus)), rows


def _of_at_most(line: Line) -> str:
    shown, ceiling = number(line.shown_mu), number(line.ceiling_mu)
    return f"{shown} of at most {ceiling}" if ceiling else shown


def compared(lines: Sequence[Line]) -> tuple[Row, list[Row]]:
    """Return heads and rows of audits without a bound: neighbouring runs and noise."""
    rows = []
    for subject in dict.fromkeys(line.subject for line in lines):
        gray, noise = (
            next((line for line in lines if (line.subject, line.audit) == (subject, audit)), None)
            for audit in ("gray box", "noise")
        )
        if gray is not None or noise is not None:
            rows.append((subject, *(_counted(line, what) for line, what in ((gray, "releases"), (noise, "numbers")))))
    return ("subject", "neighbouring runs", "noise"), rows


def _counted(line: Line | None, what: str) -> str:
    if line is None:
        return ""
    if line.verdict == REFUTED:
        return f"REFUTED: {evidence(line)}"
    return f"{line.verdict}: {evidence(line)}" if line.verdict == NOT_RUN else f"{line.verdict}, {line.trials:,} {what}"


def planted_bugs(lines: Sequence[Line]) -> list[tuple[Line, str]]:
    """Return each planted bug with one verdict on the audits with and without it."""
    without = {line.subject: line for line in lines if line.kind == "without the bug"}

    def verdict(line: Line) -> str:
        if line.verdict != REFUTED:
            return MISSED
        control = without[line.subject].verdict if line.subject in without else NOT_RUN
        return {HOLDS: CAUGHT, REFUTED: ALSO_WITHOUT}.get(control, NOT_COMPARED)

    return [(line, verdict(line)) for line in lines if line.kind == "mutant"]


def caught(lines: Sequence[Line]) -> tuple[Row, list[Row]]:
    """Return heads and rows of a table of planted bugs."""
    from privypurse_lab.audits.cells import found

    bugs: dict[str, str] = {name: mutant.bug for name, mutant in found("mutants", "MUTANTS").items()}
    rows: list[Row] = [
        (line.subject, verdict, bugs.get(line.subject, ""), line.audit, evidence(line))
        for line, verdict in planted_bugs(lines)
    ]
    return ("planted bug", "verdict", "what is wrong", "audit", "what it found"), rows


def refuted(lines: Sequence[Line]) -> tuple[Row, list[Row]]:
    """Return heads and rows of what is not private, or of attacks that succeed or fail."""
    return ("subject", "verdict", "audit", "what it found"), [
        (line.subject, line.verdict, line.audit, evidence(line)) for line in lines
    ]


@dataclass(frozen=True)
class Part:
    """Section of the pages: key, title, sentence, named tables, and notes by table name."""

    key: str
    title: str
    sentence: str
    tables: tuple[tuple[str, Row, list[Row]], ...]
    notes: Mapping[str, str] = field(default_factory=dict)


def parts(report: AuditReport) -> list[Part]:
    """Return the sections that are not empty."""
    sound = [replace(line, subject=report.marked(line.subject)) for line in report.sound]
    guesses = max((line.trials for line in sound if line.audit == "one run"), default=0)
    bounds = [
        (title, *pivot(sound, audit))
        for title, audit in (
            (WHITE_BOX, "white box"),
            ("Black box: lower bounds on mu by who sees final models only", "black box"),
            (f"One run: lower bounds on mu from {guesses:,} guesses about one run with many canaries", "one run"),
        )
    ]
    bounds.append(
        ("Gray box and noise: same answers on neighbouring tables; noise as it was paid for", *compared(sound))
    )
    left_out = [line for line in report.sound if line.audit == NOT_RUN]
    if left_out:
        bounds.append(("Not run", ("subject", "why"), [(line.subject, "; ".join(line.findings)) for line in left_out]))
    below = " ".join(filter(None, (waived_in_words(report.waived), too_small_in_words(sound))))
    exact = report.of_kinds("mechanism")
    published = report.of_kinds("as published")
    made = [
        Part("sound", "What is claimed to be private", ABOUT_SOUND, tuple(bounds), {WHITE_BOX: below} if below else {}),
        Part(
            "exact",
            "Enumerated and integrated",
            "Enumerated and integrated: the exact epsilon over hostile cases, at the claimed delta. Frequencies: what real draws "
            "of selections show, and whether they have the law that was enumerated. In brackets: the number of candidates; the "
            "noise multiplier of the perturbation and a record's curvature relative to the ridge.",
            (
                (
                    "Exact",
                    ("subject", "verdict", "audit", "claimed epsilon", "shown epsilon", "delta"),
                    [
                        (
                            line.subject,
                            line.verdict,
                            line.audit,
                            claim(line.claimed_epsilon),
                            f"{line.shown_epsilon:.3f}",
                            f"{line.delta:.2g}",
                        )
                        for line in exact
                    ],
                ),
            ),
        ),
        Part(
            "mutants",
            "Planted bugs",
            "Each is planted into the library, and the audit named beside it has to catch it, and to be silent without it.",
            (("Planted bugs", *caught(report.lines)),) if report.of_kinds("mutant") else (),
        ),
        Part(
            "published",
            "As published",
            "Two methods, as their authors published them, must be refuted: a lower bound above their claim.",
            (("As published", *refuted(published)),),
        ),
        Part(
            "rounding",
            "The last digits",
            "Attacks on the gaps between floating-point numbers: they must succeed on naive noise and fail on exact noise. The "
            'plain Gaussian noise is this library\'s own, with noise="plain"; the Gumbel noise in single precision is that of a '
            "straightforward program, which this library does not contain. The exact noise is this library's.",
            (("The last digits", *refuted(report.rounding)),),
        ),
    ]
    filled = (replace(one, tables=tuple(each for each in one.tables if each[2])) for one in made)
    return [one for one in filled if one.tables]


def as_markdown(report: AuditReport, good: Check) -> str:
    """Return the page for the documentation."""
    made = ["# Audit", *WORDS, tables_in_words(), confidence_in_words(report.lines), result_in_words(report, good)]
    for part in parts(report):
        made += [f"## {part.title}", part.sentence]
        for title, heads, rows in part.tables:
            made += (
                [f"{title}:", _markdown_table(heads, rows)] if len(part.tables) > 1 else [_markdown_table(heads, rows)]
            )
            made += [part.notes[title]] if title in part.notes else []
    made += ["## Made with", _markdown_table(("", ""), [(name, f"`{said}`") for name, said in report.about()])]
    return "\n\n".join(made) + "\n"


def result_in_words(report: AuditReport, good: Check) -> str:
    """Summarise the result in one sentence."""
    said = []
    ran = [line for line in (*report.sound, *report.of_kinds("mechanism")) if line.verdict != NOT_RUN]
    telling = [line for line in ran if line.verdict != TOO_SMALL]
    if telling:
        hold = sum(line.verdict == HOLDS for line in telling)
        exact = sum(line.kind == "mechanism" for line in telling)
        apart = f" ({len(telling) - exact} are of whole subjects, {exact} of single mechanisms)" if exact else ""
        said.append(f"{hold} of {len(telling)} audits of what is claimed to be private hold{apart}")
    if small := len(ran) - len(telling):
        said.append(f"{small} {'more ' if telling else ''}{'was' if small == 1 else 'were'} too small to say anything")
    bugs, published = planted_bugs(report.lines), report.of_kinds("as published")
    if bugs:
        said.append(f"{sum(verdict == CAUGHT for _, verdict in bugs)} of {len(bugs)} planted bugs are caught")
    if published:
        said.append(f"{sum(map(good, published))} of {len(published)} unsound publications are refuted")
    if report.rounding:
        said.append(
            f"{sum(map(good, report.rounding))} of {len(report.rounding)} attacks on last digits end as expected"
        )
    return f"Result: {'; '.join(said)}." if said else "Nothing was run."


def _markdown_table(heads: Row, rows: Sequence[Row]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
