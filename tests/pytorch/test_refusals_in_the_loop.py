"""Mistakes within a loop, and in fit."""

import contextlib
import math
import re

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.data import (  # noqa: E402
    DataLoader,
    TensorDataset,
)

from privypurse import BudgetExhausted, Gaussian, InvalidArgument, PermuteAndFlip, Purse  # noqa: E402
from privypurse.pytorch import fit  # noqa: E402
from privypurse.training.schedules._base import ConstantNoise  # noqa: E402
from tests.pytorch.refused_runs import begin, data, said, simple  # noqa: E402


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
    refused_in_loop(private, loss.backward, "records, but the batch has 30")
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


@pytest.mark.parametrize("first", [False, True], ids=["loss first", "penalty first"])
@pytest.mark.parametrize("saves", [False, True], ids=["plain", "checkpoint"])
def test_a_penalty_on_parameters_in_the_loss(saves, first):
    """Whenever it is computed: its gradient must not be left out in silence."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            x = self.one(x)
            return checkpoint(self.two, x, use_reentrant=False) if saves else self.two(x)

    private = begin(Net())
    before = private.module.two.weight.square().sum() if first else 0.0
    *_, loss = stepping(private)
    after = 0.0 if first else private.module.two.weight.square().sum()
    refused_in_loop(private, (loss + before + after).backward, "two.weight that hooks did not record")


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
        refused_in_loop(private, loss.backward, "records, but the batch has 30")


def test_layers_that_see_other_things_than_records():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.places = nn.Linear(3, 2), nn.Embedding(2, 2)

        def forward(self, x):
            finite = float(x.isfinite().all())  # a number, which a run for each record alone cannot have
            return self.out(x) + finite * self.places(torch.arange(2)).mean(0)

    with pytest.raises(InvalidArgument, match=r"Embedding\) was run on 2 records, but the batch has 3"):
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
        ({"records": None}, "public number of records.*60_000"),
        ({"micro_batch": 0}, "micro_batch must be"),
        ({"data": "file"}, "loader must be"),
        ({"module": nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))}, "GroupNorm"),
        ({"purse": Purse(1.0, 1e-5, neighbouring="add-remove")}, "is set by the purse"),
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
