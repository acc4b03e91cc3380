"""Methods by the names that the command line and reports use."""

from collections.abc import Callable

from privypurse.core._errors import InvalidArgument
from privypurse.methods import ADPSGD, DPAGD, DPSGD, PUR, Auto, Dynamic, Nesterov, NoisyPGD
from privypurse.training._plan import Method

BY_NAME: dict[str, Callable[[], Method]] = {
    "auto": Auto,
    "nesterov": Nesterov,
    "noisy-pgd": NoisyPGD,
    "dp-sgd": DPSGD,
    "pur-nonconvex": lambda: PUR("non-convex"),
    "pur-convex": lambda: PUR("convex"),
    "pur-strongly-convex": lambda: PUR("strongly-convex"),
    "dynamic": Dynamic,
    "dp-agd": DPAGD,
    "adp-sgd": ADPSGD,
}


def method_by_name(name: str) -> Method:
    """Return a method of ``BY_NAME`` with its default settings."""
    if name not in BY_NAME:
        raise InvalidArgument(f"method must be one of {', '.join(BY_NAME)}; got {name!r}. Omit it for 'auto'.")
    return BY_NAME[name]()


def ridge_for(name: str) -> float:
    """Return the ridge penalty that a method requires: its proof needs strong convexity."""
    return 1e-3 if name == "pur-strongly-convex" else 0.0
