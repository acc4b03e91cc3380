"""[RAW DATA] Softmax regression on several views of each record: the gradient of a record is their mean."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.queries import Count, GradientAt, Query
from privypurse.losses._bounds import Bounds
from privypurse.pytorch._clipping import BLOCK, GRAM_GUARD, MARGIN, full_precision, padded

LARGEST_POINT = 1e15  # scores stay finite
PIECE = 4 * BLOCK, 32 * BLOCK  # records at a time, on the CPU and elsewhere


class ViewsOracle:
    """Answers queries on a softmax model of K views of each record, such as shifted copies of an image.

    Parameters
    ----------
    views : Tensor of shape (K, n, d)
        Features in single precision, which are taken over and scaled to length 1.
    target : Tensor of shape (n,)
        Classes, from 0.
    classes : int
        Number of classes.
    constant : float
        Value of the constant column, which comes last.

    Attributes
    ----------
    at_once : int
        Number of views in a gradient, the next ones at each query; all K by default. Fewer take less time.

    Guarantees
    ----------
    A record adds the mean of the gradients of its views, scaled down to the clip norm of the query, so
    views cost nothing. It adds nothing if one of its features is not finite. The squared length of the
    mean is ``sum_ij <r_i, r_j> <x_i, x_j> / K^2`` over rows x and derivatives r of all pairs of views.
    A record adds a row of length at most 1 to `total`. Rounding is as for modules.
    """

    has_constant = True

    def __init__(self, views: Tensor, target: Tensor, *, classes: int, constant: float) -> None:
        self._views, self._target, self._classes, self._constant = views, target, classes, constant
        self.at_once, self._turn = len(views), 0
        self._piece = PIECE[views.device.type != "cpu"]
        self._sane = torch.isfinite(views.sum((0, 2)))
        self._views[:, ~self._sane] = 0.0
        self.dimension = (views.shape[2] + 1) * classes
        self._scale()

    def centre(self, point: Any) -> None:
        """Subtract a public point from all rows, and scale them to length 1 again."""
        self._views -= torch.as_tensor(np.asarray(point), dtype=torch.float32, device=self._views.device)
        self._scale()

    @property
    def bounds(self) -> Bounds:
        """Public constants of the mean loss."""
        longest = math.hypot(1.0, self._constant)
        return Bounds(math.sqrt(2) * longest, longest**2 / 2, math.log(self._classes))

    def total(self) -> Sensitive:
        """Return the sum over records of the mean row of their views."""
        parts = [part.mean(0)[sane].sum(0, dtype=torch.float64) for part, sane in self._pieces(self._sane)]
        total = (1 - MARGIN) * sum(parts, torch.zeros(self._views.shape[2], device=self._views.device))
        return Sensitive(total.cpu().numpy(), norm=Norm.L2, add_remove=1.0, replace_one=2.0)

    def answer(self, query: Query, *, sample_prob: float = 1.0, noise: NoiseSource | None = None) -> Sensitive:
        """Answer a query with a sealed box: gradients, or the number of records. Of all records only."""
        if sample_prob != 1:
            raise InvalidArgument(
                f"sample_prob must be 1 for views; got {sample_prob!r}. Use a method of full batches."
            )
        if isinstance(query, Count):
            return Sensitive(float(len(self._target)), norm=Norm.L2, add_remove=1.0, replace_one=1.0)
        if not isinstance(query, GradientAt):
            raise InvalidArgument(f"expected a GradientAt or Count query, got {shown(type(query))}.")
        implied = self.bounds.gradient
        bound = implied if query.clip_norm is None else min(query.clip_norm, implied)
        with full_precision(), torch.no_grad():
            total = self._gradient(torch.from_numpy(np.array(query.point)).to(self._views.device), bound)
        self._turn = (self._turn + self.at_once) % len(self._views)
        return Sensitive(total.cpu().numpy(), norm=Norm.L2, add_remove=bound, replace_one=2 * bound)

    def _gradient(self, point: Tensor, bound: float) -> Tensor:
        if torch.linalg.vector_norm(point) > LARGEST_POINT:
            raise InvalidArgument(f"point has diverged: its length is above {LARGEST_POINT:g}. Use smaller steps.")
        weights, inside = point.float().reshape(-1, self._classes), bound * (1 - MARGIN)
        total, columns = point.new_zeros(weights.shape), weights[:-1].T.contiguous()
        used = [(self._turn + number) % len(self._views) for number in range(self.at_once)]
        own = self._products[:, used][:, :, used]
        for every, target, products, sane in self._pieces(self._target, own, self._sane):
            x = [every[number] for number in used]
            # Fastest in this order, on CPUs at least.
            scores = torch.stack([(columns @ view.T).T for view in x]) + self._constant * weights[-1]
            slopes = torch.softmax(scores, dim=-1)
            slopes -= F.one_hot(target, self._classes)
            between = slopes.transpose(0, 1)
            terms = (between @ between.mT).double() * products
            # Views may cancel; rounding is relative to this upper bound.
            loose = (terms.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt().sum(1)) ** 2
            length = (terms.sum((1, 2)).clamp(min=0) + GRAM_GUARD * loose).sqrt() / len(x)
            factor = torch.where(sane, inside / length.clamp(min=inside), 0.0) / len(x)
            slopes *= torch.where(torch.isfinite(factor), factor, 0.0).float()[:, None]
            for view, slope in zip(x, slopes, strict=True):
                total[:-1] += _in_blocks(slope, view)
            total[-1] += self._constant * slopes.sum((0, 1), dtype=torch.float64)
        return total.flatten()

    def _scale(self) -> None:
        """Scale all rows to length 1, but for those of zeros, and compute the products of a record's views."""
        found = []
        with full_precision():
            for (x,) in self._pieces():
                x.copy_(of_length_one(x))
                found.append((x.transpose(0, 1) @ x.permute(1, 2, 0)).double() + self._constant**2)
        self._products = torch.cat(found)

    def _pieces(self, *others: Tensor) -> Any:
        """Return a few records at a time: their views, and their part of other tensors."""
        whole = [torch.split(other, self._piece) for other in others]
        return zip(torch.split(self._views, self._piece, dim=1), *whole, strict=True)


def _in_blocks(slopes: Tensor, rows: Tensor) -> Tensor:
    """Return ``rows' slopes``: in single precision within blocks of records, and in double across them."""
    size = math.ceil(len(rows) / BLOCK) * BLOCK
    left, right = (padded(part, 0, size).reshape(-1, BLOCK, part.shape[1]) for part in (slopes, rows))
    return (left.mT @ right).sum(0, dtype=torch.float64).mT


def of_length_one(rows: Tensor) -> Tensor:
    """Return rows scaled to length 1, but for those of zeros."""
    # First by their largest number, or squares could underflow and leave rows longer than 1.
    within = rows / rows.abs().amax(-1, keepdim=True).clamp(min=1e-30)
    scaled: Tensor = within / within.norm(dim=-1, keepdim=True).clamp(min=1e-15)
    return scaled
