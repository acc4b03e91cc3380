"""What runs hold of a budget: exact while they pay, and gone when they are."""

import contextlib
import fcntl
import math
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privypurse import BudgetExhausted, Gaussian, Purse
from privypurse.estimators import PrivateLogisticRegression
from privypurse.oracles.statistics import clipped_sum
from privypurse.purse._holds import beside, held, held_by_others
from privypurse.purse._opening import part_of

RULES = st.sampled_from(["gdp", "zcdp", "rdp"])


def _purse(folder, **settings):
    return Purse(1.0, 1e-6, neighbouring="add-remove", ledger=folder / "budget.db", **settings)


def _release(purse, noise_multiplier=60.0):
    purse.release(clipped_sum(np.ones((3, 1)), clip_norm=1.0), Gaussian(noise_multiplier))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(RULES, st.lists(st.tuples(st.integers(0, 7), st.integers(1, 12)), max_size=5))
def test_what_is_left_for_others_stays_the_same_while_a_run_pays(tmp_path_factory, rule, course):
    folder = tmp_path_factory.mktemp("ledger")
    purse = _purse(folder, filter=rule)
    other = Purse.reopen(folder / "budget.db")
    run = part_of(purse, 0.6)
    with held(run):
        left = beside(other, held_by_others(other))
        for alone, in_a_block in course:
            with contextlib.suppress(BudgetExhausted):
                for _ in range(alone):
                    _release(run)
                    assert beside(other, held_by_others(other)) == pytest.approx(left, rel=1e-9)
                with run.reserve(8):
                    for _ in range(in_a_block):
                        _release(run)
                        assert beside(other, held_by_others(other)) == pytest.approx(left, rel=1e-9)
            assert beside(other, held_by_others(other)) == pytest.approx(left, rel=1e-9)
    spent = math.sqrt(beside(other, held_by_others(other)))
    assert held_by_others(other) == []
    assert spent >= math.sqrt(left) * (1 - 1e-9)
    assert os.listdir(folder) == ["budget.db"]


def test_a_part_that_does_not_fit_beside_a_run_is_refused_with_who_holds_it(tmp_path):
    purse = _purse(tmp_path, who="alice")
    with held(part_of(purse, 0.8)):
        with pytest.raises(BudgetExhausted, match=f"alice .process {os.getpid()}"):
            part_of(purse, 0.8)
        assert part_of(Purse(1.0, 1e-6, neighbouring="add-remove"), 0.8).epsilon == pytest.approx(0.8)
        other_data = _purse(tmp_path, dataset="other")
        assert part_of(other_data, 0.8).epsilon == pytest.approx(0.8)
    assert part_of(purse, 0.8).epsilon == pytest.approx(0.8)


def test_two_runs_that_start_in_the_same_moment_do_not_both_begin(tmp_path):
    purse = _purse(tmp_path)
    one, two = (part_of(purse, 0.8) for _ in range(2))
    with held(one), pytest.raises(BudgetExhausted, match="does not fit beside"), held(two):
        raise AssertionError("began")


def test_all_that_is_held_leaves_nothing_and_says_to_wait(tmp_path):
    purse = _purse(tmp_path)
    with held(part_of(purse, None)), pytest.raises(BudgetExhausted, match="Wait"):
        part_of(purse, 0.1)


def test_a_ledger_behind_a_link_has_the_same_holds(tmp_path):
    purse = _purse(tmp_path)
    (tmp_path / "link.db").symlink_to("budget.db")
    with held(part_of(purse, 0.8)):
        assert len(held_by_others(Purse.reopen(tmp_path / "link.db"))) == 1


def test_a_hold_whose_process_is_gone_counts_for_nothing(tmp_path):
    purse = _purse(tmp_path)
    child = os.fork()
    if not child:  # ends without letting go
        holding = held(part_of(purse, 0.8))
        holding.__enter__()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list((tmp_path / "budget.db.runs").iterdir())) == 1
    with held(part_of(purse, 0.8)):
        assert len(held_by_others(purse)) == 1
    assert os.listdir(tmp_path) == ["budget.db"]


