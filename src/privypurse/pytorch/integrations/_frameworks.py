"""Shared code of the framework integrations: length, checks, end and checkpoints of a run."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.purse._ledger import MemoryLedger
from privypurse.purse._purse import Purse
from privypurse.pytorch._checkpoint import save
from privypurse.pytorch._private_loop import Private
from privypurse.pytorch.integrations.logging import PublicLog
from privypurse.training._progress import Callback


def settings_for(
    given: Mapping[str, Any], refused: Mapping[str, str], max_steps: int | None, epochs: int | None
) -> dict[str, Any]:
    """Return the settings of a run; its length defaults to the framework's."""
    for name in sorted(refused.keys() & given):
        raise InvalidArgument(f"{name} cannot be given here; got {shown(given[name])}. {refused[name]}.")
    settings = dict(given)
    if all(settings.get(name) is None for name in ("steps", "epochs")) and not settings.get("full_batch"):
        if max_steps is not None and max_steps > 0:
            settings["steps"] = max_steps
        elif epochs is not None and epochs > 0:
            settings["epochs"] = epochs
    return settings


def lend_purse(callbacks: Iterable[Callback], purse: Purse) -> None:
    """Set the purse of logs among the callbacks, where they have none."""
    for callback in callbacks:
        if isinstance(callback, PublicLog) and callback.purse is None:
            callback.purse = purse


def check_updates(private: Private, updates: int) -> None:
    """Raise InvalidArgument where the framework made updates without releases."""
    releases = len(private.engine.trace.steps)
    if releases != updates and not private.engine.stop_reason:
        what = f"{updates} updates were made, {releases} paid for: the model may not be private"
        raise InvalidArgument(f"{what}. Use the private optimizer.")


def has_ended(private: Private) -> bool:
    """Return whether the run has ended, and end it after its last step."""
    if private.engine.gradients >= private.engine.settings.steps:
        next(iter(private.loader), None)  # draws no sample, ends the run
    return bool(private.engine.stop_reason)


def save_along(private: Private, path: str | os.PathLike[str]) -> bool:
    """Save a run with the framework's checkpoint if its ledger is durable; return whether it is."""
    if isinstance(private.purse.ledger, MemoryLedger) and not private.purse.noise.simulation:
        return False
    save(private, path)
    return True


def second_budget(where: str) -> InvalidArgument:
    """Return the error for a checkpoint that has no private run."""
    what = f"{where} has no private run: continuing would start a second budget on top of the first"
    return InvalidArgument(f"{what}. Train with a purse that has a ledger file, so that the run is saved too.")


def refuse(who: str, wrong: Iterable[tuple[Any, str, str]]) -> None:
    """Raise InvalidArgument for the first row whose condition holds; rows have name and remedy."""
    for there, what, remedy in wrong:
        if there:
            raise InvalidArgument(f"{who} cannot train with {what}. {remedy}.")
