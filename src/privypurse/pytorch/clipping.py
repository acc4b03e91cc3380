"""[RAW DATA] Sum of clipped per-sample gradients: the bound of everything the engine releases."""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from privypurse.core.checks import positive
from privypurse.core.errors import InvalidArgument
from privypurse.pytorch.layers import Use, masked, weigh

# Relative margin of clipping, so that rounding in single precision stays within the stated bound.
MARGIN = 2.0**-10
LEAST_CLIP_NORM, MOST_CLIP_NORM = 1e-12, 1e12  # set by single precision
LEAST_FACTOR = 2.0**-100


def check_clip_norm(**named: float) -> float:
    """Raise InvalidArgument for a clip norm at which norms could underflow or overflow."""
    number, (name,) = positive(**named), named
    if not LEAST_CLIP_NORM <= number <= MOST_CLIP_NORM:
        raise InvalidArgument(f"{name} must be from 1e-12 to 1e12; got {number!r}. Pass for example {name}=1.0.")
    return number


@dataclass(frozen=True, eq=False)
class ClippedSum:
    """Sum of clipped gradients, concatenated over parameters, and number within the clip norm.

    `within` is the sum over records of 1/2 if the norm was within the bound, else -1/2.
    """

    flat: Tensor
    within: Tensor


def clipped_sum(
    uses: list[Use],
    sizes: dict[str, torch.Size],
    weights: Tensor,
    clip_norm: Tensor | float,
    scale: Tensor | float = 1.0,
) -> ClippedSum:
    """Clip each record's gradient and add them up, in the order of `sizes`.

    `weights` is 1 for a record, 0 for padding. `scale` is a factor for gradients before clipping,
    such as the inverse of a loss scale.

    Guarantees
    ----------
    Each record adds a vector of norm at most `clip_norm`, and zero where its gradient is not
    finite. It depends on other records through rounding alone. Products are in single precision
    whatever the module's precision; norms, and sums of more than a few hundred records, in double.
    """
    with torch.autocast(weights.device.type, enabled=False), torch.no_grad(), full_precision():
        squared, shared = _squared_lengths(uses, weights)
        lengths = squared.sqrt() * scale
        bound = clip_norm * (1 - MARGIN)
        # `scale` is part of the factor, so that the sums below need not apply it.
        shrunk = scale * (bound / lengths.clamp(min=1e-100)).clamp(max=1.0)
        # A factor that underflows in single precision would not bound the product.
        fit = torch.isfinite(lengths) & (weights > 0) & (shrunk >= LEAST_FACTOR)
        factors = torch.where(fit, shrunk, lengths.new_zeros(())).float()
        sums = {name: weigh(masked(each, fit), factors) for name, each in shared.items()}
        for use in uses:
            if not shared.keys() & set(use.names.values()):
                sums |= {use.names[short]: total for short, total in use.rule.weighted_sums(use, factors, fit).items()}
            use.kept = {}
        nothing = lengths.new_zeros(())
        parts = [sums[name].flatten() if name in sums else nothing.expand(size.numel()) for name, size in sizes.items()]
        within = (torch.where(lengths <= bound, 0.5, -0.5) * weights).sum()
        return ClippedSum(torch.cat(parts), within)


def check_records(uses: list[Use], records: int) -> None:
    """Raise InvalidArgument unless each use was over the loader's records."""
    for use in uses:
        if use.records != records:
            raise InvalidArgument(
                f"a layer ({type(use.layer).__name__}) was run on {use.records} records, but the batch has {records}. Keep "
                "records as the first dimension of each layer's input, as the loader returned them: do not repeat, mix "
                "or slice them, and pass one row of positions for each record."
            )


def _squared_lengths(uses: list[Use], weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return squared norms of per-sample gradients, and gradients of parameters used repeatedly.

    The latter are added before the norm is taken, since uses may cancel.
    """
    times = Counter(name for use in uses for name in use.names.values())
    total = weights.new_zeros(weights.shape[0], dtype=torch.float64)
    shared: dict[str, Tensor] = {}
    for use in uses:
        broken = use.rule.broken(use)
        if broken is not None:
            total = total.masked_fill(broken, math.inf)
        if all(times[name] == 1 for name in use.names.values()):
            total = total + use.rule.squared_lengths(use)
            continue
        for short, each in use.rule.gradients(use).items():
            name = use.names[short]
            shared[name] = each if name not in shared else shared[name] + each
    for each in shared.values():
        total = total + each.flatten(1).double().square().sum(1)
    return total, shared


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Disable reduced precision (TF32) in matrix products."""
    before = torch.get_float32_matmul_precision()
    if before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
