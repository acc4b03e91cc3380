"""Bugs of other libraries that broke privacy, as tests: prices, noise and budgets."""

import contextlib
import copy
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler  # noqa: E402

from privypurse import BudgetExhausted, Gaussian, InvalidArgument, NoiseSource, Norm, Purse, Sensitive  # noqa: E402
from privypurse.pytorch import fit, make_private, open_purse  # noqa: E402
from privypurse.training.schedules import FollowGradientNorm  # noqa: E402
from privypurse.training.schedules._base import ConstantNoise  # noqa: E402
from tests.pytorch.peer_runs import (  # noqa: E402
    LOUD,
    composed,
    data_of,
    flat,
    given,
    make,
    pld_epsilon,
    slow_sum,
    small,
    train,
)


def events_of(trace):
    """What happened, at a clip norm of 1: noise relative to what one record may add."""
    return composed([step.noise_std for step in trace.steps], [step.charge["sample_prob"] for step in trace.steps])


def rdp_epsilon(event, delta):
    return rdp.RdpAccountant().compose(event).get_epsilon(delta)


# Prices.

CASES = [
    {"epsilon": 0.5, "delta": 1e-6, "steps": 3},
    {"epsilon": 2.0, "delta": 1e-5, "steps": 20},
    {"epsilon": 2.0, "delta": 1e-5, "steps": 12, "schedule": [1] * 6 + [4] * 6},
    pytest.param({"epsilon": 8.0, "delta": 1e-5, "steps": 12, "schedule": "momentum"}, marks=pytest.mark.slow),
    {"epsilon": 2.0, "delta": 1e-5, "steps": 12, "accumulate": 2},
    {"epsilon": 2.0, "delta": 1e-5, "steps": 12, "schedule": FollowGradientNorm(0.1)},
    {"epsilon": 1.0, "delta": 1e-5, "steps": 12, "full_batch": True},
    {"epsilon": 1.0, "delta": 1e-5, "steps": 12, "full_batch": True, "schedule": "dynamic"},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: ", ".join(f"{v}" for v in case.values())[:40])
def test_calibration_never_overshoots_epsilon(case):
    """The noise that was drawn, priced by another accountant: at most what was asked for, and
    nearly all of it.
    """
    private = train(make(**case))
    event = events_of(private.engine.trace)
    spent = pld_epsilon(event, case["delta"])
    assert spent <= case["epsilon"] * (1 + 1e-3)
    assert spent > 0.85 * case["epsilon"], "and the budget is used"
    assert private.purse.spent.epsilon <= case["epsilon"]
    renyi = rdp_epsilon(event, case["delta"])
    assert 0.999 * spent <= renyi <= 1.35 * case["epsilon"], "two accountants agree, as far as they can"
    if isinstance(case.get("schedule"), FollowGradientNorm):
        assert renyi <= case["epsilon"] * (1 + 2e-2), "a run that chooses on the way is priced by Renyi divergences"


def test_a_full_batch_run_costs_what_the_formula_of_gaussian_privacy_says():
    """A second source for the price, without an accountant: delta(epsilon) of mu (Dong, Roth and Su
    2022).
    """
    from scipy.stats import norm

    private = train(make(epsilon=1.0, delta=1e-5, steps=7, full_batch=True, schedule="exponential"))
    mu = math.sqrt(sum(1 / step.noise_std**2 for step in private.engine.trace.steps))
    delta = norm.cdf(-1 / mu + mu / 2) - math.e * norm.cdf(-1 / mu - mu / 2)
    assert delta == pytest.approx(1e-5, rel=1e-3)
    assert delta <= 1e-5 * (1 + 1e-6)


@pytest.mark.parametrize("full", [False, True], ids=["samples", "full"])
def test_replace_one_differs_from_add_remove_by_the_factor_two(full):
    """dp-accounting's RDP gave both the same epsilon."""
    settings = {"epsilon": 2.0, "delta": 1e-5, "full_batch": full, "steps": 6}
    add = train(make(**settings))
    replace = train(make(**settings, neighbouring="replace-one"))
    noise = [private.engine.trace.steps[0].noise_std for private in (add, replace)]
    if full:
        assert noise[1] == pytest.approx(2 * noise[0], rel=1e-6)
    else:
        assert 1.3 * noise[0] < noise[1] < 2.5 * noise[0]
    # Noise relative to what one record may add, and the accountant that knows about replacing.
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    if not full:
        assert pld_epsilon(events_of(replace.engine.trace), 1e-5, relation) <= 2.0 * (1 + 1e-3)
        assert pld_epsilon(events_of(add.engine.trace), 1e-5, relation) > 2.5


