"""Modules with every kind of layer, and their gradients one record at a time."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from privypurse import NoiseSource, Purse  # noqa: E402
from privypurse.pytorch import make_private  # noqa: E402
from privypurse.pytorch._clipping import MARGIN, clipped_sum  # noqa: E402
from privypurse.pytorch._compiled import ClippedSums, sum_in_pieces  # noqa: E402
from privypurse.pytorch._taps import Taps  # noqa: E402
from tests.pytorch.recurrent_cases import RECURRENT_CASES  # noqa: E402

CPU = torch.device("cpu")
LOSS = nn.CrossEntropyLoss()
SLOW_VMAP = "ignore:There is a performance drop:UserWarning"


def trained_of(module):
    return {name: value for name, value in module.named_parameters() if value.requires_grad}


def flat(trained, grads):
    parts = zip(trained.values(), grads, strict=True)
    return torch.cat([torch.zeros(p.numel()) if g is None else g.detach().float().flatten() for p, g in parts]).double()


def one_by_one(module, batch, loss=LOSS, call=None):
    trained, rows = trained_of(module), []
    for k in range(len(batch[0])):
        *inputs, target = (part[k : k + 1] for part in batch)
        value = loss((call or module)(*inputs), target)
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
        loss(module(*inputs), target).backward()
        uses = taps.take()
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
    def __init__(self, features=4, inner=None):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.inner = inner or nn.Linear(features, features)

    def forward(self, x):
        return self.inner(x * self.scale) + self.scale


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
    def __init__(self, layer=None):
        super().__init__()
        self.layer = layer or nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(input=x)


class OwnByKeyword(Own):
    def forward(self, *, input, other=None):
        return super().forward(input)


class InDict(nn.Module):
    """An embedding with an adapter of low rank, as PEFT writes it."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(5, 4).requires_grad_(False)
        self.lower = nn.ParameterDict({"default": nn.Parameter(torch.randn(2, 5))})
        self.upper = nn.ParameterDict({"default": nn.Parameter(torch.randn(4, 2))})

    def forward(self, x):
        more = nn.functional.embedding(x, self.lower["default"].T) @ self.upper["default"].T
        return (self.words(x) + more).tanh().mean(1)


class Bags(nn.Module):
    def __init__(self, mode, *, flat=False, weigh=False, **settings):
        super().__init__()
        self.bag, self.flat, self.weigh = nn.EmbeddingBag(5, 3, mode=mode, **settings), flat, weigh

    def forward(self, x):
        shares = (x + 1.0) / 5 if self.weigh else None
        if not self.flat:
            return self.bag(x, per_sample_weights=shares)
        size, ends = x.shape[1], len(x) + self.bag.include_last_offset
        return self.bag(x.flatten(), torch.arange(ends) * size, None if shares is None else shares.flatten())


class Attention(nn.Module):
    def __init__(self, batch_first=True, cross=False, need_weights=False, masks="", bias=True, frozen=(), **more):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first, bias=bias, **more)
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


def twice_in_modules(layer, outputs=3):
    return nn.Sequential(nn.Sequential(layer, nn.Tanh()), nn.Sequential(layer, nn.Linear(4, outputs)))


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
    "attention with keys and values of other widths": (
        lambda: Attention(cross=True, kdim=3, vdim=3, frozen=("k_proj_weight",)),
        lambda count: (torch.randn(count, 5, 4), torch.randn(count, 3, 3)),
    ),
    "attention with one more place": (lambda: Attention(add_bias_kv=True, batch_first=False), numbers(3, 4)),
    "attention with two more places and padding": (
        lambda: Attention(add_bias_kv=True, add_zero_attn=True, masks="padding", need_weights=True),
        lambda count: (torch.randn(count, 3, 4), torch.arange(3).expand(count, 3) > 1),
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
    "own parameters by keyword": (lambda: Keyword(OwnByKeyword()), numbers(4)),
    "own parameters in a dict": (InDict, words(4)),
    **RECURRENT_CASES,
    **{f"bag, {mode}": (lambda mode=mode: Bags(mode), words(6)) for mode in ("sum", "mean", "max")},
    "bag with padding": (lambda: Bags("mean", padding_idx=1), words(6)),
    "bag with weights": (lambda: Bags("sum", weigh=True), words(6)),
    **{
        f"bag with offsets, {mode}": (lambda mode=mode: Bags(mode, flat=True), words(6))
        for mode in ("sum", "mean", "max")
    },
    "bag with last offset and weights": (
        lambda: Bags("sum", flat=True, weigh=True, include_last_offset=True),
        words(6),
    ),
    "tied": (Tied, words(4)),
    "tied with padding": (lambda: Tied(padding_idx=1), words(4)),
    "used twice": (Twice, numbers(4)),
    "used in two modules": (lambda: twice_in_modules(nn.Linear(4, 4)), numbers(4)),
    "used in two modules beside own parameters": (lambda: Own(inner=twice_in_modules(nn.Linear(4, 4), 4)), numbers(4)),
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


def made(case, count=7, seed=0):
    torch.manual_seed(seed)
    make, inputs = CASES[case]
    return make(), (*inputs(count), torch.randint(2, (count,)))


def private_of(module, batch, **changes):
    arguments = {"records": len(batch[0]), "purse": without_noise()}
    arguments |= {"full_batch": True, "steps": 1, "schedule": SMALL_NOISE}
    optimizer = torch.optim.SGD(trained_of(module).values(), 0.0)
    return make_private(module, optimizer, batch, **arguments | changes)


def assert_step(module, batch, loss=LOSS, *, call=None, backward=False, **changes):
    """Compare the gradient of a private step, almost without noise, with that of one record at a time."""
    call = call or module
    rows = one_by_one(module, batch, loss, call)
    bound = float(rows.norm(dim=1).median())
    more = {"loss": loss, "compile": False} if backward else {}
    private = private_of(module, batch, clip_norm=bound, **more, **changes)
    *inputs, target = next(iter(private.loader))
    if backward:
        private.engine.backward(*inputs, target)
    else:
        loss(call(*inputs), target).backward()
    private.optimizer.step()
    trained, expected = trained_of(module), clipped(rows, bound) / len(rows)
    found = flat(trained, [value.grad for value in trained.values()])
    private.engine.detach()
    assert 0 < float((found - expected).norm()) < 1e-4 * float(expected.norm())
    return private


class SmallNoise:
    def propose(self, query, past, budget):
        from privypurse import Gaussian

        return Gaussian(1e-7)


SMALL_NOISE = SmallNoise()


def without_noise():
    return Purse.not_private(noise=NoiseSource(seed=1))
