"""Scores of quantiles: no record moves two of them apart by more than the box says, and some record
does by as much.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privypurse import InvalidArgument, Neighbouring, Norm
from privypurse.oracles import _scores as quantiles
from privypurse.oracles._scores import covering_scores, quantile_scores

ADD_REMOVE, REPLACE_ONE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE_ONE
GRID = [1.0, 2.0, 3.0]
BUILDERS = {
    "distance": quantile_scores,
    "upper": lambda values, **named: covering_scores(values, side="upper", **named),
    "lower": lambda values, **named: covering_scores(values, side="lower", **named),
}
kinds = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
anything = st.floats(allow_nan=True, allow_infinity=True)
columns = hnp.arrays(np.float64, st.integers(0, 12), elements=st.one_of(st.sampled_from(GRID), anything))
levels = st.floats(0, 1, exclude_min=True, exclude_max=True)


def spread(one, other):
    moved = one._value - other._value
    return float(moved.max() - moved.min())


@kinds
@given(values=columns, one=anything, other=anything, quantile=levels)
def test_one_record_moves_scores_apart_by_no_more_than_the_bound(build, values, one, other, quantile):
    def scores(listed):
        return build(listed, quantile=quantile, candidates=GRID)

    without, with_one = scores(values), scores([*values, one])
    assert spread(with_one, without) <= without.bound(ADD_REMOVE, Norm.RANGE)
    assert spread(with_one, scores([other, *values])) <= without.bound(REPLACE_ONE, Norm.RANGE)


@kinds
@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.7])
def test_the_bounds_are_attained_and_never_passed(build, quantile):
    """Every data set of up to 5 records, and every record more, as far as four candidates can tell
    them apart.
    """
    grid = [1.0, 2.0, 3.0, 4.0]
    places = [0.5, 1.5, 2.5, 3.5, 4.5, np.nan]
    seen = {}
    most = {ADD_REMOVE: 0.0, REPLACE_ONE: 0.0}
    for size in range(7):
        for listed in itertools.combinations_with_replacement(places, size):
            seen[listed] = build(list(listed), quantile=quantile, candidates=grid)
    for listed, box in seen.items():
        if len(listed) < 6:
            neighbours = [seen[tuple(sorted([*listed, x], key=places.index))] for x in places]
            most[ADD_REMOVE] = max([most[ADD_REMOVE], *(spread(box, other) for other in neighbours)])
            pairs = itertools.combinations(neighbours, 2)
            most[REPLACE_ONE] = max([most[REPLACE_ONE], *(spread(one, other) for one, other in pairs)])
    for relation, attained in most.items():
        bound = box.bound(relation, Norm.RANGE)
        assert bound * (1 - 2e-5) <= attained <= bound
    assert box.bound(ADD_REMOVE, Norm.RANGE) == pytest.approx(2 * max(quantile, 1 - quantile))
    assert box.bound(REPLACE_ONE, Norm.RANGE) == 2.0


@kinds
@pytest.mark.parametrize("quantile", [0.05, 0.95])
def test_the_bounds_are_attained_far_from_the_median(build, quantile):
    """Candidates on either side of the quantile with records between them, and a record beyond
    both.
    """
    values, grid = np.repeat([0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5], [2, 2, 2, 88, 2, 2, 2]), np.arange(1, 7)
    base = build(values, quantile=quantile, candidates=grid)
    for x in (0.5, 6.5):
        moved = spread(build(np.append(values, x), quantile=quantile, candidates=grid), base)
        assert moved == pytest.approx(1.9 if (x < 1) == (quantile < 0.5) else 0.1, rel=2e-5)
        assert moved <= base.bound(ADD_REMOVE, Norm.RANGE) == 1.9


@kinds
@pytest.mark.parametrize("quantile", [0.05, 1 / 3, 0.95, 1e-300, 1 - 2**-53])
def test_rounding_on_long_columns_stays_within_the_bound(build, quantile):
    values, grid = np.repeat([0.5, 1.5, 2.5, 3.5], 250_001), [1.0, 2.0, 3.0]
    base = build(values, quantile=quantile, candidates=grid)
    for x in (0.5, 1.5, 2.5, 9.0):
        moved = spread(build(np.append(values, x), quantile=quantile, candidates=grid), base)
        assert moved <= base.bound(ADD_REMOVE, Norm.RANGE)
    replaced = build(np.append(values[1:], 9.0), quantile=quantile, candidates=grid)
    assert spread(replaced, base) <= base.bound(REPLACE_ONE, Norm.RANGE)


def by_definition(values, quantile, candidates):
    values = np.array([value for value in values if not np.isnan(value)])
    return [-abs((1 - quantile) * (values <= c).sum() - quantile * (values > c).sum()) for c in candidates]


def covering_by_definition(values, quantile, candidates):
    """The least number of records that must change sides for the candidate to be the first that
    covers.
    """
    values = np.minimum([value for value in values if not np.isnan(value)], candidates[-1])
    scores = []
    for index, c in enumerate(candidates):
        short = quantile * values.size - (values <= c).sum()
        over = (values <= candidates[index - 1]).sum() - quantile * values.size if index else 0.0
        scores.append(-max(0.0, short, over))
    return scores


@given(columns, st.floats(0.01, 0.99))
def test_values(values, quantile):
    margin = 1 - quantiles.ROUNDING_MARGIN
    plain = quantile_scores(values, quantile=quantile, candidates=GRID)._value
    assert plain == pytest.approx(np.multiply(by_definition(values, quantile, GRID), margin), abs=1e-12)
    upper = covering_scores(values, quantile=quantile, candidates=GRID, side="upper")._value
    assert upper == pytest.approx(np.multiply(covering_by_definition(values, quantile, GRID), margin), abs=1e-12)
    mirrored = covering_scores(-values, quantile=1 - quantile, candidates=[-3, -2, -1], side="lower")._value
    assert mirrored[::-1] == pytest.approx(upper, abs=1e-9)


def test_far_candidates_are_worse_than_the_nearest():
    """Zeros and ones on a grid up to a million: plain scores cannot tell 1 from a million, covering
    ones can.
    """
    values, grid = [0] * 70 + [1] * 30, [-1e6, -1.0, 0.0, 1.0, 1e3, 1e6]
    assert np.argmax(covering_scores(values, quantile=0.95, candidates=grid, side="upper")._value) == 3
    assert np.argmax(covering_scores(values, quantile=0.05, candidates=grid, side="lower")._value) == 2
    assert len(set(quantile_scores(values, quantile=0.95, candidates=grid)._value[3:])) == 1
    beyond = covering_scores([5e6] * 10, quantile=0.95, candidates=grid, side="upper")._value
    assert np.argmax(beyond) == 5
    assert sorted(beyond)[-2] < -9


def test_long_columns_are_read_in_chunks(monkeypatch):
    values = np.random.default_rng(0).standard_normal(1000)
    values[::7] = np.nan
    grid = np.linspace(-1, 1, 9)
    whole = quantile_scores(values, quantile=0.3, candidates=grid)._value
    monkeypatch.setattr(quantiles, "CHUNK", 64)
    assert (quantile_scores(values, quantile=0.3, candidates=grid)._value == whole).all()


@kinds
@pytest.mark.parametrize("values", [[], [None, np.nan]], ids=["empty", "missing"])
def test_no_records_score_zero(build, values):
    assert not build(values, quantile=0.5, candidates=GRID)._value.any()


def test_other_kinds_of_numbers():
    expected = quantile_scores([1.0, 0.0], quantile=0.5, candidates=GRID)._value
    for values in ([True, False], np.array([1, 0], dtype=np.int8), np.array([1, 0], np.float32), [1, False]):
        assert (quantile_scores(values, quantile=0.5, candidates=GRID)._value == expected).all()


@kinds
def test_wrong_arguments_are_refused(build):
    for candidates in ([], [2.0, 1.0], [1.0, 1.0], [np.nan], [[1.0]], "ab", [0.0, np.inf]):
        with pytest.raises(InvalidArgument, match="candidates must be"):
            build([1.0], quantile=0.5, candidates=candidates)
    for quantile in (0.0, 1.0, np.nan, True, "0.5"):
        with pytest.raises(InvalidArgument, match="quantile must be"):
            build([1.0], quantile=quantile, candidates=GRID)
    for values in ([[1.0]], ["secret"], 3.0, [[1.0], [1.0, 2.0]], np.array([1j])):
        with pytest.raises(InvalidArgument, match="values must be one number") as caught:
            build(values, quantile=0.5, candidates=GRID)
        assert "secret" not in str(caught.value)
    with pytest.raises(InvalidArgument, match="side must be"):
        covering_scores([1.0], quantile=0.5, candidates=GRID, side="left")
