"""The certificate: the guarantee, what was spent on what, and what is not covered."""

import hashlib
import json
import math
import pathlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from privypurse.accounting import _filters as filters
from privypurse.accounting._filters import DeclaredNonPrivate
from privypurse.accounting._totals import Filter
from privypurse.core._checks import shown
from privypurse.core._errors import FileUnusable, InvalidArgument, LedgerCorrupt
from privypurse.core._formats import counted, rounded_up
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._reading import check_fields, finite_or_none, read_json, refusing
from privypurse.core._statement import QUESTIONS
from privypurse.core._version import __version__
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.purse._entries import NOTE, canonical, declared_statement, declared_uncovered
from privypurse.purse._ledger import Ledger, current_user, now
from privypurse.purse._replay import EXACT_SAMPLERS, Record, Releases, read_record

FORMAT = 1

ALWAYS_UNCOVERED = (
    "anything computed from the data without this purse, such as scaling, feature choice, tuning or looking at the table",
    "several records of one person: the guarantee is for one record",
)
INEXACT = "gaps between floating-point numbers in the noise, running time and other side channels"
EXACT = "running time and other side channels"

SAMPLING = (
    "that records were sampled independently, with the stated probabilities and in secret, where an oracle outside this "
    "library drew the sample"
)


@dataclass(frozen=True)
class Group:
    """Releases with the same purpose and mechanism, counted together."""

    what: str
    kind: str  # of charge
    count: int
    smallest: float | None  # noise multiplier of Gaussian releases, or epsilon of selections
    largest: float | None
    sample_prob: float = 1.0  # Poisson sampling rate of the records behind them
    # Under the relation of the purse. None where an earlier version recorded them, or for one without a bound.
    least_sensitivity: float | None = None
    largest_sensitivity: float | None = None
    least_noise_std: float | None = None  # of Gaussian noise
    largest_noise_std: float | None = None


# Fields that earlier versions did not write.
_LATER = ("least_sensitivity", "largest_sensitivity", "least_noise_std", "largest_noise_std")


@dataclass(frozen=True)
class UnderRelation:
    """The guarantee under one neighbouring relation; None where none is stated (`why_not_stated`).

    `epsilon` and `delta` follow from the limit and hold however budgets were chosen.
    `recorded_epsilon` is that of the recorded releases at that delta; equal to a guarantee where
    budgets were fixed in advance.
    """

    epsilon: float | None
    delta: float | None
    recorded_epsilon: float | None


NOT_STATED = UnderRelation(None, None, None)


