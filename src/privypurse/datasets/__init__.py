"""Loaders for the data sets of the papers, from a local folder."""

from privypurse.datasets.local import NAMES, Table, load

__all__ = ["NAMES", "Table", "load"]
