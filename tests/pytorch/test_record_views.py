"""Views of records in `fit`: their gradients are averaged before they are clipped, whatever the layers."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from privypurse import InvalidArgument, Purse  # noqa: E402
from privypurse.core.queries import GradientAt, LossesAlong  # noqa: E402
from privypurse.methods import DPAGD  # noqa: E402
from privypurse.pytorch import fit  # noqa: E402
from privypurse.pytorch._compiled import ClippedSums, sum_in_pieces  # noqa: E402
from privypurse.pytorch._fitting import DeepNesterov, ModuleOracle  # noqa: E402
from privypurse.pytorch._taps import Taps  # noqa: E402
from tests.pytorch.layer_cases import CASES, CPU, LOSS, SLOW_VMAP, clipped, made, one_by_one, trained_of  # noqa: E402

RECORDS, VIEWS = 4, 3


@pytest.mark.filterwarnings(SLOW_VMAP, "ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_views_are_averaged_before_clipping(case):
    module, batch = made(case, RECORDS * VIEWS)
    means = one_by_one(module, batch).unflatten(0, (RECORDS, VIEWS)).mean(1)
    bound = float(means.norm(dim=1).median())
    trained = trained_of(module)
    taps = Taps(module, trained)
    sums = ClippedSums(module, taps, LOSS, trained, compile=False, views=VIEWS)
    whole, pieces = (sum_in_pieces(sums, batch, size, bound, CPU) for size in (RECORDS * VIEWS, VIEWS))
    taps.remove()
    assert bound > 0
    for found in (whole, pieces):
        assert torch.allclose(found.flat.double(), clipped(means, bound), rtol=0, atol=2e-4 * bound)
        assert float(found.within) == (means.norm(dim=1) <= bound * (1 - 2**-10)).sum() - RECORDS / 2


def shifted(x):
    return [x, x.roll(1, dims=1), 0.5 * x - 1]


def problem(records=40, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(records, 4)
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    return module, (x, torch.randint(3, (records,)))


def test_the_oracle_answers_for_records_and_bounds_each_by_the_clip_norm():
    module, (x, y) = problem()
    oracle = ModuleOracle(module, (x, y), loss=LOSS, records=40, clip_norm=0.1, micro_batch=7, views=shifted)
    point, step = oracle.point, torch.randn(oracle.dimension, generator=torch.Generator().manual_seed(1)).numpy()
    found = oracle.answer(GradientAt(point=point))
    losses = oracle.answer(LossesAlong(point=point, direction=step, steps=[0.0, 0.1], clip_loss=50.0))
    oracle.set_point(point)
    oracle.release_module()
    each = torch.stack([one_by_one(module, (view, y)) for view in shifted(x)]).mean(0)
    assert found._value == pytest.approx(clipped(each, 0.1).numpy(), abs=1e-5)
    assert found.add_remove == 0.1
    plain = nn.CrossEntropyLoss(reduction="none")
    expected = torch.stack([plain(module(view), y).detach() for view in shifted(x)]).mean(0).sum()
    assert losses._value[0] == pytest.approx(-float(expected), rel=2e-3)


@pytest.mark.parametrize("method", [DeepNesterov(steps=10), DPAGD(rounds=2)], ids=["gradients", "line search"])
def test_fit_pays_as_without_views(method):
    spent = []
    for views in (None, shifted, lambda x: torch.stack(shifted(x))):
        module, data = problem()
        settings = {"loss": LOSS, "records": 40, "purse": Purse(2.0, 1e-6, neighbouring="add-remove")}
        spent.append(fit(module, data, method=method, views=views, **settings).purse.spent.epsilon)
    assert spent == pytest.approx([2.0] * 3, rel=1e-2)


def test_views_that_cancel_leave_nothing():
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    lengths = []
    for views in (None, lambda x: [x, -x]):
        module = nn.Linear(2, 2, bias=False)
        oracle = ModuleOracle(module, (x, (x[:, 0] > 0).long()), loss=LOSS, records=30, views=views)
        lengths.append(np.linalg.norm(oracle.answer(GradientAt(point=0 * oracle.point))._value))
        oracle.release_module()
    assert lengths[0] > 1
    assert lengths[1] < 1e-6


@pytest.mark.parametrize("number", [torch.inf, 1e26])  # above what is trusted to single precision
@pytest.mark.parametrize("case", ["conv2d direct", "linear"])
def test_a_record_with_a_view_that_is_not_finite_adds_nothing(case, number):
    module, (x, y) = made(case, RECORDS * VIEWS)
    kept = [k for k in range(RECORDS * VIEWS) if k // VIEWS != 1]
    means = one_by_one(module, (x[kept], y[kept])).unflatten(0, (-1, VIEWS)).mean(1)
    x[VIEWS + 1] = number
    trained = trained_of(module)
    taps = Taps(module, trained)
    sums = ClippedSums(module, taps, LOSS, trained, compile=False, views=VIEWS)
    found = sums((x, y), RECORDS * VIEWS, 0.05).flat
    taps.remove()
    assert torch.allclose(found.double(), clipped(means, 0.05), rtol=0, atol=1e-5)


def test_random_views_are_drawn_for_each_record():
    module, data = problem()
    done = fit(
        module,
        data,
        loss=LOSS,
        records=40,
        epsilon=2.0,
        delta=1e-5,
        method=DeepNesterov(steps=10),
        views=lambda x: [x, x + 0.1 * torch.randn_like(x)],
    )
    assert len(done.trace.steps) == 10


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (3, "views must be a function"),
        (lambda x: [x, x - x.mean(0)], "must not mix records"),
        (lambda x: [x, x.flip(0)], "must not mix records"),
        (lambda x: [x / len(x)], "must not mix records"),
        (lambda x: [x * x.abs().max()], "must not mix records"),
        (lambda x: [], "versions of a batch"),
        (lambda x: [x, x[:1]], "versions of a batch"),
        (lambda x: [x, x[:, :3]], "versions of a batch"),
        (lambda x: [x, "x"], "versions of a batch"),
    ],
)
def test_views_that_are_none_or_mix_records_spend_nothing(views, message):
    module, data = problem()
    purse = Purse(2.0, 1e-6, neighbouring="add-remove")
    with pytest.raises(InvalidArgument, match=message):
        fit(module, data, loss=LOSS, records=40, purse=purse, views=views)
    assert purse.spent.releases == 0


def test_a_number_of_views_that_changes_is_refused():
    module, data = problem()
    calls = []

    def more(x):
        calls.append(len(x))
        return [x] * (2 if len(calls) < 8 else 3)

    with pytest.raises(InvalidArgument, match="views must return 2 versions"):
        fit(module, data, loss=LOSS, records=40, epsilon=2.0, delta=1e-5, views=more)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_views_are_compiled_too():
    module, (x, y) = problem()
    found = []
    for compiled in (False, True):
        settings = {"loss": LOSS, "records": 40, "clip_norm": 0.1, "compile": compiled, "views": shifted}
        oracle = ModuleOracle(module, (x, y), **settings)
        found.append(oracle.answer(GradientAt(point=oracle.point))._value)
        oracle.release_module()
    assert found[0] == pytest.approx(found[1], abs=1e-5)
