"""[RAW DATA] `make_private`: private training in the user's own loop."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from privypurse.accounting._filters import GdpFilter
from privypurse.accounting._fixed_schedule import FixedSchedule
from privypurse.core._checks import number_of_records, positive, positive_integer, shown
from privypurse.core._errors import InvalidArgument, spending_noted
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core.charges import GaussianCharge
from privypurse.oracles._sampling import LEAST_RATE
from privypurse.purse._opening import part_of
from privypurse.purse._purse import Purse
from privypurse.pytorch import _opening as opening
from privypurse.pytorch._budgets import Payments, Settings
from privypurse.pytorch._clip_norms import AdaptiveClip, ClipNorm, clip_of
from privypurse.pytorch._compiled import ClippedSums, Loss, largest_batch, piece_size
from privypurse.pytorch._engine import Engine, PrivateLoader
from privypurse.pytorch._fixing import check_module
from privypurse.pytorch._rows import DatasetRows, RecordSource, rows_of
from privypurse.pytorch._taps import Taps
from privypurse.pytorch._trial import Trials, put_untried
from privypurse.training._loop import check_callbacks
from privypurse.training._progress import Callback
from privypurse.training.schedules._base import ConstantNoise, Schedule

ROUNDED = "rounding of sums over records in the module's own precision, beyond the margin that is kept for it"
KEPT = (
    "what the module keeps of records where it is not looked for: in globals, classes, functions, closures, files, modes, flags, "
    "hooks, storages and random generators, in objects of the standard library other than collections, in optimizers, data sets "
    "and other objects of PyTorch that are neither tensors nor modules, in objects of compiled libraries "
    "that cannot be pickled or take more than 8 MiB, in NumPy arrays of more than 1,048,576 numbers, in tensors on a GPU or of "
    "more than 4,096 numbers that are changed past PyTorch's count of changes, and when it is run outside of a step"
)
UNREACHED = "that the module keeps records apart on branches that synthetic records do not reach"
COLLATED = "that the loader's collate_fn keeps records apart: it is the user's own"


class Private(NamedTuple):
    """What `make_private` returns: ``module, optimizer, loader = make_private(...)``."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    loader: PrivateLoader

    @property
    def engine(self) -> Engine:
        """The engine: trace, stop reason and compiled `backward` of the run."""
        return self.loader._engine

    @property
    def purse(self) -> Purse:
        """Purse to charge."""
        return self.engine.purse


