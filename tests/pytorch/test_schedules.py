"""Every schedule, full batches and samples, fixed and adaptive clip norms: never more than the
budget, and all of it.
"""

import contextlib
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from privypurse import BudgetExhausted, GdpFilter, InvalidArgument, NoiseSource, Purse  # noqa: E402
from privypurse.methods import ADPSGD, DPAGD, DPSGD, Dynamic  # noqa: E402
from privypurse.purse._allowance import Allowance  # noqa: E402
from privypurse.pytorch import AdaptiveClip, DeepNesterov, fit, make_private, open_purse  # noqa: E402
from privypurse.pytorch._opening import (  # noqa: E402
    SHAPES,
    shape,
)
from privypurse.training.schedules import EvenSplit, FollowGradientNorm, Weighted  # noqa: E402
from privypurse.training.schedules._base import ConstantNoise  # noqa: E402

STEPS = 4
LISTED = (1.0, 3.0, 2.0, 5.0)
FIXED = [*SHAPES, LISTED, list(LISTED), Weighted(LISTED), EvenSplit()]
ADAPTIVE = [FollowGradientNorm(first_share=0.3, fewest_steps=3, most_steps=50), ConstantNoise(4.0), ConstantNoise(0.3)]


def data(count=100, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(count, 3, generator=generator)
    return X, (X[:, 0] > 0).long()


def begin(schedule="uniform", loader=None, lr=0.5, **changes):
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    arguments = {"epsilon": 2.0, "delta": 1e-5, "records": 100, "steps": STEPS, "full_batch": True}
    if "purse" in changes:
        arguments = {name: value for name, value in arguments.items() if name not in ("epsilon", "delta")}
    if "batch_size" in changes:
        del arguments["full_batch"]
    return make_private(
        module,
        torch.optim.SGD(module.parameters(), lr),
        data() if loader is None else loader,
        schedule=schedule,
        **arguments | changes,
    )


def run(private, most=1_000):
    while not private.engine.stop_reason and most:
        for inputs, targets in private.loader:
            F.cross_entropy(private.module(inputs), targets).backward()
            private.optimizer.step()
        most -= 1
    return private


def noise_of(private, query="ModuleGradient"):
    return [step.charge["noise_multiplier"] for step in private.engine.trace.steps if step.query == query]


def wanted_weights(schedule):
    if isinstance(schedule, str):
        return np.array(shape(schedule, STEPS).weights)
    return np.array(getattr(schedule, "weights", (1.0,) * STEPS if isinstance(schedule, EvenSplit) else schedule))


def assert_all_spent(private):
    assert 0.998 * private.purse.epsilon <= private.purse.spent.epsilon <= private.purse.epsilon


def assert_shape(private, schedule, tolerance=1e-3):
    noise, weights = np.array(noise_of(private)), wanted_weights(schedule)
    assert noise / noise[0] == pytest.approx(np.sqrt(weights[0] / weights), rel=tolerance)


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
@pytest.mark.parametrize("schedule", FIXED, ids=str)
def test_fixed_schedules_of_full_batches_spend_the_budget(schedule, neighbouring):
    private = run(begin(schedule, neighbouring=neighbouring, clip_norm=0.5))
    assert private.engine.stop_reason == "steps"
    assert private.engine.gradients == private.purse.spent.releases == STEPS
    assert_all_spent(private)
    assert_shape(private, schedule)
    bound = 0.5 if neighbouring == "add-remove" else 1.0
    for step in private.engine.trace.steps:
        assert step.noise_std == pytest.approx(bound * step.charge["noise_multiplier"])


@pytest.mark.parametrize("schedule", FIXED, ids=str)
def test_fixed_schedules_of_full_batches_with_an_adaptive_clip_norm(schedule):
    private = run(begin(schedule, clip_norm=AdaptiveClip(every=2)))
    assert private.engine.stop_reason == "steps"
    assert private.engine.gradients == STEPS
    assert [step.query for step in private.engine.trace.steps] == ["ShareWithin", *["ModuleGradient"] * 2] * 2
    assert private.purse.spent.releases == STEPS + 2
    assert_all_spent(private)
    assert_shape(private, schedule)


@pytest.mark.parametrize(
    "schedule", ["uniform", "dynamic", "momentum", "exponential", "step", "sigmoid", LISTED], ids=str
)
def test_fixed_schedules_of_samples_spend_the_budget(schedule):
    private = run(begin(schedule, batch_size=20))
    assert private.purse.filter.name == "fixed-schedule"
    assert private.engine.stop_reason == "steps"
    assert private.engine.gradients == private.purse.spent.releases == STEPS
    assert_all_spent(private)
    assert_shape(private, schedule)
    assert {step.charge["sample_prob"] for step in private.engine.trace.steps} == {0.2}


@pytest.mark.parametrize("schedule", ["uniform", LISTED], ids=str)
def test_fixed_schedules_of_samples_with_an_adaptive_clip_norm(schedule):
    private = run(begin(schedule, batch_size=20, clip_norm=AdaptiveClip(every=2)))
    assert private.engine.stop_reason == "steps"
    assert [step.query for step in private.engine.trace.steps] == ["ShareWithin", *["ModuleGradient"] * 2] * 2
    assert_all_spent(private)
    assert_shape(private, schedule)
    assert min(noise_of(private, "ShareWithin")) >= 2 * min(noise_of(private))


def test_replace_one_of_samples():
    private = run(begin(batch_size=20, neighbouring="replace-one", clip_norm=0.5))
    assert private.engine.stop_reason == "steps"
    assert_all_spent(private)
    assert private.engine.trace.steps[0].noise_std == pytest.approx(noise_of(private)[0])


@pytest.mark.parametrize("clip_norm", [1.0, AdaptiveClip(every=2)], ids=["fixed", "adaptive"])
@pytest.mark.parametrize("schedule", ADAPTIVE, ids=repr)
@pytest.mark.parametrize("batch_size", [None, 20])
def test_schedules_that_choose_on_the_way_stay_within_the_budget(schedule, clip_norm, batch_size):
    sampled = {} if batch_size is None else {"batch_size": batch_size}
    # What does not fit is not begun, and the user is told; with an adaptive clip norm a look comes
    # first.
    told = schedule == ConstantNoise(0.3) and clip_norm == 1.0
    with pytest.warns(UserWarning, match="no step was made: what is") if told else contextlib.nullcontext():
        private = run(begin(schedule, steps=12, clip_norm=clip_norm, **sampled))
    assert private.purse.filter.name == ("gdp" if batch_size is None else "rdp")
    assert private.purse.spent.epsilon <= 2.0
    assert private.purse.spent.releases == len(private.engine.trace.steps)
    looks = len(noise_of(private, "ShareWithin"))
    assert private.engine.gradients + looks == private.purse.spent.releases
    if private.engine.stop_reason == "steps":
        assert private.engine.gradients == 12
    else:
        assert private.engine.stop_reason == "budget"
        assert private.engine.gradients < 12
    if schedule == ConstantNoise(0.3):
        assert private.engine.stop_reason == "budget"
        assert private.engine.gradients == 0, "what does not fit is not begun"


def test_following_the_gradient_spends_all_where_there_are_steps_enough():
    private = run(begin(FollowGradientNorm(first_share=0.1, fewest_steps=5, most_steps=20), steps=40))
    assert private.engine.stop_reason == "budget"
    assert 5 <= private.engine.gradients <= 20
    assert_all_spent(private)
    assert len(set(noise_of(private))) > 1


def test_constant_noise_stops_at_the_last_step_that_fits():
    private = run(begin(ConstantNoise(6.0), steps=100))
    assert private.engine.stop_reason == "budget"
    assert set(noise_of(private)) == {6.0}
    fits = int((private.purse.filter.mu * 6.0) ** 2)
    assert private.engine.gradients == fits
    assert private.purse.spent.epsilon <= 2.0


def test_schedules_of_ones_own_see_noisy_gradients_and_nothing_else():
    seen = []

    class Mine:
        def propose(self, query, past, budget):
            from privypurse import Gaussian

            seen.append((type(query).__name__, query.clip_norm, [released.value.shape for released in past]))
            return Gaussian(budget.noise_multiplier * 3)

    private = run(begin(Mine(), steps=20))
    assert private.engine.stop_reason == "budget"
    assert private.engine.gradients == 9 == len(seen) - 1
    assert seen[3][:2] == ("ModuleGradient", 1.0)
    assert seen[3][2][-1] == (8,)


@pytest.mark.filterwarnings("ignore:no step was made")
@settings(max_examples=25)
@given(
    schedule=st.sampled_from([*SHAPES, FollowGradientNorm(first_share=0.2), ConstantNoise(2.0), ConstantNoise(50.0)]),
    epsilon=st.floats(0.05, 20.0),
    log_delta=st.floats(-9.0, -3.0),
    steps=st.integers(1, 6),
    neighbouring=st.sampled_from(["add-remove", "replace-one"]),
    every=st.sampled_from([None, 1, 3]),
)
def test_no_run_of_full_batches_spends_more_than_the_budget(schedule, epsilon, log_delta, steps, neighbouring, every):
    private = run(
        begin(
            schedule,
            epsilon=epsilon,
            delta=10.0**log_delta,
            steps=steps,
            neighbouring=neighbouring,
            clip_norm=1.0 if every is None else AdaptiveClip(every=every),
            noise=NoiseSource(seed=1),
        )
    )
    assert private.purse.spent.epsilon <= epsilon
    if isinstance(schedule, str):
        assert private.engine.stop_reason == "steps"
        assert private.engine.gradients == steps
        assert private.purse.spent.epsilon >= 0.998 * epsilon


# -------------------------------------------------------------------------------- adaptive clipping


def test_looks_have_their_own_lines_on_the_certificate():
    private = run(begin(clip_norm=AdaptiveClip(every=2)))
    text = str(private.purse.certificate())
    assert "2 x ShareWithin" in text
    assert "4 x ModuleGradient" in text


def test_a_look_makes_no_step():
    private = begin(clip_norm=AdaptiveClip(every=1))
    changed = []
    while not private.engine.stop_reason:
        for inputs, targets in private.loader:
            before = private.module.weight.detach().clone()
            F.cross_entropy(private.module(inputs), targets).backward()
            private.optimizer.step()
            changed.append(not torch.equal(before, private.module.weight))
    assert changed == [False, True] * STEPS


@pytest.mark.parametrize("median", [0.02, 30.0])
@pytest.mark.parametrize("way", ["full", "samples", "backward"])
def test_an_adaptive_clip_norm_finds_the_median_length(median, way):
    generator = torch.Generator().manual_seed(0)
    lengths = median * torch.exp(0.5 * torch.randn(1_000, generator=generator))
    X = lengths[:, None] * torch.where(torch.rand(1_000, 1, generator=generator) < 0.5, -1.0, 1.0)
    module = nn.Linear(1, 1, bias=False)
    clip = AdaptiveClip(start=1.0, every=1)
    if way == "samples":
        purse = Purse.with_filter(sampled_rule_with_looks(clip))
        changes = {"purse": purse, "batch_size": 500}
    else:
        changes = {"epsilon": 8.0, "delta": 1e-5, "full_batch": True}

    def loss(out, target):
        return (out * target).mean()

    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), 0.0),
        (X, torch.ones(1_000, 1)),
        records=1_000,
        steps=24,
        clip_norm=clip,
        loss=loss,
        **changes,
    )
    while not private.engine.stop_reason:
        for inputs, targets in private.loader:
            if way == "backward":
                private.engine.backward(inputs, targets)
            else:
                loss(private.module(inputs), targets).backward()
            private.optimizer.step()
    assert private.engine.gradients == 24
    assert median / 1.5 < private.engine.clip_norm < median * 1.5
    bounds = [step.chosen for step in private.engine.trace.steps]
    assert len(bounds) == 48


