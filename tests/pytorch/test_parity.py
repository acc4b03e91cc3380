"""Gradients of single records, layer by layer, against one record at a time."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from privypurse.pytorch._clipping import GRAM_GAIN, clipped_sum  # noqa: E402
from privypurse.pytorch._taps import Taps  # noqa: E402
from tests.pytorch.layer_cases import (  # noqa: E402
    CASES,
    LOSS,
    SLOW_VMAP,
    assert_parity,
    by_hooks,
    clipped,
    made,
    one_by_one,
    trained_of,
)


@pytest.mark.filterwarnings(SLOW_VMAP, "ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_clipped_sums_are_those_of_one_record_at_a_time(case):
    assert_parity(*made(case))


@pytest.mark.parametrize("case", ["linear", "conv2d direct", "conv2d by gram", "tied", "self attention", "layer norm"])
@pytest.mark.parametrize("count", [1, 2])
def test_few_records_are_no_special_case(case, count):
    assert_parity(*made(case, count))


def test_all_three_ways_of_measuring_a_convolution_are_taken():
    ways = set()
    for case in ("conv2d direct", "conv2d by gram", "conv2d on one place"):
        module, (x, _) = made(case)
        layer = module[0]
        places = layer(x).flatten(2).shape[2]
        seen, back = layer.weight[0].numel(), layer.out_channels
        ways.add("single" if places == 1 else "gram" if GRAM_GAIN * 2 * places**2 <= seen * back else "direct")
    assert ways == {"single", "gram", "direct"}


BY_RULE = ["linear", "conv2d by gram", "embedding", "self attention", "layer norm", "tied"]
WRITTEN_OUT = ["GRUCell", "LSTM", "GRU on packed words", "bag, mean", "attention with one more place"]


@pytest.mark.parametrize("case", BY_RULE + WRITTEN_OUT)
def test_mixed_precision_gives_about_the_same(case):
    module, batch = made(case)
    rows = one_by_one(module, batch)
    bound = float(rows.norm(dim=1).median())
    with torch.autocast("cpu", torch.bfloat16):
        trained = trained_of(module)
        taps = Taps(module, trained)
        taps.averaged_over = 7.0
        loss = LOSS(module(*batch[:-1]), batch[-1])
    loss.backward()
    sizes = {name: value.shape for name, value in trained.items()}
    result = clipped_sum(taps.take(), sizes, torch.ones(7), bound)
    taps.remove()
    assert result.flat.dtype == torch.float64
    assert float((result.flat - clipped(rows, bound)).norm()) < 0.05 * bound * 7


@pytest.mark.filterwarnings(SLOW_VMAP)
@pytest.mark.parametrize("case", ["prelu", "parameters of its own", "weight norm"])
def test_mixed_precision_works_for_layers_without_a_rule_of_their_own(case):
    module, batch = made(case)
    module = nn.Sequential(nn.Linear(4, 4), *module)
    bound = float(one_by_one(module, batch).norm(dim=1).median())
    with torch.autocast("cpu", torch.bfloat16):
        taps = Taps(module, trained_of(module))
        taps.averaged_over = 7.0
        loss = LOSS(module(*batch[:-1]), batch[-1])
    loss.backward()
    sizes = {name: value.shape for name, value in trained_of(module).items()}
    result = clipped_sum(taps.take(), sizes, torch.ones(7), bound)
    assert float((result.flat - clipped(one_by_one_after(module, taps, batch), bound)).norm()) < 0.1 * bound * 7


def one_by_one_after(module, taps, batch):
    taps.remove()
    return one_by_one(module, batch)


def test_dropout_is_the_same_in_lengths_and_sums():
    torch.manual_seed(3)
    module = nn.Sequential(
        nn.Linear(4, 16),
        nn.Dropout(0.5),
        nn.TransformerEncoderLayer(16, 2, 8, dropout=0.3, batch_first=True),
        nn.Flatten(),
    )
    batch = torch.randn(6, 2, 4), torch.randint(2, (6,))
    trained = trained_of(module)

    def rows():
        torch.manual_seed(9)
        with_taps = Taps(module, trained)  # the written-out attention draws its dropout as it does below
        losses = F.cross_entropy(module(batch[0]), batch[1], reduction="none")
        sums = []
        for k in range(6):
            with_taps.uses[:] = [u for u in with_taps.uses if not setattr(u, "output_grads", [None])]
            losses[k].backward(retain_graph=True)
            sizes = {name: value.shape for name, value in trained.items()}
            kept = list(with_taps.uses)
            sums.append(clipped_sum(with_taps.take(), sizes, torch.ones(6), 1e6).flat.double())
            with_taps.uses = kept
        with_taps.remove()
        return torch.stack(sums)

    each = rows()
    bound = float(each.norm(dim=1).median())
    torch.manual_seed(9)
    result = by_hooks(module, batch, bound)
    assert torch.allclose(result.flat.double(), clipped(each, bound), rtol=0, atol=1e-4 * bound)


def test_dropout_beside_parameters_differs_between_records_and_is_drawn_once():
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.drop = nn.Parameter(torch.randn(20)), nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(x * self.scale)

    torch.manual_seed(0)
    module = Dropping()
    taps = Taps(module, trained_of(module))
    outputs = module(torch.rand(5, 20) + 1)
    outputs.sum().backward()
    result = clipped_sum(taps.take(), {"scale": module.scale.shape}, torch.ones(5), 1e6)
    taps.remove()
    assert len({tuple(row) for row in (outputs == 0).tolist()}) == 5
    assert torch.allclose(result.flat, (outputs / module.scale).sum(0).double(), atol=1e-5)


def test_a_layer_that_gets_no_gradient_adds_nothing():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            self.unused(x)
            return self.used(x)

    torch.manual_seed(0)
    assert_parity(Unused(), (torch.randn(5, 4), torch.randint(2, (5,))))


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (nn.MSELoss(), lambda count: torch.randn(count, 3)),
        (nn.L1Loss(), lambda count: torch.randn(count, 3)),
        (nn.SmoothL1Loss(beta=0.3), lambda count: torch.randn(count, 3)),
        (nn.HuberLoss(delta=0.3), lambda count: torch.randn(count, 3)),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0])), lambda count: torch.rand(count, 3)),
        (nn.CrossEntropyLoss(label_smoothing=0.2), lambda count: torch.randint(3, (count,))),
        (lambda out, target: (out.mean(1) - target).abs().mean(), lambda count: torch.randn(count)),
        (lambda out, target: F.cross_entropy(out, target), lambda count: torch.randint(3, (count,))),
    ],
    ids=["mse", "l1", "smooth", "huber", "bce", "smoothing", "own", "function"],
)
def test_losses_are_taken_apart_into_those_of_records(loss, target):
    torch.manual_seed(1)
    module, _ = made("linear")
    assert_parity(module, (torch.randn(7, 4), target(7)), loss)
