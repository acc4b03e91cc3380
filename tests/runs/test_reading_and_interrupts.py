"""Arrays that grow, rows set aside, and Ctrl-C held back while a model is brought to safety."""

import os
import signal
import threading

import numpy as np
import pytest

from privypurse.runs._on_record import held_back
from privypurse.runs._progress import Silent
from privypurse.runs._rows import _Growing, available_memory, read_rows
from privypurse.tables._files import TableFile
from tests.runs.census import SCHEMA, a_census


@pytest.mark.parametrize("width", [None, 1, 3])
def test_an_array_grows_to_what_was_put_in(width):
    rng, growing, blocks = np.random.default_rng(0), _Growing(width, np.float32), []
    for rows in (0, 1, 5, 0, 1_000, 3, 70_000):
        blocks.append(rng.random((rows,) if width is None else (rows, width), dtype=np.float32))
        growing.append(blocks[-1])
    found = growing.finish()
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.concatenate(blocks))
    assert _Growing(width, np.float64).finish().shape == ((0,) if width is None else (0, width))


def test_each_record_is_kept_or_set_aside_once(tmp_path):
    file = TableFile(a_census(tmp_path, 4_000))
    whole, none = read_rows(file, SCHEMA, Silent())
    assert len(whole.y) == 4_000
    assert len(none.y) == none.X.shape[0] == 0
    kept, aside = read_rows(file, SCHEMA, Silent(), hold_out=0.25, seed=0)
    assert 900 < len(aside.y) < 1_100
    together = np.vstack([kept.X, aside.X])
    assert len(together) == 4_000
    np.testing.assert_array_equal(np.sort(together.sum(axis=1)), np.sort(whole.X.sum(axis=1)))
    # Without a seed the choice is a new one each time.
    first, second = (read_rows(file, SCHEMA, Silent(), hold_out=0.25)[1] for _ in range(2))
    assert not np.array_equal(first.X, second.X)


def test_memory_is_some_number_of_bytes():
    assert available_memory() > 0


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_noted_and_the_work_goes_on(kind):
    before, done = signal.getsignal(kind), False
    with held_back() as interrupts:
        assert not interrupts
        os.kill(os.getpid(), kind)
        done = True
        assert interrupts == [kind]
    assert done
    assert signal.getsignal(kind) is before


@pytest.fixture
def interruptible():
    """A run in the background ignores interrupts from the start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupts_work_again_afterwards_and_after_errors():
    with pytest.raises(RuntimeError), held_back():
        raise RuntimeError
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_other_threads_are_left_alone():
    found = []

    def work():
        with held_back() as interrupts:
            found.append(bool(interrupts))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
