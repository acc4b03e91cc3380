"""[RAW DATA] The oracle of a module: answers the queries of methods for a deep model."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privypurse.core._checks import FloatArray, ordinary, positive, positive_integer, shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.queries import Count, GradientAt, LossesAlong, Query
from privypurse.losses._bounds import Bounds
from privypurse.oracles._sampling import check_sampling, poisson_rows
from privypurse.pytorch._checks import check_module
from privypurse.pytorch._clipping import MARGIN, check_clip_norm
from privypurse.pytorch._compiled import ClippedSums, Loss, piece_size, sum_in_pieces
from privypurse.pytorch._module_state import ModuleState
from privypurse.pytorch._rows import Indexes, RecordSource, rows_of
from privypurse.pytorch._taps import Taps
from privypurse.pytorch._trial import Trials, kept_modes


class ModuleOracle:
    """Answers queries on a module and its records with sealed boxes, for `train` and all methods.

    A point is the concatenation of the trained parameters. `curvature` is the smoothness constant
    for methods, whose steps are its inverse; by default the clip norm: a step is then as long as the
    mean of unit gradients. `loss_range` is the range to which line searches clip the change of one
    record's loss. Other parameters are as for `fit`.

    Guarantees
    ----------
    Gradients: as for `clipped_sum`. Losses along a search are taken relative to the first loss of
    the record and clipped to half the range on either side, or to [0, clip_loss] where the query
    sets it. Losses of a record that are not all finite count as zero.
    """

    has_constant = False

    def __init__(
        self,
        module: nn.Module,
        data: Any,
        *,
        loss: Loss,
        records: float,
        clip_norm: float = 0.1,
        curvature: float | None = None,
        loss_range: float = 1.0,
        micro_batch: int | None = None,
        compile: bool | None = None,
    ) -> None:
        self._module = check_module(module)
        self._rows = rows_of(data)
        self._trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
        if not self._trained:
            raise InvalidArgument("module has nothing to train: no parameter requires a gradient. Unfreeze some.")
        self._device = next(iter(self._trained.values())).device
        self._clip_norm, self._loss_range = check_clip_norm(clip_norm=clip_norm), ordinary(loss_range=loss_range)
        self._records = positive(records=records)
        self._micro_batch = None if micro_batch is None else positive_integer(micro_batch=micro_batch)
        self._curvature = self._clip_norm if curvature is None else positive(curvature=curvature)
        self._taps = Taps(module, self._trained)
        self._taps.listening = False  # opened explicitly while it answers
        try:
            trials = Trials(module, self._taps, self._trained, records=self._records)
            self._state = ModuleState(module, trials.counters)
            one = self._rows.fetch(np.zeros(1, dtype=np.intp))
            self.untried = trials.ahead(one, with_loss=True, modes=(True, False))
            self._sums = ClippedSums(module, self._taps, loss, self._trained, compile=compile)
        except BaseException:
            self._taps.remove()
            raise

    @property
    def dimension(self) -> int:
        """Number of trained parameters."""
        return sum(parameter.numel() for parameter in self._trained.values())

    @property
    def bounds(self) -> Bounds:
        """Constants for planning: gradients are bounded by clipping only."""
        return Bounds(gradient=float("inf"), smoothness=self._curvature, initial_gap=1.0)

    @property
    def settings(self) -> dict[str, Any]:
        """Declared settings, by which a checkpoint recognises the oracle."""
        shapes = {name: list(value.shape) for name, value in self._trained.items()}
        limits = {"clip_norm": self._clip_norm, "loss_range": self._loss_range, "records": self._records}
        return {"module": type(self._module).__name__, "trained": shapes, **limits}

    @property
    def rows(self) -> RecordSource:
        """Source of the records."""
        return self._rows

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
        rows = np.arange(len(self._rows)) if sample_prob == 1 else poisson_rows(len(self._rows), sample_prob, noise)  # type: ignore[arg-type]
        size = piece_size(self._records * sample_prob, sample_prob, self._micro_batch, self._device)
        if isinstance(query, GradientAt):
            return self._gradient(query, rows, size, sample_prob)
        if isinstance(query, LossesAlong):
            return self._losses(query, rows, size, sample_prob)
        if isinstance(query, Count):
            return Sensitive(float(len(rows)), norm=Norm.L2, add_remove=1.0, replace_one=1.0, sample_prob=sample_prob)
        raise InvalidArgument(
            f"expected a GradientAt, LossesAlong or Count query, got {shown(type(query))}. Use Nesterov, DPAGD, ..."
        )

    def _gradient(self, query: GradientAt, rows: Indexes, size: int, sample_prob: float) -> Sensitive:
        bound = self._clip_norm if query.clip_norm is None else check_clip_norm(clip_norm=query.clip_norm)
        self.set_point(query.point)
        with self._in_mode(training=True):
            total = np.zeros(self.dimension)
            # Fetched block by block: the data set need not fit in memory.
            for first in range(0, len(rows), 8 * size):
                batch = self._rows.fetch(rows[first : first + 8 * size])
                total += sum_in_pieces(self._sums, batch, size, bound, self._device).flat.cpu().numpy()
        return Sensitive(total, norm=Norm.L2, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

    def _losses(self, query: LossesAlong, rows: Indexes, size: int, sample_prob: float) -> Sensitive:
        bound = self._loss_range if query.clip_loss is None else query.clip_loss
        candidates = [self._values(query.point - step * query.direction) for step in query.steps]
        totals = np.zeros(len(candidates))
        with self._in_mode(training=False):
            for first in range(0, len(rows), size):
                batch = [part.to(self._device) for part in self._rows.fetch(rows[first : first + size])]
                losses = torch.stack([self._sums.losses(batch, values).double() for values in candidates], dim=1)
                if query.clip_loss is None:
                    losses = (losses - losses[:, :1]).clamp(-bound / 2, bound / 2)
                else:
                    losses = losses.clamp(0, bound)
                known = torch.isfinite(losses).all(dim=1, keepdim=True)
                totals += torch.where(known, losses, 0.0).sum(0).cpu().numpy()
        totals = -totals * (1 - MARGIN)
        if query.public_terms is not None:
            totals = totals - query.public_terms
        return Sensitive(totals, norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

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
        sizes = [parameter.numel() for parameter in self._trained.values()]
        return {
            name: part.view(parameter.shape).to(parameter.dtype)
            for (name, parameter), part in zip(self._trained.items(), torch.split(flat, sizes), strict=True)
        }

    def release_module(self) -> None:
        """Remove the hooks from the module."""
        self._taps.remove()

    def __repr__(self) -> str:
        settings = f"clip_norm={self._clip_norm:g}, loss_range={self._loss_range:g}, records={self._records:g}"
        return f"<ModuleOracle: {type(self._module).__name__} with {self.dimension} parameters, {settings}>"
