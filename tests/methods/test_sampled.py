"""Schedules of Poisson samples: they spend what they may and no more, by exact integrals where
there are any.
"""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from privypurse.accounting.convert import gdp_epsilon
from privypurse.accounting.pld import pld_epsilon
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.losses import Logistic
from privypurse.methods._dp_sgd import LEVELS, advanced_composition_multiplier, fixed_schedule
from privypurse.training._plan import Facts
from privypurse.training.schedules import shapes

RATE = 0.02


def facts(epsilon, neighbouring="add-remove", delta=1e-6):
    return Facts.of(Logistic(), records=1000, dimension=10, epsilon=epsilon, delta=delta, neighbouring=neighbouring)


def exact_delta(noise, rate, epsilon, neighbouring):
    """Delta of one sampled release, from the distributions themselves; the noise is relative to one
    record's own bound.
    """

    def cdf(x, shift):
        return (1 - rate) * stats.norm.cdf(x, scale=noise) + rate * stats.norm.cdf(x, loc=shift, scale=noise)

    def log_ratio(x, one, other):
        def density(shift):
            return np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * shift * x - shift**2) / (2 * noise**2))

        return density(one) - density(other)

    pairs = [(1.0, 0.0), (0.0, 1.0)] if neighbouring == "add-remove" else [(1.0, -1.0)]
    deltas = []
    for one, other in pairs:
        rising = 1 if one > other else -1
        ends = (-60 * noise, 60 * noise)
        if max(log_ratio(end, one, other) for end in ends) <= epsilon:
            deltas.append(0.0)
            continue
        edge = optimize.brentq(lambda x, a=one, b=other: log_ratio(x, a, b) - epsilon, *ends, xtol=1e-14)
        # The mass beyond the edge, where the ratio is above exp(epsilon); mirrored so that it is a
        # lower tail.
        p = cdf(-edge, -one) if rising > 0 else cdf(edge, one)
        q = cdf(-edge, -other) if rising > 0 else cdf(edge, other)
        deltas.append(float(p - math.exp(epsilon) * q))
    return max(deltas)


@pytest.fixture(scope="module")
def rising():
    weights = shapes.sigmoid(40, 0.2, 5.0)
    return np.array(weights), fixed_schedule(weights, RATE, facts(0.1))


class TestFixedSchedules:
    @pytest.mark.parametrize(
        ("epsilon", "neighbouring"),
        [(0.1, "add-remove"), (1.0, "add-remove"), (1.0, "replace-one"), (3.0, "add-remove")],
    )
    def test_one_release_spends_its_budget_by_exact_integration(self, epsilon, neighbouring):
        (charge,) = fixed_schedule((1.0,), RATE, facts(epsilon, neighbouring)).schedule
        scale = 2 if neighbouring == "replace-one" else 1  # a replaced record moves the sum by twice the bound
        delta = exact_delta(scale * charge.noise_multiplier, RATE, epsilon, neighbouring)
        assert 0.98e-6 < delta <= 1e-6

    @pytest.mark.parametrize(
        ("epsilon", "neighbouring"), [(0.1, "add-remove"), (1.0, "replace-one"), (3.0, "add-remove")]
    )
    def test_even_weights_spend_the_budget_and_never_more(self, epsilon, neighbouring):
        known = facts(epsilon, neighbouring)
        planned = fixed_schedule(shapes.uniform(50), RATE, known)
        assert len(planned.schedule) == 50
        assert len(set(planned.schedule)) == 1
        assert 0.999 * epsilon <= planned.scheduled_epsilon <= epsilon
        # A grid twice as fine is less pessimistic, so it must agree that the budget is kept.
        again = pld_epsilon(planned.schedule, known.delta, known.neighbouring, interval=planned.interval / 2)
        assert 0.998 * epsilon <= again <= epsilon

    def test_without_sampling_it_is_the_gaussian_budget(self):
        planned = fixed_schedule(shapes.uniform(25), 1.0, facts(0.5))
        mu = math.sqrt(math.fsum(charge.noise_multiplier**-2 for charge in planned.schedule))
        assert 0.999 * 0.5 <= gdp_epsilon(mu, 1e-6) <= 0.5

    def test_uneven_weights_spend_the_budget_and_never_more(self, rising):
        _, planned = rising
        assert len(planned.schedule) == 40
        assert {charge.sample_prob for charge in planned.schedule} == {RATE}
        assert 0.999 * 0.1 <= planned.scheduled_epsilon <= 0.1
        again = pld_epsilon(planned.schedule, 1e-6, Neighbouring.ADD_REMOVE, interval=planned.interval / 2)
        assert 0.998 * 0.1 <= again <= 0.1

    def test_uneven_weights_are_rounded_to_a_few_levels(self, rising):
        weights, planned = rising
        noise = np.array([charge.noise_multiplier for charge in planned.schedule])
        assert 1 < len(set(noise)) <= LEVELS
        assert (np.diff(noise) <= 0).all()
        # Up to one common factor, each is within half a step of the grid of what its weight asks
        # for.
        off = np.log(noise * np.sqrt(weights))
        half_a_step = np.log(weights.max() / weights.min()) / 2 / (LEVELS - 1) / 2
        assert np.ptp(off) <= 2 * half_a_step * (1 + 1e-9)
        assert noise[0] / noise[-1] == pytest.approx(math.sqrt(weights[-1] / weights[0]))

    def test_a_few_distinct_weights_are_kept_as_they_are(self):
        planned = fixed_schedule((1.0, 2.0, 100.0), 0.1, facts(1.0))
        noise = np.array([charge.noise_multiplier for charge in planned.schedule])
        assert noise / noise[0] == pytest.approx(1 / np.sqrt([1.0, 2.0, 100.0]))


