"""Study data by name: raw data, outside of any purse.

`load` searches the folder ``PRIVYPURSE_DATA``, then scikit-learn, a cache and the network.
"""

from privypurse_lab.data.loading import NAMES, load
from privypurse_lab.data.table import Table

__all__ = ["NAMES", "Table", "load"]
