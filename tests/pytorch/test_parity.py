"""The sum of clipped gradients is what one-record-at-a-time autograd gives, and no record adds more than the clip norm."""

import copy
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from privypurse import NoiseSource, Purse  # noqa: E402
from privypurse.core.errors import InvalidArgument  # noqa: E402
from privypurse.core.queries import GradientAt  # noqa: E402
from privypurse.pytorch import ModuleOracle, make_private  # noqa: E402
from privypurse.pytorch.clipping import MARGIN, check_records, clipped_sum  # noqa: E402
from privypurse.pytorch.compiled import ClippedSums  # noqa: E402
from privypurse.pytorch.layers import GRAM_GAIN  # noqa: E402
from privypurse.pytorch.pieces import sum_in_pieces  # noqa: E402
from privypurse.pytorch.taps import Taps  # noqa: E402

CPU = torch.device("cpu")
LOSS = nn.CrossEntropyLoss()
OLD_TORCH_SCRIPT = "ignore:`torch.jit:DeprecationWarning"  # the compiler's own
SLOW_VMAP = "ignore:There is a performance drop:UserWarning"


def trained_of(module):
    return {name: value for name, value in module.named_parameters() if value.requires_grad}


def flat(trained, grads):
    parts = zip(trained.values(), grads, strict=True)
    return torch.cat([torch.zeros(p.numel()) if g is None else g.detach().float().flatten() for p, g in parts]).double()


def one_by_one(module, batch, loss=LOSS):
    trained, rows = trained_of(module), []
    for k in range(len(batch[0])):
        *inputs, target = (part[k : k + 1] for part in batch)
        value = loss(module(*inputs), target)
        rows.append(flat(trained, torch.autograd.grad(value, list(trained.values()), allow_unused=True)))
    return torch.stack(rows)


def clipped(rows, bound):
    lengths = rows.norm(dim=1, keepdim=True)
    return (rows * (bound * (1 - MARGIN) / lengths.clamp(min=1e-300)).clamp(max=1)).sum(0)


def by_hooks(module, batch, bound, loss=LOSS, weights=None):
    trained = trained_of(module)
    taps = Taps(module, trained)
    try:
        *inputs, target = batch
        count = len(batch[0])
        taps.averaged_over = float(count)
        if isinstance(loss, nn.HuberLoss):  # outputs come in double precision, which it wants of targets too
            target = target.double()
        loss(module(*inputs), target).backward()
        uses = taps.take()
        check_records(uses, count)
        sizes = {name: value.shape for name, value in trained.items()}
        weights = torch.ones(count) if weights is None else weights
        result = clipped_sum(uses, sizes, weights, bound, 1.0)
    finally:
        taps.remove()
    assert all(value.grad is None and value.requires_grad for value in trained.values())
    return result


def by_sums(module, batch, bound, loss=LOSS, size=None, compile=False):
    trained = trained_of(module)
    taps = Taps(module, trained)
    try:
        sums = ClippedSums(module, taps, loss, trained, compile=compile)
        result = sum_in_pieces(sums, batch, size or len(batch[0]), bound, CPU)
    finally:
        taps.remove()
    assert all(value.grad is None and value.requires_grad for value in trained.values())
    return result


def assert_parity(module, batch, loss=LOSS, tolerance=2e-5):
    rows = one_by_one(module, batch, loss)
    lengths = rows.norm(dim=1)
    bound = float(lengths.median())
    assert bound > 0
    expected = clipped(rows, bound)
    scale = (
        tolerance * bound * len(rows) + 2e-7
    )  # hooks take the loss in double precision, which differs where it saturates
    within = float((lengths <= bound * (1 - MARGIN)).sum()) - len(rows) / 2
    for result in (
        by_hooks(module, batch, bound, loss),
        by_sums(module, batch, bound, loss),
        by_sums(module, batch, bound, loss, size=2),
    ):
        assert torch.allclose(result.flat.double(), expected, rtol=0, atol=scale)
        assert float(result.within) == within
    return bound


class Own(nn.Module):
    def __init__(self, features=4):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.inner = nn.Linear(features, features)

    def forward(self, x):
        return self.inner(x * self.scale) + self.scale


