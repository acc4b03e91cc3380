"""`privypurse ledger verify --certificate`: what it says of a file that is no certificate, and of one that was edited."""

import dataclasses

import pytest

from privypurse import Gaussian, InvalidArgument, LedgerCorrupt, Purse
from privypurse.cli.ledger import _read_certificate, verify
from privypurse.oracles.statistics import clipped_sum


@pytest.mark.parametrize("content", [b"[table]", b"\xff", b'{"format": 9}'], ids=["toml", "bytes", "format"])
def test_the_command_line_says_which_file_is_no_certificate(tmp_path, content):
    (path := tmp_path / "s.toml").write_bytes(content)
    with pytest.raises(
        InvalidArgument, match=r"--certificate '.*s\.toml'.*(certificate\.json of a model|format 9)"
    ) as error:
        _read_certificate(path)
    assert "to_json" not in str(error.value)


def test_the_name_of_the_ledger_is_said_where_it_is_another(tmp_path):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "x.db")
    purse.release(clipped_sum([[1.0]], clip_norm=1.0), Gaussian(20.0))
    (path := tmp_path / "c.json").write_text(dataclasses.replace(purse.certificate(), epsilon=0.5).to_json())
    with pytest.raises(LedgerCorrupt, match=r"1\.0 by the ledger\.$"):
        verify(tmp_path / "x.db", path)
    path.write_text(dataclasses.replace(purse.certificate(), epsilon=0.5, ledger="y.db").to_json())
    with pytest.raises(LedgerCorrupt, match=r"The certificate names 'y\.db'; this is 'x\.db'\.$"):
        verify(tmp_path / "x.db", path)
