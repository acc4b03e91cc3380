"""Data sets by name, and a generated one whose best possible accuracy is known.

`load` looks in the folder that ``PRIVYPURSE_DATA`` names, then in scikit-learn, then in a cache, then on the network;
`make_census` needs none of them. What comes back is a `Table` or a `Census`: raw data, outside any purse.
"""

from privypurse.datasets.census import Census, ColumnFacts, make_census
from privypurse.datasets.loading import NAMES, load
from privypurse.datasets.table import Table

__all__ = ["NAMES", "Census", "ColumnFacts", "Table", "load", "make_census"]
