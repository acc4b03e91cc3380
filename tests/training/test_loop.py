"""The loop: stops at the budget, leaves a public record, goes on where it was."""

import json
import os
import random
import signal
import time
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse
from tests.kills import kill_after

from privypurse import Gaussian, InvalidArgument, LedgerCorrupt, NoiseSource, Purse
from privypurse.core._errors import UnsupportedCharge
from privypurse.core.charges import GaussianCharge
from privypurse.core.queries import Count, Released
from privypurse.losses import Logistic
from privypurse.oracles._linear import DenseOracle
from privypurse.purse._replay import replay
from privypurse.training import Checkpoint, ProgressBar, linear_scores, train
from privypurse.training._trace import VECTORS_KEPT, Grown, Trace, forget, remembered
from privypurse.training.optimizers import Ball, GradientDescent
from privypurse.training.schedules import EvenSplit
from privypurse.training.schedules._base import ConstantNoise


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((2_000, 5)) / 2
    y = (X @ [1.0, -2.0, 0.5, 0.0, 1.5] + 0.3 * rng.standard_normal(2_000) > 0).astype(int)
    return X, y


@pytest.fixture
def oracle(data):
    return DenseOracle(*data, loss=Logistic(clip_derivative=0.5))


def make_purse(**changes):
    return Purse(**{"epsilon": 2.0, "delta": 1e-6, "neighbouring": "add-remove"} | changes)


DESCENT = GradientDescent(step_size=4.0, records=2_000.0, momentum=0.5)


def test_a_run_learns_and_spends_its_budget(oracle, data):
    purse = make_purse()
    result = train(oracle, DESCENT, EvenSplit(), purse, steps=40)
    X, y = data
    accuracy = np.mean((np.column_stack([X, np.ones(len(X))]) @ result.point > 0) == y)
    assert accuracy > 0.85
    assert result.trace.stop_reason == "steps"
    assert len(result.trace.steps) == 40
    assert 2.0 * (1 - 1e-3) < purse.spent.epsilon <= 2.0
    assert result.trace.mu_spent[-1] == pytest.approx(purse.filter.mu, rel=1e-6)
    assert result.trace.steps[-1].fraction_left < 1e-6
    assert "40 x GradientAt" in str(purse.certificate())


def test_a_run_stops_cleanly_at_the_budget(oracle):
    purse = make_purse()
    result = train(oracle, DESCENT, ConstantNoise(5.0), purse, steps=1_000)
    assert result.trace.stop_reason == "budget"
    assert 0 < len(result.trace.steps) < 30
    assert len(result.trace.steps) == purse.spent.releases
    assert np.isfinite(result.point).all()
    again = train(oracle, DESCENT, ConstantNoise(5.0), purse, steps=10)
    assert again.trace.stop_reason == "budget"
    purse.release(oracle.answer(Count()), Gaussian.spending(purse.remaining))
    assert train(oracle, DESCENT, EvenSplit(), purse, steps=10).trace.stop_reason == "budget"
    assert again.point.tolist() == [0.0] * 6


def test_the_trace_is_public_and_goes_to_json(oracle):
    result = train(oracle, DESCENT, EvenSplit(), make_purse(), steps=3)
    back = Trace.from_json(result.trace.to_json())
    assert back == result.trace
    assert set(json.loads(result.trace.to_json())["steps"][0]) == {
        "number",
        "query",
        "charge",
        "noise_std",
        "chosen",
        "fraction_left",
        "step_size",
    }
    assert result.trace.steps[0].noise_std == pytest.approx(0.5 * result.trace.steps[0].charge["noise_multiplier"])


def test_schedules_see_only_what_was_released(oracle):
    seen = []

    class Adaptive:
        def propose(self, query, past, budget):
            seen.append([p.value.shape for p in past])
            largest = max((np.linalg.norm(p.value) for p in past), default=1.0)
            return Gaussian(budget.noise_multiplier * (8 + min(largest / 500, 4)))

    purse = make_purse()
    result = train(oracle, DESCENT, Adaptive(), purse, steps=500)
    assert result.trace.stop_reason == "budget"
    assert seen[3] == [(6,)] * 3
    assert seen[20] == [(0,)] * 10 + [(6,)] * 10  # older vectors are forgotten
    assert purse.spent.epsilon <= 2.0


def test_sampled_runs_need_a_filter_that_prices_samples(oracle):
    purse = make_purse()
    with pytest.raises(UnsupportedCharge, match="no Gaussian-DP bound"):
        train(oracle, DESCENT, EvenSplit(), purse, steps=3, sample_prob=0.5)
    assert purse.spent.releases == 0


