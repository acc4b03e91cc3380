"""What is bought: never more than the budget, paid before it is drawn, and with the distribution
that was paid for.
"""

import pickle

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from privypurse import (
    BudgetExhausted,
    ExponentialSelection,
    Gaussian,
    InvalidArgument,
    Neighbouring,
    NoiseSource,
    Purse,
    SqliteLedger,
)
from privypurse.estimators import (
    PrivateRangeScaler,
    RowNormalizer,
    private_class_counts,
    private_count,
    private_mean,
    private_quantiles,
)
from privypurse.estimators._private_statistics import default_candidates, gaussian, selection
from privypurse.oracles.statistics import record_count

relations = pytest.mark.parametrize("relation", list(Neighbouring))


def a_purse(epsilon=1.0, relation="add-remove", seed=1, **settings):
    return Purse(epsilon, 1e-6, neighbouring=relation, noise=NoiseSource(seed=seed), **settings)


def emptied(purse):
    purse.release(record_count([1]), Gaussian.spending(purse.remaining))
    return purse


def a_table(rows=20_000, seed=0):
    return np.random.default_rng(seed).uniform([0, -500], [10, 500], size=(rows, 2))


ASKS = {
    "quantiles": lambda purse, share: private_quantiles(a_table(100), [0.1, 0.5, 0.9], purse=purse, share=share),
    "mean": lambda purse, share: private_mean(a_table(100), purse=purse, share=share, clip_norm=1.0),
    "mean of known": lambda purse, share: private_mean(
        a_table(100), purse=purse, share=share, clip_norm=1.0, records=100
    ),
    "classes": lambda purse, share: private_class_counts([0, 1, 1], classes=[0, 1], purse=purse, share=share),
    "count": lambda purse, share: private_count([0, 1, 1], purse=purse, share=share),
}
asks = pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)


@asks
@pytest.mark.parametrize("filter", ["gdp", "zcdp", "rdp"])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_a_share_is_spent_and_no_more(ask, filter, share):
    purse = a_purse(filter=filter)
    ask(purse, share)
    assert purse.fraction_left == pytest.approx(1 - share, abs=1e-6)
    assert purse.fraction_left >= 1 - share - 1e-9
    if share < 1:
        ask(purse, share)
        assert purse.fraction_left == pytest.approx((1 - share) ** 2, abs=1e-6), "a share of what is left"
    assert purse.spent.epsilon <= 1.0


@asks
def test_an_empty_purse_refuses(ask):
    purse = emptied(a_purse())
    before = purse.spent
    with pytest.raises(BudgetExhausted):
        ask(purse, 1.0)
    assert purse.spent == before


@asks
@pytest.mark.parametrize("share", [0.0, 1.1, np.nan, True, "1"])
def test_wrong_shares_are_refused(ask, share):
    purse = a_purse()
    with pytest.raises(InvalidArgument, match="share must be"):
        ask(purse, share)
    assert purse.spent.releases == 0


@asks
def test_what_is_not_a_purse_with_a_limit_is_refused(ask):
    with pytest.raises(InvalidArgument, match="purse must be a Purse; got None"):
        ask(None, 1.0)
    with pytest.raises(InvalidArgument, match="purse must have a finite epsilon"):
        ask(Purse.not_private(), 1.0)


@asks
def test_it_is_paid_before_noise_is_drawn(ask):
    """The first number that is drawn finds the charge on the ledger."""
    purse = a_purse()
    seen = []

    class Watched(NoiseSource):
        def words(self, count):
            seen.append(purse.spent.releases)
            return super().words(count)

    purse._noise = Watched()
    ask(purse, 0.5)
    assert seen == list(range(1, len(seen) + 1))


