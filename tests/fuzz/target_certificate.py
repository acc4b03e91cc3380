"""Certificates: read or refused; and `ledger verify` accepts none in which something was changed."""

import contextlib
import io
import json
import math
import pathlib
from random import Random
from typing import Any

from privypurse import Purse, SqliteLedger
from privypurse.cli._app import run as run_command
from privypurse.core._errors import LedgerCorrupt
from privypurse.purse._certificate import Certificate, check_certificate, states_too_much
from tests.fuzz.guard import Finding
from tests.fuzz.mutations import spoil_json
from tests.fuzz.seeds import DATASETS, write_ledger

# Who issued it, when and with what, is not on the ledger; where the ledger lies may change.
NOT_ON_RECORD = ("issued_by", "issued_at", "version", "ledger")


class CertificateTarget:
    """Spoilt certificates of a real ledger."""

    name, seconds = "certificate", 5.0

    def prepare(self, folder: pathlib.Path) -> None:
        self._path, self._ledger = folder / "certificate.json", folder / "budget.db"
        write_ledger(self._ledger)
        self._trees = [json.loads(Purse.reopen(self._ledger, name).certificate().to_json()) for name in DATASETS]
        for tree in self._trees:
            self.check(json.dumps(tree).encode())
            self._check_command(0)

    def make(self, random: Random) -> bytes:
        return spoil_json(random, random.choice(self._trees))

    def check(self, content: bytes) -> None:
        self._path.write_bytes(content)
        certificate = Certificate.load(self._path)
        str(certificate), repr(certificate), hash(certificate.groups)
        written = certificate.to_json()
        if Certificate.from_json(written) != certificate:
            raise Finding("a certificate is not what it was after it was written and read")
        certificate.save(self._path.with_suffix(".txt"))
        # Numbers that differ by more than the library allows, and by less than this, may be called
        # either.
        exact, near = (
            any(_says_the_same(json.loads(written), tree, tolerance) for tree in self._trees)
            for tolerance in (1e-10, 1e-8)
        )
        says_seeded = certificate.noise.startswith("seeded") == certificate.simulation
        try:
            ledger = SqliteLedger(self._ledger, must_exist=True)
            ledger.verify(certificate.head)
            checked = check_certificate(ledger, certificate) and not states_too_much(certificate)
        except LedgerCorrupt:
            if exact and says_seeded:
                raise Finding("a true certificate is refused") from None
            raise
        if checked and not (near and says_seeded):
            raise Finding(
                f"a certificate in which something was changed is accepted: {_difference(written, self._trees)}"
            )

    def _check_command(self, code: int) -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = run_command(["ledger", "verify", str(self._ledger), "--certificate", str(self._path)])
        if found != code:
            raise Finding(f"`ledger verify` ends with {found}")


def _says_the_same(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        names = (one.keys() | other.keys()) - set(NOT_ON_RECORD)
        return all(_says_the_same(one.get(name, "?"), other.get(name, "?"), tolerance) for name in names)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_says_the_same(*pair, tolerance) for pair in zip(one, other, strict=True))
    if (
        isinstance(one, float | int)
        and isinstance(other, float | int)
        and isinstance(one, bool) == isinstance(other, bool)
    ):
        return math.isclose(one, other, rel_tol=tolerance)
    return type(one) is type(other) and bool(one == other)


def _difference(written: str, trees: list[Any]) -> str:
    read = json.loads(written)
    found = [[name for name in read if not _says_the_same(read[name], tree.get(name), 1e-8)] for tree in trees]
    return str(min(found, key=len))
