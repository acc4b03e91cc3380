"""Dynamic noise: influences by impulse responses, optima by search, bounds by following quadratics
exactly.
"""

import math

import numpy as np
import pytest
from scipy import optimize

from privypurse.accounting.convert import zcdp_epsilon, zcdp_rho
from privypurse.accounting.pld import pld_epsilon
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import GaussianCharge, RepeatedCharge
from privypurse.core.queries import Released
from privypurse.losses import Logistic
from privypurse.methods.dynamic import (
    best_dynamic_steps,
    best_uniform_steps,
    contraction,
    dynamic_bound,
    geometric_influences,
    loss_bound,
    momentum_influences,
    quadratic_influences,
    relative_noise,
    uniform_bound,
)
from privypurse.training._plan import Facts
from privypurse.training.optimizers._gradient_descent import SmoothedDescent
from privypurse.training.schedules import shapes

GRID = [(noise, kappa) for noise in (1e-6, 1e-4, 1e-3, 1e-2, 0.3) for kappa in (1.5, 5, 20, 100, 251)]


def adult(epsilon, neighbouring="add-remove", **others):
    return Facts.of(
        Logistic(), records=39_074, dimension=124, epsilon=epsilon, delta=1e-8, neighbouring=neighbouring, **others
    )


def shares(weights):
    return np.array(weights) / np.sum(weights)


def least_dynamic_bound(gamma, alpha):
    """The least of `dynamic_bound` over all real numbers of steps."""
    c = alpha / (1 - math.sqrt(gamma)) ** 2
    return c / (1 + c)


def excess(curvatures, start, step_size, noise_variances):
    """Follow E[w^2] through noisy descent on ``sum_j l_j w_j^2 / 2`` and return the expected loss:
    exact, nothing is drawn.
    """
    second = np.asarray(start, dtype=float) ** 2
    for variance in noise_variances:
        second = (1 - step_size * curvatures) ** 2 * second + step_size**2 * variance
    return float(np.sum(curvatures * second) / 2)