@spending_noted(call="make_private")
def make_private(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Any,
    *,
    records: float | None = None,
    purse: Purse | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    neighbouring: Neighbouring | str = Neighbouring.ADD_REMOVE,
    clip_norm: ClipNorm = 1.0,
    schedule: "str | Schedule | Sequence[float] | None" = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    full_batch: bool = False,
    accumulate: int = 1,
    loss: Loss | None = None,
    loss_reduction: str = "mean",
    micro_batch: int | None = None,
    compile: bool | None = None,
    scaler: Any = None,
    callbacks: Sequence[Callback] = (),
    noise: NoiseSource | None = None,
    block: int = 100,
) -> Private:
    """Make a training loop private. The loop itself stays as it is.

    Parameters
    ----------
    module : Module
        The module, on its device. It is not wrapped; hooks record its layers in training mode.
    optimizer : Optimizer
        Any optimizer of the module's parameters. It is not wrapped; a hook sets noisy gradients.
    loader : DataLoader, Dataset or tuple of Tensor
        Source of the records: its data set, batch size and collation. Samples are the engine's own.
    records : float
        Public number of records, for the sampling rate and the divisor. Under add/remove the true
        number is private; pass a nominal one. Optional under replace-one, where it is public.
    purse : Purse, optional
        Purse to charge, from ``privypurse.pytorch.open_purse`` or, for full batches, any. By
        default a purse of `epsilon` and `delta` is opened in memory.
    epsilon, delta, neighbouring
        Budget, where no purse is given. The run spends all of it, whatever the schedule. With a
        purse and full batches, `epsilon` is the part of it that this run may spend.
    noise_multiplier : float, optional
        Noise of each gradient, relative to what a record may change, in place of `epsilon`:
        ``private.purse.epsilon`` then says what the run costs. With both, `epsilon` is the most that
        may be spent, and ``private.engine.extend(epochs=2)`` lengthens the run within it; without
        `steps` and `epochs` the run takes all of it.
    clip_norm : float, AdaptiveClip, sequence of float, callable or dict, default 1.0
        Clip norm of per-sample gradients. ``AdaptiveClip()`` estimates it, within the budget. One
        number for each step, or a function of the step, counted from 0, is a public schedule. A dict
        from names of layers, such as ``{"encoder": 0.5, "": 1.0}``, clips each of these parts by
        itself, and "" all others; the noise is that of the root of the sum of squares.
    schedule : str, sequence of float, Schedule or None
        Shares of the steps in the budget: "uniform", "dynamic", "momentum", "exponential", "step"
        or "sigmoid" (see `shape`), one weight per step, or an adaptive schedule. By default the
        purse's, where that was fixed in advance, and "uniform" otherwise.
    steps, epochs : int, optional
        Length of the run in gradients or epochs; ``n mu/sqrt(d)`` steps by default for full batches.
        One loop over the loader is one epoch where `epochs` is given, and the whole run otherwise.
    batch_size : int, optional
        Expected number of records in a sample; that of the loader by default.
    full_batch : bool, default False
        Use all records at each step. Budgets are then Gaussian DP, without sampling.
    accumulate : int, default 1
        Batches per sample, for gradient accumulation: the sample is `accumulate` times the batch.
    loss : callable, optional
        ``loss(module(*inputs), target)``. With it ``private.engine.backward(*batch)`` runs forward
        and backward in one compiled call, several times faster than hooks.
    loss_reduction : {"mean", "sum"}, default "mean"
        Reduction of the loop's own loss over records. The loss must treat records alike. A mean over
        weights, as of ``CrossEntropyLoss(weight=...)``, mixes records: hooks detect it for NLL
        losses, and not for others. Pass `loss` instead, or use ``reduction="sum"``.
    micro_batch : int, optional
        Records at a time, for memory; the result is the same. The compiled call works in pieces.
        Without `loss` the loader hands out each sample in as many batches as this takes (a number
        that is fixed in advance), and ``step()`` acts on the last of them.
    compile : bool, optional
        Compile that call; by default on GPUs.
    scaler : GradScaler, optional
        Loss scaler for float16; its scale is undone before clipping.
    callbacks : sequence of Callback
        Called with public values only, such as `ProgressBar`.
    noise : NoiseSource, optional
        For simulations without a purse: ``NoiseSource(seed=7)``. NOT PRIVATE.
    block : int, default 100
        Releases charged at a time; a run that is killed loses at most this many.

    Returns
    -------
    Private
        ``module, optimizer, loader``: the first two are those that were passed.

    Examples
    --------
    >>> from torch.utils.data import TensorDataset
    >>> data = TensorDataset(torch.randn(200, 3), torch.randint(2, (200,)))
    >>> module = nn.Linear(3, 2)
    >>> optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    >>> private = make_private(module, optimizer, DataLoader(data, batch_size=20), records=200,
    ...                        epsilon=2.0, delta=1e-5, epochs=2)
    >>> module, optimizer, loader = private
    >>> for epoch in range(2):
    ...     for inputs, targets in loader:
    ...         optimizer.zero_grad()
    ...         nn.functional.cross_entropy(module(inputs), targets).backward()
    ...         optimizer.step()
    >>> private.engine.stop_reason, private.engine.gradients
    ('steps', 20)
    """
    module = check_module(module)
    trained = trained_parameters(module, optimizer)
    rows = rows_of(loader)
    clip = clip_norm if isinstance(clip_norm, AdaptiveClip) else None
    relation = purse.neighbouring if isinstance(purse, Purse) else Neighbouring.parse(neighbouring)
    if records is None and relation is Neighbouring.ADD_REMOVE:
        private = "records must be given under add/remove, where the true number is private; got None"
        raise InvalidArgument(f"{private}. Pass a nominal number, such as 60_000.")
    public = float(len(rows)) if records is None else number_of_records(records=records)
    accumulate = positive_integer(accumulate=accumulate)
    if micro_batch is not None and loss is None and accumulate > 1:
        both = f"micro_batch sets how many batches a sample comes in; got accumulate={accumulate} too"
        raise InvalidArgument(f"{both}. Pass one of them.")
    rate = 1.0 if full_batch else _rate(loader, batch_size, accumulate, public)
    expected = rate * public
    if loss_reduction not in ("mean", "sum"):
        raise InvalidArgument(f"loss_reduction must be 'mean' or 'sum'; got {shown(loss_reduction)}.")
    check_callbacks(callbacks)
    target = opening.target_of(purse, epsilon, delta, relation, noise, public, noise_multiplier)
    if noise_multiplier is not None:
        noise_multiplier = opening.check_noise_multiplier(noise_multiplier, schedule)
    if purse is not None and epsilon is not None:
        if rate < 1:
            remedy = "Leave it out, or pass full_batch=True"
            raise InvalidArgument(f"epsilon of Poisson samples is set by the purse; got {shown(epsilon)}. {remedy}.")
        purse = part_of(purse, positive(epsilon=epsilon))
    count = _length(steps, epochs, rate, clip, schedule)
    if noise_multiplier is not None and purse is None:
        rule = opening.rule_at(noise_multiplier, count, epsilon, delta, relation, rate, clip, expected)  # type: ignore[arg-type]
        purse = Purse.with_filter(rule, noise=noise)
        count = count or sum(charge == GaussianCharge(noise_multiplier, rate) for charge in rule.schedule)
    if count is not None:
        pass
    elif purse is not None and isinstance(purse.filter, FixedSchedule) and clip is None:
        count = len(purse.filter.schedule) - purse.totals.quanta[0] or 1
    elif rate == 1:
        count = _full_batch_steps(purse, target, public, sum(parameter.numel() for parameter in trained.values()))
    else:
        raise InvalidArgument("steps or epochs must be given for samples; got neither. Pass epochs=10.")
    norms = clip_of(clip_norm, count, trained)
    chosen = opening.schedule_of("uniform" if schedule is None else schedule, count)
    if purse is None:
        assert target is not None
        purse = Purse.with_filter(opening.rule_for(target, chosen, count, rate, clip, expected), noise=noise)
    if noise_multiplier is not None and not isinstance(purse.filter, FixedSchedule):
        chosen = ConstantNoise(noise_multiplier)
    own = {"followed": schedule is None, "noise_multiplier": noise_multiplier}
    opening.check_rule(purse.filter, rate, chosen, count, clip, **own)  # type: ignore[arg-type]
    chunks = accumulate
    if micro_batch is not None and loss is None:
        chunks = math.ceil(largest_batch(expected, rate) / positive_integer(micro_batch=micro_batch))
    settings = Settings(
        steps=count,
        sample_prob=rate,
        expected_batch=expected,
        chunks=chunks,
        samples_per_pass=count + (clip.looks(count) if clip else 0) if epochs is None else max(1, round(1 / rate)),
        piece=piece_size(expected / chunks, rate, micro_batch, next(iter(trained.values())).device),
        mean_loss=loss_reduction == "mean",
        block=positive_integer(block=block),
    )
    payments = Payments(purse, chosen, norms, settings, callbacks)
    taps = Taps(module, trained)
    try:
        trials = Trials(module, taps, trained, records=expected / chunks, mean_loss=settings.mean_loss)
        untried = trials.ahead(rows.fetch(np.zeros(1, dtype=np.intp)), with_loss=loss is not None)
        sums = None
        if loss is not None:
            sums = ClippedSums(module, taps, loss, trained, compile=compile, parts=payments.parts)
        engine = Engine(module, optimizer, trained, rows, payments, sums=sums, trials=trials, scaler=scaler)
    except BaseException:
        taps.remove()
        raise
    put_on_record(purse, untried, rows)
    return Private(module, optimizer, PrivateLoader(engine))


