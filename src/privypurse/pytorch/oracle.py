"""[RAW DATA] The oracle of a module: what the methods of the papers ask of a data set, answered for a deep model."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privypurse.core.checks import FloatArray, ordinary, positive, positive_integer, shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.queries import Count, GradientAt, LossesAlong, Query
from privypurse.core.randomness import NoiseSource
from privypurse.core.sensitive import Norm, Sensitive
from privypurse.losses.bounds import Bounds
from privypurse.oracles.sampling import check_sampling, poisson_rows
from privypurse.pytorch.checks import check_module
from privypurse.pytorch.clipping import MARGIN, check_clip_norm
from privypurse.pytorch.compiled import ClippedSums, Loss
from privypurse.pytorch.pieces import piece_size, sum_in_pieces
from privypurse.pytorch.rows import Indexes, Rows, rows_of
from privypurse.pytorch.taps import Taps
from privypurse.pytorch.trial import try_out


class ModuleOracle:
    """Holds the records and the module, and answers with sealed boxes; for `privypurse.training.train` and all methods.

    Parameters
    ----------
    module : Module
        The module, on its device. A point is its trained parameters, all after each other.
    data : DataLoader, Dataset or tuple of Tensor
        The records: inputs and, last, targets.
    loss : callable
        ``loss(module(*inputs), target)``.
    records : float
        The public number of records.
    clip_norm : float, default 0.1
        Largest length of one record's gradient, where a query has none of its own.
    curvature : float or None
        What methods take for the largest curvature, so that steps are its inverse; the clip norm by default, with which a step
        is as long as the mean of unit gradients.
    loss_range : float, default 1.0
        For line searches: how much the loss of one record can change along a search, at most; more is clipped.
    micro_batch, compile
        As for `make_private`.

    Guarantees
    ----------
    Gradients: as for `clipped_sum`. Losses along a search: each record's losses are taken relative to its first, and clipped to
    half the range on either side (or to [0, clip_loss], where the query says so); a loss that is not finite counts as zero.
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
            raise InvalidArgument(
                "module has no parameters that require a gradient: there is nothing to train. Nothing was spent."
            )
        self._device = next(iter(self._trained.values())).device
        self._clip_norm, self._loss_range = check_clip_norm(clip_norm=clip_norm), ordinary(loss_range=loss_range)
        self._records = positive(records=records)
        self._micro_batch = None if micro_batch is None else positive_integer(micro_batch=micro_batch)
        self._curvature = self._clip_norm if curvature is None else positive(curvature=curvature)
        self._taps = Taps(module, self._trained)
        self._taps.listening = False  # it listens while it answers, and at no other time
        compiled = self._device.type != "cpu" if compile is None else bool(compile)
        try:
            self.tried = try_out(module, self._taps, self._trained, self._rows.fetch(np.zeros(1, dtype=np.intp)))
            self._sums = ClippedSums(module, self._taps, loss, self._trained, compile=compiled)
        except BaseException:
            self._taps.remove()
            raise

    @property
    def dimension(self) -> int:
        """Number of trained parameters."""
        return sum(parameter.numel() for parameter in self._trained.values())

    @property
    def bounds(self) -> Bounds:
        """What methods plan with: nothing bounds the gradients of a module but clipping, and the curvature is a convention."""
        return Bounds(gradient=float("inf"), smoothness=self._curvature, initial_gap=1.0)

    @property
    def rows(self) -> Rows:
        """Where the records come from."""
        return self._rows

    @property
    def point(self) -> FloatArray:
        """The module's parameters as they are."""
        parts = [parameter.detach().flatten().double().cpu() for parameter in self._trained.values()]
        return np.asarray(torch.cat(parts).numpy())

    def set_point(self, point: FloatArray) -> None:
        """Give the module these parameters."""
        with torch.no_grad():
            for name, value in self._values(point).items():
                self._trained[name].copy_(value)

    def answer(self, query: Query, *, sample_prob: float = 1.0, noise: NoiseSource | None = None) -> Sensitive:
        """Answer a query with a sealed box, from all records or from a fresh Poisson sample."""
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
            f"a module answers GradientAt, LossesAlong and Count; got {shown(type(query))}. Use Nesterov, DPAGD, ..."
        )

    def _gradient(self, query: GradientAt, rows: Indexes, size: int, sample_prob: float) -> Sensitive:
        bound = self._clip_norm if query.clip_norm is None else check_clip_norm(clip_norm=query.clip_norm)
        self.set_point(query.point)
        with self._in_mode(training=True):
            total = np.zeros(self.dimension)
            # Fetched block by block: a data set that is not in memory need not fit there.
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
                losses = losses.clamp(0, bound) if query.clip_loss is not None else self._relative(losses, bound)
                # A record of which any loss is not a number says nothing at all.
                known = torch.isfinite(losses).all(dim=1, keepdim=True)
                totals += torch.where(known, losses, 0.0).sum(0).cpu().numpy()
        totals = -totals * (1 - MARGIN)
        if query.public_terms is not None:
            totals = totals - query.public_terms
        return Sensitive(totals, norm=Norm.RANGE, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

    @contextlib.contextmanager
    def _in_mode(self, *, training: bool) -> Iterator[None]:
        """Run the module in a mode; in training, layers that were put in another one stay in it."""
        modes = {layer: layer.training for layer in self._module.modules()}
        if not training or not self._module.training:
            self._module.train(training)
        try:
            yield
        finally:
            for layer, mode in modes.items():
                layer.training = mode

    @staticmethod
    def _relative(losses: Tensor, bound: float) -> Tensor:
        return (losses - losses[:, :1]).clamp(-bound / 2, bound / 2)

    def _values(self, point: FloatArray) -> dict[str, Tensor]:
        flat = torch.from_numpy(np.array(point)).to(self._device)
        sizes = [parameter.numel() for parameter in self._trained.values()]
        return {
            name: part.view(parameter.shape).to(parameter.dtype)
            for (name, parameter), part in zip(self._trained.items(), torch.split(flat, sizes), strict=True)
        }

    def release_module(self) -> None:
        """Take the taps off the module."""
        self._taps.remove()

    def __repr__(self) -> str:
        settings = f"clip_norm={self._clip_norm:g}, loss_range={self._loss_range:g}, records={self._records:g}"
        return f"<ModuleOracle: {type(self._module).__name__} with {self.dimension} parameters, {settings}>"
