"""Private training with the Trainer of Hugging Face transformers. Needs ``accelerate`` too."""

import contextlib
import importlib
import itertools
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from privypurse.core._checks import positive_integer
from privypurse.core._errors import InvalidArgument
from privypurse.pytorch._checkpoint import resume
from privypurse.pytorch._private_loop import Private, make_private
from privypurse.pytorch._rows import IGNORED_INDEX, loading_of
from privypurse.pytorch.integrations import _frameworks as frameworks

__all__ = ["private_trainer"]

_Base: Any = object
with contextlib.suppress(ImportError):
    _Base = importlib.import_module("transformers").TrainerCallback

FILE = "privypurse.pt"
SECRET = ("loss", "train_loss", "grad_norm", "total_flos", "num_input_tokens_seen")  # of the Trainer's own logs
_NOT_HERE = {
    "accumulate": "It is gradient_accumulation_steps of the Trainer",
    "scaler": "It is the Trainer's",
    "loss_reduction": "Pass loss=, with one loss for each record",
    **dict.fromkeys(("compile", "micro_batch"), "Use make_private in your own loop"),
}


def private_trainer(
    trainer: Any, *, loss: Callable[[Any, Any], Tensor] | None = None, epsilon_every: int = 100, **settings: Any
) -> Private:
    """Make a Trainer private; then call ``trainer.train()`` as usual.

    Parameters
    ----------
    trainer : transformers.Trainer
        The Trainer, with its model, arguments and training data. Its optimizer is created if missing.
    loss : callable, optional
        ``loss(outputs, labels)`` with one loss for each record. By default that of the model's task:
        cross-entropy (for texts the mean over a record's own words), squared error or, for several
        labels, binary cross-entropy.
    epsilon_every : int, default 100
        Log the spent epsilon every so many steps, and at the end. It may take a second each time.
    **settings
        As for `make_private`: ``records``, ``epsilon``, ``delta``, ``clip_norm``, ... The length
        defaults to the Trainer's ``max_steps`` or ``num_train_epochs``.

    Returns
    -------
    Private
        The run.

    Guarantees
    ----------
    * Batches come from the private loader, and each update is one release; else training stops.
    * The loss is the mean of one loss for each record. In a mean over the words of a batch the
      length of one record would scale the gradients of others.
    * The Trainer logs and saves no training loss, gradient norm or number of words;
      ``training_loss`` is NaN.
    """
    if _Base is object:
        raise ImportError("private_trainer needs transformers: pip install 'privypurse[torch-tools]'.")
    args = trainer.args
    _check(trainer)
    settings = frameworks.settings_for(settings, _NOT_HERE, args.max_steps, math.ceil(args.num_train_epochs))
    given = trainer.get_train_dataloader()
    private = make_private(
        trainer.model,
        trainer.create_optimizer() or trainer.optimizer,
        DataLoader(given.dataset, args.per_device_train_batch_size, collate_fn=given.collate_fn, **loading_of(given)),
        accumulate=args.gradient_accumulation_steps,
        scaler=getattr(trainer.accelerator, "scaler", None),
        **settings,
    )
    frameworks.lend_purse(settings.get("callbacks", ()), private.purse)
    args.max_grad_norm, args.ignore_data_skip, args.logging_nan_inf_filter = 0.0, True, False
    trainer.get_train_dataloader = lambda: private.loader
    trainer.get_batch_samples = get_batch_samples
    if loss is None:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

        task = getattr(trainer.model.config, "problem_type", None)
        shift = type(trainer.model).__name__ in CAUSAL.values()
        loss = usual_loss(shift=shift, smoothing=args.label_smoothing_factor, task=task)
    trainer.compute_loss_func = mean_of(loss)
    trainer.floating_point_ops = lambda inputs: 0
    step = trainer.training_step
    trainer.training_step = lambda *batch: torch.full_like(step(*batch), math.nan)  # its loss is not private
    follow = PrivateCallback(private, epsilon_every)
    trainer.log = follow.told(trainer.log)
    trainer.add_callback(follow)
    return private


