"""[RAW DATA] `fit`: private training of a module in one call, with any method, and the oracle it queries."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from privypurse.core._checks import FloatArray, number_of_records, ordinary, positive, positive_integer, shown
from privypurse.core._errors import InvalidArgument, spending_noted
from privypurse.core._formats import counted
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.queries import Count, GradientAt, LossesAlong, Query
from privypurse.losses._bounds import Bounds
from privypurse.methods._by_name import method_by_name
from privypurse.methods._nesterov import balanced_steps
from privypurse.methods.base import PlannedMethod, WarmStarted, check_steps_and_size
from privypurse.oracles._sampling import check_sampling, poisson_rows
from privypurse.purse._certificate import Certificate
from privypurse.purse._holds import held
from privypurse.purse._opening import part_of
from privypurse.purse._purse import Purse
from privypurse.pytorch._clipping import MARGIN, check_clip_norm
from privypurse.pytorch._compiled import ClippedSums, Loss, piece_size, sum_in_pieces
from privypurse.pytorch._fixing import check_module
from privypurse.pytorch._module_state import ModuleState, kept_modes
from privypurse.pytorch._opening import target_of
from privypurse.pytorch._private_loop import put_on_record
from privypurse.pytorch._processes import Processes
from privypurse.pytorch._record_views import Views, in_views, try_views
from privypurse.pytorch._rows import Indexes, moved, rows_of
from privypurse.pytorch._taps import Taps
from privypurse.pytorch._trial import Trials
from privypurse.training._checkpoint import Checkpoint
from privypurse.training._loop import fit as train_with
from privypurse.training._plan import Facts, Method, Recipe
from privypurse.training._progress import Callback
from privypurse.training._trace import Trace
from privypurse.training.optimizers._gradient_descent import GradientDescent, check_momentum
from privypurse.training.schedules._base import EvenSplit

MOST_STEPS = 2_000


class ModuleOracle:
    """Answers queries on a module and its records with sealed boxes, for `train` and all methods.

    A point is the concatenation of the trained parameters. Parameters are as for `fit`.

    Guarantees
    ----------
    Gradients: as for `clipped_sum`. Losses along a search are taken relative to the first loss of
    the record and clipped to half the range on either side, or to [0, clip_loss] where the query
    sets it; infinite ones count as a limit. A record counts as zero if one of them is NaN.
    """

    has_constant = False

    def __init__(
        self,
        module: nn.Module,
        data: Any,
        *,
        loss: Loss,
        records: float,
        clip_norm: float = 0.5,
        curvature: float | None = None,
        loss_range: float = 1.0,
        micro_batch: int | None = None,
        compile: bool | None = None,
        views: Views | None = None,
    ) -> None:
        self._module = module = check_module(module)
        self.rows = rows_of(data)
        self._trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
        if not self._trained:
            raise InvalidArgument("module has nothing to train: no parameter requires a gradient. Unfreeze some.")
        self._device = next(iter(self._trained.values())).device
        self.dimension = sum(parameter.numel() for parameter in self._trained.values())
        self._clip_norm, self._loss_range = check_clip_norm(clip_norm=clip_norm), ordinary(loss_range=loss_range)
        self._records = number_of_records(records=records)
        self._micro_batch = None if micro_batch is None else positive_integer(micro_batch=micro_batch)
        self._curvature = self._clip_norm if curvature is None else positive(curvature=curvature)
        self._taps = Taps(module, self._trained)
        self._taps.listening = False  # opened explicitly while it answers
        try:
            trials = Trials(module, self._taps, self._trained, records=self._records)
            self._state = ModuleState(module, trials.counters)
            one, self._views, self._count = self.rows.fetch(np.zeros(1, dtype=np.intp)), views, 1
            if views is not None:
                one, self._count = try_views(views, one, self._device)
            self.untried = trials.ahead(one, with_loss=True, modes=(True, False))
            self._sums = ClippedSums(module, self._taps, loss, self._trained, compile=compile, views=self._count)
        except BaseException:
            self._taps.remove()
            raise

    @property
    def bounds(self) -> Bounds:
        """Constants for planning: gradients are bounded by clipping only."""
        return Bounds(gradient=float("inf"), smoothness=self._curvature, initial_gap=1.0)

    @property
    def settings(self) -> dict[str, Any]:
        """Declared settings, by which a checkpoint recognises the oracle."""
        shapes = {name: list(value.shape) for name, value in self._trained.items()}
        limits = {"clip_norm": self._clip_norm, "loss_range": self._loss_range, "records": self._records}
        views = {} if self._views is None else {"views": self._count}
        return {"module": type(self._module).__name__, "trained": shapes, **limits, **views}

    @property
    def point(self) -> FloatArray:
        """Current parameters of the module."""
        parts = [parameter.detach().flatten().double().cpu() for parameter in self._trained.values()]
        return np.asarray(torch.cat(parts).numpy())

    def set_point(self, point: FloatArray) -> None:
        """Copy a point into the module's parameters."""
        with torch.no_grad():
            for name, value in self._values(point).items():
                self._trained[name].copy_(value)

    def answer(self, query: Query, *, sample_prob: float = 1.0, noise: NoiseSource | None = None) -> Sensitive:
        """Answer a query with a sealed box, from all records or a fresh Poisson sample."""
        sample_prob = check_sampling(sample_prob, noise)
        rows = poisson_rows(len(self.rows), sample_prob, noise)  # type: ignore[arg-type]
        size = piece_size(self._records * sample_prob, sample_prob, self._micro_batch, self._device)
        size = max(1, size // self._count)
        if isinstance(query, GradientAt):
            return self._gradient(query, rows, size, sample_prob)
        if isinstance(query, LossesAlong):
            return self._losses(query, rows, size, sample_prob)
        if isinstance(query, Count):
            return Sensitive(float(len(rows)), norm=Norm.L2, add_remove=1.0, replace_one=1.0, sample_prob=sample_prob)
        raise InvalidArgument(f"expected a GradientAt, LossesAlong or Count query, got {shown(type(query))}.")

    def _gradient(self, query: GradientAt, rows: Indexes, size: int, sample_prob: float) -> Sensitive:
        bound = self._clip_norm if query.clip_norm is None else check_clip_norm(clip_norm=query.clip_norm)
        self.set_point(query.point)
        with self._in_mode(training=True):
            total = np.zeros(self.dimension)
            # Fetched block by block: the data set need not fit in memory.
            for first in range(0, len(rows), 8 * size):
                batch = self._seen(self.rows.fetch(rows[first : first + 8 * size]))
                total += sum_in_pieces(self._sums, batch, size * self._count, bound, self._device).flat.cpu().numpy()
        return Sensitive(total, norm=Norm.L2, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

    def _losses(self, query: LossesAlong, rows: Indexes, size: int, sample_prob: float) -> Sensitive:
        bound = self._loss_range if query.clip_loss is None else query.clip_loss
        candidates = [self._values(query.point - step * query.direction) for step in query.steps]
        totals = np.zeros(len(candidates))
        with self._in_mode(training=False):
            for first in range(0, len(rows), size):
                batch = [part.to(self._device) for part in self._seen(self.rows.fetch(rows[first : first + size]))]
                of_each = [self._sums.losses(batch, size * self._count, values) for values in candidates]
                losses = torch.stack(of_each, dim=1).double()
                if query.clip_loss is None:
                    losses = (losses - losses[:, :1]).clamp(-bound / 2, bound / 2)
                else:
                    losses = losses.clamp(0, bound)
                unknown = torch.isnan(losses).any(dim=1, keepdim=True)
                totals += torch.where(unknown, 0.0, losses).sum(0).cpu().numpy()
        totals = -totals * (1 - MARGIN)
        if query.public_terms is not None:
            totals = totals - query.public_terms
        return Sensitive(totals, norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

    def _seen(self, batch: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the rows that the module sees: records, or views of them."""
        if self._views is None:
            return batch
        with torch.no_grad():
            return in_views(self._views, moved(batch, self._device), self._count)[0]

    @contextlib.contextmanager
    def _in_mode(self, *, training: bool) -> Iterator[None]:
        """Set the mode and refuse changes of state; in training, layers in another mode keep it."""
        with kept_modes(self._module):
            if not training or not self._module.training:
                self._module.train(training)
            with self._state.unchanged():
                yield

    def _values(self, point: FloatArray) -> dict[str, Tensor]:
        flat = torch.from_numpy(np.array(point)).to(self._device)
        parts = torch.split(flat, [own.numel() for own in self._trained.values()])
        named = zip(self._trained.items(), parts, strict=True)
        return {name: part.view(own.shape).to(own.dtype) for (name, own), part in named}

    def release_module(self) -> None:
        """Remove the hooks from the module."""
        self._taps.remove()


@dataclass(frozen=True)
class DeepNesterov(PlannedMethod):
    """Default method for modules: Nesterov descent on full batches, with steps that fall to zero.

    Gradients are in units of the clip norm, so that the step size depends on neither loss nor clip
    norm. Steps are of one size in the first half of the run, and fall linearly to zero in the second.

    Parameters
    ----------
    steps : int or None
        By default ``2 n mu/sqrt(d)``, between 20 and 2,000.
    momentum : float, default 0.9
        Momentum coefficient.
    pace : float, default 0.75
        First step size for gradients in units of the clip norm.
    """

    steps: int | None = None
    momentum: float = 0.9
    pace: float = 0.75
    name: ClassVar[str] = "deep-nesterov"

    def __post_init__(self) -> None:
        check_steps_and_size(self.steps, self.pace)
        check_momentum(self.momentum)

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent."""
        if facts.clip_norm is None:
            raise InvalidArgument("clip_norm must be given: nothing else bounds gradients. Pass clip_norm=0.5.")
        steps = self.steps or 2 * balanced_steps(facts, most=MOST_STEPS // 2)
        falling = np.minimum(1.0, 2.0 - 2.0 * np.arange(steps) / steps)
        sizes = tuple((self.pace / facts.clip_norm * falling).tolist())
        optimizer = GradientDescent(sizes, facts.records, facts.clip_norm, self.momentum, nesterov=True, l2=facts.l2)
        return Recipe(optimizer, EvenSplit(), steps, step_sizes=sizes)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A finished run: the module, trained in place, its public trace and its purse."""

    module: nn.Module
    trace: Trace
    purse: Purse

    @property
    def stop_reason(self) -> str:
        """Why the run ended: "steps" or "budget"."""
        return self.trace.stop_reason

    def certificate(self) -> Certificate:
        """Return the certificate: the guarantee and the budget spent."""
        return self.purse.certificate()

    def __repr__(self) -> str:
        return f"<Fitted: {counted(len(self.trace.steps), 'release')}, stopped by {self.stop_reason}>"


@spending_noted(call="fit")
def fit(
    module: nn.Module,
    data: Any,
    *,
    loss: Loss,
    records: float,
    purse: Purse | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbouring: Neighbouring | str = Neighbouring.ADD_REMOVE,
    method: "Method | str | None" = None,
    clip_norm: float = 0.5,
    loss_range: float = 1.0,
    curvature: float | None = None,
    l2: float = 0.0,
    micro_batch: int | None = None,
    compile: bool | None = None,
    views: Views | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    noise: NoiseSource | None = None,
    block: int = 100,
) -> Fitted:
    """Train a module within a budget, without tuning.

    Parameters
    ----------
    module : Module
        The module, on its device. It is trained in place, from its current parameters.
    data : DataLoader, Dataset or tuple of Tensor
        The records: inputs and, last, targets.
    loss : callable
        ``loss(module(*inputs), target)``, such as ``nn.CrossEntropyLoss()``.
    records : float
        Public number of records; may be nominal.
    purse, epsilon, delta, neighbouring
        As for `make_private`. With a purse, `epsilon` is the part this run may spend.
    method : Method, str or None
        By default `DeepNesterov`. ``DPAGD()`` and ``ADPSGD()`` select step sizes privately,
        ``Dynamic()`` divides the budget by influence, ``DPSGD()`` takes Poisson samples, ...
    clip_norm : float, default 0.5
        Clip norm of per-sample gradients. Steps are relative to it, so its effect is small.
    loss_range : float, default 1.0
        For line searches: range to which the change of one record's loss is clipped.
    curvature : float or None
        Smoothness constant for other methods, whose steps are its inverse; the clip norm by default.
    l2 : float, default 0.0
        Ridge penalty on the mean loss.
    micro_batch, compile, callbacks, noise, block
        As for `make_private`.
    views : callable, optional
        ``views(*inputs)`` returns a list of versions of a batch of inputs, such as shifted images. The
        gradient of a record is the mean over its versions, clipped once, so they cost no budget. Tried on
        synthetic records first: the versions of a record must not depend on others.
    checkpoint : Checkpoint or path, optional
        File to save the run to, and to resume from if it exists.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> X = torch.randn(500, 4)
    >>> module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> fit(module, (X, (X[:, 0] > 0).long()), loss=nn.CrossEntropyLoss(), records=500, epsilon=4.0, delta=1e-5)
    <Fitted: 122 releases, stopped by steps>
    """
    chosen = method_by_name(method) if isinstance(method, str) else DeepNesterov() if method is None else method
    if Processes().count > 1:
        raise InvalidArgument("fit supports one process, and there are several. Use make_private, or one process.")
    of_oracle: dict[str, Any] = {"loss_range": loss_range, "curvature": curvature, "micro_batch": micro_batch}
    of_oracle["views"] = views
    oracle = ModuleOracle(module, data, loss=loss, records=records, clip_norm=clip_norm, compile=compile, **of_oracle)
    try:
        settings: dict[str, Any] = {"records": records, "l2": l2, "clip_norm": clip_norm}
        target = target_of(purse, epsilon, delta, Neighbouring.parse(neighbouring), noise, records)
        if target is not None:
            facts = Facts(dimension=oracle.dimension, rule=target, bounds=oracle.bounds, **settings)
            purse = Purse.with_filter(chosen.filter(facts), noise=noise)
        assert purse is not None
        if target is None and epsilon is not None:
            purse = part_of(purse, positive(epsilon=epsilon))
        put_on_record(purse, oracle.untried, oracle.rows)
        settings |= {"callbacks": callbacks, "checkpoint": checkpoint, "block": block}
        with held(purse):
            result = train_with(oracle, WarmStarted(chosen, oracle.point), purse, **settings)
        oracle.set_point(result.point)
    finally:
        oracle.release_module()
    return Fitted(module, result.trace, purse)
