"""Selection of one of several candidates by noisy score."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from privypurse.core._checks import FloatArray, finite_vector, positive
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.charges import BoundedRangeCharge, PureCharge, SingleCharge
from privypurse.mechanisms import _exact_selection as exact_selection

MOST_EPSILON = 1e3


@dataclass(frozen=True)
class _Selection:
    """A selection by scores, released as the index of the candidate in a zero-dimensional array."""

    epsilon: float
    kind: ClassVar[type[BoundedRangeCharge | PureCharge]]

    def __post_init__(self) -> None:
        if positive(epsilon=self.epsilon) > MOST_EPSILON:
            raise InvalidArgument(f"epsilon must be at most {MOST_EPSILON:g}; got {self.epsilon!r}. Lower it.")
        object.__setattr__(self, "epsilon", float(self.epsilon))

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> SingleCharge:
        box.bound(neighbouring, Norm.RANGE)
        if len(box.shape) != 1 or box.shape[0] < 1:
            raise InvalidArgument(f"box must hold scores in one dimension; got shape {box.shape}. Use shape (k,).")
        return self.kind(self.epsilon, box.sample_prob)

    def charge_seen_under(self, box: Sensitive, neighbouring: Neighbouring, other: Neighbouring) -> SingleCharge:
        """Return the replace-one charge of an add/remove selection: same noise, larger range."""
        epsilon = self.epsilon * (box.bound(other, Norm.RANGE) / box.bound(neighbouring, Norm.RANGE))
        return self.kind(epsilon, box.sample_prob)

    def _scaled_scores(self, box: Sensitive, neighbouring: Neighbouring) -> FloatArray:
        """Return the scores relative to the best, scaled so that the noise has scale one.

        Scaled before the difference: values are below 1e200, bounds above 1e-100 and epsilons at
        most 1000, so nothing overflows.
        """
        scaled = box._value * (self.epsilon / box.bound(neighbouring, Norm.RANGE))
        return np.asarray(scaled - scaled.max())

    def _gaps(self, box: Sensitive, neighbouring: Neighbouring) -> exact_selection.Gaps:
        return exact_selection.Gaps.of(box._value, self.epsilon, box.bound(neighbouring, Norm.RANGE))


@dataclass(frozen=True)
class ExponentialSelection(_Selection):
    """Select the candidate with the highest score, by the exponential mechanism (Gumbel noise).

    Candidate j is chosen with probability proportional to ``exp(epsilon * score_j / range)``, where
    ``range`` is the box's bound in `Norm.RANGE`: how much more one record can move one score than
    another. To select the lowest loss, put the negated losses in the box.

    Parameters
    ----------
    epsilon : float
        The privacy losses of any two candidates differ by at most epsilon (bounded range). Costs
        ``epsilon^2/8`` in zCDP and about ``0.627 epsilon`` in mu.
    log_prior : sequence of float, optional
        Public log-weights of the candidates, added to the scaled scores; they decide where the
        budget is too small for the data. Equal by default.

    Guarantees
    ----------
    Adding a shift v to the scores changes the log-probability of j by ``epsilon v_j / range - c``
    with c the same for all j, hence by values in an interval of length epsilon that contains 0,
    whatever the prior weights, which cancel. Dong, Durfee and Rogers (ICML 2020);
    ``docs/proofs/selection.md``. This is *not* ``argmin(score + Exp)``, whose true epsilon is (k -
    1) times as large. With a source of exact noise the probabilities are exactly these for scores
    on a lattice, with a range larger by at most 2e-12 of itself (``docs/proofs/exact_noise.md``).
    """

    log_prior: tuple[float, ...] | None = None
    kind = BoundedRangeCharge

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.log_prior is not None:
            object.__setattr__(self, "log_prior", tuple(finite_vector(log_prior=np.asarray(self.log_prior)).tolist()))

    def charge(self, box: Sensitive, neighbouring: Neighbouring) -> SingleCharge:
        charge = super().charge(box, neighbouring)
        if self.log_prior is not None and len(self.log_prior) != box.shape[0]:
            what = f"log_prior must have {box.shape[0]} numbers, one for each candidate; got {len(self.log_prior)}"
            raise InvalidArgument(f"{what}. Omit it.")
        return charge

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> None:
        """Accept any noise: both samplers are implemented."""

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        if noise.secure:
            return np.asarray(exact_selection.select(self._gaps(box, neighbouring), self.log_prior, noise))
        scores = self._scaled_scores(box, neighbouring) + self._weights
        return np.asarray(np.argmax(scores + noise.gumbel(box.shape)))

    def log_probabilities(self, scores: FloatArray, score_range: float) -> FloatArray:
        """Return the exact log-probability of each candidate for *public* scores."""
        scaled = np.asarray(scores) * (self.epsilon / positive(score_range=score_range))
        return np.asarray(special.log_softmax(scaled + self._weights))

    @property
    def _weights(self) -> FloatArray | float:
        # Relative to the largest, like the scores: a common offset would round the scores visibly.
        return 0.0 if self.log_prior is None else np.array(self.log_prior) - max(self.log_prior)


@dataclass(frozen=True)
class PermuteAndFlip(_Selection):
    """Select the candidate with the highest score by permute-and-flip (exponential noise).

    The best selection under pure epsilon-DP (McKenna and Sheldon 2020). Under zCDP and GDP it costs
    four times as much as `ExponentialSelection` at the same epsilon and is never better at the same
    cost.

    Parameters
    ----------
    epsilon : float
        The selection is epsilon-DP.

    Guarantees
    ----------
    Noise ``Exp(range/epsilon)`` is *added* to scores that are *maximised*. A shift shared by all
    scores changes nothing, so shifts may be taken in [0, range], the monotone case in which this
    noise gives epsilon-DP (Ding et al. 2021).
    """

    kind = PureCharge

    def check_noise(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> None:
        """Accept any noise: both samplers are implemented."""

    def draw(self, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> FloatArray:
        if noise.secure:
            return np.asarray(exact_selection.permute_and_flip(self._gaps(box, neighbouring), noise))
        return np.asarray(np.argmax(self._scaled_scores(box, neighbouring) + noise.exponential(box.shape)))

    def log_probabilities(self, scores: FloatArray, score_range: float) -> FloatArray:
        """Return the exact log-probability of each candidate for *public* scores.

        With gaps ``g_i = epsilon (max - score_i) / range`` the winner is j with probability
        ``integral_0^inf e^-(x + g_j) prod_{i != j} (1 - e^-(x + g_i)) dx``, by Gauss-Legendre
        quadrature in ``u = e^-x``, where the integrand is a polynomial.
        """
        scaled = np.asarray(scores, dtype=np.float64) * (self.epsilon / positive(score_range=score_range))
        weight = np.exp(scaled - scaled.max())
        # Degree k - 1 in u: k nodes are more than exact.
        nodes, weights = np.polynomial.legendre.leggauss(max(2, scaled.size))
        u, du = (nodes + 1) / 2, weights / 2
        others = np.array([np.prod(1 - np.outer(u, np.delete(weight, j)), axis=1) for j in range(scaled.size)])
        return np.asarray(scaled - scaled.max() + np.log(others @ du))
