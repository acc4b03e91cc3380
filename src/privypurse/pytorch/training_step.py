"""The training step of a LightningModule as a module: the engine listens to a module from its call to its answer."""

import functools
from collections.abc import Callable
from typing import Any

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
        return self._step(*args, **kwargs)

    def on_batch(self, batch: Any) -> Any:
        """Make the step on made-up records, logging nothing."""
        logs = {name: self.model.__dict__.get(name) for name in ("log", "log_dict")}
        try:
            for name in logs:
                self.model.__dict__[name] = lambda *_, **__: None
            return self(batch, 0)
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
