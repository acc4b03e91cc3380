"""Schedules over a real budget: what each release costs, and that the last one spends the rest."""

import numpy as np
import pytest

from privypurse import BudgetExhausted, InvalidArgument
from privypurse.accounting._filters import GdpFilter, RdpFilter, ZcdpFilter
from privypurse.core.charges import BoundedRangeCharge, GaussianCharge
from privypurse.core.queries import GradientAt, LossesAlong, Released
from privypurse.training.schedules import EvenSplit, FollowGradientNorm, Weighted, shapes
from privypurse.training.schedules._adaptive import GrowingBudget, SigmoidPurse
from privypurse.training.schedules._base import Budget

GRADIENT = GradientAt(point=np.zeros(2))
SEARCH = LossesAlong(point=np.zeros(2), direction=np.ones(2), steps=[0.0, 1.0])


def make_budget(steps=100, rule=None, sample_prob=1.0):
    rule = GdpFilter(1.0, 1e-6, "add-remove") if rule is None else rule
    return Budget(rule, rule.start(), rule.start(), steps, sample_prob)


def walk(schedule, choices, budget=None, most=500, value=(1.0, 0.0)):
    """Alternate gradients and selections; return the share each took, until the schedule ends the
    run.
    """
    budget = make_budget() if budget is None else budget
    past, shares, selecting = [], [], False
    choices = iter(choices)
    for _ in range(most):
        try:
            mechanism = schedule.propose(SEARCH if selecting else GRADIENT, past, budget)
        except BudgetExhausted:
            break
        if selecting:
            released = Released(np.asarray(next(choices, 1)), BoundedRangeCharge(mechanism.epsilon))
        else:
            released = Released(np.array(value), GaussianCharge(mechanism.noise_multiplier), 1.0)
        after = budget.after(released.charge)
        shares.append(budget.left - after.left)
        past.append(released)
        budget, selecting = after, not selecting
    return shares, budget


@pytest.mark.parametrize("rule", [GdpFilter, ZcdpFilter, RdpFilter])
def test_shares_add_up_in_every_currency(rule):
    budget = make_budget(rule=rule(0.7, 1e-7, "replace-one"))
    half = budget.gaussian(0.5)
    budget = budget.after(GaussianCharge(half.noise_multiplier))
    assert budget.left == pytest.approx(0.5, rel=1e-9)
    quarter = budget.selection(0.25)
    budget = budget.after(BoundedRangeCharge(quarter.epsilon))
    assert budget.left == pytest.approx(0.25, rel=1e-6)
    rest = budget.gaussian(1.0)
    budget = budget.after(GaussianCharge(rest.noise_multiplier))
    assert budget.left < 1e-9
    with pytest.raises(BudgetExhausted):
        budget.gaussian(0.1)


def test_a_run_counts_shares_of_what_was_left_when_it_began():
    rule = GdpFilter(1.0, 1e-6, "add-remove")
    whole = Budget(rule, rule.start(), rule.start(), 10)
    spent = rule.after(rule.start(), GaussianCharge(whole.gaussian(0.75).noise_multiplier))
    rest = Budget(rule, spent, spent, 10)
    assert rest.left == 1.0
    assert rest.gaussian(1.0).noise_multiplier == pytest.approx(2 * whole.noise_multiplier)


