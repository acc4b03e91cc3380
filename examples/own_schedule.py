"""Compare your own schedule with those of a paper: a function from steps to budgets.

Run: ``python examples/own_schedule.py``, or with more to see:
``privypurse reproduce pur --figure 1 --quick --also examples/own_schedule.py:cosine``
"""

import csv
import math
import tempfile

from privypurse_lab.papers import reproduce


def cosine(steps: int) -> list[float]:
    """Return relative budgets of the steps: three times as much at the end as at the start."""
    return [2 - math.cos(math.pi * (step + 0.5) / steps) for step in range(steps)]


def main() -> None:
    """Put it into the first figure of the PUR paper, at a small size."""
    with tempfile.TemporaryDirectory() as folder:
        (outcome,) = reproduce("pur", figure="1", quick=True, output=folder, workers=1, also={"cosine": cosine})
        rows = list(csv.DictReader(outcome.files[0].read_text(encoding="utf-8").splitlines()))
    mine = [row for row in rows if "cosine" in row.values()]
    print(f"{outcome.title}: {len(mine)} rows of {len(rows)} are of the new schedule.")
    print("Whatever it returns, the purse shares out one budget: every run is differentially private.")


if __name__ == "__main__":
    main()
