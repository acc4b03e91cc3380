"""The training step of a LightningModule as a module: the engine listens to a module from its call to its answer."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class TrainingStep(nn.Module):
    """A training step that can be listened to.

    Parameters
    ----------
    model : LightningModule
        Whose step it is.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._step: Callable[..., Any] = model.training_step  # type: ignore[assignment]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Make the step."""
        # Without gradients it is the model that is asked: make_private looks whether it mixes records.
        return self._step(*args, **kwargs) if torch.is_grad_enabled() else self.model(*args, **kwargs)


def through(module: nn.Module, step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the training step, called through a module."""

    @functools.wraps(step)
    def called(*args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    return called
