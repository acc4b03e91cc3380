"""Logs of a run: public values only, epsilon seldom, and the reason at the end."""

import csv

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from privypurse import InvalidArgument, NoiseSource
from privypurse.pytorch import make_private, open_purse, resume, save
from privypurse.pytorch.integrations.logging import CsvLog, MLflowLog, PublicLog, TensorBoardLog

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*maintenance mode.*:FutureWarning",  # MLflow's file store
    "ignore:.*filesystem tracking backend.*:FutureWarning",
)

PUBLIC = {"noise_multiplier", "noise_std", "clip_norm", "budget_left", "epsilon_spent"}
STEPS = 12


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_purse(**changes):
    settings = {"epsilon": 2.0, "delta": 1e-5, "neighbouring": "add-remove", "steps": STEPS, "sample_prob": 0.1}
    return open_purse(**settings | changes)


def make_run(log, purse, **changes):
    torch.manual_seed(1)
    X = torch.randn(200, 3)
    module = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    loader = DataLoader(TensorDataset(X, (X[:, 0] > 0).long()), batch_size=20)
    settings = {"records": 200, "steps": STEPS, "clip_norm": 0.7, "purse": purse, "callbacks": [log]} | changes
    return make_private(module, optimizer, loader, **settings)


def go(private, updates=STEPS + 1):
    while not private.engine.stop_reason:
        for inputs, targets in private.loader:
            private.optimizer.zero_grad()
            nn.functional.cross_entropy(private.module(inputs), targets).backward()
            private.optimizer.step()
            if private.engine.gradients == updates:
                return private
    return private


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_has_one_row_for_each_step_and_one_for_the_end(tmp_path):
    purse = make_purse()
    go(make_run(CsvLog(tmp_path / "run.csv", purse, epsilon_every=5), purse))
    *steps, end = rows_of(tmp_path / "run.csv")
    assert [int(row["step"]) for row in steps] == list(range(1, STEPS + 1))
    assert {row["asked"] for row in steps} == {"ModuleGradient"}
    assert [row["step"] for row in steps if row["epsilon_spent"]] == ["5", "10"]
    assert end["stop_reason"] == "steps"
    assert float(end["epsilon_spent"]) == pytest.approx(2.0, rel=1e-3)
    assert set(end) == PUBLIC | {"step", "asked", "stop_reason"}


def test_values_are_those_of_the_trace(tmp_path):
    purse = make_purse()
    private = go(make_run(CsvLog(tmp_path / "run.csv", purse), purse))
    for row, step in zip(rows_of(tmp_path / "run.csv"), private.engine.trace.steps, strict=False):
        assert float(row["noise_std"]) == step.noise_std
        assert float(row["noise_multiplier"]) == step.charge["noise_multiplier"]
        assert float(row["budget_left"]) == step.fraction_left
        assert float(row["clip_norm"]) == pytest.approx(0.7)


def test_the_clip_norm_is_right_under_replace_one_and_left_out_where_it_is_not_known(tmp_path):
    purse = make_purse(neighbouring="replace-one", sample_prob=1.0)
    go(make_run(CsvLog(tmp_path / "run.csv", purse), purse, full_batch=True))
    assert float(rows_of(tmp_path / "run.csv")[0]["clip_norm"]) == pytest.approx(0.7)
    go(make_run(CsvLog(tmp_path / "other.csv"), make_purse()))
    assert rows_of(tmp_path / "other.csv")[0]["clip_norm"] == ""


def test_fewer_rows_can_be_asked_for_and_the_last_step_is_there(tmp_path):
    go(make_run(CsvLog(tmp_path / "run.csv", every=5), make_purse()))
    assert [row["step"] for row in rows_of(tmp_path / "run.csv")] == ["5", "10", "12"]
    assert rows_of(tmp_path / "run.csv")[-1]["noise_std"]


def test_a_run_that_goes_on_goes_on_in_the_same_table(tmp_path):
    for _ in range(2):
        purse = make_purse(noise=NoiseSource(seed=5))
        private = make_run(CsvLog(tmp_path / "run.csv"), purse)
        if resume(private, tmp_path / "run.pt"):
            go(private)
        else:
            save(go(private, updates=4), tmp_path / "run.pt")
    assert [int(row["step"]) for row in rows_of(tmp_path / "run.csv")] == [*range(1, STEPS + 1), STEPS]


def test_tensorboard_shows_public_values_only(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    purse = make_purse()
    private = go(make_run(TensorBoardLog(tmp_path / "runs", purse, epsilon_every=5), purse))
    events = EventAccumulator(str(tmp_path / "runs")).Reload()
    assert set(events.Tags()["scalars"]) == {f"privacy/{name}" for name in PUBLIC}
    texts = {tag.removesuffix("/text_summary") for tag in events.Tags()["tensors"]}
    assert texts == {"privacy/steps", "privacy/asked", "privacy/stop_reason"}
    assert [event.step for event in events.Scalars("privacy/epsilon_spent")] == [5, 10, 12]
    stds = [event.value for event in events.Scalars("privacy/noise_std")]
    assert stds == pytest.approx([step.noise_std for step in private.engine.trace.steps])
    assert events.Tensors("privacy/stop_reason/text_summary")[0].tensor_proto.string_val == [b"steps"]


def test_a_writer_that_is_open_stays_open(tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        go(make_run(TensorBoardLog(writer), make_purse()))
        writer.add_scalar("mine", 1.0)
    assert list(tmp_path.glob("events*"))


def test_mlflow_gets_public_values_only(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    before, folder = mlflow.get_tracking_uri(), tmp_path / "mlruns"
    mlflow.set_tracking_uri(folder.as_uri())
    try:
        purse = make_purse()
        with mlflow.start_run() as run:
            go(make_run(MLflowLog(purse), purse))
        store = folder / run.info.experiment_id / run.info.run_id
        assert {file.name for file in (store / "metrics").iterdir()} == {f"privacy.{name}" for name in PUBLIC}
        assert len((store / "metrics" / "privacy.noise_std").read_text().splitlines()) == STEPS
        tags = {file.name: file.read_text() for file in (store / "tags").iterdir() if file.name.startswith("privacy.")}
        assert tags == {
            "privacy.stop_reason": "steps",
            "privacy.asked": "ModuleGradient",
            "privacy.steps_planned": "12",
        }
        assert not any((store / "params").iterdir())
        with pytest.raises(InvalidArgument, match=r"start_run"):
            go(make_run(MLflowLog(), make_purse()))
    finally:
        mlflow.set_tracking_uri(before)


@pytest.mark.parametrize(
    "make",
    [lambda: CsvLog(3), lambda: TensorBoardLog(3), lambda: CsvLog("x", "no purse"), lambda: CsvLog("x", every=0)],
    ids=["path", "target", "purse", "every"],
)
def test_what_makes_no_sense_is_refused(make):
    with pytest.raises(InvalidArgument, match="got"):
        make()


def test_a_log_that_was_never_opened_has_nothing_to_close():
    from privypurse.training._trace import Trace

    PublicLog().on_end(Trace())
