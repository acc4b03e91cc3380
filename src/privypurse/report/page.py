"""From content to one self-contained HTML page."""

from privypurse.report.content import ReportContent


def render(content: ReportContent) -> str:
    """Write the page."""
    raise NotImplementedError(content.title)
