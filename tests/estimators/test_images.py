"""The classifier of images: it learns, pays for all that it uses, and refuses mistakes before it pays."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

from privypurse import BudgetExhausted, GdpFilter, InvalidArgument, Neighbouring, Purse
from tests.estimators.tables import a_purse

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from privypurse.audit._listening import record  # noqa: E402
from privypurse.estimators import PrivateImageClassifier  # noqa: E402
from privypurse.estimators import _images as module  # noqa: E402

NAMES = np.array(["across", "down", "none"])


def lines(records=300, seed=0):
    """Return bytes with a line across, a line down or none, and the names of these."""
    rng = np.random.default_rng(seed)
    images, kind = rng.integers(0, 120, (records, 8, 8), dtype=np.uint8), np.arange(records) % 3
    images[kind == 0, 3] += 130
    images[kind == 1, :, 4] += 130
    return images, NAMES[kind]


def classifier(epsilon=20.0, **settings):
    return PrivateImageClassifier(
        epsilon, **{"delta": 1e-6, "classes": NAMES, "views": 3, "random_state": 0, "device": "cpu"} | settings
    )


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(*lines())


def test_it_learns_and_repeats_with_a_seed(fitted):
    X, y = lines(150, seed=1)
    assert fitted.score(X, y) > 0.9
    assert fitted.classes_.tolist() == NAMES.tolist()
    assert fitted.n_views_ == 3
    assert fitted.coef_.shape == (3, 9 * 16)
    again = clone(fitted).fit(*lines())
    assert np.array_equal(again.coef_, fitted.coef_)
    assert is_classifier(fitted)


def test_probabilities_add_up_and_rank_as_predictions(fitted):
    X, _ = lines(60, seed=1)
    scores, chances = fitted.decision_function(X), fitted.predict_proba(X)
    assert scores.shape == chances.shape == (60, 3)
    assert chances.sum(axis=1) == pytest.approx(1.0)
    assert np.exp(scores) == pytest.approx(chances)
    assert np.array_equal(NAMES[chances.argmax(axis=1)], fitted.predict(X))


def test_two_classes_have_one_score():
    X, y = lines()
    chosen = y != "none"
    model = classifier(classes=NAMES[:2]).fit(X[chosen], y[chosen])
    scores = model.decision_function(X[:9])
    assert scores.shape == (9,)
    assert np.array_equal(model.predict(X[:9]), NAMES[(scores > 0).astype(int)])
    assert model.score(X[chosen], y[chosen]) > 0.9


def test_predictions_are_means_over_views(fitted):
    X, _ = lines(30, seed=2)
    one = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(one.predict_proba(X), fitted.predict_proba(X))
    one.n_views_ = 1
    assert not np.allclose(one.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize(
    ("form", "settings"),
    [
        (lambda X: X[:, None], {}),
        (lambda X: X[..., None], {}),
        (lambda X: X[..., None], {"channels": "last"}),
        (lambda X: X / 1.0, {"pixel_range": (0, 255)}),
        (lambda X: X / 255, {"pixel_range": (0.0, 1.0)}),
        (torch.from_numpy, {}),
    ],
    ids=["first", "last", "declared last", "numbers", "other range", "tensor"],
)
def test_forms_of_the_same_images_make_the_same_model(fitted, form, settings):
    X, y = lines()
    assert classifier(**settings).fit(form(X), y).coef_ == pytest.approx(fitted.coef_, abs=1e-3)


def test_colours_are_features_of_their_own():
    X, y = lines()
    coloured = np.stack([np.full_like(X, 7), X, X[::-1]], axis=-1)
    models = [classifier().fit(coloured, y), classifier(channels="first").fit(coloured.transpose(0, 3, 1, 2), y)]
    assert models[0].coef_.shape == (3, 3 * 9 * 16)
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert models[0].score(coloured, y) > 0.8


def test_pixels_beyond_the_range_count_as_its_ends(fitted):
    X, y = lines()
    beyond = X.astype(float)
    X[0, 0, :2], beyond[0, 0, 0], beyond[0, 0, 1] = (255, 0), 1e300, np.nan
    models = [classifier().fit(X, y), classifier(pixel_range=(0, 255)).fit(beyond, y)]
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert not np.array_equal(models[0].coef_, fitted.coef_)


def test_all_that_it_uses_is_paid_for():
    purse = a_purse()
    model = classifier(None, delta=None, purse=purse, random_state=None).fit(*lines())
    assert [(group.count, group.what) for group in model.certificate_.groups] == [
        (1, "number of records"),
        (1, "centre of features"),
        (model.n_iter_, "GradientAt"),
    ]
    assert 1.999 < model.privacy_spent_.epsilon <= 2.0
    assert purse.spent == model.privacy_spent_
    with pytest.raises(BudgetExhausted, match=r"PrivateImageClassifier\.fit spent nothing"):
        model.fit(*lines())
    assert not any("labels" in line and "classes=" in line for line in model.certificate_.uncovered)


def test_declared_numbers_are_not_bought_and_labels_that_were_read_are_named():
    model = classifier(n_public=300, classes=None).fit(*lines())
    assert [group.what for group in model.certificate_.groups] == ["centre of features", "GradientAt"]
    assert any("class labels" in line for line in model.certificate_.uncovered)
    assert model.certificate_.simulation


def test_a_ledger_counts_a_fit_within_a_larger_budget(tmp_path):
    settings = {"neighbouring": "add-remove", "ledger": tmp_path / "budget.db"}
    purse = Purse(2.0, 1e-6, **settings)
    model = classifier(0.5, delta=None, purse=purse, random_state=None).fit(*lines())
    assert model.privacy_spent_.epsilon == pytest.approx(0.5, rel=1e-3)
    assert purse.spent.epsilon == pytest.approx(0.5, rel=1e-3)
    assert Purse(2.0, 1e-6, **settings).spent.releases == model.n_iter_ + 2


def test_replacing_a_record_needs_twice_the_noise():
    def run(relation):
        def fit(data, purse):
            model = classifier(None, delta=None, purse=purse, random_state=None, n_public=300)
            return model.fit(*data).coef_

        heard = record(fit, lines(), Purse(2.0, 1e-6, neighbouring=relation)).releases
        stds = [each.mechanism.noise_std(each.box, each.neighbouring) for each in heard[1:]]
        assert {each.neighbouring for each in heard} == {Neighbouring(relation)}
        # Gradients share what the centre leaves.
        mu = GdpFilter(2.0, 1e-6, relation).mu * (1 - module.CENTRE_SHARE) ** 0.5
        return [std * mu / len(stds) ** 0.5 for std in stds]

    for relation, length in (("add-remove", module.CLIP_NORM), ("replace-one", 2 * module.CLIP_NORM)):
        assert all(bound == pytest.approx(length, rel=1e-3) for bound in run(relation))


BAD_SETTINGS = [
    ({"epsilon": 0}, "epsilon must be"),
    ({"classes": ["across"]}, "classes must be two or more"),
    ({"classes": ["across", "down"]}, "y must hold only the declared classes"),
    ({"classes": [0, 1, 2]}, "y must hold only the declared classes"),
    ({"pixel_range": (1, 0)}, "pixel_range must be two numbers"),
    ({"pixel_range": 255}, "pixel_range must be two numbers"),
    ({"pixel_range": (0, np.nan)}, "pixel_range must be two numbers"),
    ({"channels": "middle"}, "channels must be"),
    ({"views": 0}, "views must be"),
    ({"n_public": -1}, "n_public must be"),
    ({"n_public": 2_000_000}, "delta must be far below one over"),
    ({"callbacks": [3]}, "callbacks must be"),
    ({"neighbouring": "friends"}, "neighbouring must be"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD_SETTINGS)
def test_bad_settings_spend_nothing(wrong, message):
    purse = a_purse()
    with pytest.raises(InvalidArgument, match=message):
        classifier(**{"epsilon": None, "delta": None, "purse": purse, "random_state": None} | wrong).fit(*lines(9))
    assert purse.spent.releases == 0


BAD_DATA = [
    (lambda X, y: (X.reshape(9, 64), y), "X must be numbers of shape"),
    (lambda X, y: (X.astype(str), y), "X must be numbers of shape"),
    (lambda X, y: (X / 255, y), "pixel_range must be declared"),
    (lambda X, y: (np.stack([X, X], axis=1), y), "may have its channels first or last"),
    (lambda X, y: (X, y[:5]), "y must have a label for each"),
    (lambda X, y: (X, np.stack([y, y])), "y must have a label for each"),
    (lambda X, y: (X[:1], y[:1]), "two or more images"),
    (lambda X, y: (X, np.arange(9)), "y must hold only the declared classes"),
]


@pytest.mark.parametrize(("change", "message"), BAD_DATA)
def test_data_that_are_no_labelled_images_spend_nothing(change, message):
    purse = a_purse()
    with pytest.raises(InvalidArgument, match=message):
        classifier(None, delta=None, purse=purse, random_state=None).fit(*change(*lines(9)))
    assert purse.spent.releases == 0


def test_a_refused_fit_keeps_the_model_and_other_images_are_refused(fitted):
    model, before = pickle.loads(pickle.dumps(fitted)), fitted.coef_
    with pytest.raises(InvalidArgument, match="views"):
        model.set_params(views=-1).fit(*lines())
    assert np.array_equal(model.set_params(views=3).coef_, before)
    with pytest.raises(InvalidArgument, match=r"images of shape \(1, 8, 8\).*Resize"):
        fitted.predict(np.zeros((2, 9, 9), np.uint8))
    with pytest.raises(ValueError, match="not fitted"):
        classifier().predict(lines()[0])


def test_progress_tells_the_views_and_the_steps(capsys):
    classifier(verbose=True).fit(*lines(60))
    shown = capsys.readouterr().err
    assert "features of 0 of 3 views" in shown
    assert "features of 2 of 3 views" in shown
    assert "epsilon" in shown
