"""A purse from opening to certificate, on a synthetic table: cost of a release, and a refusal.

Run: ``python examples/first_purse.py``
"""

import pathlib
import tempfile

import numpy as np

from privypurse import BudgetExhausted, ExponentialSelection, Gaussian, Purse
from privypurse.accounting import calibrate
from privypurse.oracles.statistics import clipped_sum, counts, negated_losses


def made_survey(people: int = 5_000) -> tuple[np.ndarray, np.ndarray]:
    """Return incomes, and whether each person owns their home; richer people more often do."""
    rng = np.random.default_rng(2026)
    incomes = rng.lognormal(mean=10.2, sigma=0.6, size=people)
    owners = rng.random(people) < 1 / (1 + np.exp(-(incomes - 30_000) / 6_000))
    return incomes, owners


def main() -> None:
    """Spend a budget of epsilon 1 on three questions, ask for too much, spend the rest."""
    incomes, owners = made_survey()
    with tempfile.TemporaryDirectory() as folder:
        # The ledger is a file: all scripts and people that name it spend from the same budget.
        ledger = pathlib.Path(folder) / "budget.db"
        purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, dataset="survey 2026")
        print(purse, "\n")

        # A quarter of the budget each: the noise multiplier at which four such releases fit.
        quarter = Gaussian(calibrate.noise_multiplier(1.0, 1e-6, releases=4))

        # 1. A sum. The cap of 100,000 is a public choice; it bounds what one person can contribute.
        table = incomes.reshape(-1, 1)
        total = purse.release(clipped_sum(table, clip_norm=100_000.0), quarter, what="total income").value

        # 2. Counts, for a public list of categories. Their sum is the noisy number of people.
        tenants_and_owners = purse.release(counts(owners, categories=[False, True]), quarter, what="ownership").value
        people = tenants_and_owners.sum()
        print(
            f"mean income  {total[0] / people:>8,.0f}   (exact, shown only because the data is made: {incomes.mean():,.0f})"
        )
        print(f"owners       {tenants_and_owners[1] / people:>8.3f}   (exact: {owners.mean():.3f})")

        # 3. A selection: above which income are people most often owners?
        # One wrong guess costs a candidate one point.
        thresholds = np.arange(10_000, 60_000, 5_000)
        wrong = (table > thresholds) != owners.reshape(-1, 1)
        picked = purse.release(
            negated_losses(wrong, clip_loss=1.0), ExponentialSelection(epsilon=0.15), what="best threshold"
        ).value
        print(f"threshold    {thresholds[int(picked)]:>8,}   (exact: {thresholds[wrong.sum(axis=0).argmin()]:,})")
        # Epsilons do not add up; squared mus do, and that is what the share left is counted in.
        print(
            f"\nspent: epsilon {purse.spent.epsilon:.3f}; left: {purse.remaining.fraction:.0%} of the budget, in mu squared"
        )

        # 4. What does not fit is refused before the box is opened, and costs nothing.
        try:
            purse.release(clipped_sum(table, clip_norm=100_000.0), Gaussian(noise_multiplier=0.1))
        except BudgetExhausted as refusal:
            print(f"refused: {refusal}\n")

        # 5. The last release may spend exactly what is left.
        rest = Gaussian.spending(purse.remaining)
        purse.release(counts(owners, categories=[False, True]), rest, what="ownership")
        print(purse.certificate())


if __name__ == "__main__":
    main()
