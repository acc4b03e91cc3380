"""What cannot be private is refused in plain words, before anything is spent and without a word about the records."""

import contextlib
import math
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import (  # noqa: E402
    DataLoader,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.sampler import BatchSampler, SequentialSampler  # noqa: E402

from privypurse import BudgetExhausted, Gaussian, InvalidArgument, NoiseSource, PermuteAndFlip, Purse  # noqa: E402
from privypurse.core.errors import PrivypurseError  # noqa: E402
from privypurse.pytorch import AdaptiveClip, ModuleOracle, fit, make_private, open_purse, shape  # noqa: E402
from privypurse.schedules import ConstantNoise, Weighted  # noqa: E402

# A number that stands in every record, and must stand in no message.
SECRET = 73_591.25


def data(count=30):
    return torch.full((count, 3), SECRET), torch.zeros(count, dtype=torch.long)


def simple():
    return nn.Linear(3, 2)


def begin(module=None, loader=None, optimizer=None, **changes):
    module = simple() if module is None else module
    optimizer = torch.optim.SGD(module.parameters(), 0.1) if optimizer is None else optimizer
    arguments = {"purse": Purse(1.0, 1e-5, neighbouring="add-remove"), "records": 30, "full_batch": True, "steps": 3}
    if {"epsilon", "delta", "neighbouring"} & set(changes):
        arguments["purse"] = None
    return make_private(module, optimizer, data() if loader is None else loader, **arguments | changes)


def said(caught):
    message = str(caught.value)
    assert not re.search(r"73.?591", message), "values of records are not shown"
    assert len(message) < 1_000
    assert isinstance(caught.value, PrivypurseError)
    return message


def refused(match, error=InvalidArgument, **arguments):
    purse = arguments.get("purse") or Purse(1.0, 1e-5, neighbouring="add-remove")
    if not {"epsilon", "delta", "neighbouring", "purse"} & set(arguments):
        arguments["purse"] = purse
    with pytest.raises(error, match=match) as caught:
        begin(**arguments)
    if isinstance(purse, Purse):
        assert purse.spent.releases == 0
    return said(caught)


# -------------------------------------------------------------------------------------------------------------- modules


class OverTheBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer((x - x.mean(0)) / (x.std(0, correction=0) + 1e-3))


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


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.drop = nn.Parameter(torch.ones(3)), nn.Dropout(0.5)
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(self.drop(x * self.scale))


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (
            lambda: nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)),
            r"1 \(BatchNorm1d\).*GroupNorm\(8, 8\)",
        ),
        (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)), r"GroupNorm\(2, 6\)"),
        (lambda: nn.Sequential(nn.BatchNorm3d(7)), r"GroupNorm\(1, 7\)"),
        (lambda: nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2)), "GroupNorm"),
        (lambda: nn.SyncBatchNorm(3), "GroupNorm"),
        (
            lambda: nn.Sequential(nn.InstanceNorm1d(3, affine=True, track_running_stats=True)),
            "track_running_stats=False",
        ),
        (lambda: nn.Sequential(nn.LSTM(3, 2)), "LSTM.*no gradients of single records"),
        (lambda: nn.Sequential(nn.GRU(3, 2, batch_first=True)), "GRU"),
        (lambda: nn.RNN(3, 2), "RNN"),
        (lambda: nn.Sequential(nn.Embedding(5, 3, max_norm=1.0)), "max_norm"),
        (lambda: nn.Sequential(nn.Embedding(5, 3, sparse=True)), "sparse"),
        (lambda: nn.Sequential(nn.Embedding(5, 3, scale_grad_by_freq=True)), "scale_grad_by_freq"),
        (OverTheBatch, "mixes records"),
        (Rolling, "mixes records"),
        (Remembering, r"changes its buffers \(last\)"),
        (Counting, r"changes its buffers \(last\)"),
        (Dropping, "dropout"),
        (lambda: nn.Sequential(nn.MultiheadAttention(4, 2, kdim=3)), "kdim"),
        (lambda: nn.Sequential(nn.MultiheadAttention(4, 2, add_bias_kv=True)), "add_bias_kv"),
        (lambda: nn.Sequential(nn.MultiheadAttention(4, 2, add_zero_attn=True)), "add_zero_attn"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_modules_that_mix_or_remember_records(module, match):
    refused(match, module=module())


def test_a_module_that_was_refused_is_as_it_was():
    module = Remembering()
    refused("buffers", module=module)
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
    refused("buffers", module=module)
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


# ----------------------------------------------------------------------------------------------------------- optimizers


def test_the_optimizer_of_another_module():
    refused("not the module's", optimizer=torch.optim.SGD(simple().parameters(), 0.1))


def test_an_optimizer_that_moves_more_than_the_module():
    module = simple()
    more = [*module.parameters(), nn.Parameter(torch.zeros(3))]
    refused("not the module's", module=module, optimizer=torch.optim.SGD(more, 0.1))


@pytest.mark.parametrize("optimizer", ["sgd", 0.1, torch.optim.SGD], ids=["name", "number", "class"])
def test_what_is_not_an_optimizer(optimizer):
    refused("optimizer must be", optimizer=optimizer)


def test_parameters_that_are_added_later():
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    private = begin(module, optimizer=torch.optim.SGD(module[0].parameters(), 0.1))
    private.optimizer.add_param_group({"params": list(module[1].parameters())})
    inputs, targets = next(iter(private.loader))
    F.cross_entropy(module(inputs), targets).backward()
    with pytest.raises(InvalidArgument, match="did not have when make_private was called") as caught:
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


# ------------------------------------------------------------------------------------------------------------- records


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
        (lambda: DataLoader(Stream(), batch_size=3), "Stream"),
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


# ------------------------------------------------------------------------------------------------- schedules and budgets


SAMPLED = {"full_batch": False, "batch_size": 6}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"steps": None, "epsilon": 1.0, "delta": 1e-5, **SAMPLED}, "steps or epochs must be given"),
        ({"epochs": 2}, "say the same thing"),
        ({"steps": 0}, "steps must be"),
        ({"steps": 2.5}, "steps must be"),
        ({"steps": True}, "steps must be"),
        ({"steps": None, "epochs": -1}, "epochs must be"),
        ({"accumulate": 0}, "accumulate must be"),
        ({"micro_batch": 0}, "micro_batch must be"),
        ({"block": 0}, "block must be"),
        ({"loss_reduction": "none"}, "loss_reduction must be"),
        ({"loss_reduction": None}, "loss_reduction must be"),
        ({"schedule": "cosine"}, "schedule must be one of uniform"),
        ({"schedule": 3.0}, "schedule must be"),
        ({"schedule": ConstantNoise}, "schedule must be"),
        ({"schedule": Weighted((1.0, 2.0))}, "2 weights, and there are 3 steps"),
        ({"schedule": (1.0, -2.0, 1.0)}, "weights must be positive"),
        ({"schedule": (1.0, math.nan, 1.0)}, "weights must be"),
        ({"schedule": []}, "weights must be"),
        ({"clip_norm": math.nan}, "clip_norm must be"),
        ({"clip_norm": math.inf}, "clip_norm must be"),
        ({"clip_norm": -1.0}, "clip_norm must be"),
        ({"clip_norm": 0}, "clip_norm must be"),
        ({"clip_norm": True}, "clip_norm must be"),
        ({"clip_norm": "1"}, "clip_norm must be"),
        ({"clip_norm": None}, "clip_norm must be"),
        ({"clip_norm": AdaptiveClip}, "clip_norm must be"),
        ({"clip_norm": torch.ones(2)}, "clip_norm must be"),
        ({"callbacks": 3}, "callbacks must be"),
        ({"loss": 3}, "loss must be"),
        ({"loss": "mse"}, "loss must be"),
        ({"purse": 1.0}, "purse must be"),
        ({"purse": "mine"}, "purse must be"),
        ({"epsilon": 1.0}, "epsilon and delta must be given"),
        ({"delta": 1e-5}, "epsilon and delta must be given"),
        ({"epsilon": 1.0, "delta": 0.1}, "delta must be far below"),
        ({"epsilon": 1.0, "delta": 1 / 30}, "delta must be far below"),
        ({"epsilon": -1.0, "delta": 1e-5}, "epsilon must be"),
        ({"epsilon": math.nan, "delta": 1e-5}, "epsilon must be"),
        ({"epsilon": True, "delta": 1e-5}, "epsilon must be"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must be"),
        ({"epsilon": 1.0, "delta": 1e-5, "neighbouring": "edit"}, "neighbouring must be"),
        ({"epsilon": 1.0, "delta": 1e-5, "noise": 7}, "noise must be"),
    ],
    ids=lambda value: re.sub(r" at 0x.*", "", str(value))[:50] if isinstance(value, dict) else "",
)
def test_odd_settings(change, match):
    refused(match, **change)


