"""Every baseline runs through the same gate: it spends its budget and no more, does what it
planned, and learns.
"""

import contextlib

import numpy as np
import pytest

from privypurse import BudgetExhausted, Gaussian, InvalidArgument, Neighbouring, NoiseSource, Purse
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core._errors import UnsupportedCharge
from privypurse.core.queries import Count
from privypurse.losses import Hinge, HuberHinge, Logistic
from privypurse.methods import FiniteModels, Majority, NonPrivate, ObjPert, OutPert, PrivGene
from privypurse.oracles._linear import DenseOracle
from privypurse.training import fit, linear_scores
from privypurse.training._plan import Facts

EPSILON, DELTA, RECORDS = 1.0, 1e-6, 4_000
LOGISTIC = Logistic(clip_derivative=0.5)
GRID = [[a, b, 0.0, 0.0, c] for a in (-8.0, 0.0, 8.0) for b in (-8.0, 0.0, 8.0) for c in (-3.0, 0.0)]
PRIVATE = {
    "objective perturbation": ObjPert(),
    "objective perturbation with a ridge": ObjPert(ridge=20.0),
    "output perturbation": OutPert(),
    "output perturbation with a ridge": OutPert(ridge=200.0),
    "genetic search": PrivGene(generations=5, offspring=20),
    "finite models": FiniteModels(GRID),
    "finite models with a clip": FiniteModels(GRID, clip_loss=2.0),
    "majority": Majority(),
}
# What runs on the default purse.
ORDINARY = {name: method for name, method in PRIVATE.items() if not isinstance(method, ObjPert)}


@pytest.fixture(scope="module")
def data():
    """Classes of about 70 % and 30 %."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((RECORDS, 4))
    return X, (X @ [2.0, -2.0, 0.0, 0.5] + 0.5 * rng.standard_normal(RECORDS) > 1.5).astype(int)


@pytest.fixture(scope="module")
def oracle(data):
    return DenseOracle(*data, loss=LOGISTIC)


def facts(relation, loss=LOGISTIC, epsilon=EPSILON, **more):
    given = {"records": RECORDS, "dimension": 5, "epsilon": epsilon, "delta": DELTA, "neighbouring": relation}
    return Facts.of(loss, **given | more)


def make_purse(method, relation, **more):
    """A simulated purse with the method's own rule."""
    return Purse.with_filter(method.filter(facts(relation, **more)), noise=NoiseSource(seed=12))


def accuracy(data, point):
    X, y = data
    return np.mean((linear_scores(X, point) > 0) == y)


def majority(data):
    return max(data[1].mean(), 1 - data[1].mean())


# ----------------------------------------------------------------------------------------- spending


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("method", PRIVATE.values(), ids=PRIVATE.keys())
def test_a_run_spends_its_budget_and_no_more(oracle, method, relation):
    purse = make_purse(method, relation)
    result = fit(oracle, method, purse, records=RECORDS)
    assert result.trace.stop_reason == "steps"
    assert result.point.shape == (5,)
    assert 0.999 * EPSILON <= purse.spent.epsilon <= EPSILON
    certificate = purse.certificate()
    assert (certificate.epsilon, certificate.delta) == (EPSILON, DELTA)
    stated = {name for name, under in certificate.relations.items() if under.epsilon is not None}
    assert stated == {relation.value, "replace-one"}


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("filter", ["gdp", "zcdp", "rdp"])
@pytest.mark.parametrize("method", ORDINARY.values(), ids=ORDINARY.keys())
def test_ordinary_baselines_run_under_every_filter(oracle, method, filter, relation):
    purse = Purse(EPSILON, DELTA, neighbouring=relation, filter=filter)
    fit(oracle, method, purse, records=RECORDS)
    assert 0.999 * EPSILON <= purse.spent.epsilon <= EPSILON
    assert "differentially private" in str(purse.certificate())


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_objective_perturbation_under_a_renyi_filter(oracle, relation, epsilon):
    purse = Purse(epsilon, DELTA, neighbouring=relation, filter="rdp")
    result = fit(oracle, ObjPert(), purse, records=RECORDS)
    assert 0.999 * epsilon <= purse.spent.epsilon <= epsilon
    tight = ObjPert().plan(facts(relation, epsilon=epsilon)).noise_std[0]
    assert tight < result.trace.steps[0].noise_std, "the tight price buys less noise"


