"""Rows on a real cluster of two worker processes: the same answers, and a killed worker costs a
retry only.
"""

import os
import signal
import threading

import numpy as np
import pytest

from privypurse import InvalidArgument, NoiseSource, Purse
from privypurse.core.queries import ClassCounts, Count, GradientAt, LossesAlong
from privypurse.losses import Logistic
from privypurse.oracles._linear import DenseOracle
from privypurse.training import train
from privypurse.training.optimizers import GradientDescent
from privypurse.training.schedules import EvenSplit

distributed = pytest.importorskip("distributed", reason="the dask extra is not installed")
da = pytest.importorskip("dask.array", reason="the dask extra is not installed")
dd = pytest.importorskip("dask.dataframe", reason="the dask extra is not installed")
dask_backend = pytest.importorskip("privypurse.oracles._dask_backend")

# The cluster has threads and sockets of its own, whose warnings are not ours.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("dask")]


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((6_000, 5)) / 2
    X[7, 2] = np.nan
    return X, (X[:, 0] - X[:, 1] > 0).astype(int)


@pytest.fixture(scope="module")
def oracle(client, data):
    X, y = (da.from_array(array, chunks=(900, *array.shape[1:])) for array in data)
    return dask_backend.DaskOracle(X, y, client=client, loss=Logistic(clip_derivative=0.5))


def test_answers_are_those_of_one_machine(oracle, data):
    local = DenseOracle(*data, loss=Logistic(clip_derivative=0.5))
    w, u = np.random.default_rng(0).standard_normal((2, 6))
    for query in (
        GradientAt(point=w),
        GradientAt(point=w, clip_norm=0.2),
        LossesAlong(point=w, direction=u, steps=[0.0, 0.5, 2.0]),
        Count(),
        ClassCounts(),
    ):
        there, here = oracle.answer(query), local.answer(query)
        assert there._value == pytest.approx(here._value, rel=1e-9, abs=1e-9)
        assert repr(there) == repr(here)


def test_dataframes(client, data):
    pandas = pytest.importorskip("pandas")
    X, y = data
    frame = dd.from_pandas(pandas.DataFrame(X, columns=list("abcde")).assign(label=y), npartitions=4)
    oracle = dask_backend.DaskOracle(frame[list("abcde")], frame["label"], client=client, loss=Logistic())
    query = GradientAt(point=np.ones(6))
    assert oracle.answer(query)._value == pytest.approx(
        DenseOracle(X, y, loss=Logistic()).answer(query)._value, rel=1e-9
    )


def test_samples_are_drawn_here(oracle):
    noise = NoiseSource(seed=3)
    box = oracle.answer(Count(), sample_prob=0.1, noise=noise)
    assert 450 < float(box._value) < 750
    assert box.sample_prob == 0.1


def test_a_worker_killed_in_mid_run_costs_a_retry_and_never_a_second_charge(client, oracle, data):
    class Killer:
        killed = 0

        def on_start(self, steps, done): ...

        def on_step(self, step):
            if step.number in (3, 7):
                # A moment later, while the next step's partitions are being summed.
                pid = sorted(client.run(os.getpid).values())[0]
                threading.Timer(0.005, self.kill, [pid]).start()

        def kill(self, pid):
            os.kill(pid, signal.SIGKILL)
            self.killed += 1

        def on_end(self, trace): ...

    def run(oracle, callbacks=()):
        purse = Purse(2.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=9))
        descent = GradientDescent(step_size=4.0, records=6_000.0)
        return train(oracle, descent, EvenSplit(), purse, steps=12, callbacks=callbacks), purse

    killer = Killer()
    result, purse = run(oracle, [killer])
    expected, _ = run(DenseOracle(*data, loss=Logistic(clip_derivative=0.5)))
    assert killer.killed == 2
    assert result.trace.stop_reason == "steps"
    assert result.point == pytest.approx(expected.point, rel=1e-6)
    assert purse.spent.releases == 12


def test_mistakes_are_named_before_anything_is_spent(client, data):
    X, y = (da.from_array(array, chunks=(900, *array.shape[1:])) for array in data)
    with pytest.raises(InvalidArgument, match="Dask array or dataframe"):
        dask_backend.DaskOracle(data[0], y, client=client, loss=Logistic())
    with pytest.raises(InvalidArgument, match="partitions of X"):
        dask_backend.DaskOracle(X, y.rechunk(2_000), client=client, loss=Logistic())
    with pytest.raises(InvalidArgument, match="by rows only"):
        dask_backend.DaskOracle(X.rechunk((900, 2)), y, client=client, loss=Logistic())
    with pytest.raises(InvalidArgument, match="declared classes"):
        dask_backend.DaskOracle(X, y + 1, client=client, loss=Logistic(), retries=0)


def test_an_error_of_the_graph_behind_a_table_is_not_quoted(client, data):
    def parse(block):
        raise ValueError("could not convert string to float: 'SECRETvalue73'")

    X, y = (da.from_array(array, chunks=(900, *array.shape[1:])) for array in data)
    with pytest.raises(InvalidArgument, match="ValueError") as refused:
        dask_backend.DaskOracle(X.map_blocks(parse, meta=X._meta), y, client=client, loss=Logistic())
    assert "SECRET" not in str(refused.value)
    assert refused.value.__suppress_context__
