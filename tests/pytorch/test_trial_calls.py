"""The trial on synthetic records: each way of calling a module is tried before it is paid for."""

import dataclasses

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from privypurse import NoiseSource, Purse  # noqa: E402
from privypurse.core._errors import InvalidArgument  # noqa: E402
from privypurse.pytorch._fitting import ModuleOracle  # noqa: E402
from privypurse.pytorch._rows import way_of_calling  # noqa: E402
from privypurse.training.schedules._base import ConstantNoise  # noqa: E402
from tests.pytorch.small_runs import begin_full_batch as begin  # noqa: E402


def test_a_part_that_first_has_no_weight_is_tried_when_it_has_one():
    class Annealed(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(3, 2)

        def forward(self, x, weight):
            return self.map(x - weight * x.mean(0) if weight else x)

    module = Annealed()
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))))
    x, _ = next(iter(private.loader))
    module(x, 0.0)
    with pytest.raises(InvalidArgument, match="mixes records"):
        module(x, 0.5)


class Centred(nn.Module):
    """Centres by the batch, in one of the ways in which it can be called."""

    def __init__(self, when):
        super().__init__()
        self.map, self.when = nn.Linear(3, 2), when

    def forward(self, x, y=None, *, centre=False, scale=1.0):
        mixes = {"two": y is not None, "flag": centre, "half": x.dtype == torch.float64, "wide": x.dim() == 3}
        if mixes.get(self.when, not self.map.training):
            x = x - x.mean(0)
        x = scale * x.to(self.map.weight.dtype)
        return self.map(x if x.dim() == 2 else x.mean(1))


@pytest.mark.parametrize(
    ("when", "call"),
    [
        ("two", lambda module, x, y: module(x, y)),
        ("two", lambda module, x, y: module(x, y=y)),
        ("flag", lambda module, x, y: module(x, centre=True)),
        ("half", lambda module, x, y: module(x.double())),
        ("wide", lambda module, x, y: module(x[:, None])),
        ("layer in eval", lambda module, x, y: (module.map.eval(), module(x))[1]),
    ],
)
def test_a_way_of_calling_that_was_not_tried_before_is_tried_before_payment(when, call):
    module = Centred(when)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))))
    for step, (x, y) in enumerate(private.loader):
        if step == 0:
            F.cross_entropy(module(x), y).backward()
            private.optimizer.step()
        else:
            with pytest.raises(InvalidArgument, match="mixes records"):
                call(module, x, y)
    assert private.purse.spent.releases == 1


@dataclasses.dataclass
class Wrapped:
    x: object


class Unwraps(nn.Module):
    """Centres what does not come as a tensor."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 2)

    def forward(self, x, beside=None):
        if not isinstance(x, torch.Tensor):
            x = x.x if isinstance(x, Wrapped) else torch.stack([torch.as_tensor(row) for row in x])
            x = x - x.mean(0)
        return self.map(x if beside is None else x - beside.x.mean(0))


@pytest.mark.parametrize(
    "call",
    [
        lambda module, x: module(Wrapped(x)),
        lambda module, x: module(list(x)),
        lambda module, x: module(x.numpy()),
        lambda module, x: module(x, Wrapped(x)),
    ],
)
def test_a_call_with_records_where_no_tensor_shows_them_is_on_the_certificate(call):
    module = Unwraps()
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))))
    x, y = next(iter(private.loader))
    with pytest.warns(UserWarning, match="could not be tried"):
        outputs = call(module, x)
    F.cross_entropy(outputs, y).backward()
    private.optimizer.step()
    assert sum("tried out" in line for line in private.purse.certificate().uncovered) == 1


@pytest.mark.parametrize(
    ("when", "call"),
    [
        ("two", lambda module, engine, x, y: engine.backward(x, y, y)),
        ("eval", lambda module, engine, x, y: (module.eval(), engine.backward(x, y))),
    ],
)
def test_what_the_engine_is_called_with_is_tried_before_payment(when, call):
    module = Centred(when)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))), loss=nn.CrossEntropyLoss(), compile=False)
    x, y = next(iter(private.loader))
    with pytest.raises(InvalidArgument, match="mixes records"):
        call(module, private.engine, x, y)
    assert private.purse.spent.releases == 0


class Beside(nn.Module):
    """Centres what comes beside the records, or from some number on."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 2)

    def forward(self, x, beside=None, *, epoch=0):
        if beside is not None:
            x = x + beside - beside.mean(0)
        return self.map(x if epoch == 0 else x / epoch)


def test_a_part_that_comes_once_for_all_and_then_for_each_record_is_tried_again():
    module = Beside()
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))))
    x, _ = next(iter(private.loader))
    module(x, torch.zeros(1, 3))
    with pytest.raises(InvalidArgument, match="mixes records"):
        module(x, x)


