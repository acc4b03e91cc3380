"""What is fuzzed: each target makes inputs from a seeded source, and knows what must hold for every
one of them.
"""

import pathlib
from random import Random
from typing import Protocol

from tests.fuzz.guard import Finding, TookTooLong, own, watched, where


class Target(Protocol):
    """One kind of file, or the command line.

    An input is always bytes, so that it can be kept. `check` raises `Finding` where something does
    not hold, and lets the library's errors through: those are refusals.
    """

    name: str
    seconds: float  # that one input may take

    def prepare(self, folder: pathlib.Path) -> None:
        """Make good files with the library itself; a folder for nobody else."""
        ...

    def make(self, random: Random) -> bytes:
        """Return an input."""
        ...

    def check(self, content: bytes) -> None:
        """Hand the input to the library."""
        ...


class Found(Finding):
    """A finding, with what tells it from others."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


def numbered(seed: int, target: str, number: int) -> Random:
    """Return the source of an input, which depends on nothing but these."""
    return Random(f"{seed}/{target}/{number}")


def examine(target: Target, content: bytes, scratch: pathlib.Path) -> str:
    """Check one input; returns "accepted" or the name of the error it was refused with, or raises
    `Found`.
    """
    try:
        with watched(scratch, target.seconds):
            target.check(content)
    except TookTooLong as error:
        raise Found(f"hang at {where(error)}", f"took longer than {target.seconds:g} s") from error
    except Found:
        raise
    except Finding as error:
        raise Found(f"promise broken: {str(error)[:60]}", str(error)) from error
    except MemoryError as error:
        raise Found(f"memory at {where(error)}", "ran out of memory") from error
    except Exception as error:
        if own(error):
            return type(error).__name__
        raise Found(f"{type(error).__name__} at {where(error)}", str(error)[:300]) from error
    return "accepted"


def by_name() -> dict[str, type[Target]]:
    """Return all targets; their modules load much of the library."""
    from tests.fuzz.target_certificate import CertificateTarget
    from tests.fuzz.target_charges import ChargesTarget, TermsTarget
    from tests.fuzz.target_checkpoints import CheckpointTarget, TorchCheckpointTarget
    from tests.fuzz.target_commands import CommandsTarget
    from tests.fuzz.target_ledger import LedgerTarget
    from tests.fuzz.target_model import ModelTarget
    from tests.fuzz.target_tables import CsvTarget, ParquetTarget, SchemaTarget

    kinds: tuple[type[Target], ...] = (
        SchemaTarget, CsvTarget, ParquetTarget, LedgerTarget, CheckpointTarget, TorchCheckpointTarget, ModelTarget,
        CertificateTarget, CommandsTarget, ChargesTarget, TermsTarget,
    )  # fmt: skip
    return {kind.name: kind for kind in kinds}
