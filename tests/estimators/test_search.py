"""A search that pays: what it spends, what it finds, and that nothing of the trials that lost
leaves it.
"""

import gc
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from privypurse import (
    BudgetExhausted,
    InvalidArgument,
    NoiseSource,
    Purse,
)
from privypurse.core._neighbouring import Neighbouring
from privypurse.core.charges import RepeatAndSelectCharge, from_json
from privypurse.estimators import _search_trial as parts
from privypurse.estimators._search import PrivateSearchCV
from tests.estimators.tiny_models import GRID, SEEN, NoisyScaler, Tiny, TinyMean, two_columns


@pytest.fixture(autouse=True)
def _forget():
    SEEN.clear()


@pytest.fixture(scope="module")
def table():
    return two_columns()


def test_it_spends_its_epsilon_in_one_charge_before_training(table):
    search = PrivateSearchCV(Tiny(), GRID, epsilon=1.0, n_public=2_000).fit(*table)
    assert 0.999 <= search.privacy_spent_.epsilon <= 1.0
    assert search.privacy_spent_.delta == 1e-6
    certificate = search.certificate_
    assert certificate.private
    assert certificate.releases == 1
    assert certificate.groups[0].kind == "repeat-and-select"
    assert certificate.recorded_epsilon == search.privacy_spent_.epsilon
    assert any("how many trials" in item for item in certificate.uncovered)
    assert certificate.relations["replace-one"].recorded_epsilon > 1


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
def test_a_trial_has_the_limit_that_was_paid_for(table, neighbouring):
    search = PrivateSearchCV(
        Tiny(), GRID, epsilon=2.0, neighbouring=neighbouring, mean_trials=3.0, shape=1.0, n_public=2_000
    )
    search.fit(*table)
    purse = SEEN[0][1]
    assert purse.neighbouring.value == neighbouring
    assert purse.spent.releases == 15
    assert purse.fraction_left < 1e-6
    assert (purse.epsilon, purse.delta) == search.trial_budget()
    assert SEEN[0][2:] == (None, None, 1_600)
    level = search.certificate_.groups[0].smallest
    assert purse.filter.mu <= 1 / level <= purse.filter.mu * (1 + 1e-12)
    assert (search.certificate_.relations["add-remove"].epsilon is None) == (neighbouring == "replace-one")


def test_better_parameters_win(table):
    won = []
    for seed in range(12):
        search = PrivateSearchCV(
            Tiny(), GRID, epsilon=4.0, mean_trials=12.0, shape=1.0, n_public=2_000, random_state=seed
        )
        won.append(search.fit(*table).best_params_["column"] == 0)
        if won[-1]:
            assert search.best_score_ == pytest.approx(search.score(*table), abs=0.15)
            assert search.score(*table) > 0.9
    assert np.mean(won) >= 0.8  # by chance it would be half


def test_regressors_are_judged_by_bounded_errors():
    y = np.random.default_rng(1).uniform(0.4, 0.6, 1_000)
    X = np.zeros((1_000, 1))
    grid = {"offset": [0.0, 5.0]}
    search = PrivateSearchCV(
        TinyMean(), grid, epsilon=8.0, mean_trials=20.0, shape=1.0, error_bound=1.0, random_state=4
    ).fit(X, y)
    assert search.best_params_ == {"offset": 0.0}
    assert -0.4 < search.best_score_ <= 0
    assert is_regressor(search)
    with pytest.raises(InvalidArgument, match="error_bound"):
        PrivateSearchCV(TinyMean(), grid).fit(X, y)


def test_a_seed_is_a_simulation_and_repeats_itself(table):
    twice = [PrivateSearchCV(Tiny(), GRID, n_public=2_000, random_state=7).fit(*table) for _ in range(2)]
    assert twice[0].best_score_ == twice[1].best_score_
    assert twice[0].certificate_.simulation
    assert not twice[0].certificate_.private


# What must not leave


def everything_in(thing, seen=None):
    """Walk all objects reachable through attributes and containers."""
    seen = {} if seen is None else seen
    if id(thing) in seen or isinstance(thing, type | np.ndarray | str | bytes | int | float):
        return seen
    seen[id(thing)] = thing
    children = list(getattr(thing, "__dict__", {}).values())
    if isinstance(thing, dict):
        children += [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set):
        children += list(thing)
    for child in children:
        everything_in(child, seen)
    return seen


