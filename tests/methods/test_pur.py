"""PUR schedules: costs summed step by step, guarantees run through their own recursions, and the
printed formulas that fail.

The numbers of the paper's experiments are Adult's: 39,074 records, 124 parameters, logistic loss on
rows of length one.
"""

import math

import numpy as np
import pytest

from privypurse.accounting.convert import zcdp_rho
from privypurse.methods import _pur as pur

RECORDS, DIMENSION, LIPSCHITZ = 39_074, 124, 1.0
SENSITIVITY = 2 * LIPSCHITZ / RECORDS  # replace-one, on the mean gradient
GAP = math.log(2)
NON_CONVEX = {"smoothness": 0.25, "gap": GAP, "dimension": DIMENSION}
CONVEX = {"smoothness": 0.25, "radius": 10.0, "dimension": DIMENSION}
# The ridge is the strong convexity; a curvature of 1/4 above it gives kappa = 26 and 251.
STRONGLY_CONVEX = {
    kappa: {"smoothness": 0.25 + ridge, "convexity": ridge, "gap": GAP, "dimension": DIMENSION}
    for kappa, ridge in ((26, 0.01), (251, 0.001))
}


def sum_of_squares(steps):
    return steps * (steps + 1) * (2 * steps + 1) / 6


def nonconvex_cost(steps, *, sensitivity, smoothness, gap, dimension):
    """The exact rho of so many steps, in closed form."""
    return sensitivity**2 * dimension / (32 * smoothness * gap) * sum_of_squares(steps)


def convex_cost(steps, *, sensitivity, smoothness, radius, dimension):
    return sensitivity**2 * dimension / (32 * (smoothness * radius) ** 2) * sum_of_squares(steps)


def strongly_convex_cost(steps, *, sensitivity, smoothness, convexity, gap, dimension):
    kappa = smoothness / convexity
    unit = sensitivity**2 * dimension / (4 * convexity * gap) * (2 * kappa - 1)
    return unit * math.expm1(steps * math.log(2 * kappa / (2 * kappa - 1)))


CASES = [
    pytest.param(pur.nonconvex_noise, nonconvex_cost, NON_CONVEX, id="non-convex"),
    pytest.param(pur.convex_noise, convex_cost, CONVEX, id="convex"),
    pytest.param(pur.strongly_convex_noise, strongly_convex_cost, STRONGLY_CONVEX[26], id="kappa-26"),
    pytest.param(pur.strongly_convex_noise, strongly_convex_cost, STRONGLY_CONVEX[251], id="kappa-251"),
]


def damage(noise, smoothness, dimension):
    """What the noise of each step adds to the expected loss, by the descent lemma with steps of
    1/(2M).
    """
    return smoothness / 2 * (1 / (2 * smoothness)) ** 2 * dimension * np.asarray(noise) ** 2


def walk(rho, costs):
    """Count the steps that fit a budget by taking them one at a time."""
    spent = 0.0
    for made, cost in enumerate(costs):
        spent += cost
        if spent > rho:
            return made
    raise AssertionError("the budget outlasts the steps")


def squared_gradients_and_loss(curvatures, start, step_size, noise):
    """Follow E[w^2] through noisy descent on ``sum_j l_j w_j^2 / 2``: exact, nothing is drawn."""
    second, gradients = np.array(start, dtype=float) ** 2, []
    for std in noise:
        gradients.append(float(np.sum(curvatures**2 * second)))
        second = (1 - step_size * curvatures) ** 2 * second + step_size**2 * std**2
    return gradients, float(np.sum(curvatures * second) / 2)