@pytest.mark.parametrize("schedule", [(1.0, 2.0), [1.0] * 5], ids=str)
def test_as_many_weights_as_steps(schedule):
    refused(r"\d weights, and there are 3 steps", schedule=schedule)


@pytest.mark.parametrize("delta", ["1e-5", math.nan, -1.0, True], ids=str)
def test_odd_deltas(delta):
    refused("delta must be", epsilon=1.0, delta=delta)


@pytest.mark.parametrize("given", [{"delta": 1e-5}, {"noise": NoiseSource(seed=1)}], ids=["d", "n"])
def test_a_purse_has_its_own_budget_and_noise(given):
    purse = Purse(1.0, 1e-5, neighbouring="add-remove")
    refused("is the purse's where there is one", purse=purse, **given)


def test_a_part_of_a_purse_is_for_full_batches(planned):
    for purse in (Purse(1.0, 1e-5, neighbouring="add-remove", filter="rdp"), Purse.with_filter(planned)):
        refused("epsilon is the purse's for Poisson samples", purse=purse, epsilon=0.5, **SAMPLED)
    for epsilon in (0.0, -1.0, math.nan, True, "all"):
        refused("epsilon must be", purse=Purse(1.0, 1e-5, neighbouring="add-remove"), epsilon=epsilon)


