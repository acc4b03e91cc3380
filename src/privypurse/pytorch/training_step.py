"""The training step of a LightningModule as a module with hooks, and losses of single records.

[RAW DATA] Losses of single records are for models whose own loss is a mean over all words.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from privypurse.core.errors import InvalidArgument

IGNORED = -100  # label that losses ignore


def mean_of(loss: Callable[[Any, Any], Tensor]) -> Callable[..., Tensor]:
    """Return the mean of a per-record loss, and check that there is one loss for each record."""

    def mean(outputs: Any, labels: Any, **_: Any) -> Tensor:
        if labels is None:
            raise InvalidArgument("a batch has no labels. Name them 'labels' in the training data.")
        each = loss(outputs, labels)
        if each.dim() != 1 or len(each) != len(labels):
            raise InvalidArgument(
                f"loss must return one loss for each of {len(labels)} records; got shape {tuple(each.shape)}. Use "
                "reduction='none', and average over each record separately."
            )
        return each.mean()

    return mean


def usual_loss(*, shift: bool, smoothing: float, task: str | None) -> Callable[[Any, Any], Tensor]:
    """Return the loss of a model's task, one for each record.

    Parameters
    ----------
    shift : bool
        Whether each word predicts the next.
    smoothing : float
        Label smoothing.
    task : str or None
        ``problem_type`` of the model, such as "multi_label_classification" or "regression".
    """

    def loss(outputs: Any, labels: Tensor) -> Tensor:
        logits = outputs["logits"]
        if labels.is_floating_point():
            error = F.binary_cross_entropy_with_logits if task == "multi_label_classification" else F.mse_loss
            return error(logits.float(), labels.reshape(logits.shape).float(), reduction="none").flatten(1).mean(1)
        if shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        each = F.cross_entropy(
            logits.movedim(-1, 1).float(), labels, reduction="none", ignore_index=IGNORED, label_smoothing=smoothing
        )
        counts = (labels != IGNORED).reshape(len(labels), -1)
        return each.reshape(counts.shape).sum(1) / counts.sum(1).clamp(min=1)

    return loss


class TrainingStep(nn.Module):
    """Training step of a LightningModule, as a module that hooks can record."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._step: Callable[..., Any] = model.training_step  # type: ignore[assignment]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the training step."""
        return self._step(*args, **kwargs)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Disable logging, for trials on synthetic records."""
        logs = {name: self.model.__dict__.get(name) for name in ("log", "log_dict")}
        try:
            for name in logs:
                self.model.__dict__[name] = lambda *_, **__: None
            yield
        finally:
            for name, own in logs.items():
                if own is None:
                    del self.model.__dict__[name]
                else:
                    self.model.__dict__[name] = own


def through(module: nn.Module, step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the training step, called through a module."""

    @functools.wraps(step)
    def called(*args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    return called