class TestWeighted:
    def test_noise_follows_the_weights_and_the_budget_is_spent(self):
        budget, past, noise = make_budget(steps=4), [], []
        for _ in range(4):
            mechanism = Weighted((1, 2, 3, 4)).propose(GRADIENT, past, budget)
            noise.append(mechanism.noise_multiplier)
            past.append(Released(np.zeros(2), GaussianCharge(mechanism.noise_multiplier), 1.0))
            budget = budget.after(past[-1].charge)
        assert 1 / np.array(noise) ** 2 / (1 / noise[0] ** 2) == pytest.approx([1, 2, 3, 4], rel=1e-6)
        assert budget.left < 1e-9
        with pytest.raises(BudgetExhausted):
            Weighted((1, 2, 3, 4)).propose(GRADIENT, past, budget)

    def test_weights_from_noise_levels_give_that_noise_up_to_a_factor(self):
        levels = np.array([5.0, 1.0, 3.0])
        shares = Weighted(shapes.noise(levels.tolist())).shares
        assert np.sqrt(shares[1] / shares) == pytest.approx(levels / levels[1], rel=1e-9)

    @pytest.mark.parametrize("weights", [(), (1.0, 0.0), (1.0, -1.0), (float("nan"),)])
    def test_mistakes_are_named(self, weights):
        with pytest.raises(InvalidArgument, match="weights"):
            Weighted(weights)

    def test_steep_weights_are_floored_not_refused(self):
        assert Weighted((1e-30, 1.0)).shares[0] == pytest.approx(1e-7, rel=1e-3)

    def test_even_split_selects_where_scores_are_asked_for(self):
        assert EvenSplit().propose(SEARCH, [], make_budget(steps=4)).epsilon > 0


class TestGrowingBudget:
    def test_without_refusals_every_round_costs_the_same(self):
        shares, budget = walk(GrowingBudget(rounds=10, selection_share=0.3, growth=0.1), [1] * 99)
        assert shares[:-2:2] == pytest.approx([0.07] * 9)
        assert shares[1:-2:2] == pytest.approx([0.03] * 9)
        assert len(shares) == 20
        assert budget.left < 1e-9

    def test_a_refusal_costs_its_growth_and_raises_what_follows(self):
        shares, _ = walk(GrowingBudget(rounds=10, selection_share=0.3, growth=0.1), [0, 0, 1, 1, 1, 1, 1])
        gradient = 0.07
        assert shares[0] == pytest.approx(gradient)
        assert shares[2] == pytest.approx(0.1 * gradient)  # the second look
        assert shares[4] == pytest.approx(0.1 * 1.1 * gradient)  # the third, relative to both before
        assert shares[6] == pytest.approx(1.1**2 * gradient)  # the next round's gradient

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("refused", [0.0, 0.3, 0.9, 1.0])
    def test_whatever_is_chosen_the_budget_is_spent_to_the_end(self, seed, refused):
        rng = np.random.default_rng(seed)
        choices = (rng.random(1_000) > refused).astype(int)
        schedule = GrowingBudget(int(rng.integers(1, 30)), rng.uniform(0.05, 0.9), rng.uniform(0.05, 2.0))
        shares, budget = walk(schedule, choices, most=2_000)
        assert budget.left < 1e-9
        assert sum(shares) == pytest.approx(1.0)

    def test_mistakes_are_named(self):
        for wrong in ({"rounds": 0}, {"selection_share": 1.0}, {"growth": 0.0}):
            with pytest.raises(InvalidArgument, match=next(iter(wrong))):
                GrowingBudget(**{"rounds": 5} | wrong)


