"""From a sensitive table to a private model, with nothing to tune: run with ``make demo``.

The table is made up: 30,000 people with an age, an income in thousands, hours of work and a job, and whether they moved house.
"""

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from privypurse import Purse
from privypurse.estimators import PrivateLogisticRegression
from privypurse.preprocessing import BoundedScaler, DeclaredOneHot

JOBS = ["care", "law", "retail", "teaching", "none"]


def people(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make up some people: age, income, hours, job number; and whether each moved."""
    rng = np.random.default_rng(seed)
    age, hours = rng.uniform(18, 90, count), rng.integers(0, 60, count)
    income, job = rng.gamma(4.0, 10.0, count), rng.integers(0, len(JOBS), count)
    score = 2.5 - 0.07 * age + 0.01 * income + 0.03 * hours + np.array([0.0, 1.0, -0.5, 0.3, -1.0])[job]
    return np.column_stack([age, income, hours, job]), (score + rng.logistic(size=count) > 0).astype(int)


def pipeline(model) -> object:
    """Put what is known about the columns in front of a model: ranges and categories, declared, not read from the data."""
    columns = make_column_transformer(
        (BoundedScaler(lower=[18, 0, 0], upper=[90, 200, 60]), [0, 1, 2]),
        (DeclaredOneHot([list(range(len(JOBS)))], sparse_output=False), [3]),
    )
    return make_pipeline(columns, model)


def main() -> None:
    """Train, and say what it cost and what it is worth."""
    X, y = people(30_000, seed=1)
    new_people, moved = people(10_000, seed=2)
    purse = Purse(epsilon=0.5, delta=1e-6, neighbouring="add-remove", dataset="made-up people")
    private = pipeline(PrivateLogisticRegression(epsilon=None, classes=[0, 1], purse=purse)).fit(X, y)
    print(purse.certificate())
    public = pipeline(LogisticRegression()).fit(X, y)
    print(f"accuracy on new people: private {100 * private.score(new_people, moved):.1f} %, ", end="")
    print(f"not private {100 * public.score(new_people, moved):.1f} %, ", end="")
    print(f"always the majority {100 * max(moved.mean(), 1 - moved.mean()):.1f} %")
    print(f"spent: epsilon {purse.spent.epsilon:.3f} of {purse.epsilon:g} at delta {purse.delta:g}")


if __name__ == "__main__":
    main()
