"""Lower bounds from attacks: they hold as often as they say, they have power, and they agree with
other people's.
"""

import math

import numpy as np
import pytest
from scipy import special, stats

from privypurse.accounting.convert import gdp_delta
from privypurse.audit._lower_bounds import bound_from_scores, epsilon_of, largest_rate, mu_of
from privypurse.audit._residuals import CHANCE_OF_A_PAIR, DIGITS, Residuals, too_many_repeats
from privypurse.audit.white_box import bound_from_models
from privypurse.core._errors import InvalidArgument
from privypurse_lab.audits.one_run import ceiling_mu, is_refuted, mu_from_guesses


@pytest.mark.parametrize(("errors", "trials"), [(0, 10), (1, 50), (20, 100), (99, 100)])
def test_clopper_and_pearson_is_the_largest_rate_that_is_not_yet_refuted(errors, trials):
    rate = largest_rate(errors, trials, 0.05)
    assert stats.binom.cdf(errors, trials, rate) == pytest.approx(0.05, rel=1e-6)
    assert rate == pytest.approx(stats.binomtest(errors, trials, alternative="less").proportion_ci(0.95).high)


def test_all_wrong_shows_nothing():
    assert largest_rate(10, 10, 0.05) == 1.0
    assert mu_of(0.5, 0.5) == 0.0
    assert mu_of(1.0, 0.0) == 0.0
    assert epsilon_of(0.5, 0.5, 0.0) == 0.0


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
def test_the_trade_off_of_gaussian_noise_gives_its_own_mu_and_an_epsilon_that_it_has(mu):
    for threshold in (-1.0, 0.0, 0.5 * mu, mu + 1):
        false_alarms, misses = special.ndtr(-threshold), special.ndtr(threshold - mu)
        assert mu_of(false_alarms, misses) == pytest.approx(mu)
        epsilon = epsilon_of(false_alarms, misses, 1e-6)
        # (epsilon, delta) with a smaller epsilon is refuted, so the true delta there is larger.
        if epsilon > 0:
            assert gdp_delta(mu, epsilon - 1e-9) > 1e-6


@pytest.mark.parametrize("thresholds", [[1.0], [0.5, 1.0, 1.5]])
def test_bounds_hold_as_often_as_they_say_and_have_power(thresholds):
    """At mu = 2 the bound is above 2 in at most one of twenty audits, and above 1 in nearly all."""
    rng = np.random.default_rng(5)
    shown = [
        bound_from_scores(rng.normal(0, 1, 100), rng.normal(2, 1, 100), thresholds=thresholds).mu for _ in range(400)
    ]
    assert np.mean(np.array(shown) > 2.0) <= 0.05
    assert np.mean(np.array(shown) > 1.0) > 0.9


def test_a_claim_that_is_too_small_is_refuted():
    rng = np.random.default_rng(6)
    assert bound_from_scores(rng.normal(0, 1, 500), rng.normal(4, 1, 500), thresholds=[2.0]).mu > 2.0


def test_models_are_judged_on_runs_that_did_not_choose_the_threshold():
    """Nothing to see: choosing among nineteen thresholds and two sides must not conjure up a bound."""
    rng = np.random.default_rng(7)
    shown = [bound_from_models(rng.normal(0, 1, 60), rng.normal(0, 1, 60)).mu for _ in range(300)]
    assert np.mean(np.array(shown) > 0) <= 0.05
    turned = bound_from_models(rng.normal(3, 1, 400), rng.normal(0, 1, 400))
    assert 1.5 < turned.mu < 3.0


@pytest.mark.parametrize("runs", [8, 60, 200])
def test_the_ceiling_is_what_a_perfect_attack_shows_and_nobody_passes_it(runs):
    perfect = bound_from_scores(np.zeros(runs), np.ones(runs), thresholds=[0.5])
    assert perfect.mu == perfect.ceiling_mu
    one_error = bound_from_scores(np.zeros(runs), np.append(np.ones(runs - 1), 0.0), thresholds=[0.5])
    assert one_error.mu < one_error.ceiling_mu == perfect.mu
    # Both error rates at the upper end of their intervals, for a probability of 0.025 on each side.
    rate = stats.binomtest(0, runs, alternative="less").proportion_ci(0.975).high
    assert perfect.ceiling_mu == pytest.approx(-2 * special.ndtri(rate))
    models = bound_from_models(np.zeros(2 * runs), np.ones(2 * runs))
    assert models.mu == models.ceiling_mu == perfect.mu  # half of the runs only choose the threshold