def many_trials(table, **settings):
    for seed in range(100):
        SEEN.clear()
        search = PrivateSearchCV(
            Tiny(),
            {"column": [0, 1], "fails": [False, True]},
            mean_trials=8.0,
            n_public=2_000,
            random_state=seed,
            **settings,
        )
        try:
            search.fit(*table)
        except InvalidArgument:
            continue
        if len(SEEN) > 4:
            return search, len(SEEN)
    raise AssertionError


def test_nothing_of_losing_trials_stays_or_leaves(table, capsys, recwarn):
    search, _ = many_trials(table)
    assert capsys.readouterr() == ("", "")
    assert not recwarn.list
    inside = everything_in(search)
    assert sum(isinstance(thing, Tiny) for thing in inside.values()) == 2  # the template and the winner
    assert not any(isinstance(thing, Purse) for thing in inside.values())
    public = {name for name in vars(search) if name.endswith("_")}
    assert public == {
        "best_params_", "best_estimator_", "best_score_", "privacy_spent_", "certificate_", "classes_", "n_features_in_",
    }  # fmt: skip
    assert "_trial" not in " ".join(public)
    for telling in ("n_jobs", "verbose", "callbacks"):
        assert telling not in search.get_params(deep=False)
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(table[0]), search.predict(table[0]))
    assert len(pickle.dumps(search)) < 20_000  # no table in it
    assert "cv_results" not in repr(search) + str(vars(search))


def test_the_size_of_the_pickle_does_not_tell_the_number_of_trials(table):
    sizes = set()
    for seed in range(6):
        search = PrivateSearchCV(Tiny(), {"column": [0]}, n_public=2_000, random_state=seed).fit(*table)
        search.random_state = 0
        search.certificate_ = search.best_estimator_.certificate_ = None  # holds a time and a hash
        sizes.add(len(pickle.dumps(search)))
    assert len(sizes) <= 2


def test_the_winner_says_what_the_search_cost(table):
    search = PrivateSearchCV(Tiny(epsilon=3.0), GRID, n_public=2_000).fit(*table)
    best = search.best_estimator_
    assert best.certificate_ is search.certificate_
    assert best.privacy_spent_ == search.privacy_spent_
    assert (best.purse, best.purse_, best.epsilon) == (None, None, 3.0)
    assert best.get_params()["column"] == search.best_params_["column"]


def test_the_data_is_not_kept(table):
    class Rows(np.ndarray):
        pass

    X = table[0].copy().view(Rows)
    PrivateSearchCV(Tiny(), GRID, n_public=2_000).fit(X, table[1])
    del X
    gc.collect()
    assert not [thing for thing in gc.get_objects() if issubclass(type(thing), parts.Trial)]


# What goes wrong


def test_a_search_whose_best_trial_failed_says_so_without_data(table):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    with pytest.raises(InvalidArgument, match="paid for") as caught:
        PrivateSearchCV(Tiny(fails=True), GRID, purse=purse).fit(*table)
    assert caught.value.__context__ is None
    assert "record" not in str(caught.value)
    assert purse.spent.releases == 1


def test_an_estimator_that_does_not_pay_with_its_purse_never_wins(table):
    class Freeloader(Tiny):
        def fit(self, X, y):
            self.coef_ = np.array([1.0, 0.0])
            return self

    with pytest.raises(InvalidArgument, match="failed"):
        PrivateSearchCV(Freeloader(), GRID).fit(*table)


def test_a_crash_after_payment_leaves_it_paid(table):
    class Stopped(Tiny):
        def fit(self, X, y):
            raise KeyboardInterrupt

    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    search = PrivateSearchCV(Stopped(), GRID, purse=purse)
    with pytest.raises(KeyboardInterrupt):
        search.fit(*table)
    assert purse.spent.releases == 1
    assert purse.spent.epsilon > 0.99
    with pytest.raises(NotFittedError):
        search.predict(table[0])


