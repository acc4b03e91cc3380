"""The network of the ADP-SGD paper: runs are paid for, what is not private says so, measurements
are exact.
"""

import math
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from privypurse import NoiseSource, Purse  # noqa: E402
from privypurse.core._errors import InvalidArgument  # noqa: E402
from privypurse.core.charges import BoundedRangeCharge, GaussianCharge  # noqa: E402
from privypurse.core.queries import Released  # noqa: E402
from privypurse.methods import ADPSGD, ObjPert  # noqa: E402
from privypurse.pytorch import fit  # noqa: E402
from privypurse_lab.papers.adp_sgd import network, network_runs  # noqa: E402
from privypurse_lab.papers.adp_sgd.network import AS_PUBLISHED, FIGURE_6, SOUND, WITHOUT  # noqa: E402
from privypurse_lab.papers.adp_sgd.network_runs import Measured, PlainSGD, Watched, followed_run  # noqa: E402
from privypurse_lab.papers.cells import Results  # noqa: E402
from privypurse_lab.papers.items import AS_PUBLISHED_ONLY, IN_PART, NOT_PRIVATE, NOT_REACHED, REACHED, Settings  # noqa: E402
from privypurse_lab.papers.published_adp_sgd import PublishedADPSGD, printed_budgets  # noqa: E402


def made_images(part, start=0, stop=None):
    """Return a few images of two kinds."""
    labels = torch.arange(60 if part == "train" else 30) % 2
    random = torch.Generator().manual_seed(len(labels))
    pixels = torch.rand((len(labels), 1, 28, 28), generator=random) - 0.5
    pixels[labels == 1, :, :14] += 0.5
    return pixels[start:stop], labels[start:stop]


@pytest.fixture(autouse=True)
def few_images(monkeypatch, request):
    if "of_mnist" not in request.node.name:
        monkeypatch.setattr(network_runs, "images", made_images)


def run(method, epsilon=None, clip_norm=0.1, **others):
    return followed_run(method, epsilon=epsilon, clip_norm=clip_norm, seed=0, train=None, test=None, **others)


# What runs.


def test_the_network_is_the_one_of_the_benchmark():
    assert sum(parameter.numel() for parameter in network_runs.network().parameters()) == 14_394


def test_sound_runs_spend_their_budget_and_no_more():
    found = run(ADPSGD(rounds=2), epsilon=8.0)
    assert found["private"]
    assert found["spent"] <= 8.0
    # Selections are releases too.
    assert found["releases"] >= 2 * found["gradients"] > 0


def test_as_published_the_noise_is_the_clip_over_epsilon_t_and_selections_have_none():
    torch.manual_seed(0)
    method = PublishedADPSGD(8.0, rounds=3, clip_norm=5.0, candidates=4)
    purse = Purse.not_private(noise=NoiseSource(seed=0))
    made = fit(
        network_runs.network(), made_images("train"), loss=torch.nn.CrossEntropyLoss(), records=60,
        purse=purse, method=method, clip_norm=5.0,
    )  # fmt: skip
    first, second = made.trace.steps[:2]
    assert first.noise_std == pytest.approx(5.0 / printed_budgets(8.0, 3, 10 / 3)[0])
    assert second.charge["kind"] == "non-private"
    assert "NOT PRIVATE" in str(purse.certificate())


def test_as_published_says_not_private():
    found = run(PublishedADPSGD(8.0, rounds=2, clip_norm=5.0, candidates=4), clip_norm=5.0)
    assert not found["private"]
    assert found["spent"] is None


def test_plain_training_is_refused_by_a_purse_with_a_budget():
    purse = Purse(8.0, 1e-5, neighbouring="add-remove")
    settings = {"loss": torch.nn.CrossEntropyLoss(), "records": 60, "method": PlainSGD(1)}
    with pytest.raises(InvalidArgument, match="NOT PRIVATE"):
        fit(network_runs.network(), made_images("train"), purse=purse, **settings)
    assert purse.spent.releases == 0