class TestCostsAndNumbersOfSteps:
    @pytest.mark.parametrize(("noise", "cost", "public"), CASES)
    def test_the_cost_is_the_sum_over_the_steps(self, noise, cost, public):
        for steps in (1, 2, 7, 60, 400):
            summed = math.fsum(SENSITIVITY**2 / (2 * std**2) for std in noise(steps, **public))
            assert cost(steps, sensitivity=SENSITIVITY, **public) == pytest.approx(summed, rel=1e-12)
            assert pur.cost_of(noise(steps, **public), SENSITIVITY)[-1] == pytest.approx(summed, rel=1e-12)

    @pytest.mark.parametrize(("noise", "cost", "public"), CASES)
    @pytest.mark.parametrize("epsilon", [0.1, 0.4, 1.0, 4.0])
    def test_the_number_of_steps_is_the_one_found_by_walking(self, noise, cost, public, epsilon):
        rho = zcdp_rho(epsilon, 1e-8)
        planned = pur.steps_within(rho, noise(10_000, **public), SENSITIVITY)
        assert planned == walk(rho, SENSITIVITY**2 / (2 * noise(10_000, **public) ** 2)) > 0
        assert cost(planned, sensitivity=SENSITIVITY, **public) <= rho
        assert cost(planned + 1, sensitivity=SENSITIVITY, **public) > rho

    @pytest.mark.parametrize(("noise", "cost", "public"), CASES)
    def test_scaled_noise_spends_the_rest_and_is_never_more(self, noise, cost, public):
        rho = zcdp_rho(1.0, 1e-8)
        planned = pur.steps_within(rho, noise(10_000, **public), SENSITIVITY)
        scale = math.sqrt(cost(planned, sensitivity=SENSITIVITY, **public) / rho)
        assert scale <= 1
        scaled = scale * noise(planned, **public)
        assert pur.cost_of(scaled, SENSITIVITY)[-1] == pytest.approx(rho, rel=1e-12)

    def test_no_step_fits_a_budget_smaller_than_the_first(self):
        ones = np.full(50, math.sqrt(0.5))  # each costs 1 at sensitivity 1
        assert pur.cost_of(ones, 1.0) == pytest.approx(np.arange(1, 51))
        assert pur.steps_within(0.99, ones, 1.0) == 0
        assert pur.steps_within(7.5, ones, 1.0) == 7
        assert pur.steps_within(1e9, ones, 1.0) == 50

    @pytest.mark.parametrize("kappa", [26, 251])
    @pytest.mark.parametrize("epsilon", [0.1, 0.4, 1.0, 4.0])
    def test_the_corrected_number_of_strongly_convex_steps(self, kappa, epsilon):
        rho, public = zcdp_rho(epsilon, 1e-8), STRONGLY_CONVEX[kappa]
        unit = DIMENSION * LIPSCHITZ**2 / (RECORDS**2 * public["convexity"] * GAP)
        formula = math.log1p(rho / ((2 * kappa - 1) * unit)) / math.log(2 * kappa / (2 * kappa - 1))
        planned = pur.steps_within(rho, pur.strongly_convex_noise(10_000, **public), SENSITIVITY)
        assert planned == math.floor(formula)

    def test_an_exact_sum_of_squares_affords_more_steps_than_its_bound(self):
        # The paper bounds 1 + 4 + ... + T^2 by T^3; the exact sum is a third of that, hence 3^(1/3)
        # = 1.44 times the steps.
        for allowed in (1e4, 1e5, 1e6, 1e8):
            printed = math.floor(allowed ** (1 / 3))
            exact = walk(allowed, (step**2 for step in range(1, 10_000)))
            assert exact == pur.steps_within(allowed, math.sqrt(0.5) / np.arange(1, 10_000), 1.0)
            assert 1.42 < exact / printed < 1.45

    def test_noise_is_capped_where_it_drowns_any_gradient(self):
        # With R = 10 and M = 1/4 the noise of the first nine steps is longer than a gradient of
        # length 1 can be.
        noise = pur.convex_noise(30, **CONVEX)
        capped = pur.capped(noise, gradient=LIPSCHITZ, dimension=DIMENSION)
        assert (np.sqrt(DIMENSION) * noise > LIPSCHITZ + 1e-9).sum() == 9
        assert np.sqrt(DIMENSION) * capped.max() == pytest.approx(LIPSCHITZ)
        assert capped[10:].tolist() == noise[10:].tolist()


