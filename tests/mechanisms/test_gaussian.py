"""Gaussian mechanism: price and noise come from one number and one bound."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privypurse.accounting import _gdp as gdp
from privypurse.core._errors import InvalidArgument, UnboundedSensitivity
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.charges import GaussianCharge
from privypurse.mechanisms import Gaussian
from privypurse.mechanisms._non_private import NonPrivateRelease

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE


def box(value=(1.0, 2.0), add_remove=3.0, replace_one=6.0, sample_prob=1.0):
    return Sensitive(value, norm=Norm.L2, add_remove=add_remove, replace_one=replace_one, sample_prob=sample_prob)


def test_the_charge_is_the_multiplier_and_the_noise_scales_with_the_bound():
    mechanism = Gaussian(2.0)
    assert mechanism.charge(box(), ADD_REMOVE) == GaussianCharge(2.0)
    assert mechanism.noise_std(box(), ADD_REMOVE) == 6.0
    assert mechanism.noise_std(box(), REPLACE_ONE) == 12.0
    assert mechanism.charge(box(sample_prob=0.1), ADD_REMOVE) == GaussianCharge(2.0, 0.1)


def test_a_release_seen_under_the_other_relation():
    mechanism = Gaussian(2.0)
    assert mechanism.charge_seen_under(box(), ADD_REMOVE, REPLACE_ONE) == GaussianCharge(1.0)


def test_a_sampled_box_under_replacement_uses_twice_the_add_remove_bound():
    counts = box(add_remove=1.0, replace_one=math.sqrt(2), sample_prob=0.1)
    assert Gaussian(1.0).noise_std(counts, REPLACE_ONE) == 2.0
    with pytest.raises(UnboundedSensitivity):
        Gaussian(1.0).charge(box(add_remove=None, sample_prob=0.1), REPLACE_ONE)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3)])
def test_vectors_and_scalars_keep_their_shape(shape):
    drawn = Gaussian(1.0).draw(box(np.zeros(shape)), ADD_REMOVE, NoiseSource(seed=1))
    assert drawn.shape == shape
    assert np.isfinite(drawn).all()


def test_the_value_is_the_centre_of_the_noise():
    at_zero = Gaussian(1.0).draw(box(np.zeros(3)), ADD_REMOVE, NoiseSource(seed=1))
    moved = Gaussian(1.0).draw(box([10.0, 20.0, 30.0]), ADD_REMOVE, NoiseSource(seed=1))
    assert np.allclose(moved - at_zero, [10, 20, 30])


@given(st.floats(1e-8, 1e8))
def test_with_mu_is_never_cheaper_than_it_says(mu):
    assert 1 / Fraction(Gaussian.with_mu(mu).noise_multiplier) <= Fraction(mu)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_with_noise_std(noise_std, bound):
    held = box(add_remove=bound, replace_one=2 * bound)
    mechanism = Gaussian.with_noise_std(noise_std, held, "add-remove")
    actual = mechanism.noise_std(held, ADD_REMOVE)
    assert actual == pytest.approx(noise_std, rel=1e-12)
    # The price, rounded up, covers the noise that is really added.
    assert gdp.mu_squared(mechanism.charge(held, ADD_REMOVE)) >= (bound / actual) ** 2


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, True, "1"], ids=repr)
def test_wrong_multipliers_are_refused(bad):
    with pytest.raises(InvalidArgument, match="noise_multiplier must be"):
        Gaussian(bad)


@pytest.mark.parametrize(("multiplier", "bound"), [(1e-200, 1e-99), (1e200, 1e99)])
def test_noise_that_floating_point_cannot_hold_is_refused_before_payment(multiplier, bound):
    with pytest.raises(InvalidArgument, match="standard deviation"):
        Gaussian(multiplier).charge(box(add_remove=bound, replace_one=2 * bound), ADD_REMOVE)


def test_scores_have_no_gaussian_price():
    scores = Sensitive([1.0], norm=Norm.RANGE, add_remove=1.0, replace_one=2.0)
    with pytest.raises(UnboundedSensitivity, match=r"Norm\.L2"):
        Gaussian(1.0).charge(scores, ADD_REMOVE)


def test_a_non_private_release_is_exact_and_costs_infinity():
    mechanism = NonPrivateRelease("debugging")
    assert mechanism.draw(box(), ADD_REMOVE, NoiseSource()).tolist() == [1.0, 2.0]
    assert gdp.mu_squared(mechanism.charge(box(), ADD_REMOVE)) == math.inf
    with pytest.raises(InvalidArgument, match="reason must be"):
        NonPrivateRelease(" ")
