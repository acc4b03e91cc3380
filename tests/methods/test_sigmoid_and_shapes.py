"""Shapes of a budget over time: they spend it exactly, and the sigmoid's printed constants do not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from privypurse.accounting._filters import GdpFilter
from privypurse.accounting.convert import gdp_epsilon, gdp_mu
from privypurse.accounting.pld import pld_epsilon
from privypurse.core._errors import InvalidArgument
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.methods.dynamic import quadratic_influences
from privypurse.training.schedules import shapes
from privypurse.training.schedules._base import Budget, Weighted


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def budgets(steps, steepness, ratio, epsilon):
    """The corrected sigmoid, term by term: from eps_min to eps_max = ratio eps_min, with eps_min +
    eps_max = 2 epsilon/T.
    """
    lowest = 2 * epsilon / steps / (1 + ratio)
    middle = steepness * (steps + 1) / 2
    return [lowest + (ratio - 1) * lowest * sigmoid(steepness * step - middle) for step in range(1, steps + 1)]


def printed_budgets(steps, steepness, ratio, epsilon, *, shift=None):
    """Eq. 4 with the constants of the printed proof: eps_min + eps_max/(1 + exp(-at + b)), b =
    aT/2.
    """
    lowest = 2 * epsilon / steps / (1 + ratio)
    shift = steepness * steps / 2 if shift is None else shift
    return [lowest + ratio * lowest * sigmoid(steepness * step - shift) for step in range(1, steps + 1)]


def noise_multipliers(weights, epsilon=1.0, delta=1e-6):
    """The noise that a run with these weights really gets from a purse, step by step."""
    rule = GdpFilter(epsilon, delta, "add-remove")
    budget, past, listed = Budget(rule, rule.start(), rule.start(), steps=len(weights)), [], []
    for _ in weights:
        listed.append(Weighted(weights).propose(None, past, budget).noise_multiplier)
        past.append(None)
        budget = budget.after(GaussianCharge(listed[-1]))
    return np.array(listed)


class TestSigmoid:
    @given(st.integers(1, 300), st.floats(0, 20), st.floats(1, 1000))
    def test_it_adds_up_exactly_whatever_the_steepness(self, steps, steepness, ratio):
        weights = shapes.sigmoid(steps, steepness, ratio)
        assert math.fsum(weights) == pytest.approx(steps * (1 + ratio) / 2, rel=1e-12)
        assert list(weights) == sorted(weights)
        assert min(weights) >= 1
        assert max(weights) <= ratio

    @pytest.mark.parametrize("steps", [1, 2, 25, 50])
    @pytest.mark.parametrize(("steepness", "ratio"), [(0.0, 4.0), (0.05, 3.0), (0.2, 9.0), (5.0, 50.0)])
    def test_it_is_the_corrected_formula(self, steps, steepness, ratio):
        terms = budgets(steps, steepness, ratio, epsilon=0.8)
        assert math.fsum(terms) == pytest.approx(0.8, rel=1e-12)
        weights = np.array(shapes.sigmoid(steps, steepness, ratio))
        assert 0.8 * weights / weights.sum() == pytest.approx(terms)
        # Opposite steps share evenly, which is why the sum does not depend on the steepness.
        assert weights + weights[::-1] == pytest.approx(1 + ratio)

    @pytest.mark.parametrize(
        ("steps", "ratio", "times"), [(20, 3, 1.28), (20, 9, 1.13), (100, 3, 1.26), (100, 9, 1.11)]
    )
    def test_the_printed_constants_overspend(self, steps, ratio, times):
        assert math.fsum(printed_budgets(steps, 0.2, ratio, epsilon=1.0)) == pytest.approx(times, abs=0.005)

    def test_with_a_frozen_shift_a_smaller_steepness_lowers_every_budget(self):
        # The proof says it moves budget from late steps to early ones.
        before = printed_budgets(50, 0.2, 4.0, 1.0)
        after = printed_budgets(50, 0.18, 4.0, 1.0, shift=0.2 * 50 / 2)
        assert all(small < large for small, large in zip(after, before, strict=True))

    def test_with_the_shift_that_follows_it_moves_budget_to_early_steps(self):
        before, after = np.array(shapes.sigmoid(50, 0.2, 4.0)), np.array(shapes.sigmoid(50, 0.18, 4.0))
        assert (after[:25] > before[:25]).all()
        assert (after[25:] < before[25:]).all()

    def test_it_must_not_fall(self):
        with pytest.raises(InvalidArgument, match="ratio must be 1 or more"):
            shapes.sigmoid(10, 0.2, 0.5)


class TestWhatThePrintedAlgorithmCosts:
    @pytest.mark.parametrize(("claimed", "true", "product"), [(0.05, 0.239, 4.45), (0.8, 4.51, 5.04)])
    def test_noise_of_one_over_epsilon_is_not_a_calibration(self, claimed, true, product):
        assert gdp_epsilon(claimed, 1e-8) == pytest.approx(
            true, rel=2e-3
        )  # a noise multiplier of 1/epsilon is epsilon-GDP
        assert claimed / gdp_mu(claimed, 1e-8) == pytest.approx(product, abs=0.005)

    @pytest.mark.parametrize(
        ("steps", "distance", "claimed", "true"),
        [(20, 1, 0.05, 0.051), (50, 1, 0.05, 0.034), (100, 2, 0.05, 0.053), (100, 2, 0.8, 0.96)],
    )
    def test_adding_up_epsilons_is_so_loose_that_many_steps_make_up_for_it(self, steps, distance, claimed, true):
        # A sigmoid from 1 to 9 with steepness 0.1; distance 2 is replace-one at the noise of
        # add/remove.
        mu = distance * math.sqrt(math.fsum(term**2 for term in budgets(steps, 0.1, 9.0, claimed)))
        assert gdp_epsilon(mu, 1e-8) == pytest.approx(true, rel=0.011)

    def test_strong_composition_lost_a_factor_epsilon(self):
        # Theorem 3 prints sqrt(2k ln(1/delta)) + k eps (e^eps - 1). With eps before the root it is
        # sound and worth having: the
        # exact composition of k randomised responses is below it. As printed it is worse than
        # adding up.
        delta, count = 1e-6, 1000
        for epsilon in (0.001, 0.01, 0.05):
            root, rest = math.sqrt(2 * count * math.log(1 / delta)), count * epsilon * math.expm1(epsilon)
            assert self.delta_of_responses(epsilon, count, epsilon * root + rest) <= delta
            assert root + rest > count * epsilon
        assert epsilon * root + rest < count * epsilon / 2

    @staticmethod
    def delta_of_responses(epsilon, count, total):
        """Exact delta of `count` randomised responses, the worst epsilon-DP mechanisms to compose."""
        delta = 0.0
        for flips in range(count + 1):
            ways = math.lgamma(count + 1) - math.lgamma(flips + 1) - math.lgamma(count - flips + 1)
            chance = ways + (count - flips) * epsilon - count * math.log1p(math.exp(epsilon))
            loss = (count - 2 * flips) * epsilon
            if loss > total:
                delta += math.exp(chance) * -math.expm1(total - loss)
        return delta

    def test_the_floor_of_the_moments_accountant_is_its_largest_order(self):
        # "SGD-MA costs 0.58 for one iteration" is ln(1/delta)/32: the accountant that was used
        # stops at order 32.
        rate, noise, log_inverse = 0.0053, 4.0, math.log(1e8)

        def log_moment(order):
            terms = [
                math.comb(order + 1, k)
                * (1 - rate) ** (order + 1 - k)
                * rate**k
                * math.exp((k * k - k) / (2 * noise**2))
                for k in range(order + 2)
            ]
            return math.log(math.fsum(terms))

        assert log_inverse / 32 == pytest.approx(0.576, abs=5e-4)
        assert min((log_moment(order) + log_inverse) / order for order in range(1, 33)) == pytest.approx(
            0.58, abs=0.005
        )
        assert min((log_moment(order) + log_inverse) / order for order in range(1, 121)) < 0.2

    @pytest.mark.parametrize(("steps", "epsilon"), [(1, 0.0094), (100, 0.064), (1000, 0.206)])
    def test_what_those_iterations_really_cost(self, steps, epsilon):
        charges = [RepeatedCharge(GaussianCharge(4.0, 0.0053), steps)]
        spent = pld_epsilon(charges, 1e-8, Neighbouring.ADD_REMOVE, interval=1e-5)
        assert spent == pytest.approx(epsilon, rel=6e-3)


class TestShapesSpendTheBudget:
    @pytest.mark.parametrize(
        "weights",
        [
            shapes.uniform(30),
            shapes.exponential(30, 20.0),
            shapes.exponential(30, 0.1),
            shapes.step_decay(30, 2.0, every=7),
            shapes.sigmoid(30, 0.3, 5.0),
            shapes.noise([3.0, 1.0, 2.0, 0.5]),
            shapes.influence([0.1, 4.0, 2.0]),
        ],
        ids=["uniform", "rising", "falling", "stairs", "sigmoid", "noise", "influence"],
    )
    def test_exactly_and_in_proportion(self, weights):
        multipliers = noise_multipliers(weights)
        spent = math.sqrt(math.fsum(1 / multipliers**2))
        assert spent == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-9)
        assert multipliers**-2 / multipliers[0] ** -2 == pytest.approx(np.array(weights) / weights[0], rel=1e-6)

    def test_exponential_noise_falls_by_a_constant_factor(self):
        multipliers = noise_multipliers(shapes.exponential(30, 20.0))
        assert multipliers[1:] / multipliers[:-1] == pytest.approx(20 ** (-1 / 58), rel=1e-6)
        assert shapes.exponential(1, 20.0) == (1.0,)

    def test_stairs_fall_every_so_many_steps(self):
        multipliers = noise_multipliers(shapes.step_decay(10, 4.0, every=3))
        assert multipliers[:3] == pytest.approx(multipliers[0])
        assert multipliers[3:6] == pytest.approx(multipliers[0] / 2)
        assert multipliers[9] == pytest.approx(multipliers[0] / 8)

    def test_noise_fitted_by_least_squares_is_brought_back_to_the_budget(self):
        # The paper fits sigma_t = s_0 exp(-kt) to the best schedule; the fit alone does not keep
        # sum 1/sigma_t^2.
        influences, budget, times = quadratic_influences(np.array([0.02, 0.3, 1.0]), 1.0, 40), 0.04, np.arange(40)
        best = np.sqrt(np.sqrt(influences).sum() / np.sqrt(influences) / budget)
        assert (1 / best**2).sum() == pytest.approx(budget)
        (scale, rate), _ = optimize.curve_fit(lambda t, s, k: s * np.exp(-k * t), times, best, p0=(best[0], 0.01))
        fitted = scale * np.exp(-rate * times)
        assert abs((1 / fitted**2).sum() / budget - 1) > 0.05
        multipliers = noise_multipliers(shapes.noise(fitted))
        assert multipliers / multipliers[0] == pytest.approx(fitted / fitted[0], rel=1e-6)
        assert math.sqrt(math.fsum(1 / multipliers**2)) == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-9)

    @pytest.mark.parametrize("shape", [shapes.noise, shapes.influence])
    @pytest.mark.parametrize("wrong", [[1.0, 0.0], [1.0, -2.0], [math.nan, 1.0], [math.inf, 1.0]], ids=repr)
    def test_only_positive_numbers_have_a_shape(self, shape, wrong):
        with pytest.raises(InvalidArgument):
            shape(wrong)

    def test_a_shape_too_steep_for_numbers_is_refused(self):
        with np.errstate(over="ignore"), pytest.raises(InvalidArgument, match="too steep"):
            shapes.step_decay(10_000, 10.0, every=1)
