"""Curves of columns of numbers: where their knots lie, by a paid histogram, and how rows are encoded.

A curve is piecewise linear between knots. A number is encoded as its position among the knots and as
hats: the weights of the two knots beside it. The position alone is a line in the order of the knots,
which needs little noise to be found; the hats bend it.
"""

import contextlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from privypurse.core._checks import FloatArray
from privypurse.core.charges import from_json
from privypurse.core.queries import Released
from privypurse.estimators._preparation import Preparation
from privypurse.estimators._private_statistics import gaussian, private_count
from privypurse.oracles.statistics import histograms
from privypurse.purse._purse import Purse
from privypurse.training._trace import Trace
from privypurse.training.optimizers._base import Optimizer

# The parts of an encoded row: the number of columns of each, and what they hold (`grouped_rows`).
Groups = Sequence[tuple[int, str]]

# Shares of the budget: of the number of records, which sets the cells, and of the histograms.
COUNT_SHARE, HISTOGRAM_SHARE = 0.01, 0.05
# A count stands out from so many standard deviations of its noise on, and may be none below that.
STANDS_OUT, MAY_BE_NONE = 1.5, 0.5
# Without room for so many equal counts that stand out, columns stay plain.
LEAST_CELLS = 4
FEWEST_CELLS, MOST_CELLS, OCTAVES = 8, 512, 10
LEAST_WEIGHT = 0.003  # of a bin, as a share of the records
MOST_STRETCHES = 32.0
MOST_KNOTS = round(1 / LEAST_WEIGHT + MOST_STRETCHES)
# Variances of a curve between knots that are tried, relative to its noise; and that of its slope, which is free.
ROUGHNESS, FREE = 10.0 ** np.arange(-4, 4.5, 0.5), 1e6
# Bins are widened, by this factor each time, until all curves together have so many encoded columns
# at most, or each about FEWEST_BINS bins. More need more steps of training than noise allows.
MOST_ENCODED, WIDENED, FEWEST_BINS = 500, 1.25, 6
# Of a regression, so that they can be decorrelated; hats are more alike than other columns, so that
# this needs more budget than `TURN_AT`.
MOST_IN_REGRESSION, TURN_HATS_AT = 100, 8.0

Pair = tuple[float, float]


def hats(values: FloatArray, knots: FloatArray) -> NDArray[np.float32]:
    """Encode numbers by knots: the position among them, from 0 to 1, and the hat of each knot.

    Hats are from 0 to 1 and sum to 1, and the position is a sum of hats too. With two knots there
    is the position alone. Numbers beyond the ends are clipped; NaN counts as the middle.
    """
    values = np.where(np.isnan(values), (knots[0] + knots[-1]) / 2, np.clip(values, knots[0], knots[-1]))
    last = len(knots) - 1
    left = np.clip(np.searchsorted(knots, values, side="right") - 1, 0, last - 1)
    part = (values - knots[left]) / (knots[left + 1] - knots[left])
    encoded = np.zeros((len(values), width_of(len(knots))), dtype=np.float32)
    encoded[:, 0] = (left + part) / last
    if last > 1:
        rows = np.arange(len(values))
        encoded[rows, 1 + left], encoded[rows, 2 + left] = 1 - part, part
    return encoded


def width_of(knots: int) -> int:
    """Return the number of encoded columns of a curve with so many knots."""
    return 1 if knots == 2 else 1 + knots


def buy_knots(
    table: FloatArray,
    ranges: Sequence[Pair],
    purse: Purse,
    *,
    records: float | None = None,
    most: int = MOST_ENCODED,
) -> list[FloatArray]:
    """Return the knots of each column of a table, ends included. Two mean a plain column.

    One release has a histogram of each column, over public cells of its declared range. The rest is
    post-processing: a knot lies where a bin between two knots holds enough records, or where it
    spans enough of the range, on a scale of shares of records, numbers and their logarithms.

    Guarantees
    ----------
    All that depends on a record is a noisy count, charged before its noise is drawn, and the
    histograms: at most one cell in each for a record, so the root of their number bounds its
    influence. `records` is a public number of records; then none is released.
    """
    columns = len(ranges)
    if records is None:
        records = private_count(table, purse=purse, share=COUNT_SHARE)
    mechanism = gaussian(purse, HISTOGRAM_SHARE)
    # Of all columns, by the same bound as the release below.
    empty = histograms(np.zeros((0, columns), dtype=np.intp), sizes=[1] * columns)
    room = records / (STANDS_OUT * mechanism.noise_std(empty, purse.neighbouring))
    if room < LEAST_CELLS:
        return [np.array(pair, dtype=np.float64) for pair in ranges]
    cells = 2 ** int(np.clip(math.log2(room), math.log2(FEWEST_CELLS), math.log2(MOST_CELLS)))
    edges = [_edges(pair, cells) for pair in ranges]
    placed = np.column_stack([_places(column, own) for column, own in zip(table.T, edges, strict=True)])
    box = histograms(placed, sizes=[len(own) - 1 for own in edges])
    released = purse.release(box, mechanism, what="histogram of columns")
    counts = np.split(released.value, np.cumsum([len(own) - 1 for own in edges])[:-1])
    noise, stretches = float(released.noise_std or 0.0), min(2.5 * math.sqrt(room), MOST_STRETCHES)
    widened = 1.0
    while True:
        knots = [
            _knots(own, count, records, noise, stretches / widened, LEAST_WEIGHT * widened)
            for own, count in zip(edges, counts, strict=True)
        ]
        widened *= WIDENED
        if sum(width_of(len(own)) for own in knots) <= most or LEAST_WEIGHT * widened * FEWEST_BINS > 1:
            return knots


