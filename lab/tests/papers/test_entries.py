"""The user's own schedules and methods: they take part, mistakes are found first, and none of them
can overspend.
"""

import csv
import math
import sys

import numpy as np
import pytest

from privypurse.accounting._filters import GdpFilter
from privypurse.core._errors import InvalidArgument, UnsupportedCharge
from privypurse.core._randomness import NoiseSource
from privypurse.losses import Logistic
from privypurse.mechanisms._gaussian import Gaussian
from privypurse.mechanisms._non_private import NonPrivateRelease
from privypurse.methods import Dynamic, Nesterov, NoisyPGD
from privypurse.methods.base import PlannedMethod
from privypurse.oracles import DenseOracle
from privypurse.purse._purse import Purse
from privypurse.runs._progress import Silent
from privypurse.training import fit
from privypurse.training.schedules._base import ConstantNoise, EvenSplit, Weighted
from privypurse_lab.data import Table
from privypurse_lab.papers import prepared_data, reproducing
from privypurse_lab.papers.accuracy_study import FOLDS, Study, accuracy_sheet, draw_over_epsilon, one_repetition
from privypurse_lab.papers.cells import Cell, Results, pickler, run_cells
from privypurse_lab.papers.entries import ByWeights, Scheduled, as_method, as_schedule, check_entries, load_entry
from privypurse_lab.papers.items import GIVEN_SCALING, NONE_CLAIMED, REACHED, Finished, Item, Paper, Verdict
from privypurse_lab.papers.methods_compared import Contestant, fitted
from privypurse_lab.papers.reproducing import reproduce

HERE = sys.modules[__name__]
ROWS = 500


def made(rows=ROWS):
    random = np.random.default_rng(0)
    X = random.random((rows, 5))
    return X, (X @ [3.0, -2.0, 1.0, 0.0, 0.0] + 0.3 * random.standard_normal(rows) > 1).astype(np.int64)


@pytest.fixture
def small_adult(monkeypatch):
    monkeypatch.setattr(prepared_data, "table", lambda name, part="all": Table(name, *made()))


def rising(steps):
    return [1.0 + step for step in range(steps)]


class HalfOfTheRest:
    """A schedule object: half of what is left, until the last step."""

    def propose(self, query, past, budget):
        return budget.mechanism(query, 1.0 if len(past) + 1 >= budget.steps else budget.left / 2)


class ShortDescent(PlannedMethod):
    """A whole method: that of another, for ten steps."""

    name = "short descent"

    def recipe(self, facts):
        return Nesterov(steps=10).recipe(facts)


ENTRIES = {"a function": rising, "an object": HalfOfTheRest(), "a method": ShortDescent()}


def run(method, epsilon=1.0, seed=0):
    """Fit on a private purse; returns the result and the purse."""
    oracle = DenseOracle(*made(), loss=Logistic(clip_derivative=0.5), row_limit=1.0, threads=1)
    purse = Purse(epsilon, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=seed))
    return fit(oracle, method, purse, records=ROWS), purse


# Taking part.


@pytest.mark.parametrize("name", ENTRIES)
def test_every_kind_of_entry_can_be_measured(name, small_adult):
    arguments = {"data": "adult", "model": "logistic", "contestant": name, "epsilon": 2.0}
    found = one_repetition(**arguments, seed=1, entry=ENTRIES[name])
    assert {len(values) for values in found.values()} == {FOLDS}
    again = one_repetition(**arguments, seed=1, entry=ENTRIES[name])
    assert again["loss"] == found["loss"]
    assert one_repetition(**arguments, seed=2, entry=ENTRIES[name])["loss"] != found["loss"]


