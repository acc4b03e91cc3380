"""A run that is interrupted goes on as if it had not been, spends no less than it made, and trusts
no file.
"""

import itertools
import math
import os
import pathlib
import pickle
import random
import signal
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from privypurse import InvalidArgument, LedgerCorrupt, NoiseSource, Purse  # noqa: E402
from privypurse.methods import DPAGD  # noqa: E402
from privypurse.purse._replay import replay  # noqa: E402
from privypurse.pytorch import AdaptiveClip, DeepNesterov, fit, make_private, open_purse, resume, save  # noqa: E402
from privypurse.training._checkpoint import Checkpoint  # noqa: E402
from privypurse.training._progress import Callback  # noqa: E402
from privypurse.training.schedules import EvenSplit, FollowGradientNorm  # noqa: E402
from privypurse.training.schedules._adaptive import GrowingBudget  # noqa: E402
from privypurse.training.schedules._base import ConstantNoise  # noqa: E402
from tests.kills import kill_after  # noqa: E402

STEPS = 6
TERMS = {"epsilon": 2.0, "delta": 1e-5, "neighbouring": "add-remove"}


def data_of():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(60, 4, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


def begin(purse, width=5, dropout=0.0, full=False, steps=STEPS, **settings):
    """Begin as a script does each time it is started."""
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, 2))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    if not full:
        settings["batch_size"] = 12 // settings.get("accumulate", 1)
    private = make_private(
        module, optimizer, data_of(), records=60, purse=purse, full_batch=full, steps=steps, **settings
    )
    return private, scheduler


def go(private, scheduler, until=None, each=lambda: None):
    """Train to the end, or until so many releases were made."""
    module, optimizer, loader = private
    while not private.engine.stop_reason:
        for inputs, targets in loader:
            before = len(private.engine.trace.steps)
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs), targets).backward()
            optimizer.step()
            if len(private.engine.trace.steps) > before:
                scheduler.step()
                each()
            if until is not None and len(private.engine.trace.steps) == until:
                return


def everything(private, scheduler):
    """All that a run has come to, to be compared bit for bit."""
    state = [private.module.state_dict(), private.optimizer.state_dict(), scheduler.state_dict()]
    return _plain(state), private.engine.trace.to_json(), private.engine.gradients, private.engine.clip_norm


def _plain(value):
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else repr(value)


def sampled(**settings):
    return open_purse(**TERMS, steps=STEPS, sample_prob=0.2, records=60, **settings)


def rdp(**settings):
    return Purse(**TERMS, filter="rdp", **settings)


RUNS = {
    "uniform samples": (sampled, {}),
    "two levels": (lambda **s: sampled(schedule=[1, 1, 1, 4, 4, 4], **s), {"schedule": [1, 1, 1, 4, 4, 4]}),
    "even split": (lambda **s: sampled(schedule=EvenSplit(), **s), {"schedule": EvenSplit()}),
    "adaptive clip": (lambda **s: sampled(clip_norm=AdaptiveClip(every=2), **s), {"clip_norm": AdaptiveClip(every=2)}),
    "adaptive clip, full batch": (lambda **s: Purse(**TERMS, **s), {"clip_norm": AdaptiveClip(every=2), "full": True}),
    "gradient norm": (rdp, {"schedule": FollowGradientNorm(0.1)}),
    "gradient norm, full batch": (lambda **s: Purse(**TERMS, **s), {"schedule": FollowGradientNorm(0.1), "full": True}),
    "growing": (rdp, {"schedule": GrowingBudget(rounds=3)}),
    "constant": (rdp, {"schedule": ConstantNoise(5.0)}),
    "full batch": (lambda **s: Purse(**TERMS, **s), {"full": True}),
    "full batch, exponential": (lambda **s: Purse(**TERMS, **s), {"full": True, "schedule": "exponential"}),
    "dropout": (sampled, {"dropout": 0.5}),
    "accumulate": (sampled, {"accumulate": 2}),
}