@pytest.mark.parametrize("kind", ["gdp", "zcdp"])
def test_purses_that_cannot_price_samples(kind):
    purse = Purse(1.0, 1e-5, neighbouring="add-remove", filter=kind)
    refused(f"{kind} filter, which has no price for Poisson samples", purse=purse, **SAMPLED)


@pytest.fixture(scope="module")
def planned():
    return open_purse(epsilon=1.0, delta=1e-5, neighbouring="add-remove", steps=3, sample_prob=0.2).filter


def test_purses_with_a_schedule_for_another_run(planned):
    def purse():
        return Purse.with_filter(planned)

    refused("opened for samples with probability 0.2, and the loader draws them with 1", purse=purse())
    refused("probability 0.2", purse=purse(), full_batch=False, batch_size=3)
    refused("probability 0.2", purse=purse(), records=31, **SAMPLED)
    refused("opened for 3 releases, and the run has 4", purse=purse(), steps=4, **SAMPLED)
    refused("opened for 3 releases, and the run has 4", purse=purse(), clip_norm=AdaptiveClip(), **SAMPLED)
    refused("chooses on the way", purse=purse(), schedule=ConstantNoise(3.0), **SAMPLED)
    refused("opened for another schedule", purse=purse(), schedule="exponential", **SAMPLED)
    assert begin(purse=purse(), **SAMPLED).engine.gradients == 0


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"sample_prob": 0.0},
        {"sample_prob": 1.5},
        {"schedule": "cosine"},
        {"schedule": Weighted((1.0,))},
        {"clip_norm": AdaptiveClip()},
        {"epsilon": 0.0},
        {"delta": 2.0},
        {"neighbouring": "edit"},
        {"noise": 3},
    ],
    ids=str,
)
def test_odd_purses(change):
    arguments = {"epsilon": 1.0, "delta": 1e-5, "neighbouring": "add-remove", "steps": 3} | change
    with pytest.raises(InvalidArgument):
        open_purse(**arguments)


@pytest.mark.parametrize(
    "change",
    [
        {"start": 0.0},
        {"start": math.nan},
        {"start": True},
        {"quantile": 0.0},
        {"quantile": 1.0},
        {"quantile": math.nan},
        {"every": 0},
        {"every": 1.5},
        {"rate": 0.0},
        {"error": -0.1},
    ],
    ids=str,
)
def test_odd_adaptive_clip_norms(change):
    with pytest.raises(InvalidArgument, match=f"{next(iter(change))} must be"):
        AdaptiveClip(**change)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cosine", {}),
        ("uniform", {"ratio": 0.0}),
        ("step", {"stairs": 0}),
        ("dynamic", {"ratio": math.nan}),
        (None, {}),
    ],
)
def test_odd_shapes(name, change):
    with pytest.raises(InvalidArgument):
        shape(name, 5, **change)


def test_a_loss_that_is_refused_leaves_the_module_as_it_was():
    module = simple()
    refused("loss must be", module=module, loss=3)
    F.cross_entropy(module(data()[0]), data()[1]).backward()
    assert module.weight.grad is not None
    assert not module._forward_hooks


