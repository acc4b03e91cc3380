"""Numbers printed by Deng et al. (ADP-SGD) for Adult at delta 1e-8: accuracy in percent, seconds.

Their other results, and those of Lee and Kifer (DP-AGD), are only in figures that the scans lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from privypurse_lab.papers.accuracy_study import Measured, at
from privypurse_lab.papers.items import NOT_PRIVATE, Sheet, Short
from privypurse_lab.papers.methods_compared import is_private


@dataclass(frozen=True)
class Published:
    """One number of the paper."""

    model: str
    epsilon: float
    method: str
    accuracy: float
    seconds: float


# Their method, by our name of what was run for the number.
ADULT = (
    Published("logistic", 0.05, "DP-AGD, as published", 79.00, 25.91736),
    Published("logistic", 0.05, "ADP-SGD, as published", 81.63, 0.5679),
    Published("svm", 0.05, "DP-AGD, as published", 67.93, 25.86),
    Published("svm", 0.05, "ADP-SGD, as published", 71.05, 0.94),
    Published("svm", 0.2, "DP-AGD, as published", 83.23, 25.55),
    Published("svm", 0.2, "ADP-SGD, as published", 83.50, 2.68),
    Published("svm", 0.8, "DP-AGD, as published", 84.25, 26.93),
    Published("svm", 0.8, "ADP-SGD, as published", 84.05, 4.30),
    Published("svm", 0.8, "SGD-MA (orders to 32)", 84.22, 11.76),  # sound
)
SOUND = {
    "DP-AGD, as published": "DP-AGD, mended",
    "ADP-SGD, as published": "ADP-SGD",
    "SGD-MA (orders to 32)": "DP-SGD (PLD)",
}
CLOSE = 0.5  # points of accuracy


@dataclass(frozen=True)
class Comparison:
    """A published number, the result of the published code, and that of the sound version."""

    published: Published
    ours: Measured
    sound: Measured | None

    @property
    def off(self) -> float:
        """Points by which ours is above the published one."""
        return self.ours.mean("accuracy") - self.published.accuracy

    @property
    def reached(self) -> bool:
        """Whether the sound version is at most half a point below the published number."""
        return self.sound is not None and self.sound.mean("accuracy") >= self.published.accuracy - CLOSE

    @property
    def close(self) -> bool:
        """Whether the two are within half a point."""
        return abs(self.off) <= CLOSE


def compared(found: Sequence[Measured], model: str, methods: Sequence[str] = ()) -> list[Comparison]:
    """Compare the published numbers with results on Adult."""
    comparisons = []
    for number in ADULT:
        ours = at(found, "adult", number.method, number.epsilon)
        if number.model == model and ours is not None and (not methods or number.method in methods):
            comparisons.append(Comparison(number, ours, at(found, "adult", SOUND[number.method], number.epsilon)))
    return comparisons


def in_words(comparisons: Sequence[Comparison]) -> str:
    """Return the printed numbers with ours, as published and sound."""
    return "; ".join(
        f"epsilon {each.published.epsilon:g}: {each.published.accuracy:.2f} printed, {each.ours.mean('accuracy'):.2f} as "
        f"published, {'not run' if each.sound is None else format(each.sound.mean('accuracy'), '.2f')} sound"
        for each in comparisons
    )


def short(claim: str, comparisons: Sequence[Comparison], what: str = "accuracy") -> Short:
    """Return the short row of some numbers, which differ by epsilon."""
    unit, digits = ("%", 1) if what == "accuracy" else ("s", 2)
    if not comparisons:
        return Short(claim)
    at = "/".join(f"{each.published.epsilon:g}" for each in comparisons)
    mine = [f"{each.ours.mean(what):.{digits}f}" for each in comparisons]
    sound = ["-" if each.sound is None else f"{each.sound.mean(what):.{digits}f}" for each in comparisons]
    printed = [f"{getattr(each.published, what):.{digits}f}" for each in comparisons]
    values = [f"{' / '.join(each)} {unit}" for each in (printed, mine, sound)]
    return Short(claim, f"{values[0]} (Adult, epsilon {at})", *values[1:])


def numbers_sheet(comparisons: Sequence[Comparison], what: str = "accuracy") -> Sheet:
    """Return the table of published and measured numbers."""
    rows = []
    for each in comparisons:
        sound = "" if each.sound is None else f"{each.sound.contestant}: {_shown(each.sound, what)}"
        rows.append(
            [
                f"{each.published.method.removesuffix(', as published')} at epsilon {each.published.epsilon:g}",
                f"{getattr(each.published, what):.2f}",
                _shown(each.ours, what) + ("" if is_private(each.ours.contestant) else f" ({NOT_PRIVATE})"),
                sound,
            ]
        )
    unit = "accuracy in percent" if what == "accuracy" else "seconds"
    caption = f"Adult, {unit}. Published; what the method as published gives here; what the sound version gives:"
    return Sheet(caption, ["", "published", "as published, here", "sound"], rows)


def _shown(entry: Measured, what: str) -> str:
    if what == "seconds":
        return f"{entry.mean(what):.3f}"
    return f"{entry.mean(what):.2f} ± {entry.spread(what):.2f}"
