"""What the frameworks have in common: how long a run is, whether each update was paid for, when it ends and how it is saved."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from privypurse.core.checks import shown
from privypurse.core.errors import InvalidArgument
from privypurse.purse.ledger import MemoryLedger
from privypurse.purse.purse import Purse
from privypurse.pytorch.checkpoint import save
from privypurse.pytorch.private_loop import Private
from privypurse.pytorch.public_log import PublicLog
from privypurse.training.progress import Callback


def settings_for(
    given: Mapping[str, Any], refused: Mapping[str, str], max_steps: int | None, epochs: int | None
) -> dict[str, Any]:
    """Return the settings of a run, as long as the framework's where none is given; refuses what the framework says by itself.

    Parameters
    ----------
    given : mapping
        What the user gave for `make_private`.
    refused : mapping of str
        Settings that may not be given, with the remedy.
    max_steps, epochs : int or None
        How long the framework trains.
    """
    for name in sorted(refused.keys() & given):
        raise InvalidArgument(
            f"{name} cannot be given here; got {shown(given[name])}. {refused[name]}. Nothing was spent."
        )
    settings = dict(given)
    if all(settings.get(name) is None for name in ("steps", "epochs")) and not settings.get("full_batch"):
        if max_steps is not None and max_steps > 0:
            settings["steps"] = max_steps
        elif epochs is not None and epochs > 0:
            settings["epochs"] = epochs
    return settings


def lend_purse(callbacks: Iterable[Callback], purse: Purse) -> None:
    """Give the logs among some callbacks the purse of the run, where they have none."""
    for callback in callbacks:
        if isinstance(callback, PublicLog) and callback.purse is None:
            callback.purse = purse


def check_updates(private: Private, updates: int) -> None:
    """Refuse to go on where the framework moved the module without paying."""
    releases = len(private.engine.trace.steps)
    if releases != updates and not private.engine.stop_reason:
        raise InvalidArgument(
            f"the framework made {updates} updates, and {releases} were paid for: some did not go through the private optimizer. "
            "The model is not private."
        )


def has_ended(private: Private) -> bool:
    """Say whether the run has ended; a run with all its steps made notes that it has."""
    if private.engine.gradients >= private.engine.settings.steps:
        next(iter(private.loader), None)  # no sample is drawn any more
    return bool(private.engine.stop_reason)


def save_along(private: Private, path: str | os.PathLike[str]) -> bool:
    """Save a run beside the framework's own checkpoint, where its ledger outlives the process; returns whether it did."""
    if isinstance(private.purse.ledger, MemoryLedger) and not private.purse.noise.simulation:
        return False
    save(private, path)
    return True


def second_budget(where: str) -> InvalidArgument:
    """Return the error for a checkpoint that does not know its run."""
    return InvalidArgument(
        f"{where} knows nothing of a private run: going on would start a second budget on top of the first. Train with a purse "
        "that has a ledger file (privypurse.pytorch.open_purse), so that the run is saved along. Nothing was spent."
    )


def refuse(who: str, wrong: Iterable[tuple[Any, str, str]]) -> None:
    """Refuse what cannot be made private: rows of whether it is there, what it is, and the remedy."""
    for there, what, remedy in wrong:
        if there:
            raise InvalidArgument(f"{who} cannot train with {what}. {remedy}. Nothing was spent.")