class TestGuarantees:
    def test_convex_noise_decays_as_the_lemma_needs(self):
        # Lemma 2 takes r/s^2 at step s = 1, 2, ...: with r = 2 M R^2 <= 1/q, q = 3/(8 M R^2), and a
        # start below 1/q.
        smoothness, radius = CONVEX["smoothness"], CONVEX["radius"]
        steps = np.arange(1, 301)
        allowed = 2 * smoothness * radius**2 / steps**2
        assert damage(pur.convex_noise(300, **CONVEX), smoothness, DIMENSION) == pytest.approx(allowed)
        q = 3 / (8 * smoothness * radius**2)
        assert max(2 * smoothness * radius**2, smoothness * radius**2 / 2) <= 1 / q

    @pytest.mark.parametrize("start", [0.0, 0.25, 0.5, 1.0])
    def test_the_convex_bound_holds_along_its_worst_recursion(self, start):
        smoothness, radius = CONVEX["smoothness"], CONVEX["radius"]
        worst_start = smoothness * radius**2 / 2
        value, added = start * worst_start, damage(pur.convex_noise(3000, **CONVEX), smoothness, DIMENSION)
        for step in range(1, 3001):
            value = value - 3 / (8 * smoothness * radius**2) * value**2 + added[step - 1]
            assert value <= pur.convex_bound(step, smoothness=smoothness, radius=radius)

    def test_lemma_2_holds_with_a_fifth_to_spare(self):
        # With r = 1/q the recursion settles at V_t = g/(qt), where g = 1 + 1/g: the golden ratio,
        # over 2.
        worst = 0.0
        for start in np.linspace(0, 1, 21):
            value = float(start)
            for step in range(1, 20_001):
                value = value - value**2 + 1 / step**2
                worst = max(worst, value * step / 2)
        assert worst == pytest.approx(0.81, abs=0.002)
        assert worst < (1 + math.sqrt(5)) / 4

    def test_noise_that_decays_with_the_root_of_time_breaks_the_convex_bound(self):
        # The text's "4MR / sqrt(dt)", read as printed: its squares add up as 1 + 1/2 + 1/3 + ...,
        # without end.
        smoothness, radius = CONVEX["smoothness"], CONVEX["radius"]
        steps = np.arange(1, 20_001)
        printed = damage(4 * smoothness * radius / np.sqrt(DIMENSION * steps), smoothness, DIMENSION)
        right = damage(pur.convex_noise(20_000, **CONVEX), smoothness, DIMENSION)
        assert printed.sum() - printed[:2000].sum() == pytest.approx(
            2 * smoothness * radius**2 * math.log(10), rel=1e-3
        )
        assert right.sum() - right[:2000].sum() < 1e-3 * right.sum()
        value = smoothness * radius**2 / 2
        for added in printed:
            value = value - 3 / (8 * smoothness * radius**2) * value**2 + added
        assert value > 10 * pur.convex_bound(20_000, smoothness=smoothness, radius=radius)

    @pytest.mark.parametrize("kappa", [26, 251])
    def test_the_strongly_convex_bound_is_its_recursion(self, kappa):
        public = STRONGLY_CONVEX[kappa]
        value, added = GAP, damage(pur.strongly_convex_noise(2000, **public), public["smoothness"], DIMENSION)
        known = {name: public[name] for name in ("smoothness", "convexity", "gap")}
        for step in range(1, 2001):
            value = (1 - 3 / (4 * kappa)) * value + added[step - 1]
            assert value == pytest.approx(pur.strongly_convex_bound(step, **known), rel=1e-9)

    @pytest.mark.parametrize("kappa", [26, 251])
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
    def test_the_strongly_convex_bound_in_terms_of_the_budget(self, kappa, epsilon):
        # B r^-T <= 2 kappa L^2 d/(mu N^2 rho), also after rounding T down.
        rho, public = zcdp_rho(epsilon, 1e-8), STRONGLY_CONVEX[kappa]
        planned = walk(rho, SENSITIVITY**2 / (2 * pur.strongly_convex_noise(10_000, **public) ** 2))
        bound = pur.strongly_convex_bound(
            planned, smoothness=public["smoothness"], convexity=public["convexity"], gap=GAP
        )
        assert bound <= 2 * kappa * LIPSCHITZ**2 * DIMENSION / (public["convexity"] * RECORDS**2 * rho)

    def test_the_non_convex_bound_is_the_sum_of_the_descent_lemma(self):
        # B >= 3/(8M) sum |gradient|^2 - sum damage, so the mean squared gradient is at most 8M (B +
        # sum damage)/(3T).
        public = {"smoothness": 0.25, "gap": GAP}
        added = damage(pur.nonconvex_noise(100_000, **NON_CONVEX), 0.25, DIMENSION)
        for steps in (1, 10, 1000, 100_000):
            promised = 8 * 0.25 * (GAP + added[:steps].sum()) / (3 * steps)
            assert promised <= pur.nonconvex_bound(steps, **public)
        assert promised == pytest.approx(pur.nonconvex_bound(100_000, **public), rel=1e-5)