def _edges(pair: Pair, cells: int) -> FloatArray:
    """Return the ends of the cells of a range: of even width, and by octaves around zero."""
    low, high = pair
    octaves = max(abs(low), abs(high)) * 2.0 ** -np.arange(1, OCTAVES + 1)
    around = np.concatenate([-octaves, [0.0], octaves])
    even = np.linspace(low, high, cells + 1)
    edges = np.unique(np.concatenate([even, around[(around > low) & (around < high)]]))
    # Rounding can make two ends of nearly the same number.
    return np.asarray(edges[np.concatenate([[True], np.diff(edges) > 1e-9 * (high - low)])])


def _places(values: FloatArray, edges: FloatArray) -> NDArray[np.intp]:
    """Return the cell of each number, clipped to the range; -1 for NaN."""
    found = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.where(np.isnan(values), -1, found)


def _knots(
    edges: FloatArray, counts: FloatArray, records: float, noise: float, stretches: float, least: float
) -> FloatArray:
    """Choose knots among the ends of cells, from noisy counts."""
    cells, plain = len(counts), edges[[0, -1]]
    if records - counts[0] - counts[-1] < STANDS_OUT * noise * math.sqrt(2):
        return plain  # of two values, between which a line is all there is
    shares = np.concatenate([[0.0], np.cumsum(np.where(counts > noise, counts, 0.0))])
    away = edges / np.abs(edges).max() * 2**OCTAVES
    scales = (shares, edges, np.sign(away) * np.log1p(np.abs(away)))
    scale = sum((one - one[0]) / max(one[-1] - one[0], 1e-300) for one in scales) / len(scales)
    chosen, below = [0], np.concatenate([[0.0], np.cumsum(counts)])
    for at in range(1, cells):
        last = chosen[-1]
        weighs = below[at] - below[last] >= max(least * records, STANDS_OUT * noise * math.sqrt(at - last))
        left = records - below[at] >= max(least * records, STANDS_OUT * noise * math.sqrt(min(at, cells - at)))
        some = below[at] - below[last] >= MAY_BE_NONE * noise * math.sqrt(at - last)
        if (weighs and left) or (some and scale[at] - scale[last] >= 1 / stretches):
            chosen.append(at)
    return edges[[*chosen, cells]] if len(chosen) > 1 else plain


def shares_of(preparation: Preparation, place: slice) -> FloatArray:
    """Return the released shares of the knots or categories of a part; even if none were released."""
    width = place.stop - place.start
    if preparation.centre is None:
        return np.full(width, 1 / width)
    means = np.maximum((preparation.centre * preparation.unit)[place], 0.0)
    return np.asarray(means / means.sum()) if means.sum() > 0 else np.full(width, 1 / width)


def line_shares(preparation: Preparation, place: int) -> FloatArray:
    """Return the weights of the two ends of a line that give the released mean of a column."""
    middle = 0.5
    if preparation.centre is not None:
        middle = float(np.clip((preparation.centre * preparation.unit)[place], 0.0, 1.0))
    return np.array([1.0 - middle, middle])


def positions(groups: Groups, columns: int) -> NDArray[np.bool_]:
    """Return which of these encoded columns are the position of a curve, which is a sum of its hats."""
    starts = np.cumsum([0, *(width for width, _ in groups)])
    curves = [start for start, (_, kind) in zip(starts, groups, strict=False) if kind == "curve"]
    return np.isin(np.arange(columns), curves)


def unfolded(weights: FloatArray, groups: Groups, preparation: Preparation) -> FloatArray:
    """Return weights of encoded columns with the values of centred curves as weights of hats.

    The position of a curve then has no weight of its own, because it is a sum of hats. Categories
    keep their weights.
    """
    weights = np.array(np.atleast_2d(weights), dtype=np.float64)
    start = 0
    for width, kind in groups:
        if kind == "curve":
            place = slice(start + 1, start + width)
            values = weights[:, place] + weights[:, [start]] * np.linspace(0.0, 1.0, width - 1)
            weights[:, place] = values - (values @ shares_of(preparation, place))[:, None]
            weights[:, start] = 0.0
        start += width
    return weights


