"""Optimizers without data: what they ask, and where they go when told."""

import numpy as np
import pytest
from scipy import optimize

from privypurse import InvalidArgument
from privypurse.core.charges import BoundedRangeCharge, GaussianCharge
from privypurse.core.queries import GradientAt, LossesAlong, Released
from privypurse.methods._selections import GeneticSearch
from privypurse.training.optimizers import Ball, Box, GradientDescent, Simplex
from privypurse.training.optimizers._base import Averaged
from privypurse.training.optimizers._gradient_descent import LineSearch, SmoothedDescent


def gradient(values, noise_std=1.0):
    return Released(np.asarray(values, dtype=float), GaussianCharge(1.0), noise_std)


def choice(index):
    return Released(np.asarray(index), BoundedRangeCharge(1.0))


class TestGradientDescent:
    def test_momentum_adds_up_past_steps(self):
        descent = GradientDescent(step_size=2.0, records=10.0, momentum=0.5)
        state = descent.init(1)
        for expected in (-0.2, -0.5, -0.85):
            state = descent.tell(state, gradient([1.0]))
            assert descent.point(state) == pytest.approx([expected])

    def test_nesterov_asks_ahead(self):
        descent = GradientDescent(step_size=1.0, records=1.0, momentum=0.9, nesterov=True)
        state = descent.tell(descent.init(1), gradient([1.0]))
        assert descent.ask(state).point == pytest.approx([-1.9])

    def test_a_sequence_of_step_sizes_ends_with_its_last(self):
        descent = GradientDescent(step_size=(3.0, 1.0), records=1.0)
        state = descent.init(1)
        for expected in (-3.0, -4.0, -5.0):
            state = descent.tell(state, gradient([1.0]))
            assert descent.point(state) == pytest.approx([expected])

    def test_the_ridge_pulls_towards_zero_without_noise(self):
        descent = GradientDescent(step_size=1.0, records=1.0, l2=0.5)
        state = descent.tell(descent.init(1), gradient([-4.0]))
        assert descent.point(descent.tell(state, gradient([0.0]))) == pytest.approx([2.0])

    def test_shrinking_takes_no_step_along_pure_noise(self):
        descent = GradientDescent(step_size=1.0, records=1.0, shrink=True)
        still = descent.tell(descent.init(4), gradient(np.ones(4), noise_std=1.0))
        assert descent.point(still) == pytest.approx(np.zeros(4))
        half = descent.tell(descent.init(4), gradient(np.ones(4), noise_std=np.sqrt(0.5)))
        assert descent.point(half) == pytest.approx(np.full(4, -0.5))

    @pytest.mark.parametrize("wrong", [{"momentum": 1.0}, {"step_size": 0.0}, {"step_size": (1.0, -1.0)}, {"l2": -1.0}])
    def test_mistakes_are_named(self, wrong):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            GradientDescent(**{"step_size": 1.0, "records": 1.0} | wrong)


def test_smoothed_descent_steps_along_the_corrected_mean():
    b, given = 0.8, [3.0, -1.0, 2.0]
    descent = SmoothedDescent(step_size=1.0, records=1.0, momentum=b)
    state, place = descent.init(1), 0.0
    for t in range(1, 4):
        state = descent.tell(state, gradient([given[t - 1]]))
        place -= (1 - b) / (1 - b**t) * sum(b ** (t - i) * given[i - 1] for i in range(1, t + 1))
        assert descent.point(state) == pytest.approx([place])


