"""Samples are Poisson, and the loader ends with the run."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from privypurse import Purse  # noqa: E402
from privypurse.pytorch import AdaptiveClip, fit  # noqa: E402
from tests.pytorch.small_runs import begin, data, loop, noiseless, public_steps, rule, step, weights_of  # noqa: E402


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
            before, empty_now = weights_of(private.module), private.engine._drawn.chunk == 0
            step(private, inputs, targets)
            moved = weights_of(private.module) - before
            assert torch.isfinite(moved).all()
            assert moved.abs().min() > 0
            assert len(inputs) > 0
            empty += empty_now
    assert 3 < empty < 35
    assert private.purse.spent.releases == private.engine.gradients == 40


def test_an_empty_sample_needs_no_backward_pass():
    private = begin(batch_size=1, records=60, steps=30)
    skipped = 0
    for inputs, targets in private.loader:
        if private.engine._drawn.chunk:
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


@pytest.mark.parametrize("source", [tuple, lambda held: TensorDataset(*held)])
@pytest.mark.parametrize("how", [{"full_batch": True}, {"batch_size": 60}, {"batch_size": 12}])
def test_a_loop_that_changes_batches_in_place_does_not_change_the_data(source, how):
    held = data()
    before = [part.clone() for part in held]
    private = begin(loader=source(held), **how)
    for inputs, targets in private.loader:
        inputs.mul_(0.5)
        step(private, inputs, targets)
        targets.fill_(1)
    assert all(torch.equal(part, old) for part, old in zip(held, before, strict=True))


def test_a_module_that_changes_its_inputs_in_place_does_not_change_the_data_of_a_fit():
    held = data()
    before = [part.clone() for part in held]
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2))
    fit(module, held, loss=nn.CrossEntropyLoss(), records=60, epsilon=1.0, delta=1e-5, compile=False)
    assert all(torch.equal(part, old) for part, old in zip(held, before, strict=True))


def test_a_loop_that_the_end_of_the_program_leaves_open_ends_it_quietly():
    script = """
import torch
from privypurse.pytorch import make_private
module, data = torch.nn.Linear(3, 2), (torch.randn(60, 3), torch.randint(2, (60,)))
optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
private = make_private(module, optimizer, data, records=60, epsilon=1, delta=1e-5, full_batch=True, steps=3)
batches = iter(private.loader)
inputs, targets = next(batches)
torch.nn.functional.cross_entropy(module(inputs), targets).backward()
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
