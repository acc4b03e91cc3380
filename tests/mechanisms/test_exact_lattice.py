"""Gaussian releases on a lattice: never less noise than was paid for, and nothing but whole
multiples of the unit.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privypurse import Gaussian, Neighbouring, NoiseSource, Norm, Purse, Sensitive
from privypurse.core._errors import BudgetExhausted, InvalidArgument
from privypurse.core._sensitive import SensitiveObjective
from privypurse.mechanisms import _exact_gaussian as exact_gaussian
from privypurse.mechanisms import _exact_kernels
from privypurse.mechanisms._exact_gaussian import LARGEST_NOISE, LARGEST_STD, LARGEST_UNITS, Lattice
from privypurse.mechanisms._perturbed_minimiser import ObjectivePerturbation, OutputPerturbation

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
SOURCES = ["secure", "discrete"]


def source(name, seed=1):
    return NoiseSource(seed=seed, secure=name == "secure" or name)


def box(value=(1.0, 2.0), add_remove=3.0, replace_one=6.0, sample_prob=1.0):
    return Sensitive(value, norm=Norm.L2, add_remove=add_remove, replace_one=replace_one, sample_prob=sample_prob)


@given(st.floats(1e-90, 1e90), st.floats(1e-6, 1e8), st.integers(0, 10**8), st.booleans())
def test_the_noise_is_never_less_than_the_multiplier_times_the_rounded_bound(bound, multiplier, count, discrete):
    lattice = Lattice.of(bound, multiplier, count, discrete)
    assert 1 <= lattice.std <= LARGEST_STD
    unit = Fraction(2) ** lattice.exponent
    assert Fraction(lattice.unit) == unit
    # std >= multiplier (bound/unit + sqrt(count)), squared to stay among rational numbers.
    without_root = Fraction(lattice.std) / Fraction(multiplier) - Fraction(bound) / unit
    assert without_root >= 0
    assert without_root**2 >= count
    if 1e-3 <= multiplier <= 1e6 and count <= 10**6:
        assert lattice.std * unit <= Fraction(multiplier) * Fraction(bound) * (
            1 + Fraction(10 if discrete else 2, 10**6)
        )


@given(st.data())
def test_two_values_within_the_bound_become_points_within_the_rounded_bound(data):
    size = data.draw(st.integers(1, 30))
    bound = data.draw(st.floats(1e-8, 1e8))
    lattice = Lattice.of(bound, 1.0, size)
    value = data.draw(hnp.arrays(float, size, elements=st.floats(-1e12, 1e12))) * bound
    step = data.draw(hnp.arrays(float, size, elements=st.floats(-1, 1)))
    step = step * (bound / max(1.0, np.linalg.norm(step)))
    if data.draw(st.booleans()):  # near the halves, where rounding moves most
        value = (np.floor(value / lattice.unit) + 0.5 + data.draw(st.floats(-1e-3, 1e-3))) * lattice.unit
    moved = value + step
    exact = math.sqrt(sum((Fraction(b) - Fraction(a)) ** 2 for a, b in zip(value, moved, strict=True)))
    apart = [int(b) - int(a) for a, b in zip(lattice.points(value), lattice.points(moved), strict=True)]
    assert math.sqrt(sum(d * d for d in apart)) <= exact / lattice.unit * (1 + 1e-12) + math.sqrt(size)


def test_values_beyond_the_lattice_stay_at_its_end_and_nothing_overflows():
    lattice = Lattice.of(1.0, 1.0, 4)
    points = lattice.points(np.array([1e200, -1e200, 2.0**31, -(2.0**31)]))
    assert points.tolist() == [LARGEST_UNITS, -LARGEST_UNITS, LARGEST_UNITS, -LARGEST_UNITS]
    assert LARGEST_UNITS + LARGEST_NOISE < 2**63
    drawn = Lattice.of(1.0, 1e6, 2).add_noise(np.array([1e200, -1e200]), source("secure"))
    assert np.isfinite(drawn).all()
    assert drawn[0] > 2.0**29
    assert drawn[1] < -(2.0**29)
    # Some of the noise would carry it further; it stays at the end.
    ends = np.array(
        [Lattice.of(1.0, 1e6, 1).add_noise(np.array([1e200]), source("secure", seed)) for seed in range(20)]
    )
    assert (ends == ends.max()).sum() > 3


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (0,)])
def test_releases_are_whole_multiples_of_the_unit_and_keep_their_shape(name, shape):
    held = box(np.full(shape, 0.1), add_remove=0.3, replace_one=0.6)
    drawn = Gaussian(2.0).draw(held, ADD_REMOVE, source(name))
    unit = Lattice.of(0.3, 2.0, math.prod(shape)).unit
    assert drawn.shape == shape
    assert drawn.dtype == np.float64
    assert (drawn / unit == np.rint(drawn / unit)).all()
    assert unit <= 0.3 * 2.0**-30


@pytest.mark.parametrize("name", SOURCES)
def test_the_value_is_the_centre_and_the_noise_does_not_depend_on_it(name):
    value = np.array([10.0, 20.25, -30.0])
    at_zero = Gaussian(1.0).draw(box(np.zeros(3)), ADD_REMOVE, source(name))
    assert (Gaussian(1.0).draw(box(value), ADD_REMOVE, source(name)) - at_zero).tolist() == value.tolist()


def test_the_lattice_follows_the_relation_and_the_sampling():
    for held, relation, bound, moves in (
        (box(), ADD_REMOVE, 3.0, 1),
        (box(sample_prob=0.1), ADD_REMOVE, 3.0, 1),
        (box(), REPLACE_ONE, 6.0, 2),
        (box(replace_one=4.0, sample_prob=0.1), REPLACE_ONE, 6.0, 2),
    ):
        lattice = Gaussian(2.0).check_noise(held, relation, source("secure"))
        assert lattice == Lattice.of(bound, 2.0, 2, False, moves)
        assert lattice.std == 2 * (Fraction(bound) / Fraction(lattice.unit) + 2 * moves)


@pytest.mark.parametrize("multiplier", [1e13, 1e100, 1e180])
def test_noise_too_large_for_the_lattice_is_refused_before_payment(multiplier):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise="secure")
    with pytest.raises(InvalidArgument, match="too large for exact noise"):
        purse.release(box(), Gaussian(multiplier))
    assert purse.spent.releases == 0


def test_a_refused_charge_is_still_refused():
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise="secure")
    with pytest.raises(BudgetExhausted):
        purse.release(box(), Gaussian(0.1))
    assert purse.release(box(), Gaussian(50.0)).value.shape == (2,)


def objective(centre):
    """Minimise to a known point."""
    return SensitiveObjective(
        lambda linear, ridge, tolerance: np.asarray(centre), dimension=len(centre), gradient=1.0, curvature=0.25
    )


def test_output_perturbation_releases_on_the_lattice():
    mechanism = OutputPerturbation(noise_multiplier=3.0, ridge=2.0)
    purse = Purse(50.0, 1e-6, neighbouring="add-remove", noise=source("secure"))
    released = purse.release(objective([0.1, 0.2]), mechanism).value
    lattice = Lattice.of(mechanism.sensitivity(objective([0.1, 0.2]), ADD_REMOVE), 3.0, 2)
    assert (released / lattice.unit == np.rint(released / lattice.unit)).all()
    assert released.tolist() == lattice.add_noise(np.array([0.1, 0.2]), source("secure")).tolist()
    with pytest.raises(InvalidArgument, match="too large for exact noise"):
        purse.release(objective([0.1]), OutputPerturbation(noise_multiplier=1e14, ridge=2.0))
    assert purse.spent.releases == 1


@pytest.mark.parametrize("dimension", [1, 4, 1_000, 10**6])
@pytest.mark.parametrize("paid", [ADD_REMOVE, REPLACE_ONE], ids=str)
def test_output_perturbation_keeps_what_it_charges(paid, dimension):
    """Lattice points of neighbours are within sensitivity/unit + sqrt(count) of each other, under
    each relation.
    """
    mechanism = OutputPerturbation(noise_multiplier=2.0, ridge=1.0)
    held = SensitiveObjective(lambda *search: np.zeros(dimension), dimension=dimension, gradient=1.0, curvature=1.0)
    lattice = mechanism._lattice(held, paid, source("secure"))
    root = math.isqrt(dimension - 1) + 1
    for other in {paid, REPLACE_ONE}:
        apart = Fraction(mechanism.sensitivity(held, other)) / Fraction(lattice.unit) + root
        claimed = mechanism.charge_seen_under(held, paid, other).noise_multiplier
        assert Fraction(claimed) * apart <= lattice.std * (1 + Fraction(1, 10**15))


def test_a_perturbed_objective_refuses_exact_noise_before_payment():
    mechanism = ObjectivePerturbation(noise_multiplier=20.0, ridge=2.0)
    purse = Purse(50.0, 1e-6, neighbouring="add-remove", noise="secure")
    with pytest.raises(InvalidArgument, match="noise must be 'plain'"):
        purse.release(objective([0.1]), mechanism)
    assert purse.spent.releases == 0
    plain = Purse(50.0, 1e-6, neighbouring="add-remove", filter="rdp", noise="plain")
    assert plain.release(objective([0.1]), mechanism).value.shape == (1,)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_tensors_get_the_same_release_as_arrays(precision):
    torch = pytest.importorskip("torch")
    from privypurse.mechanisms._torch_gaussian import SensitiveTensor, TorchGaussian

    value = np.random.default_rng(0).normal(size=(3, 4)).astype(precision)
    value[0, 0], value[0, 1] = 1e30, -1e30
    tensor = SensitiveTensor(torch.from_numpy(value), norm=Norm.L2, add_remove=0.3, replace_one=0.6)
    released = TorchGaussian(2.0).draw(tensor, ADD_REMOVE, source("secure"))
    array = box(value.astype(np.float64), add_remove=0.3, replace_one=0.6)
    assert released.dtype == torch.float64
    assert released.tolist() == Gaussian(2.0).draw(array, ADD_REMOVE, source("secure")).tolist()


@pytest.mark.parametrize("bound", [1e-90, 0.3, 1.0, 1e90])
def test_compiled_and_readable_releases_are_the_same_bits(monkeypatch, bound):
    rng = np.random.default_rng(1)
    lattice = Lattice.of(bound, 2.0, 600)
    halves = (rng.integers(-(2**40), 2**40, 600) + 0.5) * lattice.unit
    beyond = rng.choice([-1.0, 1.0], 600) * lattice.unit * 2.0 ** rng.uniform(59, 63, 600)
    values = [
        rng.standard_normal(600) * bound,
        halves,
        np.nextafter(halves, np.inf),
        beyond,
        np.array([0.0, -0.0, 1e199, -1e199, 5e-324, LARGEST_UNITS * lattice.unit]),
        np.asfortranarray(rng.standard_normal((20, 30)) * bound),
        (rng.standard_normal((40, 30)) * bound)[::2, 1::3],
        np.array(0.7 * bound),
        np.empty((0, 3)),
    ]
    for value in values:
        value.setflags(write=False)
        released = []
        for kernels in (None, _exact_kernels):
            monkeypatch.setattr(exact_gaussian, "compiled_kernels", lambda kernels=kernels: kernels)
            released.append(lattice.add_noise(value, source("secure")))
        assert released[0].shape == released[1].shape == value.shape
        assert released[0].dtype == released[1].dtype == np.float64
        assert released[0].tobytes() == released[1].tobytes()
