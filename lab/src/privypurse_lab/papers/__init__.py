"""Reproductions of five papers, one module for each.

Published algorithms that are not private are kept for comparison only. They run on purses declared
not private, and are marked NOT PRIVATE wherever they are shown.
"""

from privypurse_lab.papers.catalogue import NAMES
from privypurse_lab.papers.reproducing import Outcome, listed, reproduce

__all__ = ["NAMES", "Outcome", "listed", "reproduce"]