@dataclass(frozen=True)
class Certificate:
    """A statement about everything released on one data set.

    Made by ``purse.certificate()``. ``str()`` gives prose, `to_json` data; `save` chooses by
    suffix.

    Parameters
    ----------
    dataset : str
        The data set.
    private, simulation : bool
        Whether the guarantee holds; whether any noise was seeded, which makes it not hold.
    epsilon, delta : float
        The guarantee, under `neighbouring`: the limit of the purse.
    neighbouring, theorem : str
        The relation, and the rule and papers behind the guarantee.
    recorded_epsilon : float
        Epsilon of all charges at that delta.
    releases, unreleased : int
        Number of released values, and of values charged in blocks that were not released or are not
        known to be (after a crash).
    unsettled : int
        Number of blocks that were never settled.
    relations : dict of str to UnderRelation
        The guarantee under each relation; none for add/remove where `neighbouring` is replace-one.
    groups : tuple of Group
        The releases, grouped.
    uncovered : tuple of str
        What the guarantee does not cover.
    noise : str
        Source of the noise.
    people : tuple of str
        Who spent.
    ledger, ledger_lines, ledger_digest
        The ledger, its number of lines and its last SHA-256, as `head`.
    issued_by, issued_at, version, format
        Issuer, time, version of privypurse, and format of the JSON.
    part_of : str
        For a certificate of a part of what was released: the whole. Otherwise empty.
    statement : dict of str to str
        What people stated of what the library cannot know, by its key in a schema.
    """

    dataset: str
    private: bool
    simulation: bool
    epsilon: float
    delta: float
    neighbouring: str
    theorem: str
    recorded_epsilon: float
    releases: int
    unreleased: int
    unsettled: int
    relations: dict[str, UnderRelation]
    groups: tuple[Group, ...]
    uncovered: tuple[str, ...]
    noise: str
    people: tuple[str, ...]
    ledger: str
    ledger_lines: int
    ledger_digest: str
    issued_by: str
    issued_at: str
    version: str
    format: int = FORMAT
    part_of: str = ""
    statement: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Write the certificate as JSON. An infinite epsilon is null; it is then not private."""
        fields = asdict(self)
        if not self.statement:  # as earlier versions wrote it
            del fields["statement"]
        fields["groups"] = [
            {k: v for k, v in group.items() if k not in _LATER or v is not None} for group in fields["groups"]
        ]
        return json.dumps(finite_or_none(fields, nan=False), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Certificate":
        """Read a certificate back from `to_json`."""
        with refusing("expected a privypurse certificate, as to_json writes it."):
            fields = read_json(text)
            if fields["format"] != FORMAT:
                what = f"the certificate has format {fields['format']!r}; expected {FORMAT}"
                raise InvalidArgument(f"{what}. Install the version that wrote it.")
            for name in ("epsilon", "recorded_epsilon"):
                fields[name] = math.inf if fields[name] is None else fields[name]
            fields["relations"] = {name: UnderRelation(**under) for name, under in fields["relations"].items()}
            fields["groups"] = tuple(Group(**group) for group in fields["groups"])
            fields["uncovered"], fields["people"] = tuple(fields["uncovered"]), tuple(fields["people"])
            certificate = cls(**fields)
            check_fields(certificate)
            return certificate

    @classmethod
    def load(cls, path: "str | pathlib.Path") -> "Certificate":
        """Read a certificate from a ``.json`` file."""
        try:
            text = pathlib.Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise FileUnusable(f"certificate {str(path)!r} cannot be read: {error.strerror}. Pass another.") from error
        except ValueError as error:  # not UTF-8, or a null byte in the name
            raise InvalidArgument(f"{str(path)!r} is not a privypurse certificate. Pass what to_json wrote.") from error
        return cls.from_json(text)

    @property
    def head(self) -> tuple[int, str]:
        """Number of lines and digest that pin the ledger; pass it to ``ledger.verify``."""
        return self.ledger_lines, self.ledger_digest

    def save(self, path: "str | pathlib.Path") -> None:
        """Write JSON to a ``.json`` file, prose to any other."""
        target = pathlib.Path(path)
        text = self.to_json() if target.suffix == ".json" else str(self)
        # Names may hold bytes that are not text.
        target.write_text(text, encoding="utf-8", errors="backslashreplace")

    def __str__(self) -> str:
        return "\n".join(_prose(self)) + "\n"


def certify(ledger: Ledger, dataset: str, filter: Filter, *, lines: int | None = None) -> Certificate:
    """Build the certificate of a data set from its ledger, after verifying the whole chain.

    It is about the state after so many `lines` of the ledger, by default all of them.
    """
    ledger.verify()
    last, digest = ledger.head()
    if lines is not None and lines != last:
        last, digest = lines, next((entry.digest for entry in ledger.entries() if entry.seq == lines), "")
    entries = [entry for entry in ledger.entries(dataset) if entry.seq <= last]
    if not entries:
        raise LedgerCorrupt(f"the ledger up to line {last} is not about data set {dataset!r}.")
    record = read_record(entries)
    totals = entries[-1].totals
    both = all(other is not None for _, other, *_ in record.releases)
    others = [RepeatedCharge(other, count) for (_, other, *_), count in record.releases.items() if other]
    # An unsettled block is charged, but its single releases are not known.
    known = both and not record.unsettled
    relations = {}
    for relation in Neighbouring:
        own = relation is filter.neighbouring
        epsilon, delta = filter.guarantee_under(relation)
        relations[relation.value] = NOT_STATED
        if math.isfinite(epsilon) and (own or (known and delta < 1)):
            recorded = filter.epsilon_of(totals, delta) if own else filter.epsilon_under(relation, others, delta)
            relations[relation.value] = UnderRelation(epsilon, delta, recorded)
    non_private = isinstance(filter, DeclaredNonPrivate)
    released = sum(record.releases.values())
    sampled = any(getattr(charge, "sample_prob", 1.0) < 1 for charge, *_ in record.releases)
    declared = declared_uncovered(entries)
    return Certificate(
        dataset=dataset,
        private=not non_private and not record.simulation,
        simulation=record.simulation,
        epsilon=filter.epsilon,
        delta=filter.delta,
        neighbouring=filter.neighbouring.value,
        theorem=filter.theorem,
        recorded_epsilon=filter.epsilon_of(totals, filter.delta),
        releases=released,
        unreleased=totals.releases - released,
        unsettled=len(record.unsettled),
        relations=relations,
        groups=_groups(record.releases),
        uncovered=(*declared, *((SAMPLING,) if sampled else ()), *ALWAYS_UNCOVERED, EXACT if record.exact else INEXACT),
        noise=_noise(record),
        people=tuple(sorted({entry.who for entry in entries})),
        ledger=ledger.location,
        ledger_lines=last,
        ledger_digest=digest,
        issued_by=current_user(),
        issued_at=now(),
        version=__version__,
        statement=declared_statement(entries),
    )


def why_not_stated(certificate: Certificate, name: str) -> str | None:
    """Return why a certificate has no guarantee under a relation; None where it has one.

    Under replace-one the number of records is public and may have been used, for example as a
    divisor. Tables of n and n + 1 records can then be told apart, so nothing follows for
    add/remove. Earlier versions stated the limit there all the same.
    """
    if (certificate.neighbouring, name) == (Neighbouring.REPLACE_ONE.value, Neighbouring.ADD_REMOVE.value):
        return "the number of records is public under replace-one and may have been used"
    if certificate.relations[name].epsilon is None:
        return "what some release is under this relation is not on record"
    return None


def _noise(record: Record) -> str:
    """Describe the source of the noise, as the ledger has it."""
    entropy = "seeded (SIMULATION, not private)" if record.simulation else "operating-system entropy"
    if record.samplers["opendp"]:
        entropy += " and OpenDP's own"  # of which only Gaussian noise is drawn
    released = sum(record.releases.values())
    exactly = sum(count for sampler, count in record.samplers.items() if sampler in EXACT_SAMPLERS)
    said = [entropy]
    if record.exact:
        gaussian = any(isinstance(charge, GaussianCharge) for charge, *_ in record.releases)
        said.append("exact arithmetic" + (" (discrete Gaussian)" if gaussian and not record.samplers["secure"] else ""))
    elif exactly:
        # No plural: certificates of earlier versions are compared with this text.
        said.append(f"exact arithmetic for {exactly} of {released} releases")
    if exactly < released:
        said.append("floating point for others" if exactly else "floating point")
    if blocks := len(record.unsettled):
        said.append(f"unknown for {'a block that was' if blocks == 1 else f'{blocks} blocks that were'} not settled")
    return ", ".join(said)


def _groups(releases: Releases) -> tuple[Group, ...]:
    found: dict[tuple[str, str, float], list[tuple[float | None, float | None, int]]] = {}
    for (charge, _, what, bound), count in releases.items():
        level = getattr(charge, "noise_multiplier", getattr(charge, "epsilon", None))
        found.setdefault((what, charge.kind, getattr(charge, "sample_prob", 1.0)), []).append((level, bound, count))
    groups = []
    for (what, kind, sample_prob), members in found.items():
        known = all(bound is not None for _, bound, _ in members)
        bounds = [bound for _, bound, _ in members if known]
        noises = [level * bound for level, bound, _ in members if known and level and bound and kind == "gaussian"]
        levels, count = [level for level, *_ in members], sum(count for *_, count in members)
        groups.append(Group(what, kind, count, *_ends(levels), sample_prob, *_ends(bounds), *_ends(noises)))
    return tuple(groups)


def _ends(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Return the smallest and the largest value that is known; None where there is none."""
    known = [value for value in values if value is not None]
    return min(known, default=None), max(known, default=None)