def _length(steps: int | None, epochs: int | None, rate: float, clip: AdaptiveClip | None, schedule: Any) -> int | None:
    """Return the number of gradients, from steps, epochs or weights; None where none is given."""
    if steps is not None and epochs is not None:
        raise InvalidArgument(f"expected steps or epochs, got both: {steps!r} and {epochs!r}. Pass one of them.")
    if steps is not None:
        return positive_integer(steps=steps)
    if epochs is not None:
        samples = positive_integer(epochs=epochs) * max(1, round(1 / rate))
        # Looks at the clip norm use samples too.
        return samples if clip is None else max(1, samples - math.ceil(samples / (clip.every + 1)))
    if hasattr(schedule, "weights") or isinstance(schedule, tuple | list):
        return len(getattr(schedule, "weights", schedule))
    return None


def _rate(loader: Any, batch_size: int | None, accumulate: int, records: float) -> float:
    if batch_size is None and isinstance(loader, DataLoader):
        batch_size = loader.batch_size
    if batch_size is None:
        raise InvalidArgument("batch_size must be given, as the loader has none. Pass it, or full_batch=True.")
    rate = positive_integer(batch_size=batch_size) * accumulate / records
    if not LEAST_RATE <= rate <= 1:
        size = f"batch_size={batch_size} (times accumulate={accumulate})"
        raise InvalidArgument(f"{size} must be at most records={records:g}. Pass a smaller one.")
    return rate