class TestAdvancedComposition:
    @pytest.mark.parametrize(("epsilon", "steps"), [(0.1, 50), (1.0, 50), (1.0, 1000), (3.0, 200)])
    def test_it_is_sound_and_asks_for_more_than_is_needed(self, epsilon, steps):
        known = facts(epsilon)
        multiplier = advanced_composition_multiplier(steps, RATE, known)
        charges = [RepeatedCharge(GaussianCharge(multiplier, RATE), steps)]
        spent = pld_epsilon(charges, known.delta, known.neighbouring, interval=1e-4)
        assert spent <= 0.6 * epsilon
        tighter = [RepeatedCharge(GaussianCharge(multiplier / 1.5, RATE), steps)]
        assert pld_epsilon(tighter, known.delta, known.neighbouring, interval=1e-4) <= epsilon

    def test_it_asks_for_more_than_a_composed_schedule(self):
        known = facts(1.0)
        planned = fixed_schedule(shapes.uniform(50), RATE, known)
        assert advanced_composition_multiplier(50, RATE, known) > 4 * planned.schedule[0].noise_multiplier

    @pytest.mark.parametrize(("epsilon", "steps"), [(0.1, 50), (1.0, 50), (3.0, 200)])
    def test_it_is_what_the_theorems_give_going_forward(self, epsilon, steps):
        # From noise to budget: one step, then sampling (delta times the rate), then composition
        # with half of delta.
        known = facts(epsilon)
        mu = 1 / advanced_composition_multiplier(steps, RATE, known)
        one = gdp_epsilon(mu, known.delta / 2 / steps / RATE)
        sampled = math.log(1 + RATE * (math.exp(one) - 1))
        whole = sampled * math.sqrt(2 * steps * math.log(2 / known.delta)) + steps * sampled * (math.exp(sampled) - 1)
        assert whole == pytest.approx(epsilon, rel=1e-6)
        assert whole <= epsilon * (1 + 1e-9)

    @pytest.mark.parametrize(("epsilon", "steps"), [(0.1, 50), (1.0, 50), (3.0, 200)])
    def test_a_replacement_is_two_steps(self, epsilon, steps):
        known = facts(epsilon, "replace-one")
        multiplier = advanced_composition_multiplier(steps, RATE, known)
        charges = [RepeatedCharge(GaussianCharge(multiplier, RATE), steps)]
        assert pld_epsilon(charges, known.delta, known.neighbouring, interval=1e-4) <= epsilon
        # As much noise, in absolute terms, as half of epsilon needs under add/remove, and a little
        # for delta.
        half = advanced_composition_multiplier(steps, RATE, facts(epsilon / 2))
        assert 1 < 2 * multiplier / half < 1.2
