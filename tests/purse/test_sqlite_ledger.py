"""The file: an edited, truncated, reordered, emptied or exchanged ledger is refused, and never
spent from.
"""

import os
import pathlib
import shutil
import sqlite3
import threading

import pytest

from privypurse import (
    BudgetExhausted,
    Gaussian,
    LedgerCorrupt,
    LedgerUnavailable,
    Norm,
    Purse,
    Sensitive,
    SqliteLedger,
)
from privypurse.accounting._totals import Totals
from privypurse.core._errors import InvalidArgument, TermsMismatch
from privypurse.purse import _sqlite_ledger as sqlite_ledger
from privypurse.purse._entries import GENESIS, Entry, totals_from_text

BOX = Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)


@pytest.fixture
def path(tmp_path):
    """A ledger with an opening line, five charges, a reservation and a settlement."""
    path = tmp_path / "budget.db"
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path, dataset="adult")
    for _ in range(5):
        purse.release(BOX, Gaussian(50.0))
    with purse.reserve(3):
        purse.release(BOX, Gaussian(50.0))
    return path


def tamper(path, *statements):
    """Change the file behind the library's back, as somebody with the file in hand can."""
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entries_update")
    connection.execute("DROP TRIGGER entries_delete")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


FORGED = "json('[[\"1\"],1,0]')"
TAMPERINGS = {
    "cheaper charge": ["UPDATE entries SET body = replace(body, '50.0', '5000.0') WHERE seq = 3"],
    "smaller total at the end": [f"UPDATE entries SET totals = {FORGED} WHERE seq = 8"],
    "smaller total in the middle": [f"UPDATE entries SET totals = {FORGED} WHERE seq = 4"],
    "another person": ["UPDATE entries SET who = 'nobody' WHERE seq = 2"],
    "another time": ["UPDATE entries SET at = '2020-01-01T00:00:00+00:00' WHERE seq = 2"],
    "another purpose": ["UPDATE entries SET what = 'nothing much' WHERE seq = 2"],
    "another data set": ["UPDATE entries SET dataset = 'bank' WHERE seq = 6"],
    "another kind": ["UPDATE entries SET kind = 'uncovered' WHERE seq = 2"],
    "more generous terms": [
        "UPDATE entries SET body = replace(body, '\"epsilon\":1.0', '\"epsilon\":9.0') WHERE seq = 1"
    ],
    "first line gone": ["DELETE FROM entries WHERE seq = 1"],
    "middle line gone": ["DELETE FROM entries WHERE seq = 4"],
    "last line gone": ["DELETE FROM entries WHERE seq = 8"],
    "last lines gone": ["DELETE FROM entries WHERE seq > 3"],
    "last lines gone and head adjusted": [
        "DELETE FROM entries WHERE seq > 3",
        "UPDATE head SET count = 3",
    ],
    "all lines gone": ["DELETE FROM entries"],
    "head reset": ["UPDATE head SET count = 0, digest = '" + "0" * 64 + "'"],
    "head gone": ["DELETE FROM head"],
    "head table gone": ["DROP TABLE head"],
    "lines swapped": [
        "UPDATE entries SET seq = 99 WHERE seq = 3",
        "UPDATE entries SET seq = 3 WHERE seq = 4",
        "UPDATE entries SET seq = 4 WHERE seq = 99",
    ],
    "renumbered after a deletion": [
        "DELETE FROM entries WHERE seq = 3",
        "UPDATE entries SET seq = seq - 1 WHERE seq > 3",
        "UPDATE head SET count = 7",
    ],
    "line repeated": [
        "INSERT INTO entries SELECT 9, dataset, kind, who, at, what, body, totals, previous, digest FROM entries WHERE seq = 8"
    ],
    "digest emptied": ["UPDATE entries SET digest = '' WHERE seq = 8"],
    "totals unreadable": ["UPDATE entries SET totals = 'lots' WHERE seq = 5"],
}


