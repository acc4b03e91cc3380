"""The sections of a report after its opening."""

import math
import shlex

from privypurse.purse.certificate import why_not_stated
from privypurse.report import figures, words
from privypurse.report.content import Measurement, ReportContent
from privypurse.report.figures import Figure
from privypurse.report.html import bullets, code, details, escaped, pairs, paragraph, section, table
from privypurse.report.words import measured

HOW_TO_MEASURE = (
    "The quality of this model was not measured. Score it on records that were declared public; or set records aside "
    "before training and release a noisy score from the same purse. `privypurse evaluate` does either. An exact score "
    "on private records is not covered by the guarantee."
)
LONGEST_LIST = 12


def figure(drawn: Figure) -> str:
    """Write a figure: its plot, caption and numbers."""
    caption = escaped(drawn.drawings[0].caption)
    chooser = ""
    if drawn.chooser:
        options = "".join(
            f'<option value="{place}">{escaped(one.label)}</option>' for place, one in enumerate(drawn.drawings)
        )
        chooser = (
            f'<label class="chooser needs-script">{escaped(drawn.chooser)} '
            f'<select data-choose="{drawn.key}" autocomplete="off">{options}</select></label>'
        )
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


def coverage(content: ReportContent) -> str:
    """List what the guarantee covers and what it does not."""
    certificate = content.certificate
    if not words.bounded(certificate):
        covered = paragraph("Nothing: there is no guarantee.", "alarm-text")
    else:
        part = "this part of the purse" if certificate.part_of else f"the purse of data set {certificate.dataset}"
        items = [
            f"All {certificate.releases:,} values that left through {part}, together, and whatever is computed from them: "
            "the model, and its predictions for records that others supply.",
            "Any attacker, with any other knowledge and any amount of computing, now and later.",
            *(f"Under {name}: {_relation(content, name)}" for name in certificate.relations),
        ]
        if certificate.unreleased:
            items.append(f"{certificate.unreleased:,} more values that were charged and are not known to be released.")
        covered = bullets(items)
    uncovered = bullets(words.sentence(item) for item in certificate.uncovered)
    lists = (
        f'<div class="two"><div><h3>It covers</h3>{covered}</div>'
        f'<div class="not"><h3>It does not cover</h3>{uncovered}</div></div>'
    )
    groups = table(
        "Released values",
        ("what for", "kind", "how many", "noise multiplier or epsilon"),
        [
            (words.purpose(group.what), group.kind, f"{group.count:,}", _levels(group.smallest, group.largest))
            for group in certificate.groups
        ],
        text_columns=2,
    )
    return section(
        "covers", "What the guarantee covers", lists + details("Everything that was released, counted", groups)
    )


def _relation(content: ReportContent, name: str) -> str:
    under, reason = content.certificate.relations[name], why_not_stated(content.certificate, name)
    if reason is not None or under.epsilon is None or under.delta is None:
        return f"not stated; {reason}."
    recorded = ""
    if under.recorded_epsilon is not None:
        recorded = f"; the releases on record come to {words.rounded_up(under.recorded_epsilon)}"
    return f"epsilon {words.rounded_up(under.epsilon)}, delta {words.number(under.delta)}{recorded}."


def _levels(smallest: float | None, largest: float | None) -> str:
    if smallest is None or largest is None:
        return ""
    low, high = words.number(smallest), words.number(largest)
    return low if low == high else f"{low} to {high}"


def worth(content: ReportContent) -> str:
    """Write the measurements of the model, their coverage and comparisons."""
    inner = "".join(_measurement(one) for one in content.measurements) or paragraph(HOW_TO_MEASURE)
    return section("worth", "Quality of the model", inner)


def _measurement(one: Measurement) -> str:
    paid, style = words.covered_by(one)
    if one.says_little:
        text = f"{words.sentence(one.metric)} is too noisy to report at this budget ({one.on})."
        return f'<div class="measured"><p class="lead">{escaped(text)} <span class="tag {style}">{escaped(paid)}</span></p></div>'
    sentence = f"{words.sentence(one.metric)} is {measured(one.metric, one.value)}"
    if one.low is not None and one.high is not None:
        sentence += (
            f", and with 95 % confidence between {measured(one.metric, one.low)} and {measured(one.metric, one.high)}"
        )
    where = f"Measured on {one.on}" + (f", {words.moment(one.when)}" if one.when else "") + "."
    compared = [words.sentence(words.comparison(one, other, value)) + "." for other, value in one.compared_with]
    more = pairs((name, measured(one.metric, value)) for name, value in one.details) if one.details else ""
    return (
        f'<div class="measured"><p class="lead">{escaped(sentence)}. <span class="tag {style}">{escaped(paid)}</span></p>'
        f"{paragraph(where)}{bullets(compared) if compared else ''}{more}</div>"
    )


