"""What a run asks of a purse is checked before any data is read."""

import math

import pytest

from privypurse import BudgetExhausted, Gaussian, InvalidArgument, Purse
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core.charges import GaussianCharge
from privypurse.purse._allowance import Allowance
from privypurse.purse._opening import check_delta, check_noise_name, noise_source, part_of


@pytest.mark.parametrize(("delta", "records"), [(1e-4, None), (1e-3, 1000), (0.02, 50)])
def test_a_delta_with_which_whole_records_could_be_published_is_refused(delta, records):
    with pytest.raises(InvalidArgument, match="far below one over the number of records"):
        check_delta(delta, records)
    check_delta(delta / 2, records)


def test_an_empty_purse_gives_nothing(box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    purse.release(box, Gaussian.spending(purse.remaining))
    for epsilon in (None, 0.1):
        with pytest.raises(BudgetExhausted, match="nothing is left in the purse of data set 'default'"):
            part_of(purse, epsilon)


def test_more_than_is_left_is_refused_with_what_is_left(box):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    with pytest.raises(BudgetExhausted, match=r"epsilon=2 was requested, but (1|0.9999) is left of the 1"):
        part_of(purse, 2.0)
    part = part_of(purse, 0.3)
    assert isinstance(part, Allowance)
    assert part.epsilon == 0.3
    assert part_of(purse, None).epsilon == pytest.approx(1.0)


def test_a_fixed_schedule_is_not_divided():
    purse = Purse.with_filter(FixedSchedule([GaussianCharge(20.0)], 1.0, 1e-6, "add-remove"))
    assert part_of(purse, None) is part_of(purse, 1.0) is purse
    with pytest.raises(InvalidArgument, match="cannot be divided"):
        part_of(purse, 0.5)


def test_a_purse_that_is_not_private_has_no_limit_of_its_own():
    purse = Purse.not_private()
    assert part_of(purse, None) is purse
    assert part_of(purse, 0.5).epsilon == 0.5
    assert math.isinf(purse.epsilon)


@pytest.mark.parametrize("noise", ["loud", None, True, "discrete"])
def test_noise_has_a_name(noise):
    with pytest.raises(InvalidArgument, match="noise must be one of 'auto', 'secure', 'plain'"):
        check_noise_name(noise)


def test_names_of_noise():
    for name, sampler, strict in (("auto", "secure", False), ("secure", "secure", True), ("plain", "plain", True)):
        check_noise_name(name)
        source = noise_source(name, None)
        assert (source.sampler, source.strict) == (sampler, strict)
    assert noise_source("auto", 3).simulation