@pytest.mark.parametrize("ledger", ["file", "memory"])
@pytest.mark.parametrize("name", RUNS)
def test_a_simulation_interrupted_anywhere_ends_bit_for_bit_the_same(tmp_path, name, ledger):
    open_one, settings = RUNS[name]
    model = open_one(noise=NoiseSource(seed=7)).filter  # calibrated once

    def purse(path):
        return Purse.with_filter(model, noise=NoiseSource(seed=7), ledger=path if ledger == "file" else None)

    whole = begin(purse(tmp_path / "whole.db"), **settings)
    go(*whole)
    expected = everything(*whole)
    releases = len(whole[0].engine.trace.steps)
    assert releases >= 3
    for k in range(releases + 1):
        where = tmp_path / f"{k}.db"
        first = begin(purse(where), **settings)
        if k:
            go(*first, until=k)
        save(first[0], tmp_path / f"{k}.pt", scheduler=first[1])
        first[0].engine.close()
        torch.manual_seed(99)  # chance goes on from the file, not from here
        second = begin(purse(where), **settings)
        assert resume(second[0], tmp_path / f"{k}.pt", scheduler=second[1])
        go(*second)
        assert everything(*second) == expected, f"interrupted after {k}"
        assert second[0].purse.spent.releases == releases


class StopAfter(Callback):
    """Interrupts a run after so many releases."""

    def __init__(self, steps):
        self.left = steps

    def on_start(self, *arguments):
        pass

    def on_step(self, step):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def on_end(self, trace):
        pass


@pytest.mark.parametrize("method", [DeepNesterov(steps=5), DPAGD()], ids=["DeepNesterov", "DPAGD"])
def test_fit_interrupted_anywhere_ends_bit_for_bit_the_same(tmp_path, method):
    def run(name, ledger, **settings):
        torch.manual_seed(2)
        module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
        purse = Purse(0.5, 1e-5, neighbouring="add-remove", noise=NoiseSource(seed=7), ledger=tmp_path / ledger)
        fitted = fit(
            module,
            data_of(),
            loss=nn.CrossEntropyLoss(),
            records=60,
            purse=purse,
            method=method,
            compile=False,
            checkpoint=Checkpoint(tmp_path / name, every=1),
            **settings,
        )
        return _plain(module.state_dict()), fitted.trace.to_json(), purse.spent

    expected = run("whole.npz", "whole.db")
    releases = expected[2].releases
    for k in {1, 2, releases // 2, releases - 1} - {0}:
        with pytest.raises(KeyboardInterrupt):
            run(f"{k}.npz", f"{k}.db", callbacks=[StopAfter(k)])
        assert run(f"{k}.npz", f"{k}.db") == expected, f"interrupted after {k}"


@pytest.mark.filterwarnings(
    "ignore:no step was made:UserWarning"
)  # what was killed may have paid for all that there was
@pytest.mark.parametrize("kind", ["samples", "full batch", "adaptive clip"])
def test_a_run_that_is_killed_spends_no_less_than_it_made_and_no_more_than_it_may(tmp_path, kind):
    """Real noise, a ledger on disk, SIGKILL at random moments, and going on until the end."""
    rng = random.Random(5)
    open_one, settings = RUNS[{"samples": "uniform samples", "full batch": "full batch"}.get(kind, kind)]
    rule = open_one().filter
    ledger, path, log = (tmp_path / name for name in ("budget.db", "run.pt", "log"))
    start = time.perf_counter()
    go(*begin(Purse.with_filter(rule, ledger=tmp_path / "other.db"), block=2, **settings))
    pace = (time.perf_counter() - start) / STEPS
    kills = 0

    def done():
        return log.read_bytes() if log.exists() else b""

    for attempt in range(40):
        doomed, begun = attempt < 12, len(done())
        child = os.fork()
        if child == 0:
            code = 9
            try:
                private, scheduler = begin(Purse.with_filter(rule, ledger=ledger), block=2, **settings)
                resume(private, path, scheduler=scheduler)
                with open(log, "ab", buffering=0) as file:

                    def note(private=private, scheduler=scheduler, file=file, doomed=doomed, begun=begun):
                        file.write(b"!")  # a step was made
                        save(private, path, scheduler=scheduler)
                        if doomed and len(done()) == begun + 2:
                            signal.pause()  # until the kill

                    go(private, scheduler, each=note)
                save(private, path, scheduler=scheduler)
                code = 0
            finally:
                os._exit(code)
        status = kill_after(child, log, attempt % 2, rng.uniform(0, 2 * pace)) if doomed else os.waitpid(child, 0)[1]
        purse = Purse.with_filter(rule, ledger=ledger)
        assert purse.spent.releases >= len(done()), "a step was made that is not on the ledger"
        assert purse.spent.epsilon <= 2.0
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            if attempt >= 12:
                break
        else:
            kills += 1
    assert kills >= 4
    purse.ledger.verify()
    assert replay(purse.ledger, purse.dataset, purse.filter) == purse.ledger.totals(purse.dataset)
    last, scheduler = begin(Purse.with_filter(rule, ledger=ledger), block=2, **settings)
    assert resume(last, path, scheduler=scheduler)
    assert last.engine.stop_reason in ("steps", "budget")
    assert len(last.engine.trace.steps) <= purse.spent.releases
    assert list(last.loader) == [], "a finished run stays finished"


# What is not the same run.


def saved(tmp_path, **settings):
    private, scheduler = begin(Purse(**TERMS, noise=NoiseSource(seed=7)), full=True, **settings)
    go(private, scheduler, until=2)
    save(private, tmp_path / "run.pt", scheduler=scheduler)
    return tmp_path / "run.pt"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"schedule": "exponential"}, "another schedule"),
        ({"clip_norm": 2.0}, "another clip"),
        ({"clip_norm": AdaptiveClip()}, "another settings"),  # looks make the run longer
        ({"steps": 7}, "another settings"),
        ({"width": 6}, "another parameters"),
    ],
    ids=str,
)
def test_a_checkpoint_of_another_run_is_refused_by_name(tmp_path, change, named):
    path = saved(tmp_path)
    private, scheduler = begin(Purse(**TERMS, noise=NoiseSource(seed=7)), **{"full": True} | change)
    before = everything(private, scheduler)
    with pytest.raises(InvalidArgument, match=named):
        resume(private, path, scheduler=scheduler)
    assert everything(private, scheduler) == before
    assert private.purse.spent.releases == 0