def test_plain_training_learns_and_counts_epochs():
    found = run(PlainSGD(10, batch_size=15, step_size=0.02), clip_norm=network.NO_CLIP)
    assert found["path"][-1]["epochs"] == pytest.approx(10)
    assert found["path"][-1]["train_loss"] < found["path"][0]["train_loss"] / 2


# What is measured.


def test_measurements_are_those_of_pytorch():
    torch.manual_seed(1)
    module = network_runs.network()
    train, test = made_images("train"), made_images("test")
    found = Measured(module, train, test).at(network_runs._parameters(module))
    outputs = module(train[0])
    assert found["train_loss"] == pytest.approx(torch.nn.functional.cross_entropy(outputs, train[1]).item(), rel=1e-5)
    assert found["train_accuracy"] == pytest.approx(100 * (outputs.argmax(1) == train[1]).double().mean().item())
    assert found["test_accuracy"] == pytest.approx(100 * (module(test[0]).argmax(1) == test[1]).double().mean().item())


class Walk:
    """An optimizer whose point counts its answers."""

    def init(self, dimension):
        return {"point": np.zeros(dimension)}

    def ask(self, state):
        return None

    def tell(self, state, released):
        return {"point": state["point"] + 1}

    def point(self, state):
        return state["point"]


def test_a_watched_walk_keeps_few_points_evenly_and_those_after_the_selection():
    watched = Watched(Walk(), most=10)
    state = watched.init(1)
    gradient, choice = Released(np.zeros(1), GaussianCharge(1.0)), Released(np.array(3), BoundedRangeCharge(1.0))
    for _ in range(100):
        state = watched.tell(watched.tell(state, gradient), choice)
    numbers = [number for number, _ in watched.kept]
    assert 5 <= len(numbers) <= 10
    assert set(np.diff(numbers)) == {numbers[0]}
    assert [float(point[0]) for _, point in watched.kept] == [2 * number for number in numbers]


def test_a_run_is_measured_from_its_start_to_its_end_and_is_seeded():
    found, again = (run(ADPSGD(rounds=2), epsilon=8.0, most=4) for _ in range(2))
    epochs = [place["epochs"] for place in found["path"]]
    assert epochs[0] == 0
    assert epochs[-1] == found["gradients"]
    assert epochs == sorted(epochs)
    assert found == again


def test_a_clip_norm_is_tried_on_images_that_are_set_aside_and_not_trained_on(monkeypatch):
    asked = []

    def seen(*asked_for):
        asked.append(asked_for)
        return made_images(*asked_for)

    monkeypatch.setattr(network_runs, "images", seen)
    found = network.with_clip(1.0, seed=0, train=40, set_aside=20, rounds=2)
    assert asked == [("train", 0, 40), ("train", 40, 60)]
    assert found["path"][-1]["test_accuracy"] in [5.0 * right for right in range(21)]


# What is made of it.


def falling(steps):
    return np.arange(steps, 0, -1.0)


def made(tmp_path, accuracies, also=None, private=True):
    """Make the figure of made-up runs: final test accuracy by line."""
    settings = Settings(also=also or {})
    results = Results(tmp_path / "cells.jsonl")
    for (line, epsilon), cells in network.grid(settings).items():
        for cell in cells:
            sound = line not in (AS_PUBLISHED, WITHOUT)
            final = accuracies[line][epsilon] if line in accuracies else 90.0
            start = {"epochs": 0.0, "train_loss": 2.3, "train_accuracy": 10.0, "test_accuracy": 10.0}
            end = {"epochs": 50.0, "train_loss": 0.3, "train_accuracy": final, "test_accuracy": final}
            result = {
                "path": [start, end],
                "private": sound,
                "spent": epsilon if sound else None,
                "releases": 1,
                "gradients": 50,
            }
            results.keep(cell, {"refused": "no."} if private is False and line in settings.also else result)
    for clip, cells in network.clips(settings).items():
        for cell in cells:
            results.keep(cell, {"path": [{"test_accuracy": 90 + clip}]})
    return settings, FIGURE_6.finish(settings, results)


