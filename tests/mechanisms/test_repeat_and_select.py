"""The best of a random number of trials: how many there are, which one leaves, and that nothing
else does.
"""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
from scipy import stats

from privypurse import Gaussian, InvalidArgument, NoiseSource, Norm, Purse, Sensitive
from privypurse.core import _trial_counts as trial_counts
from privypurse.core._errors import BudgetExhausted, SealedValue, UnboundedSensitivity, UnsupportedCharge
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._sensitive import SensitiveTrials
from privypurse.core.charges import RepeatAndSelectCharge
from privypurse.mechanisms._repeat_and_select import RepeatAndSelect
from privypurse.oracles.statistics import counts


def probabilities(mean, shape, most):
    g = math.exp(-trial_counts.log_inverse_g(mean, shape))
    raw = np.cumprod(np.concatenate([[1.0], (1 - g) * (np.arange(1, 5000) + shape) / np.arange(2, 5001)]))
    raw /= raw.sum()
    return np.append(raw[:most], raw[most:].sum())


def histogram(draws, most):
    return np.bincount(np.minimum(draws, most + 1), minlength=most + 2)[1:]


@pytest.mark.statistical
@pytest.mark.parametrize(("mean", "shape"), [(2.0, 0.0), (5.0, 0.0), (5.0, 0.5), (4.0, 1.0)])
def test_the_number_of_trials_has_its_distribution(mean, shape):
    noise, most = NoiseSource(seed=11), 15
    draws = np.array([trial_counts.draw_trial_count(mean, shape, noise) for _ in range(6_000)])
    seen = histogram(draws, most)
    assert stats.chisquare(seen, 6_000 * probabilities(mean, shape, most)).pvalue > 1e-3
    for wrong_mean, wrong_shape in [
        (mean * 1.2, shape),
        (mean / 1.2, shape),
        (mean, 1 - shape if shape != 0.5 else 0.0),
    ]:
        assert stats.chisquare(seen, 6_000 * probabilities(wrong_mean, wrong_shape, most)).pvalue < 1e-5


def trials(**bounds):
    return SensitiveTrials(lambda candidate, noise: (0.0, None), candidates=2, hand_over=lambda result: None, **bounds)


def test_the_charge_is_never_less_than_the_bound_of_a_trial():
    for mu in range(1, 200):
        charge = RepeatAndSelect(5.0).charge(trials(add_remove=float(mu), replace_one=None), Neighbouring.ADD_REMOVE)
        assert 1 / charge.noise_multiplier >= mu


@pytest.mark.parametrize("secure", [True, False])
def test_noise_of_one_kind_is_accepted(secure):
    box = trials(add_remove=1.0, replace_one=None)
    assert RepeatAndSelect(5.0).check_noise(box, Neighbouring.ADD_REMOVE, NoiseSource(secure=secure)) is None


def test_one_trial_on_average_is_one_trial():
    assert {trial_counts.draw_trial_count(1.0, 0.0, NoiseSource()) for _ in range(100)} == {1}


@pytest.mark.statistical
def test_candidates_are_equally_likely():
    noise = NoiseSource(seed=5)
    seen = np.bincount([trial_counts.draw_below(7, noise) for _ in range(7_000)], minlength=7)
    assert seen.size == 7
    assert stats.chisquare(seen).pvalue > 1e-3


def box_of(trial, *, candidates=1, mu=0.1, hand_over=lambda result: None):
    return SensitiveTrials(trial, candidates=candidates, add_remove=mu, replace_one=2 * mu, hand_over=hand_over)


def rdp_purse(epsilon=1.0, seed=None, **others):
    noise = None if seed is None else NoiseSource(seed=seed)
    return Purse(epsilon, 1e-6, neighbouring="add-remove", filter="rdp", noise=noise, **others)


@pytest.mark.statistical
@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_what_leaves_is_the_best_of_that_many(shape):
    """Of K independent normal scores the best is below s with probability G(Phi(s)), G the
    generating function of K.
    """
    mean, noise = 5.0, NoiseSource(seed=3)
    g = math.exp(-trial_counts.log_inverse_g(mean, shape))
    mechanism = RepeatAndSelect(mean, shape)

    def below(s):
        phi = stats.norm.cdf(s)
        if shape == 0:
            return np.log1p(-(1 - g) * phi) / math.log(g)
        return (1 / (1 - (1 - g) * phi) - 1) / (1 / g - 1)

    box = box_of(lambda candidate, noise: (noise.normal((1,))[0], None))
    scores = [mechanism.draw(box, Neighbouring.ADD_REMOVE, noise)[1] for _ in range(2_000)]
    assert stats.kstest(scores, below).pvalue > 1e-3
    assert stats.kstest(scores, stats.norm.cdf).pvalue < 1e-9


