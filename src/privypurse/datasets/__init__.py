"""A synthetic census whose best possible accuracy is known."""

from privypurse.datasets.census import Census, ColumnFacts, make_census

__all__ = ["Census", "ColumnFacts", "make_census"]