def test_sampled_runs(oracle):
    purse = make_purse(filter="rdp")
    result = train(oracle, DESCENT, ConstantNoise(3.0), purse, steps=30, sample_prob=0.05)
    assert result.trace.stop_reason == "steps"
    assert result.trace.steps[0].charge["sample_prob"] == 0.05
    assert purse.spent.releases == 30


class Recorder:
    def __init__(self):
        self.events = []

    def on_start(self, steps, done):
        self.events.append(("start", steps, done))

    def on_step(self, step):
        self.events.append(("step", step.number))

    def on_end(self, trace):
        self.events.append(("end", trace.stop_reason))


def test_callbacks(oracle):
    recorder = Recorder()
    train(oracle, DESCENT, EvenSplit(), make_purse(), steps=2, callbacks=[recorder])
    assert recorder.events == [("start", 2, 0), ("step", 1), ("step", 2), ("end", "steps")]


def test_the_progress_bar_is_quiet_without_a_terminal_and_shows_what_is_left(oracle, capsys):
    train(oracle, DESCENT, EvenSplit(), make_purse(), steps=4, callbacks=[ProgressBar()])
    assert capsys.readouterr() == ("", "")
    purse = make_purse()
    train(oracle, DESCENT, EvenSplit(), purse, steps=4, callbacks=[ProgressBar(purse, show=True)])
    assert "epsilon 2 of 2, budget left 0.0%" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- resume


def simulate(oracle, ledger, path, steps=30, **changes):
    noise = NoiseSource(seed=5)
    purse = make_purse(ledger=ledger, noise=noise)
    arguments = {"steps": steps, "checkpoint": Checkpoint(path, every=1), "block": 3} | changes
    return train(oracle, DESCENT, ConstantNoise(60.0), purse, **arguments), purse


class StopAfter(Recorder):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_step(self, step):
        if step.number == self.steps:
            raise KeyboardInterrupt


@pytest.mark.parametrize("durable", [True, False])
def test_an_interrupted_run_goes_on_bit_for_bit(oracle, tmp_path, durable):
    whole, _ = simulate(oracle, None, tmp_path / "whole.npz")
    ledger = tmp_path / "budget.db" if durable else None
    with pytest.raises(KeyboardInterrupt):
        simulate(oracle, ledger, tmp_path / "run.npz", callbacks=[StopAfter(12)])
    resumed, purse = simulate(oracle, ledger, tmp_path / "run.npz")
    assert resumed.point.tolist() == whole.point.tolist()
    assert [step.charge for step in resumed.trace.steps] == [step.charge for step in whole.trace.steps]
    assert len(resumed.trace.steps) == 30
    assert purse.spent.releases == 30, "an interrupted run is saved where it was"
    assert purse.certificate().simulation


def test_a_finished_run_is_not_run_again(oracle, tmp_path):
    first, _ = simulate(oracle, tmp_path / "budget.db", tmp_path / "run.npz", steps=5)
    second, purse = simulate(oracle, tmp_path / "budget.db", tmp_path / "run.npz", steps=5)
    assert second.point.tolist() == first.point.tolist()
    assert purse.spent.releases == 5