class From(Beside):
    def forward(self, x, epoch):
        return super().forward(x - x.mean(0) if epoch == 1 else x, epoch=epoch)


def test_whole_numbers_are_tried_one_by_one_and_too_many_are_on_the_certificate():
    module = From()
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))))
    x, _ = next(iter(private.loader))
    module(x, 0)
    with pytest.raises(InvalidArgument, match="mixes records"):
        module(x, 1)
    for epoch in range(2, 11):
        module(x, epoch)
    assert not any("whole numbers" in line for line in private.purse.certificate().uncovered)
    for epoch in range(11, 20):
        module(x, epoch)
    assert sum("whole numbers" in line for line in private.purse.certificate().uncovered) == 1


def test_a_mode_that_cannot_be_tried_does_not_hide_what_another_one_showed():
    class Counting(nn.Sequential):
        def forward(self, x):
            self.calls += 1
            return super().forward(x if self.training else x.nonsense)

    module = Counting(nn.Linear(3, 2))
    module.calls = 0
    data = torch.randn(30, 3), torch.randint(2, (30,))
    untried = ModuleOracle(module, data, loss=nn.CrossEntropyLoss(), records=30).untried
    assert [any(words in line for line in untried) for words in ("calls", "tried out")] == [True, True]


def test_numbers_that_change_from_call_to_call_are_not_tried_each_time(monkeypatch):
    from privypurse.pytorch._trial import Trials

    module, tried = Centred("never"), []
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))), steps=6)
    original = Trials._try
    monkeypatch.setattr(Trials, "_try", lambda self, *given, **how: tried.append(1) or original(self, *given, **how))
    for step, (x, y) in enumerate(private.loader):
        module.map.train()
        F.cross_entropy(module(x, scale=1.0 + step), y).backward()
        private.optimizer.step()
    assert len(tried) == 1


def test_a_part_that_once_was_as_long_as_the_batch_is_tried_when_it_has_records():
    """A weight for five classes meets five records: that is no trial of a part with one number for
    each record.
    """

    class Weighing(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(3, 5)

        def forward(self, x, weights=None):
            return (
                self.map(x) if weights is None else self.map(x) * (weights if len(weights) == 5 else weights[:, None])
            )

    private = begin(Weighing(), (torch.randn(30, 3), torch.randint(2, (30,))))
    trials = private.engine._trials
    for records, weights in ((30, 5), (5, 5), (5, 5)):
        trials.at_call(((torch.randn(records, 3), torch.randn(weights)), {}), records)
    assert way_of_calling(trials.module, ((torch.randn(7, 3), torch.randn(7)), {}), 7) not in trials.known
    trials.at_call(((torch.randn(30, 3), torch.randn(5)), {}), 30)
    assert way_of_calling(trials.module, ((torch.randn(9, 3), torch.randn(5)), {}), 9) in trials.known


def test_a_trial_in_the_loop_changes_neither_chance_nor_the_sum():
    """A second call in another way comes between the first one and the backward pass over both."""
    found = []
    for tried_before in (False, True):
        torch.manual_seed(3)
        module = Centred("never")
        data = torch.randn(30, 3), torch.randint(2, (30,))
        purse = Purse.not_private(noise=NoiseSource(seed=0))
        settings = {"purse": purse, "schedule": ConstantNoise(1e-9), "epsilon": None, "delta": None}
        private = begin(module, data, steps=1, **settings)
        x, y = next(iter(private.loader))
        if tried_before:
            assert private.engine._trials.at_call(((x, y), {}), 30) == []
        outputs = module(x)
        F.cross_entropy(outputs + module(x, y), y).backward()
        private.optimizer.step()
        found.append((torch.rand(1), module.map.weight.grad.clone()))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.allclose(found[0][1], found[1][1], atol=1e-6)


class Silent(nn.Module):
    """Answers a call in a way that synthetic records cannot."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 2)

    def forward(self, x):
        if len(x) == 3 or len(x) == 2:
            raise ValueError("too few")
        return self.map(x)


@pytest.mark.parametrize("way", ["hooks", "backward"])
def test_a_way_of_calling_that_cannot_be_tried_is_on_the_certificate_once(way):
    module = Silent()
    data = torch.randn(30, 3), torch.randint(2, (30,))

    def train():
        private = begin(module, data, loss=nn.CrossEntropyLoss() if way == "backward" else None)
        for x, y in private.loader:
            if way == "backward":
                private.engine.backward(x, y)
            else:
                F.cross_entropy(module(x), y).backward()
            private.optimizer.step()
        return private

    with pytest.warns(UserWarning, match="could not be tried"):
        private = train()
    uncovered = private.purse.certificate().uncovered
    assert sum("tried out" in line for line in uncovered) == 1
    assert private.purse.spent.releases == 2
