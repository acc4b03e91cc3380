"""Numbers that are public, sources of data, optimizers, schedulers and what else is in a loop."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset  # noqa: E402

from privypurse import Purse  # noqa: E402
from privypurse.core._errors import InvalidArgument  # noqa: E402
from privypurse.pytorch import make_private  # noqa: E402
from privypurse.pytorch._engine import LEFT_OUT  # noqa: E402
from privypurse.training.schedules._base import ConstantNoise  # noqa: E402
from tests.pytorch.small_runs import begin, data, loop, noiseless, public_steps, step, weights_of  # noqa: E402


class Records(Dataset):
    def __init__(self, count=60):
        self.X, self.y = data(count)

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        return self.X[row], int(self.y[row])


class Named(Records):
    def __getitem__(self, row):
        return {"x": self.X[row], "label": self.y[row]}


def doubled(items):
    return 2 * torch.stack([x for x, _ in items]), torch.tensor([y for _, y in items])


@pytest.mark.parametrize(
    ("loader", "batch_size"),
    [
        (lambda: DataLoader(TensorDataset(*data()), batch_size=12, shuffle=True), None),
        (lambda: DataLoader(Records(), batch_size=12), None),
        (lambda: DataLoader(Records(), batch_size=12, collate_fn=doubled), None),
        (lambda: DataLoader(TensorDataset(*data()), batch_size=12, collate_fn=doubled, drop_last=True), None),
        (lambda: DataLoader(Records(), batch_size=12, num_workers=2), None),
        (lambda: DataLoader(Subset(Records(120), range(60)), batch_size=12), None),
        (lambda: TensorDataset(*data()), 12),
        (lambda: Records(), 12),
        (lambda: data(), 12),
        (lambda: list(data()), 12),
        (lambda: list(zip(*data(), strict=True)), 12),
    ],
    ids=[
        "tensors",
        "objects",
        "collate",
        "tensors collated",
        "workers",
        "subset",
        "set",
        "own",
        "tuple",
        "list",
        "pairs",
    ],
)
def test_records_come_from_anything_with_a_length(loader, batch_size):
    private = loop(begin(loader=loader(), batch_size=batch_size))
    assert private.engine.stop_reason == "steps"
    assert public_steps(private) == public_steps(loop(begin()))


def test_what_a_data_set_gives_does_not_depend_on_how_it_is_fetched():
    ways = (data(), DataLoader(Records(), batch_size=12), DataLoader(Records(), batch_size=12, num_workers=2))
    models = [weights_of(loop(begin(loader=way, full_batch=True)).module) for way in ways]
    assert torch.allclose(models[0], models[1], atol=1e-6)
    assert torch.equal(models[1], models[2])


def test_batches_of_names_in_a_loop_of_ones_own():
    private = begin(loader=DataLoader(Named(), batch_size=1), batch_size=1, records=60, steps=30)
    empty = 0
    for batch in private.loader:
        assert set(batch) == {"x", "label"}
        assert len(batch["x"]) > 0
        empty += private.engine._drawn.chunk == 0
        F.cross_entropy(private.module(batch["x"]), batch["label"]).backward()
        private.optimizer.step()
    assert empty
    assert private.engine.gradients == 30


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True),
        lambda m: torch.optim.Adam(m.parameters(), 0.01),
        lambda m: torch.optim.AdamW(m.parameters(), 0.01, weight_decay=0.1),
        lambda m: torch.optim.RMSprop(m.parameters(), 0.01),
        lambda m: torch.optim.Adagrad(m.parameters(), 0.01),
        lambda m: torch.optim.SGD([{"params": [m.weight], "lr": 0.1}, {"params": [m.bias], "lr": 0.5}]),
        lambda m: torch.optim.Adam(m.parameters(), 0.01, foreach=True),
    ],
    ids=["sgd", "adam", "adamw", "rmsprop", "adagrad", "groups", "foreach"],
)
def test_optimizers_make_the_step_they_make_with_the_same_gradients(optimizer):
    private = begin(optimizer=optimizer)
    torch.manual_seed(0)
    twin = nn.Linear(3, 2)
    by_hand = optimizer(twin)
    for _ in range(2):
        for batch in private.loader:
            step(private, *batch)
            for mine, theirs in zip(twin.parameters(), private.module.parameters(), strict=True):
                mine.grad = theirs.grad.clone()
            by_hand.step()
            assert torch.equal(weights_of(twin), weights_of(private.module))
    assert private.engine.gradients == 6


def closing(private, inputs, targets, calls):
    def closure():
        calls.append(1)
        private.optimizer.zero_grad()
        loss = F.cross_entropy(private.module(inputs), targets)
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("keyword", [True, False])
def test_a_closure_is_called_once_for_each_step(keyword):
    private, calls, losses = begin(optimizer=lambda m: torch.optim.SGD(m.parameters(), 0.1)), [], []
    for _ in range(2):
        for batch in private.loader:
            before = weights_of(private.module)
            closure = closing(private, *batch, calls)
            losses.append(private.optimizer.step(closure=closure) if keyword else private.optimizer.step(closure))
            assert not torch.equal(before, weights_of(private.module))
    assert len(calls) == private.purse.spent.releases == 6
    assert all(torch.isnan(loss) for loss in losses)  # the loss of the batch was not paid for


def test_optimizers_that_step_by_the_loss_are_refused():
    with pytest.raises(InvalidArgument, match="LBFGS"):
        begin(optimizer=lambda m: torch.optim.LBFGS(m.parameters(), 0.1))


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("when", ["before", "after", "between"])
def test_gradients_may_be_zeroed_anywhere(to_none, when):
    private = begin()
    for _ in range(2):
        for inputs, targets in private.loader:
            if when == "before":
                private.optimizer.zero_grad(set_to_none=to_none)
            loss = F.cross_entropy(private.module(inputs), targets)
            if when == "between":
                private.module.zero_grad(set_to_none=to_none)
            loss.backward()
            private.optimizer.step()
            if when == "after":
                private.optimizer.zero_grad(set_to_none=to_none)
    assert torch.equal(weights_of(private.module), weights_of(loop(begin()).module))


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2, gamma=0.5),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=6),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 6),
    ],
    ids=["step", "one cycle", "cosine"],
)
@pytest.mark.parametrize("first", [True, False])
def test_schedulers_of_the_step_size(scheduler, first):
    if first:
        made = []
        private = begin(optimizer=lambda m: made.append(torch.optim.SGD(m.parameters(), 0.1)) or made[0])
        pace = scheduler(made[0])
    else:
        private = begin()
        pace = scheduler(private.optimizer)
    plain = nn.Linear(3, 2)
    other = torch.optim.SGD(plain.parameters(), 0.1)
    other_pace = scheduler(other)
    for _ in range(2):
        for batch in private.loader:
            step(private, *batch)
            pace.step()
            other.step()
            other_pace.step()
            assert pace.get_last_lr() == other_pace.get_last_lr()
    assert private.engine.gradients == 6


def test_gradients_are_clipped_by_the_engine_and_may_be_clipped_again_after_it():
    private = begin()
    for inputs, targets in private.loader:
        F.cross_entropy(private.module(inputs), targets).backward()
        nn.utils.clip_grad_norm_(private.module.parameters(), 1.0)  # of nothing: gradients come with the step
        private.optimizer.step()
    assert private.engine.gradients == 6


def test_evaluation_in_between_is_not_charged():
    private, plain = begin(), begin()
    X, y = data()
    for _ in range(2):
        for batch in private.loader:
            with torch.no_grad():
                private.module(X)
            private.module.eval()
            out = private.module(X)
            assert F.cross_entropy(out, y) > 0
            private.module.train()
            step(private, *batch)
    assert private.purse.spent.releases == 6
    assert torch.equal(weights_of(private.module), weights_of(loop(plain).module))


def test_losses_that_no_backward_pass_is_made_for_do_not_matter():
    private = begin()
    for _ in range(2):
        for inputs, targets in private.loader:
            private.module(inputs)
            F.cross_entropy(private.module(inputs * 2), targets).item()
            step(private, inputs, targets)
    assert torch.equal(weights_of(private.module), weights_of(loop(begin()).module))


def test_two_forward_passes_over_a_batch_count_as_one_record_each():
    private = noiseless(full_batch=True, steps=1, clip_norm=0.5)
    for inputs, targets in private.loader:
        loss = F.cross_entropy(private.module(inputs), targets) + F.cross_entropy(private.module(-inputs), targets)
        loss.backward()
        private.optimizer.step()
    total = torch.cat([value.grad.flatten() for value in private.module.parameters()])
    assert float(total.norm()) <= 0.5


def test_names_of_parameters_stay_as_they_are():
    module = nn.Sequential(
        nn.Linear(3, 4), nn.Unflatten(1, (1, 4)), nn.TransformerEncoderLayer(4, 2, 4, batch_first=True), nn.Flatten()
    )
    keys = list(module.state_dict())
    private = begin(module=module, loader=(torch.randn(60, 3), torch.randint(2, (60,))))
    assert private.module is module
    assert list(module.state_dict()) == keys
    assert [name for name, _ in module.named_parameters()] == keys
    torch.manual_seed(0)
    twin = nn.Sequential(
        nn.Linear(3, 4), nn.Unflatten(1, (1, 4)), nn.TransformerEncoderLayer(4, 2, 4, batch_first=True), nn.Flatten()
    )
    twin.load_state_dict(module.state_dict())


def test_what_is_returned_is_what_was_passed():
    module = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    got, same, loader = make_private(
        module, optimizer, data(), records=60, epsilon=1.0, delta=1e-5, batch_size=12, steps=3
    )
    assert got is module
    assert same is optimizer
    assert "probability 0.2, 3 steps" in repr(loader)


def test_leaving_a_loop_early_spends_only_what_was_stepped():
    private = begin()
    for number, batch in enumerate(private.loader):
        if number == 2:
            break
        step(private, *batch)
    assert private.purse.spent.releases == 2
    with pytest.warns(UserWarning, match="no step was made"):
        loop(private)
    assert private.engine.gradients == private.purse.spent.releases == 6
    assert any("not trained on" in line for line in private.purse.certificate().uncovered)


def leave_out(private, *numbers):
    for number, batch in enumerate(private.loader):
        if number not in numbers:
            step(private, *batch)


def test_a_batch_that_is_dropped_is_told_once_and_stands_on_the_certificate():
    private = begin()
    assert LEFT_OUT not in private.purse.certificate().uncovered
    with pytest.warns(UserWarning, match="a batch was taken from the private loader and no step was made") as caught:
        leave_out(private, 1, 3)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    loop(private)  # the rest
    assert private.engine.gradients == private.purse.spent.releases == 6
    certificate = private.purse.certificate()
    assert certificate.uncovered.count(LEFT_OUT) == 1
    assert "not trained on" in str(certificate)


def test_a_part_of_a_sample_that_no_backward_pass_is_made_over_is_told_too():
    private = begin(accumulate=2, batch_size=6, steps=2)
    with pytest.warns(UserWarning, match="a batch was taken from the private loader and no step was made") as caught:
        leave_out(private, 0, 2)
    assert len(caught) == 1
    assert private.engine.gradients == 2
    assert LEFT_OUT in private.purse.certificate().uncovered


def test_a_run_that_steps_with_every_batch_has_nothing_to_tell():
    private = loop(begin())
    assert private.engine.gradients == 6
    assert LEFT_OUT not in private.purse.certificate().uncovered


def test_a_run_that_ends_before_its_first_step_says_so_once():
    purse = Purse(1.0, 1e-5, neighbouring="add-remove", dataset="survey")
    loop(begin(purse=purse, full_batch=True, steps=2))
    assert purse.fraction_left < 1e-6
    private = begin(purse=purse, full_batch=True, steps=2)
    before, spent = weights_of(private.module), purse.spent
    with pytest.warns(UserWarning, match="no step was made: what is left of the budget of data set 'survey'") as caught:
        assert list(private.loader) == []
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert list(private.loader) == []  # and no second word
    assert private.engine.stop_reason == "budget"
    assert torch.equal(weights_of(private.module), before)
    assert purse.spent == spent


def test_a_run_that_made_some_steps_ends_without_a_warning():
    purse = Purse(1.0, 1e-5, neighbouring="add-remove")
    private = begin(purse=purse, full_batch=True, steps=500, schedule=ConstantNoise(10.0))
    assert 0 < len([step(private, *batch) for batch in private.loader]) < 500
    assert private.engine.stop_reason == "budget"


class Extended(torch.optim.SGD):
    """Calls the step that it extends, twice if told so."""

    times, fails = 1, False

    def step(self, closure=None):
        if self.fails:
            raise RuntimeError("not now")
        for _ in range(self.times):
            super().step(closure)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("with_closure", [False, True])
def test_an_optimizer_that_calls_the_step_it_extends_makes_one_step(times, with_closure):
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)  # the class has hooks from now on
    private = begin(optimizer=lambda module: Extended(module.parameters(), 0.1))
    private.optimizer.times = times
    for inputs, targets in private.loader:

        def closure(inputs=inputs, targets=targets):
            loss = F.cross_entropy(private.module(inputs), targets)
            loss.backward()
            return loss

        before = weights_of(private.module)
        if with_closure:
            private.optimizer.step(closure)
        else:
            closure()
            private.optimizer.step()
        given = torch.cat([value.grad.flatten() for value in private.module.parameters()])
        assert torch.allclose(weights_of(private.module), before - times * 0.1 * given, atol=1e-6)
    assert private.engine.stop_reason == "steps"
    assert private.purse.spent.releases == 6


def test_a_step_that_failed_does_not_let_a_later_one_pass_unpaid():
    private = begin(optimizer=lambda module: Extended(module.parameters(), 0.1))
    inputs, targets = next(iter(private.loader))
    F.cross_entropy(private.module(inputs), targets).backward()
    private.optimizer.fails = True
    with pytest.raises(RuntimeError, match="not now"):
        private.optimizer.step()
    private.optimizer.fails = False
    before = weights_of(private.module)
    private.module.eval()
    F.cross_entropy(private.module(inputs), targets).backward()  # the records' own gradient
    with pytest.raises(InvalidArgument, match="without a batch"):
        private.optimizer.step()
    assert torch.equal(weights_of(private.module), before)
    assert private.purse.spent.releases == 1


def test_a_step_inside_of_a_closure_is_not_made_unpaid():
    private = begin(optimizer=lambda module: Extended(module.parameters(), 0.1))
    inputs, targets = next(iter(private.loader))
    before = weights_of(private.module)

    def closure():
        private.module.eval()
        F.cross_entropy(private.module(inputs), targets).backward()
        private.optimizer.step()

    with pytest.raises(InvalidArgument, match="no backward pass came through"):
        private.optimizer.step(closure)
    assert torch.equal(weights_of(private.module), before)
    assert private.purse.spent.releases == 0
