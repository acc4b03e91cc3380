"""Contents of reports from real fits, which the tests of the page and of the browser share."""

import dataclasses
import functools

import numpy as np

from privypurse import Purse
from privypurse.estimators import PrivateLogisticRegression
from privypurse.losses import Logistic
from privypurse.methods import DPAGD, NonPrivate
from privypurse.oracles import DenseOracle
from privypurse.report._content import Coefficient, Measurement, ReportContent
from privypurse.runs._estimates import Cells, Noise, class_estimates
from privypurse.training import fit

# Records of each class by predicted probability of "low".
CELLS = Cells.around(np.array([0.1, 0.3, 0.7]), 0.5, True)
TABLE = np.array([[200.0, 90, 40, 30, 0], [20, 30, 60, 130, 0]])
NASTY = "<script>alert('x')</script> \"quoted\" & </style> {%{x}} <b>bold</b>"


def a_table(rows=2_000, columns=3, classes=2):
    X = np.random.default_rng(0).standard_normal((rows, columns))
    return X, np.clip(np.round(X[:, 0] + 0.5), 0, classes - 1).astype(int)


def fitted(kind="plain"):
    return _fitted(kind)


@functools.cache
def _fitted(kind):
    X, y = a_table(classes=3 if kind == "classes" else 2)
    settings = {
        "plain": {"epsilon": 0.5},
        "line search": {"epsilon": 0.5, "method": DPAGD()},
        "allowance": {"epsilon": 0.1, "purse": Purse(1.0, 1e-6, neighbouring="add-remove")},
        "replace-one": {"epsilon": 0.5, "neighbouring": "replace-one"},
        "weak": {"epsilon": 12.0},
        "simulation": {"epsilon": 0.5, "random_state": 3},
        "classes": {"epsilon": 1.0},
    }[kind]
    classes = [0, 1, 2] if kind == "classes" else [0, 1]
    return PrivateLogisticRegression(classes=classes, **settings).fit(X, y)


def content(kind="plain", **changes):
    model = fitted(kind)
    outputs = [str(name) for name in model.classes_] if len(model.coef_) > 1 else [""]
    made = ReportContent(
        title="income, from a table",
        task="Says whether an income is high.",
        certificate=model.certificate_,
        trace=model.trace_,
        method="Auto",
        step_sizes=tuple(np.linspace(4.0, 1.0, len(model.trace_.steps))),
        budget={
            **{"dataset": "survey", "ledger": "budget.db", "epsilon": 2.0, "delta": 1e-6, "spent_epsilon": 0.7},
            "fraction_left": 0.8,
            "runs": [
                {"when": "2026-03-02T09:12:00+00:00", "who": "ana", "what": "ranges", "releases": 12},
                {"when": "2026-03-03T09:12:00+00:00", "who": "joris", "what": "model", "releases": 130},
            ],
        },
        prepared=(("records", "2,004 (noisy release, within about 60)"),),
        measurements=(
            Measurement(
                **{"metric": "accuracy", "on": "a tenth of the records, set aside"},
                **{"paid": True, "epsilon": 0.05, "when": "2026-03-03T10:00:00+00:00"},
                **class_estimates(["high", "low"], TABLE, CELLS, Noise.none(TABLE.shape)),
            ),
        ),
        coefficients=tuple(
            Coefficient(
                name=f"column {place}", output=output, value=float(value), low=float(value) - 0.2, high=value + 0.1
            )
            for output, row in zip(outputs, model.coef_, strict=True)
            for place, value in enumerate(row)
        ),
        coefficients_note="Rehearsed 200 times.",
        settings=(("command", "privypurse fit table.csv --epsilon 0.5"), ("seed", "none")),
        schema='[columns.age]\nkind = "number"\n',
    )
    return dataclasses.replace(made, **changes)


def not_private():
    X, y = a_table()
    purse = Purse.not_private()
    oracle = DenseOracle(X, y, loss=Logistic(clip_derivative=0.5), row_limit=1.0)
    result = fit(oracle, NonPrivate(), purse, records=2_000)
    return content(certificate=purse.certificate(), trace=result.trace, step_sizes=(), method="non-private")
