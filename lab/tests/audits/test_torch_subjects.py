"""The PyTorch engine under attack: it holds, and would not if gradients were not clipped."""

import numpy as np
import pytest

pytest.importorskip("torch")

from privypurse.audit.gray_box import gray_box
from privypurse.audit.white_box import attack, judge
from privypurse.pytorch import _compiled as compiled
from privypurse.pytorch import _engine as engine
from privypurse.pytorch._budgets import Payments
from privypurse.pytorch._clipping import clipped_sum
from privypurse.pytorch._views import ViewsOracle
from privypurse_lab.audits.torch_subjects import TORCH


@pytest.fixture(scope="module")
def subjects():
    """Subjects that are made once: each keeps the schedules it has calibrated."""
    return {name: make() for name, make in TORCH.items()}


@pytest.mark.parametrize("name", sorted(TORCH))
def test_a_record_moves_boxes_within_their_bounds_and_nothing_else(subjects, name):
    found = gray_box(subjects[name], pairs=2, mu=3.0)
    assert subjects[name].name == name
    assert found.findings == ()
    assert found.releases >= 24
    assert 0.99 < found.tightest <= 1


@pytest.mark.parametrize("name", ["torch-fit", "torch-hooks", "torch-hooks-network", "torch-views"])
def test_an_attack_has_power_and_does_not_refute(subjects, name):
    scores = attack(subjects[name], 3.0, 30, 0)
    judged = judge(scores, 3.0)
    assert not judged.refuted
    assert judged.findings == ()
    assert 2.0 < np.mean(scores.present) - np.mean(scores.absent) < 4.2


def test_hooks_and_the_compiled_call_release_the_same(subjects):
    """Two ways to the same sums: what an attack sees of them is the same, up to rounding."""
    one, other = (attack(subjects[name], 3.0, 4, 0) for name in ("torch-hooks", "torch-loss"))
    assert np.allclose(one.absent, other.absent, atol=1e-3)
    assert np.allclose(one.present, other.present, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "where"), [("torch-hooks", engine), ("torch-loss", compiled), ("torch-fit", compiled)]
)
def test_gradients_that_are_clipped_to_something_else_are_found(monkeypatch, subjects, name, where):
    def longer(uses, sizes, weights, clip_norm, scale=1.0, parts=None):
        return clipped_sum(uses, sizes, weights, 3 * clip_norm, scale, parts)

    monkeypatch.setattr(where, "clipped_sum", longer)
    found = gray_box(subjects[name], pairs=1, mu=3.0)
    assert any("times its declared bound" in finding for finding in found.findings)
    assert found.tightest == pytest.approx(3.0, abs=0.01)


@pytest.mark.parametrize("name", ["torch-views", "image-classifier"])
def test_views_that_are_added_up_rather_than_averaged_are_found(monkeypatch, subjects, name):
    gradient = ViewsOracle._gradient
    monkeypatch.setattr(ViewsOracle, "_gradient", lambda self, point, bound: 3 * gradient(self, point, bound))
    found = gray_box(subjects[name], pairs=1, mu=3.0)
    assert any("times its declared bound" in finding for finding in found.findings)


def test_a_gradient_given_to_the_optimizer_without_noise_is_found(monkeypatch, subjects):
    pay = Payments.pay

    def past_the_purse(self, value, sample):
        pay(self, value, sample)
        return value

    monkeypatch.setattr(Payments, "pay", past_the_purse)
    found = gray_box(subjects["torch-hooks-network"], pairs=1)
    assert "the model depends on the table by another way than what was released" in found.findings
