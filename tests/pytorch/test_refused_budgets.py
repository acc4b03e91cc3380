"""Schedules and budgets that are refused."""

import math
import re

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from privypurse import InvalidArgument, NoiseSource, Purse  # noqa: E402
from privypurse.pytorch import AdaptiveClip, open_purse  # noqa: E402
from privypurse.pytorch._opening import shape  # noqa: E402
from privypurse.training.schedules import Weighted  # noqa: E402
from privypurse.training.schedules._base import ConstantNoise  # noqa: E402
from tests.pytorch.refused_runs import begin, data, refused, simple  # noqa: E402

SAMPLED = {"full_batch": False, "batch_size": 6}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"steps": None, "epsilon": 1.0, "delta": 1e-5, **SAMPLED}, "steps or epochs must be given"),
        ({"epochs": 2}, "expected steps or epochs, got both"),
        ({"steps": 0}, "steps must be"),
        ({"steps": 2.5}, "steps must be"),
        ({"steps": True}, "steps must be"),
        ({"steps": None, "epochs": -1}, "epochs must be"),
        ({"accumulate": 0}, "accumulate must be"),
        ({"micro_batch": 0}, "micro_batch must be"),
        ({"block": 0}, "block must be"),
        ({"loss_reduction": "none"}, "loss_reduction must be"),
        ({"loss_reduction": None}, "loss_reduction must be"),
        ({"schedule": "cosine"}, "schedule must be one of uniform"),
        ({"schedule": 3.0}, "schedule must be"),
        ({"schedule": ConstantNoise}, "schedule must be"),
        ({"schedule": Weighted((1.0, 2.0))}, "2 weights for 3 steps"),
        ({"schedule": (1.0, -2.0, 1.0)}, "weights must be positive"),
        ({"schedule": (1.0, math.nan, 1.0)}, "weights must be"),
        ({"schedule": []}, "weights must be"),
        ({"clip_norm": math.nan}, "clip_norm must be"),
        ({"clip_norm": math.inf}, "clip_norm must be"),
        ({"clip_norm": -1.0}, "clip_norm must be"),
        ({"clip_norm": 0}, "clip_norm must be"),
        ({"clip_norm": True}, "clip_norm must be"),
        ({"clip_norm": "1"}, "clip_norm must be"),
        ({"clip_norm": None}, "clip_norm must be"),
        ({"clip_norm": AdaptiveClip}, "clip_norm must be"),
        ({"clip_norm": torch.ones(2)}, "clip_norm must be"),
        ({"callbacks": 3}, "callbacks must be"),
        ({"loss": 3}, "loss must be"),
        ({"loss": "mse"}, "loss must be"),
        ({"purse": 1.0}, "purse must be"),
        ({"purse": "mine"}, "purse must be"),
        ({"epsilon": 1.0}, "epsilon and delta must be given"),
        ({"delta": 1e-5}, "epsilon and delta must be given"),
        ({"epsilon": 1.0, "delta": 0.1}, "delta must be far below"),
        ({"epsilon": 1.0, "delta": 1 / 30}, "delta must be far below"),
        ({"epsilon": -1.0, "delta": 1e-5}, "epsilon must be"),
        ({"epsilon": math.nan, "delta": 1e-5}, "epsilon must be"),
        ({"epsilon": True, "delta": 1e-5}, "epsilon must be"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must be"),
        ({"epsilon": 1.0, "delta": 1e-5, "neighbouring": "edit"}, "neighbouring must be"),
        ({"epsilon": 1.0, "delta": 1e-5, "noise": 7}, "noise must be"),
    ],
    ids=lambda value: re.sub(r" at 0x.*", "", str(value))[:50] if isinstance(value, dict) else "",
)
def test_odd_settings(change, match):
    refused(match, **change)


@pytest.mark.parametrize("schedule", [(1.0, 2.0), [1.0] * 5], ids=str)
def test_as_many_weights_as_steps(schedule):
    refused(r"\d weights for 3 steps", schedule=schedule)