class TestProjections:
    @pytest.mark.parametrize("projection", [Ball(1.5), Box(-0.5, 1.0), Simplex(2.0)])
    def test_the_projection_is_the_nearest_point_of_the_set(self, projection):
        rng = np.random.default_rng(0)
        inside = [projection(rng.standard_normal(5) * 3) for _ in range(300)]
        for _ in range(20):
            far = rng.standard_normal(5) * 3
            near = projection(far)
            assert projection(near) == pytest.approx(near)
            assert min(np.linalg.norm(far - other) for other in inside) >= np.linalg.norm(far - near) - 1e-12
            # The sign of a projection: the angle to every other point is not acute.
            assert max(float((far - near) @ (other - near)) for other in inside) <= 1e-9

    def test_the_simplex_agrees_with_a_solver(self):
        rng = np.random.default_rng(1)
        far = rng.standard_normal(4)
        found = optimize.minimize(
            lambda w: np.sum((w - far) ** 2),
            np.full(4, 0.25),
            bounds=[(0, None)] * 4,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            tol=1e-12,
        )
        assert Simplex()(far) == pytest.approx(found.x, abs=1e-5)

    @pytest.mark.parametrize("projection", [Ball(1.5), Box(-0.5, 1.0), Box(1.0, 2.0), Simplex(2.0)])
    def test_reach_and_length_bound_every_point(self, projection):
        rng = np.random.default_rng(2)
        start = projection(np.zeros(3))
        points = [projection(rng.standard_normal(3) * 10) for _ in range(200)]
        assert max(np.linalg.norm(point - start) for point in points) <= projection.reach(3) + 1e-12
        assert max(np.linalg.norm(point) for point in points) <= projection.longest(3) + 1e-12
        assert max(np.linalg.norm(point - start) for point in points) > 0.8 * projection.reach(3)

    def test_mistakes_are_named(self):
        for make in (lambda: Box(1.0, 1.0), lambda: Ball(0.0), lambda: Simplex(-1.0)):
            with pytest.raises(InvalidArgument):
                make()


class TestAveraging:
    def test_points_where_gradients_were_taken_are_averaged(self):
        """Not the points after them: for T gradients, points 0 to T - 1."""
        averaged = Averaged(GradientDescent(step_size=1.0, records=1.0))
        state = averaged.init(1)
        for _ in range(4):
            state = averaged.tell(state, gradient([-1.0]))
        assert averaged.point(state) == pytest.approx([np.mean([0.0, 1.0, 2.0, 3.0])])

    def test_the_tail(self):
        averaged = Averaged(GradientDescent(step_size=1.0, records=1.0), skip=2)
        state = averaged.init(1)
        state = averaged.tell(state, gradient([-1.0]))
        assert averaged.point(state) == pytest.approx([1.0])
        for _ in range(3):
            state = averaged.tell(state, gradient([-1.0]))
        assert averaged.point(state) == pytest.approx([2.5])

    def test_selections_do_not_count(self):
        averaged = Averaged(LineSearch(records=1.0, largest_step=1.0, candidates=1))
        state = averaged.tell(averaged.init(1), gradient([1.0]))
        state = averaged.tell(state, choice(1))
        assert state["seen"] == [1.0]
        state = averaged.tell(state, gradient([1.0]))
        assert averaged.point(state) == pytest.approx([-0.5])


