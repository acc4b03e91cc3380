"""Making a training loop private: same module, same optimizer, another loader."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from privypurse.accounting.filters import GdpFilter
from privypurse.accounting.fixed_schedule import FixedSchedule
from privypurse.core.checks import positive, positive_integer, shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.randomness import NoiseSource
from privypurse.oracles.sampling import LEAST_RATE
from privypurse.purse.purse import Purse
from privypurse.pytorch.adaptive_clip import AdaptiveClip
from privypurse.pytorch.budgets import check_rule, default_steps, rule_for, schedule_of, share_of, target_of
from privypurse.pytorch.checks import check_module, trained_parameters
from privypurse.pytorch.clipping import check_clip_norm
from privypurse.pytorch.compiled import ClippedSums, Loss
from privypurse.pytorch.engine import Engine
from privypurse.pytorch.loader import PrivateLoader
from privypurse.pytorch.payments import Payments, Settings
from privypurse.pytorch.pieces import piece_size
from privypurse.pytorch.processes import Processes
from privypurse.pytorch.rows import DatasetRows, Rows, rows_of
from privypurse.pytorch.taps import Taps
from privypurse.pytorch.trial import try_out
from privypurse.schedules.base import Schedule
from privypurse.training.loop import check_callbacks
from privypurse.training.progress import Callback

UNTRIED = "that the module keeps records apart: it could not be tried out on made-up records"
ROUNDED = "rounding of sums over records in the module's own precision, beyond the margin that is kept for it"
COLLATED = "that the loader's collate_fn keeps records apart: it is the user's own"


class Private(NamedTuple):
    """What `make_private` returns: ``module, optimizer, loader = make_private(...)``."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    loader: PrivateLoader

    @property
    def engine(self) -> Engine:
        """The run: its trace, what stopped it, and its compiled `backward`."""
        return self.loader._engine

    @property
    def purse(self) -> Purse:
        """Who pays."""
        return self.engine.purse


