"""Render a report as one HTML page: status, guarantee and key numbers, then sections with plots."""

import math
import shlex

from privypurse.core._formats import NO_PROTECTION_EPSILON, WEAK_EPSILON, counted, grouped, weakness
from privypurse.core._statement import NOT_STATED, QUESTIONS
from privypurse.purse._certificate import Certificate, why_not_stated
from privypurse.report import _figures as figures
from privypurse.report import _words as words
from privypurse.report._content import Measurement, ReportContent
from privypurse.report._figures import Figure
from privypurse.report._html import bullets, code, details, escaped, pairs, paragraph, section, table, whole_page
from privypurse.report._words import measured

HOW_TO_MEASURE = (
    "The quality of this model was not measured. Score it on records that were declared public; or set records aside "
    "before training and release a noisy score from the same purse. `privypurse evaluate` does either. An exact score "
    "on private records is not covered by the guarantee."
)
LONGEST_LIST, MOST_CURVES = 12, 24


def render(content: ReportContent) -> str:
    """Return a report as one HTML page, plots included, that forbids network access."""
    links = [("covers", "What it covers"), ("worth", "Quality"), ("spending", "Spending"), ("model", "Model")]
    links += [("ledger", "Data set"), ("before", "Before training"), ("reproduce", "Reproduce"), ("verify", "Verify")]
    with_figures = [_worth(content.measurements), _spending(content), _model(content), _ledger(content)]
    return whole_page(
        title=f"{content.title} - privacy report",
        header=_header(content),
        links=links,
        main=[
            _glance(content),
            _coverage(content),
            *(written for written, _ in with_figures),
            _before(content),
            _reproduce(content),
            _verify(content),
        ],
        figures=[one for _, drawn in with_figures for one in drawn],
        closing="Everything on this page was charged, declared public, or is named as not covered.",
    )


def _header(content: ReportContent) -> str:
    """Write the title, the badge, the guarantee and the warnings."""
    certificate = content.certificate
    status = words.status(certificate, content.schema_declared)
    style = status.style
    said, scale = "", ""
    if words.bounded(certificate):
        said = paragraph(words.strength(certificate), "weak" if certificate.epsilon > WEAK_EPSILON else "")
        said += paragraph(words.in_full(certificate), "exact")
        scale = _guess_scale(certificate)
    elif certificate.simulation and math.isfinite(certificate.epsilon):
        epsilon, delta = grouped(certificate.epsilon), grouped(certificate.delta)
        said = paragraph(f"With secret noise the same run would be ({epsilon}, {delta})-differentially private.")
    return (
        f'<header><p class="eyebrow"><span class="badge {style}">{escaped(status.badge)}</span>'
        f"<span>Privacy report of data set <b>{escaped(certificate.dataset)}</b></span></p>"
        f"<h1>{escaped(content.title)}</h1>{paragraph(content.task, 'task')}"
        f'<div class="promise {style}"><div class="said"><h2 class="unseen">The guarantee</h2>'
        f'<p class="guarantee" id="guarantee">{escaped(words.guarantee(certificate))}</p>'
        f"{said}</div>{scale}</div>{_warnings(content)}</header>"
    )


