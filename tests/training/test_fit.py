"""Running a method: facts, purses, checkpoints, mistakes."""

import traceback

import numpy as np
import pytest

from privypurse import Gaussian, InvalidArgument, NoiseSource, Purse
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core._errors import UnsupportedCharge
from privypurse.core.queries import Count
from privypurse.losses import Hinge, Logistic, Squared
from privypurse.methods import ADPSGD, DPAGD, DPSGD, PUR, Dynamic, Nesterov, NoisyPGD, NonPrivate, ObjPert, OraclePUR
from privypurse.oracles import DenseOracle
from privypurse.training import facts_for, fit, linear_scores, purse_for


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((3_000, 5))
    return X, (X @ [1.0, -2.0, 0.5, 0.0, 1.5] > 0).astype(int)


@pytest.fixture
def oracle(data):
    return DenseOracle(*data, loss=Logistic(clip_derivative=0.5))


def make_purse(**changes):
    return Purse(**{"epsilon": 1.0, "delta": 1e-6, "neighbouring": "add-remove"} | changes)


@pytest.mark.parametrize(
    "method", [Nesterov(), NoisyPGD(), PUR(), Dynamic(), DPAGD(), ADPSGD(), DPSGD(), ObjPert()], ids=repr
)
def test_methods_learn(method, oracle, data):
    X, y = data
    noise = NoiseSource(seed=1)
    budget = {"epsilon": 1.0, "delta": 1e-6, "neighbouring": "add-remove"}
    purse = purse_for(oracle, method, records=3_000, noise=noise, **budget)
    result = fit(oracle, method, purse, records=3_000)
    assert np.mean((linear_scores(X, result.point) > 0) == y) > 0.85


@pytest.mark.parametrize(
    "method", [Nesterov(steps=30), DPAGD(rounds=15), ADPSGD(rounds=15), PUR(most_steps=30)], ids=repr
)
def test_an_interrupted_fit_goes_on_with_the_plan_it_began_with(method, oracle, tmp_path):
    class PullThePlug:
        def on_start(self, steps, done):
            self.armed = done == 0

        def on_step(self, step):
            if self.armed and step.number == 11:
                raise KeyboardInterrupt

        def on_end(self, trace):
            pass

    def run(name, callbacks):
        purse = make_purse(ledger=tmp_path / f"{name}.db", noise=NoiseSource(seed=4))
        settings = {"records": 3_000, "checkpoint": tmp_path / f"{name}.npz", "callbacks": callbacks}
        try:
            return fit(oracle, method, purse, **settings), purse
        except KeyboardInterrupt:
            purse = make_purse(ledger=tmp_path / f"{name}.db", noise=NoiseSource(seed=4))
            return fit(oracle, method, purse, **settings), purse

    whole, _ = run("whole", [])
    broken, purse = run("broken", [PullThePlug()])
    assert broken.point == pytest.approx(whole.point, rel=1e-12)
    assert broken.trace == whole.trace
    assert 0.999 < purse.spent.epsilon <= 1.0


def test_a_second_fit_spends_what_the_first_left(oracle):
    purse = make_purse()
    fit(oracle, Nesterov(steps=5), purse, records=3_000)
    with pytest.raises(Exception, match="nothing is left"):
        fit(oracle, Nesterov(), purse, records=3_000)
    half = make_purse()
    half.release(oracle.answer(Count()), Gaussian(half.remaining.noise_multiplier * np.sqrt(2)))
    facts = facts_for(oracle, half, records=3_000)
    assert facts.mu == pytest.approx(facts_for(oracle, make_purse(), records=3_000).mu / np.sqrt(2), rel=1e-6)
    fit(oracle, DPAGD(), half, records=3_000)
    assert 0.999 < half.spent.epsilon <= 1.0


def test_the_oracle_version_of_pur_runs_only_where_it_is_declared(oracle):
    with pytest.raises(Exception, match="not_private"):
        fit(oracle, OraclePUR(), make_purse(), records=3_000)
    purse = Purse.not_private()
    result = fit(oracle, OraclePUR(claimed_epsilon=1.0), purse, records=3_000)
    assert result.trace.stop_reason in ("budget", "steps")
    assert "NOT PRIVATE" in str(purse.certificate())
    # Noise as long as the gradient itself: large at first, small at the optimum.
    noise = [step.noise_std for step in result.trace.steps]
    assert noise[0] > noise[-1] > 0


def test_the_oracle_version_stops_where_the_gradient_vanishes():
    X = np.ones((50, 1))
    oracle = DenseOracle(X, np.arange(50) % 2, loss=Logistic(clip_derivative=0.5))
    result = fit(oracle, OraclePUR(), Purse.not_private(), records=50)
    assert result.trace.stop_reason == "budget"