@functools.cache
def sampled_rule_with_looks(clip):
    return open_purse(
        epsilon=8.0,
        delta=1e-5,
        neighbouring="add-remove",
        steps=24,
        sample_prob=0.5,
        clip_norm=clip,
        records=1_000,
    ).filter


@pytest.mark.parametrize("quantile", [0.2, 0.8])
def test_other_quantiles(quantile):
    X = torch.exp(torch.linspace(-2, 2, 1_000))[:, None]
    module = nn.Linear(1, 1, bias=False)
    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), 0.0),
        (X, torch.ones(1_000)),
        records=1_000,
        epsilon=8.0,
        delta=1e-5,
        full_batch=True,
        steps=24,
        clip_norm=AdaptiveClip(quantile=quantile, every=1),
    )
    while not private.engine.stop_reason:
        for inputs, _ in private.loader:
            private.module(inputs).mean().backward()
            private.optimizer.step()
    assert float(X.flatten().quantile(quantile)) == pytest.approx(private.engine.clip_norm, rel=0.5)


def test_the_clip_norm_stays_finite_when_no_gradient_is():
    X = torch.full((50, 3), float("nan"))
    private = run(begin(loader=(X, torch.zeros(50, dtype=torch.long)), records=50, clip_norm=AdaptiveClip(every=1)))
    assert np.isfinite(private.engine.clip_norm)
    assert torch.isfinite(private.module.weight).all()


