"""Render a report as one HTML page."""

from privypurse.report import opening, sections
from privypurse.report.content import ReportContent
from privypurse.report.html import whole_page


def render(content: ReportContent) -> str:
    """Return a report as one HTML page, plots included, that forbids network access.

    Parameters
    ----------
    content : ReportContent
        Content of the report.
    """
    spending, budget_figures = sections.spending(content)
    model, model_figures = sections.model(content)
    ledger, ledger_figures = sections.ledger(content)
    drawn = [*budget_figures, *model_figures, *ledger_figures]
    main = [
        opening.glance(content),
        sections.coverage(content),
        sections.worth(content),
        spending,
        model,
        ledger,
        sections.before(content),
        sections.reproduce(content),
        sections.verify(content),
    ]
    return whole_page(
        title=f"{content.title} - privacy report",
        header=opening.header(content),
        links=_contents(content),
        main=main,
        figures=drawn,
        closing="Everything on this page was charged, declared public, or is named as not covered.",
    )


def _contents(content: ReportContent) -> list[tuple[str, str]]:
    links = [("covers", "What it covers"), ("worth", "Quality"), ("spending", "Spending")]
    links += [("model", "Model")] if content.coefficients else []
    links += [("ledger", "Data set")] if content.budget is not None else []
    links += [("before", "Before training")] if content.prepared else []
    return [*links, ("reproduce", "Reproduce"), ("verify", "Verify")]
