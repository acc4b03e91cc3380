"""A private logistic regression on a synthetic table: train, interrupt, resume, certify.

Run: ``python examples/train_linear.py``
"""

import pathlib
import tempfile

import numpy as np

from privypurse import Purse
from privypurse.losses import Logistic
from privypurse.oracles import DenseOracle
from privypurse.training import ProgressBar, linear_scores, train
from privypurse.training.optimizers import GradientDescent
from privypurse.training.schedules import EvenSplit


class PullThePlug:
    """Interrupts a run, once."""

    def on_start(self, steps: int, done: int) -> None:
        """Note where the run begins."""
        print(f"starting at step {done + 1} of {steps}")
        self.pull = done == 0

    def on_step(self, step: object) -> None:
        """Interrupt after twenty steps."""
        if self.pull and getattr(step, "number", 0) == 20:
            raise KeyboardInterrupt

    def on_end(self, trace: object) -> None:
        """Say why it ended."""
        print(f"stopped by {getattr(trace, 'stop_reason', '')}")


def main() -> None:
    """Train, be interrupted, go on, predict."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((20_000, 12))
    y = np.where(X @ rng.standard_normal(12) + rng.standard_normal(20_000) > 0, "yes", "no")
    train_rows, test_rows = slice(0, 15_000), slice(15_000, None)

    oracle = DenseOracle(X[train_rows], y[train_rows], loss=Logistic(clip_derivative=0.5), classes=("no", "yes"))
    descent = GradientDescent(step_size=4.0, records=15_000, momentum=0.9)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for _ in range(2):  # the same script, run twice
            purse = Purse(0.5, 1e-6, neighbouring="add-remove", ledger=folder / "budget.db", dataset="answers")
            callbacks = [ProgressBar(purse), PullThePlug()]
            try:
                result = train(
                    oracle, descent, EvenSplit(), purse, steps=60, callbacks=callbacks, checkpoint=folder / "run.npz"
                )
            except KeyboardInterrupt:
                continue
        scores = linear_scores(X[test_rows], result.point)
        accuracy = np.mean(np.where(scores > 0, "yes", "no") == y[test_rows])
        print(f"{result!r}\naccuracy on rows that were not used: {accuracy:.3f}\n")
        print(purse.certificate())


if __name__ == "__main__":
    main()
