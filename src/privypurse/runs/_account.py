"""The account of a data set on a ledger: opened once under fixed terms, reopened by later jobs."""

import math
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privypurse.core._checks import at_home, positive, small_probability
from privypurse.core._errors import InvalidArgument, LedgerUnavailable, TermsMismatch
from privypurse.core._formats import rounded_down, rounded_up
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core.charges import GaussianCharge
from privypurse.purse._opening import DELTA, check_noise_name, noise_source, part_of
from privypurse.purse._purse import Purse
from privypurse.purse._sqlite_ledger import SqliteLedger

LEDGER = "privypurse-ledger.db"
MOST_DELTA = 1e-4


@dataclass(frozen=True, kw_only=True)
class Account:
    """Name and terms of the account to charge. Terms that are None are those on the ledger."""

    dataset: str
    ledger: pathlib.Path | None = None  # None: PRIVYPURSE_LEDGER, or privypurse-ledger.db beside the data
    beside: pathlib.Path | None = None  # folder of the data; None: the current folder
    budget: float | None = None  # total of the data set; None for a new account: epsilon of the first job
    delta: float | None = None  # None for a new account: 1e-6
    neighbouring: str | None = None  # None for a new account: add-remove
    who: str | None = None  # name recorded with each charge; None: the user of the machine

    @property
    def path(self) -> pathlib.Path:
        """File of the ledger, with a leading ``~`` expanded."""
        named = self.ledger or os.environ.get("PRIVYPURSE_LEDGER")
        # Beside the data, so that the budget does not depend on the working folder.
        return at_home(named) if named else (self.beside or pathlib.Path()) / LEDGER

    def open(
        self, epsilon: float | None, *, seed: int | None = None, noise: str = "auto", dry: bool = False
    ) -> tuple[Purse, bool]:
        """Return the purse, and whether the account is new. A seed is for simulations.

        `dry` opens no account: the purse of a new one is in memory.
        """
        if dry:
            self._check_writable()
        check_noise_name(noise)
        source = noise_source(noise, seed)
        found = self.find(source)
        if found is not None:
            self.check_terms(found)
            return found, False
        budget = epsilon if self.budget is None else self.budget
        if budget is None:
            where = f"data set {self.dataset!r} is not on the ledger {str(self.path)!r}"
            raise InvalidArgument(f"budget is needed: {where}. Pass --budget 3, the most that may ever be spent.")
        if epsilon is not None and budget < epsilon:
            raise InvalidArgument(f"budget must be at least {epsilon:g}; got {budget:g}. Raise it or lower epsilon.")
        delta = DELTA if self.delta is None else self.delta
        if small_probability(delta=delta) > MOST_DELTA:
            why = f"got {delta:g}, with which publishing a whole record could count as private"
            raise InvalidArgument(f"expected delta far below one over the number of records, {why}. Pass --delta 1e-6.")
        relation = Neighbouring.parse(self.neighbouring or Neighbouring.ADD_REMOVE.value)
        own: Any = {"ledger": None if dry else self.path, "dataset": self.dataset, "who": self.who}
        return Purse(budget, delta, neighbouring=relation, noise=source, **own), True

    def check_terms(self, found: Purse) -> None:
        """Raise TermsMismatch if the purse on the ledger has other terms than asked for."""
        terms = found.epsilon, found.delta, found.neighbouring.value
        for name, its in zip(("budget", "delta", "neighbouring"), terms, strict=True):
            if (asked := getattr(self, name)) not in (None, its):
                fixed = f"{name} of data set {self.dataset!r} is fixed at {its} on the ledger {str(self.path)!r}"
                raise TermsMismatch(f"{fixed}; got {asked}. Leave --{name} out.")

    def _check_writable(self) -> None:
        """Raise LedgerUnavailable if the ledger could not be written or made."""
        place = self.path if self.path.exists() else self.path.absolute().parent
        if not os.access(place, os.W_OK):
            why = "is read-only" if place.exists() else "is in a folder that does not exist"
            raise LedgerUnavailable(f"the ledger {str(self.path)!r} {why}. Pass --ledger with a writable file.")

    def find(self, noise: NoiseSource | None = None) -> Purse | None:
        """Return the purse if the account is on the ledger, else None."""
        if not self.path.exists():
            return None
        ledger = SqliteLedger(self.path, must_exist=True)
        if ledger.terms(self.dataset) is None:
            return None
        return Purse.reopen(ledger, self.dataset, noise=noise, who=self.who)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run would cost, and leave of the budget of a data set. All of it is public."""

    dataset: str
    ledger: str  # name of the file
    new_account: bool  # whether the run would open the account, and fix its budget
    budget: float
    delta: float
    neighbouring: str
    epsilon: float  # of the run: the most that it would spend
    spent_before: float
    spent_after: float
    left_after: float  # epsilon of one more run

    def __str__(self) -> str:
        spent = f"epsilon {rounded_up(self.spent_after)} of {self.budget:g} spent on data set {self.dataset!r}"
        left = rounded_down(self.left_after) if self.left_after > 1e-6 * self.budget else "nothing"
        before = "a new account" if self.new_account else f"{rounded_up(self.spent_before)} before"
        return f"{spent} ({before}, {self.ledger}); left for one more run: {left}"


def forecast(account: Account, purse: Purse, epsilon: float, *, is_new: bool) -> Forecast:
    """Return what a run would leave. Raise BudgetExhausted if it does not fit beside active runs."""
    if not math.isfinite(purse.epsilon):
        got = f"got {purse.dataset!r}, which is declared not private on its ledger"
        raise InvalidArgument(f"expected a data set with a budget, {got}. Pass another --dataset.")
    run = part_of(purse, positive(epsilon=epsilon))
    # A run releases with Gaussian noise, whose cost is that of one release of its whole budget.
    before = purse.totals
    after = purse.filter.after(before, GaussianCharge(run.filter.smallest_noise_multiplier(run.totals)))
    fits = purse.filter.fraction_left(before, after) > 0
    return Forecast(
        dataset=purse.dataset,
        ledger=account.path.name,
        new_account=is_new,
        budget=purse.epsilon,
        delta=purse.delta,
        neighbouring=purse.neighbouring.value,
        epsilon=run.epsilon,
        spent_before=purse.spent.epsilon,
        spent_after=purse.filter.epsilon_of(after, purse.delta) if fits else purse.epsilon,
        left_after=purse.filter.epsilon_left(after) if fits else 0.0,
    )


def put_on_record(accounts: Sequence[Account | None], what: str) -> None:
    """Declare an uncovered computation on the ledgers of those accounts that exist."""
    purses = [purse for account in accounts if account is not None and (purse := account.find()) is not None]
    for purse in {(purse.ledger.head(), purse.dataset): purse for purse in purses}.values():
        purse.declare_uncovered(what)