def test_a_fit_holds_its_part_and_warns_when_it_is_cut_short(tmp_path):
    X = np.random.default_rng(0).standard_normal((500, 2))
    y = (X[:, 0] > 0).astype(int)
    purse = _purse(tmp_path)
    seen = []

    class Spends:
        def on_start(self, steps, done):
            seen.extend(held_by_others(Purse.reopen(tmp_path / "budget.db")))

        def on_step(self, step):
            if step.number == 1:
                other = Purse.reopen(tmp_path / "budget.db")
                _release(other, other.remaining.noise_multiplier)

        def on_end(self, trace):
            pass

    model = PrivateLogisticRegression(0.8, purse=purse, classes=[0, 1], callbacks=[Spends()])
    with pytest.warns(UserWarning, match="CUT SHORT"):
        model.fit(X, y)
    assert model.stop_reason_ == "others"
    assert len(seen) == 1
    model = PrivateLogisticRegression(0.5, classes=[0, 1]).fit(X, y)
    assert model.stop_reason_ != "others"


def test_holds_that_cannot_be_read_count_for_nothing(tmp_path, monkeypatch):
    purse, real = _purse(tmp_path), os.open

    def refuse(path, *more):
        if str(path).endswith(".json"):
            raise PermissionError
        return real(path, *more)

    with held(part_of(purse, 0.3)):
        assert len(held_by_others(purse)) == 1
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            assert held_by_others(purse) == []


def test_the_folder_of_holds_is_made_again_where_another_run_removes_it(tmp_path, monkeypatch):
    """As another run does when it ends: between the making, the opening and the locking of the
    folder.
    """
    purse, folder, moments = _purse(tmp_path), tmp_path / "budget.db.runs", ["open", "lock"]
    real_open, real_flock = os.open, fcntl.flock

    def open_late(path, *more):
        if path == folder and "open" in moments:
            moments.remove("open")
            folder.rmdir()
        return real_open(path, *more)

    def lock_late(file, how):
        if how == fcntl.LOCK_EX and "lock" in moments:
            moments.remove("lock")
            folder.rmdir()
            folder.mkdir()
        return real_flock(file, how)

    monkeypatch.setattr(os, "open", open_late)
    monkeypatch.setattr(fcntl, "flock", lock_late)
    with held(part_of(purse, 0.3)):
        assert len(held_by_others(purse)) == 1
    assert moments == []
    assert not folder.exists()


def test_what_is_not_a_hold_is_left_alone_in_the_folder_of_holds(tmp_path):
    purse, folder = _purse(tmp_path), tmp_path / "budget.db.runs"
    folder.mkdir()
    (tmp_path / "mine").write_text(" " * 32 + '{"dataset": "default", "who": "me", "process": 1}')
    (folder / "thesis.txt").write_text("years")
    (folder / f"{3:016x}.json").write_text("no hold")
    (folder / f"{4:016x}.json").symlink_to(tmp_path / "mine")
    before = sorted(os.listdir(folder))
    with (folder / f"{5:016x}.json").open("w") as locked:
        locked.write(" " * 32 + "{}")
        locked.flush()
        fcntl.flock(locked, fcntl.LOCK_EX)
        with held(part_of(purse, 0.8)):
            assert len(held_by_others(purse)) == 1
    (folder / f"{5:016x}.json").unlink()
    assert sorted(os.listdir(folder)) == before
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_in_place_of_the_folder_of_holds_is_warned_of_and_not_followed(tmp_path, is_there):
    purse, home = _purse(tmp_path), tmp_path / "home"
    if is_there:
        home.mkdir()
        (home / f"{3:016x}.json").write_text("1.0".ljust(32) + '{"dataset": "default", "who": "me", "process": 1}')
    (tmp_path / "budget.db.runs").symlink_to(home)
    with pytest.warns(UserWarning, match="cannot be held"), held(part_of(purse, 0.8)):
        _release(purse)
    assert (tmp_path / "budget.db.runs").is_symlink()
    assert home.exists() == is_there
    assert not is_there or os.listdir(home) == [f"{3:016x}.json"]
