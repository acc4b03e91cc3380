"""Every query as a plain loop over single rows, in float64: what all oracles must agree with."""

import math

import numpy as np

from privypurse.core.queries import ClassCounts, Count, GradientAt, LossesAlong
from privypurse.oracles._encoding import ROUNDING_MARGIN


def answer(X, target, query, *, loss, row_limit=1.0, constant=True):
    """Sum one record at a time. `target` is already encoded; a record that is not finite is left
    out.
    """
    if isinstance(query, Count):
        return float(len(X))
    if isinstance(query, ClassCounts):
        return np.array([np.sum(target < 0), np.sum(target > 0)], dtype=float)
    limit = math.inf if row_limit is None else row_limit
    total = 0.0
    for x, t in zip(np.asarray(X, dtype=np.float64), target, strict=True):
        row = np.append(x, 1.0) if constant else x
        with np.errstate(over="ignore", invalid="ignore"):
            length = math.sqrt(float(row @ row)) if np.isfinite(row @ row) else math.inf
        if not (math.isfinite(length) and math.isfinite(t)):
            continue
        row = row * min(1.0, limit / length) if length > 0 else row
        total = total + one(row, float(t), query, loss, limit)
    size = (
        len(query.steps)
        if isinstance(query, LossesAlong)
        else len(query.point)
        if isinstance(query, GradientAt)
        else None
    )
    return np.zeros(size) if isinstance(total, float) and size else total


def one(row, t, query, loss, limit):
    """One record's contribution. Clips sit a little inside the bound, as the oracles' do."""
    inside = 1 - ROUNDING_MARGIN
    score = row @ query.point
    if isinstance(query, GradientAt):
        slope = float(loss.derivative(score, t))
        if query.clip_norm is None or query.clip_norm >= loss.lipschitz * limit:
            return np.clip(slope, -loss.lipschitz * inside, loss.lipschitz * inside) * row
        length = abs(slope) * np.linalg.norm(row)
        return slope * row * min(1.0, query.clip_norm * inside / length) if length > 0 else slope * row
    reach = row @ query.direction
    clip = math.inf if query.clip_loss is None else query.clip_loss
    losses = np.minimum(loss.value(score - query.steps * reach, t), clip)
    return -(losses - losses[0])
