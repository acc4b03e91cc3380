"""Panels shared by Figures 2 and 3 of the dynamic-noise paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privypurse_lab.papers import drawing
from privypurse_lab.papers.cells import Result
from privypurse_lab.papers.dynamic_noise.influence import at_every_step
from privypurse_lab.papers.intervals import half_width
from privypurse_lab.papers.items import NOT_PRIVATE

# The paper's schedules decide; "dynamic, retrained" on the squared loss is ours.
GAINS, RETRAINED = ("dynamic", "exponential"), "dynamic, retrained"
# Colours of schedules in all panels; the user's come after.
ORDER = ("uniform", "dynamic", "exponential", "dynamic, retrained", "expinfl", "momexpinfl")


@dataclass(frozen=True)
class Gap:
    """Final loss of a schedule relative to even noise, in percent, over common seeds.

    Parameters
    ----------
    mean, half : float
        Mean, and half of its 95 percent interval.
    steps : int
        Number of steps.
    loss : float
        Mean final loss.
    over : tuple of float
        Percentages of all runs.
    """

    mean: float
    half: float
    steps: int
    loss: float
    over: tuple[float, ...] = field(default=(), repr=False)

    def lower(self, tests: int) -> bool:
        """Whether the schedule is significantly lower, over a number of tests."""
        return self.mean < -half_width(self.over, tests)

    def higher(self, tests: int) -> bool:
        """Whether the schedule is significantly higher, over a number of tests."""
        return self.mean > half_width(self.over, tests)


def percent(losses: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return relative differences of losses in percent, pair by pair."""
    return [100 * (loss / other - 1) for loss, other in zip(losses, others, strict=True)]


def gaps(schedules: Mapping[str, Mapping[str, Any]]) -> dict[str, Gap]:
    """Compare every schedule with the even one."""
    found = {}
    for name, each in schedules.items():
        over = percent(each["losses"], schedules["uniform"]["losses"])
        half = 0.0 if name == "uniform" else half_width(over)
        found[name] = Gap(
            float(np.mean(over)),
            half,
            int(each.get("steps", len(each["noise"]))),
            float(np.mean(each["losses"])),
            tuple(over),
        )
    return found


def stamp(sound: bool) -> str:
    """Return the value of the column "private"."""
    return "yes" if sound else NOT_PRIVATE


def relative_rows(panel: str, found: Mapping[float, Mapping[str, Gap]], sound: bool) -> list[dict[str, Any]]:
    """Return the rows of a panel of relative losses."""
    return [
        row(panel, name, scale, gap.mean, sound, half=gap.half, steps=gap.steps, loss=gap.loss)
        for scale, each in found.items()
        for name, gap in each.items()
    ]


def row(
    panel: str,
    name: str,
    x: float,
    value: float,
    sound: bool,
    *,
    half: float | str = "",
    steps: int | str = "",
    loss: float | str = "",
) -> dict[str, Any]:
    """Return one row of the CSV file; all have the same columns."""
    return {
        "panel": panel,
        "line": name,
        "x": x,
        "value": value,
        "half of 95 % interval": half,
        "steps": steps,
        "loss": loss,
        "private": stamp(sound),
    }


def exponential_shape(result: Result) -> float:
    """Return the R^2 of a line through the logarithms of retrained influences."""
    kept = [(step, value) for step, value in zip(result["at"], result["retrained"], strict=True) if value > 0]
    if len(kept) < 3:
        return 0.0
    steps, values = zip(*kept, strict=True)
    return float(np.corrcoef(steps, np.log(values))[0, 1]) ** 2


def steepness(result: Result) -> float:
    """Return the retrained influence of the last third of the steps over that of the first."""
    values = at_every_step(result["at"], result["retrained"], result["steps"])
    third = max(1, len(values) // 3)
    return float(values[-third:].mean() / values[:third].mean())


def noise_helps(result: Result) -> bool:
    """Return whether noise in all steps lowers the final loss: the sum of influences is negative.

    A schedule may then end lower because it has more noise where noise helps.
    """
    steps = np.arange(1, result["steps"] + 1)
    return float(np.interp(steps, result["at"], result["retrained"]).sum()) < 0


def number_of(name: str, extra: Sequence[str]) -> int:
    """Return the colour of a schedule."""
    return ORDER.index(name) if name in ORDER else len(ORDER) + list(extra).index(name)


def draw_influences(axis: Any, found: Mapping[float, Result], title: str) -> None:
    """Draw influence by step for some data scales, without estimates of zero or less."""
    for number, (scale, result) in enumerate(found.items()):
        shown = [(step, value) for step, value in zip(result["at"], result["retrained"], strict=True) if value > 0]
        style = drawing.style(number, private=False)
        if shown:
            steps, values = zip(*shown, strict=True)
            axis.plot(steps, values, **style, label=f"scale {scale:g}")
        if result["curvature"]:
            least = max(result["curvature"]) * 1e-6
            line = np.array(result["curvature"])
            times = np.arange(1, line.size + 1)
            axis.plot(times[line > least], line[line > least], color=drawing.colour(number), lw=0.8, ls="-")
    axis.set(yscale="log", xlabel="step t", ylabel="influence of $\\sigma_t^2$", title=title)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * (high / low) ** 0.25)  # room for the legend
    axis.legend(frameon=False, fontsize=7, ncols=2, loc="upper left")


def draw_relative(
    axis: Any,
    found: Mapping[float, Mapping[str, Gap]],
    sound: bool,
    title: str,
    variances: Mapping[float, float] | None = None,
    extra: Sequence[str] = (),
) -> None:
    """Draw relative losses with intervals over data scale, and the variance of influence."""
    scales = list(found)
    names = list(next(iter(found.values())))
    nudge = 0.018 * (max(scales) - min(scales) or 1)
    for name in names:
        number = number_of(name, extra)
        if name == "uniform":
            axis.axhline(
                0, color=drawing.colour(number), lw=1.6, ls="-" if sound else "--", label=drawing.label(name, sound)
            )
            continue
        shift = (names.index(name) - len(names) / 2) * nudge
        axis.errorbar(
            [scale + shift for scale in scales],
            [found[scale][name].mean for scale in scales],
            yerr=[_finite(found[scale][name].half) for scale in scales],
            capsize=2.5,
            **drawing.style(number, sound),
            label=drawing.label(name, sound),
        )
    if len(scales) == 1:
        axis.set_xlim(scales[0] - 5, scales[0] + 5)
    low, high = axis.get_ylim()
    if max(-low, high) > 6:
        # A schedule that fails must not flatten the others.
        axis.set_yscale("symlog", linthresh=1.0, linscale=0.8)
        axis.set_ylim(low, high)
        marks = (-100, -50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
        drawing.number_ticks(axis.yaxis, [mark for mark in marks if low <= mark <= high])
    axis.set(xlabel="data scale", xticks=scales, ylabel="loss against uniform (%)", title=title)
    if variances:
        second = axis.twinx()
        second.plot(scales, [variances[scale] for scale in scales], color="0.45", ls=":", marker=".", lw=1.2)
        second.set(yscale="log")
        second.set_ylabel("$T^2$ Var $\\sqrt{q_t}$ (dotted)", color="0.45", fontsize=7)
        second.tick_params(axis="y", which="both", labelsize=7, colors="0.45")
        second.grid(False)


def _finite(value: float) -> float:
    return value if np.isfinite(value) else 0.0
