"""The default method at the ends of the earth, and methods that begin where another run ended."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privypurse import BudgetExhausted, InvalidArgument, NoiseSource, Purse
from privypurse.core.charges import GaussianCharge
from privypurse.core.queries import GradientAt, Released
from privypurse.losses import HuberHinge, Logistic, Softmax
from privypurse.losses._linear import OneVsRest
from privypurse.methods import DPAGD, PUR, Auto, FiniteModels, Nesterov, NoisyPGD
from privypurse.methods.base import WarmStarted
from privypurse.oracles import DenseOracle, SoftmaxOracle
from privypurse.training import facts_for, fit
from privypurse.training._plan import Facts
from privypurse.training.optimizers import GradientDescent
from privypurse.training.optimizers._base import StartingAt

RELATIONS = ["add-remove", "replace-one"]


def a_problem(seed=0, rows=200, columns=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns))
    return DenseOracle(X, (X[:, 0] > 0).astype(int), loss=Logistic(clip_derivative=0.5))


def steps_of(size, momentum, count):
    return size * count / (1 - momentum)


# --------------------------------------------------------------------------------------------- Auto


@st.composite
def any_facts(draw, most_columns=10**6):
    logarithm = st.floats(0, 9)
    records = 10 ** draw(logarithm)
    dimension = min(max(round(10 ** draw(st.floats(0, math.log10(most_columns)))), 1), most_columns)
    loss = draw(st.sampled_from([Logistic(), Logistic(clip_derivative=0.5), HuberHinge(width=1e-3), Softmax(7)]))
    return Facts.of(
        loss,
        records=records,
        dimension=dimension,
        epsilon=10 ** draw(st.floats(-3, 2)),
        delta=10 ** draw(st.floats(-12, -3)),
        neighbouring=draw(st.sampled_from(RELATIONS)),
        row_limit=10 ** draw(st.floats(-6, 6)),
        l2=draw(st.sampled_from([0.0, 1e-3, 1e3])),
        clip_norm=draw(st.sampled_from([None, 0.1])),
        filter=draw(st.sampled_from(["gdp", "zcdp"])),
    )


@settings(max_examples=300)
@given(any_facts(), st.sampled_from([1.0, 1.3, 2.0]))
def test_steps_are_within_their_limits_whatever_the_facts(facts, slack):
    recipe = Auto(slack=slack).recipe(facts)
    descent = recipe.optimizer
    longest = slack**1.5 / facts.smoothness
    most_steps, most_momentum = (120, 0.95) if facts.dimension < 1_000 else (300, 0.98)
    assert 10 <= recipe.steps <= most_steps
    assert 0 <= descent.momentum <= most_momentum
    assert 0 < descent.step_size <= longest * (1 + 1e-12)
    assert recipe.step_sizes == (descent.step_size,)
    assert recipe.sample_prob == 1
    assert (descent.records, descent.clip_norm, descent.l2) == (facts.records, facts.clip_norm, facts.l2)
    # How far a run goes: in proportion to what stands out of the noise, unless the momentum would
    # have to be too large.
    per_record = facts.sensitivity / facts.gradient_bound
    clear = facts.records * facts.mu / (per_record * math.sqrt(max(facts.dimension, 64)))
    reach, wanted = steps_of(descent.step_size, descent.momentum, recipe.steps), 5 * clear * longest
    assert reach <= wanted * (1 + 1e-9)
    if descent.momentum < most_momentum:
        assert reach == pytest.approx(wanted)
        assert descent.momentum == 0 or descent.step_size == longest


@settings(max_examples=60)
@given(any_facts(most_columns=300))
def test_plans_are_finite_whatever_the_facts(facts):
    plan = Auto().plan(facts)
    assert plan.steps == Auto().recipe(facts).steps == len(plan.noise_std) == len(plan.mu) == len(plan.step_sizes)
    assert np.isfinite([*plan.noise_std, *plan.mu, *plan.step_sizes, plan.clip_norm]).all()
    assert min(plan.noise_std) > 0
    assert max(plan.noise_std) == pytest.approx(min(plan.noise_std), rel=1e-6), "an even split"
    spent = math.sqrt(sum(mu * mu for mu in plan.mu))
    assert 0.9995 * facts.mu <= spent <= facts.mu * (1 + 1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("records", "epsilon"), [(1, 0.001), (10**9, 100.0)])
def test_a_million_parameters(relation, records, epsilon):
    facts = Facts.of(Logistic(), records=records, dimension=10**6, epsilon=epsilon, delta=1e-10, neighbouring=relation)
    recipe = Auto().recipe(facts)
    state = recipe.optimizer.init(facts.dimension)
    for _ in range(3):
        query = recipe.optimizer.ask(state)
        longest = np.full(facts.dimension, records * facts.gradient_bound / math.sqrt(facts.dimension))
        state = recipe.optimizer.tell(state, Released(longest, GaussianCharge(1.0), 1.0))
    assert np.isfinite(query.point).all()
    assert np.isfinite(recipe.optimizer.point(state)).all()


@pytest.mark.parametrize("relation", RELATIONS)
def test_more_budget_goes_further(relation):
    def reach(**changes):
        numbers = {"records": 2_000, "dimension": 100, "epsilon": 0.3} | changes
        recipe = Auto().recipe(Facts.of(Logistic(), delta=1e-6, neighbouring=relation, **numbers))
        return steps_of(recipe.optimizer.step_size, recipe.optimizer.momentum, recipe.steps)

    assert reach(epsilon=0.1) < reach() < reach(epsilon=1.0)
    assert reach(records=500) < reach() < reach(records=8_000)
    assert reach(dimension=1_000) < reach() < reach(dimension=64) == pytest.approx(reach(dimension=2))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("rule", ["gdp", "zcdp", "rdp"])
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.01, 30.0), records=st.floats(1.0, 1e6))
def test_the_run_is_the_plan_and_spends_all_and_no_more(relation, rule, seed, epsilon, records):
    purse = Purse(epsilon, 1e-6, neighbouring=relation, filter=rule, noise=NoiseSource(seed=seed))
    oracle = a_problem(seed)
    plan = Auto().plan(facts_for(oracle, purse, records=records))
    result = fit(oracle, Auto(), purse, records=records)
    assert len(result.trace.steps) == plan.steps
    assert [step.noise_std for step in result.trace.steps] == pytest.approx(list(plan.noise_std), rel=1e-12)
    assert purse.spent.releases == plan.steps
    assert purse.spent.epsilon <= epsilon
    assert purse.fraction_left < 1e-3
    if rule == "gdp":
        assert purse.spent.epsilon >= 0.999 * epsilon
    assert np.isfinite(result.point).all()


def test_a_run_after_others_spends_what_they_left():
    purse, oracle = Purse(1.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=1)), a_problem()
    purse.pay_again(GaussianCharge(6.0), what="others")
    plan = Auto().plan(facts_for(oracle, purse, records=200))
    result = fit(oracle, Auto(), purse, records=200)
    assert [step.noise_std for step in result.trace.steps] == pytest.approx(list(plan.noise_std))
    assert 0.999 <= purse.spent.epsilon <= 1.0
    with pytest.raises(BudgetExhausted):
        fit(oracle, Auto(), purse, records=200)


@pytest.mark.parametrize("loss", [Softmax(3), OneVsRest(3)], ids=repr)
def test_several_classes(loss):
    X = np.random.default_rng(2).standard_normal((300, 4))
    y = X[:, :3].argmax(axis=1)
    oracle = SoftmaxOracle(X, y, loss=loss, classes=range(3), constant=0.25)
    purse = Purse(1.0, 1e-6, neighbouring="replace-one", noise=NoiseSource(seed=2))
    result = fit(oracle, Auto(), purse, records=300)
    assert result.point.shape == (15,)
    assert 0.999 <= purse.spent.epsilon <= 1.0


# ------------------------------------------------------------------------------ beginning elsewhere

START = (0.5, -1.0, 2.0, 0.25)


def quadratic(point):
    return np.diag([1.0, 2.0, 0.5, 0.1]) @ (point - [1.0, 1.0, -1.0, 0.0])


def descend(optimizer, steps):
    """Follow exact gradients; return the places where they were taken, and the end."""
    state, asked = optimizer.init(4), []
    for _ in range(steps):
        query = optimizer.ask(state)
        assert isinstance(query, GradientAt)
        asked.append(query.point)
        state = optimizer.tell(state, Released(quadratic(query.point), GaussianCharge(1.0), 1.0))
    return np.array(asked), optimizer.point(state)


@pytest.mark.parametrize(
    "inner",
    [
        GradientDescent(0.3, records=1.0),
        GradientDescent(0.3, records=1.0, momentum=0.9, nesterov=True),
        Nesterov()
        .recipe(Facts.of(Logistic(), records=1.0, dimension=4, epsilon=1, delta=1e-6, neighbouring="add-remove"))
        .optimizer,
    ],
    ids=["plain", "nesterov", "the method"],
)
def test_it_begins_where_it_says_and_at_rest(inner):
    warm = StartingAt(inner, START)
    assert warm.point(warm.init(4)).tolist() == list(START)
    asked, _ = descend(warm, 2)
    assert asked[0].tolist() == list(START), "the first gradient is taken there"
    from_zero, end = descend(inner, 6)
    assert (from_zero[0] == 0).all()
    same, same_end = descend(StartingAt(inner, np.zeros(4)), 6)
    assert same.tolist() == from_zero.tolist()
    assert same_end.tolist() == end.tolist()


def test_it_moves_as_the_other_does_from_there():
    plain = GradientDescent(0.3, records=1.0)
    asked, end = descend(plain, 5)
    more, further = descend(StartingAt(plain, tuple(end)), 5)
    at_once, last = descend(plain, 10)
    assert np.vstack([asked, more]) == pytest.approx(at_once)
    assert further == pytest.approx(last)


def test_the_start_is_not_changed_by_the_run():
    given = np.array(START)
    warm = StartingAt(GradientDescent(0.3, records=1.0), given)
    given[:] = 9.0
    descend(warm, 3)
    assert tuple(warm.start) == START
    assert repr(warm) == repr(StartingAt(GradientDescent(0.3, records=1.0), list(START)))


@pytest.mark.parametrize("wrong", [(1.0, math.nan), (math.inf, 0.0), ((1.0, 2.0),), ("a",), 1.0], ids=repr)
def test_a_start_that_is_not_a_point_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="start must be"):
        StartingAt(GradientDescent(0.3, records=1.0), wrong)


@pytest.mark.parametrize(
    ("method", "start"),
    [
        (Auto(), (1.0, 2.0)),
        (Auto(), ()),
        (Auto(), (1.0,) * 5),
        (Auto(), (1.0, math.nan, 0.0, 0.0)),
        (FiniteModels(((0.0,) * 4, (1.0,) * 4)), START),
    ],
    ids=["short", "empty", "long", "not finite", "nothing that moves"],
)
def test_a_wrong_start_is_refused_with_nothing_spent(method, start):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    with pytest.raises(InvalidArgument, match="start must"):
        fit(a_problem(), WarmStarted(method, start), purse, records=200)
    assert len(list(purse.ledger.entries())) == 1


class Listening:
    """Notes the points at which gradients are asked for."""

    def __init__(self, oracle):
        self._oracle, self.asked = oracle, []
        self.dimension, self.bounds = oracle.dimension, oracle.bounds

    def answer(self, query, **settings_):
        if isinstance(query, GradientAt):
            self.asked.append(query.point)
        return self._oracle.answer(query, **settings_)


@pytest.mark.parametrize("method", [Auto(), Nesterov(), NoisyPGD(most_steps=20), PUR(most_steps=20), DPAGD()], ids=repr)
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_warm_method_is_the_other_begun_elsewhere(method, relation):
    oracle, warm = Listening(a_problem()), WarmStarted(method, START)
    purse = Purse(0.7, 1e-6, neighbouring=relation, noise=NoiseSource(seed=4))
    facts = facts_for(oracle, purse, records=200)
    cold_recipe, recipe = method.recipe(facts), warm.recipe(facts)
    assert replace(recipe, optimizer=None) == replace(cold_recipe, optimizer=None)
    assert repr(recipe.optimizer) == repr(StartingAt(cold_recipe.optimizer, START))
    assert warm.name == method.name
    assert warm.plan(facts) == method.plan(facts)
    assert warm.filter(facts) is facts.rule
    result = fit(oracle, warm, purse, records=200)
    assert oracle.asked[0].tolist() == list(START)
    assert 0.999 * 0.7 <= purse.spent.epsilon <= 0.7
    assert np.isfinite(result.point).all()
    noise = [step.noise_std for step in result.trace.steps if step.noise_std is not None]
    assert noise[0] == pytest.approx(warm.plan(facts).noise_std[0])
    if not isinstance(method, DPAGD):
        assert noise == pytest.approx(list(warm.plan(facts).noise_std))


def test_slack_is_one_or_more():
    for wrong in (0.5, 0.0, -1.0, math.nan):
        with pytest.raises(InvalidArgument, match="slack must be"):
            Auto(slack=wrong)
