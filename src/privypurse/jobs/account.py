"""The account of a data set on a ledger: opened once, under terms that stay, and found again by every later job."""

import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

from privypurse.core.checks import small_probability
from privypurse.core.errors import InvalidArgument, TermsMismatch
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.purse.opening import DELTA, check_noise_name, noise_source
from privypurse.purse.purse import Purse
from privypurse.purse.sqlite_ledger import SqliteLedger

LEDGER = "privypurse-ledger.db"
MOST_DELTA = 1e-4


@dataclass(frozen=True, kw_only=True)
class Account:
    """Which account pays.

    Parameters
    ----------
    ledger : path or None
        The ledger's file; None for ``PRIVYPURSE_LEDGER``, or ``privypurse-ledger.db`` beside the data.
    beside : path or None
        The data's folder; the current one by default.
    dataset : str
        Name of the data set on it.
    budget : float or None
        The whole budget of the data set: fixed when the account is opened. None: what is there, or what the first job asks for.
    delta, neighbouring
        The other terms; 1e-6 and add/remove for a new account.
    who : str or None
        Who spends; the user of the machine by default.
    """

    dataset: str
    ledger: pathlib.Path | None = None
    beside: pathlib.Path | None = None
    budget: float | None = None
    delta: float | None = None
    neighbouring: str | None = None
    who: str | None = None

    @property
    def path(self) -> pathlib.Path:
        """The ledger's file."""
        named = self.ledger or os.environ.get("PRIVYPURSE_LEDGER")
        # Beside the data, so that another working folder is not another budget.
        return pathlib.Path(named) if named else (self.beside or pathlib.Path()) / LEDGER

    def open(self, epsilon: float | None, *, seed: int | None = None, noise: str = "auto") -> tuple[Purse, bool]:
        """Return the purse, and whether the account is new.

        Parameters
        ----------
        epsilon : float or None
            What the job asks for: the budget of a new account that has no other.
        seed : int or None
            For simulations.
        noise : {"auto", "secure", "plain"}
            How noise is drawn.
        """
        check_noise_name(noise)
        source = noise_source(noise, seed)
        found = self.find(source)
        if found is not None:
            self._check_terms(found)
            return found, False
        budget = epsilon if self.budget is None else self.budget
        if budget is None:
            raise InvalidArgument(
                f"budget is needed: data set {self.dataset!r} is not on the ledger {str(self.path)!r}. Pass --budget 3, the most "
                "that may ever be spent on it."
            )
        if epsilon is not None and budget < epsilon:
            raise InvalidArgument(
                f"budget must be at least the epsilon of this job, {epsilon:g}; got {budget:g}. Raise it, or ask for less. "
                "Nothing was spent."
            )
        delta = DELTA if self.delta is None else self.delta
        _check_delta(delta)
        relation = Neighbouring.parse(self.neighbouring or Neighbouring.ADD_REMOVE.value)
        opened = Purse(
            budget, delta, neighbouring=relation, ledger=self.path, dataset=self.dataset, noise=source, who=self.who
        )
        return opened, True

    def find(self, noise: NoiseSource | None = None) -> Purse | None:
        """Return the purse of an account that is on the ledger already, or None."""
        if not self.path.exists():
            return None
        ledger = SqliteLedger(self.path, must_exist=True)
        return (
            None
            if ledger.terms(self.dataset) is None
            else Purse.reopen(ledger, self.dataset, noise=noise, who=self.who)
        )

    def _check_terms(self, purse: Purse) -> None:
        for name, asked, its in (
            ("budget", self.budget, purse.epsilon),
            ("delta", self.delta, purse.delta),
            ("neighbouring", self.neighbouring, purse.neighbouring.value),
        ):
            if asked is not None and asked != its:
                raise TermsMismatch(
                    f"{name} of data set {self.dataset!r} is {its} on the ledger {str(self.path)!r}, for good; got {asked}. "
                    f"Leave --{name} out; or name another --dataset, if these are other records. Nothing was spent."
                )


def _check_delta(delta: float) -> None:
    """Refuse a delta that promises nothing for any table worth training on."""
    if small_probability(delta=delta) > MOST_DELTA:
        raise InvalidArgument(
            f"delta must be far below one over the number of records; got {delta:g}, with which publishing a whole record could "
            "count as private. Pass for example --delta 1e-6. Nothing was spent."
        )


def put_on_record(accounts: "Sequence[Account | None]", what: str) -> None:
    """Put something that was computed without paying on the ledger, where the records have an account there."""
    purses = [purse for account in accounts if account is not None and (purse := account.find()) is not None]
    for purse in {(purse.ledger.head(), purse.dataset): purse for purse in purses}.values():
        purse.declare_uncovered(what)
