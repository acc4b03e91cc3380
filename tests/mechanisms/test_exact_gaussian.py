"""Exact whole-number Gaussian noise: every decision is right, the quick ones and the slow ones."""

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import mpmath
import numba
import numpy as np
import pytest
from scipy import stats

from privypurse.core._randomness import NoiseSource
from privypurse.mechanisms import _exact_gaussian as exact_gaussian
from privypurse.mechanisms import _exact_kernels
from privypurse.mechanisms._exact_gaussian import LARGEST_STD


def floored_gaussian(count, std, noise):
    return exact_gaussian.exact_gaussian(count, std, False, noise)


def discrete_gaussian(count, std, noise):
    return exact_gaussian.exact_gaussian(count, std, True, noise)


LAWS = {"floored": floored_gaussian, "discrete": discrete_gaussian}
STDS = [1, 2, 5, 8, 1000, 2**31 + 1, 2**40, LARGEST_STD]


WAYS = {"numpy": None, "compiled": _exact_kernels}


@pytest.fixture(params=list(WAYS))
def way(request, monkeypatch):
    """Both quick paths, the readable one and its compiled twin."""
    monkeypatch.setattr(exact_gaussian, "compiled_kernels", lambda: WAYS[request.param])
    return request.param


def cells_of(std, discrete):
    """The number of cells for each standard deviation; each holds whole numbers of values."""
    return 1 if discrete and std % 8 else 8


def decide(first, second, std, discrete, noise):
    """What the slow way makes of two words."""
    return exact_gaussian._decide(first, second, std, cells_of(std, discrete), discrete, noise)


def candidates(way, first, second, std, discrete, noise):
    """What one way makes of two words each."""
    cells = cells_of(std, discrete)
    if way == "numpy":
        return exact_gaussian._candidates(first, second, std, cells, discrete, noise)
    out, words = np.empty(first.size, dtype=np.int64), np.concatenate([first, second])
    filled = exact_gaussian._fill(_exact_kernels, words, std, cells, discrete, noise, out, 0)
    return out[:filled]


class NoMoreWords(NoiseSource):
    """For decisions that need no further bits."""

    def words(self, count):
        raise AssertionError("asked for more random words")


def second_word(negative, chooser, keeper):
    return (negative << 63) | (chooser << 32) | keeper


def probabilities(law, std, values):
    """The exact law, to more digits than a test needs."""
    with mpmath.workdps(40):
        if law == "floored":
            below = [mpmath.ncdf(mpmath.mpf(y) / std) for y in [*values, values[-1] + 1]]
            return np.array([float(after - before) for before, after in itertools.pairwise(below)])
        weights = {y: mpmath.exp(-(mpmath.mpf(y) ** 2) / (2 * mpmath.mpf(std) ** 2)) for y in range(-400, 401)}
        total = mpmath.fsum(weights.values())
        return np.array([float(weights[y] / total) for y in values])


def chi_square(samples, law, std):
    """Compare counts with the exact law, all values beyond 3.5 standard deviations taken together."""
    reach = math.ceil(3.5 * std)
    values = range(-reach, reach + 1)
    expected = probabilities(law, std, values)
    inside = np.abs(samples) <= reach
    observed = np.append(np.bincount(samples[inside] + reach, minlength=len(values)), (~inside).sum())
    expected = np.append(expected, 1 - expected.sum()) * samples.size
    return stats.chisquare(observed, expected).pvalue


@pytest.mark.parametrize("std", [1, 2, 5, 8, 16])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", [3, 5])
def test_counts_follow_the_exact_law_and_no_other_scale(way, law, std, seed):
    samples = LAWS[law](200_000, std, NoiseSource(seed=seed))
    assert chi_square(samples, law, std) > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert chi_square(samples, law, std * wrong) < 1e-12
    other = next(name for name in LAWS if name != law)
    assert chi_square(samples, other, std) < 1e-12, "and the two laws are told apart"


@pytest.mark.parametrize("std", [1, 3, 8])
@pytest.mark.parametrize("law", LAWS)
def test_counts_of_the_slow_way_follow_the_exact_law_too(way, law, std, monkeypatch):
    monkeypatch.setattr(exact_gaussian, "DOUBLE_ERROR", 2.0**40)
    decided = []
    slow = exact_gaussian._decide
    monkeypatch.setattr(exact_gaussian, "_decide", lambda *args: decided.append(1) or slow(*args))
    samples = LAWS[law](8_000, std, NoiseSource(seed=11))
    assert len(decided) >= 8_000, "all of them went the slow way"
    assert chi_square(samples, law, std) > 1e-4
    assert chi_square(samples, law, std * 2 / 3) < 1e-9
    assert chi_square(samples, law, std * 3 / 2) < 1e-9


