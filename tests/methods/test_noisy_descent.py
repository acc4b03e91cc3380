"""Averaged projected descent, the number of steps, and the public facts they are computed from."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from privypurse.accounting._filters import GdpFilter, ZcdpFilter
from privypurse.accounting.convert import gdp_delta, gdp_mu, zcdp_epsilon
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.core.charges import GaussianCharge
from privypurse.core.queries import Released
from privypurse.losses import Hinge, Logistic, Squared
from privypurse.methods._nesterov import FEWEST_STEPS, MOST_STEPS, balanced_steps
from privypurse.methods._noisy_pgd import excess_bound, noise_squared, projected_step_size, projected_steps
from privypurse.training._plan import Facts
from privypurse.training.optimizers import GradientDescent
from privypurse.training.optimizers._base import Averaged


def facts(neighbouring="add-remove", *, epsilon=0.5, records=40_000, dimension=124, loss=None, **others):
    return Facts.of(
        Logistic() if loss is None else loss,
        records=records,
        dimension=dimension,
        epsilon=epsilon,
        delta=1e-8,
        neighbouring=neighbouring,
        **others,
    )


class TestProjectedDescent:
    @pytest.mark.parametrize("distance", [0.5, 10.0])
    @pytest.mark.parametrize("noise", [0.0, 0.3, 40.0])
    @pytest.mark.parametrize("steps", [1, 30, 1000])
    def test_the_step_size_minimises_the_bound_of_the_proof(self, distance, noise, steps):
        # Adding up the progress of each step: R^2/(2 eta T) + eta (G^2 + d s^2)/2 for any step size
        # eta.
        gradient = 1.5

        def at(log_size):
            size = math.exp(log_size)
            return distance**2 / (2 * size * steps) + size * (gradient**2 + noise) / 2

        found = optimize.minimize_scalar(at, bounds=(-15, 15), method="bounded", options={"xatol": 1e-10})
        assert projected_step_size(distance, gradient, noise, steps) == pytest.approx(math.exp(found.x), rel=1e-5)
        assert excess_bound(distance, gradient, noise, steps) == pytest.approx(found.fun, rel=1e-9)

    @pytest.mark.parametrize("best", [-1.0, -0.7, 0.3, 1.0])
    @pytest.mark.parametrize("noise_std", [0.1, 1.0, 5.0])
    def test_the_bound_holds_for_descent_on_an_interval(self, best, noise_std):
        # Minimise 2|w - best| on [-1, 1] from -1. The distribution of w is followed on a fine grid,
        # projection included.
        gradient, distance, steps = 2.0, 2.0, 40
        grid = np.linspace(-1, 1, 801)
        edges = (grid[1:] + grid[:-1]) / 2
        size = projected_step_size(distance, gradient, noise_std**2, steps)
        ahead = grid - size * gradient * np.sign(grid - best)
        below = stats.norm.cdf((edges[None, :] - ahead[:, None]) / (size * noise_std))
        move = np.diff(below, prepend=0.0, append=1.0, axis=1)
        where, losses = np.eye(801)[0], []
        for _ in range(steps):
            losses.append(gradient * float(where @ np.abs(grid - best)))  # at the points where gradients are taken
            where = where @ move
        assert np.mean(losses) <= excess_bound(distance, gradient, noise_std**2, steps)

    def test_the_average_is_over_the_points_where_gradients_were_taken(self):
        # w_0 to w_(T-1), as in the proof; the notes write w_1 to w_T.
        optimizer = Averaged(GradientDescent(step_size=0.7, records=1.0))
        state, asked = optimizer.init(2), []
        for gradient in ([1.0, -2.0], [0.5, 3.0], [-4.0, 1.0]):
            asked.append(optimizer.ask(state).point)
            state = optimizer.tell(state, Released(np.array(gradient), GaussianCharge(1.0), 1.0))
        assert asked[0].tolist() == [0.0, 0.0]
        assert optimizer.point(state) == pytest.approx(np.mean(asked, axis=0))

    @pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
    @pytest.mark.parametrize("steps", [1, 10, 500])
    def test_noise_is_that_of_releases_that_spend_the_budget(self, neighbouring, steps):
        known = facts(neighbouring)
        std = math.sqrt(noise_squared(known, steps) / known.dimension)  # in each coordinate of the mean gradient
        costs = [(known.sensitivity / known.records / std) ** 2 for _ in range(steps)]
        delta = gdp_delta(math.sqrt(math.fsum(costs)), known.epsilon)
        assert delta == pytest.approx(known.delta, rel=1e-6)

    @pytest.mark.parametrize("steps", [1, 10, 500])
    def test_under_replacement_the_bound_is_that_of_the_lecture(self, steps):
        known, radius, gradient = facts("replace-one"), 7.0, 1.0
        rho = known.mu**2 / 2
        bound = excess_bound(radius, gradient, noise_squared(known, steps), steps)
        lecture = radius * gradient * math.sqrt(1 / steps + 2 * known.dimension / (known.records**2 * rho))
        assert bound == pytest.approx(lecture)

    @pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
    @pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
    def test_the_planned_steps_are_within_the_root_of_two_of_the_floor(self, neighbouring, epsilon):
        known = facts(neighbouring, epsilon=epsilon)
        planned = projected_steps(known, 1.0, most=10**9)
        bounds = [excess_bound(1.0, 1.0, noise_squared(known, steps), steps) for steps in (planned, 10**9)]
        assert bounds[0] / bounds[1] == pytest.approx(math.sqrt(2), rel=0.01)
        if neighbouring == "replace-one":
            assert planned == round(known.records**2 * known.mu**2 / 2 / (2 * known.dimension))

    def test_the_planned_steps_stay_within_limits(self):
        assert projected_steps(facts(epsilon=2.0), 1.0, most=50) == 50
        assert projected_steps(facts(epsilon=0.05, records=10), 1.0, most=50) == 1


class TestTheLecturesCalibration:
    """Noise (2G/n) sqrt(2T ln(1/delta)) / epsilon: T steps of it are epsilon/sqrt(2
    ln(1/delta))-GDP, whatever T, G and n.
    """

    @staticmethod
    def largest_valid_epsilon(delta, factor):
        def log_overshoot(epsilon):
            mu = epsilon / math.sqrt(2 * math.log(factor / delta))
            return math.log(gdp_delta(mu, epsilon) / delta)

        largest = optimize.brentq(log_overshoot, 5, 15)
        assert all(log_overshoot(epsilon) < 0 for epsilon in np.geomspace(0.01, largest * 0.999, 60))
        return largest

    @pytest.mark.parametrize(("delta", "largest"), [(1e-5, 7.968), (1e-8, 8.943)])
    def test_it_is_valid_far_beyond_one(self, delta, largest):
        assert self.largest_valid_epsilon(delta, 1.0) == pytest.approx(largest, abs=1e-3)

    @pytest.mark.parametrize(("delta", "largest"), [(1e-5, 8.420), (1e-8, 9.374)])
    def test_the_textbooks_form_is_valid_a_little_further(self, delta, largest):
        assert self.largest_valid_epsilon(delta, 1.25) == pytest.approx(largest, abs=1e-3)

    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
    def test_concentrated_accounting_cannot_see_it(self, epsilon):
        rho = (epsilon / math.sqrt(2 * math.log(1e8))) ** 2 / 2
        assert zcdp_epsilon(rho, 1e-8, "classic") == pytest.approx(epsilon + epsilon**2 / (4 * math.log(1e8)))


class TestBalancedSteps:
    @pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
    def test_each_step_has_noise_of_one_over_the_root_of_their_number(self, neighbouring):
        known = facts(neighbouring, epsilon=0.1, loss=Logistic(clip_derivative=0.5))
        steps = balanced_steps(known)
        assert FEWEST_STEPS < steps < MOST_STEPS
        assert math.sqrt(noise_squared(known, steps)) / known.gradient_bound == pytest.approx(
            1 / math.sqrt(steps), rel=0.02
        )

    def test_replacement_halves_them(self):
        assert balanced_steps(facts("replace-one", epsilon=0.1)) == pytest.approx(
            balanced_steps(facts(epsilon=0.1)) / 2, abs=0.5
        )

    def test_they_are_n_mu_over_the_root_of_d_under_add_remove(self):
        known = facts(epsilon=0.1)
        assert balanced_steps(known) == round(40_000 * gdp_mu(0.1, 1e-8) / math.sqrt(124)) == 78

    def test_they_stay_within_limits(self):
        assert balanced_steps(facts(epsilon=2.0)) == MOST_STEPS
        assert balanced_steps(facts(epsilon=0.01)) == FEWEST_STEPS
        assert balanced_steps(facts(epsilon=2.0), most=33) == 33


class TestFacts:
    def test_sensitivity_is_by_the_relation_and_the_tighter_limit(self):
        assert facts().sensitivity == 1.0
        assert facts("replace-one").sensitivity == 2.0
        assert facts(clip_norm=0.25).sensitivity == 0.25
        assert facts(clip_norm=5.0).sensitivity == 1.0
        assert facts(loss=Logistic(clip_derivative=0.5), row_limit=3.0).sensitivity == 1.5

    def test_the_budget_is_exact(self):
        known = facts()
        assert gdp_delta(known.mu, 0.5) == pytest.approx(1e-8, rel=1e-6)
        assert gdp_delta(known.mu, 0.5) <= 1e-8
        assert facts(filter="zcdp").mu < known.mu

    def test_what_was_spent_is_gone(self):
        for rule in (GdpFilter(0.5, 1e-8, "add-remove"), ZcdpFilter(0.5, 1e-8, "add-remove")):
            whole = Facts(records=100, dimension=3, rule=rule, bounds=Logistic().bounds(1.0, 1.0))
            spent = rule.admit(rule.start(), GaussianCharge(2 / whole.mu))  # a quarter of mu^2
            rest = Facts(records=100, dimension=3, rule=rule, bounds=whole.bounds, spent=spent)
            assert rest.mu**2 == pytest.approx(0.75 * whole.mu**2, rel=1e-6)
            assert rest.epsilon < whole.epsilon
            full = rule.admit(spent, GaussianCharge(1 / rest.mu))
            with pytest.raises(BudgetExhausted, match="nothing is left"):
                _ = Facts(records=100, dimension=3, rule=rule, bounds=whole.bounds, spent=full).mu

    def test_the_noise_floor_is_the_noise_of_one_release(self):
        known = facts("replace-one", clip_norm=0.5)
        assert known.noise_floor == pytest.approx(math.sqrt(noise_squared(known, 1)) / 0.5)

    def test_the_ridge_adds_to_the_curvature(self):
        assert facts(l2=0.01).smoothness == pytest.approx(0.26)

    def test_a_kink_has_no_curvature_to_plan_with(self):
        with pytest.raises(InvalidArgument, match="HuberHinge"):
            _ = facts(loss=Hinge()).smoothness

    def test_an_unbounded_gradient_needs_a_clip_norm(self):
        with pytest.raises(InvalidArgument, match="clip_norm is needed"):
            facts(loss=Squared())
        assert facts(loss=Squared(), clip_norm=2.0).gradient_bound == 2.0

    @pytest.mark.parametrize(
        "wrong", [{"records": 0}, {"dimension": 1.5}, {"l2": -1.0}, {"radius": math.nan}, {"filter": "x"}]
    )
    def test_bad_facts_are_refused_by_name(self, wrong):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            facts(**wrong)