def test_entries_stand_in_csv_page_and_picture_of_a_study(small_adult, monkeypatch, tmp_path):
    study = Study(("adult",), "logistic", ("Nesterov", "DP-AGD, as published"), repetitions=1, epsilons=(0.5, 1.0))

    def finish(settings, results):
        found = study.measured(settings, results)

        def picture(figure):
            draw_over_epsilon(figure.subplots(), found, "adult", "accuracy", [*study.contestants, *settings.also])
            figure.axes[0].legend()

        rows = [entry.row() for entry in found]
        return Finished(rows, Verdict(REACHED, NONE_CLAIMED, "It ran."), picture, [accuracy_sheet(found, "adult")])

    item = Item("figure", "1", "a study", "Nothing.", study.cells, finish, needs=("adult",))
    toy = Paper(name="toy", title="Toy", about="A study.", items=(item,))
    monkeypatch.setattr(reproducing, "NAMES", ("toy",))
    monkeypatch.setattr(reproducing, "paper_named", {"toy": toy}.__getitem__)
    reproduce("toy", output=tmp_path, workers=1, also=ENTRIES)
    with (tmp_path / "toy-figure-1.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    private = {row["method"]: row["private"] for row in rows}
    assert private == dict.fromkeys(["Nesterov", *ENTRIES], GIVEN_SCALING) | {"DP-AGD, as published": "NOT PRIVATE"}
    assert all(int(row["fits"]) == FOLDS for row in rows)
    page, svg = (tmp_path / "toy.md").read_text(encoding="utf-8"), (tmp_path / "toy-figure-1.svg").read_text()
    for name in ENTRIES:
        assert f"| {name} |" in page
        assert name in svg


def test_entries_become_schedules_and_methods():
    schedule, method = HalfOfTheRest(), ShortDescent()
    assert as_schedule(schedule) is schedule
    assert as_schedule(method) is None
    assert as_schedule(rising) == ByWeights(rising)
    assert as_method(method) is method
    assert as_method(rising).base == Nesterov()
    assert as_method(schedule, Dynamic()).name == f"{Dynamic().name}, own schedule"
    facts_of = NoisyPGD()
    assert as_method(schedule, facts_of).base is facts_of


def test_weights_are_shares_of_the_budget():
    method = as_method(rising, Nesterov(steps=20))
    result, purse = run(method)
    noise = np.array([step.noise_std for step in result.trace.steps])
    assert len(noise) == 20
    shares = noise[0] ** 2 / noise**2
    assert shares == pytest.approx(np.arange(1.0, 21.0), rel=1e-6)
    assert purse.spent.epsilon == pytest.approx(1.0, rel=1e-6)
    assert purse.spent.epsilon <= 1.0


def test_an_entry_changes_the_schedule_and_nothing_else():
    even, _ = run(Scheduled(EvenSplit(), Nesterov(steps=15)))
    ours, _ = run(as_method(lambda steps: [1.0] * steps, Nesterov(steps=15)))
    assert ours.point == pytest.approx(even.point, rel=1e-9)


# Nobody overspends.


class TooLoud:
    """Proposes far too little noise, from some step on."""

    def __init__(self, patience):
        self.patience = patience

    def propose(self, query, past, budget):
        return Gaussian(1e-3) if len(past) >= self.patience else budget.gaussian(0.01)


@pytest.mark.parametrize("patience", [0, 3])
def test_too_little_noise_is_refused_by_the_purse(patience):
    result, purse = run(as_method(TooLoud(patience)))
    assert result.trace.stop_reason == "budget"
    assert purse.spent.releases == len(result.trace.steps) == patience
    assert purse.spent.epsilon < 0.3
    if patience == 0:
        assert (result.point == 0).all()


@pytest.mark.parametrize(
    "schedule",
    [
        ConstantNoise(2.0),
        ByWeights(lambda steps: [10.0**step for step in range(-steps, 0)]),
        HalfOfTheRest(),
        type("AllAtOnce", (), {"propose": lambda self, query, past, budget: budget.mechanism(query, 50.0)})(),
    ],
    ids=["constant", "exploding", "half", "fifty times"],
)
def test_no_schedule_gets_more_than_the_budget(schedule):
    for epsilon in (0.1, 1.0):
        _, purse = run(as_method(schedule), epsilon)
        assert 0 < purse.spent.epsilon <= epsilon or purse.spent.releases == 0
        assert math.isfinite(purse.spent.epsilon)


def test_a_schedule_without_noise_is_refused():
    naked = type("Naked", (), {"propose": lambda self, query, past, budget: NonPrivateRelease("I want it all")})()
    with pytest.raises(UnsupportedCharge):
        run(as_method(naked))
    X, y = made()
    with pytest.raises(UnsupportedCharge):
        fitted(Contestant("naked", lambda epsilon, records: as_method(naked)), "logistic", X, y, 1.0, ROWS, seed=0)


class Richer(ShortDescent):
    """Brings a larger purse along."""

    def filter(self, facts):
        return GdpFilter(10.0, facts.delta, facts.neighbouring)


def test_a_method_that_brings_a_larger_purse_is_found_out(small_adult):
    with pytest.raises(InvalidArgument, match="richer spent"):
        one_repetition("adult", "logistic", "richer", 1.0, seed=0, entry=Richer())


# Mistakes are found before anything runs.


class OnlyRecipe:
    def recipe(self, facts):
        return Nesterov().recipe(facts)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (lambda steps: [1.0] * (steps - 1), "weights(10) must return 10 numbers, one for each step; got 9"),
        (lambda steps: [1.0] * (steps - 1) + [-2.0], "-2.0"),
        (lambda steps: [0.0] * steps, "positive"),
        (lambda steps: ["much"] * steps, "fails with ValueError"),
        (lambda steps: None, "fails with TypeError"),
        (lambda: [1.0], "fails with TypeError"),
        (HalfOfTheRest, "is the class HalfOfTheRest"),
        (ShortDescent, "is the class ShortDescent"),
        (None, "cannot be compared"),
        ("rising", "cannot be compared"),
        (OnlyRecipe(), "PlannedMethod"),
    ],
    ids=lambda value: "" if not isinstance(value, str) else value[:25],
)
def test_mistakes_name_the_entry(entry, said):
    with pytest.raises(InvalidArgument) as caught:
        check_entries({"good": rising, "bad one": entry})
    assert "also['bad one']" in str(caught.value)
    assert said in str(caught.value)