class PrivateCallback(_Base):  # type: ignore[misc]
    """Checks, stops, logs and saves a private run in the Trainer. Added by `private_trainer`."""

    def __init__(self, private: Private, epsilon_every: int) -> None:
        self._private, self._engine = private, private.engine
        self._every = positive_integer(epsilon_every=epsilon_every)
        self._before = self._told = 0

    def told(self, log: Callable[..., None]) -> Callable[..., None]:
        """Return the Trainer's ``log``, without private values and with the budget spent."""

        def public(logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
            values = {name: value for name, value in logs.items() if name not in SECRET}
            steps = self._engine.trace.steps
            if steps:
                values["privacy_budget_left"] = steps[-1].fraction_left
            if steps and (self._engine.stop_reason or len(steps) - self._told >= self._every):
                values["epsilon"] = self._private.purse.spent.epsilon
                self._told = len(steps)
            log(values, *args, **kwargs)

        return public

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check optimizer and loader of the Trainer, and resume a saved run."""
        optimizer = kwargs["optimizer"]
        if getattr(optimizer, "optimizer", optimizer) is not self._private.optimizer:
            raise InvalidArgument("the Trainer has another optimizer, without noise. Call private_trainer last.")
        if kwargs["train_dataloader"] is not self._private.loader:
            raise InvalidArgument("the Trainer has another loader than the private one. Call private_trainer last.")
        if state.global_step and not self._engine.trace.steps:
            saved = pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}" / FILE
            if not resume(self._private, saved):
                raise frameworks.second_budget(f"checkpoint {saved.parent.name!r}")
        self._before = state.global_step - len(self._engine.trace.steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Compare updates with releases, and stop at the end of the run."""
        frameworks.check_updates(self._private, state.global_step - self._before)
        control.should_training_stop |= frameworks.has_ended(self._private)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop at the end of the run."""
        control.should_training_stop |= frameworks.has_ended(self._private)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save the run beside the Trainer's checkpoint, if its ledger is durable."""
        frameworks.save_along(self._private, pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}" / FILE)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Return the unused part of the reservation."""
        self._engine.close()


class Batches:
    """Batches of one sample for the Trainer, fetched lazily: the engine needs each used first."""

    def __init__(self, first: Any, rest: Iterator[Any], count: int) -> None:
        self._batches, self._count = itertools.chain([first], itertools.islice(rest, count - 1)), count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return self._batches


def get_batch_samples(iterator: Iterator[Any], count: int, *device: Any) -> tuple[Any, None]:
    """Replace the Trainer's ``get_batch_samples``, fetching one batch at a time."""
    for first in iterator:
        return Batches(first, iterator, count), None
    return [], None


def mean_of(loss: Callable[[Any, Any], Tensor]) -> Callable[..., Tensor]:
    """Return the mean of a per-record loss, and check that there is one loss for each record."""

    def mean(outputs: Any, labels: Any, **_: Any) -> Tensor:
        if labels is None:
            raise InvalidArgument("a batch has no labels. Name them 'labels' in the training data.")
        each = loss(outputs, labels)
        if each.dim() != 1 or len(each) != len(labels):
            got = f"got shape {tuple(each.shape)}. Use reduction='none'"
            raise InvalidArgument(f"loss must return one loss for each of {len(labels)} records; {got}.")
        return each.mean()

    return mean


def usual_loss(*, shift: bool, smoothing: float, task: str | None) -> Callable[[Any, Any], Tensor]:
    """Return the loss of a model's task, one for each record; `shift`: each word predicts the next."""

    def loss(outputs: Any, labels: Tensor) -> Tensor:
        logits = outputs["logits"]
        if labels.is_floating_point():
            error = F.binary_cross_entropy_with_logits if task == "multi_label_classification" else F.mse_loss
            return error(logits.float(), labels.reshape(logits.shape).float(), reduction="none").flatten(1).mean(1)
        if shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        # Words with the label -100 are ignored, as by the models' own losses.
        each = F.cross_entropy(logits.movedim(-1, 1).float(), labels, reduction="none", label_smoothing=smoothing)
        counts = (labels != IGNORED_INDEX).reshape(len(labels), -1)
        return each.reshape(counts.shape).sum(1) / counts.sum(1).clamp(min=1)

    return loss


def _check(trainer: Any) -> None:
    from transformers import Trainer

    args = trainer.args
    grouped = getattr(args, "group_by_length", False) or getattr(args, "train_sampling_strategy", "random") != "random"
    wrong = (
        (grouped, "batches grouped by length", "Leave it out: samples are random"),
        (args.n_gpu > 1, f"DataParallel over {args.n_gpu} GPUs", "Make one visible: CUDA_VISIBLE_DEVICES=0"),
        (args.world_size > 1, f"{args.world_size} processes", "Use one, or make_private in a loop of your own"),
        (trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled, "DeepSpeed or FSDP", "Use one process"),
        (args.torch_compile, "torch_compile", "Leave it out"),
        (args.auto_find_batch_size, "auto_find_batch_size", "Fix the batch size: it sets the sampling rate"),
        (args.include_num_input_tokens_seen not in (False, "no"), "include_num_input_tokens_seen", "It is not private"),
        (trainer.model_init is not None, "model_init", "Pass the model itself"),
        (trainer.compute_loss_func is not None, "compute_loss_func", "Pass loss=, with one loss for each record"),
        (type(trainer).compute_loss is not Trainer.compute_loss, "compute_loss of its own", "Pass loss= instead"),
        (type(trainer).training_step is not Trainer.training_step, "training_step of its own", "Use make_private"),
    )
    frameworks.refuse("private_trainer", wrong)
