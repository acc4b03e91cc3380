"""What was published and is not private: as published, line by line; refused by every private
purse; and stamped.
"""

import math

import numpy as np
import pytest
from scipy import stats

from privypurse.accounting._filters import DeclaredNonPrivate, GdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core._errors import BudgetExhausted, InvalidArgument, UnsupportedCharge
from privypurse.core._randomness import NoiseSource
from privypurse.core.charges import GaussianCharge
from privypurse.core.queries import GradientAt, LossesAlong, Objective, Released
from privypurse.losses import Hinge, Logistic
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._non_private import NonPrivateAnswer, NonPrivateRelease
from privypurse.oracles import DenseOracle
from privypurse.oracles.statistics import clipped_sum
from privypurse.purse._purse import Purse
from privypurse.training import fit
from privypurse.training._plan import Facts
from privypurse_lab.papers.published_adp_sgd import (
    PublishedADPSGD,
    least_loss,
    mended_budgets,
    printed_budgets,
    redrawn,
)
from privypurse_lab.papers.published_dp_agd import NoisyMinimum, PublishedDPAGD

DIMENSION = 4
DECLARED = Facts(
    records=1_000,
    dimension=DIMENSION,
    rule=DeclaredNonPrivate(1e-8, "add-remove"),
    bounds=Logistic().bounds(math.inf, 1.0),
    l2=0.01,
    clip_norm=3.0,
)
CHARGE = GaussianCharge(1.0)
METHODS = [PublishedDPAGD(1.0), PublishedADPSGD(1.0)]


def table(rows=600, seed=0):
    random = np.random.default_rng(seed)
    X = random.random((rows, DIMENSION - 1))
    return X, (X @ [3.0, -2.0, 1.0] + 0.3 * random.standard_normal(rows) > 1).astype(int)


def oracle(loss=None):
    return DenseOracle(*table(), loss=loss or Logistic(), row_limit=None, threads=1)


class Script:
    """Noisy gradients and selected indices that are the same for both sides; notes the noise that
    was asked for.
    """

    def __init__(self, gradients, indices):
        self._gradients, self._indices = iter(gradients), iter(indices)
        self.log = []

    def gradient(self, point, noise_std):
        self.log.append(["gradient", np.array(point), noise_std])
        return next(self._gradients).copy()

    def index(self, candidates, scale):
        self.log.append(["selection", np.array(candidates), scale])
        return int(next(self._indices))


def random_script(seed, refusals):
    random = np.random.default_rng(seed)
    indices = np.where(random.random(5_000) < refusals, 0, random.integers(1, 21, 5_000))
    return Script(10 * random.standard_normal((10_000, DIMENSION)), indices)


def ours(recipe, script, dimension=DIMENSION):
    """Run optimizer and schedule on a script, as the training loop does; returns the model, and the
    state after each release.
    """
    state, past, after = recipe.optimizer.init(dimension), [], []
    for _ in range(recipe.steps):
        query = recipe.optimizer.ask(state)
        try:
            mechanism = recipe.schedule.propose(query, past, None)
        except BudgetExhausted:
            break
        if isinstance(query, GradientAt):
            value = script.gradient(query.point, mechanism.noise_multiplier * query.clip_norm)
        else:
            scale = getattr(mechanism.make, "scale", None)
            candidates = [query.point - step * query.direction for step in query.steps]
            value = np.asarray(script.index(candidates, scale))
        released = Released(value, CHARGE)
        state = recipe.optimizer.tell(state, released)
        past.append(released)
        after.append(list(past))
    return recipe.optimizer.point(state), after


# DP-AGD: the authors' code, line by line, from their slides.


