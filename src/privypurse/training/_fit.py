"""Run a method on data: collect the facts, plan, train."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from privypurse.accounting._filters import GdpFilter
from privypurse.accounting._totals import Filter
from privypurse.core._errors import BudgetExhausted, InvalidArgument, spending_noted
from privypurse.core._neighbouring import Neighbouring
from privypurse.losses._bounds import Bounds
from privypurse.purse._purse import Purse
from privypurse.training._checkpoint import Checkpoint
from privypurse.training._facts import Facts
from privypurse.training._loop import Oracle, Result, check_part, train
from privypurse.training._plan import Method
from privypurse.training._progress import Callback


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
        raise InvalidArgument(
            f"purse must be a Purse; got an instance of {type(purse).__name__}. Pass, in order: oracle, method, purse."
        )
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