@pytest.mark.parametrize("std", STDS)
@pytest.mark.parametrize("law", LAWS)
def test_quick_and_slow_agree_on_the_same_words(way, script, law, std):
    discrete = law == "discrete"
    words = NoiseSource(seed=std % 1000).words(2 * 3_000)
    first, second = words[:3_000], words[3_000:]
    further = script(), script()
    quick = candidates(way, first, second, std, discrete, further[0])
    slow = [decide(int(one), int(two), std, discrete, further[1]) for one, two in zip(first, second, strict=True)]
    assert quick.size < 3_000, "some are rejected"
    assert quick.tolist() == [value for value in slow if value is not None]
    # Whole parts of large multiples need further bits; nothing else does here.
    assert std > 2**40 or further[0].given == further[1].given == 0


@pytest.mark.parametrize("cells", [1, 8])
def test_cells_begin_and_end_where_they_should(script, cells):
    """The table of edges against mpmath, and both ways of choosing a cell at every edge."""
    edges, guide = exact_gaussian._cell_table(cells)
    with mpmath.workdps(60):
        weights = [mpmath.exp(-mpmath.mpf(j * j) / (2 * cells**2)) for j in range(60 * cells)]
        total = mpmath.fsum(weights)
        exact = [mpmath.fsum(weights[: j + 1]) / total * 2**31 for j in range(edges.size)]
        assert [int(mpmath.floor(edge)) for edge in exact[:-1]] == edges[:-1].tolist()
        assert exact[-1] > edges[-1] == 2**31 - 1
    for cell, edge in enumerate(edges.tolist()[:-1]):
        if edges[cell + 1] > edge + 1 and (cell == 0 or edges[cell - 1] < edge - 1):  # not so narrow, in the far tail
            for number, chosen in ((edge - 1, cell), (edge + 1, cell + 1)):
                assert exact_gaussian._choose_cell(exact_gaussian.Digits(number, 31), cells, NoMoreWords()) == chosen
        behind = int(mpmath.floor((exact[cell] - edge) * mpmath.mpf(2) ** 64))
        assert exact_gaussian._choose_cell(exact_gaussian.Digits(edge, 31), cells, script(behind - 2**20)) == cell
        assert exact_gaussian._choose_cell(exact_gaussian.Digits(edge, 31), cells, script(behind + 2**20)) == cell + 1
    known = np.flatnonzero(guide != exact_gaussian._SPLIT)
    for prefix in known[:: max(1, known.size // 200)].tolist():
        for number in (prefix << 15, (prefix << 15) + 2**15 - 1):
            assert exact_gaussian._choose_cell(exact_gaussian.Digits(number, 31), cells, NoMoreWords()) == guide[prefix]


def test_numbers_of_the_far_tail_are_not_cut_off(way, script):
    """Cell by cell beyond the table: the uniform number that is almost one has more bits drawn."""
    noise = script(2**64 - 1, 2**64 - 2**20)
    value = decide(0, second_word(0, 2**31 - 1, 0), 1000, False, noise)
    assert noise.given == 2
    # P(|Z| > 12.4) is about 2^-115.
    assert 11_000 < value < 14_000
    drawn = candidates(
        way,
        np.array([0], dtype=np.uint64),
        np.array([second_word(1, 2**31 - 1, 0)], dtype=np.uint64),
        1000,
        False,
        script(2**64 - 1, 2**64 - 2**20),
    )
    assert drawn.tolist() == [-1 - value]


@pytest.mark.parametrize("std", [99, 2**33 + 1, 2**50 + 1])
def test_a_whole_part_that_depends_on_further_bits_waits_for_them(way, script, std):
    """x just below 1/3 or another multiple of 1/std: the next word decides on which side it is."""
    multiple = 8 * (std // 24 + 1)  # of eight, so that one less shows
    first = multiple * 2**64 // std
    assert first * std % 2**64, "the multiple itself has more than 64 bits"
    for word, extra in ((0, -1), (2**64 - 1, 0)):
        value = decide(first, 0, std, False, script(word))
        drawn = candidates(
            way, np.array([first], dtype=np.uint64), np.array([0], dtype=np.uint64), std, False, script(word)
        )
        assert value == (multiple + extra) // 8
        assert drawn.tolist() == [value]


@pytest.mark.parametrize("law", LAWS)
def test_keeping_changes_side_exactly_at_the_exponential(way, script, law):
    """For x = 3/4 in cell 5 of 8, at the 32 bits of the keeping number and at the 64 that follow."""
    std, x = 80_000, Fraction(3, 4)
    chooser = int(exact_gaussian._cell_table(8)[0][4]) + 1000
    with mpmath.workdps(60):
        threshold = mpmath.exp(-mpmath.mpf(3) / 4 * (10 + mpmath.mpf(3) / 4) / 128) * 2**32
    edge = int(mpmath.floor(threshold))
    behind = int(mpmath.floor((threshold - edge) * mpmath.mpf(2) ** 64))
    # x needs more bits too where it is real: zeros keep it 3/4 up to 2^-128.
    first = np.array([int(x * 2**64)], dtype=np.uint64)
    for keeper, word, kept in (
        (edge - 1, 0, True),
        (edge + 1, 0, False),
        (edge, behind - 2**20, True),
        (edge, behind + 2**20, False),
    ):
        second = np.array([second_word(0, chooser, keeper)], dtype=np.uint64)
        drawn = candidates(way, first, second, std, law == "discrete", script(word))
        assert drawn.tolist() == ([57_500] if kept else [])


def test_minus_zero_is_rejected_so_that_zero_is_not_counted_twice(way):
    second = np.array([second_word(0, 0, 0), second_word(1, 0, 0)], dtype=np.uint64)
    first = np.zeros(2, dtype=np.uint64)
    assert candidates(way, first, second, 5, True, NoMoreWords()).tolist() == [0]
    assert decide(0, second_word(1, 0, 0), 5, True, NoMoreWords()) is None
    assert candidates(way, first, second, 5, False, NoMoreWords()).tolist() == [0, -1]


@pytest.mark.parametrize("count", [0, 1, 2, 8191, 20_001])
@pytest.mark.parametrize("law", LAWS)
def test_as_many_as_asked_for(way, law, count):
    drawn = LAWS[law](count, 2**30, NoiseSource(seed=1))
    assert drawn.shape == (count,)
    assert drawn.dtype == np.int64


@pytest.mark.parametrize("law", LAWS)
def test_few_random_words_are_used(law):
    class Counting(NoiseSource):
        given = 0

        def words(self, count):
            Counting.given += count
            return super().words(count)

    LAWS[law](50_000, 2**32, Counting(seed=1))
    assert Counting.given < 2.2 * 50_000


def test_the_compiled_path_is_for_processes_that_have_the_compiler(monkeypatch):
    assert exact_gaussian.compiled_kernels() is _exact_kernels
    monkeypatch.delitem(sys.modules, "numba")
    assert exact_gaussian.compiled_kernels() is None


def test_the_largest_scale_does_not_overflow(way):
    drawn = floored_gaussian(100_000, LARGEST_STD, NoiseSource(seed=1))
    assert stats.kstest(drawn / LARGEST_STD, stats.norm.cdf).pvalue > 1e-4


@numba.njit
def _compiled_exp(exponents):
    out = np.empty_like(exponents)
    for index in range(out.size):
        out[index] = math.exp(exponents[index])
    return out


def test_the_double_error_is_covered_with_room_to_spare():
    """The stated error of exp and what goes before it, against mpmath."""
    rng = np.random.default_rng(0)
    part, cell = rng.random(2_000), rng.integers(0, 75, 2_000)
    exponents = part * (2.0 * cell + part) * (-0.5 / 64)
    quick = np.append(np.exp(exponents), _compiled_exp(exponents))
    with mpmath.workdps(40):
        exact = [
            mpmath.exp(-mpmath.mpf(x) * (2 * int(j) + mpmath.mpf(x)) / 128) for x, j in zip(part, cell, strict=True)
        ]
        worst = max(abs(mpmath.mpf(q) / e - 1) for q, e in zip(quick, exact + exact, strict=True))
    assert worst < 2.0**-49
    assert exact_gaussian.DOUBLE_ERROR == 2.0**-40


def hard_words(std, discrete, count, seed):
    """Random words, and words that lie on the edges of all three decisions or next to them."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, 2**64, (2, count), dtype=np.uint64)
    cells = cells_of(std, discrete)
    edges = exact_gaussian._cell_table(cells)[0].astype(np.int64)
    width = std // cells if discrete else std
    chooser = np.clip(rng.choice(edges, count) + rng.integers(-1, 2, count), 0, 2**31 - 1)
    chooser = np.where(rng.random(count) < 0.3, chooser, (second >> np.uint64(32)).astype(np.int64) & (2**31 - 1))
    # x just below, at and above whole multiples of 1/width.
    multiples = [int(k) * 2**64 // width for k in rng.integers(0, width, count)]
    near = [
        min(2**64 - 1, max(0, x + int(move))) for x, move in zip(multiples, rng.integers(-1, 2, count), strict=True)
    ]
    first = np.where(rng.random(count) < 0.3, np.array(near, dtype=np.uint64), first)
    whole = np.array([int(x) * width >> 64 for x in first]) if discrete else None
    part = whole / width if discrete else first * 2.0**-64
    cell = np.minimum(np.searchsorted(edges, chooser), edges.size - 1)
    threshold = np.floor(np.exp(part * (2.0 * cell + part) * (-0.5 / cells**2)) * 2.0**32).astype(np.int64)
    keeper = np.clip(threshold + rng.integers(-2, 3, count), 0, 2**32 - 1)
    keeper = np.where(rng.random(count) < 0.3, keeper, rng.integers(0, 2**32, count))
    sign = rng.integers(0, 2, count).astype(np.uint64) << np.uint64(63)
    return first, sign | (chooser.astype(np.uint64) << np.uint64(32)) | keeper.astype(np.uint64)


@pytest.mark.parametrize("error", [2.0**-40, 2.0**-20, 2.0**-3, 2.0**40], ids=["true", "small", "large", "all"])
@pytest.mark.parametrize("std", [*STDS, 2**32 - 1, 2**32, 2**33 + 8, 2**53 + 8, 12345678])
@pytest.mark.parametrize("law", LAWS)
def test_the_compiled_twin_makes_the_same_of_the_same_words(monkeypatch, law, std, error):
    """The same numbers in the same order, the same candidates sent the slow way, and the same
    further words used.
    """
    monkeypatch.setattr(exact_gaussian, "DOUBLE_ERROR", error)
    discrete, slow = law == "discrete", []
    decide = exact_gaussian._decide
    monkeypatch.setattr(exact_gaussian, "_decide", lambda *args: slow.append(args[:5]) or decide(*args))
    count = 300 if error > 1 else 4_000 if error < 2.0**-10 else 1_500
    first, second = hard_words(std, discrete, count, seed=std % 1009)
    further = [NoiseSource(seed=1), NoiseSource(seed=1)]
    readable = candidates("numpy", first, second, std, discrete, further[0])
    sent = slow.copy()
    slow.clear()
    compiled = candidates("compiled", first, second, std, discrete, further[1])
    assert compiled.tolist() == readable.tolist()
    assert slow == sent
    assert sent, "some words lie on edges"
    assert error < 1 or len(sent) == count
    assert further[0].state() == further[1].state()


@pytest.mark.parametrize("law", LAWS)
def test_whole_draws_of_both_ways_are_the_same_numbers(monkeypatch, law):
    for seed, (count, std) in enumerate([(1, 1), (9, 2**33), (124, 5 * 2**30), (8_000, LARGEST_STD), (20_000, 2**40)]):
        drawn = []
        for kernels in WAYS.values():
            monkeypatch.setattr(exact_gaussian, "compiled_kernels", lambda kernels=kernels: kernels)
            source = NoiseSource(seed=seed)
            drawn.append((LAWS[law](count, std, source).tolist(), source.state()))
        assert drawn[0] == drawn[1]


def test_the_compiled_twin_stays_within_its_room():
    """Kept candidates beyond the end of the array are left out, and what was there before stays."""
    words = NoiseSource(seed=1).words(200)
    everything = candidates("compiled", words[:100], words[100:], 2**30, False, NoMoreWords())
    out = np.full(12, 77, dtype=np.int64)
    assert exact_gaussian._fill(_exact_kernels, words, 2**30, 8, False, NoMoreWords(), out[:10], 3) == 10
    assert out.tolist() == [77] * 3 + everything[:7].tolist() + [77] * 2


def test_one_release_does_not_wait_for_a_compiler_and_gives_the_same_number():
    """In a process without numba, and in one that has it."""
    code = (
        "import sys; from privypurse import *; "
        "box = Sensitive([1.0, 2.0], norm=Norm.L2, add_remove=1.0, replace_one=2.0); "
        "purse = Purse(1.0, 1e-6, neighbouring='add-remove', noise=NoiseSource(seed=3, secure=True)); "
        "print(purse.release(box, Gaussian(9.0)).value.tolist(), 'numba' in sys.modules, "
        "'privypurse.mechanisms._exact_kernels' in sys.modules)"
    )
    answers = [
        subprocess.run([sys.executable, "-c", before + code], capture_output=True, text=True, check=True).stdout
        for before in ("", "import numba; ")
    ]
    numbers = [answer[: answer.index("]") + 1] for answer in answers]
    assert numbers[0] == numbers[1]
    assert [answer.split("]")[1].split() for answer in answers] == [["False", "False"], ["True", "True"]]