def agd_rho(rho, eps_total, delta, obj_clip, grad_clip, reg_coeff, gamma, splits, script):
    """Transcribe agd_rho; returns the model and, for each release that was used, what is said to be
    left.
    """
    eps_nmax = (eps_total * 0.5) / splits
    sigma = math.sqrt(2.0 * math.log(1.25 / delta)) * grad_clip / eps_nmax  # compute_sigma
    rho_nmax = 0.5 * (eps_nmax**2)
    rho_ng = (grad_clip**2) / (2.0 * sigma**2)
    w = np.zeros(DIMENSION)
    t, chosen_step_sizes, max_step_size, n_candidate = 0, [], 2.0, 20
    left = []
    while rho > 0:
        sigma = grad_clip / math.sqrt(2.0 * rho_ng)
        noisy_grad = script.gradient(w, sigma)
        noisy_unnorm = np.copy(noisy_grad)
        noisy_grad /= np.linalg.norm(noisy_grad)
        rho -= rho_ng
        left.append(rho)
        idx = 0
        while idx == 0:
            step_sizes = np.linspace(0, max_step_size, n_candidate + 1)
            candidate = [w - step * noisy_grad for step in step_sizes]
            lmbda = obj_clip / math.sqrt(2.0 * rho_nmax)
            idx = script.index(candidate, lmbda)
            rho -= rho_nmax
            if rho < 0:
                break
            redraw = False
            if idx > 0:
                if rho >= 0:
                    w[:] = candidate[idx - 1]
                    rho -= rho_ng
            else:
                rho_old = rho_ng
                rho_ng *= 1.0 + gamma
                sigma = grad_clip / math.sqrt(2.0 * (rho_ng - rho_old))  # grad_avg
                g_2 = script.gradient(w, sigma)
                beta = rho_old / rho_ng
                noisy_grad = beta * noisy_unnorm + (1.0 - beta) * g_2
                noisy_grad /= np.linalg.norm(noisy_grad)
                rho -= rho_ng - rho_old
                redraw = True
            left += [rho] * (1 + redraw)
            if reg_coeff > 0:
                noisy_grad += reg_coeff * w
            chosen_step_sizes.append(step_sizes[idx])
            t += 1
            if (t % 10) == 0:
                max_step_size = min(1.1 * max(chosen_step_sizes), 2.0)
                del chosen_step_sizes[:]
    return w, left


@pytest.mark.parametrize("epsilon", [0.05, 1.6])
@pytest.mark.parametrize(("seed", "refusals"), [(0, 0.0), (1, 0.3), (2, 0.7), (3, 0.97), (4, 1.0)])
@pytest.mark.parametrize(("growth", "splits"), [(0.1, 60), (0.5, 10)])
def test_dp_agd_does_what_its_authors_code_does(epsilon, seed, refusals, growth, splits):
    method = PublishedDPAGD(epsilon, splits=splits, growth=growth)
    recipe = method.recipe(DECLARED)
    theirs, mine = random_script(seed, refusals), random_script(seed, refusals)
    total = recipe.schedule.rho
    expected, left = agd_rho(total, epsilon, 1e-8, 3.0, 3.0, DECLARED.l2, growth, splits, theirs)
    point, after = ours(recipe, mine)
    assert point == pytest.approx(expected, rel=1e-9, abs=1e-9)
    # Theirs also makes one round beyond its budget, and throws it away.
    assert 0 <= len(theirs.log) - len(mine.log) <= 2
    for (kind, where, scale), (their_kind, their_where, their_scale) in zip(mine.log, theirs.log, strict=False):
        assert kind == their_kind
        np.testing.assert_allclose(where, their_where, rtol=1e-9, atol=1e-9)
        assert scale == pytest.approx(their_scale, rel=1e-9)
    said = [recipe.schedule._standing(past)[0] for past in after]
    assert said == pytest.approx(left[: len(said)], rel=1e-6, abs=1e-12 * total)
    assert len(mine.log) < recipe.steps


def test_the_claimed_total_is_the_classic_conversion():
    """rho + 2 sqrt(rho ln(1/delta)) = epsilon."""
    rho = PublishedDPAGD(0.4).recipe(DECLARED).schedule.rho
    assert rho + 2 * math.sqrt(rho * math.log(1e8)) == pytest.approx(0.4)


