"""Audit report as one HTML page without external resources."""

from dataclasses import replace

from privypurse.audit._verdicts import HOLDS, NOT_RUN, REFUTED, TOO_SMALL, Line
from privypurse.core._formats import counted
from privypurse.report._html import code, details, escaped, pairs, paragraph, section, table, whole_page
from privypurse_lab.audits.page import (
    ABOUT_EPSILON,
    CAUGHT,
    HEADS,
    WORDS,
    AuditReport,
    Check,
    confidence_in_words,
    number,
    parts,
    planted_bugs,
    result_in_words,
    row,
    tables_in_words,
)

# The drawings need no script, so help on scripts and keys is omitted.
STYLE = """
.no-script, .screen-only, #keys { display: none; }
.sheet { max-width: 78rem; }
.bars { display: grid; gap: .55rem; margin-top: .8rem; padding: 0; list-style: none; }
.bars li { display: grid; gap: 0 .8rem; align-items: center; font-size: .88rem; }
.bars li { grid-template-columns: minmax(0, 11rem) minmax(0, 1fr) 4.6rem; }
.bars .what { overflow-wrap: anywhere; }
.bars .much { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bars .scale { height: 18px; }
.bars .scale .half { stroke: var(--ink); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.bars .scale .model { fill: var(--second); }
.bars .refuted .gain { fill: var(--alarm); }
.bars .refuted .much, td.bad { color: var(--alarm); font-weight: 600; }
.key { display: inline-block; width: .9em; height: .7em; margin-right: .3em; border-radius: 2px; background: var(--accent); }
.key.model { background: var(--second); }
main section > .scroll { max-height: none; }
main section > .scroll + p { margin-top: .6rem; }
main section > h3 { margin-top: 1.6rem; }
td, tbody th { overflow-wrap: break-word; }
thead th, thead th.n { white-space: normal; }
@media (max-width: 40rem) {
  .bars li { grid-template-columns: minmax(0, 1fr) auto; }
  .bars .scale { grid-column: 1 / -1; grid-row: 2; }
}
@media print { .bars .scale { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def as_html(report: AuditReport, good: Check) -> str:
    """Return the page."""
    made = parts(report)
    main = [_glance(report, good)]
    for part in made:
        inner = [paragraph(part.sentence)]
        if part.key == "sound":
            inner.append(_bars(report))
        for title, heads, rows in part.tables:
            text_columns = 3 if "kind" in heads else len(heads)
            inner += [f"<h3>{escaped(title)}</h3>"] if len(part.tables) > 1 else []
            inner.append(table(title, heads, rows, text_columns))
            inner += [paragraph(part.notes[title])] if title in part.notes else []
        if part.key == "sound":
            bounded = [
                replace(line, subject=report.marked(line.subject))
                for line in report.sound
                if line.confidence == line.confidence
            ]
            every = table("Every bound", HEADS, map(row, bounded), 3)
            inner.append(
                details(f"Every bound, in mu and epsilon: {len(bounded)}", f"{paragraph(ABOUT_EPSILON)}{every}")
            )
        main.append(section(part.key, part.title, "".join(inner)))
    again = code(report.command, copy="the command") + pairs(report.about()[1:])
    main.append(section("again", "Made with", again))
    return whole_page(
        title="Audit of privypurse",
        header=_header(report, good),
        links=[*((part.key, part.title) for part in made), ("again", "Made with")],
        main=main,
        figures=[],
        closing="A lower bound shows what an attack achieved, and no more. It does not prove the claim.",
    )


def _header(report: AuditReport, good: Check) -> str:
    passed = all(map(good, report.lines))
    badge = ("calm", "AS EXPECTED") if passed else ("alarm", "NOT AS EXPECTED")
    about = dict(report.about())
    quick = " quick look," if report.quick else ""
    return (
        f"<header><style>{STYLE}</style>"
        f'<p class="eyebrow"><span class="badge {badge[0]}">{badge[1]}</span><b>{escaped(about["library"].split(",")[0])}</b>'
        f"<span>{quick} {escaped(report.date)}, seed {report.seed}, {'secure' if report.secure else 'plain'} noise</span></p>"
        "<h1>Audit: attacks on the training code</h1>"
        f'<div class="promise{"" if passed else " alarm"}"><div class="said">'
        f'<p class="guarantee">{escaped(result_in_words(report, good))}</p>'
        f"{''.join(paragraph(words) for words in WORDS)}{paragraph(tables_in_words(), 'exact')}"
        f"{paragraph(confidence_in_words(report.lines), 'exact')}</div></div>"
        f"{_wrong(report, good)}</header>"
    )


def _wrong(report: AuditReport, good: Check) -> str:
    """List the lines that did not end as expected."""
    bad = [line for line in report.lines if not good(line)]
    said = (f"<li>{escaped(line.subject)}, {escaped(line.audit)}: {escaped(_trouble(line))}</li>" for line in bad)
    return f'<div class="warning"><strong>Not as expected:</strong><ul>{"".join(said)}</ul></div>' if bad else ""


def _trouble(line: Line) -> str:
    from privypurse_lab.audits.page import evidence

    if line.verdict == HOLDS:
        return "should have been refuted, and was not"
    found = evidence(line)
    if line.verdict == TOO_SMALL:  # its evidence names the number of runs needed
        return f"{line.verdict}: {found}"
    return (
        f"refuted: {found}" if line.verdict == REFUTED else f"{line.verdict}: {found}; run more, or look at the attack"
    )


def _glance(report: AuditReport, good: Check) -> str:
    """Return cards with counts."""
    sound = [line for line in report.sound if line.verdict != NOT_RUN]
    white = [line for line in sound if line.audit == "white box" and line.claimed_mu > 0]
    exact = sum(line.verdict != NOT_RUN for line in report.of_kinds("mechanism"))
    more = f"; besides, single mechanisms in {exact}" if exact else ""
    counts = [
        (
            "Subjects",
            str(len({line.subject for line in sound})),
            f"claimed to be private, in {counted(len(sound), 'audit')}{more}",
        ),
        (
            "Runs of training",
            f"{sum(line.trials for line in white):,}",
            "in the white box, each run again on the other table",
        ),
    ]
    bugs, published = planted_bugs(report.lines), report.of_kinds("as published")
    if bugs:
        caught = sum(verdict == CAUGHT for _, verdict in bugs)
        counts.append(("Planted bugs", f"{caught} of {len(bugs)}", "caught, by audits that are silent without them"))
    if published:
        counts.append(("As published", f"{sum(map(good, published))} of {len(published)}", "refuted"))
    if white:
        best = max(line.shown_mu / line.claimed_mu for line in white)
        counts.append(
            (
                "Largest share shown",
                f"{100 * best:.0f} %",
                "of a claimed mu, by the white box; above 100 % it is refuted",
            )
        )
    cards = "".join(
        f'<li><h3>{escaped(title)}</h3><p class="value">{escaped(value)}</p><p>{escaped(note)}</p></li>'
        for title, value, note in counts
        if value != "0"
    )
    return f'<ul class="cards">{cards}</ul>' if cards else ""


def _bars(report: AuditReport) -> str:
    """Draw the share of each claimed mu that was shown, by subject."""
    lines = [replace(line, subject=report.marked(line.subject)) for line in report.sound]
    white = [line for line in lines if line.audit == "white box" and line.verdict != NOT_RUN]
    black = {(line.subject, line.claimed_mu): line for line in lines if line.audit == "black box"}
    figures = []
    for mu in sorted({line.claimed_mu for line in white}):
        own = [line for line in white if line.claimed_mu == mu]
        rows = "".join(_bar(line, black.get((line.subject, mu))) for line in own)
        first = own[0]
        caption = (
            f"From nothing to the claim of mu {mu:g} (epsilon {first.claimed_epsilon:.3g} at delta {first.delta:g}): the lower "
            f"bound, at {100 * first.confidence:g} % confidence. A full bar refutes the claim; the mark is half of it."
        )
        keys = '<span class="key"></span>white box <span class="key model"></span>black box. '
        figures.append(
            f'<figure><h3>Shown of a claimed mu of {mu:g}</h3><ul class="bars">{rows}</ul>'
            f"<figcaption>{keys}{escaped(caption)}</figcaption></figure>"
        )
    return f'<div class="plots">{"".join(figures)}</div>' if figures else ""


def _bar(line: Line, black: Line | None) -> str:
    share = 100 * line.shown_mu / line.claimed_mu
    models = 0.0 if black is None else 100 * black.shown_mu / black.claimed_mu
    seen = f"; from final models {number(black.shown_mu)}" if black is not None else ""
    model = f'<rect class="model" x="0" y="11" width="{min(models, 100.0):.2f}" height="4"/>' if models > 0 else ""
    return (
        f'<li{" class=refuted" if line.verdict == REFUTED else ""}><span class="what">{escaped(line.subject)}</span>'
        f'<svg class="scale" viewBox="0 0 100 18" preserveAspectRatio="none" role="img" focusable="false" '
        f'aria-label="{escaped(f"{line.subject}: mu at least {number(line.shown_mu)} of {line.claimed_mu:g}{seen}")}">'
        # The mark lies behind the bars and extends above and below them.
        '<rect class="track" x="0" y="3" width="100" height="12"/><line class="half" x1="50" x2="50" y1="0" y2="18"/>'
        f'<rect class="gain" x="0" y="3" width="{min(max(share, 0.4), 100.0):.2f}" height="8"/>{model}</svg>'
        f'<span class="much">{number(line.shown_mu)} of {line.claimed_mu:g}</span></li>'
    )