def test_a_checkpoint_of_a_run_with_another_adaptive_clip_is_refused_by_name(tmp_path):
    path = saved(tmp_path, clip_norm=AdaptiveClip())
    purse = Purse(**TERMS, noise=NoiseSource(seed=7))
    private, scheduler = begin(purse, full=True, clip_norm=AdaptiveClip(rate=0.5))
    with pytest.raises(InvalidArgument, match="another clip"):
        resume(private, path, scheduler=scheduler)
    assert private.purse.spent.releases == 0


def test_a_checkpoint_of_other_terms_or_another_data_set_is_refused_by_name(tmp_path):
    path = saved(tmp_path)
    for purse, named in (
        (Purse(3.0, 1e-5, neighbouring="add-remove", noise=NoiseSource(seed=7)), "another terms"),
        (Purse(2.0, 1e-5, neighbouring="replace-one", noise=NoiseSource(seed=7)), "another terms"),
        (Purse(**TERMS, dataset="bank", noise=NoiseSource(seed=7)), "another dataset"),
    ):
        private, scheduler = begin(purse, full=True)
        with pytest.raises(InvalidArgument, match=named):
            resume(private, path, scheduler=scheduler)


def test_a_checkpoint_goes_on_with_its_ledger_and_no_other(tmp_path):
    private, scheduler = begin(Purse(**TERMS, ledger=tmp_path / "budget.db"), full=True)
    go(private, scheduler, until=3)
    save(private, tmp_path / "run.pt", scheduler=scheduler)
    private.engine.close()
    fresh, other = begin(Purse(**TERMS, ledger=tmp_path / "fresh.db"), full=True)
    before = everything(fresh, other)
    with pytest.raises(LedgerCorrupt):
        resume(fresh, tmp_path / "run.pt", scheduler=other)
    assert everything(fresh, other) == before
    same, scheduler = begin(Purse(**TERMS, ledger=tmp_path / "budget.db"), full=True)
    assert resume(same, tmp_path / "run.pt", scheduler=scheduler)
    go(same, scheduler)
    assert same.purse.spent.releases == STEPS


def test_a_simulation_does_not_go_on_as_a_private_run_nor_the_other_way_round(tmp_path):
    path = saved(tmp_path)
    private, scheduler = begin(Purse(**TERMS, ledger=tmp_path / "budget.db"), full=True)
    with pytest.raises((InvalidArgument, LedgerCorrupt)):
        resume(private, path, scheduler=scheduler)
    assert private.purse.spent.releases == 0


