"""How chunks lie in memory must not decide how records are rounded: it may depend on how many records there are."""

import numpy as np
import pandas as pd
import pytest

from privypurse import Neighbouring, NoiseSource
from privypurse.core.queries import GradientAt
from privypurse.losses import Logistic
from privypurse.oracles.chunks import from_arrays
from privypurse.oracles.linear import ChunkedOracle, DenseOracle

CHUNK, COLUMNS = 2_048, 100


def cancelling(dtype):
    """A row and a point whose product cancels nearly to nothing, so that the order of additions shows."""
    rng = np.random.default_rng(0)
    row = rng.normal(size=COLUMNS).astype(dtype)
    row /= np.linalg.norm(row)
    point = rng.normal(size=COLUMNS)
    point -= (point @ row) * row
    point = (point * 1e6).astype(dtype).astype(float)
    return row, point + (1 - point @ row) * row


def from_frames(X, y):
    frame = pd.DataFrame(X)
    return lambda: ((frame.iloc[k : k + CHUNK], y[k : k + CHUNK]) for k in range(0, len(y), CHUNK))


SOURCES = {"arrays": lambda X, y: from_arrays(X, y, rows=CHUNK), "frames": from_frames}


@pytest.mark.parametrize("secure", [True, False], ids=["exact", "plain"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("source", SOURCES)
def test_one_record_more_moves_the_sum_by_its_bound_at_most(source, dtype, secure):
    """A whole number of chunks, stored by column, is a table by column; with one record more its chunks are slices."""
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
    many = oracle.answer(GradientAt(point=point), sample_prob=0.5, noise=NoiseSource(seed=1, secure=True))._value
    assert np.allclose(many / one, np.round(many / one), rtol=0, atol=1e-9), "each record adds what it adds alone"