def test_good_entries_pass():
    check_entries(ENTRIES | {"weighted": Weighted((1, 2)), "array": lambda steps: np.ones(steps)})


def test_weights_that_fit_ten_steps_only_cost_nothing():
    method = as_method(lambda steps: [1.0] * 10, Nesterov(steps=20))
    oracle = DenseOracle(*made(), loss=Logistic(clip_derivative=0.5), row_limit=1.0, threads=1)
    purse = Purse(1.0, 1e-6, neighbouring="add-remove", noise=NoiseSource(seed=0))
    with pytest.raises(InvalidArgument, match=r"weights\(20\) must return 20 numbers.*got 10\. fit spent nothing"):
        fit(oracle, method, purse, records=ROWS)
    assert purse.spent.releases == 0


# From files.


FILE = """
import math

STRENGTH = 2.0

def shape(x):
    return math.exp(STRENGTH * x)

def mine(steps):
    return [shape(step / steps) for step in range(steps)]

class Halving:
    def propose(self, query, past, budget):
        return budget.mechanism(query, shape(0) / budget.steps)

halving = Halving()
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "random.py"  # a name that Python has already
    path.write_text(FILE)
    yield path
    module = sys.modules.pop("privypurse_entry_random", None)
    if module is not None and "privypurse_entry_random" in pickler().list_registry_pickle_by_value():
        pickler().unregister_pickle_by_value(module)


def test_an_entry_is_read_from_a_file(file):
    import random

    name, entry = load_entry(f"{file}:mine")
    assert name == "mine"
    assert entry(4) == pytest.approx([1.0, math.e**0.5, math.e, math.e**1.5])
    assert sys.modules["random"] is random  # the file has not taken its place
    check_entries({name: entry})


def test_an_entry_is_read_from_a_module():
    name, entry = load_entry("privypurse.training.schedules._base:EvenSplit")
    assert (name, entry) == ("EvenSplit", EvenSplit)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("mine", "FILE.py:NAME or MODULE:NAME"),
        ("mine.py", "FILE.py:NAME or MODULE:NAME"),
        (":mine", "FILE.py:NAME or MODULE:NAME"),
        ("mine.py:", "FILE.py:NAME or MODULE:NAME"),
        ("", "FILE.py:NAME or MODULE:NAME"),
        ("nowhere.py:mine", "'nowhere.py', which does not exist"),
        ("no_such_module_here:mine", "'no_such_module_here', which cannot be imported"),
        (".relative:mine", "'.relative', which cannot be imported"),
        (
            "privypurse.training.schedules._base:Cosine",
            "'Cosine', which 'privypurse.training.schedules._base' does not have",
        ),
    ],
)
def test_bad_specs_are_refused(spec, said):
    with pytest.raises(InvalidArgument) as caught:
        load_entry(spec)
    assert "also" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(("content", "said"), [("1 / 0", "ZeroDivisionError"), ("def (", "SyntaxError")])
def test_a_file_that_fails_is_refused(content, said, tmp_path):
    (tmp_path / "broken.py").write_text(content)
    with pytest.raises(InvalidArgument, match=rf"broken\.py.*fails with {said}"):
        load_entry(f"{tmp_path / 'broken.py'}:mine")


def fit_entry(entry, seed):
    """Fit with an entry, in whatever process."""
    result, purse = run(as_method(entry, Nesterov(steps=12)), seed=seed)
    return {"point": result.point.tolist(), "epsilon": purse.spent.epsilon}


def test_entries_of_a_file_run_on_other_cores(file, tmp_path):
    entries = [load_entry(f"{file}:mine")[1], load_entry(f"{file}:halving")[1]]
    pickler().register_pickle_by_value(HERE)
    try:
        work = [Cell(fit_entry, {"entry": entry, "seed": seed}) for entry in entries for seed in (0, 1)]
        results = {}
        for workers in (1, 2):
            results[workers] = Results(tmp_path / f"{workers}.jsonl")
            run_cells(work, results[workers], workers=workers, progress=Silent(), what="entries")
    finally:
        pickler().unregister_pickle_by_value(HERE)
    for cell in work:
        # To the last digit but one: sums are made in another order where there is one thread.
        assert results[1][cell]["point"] == pytest.approx(results[2][cell]["point"], rel=1e-12)
        assert 0 < results[2][cell]["epsilon"] <= 1.0
    assert len({str(results[2][cell]["point"]) for cell in work}) == 4
