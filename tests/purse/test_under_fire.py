"""The ledger under fire, for real: races between processes, kills, a full disk, a read-only file."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import pathlib
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
import traceback

import pytest

from privypurse import BudgetExhausted, Gaussian, LedgerCorrupt, LedgerUnavailable, Norm, Purse, Sensitive, SqliteLedger
from privypurse.accounting._gdp import mu_squared
from privypurse.accounting._totals import quanta_up
from privypurse.core.charges import GaussianCharge
from privypurse.purse import _sqlite_ledger as one_name
from privypurse.purse import _sqlite_ledger as sqlite_ledger
from privypurse.purse._replay import replay

BOX = Sensitive([1.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
TERMS = {"epsilon": 1.0, "delta": 1e-6, "neighbouring": "add-remove"}


def in_child(work):
    """Run `work` in a forked child; return its exit code (0 unless it says otherwise, 99 if it
    raised).
    """
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = work() or 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def exit_code(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def race(path, seed, charges):
    """Spend with random noise levels, some alone and some reserved; return the exact sum of what
    was admitted.
    """
    rng = random.Random(seed)
    purse = Purse(**TERMS, ledger=path)
    total, admitted = 0, 0
    for k in range(charges):
        multiplier = rng.uniform(150.0, 400.0)
        context = purse.reserve(5) if k % 10 == 0 else contextlib.nullcontext()
        with context, contextlib.suppress(BudgetExhausted):
            purse.release(BOX, Gaussian(multiplier))
            total += quanta_up(mu_squared(GaussianCharge(multiplier)))
            admitted += 1
    return total, admitted


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_eight_processes_race_four_thousand_charges_against_one_file(tmp_path, method):
    context = multiprocessing.get_context(method)
    path = tmp_path / "budget.db"
    # Under spawn each process starts cold; fewer charges keep the run short, the race is the same.
    charges = 500 if method == "fork" else 50
    with concurrent.futures.ProcessPoolExecutor(8, mp_context=context) as workers:
        sums = list(workers.map(race, [path] * 8, range(8), [charges] * 8))
    purse = Purse.reopen(path)
    recorded = purse.ledger.totals("default")
    assert recorded.quanta == (sum(total for total, _ in sums),), "the sum is exact"
    assert recorded.releases == sum(admitted for _, admitted in sums)
    assert recorded.quanta[0] <= purse.filter.limits[0], "and never above the limit"
    if method == "fork":
        assert recorded.releases < 8 * charges, "the limit was reached"
        assert purse.remaining.fraction < 1e-3, "and little is left over"
    assert purse.spent.epsilon <= 1.0
    assert replay(purse.ledger, "default", purse.filter) == recorded


def seconds_of_a_release(path):
    """Measure a durable release on this disk, by the quickest of some."""
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path)
    taken = []
    for _ in range(10):
        start = time.perf_counter()
        purse.release(BOX, Gaussian(5_000.0))
        taken.append(time.perf_counter() - start)
    return min(taken)


@pytest.mark.parametrize("reserve", [0, 7], ids=["single charges", "reservations"])
def test_two_hundred_kills_between_request_and_release(tmp_path, reserve):
    """Every value that got out is in the ledger, whenever the process dies."""
    rng = random.Random(reserve)
    path = tmp_path / "budget.db"
    Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path)
    pace = seconds_of_a_release(tmp_path / "other.db")
    got_out = before = 0
    died_while = {"idle": 0, "asking": 0}
    for _ in range(200):
        read, write = os.pipe()

        def spend(write=write, read=read):
            os.close(read)
            purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path)
            with purse.reserve(reserve) if reserve else contextlib.nullcontext():
                while True:
                    os.write(write, b"?")  # request
                    purse.release(BOX, Gaussian(5_000.0))
                    os.write(write, b"!")  # the value is out

        child = in_child(spend)
        os.close(write)
        with os.fdopen(read, "rb", buffering=0) as pipe:
            # Some releases are waited for, and the next is cut short: at a fraction of what one
            # takes on this disk.
            told, wanted = pipe.read(1), rng.randrange(3 + reserve)
            while told.count(b"!") < wanted:
                told += (heard := pipe.read(1))
                assert heard, "the child failed"
            time.sleep(rng.uniform(0, pace))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            told += pipe.read()
        out = told.count(b"!")
        died_while["asking" if told.endswith(b"?") else "idle"] += 1
        got_out += out
        # Whoever now takes the file alone, without the journal that may lie beside it, gets no
        # budget back.
        shutil.copy(path, tmp_path / "copy.db")
        with contextlib.suppress(LedgerCorrupt):  # cut short while the file was written
            assert SqliteLedger(tmp_path / "copy.db").totals("default").releases - before >= out
        recorded = SqliteLedger(path).totals("default").releases - before
        assert recorded >= out, "a value got out that is not in the ledger"
        # At most the one under way is over-counted, or the rest of a reserved block and the next.
        assert recorded <= out + 1 + 2 * reserve
        before += recorded
    assert got_out > 100
    assert died_while["asking"] > 40, "the kills did fall between request and release"
    purse = Purse.reopen(path)
    assert replay(purse.ledger, "default", purse.filter) == purse.ledger.totals("default")


def test_a_full_disk_gives_a_clear_error_and_no_release(tmp_path):
    path = tmp_path / "budget.db"
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path)
    opened = []

    class Watched(Gaussian):
        def draw(self, *arguments):
            opened.append(1)
            return super().draw(*arguments)

    def fill():
        # The operating system refuses to let any file of this process grow, as a full disk does.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        for k in range(1000):
            try:
                purse.release(BOX, Watched(5_000.0), what="x" * 500)
            except LedgerUnavailable as error:
                clear = "disk" in str(error) and "released" not in str(error)
                recorded = Purse.reopen(path).ledger.totals("default").releases
                return 7 if clear and k == len(opened) == recorded else 8
        return 9

    assert exit_code(in_child(fill)) == 7
    # With room again, the ledger goes on where it was.
    purse = Purse.reopen(path)
    purse.release(BOX, Gaussian(5_000.0))
    assert purse.ledger.verify() == purse.spent.releases + 1


def test_a_really_full_disk_gives_a_clear_error_and_no_release(tmp_path):
    """The same on a small file system of its own, where this machine lets a test mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size=256k tmpfs '{disk}' 2>/dev/null") != 0:
        pytest.skip("mounting a small file system needs root and a kernel that allows it")
    try:
        purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=disk / "budget.db")
        released, message = 0, ""
        while not message:
            try:
                purse.release(BOX, Gaussian(5_000.0), what="x" * 2_000)
                released += 1
            except LedgerUnavailable as error:
                message = str(error)
        assert "disk" in message
        assert 0 < released == purse.spent.releases
    finally:
        os.system(f"umount '{disk}'")


