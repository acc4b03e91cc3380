"""Every method, any data, any budget, either relation: never more than the budget, and all of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from privypurse import NoiseSource, Purse
from privypurse.losses import Huber, HuberHinge, Logistic, Softmax, Squared
from privypurse.methods import (
    ADPSGD,
    DPAGD,
    DPSGD,
    PUR,
    AdaptivePUR,
    Dynamic,
    FiniteModels,
    Majority,
    Nesterov,
    NoisyPGD,
    ObjPert,
    OutPert,
    PrivGene,
)
from privypurse.oracles import DenseOracle, SoftmaxOracle, SparseOracle
from privypurse.purse._ledger import MemoryLedger
from privypurse.training import facts_for, fit
from privypurse.training.optimizers import Ball, Box, Simplex

FULL_BATCH = [
    Nesterov(),
    Nesterov(average="tail", steps=7),
    NoisyPGD(),
    NoisyPGD(projection=Box(-1.0, 1.0), average="tail", most_steps=30),
    NoisyPGD(projection=Simplex(), average="last", most_steps=30),
    NoisyPGD(projection=Ball(2.0), most_steps=30),
    NoisyPGD(projection=None, most_steps=30),
    PUR("convex", most_steps=50),
    PUR("convex", most_steps=50, cap=False, momentum=0.0),
    PUR("non-convex", most_steps=50),
    PUR("strongly-convex", most_steps=50),
    AdaptivePUR(),
    AdaptivePUR(momentum=0.0, fewest_steps=3, most_steps=20),
    Dynamic(most_steps=50),
    Dynamic("uniform", most_steps=50),
    Dynamic("exponential", steps=9),
    Dynamic("step", steps=9),
    Dynamic(momentum=0.9, steps=20),
    Dynamic(influences=(1.0, 3.0, 2.0, 5.0)),
    Dynamic("uniform", condition_number=100.0, steps=1),
    DPAGD(),
    DPAGD(momentum=0.0, clip_loss=1.0, rounds=6),
    DPAGD(growth=1.0, candidates=1, rounds=3),
    ADPSGD(),
    ADPSGD(rounds=5, most_redraws=0, flatten=1.0),
    ADPSGD(rounds=5, most_redraws=4, candidates=2, selection_share=0.6),
    PrivGene(generations=2, offspring=6, survivors=2),
    OutPert(),
    Majority(),
]
SAMPLED = [
    DPSGD(sample_prob=0.3, steps=6),
    DPSGD(sample_prob=0.3, steps=6, accounting="rdp"),
    Dynamic(sample_prob=0.3, steps=6),
]


def made_data(rng, rows=300, columns=4):
    X = rng.standard_normal((rows, columns)) * 10.0 ** rng.uniform(-3, 3, columns)
    return X, (rng.random(rows) < 0.4).astype(int)


def spend(method, oracle, purse, **settings_):
    facts = facts_for(oracle, purse, records=300, l2=settings_.get("l2", 0.0))
    rule = method.filter(facts)
    if rule is not purse.filter:
        purse = Purse.with_filter(rule, noise=purse.noise)
    return fit(oracle, method, purse, records=300, **settings_), purse


@pytest.mark.parametrize("method", FULL_BATCH, ids=repr)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    epsilon=st.floats(0.01, 20.0),
    log_delta=st.floats(-10.0, -3.0),
    neighbouring=st.sampled_from(["add-remove", "replace-one"]),
    rule=st.sampled_from(["gdp", "zcdp", "rdp"]),
)
def test_the_whole_budget_and_nothing_but_the_budget(method, seed, epsilon, log_delta, neighbouring, rule):
    X, y = made_data(np.random.default_rng(seed))
    oracle = DenseOracle(X, y, loss=Logistic(clip_derivative=0.5))
    noise = NoiseSource(seed=seed)
    purse = Purse(epsilon, 10.0**log_delta, neighbouring=neighbouring, filter=rule, noise=noise)
    l2 = 1e-2 if isinstance(method, PUR) and method.case == "strongly-convex" else 0.0
    result, purse = spend(method, oracle, purse, l2=l2)
    assert purse.spent.epsilon <= epsilon
    if rule == "gdp":
        assert purse.spent.epsilon >= 0.999 * epsilon
    assert purse.fraction_left < 1e-3
    assert np.isfinite(result.point).all()
    assert result.trace.stop_reason in ("steps", "budget")


@pytest.mark.parametrize("method", SAMPLED, ids=repr)
@pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.2, 3.0])
def test_sampled_methods_spend_the_whole_budget_too(method, neighbouring, epsilon):
    X, y = made_data(np.random.default_rng(1))
    oracle = sparse_oracle(X, y)
    purse = Purse(epsilon, 1e-6, neighbouring=neighbouring, noise=NoiseSource(seed=5))
    result, purse = spend(method, oracle, purse)
    assert 0.999 * epsilon <= purse.spent.epsilon <= epsilon
    assert len(result.trace.steps) == 6
    assert all(step.charge["sample_prob"] == 0.3 for step in result.trace.steps)


def sparse_oracle(X, y):
    return SparseOracle(sparse.csr_matrix(X), y, loss=Logistic(clip_derivative=0.5))


LOSSES = [
    (Logistic(), {}),
    (HuberHinge(), {}),
    (Squared(clip_derivative=1.0), {"target_bounds": (0.0, 1.0)}),
    (Huber(threshold=0.5), {"target_bounds": (0.0, 1.0)}),
]


@pytest.mark.parametrize(("loss", "settings_"), LOSSES, ids=repr)
@pytest.mark.parametrize(
    "method", [*FULL_BATCH[:1], PUR(), AdaptivePUR(), Dynamic(), DPAGD(), ADPSGD(), ObjPert()], ids=repr
)
def test_any_loss(method, loss, settings_):
    X, y = made_data(np.random.default_rng(2))
    oracle = DenseOracle(X, y, loss=loss, **settings_)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    result, purse = spend(method, oracle, purse, l2=1e-3)
    assert 0.999 <= purse.spent.epsilon <= 1.0
    assert np.isfinite(result.point).all()


@pytest.mark.parametrize(
    "method", [Nesterov(), NoisyPGD(), PUR(), AdaptivePUR(), Dynamic(), DPAGD(), ADPSGD()], ids=repr
)
def test_several_classes(method):
    X, _ = made_data(np.random.default_rng(3))
    y = (np.abs(X[:, 0]) * 7 % 3).astype(int)
    oracle = SoftmaxOracle(X, y, loss=Softmax(classes=3), classes=(0, 1, 2))
    purse = Purse(1.0, 1e-6, neighbouring="replace-one")
    result, purse = spend(method, oracle, purse, l2=1e-3)
    assert 0.999 <= purse.spent.epsilon <= 1.0
    assert result.point.shape == (15,)


class WatchedNoise(NoiseSource):
    """Notes, whenever noise is drawn, how many releases the ledger had already recorded as paid."""

    def __init__(self, ledger, seed):
        super().__init__(seed=seed)
        self.ledger, self.paid = ledger, []

    def normal(self, shape):
        self.paid.append(self.ledger.totals("default").releases)
        return super().normal(shape)

    def gumbel(self, shape):
        self.paid.append(self.ledger.totals("default").releases)
        return super().gumbel(shape)


@pytest.mark.parametrize("method", [Nesterov(), DPAGD(rounds=4), ADPSGD(rounds=4), AdaptivePUR(), PUR()], ids=repr)
@pytest.mark.parametrize("block", [1, 100])
def test_every_charge_is_recorded_before_its_value_comes_out(method, block):
    X, y = made_data(np.random.default_rng(4))
    oracle = DenseOracle(X, y, loss=Logistic(clip_derivative=0.5))
    ledger = MemoryLedger()
    noise = WatchedNoise(ledger, seed=3)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, noise=noise)
    result = fit(oracle, method, purse, records=300, block=block)
    assert len(noise.paid) == len(result.trace.steps) == purse.spent.releases
    assert all(paid >= number for number, paid in enumerate(noise.paid, start=1))


FINITE = FiniteModels(((0.0, 0.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0, 0.0), (0.0, -1.0, 0.0, 0.0, 0.5)))


@pytest.mark.parametrize("method", [*FULL_BATCH, FINITE, ObjPert()], ids=repr)
@pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
def test_the_plan_is_what_the_run_does(method, neighbouring):
    """For methods whose budgets do not depend on answers, to the last digit."""
    X, y = made_data(np.random.default_rng(6))
    oracle = DenseOracle(X, y, loss=Logistic(clip_derivative=0.5))
    purse = Purse(0.7, 1e-7, neighbouring=neighbouring, noise=NoiseSource(seed=1))
    l2 = 1e-2
    facts = facts_for(oracle, purse, records=300, l2=l2)
    plan = method.plan(facts)
    assert plan.clip_norm == 0.5
    assert len(plan.noise_std) == len(plan.mu)
    result, purse = spend(method, oracle, purse, l2=l2)
    adaptive = isinstance(method, DPAGD | ADPSGD | AdaptivePUR)
    noise = [step.noise_std for step in result.trace.steps if step.noise_std is not None]
    if adaptive:
        assert plan.noise_std[0] == pytest.approx(noise[0])
    elif noise:
        assert list(plan.noise_std) == pytest.approx(noise)
    if isinstance(method, DPAGD | ADPSGD):
        assert len(plan.selection_epsilon) == plan.steps == len(plan.step_sizes)
    assert "steps" in plan.to_json()