def test_a_whole_run_of_dp_agd_is_that_of_the_authors_code():
    """Real data, real noise: what was released is given to the transcription, which must come to
    the same model.
    """
    method = PublishedDPAGD(0.8)
    said = []

    class Recorded(PublishedDPAGD):
        def recipe(self, facts):
            recipe = super().recipe(facts)
            optimizer, tell = recipe.optimizer, type(recipe.optimizer).tell

            def recording(state, released):
                said.append(released)
                return tell(optimizer, state, released)

            object.__setattr__(optimizer, "tell", recording)
            return recipe

    purse = Purse.not_private(delta=1e-8, noise=NoiseSource(seed=1))
    point = fit(oracle(), Recorded(0.8), purse, records=600, l2=0.001, clip_norm=3.0).point
    gradients = [released.value for released in said if not released.is_selection]
    indices = [int(released.value) for released in said if released.is_selection]
    assert len(indices) > 20
    # The transcription may ask for a round more, which it throws away.
    script = Script([*gradients, *np.ones((2, DIMENSION))], [*indices, 1, 1])
    rho = method.recipe(DECLARED).schedule.rho
    expected, _ = agd_rho(rho, 0.8, 1e-8, 3.0, 3.0, 0.001, 0.1, 60, script)
    assert point == pytest.approx(expected, rel=1e-9)
    claimed = [scale for kind, _, scale in script.log if kind == "gradient"][: len(gradients)]
    assert [released.noise_std for released in said if not released.is_selection] == pytest.approx(claimed)


def test_selections_take_the_least_of_losses_plus_exponential_noise():
    scores = -np.array([5.0, 4.0, 4.5, 9.0])
    for seed in range(50):
        chosen = NoisyMinimum(0.7)(scores, NoiseSource(seed=seed))
        noise = NoiseSource(seed=seed).exponential((4,))
        assert int(chosen) == int(np.argmin(np.array([5.0, 4.0, 4.5, 9.0]) + 0.7 * noise))
        assert chosen.dtype.kind == "i"


def wins(scores, scale, draws=20_000):
    noise = NoiseSource(seed=11)
    choose = NoisyMinimum(scale)
    return sum(int(choose(scores, noise)) == 0 for _ in range(draws)), draws


@pytest.mark.statistical
def test_the_noise_of_selections_has_the_published_scale_and_costs_more_than_is_claimed():
    # Two candidates, the first better by one: it loses with probability exp(-1/scale)/2.
    won, draws = wins(-np.array([0.0, 1.0]), scale=2.0)
    for factor, fits in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        expected = 1 - math.exp(-1 / (2.0 * factor)) / 2
        p = stats.binomtest(won, draws, expected).pvalue
        assert p > 1e-3 if fits else p < 1e-6
    # Four candidates: one that is worse by a sensitivity wins exp(-3/scale) as often as an even
    # one: three times the claim.
    even, _ = wins(np.zeros(4), scale=3.0)
    worse, _ = wins(-np.array([1.0, 0.0, 0.0, 0.0]), scale=3.0)
    assert stats.binomtest(even, draws, 1 / 4).pvalue > 1e-3
    assert stats.binomtest(worse, draws, math.exp(-3 / 3.0) / 4).pvalue > 1e-3
    assert math.log(even / worse) > 2 * (1 / 3.0)  # the claim is 1/scale


def test_scores_are_clipped_losses_without_the_ridge():
    X, y = table()
    rows = np.column_stack([X, np.ones(len(X))])
    signs = np.where(y == 1, 1.0, -1.0)
    point, direction = np.array([4.0, -9.0, 2.0, 1.0]), np.array([0.5, 0.5, -0.5, 0.5])
    optimizer = PublishedDPAGD(1.0).recipe(DECLARED).optimizer
    state = {**optimizer.init(DIMENSION), "point": point, "direction": direction, "selecting": np.ones(1)}
    query = optimizer.ask(state)
    assert isinstance(query, LossesAlong)
    assert query.public_terms is None
    losses = [
        np.minimum(np.logaddexp(0, -signs * (rows @ (point - step * direction))), 3.0).sum()
        for step in np.linspace(0, 2, 21)
    ]
    assert max(losses) < len(y) * 3.0
    scores = Purse.not_private().release(oracle().answer(query), NonPrivateRelease("to check it")).value
    assert scores - scores[0] == pytest.approx(-(np.array(losses) - losses[0]), abs=1e-6)