class TestOnQuadratics:
    """Descent on a diagonal quadratic, where the expected loss can be followed exactly."""

    @pytest.mark.parametrize("smoothness", [0.01, 0.25, 1.0, 10.0, 1000.0])
    @pytest.mark.parametrize("gap", [0.1, 5.0])
    def test_the_non_convex_guarantee_holds(self, smoothness, gap):
        for curvatures in (np.full(12, smoothness), smoothness * np.geomspace(1e-3, 1, 12)):
            for first in (0, -1):
                start = np.zeros(12)
                start[first] = math.sqrt(2 * gap / curvatures[first])
                noise = pur.nonconvex_noise(200, smoothness=smoothness, gap=gap, dimension=12)
                gradients, _ = squared_gradients_and_loss(curvatures, start, 1 / (2 * smoothness), noise)
                for steps in (1, 2, 5, 50, 200):
                    bound = pur.nonconvex_bound(steps, smoothness=smoothness, gap=gap)
                    assert np.mean(gradients[:steps]) <= bound

    def test_the_printed_non_convex_bound_does_not_hold(self):
        # Printed: noise 4 M sqrt(B)/(sqrt(d) t), bound 8 (pi^2 M/3 + 1) B/(3T); the second lost a
        # factor M.
        smoothness, gap, steps = 10.0, 1.0, 50
        noise = 4 * smoothness * math.sqrt(gap) / (math.sqrt(12) * np.arange(1, steps + 1))
        curvatures = np.full(12, smoothness)
        start = np.full(12, math.sqrt(2 * gap / smoothness / 12))
        gradients, _ = squared_gradients_and_loss(curvatures, start, 1 / (2 * smoothness), noise)
        printed = 8 * (math.pi**2 * smoothness / 3 + 1) * gap / (3 * steps)
        assert np.mean(gradients) > 4 * printed

    @pytest.mark.parametrize("kappa", [26, 251])
    @pytest.mark.parametrize("epsilon", [0.4, 1.0, 4.0])
    def test_the_strongly_convex_guarantee_holds(self, kappa, epsilon):
        rho, public = zcdp_rho(epsilon, 1e-8), STRONGLY_CONVEX[kappa]
        smoothness, convexity = public["smoothness"], public["convexity"]
        planned = walk(rho, SENSITIVITY**2 / (2 * pur.strongly_convex_noise(10_000, **public) ** 2))
        noise = pur.strongly_convex_noise(planned, **public)
        bound = pur.strongly_convex_bound(planned, smoothness=smoothness, convexity=convexity, gap=GAP)
        for curvatures in (
            np.full(DIMENSION, convexity),
            np.full(DIMENSION, smoothness),
            np.geomspace(convexity, smoothness, DIMENSION),
        ):
            for first in (0, -1):
                start = np.zeros(DIMENSION)
                start[first] = math.sqrt(2 * GAP / curvatures[first])
                _, loss = squared_gradients_and_loss(curvatures, start, 1 / (2 * smoothness), noise)
                assert loss <= bound

    def test_the_printed_strongly_convex_risk_does_not_hold(self):
        # Prop. 4c promises L^2 d/(N^2 mu rho). At the budget where that is 0.002, the steps that
        # fit leave six times as much.
        public, promised = STRONGLY_CONVEX[26], 0.002
        rho = LIPSCHITZ**2 * DIMENSION / (RECORDS**2 * public["convexity"] * promised)
        planned = walk(rho, SENSITIVITY**2 / (2 * pur.strongly_convex_noise(10_000, **public) ** 2))
        noise = pur.strongly_convex_noise(planned, **public)
        noise *= math.sqrt(pur.cost_of(noise, SENSITIVITY)[-1] / rho)  # nothing of the budget is left unused
        curvatures = np.full(DIMENSION, public["convexity"])
        start = np.full(DIMENSION, math.sqrt(2 * GAP / public["convexity"] / DIMENSION))
        _, loss = squared_gradients_and_loss(curvatures, start, 1 / (2 * public["smoothness"]), noise)
        assert loss == pytest.approx(0.01326, abs=5e-5)
        assert loss > 6 * promised


