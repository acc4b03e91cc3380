"""[DECIDES] The one gate: every value derived from data passes here, and is paid for before it leaves."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from privypurse.accounting import filters
from privypurse.accounting.totals import Filter, Totals
from privypurse.core.charges import SingleCharge
from privypurse.core.checks import FloatArray, positive_integer, shown, text
from privypurse.core.errors import InvalidArgument, LedgerCorrupt, UnsupportedCharge
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Sensitive
from privypurse.mechanisms.base import Mechanism
from privypurse.purse.certificate import Certificate, certify
from privypurse.purse.choices import check_filter, choose_filter, choose_noise, noise_for, open_ledger
from privypurse.purse.entries import CHARGE, FREEZE, NOTE, UNCOVERED
from privypurse.purse.ledger import Ledger, Shared, current_user
from privypurse.purse.reservation import Reservation, describe
from privypurse.purse.sqlite_ledger import SqliteLedger


@dataclass(frozen=True)
class Spent:
    """What the releases recorded so far come to.

    The *guarantee* of a purse is its limit; with budgets chosen from outputs, the spend at the moment of stopping is a
    record, not a smaller guarantee.
    """

    epsilon: float
    delta: float
    releases: int


@dataclass(frozen=True)
class Remaining:
    """What is left in a purse.

    Parameters
    ----------
    epsilon, delta : float
        What a fresh purse of the size of what is left would be worth. Budgets do not add up in epsilon, so this plus
        the spent epsilon is more than the limit.
    fraction : float
        Share of the limit that is left, in the currency in which costs do add up (mu squared, by default).
    noise_multiplier : float
        The least noise, relative to sensitivity, that one more Gaussian release of all records can have; infinity if none fits.
    selection_epsilon : float
        The largest epsilon that one more `ExponentialSelection` can have; zero if none fits.
    """

    epsilon: float
    delta: float
    fraction: float
    noise_multiplier: float
    selection_epsilon: float


class Purse(Shared):
    """A privacy budget, and the only way to get a value out of private data.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee: everything ever released through this purse together is (epsilon, delta)-DP.
    neighbouring : {"add-remove", "replace-one"} or Neighbouring
        What "one record" means. Has no default on purpose: replace-one needs twice the noise for the same epsilon.
    ledger : None, path or Ledger, default None
        Where spending is recorded. None: in memory, for one process. A path: a SQLite file that outlives the process and that
        threads, processes and people share.
    dataset : str, default "default"
        The name under which the ledger keeps this data set's budget. A data set has one budget for good.
    filter : {"gdp", "zcdp", "rdp"} or Filter, default "gdp"
        The stopping rule; all of these are sound for budgets chosen from earlier outputs. An object may be passed for the
        other choices of `RdpFilter`, or for a `FixedSchedule`.
    noise : NoiseSource or {"auto", "secure", "plain", "discrete", "opendp"}, optional
        Operating-system entropy, by default ("auto") in exact arithmetic wherever that costs little. "secure" refuses what has no
        exact way, "plain" draws in floating point, the last two draw the discrete Gaussian and need the zCDP filter. A seeded
        source makes the run a simulation, and is stamped so.
    who : str, optional
        Who spends; the login name by default.

    Guarantees
    ----------
    * `release` charges before noise is drawn, and noise before anything leaves: the charge is computed from the box's own
      bound, recorded in one transaction with the decision that it fits, and only then is the box opened. A crash in between
      over-counts, never under-counts.
    * A refused charge changes nothing; a smaller one that fits is then admitted.
    * ``copy``, ``deepcopy`` and scikit-learn's ``clone`` return the same purse; pickling works where the ledger is a file.

    Examples
    --------
    >>> from privypurse import Gaussian, Purse
    >>> from privypurse.oracles.statistics import clipped_sum
    >>> ages = [[31.0], [45.0], [62.0], [28.0]]
    >>> purse = Purse(epsilon=1.0, delta=1e-6, neighbouring="add-remove")
    >>> noisy = purse.release(clipped_sum(ages, clip_norm=90.0), Gaussian(noise_multiplier=20.0), what="sum of ages")
    >>> round(purse.spent.epsilon, 3), purse.spent.releases
    (0.189, 1)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        neighbouring: Neighbouring | str,
        ledger: "Ledger | str | os.PathLike[str] | None" = None,
        dataset: str = "default",
        filter: "Filter | str" = "gdp",
        noise: NoiseSource | str | None = None,
        who: str | None = None,
    ) -> None:
        chosen = choose_filter(filter, epsilon, delta, Neighbouring.parse(neighbouring))
        self._set_up(chosen, ledger, dataset, noise, who)

    @classmethod
    def not_private(
        cls,
        *,
        delta: float = 1e-6,
        neighbouring: Neighbouring | str = Neighbouring.ADD_REMOVE,
        ledger: "Ledger | str | os.PathLike[str] | None" = None,
        dataset: str = "default",
        noise: NoiseSource | str | None = None,
        who: str | None = None,
    ) -> "Purse":
        """Make a purse without a limit, for work that is declared NOT PRIVATE on its ledger and certificate."""
        purse = cls.__new__(cls)
        purse._set_up(filters.DeclaredNonPrivate(delta, neighbouring), ledger, dataset, noise, who)
        return purse

    @classmethod
    def with_filter(
        cls,
        filter: Filter,
        *,
        ledger: "Ledger | str | os.PathLike[str] | None" = None,
        dataset: str = "default",
        noise: NoiseSource | str | None = None,
        who: str | None = None,
    ) -> "Purse":
        """Make a purse from a filter, which already knows epsilon, delta and the relation."""
        purse = cls.__new__(cls)
        purse._set_up(check_filter(filter), ledger, dataset, noise, who)
        return purse

    @classmethod
    def reopen(
        cls,
        ledger: "Ledger | str | os.PathLike[str]",
        dataset: str = "default",
        *,
        noise: NoiseSource | str | None = None,
        who: str | None = None,
    ) -> "Purse":
        """Open a data set that is already on a ledger, under the terms recorded there. Never makes a new ledger."""
        opened = SqliteLedger(ledger, must_exist=True) if isinstance(ledger, str | os.PathLike) else open_ledger(ledger)
        terms = opened.terms(text(dataset=dataset))
        if terms is None:
            known = sorted({entry.dataset for entry in opened.entries()})
            raise InvalidArgument(
                f"dataset {dataset!r} is not on the ledger ({opened.location}), which holds {known!r}. "
                "Pass one of these, or open a new purse with Purse(epsilon, delta, ...)."
            )
        purse = cls.__new__(cls)
        purse._set_up(filters.from_terms(terms), opened, dataset, noise, who)
        return purse

    def _set_up(
        self,
        filter: Filter,
        ledger: "Ledger | str | os.PathLike[str] | None",
        dataset: str,
        noise: NoiseSource | str | None,
        who: str | None,
    ) -> None:
        self._filter = filter
        self._dataset = text(dataset=dataset)
        self._noise = choose_noise(noise, filter)
        self._who = current_user() if who is None else text(who=who)
        self._reservation: Reservation | None = None
        self._ledger = open_ledger(ledger)
        self._ledger.open_account(self._dataset, filter.terms(), filter.start(), who=self._who)

    @property
    def epsilon(self) -> float:
        """The limit's epsilon; infinity for a purse declared non-private."""
        return self._filter.epsilon

    @property
    def delta(self) -> float:
        """The limit's delta."""
        return self._filter.delta

    @property
    def neighbouring(self) -> Neighbouring:
        """The relation."""
        return self._filter.neighbouring

    @property
    def dataset(self) -> str:
        """The name of the data set on the ledger."""
        return self._dataset

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return self._ledger

    @property
    def filter(self) -> Filter:
        """The stopping rule."""
        return self._filter

    @property
    def who(self) -> str:
        """Who spends."""
        return self._who

    @property
    def noise(self) -> NoiseSource:
        """Where noise comes from."""
        return self._noise

    def release(self, box: Sensitive, mechanism: Mechanism, *, what: str = "release") -> FloatArray:
        """Pay for a noisy answer and return it.

        Parameters
        ----------
        box : Sensitive
            A sealed value from an oracle.
        mechanism : Mechanism
            How to make it private, such as ``Gaussian(noise_multiplier=2.0)``.
        what : str, default "release"
            What it is for; releases with the same words are grouped on the certificate.

        Returns
        -------
        ndarray
            The noisy value; public from here on.

        Raises
        ------
        BudgetExhausted
            It does not fit; nothing was spent, nothing was released, and something smaller may still fit.
        UnsupportedCharge
            The filter has no price for it, or the box's Poisson sample was already released once.
        """
        if not isinstance(box, Sensitive):
            raise InvalidArgument(
                f"box must be a Sensitive value from an oracle; got {type(box).__name__}. A plain array carries no "
                "bound, so it has no price: build the box with an oracle or with privypurse.oracles.statistics."
            )
        if not (hasattr(mechanism, "charge") and hasattr(mechanism, "draw")) or isinstance(mechanism, type):
            raise InvalidArgument(
                f"mechanism must have charge and draw; got {shown(mechanism)}. "
                "Pass for example Gaussian(noise_multiplier=2.0)."
            )
        text(what=what)
        charge = mechanism.charge(box, self.neighbouring)
        noise = noise_for(mechanism, box, self.neighbouring, self._noise)
        other = _charge_under_the_other_relation(box, mechanism, self.neighbouring)
        with box.sample.take() if box.sample_prob < 1 else contextlib.nullcontext():
            self._pay(charge, other, what, exact=noise.sampler if noise.secure else None)
        return mechanism.draw(box, self.neighbouring, noise)

    def _pay(self, charge: SingleCharge, other: SingleCharge | None, what: str, *, exact: str | None = None) -> None:
        """Put a charge on the ledger, or raise. What follows may open the box; `exact` names the sampler, if it is exact."""
        if not isinstance(charge, SingleCharge):
            raise UnsupportedCharge(f"no filter has a price for {charge!r}; it is refused. Return one of core.charges.")
        reservation = self._reservation
        if reservation is not None and reservation.pay(charge, other, what, exact=exact):
            return
        body = {
            "charge": describe(charge),
            "other": describe(other),
            "simulation": self._noise.simulation,
            "exact": exact,
        }
        self._ledger.append(
            self._dataset,
            CHARGE,
            body,
            who=self._who,
            what=what,
            decide=lambda spent: self._filter.admit(spent, charge),
        )

    @contextlib.contextmanager
    def reserve(self, releases: int = 1000) -> Iterator["Purse"]:
        """Pay for releases in blocks, so that they need not each wait for the disk.

        Inside the ``with`` statement, the first release reserves this many of its like, but at most half of what is left, and
        later ones are paid from the block; budgets may still be chosen freely. At the end the unused part comes back. (A
        `FixedSchedule` gets it back unless another process went on in the meantime.) A crash inside leaves the whole block spent.

        Until it comes back, a reserved block is spent in the eyes of other processes: reserve what the loop will need, not more.

        Parameters
        ----------
        releases : int, default 1000
            Size of a block, in releases like its first one.
        """
        releases = positive_integer(releases=releases)
        if self._reservation is not None and self._reservation.usable:
            yield self  # already inside one
            return
        simulation = self._noise.simulation
        reservation = Reservation(self._ledger, self._dataset, self._filter, self._who, releases, simulation)
        self._reservation = reservation
        try:
            yield self
        finally:
            self._reservation = None
            reservation.close()

    @property
    def spent(self) -> Spent:
        """What is spent. Inside `reserve`, what other processes spent since the block began is not looked up."""
        totals = self.totals
        return Spent(self._filter.epsilon_of(totals, self.delta), self.delta, totals.releases)

    @property
    def remaining(self) -> Remaining:
        """What is left. Inside `reserve`, what other processes spent since the block began is not looked up."""
        totals = self.totals
        return Remaining(
            epsilon=self._filter.epsilon_left(totals),
            delta=self.delta,
            fraction=self.fraction_left,
            noise_multiplier=self._filter.smallest_noise_multiplier(totals),
            selection_epsilon=self._filter.largest_epsilon(totals),
        )

    @property
    def fraction_left(self) -> float:
        """Share of the limit that is left: the one part of `remaining` that costs nothing to look at."""
        return self._filter.fraction_left(self._filter.start(), self.totals)

    def pay_again(self, charge: SingleCharge, *, what: str) -> None:
        """Charge for a release that was made earlier and is not on the ledger; releases nothing.

        For runs that go on from a checkpoint with a ledger that does not remember them.
        """
        self._pay(charge, None, text(what=what))

    @property
    def totals(self) -> Totals:
        """What is spent, in the filter's own currency; for schedules that count in shares of what is left."""
        known = self._reservation.known if self._reservation is not None else None
        return self._ledger.totals(self._dataset) if known is None else known

    def declare_uncovered(self, what: str) -> None:
        """Put on record that something was done with the data outside this purse, for the certificate to name."""
        self._ledger.append(
            self._dataset, UNCOVERED, {}, who=self._who, what=text(what=what), decide=lambda spent: spent
        )

    def note(self, what: str, details: dict[str, Any]) -> None:
        """Put a remark on the ledger for people who read it, such as which job begins; of public things only."""
        self._ledger.append(
            self._dataset, NOTE, details, who=self._who, what=text(what=what), decide=lambda spent: spent
        )

    def freeze(self, why: str) -> None:
        """Close the account for good: whatever is left cannot be spent, but for blocks that a run under way has paid for."""
        self._ledger.append(self._dataset, FREEZE, {}, who=self._who, what=text(why=why), decide=lambda spent: spent)

    def certificate(self) -> Certificate:
        """State the guarantee, what was spent on what, and what is not covered; settles an open reservation."""
        if self._reservation is not None:
            self._reservation.settle()
        return certify(self._ledger, self._dataset, self._filter)

    def __reduce__(self) -> Any:
        # The parts refuse or reconnect by themselves: a memory ledger and a seeded source cannot be pickled.
        return (_rebuild, (self._filter, self._ledger, self._dataset, self._noise, self._who))

    def __repr__(self) -> str:
        return (
            f"<Purse: epsilon={self.epsilon:g}, delta={self.delta:g}, {self.neighbouring.value}, "
            f"{self._filter.name} filter, data set {self._dataset!r}>"
        )


def _rebuild(filter: Filter, ledger: Ledger, dataset: str, noise: NoiseSource, who: str) -> Purse:
    """Unpickle: the account must be on the ledger already."""
    if ledger.terms(dataset) is None:
        raise LedgerCorrupt(
            f"the ledger ({ledger.location}) has no account for {dataset!r}, which this purse spends from."
        )
    return Purse.with_filter(filter, ledger=ledger, dataset=dataset, noise=noise, who=who)


def _charge_under_the_other_relation(
    box: Sensitive, mechanism: Mechanism, neighbouring: Neighbouring
) -> SingleCharge | None:
    """Describe the same release under the relation that is not the purse's, where box and mechanism can."""
    seen_under = getattr(mechanism, "charge_seen_under", None)
    if seen_under is None or not box.has_bound(neighbouring.other):
        return None
    charge: SingleCharge = seen_under(box, neighbouring, neighbouring.other)
    return charge
