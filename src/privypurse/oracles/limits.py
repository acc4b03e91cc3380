"""[RAW DATA] Scores of public candidates for a limit on lengths, as sealed boxes."""

import itertools

import numpy as np

from privypurse.core.checks import FloatArray, finite_vector
from privypurse.core.errors import InvalidArgument
from privypurse.core.sensitive import Norm, Sensitive

# Sums of n numbers of at most one, pairwise, err by far less than this for 10^8 records.
ROUNDING = 1e-7


def limit_scores(lengths: FloatArray, candidates: FloatArray) -> Sensitive:
    """Score candidates by how much of each record they keep.

    A limit c is worth ``length/c`` to a record that is shorter, which it leaves small, and ``(c/length)^2`` to one that is
    longer, which it cuts: most records are just within the best limit.

    Parameters
    ----------
    lengths : ndarray of shape (n,)
        One number of zero or more for each record, below 1e150. One that is no number is worth nothing.
    candidates : array_like of shape (k,)
        The public limits to choose from, positive and in rising order.

    Guarantees
    ----------
    Each record is worth between 0 and 1, whatever the limit. So scores move apart by at most 1 if a record is added or removed,
    and by at most 2 if one is replaced.
    """
    limits = finite_vector(candidates=candidates)
    if limits.size == 0 or not (limits[0] > 0 and (np.diff(limits) > 0).all()):
        raise InvalidArgument("candidates must be positive numbers in rising order; they are not. Sort them.")
    ordered = np.sort(lengths[~np.isnan(lengths)])
    ordered = ordered[np.searchsorted(ordered, 0.0, side="right") :]
    places = [0, *np.searchsorted(ordered, limits, side="right").tolist(), ordered.size]
    bins = [ordered[a:b] for a, b in itertools.pairwise(places)]
    # Sums of each bin pairwise, in units in which no entry is above one.
    shorter = [part.sum() / limit if part.size else 0.0 for part, limit in zip(bins, [*limits, 1.0], strict=True)]
    longer = [((limit / part) ** 2).sum() for part, limit in zip(bins[1:], limits, strict=True)]
    kept = np.zeros(limits.size)
    for j, limit in enumerate(limits):
        kept[j] = sum(shorter[i] * limits[i] / limit for i in range(j + 1))
        kept[j] += sum(longer[i] * (limit / limits[i]) ** 2 for i in range(j, limits.size))
    bound = 1 + ROUNDING
    return Sensitive(kept, norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound)
