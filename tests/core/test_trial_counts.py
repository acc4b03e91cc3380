"""The number of trials, and the choice of a candidate, from chosen random words."""

import math

import numpy as np
import pytest

from privypurse.core import _trial_counts as trial_counts
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource


class Script(NoiseSource):
    """Gives the words it was told to give."""

    def __init__(self, *script):
        super().__init__()
        self.script = list(script)

    def words(self, count):
        return np.array([self.script.pop(0) for _ in range(count)], dtype=np.uint64)


def test_the_parameter_gives_the_mean():
    assert trial_counts.log_inverse_g(8.0, 1.0) == pytest.approx(math.log(8), rel=1e-12), "geometric: g is 1/mean"
    assert trial_counts.log_inverse_g(1.0, 0.5) == 0.0
    for shape in (0.0, 0.3, 1.0):
        assert trial_counts.mean_of(trial_counts.log_inverse_g(5.0, shape), shape) == pytest.approx(5.0)


@pytest.mark.parametrize("shape", [5e-324, 1e-320, 1e-300])
@pytest.mark.parametrize("mean", [1 + 2**-52, 1 + 1e-9, 5.0])
def test_a_shape_too_small_for_floating_point_counts_as_zero(mean, shape):
    assert trial_counts.log_inverse_g(mean, shape) == trial_counts.log_inverse_g(mean, 0.0)


def test_a_mean_that_no_parameter_gives_is_refused():
    with pytest.raises(InvalidArgument, match="mean must be a number from 1 to 1e300"):
        trial_counts.log_inverse_g(1e307, 1.0)


def test_counting_goes_on_starts_again_and_stops():
    on, stop, keep, again = 2**64 - 1, 0, 0, 2**64 - 1
    assert trial_counts.draw_trial_count(5.0, 0.5, Script(on, keep, on, keep, stop)) == 3
    assert trial_counts.draw_trial_count(5.0, 0.5, Script(on, keep, on, again, stop)) == 1


def test_a_candidate_is_drawn_again_from_words_that_would_favour_the_first_ones():
    assert trial_counts.draw_below(3, Script(2**64 - 1, 5)) == 2
    assert trial_counts.draw_below(3, Script(2**64 - 2)) == 2
    assert trial_counts.draw_below(1, Script(2**64 - 1)) == 0
