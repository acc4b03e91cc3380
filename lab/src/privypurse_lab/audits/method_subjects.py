"""The methods and baselines of the library as subjects of an audit."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from privypurse.accounting._totals import Filter
from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit.subjects import COLUMNS, DELTA, RECORDS, Subject
from privypurse.core._checks import FloatArray
from privypurse.core._randomness import NoiseSource
from privypurse.losses._linear import Logistic
from privypurse.methods import (
    ADPSGD,
    DPAGD,
    DPSGD,
    PUR,
    AdaptivePUR,
    Auto,
    Dynamic,
    FiniteModels,
    Nesterov,
    NoisyPGD,
    ObjPert,
    OutPert,
    PrivGene,
)
from privypurse.methods._selections import GeneticSearch
from privypurse.oracles._linear import DenseOracle
from privypurse.purse._purse import Purse
from privypurse.training._loop import fit, purse_for
from privypurse.training._plan import Method
from privypurse_lab.audits.canaries import on_last_column, with_canary

# Two models at opposite ends of the canary's column, between which a selection is tight.
OPPOSITE = ((0.0,) * (COLUMNS - 1) + (2.0,), (0.0,) * (COLUMNS - 1) + (-2.0,))
# Slope clipped on both sides of zero: the canary and its opposite have gradients of full norm.
SATURATED = Logistic(clip_derivative=0.05)


def oracle_of(data: tuple[FloatArray, FloatArray], **settings: Any) -> DenseOracle:
    """Return the oracle of all audited methods."""
    given: dict[str, Any] = {"loss": Logistic(clip_derivative=0.5), "constant": False, "threads": 1, **settings}
    return DenseOracle(*data, **given)


def budget(mu: float, relation: str = "add-remove") -> dict[str, Any]:
    """Return the terms of a purse that claims this mu."""
    return {"epsilon": gdp_epsilon(mu, DELTA), "delta": DELTA, "neighbouring": relation}


def method_subject(name: str, make: Callable[[], Method], *, kind: str = "method", **settings: Any) -> Subject:
    """Return a method as a subject."""
    l2, relation = settings.pop("l2", 0.0), settings.pop("neighbouring", "add-remove")
    in_place = settings.pop("in_place", False) or relation == "replace-one"
    of_oracle = {"loss": settings.pop("loss")} if "loss" in settings else {}

    def run(data: Any, purse: Purse) -> FloatArray:
        return fit(oracle_of(data, **of_oracle), make(), purse, records=RECORDS, l2=l2).point

    def table(present: bool) -> Any:
        rows, labels = with_canary(present, in_place=in_place)
        if relation == "replace-one" and not present:  # the canary's opposite
            rows[-1], labels[-1] = with_canary(True)[0][-1], 0.0
        return rows, labels

    @functools.cache  # calibrating a schedule for samples takes a second
    def rule(mu: float) -> Filter:
        return purse_for(
            oracle_of(table(True), **of_oracle), make(), records=RECORDS, l2=l2, **budget(mu, relation)
        ).filter

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return Purse.with_filter(rule(mu), noise=noise)

    settings.setdefault("score", on_last_column)
    direction = -np.eye(COLUMNS)[-1] if in_place else None
    return Subject(name, kind, run, table, purse, direction=direction, **settings)


def balanced(present: bool) -> tuple[FloatArray, FloatArray]:
    """Return a table on which the canary decides between two models.

    Half a record favours one model without the canary, and the other with it.
    """
    up, half = np.eye(COLUMNS)[-1], 0.5 * np.eye(COLUMNS)[-1]
    rows = np.vstack([up, up, half, *([up] if present else [])])
    return rows, np.array([1.0, 0.0, 0.0, *([1.0] if present else [])])


def finite_models() -> Subject:
    """Return the selection between two models."""

    def run(data: Any, purse: Purse) -> FloatArray:
        # A loss without curvature, so that half a record's length is half of its weight.
        oracle = oracle_of(data, loss=Logistic(clip_derivative=1e-3))
        return fit(oracle, FiniteModels(OPPOSITE), purse, records=RECORDS).point

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return purse_for(oracle_of(balanced(True)), FiniteModels(OPPOSITE), records=RECORDS, noise=noise, **budget(mu))

    return Subject("finite-models", "baseline", run, balanced, purse, score=on_last_column)


def priv_gene() -> Subject:
    """Return one generation of a genetic search, in which the canary decides between two children.

    All other records disfavour the parent and do not distinguish its children, except for half a
    record.
    """
    method = PrivGene(generations=1, offspring=2, survivors=1)
    start = GeneticSearch(method.offspring, method.survivors, method.spread, method.cooling).init(COLUMNS)
    _, one, other = start["offspring"]  # public: the parent and two children made without data
    apart = (one - other) / np.linalg.norm(one - other)
    alike = one - (one @ apart) * apart
    against_parent = np.tile(alike / np.linalg.norm(alike), (RECORDS, 1))

    def table(present: bool) -> tuple[FloatArray, FloatArray]:
        rows = np.vstack([against_parent, 0.5 * apart, *([apart] if present else [])])
        return rows, np.array([1.0] * RECORDS + [0.0] + [1.0] * present)

    def run(data: Any, purse: Purse) -> FloatArray:
        # A loss without curvature, as for finite models.
        return fit(oracle_of(data, loss=Logistic(clip_derivative=1e-3)), method, purse, records=RECORDS).point

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return purse_for(oracle_of(table(True)), method, records=RECORDS, noise=noise, **budget(mu))

    return Subject("priv-gene", "baseline", run, table, purse, score=lambda result: float(result @ apart))


METHODS: dict[str, Callable[[], Subject]] = {
    "auto": lambda: method_subject("auto", Auto),
    "nesterov": lambda: method_subject("nesterov", Nesterov),
    "noisy-pgd": lambda: method_subject("noisy-pgd", NoisyPGD),
    "dp-sgd": lambda: method_subject(
        # Large samples and many steps: the loss is then nearly that of a Gaussian release.
        "dp-sgd",
        lambda: DPSGD(sample_prob=0.5, steps=100),
        in_place=True,
    ),
    "pur-nonconvex": lambda: method_subject("pur-nonconvex", lambda: PUR("non-convex")),
    "pur-convex": lambda: method_subject("pur-convex", lambda: PUR("convex")),
    "pur-strongly-convex": lambda: method_subject("pur-strongly-convex", lambda: PUR("strongly-convex"), l2=0.01),
    "pur-adaptive": lambda: method_subject("pur-adaptive", AdaptivePUR),
    "dynamic": lambda: method_subject("dynamic", Dynamic),
    "dp-agd": lambda: method_subject("dp-agd", DPAGD),
    "adp-sgd": lambda: method_subject("adp-sgd", ADPSGD),
    # The ridge keeps the canary's score on the clipped part of its slope.
    "nesterov-replace-one": lambda: method_subject(
        "nesterov-replace-one", Nesterov, neighbouring="replace-one", loss=SATURATED, l2=0.05
    ),
    "dp-agd-replace-one": lambda: method_subject(
        "dp-agd-replace-one", DPAGD, neighbouring="replace-one", loss=SATURATED, l2=0.05
    ),
    "output-perturbation": lambda: method_subject(
        # A ridge that outweighs all other records: one record moves the minimiser by the bound.
        "output-perturbation",
        lambda: OutPert(ridge=1_000.0),
        kind="baseline",
    ),
    # Its minimiser is not a sum with noise: attacked as a black box, and integrated in `exact`.
    "objective-perturbation": lambda: method_subject(
        "objective-perturbation", ObjPert, kind="baseline", shows_half=False, exact=False
    ),
    "priv-gene": priv_gene,
    # Selections from many children: no record reaches their bounds, so the white box shows little.
    "priv-gene-generations": lambda: method_subject(
        "priv-gene-generations", lambda: PrivGene(generations=3), kind="baseline", shows_half=False
    ),
    "finite-models": finite_models,
}