def trial_on(X, y, measure=None, records=None):
    measure = measure or parts.Measure()
    limit = parts.trial_limit(0.1, 1e-6, Neighbouring.ADD_REMOVE)
    return parts.Trial(None, (None, None), (X, y), measure, limit, records)


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e300, -1e300])
def test_one_record_moves_the_score_by_its_own_judgement(table, odd):
    X, y = table[0][:40], table[1][:40]
    model = Tiny()
    model.coef_ = np.array([1.0, 0.0])
    judged = trial_on(X, y)._judge(model, np.arange(40))
    assert set(judged) <= {0.5, -0.5}
    assert judged.mean() > 0.2
    with_odd = X.copy()
    with_odd[17] = odd
    after = trial_on(with_odd, y)._judge(model, np.arange(40))
    assert (np.delete(after, 17) == np.delete(judged, 17)).all()
    assert abs(after[17] - judged[17]) <= 1
    if np.isnan(odd):
        assert after[17] == -0.5


def test_errors_are_bounded_whatever_is_predicted():
    measure = parts.Measure(2.0)
    y = np.array([0.0, 1.0, np.nan, np.inf, 1e308, -1e308])
    judged = measure.judge(y, np.array([0.0, 2.0, 0.0, np.inf, -1e308, 0.0]))
    assert (np.abs(judged) <= 0.5).all()
    assert judged[0] == 0.5
    assert (judged[2:] == -0.5).all()
    assert measure.score(judged[:2].mean()) == pytest.approx(-0.5)


@pytest.mark.statistical
def test_the_noise_of_the_score_is_the_trials_limit():
    y = np.zeros(50, dtype=int)
    model = Tiny()
    model.coef_ = np.array([0.0, -1.0])  # always right
    noise = NoiseSource(seed=9)
    totals = np.array([trial_on(np.zeros((50, 2)), y, records=50.0)._noisy_total(model, noise)[0] for _ in range(400)])
    assert totals.mean() == pytest.approx(25, abs=1)
    for factor, fits in [(1, True), (2 / 3, False), (3 / 2, False)]:
        # Half a record's vote, over mu.
        assert (abs(totals.std() / (factor * 0.5 / 0.1) - 1) < 0.15) == fits
    both = np.array([trial_on(np.zeros((50, 2)), y)._noisy_total(model, noise) for _ in range(400)])
    assert both[:, 0].std() == pytest.approx(5 / 0.9**0.5, rel=0.15)
    assert both[:, 1].std() == pytest.approx(10 / 0.1**0.5, rel=0.15)
    assert both[:, 1].mean() == pytest.approx(50, abs=6)


@pytest.mark.statistical
def test_coins_are_fair_and_belong_to_positions():
    training, scored = parts.split(20_000, 0.2, NoiseSource(seed=1))
    assert sorted([*training, *scored]) == list(range(20_000))
    assert scored.size == pytest.approx(4_000, abs=250)
    # One record more, and all others stay where they were.
    more, _ = parts.split(20_001, 0.2, NoiseSource(seed=1))
    assert set(training) <= set(more)


@pytest.mark.parametrize("mu", [1e-7, 1e-3, 0.1433, 3.0])
def test_the_limit_of_a_trial_is_its_mu_rounded_down(mu):
    limit = parts.trial_limit(mu, 1e-6, Neighbouring.ADD_REMOVE)
    assert mu * (1 - 1e-6) <= limit.mu <= mu


# Purses


@pytest.mark.parametrize("filter", ["gdp", "zcdp"])
def test_a_purse_that_cannot_price_it_is_refused_and_keeps_its_budget(table, filter):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter=filter)
    with pytest.raises(InvalidArgument, match="filter='rdp'"):
        PrivateSearchCV(Tiny(), GRID, purse=purse).fit(*table)
    assert purse.spent.releases == 0
    assert not SEEN