def _prose(c: Certificate) -> Iterable[str]:
    yield f"Privacy certificate for {'one part of what was released on ' if c.part_of else ''}the data set {c.dataset!r}"
    yield ""
    if c.simulation:
        yield "SIMULATION: the noise was seeded and can be repeated. NOT PRIVATE: nothing below is a guarantee."
    elif not c.private:
        yield "NOT PRIVATE: values were released under a purse without a limit."
    else:
        yield (
            f"Everything released through this {'part of a ' if c.part_of else ''}purse together is "
            f"({rounded_up(c.epsilon, 9)}, {rounded_up(c.delta, 9)})-differentially private under the relation {c.neighbouring}."
        )
    if c.part_of:
        yield f"It is a part of {c.part_of}. The certificate of that purse is the one for everything."
    yield ""
    yield "Guarantee under each relation, and what the recorded releases come to:"
    for name, under in c.relations.items():
        reason = why_not_stated(c, name)
        if not c.private:
            yield f"  {name}: none"
        elif reason is not None or under.epsilon is None:
            yield f"  {name}: not stated; {reason}"
        else:
            recorded = under.recorded_epsilon
            spent = "" if recorded is None else f"; recorded epsilon {rounded_up(recorded)}"
            yield f"  {name}: epsilon {rounded_up(under.epsilon)}, delta {rounded_up(under.delta or 0.0)}{spent}"
    yield f"Rule: {c.theorem}"
    yield ""
    yield f"Released: {c.releases} value{'' if c.releases == 1 else 's'}"
    for group in c.groups:
        yield f"  {group.count} x {group.what} ({group.kind}{_levels(group)})"
    if c.unreleased:
        never = f", {c.unsettled} of the blocks never settled, as after a crash" if c.unsettled else ""
        yield f"  {c.unreleased} more paid for in reserved blocks and not known to be released{never}"
    yield ""
    yield "Not covered:"
    for item in c.uncovered:
        yield f"  - {' '.join(item.split())}"  # names in it may have line breaks
    yield ""
    if c.statement:
        yield "Stated by people, and not checked:"
        yield from (f"  - {QUESTIONS.get(key, key)}: {' '.join(answer.split())}" for key, answer in c.statement.items())
        yield ""
    yield f"Noise: {c.noise}"
    yield f"Spent by: {', '.join(c.people)}"
    yield f"Ledger: {c.ledger}, {counted(c.ledger_lines, 'line')}, last SHA-256 {c.ledger_digest}"
    yield f"Issued {c.issued_at} by {c.issued_by} with privypurse {c.version}"


