"""The training loop: ask, propose, answer, charge, tell; and fits of a method with it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from privypurse.accounting._filters import GdpFilter
from privypurse.accounting._totals import Filter
from privypurse.core._checks import FloatArray, positive_integer, probability
from privypurse.core._errors import BudgetExhausted, InvalidArgument, spending_noted
from privypurse.core._formats import counted
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Sensitive
from privypurse.core.queries import Query
from privypurse.losses._bounds import Bounds
from privypurse.purse._purse import Purse
from privypurse.training._checkpoint import Checkpoint, RunState, check_state, declared_settings
from privypurse.training._plan import Facts, Method
from privypurse.training._progress import Callback
from privypurse.training._trace import Grown, Step, Trace, forget, remembered
from privypurse.training.optimizers._base import Optimizer
from privypurse.training.schedules._base import Budget, Schedule


class Oracle(Protocol):
    """Interface of an oracle, as the loop uses it."""

    @property
    def dimension(self) -> int:
        """Length of a point."""

    def answer(self, query: Query, *, sample_prob: float = 1.0, noise: NoiseSource | None = None) -> Sensitive:
        """Answer a query with a sealed box."""


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run: the model and its public record."""

    point: FloatArray
    trace: Trace

    def __repr__(self) -> str:
        made = f"{counted(len(self.trace.steps), 'release')}, stopped by {self.trace.stop_reason}"
        return f"<Result: {made}, point of length {self.point.size}>"


@spending_noted(call="train")
def train(
    oracle: Oracle,
    optimizer: Optimizer,
    schedule: Schedule,
    purse: Purse,
    *,
    steps: int,
    sample_prob: float = 1.0,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    block: int = 100,
) -> Result:
    """Run until the steps are made or the budget is spent.

    Parameters
    ----------
    oracle, optimizer, schedule, purse
        The data, the method, the noise and the budget.
    steps : int
        Most steps.
    sample_prob : float, default 1.0
        Answer each query from a fresh Poisson sample of the records.
    callbacks : sequence of Callback
        Notified of public values only.
    checkpoint : Checkpoint or path, optional
        Where to save the run, and to resume from if it exists.
    block : int, default 100
        Releases charged at a time; a killed run leaves at most this many charged but not made.

    Returns
    -------
    Result
        ``trace.stop_reason`` is "steps", "budget", or "others" where other runs spent this run's
        budget. A refused step changes nothing: the model is the one before it.
    """
    steps, sample_prob = positive_integer(steps=steps), probability(sample_prob=sample_prob)
    remedy = "The arguments are, in order: oracle, optimizer, schedule, purse."
    check_part("oracle", oracle, ("answer", "dimension"), remedy)
    check_part("optimizer", optimizer, ("init", "ask", "tell", "point"), remedy)
    check_part("schedule", schedule, ("propose",), remedy)
    check_part("purse", purse, ("release", "reserve"), remedy)
    check_callbacks(callbacks)
    run, settings = None, {}
    if checkpoint is not None:
        checkpoint = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        settings = declared_settings(
            oracle=oracle, optimizer=optimizer, schedule=schedule, steps=steps, sample_prob=sample_prob
        )
        run = checkpoint.load(purse, settings)
    fresh = optimizer.init(oracle.dimension)
    if run is not None:
        check_state(run.state, fresh)
    else:
        run = RunState(fresh, Trace(), (), Budget(purse.filter, purse.totals, purse.totals, steps, sample_prob))
    for what in getattr(oracle, "uncovered", ()):
        purse.declare_uncovered(what)
    for callback in callbacks:
        callback.on_start(steps, len(run.trace.steps))
    run.trace.stop_reason, noise, log = "interrupt", purse.noise, Grown(run.trace.steps)
    try:
        with purse.reserve(block):
            for number in range(len(run.trace.steps) + 1, steps + 1):
                query = optimizer.ask(run.state)
                mechanism = schedule.propose(query, run.past, run.budget)
                box = oracle.answer(query, sample_prob=sample_prob, noise=noise)
                released = purse.release(box, mechanism, what=type(query).__name__)
                step = Step.of(number, query, released, purse.fraction_left)
                state, log = optimizer.tell(run.state, released), log.and_one(step)
                past = remembered(run.past, released)
                trace = Trace(log, "interrupt")  # type: ignore[arg-type]  # a list again at the end
                run = RunState(state, trace, past, run.budget.after(released.charge))
                forget(run.past)
                for callback in callbacks:
                    callback.on_step(step)
                if checkpoint is not None and number % checkpoint.every == 0:
                    checkpoint.save(run, purse, settings)
        run.trace.stop_reason = "steps"
    except BudgetExhausted:
        run.trace.stop_reason = "others" if getattr(purse, "cut_short", False) else "budget"
    finally:
        run.trace.steps = list(run.trace.steps)
        if checkpoint is not None:
            checkpoint.save(run, purse, settings)
        for callback in callbacks:
            callback.on_end(run.trace)
    return Result(optimizer.point(run.state), run.trace)


def check_callbacks(callbacks: Any) -> None:
    """Raise InvalidArgument unless `callbacks` is a list of callbacks."""
    remedy = "Pass a list of callbacks, such as [ProgressBar()]."
    check_part("callbacks", callbacks, ("__iter__",), remedy)
    for callback in callbacks:
        check_part("callbacks", callback, ("on_start", "on_step", "on_end"), remedy)