def test_a_shared_purse_pays_and_the_rest_stays(table, tmp_path):
    purse = Purse(3.0, 1e-6, neighbouring="replace-one", filter="rdp", ledger=tmp_path / "budget.db")
    search = PrivateSearchCV(Tiny(), GRID, epsilon=2.0, purse=purse).fit(*table)
    assert 0.99 <= search.privacy_spent_.epsilon <= purse.spent.epsilon <= 2.0
    assert purse.spent.releases == 1
    charges = [from_json(entry.details["charge"]) for entry in purse.ledger.entries() if "charge" in entry.details]
    assert [type(charge) for charge in charges] == [RepeatAndSelectCharge]
    assert any("how many trials" in item for item in purse.certificate().uncovered)
    rest = PrivateSearchCV(Tiny(), GRID, epsilon=None, purse=purse).fit(*table)
    assert rest.privacy_spent_.epsilon > 1
    assert purse.fraction_left < 1e-6
    SEEN.clear()
    for epsilon in (None, 1.0):
        with pytest.raises(BudgetExhausted):
            PrivateSearchCV(Tiny(), GRID, epsilon=epsilon, purse=purse).fit(*table)
    assert purse.spent.releases == 2
    assert not SEEN
    purse.ledger.verify()
    assert clone(search).purse is purse


@pytest.mark.parametrize(("budget", "first", "second"), [(1.0, 0.9, 0.05), (3.0, 2.0, 0.5), (20.0, 9.0, 4.0)])
@pytest.mark.parametrize("neighbouring", ["add-remove", "replace-one"])
def test_a_search_spends_at_most_its_epsilon_by_the_count_of_the_purse(table, budget, first, second, neighbouring):
    purse = Purse(budget, 1e-6, neighbouring=neighbouring, filter="rdp")
    PrivateSearchCV(Tiny(), GRID, epsilon=first, purse=purse).fit(*table)
    before = purse.spent.epsilon
    assert 0.5 * first < before <= first
    PrivateSearchCV(Tiny(), GRID, epsilon=second, mean_trials=1.5, purse=purse).fit(*table)
    assert before < purse.spent.epsilon <= before + second


def test_a_search_is_refused_where_the_purse_counts_more_for_any_release(table):
    purse = Purse(3.0, 1e-6, neighbouring="add-remove", filter="rdp")
    with pytest.raises(BudgetExhausted, match=r"1\.33, which this purse counts for any first release"):
        PrivateSearchCV(Tiny(), GRID, epsilon=1.0, purse=purse).fit(*table)
    assert purse.spent.releases == 0
    assert not SEEN


@pytest.mark.parametrize(
    "settings",
    [{"delta": 1e-5}, {"neighbouring": "replace-one"}, {"random_state": 3}],
    ids=str,
)
def test_settings_that_disagree_with_the_purse_are_refused(table, settings):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    with pytest.raises(InvalidArgument, match=next(iter(settings))):
        PrivateSearchCV(Tiny(), GRID, purse=purse, **settings).fit(*table)
    assert purse.spent.releases == 0


def test_no_line_of_the_ledger_dates_the_end_of_the_search(table):
    lines = []

    class Watching(Tiny):
        def fit(self, X, y):
            lines.append(len(list(purse.ledger.entries())))
            return super().fit(X, y)

    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp", noise=NoiseSource(seed=8))
    search = PrivateSearchCV(Watching(), GRID, epsilon=None, purse=purse, mean_trials=10.0).fit(*table)
    assert len(lines) > 1
    assert set(lines) == {len(list(purse.ledger.entries()))}
    assert search.certificate_.ledger_lines == lines[0]


# Estimators