class Tied(nn.Module):
    def __init__(self, padding_idx=None):
        super().__init__()
        self.words = nn.Embedding(5, 4, padding_idx=padding_idx)
        self.mix = nn.Linear(4, 4)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x):
        return self.out(torch.tanh(self.mix(self.words(x)))).mean(1)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(self.layer(torch.tanh(self.norm(self.layer(x)))))


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.numbers = nn.Embedding(5, 4), nn.Linear(3, 4)
        self.both = nn.Bilinear(4, 4, 2)

    def forward(self, words, numbers, mask):
        return self.both((self.words(words) * mask[:, :, None]).sum(1), self.numbers(numbers))


class Keyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(input=x)


class Attention(nn.Module):
    def __init__(self, batch_first=True, cross=False, need_weights=False, masks="", bias=True, frozen=()):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first, bias=bias)
        with torch.no_grad():
            for value in self.attention.parameters():
                value.copy_(torch.randn(value.shape))
        for name in frozen:
            self.attention.get_parameter(name).requires_grad_(False)
        self.batch_first, self.cross, self.need_weights, self.masks = batch_first, cross, need_weights, masks

    def forward(self, x, *more):
        key = more[0] if self.cross else x
        if not self.batch_first:
            x, key = x.transpose(0, 1), (key.transpose(0, 1) if self.cross else None)
            key = x if key is None else key
        length = 3
        given = {"need_weights": self.need_weights}
        if "causal" in self.masks:
            given |= {"attn_mask": nn.Transformer.generate_square_subsequent_mask(length)}
        if "heads" in self.masks:
            blocked = torch.ones(length, length, dtype=torch.bool).triu(1)
            given |= {"attn_mask": blocked.expand(2 * len(more[-1]), length, length)}
        if "padding" in self.masks:
            given |= {"key_padding_mask": more[-1]}
        if "each" in self.masks:
            given |= {"average_attn_weights": False}
        out, shares = self.attention(x, key, key, **given)
        out = out if self.batch_first else out.transpose(0, 1)
        if self.need_weights:
            out = out + shares.flatten(1).sum(1)[:, None, None] + shares.square().flatten(1).sum(1)[:, None, None]
        return out.mean(1)


def pooled(*layers):
    return nn.Sequential(*layers, nn.Tanh(), nn.Flatten(2), nn.Conv1d(layers_out(layers), 3, 1), Mean())


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(2)


def layers_out(layers):
    with torch.no_grad():
        last = [layer for layer in layers if hasattr(layer, "out_channels") or hasattr(layer, "num_channels")][-1]
    return getattr(last, "out_channels", None) or last.num_channels


def normed(layer, channels=4):
    with torch.no_grad():
        for value in layer.parameters():
            value.copy_(torch.randn(value.shape))
    return layer


def numbers(*shape):
    return lambda count: (torch.randn(count, *shape),)


def words(*shape):
    return lambda count: (torch.randint(5, (count, *shape)),)


def frozen(module, *names):
    for name in names:
        module.get_parameter(name).requires_grad_(False)
    return module


def weight_norm(layer):
    return nn.utils.parametrizations.weight_norm(layer)