def test_a_mistake_in_a_late_column_is_found_before_anything_is_spent():
    purse = a_purse()
    for values in ([[1.0, "secret"]], np.zeros((3, 0)), np.zeros((2, 2, 2)), 3.0, None):
        with pytest.raises(InvalidArgument, match="values must be") as caught:
            private_quantiles(values, 0.5, purse=purse)
        assert "secret" not in str(caught.value)
    for name, settings in (("quantiles", {"quantiles": []}), ("quantiles", {"quantiles": [0.5, 1.0]})):
        with pytest.raises(InvalidArgument, match=f"{name} must"):
            private_quantiles([1.0], **settings, purse=purse)
    with pytest.raises(InvalidArgument, match="candidates must"):
        private_quantiles([1.0], 0.5, purse=purse, candidates=[2, 1])
    with pytest.raises(InvalidArgument, match="clip_norm must"):
        private_mean([[1.0]], purse=purse, share=0.5, clip_norm=0)
    with pytest.raises(InvalidArgument, match="records must"):
        private_mean([[1.0]], purse=purse, share=0.5, clip_norm=1, records=0)
    with pytest.raises(InvalidArgument, match="X must be"):
        private_mean([1.0], purse=purse, share=0.5, clip_norm=1)
    for classes in ([], "ab", [1, 1], [[1]], {1, 2}, None):
        with pytest.raises(InvalidArgument, match="classes must be"):
            private_class_counts([1], classes=classes, purse=purse, share=0.5)
    with pytest.raises(InvalidArgument, match="y must be in one dimension"):
        private_class_counts(np.zeros((2, 1)), classes=[0], purse=purse, share=0.5)
    for rows in ("ab", 3, np.array(1.0)):
        with pytest.raises(InvalidArgument, match="X must have one row"):
            private_count(rows, purse=purse, share=0.5)
    assert purse.spent.releases == 0


def first_that_covers(values, quantile, grid):
    """Scores by definition: how many records keep a candidate from being the first that covers a
    share of them.
    """
    values = np.asarray(values)
    scores = []
    for index, c in enumerate(grid):
        short = quantile * values.size - (values <= c).sum()
        over = (values <= grid[index - 1]).sum() - quantile * values.size if index else 0.0
        scores.append(-max(0.0, short, over))
    return np.array(scores)


@pytest.mark.statistical
@relations
@pytest.mark.parametrize("seed", [11, 23])
def test_quantiles_have_the_distribution_that_was_paid_for(relation, seed):
    """Many columns that are the same, so one call draws many times. Accepts the scale, rejects 2/3
    and 3/2 of it.
    """
    draws, quantile, grid = 6_000, 0.7, np.arange(8.0)
    values = [0, 1, 1, 2, 3, 3, 3, 4, 6, 6]
    purse = Purse(500.0, 1e-2, neighbouring=relation, noise=NoiseSource(seed=seed))
    mechanism = selection(purse, 1.0, draws)
    assert 0.3 < mechanism.epsilon < 1.2
    table = np.tile(np.array(values, dtype=float)[:, None], draws)
    answers = private_quantiles(table, quantile, purse=purse, candidates=grid)
    counted = np.bincount(answers.astype(int), minlength=grid.size)
    score_range = 1.4 if relation is Neighbouring.ADD_REMOVE else 2.0

    def chance(scale):
        exact = ExponentialSelection(mechanism.epsilon / scale).log_probabilities(
            first_that_covers(values, quantile, grid), score_range
        )
        return stats.chisquare(counted, draws * np.exp(exact)).pvalue

    assert chance(1.0) > 1e-4
    assert chance(2 / 3) < 1e-9
    assert chance(3 / 2) < 1e-9


@pytest.mark.statistical
@relations
def test_counts_and_sums_have_the_noise_that_was_paid_for(relation):
    draws = 4_000
    purse = Purse(1e4, 1e-2, neighbouring=relation, noise=NoiseSource(seed=5))
    samples, scales = np.empty(draws), np.empty(draws)
    with purse.reserve(draws):
        for index in range(draws):
            scales[index] = gaussian(purse, 1e-4).noise_multiplier
            samples[index] = private_class_counts([0] * 90 + [1] * 10, classes=[0], purse=purse, share=1e-4)[0] - 90
    for factor, accepted in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        p_value = stats.kstest(samples / (factor * scales), "norm").pvalue
        assert p_value > 1e-4 if accepted else p_value < 1e-9


def test_answers_are_near_the_truth_and_in_order():
    X = a_table()
    quantiles = private_quantiles(X, [0.9, 0.1, 0.5], purse=a_purse(5.0), candidates=np.linspace(-600, 600, 1201))
    assert quantiles.shape == (3, 2)
    assert quantiles == pytest.approx(np.quantile(X, [0.9, 0.1, 0.5], axis=0), abs=12)
    assert (quantiles[1] <= quantiles[2]).all()
    assert (quantiles[2] <= quantiles[0]).all()
    assert private_quantiles(X[:, 0], 0.5, purse=a_purse()).shape == ()
    assert private_quantiles(X, 0.5, purse=a_purse()).shape == (2,)
    assert private_quantiles(X[:, 0], [0.5], purse=a_purse()).shape == (1,)
    mean = private_mean(X / 500, purse=a_purse(5.0), share=1.0, clip_norm=2.0)
    assert mean == pytest.approx([0.01, 0.0], abs=0.02)
    assert private_mean(X / 500, purse=a_purse(5.0), share=1.0, clip_norm=2.0, records=20_000) == pytest.approx(
        mean, abs=0.02
    )
    assert private_count(X, purse=a_purse(5.0), share=1.0) == pytest.approx(20_000, abs=50)
    assert private_class_counts([0, 1] * 500, classes=[1, 0, 2], purse=a_purse(5.0), share=1.0) == pytest.approx(
        [500, 500, 0], abs=20
    )


