"""A forked process is another one, also where it has the process id of the one it comes from."""

import os
import signal

import numpy as np
import pytest

from privypurse import Gaussian, NoiseSource, Purse
from privypurse.core._errors import SharedAcrossProcesses
from privypurse.core._randomness import this_process
from privypurse.core._sensitive import Sample
from privypurse.core.queries import GradientAt
from privypurse.losses import Logistic
from privypurse.oracles import DenseOracle


@pytest.fixture(autouse=True)
def one_id_for_all(monkeypatch):
    """What a child of a child may get when the first process is gone: its process id."""
    monkeypatch.setattr(os, "getpid", lambda: 4711)


def in_fork(work):
    """Run something in a forked child; return 7 if it was refused there, and otherwise what it
    returned.
    """
    child = os.fork()
    if child == 0:
        code = 99
        signal.alarm(120)  # against waiting for threads that a child does not have
        try:
            code = work() or 0
        except SharedAcrossProcesses:
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_no_two_processes_are_the_same():
    mine = this_process()
    assert in_fork(lambda: int(this_process() == mine)) == 0
    assert in_fork(lambda: in_fork(lambda: int(this_process() == mine))) == 0
    assert this_process() == mine


def test_a_budget_in_memory_is_not_spent_again_in_a_process_with_the_same_id(box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    purse.release(box, Gaussian.spending(purse.remaining))
    other = Purse(1.0, 1e-6, neighbouring="add-remove")
    assert in_fork(lambda: in_fork(lambda: other.release(box, Gaussian(20.0)) and 0)) == 7


def test_a_reservation_is_not_spent_in_a_process_with_the_same_id(tmp_path, box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=tmp_path / "budget.db")

    def spend():
        purse.release(box, Gaussian(100.0))

    with purse.reserve(10):
        spend()
        assert in_fork(spend) == 0
    assert [entry.kind for entry in purse.ledger.entries()] == ["open", "reserve", "charge", "settle"]
    assert purse.spent.releases == 2


def test_a_sample_is_not_taken_in_a_process_with_the_same_id():
    sample = Sample()

    def take():
        with sample.take():
            pass

    assert in_fork(take) == 7


def test_seeded_noise_is_not_repeated_in_a_process_with_the_same_id():
    source = NoiseSource(seed=3)
    assert in_fork(lambda: int(source.words(1)[0] % 2)) == 7


def test_sums_have_threads_in_a_process_with_the_same_id():
    rng = np.random.default_rng(0)
    oracle = DenseOracle(rng.standard_normal((9_000, 60)), rng.integers(0, 2, 9_000), loss=Logistic(), threads=2)
    query = GradientAt(point=np.ones(61))
    expected = oracle.answer(query)._value.tolist()
    assert in_fork(lambda: int(oracle.answer(query)._value.tolist() != expected)) == 0