# ---------------------------------------------------------------------------------------------------- within the loop


def stepping(private):
    inputs, targets = next(iter(private.loader))
    return inputs, targets, F.cross_entropy(private.module(inputs), targets)


def refused_in_loop(private, call, match, error=InvalidArgument, releases=0):
    before = [value.detach().clone() for value in private.module.parameters()]
    with pytest.raises(error, match=match) as caught:
        call()
    said(caught)
    assert private.purse.spent.releases == releases
    assert all(torch.equal(old, new) for old, new in zip(before, private.module.parameters(), strict=True))


def test_a_step_without_a_batch():
    private = begin()
    refused_in_loop(private, private.optimizer.step, "without a batch")


def test_a_backward_pass_without_a_batch():
    private = begin()
    X, y = data()
    loss = F.cross_entropy(private.module(X), y)
    refused_in_loop(private, loss.backward, "not from the private loader")
    refused_in_loop(private, private.optimizer.step, "without a batch")


def test_a_second_backward_pass_over_one_batch():
    private = begin()
    inputs, targets, loss = stepping(private)
    loss.backward()
    again = F.cross_entropy(private.module(inputs), targets)
    refused_in_loop(private, again.backward, "second backward pass")


def test_a_second_backward_pass_over_the_same_graph():
    private = begin()
    *_, loss = stepping(private)
    loss.backward(retain_graph=True)
    refused_in_loop(private, loss.backward, "second backward pass")


@pytest.mark.parametrize(
    "change", [lambda x: x[:-1], lambda x: torch.cat([x, x]), lambda x: x[:1], lambda x: x.repeat_interleave(2, 0)]
)
def test_a_backward_pass_over_other_records(change):
    private = begin()
    inputs, targets, _ = stepping(private)
    loss = F.cross_entropy(private.module(change(inputs)), change(targets))
    refused_in_loop(private, loss.backward, "records where the loader gave 30")
    refused_in_loop(private, private.optimizer.step, "no backward pass")


def test_a_step_in_evaluation_mode():
    private = begin()
    private.module.eval()
    *_, loss = stepping(private)
    loss.backward()
    refused_in_loop(private, private.optimizer.step, r"module\.train\(\)")
    assert all(value.grad is None for value in private.module.parameters())


def test_a_step_without_a_backward_pass():
    private = begin()
    stepping(private)
    refused_in_loop(private, private.optimizer.step, "no backward pass came through")
    refused_in_loop(private, lambda: private.optimizer.step(lambda: torch.zeros(())), "no backward pass came through")


def test_a_second_step_over_one_batch():
    private = begin()
    *_, loss = stepping(private)
    loss.backward()
    private.optimizer.step()
    refused_in_loop(private, private.optimizer.step, "without a batch", releases=1)


@pytest.mark.parametrize("schedule", ["uniform", ConstantNoise(0.01)], ids=str)
def test_a_step_after_the_end(schedule):
    private = begin(schedule=schedule)
    reason = "steps" if schedule == "uniform" else "budget"
    with (
        contextlib.nullcontext() if reason == "steps" else pytest.warns(UserWarning, match="no step was made: what is")
    ):
        for _ in range(5):
            for inputs, targets in private.loader:
                F.cross_entropy(private.module(inputs), targets).backward()
                private.optimizer.step()
    assert private.engine.stop_reason == reason
    match = rf"the run has ended \({reason}\)"
    refused_in_loop(private, private.optimizer.step, match, BudgetExhausted, 3 if reason == "steps" else 0)
    loss = F.cross_entropy(private.module(data()[0]), data()[1])
    refused_in_loop(private, loss.backward, "not from the private loader", releases=private.purse.spent.releases)


class Proposing:
    def __init__(self, mechanism):
        self.mechanism = mechanism

    def propose(self, query, past, budget):
        return self.mechanism


@pytest.mark.parametrize(
    "mechanism",
    [None, 2.0, "gaussian", Gaussian, PermuteAndFlip(0.1), torch.ones(3)],
    ids=["none", "number", "name", "class", "selection", "tensor"],
)
def test_schedules_that_propose_something_else_than_a_gaussian(mechanism):
    private = begin(schedule=Proposing(mechanism))
    refused_in_loop(
        private, lambda: next(iter(private.loader)), "must propose a Gaussian mechanism; Proposing proposed"
    )
    refused_in_loop(private, private.optimizer.step, "without a batch")


