"""The account of a data set in words and numbers: its limit, what is spent, and who spent it when on what."""

import pathlib
from collections.abc import Sequence
from typing import Any

from privypurse.purse.entries import CHARGE, NOTE, SETTLE, Entry
from privypurse.purse.purse import Purse


def describe_budget(purse: Purse) -> dict[str, Any]:
    """Describe the whole account of a data set: its limit, what is spent, and who spent it when on what."""
    entries = list(purse.ledger.entries(purse.dataset))
    return {
        "dataset": purse.dataset,
        "ledger": pathlib.Path(purse.ledger.location).name,
        "epsilon": purse.epsilon,
        "delta": purse.delta,
        "neighbouring": purse.neighbouring.value,
        "spent_epsilon": purse.spent.epsilon,
        "fraction_left": purse.fraction_left,
        "frozen": purse.ledger.is_frozen(purse.dataset),
        "simulation": any(entry.is_simulation for entry in entries),
        "runs": _runs(entries, purse),
    }


def _runs(entries: Sequence[Entry], purse: Purse) -> list[dict[str, Any]]:
    """List the jobs on record, with what each cost by its own account; other releases by day and person.

    A job that did not come to its end has what the same person released until their next one.
    """
    runs: dict[Any, dict[str, Any]] = {}
    under_way: dict[str, str] = {}  # the last job of each person
    for entry in entries:
        job = entry.details.get("job") if entry.kind == NOTE else None  # a note may be of any kind
        begins = job is not None and entry.details.get("event") == "begin"
        releases = _releases(entry)
        if begins:
            under_way[entry.who] = str(job)
        key = under_way.get(entry.who, (entry.when[:10], entry.who))
        if begins or releases:
            what = entry.what if begins else "from Python"
            fresh = {"when": entry.when, "who": entry.who, "what": what, "releases": 0, "epsilon": None}
            run = runs.setdefault(key, fresh | {"finished": not begins})
            run["releases"] += releases
            run["spent_epsilon"] = purse.filter.epsilon_of(entry.totals, purse.delta)
        elif job in runs and {"releases", "epsilon"} <= set(entry.details):
            runs[job] |= {"releases": entry.details["releases"], "epsilon": entry.details["epsilon"], "finished": True}
            under_way.pop(entry.who, None)
    return list(runs.values())


def _releases(entry: Entry) -> int:
    """Return how many values left with a line of the ledger, or may have."""
    if entry.kind == CHARGE:
        return 1
    return sum(count for *_, count in entry.details["used"]) if entry.kind == SETTLE else 0