@pytest.mark.parametrize("statements", TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_a_tampered_ledger_is_refused(path, statements):
    tamper(path, *statements)
    with pytest.raises(LedgerCorrupt):
        SqliteLedger(path)


@pytest.mark.parametrize(
    "name",
    [
        "smaller total at the end",
        "last lines gone",
        "all lines gone",
        "head reset",
        "last lines gone and head adjusted",
    ],
)
def test_an_open_purse_notices_before_it_spends(path, name):
    purse = Purse.reopen(path, "adult")
    tamper(path, *TAMPERINGS[name])
    with pytest.raises(LedgerCorrupt):
        purse.release(BOX, Gaussian(50.0))
    with pytest.raises(LedgerCorrupt):
        _ = purse.remaining


def test_the_database_itself_refuses_updates_and_deletions(path):
    connection = sqlite3.connect(path)
    for statement in ("UPDATE entries SET who = 'x'", "DELETE FROM entries WHERE seq = 8"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()
    assert SqliteLedger(path).verify() == 8


@pytest.mark.parametrize("keep", [0, 1, 100, 4096, 8192])
def test_a_file_cut_short_is_refused(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[:keep])
    with pytest.raises(LedgerCorrupt):
        SqliteLedger(path)
    assert path.stat().st_size == keep, "and is left as it was"


@pytest.mark.parametrize("offset_share", [0.0, 0.3, 0.6, 0.9])
def test_overwritten_bytes_are_refused(path, offset_share):
    content = bytearray(path.read_bytes())
    offset = int(offset_share * len(content))
    page = 4096
    content[offset : offset + page] = os.urandom(min(page, len(content) - offset))
    path.write_bytes(content)
    with pytest.raises((LedgerCorrupt, LedgerUnavailable)):
        SqliteLedger(path)


def test_a_deleted_file_is_not_a_fresh_budget(path):
    purse = Purse.reopen(path, "adult")
    path.unlink()
    with pytest.raises(LedgerCorrupt, match="disappeared"):
        purse.release(BOX, Gaussian(50.0))
    assert not path.exists()


def test_an_older_copy_put_in_place_is_noticed_by_an_open_purse_and_by_a_certificate(path, tmp_path):
    old = tmp_path / "old.db"
    shutil.copy(path, old)
    purse = Purse.reopen(path, "adult")
    purse.release(BOX, Gaussian(50.0))
    certificate = purse.certificate()
    shutil.copy(old, path)
    with pytest.raises(LedgerCorrupt):
        purse.release(BOX, Gaussian(50.0))
    # A new process cannot know, unless it is told what was seen: that is what a certificate is for.
    with pytest.raises(LedgerCorrupt, match="older or another one"):
        SqliteLedger(path).verify((certificate.ledger_lines, certificate.ledger_digest))


def test_other_files_are_not_taken_for_ledgers(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a database at all, but long enough to have a header " * 10)
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE shopping (item TEXT)")
    connection.commit()
    connection.close()
    for path in (text, other):
        before = path.read_bytes()
        with pytest.raises((LedgerCorrupt, LedgerUnavailable)):
            SqliteLedger(path)
        assert path.read_bytes() == before
    with pytest.raises(InvalidArgument, match="got the folder"):
        SqliteLedger(tmp_path)


def test_a_newer_format_is_refused_with_the_remedy(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerCorrupt, match="Install the version that wrote it"):
        SqliteLedger(path)


@pytest.mark.parametrize("path", [None, 3, "", ":memory:"], ids=repr)
def test_wrong_paths_are_refused(path):
    with pytest.raises(InvalidArgument, match="path must be a file name"):
        SqliteLedger(path)


@pytest.mark.parametrize("length", [245, 300])
def test_a_name_too_long_for_the_disk_is_refused(tmp_path, length):
    with pytest.raises(LedgerUnavailable, match=r"cannot be made: .*File name too long"):
        SqliteLedger(tmp_path / ("x" * length))


def test_a_null_byte_in_a_name_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="with a null byte"):
        SqliteLedger(f"{tmp_path}/a\x00b.db")


def test_names_that_are_no_text_are_refused(path):
    ledger = SqliteLedger(path)
    with pytest.raises(InvalidArgument, match="must be valid Unicode"):
        Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, dataset="bad \ud800 name")
    assert ledger.verify() == 8


def test_an_error_message_that_is_no_text_means_damage(path):
    tamper(
        path,
        "PRAGMA writable_schema = ON",
        "INSERT INTO sqlite_master VALUES ('table', CAST(x'ff41' AS TEXT), 'x', 0, 'CREATE garbage')",
    )
    with pytest.raises(LedgerCorrupt, match=r"budget.db is damaged\. Restore"):
        SqliteLedger(path)


def test_a_data_set_that_is_not_on_the_ledger_has_no_totals(path):
    with pytest.raises(LedgerCorrupt, match="no account for data set 'bank'"):
        SqliteLedger(path).totals("bank")


def test_a_head_that_is_no_number_is_refused(path):
    tamper(path, "UPDATE head SET count = 'many'")
    with pytest.raises(LedgerCorrupt, match="head of the ledger does not give the number of lines"):
        SqliteLedger(path)


def test_heads_seen_before(path):
    ledger = SqliteLedger(path)
    assert ledger.verify((0, GENESIS)) == ledger.verify(ledger.head()) == 8
    for line in (True, -1, 2**63, 1.0, 9):
        with pytest.raises(LedgerCorrupt, match="does not contain line"):
            ledger.verify((line, ledger.head()[1]))
    assert repr(ledger) == "<SqliteLedger: budget.db>"


def test_the_first_of_two_processes_fixes_the_terms(tmp_path, monkeypatch):
    """Both find no account; the second then finds the terms of the first."""
    ledger, terms = SqliteLedger(tmp_path / "budget.db"), SqliteLedger.terms
    calls = []

    def late(self, dataset):
        found = terms(self, dataset)
        if not calls:
            calls.append(found)
            Purse(2.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")
        return found

    monkeypatch.setattr(SqliteLedger, "terms", late)
    with pytest.raises(TermsMismatch, match=r"epsilon=2\.0; got epsilon=1\.0"):
        Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    assert calls == [None]
    assert [entry.kind for entry in ledger.entries()] == ["open"]


def test_totals_of_another_filter_are_refused(path):
    ledger = SqliteLedger(path)
    ledger.append("adult", "note", {}, who="m", what="x", decide=lambda spent: Totals((1, 2)))
    with pytest.raises(LedgerCorrupt, match="the totals of 'adult' do not match its terms"):
        Purse.reopen(path, "adult")


def test_a_file_that_is_a_mount_point_is_refused(path, monkeypatch):
    """Without the right to mount one: as the kernel lists it."""
    odd = path.with_name("with a\tblank\\.db")
    path.rename(odd)
    SqliteLedger(odd)
    written = str(odd).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    line = f"36 35 98:0 /mnt1 {written} rw,noatime master:1 - ext3 /dev/root rw\n".encode()
    monkeypatch.setattr(pathlib.Path, "read_bytes", lambda self: line)
    with pytest.raises(LedgerUnavailable, match="is mounted as a single file"):
        SqliteLedger(odd)


def test_a_temporary_name_of_another_file_is_left_alone(path):
    other = sqlite_ledger.first_name(path)
    other.write_text("another")
    second = path.with_name("link.db")
    second.hardlink_to(path)
    with pytest.raises(LedgerUnavailable, match="must have one name"):
        SqliteLedger(path)
    assert other.read_text() == "another"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(LedgerUnavailable, match="folder"):
        SqliteLedger(tmp_path / "missing" / "budget.db")


@pytest.mark.parametrize("name", ["with space.db", "hash#mark?.db", "per%20cent.db", "ünïcode.db", "quote'.db"])
def test_odd_file_names(tmp_path, name):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / name)
    purse.release(BOX, Gaussian(50.0))
    assert Purse.reopen(tmp_path / name).spent.releases == 1
    assert [file.name for file in tmp_path.iterdir()] == [name], "and nothing else is left in the folder"


def test_odd_words_survive(tmp_path):
    odd = "naïve ☃ 'quoted' \"twice\" \n newline \x00 nul"
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "b.db", dataset=odd, who=odd)
    purse.release(BOX, Gaussian(50.0), what=odd)
    *_, last = purse.ledger.entries(odd)
    assert (last.dataset, last.who, last.what) == (odd, odd, odd)
    assert SqliteLedger(tmp_path / "b.db").verify() == 2


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SqliteLedger("~/budget.db").path == tmp_path / "budget.db"