def smoothed(
    weights: FloatArray,
    groups: Groups,
    preparation: Preparation,
    optimizer: Optimizer,
    trace: Trace,
    *,
    stands_for: float = 1.0,
) -> FloatArray:
    """Return coefficients of encoded columns with smoothed curves, from the weights of a run of `Auto`.

    Increments of a curve from knot to knot are taken as a free slope and a random walk, whose variance
    maximises the likelihood. The noise of a value is that of the steps, which decays faster
    where the loss is more curved; the error of sampling is added for classes. In a rehearsal a row
    `stands_for` several records.

    Guarantees
    ----------
    Only released numbers are used: weights, preparation and the noise of the trace.
    """
    coefficients = np.array(preparation.to_columns(weights)[0], dtype=np.float64)
    noise_std = trace.steps[0].noise_std if trace.steps else None
    ends = np.cumsum([width for width, _ in groups]).tolist()
    curves = [(width, end) for (width, kind), end in zip(groups, ends, strict=True) if kind == "curve"]
    places = [slice(end - width, end) for width, end in curves]
    if not places or not noise_std:
        return coefficients
    factors = np.ones(len(coefficients)) if preparation.stretch is None else preparation.stretch
    factors = factors / preparation.unit
    variance = _noise(optimizer, weights.size, trace)
    # Noise adds up over the square root of the steps, gradients over all of them.
    reach = math.sqrt(variance * len(trace.steps)) * preparation.records / noise_std
    chances = None if preparation.log_odds is None else np.exp(preparation.log_odds)
    columns = coefficients.reshape(len(coefficients), -1)
    for place in places:
        shares = shares_of(preparation, slice(place.start + 1, place.stop))
        to_knots = np.column_stack([np.linspace(0.0, 1.0, len(shares)), np.eye(len(shares))])
        values = to_knots @ columns[place]
        for output in range(values.shape[1]):
            bend = 1.0 if chances is None else float(chances[output] * (1 - chances[output]))
            moved: FloatArray = to_knots * factors[place]
            curvature: FloatArray = np.full(1, preparation.curvature or 0.0)
            if preparation.turn is None:
                curvature, axes = np.linalg.eigh(bend * moved.T @ (np.diag(shares) - np.outer(shares, shares)) @ moved)
                moved = moved @ axes
            else:
                moved = moved @ preparation.turn[place]
            forgets = 2 * reach * np.maximum(curvature, 1e-9)
            errors = variance * preparation.target[1] ** 2 * (moved * (-np.expm1(-forgets) / forgets)) @ moved.T
            if chances is not None:
                errors += np.diag(1 / (bend * np.maximum(stands_for * preparation.records * shares, 1.0)))
            # What was paid for is not lost where rounding makes the errors of a curve no covariance.
            with contextlib.suppress(linalg.LinAlgError, ValueError):
                values[:, output] = _walk(values[:, output], errors, shares)
        columns[place] = np.vstack([np.zeros(values.shape[1]), values])
    return columns.reshape(coefficients.shape)


def _noise(optimizer: Optimizer, dimension: int, trace: Trace) -> float:
    """Return the variance of a weight after the steps of a run without gradients, from a rehearsal."""
    rng, state = np.random.default_rng(0), optimizer.init(dimension)
    start = optimizer.point(state)
    for step in trace.steps:
        noise = (step.noise_std or 0.0) * rng.standard_normal(dimension)
        state = optimizer.tell(state, Released(noise, from_json(step.charge), step.noise_std))  # type: ignore[arg-type]
    return float(np.mean((optimizer.point(state) - start) ** 2))


def _walk(values: FloatArray, errors: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the most likely curve of a random walk with a free slope, of the same mean, given noisy values."""
    steps, unit = len(values) - 1, np.trace(errors) / len(values)
    increments, noise = np.diff(values), np.diff(np.diff(errors, axis=0), axis=1)
    best, found = -math.inf, increments
    for roughness in ROUGHNESS * unit:
        prior = roughness / steps * np.eye(steps) + FREE * unit / steps**2
        factor = linalg.cholesky(prior + noise, lower=True)
        scaled = linalg.solve_triangular(factor, increments, lower=True)
        likelihood = -scaled @ scaled / 2 - np.log(np.diag(factor)).sum()
        if likelihood > best:
            best, found = likelihood, prior @ linalg.solve_triangular(factor.T, scaled)
    curve = np.concatenate([[0.0], np.cumsum(found)])
    return np.asarray(curve + shares @ (values - curve))