@pytest.mark.parametrize("delta", ["1e-5", math.nan, -1.0, True], ids=str)
def test_odd_deltas(delta):
    refused("delta must be", epsilon=1.0, delta=delta)


@pytest.mark.parametrize("given", [{"delta": 1e-5}, {"noise": NoiseSource(seed=1)}], ids=["d", "n"])
def test_a_purse_has_its_own_budget_and_noise(given):
    purse = Purse(1.0, 1e-5, neighbouring="add-remove")
    refused("is set by the purse", purse=purse, **given)


def test_a_part_of_a_purse_is_for_full_batches(planned):
    for purse in (Purse(1.0, 1e-5, neighbouring="add-remove", filter="rdp"), Purse.with_filter(planned)):
        refused("epsilon of Poisson samples is set by the purse", purse=purse, epsilon=0.5, **SAMPLED)
    for epsilon in (0.0, -1.0, math.nan, True, "all"):
        refused("epsilon must be", purse=Purse(1.0, 1e-5, neighbouring="add-remove"), epsilon=epsilon)


@pytest.mark.parametrize("kind", ["gdp", "zcdp"])
def test_purses_that_cannot_price_samples(kind):
    purse = Purse(1.0, 1e-5, neighbouring="add-remove", filter=kind)
    refused(f"{kind} filter, which cannot price Poisson samples", purse=purse, **SAMPLED)


@pytest.fixture(scope="module")
def planned():
    return open_purse(epsilon=1.0, delta=1e-5, neighbouring="add-remove", steps=3, sample_prob=0.2).filter


def test_purses_with_a_schedule_for_another_run(planned):
    def purse():
        return Purse.with_filter(planned)

    refused("opened for sampling rate 0.2, not 1", purse=purse())
    refused("sampling rate 0.2", purse=purse(), full_batch=False, batch_size=3)
    refused("sampling rate 0.2", purse=purse(), records=31, **SAMPLED)
    refused("opened for 3 releases, but the run has 4", purse=purse(), steps=4, **SAMPLED)
    refused("opened for 3 releases, but the run has 4", purse=purse(), clip_norm=AdaptiveClip(), **SAMPLED)
    refused("is adaptive", purse=purse(), schedule=ConstantNoise(3.0), **SAMPLED)
    refused("opened for another schedule", purse=purse(), schedule="exponential", **SAMPLED)
    assert begin(purse=purse(), **SAMPLED).engine.gradients == 0


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"sample_prob": 0.0},
        {"sample_prob": 1.5},
        {"schedule": "cosine"},
        {"schedule": Weighted((1.0,))},
        {"clip_norm": AdaptiveClip()},
        {"epsilon": 0.0},
        {"delta": 2.0},
        {"neighbouring": "edit"},
        {"noise": 3},
    ],
    ids=str,
)
def test_odd_purses(change):
    arguments = {"epsilon": 1.0, "delta": 1e-5, "neighbouring": "add-remove", "steps": 3} | change
    with pytest.raises(InvalidArgument):
        open_purse(**arguments)


@pytest.mark.parametrize(
    "change",
    [
        {"start": 0.0},
        {"start": math.nan},
        {"start": True},
        {"quantile": 0.0},
        {"quantile": 1.0},
        {"quantile": math.nan},
        {"every": 0},
        {"every": 1.5},
        {"rate": 0.0},
        {"error": -0.1},
    ],
    ids=str,
)
def test_odd_adaptive_clip_norms(change):
    with pytest.raises(InvalidArgument, match=f"{next(iter(change))} must be"):
        AdaptiveClip(**change)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cosine", {}),
        ("uniform", {"ratio": 0.0}),
        ("dynamic", {"ratio": math.nan}),
        (None, {}),
    ],
)
def test_odd_shapes(name, change):
    with pytest.raises(InvalidArgument):
        shape(name, 5, **change)


def test_a_loss_that_is_refused_leaves_the_module_as_it_was():
    module = simple()
    refused("loss must be", module=module, loss=3)
    F.cross_entropy(module(data()[0]), data()[1]).backward()
    assert module.weight.grad is not None
    assert not module._forward_hooks
