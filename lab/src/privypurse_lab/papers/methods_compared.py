"""Methods compared by accuracy: ours, the papers' baselines, published code."""

import functools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse

from privypurse.accounting._filters import DeclaredNonPrivate, GdpFilter, RdpFilter
from privypurse.accounting._rdp import curve
from privypurse.accounting._totals import Filter
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core.charges import GaussianCharge
from privypurse.losses import Hinge, HuberHinge, Logistic
from privypurse.losses._linear import LinearLoss
from privypurse.methods import (
    ADPSGD,
    DPAGD,
    DPSGD,
    PUR,
    AdaptivePUR,
    Dynamic,
    Majority,
    Nesterov,
    NoisyPGD,
    NonPrivate,
    ObjPert,
    OutPert,
    PrivGene,
)
from privypurse.methods.base import PlannedMethod
from privypurse.oracles import DenseOracle, SparseOracle
from privypurse.purse._purse import Purse
from privypurse.training import fit, linear_scores
from privypurse.training._plan import Facts, Method, Recipe
from privypurse.training.optimizers._base import Averaged
from privypurse.training.optimizers._gradient_descent import GradientDescent
from privypurse.training.schedules._base import ConstantNoise
from privypurse_lab.papers.entries import check_spent
from privypurse_lab.papers.published_adp_sgd import PublishedADPSGD
from privypurse_lab.papers.published_dp_agd import PublishedDPAGD

Model = Literal["logistic", "svm"]
DELTA = 1e-8
NON_PRIVATE = "Non-private"
SGD_MA = "SGD-MA (orders to 32)"
RIDGE = 1e-3  # of methods that run on unscaled rows; the papers do not give theirs
# Rows of norm at most one and bounded derivatives, as the library's methods need them.
UNIT: dict[str, LinearLoss] = {"logistic": Logistic(clip_derivative=0.5), "svm": HuberHinge(width=0.5)}
# Unscaled rows with clipped gradients, as in the papers.
PLAIN: dict[str, LinearLoss] = {"logistic": Logistic(), "svm": Hinge()}


@dataclass(frozen=True)
class Contestant:
    """A method in the comparisons.

    Parameters
    ----------
    name : str
        Name in tables and legends.
    make : callable
        ``make(epsilon, records)`` returns the method.
    private : bool
        Whether it is private as claimed.
    plain_rows : bool
        Run on unscaled rows, with clipped gradients and a ridge, as in the papers; else on rows of
        norm at most one.
    clip_norm : float
        Clip norm for unscaled rows.
    l2 : float
        Ridge penalty.
    """

    name: str
    make: Callable[[float, int], Method]
    private: bool = True
    plain_rows: bool = False
    clip_norm: float = 3.0
    l2: float = 0.0

    @property
    def clip(self) -> float | None:
        """Clip norm of gradients; None where rows and loss bound them."""
        return self.clip_norm if self.plain_rows else None


