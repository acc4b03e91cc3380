"""A certificate with all that is asked of a use of differential privacy, in several formats.

What is asked for is in NIST SP 800-226 (2025) and in the registry of deployments of OpenDP (2026), whose
layout `registry` follows. What people must answer is in `core._statement`.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scipy.special import ndtr, ndtri

from privypurse.accounting import _gdp as gdp
from privypurse.accounting import convert
from privypurse.accounting._filters import GdpFilter, ZcdpFilter
from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import counted, rounded_up
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._statement import CHOICES, NOT_STATED, QUESTIONS
from privypurse.core.charges import (
    BoundedRangeCharge,
    GaussianCharge,
    PureCharge,
    RepeatAndSelectCharge,
    SingleCharge,
)
from privypurse.purse._certificate import Certificate, Group, why_not_stated
from privypurse.purse._ledger import Ledger
from privypurse.purse._replay import read_record

# False alarms at which the trade-off curve is given.
FALSE_ALARMS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
NEEDED = ("holder_type", "product")  # of a list, so the registry takes no other text

_MECHANISMS = {  # by kind of charge, with the norm of the sensitivity
    "gaussian": ("Gaussian mechanism", "in L2"),
    "bounded-range": ("exponential mechanism", "as the range of the change of all scores"),
    "pure": ("mechanism known to be epsilon-DP", ""),
    "objective-perturbation": ("objective perturbation", "of the gradient, in L2"),
    "repeat-and-select": ("best of a random number of private trials", "of one trial, as its mu"),
    "non-private": ("release without noise", ""),
}
_ADJACENT = {
    Neighbouring.ADD_REMOVE.value: "one has one record more than the other",
    Neighbouring.REPLACE_ONE.value: "they have the same number of records, and one record has other values",
}
_TUNING = (
    "Every release through the purse of this data set is counted, whichever run or setting it was for. "
    "Choices that were made from the data in another way are not."
)


def trade_off(epsilon: float, delta: float, mu: float | None = None) -> list[list[float]]:
    """Return points of the trade-off curve: a share of false alarms, and the least share that is then missed.

    Guarantees
    ----------
    An attacker who decides whether a record was used, with at most this share of false alarms,
    misses at least that share. It is rounded down: the curve of mu-Gaussian DP where mu is known, else what
    epsilon and delta imply (Dong, Roth and Su 2022).

    Examples
    --------
    >>> trade_off(1.0, 1e-6, 0.2367)[3], trade_off(1.0, 1e-6)[3]
    ([0.05, 0.920457], [0.05, 0.864084])
    """
    points = []
    for alarms in FALSE_ALARMS:
        if mu is None:
            missed = max(1 - delta - math.exp(min(epsilon, 700.0)) * alarms, math.exp(-epsilon) * (1 - delta - alarms))
        else:
            missed = float(ndtr(-ndtri(alarms) - mu))
        points.append([alarms, max(0.0, math.floor(1e6 * missed) / 1e6)])
    return points


def complete(certificate: Certificate) -> dict[str, Any]:
    """Return everything that is asked, with `NOT_STATED` for what nobody stated, for JSON."""
    answers = {key: certificate.statement.get(key, NOT_STATED) for key in QUESTIONS}
    replaces = certificate.neighbouring == Neighbouring.REPLACE_ONE.value
    public = ["the number of records, which is public under replace-one"] if replaces else []
    return {
        "dataset": certificate.dataset,
        "private": certificate.private,
        "guarantee": _guarantee(certificate),
        "adjacency": _adjacency(certificate),
        "composition": certificate.theorem,
        "mechanisms": [_mechanism(group) for group in certificate.groups],
        "not_known_to_be_released": certificate.unreleased,
        "tuning": _TUNING,
        "floating_point": certificate.noise,
        "unprotected_quantities": [*public, *certificate.uncovered],
        "trust_model": "central",
        "statement": answers,
        "versions": {"privypurse": certificate.version},
        "certificate": json.loads(certificate.to_json()),
    }


def _guarantee(certificate: Certificate) -> dict[str, Any]:
    gaussian = certificate.theorem == GdpFilter.theorem
    found: dict[str, Any] = {}
    for name, under in certificate.relations.items() if certificate.private else ():
        why = why_not_stated(certificate, name)
        if why is not None or under.epsilon is None or under.delta is None:
            found[name] = f"{NOT_STATED}: {why}"
            continue
        # The inverse is rounded down by less.
        mu = convert.gdp_mu(under.epsilon, under.delta) * (1 + 1e-9) if gaussian else None
        curve = trade_off(under.epsilon, under.delta, mu)
        spent = {"recorded_epsilon": under.recorded_epsilon, "trade_off": curve}
        found[name] = {"epsilon": under.epsilon, "delta": under.delta, "mu": mu} | spent
    return found


def _adjacency(certificate: Certificate) -> str:
    unit = certificate.statement.get("unit", f"one line of the table ({NOT_STATED} in the words of the data)")
    return f"Two data sets are neighbours if {_ADJACENT[certificate.neighbouring]}. One record: {unit}."


def _mechanism(group: Group) -> dict[str, Any]:
    level = "epsilon" if group.kind in ("bounded-range", "pure") else "noise_multiplier"
    ranges = {
        level: (group.smallest, group.largest),
        "sensitivity": (group.least_sensitivity, group.largest_sensitivity),
        "noise_std": (group.least_noise_std, group.largest_noise_std),
    }
    name, norm = _MECHANISMS.get(group.kind, (group.kind, ""))
    numbers = {key: None if None in pair else list(pair) for key, pair in ranges.items()}
    named = {"what": group.what, "mechanism": name, "count": group.count, "sensitivity_is": norm}
    return named | numbers | {"sample_prob": group.sample_prob}


def _mechanism_in_words(found: Mapping[str, Any]) -> str:
    said = [f"{found['count']:,} x {found['what']}: {found['mechanism']}"]
    for key, value in found.items():
        if isinstance(value, list):
            spread = " to ".join(dict.fromkeys(f"{number:.6g}" for number in value))
            norm = f" {found['sensitivity_is']}".rstrip() if key == "sensitivity" else ""
            said.append(f"{key.replace('noise_std', 'standard deviation of noise').replace('_', ' ')} {spread}{norm}")
    if found["sensitivity"] is None:
        said.append("sensitivity not recorded")
    if found["sample_prob"] < 1:
        said.append(f"each record sampled with probability {found['sample_prob']:.6g}")
    return ", ".join(said)


def _guarantee_in_words(name: str, under: Any) -> str:
    if isinstance(under, str):
        return f"{name}: {under}"
    said = f"{name}: epsilon {rounded_up(under['epsilon'])}, delta {rounded_up(under['delta'])}"
    if under["mu"] is not None:
        said += f"; all of it is mu-Gaussian DP with mu {rounded_up(under['mu'])}"
    spent = under["recorded_epsilon"]
    said += "" if spent is None else f"; the recorded releases come to epsilon {rounded_up(spent)}"
    curve = ", ".join(f"{alarms:g}: {missed:g}" for alarms, missed in under["trade_off"])
    return f"{said}; trade-off curve, as false alarms: least share missed, {curve}"


def markdown(certificate: Certificate) -> str:
    """Return everything that is asked as a page of Markdown."""
    found = complete(certificate)
    guarantee = [_guarantee_in_words(name, under) for name, under in found["guarantee"].items()]
    charged = certificate.unreleased
    more = [f"{counted(charged, 'value')} charged and not known to be released"] if charged else []
    sections: dict[str, Sequence[str]] = {
        "Guarantee": guarantee or ["NOT PRIVATE: there is no guarantee"],
        "Neighbouring data sets": [found["adjacency"]],
        "Composition": [found["composition"]],
        "Mechanisms": [*map(_mechanism_in_words, found["mechanisms"]), *more],
        "Tuning": [found["tuning"]],
        "Floating point": [found["floating_point"]],
        "Unprotected quantities": found["unprotected_quantities"],
        "Stated by people, and not checked": [
            f"{QUESTIONS[key]} (`{key}`): {answer}" for key, answer in found["statement"].items()
        ],
        "Versions and record": [_record(certificate)],
    }
    lines = [f"# Privacy statement for the data set {_plain(certificate.dataset)}"]
    for title, items in sections.items():
        lines += ["", f"## {title}", "", *(f"- {_plain(item)}" for item in items)]
    return "\n".join(lines) + "\n"


def _record(c: Certificate) -> str:
    ledger = f"ledger {c.ledger}, {counted(c.ledger_lines, 'line')}, last SHA-256 {c.ledger_digest}"
    return f"issued {c.issued_at} with privypurse {c.version}; {ledger}"


def _plain(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def registry(certificate: Certificate) -> str:
    """Return an entry for the registry of deployments, as YAML.

    Raises InvalidArgument where there is no guarantee, or where an answer is missing that the
    registry takes from a list. Gaussian DP is given as approximate DP with mu in the details.
    """
    if not certificate.private:
        what = f"expected a data set with a guarantee, got {certificate.dataset!r}, which is NOT PRIVATE"
        raise InvalidArgument(f"{what}. Pass --format markdown.")
    if missing := [key for key in NEEDED if certificate.statement.get(key) not in CHOICES[key]]:
        lines = ", ".join(f"{key} = {json.dumps(CHOICES[key][0])}" for key in missing)
        what = f"the registry takes {' and '.join(missing)} from a list, and nobody stated that"
        raise InvalidArgument(
            f"{what}. Write for example {lines} below [statement] in a schema, and pass it as --schema."
        )
    found = complete(certificate)
    said = found["statement"]
    slug = f"{certificate.dataset} {certificate.statement.get('holder', '')} {certificate.issued_at[:4]}"
    data = {"static": "Static", "growing": "Dynamic"}.get(said["data"])
    releases = {"one": "One release", "many": "Many releases"}.get(said["releases"])
    budget = f"The budget of epsilon {rounded_up(certificate.epsilon)} is for everything that is ever released."
    deployment = {
        "basic": {
            "name": certificate.dataset,
            "data_curators": [{"data_curator_name": said["holder"], "data_curator_type": said["holder_type"]}],
            "description": f"{counted(certificate.releases, 'noisy value')} and what is computed from them.",
            "intended_use": said["intended_use"],
            "data_product_type": said["product"],
            "data_product_region": said["region"],
            "publication_date": certificate.issued_at[:10],
        },
        "dp_variant": {
            "variant_name": "Approximate DP",
            "data_domain": said["data_domain"],
            "unprotected_quantities": _bullets(found["unprotected_quantities"]),
        },
        "privacy_loss": {
            "privacy_unit": said["unit"],
            "privacy_unit_details": found["adjacency"],
            "privacy_parameters": {"epsilon": certificate.epsilon, "delta": certificate.delta},
            "privacy_parameters_details": _bullets(_guarantee_in_words(*one) for one in found["guarantee"].items()),
        },
        "deployment_model": {
            "model_name": "Central",
            "trust_assumptions": f"Who holds the records computes on them and is trusted with them. Holder: {said['holder']}.",
            "actors": said["actors"],
            **({} if releases is None else {"release_type": releases}),
            "release_type_details": f"{budget} Renewal of the budget: {said['refresh']}.",
            **({} if data is None else {"data_source_type": data}),
            "data_source_type_details": f"Whether records are added: {said['data']}.",
            "access_type": "Non-interactive",  # as every product that may be stated
            "access_type_details": f"Access to the records: {said['access']}.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _TUNING,
            "mechanisms": _bullets(
                (
                    *map(_mechanism_in_words, found["mechanisms"]),
                    f"noise: {certificate.noise}",
                    f"library: privypurse {certificate.version}; code: {said['code']}",
                )
            ),
            "composition": certificate.theorem,
            "post_processing": said["post_processing"],
            "justification": said["justification"],
            "additional_information": _record(certificate),
        },
        "administrative": {
            "status": "Draft",
            "registry_authors": [certificate.issued_by],
            "tier": 3 if NOT_STATED not in said.values() else 2,
        },
    }
    slug = re.sub(r"[^a-z0-9]+", "-", slug.lower()).strip("-")
    return "\n".join(_yaml({"url_slug": slug, "deployment": deployment})) + "\n"


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(item)}" for item in items)


def _yaml(value: Any) -> list[str]:
    """Write nested mappings and lists as lines of YAML, with texts quoted as in JSON."""
    lines: list[str] = []
    for key, inner in value.items() if isinstance(value, dict) else (("-", one) for one in value):
        head = key if key == "-" else f"{key}:"
        if isinstance(inner, dict | list):
            below = _yaml(inner)
            lines += [f"- {below[0]}", *(f"  {line}" for line in below[1:])] if key == "-" else [head]
            lines += [] if key == "-" else [f"  {line}" for line in below]
        else:
            lines.append(f"{head} {_scalar(inner)}")
    return lines


def _scalar(value: str | int | float) -> str:
    if isinstance(value, str):  # characters that YAML has no letter for are escaped
        quoted = json.dumps(value, ensure_ascii=False)
        return re.sub("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]", lambda c: f"\\u{ord(c[0]):04x}", quoted)
    # Without a point, YAML 1.1 takes 1e-06 for a text.
    return re.sub(r"^(-?\d+)e", r"\1.0e", repr(value))


def dp_events(certificate: Certificate, ledger: Ledger) -> dict[str, Any]:
    """Return the charges behind a certificate of a whole data set as an event of `dp_accounting`.

    The event is written as the named tuple that `dp_accounting.DpEvent.from_named_tuple` reads.

    Guarantees
    ----------
    What an accountant of `dp_accounting` states with the relation that is returned holds for these charges,
    if they were fixed in advance; otherwise it refuses the event. What it has no event for is written as
    the Gaussian release that the GDP filter charges; what has no such price either is unsupported.
    Blocks that were not settled count in full under the GDP and zCDP filters, and are unsupported under others.

    Noise multipliers are relative to the sensitivity under the relation of the purse, and the relation is
    add/remove, where accountants take them as they are. Only sampled releases under replace-one need that
    relation, where multipliers are relative to half of the sensitivity.
    """
    record = read_record(e for e in ledger.entries(certificate.dataset) if e.seq <= certificate.ledger_lines)
    charges: Counter[SingleCharge] = Counter()
    for (charge, *_), count in record.releases.items():
        charges[charge] += count
    # A block names its first charge. What was made of it can differ, within the sum of the squares of mu.
    adds_up = ledger.terms(certificate.dataset)["filter"] in (GdpFilter.name, ZcdpFilter.name)  # type: ignore[index]
    unknown = 0
    for charge, count in record.unsettled.values():
        charges[charge] += count * adds_up
        unknown += not adds_up
    sampled = any(getattr(charge, "sample_prob", 1.0) < 1 for charge in charges)
    halved = sampled and certificate.neighbouring == Neighbouring.REPLACE_ONE.value
    events = [
        _event("SelfComposed", event=_priced(charge, 2.0 if halved else 1.0), count=count)
        for charge, count in charges.items()
        if count
    ]
    events += [_event("Unsupported")] * unknown
    relation = "REPLACE_ONE" if halved else "ADD_OR_REMOVE_ONE"
    return {"neighboring_relation": relation, "event": _event("Composed", events=events)}


def _priced(charge: SingleCharge, scale: float) -> dict[str, Any]:
    if isinstance(charge, GaussianCharge):
        gaussian = _event("Gaussian", noise_multiplier=scale * charge.noise_multiplier)
        if charge.sample_prob == 1:
            return gaussian
        return _event("PoissonSampled", sampling_probability=charge.sample_prob, event=gaussian)
    if isinstance(charge, BoundedRangeCharge | PureCharge):  # a sampled one costs no more
        mu = math.sqrt(gdp.mu_squared(type(charge)(charge.epsilon)))
        return _event("Gaussian", noise_multiplier=scale / mu)
    if isinstance(charge, RepeatAndSelectCharge):
        trial = _event("Gaussian", noise_multiplier=scale * charge.noise_multiplier)
        return _event("RepeatAndSelect", event=trial, mean=charge.mean, shape=charge.shape)
    return _event("NonPrivate" if charge.kind == "non-private" else "Unsupported")


def _event(name: str, **fields: Any) -> dict[str, Any]:
    return {"module_name": "dp_accounting.dp_event", "class_name": f"{name}DpEvent", **fields}