def test_answers_are_possible_ones_whatever_the_noise():
    for seed in range(20):
        assert private_count([], purse=a_purse(0.01, seed=seed), share=1.0) >= 0
        assert (private_class_counts([], classes=[0, 1], purse=a_purse(0.01, seed=seed), share=1.0) >= 0).all()
        mean = private_mean([[np.nan, 1.0]], purse=a_purse(0.01, seed=seed), share=1.0, clip_norm=3.0)
        assert np.linalg.norm(mean) <= 3 * (1 + 1e-12)


def test_the_default_grid():
    grid = default_candidates()
    assert (grid == -grid[::-1]).all()
    assert (np.diff(grid) > 0).all()
    assert 0.0 in grid
    assert (grid[0], grid[-1], grid.size) == (-1e6, 1e6, 183)


# PrivateRangeScaler


def test_ranges_are_bought():
    X = a_table()
    scaler = PrivateRangeScaler(epsilon=1.0, random_state=0)
    scaled = scaler.fit_transform(X)
    assert ((scaled >= -1) & (scaled <= 1)).all()
    assert (np.abs(scaled) < 1).mean() > 0.8
    assert scaler.lower_ == pytest.approx([0.5, -501.2], rel=0.3)
    assert scaler.upper_ == pytest.approx([10, 501.2], rel=0.3)
    assert 0.99 < scaler.privacy_spent_.epsilon <= 1.0
    assert (scaler.privacy_spent_.delta, scaler.privacy_spent_.releases) == (1e-6, 4)
    assert scaler.certificate_.epsilon == 1.0
    assert scaler.certificate_.simulation
    assert not PrivateRangeScaler().fit(X).certificate_.simulation
    assert scaler.inverse_transform(scaled) == pytest.approx(np.clip(X, scaler.lower_, scaler.upper_))
    with pytest.raises(InvalidArgument, match="expecting 2 features"):
        scaler.inverse_transform(X[:, :1])


def test_whole_numbers_and_constants_get_ranges_that_fit():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.random(20_000) < 0.3, np.full(20_000, 5.0), np.full(20_000, 5e9)]).astype(float)
    scaler = PrivateRangeScaler(epsilon=2.0, random_state=0).fit(X)
    assert (scaler.lower_[0], scaler.upper_[0]) == (0.0, 1.0)
    assert scaler.lower_[1] <= 5.02
    assert 5.0 <= scaler.upper_[1] < 7
    assert scaler.upper_[2] == 1e6
    assert (scaler.lower_ < scaler.upper_).all()


@pytest.mark.parametrize("filter", ["gdp", "zcdp", "rdp"])
@pytest.mark.parametrize("epsilon", [0.2, None])
@relations
def test_a_purse_pays_within_both_limits(filter, epsilon, relation):
    purse = a_purse(1.0, relation, filter=filter)
    purse.release(record_count([1]), Gaussian(20.0))
    with pytest.raises(BudgetExhausted, match="epsilon=5 was requested"):
        PrivateRangeScaler(5.0, purse=purse).fit(a_table(500))
    scaler = PrivateRangeScaler(epsilon, purse=purse).fit(a_table(500))
    assert scaler.privacy_spent_.epsilon <= (0.2 if epsilon == 0.2 else 1.0)
    assert purse.spent.epsilon <= 1.0
    assert purse.spent.releases == 5
    if filter == "gdp" and epsilon != 0.2:
        assert purse.fraction_left < 1e-6
    assert {group.what for group in purse.certificate().groups} == {"release", "quantile of a column"}
    assert scaler.certificate_.releases == 4