CASES = {
    "linear": (lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), numbers(4)),
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), numbers(4)),
    "linear by keyword": (Keyword, numbers(4)),
    "linear on words": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Flatten(1)), numbers(6, 4)),
    "linear on few words": (lambda: nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Flatten(1)), numbers(2, 9)),
    "linear in four dimensions": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Flatten(1)), numbers(2, 3, 4)),
    "linear on nothing in between": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Flatten(1)), numbers(1, 4)),
    "conv1d": (lambda: pooled(nn.Conv1d(2, 4, 3)), numbers(2, 9)),
    "conv1d with all settings": (
        lambda: pooled(nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, padding_mode="circular")),
        numbers(4, 11),
    ),
    "conv2d direct": (lambda: pooled(nn.Conv2d(2, 3, 3, padding=1)), numbers(2, 6, 6)),
    "conv2d by gram": (lambda: pooled(nn.Conv2d(6, 8, 3), nn.GroupNorm(2, 8)), numbers(6, 4, 4)),
    "conv2d on one place": (lambda: pooled(nn.Conv2d(3, 8, 4)), numbers(3, 4, 4)),
    "conv2d without bias": (lambda: pooled(nn.Conv2d(3, 8, 3, bias=False)), numbers(3, 4, 4)),
    "conv2d depthwise": (lambda: pooled(nn.Conv2d(4, 8, 3, groups=4, stride=(1, 2))), numbers(4, 5, 5)),
    "conv2d same": (lambda: pooled(nn.Conv2d(2, 4, (3, 2), padding="same", dilation=(1, 2))), numbers(2, 5, 6)),
    "conv2d valid": (lambda: pooled(nn.Conv2d(2, 4, 2, padding="valid")), numbers(2, 4, 4)),
    "conv2d reflect": (
        lambda: pooled(nn.Conv2d(2, 4, 3, padding=(2, 1), padding_mode="reflect", stride=2)),
        numbers(2, 6, 5),
    ),
    "conv2d same and replicated": (
        lambda: pooled(nn.Conv2d(2, 4, 4, padding="same", padding_mode="replicate")),
        numbers(2, 5, 5),
    ),
    "conv2d grouped on one place": (lambda: pooled(nn.Conv2d(4, 8, 3, groups=2)), numbers(4, 3, 3)),
    "conv3d": (lambda: pooled(nn.Conv3d(2, 3, 2)), numbers(2, 3, 3, 3)),
    "conv transpose": (lambda: pooled(nn.ConvTranspose2d(2, 3, 2, stride=2)), numbers(2, 3, 3)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5, 3), nn.Flatten(1)), words(4)),
    "embedding of one word": (lambda: nn.Embedding(5, 3), words()),
    "embedding of tables": (lambda: nn.Sequential(nn.Embedding(5, 3), nn.Flatten(1)), words(2, 3)),
    "embedding with padding": (lambda: nn.Sequential(nn.Embedding(5, 3, padding_idx=0), nn.Flatten(1)), words(6)),
    "embedding with padding at the end": (
        lambda: nn.Sequential(nn.Embedding(5, 3, padding_idx=-1), nn.Flatten(1)),
        words(6),
    ),
    "layer norm": (lambda: nn.Sequential(normed(nn.LayerNorm(4)), nn.Linear(4, 3)), numbers(4)),
    "layer norm on words": (lambda: nn.Sequential(normed(nn.LayerNorm((2, 4))), nn.Flatten(1)), numbers(3, 2, 4)),
    "layer norm without bias": (
        lambda: nn.Sequential(normed(nn.LayerNorm(4, bias=False)), nn.Flatten(1)),
        numbers(3, 4),
    ),
    "rms norm": (lambda: nn.Sequential(normed(nn.RMSNorm(4)), nn.Flatten(1)), numbers(3, 4)),
    "group norm": (lambda: pooled(normed(nn.GroupNorm(2, 4))), numbers(4, 3, 3)),
    "group norm without places": (lambda: nn.Sequential(normed(nn.GroupNorm(2, 4)), nn.Linear(4, 3)), numbers(4)),
    "instance norm": (
        lambda: nn.Sequential(normed(nn.InstanceNorm2d(4, affine=True)), nn.Tanh(), nn.Conv2d(4, 3, 3), nn.Flatten(1)),
        numbers(4, 3, 3),
    ),
    "instance norm in one dimension": (
        lambda: nn.Sequential(normed(nn.InstanceNorm1d(4, affine=True)), nn.Tanh(), nn.Flatten(1)),
        numbers(4, 3),
    ),
    "self attention": (lambda: Attention(), numbers(3, 4)),
    "self attention, words first": (lambda: Attention(batch_first=False), numbers(3, 4)),
    "self attention with weights": (lambda: Attention(need_weights=True), numbers(3, 4)),
    "self attention with weights of heads": (lambda: Attention(need_weights=True, masks="each"), numbers(3, 4)),
    "self attention, causal": (lambda: Attention(masks="causal"), numbers(3, 4)),
    "self attention without bias": (lambda: Attention(bias=False), numbers(3, 4)),
    "attention with frozen maps": (lambda: Attention(frozen=("in_proj_weight", "out_proj.bias")), numbers(3, 4)),
    "cross attention": (
        lambda: Attention(cross=True),
        lambda count: (torch.randn(count, 5, 4), torch.randn(count, 3, 4)),
    ),
    "cross attention, words first, with weights": (
        lambda: Attention(cross=True, batch_first=False, need_weights=True),
        lambda count: (torch.randn(count, 5, 4), torch.randn(count, 3, 4)),
    ),
    "attention with padding": (
        lambda: Attention(masks="padding"),
        lambda count: (torch.randn(count, 3, 4), torch.arange(3).expand(count, 3) > 1),
    ),
    "attention with both masks and weights": (
        lambda: Attention(masks="padding causal", need_weights=True),
        lambda count: (torch.randn(count, 3, 4), torch.zeros(count, 3).masked_fill(torch.arange(3) > 1, -math.inf)),
    ),
    "attention with a mask for each head": (
        lambda: Attention(masks="heads"),
        lambda count: (torch.randn(count, 3, 4), torch.zeros(count, 3)),
    ),
    "encoder layer": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), nn.Flatten(1)),
        numbers(3, 4),
    ),
    "encoder of two layers, norm first": (
        lambda: nn.Sequential(
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"),
                2,
                enable_nested_tensor=False,
            ),
            nn.Flatten(1),
        ),
        numbers(3, 4),
    ),
    "parameters of its own": (lambda: nn.Sequential(nn.Linear(4, 4), Own(), nn.Linear(4, 3)), numbers(4)),
    "root with parameters of its own": (Own, numbers(4)),
    "prelu": (lambda: nn.Sequential(nn.Linear(4, 4), nn.PReLU(4), nn.Linear(4, 3)), numbers(4)),
    "gru cell": (lambda: Recurrent(), numbers(3, 2)),
    "tied": (Tied, words(4)),
    "tied with padding": (lambda: Tied(padding_idx=1), words(4)),
    "used twice": (Twice, numbers(4)),
    "weight norm": (lambda: nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 3)), numbers(4)),
    "weight norm on a convolution": (lambda: pooled(weight_norm(nn.Conv1d(2, 4, 3))), numbers(2, 9)),
    "frozen layer": (
        lambda: frozen(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), "0.weight", "0.bias"),
        numbers(4),
    ),
    "frozen head": (
        lambda: frozen(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), "2.weight", "2.bias"),
        numbers(4),
    ),
    "only biases": (
        lambda: frozen(nn.Sequential(nn.Conv1d(2, 4, 2), nn.Flatten(1), nn.Linear(12, 3)), "0.weight", "2.weight"),
        numbers(2, 4),
    ),
    "frozen biases": (
        lambda: frozen(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)), "0.bias", "1.bias"),
        numbers(4),
    ),
    "double precision": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.PReLU(), nn.Linear(5, 3)).double(),
        lambda count: (torch.randn(count, 4, dtype=torch.float64),),
    ),
    "several inputs": (
        Several,
        lambda count: (torch.randint(5, (count, 3)), torch.randn(count, 3), torch.rand(count, 3) > 0.3),
    ),
}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(2, 4)

    def forward(self, x):
        state = x.new_zeros(len(x), 4)
        for place in range(x.shape[1]):
            state = self.cell(x[:, place], state)
        return state