def test_others_must_be_the_same_and_have_a_state(tmp_path):
    path = saved(tmp_path)
    private, scheduler = begin(Purse(**TERMS, noise=NoiseSource(seed=7)), full=True)
    with pytest.raises(InvalidArgument, match="scheduler"):
        resume(private, path)
    with pytest.raises(InvalidArgument, match="state_dict"):
        resume(private, path, scheduler=3)
    with pytest.raises(InvalidArgument, match="state_dict"):
        save(private, tmp_path / "other.pt", scheduler=object())
    assert resume(private, path, scheduler=scheduler)


def test_a_run_that_has_begun_does_not_resume(tmp_path):
    path = saved(tmp_path)
    private, scheduler = begin(Purse(**TERMS, noise=NoiseSource(seed=7)), full=True)
    go(private, scheduler, until=1)
    with pytest.raises(InvalidArgument, match="before the first step"):
        resume(private, path, scheduler=scheduler)


def test_without_a_file_there_is_nothing_to_resume(tmp_path):
    private, scheduler = begin(Purse(**TERMS, noise=NoiseSource(seed=7)), full=True)
    assert resume(private, tmp_path / "none.pt", scheduler=scheduler) is False
    go(private, scheduler)


# Files.


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path(self.path),))


def refused(tmp_path, content):
    path = tmp_path / "run.pt"
    path.write_bytes(content)
    private, scheduler = begin(Purse(**TERMS, noise=NoiseSource(seed=7)), full=True)
    before = everything(private, scheduler)
    with pytest.raises(InvalidArgument):
        resume(private, path, scheduler=scheduler)
    assert everything(private, scheduler) == before


# torch warns of the protocol before it refuses the file.
OLD_PICKLES = pytest.mark.filterwarnings("ignore:Detected pickle protocol:UserWarning")


@OLD_PICKLES
@pytest.mark.parametrize(
    "content", [b"", b"not a checkpoint", b"PK\x03\x04 nonsense", b"\x80\x02N.", b"\x80\x04.", b"0."]
)
def test_garbage_is_refused(tmp_path, content):
    refused(tmp_path, content)


@OLD_PICKLES
def test_random_bytes_and_files_cut_short_are_refused(tmp_path):
    whole = saved(tmp_path).read_bytes()
    rng = random.Random(3)
    for size in (1, 100, len(whole) // 2, len(whole) - 1):
        refused(tmp_path, whole[:size])
    for _ in range(10):
        refused(tmp_path, rng.randbytes(rng.randrange(200)))


@OLD_PICKLES
@pytest.mark.parametrize("wrapped", [False, True], ids=["pickle", "torch.save"])
def test_a_pickle_bomb_is_refused_and_does_not_go_off(tmp_path, wrapped):
    content = {"format": 1, "facts": Bomb(str(tmp_path / "went off"))}
    if wrapped:
        torch.save(content, tmp_path / "run.pt")
    else:
        (tmp_path / "run.pt").write_bytes(pickle.dumps(content))
    refused(tmp_path, (tmp_path / "run.pt").read_bytes())
    assert not (tmp_path / "went off").exists()


@pytest.mark.parametrize(
    "content",
    [torch.zeros(3), [1, 2], {"format": 1}, {"format": 99}, {}, "text", {"format": 1, "facts": "not json"}, None],
    ids=lambda content: str(content)[:30],
)
def test_a_file_of_something_else_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "other.pt")
    refused(tmp_path, (tmp_path / "other.pt").read_bytes())


def test_a_checkpoint_is_read_without_running_code_and_holds_no_records(tmp_path):
    content = torch.load(saved(tmp_path), weights_only=True)
    assert set(content) >= {"module", "optimizer", "facts"}
    rows = {float(value) for value in data_of()[0].flatten()}
    numbers = []

    def collect(value):
        if isinstance(value, torch.Tensor):
            numbers.extend(value.double().flatten().tolist())
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
            collect(inner)

    collect(content)
    assert not rows & set(numbers)


@pytest.mark.parametrize("kind", ["uniform samples", "accumulate", "full batch"])
def test_saving_inside_a_sample_is_refused(tmp_path, kind):
    open_one, settings = RUNS[kind]
    private, scheduler = begin(open_one(noise=NoiseSource(seed=7)), **settings)
    module, optimizer, loader = private
    for number, (inputs, targets) in zip(itertools.count(1), loader, strict=False):
        with pytest.raises(InvalidArgument, match="between two steps"):
            save(private, tmp_path / "run.pt", scheduler=scheduler)
        nn.functional.cross_entropy(module(inputs), targets).backward()
        with pytest.raises(InvalidArgument, match="between two steps"):
            save(private, tmp_path / "run.pt", scheduler=scheduler)
        optimizer.step()
        if number % private.engine.settings.chunks == 0:
            break
    assert not (tmp_path / "run.pt").exists()
    save(private, tmp_path / "run.pt", scheduler=scheduler)


