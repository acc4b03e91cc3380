"""Purses over both kinds of ledger."""

import pytest

from privypurse import MemoryLedger, Norm, Sensitive, SqliteLedger


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    return MemoryLedger() if request.param == "memory" else SqliteLedger(tmp_path / "budget.db")


@pytest.fixture
def box():
    return Sensitive([3.0, 4.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