def made(case, count=7, seed=0):
    torch.manual_seed(seed)
    make, inputs = CASES[case]
    return make(), (*inputs(count), torch.randint(2, (count,)))


@pytest.mark.filterwarnings(SLOW_VMAP)
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


@pytest.mark.parametrize("case", ["linear", "conv2d by gram", "embedding", "self attention", "layer norm", "tied"])
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


# ------------------------------------------------------------------------------------------------- pieces and padding


@pytest.mark.filterwarnings(SLOW_VMAP)
@settings(max_examples=40)
@given(
    case=st.sampled_from(["linear", "tied", "conv1d", "several inputs", "self attention"]),
    count=st.integers(0, 11),
    size=st.integers(1, 13),
)
def test_pieces_of_any_size_give_the_same_sum(case, count, size):
    module, batch = made(case, 11)
    batch = [part[:count] for part in batch]
    whole, parts = by_sums(module, batch, 0.3, size=11), by_sums(module, batch, 0.3, size=size)
    assert torch.allclose(whole.flat, parts.flat, rtol=0, atol=1e-5)
    assert float(whole.within) == float(parts.within)
    if count == 0:
        assert not parts.flat.any()


@pytest.mark.parametrize("size", [1, 3, 8, 64])
def test_padding_that_has_no_finite_gradient_does_not_matter(size):
    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x / x.norm(dim=1, keepdim=True))

    torch.manual_seed(0)
    module, batch = Normalised(), (torch.randn(7, 4), torch.randint(3, (7,)))
    result = by_sums(module, batch, 0.5, size=size)
    assert torch.allclose(result.flat, clipped(one_by_one(module, batch), 0.5), rtol=0, atol=1e-5)


