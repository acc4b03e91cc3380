"""[DECIDES] The purse: every released value passes through it and is charged before it is drawn."""

import contextlib
import functools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from privypurse.accounting import _filters as filters
from privypurse.accounting._totals import Filter, Totals
from privypurse.core._checks import positive, positive_integer, shown, small_probability, text
from privypurse.core._errors import (
    BudgetExhausted,
    InvalidArgument,
    LedgerCorrupt,
    UnsupportedCharge,
    count_charge,
    spending_noted,
)
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import LEAST_PLAIN_DELTA, NoiseSource, Shared
from privypurse.core._sensitive import Sensitive
from privypurse.core._statement import check_statement
from privypurse.core.charges import SingleCharge
from privypurse.core.queries import Released
from privypurse.mechanisms._base import Mechanism
from privypurse.purse._certificate import Certificate, certify
from privypurse.purse._entries import CHARGE, FREEZE, NOTE, UNCOVERED
from privypurse.purse._ledger import Decide, Ledger, MemoryLedger, current_user
from privypurse.purse._reservation import Reservation, describe
from privypurse.purse._sqlite_ledger import SqliteLedger

LedgerLike = Ledger | str | os.PathLike[str] | None
NoiseLike = NoiseSource | str | None


def open_ledger(ledger: LedgerLike) -> Ledger:
    """Open or create a ledger, or return the one that is given."""
    if ledger is None:
        return MemoryLedger()
    if isinstance(ledger, str | os.PathLike):
        return SqliteLedger(ledger)
    if not hasattr(ledger, "open_account"):
        raise InvalidArgument(f"ledger must be None, a file name or a Ledger; got {ledger!r}. Pass 'budget.db'.")
    return ledger


def choose_noise(noise: NoiseLike, filter: Filter) -> NoiseSource:
    """Return a noise source. Raise InvalidArgument if it is unfit for the filter."""
    source = NoiseSource.parse(noise)
    if source.strict:
        _check_delta(source, filter)
    if source.sampler in ("discrete", "opendp") and filter.name not in ("zcdp", "non-private"):
        what = f"noise={source.sampler!r} has a price in zCDP only, but the filter is {filter.name!r}"
        raise InvalidArgument(f"{what}. Pass filter='zcdp', or noise='secure', which every filter can price.")
    return source


_PLAIN = NoiseSource(secure=False)


@functools.lru_cache(maxsize=256)
def draws_exactly(kind: type) -> bool:
    """Return whether a class declares its `draw` exact; an overriding draw must do so again."""
    for base in kind.__mro__:
        if "check_noise" in vars(base):
            return True
        if "draw" in vars(base):
            return False
    return False


def _check_delta(noise: NoiseSource, filter: Filter) -> NoiseSource:
    """Raise InvalidArgument where floating-point noise cannot keep the filter's delta."""
    fine = filter.delta >= LEAST_PLAIN_DELTA or math.isinf(filter.epsilon)
    if not (fine or noise.secure or noise.simulation):
        what = f"delta must be at least {LEAST_PLAIN_DELTA:g} with noise in floating point; got {filter.delta!r}"
        raise InvalidArgument(f"{what}. Open the purse with noise='secure', or with a larger delta.")
    return noise


def noise_for(mechanism: Any, box: Sensitive, filter: Filter, noise: NoiseSource) -> NoiseSource:
    """Return the noise source for a release: the purse's, or plain if exact noise is costly.

    Raises before the charge where the purse requires exact noise and the mechanism has none, or
    where plain noise cannot keep the filter's delta.
    """
    if not noise.secure:
        return _check_delta(noise, filter)
    kind: type = type(mechanism)
    exact = draws_exactly(kind)
    if noise.strict and not exact:
        what = f"mechanism {type(mechanism).__name__} does not declare exact noise (it has no check_noise of its own)"
        raise InvalidArgument(f"{what}; got {noise.sampler!r} noise. Open the purse with noise='plain'.")
    if exact and (noise.strict or getattr(mechanism, "exact_by_default", True)):
        try:
            mechanism.check_noise(box, filter.neighbouring, noise)
            return noise
        except InvalidArgument:
            if noise.strict:
                raise
    return _check_delta(_PLAIN, filter)


