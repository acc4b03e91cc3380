"""Good files that several targets begin with."""

import pathlib

import numpy as np

from privypurse import Gaussian, NoiseSource, Purse
from privypurse.accounting._filters import GdpFilter
from privypurse.oracles.statistics import clipped_sum
from privypurse.purse._allowance import Allowance

DATASETS = ("survey", "clinic", "closed")


def spend(purse: Purse, noise_multiplier: float = 30.0, what: str = "sum") -> None:
    """Make one release."""
    purse.release(clipped_sum(np.ones((5, 1)), clip_norm=1.0), Gaussian(noise_multiplier), what=what)


def write_ledger(path: pathlib.Path) -> None:
    """Write a ledger with every kind of line on it."""
    survey = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path, dataset="survey", who="ann")
    for k in range(3):
        spend(survey, 30.0 + k, f"sum {k % 2}")
    with survey.reserve(4):
        spend(survey, 40.0, "block")
        spend(survey, 40.0, "block")
    survey.note("a run", {"event": "begin", "job": "1", "asked": 0.5})
    spend(Allowance(survey, GdpFilter(0.5, 1e-6, "add-remove")), 50.0, "part")
    survey.declare_uncovered("looked at the table")
    clinic = Purse(2.0, 1e-7, neighbouring="replace-one", ledger=path, dataset="clinic", filter="rdp", who="bob")
    spend(clinic, 50.0)
    closed = Purse(
        0.5, 1e-6, neighbouring="add-remove", ledger=path, dataset="closed", filter="zcdp", noise=NoiseSource(seed=1)
    )
    spend(closed, 60.0)
    closed.freeze("done")
