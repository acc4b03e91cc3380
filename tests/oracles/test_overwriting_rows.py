"""Rows that may overwrite their table: the same numbers, and only in an array that was given away."""

import numpy as np
import pytest

from privypurse.oracles._rows import Rows

X = np.random.default_rng(0).standard_normal((50, 3))


def prepared(table, **settings):
    rows = Rows(table, **settings)
    rows.move(2.0, np.array([0.1, -0.2, 0.3]))
    rows.stretch(np.array([1.0, 3.0, 0.5]))
    rows.limit(1.0)
    return rows.table


def test_overwriting_gives_the_same_numbers():
    given = X.astype(np.float32)
    assert prepared(given, overwrite=True).tobytes() == prepared(X.astype(np.float32)).tobytes()
    assert not np.array_equal(given, X.astype(np.float32))


@pytest.mark.parametrize("units", [2.0, np.array([1.0, 2.0, 3.0])])
def test_units_alone_give_the_same_numbers_too(units):
    tables = []
    for overwrite in (False, True):
        rows = Rows(X.astype(np.float32), overwrite=overwrite)
        rows.move(units)
        tables.append(rows.table.tobytes())
    assert tables[0] == tables[1]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "form", [np.asarray, np.asfortranarray, lambda table: np.asfortranarray(table.astype(np.float32))]
)
def test_other_tables_are_never_changed(form, overwrite):
    table = form(X.copy())
    before = table.copy()
    prepared(table, overwrite=overwrite)
    np.testing.assert_array_equal(table, before)


def test_without_leave_nothing_is_changed():
    table = X.astype(np.float32)
    prepared(table)
    np.testing.assert_array_equal(table, X.astype(np.float32))
