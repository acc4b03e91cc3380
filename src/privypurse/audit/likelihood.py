"""The most powerful attack there is: the likelihood ratio of all that was released, with and without the record.

Under a sound mechanism with a Gaussian-DP filter, and a record that uses up every bound, the ratio's logarithm is
N(-mu^2/2, mu^2) without the record and N(mu^2/2, mu^2) with it, also where each noise level was chosen from earlier answers.
"""

import math

import numpy as np

from privypurse.audit.listening import Heard, Transcript
from privypurse.core.checks import FloatArray
from privypurse.core.sensitive import Norm
from privypurse.mechanisms.selection import ExponentialSelection, PermuteAndFlip


def log_likelihood_ratio(absent: Transcript, present: Transcript, direction: FloatArray | None = None) -> float:
    """Return the logarithm of how much likelier the answers are with the record than without it.

    Parameters
    ----------
    absent, present : Transcript
        The run that was heard and its replay, in this order: without the record, with it. Their answers are the same.
    direction : ndarray, optional
        For sampled releases: where the record's part in a sum points to, as a vector of length one. Who attacks does not know
        whether the record was in the sample.
    """
    pairs = zip(absent.releases, present.releases, strict=False)
    return math.fsum(of_release(without, with_it, direction) for without, with_it in pairs)


def of_release(absent: Heard, present: Heard, direction: FloatArray | None) -> float:
    """Return what one release contributes; see `log_likelihood_ratio`."""
    box, mechanism, relation = absent.box, absent.mechanism, absent.neighbouring
    if absent.trial is not None and present.trial is not None:
        # That this trial was the best of several also tells something, of which nothing is made here.
        return log_likelihood_ratio(absent.trial, present.trial, direction)
    if absent.inside is None or present.inside is None:
        return 0.0  # an objective or an experiment, whose likelihood is not known: no evidence is no harm
    if isinstance(mechanism, ExponentialSelection | PermuteAndFlip):
        bound, chosen = box.bound(relation, Norm.RANGE), int(absent.answer)
        logs = [mechanism.log_probabilities(heard.inside, bound)[chosen] for heard in (absent, present)]  # type: ignore[arg-type]
        return float(logs[1] - logs[0])
    noise_std = float(mechanism.noise_std(box, relation)) if hasattr(mechanism, "noise_std") else 0.0
    if not noise_std > 0:
        return 0.0
    noise = np.ravel(absent.answer - absent.inside) / noise_std
    if box.sample_prob == 1 or direction is None:
        moved = np.ravel(present.inside - absent.inside) / noise_std
        return float(noise @ moved - moved @ moved / 2)
    if direction.size != noise.size:
        return 0.0
    # Without the record's part, whichever of the two tables the run was made with.
    moved = direction * (box.bound(relation, Norm.L2) / noise_std)
    likelier = float(noise @ moved - moved @ moved / 2)
    return float(np.logaddexp(math.log1p(-box.sample_prob), math.log(box.sample_prob) + likelier))