def as_nobody():
    """Give up root, for whom nothing is read-only."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def open_to_others(path):
    """Let an ordinary user reach the file through pytest's private folders."""
    for folder in path.parents:
        with contextlib.suppress(PermissionError):
            if folder != pathlib.Path(folder.anchor):
                folder.chmod(folder.stat().st_mode | 0o055)


def test_a_read_only_file_gives_a_clear_error_and_no_release(tmp_path):
    path = tmp_path / "budget.db"
    Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path)
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    open_to_others(path)

    def try_to_spend():
        as_nobody()
        purse = Purse.reopen(path)

        class Watched(Gaussian):
            def draw(self, *arguments):
                os._exit(9)

        try:
            with purse.reserve(3):
                purse.release(BOX, Watched(5_000.0))
        except LedgerUnavailable as error:
            if "readonly" not in str(error) or "writable" not in str(error):
                return 8
        try:
            purse.release(BOX, Watched(5_000.0))
        except LedgerUnavailable as error:
            return 7 if "readonly" in str(error) and "released" not in str(error) else 8
        return 10

    assert exit_code(in_child(try_to_spend)) == 7
    tmp_path.chmod(0o755)
    assert Purse.reopen(path).spent.releases == 0


def test_a_read_only_folder_gives_a_clear_error(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o555)
    open_to_others(folder / "budget.db")

    def try_to_make():
        as_nobody()
        try:
            SqliteLedger(folder / "budget.db")
        except LedgerUnavailable as error:
            return 7 if "cannot be" in str(error) and "released" not in str(error) else 8
        return 9

    assert exit_code(in_child(try_to_make)) == 7
    folder.chmod(0o755)


