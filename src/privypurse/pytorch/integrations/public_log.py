"""[PUBLIC] Base class of logs: which values are public, and when epsilon is computed."""

from privypurse.core.checks import positive_integer, shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.neighbouring import Neighbouring
from privypurse.core.queries import ModuleGradient
from privypurse.purse.purse import Purse
from privypurse.training.trace import Step, Trace


class PublicLog:
    """Base class of logs of public values.

    Parameters
    ----------
    purse : Purse, optional
        Purse of the run, for epsilon and the clip norm. May be set later, as
        ``log.purse = private.purse``.
    every : int, default 1
        Write every so many steps, and the last one.
    epsilon_every : int, default 100
        Compute the spent epsilon every so many steps, and at the end. It may take a second each
        time.

    Guarantees
    ----------
    All values come from the trace of the run: no loss, no accuracy, no gradient without noise.
    """

    def __init__(self, purse: Purse | None = None, *, every: int = 1, epsilon_every: int = 100) -> None:
        if purse is not None and not isinstance(purse, Purse):
            raise InvalidArgument(f"purse must be a Purse or None; got {shown(purse)}. Leave it out.")
        self.purse = purse
        self._every = positive_integer(every=every)
        self._epsilon_every = positive_integer(epsilon_every=epsilon_every)
        self._opened, self._written = False, 0

    def on_start(self, steps: int, done: int) -> None:
        """Open the log."""
        self._open(steps, done)
        self._opened, self._written = True, 0

    def on_step(self, step: Step) -> None:
        """Write the public values of a step."""
        due = step.number % self._epsilon_every == 0
        if due or step.number % self._every == 0:
            values = self._values(step)
            if due and self.purse is not None:
                values["epsilon_spent"] = self.purse.spent.epsilon
            self._write(step, values)
            self._written = step.number

    def on_end(self, trace: Trace) -> None:
        """Write the budget spent and the stop reason."""
        if not self._opened:
            return
        if trace.steps:
            last = trace.steps[-1]
            values = {} if last.number == self._written else self._values(last)
            if self.purse is not None:
                values["epsilon_spent"] = self.purse.spent.epsilon
            self._write(last, values, trace.stop_reason)
        self._close()
        self._opened = False

    def _values(self, step: Step) -> dict[str, float]:
        values = {
            "noise_multiplier": step.charge.get("noise_multiplier"),
            "noise_std": step.noise_std,
            "clip_norm": self._clip_norm(step),
            "budget_left": step.fraction_left,
        }
        return {name: float(value) for name, value in values.items() if value is not None}

    def _clip_norm(self, step: Step) -> float | None:
        """Return the clip norm, from noise and noise multiplier."""
        multiplier: float | None = step.charge.get("noise_multiplier")
        if self.purse is None or not multiplier or step.noise_std is None or step.query != ModuleGradient.__name__:
            return None
        return step.noise_std / multiplier / (1 if self.purse.neighbouring is Neighbouring.ADD_REMOVE else 2)

    def _open(self, steps: int, done: int) -> None:
        raise NotImplementedError

    def _write(self, step: Step, values: dict[str, float], stop_reason: str = "") -> None:
        raise NotImplementedError

    def _close(self) -> None:
        """Close files, where there are any."""
