"""A plan as a picture."""

import pytest

from privypurse.losses import Logistic
from privypurse.methods import DPAGD, Nesterov
from privypurse.training import Facts

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("method", [Nesterov(), DPAGD()])
def test_a_plot_shows_every_series_of_a_plan(method):
    budget = {"epsilon": 0.5, "delta": 1e-6, "neighbouring": "add-remove"}
    plan = method.plan(Facts.of(Logistic(clip_derivative=0.5), records=5_000, dimension=10, **budget))
    figure = plan.plot()
    drawn = {axes.get_title(): axes.lines[0].get_ydata() for axes in figure.axes}
    assert list(drawn["noise on each sum of gradients"]) == list(plan.noise_std)
    assert drawn["share of the spending so far"][-1] == pytest.approx(100)
    assert list(drawn["step sizes"]) == list(plan.step_sizes)
    assert all(axes.get_ylim()[1] > max(axes.lines[0].get_ydata()) for axes in figure.axes), "no line is on the edge"
    assert figure.get_suptitle().startswith(f"{plan.method}: {plan.steps} steps")
