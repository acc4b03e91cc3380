"""Plans as a page: noise, spending and step sizes of methods over steps, without data."""

from collections.abc import Callable, Sequence

from privypurse.report.figures import MOST_POINTS, SERIES, Drawing, Figure, Row, thinned
from privypurse.report.html import escaped, paragraph, whole_page
from privypurse.report.sections import figure
from privypurse.training.plan import Plan

DASHES = ("solid", "dash", "dot", "dashdot")


def render_plans(plans: Sequence[Plan], facts: str) -> str:
    """Return the page for plans of several methods from the same facts, given in words."""
    drawn = [
        _figure(plans, "noise", "Noise on each sum of gradients", "standard deviation", lambda plan: plan.noise_std),
        _figure(plans, "spending", "Share of the spending so far", "share", _shares),
        _figure(plans, "steps", "Step sizes", "step size", lambda plan: plan.step_sizes),
    ]
    drawn = [one for one in drawn if one.drawings[0].data]
    names = ", ".join(plan.method for plan in plans)
    header = (
        f"<header><h1>What {escaped(names if len(plans) < 4 else 'the methods')} would do</h1>"
        f"{paragraph(facts, 'lede')}{paragraph('Planned from public numbers; no data was touched.')}</header>"
    )
    return whole_page(
        title="Plan - privypurse",
        header=header,
        links=[(one.key, one.title) for one in drawn],
        main=[figure(one) for one in drawn],
        figures=drawn,
        closing="Everything on this page follows from public numbers.",
    )


def _shares(plan: Plan) -> list[float]:
    total, so_far, shares = sum(one**2 for one in plan.mu), 0.0, []
    for one in plan.mu:
        so_far += one**2
        shares.append(so_far / total)
    return shares


def _figure(
    plans: Sequence[Plan], key: str, title: str, unit: str, values_of: Callable[[Plan], Sequence[float]]
) -> Figure:
    data, spoken, rows = [], [], list[Row]()
    words = []
    for place, plan in enumerate(plans):
        values = values_of(plan)
        if not values:
            continue
        picked = thinned(len(values), MOST_POINTS)
        steps = [float(index + 1) for index in picked]
        shown = [values[index] for index in picked]
        colour, dash = SERIES[place % len(SERIES)], DASHES[(place // len(SERIES)) % len(DASHES)]
        line = {"color": colour, "width": 2, "dash": dash}
        data.append({"type": "scatter", "mode": "lines", "x": steps, "y": shown, "name": plan.method, "line": line})
        spoken.append(
            [f"{plan.method}, step {step:.0f}: {value:.4g}" for step, value in zip(steps, shown, strict=True)]
        )
        rows += [(plan.method, f"{index + 1}", f"{values[index]:.4g}") for index in thinned(len(values), 12)]
        first, last = f"{values[0]:.4g}", f"{values[-1]:.4g}"
        words.append(f"{plan.method}: {first} throughout" if first == last else f"{plan.method}: {first} to {last}")
    layout = {
        "xaxis": {"title": {"text": "step"}, "automargin": True},
        "yaxis": {"title": {"text": unit}, "automargin": True, "rangemode": "tozero"},
        "showlegend": len(data) > 1,
        "legend": {"orientation": "h", "y": -0.3},
    }
    caption = f"{title}, first to last step. " + "; ".join(words) + "."
    return Figure(
        key=key,
        title=title,
        drawings=(Drawing(data, layout, spoken, caption),),
        heads=("method", "step", unit),
        rows=rows,
        height=380 if len(data) > 1 else 300,
    )