@pytest.mark.parametrize(
    ("estimator", "grid", "words"),
    [
        (LogisticRegression(), {"C": [1.0]}, "purse"),
        (Tiny, GRID, "object"),
        (None, GRID, "estimator"),
        (Tiny(), {"kolumn": [1]}, "param_grid"),
        (Tiny(), {"column": 1}, "param_grid"),
        (Tiny(), [], "candidate"),
        (Tiny(), {"epsilon": [1.0, 2.0]}, "epsilon"),
        (Tiny(), {"verbose": [1]}, "verbose"),
        (Tiny(callbacks=[print]), GRID, "callbacks"),
        (Tiny(purse=Purse(1.0, 1e-6, neighbouring="add-remove")), GRID, "PrivateSearchCV"),
        (make_pipeline(StandardScaler(), Tiny()), {"tiny__column": [0]}, "would learn"),
        (make_pipeline(NoisyScaler(), Tiny()), {"tiny__column": [0]}, "would learn"),
        (
            make_pipeline(ColumnTransformer([("s", StandardScaler(), [0])]), Tiny()),
            {},
            "columntransformer__s .StandardScaler",
        ),
        (make_pipeline(FeatureUnion([("n", NoisyScaler())]), Tiny()), {}, "featureunion__n .NoisyScaler. would learn"),
        (Pipeline([("tiny", Tiny())], memory="nowhere"), {"tiny__column": [0]}, "memory"),
        (make_pipeline(FeatureUnion([("a", Pipeline([("n", Normalizer())], memory="x"))]), Tiny()), {}, "memory"),
        (make_pipeline(Normalizer(), LogisticRegression()), {"logisticregression__C": [1.0]}, "purse"),
        (Pipeline([("scale", None), ("tiny", Tiny())]), {"scale": [None, StandardScaler()]}, "would learn"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_could_not_be_searched_privately_is_refused_before_payment(table, estimator, grid, words):
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    with pytest.raises(InvalidArgument, match=words):
        PrivateSearchCV(estimator, grid, purse=purse).fit(*table)
    assert purse.spent.releases == 0
    assert not SEEN


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"validation": 1.0}, "validation"),
        ({"validation": 0.0}, "validation"),
        ({"mean_trials": 0.0}, "mean"),
        ({"shape": 2.0}, "shape"),
        ({"epsilon": None}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"n_public": 0}, "n_public"),
    ],
)
def test_wrong_settings_are_refused(table, settings, words):
    with pytest.raises(InvalidArgument, match=words):
        PrivateSearchCV(Tiny(), GRID, **settings).fit(*table)
    assert not SEEN


def test_tables_that_do_not_match_are_refused_without_numbers(table):
    for X, y in [(table[0], table[1][:-1]), (table[0], table[1].reshape(-1, 1))]:
        with pytest.raises(InvalidArgument, match="y") as caught:
            PrivateSearchCV(Tiny(), GRID).fit(X, y)
        assert "2000" not in str(caught.value)


def test_the_model_of_a_pipeline_pays_and_functions_are_named(table):
    pipeline = Pipeline([("move", FunctionTransformer(np.negative)), ("inner", make_pipeline(Normalizer(), Tiny()))])
    search = PrivateSearchCV(pipeline, {"inner__tiny__column": [0, 1]}, n_public=2_000).fit(*table)
    assert SEEN[0][1].spent.releases == 15
    uncovered = " ".join(search.certificate_.uncovered)
    assert "function in step move" in uncovered
    assert "inner" not in uncovered
    assert search.best_estimator_[-1][-1].purse is None
    assert search.best_estimator_[-1][-1].certificate_ is search.certificate_
    pickle.dumps(search)


def test_it_is_a_scikit_learn_estimator(table):
    search = PrivateSearchCV(Tiny(), GRID, n_public=2_000)
    assert is_classifier(search)
    assert not hasattr(search, "predict_proba")
    assert clone(search).get_params()["estimator__column"] == 0
    with pytest.raises(NotFittedError):
        search.predict(table[0])
    search.fit(*table)
    assert list(search.classes_) == [0, 1]
    assert search.n_features_in_ == 2
    assert search.decision_function(table[0]).shape == (2_000,)


def test_tables_of_other_kinds(table):
    pandas = pytest.importorskip("pandas")
    for X in (sparse.csr_matrix(table[0]), sparse.coo_matrix(table[0]), pandas.DataFrame(table[0]), table[0].tolist()):
        PrivateSearchCV(Tiny(), GRID, n_public=2_000, mean_trials=1.0).fit(X, table[1])


def test_the_budget_of_a_trial_is_known_beforehand():
    five, ten = (PrivateSearchCV(Tiny(), GRID, mean_trials=mean).trial_budget()[0] for mean in (5.0, 10.0))
    assert five == pytest.approx(0.583, abs=1e-3)
    assert ten == pytest.approx(0.541, abs=1e-3)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", filter="rdp")
    for epsilon in (1.0, None):
        search = PrivateSearchCV(Tiny(), GRID, epsilon=epsilon, purse=purse)
        assert search.trial_budget()[0] == pytest.approx(0.510, abs=1e-3)  # at the order of the purse
        with pytest.raises(BudgetExhausted, match="costs more than what is left"):
            search.set_params(mean_trials=1e6).trial_budget()