def spending(content: ReportContent) -> tuple[str, list[Figure]]:
    """Show the budget, noise and step sizes of the training."""
    drawn: list[Figure] = []
    missing: list[str] = []
    for made, why_not in (
        (figures.budget(content), _no_budget(content)),
        (figures.noise(content), "No release of this training has Gaussian noise to plot step by step."),
        (figures.step_sizes(content), "There are no step sizes to plot: this method has none."),
    ):
        if made is None:
            missing.append(why_not)
        else:
            drawn.append(made)
    first, others = drawn[:1], drawn[1:]
    inner = "".join(figure(one) for one in first)
    if others:
        inner += '<div class="plots">' + "".join(figure(one) for one in others) + "</div>"
    inner += "".join(paragraph(text, "note") for text in missing)
    return section("spending", "Spending of the training", inner), drawn


def _no_budget(content: ReportContent) -> str:
    if not content.trace.steps:
        return "No step is on record, so there is no spending to plot."
    return "This purse has no limit, so there is no budget to plot."


def model(content: ReportContent) -> tuple[str, list[Figure]]:
    """Show the coefficients."""
    drawn = figures.coefficients(content)
    if drawn is None:
        return "", []
    note = paragraph(content.coefficients_note) if content.coefficients_note else ""
    about = paragraph("Each is the weight of a column as it was scaled in training.")
    return section("model", "The model", about + note + figure(drawn)), [drawn]


def ledger(content: ReportContent) -> tuple[str, list[Figure]]:
    """Show the whole budget of the data set."""
    budget = content.budget
    if budget is None:
        return "", []
    limit, spent = budget.get("epsilon"), budget.get("spent_epsilon")
    dataset = budget.get("dataset", content.certificate.dataset)
    if limit is None or not math.isfinite(limit):
        sentence = f"Data set {dataset} has no limit on its ledger: it is not private."
    else:
        left = budget.get("fraction_left")
        rest = f"; {words.percent(left, 0)} of the budget is left" if left is not None else ""
        of = f"Of epsilon {words.number(limit)} at delta {words.number(budget.get('delta') or 0.0)}"
        sentence = f"{of}, data set {dataset} has spent {words.rounded_up(spent or 0.0)} on all of its runs{rest}."
    drawn = figures.ledger_runs(content)
    inner = paragraph(sentence, "lead") + (figure(drawn) if drawn else "")
    return section("ledger", "The budget of the data set", inner), [drawn] if drawn else []


def before(content: ReportContent) -> str:
    """List what was released or declared before training."""
    if not content.prepared:
        return ""
    listed = pairs(content.prepared)
    if len(content.prepared) > LONGEST_LIST:
        listed = pairs(content.prepared[:LONGEST_LIST]) + details(
            f"{len(content.prepared) - LONGEST_LIST} more", pairs(content.prepared[LONGEST_LIST:]), printed=True
        )
    return section("before", "Released or declared before training", listed)


def reproduce(content: ReportContent) -> str:
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


def verify(content: ReportContent) -> str:
    """Explain how to check the page against the ledger."""
    certificate = content.certificate
    file = str((content.budget or {}).get("ledger") or "LEDGER")
    inner = paragraph(
        f"The ledger ({certificate.ledger}) chains its lines by SHA-256. It had {certificate.ledger_lines:,} lines when this was "
        "issued; an older line that is changed or left out breaks the chain, and the last digest pins it:"
    )
    inner += code(certificate.ledger_digest, copy="the digest")
    inner += code(
        f"privypurse ledger verify {shlex.quote(file)} --certificate {shlex.quote(f'{content.folder}/certificate.json')}",
        copy="the command that verifies",
        wrap=False,
    )
    inner += paragraph(f"Rule of accounting: {certificate.theorem}. Noise: {certificate.noise}.", "note")
    inner += details("The certificate in full", code(str(certificate), copy="the certificate"), printed=True)
    return section("verify", "How to verify it", inner)