class TestInfluences:
    @pytest.mark.parametrize("gamma", [0.3, 0.95, 0.999])
    def test_geometric_influences_are_the_impulse_responses_of_a_contraction(self, gamma):
        steps = 25
        for impulse in range(steps):
            value = 0.0
            for step in range(steps):
                value = gamma * value + (step == impulse)
            assert geometric_influences(steps, gamma)[impulse] == pytest.approx(value)

    @pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
    @pytest.mark.parametrize("gamma", [0.5, 0.95, 0.999])
    def test_momentum_influences_are_impulse_responses_of_the_optimizer(self, momentum, gamma):
        # On a flat loss the optimizer's moves are its averaged gradients: tell it one gradient of 1
        # among zeros, and add up
        # the squared moves as the bound does, each contracted by the steps that follow.
        steps, optimizer = 20, SmoothedDescent(step_size=1.0, records=1.0, momentum=momentum)
        for impulse in range(steps):
            state, value = optimizer.init(1), 0.0
            for step in range(steps):
                gradient = np.array([1.0 if step == impulse else 0.0])
                moved = optimizer.tell(state, Released(gradient, GaussianCharge(1.0), 1.0))
                value = gamma * value + float((moved["point"] - state["point"])[0]) ** 2
                state = moved
            assert momentum_influences(steps, gamma, momentum)[impulse] == pytest.approx(value, rel=1e-10)

    def test_without_momentum_they_are_geometric(self):
        assert momentum_influences(30, 0.9, 0.0) == pytest.approx(geometric_influences(30, 0.9))

    def test_momentum_flattens_the_influences_of_the_last_steps(self):
        plain, smooth = geometric_influences(60, 0.95), momentum_influences(60, 0.95, 0.9)
        assert smooth[30:].max() / smooth[30:].min() < plain[30:].max() / plain[30:].min()
        assert smooth[-1] < smooth[-5]

    def test_with_momentum_the_influences_are_those_of_the_bound_not_of_the_loss(self):
        # The bound adds up squares of what one gradient does at different steps, but on a quadratic
        # these moves have the same
        # sign and add up before they are squared. The schedule for the bound is then no better than
        # an even one.
        steps, curvature, momentum = 60, 0.3, 0.9
        optimizer = SmoothedDescent(step_size=1.0, records=1.0, momentum=momentum)
        true = []
        for impulse in range(steps):
            state = optimizer.init(1)
            for step in range(steps):
                gradient = curvature * state["point"] + (step == impulse)
                state = optimizer.tell(state, Released(gradient, GaussianCharge(1.0), 1.0))
            true.append(curvature / 2 * float(state["point"][0]) ** 2)
        even, best = steps * sum(true), np.sqrt(true).sum() ** 2
        planned = np.sum(true / shares(shapes.influence(momentum_influences(steps, 1 - curvature, momentum))))
        assert best < 0.6 * even
        assert planned == pytest.approx(even, rel=0.05)

    @pytest.mark.parametrize("step_size", [0.1, 1.0, 1.7])
    def test_quadratic_influences_are_what_noise_does_to_the_expected_loss(self, step_size):
        curvatures, steps = np.array([0.01, 0.2, 0.5, 1.0]), 30
        for impulse in range(steps):
            unit = np.arange(steps) == impulse
            true = excess(curvatures, np.zeros(4), step_size, unit)
            assert quadratic_influences(curvatures, step_size, steps)[impulse] == pytest.approx(true, rel=1e-10)

    def test_on_a_quadratic_dynamic_noise_gains_what_the_variance_of_roots_predicts(self):
        # T sum q - (sum sqrt q)^2 = T^2 Var[sqrt q]; the paper prints Var[q].
        rng = np.random.default_rng(0)
        curvatures, steps, step_size, budget = rng.uniform(0.02, 1.0, 12), 40, 1.0, 0.3
        q = quadratic_influences(curvatures, step_size, steps)
        even = excess(curvatures, np.zeros(12), step_size, 1 / (budget * np.full(steps, 1 / steps)))
        planned = excess(curvatures, np.zeros(12), step_size, 1 / (budget * shares(shapes.influence(q))))
        assert planned / even == pytest.approx(np.sqrt(q).sum() ** 2 / (steps * q.sum()))
        assert (even - planned) * budget == pytest.approx(steps**2 * np.var(np.sqrt(q)))
        assert (even - planned) * budget != pytest.approx(steps**2 * np.var(q), rel=0.5)