class TestPrintedFormulas:
    @pytest.mark.parametrize(("kappa", "times"), [(26, 25.95), (251, 246.5)])
    def test_the_printed_number_of_strongly_convex_steps_overspends_by_kappa(self, kappa, times):
        rho, public = zcdp_rho(1.0, 1e-8, conversion="classic"), STRONGLY_CONVEX[kappa]
        rate = math.log(2 * kappa / (2 * kappa - 1))
        inside = rho * public["convexity"] * GAP * RECORDS**2 / (2 * DIMENSION * LIPSCHITZ**2)
        printed = math.log(inside) / rate
        # The printed noise has the exponent t = 1..T, one step further down than
        # `strongly_convex_noise`.
        noise = pur.strongly_convex_noise(math.ceil(printed) + 1, **public)[1:]
        low, high = pur.cost_of(noise, SENSITIVITY)[[-2, -1]]
        # The cost grows as r^T, up to a constant: between whole numbers of steps it is read off the
        # geometric sum.
        unit = (high - low) / math.exp(rate * math.ceil(printed)) / -math.expm1(-rate)
        at_printed = low + unit * (math.exp(rate * printed) - math.exp(rate * math.floor(printed)))
        assert at_printed / rho == pytest.approx(times, abs=0.06)
        # Whichever way T is rounded, and also with the noise one step further up:
        assert low / rho > 0.98 * kappa
        whole = strongly_convex_cost(math.floor(printed), sensitivity=SENSITIVITY, **public)
        assert whole / rho > 0.97 * kappa

    def test_the_printed_number_of_steps_can_be_negative(self):
        rho, public = zcdp_rho(0.1, 1e-8, conversion="classic"), STRONGLY_CONVEX[251]
        inside = rho * public["convexity"] * GAP * RECORDS**2 / (2 * DIMENSION * LIPSCHITZ**2)
        assert math.log(inside) < 0
        noise = pur.strongly_convex_noise(10_000, **public)
        assert pur.steps_within(rho, noise, SENSITIVITY) == walk(rho, SENSITIVITY**2 / (2 * noise**2))

    def test_the_printed_convex_risk_lost_the_fourth_power_of_the_radius(self):
        rho, smoothness, radius = zcdp_rho(0.1, 1e-8, conversion="classic"), CONVEX["smoothness"], CONVEX["radius"]
        # The steps that T^3 instead of the sum of squares leaves, put into the bound of Prop. 3b.
        steps = (8 * rho * (RECORDS * smoothness * radius / LIPSCHITZ) ** 2 / DIMENSION) ** (1 / 3)
        true = pur.convex_bound(steps, smoothness=smoothness, radius=radius)
        printed = 8 / 3 * (LIPSCHITZ**2 * smoothness * radius * DIMENSION / (rho * RECORDS**2)) ** (1 / 3)
        assert printed == pytest.approx(0.305, abs=5e-4)
        assert true == pytest.approx(3.05, abs=5e-3)

    @pytest.mark.parametrize("factor", [0.01, 7.0, 100.0])
    def test_noise_scales_as_the_gradient_does(self, factor):
        # The same loss in other units has gradients in those units, so noise must follow; M
        # sqrt(B), as printed, does not.
        once = pur.nonconvex_noise(5, **NON_CONVEX)
        louder = {"smoothness": factor * 0.25, "gap": factor * GAP, "dimension": DIMENSION}
        assert pur.nonconvex_noise(5, **louder) == pytest.approx(factor * once)
        stretched = {"smoothness": factor**2 * 0.25, "gap": GAP, "dimension": DIMENSION}  # parameters in units 1/factor
        assert pur.nonconvex_noise(5, **stretched) == pytest.approx(factor * once)
        printed = [m * math.sqrt(b) for m, b in ((0.25, GAP), (factor * 0.25, factor * GAP), (factor**2 * 0.25, GAP))]
        assert printed[1] / printed[0] == pytest.approx(factor**1.5)
        assert printed[2] / printed[0] == pytest.approx(factor**2)

    @pytest.mark.parametrize("factor", [0.01, 7.0, 100.0])
    def test_costs_and_bounds_do_not_depend_on_the_units(self, factor):
        # Parameters in units 1/factor: gradients, and with them sensitivity, are multiplied; losses
        # stay as they are.
        radius, smoothness = CONVEX["radius"] / factor, CONVEX["smoothness"] * factor**2
        there = {"smoothness": smoothness, "radius": radius, "dimension": DIMENSION}
        cost = pur.cost_of(pur.convex_noise(40, **there), factor * SENSITIVITY)
        assert cost == pytest.approx(pur.cost_of(pur.convex_noise(40, **CONVEX), SENSITIVITY))
        bound = pur.convex_bound(40, smoothness=smoothness, radius=radius)
        assert bound == pytest.approx(pur.convex_bound(40, smoothness=CONVEX["smoothness"], radius=CONVEX["radius"]))
        # L^2 M R^4 has no unit of length left; L^2 M R, as printed in Prop. 4b, has three.
        assert factor**2 * smoothness * radius**4 == pytest.approx(CONVEX["smoothness"] * CONVEX["radius"] ** 4)
        assert factor**2 * smoothness * radius == pytest.approx(factor**3 * CONVEX["smoothness"] * CONVEX["radius"])