def test_less_noise_costs_more_and_so_do_more_steps():
    def cost(multiplier, steps):
        purse = Purse(100.0, 1e-5, neighbouring="add-remove", filter="rdp", noise=NoiseSource(seed=1))
        train(make(purse=purse, schedule=ConstantNoise(multiplier), steps=steps))
        return purse.spent.epsilon

    by_noise = [cost(multiplier, 4) for multiplier in (8.0, 4.0, 2.0, 1.0)]
    assert by_noise == sorted(set(by_noise))
    by_steps = [cost(2.0, steps) for steps in (1, 2, 5, 10)]
    assert by_steps == sorted(set(by_steps))
    assert by_noise[0] > 0, "never nothing for a real release"


@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, math.nan, None])
def test_an_epsilon_of_zero_is_refused_and_is_not_infinity(epsilon):
    with pytest.raises(InvalidArgument, match="epsilon"):
        make(epsilon=epsilon, delta=1e-5)
    with pytest.raises(InvalidArgument, match="epsilon"):
        fit(small(), data_of(), loss=nn.CrossEntropyLoss(), records=60, epsilon=epsilon, delta=1e-5)
    if epsilon is not None:
        with pytest.raises(InvalidArgument, match="epsilon"):
            open_purse(epsilon=epsilon, delta=1e-5, neighbouring="add-remove", steps=3)


def test_a_delta_of_zero_and_a_delta_of_one_are_refused():
    for delta in (0.0, 1.0, -1e-5, None):
        with pytest.raises(InvalidArgument, match="delta"):
            make(epsilon=1.0, delta=delta)


def test_weighted_samplers_are_refused():
    """Opacus took the rate of its own, whatever the sampler did."""
    dataset = TensorDataset(*data_of())
    samplers = [
        {"sampler": WeightedRandomSampler(torch.ones(60), 60), "batch_size": 12},
        {"sampler": torch.utils.data.RandomSampler(dataset, replacement=True), "batch_size": 12},
        {"sampler": torch.utils.data.SubsetRandomSampler(range(30)), "batch_size": 12},
        {"batch_sampler": [[0, 1], [2, 3]]},
    ]
    for sampler in samplers:
        with pytest.raises(InvalidArgument, match="sampler"):
            make(DataLoader(dataset, **sampler), epsilon=1.0, delta=1e-5)
    make(DataLoader(dataset, batch_size=12, shuffle=True), epsilon=1.0, delta=1e-5)


# Sums.


def summed(accumulate=1, micro_batch=None, groups=False, how="hooks", clip_norm=0.3, relation="add-remove"):
    """What one step on all records was given, times their number."""
    module = small()
    parameters = module.parameters()
    if groups:
        parameters = [{"params": layer.parameters()} for layer in (module[0], module[2])]
    private = make(
        module=module,
        optimizer=torch.optim.SGD(parameters, lr=0.0),
        steps=1,
        clip_norm=clip_norm,
        accumulate=accumulate,
        micro_batch=micro_batch,
        neighbouring=relation,
        loss=nn.CrossEntropyLoss(),
        compile=False,
        **LOUD,
    )
    for inputs, targets in private.loader:
        if how == "hooks":
            nn.functional.cross_entropy(module(inputs), targets).backward()
        else:
            private.engine.backward(inputs, targets)
        private.optimizer.step()
    assert private.purse.spent.releases == 1, "noise is added once"
    return given(module).double() * 60


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"accumulate": 4},
        {"groups": True},
        {"how": "backward"},
        {"how": "backward", "micro_batch": 7},
        {"how": "backward", "micro_batch": 1, "accumulate": 3},
    ],
    ids=str,
)
def test_micro_batches_do_not_change_the_clip_unit(settings):
    """Nor do parts of a sample or groups of parameters: one record is clipped, over all parameters
    at once.
    """
    expected = slow_sum(small(), *data_of(), 0.3)
    assert torch.allclose(summed(**settings), expected, rtol=5e-3, atol=1e-3)


def test_a_record_is_clipped_over_all_parameters_at_once():
    """Clipped one by one, four parameters would be twice as long together (fedbiomed#1443)."""
    inputs, targets = torch.full((1, 4), 3.0), torch.zeros(1, dtype=torch.long)
    module = small()
    private = make((inputs, targets), module, records=1, clip_norm=1e-3, steps=1, **LOUD)
    train(private)
    assert float(given(module).norm()) == pytest.approx(1e-3, rel=5e-3)