def make_private(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Any,
    *,
    records: float | None = None,
    purse: Purse | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbouring: Neighbouring | str = Neighbouring.ADD_REMOVE,
    clip_norm: float | AdaptiveClip = 1.0,
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
        The module, on its device. It is not wrapped; hooks listen to its layers in training mode.
    optimizer : Optimizer
        Any optimizer of the module's parameters. It is not wrapped; a hook gives it noisy gradients.
    loader : DataLoader, Dataset or tuple of Tensor
        Where the records are. Only its data set, batch size and collation are used: the engine samples by itself.
    records : float
        The public number of records, which sampling rate and divisor come from. Under add/remove the true number is private: a
        nominal one will do. May be left out under replace-one, where the true number is public.
    purse : Purse, optional
        Who pays, from ``privypurse.pytorch.open_purse`` or, for full batches, any. Without one, a purse of `epsilon` and `delta`
        is opened, in memory.
    epsilon, delta, neighbouring
        The budget, where no purse is given. The run spends all of it, whatever the schedule. With a purse and full batches,
        `epsilon` is what this run may spend of it.
    clip_norm : float or AdaptiveClip, default 1.0
        Largest length of one record's gradient. ``AdaptiveClip()`` finds it, and pays for that.
    schedule : str, sequence of float, Schedule or None
        How the budget is shared out over the steps: "uniform", "dynamic", "momentum", "exponential", "step" or "sigmoid" (see
        `shape`), one weight for each step, or a schedule that chooses on the way. By default the purse's, where that was fixed in
        advance, and "uniform" otherwise.
    steps, epochs : int, optional
        How long: gradients, or passes. One of the two for samples; for full batches ``n mu/sqrt(d)`` steps by default. With
        `epochs` one loop over the loader is one of them; with `steps` it is the whole run.
    batch_size : int, optional
        Expected number of records in a sample; that of the loader by default.
    full_batch : bool, default False
        Take all records at each step. Budgets are then Gaussian DP, and need no sampling.
    accumulate : int, default 1
        Batches that a sample comes in, for gradient accumulation: the sample is then `accumulate` times the batch size.
    loss : callable, optional
        ``loss(module(*inputs), target)``. With it ``private.engine.backward(*batch)`` does forward and backward in one compiled
        call, several times faster than hooks.
    loss_reduction : {"mean", "sum"}, default "mean"
        What the loop's own loss does over the records of a batch. It must treat records alike: one that weighs them by the
        others, such as ``CrossEntropyLoss(weight=...)`` with a mean, mixes records, and hooks cannot see it. Pass `loss` instead,
        or ``reduction="sum"``.
    micro_batch : int, optional
        Records at a time in the compiled call; changes memory and speed, not the result.
    compile : bool, optional
        Compile that call; by default on GPUs.
    scaler : GradScaler, optional
        The scaler of mixed precision with float16, so that its scale can be undone before clipping.
    callbacks : sequence of Callback
        Told of public things only, such as `ProgressBar`.
    noise : NoiseSource, optional
        For simulations, where no purse is given: ``NoiseSource(seed=7)``. NOT PRIVATE.
    block : int, default 100
        Releases paid for at a time; a run that is killed leaves at most this many paid for in vain.

    Returns
    -------
    Private
        ``module, optimizer, loader``: the first two are the ones that were passed.

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
    _check_fresh(optimizer)
    rows = rows_of(loader)
    clip = clip_norm if isinstance(clip_norm, AdaptiveClip) else None
    clip_norm = clip_norm if isinstance(clip_norm, AdaptiveClip) else check_clip_norm(clip_norm=clip_norm)
    relation = purse.neighbouring if isinstance(purse, Purse) else Neighbouring.parse(neighbouring)
    public = _public_records(records, relation, rows)
    accumulate = positive_integer(accumulate=accumulate)
    rate = 1.0 if full_batch else _rate(loader, batch_size, accumulate, public)
    expected = rate * public
    if loss_reduction not in ("mean", "sum"):
        raise InvalidArgument(
            f"loss_reduction must be 'mean' or 'sum'; got {shown(loss_reduction)}. Nothing was spent."
        )
    check_callbacks(callbacks)
    target = target_of(purse, epsilon, delta, relation, noise, public)
    if purse is not None and epsilon is not None:
        purse = share_of(purse, epsilon, rate)
    count = _steps(steps, epochs, rate, clip, schedule, purse, target, public, sum(p.numel() for p in trained.values()))
    chosen = schedule_of("uniform" if schedule is None else schedule, count)
    if purse is None:
        assert target is not None
        purse = Purse.with_filter(rule_for(target, chosen, count, rate, clip, expected), noise=noise)
    looks = 0 if clip is None else clip.looks(count)
    every = None if clip is None else clip.every
    check_rule(purse.filter, rate, chosen, count, looks, every=every, followed=schedule is None)
    device = next(iter(trained.values())).device
    settings = Settings(
        steps=count,
        sample_prob=rate,
        expected_batch=expected,
        chunks=accumulate,
        samples_per_pass=max(1, round(1 / rate)) if epochs is not None else count + looks,
        piece=piece_size(
            expected / accumulate,
            rate,
            None if micro_batch is None else positive_integer(micro_batch=micro_batch),
            device,
        ),
        mean_loss=loss_reduction == "mean",
        block=positive_integer(block=block),
    )
    payments = Payments(purse, chosen, clip_norm, settings, callbacks)
    taps = Taps(module, trained)
    try:
        tried = try_out(module, taps, trained, rows.fetch(np.zeros(1, dtype=np.intp)))
        sums = None
        if loss is not None:
            compiles = device.type != "cpu" if compile is None else bool(compile)
            sums = ClippedSums(module, taps, loss, trained, compile=compiles)
        processes = Processes()
        engine = Engine(
            module, optimizer, trained, rows, payments, sums=sums, taps=taps, processes=processes, scaler=scaler
        )
    except BaseException:
        taps.remove()
        raise
    put_on_record(purse, tried, rows)
    return Private(module, optimizer, PrivateLoader(engine))


def _public_records(records: float | None, relation: Neighbouring, rows: Rows) -> float:
    if records is not None:
        return positive(records=records)
    if relation is Neighbouring.REPLACE_ONE:
        return float(len(rows))
    raise InvalidArgument(
        "records must be given under add/remove, where the true number of records is private; got None. Pass the public or "
        "nominal number, such as records=60_000 (it need not be exact), or neighbouring='replace-one'. Nothing was spent."
    )


def _rate(loader: Any, batch_size: int | None, accumulate: int, records: float) -> float:
    if batch_size is None:
        batch_size = loader.batch_size if isinstance(loader, DataLoader) else None
    if batch_size is None:
        raise InvalidArgument(
            "batch_size must be given where there is no DataLoader with one; got None. Pass batch_size=256, or full_batch=True. "
            "Nothing was spent."
        )
    rate = positive_integer(batch_size=batch_size) * accumulate / records
    if not LEAST_RATE <= rate <= 1:
        raise InvalidArgument(
            f"batch_size={batch_size} (times accumulate={accumulate}) must be at most records={records:g}. Pass a smaller "
            "one, or full_batch=True. Nothing was spent."
        )
    return rate


def _steps(
    steps: int | None,
    epochs: int | None,
    rate: float,
    clip: AdaptiveClip | None,
    schedule: Any,
    purse: Purse | None,
    target: GdpFilter | None,
    records: float,
    parameters: int,
) -> int:
    """Return the number of gradients."""
    if steps is not None and epochs is not None:
        raise InvalidArgument(f"steps and epochs say the same thing; got {steps!r} and {epochs!r}. Pass one of them.")
    if steps is not None:
        return positive_integer(steps=steps)
    if epochs is not None:
        samples = positive_integer(epochs=epochs) * max(1, round(1 / rate))
        # Looks at the clip norm take samples too.
        return samples if clip is None else max(1, samples - math.ceil(samples / (clip.every + 1)))
    if hasattr(schedule, "weights") or isinstance(schedule, tuple | list):
        return len(getattr(schedule, "weights", schedule))
    if purse is not None and isinstance(purse.filter, FixedSchedule) and clip is None:
        return len(purse.filter.schedule) - purse.totals.quanta[0] or 1
    if rate == 1:
        rule = target
        if rule is None:
            assert purse is not None
            rule = GdpFilter(purse.filter.epsilon_left(purse.totals), purse.delta, purse.neighbouring)
        return default_steps(rule, records, parameters)
    raise InvalidArgument("steps or epochs must be given for samples; got neither. Pass epochs=10. Nothing was spent.")


def put_on_record(purse: Purse, tried: bool, rows: Rows) -> None:
    """Name on the certificate what could not be looked into, and what is usually so and not always."""
    purse.declare_uncovered(ROUNDED)
    if not tried:
        purse.declare_uncovered(UNTRIED)
        warnings.warn(
            "the module could not be tried out on made-up records, so it is not known that it keeps records apart; the "
            "certificate says so. Let it take the batches of the loader (all but the last part, or by name).",
            UserWarning,
            stacklevel=3,
        )
    if isinstance(rows, DatasetRows) and rows.collates_by_itself:
        purse.declare_uncovered(COLLATED)


def _check_fresh(optimizer: torch.optim.Optimizer) -> None:
    """Refuse to make private what is private already: two engines would each think themselves alone."""
    for hook in optimizer._optimizer_step_pre_hooks.values():
        if getattr(hook, "__module__", "") == Engine.__module__:
            raise InvalidArgument(
                "optimizer is private already: make_private was called with it before. Make a new module and optimizer, or take "
                "the first engine off with private.engine.detach(). Nothing was spent."
            )
