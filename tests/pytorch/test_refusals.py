"""What a module, an optimizer and records must be like: refused by name, before anything is spent."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import (  # noqa: E402
    DataLoader,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.sampler import BatchSampler, SequentialSampler  # noqa: E402

from privypurse import InvalidArgument, Purse  # noqa: E402
from privypurse.pytorch import make_private  # noqa: E402
from privypurse.pytorch._fitting import ModuleOracle  # noqa: E402
from tests.pytorch.refused_runs import SECRET, begin, data, refused, said, simple  # noqa: E402


class OverTheBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer((x - x.mean(0)) / (x.std(0, correction=0) + 1e-3))


class OwnOverTheBatch(OverTheBatch):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return super().forward(x * self.scale)


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x):
        self.last = x.detach().mean(0)
        return self.layer(x)


class Counting(Remembering):
    def forward(self, x):
        self.last += 1
        return self.layer(x)


class Rolling(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x + x.roll(1, 0))


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (
            lambda: nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)),
            r"1 \(BatchNorm1d\).*GroupNorm\(4, 8\)",
        ),
        (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)), r"GroupNorm\(2, 6\)"),
        (lambda: nn.Sequential(nn.BatchNorm3d(7)), r"GroupNorm\(1, 7\)"),
        (lambda: nn.Sequential(nn.BatchNorm2d(16)), r"GroupNorm\(8, 16\)"),  # groups of one channel may hold one number
        (lambda: nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2)), r"GroupNorm\(1, 3\)"),
        (lambda: nn.SyncBatchNorm(3), "GroupNorm"),
        (
            lambda: nn.Sequential(nn.InstanceNorm1d(3, affine=True, track_running_stats=True)),
            "track_running_stats=False",
        ),
        (lambda: nn.Sequential(nn.Embedding(5, 3, max_norm=1.0)), "max_norm"),
        (lambda: nn.Sequential(nn.Embedding(5, 3, sparse=True)), "sparse"),
        (lambda: nn.Sequential(nn.EmbeddingBag(5, 3, sparse=True)), "sparse"),
        (lambda: nn.Sequential(nn.Embedding(5, 3, scale_grad_by_freq=True)), "scale_grad_by_freq"),
        (OverTheBatch, "mixes records: gradients of layer.weight"),
        (Rolling, "mixes records"),
        (OwnOverTheBatch, "mixes records: layer.weight gets other gradients"),
        (Remembering, r"changes its state \(last\)"),
        (Counting, r"changes its state \(last\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_modules_that_mix_or_remember_records(module, match):
    refused(match, module=module())


def test_a_module_that_was_refused_is_as_it_was():
    module = Remembering()
    refused("changes its state", module=module)
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())
    assert module.training


def test_the_check_of_a_module_leaves_modes_chance_and_buffers_alone():
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    module[1].eval()
    torch.manual_seed(5)
    begin(module)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))
    assert [layer.training for layer in module.modules()] == [True, True, False, True]


def test_a_module_that_was_refused_for_its_buffers_has_them_as_they_were():
    module = Counting()
    refused("changes its state", module=module)
    assert not module.last.any()


@pytest.mark.parametrize(
    "module", [None, "net", 3, simple, torch.zeros(3)], ids=["none", "name", "number", "function", "tensor"]
)
def test_what_is_not_a_module(module):
    real = simple()
    with pytest.raises(InvalidArgument, match=r"module must be a torch.nn.Module") as caught:
        make_private(module, torch.optim.SGD(real.parameters(), 0.1), data(), records=30, epsilon=1.0, delta=1e-5)
    said(caught)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_compiled_modules():
    module = simple()
    refused(
        "compiled with torch.compile", module=torch.compile(module), optimizer=torch.optim.SGD(module.parameters(), 0.1)
    )


def test_modules_without_anything_to_train():
    module = simple().requires_grad_(False)
    refused("nothing to train", module=module)
    with pytest.raises(InvalidArgument, match="nothing to train"):
        ModuleOracle(module, data(), loss=nn.CrossEntropyLoss(), records=30)


def test_the_optimizer_of_another_module():
    refused("other parameters", optimizer=torch.optim.SGD(simple().parameters(), 0.1))


def test_an_optimizer_that_moves_more_than_the_module():
    module = simple()
    more = [*module.parameters(), nn.Parameter(torch.zeros(3))]
    refused("other parameters", module=module, optimizer=torch.optim.SGD(more, 0.1))


@pytest.mark.parametrize("optimizer", ["sgd", 0.1, torch.optim.SGD], ids=["name", "number", "class"])
def test_what_is_not_an_optimizer(optimizer):
    refused("optimizer must be", optimizer=optimizer)


def test_parameters_that_are_added_later():
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    private = begin(module, optimizer=torch.optim.SGD(module[0].parameters(), 0.1))
    private.optimizer.add_param_group({"params": list(module[1].parameters())})
    inputs, targets = next(iter(private.loader))
    F.cross_entropy(module(inputs), targets).backward()
    with pytest.raises(InvalidArgument, match="make_private did not see") as caught:
        private.optimizer.step()
    said(caught)
    assert private.purse.spent.releases == 0


def test_what_is_private_already():
    private = begin()
    with pytest.raises(InvalidArgument, match="private already"):
        begin(private.module, optimizer=private.optimizer)
    private.engine.detach()
    begin(private.module, optimizer=private.optimizer)


def test_a_module_that_is_private_already_with_another_optimizer():
    private = begin()
    with pytest.raises(InvalidArgument, match="private already"):
        begin(private.module)


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(*data(), strict=True)


@pytest.mark.parametrize(
    ("loader", "match"),
    [
        (
            lambda: DataLoader(TensorDataset(*data()), sampler=WeightedRandomSampler([1.0] * 30, 30)),
            "WeightedRandomSampler",
        ),
        (lambda: DataLoader(TensorDataset(*data()), sampler=RandomSampler(range(30), replacement=True)), "sampler"),
        (lambda: DataLoader(TensorDataset(*data()), sampler=list(range(30))), "sampler"),
        (lambda: DataLoader(TensorDataset(*data()), batch_sampler=Mine(range(30))), "sampler"),
        (lambda: DataLoader(Stream(), batch_size=3), "reads a stream"),
        (lambda: Stream(), "stream"),
        (lambda: iter([1, 2]), "loader must be"),
        (lambda: "records.csv", "loader must be"),
        (lambda: TensorDataset(torch.zeros(0, 3), torch.zeros(0)), "no records"),
        (lambda: (torch.zeros(0, 3), torch.zeros(0)), "no records"),
        (lambda: [], "no records"),
        (lambda: (torch.zeros(3, 3), torch.zeros(4)), "tensors of one length"),
    ],
    ids=[
        "weighted",
        "replacement",
        "list",
        "batches",
        "stream",
        "iterable",
        "iterator",
        "name",
        "set",
        "tuple",
        "none",
        "odd",
    ],
)
def test_where_records_may_not_come_from(loader, match):
    refused(match, loader=loader())


class Mine(BatchSampler):
    def __init__(self, rows):
        super().__init__(SequentialSampler(rows), 3, False)


@pytest.mark.parametrize(
    "loader",
    [
        lambda: (np.full((30, 3), SECRET), np.zeros(30, dtype=int)),
        lambda: (torch.full((30, 3), SECRET), np.zeros(30, dtype=int)),
        lambda: {"x": torch.full((30, 3), SECRET), "y": torch.zeros(30)},
    ],
    ids=["arrays", "mixed", "names"],
)
def test_arrays_and_tables_are_not_taken_for_data_sets(loader):
    refused("loader must be", loader=loader())


def test_the_number_of_records_is_asked_for_under_add_remove_only():
    message = refused("records must be given under add/remove", records=None)
    assert "30" not in message.replace("60_000", "")
    private = begin(records=None, purse=Purse(1.0, 1e-5, neighbouring="replace-one"))
    assert private.engine.gradients == 0
    assert begin(records=None, epsilon=1.0, delta=1e-5, neighbouring="replace-one").purse.epsilon == 1.0


@pytest.mark.parametrize("records", [0, -3, math.nan, math.inf, "many", True], ids=str)
def test_odd_numbers_of_records(records):
    refused("records must be", records=records)


@pytest.mark.parametrize("batch_size", [31, 1_000])
def test_batches_larger_than_the_data(batch_size):
    refused("must be at most records=30", full_batch=False, batch_size=batch_size)


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, "all", True], ids=str)
def test_odd_batch_sizes(batch_size):
    refused("batch_size must be", full_batch=False, batch_size=batch_size)


def test_batch_sizes_must_come_from_somewhere():
    refused("batch_size must be given", full_batch=False)
    refused("batch_size must be given", full_batch=False, loader=DataLoader(TensorDataset(*data()), batch_size=None))


def test_a_sharded_module_is_refused_by_name():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        module = nn.Linear(3, 2)
        fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(InvalidArgument, match=r"sharded over processes \(FSDP\).*before fully_shard"):
            begin(module)
    finally:
        torch.distributed.destroy_process_group()
