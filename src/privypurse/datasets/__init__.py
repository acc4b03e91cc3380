"""A synthetic census whose best possible accuracy is known."""

from privypurse.datasets._census import make_census

__all__ = ["make_census"]
