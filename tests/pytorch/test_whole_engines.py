"""Whole engines against one record at a time; copies of a module are left alone."""

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from privypurse import NoiseSource, Purse  # noqa: E402
from privypurse.core.queries import GradientAt, LossesAlong  # noqa: E402
from privypurse.pytorch import make_private  # noqa: E402
from privypurse.pytorch._fitting import ModuleOracle  # noqa: E402
from tests.pytorch.layer_cases import (  # noqa: E402
    LOSS,
    SMALL_NOISE,
    assert_parity,
    by_hooks,
    by_sums,
    clipped,
    made,
    one_by_one,
    private_of,
    without_noise,
)

OLD_TORCH_SCRIPT = "ignore:`torch.jit:DeprecationWarning"  # the compiler's own


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
    noisy = Purse.not_private(noise=NoiseSource(seed=1)).release(box, SMALL_NOISE.propose(None, (), None)).value
    assert np.allclose(noisy, clipped(rows, 0.3).numpy(), atol=1e-4)
    oracle.release_module()
    LOSS(module(batch[0]), batch[1]).backward()
    assert module[0].weight.grad is not None


INF, NAN = float("inf"), float("nan")
CASES = [
    (None, (0.0, INF), (0.0, 0.5)),  # relative to the first loss, within half the range on either side
    (None, (INF, 0.0), (0.0, 0.0)),
    (None, (0.0, -INF), (0.0, -0.5)),
    (None, (0.0, NAN), (0.0, 0.0)),
    (None, (3.0, 3.25), (0.0, 0.25)),
    (2.0, (1.0, INF), (1.0, 2.0)),
    (2.0, (INF, INF), (2.0, 2.0)),
    (2.0, (1.0, -INF), (1.0, 0.0)),
    (2.0, (1.0, NAN), (0.0, 0.0)),
]


@pytest.mark.parametrize(("clip_loss", "losses", "counted"), CASES)
def test_a_loss_that_is_not_finite_stays_within_the_bound(clip_loss, losses, counted, monkeypatch):
    module, batch = made("linear")
    oracle = ModuleOracle(module, [part[:1] for part in batch], loss=LOSS, records=1, loss_range=1.0)
    given = iter(losses)
    monkeypatch.setattr(oracle._sums, "losses", lambda *_: torch.tensor([next(given)]))
    point = oracle.point
    box = oracle.answer(LossesAlong(point=point, direction=point, steps=(0.0, 1.0), clip_loss=clip_loss))
    assert np.allclose(box._value, -np.array(counted), atol=1e-2)
    assert max(np.ptp(box._value), np.abs(box._value).max()) <= box.add_remove == (clip_loss or 1.0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own
def test_compiled_losses_are_those_without_compiling():
    module, batch = made("linear")
    batch[0][1] *= 1e38  # its loss is not finite
    found = []
    for compile in (False, True):
        oracle = ModuleOracle(module, batch, loss=LOSS, records=7, micro_batch=4, compile=compile)
        query = LossesAlong(point=oracle.point, direction=np.ones(oracle.dimension), steps=(0.0, 0.1, 0.3))
        found.append(oracle.answer(query)._value)
        oracle.release_module()
    assert np.ptp(found[0]) > 0
    assert np.allclose(found[0], found[1], atol=1e-6)


class Reads(nn.Module):
    """Treats each record alone, by numbers read out of its tensor, which a trace would take for constants."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, inputs):
        return self.linear(inputs * torch.tensor([[1.0 + (row[0] > 0)] for row in inputs.tolist()]))


def test_a_trace_holds_no_number_of_a_private_record():
    torch.manual_seed(0)
    X, y = torch.randn(16, 3), torch.zeros(16, dtype=torch.long)
    X[0, 0] = 100.0
    found = []
    for compile in (False, True):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            oracle = ModuleOracle(Reads(), (X, y), loss=LOSS, records=16, micro_batch=4, compile=compile)
            oracle.set_point(np.linspace(-1, 1, oracle.dimension))
            query = LossesAlong(point=oracle.point, direction=np.ones(oracle.dimension), steps=(0.0, 0.1))
            found.append([oracle.answer(query)._value, oracle.answer(GradientAt(point=oracle.point))._value])
            oracle.release_module()
        assert compile == any("could not be compiled" in str(one.message) for one in said)
    for one, other in zip(*found, strict=True):
        assert np.allclose(one, other, atol=1e-4)


def test_the_oracle_unwraps_a_module_of_several_processes(monkeypatch):
    class Wrapped(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    monkeypatch.setattr(nn.parallel, "DistributedDataParallel", Wrapped)
    module, batch = made("linear")
    plain = ModuleOracle(copy.deepcopy(module), batch, loss=LOSS, records=7)
    oracle = ModuleOracle(Wrapped(module), batch, loss=LOSS, records=7)
    assert oracle.settings == plain.settings
    assert oracle._trained.keys() == dict(module.named_parameters()).keys()


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