def _guess_scale(certificate: Certificate) -> str:
    """Draw the bound on right guesses on a scale from a coin toss to certainty."""
    bound = words.right_guesses(certificate.epsilon, certificate.delta)
    reach = 100 * (bound - 0.5) / 0.5
    place = min(max(reach, 18.0), 80.0)  # of the label, inside the scale
    return (
        '<div class="guess"><h3>What an attacker can gain</h3>'
        f"{paragraph(words.guesser(certificate))}"
        f'<p class="at" aria-hidden="true" style="margin-left:{place:.1f}%">'
        f"<span>at most {escaped(words.percent_up(bound))}</span></p>{_scale(reach)}"
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
    notes, careful = "", '<p class="warning" role="note"><strong>Careful.</strong> '
    if not content.schema_declared:
        notes += (
            f"{careful}The description of the columns was not declared public. Names, ranges or categories may have been "
            "read from the records, and then the guarantee does not cover what they reveal.</p>"
        )
    if exact := dict.fromkeys(one.metric for one in content.measurements if not one.paid and not one.public):
        where = f"{careful}Measured exactly, on records that were not declared public"
        notes += f"{where}: {escaped(', '.join(exact))}. These numbers are not covered.</p>"
    if whole := content.certificate.part_of:
        part = f"It is a part of {escaped(whole)}, whose certificate covers everything."
        notes += f'<p class="note" role="note">This report covers one run on the data set. {part}</p>'
    return notes


def _glance(content: ReportContent) -> str:
    """Write the cards."""
    certificate, trace = content.certificate, content.trace
    cards = [_epsilon_card(content)]
    if words.bounded(certificate):
        slip = f"{words.sentence(words.chance(certificate.delta))}: the chance that the factor above leaves out."
        cards.append(_card("Delta", grouped(certificate.delta), slip))
    cards.append(_worth_card(content.measurements))
    ended = words.STOPS.get(trace.stop_reason, f"stopped: {trace.stop_reason or 'reason not recorded'}")
    cards.append(_card("Steps", f"{len(trace.steps):,}", f"Planned by {content.method}; training {ended}."))
    people = ", ".join(certificate.people) or "not recorded"
    issued = f"Issued by {certificate.issued_by}. Spent by {people}."
    cards.append(_card("Issued", words.moment(certificate.issued_at), issued))
    return f'<h2 class="unseen">At a glance</h2><ul class="cards">{"".join(cards)}</ul>'


def _card(name: str, value: str, *notes: str, extra: str = "") -> str:
    size = "value small" if len(value) > 7 else "value"
    lines = "".join(map(paragraph, notes))
    return f'<li><h3>{escaped(name)}</h3><p class="{size}">{escaped(value)}</p>{extra}{lines}</li>'


def _epsilon_card(content: ReportContent) -> str:
    certificate = content.certificate
    if not math.isfinite(certificate.epsilon):
        return _card("Epsilon", "no limit", "Nothing bounds what the released values reveal.")
    spent = min(certificate.recorded_epsilon, certificate.epsilon)
    share = spent / certificate.epsilon if certificate.epsilon > 0 else 0.0
    note = f"spent of a limit of {grouped(certificate.epsilon)} ({words.percent(share, 0)})."
    if not certificate.private:
        note += " It would count if the noise were secret."
    return _card("Epsilon", words.rounded_up(spent), note, extra=_scale(100 * share))


def _worth_card(measurements: tuple[Measurement, ...]) -> str:
    if not measurements:
        return _card("Quality", "not measured", "See below how to measure it.")
    first = next((one for one in measurements if not one.says_little), measurements[0])
    name, (paid, style) = words.sentence(first.metric), words.covered_by(first)
    if first.says_little:
        return _card(name, "too noisy", "Too noisy to report at this budget.")
    notes = []
    if first.low is not None and first.high is not None:
        ends = f"{measured(first.metric, first.low)} to {measured(first.metric, first.high)}"
        notes.append(f"{ends} with 95 % confidence.")
    notes += [f"AUC {words.estimate(one)}." for one in first.estimated("AUC", "") if not one.says_little]
    notes += [f"{words.sentence(other)}: {measured(first.metric, value)}." for other, value in first.compared_with[:1]]
    tag = f'<p class="tag {style}">{escaped(paid)}</p>'
    return _card(name, measured(first.metric, first.value), *notes, extra=tag)


def figure(drawn: Figure) -> str:
    """Write a figure: its plot, caption and numbers."""
    caption = escaped(drawn.drawings[0].caption)
    chooser = ""
    if drawn.chooser:
        labels = enumerate(escaped(one.label) for one in drawn.drawings)
        options = "".join(f'<option value="{place}">{label}</option>' for place, label in labels)
        select = f'<select data-choose="{drawn.key}" autocomplete="off">{options}</select>'
        chooser = f'<label class="chooser needs-script">{escaped(drawn.chooser)} {select}</label>'
    note = paragraph(drawn.note, "note") if drawn.note else ""
    numbers = table(f"{drawn.title}: numbers", drawn.heads, drawn.rows, drawn.text_columns)
    return (
        f'<figure id="{drawn.key}-figure"><h3>{escaped(drawn.title)}</h3>{chooser}'
        f'<p class="live" aria-live="polite" id="{drawn.key}-live"></p>'
        f'<div class="plot" id="{drawn.key}" data-height="{drawn.height}" style="min-height:{drawn.height}px" tabindex="0" '
        f'role="img" aria-label="{escaped(drawn.title)}. {caption}" aria-describedby="keys"></div>'
        f'<figcaption id="{drawn.key}-caption">{caption}</figcaption>'
        f"{details(f'{drawn.title} as a table', note + numbers)}</figure>"
    )


def _coverage(content: ReportContent) -> str:
    """List what the guarantee covers and what it does not."""
    certificate = content.certificate
    protects = words.bounded(certificate) and certificate.epsilon <= NO_PROTECTION_EPSILON
    nothing = weakness(certificate.epsilon) if words.bounded(certificate) else "there is no guarantee"
    covered = paragraph(f"Nothing: {nothing}.", "alarm-text")
    if protects:
        part = "this part of the purse" if certificate.part_of else f"the purse of data set {certificate.dataset}"
        values = "The one value" if certificate.releases == 1 else f"All {certificate.releases:,} values"
        items = [
            f"{values} that left through {part}, together, and whatever is computed from them: "
            "the model, and its predictions for records that others supply.",
            "Any attacker, with any other knowledge and any amount of computing, now and later.",
            *(f"Under {name}: {_relation(content, name)}" for name in certificate.relations),
        ]
        if certificate.unreleased:
            items.append(f"{counted(certificate.unreleased, 'more value')} charged and not known to be released.")
        covered = bullets(items)
    uncovered = bullets(words.sentence(item) for item in certificate.uncovered)
    heads = ("what for", "kind", "how many", "noise multiplier or epsilon", "sensitivity", "noise")
    rows = []
    for group in certificate.groups:
        pairs = (
            (group.smallest, group.largest),
            (group.least_sensitivity, group.largest_sensitivity),
            (group.least_noise_std, group.largest_noise_std),
        )
        ranges = (" to ".join(dict.fromkeys(grouped(end) for end in pair if end is not None)) for pair in pairs)
        rows.append((words.PURPOSES.get(group.what, group.what), group.kind, f"{group.count:,}", *ranges))
    groups = table("Released values", heads, rows, text_columns=2)
    inner = (
        f'<div class="two"><div><h3>It covers</h3>{covered}</div>'
        f'<div class="not"><h3>It does not cover</h3>{uncovered}</div></div>'
        f"{details('Everything that was released, counted', groups)}{_stated(certificate)}"
    )
    return section("covers", "What the guarantee covers", inner)


def _stated(certificate: Certificate) -> str:
    """List what people stated, if anything, with what they left out."""
    if not certificate.statement:
        return ""
    rows = [(words.sentence(asked), certificate.statement.get(key, NOT_STATED)) for key, asked in QUESTIONS.items()]
    listed = table("Stated by people, and not checked", ("question", "answer"), rows, text_columns=2)
    return details("What people stated of the data and its use", listed)


def _relation(content: ReportContent, name: str) -> str:
    under, reason = content.certificate.relations[name], why_not_stated(content.certificate, name)
    if reason is not None or under.epsilon is None or under.delta is None:
        return f"not stated; {reason}."
    recorded = ""
    if under.recorded_epsilon is not None:
        recorded = f"; the releases on record come to {words.rounded_up(under.recorded_epsilon)}"
    return f"epsilon {words.rounded_up(under.epsilon)}, delta {grouped(under.delta)}{recorded}."


def _worth(measurements: tuple[Measurement, ...]) -> tuple[str, list[Figure]]:
    """Show every measurement, with its figures."""
    written, drawn = "", list[Figure]()
    for number, one in enumerate(measurements):
        own = [] if one.says_little else figures.quality(one, number)
        written += _measurement(one, own)
        drawn += own
    return section("worth", "Quality of the model", written or paragraph(HOW_TO_MEASURE)), drawn


def _measurement(one: Measurement, drawn: list[Figure]) -> str:
    paid, style = words.covered_by(one)
    tag = f'<span class="tag {style}">{escaped(paid)}</span>'
    name = words.sentence(one.metric)
    if one.says_little:
        text = f"{name} is too noisy to report at this budget ({one.on})."
        return f'<div class="measured"><p class="lead">{escaped(text)} {tag}</p></div>'
    value = measured(one.metric, one.value)
    if one.low is not None and one.high is not None:
        ends = f"{measured(one.metric, one.low)} and {measured(one.metric, one.high)}"
        value += f", and with 95 % confidence between {ends}"
    where = f"Measured on {one.on}" + (f", {words.moment(one.when)}" if one.when else "") + "."
    compared = [words.sentence(words.comparison(one, other, value)) + "." for other, value in one.compared_with]
    for it in one.estimated("AUC", ""):
        first, second = map(repr, one.classes)
        means = f"the chance that a record of {second} gets a higher score than one of {first}"
        compared.append(f"AUC, {means}: {words.estimate(it)}.")
    explains = "R\u00b2, the share of the variance of the target that the model explains"
    compared += [f"{explains}: {words.estimate(it)}." for it in one.estimated("R2")]
    more = pairs((name, measured(one.metric, value)) for name, value in one.details) if one.details else ""
    more += paragraph(one.note, "note") if one.note else ""
    more += _classes(one) if one.classes else ""
    more += f'<div class="plots">{"".join(map(figure, drawn))}</div>' if drawn else ""
    return (
        f'<div class="measured"><p class="lead">{escaped(f"{name} is {value}")}. {tag}</p>'
        f"{paragraph(where)}{bullets(compared) if compared else ''}{more}</div>"
    )


def _classes(one: Measurement) -> str:
    """Write the figures of every declared class, and the confusion matrix."""
    kinds = [kind for kind in ("share", "recall", "precision", "AUC") if one.estimated(kind, one.classes[0])]
    rows = []
    for name in one.classes:
        rows.append((name, *(words.estimate(it) for kind in kinds for it in one.estimated(kind, name))))
    longer = {"share": "share of records", "AUC": "AUC against the others"}
    heads = ("class", *(longer.get(kind, kind) for kind in kinds))
    made = f"<h3>Classes</h3>{table('Figures of each class', heads, rows, len(heads))}"
    if not one.confusion:
        why = "There are too many classes for so few records to count which class is predicted instead of which."
        return made + paragraph(why, "note")
    total = sum(map(sum, one.confusion)) or 1.0
    each = zip(one.classes, one.confusion, strict=True)
    cells = [(name, *(words.percent(value / total) for value in row)) for name, row in each]
    about = paragraph("Share of all records, by class (row) and predicted class (column).", "note")
    heads = ("class", *(f"predicted {name}" for name in one.classes))
    return f"{made}<h3>Confusion matrix</h3>{about}{table('Confusion matrix', heads, cells)}"


def _spending(content: ReportContent) -> tuple[str, list[Figure]]:
    """Show the budget, noise and step sizes of the training."""
    no_budget = "This purse has no limit, so there is no budget to plot."
    if not content.trace.steps:
        no_budget = "No step is on record, so there is no spending to plot."
    plots = (
        (figures.budget(content), no_budget),
        (figures.noise(content), "No release of this training has Gaussian noise to plot step by step."),
        (figures.step_sizes(content), "There are no step sizes to plot: this method has none."),
    )
    drawn = [made for made, _ in plots if made is not None]
    inner, others = "".join(map(figure, drawn[:1])), "".join(map(figure, drawn[1:]))
    inner += f'<div class="plots">{others}</div>' if others else ""
    inner += "".join(paragraph(why_not, "note") for made, why_not in plots if made is None)
    return section("spending", "Spending of the training", inner), drawn


def _model(content: ReportContent) -> tuple[str, list[Figure]]:
    """Show the curves of the columns, or the coefficients."""
    drawn, shown = figures.coefficients(content), figures.curves(content)[:MOST_CURVES]
    note = paragraph(content.coefficients_note) if content.coefficients_note else ""
    if not shown:
        about = paragraph("Each is the weight of a column as it was scaled in training.")
        return section("model", "The model", about + note + figure(drawn)), [drawn]
    about = paragraph("What each column adds to the score; the most important column comes first.")
    plots = f'<div class="plots">{"".join(map(figure, shown))}</div>'
    numbers = table("Coefficients: numbers", drawn.heads, drawn.rows, drawn.text_columns)
    return section("model", "The model", about + note + plots + details("All coefficients", numbers)), shown


def _ledger(content: ReportContent) -> tuple[str, list[Figure]]:
    """Show the whole budget of the data set."""
    budget = content.budget
    whole = f"Of epsilon {grouped(budget['epsilon'])} at delta {grouped(budget['delta'])}"
    spent = f"{words.rounded_up(budget['spent_epsilon'])} on all of its runs"
    left = f"{words.percent(budget['fraction_left'], 0)} of the budget is left"
    sentence = f"{whole}, data set {budget['dataset']} has spent {spent}; {left}."
    drawn = figures.ledger_runs(content)
    inner = paragraph(sentence, "lead") + (figure(drawn) if drawn else "")
    return section("ledger", "The budget of the data set", inner), [drawn] if drawn else []


def _before(content: ReportContent) -> str:
    """List what was released or declared before training."""
    listed, more = pairs(content.prepared[:LONGEST_LIST]), content.prepared[LONGEST_LIST:]
    if more:
        listed += details(f"{len(more)} more", pairs(more), printed=True)
    return section("before", "Released or declared before training", listed)


def _reproduce(content: ReportContent) -> str:
    """List the settings of the run."""
    commands = [value for name, value in content.settings if name.lower() == "command"]
    others = [pair for pair in content.settings if pair[0].lower() != "command"]
    inner = "".join(code(command, copy="the command", wrap=False) for command in commands)
    inner += pairs([("method", content.method), *others])
    if content.schema:
        schema = code(content.schema, copy="the description of the columns", wrap=False)
        inner += details("The description of the columns (TOML)", schema)
    fresh = "Another run draws fresh noise, so it gives another model, and it is charged again."
    return section("reproduce", "Settings to reproduce it", inner + paragraph(fresh, "note"))


def _verify(content: ReportContent) -> str:
    """Explain how to check the page against the ledger."""
    certificate = content.certificate
    command = f"privypurse ledger verify --ledger {shlex.quote(str(content.budget['ledger']))}"
    if content.folder:
        command += f" --certificate {shlex.quote(f'{content.folder}/certificate.json')}"
    inner = paragraph(
        f"The ledger ({certificate.ledger}) chains its lines by SHA-256. It had {counted(certificate.ledger_lines, 'line')} when "
        "this was issued; an older line that is changed or left out breaks the chain, and the last digest pins it:"
    )
    inner += code(certificate.ledger_digest, copy="the digest")
    if content.budget["ledger"]:  # a file
        inner += code(command, copy="the command that verifies", wrap=False)
    inner += paragraph(f"Rule of accounting: {certificate.theorem}. Noise: {certificate.noise}.", "note")
    inner += details("The certificate in full", code(str(certificate), copy="the certificate"), printed=True)
    return section("verify", "How to verify it", inner)
