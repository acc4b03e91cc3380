"""An attack on selections as they are made: through the purse, with real noise, on scores that one record moves."""

import numpy as np

from privypurse.audit.lower_bounds import epsilon_of, largest_rate
from privypurse.audit.results import HOLDS, REFUTED, Line
from privypurse.core.checks import FloatArray
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Norm, Sensitive
from privypurse.mechanisms.base import Mechanism
from privypurse.purse.purse import Purse

CANDIDATES = 20
CONFIDENCE = 0.95


def attack_selection(
    mechanism: Mechanism, epsilon: float, *, draws: int = 10_000, seed: int = 0, secure: bool = False
) -> Line:
    """Bound a selection's epsilon from below by how often single candidates are selected.

    Two questions, each with and without a record: twenty candidates alike, one of which the record makes worse; and two
    candidates between which the record decides. In each, one candidate's frequency is what is looked at, fixed in advance.

    Parameters
    ----------
    mechanism : Mechanism
        The selection, on scores whose range is 1.
    epsilon : float
        What it is charged for.
    draws : int
        Selections on each of the four tables.
    seed : int
        Of the noise.
    secure : bool
        Whether to draw exact noise.
    """
    alike, worse = np.zeros(CANDIDATES), np.zeros(CANDIDATES)
    worse[0] = -1.0
    noise = NoiseSource(seed=seed, secure=True) if secure else NoiseSource(seed=seed)
    shown = 0.0
    significance = (1 - CONFIDENCE) / 8  # two questions, two frequencies, two directions
    for absent, present in ((alike, worse), (np.array([0.5, 0.0]), np.array([-0.5, 0.0]))):
        first = int((_selected(mechanism, absent, draws, noise) == 0).sum())
        second = int((_selected(mechanism, present, draws, noise) == 0).sum())
        # A frequency that is surely no higher, against one that is surely no lower; both ways.
        for hits, other in ((first, second), (second, first)):
            least = 1 - largest_rate(draws - hits, draws, significance)
            shown = max(shown, epsilon_of(largest_rate(other, draws, significance), 1 - least, 0.0))
    verdict = REFUTED if shown > epsilon else HOLDS
    name = type(mechanism).__name__
    return Line(
        name,
        "selection",
        "white box",
        claimed_epsilon=epsilon,
        shown_epsilon=shown,
        delta=0.0,
        confidence=CONFIDENCE,
        trials=4 * draws,
        verdict=verdict,
    )


def _selected(mechanism: Mechanism, scores: FloatArray, draws: int, noise: NoiseSource) -> FloatArray:
    purse = Purse.not_private(noise=noise)  # made-up scores: only the noise of the selection is of interest
    with purse.reserve(draws):
        answers = [
            purse.release(Sensitive(scores, norm=Norm.RANGE, add_remove=1.0, replace_one=2.0), mechanism)
            for _ in range(draws)
        ]
    return np.array([int(answer) for answer in answers])
