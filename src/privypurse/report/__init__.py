"""The report of a run: one HTML file that explains what was guaranteed, what it cost and what it is worth."""

from privypurse.report.content import Coefficient, Measurement, ReportContent
from privypurse.report.page import render

__all__ = ["Coefficient", "Measurement", "ReportContent", "render"]