def check_part(name: str, part: Any, needed: Sequence[str], remedy: str) -> None:
    """Raise InvalidArgument if attributes are missing. Name only the type: it may hold records."""
    if isinstance(part, type) or not all(hasattr(part, attribute) for attribute in needed):
        got = f"the class {part.__name__} itself" if isinstance(part, type) else f"an instance of {type(part).__name__}"
        raise InvalidArgument(f"{name} must be an object with {', '.join(needed)}; got {got}. {remedy}")


class BoundedOracle(Oracle, Protocol):
    """An oracle with the public constants of its loss."""

    @property
    def bounds(self) -> Bounds:
        """Public constants of the mean loss."""


def facts_for(oracle: BoundedOracle, purse: Purse, *, records: float, **others: Any) -> Facts:
    """Collect the public facts: the oracle's bounds, and the purse's filter and totals.

    Parameters
    ----------
    oracle, purse
        The data and the budget.
    records, **others
        Public number of records, ``l2``, ``clip_norm`` and ``radius``: as for `Facts`.
    """
    if not isinstance(purse, Purse):
        raise InvalidArgument(f"purse must be a Purse; got a {type(purse).__name__}. Pass oracle, method, purse.")
    constant = getattr(oracle, "has_constant", True)
    return _facts(oracle, purse.filter, records=records, spent=purse.totals, constant=constant, **others)


def _facts(oracle: BoundedOracle, rule: Filter, **others: Any) -> Facts:
    remedy = "Pass for example DenseOracle(X, y, loss=Logistic())."
    check_part("oracle", oracle, ("answer", "dimension", "bounds"), remedy)
    return Facts(dimension=oracle.dimension, rule=rule, bounds=oracle.bounds, **others)


def purse_for(
    oracle: BoundedOracle,
    method: Method,
    *,
    epsilon: float,
    delta: float,
    neighbouring: Neighbouring | str,
    records: float,
    l2: float = 0.0,
    clip_norm: float | None = None,
    radius: float = 10.0,
    **settings: Any,
) -> Purse:
    """Make a purse with the filter that suits a method: a fixed schedule for samples, else GDP.

    Parameters
    ----------
    oracle, method, records, l2, clip_norm, radius
        As for `fit`, with the same values.
    epsilon, delta, neighbouring
        The budget.
    **settings
        ``ledger``, ``dataset``, ``noise``, ``who``: as for `Purse`.

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse.losses import Logistic
    >>> from privypurse.methods import DPSGD
    >>> from privypurse.oracles import DenseOracle
    >>> oracle = DenseOracle(np.eye(3), [0, 1, 1], loss=Logistic(clip_derivative=0.5))
    >>> method = DPSGD(sample_prob=0.1, steps=20)
    >>> purse = purse_for(oracle, method, epsilon=1.0, delta=1e-6, neighbouring="add-remove", records=3)
    >>> purse.filter
    <FixedSchedule: 20 releases, epsilon=1, delta=1e-06>
    """
    _check_method(method)
    rule = GdpFilter(epsilon, delta, neighbouring)
    facts = _facts(oracle, rule, records=records, l2=l2, clip_norm=clip_norm, radius=radius)
    return Purse.with_filter(method.filter(facts), **settings)


@spending_noted(call="fit")
def fit(
    oracle: BoundedOracle,
    method: Method,
    purse: Purse,
    *,
    records: float,
    l2: float = 0.0,
    clip_norm: float | None = None,
    radius: float = 10.0,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    block: int = 100,
) -> Result:
    """Train with a method on all that is left in a purse.

    Parameters
    ----------
    oracle, purse
        The data, such as `DenseOracle`, and the budget: what is left of it is spent.
    method : Method
        Method, such as ``Nesterov()`` or ``DPAGD()`` from ``privypurse.methods``.
    records, l2, clip_norm, radius
        As for `Facts`.
    callbacks, checkpoint, block
        As for `train`.

    Examples
    --------
    >>> import numpy as np
    >>> from privypurse import Purse
    >>> from privypurse.losses import Logistic
    >>> from privypurse.methods import Nesterov
    >>> from privypurse.oracles import DenseOracle
    >>> X = np.random.default_rng(0).standard_normal((2_000, 3))
    >>> oracle = DenseOracle(X, (X[:, 0] > 0).astype(int), loss=Logistic(clip_derivative=0.5))
    >>> purse = Purse(epsilon=1.0, delta=1e-6, neighbouring="add-remove")
    >>> fit(oracle, Nesterov(), purse, records=2_000)
    <Result: 200 releases, stopped by steps, point of length 4>
    """
    _check_method(method)
    facts = facts_for(oracle, purse, records=records, l2=l2, clip_norm=clip_norm, radius=radius)
    began = None
    if checkpoint is not None:
        checkpoint = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        began = checkpoint.began_at(purse)
    if began is not None:
        facts = replace(facts, spent=began)  # a resumed run keeps its plan
    elif purse.fraction_left < 1e-9:
        raise BudgetExhausted("nothing is left in the purse to train with. Open another budget.")
    recipe = method.recipe(facts)
    result = train(
        oracle,
        recipe.optimizer,
        recipe.schedule,
        purse,
        steps=recipe.steps,
        sample_prob=recipe.sample_prob,
        callbacks=callbacks,
        checkpoint=checkpoint,
        block=block,
    )
    result.trace.planned_step_sizes = recipe.step_sizes
    return result


def _check_method(method: Any) -> None:
    check_part("method", method, ("recipe", "plan", "filter"), "Pass an object such as Nesterov(), with its brackets.")