# --------------------------------------------------------------------------------------------------- the bound holds


NASTY = [0.0, 1.0, -3.0, 1e-45, 1e-30, 1e-20, 1e-8, 1e5, -1e10, 1e15, 1e19, -1e25, 3e38, math.inf, -math.inf, math.nan]
BOUNDED = {
    "mlp": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)),
    "no bias": lambda: nn.Linear(3, 1, bias=False),
    "relu without bias": lambda: nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False)),
    "words": lambda: nn.Sequential(nn.Unflatten(1, (3, 1)), nn.Linear(1, 2), nn.Flatten(1), nn.Linear(6, 1)),
    "gram": lambda: nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 8, 2), nn.Flatten(1), nn.Linear(16, 1)),
    "norm": lambda: nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 1)),
    "own": lambda: nn.Sequential(Own(3), nn.Linear(3, 1)),
}


@settings(max_examples=120)
@given(
    kind=st.sampled_from(sorted(BOUNDED)),
    rows=st.lists(st.tuples(*[st.sampled_from(NASTY) | st.floats(-10, 10, width=32)] * 4), min_size=1, max_size=5),
    left_out=st.integers(0, 4),
    bound=st.sampled_from([1e-2, 0.3, 1.0, 1e4]),
    hooks=st.booleans(),
)
@example(kind="no bias", rows=[(1e-45, 1e-45, 0.0, 1e19)], left_out=0, bound=1e-2, hooks=True)
@example(kind="mlp", rows=[(math.nan, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, math.inf)], left_out=1, bound=1.0, hooks=False)
def test_no_record_adds_more_than_the_clip_norm(kind, rows, left_out, bound, hooks):
    torch.manual_seed(0)
    module = BOUNDED[kind]()
    data = torch.tensor(rows, dtype=torch.float32)
    batch = data[:, :3], data[:, 3:]
    left_out = left_out % len(rows)
    fewer = [torch.cat([part[:left_out], part[left_out + 1 :]]) for part in batch]
    sums = by_hooks if hooks else by_sums
    whole = sums(module, batch, bound, nn.MSELoss()).flat.double()
    rest = sums(module, fewer, bound, nn.MSELoss()).flat.double() if len(rows) > 1 else torch.zeros_like(whole)
    assert torch.isfinite(whole).all()
    assert float((whole - rest).norm()) <= bound
    assert float(whole.norm()) <= bound * len(rows)


@pytest.mark.parametrize("kind", BOUNDED)
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("where", [0, 3])
def test_records_that_are_not_finite_add_exactly_nothing(kind, bad, where):
    torch.manual_seed(0)
    module = BOUNDED[kind]()
    data = torch.randn(6, 4)
    data[2, where] = bad
    weights = torch.ones(6)
    weights[2] = 0
    batch = data[:, :3], data[:, 3:]
    result = by_hooks(module, batch, 0.1, nn.MSELoss()).flat
    assert torch.equal(result, by_hooks(module, batch, 0.1, nn.MSELoss(), weights).flat)
    others = torch.arange(6) != 2
    alone = by_hooks(module, (batch[0][others], batch[1][others]), 0.1, nn.MSELoss()).flat
    assert torch.allclose(result, alone, rtol=0, atol=1e-6)


def test_places_that_cancel_are_not_measured_too_short():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv1d(1, 64, 64, bias=False), nn.Flatten(1))

    def loss(out, target):
        return (out.reshape(-1, 64, 2) * target[:, None, :]).sum() / len(out)

    seen = torch.randn(5, 1, 65) * 1e4
    seen[1:] = 1e4 + torch.randn(4, 1, 65) * torch.tensor([1e-1, 1e-2, 1e-3, 0.0])[:, None, None]
    batch = seen, torch.tensor([[1.0, -1.0]]).expand(5, 2)
    for k in range(5):
        one = [part[k : k + 1] for part in batch]
        assert float(by_hooks(module, one, 1.0, loss).flat.double().norm()) <= 1.0