@pytest.mark.statistical
@pytest.mark.parametrize("settings", [{}, {"groups": True}, {"accumulate": 5}], ids=str)
def test_noise_is_on_the_sum_and_is_added_once(settings):
    """Not on the mean, not for each group of parameters, not for each part of a sample."""
    module = nn.Sequential(nn.Linear(60, 60), nn.Linear(60, 60))
    groups = [{"params": layer.parameters()} for layer in module] if settings.get("groups") else module.parameters()
    data = (torch.ones(30, 60), torch.zeros(30, 60))
    purse = Purse(1e3, 1e-5, neighbouring="add-remove", noise=NoiseSource(seed=2))
    private = make_private(
        module,
        torch.optim.SGD(groups, lr=0.0),
        data,
        records=30,
        purse=purse,
        full_batch=True,
        steps=1,
        schedule=ConstantNoise(3.0),
        clip_norm=2.0,
        accumulate=settings.get("accumulate", 1),
    )
    for inputs, _ in private.loader:
        (module(inputs) * 0).sum().backward()
        private.optimizer.step()
    std = float(given(module).double().std())
    count = given(module).numel()
    assert std == pytest.approx(3.0 * 2.0 / 30, rel=5 / math.sqrt(2 * count))


def test_no_key_is_used_twice_by_two_runs_on_one_purse():
    purse = Purse(10.0, 1e-5, neighbouring="add-remove", noise=NoiseSource(seed=2))
    given_by = []
    for _ in range(2):
        private = make(purse=purse, full_batch=True, steps=1, schedule=ConstantNoise(5.0))
        train(private)
        given_by.append(given(private.module))
    assert not np.intersect1d(given_by[0].numpy(), given_by[1].numpy()).size


# The end of the budget.


def test_the_budget_is_checked_before_the_step():
    """SmartNoise's GANs made the step first, and looked then."""
    purse = Purse(1.0, 1e-5, neighbouring="add-remove", noise=NoiseSource(seed=2))
    private = make(purse=purse, full_batch=True, steps=100, schedule=ConstantNoise(10.0))
    seen = []
    train(private, each=lambda: seen.append((flat(private.module), purse.spent.epsilon)))
    assert private.engine.stop_reason == "budget"
    assert 0 < private.engine.gradients == purse.spent.releases < 100
    assert max(epsilon for _, epsilon in seen) <= 1.0
    assert torch.equal(flat(private.module), seen[private.engine.gradients - 1][0])


@pytest.mark.filterwarnings("ignore:a batch was taken")
def test_a_refused_charge_changes_nothing():
    """Somebody else spends the rest of the purse between sample and step."""
    purse = Purse(1.0, 1e-5, neighbouring="add-remove", noise=NoiseSource(seed=2))
    private = make(purse=purse, full_batch=True, steps=10, block=1)
    train(private, 3)
    before, state = flat(private.module), copy.deepcopy(private.optimizer.state_dict())
    for inputs, targets in private.loader:
        nn.functional.cross_entropy(private.module(inputs), targets).backward()
        private.engine.close()
        box = Sensitive([0.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0)
        purse.release(box, Gaussian(purse.remaining.noise_multiplier * 1.01))
        spent = purse.spent
        with contextlib.suppress(BudgetExhausted):
            private.optimizer.step()
    assert purse.spent == spent
    assert private.engine.stop_reason == "budget"
    assert private.engine.gradients == 3
    assert torch.equal(flat(private.module), before)
    assert str(private.optimizer.state_dict()) == str(state)


@pytest.mark.parametrize("full", [False, True], ids=["samples", "full"])
def test_steps_after_the_end_are_refused(full):
    private = train(make(epsilon=1.0, delta=1e-5, full_batch=full))
    before, spent = flat(private.module), private.purse.spent
    assert list(private.loader) == []
    with pytest.raises(BudgetExhausted, match="run has ended"):
        private.optimizer.step()
    inputs, targets = data_of()
    with pytest.raises(InvalidArgument):
        nn.functional.cross_entropy(private.module(inputs), targets).backward()
    for parameter in private.module.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(BudgetExhausted):
        private.optimizer.step()
    assert torch.equal(flat(private.module), before)
    assert private.purse.spent == spent


def test_a_module_cannot_be_made_private_twice():
    private = make(epsilon=1.0, delta=1e-5)
    with pytest.raises(InvalidArgument, match="private already"):
        make(module=private.module, optimizer=private.optimizer, epsilon=1.0, delta=1e-5)


def test_copies_share_the_purse_and_forget_nothing():
    """diffprivlib's accountant was cloned with the estimator, and the user's stayed at zero."""
    private = make(epsilon=1.0, delta=1e-5)
    assert copy.deepcopy(private.purse) is private.purse
    train(private, 2)
    assert copy.copy(private.purse).spent.releases == 2


def test_layers_that_mix_records_are_refused_by_name():
    for layer in (nn.BatchNorm1d(5), nn.SyncBatchNorm(5)):
        module = nn.Sequential(nn.Linear(4, 5), layer, nn.Linear(5, 2))
        with pytest.raises(InvalidArgument, match="BatchNorm"):
            make(module=module, epsilon=1.0, delta=1e-5)