class TestBounds:
    def test_a_plan_states_no_bound_where_clipping_would_break_it(self, oracle):
        clipped = facts_for(oracle, make_purse(), records=3_000, clip_norm=0.1)
        whole = facts_for(oracle, make_purse(), records=3_000)
        for method in (NoisyPGD(), PUR(momentum=0.0), Dynamic()):
            assert method.plan(whole).bound is not None
            assert method.plan(clipped).bound is None
            assert "clipped" in " ".join(method.plan(clipped).notes)

    def test_noisy_pgd_without_a_set_and_with_a_ridge_has_no_bound(self, oracle):
        ridged = facts_for(oracle, make_purse(), records=3_000, l2=0.1)
        assert NoisyPGD(projection=None).plan(ridged).bound is None
        assert NoisyPGD().plan(ridged).bound is not None

    def test_replace_one_doubles_the_noise_and_halves_the_steps(self, oracle):
        plans = [
            Nesterov().plan(facts_for(oracle, make_purse(epsilon=0.2, neighbouring=relation), records=3_000))
            for relation in ("add-remove", "replace-one")
        ]
        assert plans[1].steps == pytest.approx(plans[0].steps / 2, abs=1)
        one_step = [
            Nesterov(steps=20).plan(facts_for(oracle, make_purse(neighbouring=r), records=3_000))
            for r in ("add-remove", "replace-one")
        ]
        assert one_step[1].noise_std[0] == pytest.approx(2 * one_step[0].noise_std[0])


class TestMistakes:
    def test_mistakes_are_named_before_anything_is_spent(self, oracle, data):
        purse = make_purse()
        unbounded = DenseOracle(*data, loss=Squared(), target_bounds=(0.0, 1.0))
        kinked = DenseOracle(*data, loss=Hinge())
        cases = [
            (lambda: fit(oracle, Nesterov, purse, records=3_000), InvalidArgument, "method must be"),
            (lambda: fit(object(), Nesterov(), purse, records=3_000), InvalidArgument, "oracle must"),
            (lambda: fit(oracle, Nesterov(), purse, records=0), InvalidArgument, "records"),
            (lambda: fit(oracle, Nesterov(), purse, records=3_000, l2=-1.0), InvalidArgument, "l2"),
            (lambda: fit(unbounded, Nesterov(), purse, records=3_000), InvalidArgument, "clip_norm"),
            (lambda: fit(kinked, Nesterov(), purse, records=3_000), InvalidArgument, "HuberHinge"),
            (lambda: fit(oracle, PUR("strongly-convex"), purse, records=3_000), InvalidArgument, "l2"),
            (lambda: fit(oracle, DPSGD(), purse, records=3_000), UnsupportedCharge, "purse_for"),
            (lambda: fit(oracle, ObjPert(), purse, records=3_000), UnsupportedCharge, "purse_for"),
            (lambda: fit(oracle, ObjPert(), purse, records=3_000, clip_norm=0.1), InvalidArgument, "clip_derivative"),
            (
                lambda: fit(oracle, Nesterov(), Purse.not_private(), records=3_000),
                InvalidArgument,
                "declared not private",
            ),
            (lambda: Nesterov(steps=0), InvalidArgument, "steps"),
            (lambda: Nesterov(average="all"), InvalidArgument, "average"),
            (lambda: NoisyPGD(average="mean"), InvalidArgument, "average"),
            (lambda: DPSGD(sample_prob=0.0), InvalidArgument, "sample_prob"),
            (lambda: DPSGD(accounting="rényi"), InvalidArgument, "accounting"),
            (lambda: PUR("konvex"), InvalidArgument, "case"),
            (lambda: Dynamic("linear"), InvalidArgument, "shape"),
            (lambda: Dynamic(condition_number=1.0), InvalidArgument, "condition_number"),
            (lambda: Dynamic(influences=(1.0, -1.0)), InvalidArgument, "influences"),
            (lambda: DPAGD(selection_share=1.0), InvalidArgument, "selection_share"),
            (lambda: ADPSGD(growth=0.0), InvalidArgument, "growth"),
            (lambda: NonPrivate(ridge=0.0), InvalidArgument, "ridge"),
        ]
        for call, error, message in cases:
            with pytest.raises(error, match=message):
                call()
        assert purse.spent.releases == 0

    def test_open_purse_makes_the_rule_a_method_needs(self, oracle):
        budget = {"epsilon": 1.0, "delta": 1e-6, "neighbouring": "add-remove", "records": 3_000}
        assert isinstance(purse_for(oracle, DPSGD(), **budget).filter, FixedSchedule)
        assert purse_for(oracle, DPSGD(accounting="rdp"), **budget).filter.name == "rdp"
        assert purse_for(oracle, Nesterov(), **budget).filter.name == "gdp"
        assert purse_for(oracle, NonPrivate(), **budget).epsilon == float("inf")


def test_advanced_composition_runs_and_wastes(oracle):
    budget = {"epsilon": 1.0, "delta": 1e-6, "neighbouring": "add-remove", "records": 3_000}
    method = DPSGD(accounting="advanced", steps=20)
    purse = purse_for(oracle, method, **budget)
    fit(oracle, method, purse, records=3_000)
    assert purse.spent.epsilon < 0.8
    rdp = make_purse(filter="rdp")
    fit(oracle, method, rdp, records=3_000)
    assert rdp.spent.releases == 20
    replaced = purse_for(oracle, method, **budget | {"neighbouring": "replace-one"})
    fit(oracle, method, replaced, records=3_000)
    assert replaced.spent.epsilon < 0.8


@pytest.mark.parametrize("X", [[["1.0", "Rosalind"]], np.array([[1.0, "Rosalind"]], dtype=object), [[1.0, 10**400]]])
def test_scores_of_rows_that_are_no_numbers_are_refused_unquoted(X):
    with pytest.raises(InvalidArgument, match="X must be a table of numbers") as refused:
        linear_scores(X, np.zeros(3))
    assert "Rosalind" not in "".join(traceback.format_exception(refused.value))
