"""Queries check and freeze what they carry."""

import numpy as np
import pytest

from privypurse.core._errors import InvalidArgument
from privypurse.core.queries import GradientAt, LossesAlong, LossesAt

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


def test_public_terms_and_models_are_copied_and_frozen():
    terms, models = np.array([1.0, 2.0]), np.array([[1.0, 2.0]])
    along = LossesAlong(point=ZERO, direction=ZERO, steps=[0.0, 0.5], public_terms=terms)
    at = LossesAt(points=models, clip_loss=2)
    terms[0], models[0, 0] = 9.0, 9.0
    assert along.public_terms.tolist() == [1.0, 2.0]
    assert at.points.tolist() == [[1.0, 2.0]]
    assert at.clip_loss == 2.0
    assert not at.points.flags.writeable
    assert LossesAt(points=[1.0, 2.0]).points.shape == (1, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LossesAlong(point=ZERO, direction=ZERO, steps=[0.0], public_terms=[1.0, 2.0]),
        lambda: LossesAlong(point=ZERO, direction=ZERO, steps=[0.0], public_terms=[2e100]),
        lambda: LossesAt(points=[[np.nan]]),
        lambda: LossesAt(points=[]),
        lambda: LossesAt(points=[[[1.0]]]),
        lambda: LossesAt(points=[[1.0]], clip_loss=0.0),
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
