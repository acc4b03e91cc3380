"""Whether anything was spent is a fact on the error, and the sentence is said only where it is
true.
"""

import pathlib
import pickle
import threading
from unittest import mock

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import privypurse
from privypurse import Gaussian, InvalidArgument, LedgerUnavailable, Purse
from privypurse.core._errors import PrivypurseError, charges_so_far, count_charge, spending_noted
from privypurse.estimators import PrivateLogisticRegression, PrivateRangeScaler
from privypurse.losses import Logistic
from privypurse.oracles import DenseOracle
from privypurse.oracles.statistics import clipped_sum
from privypurse.training import train
from privypurse.training.optimizers import GradientDescent

BOX = clipped_sum([[1.0]], clip_norm=1.0)


def a_purse():
    return Purse(epsilon=1.0, delta=1e-6, neighbouring="add-remove")


def test_refused_release_says_that_nothing_was_spent():
    with pytest.raises(PrivypurseError, match=r" Purse\.release spent nothing\.$") as refused:
        a_purse().release(BOX, Gaussian(noise_multiplier=0.001))
    assert refused.value.spent is False


class WrongAtStep:
    """A schedule that proposes something that is no mechanism, at one step."""

    def __init__(self, step):
        self.step = step

    def propose(self, query, past, budget):
        return "noise" if len(past) == self.step else Gaussian(noise_multiplier=50.0)


@pytest.mark.parametrize(("step", "spent"), [(0, False), (3, True)])
def test_training_that_fails_says_whether_it_had_spent(step, spent):
    oracle = DenseOracle(np.eye(3), [0, 1, 1], loss=Logistic(clip_derivative=0.5))
    with pytest.raises(PrivypurseError) as failed:
        train(oracle, GradientDescent(1.0, records=3), WrongAtStep(step), a_purse(), steps=10)
    assert failed.value.spent is spent
    assert ("train spent nothing." in str(failed.value)) is not spent


class Refusing:
    """A callback that fails when training has begun."""

    def on_start(self, steps, done):
        pass

    def on_step(self, step):
        raise InvalidArgument("stop here.")

    def on_end(self, trace):
        pass


def test_fit_that_fails_after_payment_does_not_say_that_nothing_was_spent():
    X = np.random.default_rng(0).normal(size=(500, 2))
    model = PrivateLogisticRegression(callbacks=[Refusing()])
    with pytest.raises(InvalidArgument, match=r"^stop here\.$") as failed:
        model.fit(X, X[:, 0] > 0)
    assert failed.value.spent is True
    with pytest.raises(InvalidArgument, match=r"epsilon.*PrivateLogisticRegression\.fit spent nothing\.$"):
        PrivateLogisticRegression(-1.0).fit(X, X[:, 0] > 0)


def test_charge_that_may_be_on_the_ledger_counts():
    purse = a_purse()
    with (
        mock.patch.object(purse.ledger, "append", side_effect=LedgerUnavailable("the disk did not answer.")),
        pytest.raises(LedgerUnavailable) as failed,
    ):
        purse.release(BOX, Gaussian(noise_multiplier=50.0))
    assert failed.value.spent is True


@pytest.mark.parametrize("charged", [False, True])
def test_an_operation_may_have_begun_before_the_block(charged):
    began = charges_so_far()
    if charged:
        count_charge()
    with pytest.raises(PrivypurseError) as failed, spending_noted(began, call=None):
        raise PrivypurseError("too late.")
    assert failed.value.spent is charged
    assert str(failed.value) == ("too late." if charged else "too late. Nothing was spent.")


def test_charges_of_other_threads_count():
    @spending_noted(call=None)
    def fail_while_another_thread_pays():
        thread = threading.Thread(target=count_charge)
        thread.start()
        thread.join()
        raise InvalidArgument("wrong.")

    with pytest.raises(InvalidArgument) as failed:
        fail_while_another_thread_pays()
    assert failed.value.spent is True


@pytest.mark.parametrize("sentence", ["Nothing was spent.", " spent nothing."])
def test_the_sentence_stands_in_one_place(sentence):
    source = pathlib.Path(privypurse.__file__).parent
    places = [path for path in source.rglob("*.py") if sentence in path.read_text(encoding="utf-8")]
    assert [path.relative_to(source) for path in places] == [pathlib.Path("core/_errors.py")]


def test_a_fit_after_a_step_that_paid_speaks_for_itself_only():
    X = np.random.default_rng(0).random((2_000, 2))
    y = (X[:, 0] > 0.5).astype(int)
    X[5, 0] = np.nan
    purse = a_purse()
    model = make_pipeline(
        PrivateRangeScaler(0.3, purse=purse), PrivateLogisticRegression(None, purse=purse, classes=[0, 1])
    )
    with pytest.raises(InvalidArgument) as refused:
        model.fit(X, y)
    assert purse.spent.epsilon > 0
    assert str(refused.value).endswith(" PrivateLogisticRegression.fit spent nothing.")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_a_whole_job_says_that_nothing_was_spent_unless_a_part_of_it_spent():
    @spending_noted(call=None)
    def job(*, pay):
        purse = a_purse()
        if pay:
            purse.release(BOX, Gaussian(noise_multiplier=50.0))
        purse.release(BOX, Gaussian(noise_multiplier=0.001))

    with pytest.raises(PrivypurseError, match=r" Nothing was spent\.$"):
        job(pay=False)
    with pytest.raises(PrivypurseError) as failed:
        job(pay=True)
    assert "spent" not in str(failed.value).removeprefix(failed.value.message)