def test_the_ceiling_of_one_run_is_above_the_mus_it_is_run_at():
    assert ceiling_mu() == mu_from_guesses(3_000, 1_200, 1_200) > 2.1
    assert mu_from_guesses(3_000, 1_200, 1_199) < ceiling_mu()


@pytest.mark.parametrize(
    ("count", "repeated", "found"),
    [
        (10_000, 0, False),
        (10_000, 2, False),
        (10_000, 3, True),
        (10_000, 500, True),
        (1_000, 1, False),
        (1_000, 2, True),
        (4, 0, False),
        (4, 1, True),
        (1, 0, False),
        (10**6, 25, False),
        (10**6, 100, True),
    ],
)
def test_numbers_alike_are_a_finding_where_chance_does_not_explain_them(count, repeated, found):
    assert bool(Residuals(count, 1.0, 0.5, repeated).findings) is found
    assert too_many_repeats(repeated, count) is found


def test_pairs_agree_as_often_by_chance_as_is_said():
    """With fewer digits, so that there is something to count."""
    drawn = np.round(np.abs(np.random.default_rng(3).standard_normal(20_000)), 4)
    _, counts = np.unique(drawn, return_counts=True)
    pairs = np.sum(counts * (counts - 1)) / 2
    expected = drawn.size * (drawn.size - 1) / 2 * CHANCE_OF_A_PAIR * 10.0 ** (DIGITS - 4)
    assert pairs == pytest.approx(expected, rel=0.05)


def test_noise_that_is_no_number_is_a_finding():
    (finding,) = Residuals(100, math.nan, math.nan, 0).findings
    assert "not what was paid for" in finding
    assert Residuals(100, 1.0, 2e-6, 0).findings == ()


@pytest.mark.parametrize("mu", [1.0, 2.0, 4.0])
def test_one_run_bounds_hold_and_have_power(mu):
    rng = np.random.default_rng(11)
    canaries, guesses, shown = 2_000, 400, []
    for _ in range(40):
        coins = rng.random(canaries) < 0.5
        scores = rng.standard_normal(canaries) + mu * coins
        order = np.argsort(scores)
        correct = int(coins[order[-guesses // 2 :]].sum() + (~coins[order[: guesses // 2]]).sum())
        shown.append(mu_from_guesses(canaries, guesses, correct))
    assert np.mean(np.array(shown) > mu) <= 0.05
    assert np.median(shown) > min(0.5 * mu, 1.2)


def test_one_run_agrees_with_a_plain_count_where_every_canary_is_guessed_under_no_privacy_loss():
    """With mu = 0 guesses are fair coins: what is refuted there is what a binomial test refutes,
    give or take the analysis.
    """
    for correct in (50, 55, 70, 90):
        refuted = is_refuted(0.0, 100, 100, correct, 0.05)
        assert not (refuted and stats.binom.sf(correct - 1, 100, 0.5) > 0.05)
    assert is_refuted(0.0, 100, 100, 90, 0.05)


def test_more_right_guesses_show_more():
    shown = [mu_from_guesses(1_000, 200, correct) for correct in (100, 130, 160, 190, 200)]
    assert shown == sorted(shown)
    assert shown[0] == 0.0
    assert shown[-1] > 1.0


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: largest_rate(3, 2, 0.05), "errors"),
        (lambda: bound_from_scores([], [1.0], thresholds=[0.0]), "absent"),
        (lambda: bound_from_scores([1.0], [1.0], thresholds=[]), "thresholds"),
        (lambda: bound_from_scores([1.0], [1.0], thresholds=[0.0], confidence=2.0), "confidence"),
        (lambda: bound_from_scores([1.0, math.nan], [1.0], thresholds=[0.0]), "no NaN; got 1 and 0"),
        (lambda: bound_from_models(np.zeros(3), np.zeros(9)), "8 runs"),
        (lambda: mu_from_guesses(10, 20, 5), "guesses"),
        (lambda: mu_from_guesses(100, 20, 15, confidence=math.nan), "confidence"),
    ],
    ids=["errors", "empty", "no-thresholds", "confidence", "nan-score", "few-models", "guesses", "nan"],
)
def test_mistakes_are_named(call, named):
    with pytest.raises(InvalidArgument, match=named):
        call()
