"""Private training with the Lightning Trainer, by a callback. Needs ``lightning``."""

import contextlib
import functools
import importlib
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.pytorch._checkpoint import resume
from privypurse.pytorch._private_loop import Private, make_private
from privypurse.pytorch.integrations import _frameworks as frameworks

__all__ = ["PrivateTraining"]


def _callback() -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name).Callback
    return object


_Base: Any = _callback()

# Arguments of make_private that the Trainer sets, or that need the user's own loop.
_NOT_HERE = {
    "module": "It is the one that is fitted",
    "optimizer": "It is the one of configure_optimizers",
    "loader": "It is the one of trainer.fit or train_dataloader",
    "accumulate": "Pass accumulate_grad_batches to the Trainer",
    "scaler": "Pass precision to the Trainer",
    "loss": "It is the one of training_step",
    **dict.fromkeys(("compile", "micro_batch"), "Use make_private in your own loop"),
}


class PrivateTraining(_Base):  # type: ignore[misc]
    """Callback that makes ``trainer.fit(model, loader)`` private.

    Parameters
    ----------
    **settings
        As for `make_private`: ``records``, ``epsilon``, ``delta``, ``clip_norm``, ... The length
        defaults to the Trainer's ``max_steps`` or ``max_epochs``.

    Guarantees
    ----------
    * Batches come from the private loader, and each update is one release; else training stops.
    * Resuming never lowers what was spent: a checkpoint without the private run is refused.

    Notes
    -----
    Values that ``training_step`` logs are not private, nor is a loss by which checkpoints are
    chosen. The loss must be the mean (or sum, see `make_private`) of losses of single records.

    Examples
    --------
    ``Trainer(callbacks=[PrivateTraining(records=60_000, epsilon=2.0, delta=1e-6)]).fit(model, loader)``
    """

    def __init__(self, **settings: Any) -> None:
        if _Base is object:
            raise ImportError("PrivateTraining needs Lightning: pip install 'privypurse[torch-tools]'.")
        self._settings = frameworks.settings_for(settings, _NOT_HERE, None, None)
        self._private: Private | None = None
        self._saved: Tensor | None = None
        self._before = 0

    @property
    def private(self) -> Private:
        """Result of `make_private`: engine, purse and loader of the run."""
        if self._private is None:
            raise InvalidArgument("there is no run yet. Call trainer.fit(...) first.")
        return self._private

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the run private: the optimizer exists now, and the loader was not used yet."""
        _check(trainer, pl_module)
        source = trainer.fit_loop._data_source
        loader = source.dataloader()
        if not isinstance(loader, DataLoader):
            raise InvalidArgument(f"train_dataloader must be one DataLoader; got {shown(loader)}. Pass a single one.")
        settings = frameworks.settings_for(self._settings, {}, trainer.max_steps, trainer.max_epochs)
        self._private = make_private(
            TrainingStep(pl_module),
            trainer.optimizers[0],
            loader,
            accumulate=trainer.accumulate_grad_batches,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            **settings,
        )
        frameworks.lend_purse(settings.get("callbacks", ()), self.private.purse)
        if trainer.ckpt_path is not None:
            if self._saved is None:
                raise frameworks.second_budget(f"ckpt_path {str(trainer.ckpt_path)!r}")
            with _file() as path:
                path.write_bytes(self._saved.numpy().tobytes())
                resume(self.private, path)

        @functools.wraps(pl_module.training_step)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            return self.private.module(*args, **kwargs)

        pl_module.training_step = training_step
        trainer.fit_loop._data_source = type(source)(self._private.loader, source.name)
        trainer.fit_loop._combined_loader = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that batches come from the private loader and cover whole samples."""
        if trainer.train_dataloader is not self.private.loader:
            raise InvalidArgument("the Trainer uses another loader. Leave its dataloaders as PrivateTraining set them.")
        if (batches := trainer.num_training_batches) % trainer.accumulate_grad_batches:
            what = f"limit_train_batches must be a multiple of accumulate_grad_batches; got {batches}"
            raise InvalidArgument(f"{what}. Change one.")
        self._before = trainer.global_step - len(self.private.engine.trace.steps)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Undo the division by the number of batches: clipping precedes accumulation."""
        if trainer.accumulate_grad_batches > 1:
            loss.register_hook(lambda grad: grad * trainer.accumulate_grad_batches)  # type: ignore[no-untyped-call]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Compare updates with releases, and stop at the end of the run."""
        frameworks.check_updates(self.private, trainer.global_step - self._before)
        trainer.should_stop |= frameworks.has_ended(self.private)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Stop at the end of the run."""
        trainer.should_stop |= frameworks.has_ended(self.private)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Return the unused part of the reservation."""
        self.private.engine.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Return the unused part of the reservation."""
        if self._private is not None:
            self.private.engine.close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Restore the LightningModule's training step."""
        vars(pl_module).pop("training_step", None)

    def state_dict(self) -> dict[str, Any]:
        """Return the run for a checkpoint; empty unless its ledger is durable."""
        with _file() as path:
            if self._private is None or not frameworks.save_along(self._private, path):
                return {}
            return {"run": torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the run of a checkpoint until the fit begins."""
        self._saved = state_dict.get("run")


class TrainingStep(nn.Module):
    """Training step of a LightningModule, as a module that hooks can record."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._step: Any = model.training_step

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


@contextlib.contextmanager
def _file() -> Iterator[pathlib.Path]:
    """Yield the name of a temporary file for a run."""
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder) / "run.pt"


def _check(trainer: Any, model: Any) -> None:
    several, clipped = len(trainer.optimizers), trainer.gradient_clip_val
    wrong = (
        (not model.automatic_optimization, "manual optimisation", "Return the loss from training_step"),
        (several != 1, f"{several} optimizers", "Return one from configure_optimizers"),
        (clipped, f"gradient_clip_val={clipped}", "Pass clip_norm instead: each record's gradient is clipped"),
        (trainer.world_size > 1, f"{trainer.world_size} processes", "Pass devices=1, or use make_private"),
        (getattr(model, "_compiler_ctx", None), "a compiled LightningModule", "Pass it as it was before"),
    )
    frameworks.refuse("PrivateTraining", wrong)