@pytest.mark.parametrize("by_name", [False, True])
def test_inputs_that_require_a_gradient(by_name):
    private = begin(module=Named())
    inputs, targets = next(iter(private.loader))
    before = nn.Linear(3, 3)
    made = before(inputs)
    call = (lambda: private.module(x=made)) if by_name else (lambda: private.module(made))
    refused_in_loop(private, call, "require a gradient")
    with torch.no_grad():
        private.module(made)  # evaluation is no business of the engine's
    F.cross_entropy(private.module(made.detach()), targets).backward()
    private.optimizer.step()
    assert private.purse.spent.releases == 1
    assert before.weight.grad is None


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)


def test_the_engines_own_backward():
    private = begin()
    inputs, targets, _ = stepping(private)
    refused_in_loop(private, lambda: private.engine.backward(inputs, targets), "backward needs the loss")
    private = begin(loss=nn.CrossEntropyLoss())
    refused_in_loop(private, lambda: private.engine.backward(*data()), "batch of the loader")
    inputs, targets, _ = stepping(private)
    refused_in_loop(private, lambda: private.engine.backward(inputs[1:], targets[1:]), "batch of the loader")
    refused_in_loop(private, lambda: private.engine.backward(inputs, targets[1:]), "batch of the loader")
    private.engine.backward(inputs, targets)
    refused_in_loop(private, lambda: private.engine.backward(inputs, targets), "second backward pass")


def test_collation_that_repeats_or_drops_records():
    def repeating(items):
        X, y = torch.utils.data.default_collate(items)
        return X.repeat(2, 1), y.repeat(2)

    def dropping(items):
        X, y = torch.utils.data.default_collate(items[1:] or items)
        return X, y

    for collate in (repeating, dropping):
        private = begin(loader=DataLoader(TensorDataset(*data()), batch_size=5, collate_fn=collate))
        *_, loss = stepping(private)
        refused_in_loop(private, loss.backward, "records where the loader gave 30")


def test_layers_that_see_other_things_than_records():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.places = nn.Linear(3, 2), nn.Embedding(2, 2)

        def forward(self, x):
            return self.out(x) + self.places(torch.arange(2)).mean(0)

    with pytest.raises(InvalidArgument, match=r"Embedding\) was run on 2 records where the loader gave 3"):
        begin(Positions())


def test_a_run_goes_on_after_a_mistake():
    private = begin()
    private.module.eval()
    *_, loss = stepping(private)
    loss.backward()
    refused_in_loop(private, private.optimizer.step, "training mode")
    private.module.train()

    def go_on():
        while not private.engine.stop_reason:
            for inputs, targets in private.loader:
                F.cross_entropy(private.module(inputs), targets).backward()
                private.optimizer.step()

    with pytest.warns(UserWarning, match="no step was made"):
        go_on()
    assert private.purse.spent.releases == 3


# ------------------------------------------------------------------------------------------------------------------ fit


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"method": "nonsense"}, "method must be"),
        ({"epsilon": None}, "epsilon and delta must be given"),
        ({"delta": 0.2}, "delta must be"),
        ({"loss": 3}, "loss must be"),
        ({"clip_norm": math.nan}, "clip_norm must be"),
        ({"clip_norm": None}, "clip_norm must be"),
        ({"loss_range": 0.0}, "loss_range must be"),
        ({"records": -1}, "records must be"),
        ({"micro_batch": 0}, "micro_batch must be"),
        ({"data": "file"}, "loader must be"),
        ({"module": nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))}, "GroupNorm"),
        ({"purse": Purse(1.0, 1e-5, neighbouring="add-remove")}, "is the purse's"),
        ({"purse": 3, "epsilon": None, "delta": None}, "purse must be"),
        ({"neighbouring": "edit"}, "neighbouring must be"),
        ({"l2": -1.0}, "l2 must be"),
    ],
    ids=lambda value: re.sub(r" at 0x.*", "", str(value))[:40] if isinstance(value, dict) else "",
)
def test_odd_fits(change, match):
    arguments = {"module": simple(), "data": data(), "loss": nn.CrossEntropyLoss(), "records": 30} | change
    arguments = {"epsilon": 1.0, "delta": 1e-5} | arguments
    with pytest.raises(InvalidArgument, match=match) as caught:
        fit(arguments.pop("module"), arguments.pop("data"), **arguments)
    said(caught)
