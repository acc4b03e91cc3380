"""[RAW DATA] From what the taps heard to the sum of clipped gradients: the bound of everything the engine releases."""

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

# Gradients are clipped this much inside the bound that is stated, so that rounding in single precision stays within it.
MARGIN = 2.0**-10
# Clip norms outside of these would meet the limits of single precision.
LEAST_CLIP_NORM, MOST_CLIP_NORM = 1e-12, 1e12
LEAST_FACTOR = 2.0**-100


def check_clip_norm(**named: float) -> float:
    """Refuse a clip norm with which lengths could vanish or overflow."""
    number, (name,) = positive(**named), named
    if not LEAST_CLIP_NORM <= number <= MOST_CLIP_NORM:
        raise InvalidArgument(f"{name} must be from 1e-12 to 1e12; got {number!r}. Pass for example {name}=1.0.")
    return number


@dataclass(frozen=True, eq=False)
class ClippedSum:
    """The sum of clipped gradients of some records, and how many of them were within the bound before.

    Parameters
    ----------
    flat : Tensor
        The sum, all parameters after each other.
    within : Tensor
        ``sum of (1 if the length was at most the bound, else 0) - 1/2`` over the records: what adaptive clipping looks at.
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
    """Clip each record's gradient to a length and add them up.

    Parameters
    ----------
    uses : list of Use
        What the taps heard of one forward and backward pass.
    sizes : dict of Size
        Shape of each trained parameter, in the order of the result.
    weights : Tensor of shape (records,)
        1 for a record, 0 for padding.
    clip_norm : float or Tensor
        The bound on the length of one record's gradient over all parameters.
    scale : float or Tensor
        What to multiply gradients by before they are clipped, such as the inverse of a loss scale.

    Guarantees
    ----------
    Each record adds a vector no longer than `clip_norm`, and nothing where its gradient is not finite; what it adds depends on
    the other records through rounding alone. Products are in single precision whatever the module computes in, sums of more than
    a few hundred records and lengths in double.
    """
    with torch.autocast(weights.device.type, enabled=False), torch.no_grad(), full_precision():
        squared, shared = _squared_lengths(uses, weights)
        lengths = squared.sqrt() * scale
        bound = clip_norm * (1 - MARGIN)
        # `scale` is part of the gradient; the factor holds it, so that the sums below need not.
        shrunk = scale * (bound / lengths.clamp(min=1e-100)).clamp(max=1.0)
        # A factor that vanishes in single precision would not bound what it is multiplied with.
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
    """Refuse a pass that was not over the batch of the loader, one record for each."""
    for use in uses:
        if use.records != records:
            raise InvalidArgument(
                f"a layer ({type(use.layer).__name__}) was run on {use.records} records where the loader gave {records}. "
                "Records must be the first dimension throughout, as the loader gave them: no repeating, mixing or slicing, and "
                "one row of positions for each record. Nothing was spent."
            )


def _squared_lengths(uses: list[Use], weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the squared length of each record's gradient, and the gradients of parameters that are used more than once.

    These are added up before they are measured, and what was measured is what is summed later: uses may cancel each other.
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
    """Keep sums and lengths in full single precision on devices that would round factors to ten bits."""
    before = torch.get_float32_matmul_precision()
    if before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
