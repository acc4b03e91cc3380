"""Every query as a plain loop over single rows, in float64: what all oracles must agree with."""

import math

import numpy as np

from privypurse.core.queries import ClassCounts, Count, CurvatureAlong, GradientAt, LossesAlong, SlopeAlong


def answer(X, target, query, *, loss, row_limit=1.0, constant=True):
    """Sum one record at a time. `target` is already encoded; a record that is not finite is left out."""
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
    score = row @ query.point
    if isinstance(query, GradientAt):
        gradient = loss.derivative(score, t) * row
        clip = math.inf if query.clip_norm is None else query.clip_norm
        length = np.linalg.norm(gradient)
        return gradient * min(1.0, clip / length) if length > 0 else gradient
    reach = row @ query.direction
    if isinstance(query, LossesAlong):
        clip = math.inf if query.clip_loss is None else query.clip_loss
        losses = np.minimum(loss.value(score - query.steps * reach, t), clip)
        return -(losses - losses[0])
    if isinstance(query, SlopeAlong):
        clip = math.inf if query.clip_slope is None else query.clip_slope
        return float(np.clip(loss.derivative(score, t) * reach, -clip, clip))
    assert isinstance(query, CurvatureAlong)
    clip = math.inf if query.clip_curvature is None else query.clip_curvature
    return float(min(loss.curvature(score, t) * reach**2, clip))