def check_filter(filter: Filter) -> Filter:
    """Raise InvalidArgument unless `filter` is a Filter."""
    if not hasattr(filter, "admit") or isinstance(filter, type):
        what = f"filter must be one of {sorted(filters.BY_NAME)} or a filter object; got {filter!r}"
        raise InvalidArgument(f"{what}. Omit it for 'gdp', or pass for example RdpFilter(1.0, 1e-6, 'add-remove').")
    return filter


def choose_filter(filter: "Filter | str", epsilon: float, delta: float, neighbouring: Neighbouring) -> Filter:
    """Make a filter from its name, or return one that agrees with the other terms."""
    epsilon, delta = positive(epsilon=epsilon), small_probability(delta=delta)
    if isinstance(filter, str) and filter in filters.BY_NAME:
        chosen: Filter = filters.BY_NAME[filter](epsilon, delta, neighbouring)
        return chosen
    check_filter(filter)  # type: ignore[arg-type]
    for name, mine in (("epsilon", epsilon), ("delta", delta), ("neighbouring", neighbouring)):
        if mine != (its := getattr(filter, name)):
            raise InvalidArgument(f"{name} must agree between purse and filter; got {mine!r} and {its!r}. Pass one.")
    return filter  # type: ignore[return-value]


class Observer(Protocol):
    """Sees every release of a process. For audits; see `Purse.observed_by`."""

    def watch(self, purse: "Purse", mechanism: Mechanism) -> Mechanism:
        """Return the mechanism to charge and draw from instead."""

    def hear(self, purse: "Purse", box: Sensitive, mechanism: Mechanism, what: str, released: Released | None) -> None:
        """Note a release of the mechanism that `watch` returned; None where it raised."""


@dataclass(frozen=True)
class Spent:
    """Privacy loss of the recorded releases.

    The *guarantee* of a purse is its limit. With budgets chosen from outputs, the spend at the
    moment of stopping is a record, not a smaller guarantee.
    """

    epsilon: float
    delta: float
    releases: int


@dataclass(frozen=True)
class Remaining:
    """What is left in a purse.

    `epsilon` is that of a fresh purse of the remaining size. Budgets do not add up in epsilon, so
    this plus the spent epsilon exceeds the limit.
    """

    epsilon: float
    delta: float
    fraction: float  # share of the limit, in units that do add up (mu squared, by default)
    noise_multiplier: float  # least one of one more Gaussian release of all records; infinity if none fits
    selection_epsilon: float  # largest one of one more `ExponentialSelection`; zero if none fits