@pytest.mark.parametrize("hooks", [True, False])
def test_small_inputs_with_large_errors_are_clipped_too(hooks):
    module = nn.Linear(2_000, 1, bias=False)
    nn.init.zeros_(module.weight)
    batch = torch.full((1, 2_000), 1e-23), torch.full((1, 1), 8e18)
    sums = by_hooks if hooks else by_sums
    assert float(sums(module, batch, 1e-4, nn.MSELoss()).flat.double().norm()) <= 1e-4


def test_gradients_far_below_one_are_clipped_to_a_clip_norm_far_below_one():
    module = nn.Sequential(nn.Flatten(1), nn.Linear(4, 1))
    for value in module.parameters():
        nn.init.zeros_(value)
    batch = torch.randn(3, 4), torch.full((3, 1), 1e-24)
    assert float(by_hooks(module, batch, 1e-28, nn.MSELoss()).flat.double().norm()) <= 3e-28


@pytest.mark.parametrize("count", [1_000, 60_000, 2**17 + 5, 2**19 + 7])
def test_the_bound_holds_in_large_batches(count):
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    for seed in range(3):
        torch.manual_seed(seed)
        one = torch.randn(1, 1)
        with_it, without = (
            by_hooks(module, (one.expand(k, 1), torch.full((k, 1), 10.0)), 1.0, nn.MSELoss()).flat.double()
            for k in (count + 1, count)
        )
        assert float((with_it - without).norm()) <= 1.0


def test_records_that_are_not_the_first_dimension_are_refused_even_where_the_numbers_agree():
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x.transpose(0, 1)).transpose(0, 1).sum(1)

    module, batch = Transposed(), (torch.randn(6, 6, 3), torch.randint(2, (6,)))
    with pytest.raises(ValueError, match="first dimension"):
        make_private(
            module,
            torch.optim.SGD(module.parameters(), 0.1),
            batch,
            records=6,
            epsilon=1.0,
            delta=1e-5,
            full_batch=True,
            steps=2,
        )


def test_a_table_of_positions_is_refused_even_where_the_numbers_agree():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Linear(3, 2), nn.Embedding(6, 2)

        def forward(self, x):
            return (self.words(x) * self.places(torch.arange(x.shape[1]))).mean(1)

    module, batch = Positions(), (torch.randn(6, 6, 3), torch.randint(2, (6,)))
    with pytest.raises(ValueError, match="first dimension"):
        make_private(
            module,
            torch.optim.SGD(module.parameters(), 0.1),
            batch,
            records=6,
            epsilon=1.0,
            delta=1e-5,
            full_batch=True,
            steps=2,
        )


# ------------------------------------------------------------------------------------------------------ whole engines


def private_of(module, batch, **changes):
    arguments = {"records": len(batch[0]), "purse": without_noise()}
    arguments |= {"full_batch": True, "steps": 1, "schedule": SMALL_NOISE}
    return make_private(module, torch.optim.SGD(module.parameters(), 0.0), batch, **arguments | changes)


class SmallNoise:
    def propose(self, query, past, budget):
        from privypurse import Gaussian

        return Gaussian(1e-7)


SMALL_NOISE = SmallNoise()


def gradient_of(private):
    return torch.cat([value.grad.flatten() for value in private.module.parameters()])


@pytest.mark.parametrize("case", ["linear", "conv2d by gram", "tied", "encoder layer"])
@pytest.mark.parametrize("way", ["mean", "sum", "backward"])
def test_the_optimizer_is_given_the_mean_of_clipped_gradients(case, way):
    module, batch = made(case)
    rows = one_by_one(module, batch)
    bound = float(rows.norm(dim=1).median())
    private = private_of(module, batch, clip_norm=bound, loss=LOSS, loss_reduction="sum" if way == "sum" else "mean")
    for *inputs, target in private.loader:
        if way == "backward":
            private.engine.backward(*inputs, target)
        else:
            F.cross_entropy(module(*inputs), target, reduction=way).backward()
        assert all(value.grad is None for value in module.parameters())
        private.optimizer.step()
    assert torch.allclose(gradient_of(private), (clipped(rows, bound) / 7).float(), rtol=0, atol=1e-4 * bound)


