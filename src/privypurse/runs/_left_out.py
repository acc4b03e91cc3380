"""[RAW DATA] Count the lines of a file that are not used, with noise or exactly."""

from dataclasses import dataclass

from privypurse.core._errors import InvalidArgument
from privypurse.core._formats import about
from privypurse.estimators._private_statistics import gaussian
from privypurse.purse._purse import Purse
from privypurse.tables._files import TableFile

WHAT = "how many lines are used, and how many are left out"
SHARE = 0.005
UNREADABLE, NO_TARGET = "could not be read by themselves", "have no target of the schema"
_REMEDIES = {
    UNREADABLE: "Records with line breaks inside quotes? `privypurse data convert` reads those.",
    NO_TARGET: "Their target is missing, or on no list of the schema: are its classes spelt as in the file?",
}
# Largest share of lines that may be unreadable.
MOST = 0.05
# Noise exceeds so many standard deviations once in 370 runs.
SURE = 3.0


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A noisy count of the lines left out of a file for one cause. All of it is public.

    The interval from `low` to `high` holds the true number in 369 of 370 runs.
    """

    why: str
    count: float
    low: float
    high: float
    lines: float  # noisy number of all lines of the file

    @property
    def remark(self) -> str:
        """The count, with a remedy if it is not zero."""
        return f"{self}. {_REMEDIES[self.why]}" if self.low > 0 else f"{self}."

    def __str__(self) -> str:
        if self.low <= 0:
            return f"lines that {self.why}: fewer than about {about(self.high)}"
        return f"about {about(self.count)} lines ({about(self.low)} to {about(self.high)}) {self.why} and are left out"

    def check(self, name: str) -> None:
        """Raise InvalidArgument if too many lines cannot be read. A missing target is no cause."""
        lost = self.count - MOST * max(self.lines, 0.0)
        if self.why == UNREADABLE and self.low > 0 and lost > self.count - self.low:
            raise InvalidArgument(
                f"{self}: more than {MOST:.0%} of {name!r}. If records have line breaks inside quotes, use the output of "
                f"`privypurse data convert {name} OUT.parquet`, with the --dataset of these records. `privypurse schema {name} "
                "--check SCHEMA` prints the exact counts and causes, for those who may see the records."
            )


def count_left_out(file: TableFile, unused: int, purse: Purse) -> tuple[LeftOut, ...]:
    """Count unreadable lines, and records without a target, in one release for a share of the purse.

    The file has been read to its end. `unused` is the exact number of records without a target:
    private. A Parquet file has no unreadable lines.
    """
    box, mechanism = file.tally.box(unused=unused), gaussian(purse, SHARE)
    noisy = [float(count) for count in purse.release(box, mechanism, what=WHAT).value]
    half = SURE * mechanism.noise_std(box, purse.neighbouring)
    both = [
        LeftOut(why=why, count=count, low=max(count - half, 0.0), high=max(count, 0.0) + half, lines=sum(noisy))
        for why, count in zip((UNREADABLE, NO_TARGET), noisy[1:], strict=True)
    ]
    return tuple(both[1:] if file.is_parquet else both)


def exactly_left_out(file: TableFile, unused: int) -> list[str]:
    """Return the exact counts in words, not covered; empty if nothing is left out."""
    remarks = []
    if unused:
        remarks.append(f"{unused:,} rows left out: their target is missing, or on no list of the schema.")
    if file.tally.left_out:
        remarks.append(f"{file.tally}. They are left out. {_REMEDIES[UNREADABLE]}")
    return remarks