class TestLineSearch:
    def search(self, **settings):
        return LineSearch(**{"records": 1.0, "largest_step": 2.0, "candidates": 4} | settings)

    def test_it_asks_for_a_gradient_and_then_for_losses_along_it(self):
        search = self.search()
        state = search.init(2)
        assert isinstance(search.ask(state), GradientAt)
        state = search.tell(state, gradient([3.0, 4.0]))
        query = search.ask(state)
        assert isinstance(query, LossesAlong)
        assert query.direction == pytest.approx([0.6, 0.8])
        assert query.steps == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])

    def test_the_selected_step_is_taken_and_no_other(self):
        search = self.search()
        state = search.tell(search.tell(search.init(2), gradient([3.0, 4.0])), choice(3))
        assert search.point(state) == pytest.approx([-0.9, -1.2])
        assert isinstance(search.ask(state), GradientAt)

    def test_looks_at_a_refused_gradient_are_averaged_by_precision_all_of_them(self):
        """Unnormalised, and with the weight each look really has: the published code kept the first
        look's too high.
        """
        search = self.search()
        looks = [([1.0, 0.0], 1.0), ([0.0, 2.0], 2.0), ([5.0, 5.0], 0.5)]
        state = search.init(2)
        for values, std in looks[:-1]:
            state = search.tell(search.tell(state, gradient(values, std)), choice(0))
            assert search.point(state) == pytest.approx([0.0, 0.0])
        state = search.tell(state, gradient(*looks[-1]))
        weights = np.array([1 / std**2 for _, std in looks])
        expected = weights @ np.array([values for values, _ in looks]) / weights.sum()
        assert state["gradient"] == pytest.approx(expected)
        assert state["precision"] == pytest.approx([weights.sum()])

    def test_a_gradient_is_forgotten_once_it_was_used(self):
        search = self.search()
        state = search.tell(search.tell(search.init(1), gradient([1.0])), choice(1))
        state = search.tell(state, gradient([-7.0]))
        assert state["gradient"] == pytest.approx([-7.0])

    def test_after_enough_redraws_the_round_is_given_up(self):
        search = self.search(most_redraws=1)
        state = search.init(1)
        for _ in range(2):
            state = search.tell(search.tell(state, gradient([1.0])), choice(0))
        assert state["precision"] == [0.0]
        assert search.point(state) == pytest.approx([0.0])

    @pytest.mark.parametrize("most_redraws", [0, 1, 2])
    def test_a_round_that_is_given_up_shortens_the_steps_and_drops_the_momentum(self, most_redraws):
        """Else a search whose shortest step is too long would stay where it is for the rest of the
        run.
        """
        search = self.search(most_redraws=most_redraws, momentum=0.5)
        state = search.tell(search.tell(search.init(1), gradient([1.0])), choice(4))
        assert state["velocity"] == pytest.approx([1.0])
        for _ in range(most_redraws + 1):
            state = search.tell(search.tell(state, gradient([1.0])), choice(0))
        assert state["precision"] == [0.0]
        assert state["redraws"] == [0.0]
        assert state["velocity"] == pytest.approx([0.0])
        assert state["longest"] == pytest.approx([2.0 / 2 ** max(1, most_redraws)])

    def test_a_first_refusal_that_is_drawn_again_keeps_the_longest_step(self):
        search = self.search(most_redraws=1)
        state = search.tell(search.tell(search.init(1), gradient([1.0])), choice(0))
        assert state["redraws"] == [1.0]
        assert state["longest"] == pytest.approx([2.0])

    def test_a_search_that_begins_with_too_long_steps_reaches_the_minimum(self):
        """Exact answers for the loss x^2/2 from 1, whose shortest first step is 25 times too long."""
        search = self.search(largest_step=100.0, normalise=False, most_redraws=1)
        state = dict(search.init(1)) | {"point": np.array([1.0])}
        for _ in range(40):
            query = search.ask(state)
            if isinstance(query, GradientAt):
                state = search.tell(state, gradient(query.point))
            else:
                ahead = query.point[0] - query.steps * query.direction[0]
                state = search.tell(state, choice(int(np.argmin(ahead**2))))
        assert abs(search.point(state)[0]) < 1e-3

    def test_the_longest_step_looks_back_on_a_window_only(self):
        search = self.search(window=2, widen=1.1)
        state = search.init(1)
        chosen = [4, 1, 1, 1]
        for index in chosen:
            state = search.tell(search.tell(state, gradient([1.0])), choice(index))
        # First window: 2.0 and 0.5; longest 2.2. Second: two steps of 2.2/4.
        assert state["longest"] == pytest.approx([1.1 * 2.2 / 4])

    def test_the_ridge_is_in_the_direction_and_in_the_scores(self):
        search = self.search(l2=0.5, records=10.0, normalise=False, candidates=1)
        state = dict(search.init(1)) | {"point": np.array([2.0])}
        state = search.tell(state, gradient([30.0]))
        query = search.ask(state)
        assert query.direction == pytest.approx([30.0 / 10 + 0.5 * 2.0])
        ahead = 2.0 - query.steps * 4.0
        assert query.public_terms == pytest.approx(10 * 0.5 / 2 * ahead**2)

    def test_momentum_mixes_in_the_previous_direction(self):
        search = self.search(momentum=0.5, normalise=False, candidates=1)
        state = search.tell(search.tell(search.init(1), gradient([4.0])), choice(1))
        state = search.tell(state, gradient([1.0]))
        assert search.ask(state).direction == pytest.approx([0.5 * 4.0 + 1.0])

    def test_a_gradient_of_zero_is_no_direction(self):
        search = self.search()
        state = search.tell(search.init(2), gradient([0.0, 0.0]))
        assert search.ask(state).direction == pytest.approx([0.0, 0.0])


def test_a_generation_keeps_its_parents_and_selects_without_replacement():
    search = GeneticSearch(offspring=5, survivors=2)
    state = search.init(3)
    first = search.ask(state).points
    assert first.shape == (6, 3)
    state = search.tell(state, choice(4))
    assert search.ask(state).points.shape == (5, 3)
    state = search.tell(state, choice(0))
    assert search.point(state) == pytest.approx(first[4])
    assert search.ask(state).points[:2] == pytest.approx(first[[4, 0]])
    with pytest.raises(InvalidArgument, match="survivors"):
        GeneticSearch(offspring=2, survivors=2)
