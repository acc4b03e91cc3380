"""`fit`: private training of a module in one call, with any method of the library."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from privypurse.core._checks import positive
from privypurse.core._errors import InvalidArgument, spending_noted
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.methods._by_name import method_by_name
from privypurse.methods._noisy_pgd import balanced_steps
from privypurse.methods.base import PlannedMethod, WarmStarted, check_steps_and_size
from privypurse.purse._certificate import Certificate
from privypurse.purse._holds import held
from privypurse.purse._opening import part_of
from privypurse.purse._purse import Purse
from privypurse.pytorch._budgets import target_of
from privypurse.pytorch._compiled import Loss
from privypurse.pytorch._oracle import ModuleOracle
from privypurse.pytorch._private_loop import put_on_record
from privypurse.pytorch._processes import Processes
from privypurse.training._checkpoint import Checkpoint
from privypurse.training._facts import Facts
from privypurse.training._fit import fit as train_with
from privypurse.training._plan import Method, Recipe
from privypurse.training._progress import Callback
from privypurse.training._trace import Trace
from privypurse.training.optimizers._gradient_descent import ShrinkingNesterov
from privypurse.training.schedules._weighted import EvenSplit

MOST_STEPS = 2_000


@dataclass(frozen=True)
class DeepNesterov(PlannedMethod):
    """Default method for modules: Nesterov descent on full batches, with ``n mu/sqrt(d)`` steps.

    Gradients are in units of the clip norm, so that the step size depends on neither loss nor clip
    norm. The weights shrink by 1/T at each of the T steps.

    Parameters
    ----------
    steps : int or None
        By default ``n mu/sqrt(d)``, between 10 and 2,000.
    momentum : float, default 0.9
        Momentum coefficient.
    pace : float, default 1.5
        Step size for gradients in units of the clip norm.
    shrink : float, default 1.0
        Without gradients the weights would shrink by ``exp(-shrink)`` over the run.
    tail : float, default 0.1
        Share of the last points that are averaged.
    """

    steps: int | None = None
    momentum: float = 0.9
    pace: float = 1.5
    shrink: float = 1.0
    tail: float = 0.1
    name: ClassVar[str] = "deep-nesterov"

    def __post_init__(self) -> None:
        check_steps_and_size(self.steps, self.pace)
        self._optimizer(10, 1.0, 1.0, 0.0)

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the descent."""
        if facts.clip_norm is None:
            raise InvalidArgument(
                "clip_norm must be given: nothing else bounds the gradients of a module. Pass clip_norm=0.1."
            )
        steps = self.steps or balanced_steps(facts, most=MOST_STEPS)
        optimizer = self._optimizer(steps, facts.records, facts.clip_norm, facts.l2)
        return Recipe(optimizer, EvenSplit(), steps, step_sizes=(optimizer.step_size,))

    def _optimizer(self, steps: int, records: float, clip_norm: float, l2: float) -> ShrinkingNesterov:
        return ShrinkingNesterov(
            step_size=self.pace / clip_norm,
            records=records,
            steps=steps,
            clip_norm=clip_norm,
            momentum=self.momentum,
            shrink=self.shrink,
            tail=self.tail,
            l2=l2,
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """A finished run: the module, trained in place, its public trace and its purse."""

    module: nn.Module
    trace: Trace
    purse: Purse

    @property
    def stop_reason(self) -> str:
        """Why the run ended: "steps" or "budget"."""
        return self.trace.stop_reason

    def certificate(self) -> Certificate:
        """Return the certificate: the guarantee and the budget spent."""
        return self.purse.certificate()

    def __repr__(self) -> str:
        return f"<Fitted: {len(self.trace.steps)} releases, stopped by {self.stop_reason}>"


@spending_noted(call="fit")
def fit(
    module: nn.Module,
    data: Any,
    *,
    loss: Loss,
    records: float,
    purse: Purse | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbouring: Neighbouring | str = Neighbouring.ADD_REMOVE,
    method: "Method | str | None" = None,
    clip_norm: float = 0.1,
    loss_range: float = 1.0,
    curvature: float | None = None,
    l2: float = 0.0,
    micro_batch: int | None = None,
    compile: bool | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    noise: NoiseSource | None = None,
    block: int = 100,
) -> Fitted:
    """Train a module within a budget, without tuning.

    Parameters
    ----------
    module : Module
        The module, on its device. It is trained in place, from its current parameters.
    data : DataLoader, Dataset or tuple of Tensor
        The records: inputs and, last, targets.
    loss : callable
        ``loss(module(*inputs), target)``, such as ``nn.CrossEntropyLoss()``.
    records : float
        Public number of records; may be nominal.
    purse, epsilon, delta, neighbouring
        As for `make_private`. With a purse, `epsilon` is the part this run may spend.
    method : Method, str or None
        By default `DeepNesterov`. ``DPAGD()`` and ``ADPSGD()`` select step sizes privately,
        ``Dynamic()`` divides the budget by influence, ``DPSGD()`` takes Poisson samples, ...
    clip_norm : float, default 0.1
        Clip norm of per-sample gradients. Steps are relative to it, so its effect is small.
    loss_range : float, default 1.0
        For line searches: range to which the change of one record's loss is clipped.
    curvature : float or None
        Smoothness constant for other methods, whose steps are its inverse; the clip norm by default.
    l2 : float, default 0.0
        Ridge penalty on the mean loss.
    micro_batch, compile, callbacks, noise, block
        As for `make_private`.
    checkpoint : Checkpoint or path, optional
        File to save the run to, and to resume from if it exists.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> X = torch.randn(500, 4)
    >>> module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> fit(module, (X, (X[:, 0] > 0).long()), loss=nn.CrossEntropyLoss(), records=500, epsilon=4.0, delta=1e-5)
    <Fitted: 61 releases, stopped by steps>
    """
    chosen = method_by_name(method) if isinstance(method, str) else DeepNesterov() if method is None else method
    if Processes().count > 1:
        raise InvalidArgument(
            "fit supports one process, but there are several: each would charge for the same records. Use make_private, "
            "which adds noise once, or call fit in one process."
        )
    oracle = ModuleOracle(
        module,
        data,
        loss=loss,
        records=records,
        clip_norm=clip_norm,
        loss_range=loss_range,
        curvature=curvature,
        micro_batch=micro_batch,
        compile=compile,
    )
    try:
        settings: dict[str, Any] = {"records": records, "l2": l2, "clip_norm": clip_norm}
        target = target_of(purse, epsilon, delta, Neighbouring.parse(neighbouring), noise, records)
        if target is not None:
            facts = Facts(dimension=oracle.dimension, rule=target, bounds=oracle.bounds, **settings)
            purse = Purse.with_filter(chosen.filter(facts), noise=noise)
        assert purse is not None
        if target is None and epsilon is not None:
            purse = part_of(purse, positive(epsilon=epsilon))
        put_on_record(purse, oracle.untried, oracle.rows)
        begun = WarmStarted(chosen, oracle.point)
        with held(purse):
            result = train_with(
                oracle, begun, purse, callbacks=callbacks, checkpoint=checkpoint, block=block, **settings
            )
        oracle.set_point(result.point)
    finally:
        oracle.release_module()
    return Fitted(module, result.trace, purse)
