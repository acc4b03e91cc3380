"""The report of a run: one HTML file with its guarantee, its cost and its measurements."""

from privypurse.report.content import Coefficient, Measurement, ReportContent
from privypurse.report.page import render

__all__ = ["Coefficient", "Measurement", "ReportContent", "render"]
