"""The noise that leaves has the scale that was paid for: tests that accept it and reject 2/3 and
3/2 of it.
"""

import os

import numpy as np
import pytest
from scipy import stats

from privypurse import Gaussian, Neighbouring, NoiseSource, Norm, Purse, Sensitive

pytestmark = pytest.mark.statistical

SEEDS = [11, 23, 47]
DRAWS = 20_000


class Repeatable(NoiseSource):
    """Words that a test can repeat, on the way that noise without a seed takes."""

    def __init__(self, seed):
        super().__init__()
        self._bits = np.random.Philox(seed)

    def words(self, count):
        return self._bits.random_raw(count)


SOURCES = pytest.mark.parametrize("source", [NoiseSource, Repeatable])


def p_value(samples, distribution):
    return stats.kstest(samples, distribution.cdf).pvalue


def assert_scale(samples, make, chance=1e-4):
    """Accept the distribution at the right scale, reject it at 2/3 and 3/2."""
    assert p_value(samples, make(1.0)) > chance
    assert p_value(samples, make(2 / 3)) < 1e-9
    assert p_value(samples, make(3 / 2)) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
@SOURCES
def test_sources(source, seed):
    noise = source(seed=seed)
    assert_scale(noise.normal((DRAWS,)), lambda k: stats.norm(scale=k))
    assert_scale(noise.exponential((DRAWS,)), lambda k: stats.expon(scale=k))
    assert_scale(noise.gumbel((DRAWS,)), lambda k: stats.gumbel_r(scale=k))
    assert p_value(noise.uniform((DRAWS,)), stats.uniform()) > 1e-4


def test_operating_system_noise_has_the_same_distribution():
    """Not seeded, so this fails by chance: twice in ten million runs."""
    noise = NoiseSource()
    assert_scale(noise.normal((DRAWS,)), lambda k: stats.norm(scale=k), chance=1e-7)
    assert_scale(noise.gumbel((DRAWS,)), lambda k: stats.gumbel_r(scale=k), chance=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("relation", list(Neighbouring))
@pytest.mark.parametrize("shape", [(), (50,)])
def test_released_values_carry_the_noise_that_was_paid_for(seed, relation, shape):
    """Through the gate: multiplier 4, bound 1.5 or 3, so a standard deviation of 6 or 12."""
    purse = Purse(1e3, 1e-2, neighbouring=relation, noise=NoiseSource(seed=seed))
    box = Sensitive(np.full(shape, 7.0), norm=Norm.L2, add_remove=1.5, replace_one=3.0)
    releases = 200 if shape else 5_000
    with purse.reserve(releases):
        samples = np.array([purse.release(box, Gaussian(4.0)).value for _ in range(releases)]).ravel()
    std = 4.0 * box.bound(relation, Norm.L2)
    assert_scale(samples - 7.0, lambda k: stats.norm(scale=k * std))


@pytest.mark.parametrize("seed", SEEDS)
@SOURCES
def test_tails_reach_as_far_as_they_should(source, seed):
    samples = source(seed=seed).normal((2_000_000,))
    beyond = (np.abs(samples) > 4).sum()
    assert stats.poisson(2_000_000 * 2 * stats.norm.sf(4)).interval(0.9999)[0] <= beyond
    assert beyond <= stats.poisson(2_000_000 * 2 * stats.norm.sf(4)).interval(0.9999)[1]


@pytest.mark.parametrize("seed", SEEDS)
@SOURCES
def test_no_correlation_across_coordinates_or_steps(source, seed):
    noise = source(seed=seed)
    steps = np.array([noise.normal((64,)) for _ in range(4_000)])
    coordinates = np.corrcoef(steps, rowvar=False)
    off = coordinates[~np.eye(64, dtype=bool)]
    # 2016 independent correlations with standard error 1/sqrt(4000).
    assert np.abs(off).max() < 5 / np.sqrt(4_000)
    assert (off**2).mean() * 4_000 == pytest.approx(1.0, abs=0.15)
    lagged = (steps[1:] * steps[:-1]).mean(axis=0)
    assert np.abs(lagged).max() < 5 / np.sqrt(4_000)
    pairs = (steps[:, 0::2] * steps[:, 1::2]).mean(axis=0)  # the two halves of one Box-Muller pair
    assert np.abs(pairs).max() < 5 / np.sqrt(4_000)
    radii = stats.pearsonr(np.abs(steps[:, 0::2]).ravel(), np.abs(steps[:, 1::2]).ravel())
    assert radii.pvalue > 1e-5, "nor do their magnitudes move together"


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_of_a_block_are_independent_without_a_seed(seed):
    """The two halves of a block hold the two coordinates of each pair."""
    first, second = Repeatable(seed).normal((2**15,)).reshape(2, -1)
    assert stats.pearsonr(first, second).pvalue > 1e-5
    assert stats.pearsonr(np.abs(first), np.abs(second)).pvalue > 1e-5
    quarters = np.unique(2 * (first > 0) + (second > 0), return_counts=True)[1]
    assert stats.chisquare(quarters).pvalue > 1e-5
    assert stats.kstest(np.arctan2(first, second), stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-5


def normals_of_a_fork(source, count):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(source.normal((count,)).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        drawn = np.frombuffer(pipe.read())
    os.waitpid(child, 0)
    return drawn


def test_no_correlation_across_forks():
    source, count = NoiseSource(), 20_000
    drawn = [normals_of_a_fork(source, count) for _ in range(3)] + [source.normal((count,))]
    off = np.corrcoef(drawn)[~np.eye(4, dtype=bool)]
    assert np.abs(off).max() < 6.5 / np.sqrt(count)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_correlation_across_spawned_children(seed):
    drawn = [child.normal((20_000,)) for child in NoiseSource(seed=seed).spawn(8)]
    off = np.corrcoef(drawn)[~np.eye(8, dtype=bool)]
    assert np.abs(off).max() < 5 / np.sqrt(20_000)