def _full_batch_steps(purse: Purse | None, target: GdpFilter | None, records: float, parameters: int) -> int:
    """Return ``n mu / sqrt(d)``, half under replace-one, which has twice the noise; from 10 to 1,000."""
    if target is None:
        assert purse is not None
        target = GdpFilter(purse.filter.epsilon_left(purse.totals), purse.delta, purse.neighbouring)
    factor = 1 if target.neighbouring is Neighbouring.ADD_REMOVE else 2
    return min(max(round(records * target.mu / (factor * math.sqrt(parameters))), 10), 1_000)


def put_on_record(purse: Purse, untried: Sequence[str], rows: RecordSource) -> None:
    """Declare on the certificate what the run does not cover."""
    for line in (ROUNDED, KEPT, UNREACHED):
        purse.declare_uncovered(line)
    put_untried(purse, untried)
    if isinstance(rows, DatasetRows) and rows.collates_by_itself:
        purse.declare_uncovered(COLLATED)


def trained_parameters(module: nn.Module, optimizer: Any) -> dict[str, nn.Parameter]:
    """Return the optimizer's parameters by name; raise unless they are the module's."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgument(f"optimizer must be a torch.optim.Optimizer; got {shown(optimizer)}. Pass an SGD(...).")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidArgument("optimizer uses the loss itself (LBFGS), which is not private. Use SGD or Adam.")
    hooks = optimizer._optimizer_step_pre_hooks.values()
    if any(getattr(hook, "__module__", "") == Engine.__module__ for hook in hooks):
        raise InvalidArgument("optimizer is private already. Make a new one, or call private.engine.detach().")
    known = {id(parameter) for parameter in module.parameters()}
    moved = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(id(parameter) not in known for parameter in moved):
        raise InvalidArgument("optimizer has other parameters. Make it from module.parameters(), after module.to().")
    wanted = {id(parameter) for parameter in moved if parameter.requires_grad}
    trained = {name: parameter for name, parameter in module.named_parameters() if id(parameter) in wanted}
    if not trained:
        raise InvalidArgument("optimizer has nothing to train: no parameter requires a gradient. Unfreeze some.")
    if len({parameter.device for parameter in trained.values()}) > 1:
        raise InvalidArgument("module has trained parameters on several devices. Move the module to one.")
    if any(not parameter.is_floating_point() for parameter in trained.values()):
        raise InvalidArgument("module has trained parameters that are not real numbers. Freeze these, or convert them.")
    return trained