# Noise of gradients, of both.


def first_gradient(method):
    recipe = method.recipe(DECLARED)
    return recipe.schedule.propose(recipe.optimizer.ask(recipe.optimizer.init(DIMENSION)), [], None)


@pytest.mark.statistical
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_noise_of_gradients_has_the_published_scale(method):
    mechanism = first_gradient(method)
    if isinstance(method, PublishedDPAGD):
        scale = math.sqrt(2 * math.log(1.25 / 1e-8)) * 3.0 / (1.0 / 120)
    else:
        scale = 3.0 / float(printed_budgets(1.0, 40, 0.25)[0])
    purse = Purse.not_private(noise=NoiseSource(seed=5))
    box = clipped_sum(np.zeros((1, 4_000)), clip_norm=3.0)
    noise = purse.release(box, mechanism).value
    for factor, fits in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        q = float(((noise / (factor * scale)) ** 2).sum())
        p = 2 * min(stats.chi2.cdf(q, 4_000), stats.chi2.sf(q, 4_000))
        assert p > 1e-3 if fits else p < 1e-6
    assert stats.kstest(noise / scale, "norm").pvalue > 1e-3


# ADP-SGD.


@pytest.mark.parametrize("slope", [0.02, 0.05, 0.1, 0.2, 0.5])
@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_printed_budgets_add_up_to_more_than_epsilon_and_mended_ones_to_epsilon(slope, epsilon):
    printed, mended = printed_budgets(epsilon, 100, slope), mended_budgets(epsilon, 100, slope)
    assert (
        1.05 < printed.sum() / epsilon < 1.06
    )  # one plus half of epsilon_min/mean, which is 0.1 here, and half a step
    assert mended.sum() / epsilon == pytest.approx(1, rel=1e-12)
    assert (np.diff(printed) > 0).all()
    assert (np.diff(mended) >= 0).all()
    mean = epsilon / 100
    by_hand = [0.1 * mean + 1.9 * mean / (1 + math.exp(-slope * t + slope * 50)) for t in range(1, 101)]
    assert printed == pytest.approx(by_hand)


def test_larger_least_budgets_add_up_to_even_more():
    """With epsilon_min from a fifth to a half of the mean, printed budgets cost 1.1 to 1.3 times
    epsilon.
    """
    for share, low, high in ((0.2, 1.10, 1.12), (0.5, 1.25, 1.28)):
        for slope in (0.05, 0.1, 0.2, 0.5):
            assert low < printed_budgets(1.0, 100, slope, least=share).sum() < high


def test_a_smaller_slope_gives_early_epochs_more_if_b_moves_along_and_less_if_not():
    halves = [float(mended_budgets(1.0, 100, slope)[:50].sum()) for slope in (0.02, 0.1, 0.5)]
    assert halves == sorted(halves, reverse=True)
    fixed = [printed_budgets(1.0, 100, slope, shift=25.0) for slope in (0.5, 0.1)]
    assert (fixed[1] <= fixed[0]).all()


