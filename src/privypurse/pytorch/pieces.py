"""[RAW DATA] Batches of any size in pieces of one size: memory and compiled code see the piece, the sum does not."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from privypurse.pytorch.clipping import ClippedSum
from privypurse.pytorch.compiled import ClippedSums

# Records at a time, where nobody says how many: enough to keep a device busy.
ON_CPU, ELSEWHERE = 512, 4096


def piece_size(expected: float, sample_prob: float, at_most: int | None, device: torch.device) -> int:
    """Return how many records to take at a time, from public numbers only.

    A Poisson sample is larger than expected half of the time; three standard deviations more than expected fit in one piece.
    """
    spread = math.sqrt(expected * (1 - sample_prob))
    largest = max(1, math.ceil(expected + 3 * spread))
    limit = at_most or (ON_CPU if device.type == "cpu" else ELSEWHERE)
    passes = max(1, math.ceil(expected / limit)) if sample_prob == 1 else math.ceil(largest / limit)
    size = math.ceil(largest / passes)
    return min(-(-size // 8) * 8, limit) if limit >= 8 else limit


def sum_in_pieces(
    sums: ClippedSums, batch: Sequence[Tensor], size: int, clip_norm: float, where: torch.device
) -> ClippedSum:
    """Return the sum of clipped gradients over a batch, piece by piece.

    Guarantees
    ----------
    Pieces are added up in double precision; how many there are changes rounding and nothing else.
    """
    count = sum(shape.numel() for shape in sums.sizes.values())
    flat: Tensor | None = None
    within: Tensor | None = None
    for first in range(0, len(batch[0]), size):
        piece = [part[first : first + size].to(where, non_blocking=True) for part in batch]
        part_sum = sums(piece, size, clip_norm)
        flat = part_sum.flat.double() if flat is None else flat + part_sum.flat
        within = part_sum.within.double() if within is None else within + part_sum.within
    if flat is None or within is None:
        flat, within = (torch.zeros(shape, dtype=torch.float64, device=where) for shape in ((count,), ()))
    return ClippedSum(flat, within)