def test_the_winner_is_handed_over_once_and_whole():
    made, handed = [], []

    def trial(candidate, noise):
        made.append((candidate, float(noise.normal((1,))[0])))
        return made[-1][1], made[-1]

    purse = rdp_purse(8.0, seed=2)
    for _ in range(5):
        box = box_of(trial, candidates=4, mu=0.02, hand_over=handed.append)
        candidate, score = purse.release(box, RepeatAndSelect(4.0)).value
        assert handed == [max(made, key=lambda one: one[1])]
        assert (candidate, score) == handed[0]
        made.clear()
        handed.clear()


def test_the_price_comes_from_the_box_and_is_never_lower():
    for mu in (0.1, 1 / 3, 0.14333349503831933, 1e-7):
        box = box_of(None, mu=mu)
        charge = RepeatAndSelect(5.0).charge(box, Neighbouring.ADD_REMOVE)
        assert charge == RepeatAndSelectCharge(charge.noise_multiplier, 5.0, 0.0)
        assert mu <= 1 / charge.noise_multiplier <= mu * (1 + 1e-15)
        other = RepeatAndSelect(5.0).charge_seen_under(box, Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE)
        assert other.noise_multiplier == pytest.approx(charge.noise_multiplier / 2)


def test_both_relations_are_on_the_certificate():
    purse = rdp_purse()
    purse.release(box_of(lambda candidate, noise: (0.0, None), mu=0.03), RepeatAndSelect(2.0), what="search")
    certificate = purse.certificate()
    assert certificate.groups[0].kind == "repeat-and-select"
    other = certificate.relations["replace-one"]
    assert other.recorded_epsilon > certificate.recorded_epsilon


@pytest.mark.parametrize("filter", ["gdp", "zcdp"])
def test_other_purses_refuse_before_anything_runs(filter):
    purse, ran = Purse(1.0, 1e-6, neighbouring="add-remove", filter=filter), []
    with pytest.raises(UnsupportedCharge, match="filter='rdp'"):
        purse.release(box_of(lambda *_: ran.append(1)), RepeatAndSelect(2.0))
    assert not ran
    assert purse.spent.releases == 0


def test_what_does_not_fit_is_refused_before_anything_runs():
    purse, ran = rdp_purse(0.1), []
    with pytest.raises(BudgetExhausted, match="fewer trials"):
        purse.release(box_of(lambda *_: ran.append(1), mu=1.0), RepeatAndSelect(2.0))
    assert not ran
    assert purse.spent.releases == 0


def test_a_crash_after_payment_leaves_it_paid():
    def trial(candidate, noise):
        raise KeyboardInterrupt

    purse = rdp_purse()
    with pytest.raises(KeyboardInterrupt):
        purse.release(box_of(trial), RepeatAndSelect(2.0))
    assert purse.spent.releases == 1
    assert purse.spent.epsilon > 0


def test_trials_that_fail_lose_and_tell_nothing():
    calls = []

    def trial(candidate, noise):
        calls.append(candidate)
        if candidate == 0:
            raise ValueError("the record of Mrs Smith is odd")
        return (math.nan if candidate == 1 else 1.0), candidate

    purse, handed = rdp_purse(seed=1), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            calls.clear()
            box = box_of(trial, candidates=3, mu=1e-3, hand_over=handed.append)
            candidate, score = purse.release(box, RepeatAndSelect(1.3)).value
            if 2 in calls:
                assert (candidate, score) == (2.0, 1.0)
                assert handed[-1] == 2
            else:
                assert (candidate, score) == (calls[0], -math.inf)
                assert handed[-1] == (None if calls[0] == 0 else 1)


def test_the_box_is_sealed():
    box = box_of(lambda *_: (0.0, None))
    assert repr(box) == "<Sensitive: shape (2,), gaussian-dp bound 0.1 (add-remove), 0.2 (replace-one)>"
    for look in (copy.copy, pickle.dumps, np.asarray, list):
        with pytest.raises(SealedValue):
            look(box)


def test_boxes_and_mechanisms_that_do_not_belong_together_are_refused():
    purse = rdp_purse()
    with pytest.raises(InvalidArgument, match="trials"):
        purse.release(counts(["a"], categories=["a"]), RepeatAndSelect(2.0))
    with pytest.raises(InvalidArgument, match="trials"):
        purse.release(Sensitive(0.0, norm=Norm.MU, add_remove=0.1, replace_one=0.1), RepeatAndSelect(2.0))
    with pytest.raises(UnboundedSensitivity):
        purse.release(box_of(lambda *_: (0.0, None)), Gaussian(10.0))
    one_sided = SensitiveTrials(None, candidates=1, add_remove=None, replace_one=0.1, hand_over=print)
    with pytest.raises(UnboundedSensitivity):
        purse.release(one_sided, RepeatAndSelect(2.0))
    assert purse.spent.releases == 0


@pytest.mark.parametrize(
    "wrong", [{"mean": 0.5}, {"mean": 1e7}, {"mean": math.nan}, {"mean": 2.0, "shape": 1.5}, {"mean": "5"}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        RepeatAndSelect(**wrong)