def adp_sgd(epsilon, rounds, slope, decay, most_redraws, records, l2, largest, shrink, script):
    """Transcribe the paper's loop with what was mended to make it run: t advances, and there is an
    end to redraws.
    """
    w, t, rates = np.zeros(DIMENSION), 1, []
    mean = epsilon / rounds
    while t <= rounds:
        redraws = 0
        while True:
            budget = 0.1 * mean + 1.9 * mean / (1 + math.exp(-slope * t + slope * rounds / 2))
            g = script.gradient(w, 3.0 / budget) / records + l2 * w
            steps = np.linspace(0, largest, 21)
            index = script.index([w - step * g for step in steps], None)
            if index == 0 and t < (rounds + 1) / 2 and redraws < most_redraws:
                slope *= decay
                redraws += 1
                continue
            break
        w = w - steps[index] * g
        rates.append(steps[index])
        if len(rates) == 10:
            largest, rates = shrink * max(rates) or largest, []
        t += 1
    return w


@pytest.mark.parametrize(("seed", "refusals"), [(0, 0.0), (1, 0.3), (2, 0.9), (3, 1.0)])
@pytest.mark.parametrize(("rounds", "most"), [(40, 20), (11, 3), (1, 2)])
def test_adp_sgd_does_what_the_paper_says(seed, refusals, rounds, most):
    method = PublishedADPSGD(0.4, rounds=rounds, most_redraws=most, largest_rate=1.5)
    recipe = method.recipe(DECLARED)
    theirs, mine = random_script(seed, refusals), random_script(seed, refusals)
    expected = adp_sgd(0.4, rounds, 10 / rounds, 0.9, most, 1_000, DECLARED.l2, 1.5, 0.9, theirs)
    point, after = ours(recipe, mine)
    assert point == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert len(mine.log) == len(theirs.log) == len(after) <= recipe.steps
    for (kind, where, scale), (their_kind, their_where, their_scale) in zip(mine.log, theirs.log, strict=True):
        assert kind == their_kind
        np.testing.assert_allclose(where, their_where, rtol=1e-9, atol=1e-9)
        assert scale == pytest.approx(their_scale, rel=1e-9) if kind == "gradient" else scale is their_scale is None


def test_gradients_are_redrawn_in_the_first_half_only_and_not_for_ever():
    recipe = PublishedADPSGD(1.0, rounds=8, most_redraws=3).recipe(DECLARED)
    script = random_script(0, 1.0)
    point, _ = ours(recipe, script)
    # Rounds 1 to 4 are before 4.5: four gradients each; rounds 5 to 8 have one.
    assert sum(kind == "gradient" for kind, *_ in script.log) == 4 * 4 + 4
    assert (point == 0).all()
    assert redrawn(0, 2, 4, 8, 3)
    assert not redrawn(0, 3, 4, 8, 3)
    assert not redrawn(0, 0, 5, 8, 3)
    assert not redrawn(1, 0, 1, 8, 3)


def test_the_learning_rate_is_the_exact_argmin():
    losses = np.array([3.0, 1.0, 0.999999, 2.0])
    for seed in range(20):
        assert int(least_loss(-losses, NoiseSource(seed=seed))) == 2
    assert least_loss(-losses, NoiseSource(seed=0)).dtype.kind == "i"


def test_a_kink_gets_the_rate_of_the_clip():
    facts = Facts(
        records=100,
        dimension=DIMENSION,
        rule=DeclaredNonPrivate(1e-8, "add-remove"),
        bounds=Hinge().bounds(math.inf, 1.0),
        clip_norm=3.0,
    )
    assert PublishedADPSGD(1.0).recipe(facts).optimizer.largest_rate == pytest.approx(10 / (9 / 4))


# Only where it is declared.


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("rule", ["gdp", "zcdp", "rdp", "fixed"])
def test_published_methods_are_refused_by_private_purses(method, rule):
    noise = NoiseSource(seed=0)
    if rule == "fixed":
        schedule = FixedSchedule([GaussianCharge(50.0)] * 3, 1.0, 1e-6, "add-remove")
        purse = Purse.with_filter(schedule, noise=noise)
    else:
        purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter=rule, noise=noise)
    with pytest.raises(InvalidArgument, match=r"NOT PRIVATE and needs Purse\.not_private"):
        fit(oracle(), method, purse, records=600, clip_norm=3.0)
    assert purse.spent.releases == 0
    assert isinstance(method.filter(DECLARED), DeclaredNonPrivate)