def _levels(group: Group) -> str:
    if group.smallest is None or group.largest is None:
        return ""
    name = "epsilon" if group.kind in ("bounded-range", "pure") else "noise multiplier"
    # The last of many equal steps absorbs rounding; digits that are not shown do not count.
    spread = "" if f"{group.smallest:.6g}" == f"{group.largest:.6g}" else f" to {group.largest:.6g}"
    sampled = "" if group.sample_prob == 1 else f", each record sampled with probability {group.sample_prob:.6g}"
    return f", {name} {group.smallest:.6g}{spread}{sampled}"


# Fields that are not on the ledger, or may change.
_FREE = ("issued_by", "issued_at", "version", "ledger")
# Machines may differ in the last digits.
_TOLERANCE = 1e-9


def fingerprint(certificate: Certificate) -> dict[str, Any]:
    """Return what is recorded of a partial certificate: the pinned line and a hash."""
    text = canonical(json.loads(certificate.to_json()))
    return {"lines": certificate.ledger_lines, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def check_certificate(ledger: Ledger, certificate: Certificate) -> bool:
    """Raise LedgerCorrupt for a certificate that was not made from this ledger or was changed.

    Returns False for the certificate of a part that was not recorded, as after a fit from Python:
    it is only known to name a line of this ledger, which may have grown since. A line that
    `states_too_much` is not checked here.

    For a whole data set, everything but the issuer, the time, the version and the name of the
    ledger's file is recomputed from the lines up to the pinned one. For the part of a run from the
    command line, everything is compared by a hash that the run put on the ledger.
    """
    ledger.verify(certificate.head)
    terms = ledger.terms(certificate.dataset)
    if terms is None:
        raise LedgerCorrupt(f"the certificate is about data set {certificate.dataset!r}, which is not on the ledger.")
    if certificate.part_of:
        return _is_on_record(ledger, certificate)
    if states_too_much(certificate):
        relations = certificate.relations | {Neighbouring.ADD_REMOVE.value: NOT_STATED}
        certificate = replace(certificate, relations=relations)
    issued = certify(ledger, certificate.dataset, filters.from_terms(terms), lines=certificate.ledger_lines)
    found, expected = asdict(certificate), asdict(issued)
    for name in found:
        differs = None if name in _FREE else _difference(found[name], expected[name], name)
        if differs is not None:
            raise _changed(differs)
    return True


def states_too_much(certificate: Certificate) -> bool:
    """Return whether a replace-one certificate states add/remove, as earlier versions did."""
    stated = certificate.relations.get(Neighbouring.ADD_REMOVE.value, NOT_STATED)
    return certificate.neighbouring == Neighbouring.REPLACE_ONE.value and stated != NOT_STATED


def _is_on_record(ledger: Ledger, certificate: Certificate) -> bool:
    own, notes = fingerprint(certificate), (e for e in ledger.entries(certificate.dataset) if e.kind == NOTE)
    recorded = [entry.details.get("certificate") for entry in notes]
    if own in recorded:
        return True
    if any(isinstance(one, dict) and one.get("lines") == own["lines"] for one in recorded):
        raise _changed("only a hash of it is on the ledger, so it is not known what")
    return False


def _changed(what: str) -> LedgerCorrupt:
    return LedgerCorrupt(f"the certificate does not agree with the ledger; something was changed in it: {what}.")


def _difference(one: Any, other: Any, path: str) -> str | None:
    """Return where a certificate first differs from the ledger; None where it does not."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        inner = ((one[name], other[name], f"{path}.{name}") for name in one)
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        inner = ((*values, f"{path}[{place}]") for place, values in enumerate(zip(one, other, strict=True)))
    else:
        return None if _same(one, other) else f"{path} is {_short(one)} in it and {_short(other)} by the ledger"
    return next((found for each in inner if (found := _difference(*each)) is not None), None)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
        return numbers and (one == other or math.isclose(one, other, rel_tol=_TOLERANCE))
    return type(one) is type(other) and bool(one == other)


def _short(value: Any) -> str:
    return counted(len(value), "item") if isinstance(value, dict | list | tuple) else shown(value)
