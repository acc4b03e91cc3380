"""Queries check and freeze what they carry."""

import numpy as np
import pytest

from privypurse.core._errors import InvalidArgument
from privypurse.core.queries import GradientAt, LossesAlong

ZERO = np.zeros(2)


def test_a_query_does_not_change_when_the_optimizer_moves_on():
    point = np.zeros(2)
    query = GradientAt(point=point, clip_norm=1)
    point += 5
    assert query.point.tolist() == [0.0, 0.0]
    assert query.clip_norm == 1.0


def test_a_line_search_query():
    query = LossesAlong(point=ZERO, direction=[1, 0], steps=[0, 0.5], clip_loss=3)
    assert query.steps.tolist() == [0.0, 0.5]
    assert LossesAlong(point=ZERO, direction=ZERO, steps=[0.0]).clip_loss is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: GradientAt(point=[np.nan], clip_norm=1.0),
        lambda: GradientAt(point=ZERO, clip_norm=-1.0),
        lambda: GradientAt(point=ZERO, clip_norm=True),
        lambda: GradientAt(point="abc", clip_norm=1.0),
        lambda: LossesAlong(point=ZERO, direction=[1.0], steps=[0.0]),
        lambda: LossesAlong(point=ZERO, direction=ZERO, steps=[]),
        lambda: LossesAlong(point=ZERO, direction=ZERO, steps=[-0.1]),
        lambda: LossesAlong(point=ZERO, direction=ZERO, steps=[0.1], clip_loss=0.0),
        lambda: LossesAlong(point=ZERO, direction=[np.inf, 0], steps=[0.1]),
        lambda: LossesAlong(point=ZERO, direction=ZERO, steps=[0.1], clip_loss=np.nan),
    ],
)
def test_wrong_queries_are_refused(make):
    with pytest.raises(InvalidArgument):
        make()