class TestSigmoidPurse:
    def test_without_refusals_rounds_follow_the_sigmoid(self):
        schedule = SigmoidPurse(rounds=8, steepness=0.7, ratio=5.0, selection_share=0.25)
        shares, budget = walk(schedule, [1] * 99)
        rounds = np.array(shares).reshape(8, 2)
        weights = np.array(shapes.sigmoid(8, 0.7, 5.0))
        assert rounds.sum(axis=1) == pytest.approx(weights / weights.sum(), rel=1e-6)
        assert rounds[:, 1] == pytest.approx(0.25 * weights / weights.sum(), rel=1e-6)
        assert budget.left < 1e-9

    def test_a_redraw_is_paid_and_what_remains_is_shared_out_again(self):
        schedule = SigmoidPurse(rounds=5, growth=0.5, flatten=1.0, most_redraws=1)
        shares, budget = walk(schedule, [0, 1, 1, 1, 1, 1, 1])
        assert shares[2] == pytest.approx(0.5 * shares[0])
        assert budget.left < 1e-9
        assert sum(shares) == pytest.approx(1.0)

    def test_a_refusal_flattens_the_sigmoid(self):
        steep = SigmoidPurse(rounds=9, steepness=2.0, flatten=0.1, most_redraws=0)
        refused, _ = walk(steep, [0] + [1] * 20)
        accepted, _ = walk(steep, [1] * 20)
        assert refused[2] > 1.5 * accepted[2]

    @pytest.mark.parametrize("seed", range(5))
    def test_whatever_is_chosen_never_more_than_the_budget(self, seed):
        rng = np.random.default_rng(seed)
        schedule = SigmoidPurse(
            int(rng.integers(1, 20)), rng.uniform(0, 3), 4.0, rng.uniform(0.1, 0.8), 0.5, 0.9, int(rng.integers(0, 4))
        )
        shares, budget = walk(schedule, rng.integers(0, 2, 500), most=2_000)
        assert budget.left < 1e-9
        assert sum(shares) == pytest.approx(1.0)

    def test_mistakes_are_named(self):
        for wrong in ({"rounds": 0}, {"selection_share": 1.0}, {"growth": 0.0}, {"ratio": 0.5}, {"flatten": 2.0}):
            with pytest.raises(InvalidArgument, match=next(iter(wrong))):
                SigmoidPurse(**{"rounds": 5} | wrong)


class TestFollowGradientNorm:
    def wanted(self, value, std, share=0.02):
        budget = make_budget()
        multiplier = budget.noise_multiplier / np.sqrt(share)
        past = [Released(np.asarray(value, dtype=float), GaussianCharge(multiplier), std)]
        budget = budget.after(past[0].charge)
        mechanism = FollowGradientNorm(0.01, fewest_steps=10, most_steps=1_000).propose(
            GradientAt(point=np.zeros(len(value))), past, budget
        )
        return (budget.noise_multiplier / mechanism.noise_multiplier) ** 2

    def test_noise_becomes_as_long_as_the_gradient_seems_to_be(self):
        # Squared length 16 of which 4 are noise: 12 over 4 coordinates is 3 a coordinate, three
        # times the variance.
        assert self.wanted([2.0, 2.0, 2.0, 2.0], 1.0) == pytest.approx(0.02 / 3)

    def test_a_gradient_lost_in_noise_gets_the_largest_share(self):
        assert self.wanted([0.1, 0.0, 0.0, 0.0], 1.0) == pytest.approx(0.1)

    def test_a_very_long_gradient_gets_the_smallest(self):
        assert self.wanted([1e6, 0.0, 0.0, 0.0], 1.0) == pytest.approx(0.001)

    def test_the_first_step_goes_by_the_bound_and_the_last_spends_the_rest(self):
        schedule = FollowGradientNorm(0.03, fewest_steps=5, most_steps=50)
        budget, past = make_budget(), []
        while True:
            try:
                mechanism = schedule.propose(GRADIENT, past, budget)
            except BudgetExhausted:
                break
            past.append(Released(np.array([0.0, 0.0]), GaussianCharge(mechanism.noise_multiplier), 1.0))
            budget = budget.after(past[-1].charge)
            if len(past) == 1:
                assert budget.left == pytest.approx(0.97)
        assert budget.left < 1e-9
        assert 5 <= len(past) <= 51

    def test_the_ridge_counts_towards_the_length(self):
        budget = make_budget()
        past = [Released(np.array([-3.0, 0.0]), GaussianCharge(budget.noise_multiplier * 10), 0.1)]
        budget = budget.after(past[0].charge)
        at_rest = GradientAt(point=np.array([1.0, 0.0]))
        share = {
            ridge: FollowGradientNorm(0.01, ridge=ridge).propose(at_rest, past, budget).noise_multiplier
            for ridge in (0.0, 3.0)
        }
        # With the ridge the whole gradient is zero, and the least noise is asked for.
        assert share[3.0] < share[0.0]

    def test_mistakes_are_named(self):
        with pytest.raises(InvalidArgument, match="fewest_steps"):
            FollowGradientNorm(0.1, fewest_steps=10, most_steps=5)
