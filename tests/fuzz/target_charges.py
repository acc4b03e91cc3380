"""Charges and the terms of accounts, as JSON: what a ledger holds and a program hands on."""

import json
import pathlib
from random import Random

from privypurse.accounting import _filters as filters
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core import charges
from privypurse.core.charges import (
    BoundedRangeCharge,
    GaussianCharge,
    NonPrivateCharge,
    ObjectivePerturbationCharge,
    PureCharge,
    RepeatAndSelectCharge,
    RepeatedCharge,
)
from tests.fuzz.guard import Finding, own
from tests.fuzz.mutations import spoil_json

CHARGES = (
    GaussianCharge(2.0),
    GaussianCharge(1.5, 0.05),
    BoundedRangeCharge(0.3),
    PureCharge(0.4, 0.5),
    ObjectivePerturbationCharge(3.0, 0.4, 8.0),
    RepeatAndSelectCharge(4.0, 5.0, 1.0),
    NonPrivateCharge("a test"),
    RepeatedCharge(GaussianCharge(30.0), 12),
)
RULES = (
    filters.GdpFilter(1.0, 1e-6, "add-remove"),
    filters.ZcdpFilter(1.0, 1e-6, "replace-one"),
    filters.RdpFilter(2.0, 1e-6, "add-remove", reference=GaussianCharge(2.0, 0.1)),
    filters.DeclaredNonPrivate(1e-6, "add-remove"),
)


class ChargesTarget:
    """A charge is read back as it was written, and costs something with every rule, or is refused."""

    name, seconds = "charges", 5.0

    def prepare(self, folder: pathlib.Path) -> None:
        self._trees = [charges.to_json(charge) for charge in CHARGES]
        for tree in self._trees:
            try:
                self.check(json.dumps(tree).encode())
            except Exception as error:
                if not own(error):
                    raise

    def make(self, random: Random) -> bytes:
        return spoil_json(random, random.choice(self._trees))

    def check(self, content: bytes) -> None:
        try:
            described = json.loads(content)
        except (ValueError, RecursionError):
            return  # whoever reads the text answers for it
        charge = charges.from_json(described)
        if charges.from_json(json.loads(json.dumps(charges.to_json(charge)))) != charge:
            raise Finding("a charge is not what it was after it was written and read")
        hash(charge), repr(charge)
        for rule in RULES:
            try:
                after = rule.admit(rule.start(), charge)
            except Exception as error:
                if not own(error):
                    raise
                continue
            if not after.releases or not (all(quanta > 0 for quanta in after.quanta) or after.non_private):
                raise Finding(f"a charge costs nothing with the rule {rule.name}")


class TermsTarget:
    """The terms of an account make the filter they describe, or are refused."""

    name, seconds = "terms", 5.0

    def prepare(self, folder: pathlib.Path) -> None:
        fixed = FixedSchedule([RepeatedCharge(GaussianCharge(9.0, 0.1), 4)], 1.0, 1e-6, "add-remove", interval=1e-3)
        self._trees = [
            rule.terms() for rule in (*RULES, fixed, filters.RdpFilter(9.0, 1e-6, "add-remove", orders=[2, 3, 9]))
        ]
        for tree in self._trees:
            self.check(json.dumps(tree).encode())

    def make(self, random: Random) -> bytes:
        return spoil_json(random, random.choice(self._trees))

    def check(self, content: bytes) -> None:
        try:
            terms = json.loads(content)
        except (ValueError, RecursionError):
            return
        rule = filters.from_terms(terms)
        if filters.from_terms(json.loads(json.dumps(rule.terms()))).terms() != rule.terms():
            raise Finding("a filter is not what it was after its terms were written and read")
        start = rule.start()
        rule.fraction_left(start, start), rule.epsilon_of(start, rule.delta), rule.smallest_noise_multiplier(start)