PUBLISHED = {0.5: 89.0, 2.0: 95.0, 8.0: 96.0, None: 98.3}
LOW = {0.5: 50.0, 2.0: 60.0, 8.0: 70.0, None: 90.0}


@pytest.mark.parametrize(
    ("accuracies", "word"),
    [
        ({SOUND: PUBLISHED, AS_PUBLISHED: PUBLISHED}, REACHED),
        ({SOUND: {**PUBLISHED, 0.5: 80.0}, AS_PUBLISHED: LOW}, IN_PART),
        ({SOUND: LOW, AS_PUBLISHED: PUBLISHED}, AS_PUBLISHED_ONLY),
        ({SOUND: LOW, AS_PUBLISHED: LOW}, NOT_REACHED),
    ],
)
def test_the_verdict_follows_the_numbers(tmp_path, accuracies, word):
    _, figure = made(tmp_path, accuracies)
    assert figure.verdict.reached == word
    assert "89 / 95 / 96" in figure.verdict.why
    assert "accuracy at epsilon 0.5 is 90.1 at 0.1 and 91.0 at 1 (mean of 3 run(s)" in figure.notes[0]


def test_what_is_not_private_is_stamped_everywhere(tmp_path):
    _, figure = made(tmp_path, {})
    for row in figure.rows:
        assert row["private"] == (NOT_PRIVATE if row["line"] in (AS_PUBLISHED, WITHOUT) else "yes")
    assert [line[0] for line in figure.sheets[0].rows if NOT_PRIVATE in line[0]] == [
        f"{AS_PUBLISHED} ({NOT_PRIVATE})",
        f"{WITHOUT} ({NOT_PRIVATE})",
    ]
    canvas = pytest.importorskip("matplotlib.figure").Figure()
    figure.picture(canvas)
    dashed = {line.get_label() for axes in canvas.axes for line in axes.lines if line.get_linestyle() == "--"}
    assert {label for label in dashed if not label.startswith("_")} == {
        f"{AS_PUBLISHED} ({NOT_PRIVATE})",
        f"{WITHOUT} ({NOT_PRIVATE})",
    }


def test_a_users_schedule_is_compared(tmp_path):
    settings, figure = made(tmp_path, {}, also={"falling": falling})
    assert len(network.cells(settings)) == 3 * (3 + 1 + 3) + 1 + 2 * 3
    assert any(line[0] == "falling" for line in figure.sheets[0].rows)
    found = network.with_entry(falling, 8.0, seed=0, train=None, test=None)
    assert found["private"]
    assert 7.9 < found["spent"] <= 8.0


def test_a_method_that_cannot_train_a_network_is_named(tmp_path):
    found = network.with_entry(ObjPert(), 8.0, seed=0, train=None, test=None)
    assert "refused" in found
    _, figure = made(tmp_path, {}, also={"falling": falling}, private=False)
    assert any("falling was not run" in note for note in figure.notes)
    assert not any(row["line"] == "falling" for row in figure.rows)


def test_images_of_mnist_are_scaled_by_their_known_range():
    if not os.environ.get("PRIVYPURSE_DATA"):
        pytest.skip("PRIVYPURSE_DATA is not set, and MNIST is not here")
    pixels, labels = network_runs.images("test", 0, 50)
    assert pixels.shape == (50, 1, 28, 28)
    assert math.isclose(float(pixels.min()), -1)
    assert math.isclose(float(pixels.max()), 1, abs_tol=0.02)
    assert set(labels.tolist()) <= set(range(10))


def test_the_item_needs_torch_and_mnist():
    assert FIGURE_6.name == "figure-6"
    assert tuple(FIGURE_6.needs) == ("torch", "mnist")
