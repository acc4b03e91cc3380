"""Clip norms that change from step to step, or from layer to layer."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from privypurse import InvalidArgument, NoiseSource, Purse  # noqa: E402
from privypurse.pytorch import resume, save  # noqa: E402
from privypurse.pytorch._clipping import MARGIN, clipped_sum  # noqa: E402
from privypurse.pytorch._compiled import ClippedSums, bound_of, sum_in_pieces  # noqa: E402
from privypurse.pytorch._taps import Taps  # noqa: E402
from tests.pytorch.layer_cases import BOUNDED, CPU, LOSS, NASTY, Tied, one_by_one, trained_of  # noqa: E402
from tests.pytorch.small_runs import begin, loop, noiseless  # noqa: E402

NORMS = (0.3, 0.02, 1.5)


@pytest.mark.parametrize("clip_norm", [NORMS, list(NORMS), lambda step: NORMS[step]])
@pytest.mark.parametrize("loss", [None, nn.CrossEntropyLoss()])
def test_each_step_is_clipped_and_noised_by_its_own_norm(clip_norm, loss):
    private = begin(clip_norm=clip_norm, steps=3, full_batch=True, purse=None, epsilon=2.0, delta=1e-5, loss=loss)
    for inputs, targets in private.loader:
        norm = private.engine.clip_norm
        assert norm == NORMS[private.engine.gradients]
        if loss is None:
            nn.functional.cross_entropy(private.module(inputs), 1 - targets).backward()
        else:
            private.engine.backward(inputs, 1 - targets)
        assert 0 < float(private.engine._drawn.flat.norm()) <= len(inputs) * norm
        private.optimizer.step()
    stds = [step.noise_std / step.charge["noise_multiplier"] for step in private.engine.trace.steps]
    assert stds == pytest.approx(NORMS)


def test_norms_of_steps_hold_after_an_extension_and_a_resume(tmp_path):
    terms = {"noise_multiplier": 5.0, "full_batch": True, "clip_norm": lambda step: 1 / (1 + step)}
    purse = Purse(2.0, 1e-5, neighbouring="add-remove", ledger=tmp_path / "budget.db")
    private = loop(begin(purse=purse, steps=3, **terms))
    private.engine.extend(steps=2)
    assert private.engine.clip_norm == 0.25
    save(private, tmp_path / "run.pt")
    again = begin(purse=purse, steps=5, **terms)
    assert resume(again, tmp_path / "run.pt")
    assert again.engine.clip_norm == 0.25
    assert loop(again).engine.gradients == 5


def parts_of(module, clip_norm):
    private = noiseless(module=module, clip_norm=clip_norm, loader=(torch.randn(60, 3), torch.randint(2, (60,))))
    payments = private.engine.payments
    private.engine.detach()
    return payments.clip_norms, payments.parts, payments.clip_norm


def attention():
    layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (1, 4)), layer, nn.Flatten())


CASES = {
    "two layers": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), {"0": 0.05, "2": 0.3}),
    "all others": (attention, {"": 0.3, "2.self_attn": 0.01}),
    "weight and bias": (lambda: nn.Linear(3, 2), {"weight": 0.2, "bias": 0.07}),
    "one part": (lambda: nn.Linear(3, 2), {"": 0.2}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_part_of_a_module_is_clipped_by_itself(name):
    torch.manual_seed(0)
    make, clip_norm = CASES[name]
    module = make()
    norms, parts, total = parts_of(module, clip_norm)
    assert total == pytest.approx(math.sqrt(sum(norm**2 for norm in clip_norm.values())))
    batch = torch.randn(9, 3), torch.randint(2, (9,))
    assert_parts(module, batch, norms, parts)


def test_parts_that_share_a_parameter_are_clipped_by_the_part_that_has_it():
    torch.manual_seed(0)
    module = Tied()
    parts = {name: int(name.startswith("mix")) for name in trained_of(module)}
    assert_parts(module, (torch.randint(5, (7, 3)), torch.randint(5, (7,))), (0.2, 0.05), parts)


def assert_parts(module, batch, norms, parts):
    trained = trained_of(module)
    lengths = [value.numel() for value in trained.values()]
    rows = torch.split(one_by_one(module, batch), lengths, dim=1)
    squares = [sum(row.square().sum(1) for row, part in zip(rows, parts.values(), strict=True) if part == k)
               for k in range(len(norms))]  # fmt: skip
    factors = [(norm * (1 - MARGIN) / square.sqrt()).clamp(max=1) for norm, square in zip(norms, squares, strict=True)]
    assert any((factor < 1).any() for factor in factors)
    expected = torch.cat([factors[parts[name]] @ row for name, row in zip(trained, rows, strict=True)])
    taps = Taps(module, trained)
    taps.averaged_over = float(len(batch[0]))
    LOSS(module(*batch[:-1]), batch[-1]).backward()
    sizes = {name: value.shape for name, value in trained.items()}
    by_hooks = clipped_sum(taps.take(), sizes, torch.ones(len(batch[0])), bound_of(norms, CPU), parts=parts).flat
    sums = ClippedSums(module, taps, LOSS, trained, compile=False, parts=parts)
    by_sums = sum_in_pieces(sums, batch, 4, norms, CPU).flat
    taps.remove()
    for found in (by_hooks, by_sums):
        assert torch.allclose(found.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_a_record_that_is_not_finite_adds_nothing_to_any_part(bad):
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    trained = trained_of(module)
    X, y = torch.randn(5, 3), torch.randint(2, (5,))
    X[2, 1] = bad
    taps, parts = Taps(module, trained), {name: int(name > "1") for name in trained}
    sums = []
    for weights in (torch.ones(5), torch.tensor([1.0, 1, 0, 1, 1])):
        taps.averaged_over = 5.0
        LOSS(module(X), y).backward()
        sizes = {name: value.shape for name, value in trained.items()}
        sums.append(clipped_sum(taps.take(), sizes, weights, bound_of((0.1, 0.2), CPU), parts=parts).flat)
    taps.remove()
    assert torch.equal(*sums)
    assert torch.isfinite(sums[0]).all()


@settings(max_examples=40)
@given(
    kind=st.sampled_from(sorted(BOUNDED)),
    rows=st.lists(st.tuples(*[st.sampled_from(NASTY) | st.floats(-10, 10, width=32)] * 4), min_size=1, max_size=5),
    left_out=st.integers(0, 4),
    compiled=st.booleans(),
)
def test_no_record_adds_more_to_a_part_than_its_clip_norm(kind, rows, left_out, compiled):
    torch.manual_seed(0)
    module, data = BOUNDED[kind](), torch.tensor(rows, dtype=torch.float32)
    trained, norms = trained_of(module), (0.3, 0.01)
    parts = {name: place % 2 for place, name in enumerate(trained)} | {next(reversed(trained)): 1}
    kept = [row for row in range(len(rows)) if row != left_out % len(rows)]
    sums = []
    for some in (data, data[kept]):
        taps = Taps(module, trained)
        if compiled:
            run = ClippedSums(module, taps, nn.MSELoss(), trained, compile=False, parts=parts)
            sums.append(sum_in_pieces(run, (some[:, :3], some[:, 3:]), 2, norms, CPU).flat)
        elif len(some):
            taps.averaged_over = float(len(some))
            nn.functional.mse_loss(module(some[:, :3]), some[:, 3:]).backward()
            sizes = {name: value.shape for name, value in trained.items()}
            sums.append(clipped_sum(taps.take(), sizes, torch.ones(len(some)), bound_of(norms, CPU), parts=parts).flat)
        else:
            sums.append(torch.zeros_like(sums[0]))
        taps.remove()
    moved = torch.split(sums[0].double() - sums[1].double(), [value.numel() for value in trained.values()])
    for part, norm in enumerate(norms):
        own = [one for one, place in zip(moved, parts.values(), strict=True) if place == part]
        assert not own or float(torch.cat(own).norm()) <= norm


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # the compiler's own
def test_the_compiled_call_clips_parts_by_themselves_too():
    torch.manual_seed(0)
    module, batch = CASES["two layers"][0](), (torch.randn(9, 3), torch.randint(2, (9,)))
    trained, parts = trained_of(module), {"0.weight": 0, "0.bias": 0, "2.weight": 1, "2.bias": 1}
    taps = Taps(module, trained)
    runs = [ClippedSums(module, taps, LOSS, trained, compile=compile, parts=parts) for compile in (True, False)]
    one, other = (sum_in_pieces(run, batch, 8, (0.05, 0.3), CPU).flat for run in runs)
    taps.remove()
    assert torch.allclose(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("clip_norm", "message"),
    [
        ((1.0, 2.0), "has 2 numbers for 6 steps"),
        (lambda step: 1.0 - step, "clip_norm must be"),
        ({"0": 1.0}, "has no layer of weight"),
        ({"": 1.0, "head": 1.0}, "names 'head'"),
        ({"": -1.0}, "must be"),
        ({}, "has no layer of weight"),
    ],
)
def test_clip_norms_that_do_not_fit_are_refused_before_anything_is_spent(clip_norm, message):
    with pytest.raises(InvalidArgument, match=message) as caught:
        begin(clip_norm=clip_norm)
    assert not caught.value.spent


def test_a_sum_is_noised_for_the_norm_that_it_was_clipped_to(tmp_path):
    limits = {"clip": 100.0}
    private = begin(
        noise_multiplier=5.0,
        epsilon=8.0,
        delta=1e-5,
        purse=None,
        noise=NoiseSource(seed=1),
        clip_norm=lambda step: limits["clip"],
    )
    save(private, tmp_path / "run.pt")
    for inputs, targets in private.loader:
        nn.functional.cross_entropy(private.module(inputs), targets).backward()
        with pytest.raises(InvalidArgument, match="before the first step"):
            resume(private, tmp_path / "run.pt")
        limits["clip"] = 0.001
        private.engine.extend(steps=1)
        private.optimizer.step()
        break
    assert private.engine.trace.steps[0].noise_std == pytest.approx(500)
    assert private.engine.payments.clip.norms == (100.0,) * 6 + (0.001,)