def test_relative_paths_survive_a_change_of_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger="budget.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    purse.release(BOX, Gaussian(50.0))
    assert not pathlib.Path("budget.db").exists()


def test_threads_share_one_budget(ledger):
    """Both kinds of ledger: eight threads race until the budget refuses; the sum is exact."""
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    fits = int(purse.filter.mu**2 * 30.0**2)
    counted, refused = [], []

    def spend():
        for _ in range(10):
            try:
                purse.release(BOX, Gaussian(30.0))
                counted.append(1)
            except Exception as error:
                refused.append(error)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counted) == fits < 80
    assert {type(error).__name__ for error in refused} == {"BudgetExhausted"}
    assert purse.spent.releases == fits
    assert purse.ledger.verify() == fits + 1


def test_threads_share_one_reservation(ledger):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)

    def spend():
        for _ in range(20):
            purse.release(BOX, Gaussian(500.0))

    threads = [threading.Thread(target=spend) for _ in range(4)]
    with purse.reserve(7):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert purse.spent.releases == 80


def test_readers_and_writers_raise_no_false_alarm(ledger):
    """A reader never takes a line that is not committed yet for one that was removed."""
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger)
    errors, done = [], threading.Event()

    def write():
        try:
            for _ in range(30):
                purse.release(BOX, Gaussian(50_000.0))
        except Exception as error:
            errors.append(error)

    def read(act):
        try:
            while not done.is_set():
                act()
        except Exception as error:
            errors.append(error)

    writers = [threading.Thread(target=write) for _ in range(2)]
    readers = [threading.Thread(target=read, args=(act,)) for act in (lambda: purse.spent, purse.ledger.verify) * 2]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert errors == []
    assert purse.spent.releases == 60