def test_a_ledger_in_memory_is_charged_again_on_resume(oracle, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        simulate(oracle, None, tmp_path / "run.npz", callbacks=[StopAfter(8)])
    _, purse = simulate(oracle, None, tmp_path / "run.npz")
    assert purse.spent.releases == 30


def test_another_method_budget_or_data_set_is_refused(oracle, tmp_path):
    simulate(oracle, None, tmp_path / "run.npz", steps=4)
    checkpoint, noise = Checkpoint(tmp_path / "run.npz"), NoiseSource(seed=5)
    with pytest.raises(InvalidArgument, match="another schedule"):
        train(oracle, DESCENT, ConstantNoise(61.0), make_purse(noise=noise), steps=4, checkpoint=checkpoint)
    for changed in ({"epsilon": 3.0}, {"dataset": "bank"}):
        purse = make_purse(noise=noise, **changed)
        with pytest.raises(InvalidArgument, match=r"another (terms|dataset)"):
            train(oracle, DESCENT, ConstantNoise(60.0), purse, steps=4, checkpoint=checkpoint)
    other = DenseOracle(np.eye(5), [0, 1, 0, 1, 0], loss=Logistic(), row_limit=2.0)
    with pytest.raises(InvalidArgument, match="another oracle"):
        train(other, DESCENT, ConstantNoise(60.0), make_purse(noise=noise), steps=4, checkpoint=checkpoint)
    with pytest.raises(InvalidArgument, match="needs a purse with a ledger file"):
        train(oracle, DESCENT, ConstantNoise(60.0), make_purse(), steps=4, checkpoint=checkpoint)
    durable = make_purse(ledger=tmp_path / "other.db", noise=noise)
    with pytest.raises(LedgerCorrupt, match="older or another one"):
        train(oracle, DESCENT, ConstantNoise(60.0), durable, steps=4, checkpoint=checkpoint)


def test_a_run_is_recognised_by_its_declared_settings(oracle, data, tmp_path):
    """Not by how its parts are printed, nor by where they are in memory."""

    @dataclass(frozen=True, repr=False)
    class Mine(GradientDescent):
        start: object = None
        rule: object = None

    def resume(optimizer, **changed):
        other = DenseOracle(*data, loss=Logistic(clip_derivative=0.5), **changed)
        purse = make_purse(noise=NoiseSource(seed=5))
        return train(other, optimizer, ConstantNoise(60.0), purse, steps=4, checkpoint=tmp_path / "run.npz")

    first = resume(Mine(2.0, 1_000, projection=Ball(5.0), start=np.arange(3.0), rule={"sizes": (1, np.float32(2))}))
    again = resume(Mine(2, 1_000.0, projection=Ball(5), start=np.arange(3.0), rule={"sizes": [1, 2.0]}), threads=1)
    assert again.point.tolist() == first.point.tolist()
    for change, name in [
        ({"projection": Ball(4.0)}, "optimizer.projection.radius: 5; got 4.0"),
        ({"start": np.arange(3.0)[::-1]}, "optimizer.start"),
        ({"rule": {"sizes": (1, 3.0)}}, r"optimizer.rule.sizes\[1\]"),
        ({"l2": 0.1}, "optimizer.l2: 0.0; got 0.1"),
    ]:
        settings = {"projection": Ball(5.0), "start": np.arange(3.0), "rule": {"sizes": (1, 2.0)}} | change
        with pytest.raises(InvalidArgument, match=f"another {name}"):
            resume(Mine(2.0, 1_000, **settings))
    same = Mine(2.0, 1_000, projection=Ball(5.0), start=np.arange(3.0), rule={"sizes": (1, 2.0)})
    for changed, name in [
        ({"constant": 0.5}, "constant"),
        ({"classes": (1, 0)}, "targets"),
        ({"row_limit": 2}, "row_limit"),
    ]:
        with pytest.raises(InvalidArgument, match=f"another oracle.{name}"):
            resume(same, **changed)
    with pytest.raises(InvalidArgument, match=r"optimizer\.rule must declare its settings"):
        resume(Mine(2.0, 1_000, rule=lambda: 1))


def test_a_checkpoint_of_an_earlier_format_says_why_it_is_refused(oracle, tmp_path):
    facts = json.dumps({"format": 2, "settings": {"oracle": repr(oracle)}}).encode()
    np.savez(tmp_path / "run.npz", facts=np.frombuffer(facts, dtype=np.uint8))
    with pytest.raises(
        InvalidArgument, match="has format 2; this version reads 3, which identifies a run by its declared"
    ):
        simulate(oracle, None, tmp_path / "run.npz")


def test_a_private_run_goes_on_with_its_ledger_and_no_other(oracle, tmp_path):
    def run(ledger, **changes):
        purse = make_purse(ledger=ledger)
        return train(
            oracle, DESCENT, ConstantNoise(60.0), purse, steps=9, checkpoint=tmp_path / "run.npz", **changes
        ), purse

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "budget.db", callbacks=[StopAfter(5)])
    with pytest.raises(LedgerCorrupt):
        run(tmp_path / "fresh.db")
    result, purse = run(tmp_path / "budget.db")
    assert len(result.trace.steps) == 9
    assert purse.spent.releases == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": EvenSplit}, "schedule must be"),
        ({"schedule": None}, "schedule must be"),
        ({"optimizer": EvenSplit()}, "optimizer must be"),
        ({"oracle": np.eye(3)}, "oracle must be"),
        ({"purse": 1.0}, "purse must be"),
        ({"callbacks": ProgressBar()}, "callbacks must be"),
        ({"steps": 0}, "steps must be"),
        ({"steps": 2.5}, "steps must be"),
        ({"sample_prob": 0.0}, "sample_prob must be"),
        ({"checkpoint": "/no/such/folder/run.npz"}, "checkpoint must be a file in a writable folder"),
        ({"checkpoint": 3}, "checkpoint must be a file name"),
        ({"block": 0}, "releases must be"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_mistakes_are_named_before_anything_is_spent(oracle, tmp_path, change, message):
    purse = make_purse(ledger=tmp_path / "budget.db", filter="rdp")
    arguments = {"oracle": oracle, "optimizer": DESCENT, "schedule": EvenSplit(), "purse": purse, "steps": 3} | change
    with pytest.raises(InvalidArgument, match=message):
        train(**arguments)
    assert purse.spent.releases == 0


def test_what_a_checkpoint_cannot_recognise_is_refused(oracle, tmp_path):
    class Anonymous:
        def __init__(self):
            self.init, self.ask, self.tell, self.point = DESCENT.init, DESCENT.ask, DESCENT.tell, DESCENT.point

    purse = make_purse(ledger=tmp_path / "budget.db")
    with pytest.raises(InvalidArgument, match=r"optimizer must declare its settings.*Make it a dataclass"):
        train(oracle, Anonymous(), EvenSplit(), purse, steps=3, checkpoint=tmp_path / "run.npz")
    assert purse.spent.releases == 0
    with pytest.raises(InvalidArgument, match="every must be"):
        Checkpoint(tmp_path / "run.npz", every=0)


def test_scores_of_new_rows_are_prepared_as_in_training(oracle, data):
    X, _ = data
    point = np.arange(6.0)
    rows = np.column_stack([X, np.ones(len(X))])
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    assert linear_scores(X, point) == pytest.approx(rows @ point)
    assert linear_scores(sparse.csr_matrix(X), point) == pytest.approx(rows @ point)
    assert linear_scores(X, point[:5], row_limit=None, constant=False) == pytest.approx(X @ point[:5])
    with pytest.raises(InvalidArgument, match="5 columns"):
        linear_scores(X[:, :3], point)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 nonsense"])
def test_what_is_not_a_checkpoint_is_refused(oracle, tmp_path, content):
    (tmp_path / "run.npz").write_bytes(content)
    with pytest.raises(InvalidArgument, match="not a checkpoint"):
        simulate(oracle, None, tmp_path / "run.npz")


def test_a_checkpoint_with_pickled_objects_is_not_opened(oracle, tmp_path):
    np.savez(tmp_path / "run.npz", facts=np.array([{"format": 1}], dtype=object))
    with pytest.raises(InvalidArgument, match="not a checkpoint"):
        simulate(oracle, None, tmp_path / "run.npz")


def test_fifty_kills_at_random_steps(oracle, tmp_path):
    """Killed with SIGKILL and resumed until it is done: the ledger never under-counts, the model is
    the same.
    """
    rng = random.Random(8)
    start = time.perf_counter()
    whole, _ = simulate(oracle, tmp_path / "whole.db", tmp_path / "whole.npz", steps=20)
    pace = (time.perf_counter() - start) / 20
    kills = 0
    for attempt in range(60):
        ledger, path = tmp_path / f"{attempt}.db", tmp_path / f"{attempt}.npz"
        log = tmp_path / f"{attempt}.log"
        for _ in range(40):
            doomed, steps = kills < 50 and rng.random() < 0.8, rng.randrange(5)
            child = os.fork()
            if child == 0:
                code = 9
                try:
                    with open(log, "ab", buffering=0) as file:
                        simulate(
                            oracle, ledger, path, steps=20, callbacks=[Logger(file, steps + 3 if doomed else None)]
                        )
                    code = 0
                finally:
                    os._exit(code)
            status = kill_after(child, log, steps, rng.uniform(0.0, 2 * pace)) if doomed else os.waitpid(child, 0)[1]
            if os.WIFSIGNALED(status):
                kills += 1
                continue
            assert os.waitstatus_to_exitcode(status) == 0
            break
        result, purse = simulate(oracle, ledger, path, steps=20)
        assert result.point.tolist() == whole.point.tolist()
        assert purse.spent.releases >= log.read_bytes().count(b"!"), "a step was made that is not on the ledger"
        assert replay(purse.ledger, purse.dataset, purse.filter) == purse.ledger.totals(purse.dataset)
        if kills >= 50:
            break
    assert kills >= 50


class Logger(Recorder):
    """Writes one byte for each step; after so many of them it waits to be killed."""

    def __init__(self, file, most):
        super().__init__()
        self.file, self.left = file, most

    def on_step(self, step):
        self.file.write(b"!")
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                signal.pause()


def test_a_sequence_that_grows_leaves_shorter_ones_as_they_are():
    one = Grown([1])
    two = one.and_one(2)
    three, other = two.and_one(3), two.and_one(4)
    assert [list(each) for each in (one, two, three, other)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4]]
    assert (two[-1], two[:1], len(two), 3 in two) == (2, [1], 2, False)
    with pytest.raises(IndexError):
        two[2]


def test_only_the_newest_vectors_keep_their_values():
    past = ()
    for number in range(30):
        past = remembered(past, Released(np.full(2, number), GaussianCharge(1.0), 1.0))
        forget(past)
        assert [one.value[0] for one in past if one.value.size] == [
            *range(max(0, number + 1 - VECTORS_KEPT), number + 1)
        ]