class TestTheBestShares:
    @pytest.mark.parametrize("seed", range(4))
    def test_no_search_finds_a_better_schedule_for_any_influences(self, seed):
        rng = np.random.default_rng(seed)
        q = np.exp(rng.normal(0, 2, 8))
        planned = shares(shapes.influence(q))
        least = float(np.sum(q / planned))
        assert least == pytest.approx(np.sqrt(q).sum() ** 2)
        found = optimize.minimize(
            lambda log_share: math.log(np.sum(q / np.exp(log_share))),
            rng.normal(math.log(1 / 8), 0.5, 8),
            constraints={"type": "eq", "fun": lambda log_share: np.exp(log_share).sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        assert found.success
        assert np.exp(found.x) == pytest.approx(planned, rel=1e-4)
        assert math.exp(found.fun) == pytest.approx(least, rel=1e-9)
        random_shares = rng.dirichlet(np.ones(8), 20_000)
        assert (q / random_shares).sum(axis=1).min() >= least

    @pytest.mark.parametrize(("gamma", "steps"), [(0.5, 5), (0.95, 60), (0.996, 300)])
    def test_the_closed_form_of_dynamic_noise(self, gamma, steps):
        # sigma_t^2 = (gamma^((t-T)/2) - gamma^(t/2)) / (1 - sqrt(gamma)) / R, against shares of R.
        budget, times = 0.37, np.arange(1, steps + 1)
        closed = (gamma ** ((times - steps) / 2) - gamma ** (times / 2)) / (1 - math.sqrt(gamma)) / budget
        assert (1 / closed).sum() == pytest.approx(budget)
        planned = shares(shapes.influence(geometric_influences(steps, gamma)))
        assert planned == pytest.approx(1 / (budget * closed))

    def test_noise_decays_with_the_fourth_root_of_the_contraction(self):
        planned = shares(shapes.influence(geometric_influences(40, 0.9)))
        assert planned[1:] / planned[:-1] == pytest.approx(0.9**-0.5)


class TestBounds:
    @pytest.mark.parametrize(("noise", "kappa"), GRID)
    def test_closed_forms_are_the_bound_at_their_shares(self, noise, kappa):
        gamma = contraction(kappa)
        for steps in (1, 2, 9, 80):
            even = np.full(steps, 1 / steps)
            dynamic = shares(shapes.influence(geometric_influences(steps, gamma)))
            assert uniform_bound(steps, gamma, noise) == pytest.approx(loss_bound(even, gamma, noise))
            assert dynamic_bound(steps, gamma, noise) == pytest.approx(loss_bound(dynamic, gamma, noise))
            assert dynamic_bound(steps, gamma, noise) <= uniform_bound(steps, gamma, noise) * (1 + 1e-12)

    def test_the_bound_is_its_recursion(self):
        gamma, noise, parts = 0.93, 4e-3, shares([3.0, 1.0, 1.0, 2.0, 5.0])
        value = 1.0
        for part in parts:
            value = gamma * value + noise / part
        assert loss_bound(parts, gamma, noise) == pytest.approx(value)

    @pytest.mark.parametrize(("noise", "kappa"), GRID)
    def test_the_best_numbers_of_steps_are_those_of_an_exhaustive_search(self, noise, kappa):
        gamma, most = contraction(kappa), 4000
        weights = np.sqrt(geometric_influences(most, gamma))[::-1]  # sqrt(gamma)^0, sqrt(gamma)^1, ...
        every = np.arange(1, most + 1)
        dynamic = gamma**every + noise * np.cumsum(weights) ** 2
        uniform = gamma**every + noise * every * np.cumsum(weights**2)
        assert best_dynamic_steps(gamma, noise, most) == 1 + dynamic.argmin()
        assert best_uniform_steps(gamma, noise, most) == 1 + uniform.argmin()

    @pytest.mark.parametrize(("noise", "kappa"), GRID)
    def test_the_least_dynamic_bound(self, noise, kappa):
        gamma = contraction(kappa)
        found = optimize.minimize_scalar(
            lambda log_steps: dynamic_bound(math.exp(log_steps), gamma, noise), bounds=(-8, 9), method="bounded"
        )
        assert least_dynamic_bound(gamma, noise) == pytest.approx(found.fun, rel=1e-6)
        assert dynamic_bound(best_dynamic_steps(gamma, noise, 10_000), gamma, noise) >= least_dynamic_bound(
            gamma, noise
        )

    def test_steps_stay_within_the_limit(self):
        assert best_dynamic_steps(0.99, 1e-8, most=7) == 7
        assert best_uniform_steps(0.99, 1e-8, most=7) == 7
        assert best_dynamic_steps(0.99, 1e3, most=7) == 1

    @pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
    @pytest.mark.parametrize("shape", ["uniform", "dynamic"])
    def test_the_bound_holds_on_quadratics(self, neighbouring, shape):
        facts = adult(0.8, neighbouring, l2=0.02)
        kappa = facts.smoothness / 0.02
        gamma, gap = contraction(kappa), facts.bounds.initial_gap
        steps = {"uniform": best_uniform_steps, "dynamic": best_dynamic_steps}[shape](gamma, relative_noise(facts), 500)
        assert steps > 5
        q = geometric_influences(steps, gamma)
        parts = shares(shapes.influence(q) if shape == "dynamic" else shapes.uniform(steps))
        bound = gap * loss_bound(parts, gamma, relative_noise(facts))
        variances = (facts.sensitivity / (facts.records * facts.mu)) ** 2 / parts  # one release of noise 1/mu, split
        for curvatures in (
            np.full(124, 0.02),
            np.full(124, facts.smoothness),
            np.geomspace(0.02, facts.smoothness, 124),
        ):
            start = np.zeros(124)
            start[0] = math.sqrt(2 * gap / curvatures[0])
            assert excess(curvatures, start, 1 / facts.smoothness, variances) <= bound

    def test_alpha_is_the_damage_of_one_step_that_gets_the_whole_budget(self):
        # On a loss of curvature M in every direction a step of 1/M goes straight to the optimum:
        # what is left is noise.
        facts = adult(0.1, l2=1e-3)
        variance = (facts.sensitivity / (facts.records * facts.mu)) ** 2
        left = excess(np.full(124, facts.smoothness), np.full(124, 0.3), 1 / facts.smoothness, [variance])
        assert relative_noise(facts) * facts.bounds.initial_gap == pytest.approx(left)

    def test_replacing_a_record_moves_the_sum_twice_as_far(self):
        assert relative_noise(adult(0.1, "replace-one")) == pytest.approx(4 * relative_noise(adult(0.1, "add-remove")))

    def test_worst_case_constants_say_nothing_at_small_budgets(self):
        # Adult, ridge 1e-3, epsilon 0.1: the best bound is hardly below what not training at all
        # would leave.
        noise, gamma = relative_noise(adult(0.1, l2=1e-3)), contraction(251)
        assert least_dynamic_bound(gamma, noise) > 0.99
        assert best_dynamic_steps(gamma, noise, 10_000) < 5


class TestPrintedFormulas:
    def test_the_printed_number_of_uniform_steps_lost_kappa(self):
        # Eq. 23: T = ln(1 + ln(1/gamma)/alpha) / ln(1/gamma).
        gamma, noise = contraction(20), 1e-3
        printed = round(math.log1p(math.log(1 / gamma) / noise) / math.log(1 / gamma))
        assert printed == 77
        assert uniform_bound(printed, gamma, noise) == pytest.approx(1.53, abs=0.005)  # worse than not training
        assert best_uniform_steps(gamma, noise, 1000) == 19
        assert uniform_bound(19, gamma, noise) == pytest.approx(0.614, abs=5e-4)

    def test_the_inverse_of_the_conversion_has_a_minus(self):
        epsilon, log_inverse = 4.0, math.log(1e8)
        root = 2 * math.sqrt(log_inverse * (epsilon + log_inverse))
        minus, plus = epsilon + 2 * log_inverse - root, epsilon + 2 * log_inverse + root
        assert zcdp_rho(4.0, 1e-8, "classic") == pytest.approx(minus, rel=1e-9)
        assert minus == pytest.approx(0.1963, abs=1e-4)
        assert plus == pytest.approx(81.5, abs=0.05)
        assert zcdp_epsilon(minus, 1e-8, "classic") == pytest.approx(4.0)
        assert zcdp_epsilon(plus, 1e-8, "classic") > 100

    def test_momentum_does_not_contract_as_theorem_4_4_claims(self):
        # Claimed: 1 - eta0/kappa with steps of eta0/(2M). Without noise, along the flattest
        # direction, and hardly any momentum:
        eta0, kappa = 0.25, 10.0
        optimizer = SmoothedDescent(step_size=eta0 / 2, records=1.0, momentum=1e-9)
        state = {**optimizer.init(1), "point": np.ones(1)}
        moved = optimizer.tell(state, Released(state["point"] / kappa, GaussianCharge(1.0), 1.0))
        contracted, claimed = float(moved["point"][0]) ** 2, 1 - eta0 / kappa
        assert claimed == pytest.approx(0.97500, abs=5e-6)
        assert contracted == pytest.approx(0.97516, abs=5e-6)
        assert claimed < contracted <= 1 - eta0 / (2 * kappa)  # the right-hand side is the corrected claim

    @pytest.mark.parametrize(
        ("rate", "noise", "steps", "heuristic", "exact"),
        [
            (0.01, 1.0, 1000, 1.57, 1.83),
            (0.01, 0.6, 1000, 2.67, 7.43),
            (0.01, 0.4, 100, 1.23, 12.2),
            (0.1, 0.5, 100, 11.6, 31.4),
        ],
    )
    def test_sampling_does_not_cost_its_square(self, rate, noise, steps, heuristic, exact):
        # 4.3 prices a sampled step at p^2/sigma^2, of which rho is half.
        claimed = zcdp_epsilon(steps * rate**2 / (2 * noise**2), 1e-5, "classic")
        true = pld_epsilon(
            [RepeatedCharge(GaussianCharge(noise, rate), steps)], 1e-5, Neighbouring.ADD_REMOVE, interval=1e-3
        )
        assert claimed == pytest.approx(heuristic, rel=3e-3)
        assert true == pytest.approx(exact, rel=3e-3)
        assert claimed < true