# ------------------------------------------------------------------------------------ shared purses


def test_two_runs_share_a_ledger_file(tmp_path):
    def purse():
        return Purse(2.0, 1e-5, neighbouring="add-remove", ledger=tmp_path / "budget.db")

    first = run(begin(ConstantNoise(20.0), purse=purse(), steps=5))
    assert first.engine.stop_reason == "steps"
    spent = first.purse.spent.epsilon
    second = run(begin("exponential", purse=purse()))
    assert second.engine.stop_reason == "steps"
    assert second.purse.spent.releases == 5 + STEPS
    assert spent < 1.0
    assert_all_spent(second)
    with pytest.warns(UserWarning, match="no step was made: what is left of the budget of data set 'default'"):
        third = run(begin(purse=purse()))
    assert (third.engine.stop_reason, third.engine.gradients) == ("budget", 0)
    assert purse().spent.releases == 5 + STEPS


def test_two_runs_at_the_same_time_never_spend_more_than_there_is(tmp_path):
    def private():
        purse = Purse(2.0, 1e-5, neighbouring="add-remove", ledger=tmp_path / "budget.db")
        return begin("uniform", purse=purse, steps=None, epochs=6, block=2)

    runs = [private(), private()]
    while not all(one.engine.stop_reason for one in runs):
        for one in runs:
            for inputs, targets in one.loader:
                F.cross_entropy(one.module(inputs), targets).backward()
                one.optimizer.step()
    assert {one.engine.stop_reason for one in runs} == {"budget"}
    assert runs[0].purse.spent.epsilon <= 2.0
    assert runs[0].purse.spent.releases == sum(one.engine.gradients for one in runs)
    assert sum(one.engine.gradients for one in runs) >= 4