def test_objective_perturbation_takes_what_others_left(oracle):
    purse = Purse(EPSILON, DELTA, neighbouring="add-remove", filter="rdp")
    purse.release(oracle.answer(Count()), Gaussian(8.0))
    assert 0 < purse.spent.epsilon < EPSILON
    (step,) = fit(oracle, ObjPert(), purse, records=RECORDS).trace.steps
    assert step.noise_std > ObjPert().plan(facts("add-remove", filter="rdp")).noise_std[0]
    assert 0.999 * EPSILON <= purse.spent.epsilon <= EPSILON


def test_a_gaussian_purse_refuses_objective_perturbation_with_the_remedy(oracle):
    for filter in ("gdp", "zcdp"):
        purse = Purse(EPSILON, DELTA, neighbouring="add-remove", filter=filter)
        with pytest.raises(UnsupportedCharge, match=r"Make the purse with|with_filter"):
            fit(oracle, ObjPert(), purse, records=RECORDS)
        assert purse.spent.releases == 0


@pytest.mark.parametrize("method", PRIVATE.values(), ids=PRIVATE.keys())
def test_an_empty_purse_is_refused_or_ends_the_run(oracle, method):
    """It may not fail in any other way, such as a division by what is left."""
    purse = make_purse(method, "add-remove")
    fit(oracle, method, purse, records=RECORDS)
    with contextlib.suppress(BudgetExhausted):
        fit(oracle, method, purse, records=RECORDS)
    assert purse.spent.epsilon <= EPSILON


def test_the_certificate_of_a_private_baseline_states_both_relations(oracle):
    method = ObjPert()
    purse = Purse.with_filter(method.filter(facts("add-remove")))
    fit(oracle, method, purse, records=RECORDS)
    prose = str(purse.certificate())
    assert "(1, 1e-06)-differentially private under the relation add-remove" in prose
    assert "1 x Objective (objective-perturbation" in prose
    assert "  replace-one: epsilon 2, delta 3.7" in prose


# -------------------------------------------------------------------------------------- not private


def test_the_baseline_without_privacy_says_so(oracle, data):
    purse = Purse.not_private()
    result = fit(oracle, NonPrivate(), purse, records=RECORDS)
    assert accuracy(data, result.point) > 0.9
    certificate = purse.certificate()
    assert not certificate.private
    assert "NOT PRIVATE" in str(certificate)
    assert "differentially private" not in str(certificate)
    assert NonPrivate().plan(facts("add-remove")).notes == ("NOT PRIVATE.",)
    assert purse.filter.terms() == NonPrivate().filter(facts("add-remove")).terms()


@pytest.mark.parametrize("filter", ["gdp", "zcdp", "rdp"])
def test_the_baseline_without_privacy_is_refused_by_a_purse_with_a_limit(oracle, filter):
    purse = Purse(1e3, 1e-3, neighbouring="add-remove", filter=filter)
    with pytest.raises(InvalidArgument, match=r"Purse\.not_private"):
        fit(oracle, NonPrivate(), purse, records=RECORDS)
    assert purse.spent.releases == 0


@pytest.mark.parametrize("loss", [LOGISTIC, Logistic(), HuberHinge()], ids=repr)
def test_the_baseline_without_privacy_is_the_minimiser(data, loss):
    X, y = data
    rows = np.column_stack([X, np.ones(len(X))])
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    point = fit(DenseOracle(X, y, loss=loss), NonPrivate(), Purse.not_private(), records=RECORDS).point
    gradient = loss.derivative(rows @ point, np.where(y == 1, 1.0, -1.0)) @ rows + NonPrivate().ridge * point
    assert np.linalg.norm(gradient) < 1e-3 * RECORDS * loss.lipschitz


# -------------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("method", PRIVATE.values(), ids=PRIVATE.keys())
def test_the_plan_is_what_happens(oracle, method, relation):
    plan = method.plan(facts(relation))
    steps = fit(oracle, method, make_purse(method, relation), records=RECORDS).trace.steps
    assert plan.steps == len(steps)
    assert plan.method == method.name
    assert plan.noise_std == pytest.approx([step.noise_std for step in steps if step.noise_std is not None], rel=1e-6)
    selected = [step.charge["epsilon"] for step in steps if step.charge["kind"] == "bounded-range"]
    assert plan.selection_epsilon == pytest.approx(selected, rel=1e-6)


@pytest.mark.parametrize("relation", Neighbouring)
def test_the_plan_of_objective_perturbation_under_a_renyi_filter_is_what_happens(oracle, relation):
    plan = ObjPert().plan(facts(relation, filter="rdp"))
    purse = Purse(EPSILON, DELTA, neighbouring=relation, filter="rdp")
    (step,) = fit(oracle, ObjPert(), purse, records=RECORDS).trace.steps
    assert plan.noise_std == pytest.approx((step.noise_std,))


