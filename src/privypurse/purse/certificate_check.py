"""Whether a certificate says what its ledger says: every figure is worked out again, or was put on record when it was issued."""

import dataclasses
import hashlib
import json
import math
from typing import Any

from privypurse.accounting import filters
from privypurse.core.errors import LedgerCorrupt
from privypurse.purse.certificate import Certificate, certify
from privypurse.purse.entries import NOTE, canonical
from privypurse.purse.ledger import Ledger

# Not on a ledger, or allowed to change: who issued it, when and with what; where the ledger lies.
_FREE = ("issued_by", "issued_at", "version", "ledger")
# Another machine may come to another last digit.
_TOLERANCE = 1e-9


def fingerprint(certificate: Certificate) -> dict[str, Any]:
    """Return what is put on record about a certificate of a part: the line it pins, and a hash over all that it says."""
    text = canonical(json.loads(certificate.to_json()))
    return {"lines": certificate.ledger_lines, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def check_certificate(ledger: Ledger, certificate: Certificate) -> bool:
    """Refuse a certificate that was not made from this ledger, or in which something was changed.

    Parameters
    ----------
    ledger : Ledger
        The ledger, perhaps gone on since.
    certificate : Certificate
        Of a whole data set, or of a part such as one run.

    Returns
    -------
    bool
        Whether all that it says was checked. False for the certificate of a part that was not put on record, as after a fit from
        Python: then it is known only that it names a line of this ledger.

    Guarantees
    ----------
    For a whole data set, everything but who issued it, when, with which version, and the name of the ledger's file is
    worked out again from the lines up to the one it pins. For the part of a run from the command line, all of
    it is compared by a hash that the run put on the ledger.
    """
    ledger.verify(certificate.head)
    terms = ledger.terms(certificate.dataset)
    if terms is None:
        raise LedgerCorrupt(f"the certificate is about data set {certificate.dataset!r}, which is not on the ledger.")
    if certificate.part_of:
        return _is_on_record(ledger, certificate)
    issued = certify(ledger, certificate.dataset, filters.from_terms(terms), lines=certificate.ledger_lines)
    for field in dataclasses.fields(Certificate):
        if field.name in _FREE:
            continue
        differs = _difference(_plain(certificate, field.name), _plain(issued, field.name), field.name)
        if differs is not None:
            raise _changed(differs)
    return True


def _is_on_record(ledger: Ledger, certificate: Certificate) -> bool:
    own = fingerprint(certificate)
    found = False
    for entry in ledger.entries(certificate.dataset):
        recorded = entry.details.get("certificate") if entry.kind == NOTE else None
        if recorded == own:
            return True
        found = found or (isinstance(recorded, dict) and recorded.get("lines") == own["lines"])
    if found:
        raise _changed("only a hash of it is on the ledger, so it is not known what")
    return False


def _changed(what: str) -> LedgerCorrupt:
    return LedgerCorrupt(f"the certificate does not say what the ledger says; something was changed in it: {what}.")


def _plain(certificate: Certificate, name: str) -> Any:
    value = getattr(certificate, name)
    if name == "relations":
        return {relation: dataclasses.asdict(under) for relation, under in value.items()}
    return [dataclasses.asdict(group) for group in value] if name == "groups" else value


def _difference(one: Any, other: Any, path: str) -> str | None:
    """Say where a certificate first differs from what the ledger comes to; None where it does not."""
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
    if isinstance(value, dict | list | tuple):
        return f"{len(value)} entries"
    written = repr(value)
    return written if len(written) <= 60 else f"{written[:57]}..."
