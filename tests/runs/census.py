"""A made-up census in a file, its schemas, and settings to train on it; what the tests of jobs
share.
"""

import dataclasses

from privypurse.datasets import make_census
from privypurse.purse._entries import CHARGE, RESERVE
from privypurse.purse._sqlite_ledger import SqliteLedger
from privypurse.runs._account import Account
from privypurse.runs._demo import census_schema
from privypurse.runs._train import TrainSettings
from privypurse.tables._schema import ClassTarget, NumberTarget, Schema, write_schema

SCHEMA = census_schema(make_census(2, 0))


def regression_schema():
    return Schema(
        tuple(column for column in SCHEMA.columns if column.name != "hours_per_week"),
        NumberTarget(name="hours_per_week", range=(0, 99)),
    )


def three_class_schema():
    return Schema(
        tuple(column for column in SCHEMA.columns if column.name != "sector"),
        ClassTarget(name="sector", classes=("public", "private", "non-profit")),
    )


def a_census(folder, rows=5_000, seed=0):
    path = folder / "census.csv"
    if not path.exists():
        make_census(rows, seed).to_csv(path)
    return path


def a_schema(folder, schema=SCHEMA, name="census.toml"):
    (folder / name).write_text(write_schema(schema), encoding="utf-8")
    return folder / name


def settings_for(folder, *, schema=SCHEMA, budget=None, **changes):
    """What `privypurse train` would be told: declared columns, epsilon 1, a ledger in the folder."""
    first = TrainSettings(
        data=a_census(folder),
        target="high_income" if schema is None else schema.target.name,
        epsilon=1.0,
        out=folder / "model",
        account=Account(dataset="census", ledger=folder / "ledger.db", budget=budget),
        schema=None if schema is None else a_schema(folder, schema),
        intervals=False,
        seed=1,
    )
    return dataclasses.replace(first, **changes)


def charges(folder, dataset=None):
    """The lines of the ledger that spend."""
    if not (folder / "ledger.db").exists():
        return []
    lines = SqliteLedger(folder / "ledger.db").entries(dataset)
    return [line for line in lines if line.kind in (CHARGE, RESERVE)]


def lines(folder):
    return list(SqliteLedger(folder / "ledger.db").entries()) if (folder / "ledger.db").exists() else []