@pytest.mark.parametrize("micro_batch", [1, 3, 100])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_neither_micro_batches_nor_accumulation_change_the_gradient(micro_batch, accumulate):
    module, batch = made("conv1d")
    rows = one_by_one(module, batch)
    private = private_of(
        module, batch, clip_norm=0.3, loss=LOSS, micro_batch=micro_batch, accumulate=accumulate, steps=1
    )
    for *inputs, target in private.loader:
        private.engine.backward(*inputs, target)
        private.optimizer.step()
    assert private.engine.gradients == 1
    assert torch.allclose(gradient_of(private), (clipped(rows, 0.3) / 7).float(), rtol=0, atol=1e-4)


@pytest.mark.filterwarnings(OLD_TORCH_SCRIPT)
def test_a_compiled_engine_gives_the_same_gradient():
    module, batch = made("linear")
    rows = one_by_one(module, batch)
    private = private_of(module, batch, clip_norm=0.3, loss=LOSS, compile=True, micro_batch=4)
    for part in private.loader:
        private.engine.backward(*part)
        private.optimizer.step()
    assert torch.allclose(gradient_of(private), (clipped(rows, 0.3) / 7).float(), rtol=0, atol=1e-4)


def test_a_scale_of_losses_is_undone_before_clipping():
    module, batch = made("linear")
    rows = one_by_one(module, batch)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    private = private_of(module, batch, clip_norm=0.3, scaler=scaler)
    for x, target in private.loader:
        scaler.scale(LOSS(module(x), target)).backward()
        scaler.step(private.optimizer)
        scaler.update()
    assert private.engine.gradients == 1
    assert torch.allclose(gradient_of(private), (clipped(rows, 0.3) / 7).float(), rtol=0, atol=1e-4)


def test_the_oracle_answers_with_the_same_sum():
    module, batch = made("linear")
    rows = one_by_one(module, batch)
    oracle = ModuleOracle(module, batch, loss=LOSS, records=7, clip_norm=0.3)
    box = oracle.answer(GradientAt(point=oracle.point))
    noisy = Purse.not_private(noise=NoiseSource(seed=1)).release(box, SMALL_NOISE.propose(None, (), None))
    assert np.allclose(noisy, clipped(rows, 0.3).numpy(), atol=1e-4)
    oracle.release_module()
    LOSS(module(batch[0]), batch[1]).backward()
    assert module[0].weight.grad is not None


@pytest.mark.parametrize("way", ["hooks", "backward"])
@pytest.mark.parametrize("kind", ["relu", "add"])
def test_what_comes_after_a_layer_may_change_its_output_in_place(way, kind):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            h = self.one(x)
            if kind == "relu":
                return self.two(F.relu(h, inplace=True))
            h += x
            return self.two(h)

    torch.manual_seed(0)
    module, batch = Residual(), (torch.randn(5, 4), torch.randint(2, (5,)))
    rows = one_by_one(module, batch)
    sums = by_hooks if way == "hooks" else by_sums
    assert torch.allclose(sums(module, batch, 0.3).flat.double(), clipped(rows, 0.3), rtol=0, atol=1e-5)


def test_tied_weights_within_a_layer_that_has_parameters_of_its_own():
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.randn(4))
            self.one, self.two = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.two(torch.tanh(self.one(x) + self.shift))

    torch.manual_seed(0)
    assert_parity(nn.Sequential(nn.Linear(4, 4), Inside()), (torch.randn(5, 4), torch.randint(2, (5,))))


def test_lstm_cells_are_either_right_or_refused_in_plain_words():
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(2, 4)

        def forward(self, x):
            state = x.new_zeros(len(x), 4), x.new_zeros(len(x), 4)
            for place in range(x.shape[1]):
                state = self.cell(x[:, place], state)
            return state[0]

    torch.manual_seed(0)
    assert_parity(Cells(), (torch.randn(5, 3, 2), torch.randint(2, (5,))))


