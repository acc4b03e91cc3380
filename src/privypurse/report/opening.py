"""The top of a report: status, guarantee, what an attacker can gain, and key numbers."""

import math

from privypurse.report import words
from privypurse.report.content import Measurement, ReportContent
from privypurse.report.html import escaped, paragraph
from privypurse.report.words import covered_by, measured


def header(content: ReportContent) -> str:
    """Write the title, the badge and the guarantee."""
    certificate = content.certificate
    badge, style = words.status(certificate, content.schema_declared)
    parts = [
        f'<p class="eyebrow"><span class="badge {style}">{escaped(badge)}</span>'
        f"<span>Privacy report of data set <b>{escaped(certificate.dataset)}</b></span></p>",
        f"<h1>{escaped(content.title)}</h1>",
        paragraph(content.task, "task") if content.task else "",
        f'<div class="promise {style}"><div class="said"><h2 class="unseen">The guarantee</h2>',
        f'<p class="guarantee" id="guarantee">{escaped(words.guarantee(certificate))}</p>',
    ]
    if words.bounded(certificate):
        parts += [
            paragraph(words.strength(certificate), "weak" if certificate.epsilon > words.WEAK_EPSILON else ""),
            paragraph(words.in_full(certificate), "exact"),
            "</div>",
            _guess_scale(content),
        ]
    elif certificate.simulation and math.isfinite(certificate.epsilon):
        epsilon, delta = words.number(certificate.epsilon), words.number(certificate.delta)
        parts.append(
            paragraph(f"With secret noise the same run would be ({epsilon}, {delta})-differentially private.")
            + "</div>"
        )
    else:
        parts.append("</div>")
    parts.append("</div>")
    return "<header>" + "".join(parts) + _warnings(content) + "</header>"


def _guess_scale(content: ReportContent) -> str:
    """Draw the bound on right guesses on a scale from a coin toss to certainty."""
    certificate = content.certificate
    bound = words.right_guesses(certificate.epsilon, certificate.delta)
    reach = 100 * (bound - 0.5) / 0.5
    # Keep the label inside the scale.
    place = min(max(reach, 18.0), 80.0)
    most = escaped(words.percent_up(bound))
    return (
        '<div class="guess"><h3>What an attacker can gain</h3>'
        f"{paragraph(words.guesser(certificate))}"
        f'<p class="at" aria-hidden="true" style="margin-left:{place:.1f}%"><span>at most {most}</span></p>'
        f"{_scale(reach)}"
        '<p class="ends" aria-hidden="true"><span>50 %<br>a coin</span><span>100 %<br>certain</span></p></div>'
    )


def _scale(reach: float) -> str:
    """Draw a bar filled to `reach` percent. The text beside it says the same."""
    return (
        '<svg class="scale" viewBox="0 0 100 5" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        '<rect class="track" x="0" y="0" width="100" height="5"/>'
        f'<rect class="gain" x="0" y="0" width="{min(max(reach, 0.4), 100.0):.2f}" height="5"/></svg>'
    )


def _warnings(content: ReportContent) -> str:
    warnings = []
    if not content.schema_declared:
        warnings.append(
            "The description of the columns was not declared public. Names, ranges or categories may have been read from the "
            "records, and then the guarantee does not cover what they reveal."
        )
    uncovered = [one for one in content.measurements if not one.paid and not one.public]
    if uncovered:
        names = ", ".join(dict.fromkeys(one.metric for one in uncovered))
        warnings.append(
            f"Measured exactly, on records that were not declared public: {names}. These numbers are not covered."
        )
    alarms = "".join(
        f'<p class="warning" role="note"><strong>Careful.</strong> {escaped(text)}</p>' for text in warnings
    )
    if not content.certificate.part_of:
        return alarms
    part = (
        f"This report covers one run on the data set. It is a part of {content.certificate.part_of}, whose certificate covers "
        "everything."
    )
    return f'{alarms}<p class="note" role="note">{escaped(part)}</p>'


def glance(content: ReportContent) -> str:
    """Write the cards."""
    certificate, trace = content.certificate, content.trace
    cards = [_epsilon_card(content)]
    if words.bounded(certificate):
        slip = f"{words.sentence(words.chance(certificate.delta))}: the chance that the factor above leaves out."
        cards.append(_card("Delta", words.number(certificate.delta), [slip]))
    cards.append(_worth_card(content.measurements))
    steps = f"{len(trace.steps):,}"
    cards.append(_card("Steps", steps, [f"Planned by {content.method}; training {words.stopped(trace)}."]))
    people = ", ".join(certificate.people) or "not recorded"
    issued = f"Issued by {certificate.issued_by}. Spent by {people}."
    cards.append(_card("Issued", words.moment(certificate.issued_at), [issued], small=True))
    return f'<h2 class="unseen">At a glance</h2><ul class="cards">{"".join(cards)}</ul>'


def _card(name: str, value: str, notes: list[str], extra: str = "", *, small: bool = False) -> str:
    lines = "".join(f"<p>{escaped(note)}</p>" for note in notes)
    size = "value small" if small or len(value) > 7 else "value"
    return f'<li><h3>{escaped(name)}</h3><p class="{size}">{escaped(value)}</p>{extra}{lines}</li>'


def _epsilon_card(content: ReportContent) -> str:
    certificate = content.certificate
    if not math.isfinite(certificate.epsilon):
        return _card("Epsilon", "no limit", ["Nothing bounds what the released values reveal."])
    spent = min(certificate.recorded_epsilon, certificate.epsilon)
    share = spent / certificate.epsilon if certificate.epsilon > 0 else 0.0
    note = f"spent of a limit of {words.number(certificate.epsilon)} ({words.percent(share, 0)})."
    if not certificate.private:
        note += " It would count if the noise were secret."
    return _card("Epsilon", words.rounded_up(spent), [note], _scale(100 * share))


def _worth_card(measurements: tuple[Measurement, ...]) -> str:
    if not measurements:
        return _card("Quality", "not measured", ["See below how to measure it."], small=True)
    first = next((one for one in measurements if not one.says_little), measurements[0])
    paid, style = covered_by(first)
    if first.says_little:
        return _card(words.sentence(first.metric), "too noisy", ["Too noisy to report at this budget."], small=True)
    notes = []
    if first.low is not None and first.high is not None:
        ends = f"{measured(first.metric, first.low)} to {measured(first.metric, first.high)}"
        notes.append(f"{ends} with 95 % confidence.")
    notes += [f"{words.sentence(other)}: {measured(first.metric, value)}." for other, value in first.compared_with[:1]]
    mark = f'<p class="tag {style}">{escaped(paid)}</p>'
    return _card(words.sentence(first.metric), measured(first.metric, first.value), notes, mark)