def test_many_processes_may_make_the_ledger_at_once(tmp_path):
    path = tmp_path / "budget.db"

    def make():
        Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path).release(BOX, Gaussian(100.0))
        return 7

    children = [in_child(make) for _ in range(8)]
    assert [exit_code(child) for child in children] == [7] * 8
    assert Purse.reopen(path).spent.releases == 8
    assert [file.name for file in tmp_path.iterdir()] == ["budget.db"]


def test_a_held_lock_is_waited_for_and_then_reported(tmp_path, monkeypatch):
    path = tmp_path / "budget.db"
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path)
    monkeypatch.setattr(sqlite_ledger, "_BUSY_SECONDS", 0.2)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LedgerUnavailable, match=r"locked.*no other program holds"):
        purse.release(BOX, Gaussian(100.0))
    holder.execute("ROLLBACK")
    holder.close()
    purse.release(BOX, Gaussian(100.0))
    assert purse.spent.releases == 1


def test_a_ledger_with_two_names_is_refused_before_a_release(tmp_path):
    """Under each name SQLite has a journal of its own, so that a crash under one would take back
    lines of the other.
    """
    path, other = tmp_path / "budget.db", tmp_path / "elsewhere.db"
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path)
    purse.release(BOX, Gaussian(100.0))
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(LedgerUnavailable, match=r"must have one name; got a file with 2.*Remove the other"):
            SqliteLedger(name)
    with pytest.raises(LedgerUnavailable, match="one name") as refused:
        purse.release(BOX, Gaussian(100.0))
    assert "released" not in str(refused.value)  # one release was made before
    other.unlink()
    purse.release(BOX, Gaussian(100.0))
    assert purse.spent.releases == 2


def test_a_ledger_that_was_just_made_may_have_its_first_name_still(tmp_path):
    """Between the two names that a new file has for a moment, another process may open it, or its
    maker be killed.
    """
    path = tmp_path / "budget.db"
    Purse(1.0, 1e-6, neighbouring="add-remove", ledger=path).release(BOX, Gaussian(100.0))
    one_name.first_name(path).hardlink_to(path)
    assert Purse.reopen(path).spent.releases == 1
    assert [file.name for file in tmp_path.iterdir()] == ["budget.db"]


@pytest.mark.parametrize("name", ["budget.db", "with a\tblank\\.db"])
def test_a_ledger_mounted_as_a_single_file_is_refused(tmp_path, name):
    """As by `docker run -v budget.db:/data/budget.db`; its folder may be mounted."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=outside / name)
    (inside / name).touch()

    def mount(what, where):
        if subprocess.run(["mount", "--bind", what, where], capture_output=True, check=False).returncode:
            pytest.skip("mounting needs root and a kernel that allows it")

    mount(outside / name, inside / name)
    try:
        with pytest.raises(LedgerUnavailable, match="Mount its folder instead"):
            SqliteLedger(inside / name)
    finally:
        subprocess.run(["umount", inside / name], check=True)
    mount(outside, inside)
    try:
        Purse.reopen(inside / name).release(BOX, Gaussian(100.0))
    finally:
        subprocess.run(["umount", inside], check=True)
    assert purse.spent.releases == 1
