"""A loop's own loss: one whose reduction is not the one that was said is refused before payment."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from privypurse.core._errors import InvalidArgument  # noqa: E402
from tests.pytorch.small_runs import begin_full_batch as begin  # noqa: E402

LOSSES = {
    "sum": [
        lambda outputs, y: F.cross_entropy(outputs, y, reduction="sum"),
        lambda outputs, y: F.cross_entropy(outputs, y, reduction="none").sum(),
        lambda outputs, y: (outputs - F.one_hot(y, 2)).pow(2).mean(1).sum(),
        lambda outputs, y: F.binary_cross_entropy_with_logits(outputs[:, 0], y.to(outputs.dtype), reduction="sum"),
    ],
    "mean": [
        F.cross_entropy,
        lambda outputs, y: F.cross_entropy(outputs, y, reduction="none").mean(),
        lambda outputs, y: (outputs - F.one_hot(y, 2)).pow(2).sum(1).mean(),
        lambda outputs, y: F.mse_loss(outputs, F.one_hot(y, 2).to(outputs.dtype)),
    ],
}
EITHER = [
    lambda outputs, y: F.cross_entropy(outputs, y, reduction="none").sum() / len(y),
    lambda outputs, y: (F.cross_entropy(outputs, y, reduction="none") * torch.full((len(y),), 1 / len(y))).sum(),
    lambda outputs, y: sum(F.mse_loss(one, F.one_hot(k, 2).to(one.dtype)) for one, k in zip(outputs, y, strict=True)),
]


# Sums over records that end in a mean over something else, and sums beside a mean that is not
# trained on.
UNREADABLE = [
    lambda errors: errors.T.sum(1).mean().backward(),
    lambda errors: errors.transpose(0, 1).sum(-1).mean().backward(),
    lambda errors: errors.permute(1, 0).sum(1).mean().backward(),
    lambda errors: errors.reshape(1, -1).sum(1).mean().backward(),
    lambda errors: errors.sum(1).unsqueeze(0).sum(1).mean().backward(),
    lambda errors: (logged := errors.mean(), errors.backward(torch.ones_like(errors)), logged),
    lambda errors: (logged := errors.mean(), errors.sum().backward(), logged),
]
READABLE = [
    lambda errors: errors.unsqueeze(1).transpose(1, 2).sum(1).mean().backward(),
    lambda errors: errors[:, None].permute(0, 2, 1).flatten(0, 1).sum(1).view(len(errors), -1).mean().backward(),
    lambda errors: (logged := errors.sum().detach(), errors.mean().backward(), logged),
]


@pytest.mark.parametrize("passes", [*UNREADABLE, *READABLE])
def test_a_loss_that_turns_records_about_is_not_taken_for_a_mean(passes):
    module = nn.Linear(3, 2)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))))
    x, y = next(iter(private.loader))
    passes((module(x) - F.one_hot(y, 2)).square())
    private.optimizer.step()
    unread = [line for line in private.purse.certificate().uncovered if "could not be read" in line]
    assert len(unread) == (passes in UNREADABLE)


def lossy_step(loss, said, scaler=None):
    module = nn.Linear(3, 2)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))), loss_reduction=said, scaler=scaler)
    x, y = next(iter(private.loader))
    value = loss(module(x), y)
    (value if scaler is None else scaler.scale(value)).backward()
    private.optimizer.step()
    return private


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(("said", "is_one"), [("mean", "sum"), ("sum", "mean")])
def test_a_loss_with_another_reduction_than_was_said_is_refused_before_payment(said, is_one, number, scaled):
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0) if scaled else None
    with pytest.raises(InvalidArgument, match=f"loss_reduction='{is_one}'"):
        lossy_step(LOSSES[is_one][number], said, scaler)
    assert lossy_step(LOSSES[is_one][number], is_one, scaler).purse.spent.releases == 1


@pytest.mark.parametrize("said", ["mean", "sum"])
@pytest.mark.parametrize("number", range(3))
def test_a_loss_whose_reduction_cannot_be_read_is_let_in(said, number):
    assert lossy_step(EITHER[number], said).purse.spent.releases == 1


class WithLoss(nn.Module):
    """Computes its loss by itself."""

    def __init__(self, reduction):
        super().__init__()
        self.map, self.reduction = nn.Linear(3, 2), reduction

    def forward(self, x, y):
        return F.cross_entropy(self.map(x), y, reduction=self.reduction)


@pytest.mark.parametrize(("said", "is_one"), [("mean", "sum"), ("sum", "mean")])
def test_a_module_with_a_loss_of_another_reduction_is_refused(said, is_one):
    data = torch.randn(30, 3), torch.randint(2, (30,))
    with pytest.raises(InvalidArgument, match=f"loss_reduction='{is_one}'"):
        begin(WithLoss(is_one), data, loss_reduction=said)
    assert begin(WithLoss(is_one), data, loss_reduction=is_one).purse.spent.releases == 0


def test_loss_whose_reduction_cannot_be_read_is_on_the_certificate():
    module, data = nn.Linear(3, 1), (torch.randn(30, 3), torch.randn(30, 1))
    private = begin(module, data)
    for x, y in private.loader:
        ((module(x) - y).square().sum() / 30).backward()
        private.optimizer.step()
    assert sum("could not be read" in line for line in private.purse.certificate().uncovered) == 1


@pytest.mark.parametrize(("said", "other"), [("mean", "sum"), ("sum", "mean")])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("first_unread", [False, True])
def test_a_loss_that_changes_its_reduction_during_the_run_is_refused_before_payment(said, other, number, first_unread):
    module = nn.Linear(3, 2)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))), loss_reduction=said, steps=4)
    batches = iter(private.loader)
    for loss in [EITHER[0] if first_unread else LOSSES[said][0], LOSSES[said][number]]:
        x, y = next(batches)
        loss(module(x), y).backward()
        private.optimizer.step()
    x, y = next(batches)
    with pytest.raises(InvalidArgument, match=f"loss_reduction='{other}'"):
        LOSSES[other][number](module(x), y).backward()
    assert private.purse.spent.releases == 2
    with pytest.raises(InvalidArgument, match="no backward pass"):
        private.optimizer.step()
    assert private.purse.spent.releases == 2


def test_a_loss_that_becomes_unreadable_during_the_run_is_on_the_certificate_once():
    module = nn.Linear(3, 2)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))), steps=4)
    batches = iter(private.loader)
    for loss, lines in [(LOSSES["mean"][0], 0), (EITHER[0], 1), (EITHER[0], 1)]:
        x, y = next(batches)
        loss(module(x), y).backward()
        private.optimizer.step()
        assert sum("could not be read" in line for line in private.purse.certificate().uncovered) == lines


def test_a_mean_over_class_weights_is_refused_before_payment():
    """It divides by the weights of the batch: one record would change the gradients of all others."""
    module = nn.Linear(3, 2)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))))
    x, y = next(iter(private.loader))
    with pytest.raises(InvalidArgument, match=r"class weights.*reduction='sum'") as refused:
        F.cross_entropy(outputs := module(x), y, weight=outputs.new_tensor([1.0, 7.0])).backward()
    assert not refused.value.spent
    assert private.purse.spent.releases == 0


def test_a_sum_with_class_weights_is_let_in():
    module = nn.Linear(3, 2)
    private = begin(module, (torch.randn(30, 3), torch.randint(2, (30,))), loss_reduction="sum")
    x, y = next(iter(private.loader))
    F.cross_entropy(outputs := module(x), y, weight=outputs.new_tensor([1.0, 7.0]), reduction="sum").backward()
    private.optimizer.step()
    assert not any("could not be read" in line for line in private.purse.certificate().uncovered)


BROADCAST = [F.mse_loss, F.smooth_l1_loss, lambda x, y: ((x - y) ** 2).mean(), lambda x, y: (x - y).abs().mean()]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", BROADCAST)
@pytest.mark.parametrize("squeezed", ["targets", "outputs"])
def test_outputs_and_targets_of_different_shapes_are_refused_before_payment(loss, squeezed):
    """All records are compared with all targets: one would change the gradients of all others."""
    private = begin(nn.Linear(3, 1), (torch.randn(30, 3), torch.randn(30)))
    x, y = next(iter(private.loader))
    outputs = private.module(x)
    pair = (outputs, y) if squeezed == "targets" else (outputs.squeeze(1), y[:, None])
    with pytest.raises(InvalidArgument, match="different shapes, which mixes records") as refused:
        loss(*pair).backward()
    assert not refused.value.spent
    loss(private.module(x).squeeze(1), y).backward()
