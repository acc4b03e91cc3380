"""[RAW DATA] Losses of single records, for models whose own loss is a mean over all words of a batch."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from privypurse.core.errors import InvalidArgument

IGNORED = -100  # the label of what does not count


def mean_of(loss: Callable[[Any, Any], Tensor]) -> Callable[..., Tensor]:
    """Return the mean of losses of single records, after making sure that there is one for each."""

    def mean(outputs: Any, labels: Any, **_: Any) -> Tensor:
        if labels is None:
            raise InvalidArgument("a batch has no labels: name them 'labels' in the training data. Nothing was spent.")
        each = loss(outputs, labels)
        if each.dim() != 1 or len(each) != len(labels):
            raise InvalidArgument(
                f"loss must return one loss for each of {len(labels)} records; got shape {tuple(each.shape)}. Use "
                "reduction='none', and average over each record by itself. Nothing was spent."
            )
        return each.mean()

    return mean


def usual_loss(*, shift: bool, smoothing: float, task: str | None) -> Callable[[Any, Any], Tensor]:
    """Return the loss of a model's task, one for each record.

    Parameters
    ----------
    shift : bool
        Whether each word is to foretell the next.
    smoothing : float
        Of the labels.
    task : str or None
        "multi_label_classification", "regression" or something else, as the configuration of the model says.
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
