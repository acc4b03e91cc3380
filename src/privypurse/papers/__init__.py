"""The five papers, reproduced: one module for each, built from the library's own parts.

What was published and is not private is kept here only, to be compared with: it runs on purses that are declared not private,
and is marked NOT PRIVATE wherever it is shown.
"""

from privypurse.papers.catalogue import NAMES
from privypurse.papers.reproducing import Outcome, listed, reproduce

__all__ = ["NAMES", "Outcome", "listed", "reproduce"]