@dataclass(frozen=True)
class PublishedSGDMA(PlannedMethod):
    """SGD with the moments accountant as in the papers: batches of sqrt(n), noise multiplier 4.

    Private but wasteful: with orders up to 32 nothing can be run below epsilon 0.45 at delta 1e-8,
    whatever the noise (0.58 with the conversion of its time).

    Parameters
    ----------
    sample_prob : float
        Sampling rate.
    noise_multiplier : float, default 4.0
        As in the papers.
    """

    sample_prob: float
    noise_multiplier: float = 4.0

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name in the papers."""
        return "sgd-ma"

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent."""
        size, steps = 1 / facts.smoothness, self.steps_in(self.filter(facts))
        descent = GradientDescent(size, facts.sampled(self.sample_prob), clip_norm=facts.clip_norm, l2=facts.l2)
        tail = Averaged(descent, skip=steps // 2)
        return Recipe(tail, ConstantNoise(self.noise_multiplier), steps, self.sample_prob, step_sizes=(size,))

    def filter(self, facts: Facts) -> RdpFilter:
        """Return the moments accountant with orders up to 32; refuse too small an epsilon."""
        return self.accountant(facts.epsilon, facts.delta, facts.neighbouring)

    def accountant(self, epsilon: float, delta: float, neighbouring: Neighbouring | str) -> RdpFilter:
        """Return the moments accountant of a budget."""
        return RdpFilter(epsilon, delta, neighbouring, reference=self._step, orders=range(2, 33))

    def steps_in(self, rule: RdpFilter) -> int:
        """Return the number of steps that an accountant admits."""
        price = curve(self._step, rule.neighbouring, rule.orders)
        return int(min(most / each for most, each in zip(rule.affordable(rule.start()), price, strict=True)))

    @property
    def _step(self) -> GaussianCharge:
        return GaussianCharge(self.noise_multiplier, self.sample_prob)


def _mended(epsilon: float, records: int) -> Method:
    """Return DP-AGD with the settings of the paper and its errors corrected."""
    return DPAGD(
        rounds=60, selection_share=0.3, candidates=20, largest_step=2.0, window=10, momentum=0.0, clip_loss=3.0
    )


CONTESTANTS = {
    entry.name: entry
    for entry in (
        Contestant("Nesterov", lambda epsilon, records: Nesterov()),
        Contestant("DP-AGD", lambda epsilon, records: DPAGD()),
        Contestant("DP-AGD, mended", _mended, plain_rows=True, l2=RIDGE),
        Contestant(
            "DP-AGD, as published",
            lambda epsilon, records: PublishedDPAGD(epsilon, DELTA),
            private=False,
            plain_rows=True,
            l2=RIDGE,
        ),
        Contestant("ADP-SGD", lambda epsilon, records: ADPSGD()),
        Contestant(
            "ADP-SGD, as published",
            lambda epsilon, records: PublishedADPSGD(epsilon),
            private=False,
            plain_rows=True,
            l2=RIDGE,
        ),
        Contestant("PUR", lambda epsilon, records: PUR("convex")),
        Contestant("PUR, adaptive", lambda epsilon, records: AdaptivePUR()),
        Contestant("Dynamic", lambda epsilon, records: Dynamic()),
        Contestant("Noisy PGD", lambda epsilon, records: NoisyPGD()),
        Contestant("DP-SGD (PLD)", lambda epsilon, records: DPSGD()),
        Contestant(
            "SGD-Adv",
            lambda epsilon, records: DPSGD(
                sample_prob=records**-0.5, momentum=0.0, accounting="advanced", average="tail"
            ),
        ),
        Contestant(SGD_MA, lambda epsilon, records: PublishedSGDMA(records**-0.5)),
        Contestant("ObjPert", lambda epsilon, records: ObjPert()),
        Contestant("OutPert", lambda epsilon, records: OutPert()),
        Contestant("PrivGene", lambda epsilon, records: PrivGene()),
        Contestant("Majority", lambda epsilon, records: Majority()),
        Contestant(NON_PRIVATE, lambda epsilon, records: NonPrivate(), private=False),
    )
}
# Estimators choose everything themselves and have no method.
DEFAULT = "privypurse default"
NAMES = (DEFAULT, *CONTESTANTS)


def is_private(name: str) -> bool:
    """Return whether a contestant is private as claimed; the user's entries are trusted."""
    return name == DEFAULT or name not in CONTESTANTS or CONTESTANTS[name].private


@dataclass(frozen=True)
class Fitted:
    """A model: its scores, and the time of the fit."""

    scores: Callable[[Any], np.ndarray]
    seconds: float


def fitted(
    entry: "Contestant | str", model: Model, X: Any, y: np.ndarray, epsilon: float, records: int, seed: int
) -> Fitted:
    """Fit a contestant once.

    Parameters
    ----------
    entry : Contestant or str
        Name of a contestant, or one of the user's own.
    model : {"logistic", "svm"}
        The loss.
    X, y
        Training rows and labels.
    epsilon : float
        Budget at delta 1e-8 and add/remove; the claimed one where it is not private.
    records : int
        Public number of records.
    seed : int
        Seed of the noise.
    """
    if entry == DEFAULT:
        return _default(model, X, y, epsilon, records, seed)
    who = CONTESTANTS[entry] if isinstance(entry, str) else entry
    start = time.perf_counter()
    loss, limit = (PLAIN[model], None) if who.plain_rows else (UNIT[model], 1.0)
    make: Any = SparseOracle if sparse.issparse(X) else DenseOracle
    oracle = make(X, y, loss=loss, row_limit=limit, threads=1)
    noise = NoiseSource(seed=seed)
    method = who.make(epsilon, records)
    rule = _rule(who, model, epsilon, records, oracle.dimension, loss, limit)
    purse = Purse.not_private(delta=DELTA, noise=noise) if rule is None else Purse.with_filter(rule, noise=noise)
    point = fit(oracle, method, purse, records=records, l2=who.l2, clip_norm=who.clip).point
    if rule is not None:
        check_spent(who.name, purse, epsilon, DELTA, "add-remove")
    return Fitted(functools.partial(linear_scores, point=point, row_limit=limit), time.perf_counter() - start)


@functools.lru_cache(maxsize=64)
def _rule(
    who: Contestant, model: Model, epsilon: float, records: int, dimension: int, loss: LinearLoss, limit: float | None
) -> Filter | None:
    """Return the filter, which takes seconds to calibrate for samples; None if not private."""
    if not who.private:
        return None
    bounds = loss.bounds(math.inf if limit is None else limit, 1.0)
    facts = Facts(
        records=records,
        dimension=dimension,
        rule=GdpFilter(epsilon, DELTA, "add-remove"),
        bounds=bounds,
        l2=who.l2,
        clip_norm=who.clip,
    )
    rule = who.make(epsilon, records).filter(facts)
    if isinstance(rule, DeclaredNonPrivate):
        raise InvalidArgument(f"{who.name} is not private, but comparisons need private entries. Leave it out.")
    return rule


def sgd_ma_in_words(records: Mapping[str, int]) -> str:
    """Return how many steps SGD-MA makes, by name of a table and its number of training records."""
    said = []
    for name, count in records.items():
        method = PublishedSGDMA(count**-0.5)
        steps = [method.steps_in(method.accountant(epsilon, DELTA, "add-remove")) for epsilon in (0.8, 1.6)]
        said.append(f"{name} {steps[0]:,} and {steps[1]:,}")
    return f"SGD-MA runs until its accountant ends it, at epsilon 0.8 and 1.6 after this many steps: {'; '.join(said)}."


def cannot_run(name: str, epsilon: float, records: int) -> bool:
    """Return whether the accountant of a contestant cannot price this budget."""
    if name != SGD_MA:
        return False
    try:
        _rule(CONTESTANTS[name], "logistic", epsilon, records, 2, UNIT["logistic"], 1.0)
    except InvalidArgument:
        return True
    return False


def _default(model: Model, X: Any, y: np.ndarray, epsilon: float, records: int, seed: int) -> Fitted:
    import warnings

    from privypurse.estimators import PrivateLinearSVC, PrivateLogisticRegression

    kind = PrivateLogisticRegression if model == "logistic" else PrivateLinearSVC
    start = time.perf_counter()
    estimator = kind(
        epsilon, delta=DELTA, neighbouring="add-remove", classes=(0, 1), n_public=records, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # every page says that it is a simulation
        estimator.fit(X, y)
    return Fitted(estimator.decision_function, time.perf_counter() - start)