def test_an_empty_purse_pays_for_no_ranges():
    purse = emptied(a_purse())
    before = purse.spent
    for epsilon in (1.0, None):
        scaler = PrivateRangeScaler(epsilon, purse=purse)
        with pytest.raises(BudgetExhausted, match=r"PrivateRangeScaler\.fit spent nothing"):
            scaler.fit(a_table(10))
        assert not hasattr(scaler, "lower_")
    assert purse.spent == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"random_state": 3}, "random_state must be None with a purse"),
        ({"delta": 1e-5}, "delta must be that of the purse"),
        ({"neighbouring": "replace-one"}, "neighbouring must be that of the purse"),
        ({"neighbouring": "both"}, "neighbouring must be"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"quantiles": (0.9, 0.1)}, "quantiles must be two in increasing order"),
        ({"quantiles": 0.1}, "quantiles must be two in increasing order"),
        ({"quantiles": (0.0, 0.9)}, "quantiles must be a probability"),
        ({"candidates": [1.0]}, "candidates must be at least two"),
        ({"candidates": [2.0, 1.0]}, "candidates must be at least two"),
        ({"candidates": ["a", "b"]}, "candidates must be"),
        ({"feature_range": (1, 0)}, "feature_range must be"),
    ],
)
def test_wrong_settings_spend_nothing(settings, message):
    purse = a_purse()
    with pytest.raises(InvalidArgument, match=message):
        PrivateRangeScaler(purse=purse, **settings).fit(a_table(10))
    assert purse.spent.releases == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": None}, "epsilon must be given without a purse"),
        ({"purse": "mine"}, "purse must be a Purse or None"),
        ({"purse": Purse.not_private(), "epsilon": None}, "purse must have a finite epsilon"),
        ({"random_state": "x"}, "random_state must be"),
        ({"random_state": -1}, "random_state must be"),
    ],
)
def test_wrong_budgets_are_refused(settings, message):
    with pytest.raises(InvalidArgument, match=message):
        PrivateRangeScaler(**settings).fit(a_table(10))


def test_a_purse_that_is_not_private_still_pays_within_epsilon():
    purse = Purse.not_private()
    assert PrivateRangeScaler(0.5, purse=purse).fit(a_table(100)).privacy_spent_.epsilon <= 0.5


def test_what_agrees_with_the_purse_may_be_said_again():
    purse = a_purse()
    PrivateRangeScaler(delta=1e-6, neighbouring="add-remove", purse=purse).fit(a_table(10))
    assert purse.spent.releases == 4


def test_seeds_repeat_and_generators_go_on():
    X = a_table(50)

    def ranges(state):
        return PrivateRangeScaler(random_state=state).fit(X).lower_.tolist()

    assert ranges(3) == ranges(3) == ranges(np.int64(3))
    state = np.random.RandomState(0)
    assert ranges(state) != ranges(state)
    assert ranges(np.random.RandomState(0)) == ranges(np.random.RandomState(0))


def test_clones_and_pickles_share_the_budget(tmp_path):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=SqliteLedger(tmp_path / "budget.db"))
    scaler = PrivateRangeScaler(0.3, purse=purse).fit(a_table(100))
    assert clone(scaler).purse is purse
    pickle.loads(pickle.dumps(PrivateRangeScaler(0.3, purse=purse))).fit(a_table(100))
    assert purse.spent.releases == 8
    again = pickle.loads(pickle.dumps(scaler))  # what was bought goes along, the purse does not
    assert again.transform(a_table(5)).tolist() == scaler.transform(a_table(5)).tolist()
    with pytest.raises(InvalidArgument, match="left behind"):
        again.fit(a_table(100))
    again.set_params(purse=purse).fit(a_table(100))
    assert purse.spent.releases == 12
    assert pickle.loads(pickle.dumps(PrivateRangeScaler(random_state=0).fit(a_table(9)))).certificate_.releases == 4


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_data_frames(kind):
    table = pytest.importorskip(kind).DataFrame({"a": [1.0, 2.0, None], "b": [3.0, None, 4.0]})
    scaler = PrivateRangeScaler(random_state=0).set_output(transform=kind)
    result = make_pipeline(scaler, RowNormalizer().set_output(transform=kind)).fit_transform(table)
    assert list(result.columns) == ["a", "b"]
    assert type(result) is type(table)
    assert np.isnan(np.asarray(scaler.transform(table))).sum() == 2


def test_ranges_come_out_ordered_whatever_the_noise():
    for seed in range(30):
        scaler = PrivateRangeScaler(1e-3, candidates=[0.0, 1.0], random_state=seed).fit(np.zeros((3, 4)))
        assert (scaler.lower_ < scaler.upper_).all()
