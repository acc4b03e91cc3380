"""The loader and the optimizer in the user's own loop: samples, divisors, accumulation, and all that people do in loops."""

import functools
import math

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset  # noqa: E402

from privypurse import Gaussian, NoiseSource, Purse  # noqa: E402
from privypurse.core.errors import InvalidArgument  # noqa: E402
from privypurse.pytorch import AdaptiveClip, make_private, open_purse  # noqa: E402
from privypurse.pytorch.engine import LEFT_OUT  # noqa: E402
from privypurse.schedules import ConstantNoise  # noqa: E402


def data(count=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(count, 3, generator=generator)
    return X, (X[:, 0] > 0).long()


@functools.cache
def rule(steps, sample_prob):
    """Calibration takes a second; most of these runs are alike."""
    return open_purse(epsilon=2.0, delta=1e-5, neighbouring="add-remove", steps=steps, sample_prob=sample_prob).filter


def begin(records=60, loader=None, optimizer=None, module=None, lr=0.1, **changes):
    torch.manual_seed(0)
    module = nn.Linear(3, 2) if module is None else module
    optimizer = torch.optim.SGD(module.parameters(), lr) if optimizer is None else optimizer(module)
    arguments = {"records": records, "batch_size": 12, "steps": 6} | changes
    if "purse" not in changes:
        noise, rate = arguments.pop("noise", NoiseSource(seed=3)), arguments["batch_size"] or 12
        rate = 1.0 if arguments.get("full_batch") else rate * arguments.get("accumulate", 1) / records
        steps = arguments["steps"] or arguments["epochs"] * round(1 / rate)
        arguments["purse"] = Purse.with_filter(rule(steps, rate), noise=noise)
    return make_private(module, optimizer, data() if loader is None else loader, **arguments)


def step(private, inputs, targets):
    private.optimizer.zero_grad()
    loss = F.cross_entropy(private.module(inputs), targets)
    loss.backward()
    private.optimizer.step()


def loop(private, epochs=100):
    for _ in range(epochs):
        for inputs, targets in private.loader:
            step(private, inputs, targets)
        if private.engine.stop_reason:
            break
    return private


def weights_of(module):
    return torch.cat([value.detach().flatten().clone() for value in module.parameters()])


class Small:
    """Hardly any noise, for a purse that is declared not private."""

    def propose(self, query, past, budget):
        return Gaussian(1e-7)


def noiseless(**changes):
    return begin(purse=Purse.not_private(noise=NoiseSource(seed=3)), schedule=Small(), **changes)


# ------------------------------------------------------------------------------------------------------------ samples


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore:a batch was taken")
def test_samples_are_poisson():
    rows, rate, draws = 40, 0.3, 3_000
    numbered = torch.arange(rows)
    private = begin(loader=(torch.randn(rows, 3), numbered), records=rows, batch_size=12, steps=draws)
    seen = np.zeros((draws, rows), dtype=bool)
    count = 0
    while count < draws:
        for _, which in private.loader:
            seen[count, which.numpy()] = True
            assert len(which.unique()) == len(which)
            count += 1
            if count == draws:
                break
    each = seen.sum(0)
    assert stats.chisquare(each, np.full(rows, each.mean())).pvalue > 1e-4
    assert abs(each.mean() / draws - rate) < 5 * math.sqrt(rate * (1 - rate) / draws / rows)
    sizes = seen.sum(1)
    assert abs(sizes.var() / (rows * rate * (1 - rate)) - 1) < 5 * math.sqrt(2 / draws)
    grid = np.arange(rows + 1)
    expected = stats.binom.pmf(grid, rows, rate) * draws
    kept = expected > 5
    observed = np.bincount(sizes, minlength=rows + 1)
    assert (
        stats.chisquare(
            np.append(observed[kept], observed[~kept].sum()), np.append(expected[kept], expected[~kept].sum())
        ).pvalue
        > 1e-4
    )
    correlations = np.corrcoef(seen.T)[np.triu_indices(rows, 1)]
    assert np.abs(correlations).max() < 5.5 / math.sqrt(draws)
    in_time = np.corrcoef(seen[1:].ravel(), seen[:-1].ravel())[0, 1]
    assert abs(in_time) < 5 / math.sqrt(draws * rows)
    assert private.purse.spent.releases == 0, "batches that no step is made with cost nothing"


@pytest.mark.filterwarnings("ignore:a batch was taken")
def test_full_batches_hold_every_record_once():
    private = begin(loader=(torch.randn(60, 3), torch.arange(60)), full_batch=True)
    for _, which in private.loader:
        assert which.tolist() == list(range(60))


def test_the_samples_of_two_runs_differ_without_a_seed():
    def first(private):
        return next(iter(private.loader))[1].tolist()

    numbered = torch.randn(60, 3), torch.arange(60)
    assert first(begin(loader=numbered, noise=None)) != first(begin(loader=numbered, noise=None))
    assert first(begin(loader=numbered)) == first(begin(loader=numbered))


def test_seeds_of_torch_have_no_say_in_noise_or_samples():
    results = []
    for _ in range(2):
        private = begin(noise=None)
        torch.manual_seed(0)
        results.append(weights_of(loop(private).module))
    assert not torch.equal(*results)


def test_the_loader_ends_with_the_run():
    private = begin(steps=7)
    assert len(private.loader) == 7
    lengths = [sum(1 for batch in private.loader if step(private, *batch) is None) for _ in range(3)]
    assert lengths == [7, 0, 0]
    assert private.engine.stop_reason == "steps"
    assert private.engine.gradients == private.purse.spent.releases == 7
    assert list(private.loader) == []


def lengths_of_loops(private, loops):
    return [sum(1 for batch in private.loader if step(private, *batch) is None) for _ in range(loops)]


@pytest.mark.parametrize(
    ("changes", "steps", "batches"),
    [
        ({"steps": 7}, 7, 7),
        ({"steps": 7, "batch_size": 60}, 7, 7),
        ({"steps": 3, "batch_size": 4, "accumulate": 3}, 3, 9),
        ({"steps": 7, "full_batch": True}, 7, 7),
        ({"steps": 3, "full_batch": True, "accumulate": 2}, 3, 6),
    ],
    ids=["samples", "all", "accumulated", "full batches", "full batches accumulated"],
)
def test_one_loop_is_the_whole_run_where_its_length_is_given_in_steps(changes, steps, batches):
    private = begin(**changes)
    assert len(private.loader) == batches
    assert lengths_of_loops(private, 2) == [batches, 0]
    assert private.engine.stop_reason == "steps"
    assert private.engine.gradients == private.purse.spent.releases == steps


def test_one_loop_is_the_whole_run_where_the_purse_or_the_library_says_how_long_it_is():
    private = begin(purse=Purse.with_filter(rule(6, 0.2)), steps=None)
    assert len(private.loader) == 6
    assert lengths_of_loops(private, 2) == [6, 0]
    private = begin(purse=Purse(1.0, 1e-5, neighbouring="add-remove"), full_batch=True, steps=None)
    steps = private.engine.settings.steps
    assert steps >= 10
    assert len(private.loader) == steps
    assert lengths_of_loops(private, 2) == [steps, 0]
    assert private.engine.stop_reason == "steps"


@pytest.mark.parametrize("accumulate", [1, 3])
def test_looks_at_the_clip_norm_are_in_the_one_loop_too(accumulate):
    purse = Purse(1.0, 1e-5, neighbouring="add-remove")
    clip_norm = AdaptiveClip(every=2)
    private = begin(purse=purse, full_batch=True, steps=5, accumulate=accumulate, clip_norm=clip_norm)
    assert len(private.loader) == (5 + 3) * accumulate
    assert lengths_of_loops(private, 2) == [(5 + 3) * accumulate, 0]
    assert private.engine.stop_reason == "steps"
    assert (private.engine.gradients, private.purse.spent.releases) == (5, 8)


@pytest.mark.parametrize(
    ("changes", "batches"),
    [
        ({}, 5),
        ({"batch_size": 4, "accumulate": 3}, 15),
        ({"full_batch": True}, 1),
        ({"full_batch": True, "accumulate": 2}, 2),
    ],
    ids=["samples", "accumulated", "full batches", "full batches accumulated"],
)
def test_one_loop_is_an_epoch_where_the_length_is_given_in_epochs(changes, batches):
    private = begin(steps=None, epochs=3, **changes)
    assert len(private.loader) == batches
    assert lengths_of_loops(private, 5) == [batches] * 3 + [0, 0]
    assert private.engine.stop_reason == "steps"
    assert private.engine.gradients * changes.get("accumulate", 1) == 3 * batches


def test_a_run_that_fills_its_epochs_has_ended_after_them():
    private = begin(steps=None, epochs=2)
    for _ in range(2):
        for batch in private.loader:
            step(private, *batch)
    assert private.engine.stop_reason == "steps"
    assert private.engine.gradients == 10


def test_empty_samples_are_steps_of_noise_and_are_charged():
    private = begin(batch_size=1, records=60, steps=40)
    empty = 0
    for _ in range(2):
        for inputs, targets in private.loader:
            before = weights_of(private.module)
            step(private, inputs, targets)
            moved = weights_of(private.module) - before
            assert torch.isfinite(moved).all()
            assert moved.abs().min() > 0
            empty += len(inputs) == 0
    assert 3 < empty < 35
    assert private.purse.spent.releases == private.engine.gradients == 40


def test_an_empty_sample_needs_no_backward_pass():
    private = begin(batch_size=1, records=60, steps=30)
    skipped = 0
    for inputs, targets in private.loader:
        if len(inputs):
            F.cross_entropy(private.module(inputs), targets).backward()
        else:
            skipped += 1
        private.optimizer.step()
    assert skipped
    assert private.engine.gradients == 30


def test_empty_samples_by_the_engines_own_backward():
    private = begin(batch_size=1, records=60, steps=30, loss=nn.CrossEntropyLoss())
    for batch in private.loader:
        private.engine.backward(*batch)
        private.optimizer.step()
    assert private.engine.gradients == 30


class Attending(nn.Module):
    def __init__(self, masks):
        super().__init__()
        self.attention, self.masks = nn.MultiheadAttention(4, 2, batch_first=True), masks
        self.out = nn.Linear(4, 2)

    def forward(self, x, padding):
        given = (
            {"key_padding_mask": padding} if self.masks == "padding" else {"attn_mask": torch.zeros(2 * len(x), 3, 3)}
        )
        return self.out(self.attention(x, x, x, **given, need_weights=False)[0].mean(1))


@pytest.mark.parametrize("masks", ["padding", "heads"])
def test_attention_with_masks_takes_empty_samples(masks):
    loader = torch.randn(60, 3, 4), torch.zeros(60, 3, dtype=torch.bool), torch.randint(2, (60,))
    private = begin(module=Attending(masks), loader=loader, batch_size=1, steps=30)
    for x, padding, targets in private.loader:
        F.cross_entropy(private.module(x, padding), targets).backward()
        private.optimizer.step()
    assert private.engine.gradients == 30


def test_a_scaler_takes_empty_samples():
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    private = begin(batch_size=1, steps=30, scaler=scaler)
    for inputs, targets in private.loader:
        scaler.scale(F.cross_entropy(private.module(inputs), targets)).backward()
        scaler.step(private.optimizer)
        scaler.update()
    assert private.engine.gradients == 30


# --------------------------------------------------------------------------------------------------------- accumulation


@pytest.mark.parametrize("accumulate", [2, 3, 7])
def test_each_sample_comes_in_exactly_so_many_batches(accumulate):
    private = begin(
        accumulate=accumulate, batch_size=3, records=60, steps=3, loader=(torch.randn(60, 3), torch.arange(60))
    )
    assert len(private.loader) % accumulate == 0
    changed, batches, sample, samples = [], 0, [], []
    while not private.engine.stop_reason:
        for inputs, which in private.loader:
            before = weights_of(private.module)
            F.cross_entropy(private.module(inputs), which % 2).backward()
            private.optimizer.step()
            changed.append(not torch.equal(before, weights_of(private.module)))
            sample += which.tolist()
            batches += 1
            if batches % accumulate == 0:
                samples.append(sample)
                sample = []
    assert batches == 3 * accumulate
    assert changed == ([False] * (accumulate - 1) + [True]) * 3
    assert private.purse.spent.releases == 3
    assert all(len(set(one)) == len(one) for one in samples)
    assert all(step_["charge"]["sample_prob"] == pytest.approx(accumulate * 3 / 60) for step_ in public_steps(private))


def public_steps(private):
    return [{"charge": one.charge, "noise_std": one.noise_std} for one in private.engine.trace.steps]


def test_stepping_after_the_last_batch_only_is_fine_too():
    private = begin(accumulate=2, batch_size=6, steps=4)
    number = 0
    for _ in range(4):
        for inputs, targets in private.loader:
            F.cross_entropy(private.module(inputs), targets).backward()
            number += 1
            if number % 2 == 0:
                private.optimizer.step()
                private.optimizer.zero_grad()
    assert private.engine.gradients == 4


# --------------------------------------------------------------------------------------- public numbers, private lengths


def test_noise_and_divisor_come_from_the_public_number_of_records():
    def traces(count):
        private = begin(loader=data(count), records=60, clip_norm=0.7)
        return public_steps(loop(private)), len(private.loader), repr(private.loader)

    assert traces(60) == traces(37) == traces(200)


def test_the_sum_is_divided_by_the_expected_batch_size():
    X, y = data(40)
    grads = []
    for records in (40, 80):
        private = noiseless(loader=(X, y), records=records, full_batch=True, steps=1, clip_norm=100.0)
        loop(private)
        grads.append(torch.cat([value.grad.flatten() for value in private.module.parameters()]))
    assert torch.allclose(grads[0], 2 * grads[1], atol=1e-5)


def test_the_noise_of_a_gradient_is_what_the_trace_says():
    private = begin(loader=data(4), records=50, full_batch=True, steps=400, clip_norm=1e-3, lr=0.0)
    values = []
    for _ in range(400):
        for batch in private.loader:
            step(private, *batch)
            values.append(torch.cat([value.grad.flatten() for value in private.module.parameters()]))
    noise = torch.stack(values)
    std = private.engine.trace.steps[0].noise_std / 50
    assert float((noise - noise.mean(0)).std()) == pytest.approx(std, rel=0.08)


# ------------------------------------------------------------------------------------------------------- sources of data


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
        "threads",
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
    models = [weights_of(loop(begin(loader=way, batch_size=12)).module) for way in ways]
    assert torch.allclose(models[0], models[1], atol=1e-6)
    assert torch.equal(models[1], models[2])


def test_batches_of_names_in_a_loop_of_ones_own():
    private = begin(loader=DataLoader(Named(), batch_size=1), batch_size=1, records=60, steps=30)
    empty = 0
    for batch in private.loader:
        assert set(batch) == {"x", "label"}
        empty += len(batch["x"]) == 0
        F.cross_entropy(private.module(batch["x"]), batch["label"]).backward()
        private.optimizer.step()
    assert empty
    assert private.engine.gradients == 30


# --------------------------------------------------------------------------------------------- optimizers and schedulers


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


# --------------------------------------------------------------------------------------------------- around the training


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


def encoder():
    layer = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
    return nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (1, 4)), layer, nn.Flatten())


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
