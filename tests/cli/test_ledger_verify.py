"""`privypurse ledger verify --certificate`: what it says of a file that is no certificate, and of
one that was edited.
"""

import dataclasses

import pytest

from privypurse import Gaussian, InvalidArgument, LedgerCorrupt, Purse, SqliteLedger
from privypurse.cli._app import exit_code
from privypurse.cli._ledger import _read_certificate, verify
from privypurse.oracles.statistics import clipped_sum
from privypurse.purse._entries import CHARGE


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
        verify(path=tmp_path / "x.db", certificate=path)
    path.write_text(dataclasses.replace(purse.certificate(), epsilon=0.5, ledger="y.db").to_json())
    with pytest.raises(LedgerCorrupt, match=r"The certificate names 'y\.db'; this is 'x\.db'\.$"):
        verify(path=tmp_path / "x.db", certificate=path)


def test_a_data_set_that_does_not_add_up_keeps_no_other_from_being_counted(tmp_path, capsys):
    terms = {"epsilon": 1.0, "delta": 1e-6, "neighbouring": "add-remove", "ledger": SqliteLedger(tmp_path / "x.db")}
    purses = [Purse(**terms, dataset=name) for name in ("first", "second", "third")]
    for purse in purses:
        purse.release(clipped_sum([[1.0]], clip_norm=1.0), Gaussian(20.0))
    for purse in purses[:2]:  # a charge for nothing, with a chain that is whole
        charge = {"charge": {"kind": "gaussian", "noise_multiplier": 20.0, "sample_prob": 1.0}}
        purse.ledger.append(purse.dataset, CHARGE, charge, who="m", what="x", decide=lambda totals: totals)
    with pytest.raises(LedgerCorrupt, match=r"^2 of 3 data sets do not add up\. 'first': line 7 .* 'second': line 8 "):
        verify(path=tmp_path / "x.db")
    shown = capsys.readouterr().out
    assert [name for name in ("first", "second", "third") if name in shown] == ["first", "second", "third"]
    assert shown.count("counted again") == 1
    assert exit_code(LedgerCorrupt()) == 4


def test_one_data_set_is_not_several(tmp_path, capsys):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "x.db", dataset="only")
    purse.release(clipped_sum([[1.0]], clip_norm=1.0), Gaussian(20.0))
    verify(path=tmp_path / "x.db")
    assert "2 lines, 1 data set, every" in capsys.readouterr().out
    charge = {"charge": {"kind": "gaussian", "noise_multiplier": 20.0, "sample_prob": 1.0}}
    purse.ledger.append(purse.dataset, CHARGE, charge, who="m", what="x", decide=lambda totals: totals)
    with pytest.raises(LedgerCorrupt, match=r"^1 of 1 data set does not add up\."):
        verify(path=tmp_path / "x.db")