def test_a_fixed_schedule_is_shared_by_runs_that_follow_each_other(tmp_path):
    terms = {"epsilon": 2.0, "delta": 1e-5, "neighbouring": "add-remove", "steps": 6, "sample_prob": 0.2}

    def purse():
        return open_purse(**terms, ledger=tmp_path / "budget.db", dataset="mine")

    first = run(begin(purse=purse(), batch_size=20, steps=2))
    assert (first.engine.stop_reason, first.engine.gradients) == ("steps", 2)
    second = run(begin(purse=purse(), batch_size=20, steps=None))
    assert (second.engine.stop_reason, second.engine.gradients) == ("steps", 4)
    assert_all_spent(second)
    assert purse().spent.releases == 6
    with pytest.warns(UserWarning, match="no step was made: what is left of the budget of data set 'mine'"):
        third = run(begin(purse=purse(), batch_size=20, steps=3))
    assert (third.engine.stop_reason, third.engine.gradients) == ("budget", 0)


def test_a_run_that_is_dropped_gives_back_what_it_had_reserved(tmp_path):
    purse = Purse(2.0, 1e-5, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    private = begin(ConstantNoise(20.0), purse=purse, steps=None, epochs=50, block=10)
    for inputs, targets in private.loader:
        F.cross_entropy(private.module(inputs), targets).backward()
        private.optimizer.step()
    private.engine.close()
    assert Purse(2.0, 1e-5, neighbouring="add-remove", ledger=tmp_path / "budget.db").spent.releases == 1


# --------------------------------------------------------- schedules of purses, and parts of purses


@functools.cache
def exponential_rule():
    terms = {"epsilon": 2.0, "delta": 1e-5, "neighbouring": "add-remove", "steps": STEPS, "sample_prob": 0.2}
    return open_purse(**terms, schedule="exponential").filter


def test_without_a_schedule_budgets_are_even():
    for changes in ({}, {"batch_size": 20}):
        private = run(begin(None, **changes))
        assert_all_spent(private)
        assert_shape(private, "uniform")


@pytest.mark.parametrize(
    "schedule",
    [None, "exponential", shape("exponential", STEPS), [7 * w for w in shape("exponential", STEPS).weights]],
    ids=["none", "name", "schedule", "list"],
)
def test_the_schedule_of_a_purse_is_followed_and_may_be_named(schedule):
    private = run(begin(schedule, purse=Purse.with_filter(exponential_rule()), batch_size=20))
    assert (private.engine.stop_reason, private.engine.gradients) == ("steps", STEPS)
    assert_all_spent(private)
    assert_shape(private, "exponential")


@pytest.mark.parametrize("schedule", ["uniform", "sigmoid", LISTED, Weighted(LISTED)], ids=str)
def test_another_schedule_than_that_of_the_purse_is_refused(schedule):
    purse = Purse.with_filter(exponential_rule())
    with pytest.raises(InvalidArgument, match="opened for another schedule"):
        begin(schedule, purse=purse, batch_size=20)
    assert purse.spent.releases == 0


def mu_of(epsilon):
    return GdpFilter(epsilon, 1e-5, "add-remove").mu


def test_runs_of_full_batches_take_parts_of_one_purse(tmp_path):
    def purse():
        return Purse(2.0, 1e-5, neighbouring="add-remove", ledger=tmp_path / "budget.db")

    first = run(begin(purse=purse(), epsilon=0.5))
    assert isinstance(first.purse, Allowance)
    assert first.purse.epsilon == pytest.approx(0.5)
    assert (first.engine.stop_reason, first.engine.gradients) == ("steps", STEPS)
    assert_all_spent(first)
    assert purse().spent.epsilon == pytest.approx(first.purse.spent.epsilon)
    assert "a purse with epsilon 2" in str(first.purse.certificate())

    second = run(begin("exponential", purse=purse(), epsilon=0.7, clip_norm=AdaptiveClip(every=2)))
    assert second.engine.stop_reason == "steps"
    assert_all_spent(second)
    assert_shape(second, "exponential")
    assert purse().spent.releases == STEPS + STEPS + 2
    together = purse().filter.mu * np.sqrt(1 - purse().fraction_left)
    assert together == pytest.approx(np.hypot(mu_of(0.5), mu_of(0.7)), rel=3e-3)
    assert together <= np.hypot(mu_of(0.5), mu_of(0.7)) * (1 + 1e-12)

    with pytest.raises(BudgetExhausted, match=r"epsilon=1\.9 was requested"):
        begin(purse=purse(), epsilon=1.9)
    assert purse().spent.releases == STEPS + STEPS + 2
    rest = run(begin(purse=purse()))
    assert rest.engine.stop_reason == "steps"
    assert_all_spent(rest)
    assert purse().spent.releases == 3 * STEPS + 2
    with pytest.raises(BudgetExhausted, match="nothing is left"):
        begin(purse=purse(), epsilon=0.1)


def test_a_part_of_a_purse_ends_the_run_and_not_the_purse(tmp_path):
    purse = Purse(2.0, 1e-5, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    private = run(begin(ConstantNoise(12.0), purse=purse, epsilon=0.5, steps=100))
    assert private.engine.stop_reason == "budget"
    assert private.engine.gradients == int((mu_of(0.5) * 12.0) ** 2) == purse.spent.releases
    assert purse.spent.epsilon <= 0.5
    assert purse.fraction_left > 0.5


def test_fits_take_parts_of_one_purse(tmp_path):
    def purse():
        return Purse(2.0, 1e-5, neighbouring="add-remove", ledger=tmp_path / "budget.db")

    arguments = {"loss": nn.CrossEntropyLoss(), "records": 100, "method": DeepNesterov(steps=5)}
    for number, epsilon in enumerate((0.5, 0.7), 1):
        fitted = fit(nn.Linear(3, 2), data(), purse=purse(), epsilon=epsilon, **arguments)
        assert fitted.stop_reason == "steps"
        assert isinstance(fitted.purse, Allowance)
        assert 0.998 * epsilon <= fitted.purse.spent.epsilon <= epsilon
        assert purse().spent.releases == 5 * number
    spent = purse().filter.mu * np.sqrt(1 - purse().fraction_left)
    assert spent == pytest.approx(np.hypot(mu_of(0.5), mu_of(0.7)), rel=3e-3)
    with pytest.raises(BudgetExhausted, match="was requested"):
        fit(nn.Linear(3, 2), data(), purse=purse(), epsilon=1.9, **arguments)
    last = run(begin(purse=purse(), epsilon=0.9))
    assert last.engine.stop_reason == "steps"
    assert purse().spent.releases == 10 + STEPS
    spent = purse().filter.mu * np.sqrt(1 - purse().fraction_left)
    assert spent == pytest.approx(np.sqrt(mu_of(0.5) ** 2 + mu_of(0.7) ** 2 + mu_of(0.9) ** 2), rel=3e-3)
    assert purse().spent.epsilon <= 2.0


# ---------------------------------------------------------------------------------------------- fit


METHODS = [
    None,
    "dp-agd",
    DeepNesterov(steps=12),
    DPAGD(rounds=4),
    ADPSGD(rounds=4),
    Dynamic(steps=8),
    Dynamic("exponential", steps=8, momentum=0.9),
    DPSGD(sample_prob=0.3, steps=4),
    DPSGD(sample_prob=0.3, steps=4, accounting="rdp"),
]


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_methods_train_modules_within_the_budget(method, neighbouring):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    before = module[0].weight.detach().clone()
    fitted = fit(
        module,
        data(),
        loss=nn.CrossEntropyLoss(),
        records=100,
        epsilon=2.0,
        delta=1e-5,
        neighbouring=neighbouring,
        method=method,
    )
    assert fitted.module is module
    assert fitted.stop_reason in ("steps", "budget")
    assert 0 < fitted.purse.spent.epsilon <= 2.0
    assert fitted.purse.spent.releases == len(fitted.trace.steps)
    assert not torch.equal(module[0].weight, before)
    assert all(torch.isfinite(value).all() for value in module.parameters())
    assert f"{len(fitted.trace.steps)} releases, stopped by {fitted.stop_reason}" in repr(fitted)
    assert "add-remove" in str(fitted.certificate())
    F.cross_entropy(module(data()[0]), data()[1]).backward()
    assert module[0].weight.grad is not None, "the module is a plain one afterwards"


def test_fitting_learns():
    X, y = data(2_000)
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    fitted = fit(
        module,
        (X, y),
        loss=nn.CrossEntropyLoss(),
        records=2_000,
        epsilon=4.0,
        delta=1e-5,
        method=DeepNesterov(steps=40),
    )
    assert fitted.stop_reason == "steps"
    assert 0.998 * 4.0 <= fitted.purse.spent.epsilon <= 4.0
    with torch.no_grad():
        assert float((module(X).argmax(1) == y).float().mean()) > 0.85


def test_two_fits_share_a_purse(tmp_path):
    purse = Purse(2.0, 1e-5, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    arguments = {"loss": nn.CrossEntropyLoss(), "records": 100, "purse": purse}
    first = fit(nn.Linear(3, 2), data(), method=DeepNesterov(steps=5), **arguments)
    assert first.stop_reason == "steps"
    with pytest.raises(BudgetExhausted, match="nothing is left"):
        fit(nn.Linear(3, 2), data(), method=DeepNesterov(steps=5), **arguments)
    assert purse.spent.releases == 5