def test_weights_that_are_tied_by_hand_are_either_right_or_refused():
    class ByHand(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(5, 4)

        def forward(self, x):
            return F.linear(torch.tanh(self.words(x)), self.words.weight).mean(1)

    torch.manual_seed(0)
    module, batch = ByHand(), (torch.randint(5, (6, 3)), torch.randint(5, (6,)))
    optimizer = torch.optim.SGD(module.parameters(), 0.0)
    try:
        private = make_private(
            module, optimizer, batch, records=6, full_batch=True, steps=1, schedule=SMALL_NOISE, purse=without_noise()
        )
    except ValueError as refusal:
        assert "words" in str(refusal)  # noqa: PT017
        return
    for x, target in private.loader:
        LOSS(module(x), target).backward()
        private.optimizer.step()
    private.engine.detach()
    expected = clipped(one_by_one(module, batch), 1.0) / 6
    assert torch.allclose(gradient_of(private).double(), expected, rtol=0, atol=1e-4)


def without_noise():
    return Purse.not_private(noise=NoiseSource(seed=1))


def test_activation_checkpoints_are_either_right_or_refused():
    from torch.utils.checkpoint import checkpoint

    class Saving(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.two(checkpoint(self.one, torch.tanh(x.requires_grad_()), use_reentrant=True))

    torch.manual_seed(0)
    module, batch = Saving(), (torch.randn(5, 4), torch.randint(2, (5,)))
    optimizer = torch.optim.SGD(module.parameters(), 0.0)
    with pytest.raises(InvalidArgument, match=r"one\.weight.*checkpointing"):
        make_private(module, optimizer, batch, records=5, full_batch=True, epsilon=1.0, delta=1e-5)


# ------------------------------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize(
    "case", ["linear", "self attention", "encoder layer", "root with parameters of its own", "tied"]
)
def test_copies_compute_with_their_own_weights_and_are_not_listened_to(case):
    module, batch = made(case)
    private = private_of(module, batch)
    before = module(*batch[:-1]).detach()
    twin = copy.deepcopy(module)
    with torch.no_grad():
        for value in twin.parameters():
            value.add_(0.5)
    fresh, _ = made(case)
    fresh.load_state_dict(twin.state_dict())
    out = twin(*batch[:-1])
    assert torch.allclose(out, fresh(*batch[:-1]), atol=1e-5)
    assert not torch.allclose(out, before)
    LOSS(out, batch[-1]).backward()
    assert all(value.grad is not None for value in twin.parameters())
    assert all(value.grad is None for value in module.parameters())
    for *inputs, target in private.loader:
        LOSS(module(*inputs), target).backward()
        private.optimizer.step()
    assert private.engine.gradients == 1


@pytest.mark.parametrize("case", ["linear", "self attention", "encoder layer", "weight norm"])
def test_a_detached_module_is_a_plain_one(case):
    module, batch = made(case)
    kinds = [type(layer) for layer in module.modules()]
    private = private_of(module, batch)
    private.engine.detach()
    assert [type(layer) for layer in module.modules()] == kinds
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())
    LOSS(module(*batch[:-1]), batch[-1]).backward()
    assert all(value.grad is not None for value in module.parameters())
    private.optimizer.step()
    assert private.engine.gradients == 0


@pytest.mark.parametrize("case", ["linear", "self attention", "tied", "encoder layer"])
def test_listening_does_not_change_what_a_module_says(case):
    module, batch = made(case)
    plain = module(*batch[:-1])
    private_of(module, batch)
    assert torch.allclose(module(*batch[:-1]), plain, atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(module(*batch[:-1]), plain, atol=1e-6)
    module.eval()
    assert torch.allclose(module(*batch[:-1]), plain, atol=1e-5)


def test_parameters_that_the_optimizer_does_not_move_get_no_gradient_either():
    module, batch = made("linear")
    private = make_private(
        module,
        torch.optim.SGD(module[2].parameters(), 0.1),
        batch,
        records=7,
        epsilon=1.0,
        delta=1e-5,
        full_batch=True,
        steps=2,
    )
    before = copy.deepcopy(module[0].state_dict())
    for x, target in private.loader:
        LOSS(module(x), target).backward()
        assert all(value.grad is None for value in module.parameters())
        private.optimizer.step()
        assert all(value.grad is None for value in module[0].parameters())
        assert all(value.grad is not None for value in module[2].parameters())
    assert private.engine.gradients == 2
    assert all(torch.equal(before[name], value) for name, value in module[0].state_dict().items())
