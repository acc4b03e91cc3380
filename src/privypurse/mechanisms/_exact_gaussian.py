"""Integer Gaussian noise whose distribution is exact, independent of floating point.

Two distributions, both for an integer standard deviation:

* *floored*: the floor of a normal real number. Added to an integer, it is the floor of the value
  plus continuous noise, so it has every guarantee of the continuous Gaussian mechanism.
* *discrete*: probability proportional to ``exp(-y^2 / (2 std^2))``. It has the price of the
  continuous mechanism in zCDP only.

A normal is drawn by cells and rejection, after Karney (2016, arXiv:1303.6257): its size is
``(j + x)/8``, where cell j has probability proportional to ``exp(-(j/8)^2/2)`` and x is uniform in
[0, 1), accepted with probability ``exp(-x (2j + x)/128)``. Proof: ``docs/proofs/exact_noise.md``.

A `Lattice` adds such noise to a value: it is rounded to a public unit first.
"""

import functools
import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource

_WORD = 64
# Guard bits of the series, so that its rounding stays below the last requested bit.
_GUARD = 24


class Digits:
    """A uniform real number in [0, 1) whose bits are drawn only when a decision needs them.

    It lies in ``[value, value + 1) / 2^bits``.
    """

    __slots__ = ("bits", "value")

    def __init__(self, value: int, bits: int) -> None:
        self.value, self.bits = value, bits

    def reveal(self, noise: NoiseSource) -> None:
        """Draw 64 more bits."""
        self.value, self.bits = (self.value << _WORD) | int(noise.words(1)[0]), self.bits + _WORD

    def interval(self) -> tuple[Fraction, Fraction]:
        """Return an interval that contains the number."""
        return Fraction(self.value, 1 << self.bits), Fraction(self.value + 1, 1 << self.bits)


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers with ``low <= 2^bits exp(-exponent) <= high``, at most two apart.

    For exponents of zero or more, in integer arithmetic only. The exponent is halved until it is at
    most 1/2. There the series of ``exp(-x)`` alternates with decreasing terms, so two successive
    partial sums enclose it. Every rounding, in the series and in the squarings that undo the
    halvings, widens the interval.
    """
    if exponent == 0:
        return 1 << bits, 1 << bits
    if exponent >= bits:  # e^-bits is less than 2^-bits
        return 0, 1
    halvings = max(0, (2 * exponent.numerator // exponent.denominator).bit_length())
    precision = bits + _GUARD + 2 * halvings
    scaled, remainder = divmod(exponent.numerator << precision, exponent.denominator << halvings)
    low = _series(scaled + (remainder > 0), precision)[0]
    high = _series(scaled, precision)[1]
    for _ in range(halvings):
        low, high = (low * low) >> precision, _shift_up(high * high, precision)
    return low >> (precision - bits), _shift_up(high, precision - bits)


def _shift_up(value: int, bits: int) -> int:
    """Divide by a power of two, rounded up."""
    return -(-value >> bits)


def _series(x: int, precision: int) -> tuple[int, int]:
    """Bound ``2^precision exp(-x/2^precision)`` for x of at most ``2^precision / 2``."""
    smallest = largest = term_low = term_high = 1 << precision
    count = 0
    while term_high > 1 or count % 2 == 0:
        count += 1
        term_low = ((term_low * x) >> precision) // count
        term_high = (_shift_up(term_high * x, precision) + count - 1) // count
        if count % 2:
            # The rest after a negative term is positive and at most that term.
            smallest, largest = smallest - term_high, largest - term_low
        else:
            smallest, largest = smallest + term_low, largest + term_high
    return smallest, largest + term_high


def is_below_exp(uniform: Digits, exponent: Fraction, noise: NoiseSource) -> bool:
    """Return whether a uniform number is below ``exp(-exponent)``: a coin of that probability."""
    while True:
        low, high = exp_bounds(exponent, uniform.bits)
        if uniform.value + 1 <= low:
            return True
        if uniform.value >= high:
            return False
        uniform.reveal(noise)


def floor_of_multiple(uniform: Digits, factor: int, noise: NoiseSource) -> int:
    """Return the floor of ``factor`` times the uniform number: uniform on 0 .. factor - 1."""
    while True:
        low, high = uniform.value * factor, (uniform.value + 1) * factor
        if low >> uniform.bits == (high - 1) >> uniform.bits:
            return low >> uniform.bits
        uniform.reveal(noise)


Integers = NDArray[np.int64]
# Eighty times this stays below 2^61.
LARGEST_STD = 2**54
# Largest noise; the sum with a value of at most 2^61 cannot overflow.
LARGEST_NOISE = 2**62
# Bound on the relative error of exp and its argument in double precision; the true one is below
# 2^-49.
DOUBLE_ERROR = 2.0**-40
# Candidates processed together, as many as fit the processor's cache.
_BLOCK = 1 << 13
# Second word of a candidate: the sign, 31 bits that choose the cell, 32 that accept or reject.
_CELL_BITS, _KEEP_BITS = 31, 32
_KEEP_MASK, _CELL_MASK, _HALF = np.uint64(2**32 - 1), np.uint64(2**31 - 1), np.uint64(32)
_GUIDE_SHIFT = 15
_SPLIT = 255


def compiled_kernels() -> ModuleType | None:
    """Return the compiled fast paths if numba is already loaded, else None; same results.

    Loading a compiler takes longer than any draw. In every fit it is loaded for the oracles anyway.
    """
    if "numba" not in sys.modules:
        return None
    from privypurse.mechanisms import _exact_kernels

    return _exact_kernels


def exact_gaussian(count: int, std: int, discrete: bool, noise: NoiseSource) -> Integers:
    """Draw from the floored or the discrete distribution; ``std`` is that of a `Lattice`.

    The distribution is exact if the bits of `noise` are uniform. Each decision (which cell, whether
    to accept, which integer part) is made in double precision or 64-bit words only where a proved
    error bound shows that it is right whatever the further bits are. All others,
    ``4e-8 + std/2^64`` of all draws, are made in integers of any length with as many further bits
    as they need. Numbers beyond 2^62 become 2^62. With ``NoiseSource(secure="opendp")`` the OpenDP
    library draws the discrete one.
    """
    if discrete and noise.sampler == "opendp":
        return _opendp_gaussian(count, std)
    # Cells hold whole numbers of values: where 8 does not divide std, a cell is one std wide.
    cells = 1 if discrete and std % 8 else 8
    keep_rate = _keep_rate(cells)
    kernels = compiled_kernels()
    out = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        wanted = (count - filled) / keep_rate
        candidates = min(_BLOCK, math.ceil(wanted + 2 * math.sqrt(wanted * (1 - keep_rate))) + 1)
        words = noise.words(2 * candidates)
        if kernels is not None:
            filled = _fill(kernels, words, std, cells, discrete, noise, out, filled)
            continue
        kept = _candidates(words[:candidates], words[candidates:], std, cells, discrete, noise)[: count - filled]
        out[filled : filled + kept.size] = kept
        filled += kept.size
    return out


def _fill(
    kernels: Any, words: Any, std: int, cells: int, discrete: bool, noise: NoiseSource, out: Integers, filled: int
) -> int:
    """Do as `_candidates`, compiled: append accepted draws to ``out`` and return their number."""
    edges, guide = _cell_table(cells)
    width = std // cells if discrete else std
    slack = DOUBLE_ERROR * 2.0**_KEEP_BITS
    candidates = words.size // 2
    index, filled = kernels.fill(words, 0, width, cells, discrete, edges, guide, slack, out, filled)
    while index < candidates:
        decided = _decide(int(words[index]), int(words[candidates + index]), std, cells, discrete, noise)
        if decided is not None and filled < out.size:
            out[filled] = max(-LARGEST_NOISE, min(LARGEST_NOISE, decided))
            filled += 1
        index, filled = kernels.fill(words, index + 1, width, cells, discrete, edges, guide, slack, out, filled)
    return filled


def _candidates(first: Any, second: Any, std: int, cells: int, discrete: bool, noise: NoiseSource) -> Integers:
    """Turn two words each into integers and drop the rejected ones."""
    edges, guide = _cell_table(cells)
    chooser = (second >> _HALF) & _CELL_MASK
    cell = guide[chooser >> np.uint64(_GUIDE_SHIFT)].astype(np.int64)
    open_cell = np.flatnonzero(cell == _SPLIT)
    if open_cell.size:
        cell[open_cell] = np.searchsorted(edges, chooser[open_cell])
        open_cell = open_cell[edges[cell[open_cell]] == chooser[open_cell]]
    width = std // cells if discrete else std
    whole, whole_open = _whole_part(first, width)
    part = whole.astype(np.float64) / width if discrete else first * 2.0**-64
    threshold = np.exp(part * (2.0 * cell + part) * (-0.5 / cells**2)) * 2.0**_KEEP_BITS
    # Positive if accepted; further bits would add up to 1 to the uniform number.
    margin = threshold - (second & _KEEP_MASK)
    slack = DOUBLE_ERROR * 2.0**_KEEP_BITS
    value = whole + width * cell
    if not discrete:
        value >>= cells.bit_length() - 1
    negative = second.view(np.int64) >> 63  # minus one or zero
    kept = margin >= 1 + slack
    if discrete:
        kept &= (value != 0) | (negative == 0)
        value = (value ^ negative) - negative
    else:
        value ^= negative  # -1 - value is the floor of minus the real number
    undecided = (margin < 1 + slack) & (margin > -slack)
    if open_cell.size:
        undecided[open_cell] = True
    if whole_open is not None:
        undecided |= whole_open
    for index in np.flatnonzero(undecided):
        decided = _decide(int(first[index]), int(second[index]), std, cells, discrete, noise)
        kept[index] = decided is not None
        value[index] = 0 if decided is None else max(-LARGEST_NOISE, min(LARGEST_NOISE, decided))
    return np.asarray(value[kept], dtype=np.int64)


def _whole_part(word: Any, factor: int) -> tuple[Integers, NDArray[np.bool_] | None]:
    """Return the floors of ``factor word/2^64``, and where further bits may change them."""
    high, low = word >> _HALF, word & _KEEP_MASK
    factor_high, factor_low = np.uint64(factor >> 32), np.uint64(factor & (2**32 - 1))
    middle = high * factor_low + ((low * factor_low) >> _HALF)
    if factor_high:
        carry = low * factor_high + (middle & _KEEP_MASK)
        whole = high * factor_high + (middle >> _HALF) + (carry >> _HALF)
    else:
        whole = middle >> _HALF
    fraction = word * np.uint64(factor)  # fractional part, modulo 2^64
    border = np.uint64(2**64 - factor)
    return whole.view(np.int64), fraction > border if fraction.max(initial=0) > border else None


def _decide(first: int, second: int, std: int, cells: int, discrete: bool, noise: NoiseSource) -> int | None:
    """Decide one candidate in integers of any length, with further words; None if rejected."""
    negative = second >> 63
    chooser = Digits((second >> 32) & (2**_CELL_BITS - 1), _CELL_BITS)
    keeper, part = Digits(second & (2**_KEEP_BITS - 1), _KEEP_BITS), Digits(first, 64)
    cell = _choose_cell(chooser, cells, noise)
    if discrete:
        width = std // cells
        whole = floor_of_multiple(part, width, noise)
        exponent = Fraction(whole, width) * (2 * cell + Fraction(whole, width)) / (2 * cells**2)
        value = width * cell + whole
        if (negative and value == 0) or not is_below_exp(keeper, exponent, noise):
            return None
        return -value if negative else value
    if not _is_kept(keeper, part, cell, cells, noise):
        return None
    value = (std * cell + floor_of_multiple(part, std, noise)) // cells
    return -1 - value if negative else value


def _is_kept(keeper: Digits, part: Digits, cell: int, cells: int, noise: NoiseSource) -> bool:
    """Return whether ``keeper < exp(-x (2 cell + x) / (2 cells^2))`` for the uniform number x."""
    while True:
        smallest, largest = (x * (2 * cell + x) / (2 * cells**2) for x in part.interval())
        if keeper.value + 1 <= exp_bounds(largest, keeper.bits)[0]:
            return True
        if keeper.value >= exp_bounds(smallest, keeper.bits)[1]:
            return False
        keeper.reveal(noise)
        part.reveal(noise)


def _choose_cell(chooser: Digits, cells: int, noise: NoiseSource) -> int:
    while True:
        bounds = _cumulative_bounds(cells, chooser.bits)
        below = 0
        for cell, (low, high) in enumerate(bounds):
            if below <= chooser.value << _CUMULATIVE_GUARD and (chooser.value + 1) << _CUMULATIVE_GUARD <= low:
                return cell
            below = high
        chooser.reveal(noise)


@functools.cache
def _keep_rate(cells: int) -> float:
    return math.sqrt(math.pi / 2) * cells / sum(math.exp(-((j / cells) ** 2) / 2) for j in range(40 * cells))


_CUMULATIVE_GUARD = 32


@functools.lru_cache(maxsize=16)
def _cumulative_bounds(cells: int, bits: int) -> tuple[tuple[int, int], ...]:
    """Bound ``2^(bits + 32)`` times the cumulative probabilities of the cells.

    The weights of omitted cells at least halve from one to the next, because ``exp(-j/cells^2)`` is
    below 1/2, so together they weigh at most twice the bound on the first of them.
    """
    bits += _CUMULATIVE_GUARD
    precision = bits + 16
    sums, low, high, j = [], 0, 0, 0
    while True:
        weight_low, weight_high = exp_bounds(Fraction(j * j, 2 * cells**2), precision)
        if weight_high <= 1 and j >= cells**2:
            break
        low, high, j = low + weight_low, high + weight_high, j + 1
        sums.append((low, high))
    total_low, total_high = low, high + 2 * weight_high
    return tuple(((low << bits) // total_high, -(-(high << bits) // total_low)) for low, high in sums)


@functools.cache
def _cell_table(cells: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Return the edges between cells for 31-bit numbers, and the cell for each 16-bit prefix.

    A number below an edge belongs to that edge's cell or an earlier one whatever bits follow, one
    above it to a later one, and one equal to it to either.
    """
    bounds = [
        (low >> (_CUMULATIVE_GUARD + 64), high >> (_CUMULATIVE_GUARD + 64))
        for low, high in _cumulative_bounds(cells, _CELL_BITS + 64)
    ]
    last = next(index for index, (low, _) in enumerate(bounds) if low >= 2**_CELL_BITS - 1)
    assert all(low == high for low, high in bounds[:last]), "two bounds on an edge differ in 31 bits"
    edges = np.array([low for low, _ in bounds[:last]] + [2**_CELL_BITS - 1], dtype=np.uint64)
    starts = np.arange(2 ** (_CELL_BITS - _GUIDE_SHIFT), dtype=np.uint64) << np.uint64(_GUIDE_SHIFT)
    guide = np.searchsorted(edges, starts).astype(np.uint8)
    guide[guide != np.searchsorted(edges, starts + np.uint64(2**_GUIDE_SHIFT - 1), side="right")] = _SPLIT
    return edges, guide


