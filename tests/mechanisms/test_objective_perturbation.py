"""Objective perturbation releases the minimiser it says, with the noise it says, from a box that
stays sealed.
"""

import copy
import json
import pickle

import numpy as np
import pytest
from scipy import stats
from tests.oracles import reference

from privypurse import (
    ExponentialSelection,
    Gaussian,
    InvalidArgument,
    Neighbouring,
    NoiseSource,
    Norm,
    PermuteAndFlip,
    Purse,
    Sensitive,
)
from privypurse.core._errors import PrivypurseError, SealedValue, UnboundedSensitivity
from privypurse.core.queries import GradientAt, Objective
from privypurse.losses import Huber, HuberHinge, Logistic
from privypurse.mechanisms._perturbed_minimiser import (
    OUTPUT_NOISE_MULTIPLIER,
    TOLERANCE,
    ObjectivePerturbation,
    OutputPerturbation,
)
from privypurse.oracles._linear import DenseOracle

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
LOSSES = {
    "logistic clipped": Logistic(clip_derivative=0.5),
    "huber hinge": HuberHinge(),
    "huber": Huber(threshold=0.4),
}


def problem(loss, n=300, d=4, dtype=np.float64):
    """A table with its encoded targets and an oracle over it."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((n, d)).astype(dtype)
    scores = X @ rng.standard_normal(d) + rng.standard_normal(n)
    if loss.classification:
        y = (scores > 0).astype(int)
        return X, np.where(y == 1, 1.0, -1.0), DenseOracle(X, y, loss=loss)
    y = np.clip(scores, -1.0, 1.0)
    return X, y, DenseOracle(X, y, loss=loss, target_bounds=(-1.0, 1.0))


def box(**settings):
    return problem(LOSSES["logistic clipped"], **settings)[2].answer(Objective())


@pytest.mark.parametrize("mechanism", [ObjectivePerturbation(6.0, 2.0), OutputPerturbation(6.0, 2.0)])
def test_noise_in_floating_point_is_accepted(mechanism):
    assert mechanism.check_noise(box(), ADD_REMOVE, NoiseSource(secure=False)) is None


def test_price_and_noise_come_from_the_same_numbers():
    mechanism = ObjectivePerturbation(6.0, ridge=2.0)
    for relation in Neighbouring:
        assert mechanism.noise_std(box(), relation) == 6.0 * 0.5
        charge = mechanism.charge(box(), relation)
        assert (charge.noise_multiplier, charge.curvature_ratio) == (6.0, 0.125)
        assert charge.output_noise_multiplier == OUTPUT_NOISE_MULTIPLIER
        assert mechanism.charge_seen_under(box(), ADD_REMOVE, REPLACE_ONE) == charge


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_what_is_released_minimises_the_perturbed_objective(loss, relation):
    X, target, oracle = problem(loss)
    mechanism = ObjectivePerturbation(7.0, ridge=2 * loss.smoothness)
    sealed = oracle.answer(Objective())
    for seed in (1, 2, 3):
        released = mechanism.draw(sealed, relation, NoiseSource(seed=seed))
        std, again = 7.0 * loss.lipschitz, NoiseSource(seed=seed)
        b = std * again.normal((5,))
        cover = OUTPUT_NOISE_MULTIPLIER * 2 * TOLERANCE * std / mechanism.ridge * again.normal((5,))
        w = released - cover
        gradient = reference.answer(X, target, GradientAt(point=w), loss=loss) + mechanism.ridge * w + b
        assert np.linalg.norm(gradient) <= TOLERANCE * std


def test_single_precision_tables_are_minimised_to_the_same_tolerance():
    """The scores of a float32 table must be computed in double precision here, or the gradient has
    steps in it.
    """
    loss = LOSSES["logistic clipped"]
    X, target, oracle = problem(loss, dtype=np.float32)
    mechanism, again = ObjectivePerturbation(7.0, ridge=1.0), NoiseSource(seed=4)
    released = mechanism.draw(oracle.answer(Objective()), ADD_REMOVE, NoiseSource(seed=4))
    b = 3.5 * again.normal((5,))
    w = released - OUTPUT_NOISE_MULTIPLIER * 2 * TOLERANCE * 3.5 * again.normal((5,))
    exact = DenseOracle(X.astype(np.float64), (target > 0).astype(int), loss=loss)
    expected = exact._minimise(b, 1.0, 1e-9)
    assert np.linalg.norm(w - expected) < 1e-4  # the lengths of rows are still rounded as float32 are


def test_more_noise_or_a_larger_ridge_brings_the_model_nearer_to_minus_b():
    """With all else swamped the minimiser is -b/ridge."""
    sealed, ridge = box(), 1e6
    released = ObjectivePerturbation(1e6, ridge).draw(sealed, ADD_REMOVE, NoiseSource(seed=2))
    b = 0.5e6 * NoiseSource(seed=2).normal((5,))
    assert np.linalg.norm(released + b / ridge) < 1e-2 * np.linalg.norm(b / ridge)


# ------------------------------------------------------------------------------------- noise scales


def p_value(samples, scale):
    return stats.kstest(samples, stats.norm(scale=scale).cdf).pvalue


def assert_scale(samples, scale):
    """Accept the distribution at the right scale, reject it at 2/3 and 3/2."""
    assert p_value(samples, scale) > 1e-4
    assert p_value(samples, scale * 2 / 3) < 1e-9
    assert p_value(samples, scale * 3 / 2) < 1e-9


@pytest.mark.statistical
@pytest.mark.parametrize("seed", [11, 23, 47])
@pytest.mark.parametrize("relation", Neighbouring)
def test_noise_in_the_objective_and_on_the_output_have_the_scales_that_were_paid_for(seed, relation):
    """A record that is not finite leaves a flat objective, whose minimiser is -b/ridge: nothing but
    noise.
    """
    oracle = DenseOracle(np.full((1, 49), np.nan), [1], loss=Logistic(clip_derivative=0.5))
    purse = Purse(1e3, 1e-2, neighbouring=relation, filter="rdp", noise=NoiseSource(seed=seed))
    mechanism, again = ObjectivePerturbation(8.0, ridge=5.0), NoiseSource(seed=seed)
    released, perturbations = [], []
    with purse.reserve(100):
        for _ in range(100):
            released.append(purse.release(oracle.answer(Objective()), mechanism).value)
            perturbations.append(4.0 * again.normal((50,)))
            again.normal((50,))
    released, perturbations = np.array(released), np.array(perturbations)
    assert_scale(released.ravel(), 4.0 / 5.0)
    # A hundred thousand times twice the distance 1e-8 * 4/5 at which the search may end.
    assert_scale((released + perturbations / 5.0).ravel(), 1e5 * 2 * 1e-8 * 4.0 / 5.0)


@pytest.mark.statistical
@pytest.mark.parametrize("seed", [11, 23, 47])
@pytest.mark.parametrize("relation", Neighbouring)
def test_noise_on_the_minimiser_has_the_scale_that_was_paid_for(seed, relation):
    """Multiplier 8, a record's gradient of 0.5 or a replacement's of 1, a ridge of 5, and a flat
    objective.
    """
    oracle = DenseOracle(np.full((1, 49), np.nan), [1], loss=Logistic(clip_derivative=0.5))
    purse = Purse(1e3, 1e-2, neighbouring=relation, noise=NoiseSource(seed=seed))
    with purse.reserve(100):
        released = [purse.release(oracle.answer(Objective()), OutputPerturbation(8.0, 5.0)).value for _ in range(100)]
    gradient = 0.5 if relation is ADD_REMOVE else 1.0
    assert_scale(np.ravel(released), 8.0 * gradient / 5.0)


def test_output_perturbation_is_priced_under_replace_one_by_the_same_noise():
    sealed, mechanism = box(), OutputPerturbation(6.0, ridge=2.0)
    assert mechanism.charge(sealed, ADD_REMOVE).noise_multiplier == 6.0
    other = mechanism.charge_seen_under(sealed, ADD_REMOVE, REPLACE_ONE)
    assert other.noise_multiplier == pytest.approx(3.0, rel=1e-6)


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("ridge", [0.1, 0.25])
def test_a_ridge_below_the_curvature_is_refused_before_anything_is_paid(ridge):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    with pytest.raises(InvalidArgument, match=r"ridge must be (above|at least) the largest curvature"):
        purse.release(box(), ObjectivePerturbation(50.0, ridge))
    assert purse.spent.releases == 0


@pytest.mark.parametrize("wrong", [(0.0, 1.0), (-1.0, 1.0), (float("inf"), 1.0), (1.0, 0.0), (1.0, float("nan"))])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        ObjectivePerturbation(*wrong)


def test_a_box_without_an_objective_is_refused_with_the_remedy():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    oracle = problem(LOSSES["logistic clipped"])[2]
    boxes = [
        Sensitive(np.zeros(3), norm=Norm.L2, add_remove=0.5, replace_one=1.0),
        oracle.answer(GradientAt(point=np.zeros(5))),
    ]
    for wrong in boxes:
        with pytest.raises(InvalidArgument, match=r"must hold an objective.*Objective\(\)"):
            purse.release(wrong, ObjectivePerturbation(50.0, 1.0))
    assert purse.spent.releases == 0


@pytest.mark.parametrize("mechanism", [ExponentialSelection(0.1), PermuteAndFlip(0.1)], ids=repr)
def test_an_objective_is_not_something_to_select_from(mechanism):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    with pytest.raises(UnboundedSensitivity):
        purse.release(box(), mechanism)
    assert purse.spent.releases == 0


def test_gaussian_noise_on_an_objective_is_refused_before_anything_is_paid():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    with pytest.raises(PrivypurseError):
        purse.release(box(), Gaussian(100.0))
    assert purse.spent.releases == 0


# ------------------------------------------------------------------------------------------- sealed


@pytest.mark.parametrize("show", [repr, str, format, lambda b: f"{b}", lambda b: f"{b:.3f}", lambda b: "%s" % (b,)])
def test_text_shows_the_bound_and_nothing_of_the_problem(show):
    shown = show(box())
    assert "shape (5,)" in shown
    assert "bound 0.5" in shown
    assert "minimise" not in shown
    assert "object at" not in shown


@pytest.mark.parametrize(
    "look",
    [
        float,
        int,
        bool,
        len,
        iter,
        list,
        hash,
        vars,
        np.asarray,
        np.array,
        np.sum,
        np.linalg.norm,
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        json.dumps,
        lambda b: b(np.zeros(5), 1.0, 1e-6),
        lambda b: b[0],
        lambda b: b == b,
        lambda b: b < 1,
        lambda b: b + 1,
        lambda b: np.ones(5) + b,
        lambda b: np.ones(5) @ b,
        lambda b: np.array([b, b], dtype=float),
    ],
)
def test_no_operation_opens_the_box(look):
    with pytest.raises((SealedValue, TypeError)):
        look(box())


def test_what_is_public_about_an_objective():
    sealed = box()
    assert sealed.shape == (5,)
    assert sealed.sample_prob == 1.0
    assert sealed.bound(ADD_REMOVE, sealed.norm) == 0.5
    assert sealed.bound(REPLACE_ONE, sealed.norm) == 1.0
    assert sealed.curvature == 0.25


@pytest.mark.parametrize(
    ("make", "settings_"),
    [
        (OutputPerturbation, (10.0, 1e250)),
        (ObjectivePerturbation, (10.0, 1e250)),
        (ObjectivePerturbation, (1e101, 1.0)),
        (OutputPerturbation, (1e120, 1.0)),
    ],
)
def test_sizes_that_floating_point_cannot_hold_are_refused_before_anything_is_paid(make, settings_):
    """Otherwise the search might fail after payment, and whether it does would depend on the data."""
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    with pytest.raises(InvalidArgument):
        purse.release(box(), make(*settings_))
    assert purse.spent.releases == 0
