"""Noise in place of epsilon, runs that are extended, and the noise that is read before the first step."""

import math

import pytest

torch = pytest.importorskip("torch")

from privypurse import InvalidArgument, NoiseSource, Purse  # noqa: E402
from privypurse.accounting.pld import pld_epsilon  # noqa: E402
from privypurse.core.charges import GaussianCharge  # noqa: E402
from privypurse.pytorch import AdaptiveClip, open_purse  # noqa: E402
from tests.pytorch.small_runs import begin, loop, weights_of  # noqa: E402

# 60 records in samples of 12.
OWN = {"purse": None, "delta": 1e-5, "noise": NoiseSource(seed=3)}


def priced(releases, noise_multiplier=2.0, rate=0.2):
    charge = GaussianCharge(noise_multiplier, rate)
    return pld_epsilon([charge] * releases, 1e-5, Purse(1.0, 1e-5, neighbouring="add-remove").neighbouring)


@pytest.mark.parametrize("full_batch", [False, True])
def test_noise_in_place_of_epsilon_tells_epsilon_before_the_first_step(full_batch):
    private = begin(noise_multiplier=2.0, full_batch=full_batch, **OWN)
    assert private.purse.epsilon == pytest.approx(priced(6, rate=1.0 if full_batch else 0.2), rel=2e-3)
    assert private.engine.noise_multiplier == 2.0
    assert loop(private).engine.gradients == 6
    assert [step.charge["noise_multiplier"] for step in private.engine.trace.steps] == [2.0] * 6
    assert private.purse.spent.epsilon == private.purse.epsilon
    assert private.engine.noise_multiplier == math.inf


def test_noise_and_epsilon_without_a_length_take_all_that_epsilon_covers():
    private = begin(noise_multiplier=2.0, epsilon=3.0, steps=None, **OWN)
    steps = private.engine.settings.steps
    assert priced(steps) <= 3.0 < priced(steps + 1)
    assert len(private.loader) == steps


def test_a_run_is_extended_as_if_it_had_been_longer_and_no_further_than_its_budget():
    terms = {"noise_multiplier": 2.0, "epsilon": 3.0, **OWN}
    ends = []
    for parts in ([2, 3], [5]):
        private = begin(
            epochs=parts[0],
            steps=None,
            optimizer=lambda module: torch.optim.Adam(module.parameters(), 0.1),
            **terms | {"noise": NoiseSource(seed=3)},
        )
        for more in parts[1:]:
            loop(private)
            spent = private.purse.spent
            assert (private.engine.stop_reason, private.engine.gradients) == ("steps", 10)
            private.engine.extend(epochs=more)
            assert private.engine.stop_reason == ""
            assert private.purse.spent == spent
        loop(private)
        assert private.engine.gradients == 25
        ends.append((weights_of(private.module), private.purse.spent))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]
    covered = len(private.purse.filter.schedule)
    with pytest.raises(InvalidArgument, match=f"{covered - 24} more releases, but the budget covers {covered - 25}"):
        private.engine.extend(steps=covered - 24)
    private.engine.extend(steps=covered - 25)
    assert len(list(loop(private).engine.trace.steps)) == covered
    assert private.purse.spent.epsilon <= 3.0


def test_looks_at_the_clip_norm_are_counted_when_a_run_is_extended():
    private = begin(noise_multiplier=2.0, epsilon=3.0, steps=4, clip_norm=AdaptiveClip(every=2), **OWN)
    loop(private).engine.extend(steps=3)
    loop(private)
    kinds = [step.query for step in private.engine.trace.steps]
    assert kinds == (["ShareWithin", "ModuleGradient", "ModuleGradient"] * 4)[:-1]


def test_a_purse_of_more_steps_and_one_that_adds_up_can_be_extended_too():
    terms = {"epsilon": 2.0, "delta": 1e-5, "neighbouring": "add-remove"}
    for purse, settings in (
        (open_purse(**terms, steps=8, sample_prob=0.2), {}),
        (Purse(**terms), {"noise_multiplier": 9.0, "full_batch": True}),
    ):
        private = loop(begin(purse=purse, steps=5, **settings))
        private.engine.extend(steps=3)
        assert loop(private).engine.gradients == 8
        assert private.purse.spent.releases == 8


def test_a_schedule_that_divides_the_budget_leaves_none_for_more_steps():
    private = loop(begin(purse=None, epsilon=2.0, delta=1e-5, full_batch=True))
    with pytest.raises(InvalidArgument, match="none is left"):
        private.engine.extend(steps=1)
    assert private.engine.stop_reason == "steps"
    with pytest.raises(InvalidArgument, match="expected steps or epochs"):
        private.engine.extend()


@pytest.mark.parametrize("schedule", ["exponential", "uniform"])
def test_the_noise_of_the_next_step_is_read_before_it_is_made(schedule):
    private = begin(purse=None, epsilon=2.0, delta=1e-5, full_batch=True, schedule=schedule, steps=3)
    ahead = []
    for inputs, targets in private.loader:
        ahead.append(private.engine.noise_multiplier)
        torch.nn.functional.cross_entropy(private.module(inputs), targets).backward()
        private.optimizer.step()
    assert ahead == pytest.approx([step.charge["noise_multiplier"] for step in private.engine.trace.steps])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be"),
        ({"noise_multiplier": 2.0, "schedule": "dynamic"}, "Pass one of them"),
        ({"noise_multiplier": 2.0, "steps": None}, "Pass epochs=10"),
        ({"noise_multiplier": 2.0, "epsilon": 0.1}, "does not cover 6 steps"),
        ({"noise_multiplier": 1e-3}, "noise_multiplier must be from 0.1"),
        ({"noise_multiplier": 1e300}, "noise_multiplier must be from 0.1"),
    ],
)
def test_noise_that_cannot_be_is_refused(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        begin(**OWN | changes)


def test_a_purse_opened_for_other_noise_is_refused():
    purse = open_purse(delta=1e-5, neighbouring="add-remove", steps=6, sample_prob=0.2, noise_multiplier=2.0)
    with pytest.raises(InvalidArgument, match="opened for other noise"):
        begin(purse=purse, noise_multiplier=2.1)
    assert loop(begin(purse=purse, noise_multiplier=2.0)).engine.gradients == 6