def _opendp_gaussian(count: int, std: int) -> Integers:
    import opendp.prelude as opendp

    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    measure = opendp.m.make_gaussian(*space, scale=float(std))
    return np.asarray(measure([0] * count), dtype=np.int64)


# Values are clipped to this many units; sums with noise of at most 2^62 cannot overflow.
LARGEST_UNITS = 2**61
# The unit is 2^-30 of the bound, or half that, for up to a million coordinates: sums of 2^30
# records fit, and rounding adds at most 1e-6 to the bound.
_BOUND_BITS = 30
_ROUNDING_BITS = 20
_LEAST_ROUNDING_BITS = 10


@dataclass(frozen=True)
class Lattice:
    """The unit of a release, a power of two, and the standard deviation of its noise in units.

    Guarantees
    ----------
    * Both depend on public numbers only: the sensitivity, the noise multiplier and the number of
      coordinates.
    * Rounding moves each coordinate by at most half a unit, and clipping brings no two values
      further apart. So two values within the sensitivity become lattice points within
      ``sensitivity/unit + sqrt(count)`` of each other. ``std`` is at least ``noise_multiplier``
      times that, computed in integers and rounded up.
    * The release is a function of the integer ``value + noise`` alone.
    """

    exponent: int
    std: int

    @property
    def unit(self) -> float:
        """The distance between neighbouring lattice points."""
        return 2.0**self.exponent

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def of(
        sensitivity: float, noise_multiplier: float, count: int, discrete: bool = False, moves: int = 1
    ) -> "Lattice":
        """Choose the lattice for a release. Raise InvalidArgument if the noise is too large for it.

        ``moves`` is 2 where the sensitivity is that of two moves, each rounded separately.
        """
        root = moves * (math.isqrt(max(0, count - 1)) + 1)  # sqrt(count), rounded up
        bits = max(_BOUND_BITS, root.bit_length() + _ROUNDING_BITS)
        # The noise has at most two bits more than the bound and the multiplier together.
        bits = min(bits, LARGEST_STD.bit_length() - 3 - math.frexp(noise_multiplier)[1])
        if bits < root.bit_length() + _LEAST_ROUNDING_BITS:
            what = f"noise_multiplier={noise_multiplier!r} is too large for exact noise on {count} numbers"
            raise InvalidArgument(f"{what}. Pass noise='plain'.")
        exponent = math.frexp(sensitivity)[1] - 1 - bits
        # multiplier (sensitivity/unit + root), rounded up, as one fraction of integers. Fraction
        # would take longer than the noise, and schedules have another multiplier for each release.
        above, below = noise_multiplier.as_integer_ratio()
        bound, parts = sensitivity.as_integer_ratio()
        bound, parts = bound << max(0, -exponent), parts << max(0, exponent)
        std = -(-above * (bound + root * parts) // (below * parts))
        if discrete and std >= 2**20:
            std += -std % 8  # faster to draw
        return Lattice(exponent, std)

    def points(self, value: FloatArray) -> Integers:
        """Return the nearest lattice points, in units."""
        largest = math.ldexp(LARGEST_UNITS, self.exponent)
        # Division by a power of two is exact, except far below one unit, where it rounds to zero
        # anyway. np.clip is slower for a few numbers.
        clipped = np.minimum(np.maximum(value, -largest), largest)
        return np.asarray(np.rint(clipped * 2.0**-self.exponent), dtype=np.int64)

    def add_noise(self, value: FloatArray, noise: NoiseSource) -> FloatArray:
        """Round a value to the lattice, add exact noise and return floats."""
        drawn = exact_gaussian(value.size, self.std, noise.sampler != "secure", noise)
        kernels = compiled_kernels()
        if kernels is not None:
            out = np.empty(value.size)
            kernels.place(value.reshape(-1), drawn, 2.0**-self.exponent, 2.0**self.exponent, LARGEST_UNITS, out)
            return out.reshape(value.shape)
        noisy = self.points(value) + drawn.reshape(value.shape)
        return np.asarray(np.minimum(np.maximum(noisy, -LARGEST_UNITS), LARGEST_UNITS) * self.unit, dtype=np.float64)