def test_edits_behind_an_open_purse_cannot_raise_its_budget(tmp_path):
    """Lines of one data set deleted while another's are the last: totals come from lines that were
    checked.
    """
    ledger = SqliteLedger(tmp_path / "budget.db")
    terms = {"epsilon": 1.0, "delta": 1e-6, "neighbouring": "add-remove", "ledger": ledger}
    one, two = Purse(**terms, dataset="one"), Purse(**terms, dataset="two")
    one.release(BOX, Gaussian.spending(one.remaining))
    two.release(BOX, Gaussian(50.0))
    tamper(tmp_path / "budget.db", "DELETE FROM entries WHERE dataset = 'one' AND kind = 'charge'")
    assert one.spent.releases == 1
    with pytest.raises(BudgetExhausted):
        one.release(BOX, Gaussian(50.0))
    with pytest.raises(LedgerCorrupt):
        ledger.verify()
    with pytest.raises(LedgerCorrupt):
        one.certificate()


def test_the_file_is_synced_and_has_a_rollback_journal(path):
    """What a kill cannot test: that a commit waits for the disk, and leaves no side file that a
    copy would miss.
    """
    connection = sqlite_ledger._connect(path)
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,), "EXTRA"
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_new_ledger_has_the_permissions_of_any_new_file(tmp_path):
    SqliteLedger(tmp_path / "budget.db")
    (tmp_path / "plain").touch()
    assert (tmp_path / "budget.db").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_fork_waits_for_transactions_of_other_threads(tmp_path):
    """Children forked while threads spend can spend too, and nothing is lost."""
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    done, released = threading.Event(), []

    def spend():
        while not done.is_set():
            purse.release(BOX, Gaussian(50_000.0))
            released.append(1)

    threads = [threading.Thread(target=spend) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(15):
        child = os.fork()
        if child == 0:
            code = 99
            try:
                purse.release(BOX, Gaussian(50_000.0))
                code = 7
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    done.set()
    for thread in threads:
        thread.join()
    assert codes == [7] * 15
    assert purse.spent.releases == len(released) + 15
    assert purse.ledger.verify() == purse.spent.releases + 1


def test_a_ledger_that_cannot_be_written_can_still_be_read(path):
    path.chmod(0o444)
    purse = Purse.reopen(path, "adult")
    assert purse.spent.releases == 6
    assert purse.certificate().releases == 6
    path.chmod(0o644)


@pytest.mark.parametrize("text", ["", "3", "[]", "[[1],0,0]", '[["g"],0,0]', "[[],0]"])
def test_unreadable_totals_are_refused(text):
    with pytest.raises(LedgerCorrupt):
        totals_from_text(text)


def test_every_field_of_a_line_is_hashed(path):
    entry = next(SqliteLedger(path).entries())
    for field in ("seq", "dataset", "kind", "who", "when", "what", "body", "previous"):
        values = {name: getattr(entry, name) for name in Entry.__dataclass_fields__}
        values[field] = 99 if field == "seq" else "changed"
        assert Entry(**values | {"digest": ""}).digest != entry.digest
    assert Entry(**values | {"seq": 1, "totals": Totals((1,), 0), "digest": ""}).digest != entry.digest
