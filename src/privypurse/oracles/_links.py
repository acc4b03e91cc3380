"""Compiled loss functions on small buffers, tested against the readable ones in ``losses``.

Every function works on a block of a few hundred scores, in loops that the compiler vectorises.
Hence the exponential function here: a call to the C library's is not vectorised.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LOGISTIC, HINGE, HUBER_HINGE = 0, 1, 2  # others are squared losses
# The logistic loss at evenly spaced steps, where neighbouring exponentials differ by a factor.
EVEN_LOGISTIC = 4
POISSON, GAMMA = 5, 6
_TINY = 1e-100  # as in ``losses``

# Allow fused multiply-add and several partial sums, but do not assume that NaN and infinity are
# absent: such rows are handled here.
FAST = {"contract", "reassoc", "nsz", "arcp"}


@intrinsic
def _double_from_bits(typing_context: Any, bits: Any) -> Any:
    """Reinterpret 64 bits as a double."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@njit(inline="always", error_model="numpy")
def exponential(x: float) -> float:
    """Return exp(x) to about 1e-14 relative, with x clipped to [-708, 708]; NaN counts as -708."""
    x = min(max(x, -708.0), 708.0)
    k = math.floor(x * 1.4426950408889634 + 0.5)
    # ln 2 in two parts, so that the remainder is exact.
    r = (x - k * 6.93145751953125e-1) - k * 1.42860682030941723212e-6
    p = 1.0 / 39916800
    p = p * r + 1.0 / 3628800
    p = p * r + 1.0 / 362880
    p = p * r + 1.0 / 40320
    p = p * r + 1.0 / 5040
    p = p * r + 1.0 / 720
    p = p * r + 1.0 / 120
    p = p * r + 1.0 / 24
    p = p * r + 1.0 / 6
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return float(p * _double_from_bits((np.int64(k) + 1023) << 52))


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def slopes(code: int, parameter: float, clip: float, score: Any, target: Any, out: Any, count: int) -> None:
    """Write the derivative of each record's loss with respect to its score, clipped."""
    if code == LOGISTIC:
        for i in range(count):
            t = target[i]
            out[i] = min(max(-t / (1.0 + exponential(t * score[i])), -clip), clip)
    elif code == HINGE:
        for i in range(count):
            t = target[i]
            out[i] = min(max(-t if t * score[i] < 1.0 else 0.0, -clip), clip)
    elif code == HUBER_HINGE:
        inverse = 1.0 / (2.0 * parameter)
        for i in range(count):
            t = target[i]
            out[i] = min(max(-t * min(max((1.0 + parameter - t * score[i]) * inverse, 0.0), 1.0), -clip), clip)
    elif code == POISSON:
        for i in range(count):
            out[i] = min(max(exponential(score[i]) - target[i], -clip), clip)
    elif code == GAMMA:
        for i in range(count):
            out[i] = min(max(1.0 - target[i] * exponential(-score[i]), -clip), clip)
    else:
        for i in range(count):
            out[i] = min(max(score[i] - target[i], -clip), clip)


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def sum_of_losses(loss: Any, clip_loss: float, step: float, work: Any, count: int) -> float:
    """Return a block's sum of ``weight * min(loss(score - step * shift), clip_loss)``.

    Weights are 0 or 1. Only differences between steps are meaningful: a constant may be added. The
    loss is linear with this slope beyond the knee. The logarithms of the logistic loss are taken of
    the product of up to 256 factors between 1 and 2, which fits in a double.
    """
    code, parameter, _, knee, slope = loss
    score, shift, weight, target = work[0], work[1], work[2], work[10]
    total = 0.0
    if code == LOGISTIC and clip_loss == math.inf:
        # A row of weight 0 has score and target 0, so it adds ln 2 at every step, which cancels.
        product = 1.0
        for i in range(count):
            z = target[i] * (score[i] - step * shift[i])
            inside = max(z, knee)
            product *= 1.0 + exponential(-abs(inside))
            total += max(-inside, 0.0) + slope * max(knee - z, 0.0)
        return total + math.log(product)
    if code == LOGISTIC:
        product = 1.0
        # Margin at which the loss reaches its clip: on the linear or on the curved part.
        at_knee = math.log1p(math.exp(-knee)) if knee > -700.0 else math.inf
        if at_knee < clip_loss:
            threshold = knee - (clip_loss - at_knee) / slope
        else:
            threshold = -math.log(math.expm1(clip_loss)) if clip_loss < 700.0 else -clip_loss
        for i in range(count):
            z = target[i] * (score[i] - step * shift[i])
            inside = max(z, knee)
            keep = weight[i] if z >= threshold else 0.0
            product *= 1.0 + keep * exponential(-abs(inside))
            linear = max(-inside, 0.0) + (slope * (knee - z) if z < knee else 0.0)
            total += linear if keep > 0.0 else (clip_loss * weight[i] if z < threshold else 0.0)
        return total + math.log(product)
    if code == HINGE:
        for i in range(count):
            z = target[i] * (score[i] - step * shift[i])
            total += weight[i] * min(slope * max(0.0, 1.0 - z), clip_loss)
    elif code == HUBER_HINGE:
        for i in range(count):
            z = target[i] * (score[i] - step * shift[i])
            inside = max(z, knee)
            rounded = max(0.0, 1.0 + parameter - inside)
            value = 1.0 - inside if inside < 1.0 - parameter else rounded * rounded / (4.0 * parameter)
            value += slope * (knee - z) if z < knee else 0.0
            total += weight[i] * min(value, clip_loss)
    elif code in (POISSON, GAMMA):
        for i in range(count):
            t = max(target[i], _TINY)
            u = score[i] - step * shift[i] - math.log(t)
            if code == POISSON:
                inside = min(max(u, math.log1p(-slope / t) if slope < t else -math.inf), math.log1p(slope / t))
                value = t * (math.expm1(min(inside, 708.0)) - inside)
            else:
                inside = min(max(u, -math.log1p(slope)), -math.log1p(-slope) if slope < 1.0 else math.inf)
                value = math.expm1(min(-inside, 708.0)) + inside
            value += slope * abs(u - inside) if u != inside else 0.0
            total += weight[i] * min(value, clip_loss)
    else:
        for i in range(count):
            distance = abs(score[i] - step * shift[i] - target[i])
            inside = min(distance, knee)
            value = inside * inside / 2.0 + (slope * (distance - knee) if distance > knee else 0.0)
            total += weight[i] * min(value, clip_loss)
    return total


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def start_even_losses(knee: float, work: Any, first: float, spacing: float, count: int) -> None:
    """Prepare a block for `next_even_loss`: margins, exponentials and their change per step."""
    score, shift, target = work[0], work[1], work[10]
    for i in range(count):
        margin, change = target[i] * (score[i] - first * shift[i]), spacing * target[i] * shift[i]
        work[3, i], work[4, i] = exponential(-margin), exponential(change)
        # Distance below the knee, where the loss is linear.
        work[5, i], work[6, i] = knee - margin, change


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def next_even_loss(at_knee: float, slope: float, work: Any, count: int) -> float:
    """Return a block's sum of logistic losses at the current step, and advance to the next.

    `at_knee` is exp(-knee), at most exp(2.5): 256 factors of at most 13.2 fit in a double.
    """
    product, below = 1.0, 0.0
    for i in range(count):
        product *= 1.0 + min(work[3, i], at_knee)
        below += max(work[5, i], 0.0)
        work[3, i] *= work[4, i]
        work[5, i] += work[6, i]
    return slope * below + math.log(product)