@pytest.mark.parametrize("method", [PublishedDPAGD(0.1), PublishedADPSGD(0.1)], ids=lambda method: method.name)
@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=["logistic", "svm"])
def test_published_methods_run_where_declared_and_are_stamped(method, loss):
    purse = Purse.not_private(delta=1e-8, noise=NoiseSource(seed=2))
    result = fit(oracle(loss), method, purse, records=600, l2=0.001, clip_norm=3.0)
    assert np.isfinite(result.point).all()
    assert np.linalg.norm(result.point) > 0
    assert result.trace.stop_reason == "budget"  # its own, claimed one
    assert purse.spent.epsilon == math.inf
    certificate = purse.certificate()
    assert not certificate.private
    assert "NOT PRIVATE" in str(certificate)
    assert method.recipe(DECLARED).notes == ("NOT PRIVATE.",)


# The mechanism they are made of.


def scores_box():
    state = PublishedADPSGD(1.0).recipe(DECLARED).optimizer
    query = state.ask({**state.init(DIMENSION), "direction": np.ones(DIMENSION), "selecting": np.ones(1)})
    return oracle().answer(query)


@pytest.mark.parametrize("rule", ["gdp", "zcdp", "rdp", "fixed"])
def test_an_answer_that_is_not_private_is_refused_before_it_is_looked_at(rule):
    def looked(value, noise):
        raise AssertionError("the box was opened")

    if rule == "fixed":
        purse = Purse.with_filter(FixedSchedule([GaussianCharge(50.0)] * 3, 1.0, 1e-6, "add-remove"))
    else:
        purse = Purse(1e6, 1e-6, neighbouring="add-remove", filter=rule)
    for box in (scores_box(), clipped_sum(np.ones((3, 2)), clip_norm=1.0)):
        with pytest.raises(UnsupportedCharge):
            purse.release(box, NonPrivateAnswer("to see it refused", looked))
    assert purse.spent.releases == 0
    assert purse.certificate().releases == 0


def test_an_answer_that_is_not_private_costs_infinity_where_declared():
    purse = Purse.not_private(noise=NoiseSource(seed=0))
    box = clipped_sum(np.ones((3, 2)), clip_norm=10.0)
    doubled = purse.release(box, NonPrivateAnswer("to double it", lambda value, noise: 2 * value)).value
    assert doubled == pytest.approx(2 * np.array([3.0, 3.0]))
    assert purse.spent.epsilon == math.inf
    assert "NOT PRIVATE" in str(purse.certificate())
    rule = GdpFilter(1.0, 1e-6, "add-remove")
    charge = NonPrivateAnswer("x", least_loss).charge(box, rule.neighbouring)
    assert math.isinf(rule.epsilon_of(rule.after(rule.start(), charge), 1e-6))


def test_the_function_gets_a_copy():
    purse = Purse.not_private(noise=NoiseSource(seed=0))
    box = clipped_sum(np.ones((3, 2)), clip_norm=10.0)

    def spoil(value, noise):
        value[:] = 0.0
        return value

    purse.release(box, NonPrivateAnswer("spoils it", spoil))
    assert purse.release(box, NonPrivateRelease("to look")).value == pytest.approx([3.0, 3.0])


def test_an_objective_is_not_a_value_and_a_reason_is_needed():
    bounded = DenseOracle(*table(), loss=Logistic(clip_derivative=0.5), row_limit=1.0, threads=1)
    with pytest.raises(InvalidArgument, match="objective"):
        Purse.not_private().release(bounded.answer(Objective()), NonPrivateAnswer("x", least_loss))
    with pytest.raises(InvalidArgument, match="reason"):
        NonPrivateAnswer("", least_loss)


def test_gradients_of_published_methods_are_plain_gaussian_noise():
    for method in METHODS:
        assert isinstance(first_gradient(method), Gaussian)
