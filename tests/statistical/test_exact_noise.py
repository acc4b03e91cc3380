"""Exact noise has the scale that was paid for, in large samples, through the gate, and beside
another library's sampler.
"""

import numpy as np
import pytest
from scipy import stats

from privypurse import Gaussian, Neighbouring, NoiseSource, Norm, Purse, Sensitive
from privypurse.mechanisms._exact_gaussian import exact_gaussian

pytestmark = pytest.mark.statistical

SEEDS = [11, 23, 47]


def floored_gaussian(count, std, noise):
    return exact_gaussian(count, std, False, noise)


def discrete_gaussian(count, std, noise):
    return exact_gaussian(count, std, True, noise)


LAWS = {"floored": floored_gaussian, "discrete": discrete_gaussian}
DRAWS = 20_000


def assert_scale(samples, std, chance=1e-4):
    """Accept the normal law at the right scale, reject it at 2/3 and 3/2."""
    assert stats.kstest(samples, stats.norm(scale=std).cdf).pvalue > chance
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(samples, stats.norm(scale=wrong * std).cdf).pvalue < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("std", [10**6 + 1, 2**31, 2**40 + 8, 2**53])
def test_large_scales(law, std, seed):
    assert_scale(LAWS[law](DRAWS, std, NoiseSource(seed=seed)).astype(float), float(std))


@pytest.mark.parametrize("law", LAWS)
def test_operating_system_entropy_gives_the_same_law(law):
    """Not seeded, so this fails by chance: once in ten million runs."""
    assert_scale(LAWS[law](DRAWS, 2**34, NoiseSource()).astype(float), 2.0**34, chance=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("law", LAWS)
def test_last_digits_are_even(law, seed):
    """A floating-point sampler's lowest bits have holes; these have none."""
    drawn = LAWS[law](100_000, 2**40 + 8, NoiseSource(seed=seed))
    assert stats.chisquare(np.bincount(drawn & 1023, minlength=1024)).pvalue > 1e-4


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("law", LAWS)
def test_tails_reach_as_far_as_they_should(law, seed):
    std, draws = 2**34, 2_000_000
    drawn = LAWS[law](draws, std, NoiseSource(seed=seed))
    for reach in (3, 4, 4.5):
        for beyond in ((drawn > reach * std).sum(), (drawn < -reach * std).sum()):
            low, high = stats.poisson(draws * stats.norm.sf(reach)).interval(0.9999)
            assert low <= beyond <= high


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("law", LAWS)
def test_no_correlation_across_coordinates_or_steps(law, seed):
    noise = NoiseSource(seed=seed)
    steps = np.array([LAWS[law](64, 2**34, noise) for _ in range(4_000)]) / 2.0**34
    coordinates = np.corrcoef(steps, rowvar=False)
    off = coordinates[~np.eye(64, dtype=bool)]
    assert np.abs(off).max() < 5 / np.sqrt(4_000)
    assert (off**2).mean() * 4_000 == pytest.approx(1.0, abs=0.15)
    assert np.abs((steps[1:] * steps[:-1]).mean(axis=0)).max() < 5 / np.sqrt(4_000)
    assert stats.pearsonr(np.abs(steps[:, :-1]).ravel(), np.abs(steps[:, 1:]).ravel()).pvalue > 1e-5
    assert stats.pearsonr(np.abs(steps).ravel(), steps.ravel() > 0).pvalue > 1e-5, "sign and size are independent"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("shape", [(), (50,)])
def test_released_values_carry_the_noise_that_was_paid_for(seed, relation, shape):
    """Through the gate: multiplier 4, bound 1.5 or 3, so a standard deviation of 6 or 12."""
    purse = Purse(1e3, 1e-2, neighbouring=relation, noise=NoiseSource(seed=seed, secure=True))
    box = Sensitive(np.full(shape, 7.0), norm=Norm.L2, add_remove=1.5, replace_one=3.0)
    releases = 200 if shape else 5_000
    with purse.reserve(releases):
        samples = np.array([purse.release(box, Gaussian(4.0)).value for _ in range(releases)]).ravel()
    assert_scale(samples - 7.0, 4.0 * box.bound(relation, Norm.L2))


@pytest.mark.parametrize("std", [1, 3, 8])
def test_the_discrete_gaussian_has_the_law_of_opendp(std):
    """Two samples, not seeded: this fails by chance once in ten million runs for each of three
    scales.
    """
    pytest.importorskip("opendp")
    ours = discrete_gaussian(50_000, std, NoiseSource())
    theirs = discrete_gaussian(50_000, std, NoiseSource(secure="opendp"))
    reach = 3 * std

    def counts(samples):
        return np.bincount(np.clip(samples, -reach, reach) + reach, minlength=2 * reach + 1)

    def p_value(first, second):
        return stats.chi2_contingency([counts(first), counts(second)]).pvalue

    assert p_value(ours, theirs) > 1e-7
    # The floored law lies half a unit lower: at least 13 standard errors of the difference of
    # means.
    assert stats.ttest_ind(floored_gaussian(1_000_000, std, NoiseSource()), theirs).pvalue < 1e-7


@pytest.mark.parametrize("multiplier", [0.5, 4.0])
def test_releases_through_opendp_have_the_scale_that_was_paid_for(multiplier):
    pytest.importorskip("opendp")
    purse = Purse(1e4, 1e-2, neighbouring="add-remove", filter="zcdp", noise="opendp")
    box = Sensitive(np.full(5_000, 7.0), norm=Norm.L2, add_remove=1.5, replace_one=3.0)
    assert_scale(purse.release(box, Gaussian(multiplier)).value - 7.0, 1.5 * multiplier, chance=1e-7)
