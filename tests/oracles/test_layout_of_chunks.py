"""How chunks lie in memory must not decide how records are rounded: it may depend on how many
records there are.
"""

import io

import numpy as np
import pandas as pd
import pytest

from privypurse import Neighbouring, NoiseSource
from privypurse.core.queries import GradientAt
from privypurse.losses import Logistic
from privypurse.oracles._linear import ChunkedOracle, DenseOracle
from privypurse.oracles.chunks import from_arrays

CHUNK, COLUMNS = 2_048, 100


def cancelling(dtype, columns=COLUMNS, large=1e6, seed=0):
    """A row and a point whose product cancels nearly to nothing, so that the order of additions
    shows.
    """
    rng = np.random.default_rng(seed)
    row = rng.normal(size=columns).astype(dtype)
    row /= np.linalg.norm(row)
    point = rng.normal(size=columns)
    point -= (point @ row) * row
    point = (point * large).astype(dtype).astype(float)
    return row, point + (1 - point @ row) * row


def from_frames(X, y):
    frame = pd.DataFrame(X)
    return lambda: ((frame.iloc[k : k + CHUNK], y[k : k + CHUNK]) for k in range(0, len(y), CHUNK))


SOURCES = {"arrays": lambda X, y: from_arrays(X, y, rows=CHUNK), "frames": from_frames}


@pytest.mark.parametrize("secure", [True, False], ids=["exact", "plain"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("source", SOURCES)
def test_one_record_more_moves_the_sum_by_its_bound_at_most(source, dtype, secure):
    """A whole number of chunks, stored by column, is a table by column; with one record more its
    chunks are slices.
    """
    row, point = cancelling(dtype)

    def box(records):
        X = np.asfortranarray(np.broadcast_to(row, (records, COLUMNS)))
        chunks = SOURCES[source](X, np.ones(records, dtype=int))
        oracle = ChunkedOracle(
            chunks, features=COLUMNS, loss=Logistic(clip_derivative=0.5), dtype=dtype, constant=False, threads=1
        )
        return oracle.answer(GradientAt(point=point), noise=NoiseSource(secure=secure))

    before, after = box(CHUNK), box(CHUNK + 1)
    moved = np.linalg.norm(after._value - before._value)
    assert moved <= before.bound(Neighbouring.ADD_REMOVE, before.norm)


@pytest.mark.parametrize("secure", [True, False], ids=["exact", "plain"])
@pytest.mark.parametrize(("dtype", "large"), [(np.float32, 1e6), (np.float64, 1e15)], ids=["float32", "float64"])
def test_a_last_chunk_of_one_record_is_read_as_one_of_two(dtype, large, secure):
    """A data frame of one row is in one piece by row and by column, with the strides of a table by
    column.
    """
    columns, strides = 257, []

    def box(rows, point):
        text = pd.DataFrame(np.array(rows)).to_csv(index=False, float_format="%.17g")

        def chunks():
            for frame in pd.read_csv(io.StringIO(text), chunksize=4, dtype=dtype):
                strides.append(frame.to_numpy().strides)
                yield frame, np.ones(len(frame), dtype=int)

        oracle = ChunkedOracle(
            chunks, features=columns, loss=Logistic(clip_derivative=0.5), dtype=dtype, constant=False, threads=1
        )
        return oracle.answer(GradientAt(point=point), noise=NoiseSource(secure=secure))

    for seed in range(6):
        row, point = cancelling(dtype, columns, large, seed)
        # Its score is far from zero, on the flat side of the loss: it adds almost nothing itself.
        other = (row + 1e-3 * point / np.linalg.norm(point)).astype(dtype)
        before, after = box([other] * 4 + [row], point), box([other] * 4 + [row, other], point)
        moved = np.linalg.norm(after._value - before._value)
        assert moved <= 1e-3 * before.bound(Neighbouring.ADD_REMOVE, before.norm)
    size = np.dtype(dtype).itemsize
    assert (size, size) in strides, "pandas does not store one row so any more: find another that does"


@pytest.mark.parametrize("secure", [True, False], ids=["exact", "plain"])
@pytest.mark.parametrize("records", [1, 2, 64])
def test_the_first_records_of_a_table_by_column_do_not_tell_how_many_others_there_are(records, secure):
    row, point = cancelling(np.float32, 257)

    def total(table):
        loss, labels = Logistic(clip_derivative=0.5), np.ones(records, dtype=int)
        oracle = DenseOracle(table[:records], labels, loss=loss, constant=False, threads=1)
        return oracle.answer(GradientAt(point=point), noise=NoiseSource(secure=secure))._value.tolist()

    def whole(rows):
        return np.broadcast_to(row, (rows, row.size)).copy(order="F")

    alone = total(whole(records))
    for more in (1, 2, 100):
        assert total(whole(records + more)) == alone
        assert total(whole(records + more)[::-1]) == alone
        assert total(pd.DataFrame(whole(records + more))) == alone
    by_row = total(np.ascontiguousarray(whole(records + 1)))
    assert by_row == total(np.broadcast_to(row, (records, row.size)))
    assert by_row != alone, "the order of additions does not show: the test cannot fail"


def test_a_copy_in_double_precision_is_added_up_in_the_same_order():
    X = np.asfortranarray(np.random.default_rng(0).normal(size=(64, COLUMNS)).astype(np.float32))
    for rows in (1, 64):
        part = next(iter(DenseOracle(X[:rows], np.ones(rows, dtype=int), loss=Logistic())._parts()))
        assert part._by_column
        assert part.in_double()._by_column
        assert not part.take(np.arange(rows)).in_double()._by_column


def test_a_sample_of_a_table_by_column_is_summed_by_row_however_large():
    row, point = cancelling(np.float32)
    X = np.asfortranarray(np.broadcast_to(row, (64, COLUMNS)))
    oracle = DenseOracle(X, np.ones(64, dtype=int), loss=Logistic(clip_derivative=0.5), constant=False, threads=1)
    part = next(iter(oracle._parts()))
    alone = DenseOracle(row[None, :], [1], loss=Logistic(clip_derivative=0.5), constant=False, threads=1)
    one = alone.answer(GradientAt(point=point), noise=NoiseSource(secure=True))._value
    for count in (1, 2, 7, 64):
        sample = part.take(np.arange(count))
        assert not sample._by_column
        assert sample._table.strides == (COLUMNS * 4, 4)
        assert not np.shares_memory(sample._table, X)
    many = oracle.answer(GradientAt(point=point), sample_prob=0.5, noise=NoiseSource(seed=1, secure=True))._value
    assert np.allclose(many / one, np.round(many / one), rtol=0, atol=1e-9), "each record adds what it adds alone"