def test_nothing_is_lost_where_the_disk_does_not_take_the_file(tmp_path):
    private, scheduler = begin(Purse(**TERMS, ledger=tmp_path / "budget.db"), full=True)
    folder = tmp_path / "runs"
    folder.mkdir()
    go(private, scheduler, until=2)
    save(private, folder / "run.pt", scheduler=scheduler)
    before = everything(private, scheduler)
    os.rename(folder, tmp_path / "moved")
    with pytest.raises((InvalidArgument, OSError)):
        save(private, folder / "run.pt", scheduler=scheduler)
    assert everything(private, scheduler) == before
    go(private, scheduler)
    assert private.purse.spent.releases == private.engine.gradients == STEPS
    assert [path.name for path in (tmp_path / "moved").iterdir()] == ["run.pt"]


def test_a_file_that_cannot_be_finished_leaves_the_one_before(tmp_path, monkeypatch):
    private, scheduler = begin(Purse(**TERMS, ledger=tmp_path / "budget.db"), full=True)
    go(private, scheduler, until=2)
    save(private, tmp_path / "run.pt", scheduler=scheduler)
    first = (tmp_path / "run.pt").read_bytes()
    go(private, scheduler, until=3)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises((OSError, InvalidArgument)):
            save(private, tmp_path / "run.pt", scheduler=scheduler)
    assert (tmp_path / "run.pt").read_bytes() == first
    go(private, scheduler)
    assert private.purse.spent.releases == STEPS


def test_a_ledger_in_memory_is_refused_unless_it_is_a_simulation(tmp_path):
    private, scheduler = begin(Purse(**TERMS), full=True)
    go(private, scheduler, until=1)
    with pytest.raises(InvalidArgument, match="ledger file"):
        save(private, tmp_path / "run.pt", scheduler=scheduler)
    assert not (tmp_path / "run.pt").exists()
    saved(tmp_path)


@pytest.mark.parametrize("path", ["", 3, None, "/no/such/folder/run.pt", "/"])
def test_a_path_that_is_none_is_named(path):
    private, scheduler = begin(Purse(**TERMS, noise=NoiseSource(seed=7)), full=True)
    for what in (save, resume):
        with pytest.raises(InvalidArgument, match="path must be"):
            what(private, path, scheduler=scheduler)


def test_what_was_released_after_the_file_was_written_stays_spent(tmp_path):
    private, scheduler = begin(Purse(**TERMS, ledger=tmp_path / "budget.db"), full=True, block=1)
    go(private, scheduler, until=2)
    save(private, tmp_path / "run.pt", scheduler=scheduler)
    go(private, scheduler, until=4)
    private.engine.close()
    again, scheduler = begin(Purse(**TERMS, ledger=tmp_path / "budget.db"), full=True, block=1)
    assert resume(again, tmp_path / "run.pt", scheduler=scheduler)
    assert again.engine.gradients == 2
    assert again.purse.spent.releases == 4
    go(again, scheduler)
    assert again.engine.stop_reason == "budget", "two steps were paid for and lost"
    assert again.purse.spent.epsilon <= 2.0
    assert again.purse.spent.releases == again.engine.gradients + 2
    assert np.isfinite(again.purse.spent.epsilon)


@pytest.mark.parametrize("steps", [-7e12, math.inf, math.nan])
def test_a_number_of_steps_with_which_the_next_one_would_fail_is_refused(tmp_path, steps):
    purse = Purse(**TERMS, ledger=tmp_path / "budget.db")
    private, scheduler = begin(purse, full=True)
    go(private, scheduler, until=2)
    save(private, tmp_path / "run.pt", scheduler=scheduler)
    content = torch.load(tmp_path / "run.pt", weights_only=True)
    content["optimizer"]["state"][0]["step"] = torch.tensor(steps)
    torch.save(content, tmp_path / "run.pt")
    again, other = begin(purse, full=True)
    with pytest.raises(InvalidArgument, match="damaged or was edited"):
        resume(again, tmp_path / "run.pt", scheduler=other)
    assert purse.spent.releases == 2