def test_plans_state_the_ridge():
    assert "ridge of 2.5" in ObjPert().plan(facts("add-remove")).notes[0]
    assert "ridge of 40 " in ObjPert().plan(facts("add-remove", l2=0.01)).notes[0]
    assert "losses: 7" in OutPert(ridge=7.0).plan(facts("add-remove")).notes[0]


@pytest.mark.parametrize("epsilon", [10.0, 20.0])
def test_the_default_ridge_of_objective_perturbation_suits_every_epsilon(oracle, epsilon):
    purse = make_purse(ObjPert(), "add-remove", epsilon=epsilon)
    fit(oracle, ObjPert(), purse, records=RECORDS)
    assert 0.999 * epsilon <= purse.spent.epsilon <= epsilon


def test_the_filter_of_objective_perturbation_holds_just_its_release():
    rule = ObjPert().filter(facts("add-remove"))
    assert isinstance(rule, FixedSchedule)
    assert [charge.kind for charge in rule.schedule] == ["objective-perturbation"]
    assert 0.999 * EPSILON <= rule.scheduled_epsilon <= EPSILON
    renyi = facts("add-remove", filter="rdp")
    assert ObjPert().filter(renyi) is renyi.rule


# ------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize(
    ("method", "least"),
    [(ObjPert(), 0.93), (OutPert(), 0.80), (FiniteModels(GRID), 0.85), (PrivGene(generations=10), 0.75)],
    ids=lambda value: getattr(value, "name", None),
)
def test_models_beat_the_larger_class(oracle, data, method, least, relation):
    """On a simulated purse, so that chance plays no part."""
    result = fit(oracle, method, make_purse(method, relation, epsilon=4.0), records=RECORDS)
    assert accuracy(data, result.point) > max(least, majority(data) + 0.02)


def test_the_majority_is_the_majority(oracle, data):
    result = fit(oracle, Majority(), make_purse(Majority(), "replace-one"), records=RECORDS)
    assert accuracy(data, result.point) == pytest.approx(majority(data))
    assert result.point[:-1].tolist() == [0.0] * 4
    positive = data[1].mean()
    assert result.point[-1] == pytest.approx(np.log(positive / (1 - positive)), abs=0.05)


def test_finite_models_returns_one_of_its_models(oracle):
    result = fit(oracle, FiniteModels(GRID), make_purse(FiniteModels(GRID), "add-remove"), records=RECORDS)
    assert result.point.tolist() in GRID


def test_objective_perturbation_comes_near_the_minimiser_without_privacy(oracle, data):
    method = ObjPert()
    private = fit(oracle, method, make_purse(method, "add-remove", epsilon=4.0), records=RECORDS).point
    open_ = fit(oracle, NonPrivate(), Purse.not_private(), records=RECORDS).point
    assert abs(accuracy(data, private) - accuracy(data, open_)) < 0.01


# ----------------------------------------------------------------------------------------- refusals


def test_models_of_another_length_are_refused_before_anything_is_spent(oracle):
    purse = Purse(EPSILON, DELTA, neighbouring="add-remove")
    with pytest.raises(InvalidArgument, match="must have 5"):
        fit(oracle, FiniteModels([[0.0, 1.0], [1.0, 0.0]]), purse, records=RECORDS)
    assert purse.spent.releases == 0


@pytest.mark.parametrize("method", [OutPert(ridge=1.0), ObjPert(ridge=10.0)], ids=lambda m: m.name)
def test_a_loss_with_a_kink_has_no_minimiser_to_perturb(data, method):
    oracle = DenseOracle(*data, loss=Hinge())
    purse = Purse(EPSILON, DELTA, neighbouring="add-remove", filter="rdp")
    with pytest.raises(InvalidArgument):
        fit(oracle, method, purse, records=RECORDS)
    assert purse.spent.releases == 0


@pytest.mark.parametrize("method", [ObjPert(), OutPert()], ids=lambda m: m.name)
def test_clipped_gradients_have_no_minimiser(method):
    with pytest.raises(InvalidArgument, match=r"clip_norm=0\.1.*clip_derivative"):
        method.plan(facts("add-remove", clip_norm=0.1))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ObjPert(ridge=0.0),
        lambda: OutPert(ridge=-1.0),
        lambda: NonPrivate(ridge=0.0),
        lambda: PrivGene(generations=0),
        lambda: PrivGene(offspring=3, survivors=3).recipe(facts("add-remove")),
        lambda: FiniteModels([]),
        lambda: FiniteModels([[float("nan")]]),
    ],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        wrong()
