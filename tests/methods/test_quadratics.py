"""On quadratics with a known spectrum: excess loss below each stated bound, and the noise's effect
as computed.
"""

import numpy as np
import pytest

from privypurse import NoiseSource, Purse
from privypurse.methods import PUR, AdaptivePUR, Dynamic, Nesterov, NoisyPGD
from privypurse.methods.dynamic import quadratic_influences
from privypurse.oracles._quadratic import QuadraticOracle
from privypurse.training import facts_for, fit
from privypurse.training.optimizers import Ball

DIMENSION = 20
SEEDS = 60


def problem(kappa, records=2_000.0, length=1.0):
    curvatures = np.geomspace(1 / kappa, 1.0, DIMENSION)
    rng = np.random.default_rng(0)
    best = rng.standard_normal(DIMENSION)
    return QuadraticOracle(curvatures, length * best / np.linalg.norm(best), records=records, gradient_bound=1.0)


def runs(method, oracle, *, epsilon=1.0, neighbouring="add-remove", seeds=SEEDS, **settings):
    points = []
    for seed in range(seeds):
        purse = Purse(epsilon, 1e-6, neighbouring=neighbouring, noise=NoiseSource(seed=seed))
        points.append(fit(oracle, method, purse, records=oracle.records, **settings).point)
    return points


def bound_of(method, oracle, *, epsilon=1.0, neighbouring="add-remove", **settings):
    purse = Purse(epsilon, 1e-6, neighbouring=neighbouring)
    return method.plan(facts_for(oracle, purse, records=oracle.records, **settings)).bound


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize("kappa", [2.0, 30.0])
@pytest.mark.parametrize(
    "method",
    [
        NoisyPGD(projection=Ball(1.0), most_steps=50),
        PUR("convex", most_steps=100, momentum=0.0),
        Dynamic("dynamic", most_steps=60),
        Dynamic("uniform", most_steps=60),
        Dynamic("exponential", steps=20),
        Dynamic("step", steps=20),
    ],
    ids=lambda m: repr(m)[:40],
)
def test_excess_loss_is_below_the_stated_bound(method, kappa, epsilon, neighbouring):
    oracle = problem(kappa)
    if isinstance(method, Dynamic):
        method = Dynamic(method.shape, condition_number=kappa, steps=method.steps, most_steps=method.most_steps)
    settings = {
        "epsilon": epsilon,
        "neighbouring": neighbouring,
        "radius": 1.0 if isinstance(method, NoisyPGD) else 2.0,
    }
    bound = bound_of(method, oracle, **settings)
    if bound is None:
        pytest.skip("no step of this schedule fits the budget, and no bound is stated")
    losses = [oracle.excess_loss(point) for point in runs(method, oracle, seeds=20, **settings)]
    error = np.std(losses) / np.sqrt(len(losses))
    assert np.mean(losses) + 3 * error < bound.value


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize("kappa", [2.0, 10.0])
def test_strongly_convex_pur_is_below_its_bound(kappa, epsilon):
    """The ridge is the whole of the strong convexity that the method may count on."""
    oracle, l2 = problem(kappa), 1 / kappa
    method = PUR("strongly-convex", momentum=0.0)
    bound = bound_of(method, oracle, epsilon=epsilon, l2=l2)
    # With a ridge, the best point moves: excess over the least value of the ridged objective.
    curved = oracle.curvatures + l2
    best = oracle.curvatures * oracle.best / curved
    points = runs(method, oracle, epsilon=epsilon, l2=l2, seeds=40)
    losses = [float(np.sum(curved * (point - best) ** 2) / 2) for point in points]
    assert np.mean(losses) + 3 * np.std(losses) / np.sqrt(len(losses)) < bound.value


def test_nonconvex_pur_bounds_the_mean_squared_gradient():
    oracle = problem(10.0)
    method = PUR("non-convex", momentum=0.0)
    bound = bound_of(method, oracle, epsilon=3.0)
    seen = []

    for seed in range(20):
        purse = Purse(3.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=seed))
        lengths = []

        class Spy:
            dimension, bounds = oracle.dimension, oracle.bounds

            def answer(self, query, **others):
                lengths.append(float(np.sum(oracle.mean_gradient(query.point) ** 2)))  # noqa: B023
                return oracle.answer(query, **others)

        fit(Spy(), method, purse, records=oracle.records)
        seen.append(np.mean(lengths))
    assert np.mean(seen) + 3 * np.std(seen) / np.sqrt(20) < bound.value


@pytest.mark.parametrize("kappa", [5.0, 50.0])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_the_dynamic_schedule_beats_the_uniform_one_by_the_predicted_factor(kappa, momentum):
    """Starting at the optimum, all loss is noise: its mean is the sum of influence times squared
    noise, exactly.
    """
    oracle = problem(kappa, length=1e-12)
    steps, size = 40, 1.0 if momentum == 0 else 0.5
    influences = quadratic_influences(oracle.curvatures, size, steps, momentum)
    predicted = steps * influences.sum() / np.sqrt(influences).sum() ** 2
    best = Dynamic(influences=tuple(influences), momentum=momentum)
    even = Dynamic("uniform", steps=steps, momentum=momentum)
    measured = []
    for method in (even, best):
        purse = Purse(1.0, 1e-6, neighbouring="add-remove")
        plan = method.plan(facts_for(oracle, purse, records=oracle.records))
        expected = float(np.sum(influences * (np.array(plan.noise_std) / oracle.records) ** 2))
        losses = [oracle.excess_loss(point) for point in runs(method, oracle, seeds=200)]
        assert np.mean(losses) == pytest.approx(expected, abs=4 * np.std(losses) / np.sqrt(200))
        measured.append(np.mean(losses))
    assert predicted > 1.05
    assert measured[0] / measured[1] == pytest.approx(predicted, rel=0.25)


def test_methods_without_a_bound_come_close_to_the_optimum():
    oracle = problem(10.0, records=20_000.0)
    for method in (Nesterov(), AdaptivePUR()):
        losses = [oracle.excess_loss(point) for point in runs(method, oracle, epsilon=3.0, seeds=10)]
        assert np.mean(losses) < 0.02 * oracle.bounds.initial_gap