class Purse(Shared):
    """A privacy budget, and the only way to release a value computed from private data.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee: everything ever released through this purse together is (epsilon, delta)-DP.
    neighbouring : {"add-remove", "replace-one"} or Neighbouring
        The meaning of "one record". No default on purpose: replace-one needs twice the noise for
        the same epsilon.
    ledger : None, path or Ledger, default None
        Where spending is recorded. None: in memory, for one process. A path: a SQLite file that
        outlives the process and can be shared by threads, processes and people.
    dataset : str, default "default"
        Name of this data set on the ledger. A data set has one permanent budget.
    filter : {"gdp", "zcdp", "rdp"} or Filter, default "gdp"
        The stopping rule. All of these are sound for budgets chosen from earlier outputs. Pass an
        object for other settings of `RdpFilter`, or for a `FixedSchedule`.
    noise : NoiseSource or {"auto", "secure", "plain", "discrete", "opendp"}, optional
        Operating-system entropy, by default ("auto") in exact arithmetic wherever that costs
        little. "secure" refuses mechanisms without exact noise. "plain" draws in floating point,
        for deltas from 1e-15 on. The last two draw the discrete Gaussian and need the zCDP filter.
        A seeded source makes the run a simulation, and is marked so.
    who : str, optional
        Name recorded on the ledger; the login name by default.

    Guarantees
    ----------
    * `release` charges before noise is drawn, and draws noise before anything leaves: the charge is
      computed from the box's own bound, recorded in one transaction with the decision that it fits,
      and only then is the box opened. A crash in between over-counts, never under-counts.
    * A refused charge changes nothing; a smaller one that fits is then admitted.
    * ``copy``, ``deepcopy`` and scikit-learn's ``clone`` return the same purse; pickling works
      where the ledger is a file.
    * `observer` is None except while an audit runs (`observed_by`). It belongs to the process, not
      to a purse, so no copy, pickle or file carries one.

    Examples
    --------
    >>> from privypurse import Gaussian, Purse
    >>> from privypurse.oracles.statistics import clipped_sum
    >>> ages = [[31.0], [45.0], [62.0], [28.0]]
    >>> purse = Purse(epsilon=1.0, delta=1e-6, neighbouring="add-remove")
    >>> released = purse.release(clipped_sum(ages, clip_norm=90.0), Gaussian(noise_multiplier=20.0), what="sum of ages")
    >>> released.value.shape, released.noise_std
    ((1,), 1800.0)
    >>> round(purse.spent.epsilon, 3), purse.spent.releases
    (0.189, 1)
    """

    observer: ClassVar[Observer | None] = None

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        neighbouring: Neighbouring | str,
        ledger: LedgerLike = None,
        dataset: str = "default",
        filter: "Filter | str" = "gdp",
        noise: NoiseLike = None,
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
        ledger: LedgerLike = None,
        dataset: str = "default",
        noise: NoiseLike = None,
        who: str | None = None,
    ) -> "Purse":
        """Make a purse without a limit, declared NOT PRIVATE on its ledger and certificate."""
        filter = filters.DeclaredNonPrivate(delta, neighbouring)
        return cls.with_filter(filter, ledger=ledger, dataset=dataset, noise=noise, who=who)

    @classmethod
    def with_filter(
        cls,
        filter: Filter,
        *,
        ledger: LedgerLike = None,
        dataset: str = "default",
        noise: NoiseLike = None,
        who: str | None = None,
    ) -> "Purse":
        """Make a purse from a filter, which has epsilon, delta and the relation."""
        purse = cls.__new__(cls)
        purse._set_up(check_filter(filter), ledger, dataset, noise, who)
        return purse

    @classmethod
    def reopen(
        cls, ledger: LedgerLike, dataset: str = "default", *, noise: NoiseLike = None, who: str | None = None
    ) -> "Purse":
        """Open a data set on an existing ledger, under its recorded terms."""
        opened = SqliteLedger(ledger, must_exist=True) if isinstance(ledger, str | os.PathLike) else open_ledger(ledger)
        terms = opened.terms(text(dataset=dataset))
        if terms is None:
            known = sorted({entry.dataset for entry in opened.entries()})
            what = f"dataset {dataset!r} is not on the ledger ({opened.location}), which holds {known!r}"
            raise InvalidArgument(f"{what}. Pass one of these, or open a new purse with Purse(epsilon, delta, ...).")
        return cls.with_filter(filters.from_terms(terms), ledger=opened, dataset=dataset, noise=noise, who=who)

    def _set_up(self, filter: Filter, ledger: LedgerLike, dataset: str, noise: NoiseLike, who: str | None) -> None:
        self._filter, self._unspent = filter, filter.start()
        self._dataset = text(dataset=dataset)
        self._noise = choose_noise(noise, filter)
        self._who = current_user() if who is None else text(who=who)
        self._reservation: Reservation | None = None
        self._ledger = open_ledger(ledger)
        self._ledger.open_account(self._dataset, filter.terms(), self._unspent, who=self._who)

    @property
    def epsilon(self) -> float:
        """Epsilon of the limit; infinity for a non-private purse."""
        return self._filter.epsilon

    @property
    def delta(self) -> float:
        """Delta of the limit."""
        return self._filter.delta

    @property
    def neighbouring(self) -> Neighbouring:
        """The neighbouring relation."""
        return self._filter.neighbouring

    @property
    def dataset(self) -> str:
        """Name of the data set on the ledger."""
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
        """Name recorded on the ledger."""
        return self._who

    @property
    def noise(self) -> NoiseSource:
        """Source of noise."""
        return self._noise

    @spending_noted(call="Purse.release")
    def release(self, box: Sensitive, mechanism: Mechanism, *, what: str = "release") -> Released:
        """Charge for a noisy answer and return it.

        Parameters
        ----------
        box : Sensitive
            A sealed value from an oracle.
        mechanism : Mechanism
            How to make it private, such as ``Gaussian(noise_multiplier=2.0)``.
        what : str, default "release"
            Purpose; releases with the same purpose are grouped on the certificate.

        Returns
        -------
        Released
            The noisy value, which is public, with its charge and the standard deviation of its noise.

        Raises
        ------
        BudgetExhausted
            It does not fit. Nothing was spent or released; a smaller release may still fit.
        UnsupportedCharge
            The filter has no price for it, or the box's Poisson sample was already released.
        """
        observer, released = Purse.observer, None
        if observer is None:
            return self._release(box, mechanism, what)
        watched = observer.watch(self, mechanism)
        try:
            released = self._release(box, watched, what)
            return released
        finally:
            observer.hear(self, box, watched, what, released)

    def _release(self, box: Sensitive, mechanism: Mechanism, what: str) -> Released:
        if not isinstance(box, Sensitive):
            what = f"box must be a Sensitive value from an oracle; got {type(box).__name__}. Others have no bound"
            raise InvalidArgument(f"{what}, so they have no price: use an oracle or privypurse.oracles.statistics.")
        if not (hasattr(mechanism, "charge") and hasattr(mechanism, "draw")) or isinstance(mechanism, type):
            raise InvalidArgument(f"mechanism must have charge and draw; got {shown(mechanism)}. Pass Gaussian(2.0).")
        text(what=what)
        relation, sample = self._filter.neighbouring, box.sample
        charge = mechanism.charge(box, relation)
        noise = noise_for(mechanism, box, self._filter, self._noise)
        other: SingleCharge | None = None  # the replace-one charge of an add/remove release, where it is known
        if relation is Neighbouring.ADD_REMOVE and box.replace_one is not None:
            seen_under = getattr(mechanism, "charge_seen_under", None)
            other = seen_under and seen_under(box, relation, Neighbouring.REPLACE_ONE)
        with contextlib.nullcontext() if sample is None else sample.take():
            how: Any = {"exact": noise.sampler if noise.secure else None, "sensitivity": box.sensitivity(relation)}
            self._pay(charge, other, what, **how)
        value = mechanism.draw(box, relation, noise)
        noise_std = mechanism.noise_std(box, relation) if hasattr(mechanism, "noise_std") else None
        return Released(value, charge, noise_std)

    @staticmethod
    @contextlib.contextmanager
    def observed_by(observer: Observer | None) -> Iterator[None]:
        """Show every release of this process to an observer. For audits only, on synthetic data.

        All purses are covered, since a run may open purses of its own. An observer cannot change
        what is released, except by another mechanism, which is charged.
        """
        before, Purse.observer = Purse.observer, observer
        try:
            yield
        finally:
            Purse.observer = before

    def _pay(self, charge: SingleCharge, other: SingleCharge | None, what: str, **how: Any) -> None:
        """Record a charge, or raise. `how` may have `exact`, the sampler of exact noise, and `sensitivity`."""
        if not isinstance(charge, SingleCharge):
            raise UnsupportedCharge(f"no filter has a price for {charge!r}. Return one of core.charges.")
        reservation = self._reservation
        try:
            if reservation is None or not reservation.pay(charge, other, what, **how):
                body: dict[str, Any] = {"charge": describe(charge), "other": describe(other)}
                body |= {"simulation": self._noise.simulation, "exact": None, "sensitivity": None} | how
                self._append(CHARGE, body, what, lambda spent: self._filter.admit(spent, charge))
        except (BudgetExhausted, UnsupportedCharge):
            raise
        except BaseException:  # an interrupted charge may be on the ledger
            count_charge()
            raise
        count_charge()

    @contextlib.contextmanager
    def reserve(self, releases: int = 1000) -> Iterator["Purse"]:
        """Charge for releases in blocks, so that each need not wait for the disk.

        Inside the ``with`` statement, the first release reserves this many of its kind, but at most
        half of what is left. Later ones are charged from the block; budgets may still be chosen
        freely. At the end the unused part is returned. (A `FixedSchedule` gets it back unless
        another process continued in the meantime.) A crash leaves the whole block spent. Other
        processes see a reserved block as spent until then, so reserve only what the loop will need.

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
            reservation.settle(close=True)

    @property
    def spent(self) -> Spent:
        """What is spent. Inside `reserve`, later spending of other processes is not included."""
        totals = self.totals
        return Spent(self._filter.epsilon_of(totals, self.delta), self.delta, totals.releases)

    @property
    def remaining(self) -> Remaining:
        """What is left. Inside `reserve`, later spending of other processes is not included."""
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
        """Share of the limit that is left; cheaper than `remaining`."""
        return self._filter.fraction_left(self._unspent, self.totals)

    def pay_again(self, charge: SingleCharge, *, what: str) -> None:
        """Charge for an earlier release, of a resumed run, that is not on the ledger."""
        self._pay(charge, None, text(what=what))

    @property
    def totals(self) -> Totals:
        """Spent totals in the filter's own units; for schedules that use shares of what is left."""
        block = self._reservation.block if self._reservation is not None else None
        return self._ledger.totals(self._dataset) if block is None else block[0]

    @property
    def block(self) -> tuple[Totals, Totals] | None:
        """Inside `reserve`: spent totals, and totals on the ledger. None without a reservation."""
        return self._reservation.block if self._reservation is not None else None

    def declare_uncovered(self, what: str) -> None:
        """Record something done with the data outside this purse, for the certificate."""
        self._append(UNCOVERED, {}, text(what=what))

    def note(self, what: str, details: dict[str, Any]) -> None:
        """Put a remark on the ledger, such as which job begins; of public things only."""
        if what == "statement" or "statement" in details:
            check_statement(details.get("statement"))
        self._append(NOTE, details, text(what=what))

    def freeze(self, why: str) -> None:
        """Close the account permanently, except for blocks that a running job has reserved."""
        self._append(FREEZE, {}, text(why=why))

    def _append(self, kind: str, body: Any, what: str, decide: Decide = lambda spent: spent) -> None:
        """Put a line on the ledger, by default one that spends nothing."""
        self._ledger.append(self._dataset, kind, body, who=self._who, what=what, decide=decide)

    def certificate(self) -> Certificate:
        """Certify the guarantee and the spending. Settles an open reservation."""
        if self._reservation is not None:
            self._reservation.settle()
        return certify(self._ledger, self._dataset, self._filter)

    def __reduce__(self) -> Any:
        # Memory ledgers and seeded sources refuse to be pickled themselves.
        return (_rebuild, (self._filter, self._ledger, self._dataset, self._noise, self._who))

    def __repr__(self) -> str:
        return (
            f"<Purse: epsilon={self.epsilon:g}, delta={self.delta:g}, {self.neighbouring.value}, "
            f"{self._filter.name} filter, data set {self._dataset!r}>"
        )


def _rebuild(filter: Filter, ledger: Ledger, dataset: str, noise: NoiseSource, who: str) -> Purse:
    """Unpickle; the account must be on the ledger."""
    if ledger.terms(dataset) is None:
        raise LedgerCorrupt(f"the ledger ({ledger.location}) has no account for {dataset!r}, where this purse spends.")
    return Purse.with_filter(filter, ledger=ledger, dataset=dataset, noise=noise, who=who)
