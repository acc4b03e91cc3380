"""Worker processes that fetch samples ahead, and samples in batches that fit the memory."""

import itertools
import traceback

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info  # noqa: E402

from privypurse import InvalidArgument  # noqa: E402
from tests.pytorch.small_runs import begin, data, loop, noiseless, step, weights_of  # noqa: E402

MARK = {"started": False}  # set in worker processes only


def start(worker):
    MARK["started"] = True


def collate(items):
    inputs, targets, rows, workers = default_collate(items)
    assert get_worker_info() is None or MARK["started"]
    return inputs, targets, rows, workers


class Numbered(Dataset):
    """Records with their row, and the worker that fetched them."""

    def __init__(self, broken=None):
        self.X, self.y = data()
        self.broken = broken

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        if get_worker_info() is not None and row == self.broken:
            raise OSError("this record cannot be read")
        return self.X[row], self.y[row], row, -1 if get_worker_info() is None else get_worker_info().id


def loader(batch_size=12, broken=None, **settings):
    own = {"num_workers": 2, "worker_init_fn": start, "collate_fn": collate} | settings
    return DataLoader(Numbered(broken), batch_size=batch_size, **own)


@pytest.mark.filterwarnings("ignore:a batch was taken")
@pytest.mark.parametrize("settings", [{}, {"persistent_workers": True, "prefetch_factor": 4}])
def test_worker_processes_fetch_each_sample_also_after_a_break(settings):
    X, y = data()
    private = begin(loader=loader(**settings), steps=8, accumulate=2, batch_size=6)
    workers, pairs = set(), []
    for first in (3, 100):
        for k, (inputs, targets, rows, by) in enumerate(private.loader):
            if k == first:
                break
            records = private.engine._drawn.chunk
            assert len(rows) == records or not records
            if records:
                assert torch.equal(inputs, X[rows])
                assert torch.equal(targets, y[rows])
                workers |= set(by.tolist())
                pairs.append((k % 2, set(rows.tolist())))
            step(private, inputs, targets)
    assert private.engine.stop_reason == "steps"
    assert workers == {0, 1}
    halves = [pair for pair in itertools.pairwise(pairs) if [place for place, _ in pair] == [0, 1]]
    assert not any(one & other for (_, one), (_, other) in halves), "halves of a sample have no record in common"


def test_an_empty_sample_from_worker_processes_is_one_made_up_record():
    private = begin(loader=loader(batch_size=1), batch_size=1, steps=30, records=60)
    empty = 0
    for inputs, targets, *_ in private.loader:
        assert len(inputs) == max(1, private.engine._drawn.chunk)
        if private.engine._drawn.chunk == 0:
            empty += 1
            assert not (inputs[0] == data()[0]).all(1).any()
        step(private, inputs, targets)
    assert empty
    assert private.engine.gradients == 30


def test_an_error_in_a_worker_process_reaches_the_loop():
    private = begin(loader=loader(broken=7), full_batch=True)
    with pytest.raises(OSError, match="cannot be read") as caught:
        next(iter(private.loader))
    traceback.clear_frames(caught.tb)  # or PyTorch's loader waits for its workers
    assert private.purse.spent.releases == 0


def test_micro_batches_cap_the_records_of_a_batch_and_do_not_change_the_gradient():
    ends = []
    for settings, batches in (({}, 3), ({"micro_batch": 5}, 15)):
        private = noiseless(steps=3, **settings)
        sizes = []
        for inputs, targets in private.loader:
            sizes.append(len(inputs))
            step(private, inputs, targets)
        assert len(private.loader) == len(sizes) == batches
        assert private.engine.gradients == 3
        ends.append(weights_of(private.module))
    assert max(sizes) <= 5
    assert torch.allclose(*ends, rtol=0, atol=1e-6)
    assert loop(noiseless(full_batch=True, micro_batch=25)).engine.settings.chunks == 3


@pytest.mark.parametrize(("settings", "message"), [({"accumulate": 2}, "Pass one of them"), ({"micro_batch": 0}, "be")])
def test_micro_batches_that_cannot_be_are_refused(settings, message):
    with pytest.raises(InvalidArgument, match=message):
        begin(**{"micro_batch": 5} | settings)
