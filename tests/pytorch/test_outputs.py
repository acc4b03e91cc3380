"""Outputs in training mode: double precision inside, the module's own towards the loop."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from privypurse.core._errors import InvalidArgument  # noqa: E402
from privypurse.pytorch._clipping import clipped_sum  # noqa: E402
from privypurse.pytorch._outputs import Output  # noqa: E402
from privypurse.pytorch._taps import Taps  # noqa: E402
from tests.pytorch.layer_cases import clipped  # noqa: E402
from tests.pytorch.small_runs import begin, data  # noqa: E402


class Squares(torch.autograd.Function):
    """A loss with a gradient of its own, which divides by the number of records."""

    @staticmethod
    def forward(ctx, outputs, targets):
        ctx.save_for_backward(outputs, targets)
        return (outputs - targets).square().mean()

    @staticmethod
    def backward(ctx, grad):
        outputs, targets = ctx.saved_tensors
        return 2 * (outputs - targets) / outputs.numel() * grad, None


HEAD = nn.Linear(2, 1)
UNIT = torch.linspace(0, 1, 5)[:, None]
LOSSES = {
    "BCELoss": lambda out: nn.BCELoss()(torch.sigmoid(out[:, :1]), UNIT),
    "HuberLoss": lambda out: nn.HuberLoss()(out[:, :1], UNIT),
    "SmoothL1Loss": lambda out: nn.SmoothL1Loss()(out[:, :1], UNIT),
    "KLDivLoss": lambda out: nn.KLDivLoss(reduction="batchmean")(out.log_softmax(1), torch.full((5, 2), 0.5)),
    "class weights": lambda out: F.cross_entropy(out, torch.tensor([0, 1, 1, 0, 1]), torch.ones(2), reduction="mean"),
    "head": lambda out: F.mse_loss(HEAD(torch.tanh(out)), UNIT),
    "cosine": lambda out: nn.CosineEmbeddingLoss()(out, UNIT.expand(5, 2), torch.ones(5)),
    "parts": lambda out: sum(F.mse_loss(part, UNIT) for part in out.split(1, dim=1)),
    "in place": lambda out: torch.cat([out, UNIT], dim=1).mul_(UNIT).clamp_(-1, 1).square().mean(),
    "index": lambda out: F.relu(out)[torch.arange(5), torch.tensor([0, 1, 0, 1, 1])].mean(),
    "best": lambda out: out.max(dim=1).values.mean(),
    "own function": lambda out: Squares.apply(out, UNIT),
    "softmax": lambda out: torch.softmax(out, 1, dtype=torch.float32)[:, 0].type(torch.float32).mean(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_any_kind_takes_outputs_and_gives_the_gradients_of_records(name):
    assert_gradients_of_records(LOSSES[name])


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of the compiler, about what it passes on
def test_a_compiled_loss_is_run_as_it_is_written():
    squares = torch.compile(lambda x, y: (x - y).square().mean(), backend="eager")
    assert_gradients_of_records(lambda out: squares(out, UNIT))


def assert_gradients_of_records(loss):
    torch.manual_seed(0)
    module, X = nn.Linear(3, 2), torch.randn(5, 3)
    rows = []
    for k in range(5):  # the part of one record in the mean, by autograd in single precision
        out = module(X)
        hidden = torch.where(torch.arange(5)[:, None] == k, out, out.detach())
        grads = torch.autograd.grad(5 * loss(hidden), list(module.parameters()))
        rows.append(torch.cat([grad.flatten() for grad in grads]).double())
    trained = dict(module.named_parameters())
    taps = Taps(module, trained)
    taps.averaged_over = 5.0
    loss(module(X)).backward()
    total = clipped_sum(taps.take(), {name: x.shape for name, x in trained.items()}, torch.ones(5), 0.3).flat
    taps.remove()
    assert torch.allclose(total, clipped(torch.stack(rows), 0.3), rtol=0, atol=1e-5)


def test_outputs_have_the_precision_of_the_module_and_statistics_of_them_are_ordinary():
    private = begin()
    module = private.module
    next(iter(private.loader))
    for kind in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == torch.bfloat16):
            out = module(torch.randn(4, 3))
        assert type(out) is Output
        assert out.dtype == (out * 2).dtype == F.softmax(out, 1).dtype == torch.zeros_like(out).dtype == kind
        for cast in (torch.float16, torch.float32, torch.float64):
            assert out.to(cast).dtype == out.type(cast).dtype == torch.softmax(out, 1, dtype=cast).dtype == cast
        assert out.float().dtype == torch.float32
        assert type(out.double()) is torch.Tensor
        assert type(out.detach()) is type(out.argmax(1)) is torch.Tensor
        assert out.detach().dtype == kind
        assert f"{out.mean():.3f}" == f"{out.mean().item():.3f}"
        assert str(out[0]) == str(out[0].detach())


def test_a_loop_with_a_loss_that_wants_one_precision_of_outputs_and_targets():
    X, y = data()
    private = begin(module=nn.Sequential(nn.Linear(3, 1), nn.Sigmoid()), loader=(X, y[:, None].float()), steps=2)
    seen = torch.zeros(())
    for inputs, targets in private.loader:
        loss = nn.BCELoss()(private.module(inputs), targets)
        seen += loss.item()
        loss.backward()
        private.optimizer.step()
    assert private.engine.gradients == 2
    assert not any("could not be read" in line for line in private.purse.certificate().uncovered)
    head = HEAD(private.module.train()(X[:4]).expand(4, 2)).sum()
    assert torch.autograd.grad(head, HEAD.weight)[0].dtype == torch.float32


NARROW = {
    "written": lambda plain, found: plain.copy_(found),
    "set": lambda plain, found: plain.__setitem__(slice(None), found),
    "added": lambda plain, found: plain.add_(found),
    "converted": lambda plain, found: found.type(torch.FloatTensor),
}


@pytest.mark.parametrize("narrow", NARROW.values(), ids=NARROW)
def test_outputs_do_not_lose_their_precision(narrow):
    private = begin()
    inputs, _ = next(iter(private.loader))
    found, plain = private.module(inputs), torch.zeros(len(inputs), 2)
    with pytest.raises(InvalidArgument, match="rounding to it would tell how many records"):
        narrow(plain, found)
    plain += found.detach()  # no gradient comes back this way
