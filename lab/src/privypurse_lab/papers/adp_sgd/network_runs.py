"""Runs of a convolutional network on MNIST, and their measurement. Needs PyTorch."""

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from privypurse.accounting._filters import DeclaredNonPrivate
from privypurse.accounting._totals import Filter
from privypurse.core._checks import FloatArray
from privypurse.core._randomness import NoiseSource
from privypurse.core.queries import LossesAlong, Query, Released
from privypurse.mechanisms._non_private import NonPrivateRelease
from privypurse.methods.base import PlannedMethod
from privypurse.purse._purse import Purse
from privypurse.training._plan import Facts, Method, Plan, Recipe
from privypurse.training.optimizers._base import Optimizer, State
from privypurse.training.optimizers._gradient_descent import GradientDescent
from privypurse.training.schedules._base import Budget
from privypurse_lab.papers import prepared_data
from privypurse_lab.papers.cells import Result
from privypurse_lab.papers.exact_measurements import EXACT

DELTA = 1e-5
_AS_IT_IS = NonPrivateRelease("training without privacy, to compare with")


def network() -> Any:
    """Return two convolutions and a linear layer with ReLU: the paper gives no sizes."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def device() -> Any:
    """Return the GPU if there is one, else the CPU."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def computed(records: int) -> dict[str, Any]:
    """Return how to compute gradients and losses of so many records."""
    # Compiling takes half a minute, and makes each step several times as fast. On a CPU the patches of
    # a piece should stay in the cache.
    return {"compile": True if records >= 10_000 else None, "micro_batch": 128 if device().type == "cpu" else None}


@functools.lru_cache(maxsize=4)
def images(part: str, start: int, stop: int | None) -> tuple[Any, Any]:
    """Return some images, scaled to [-1, 1] by their known range, and labels."""
    import torch

    table = prepared_data.table("mnist", part)
    pixels = torch.from_numpy(np.asarray(table.X[start:stop], dtype=np.float32)).reshape(-1, 1, 28, 28)
    return (2 * pixels - 1).to(device()), torch.from_numpy(np.asarray(table.y[start:stop])).to(device())


@dataclass(frozen=True)
class Watched:
    """Optimizer that records some points of another, at most `most` and evenly spread.

    Attributes
    ----------
    kept : list of (int, ndarray)
        Number of gradients released so far, and the model.
    """

    optimizer: Optimizer
    most: int = 40
    kept: list[tuple[int, FloatArray]] = field(default_factory=list, repr=False, compare=False)
    _counts: dict[str, int] = field(default_factory=lambda: {"gradients": 0, "every": 1}, repr=False, compare=False)

    def init(self, dimension: int) -> State:
        """Initialise without points."""
        self.kept.clear()
        self._counts.update(gradients=0, every=1)
        return self.optimizer.init(dimension)

    def ask(self, state: State) -> Query:
        """Return the query of the other."""
        return self.optimizer.ask(state)

    def tell(self, state: State, released: Released) -> State:
        """Pass the answer on, and record the point."""
        counts = self._counts
        counts["gradients"] += not released.is_selection
        state = self.optimizer.tell(state, released)
        if counts["gradients"] % counts["every"] == 0:
            # Record the model after a gradient and its selection, not the one in between.
            if self.kept and self.kept[-1][0] == counts["gradients"]:
                self.kept.pop()
            self.kept.append((counts["gradients"], np.array(self.optimizer.point(state))))
        if len(self.kept) > self.most:
            counts["every"] *= 2
            self.kept[:] = [(number, point) for number, point in self.kept if number % counts["every"] == 0]
        return state

    def point(self, state: State) -> FloatArray:
        """Return the point of the other."""
        return self.optimizer.point(state)


@dataclass(frozen=True)
class WatchedMethod:
    """Method with a `Watched` optimizer; `seen` holds it and the sampling rate of its gradients."""

    method: Method
    most: int = 40
    seen: list[tuple[Watched, float]] = field(default_factory=list, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name of the other method."""
        return self.method.name

    def recipe(self, facts: Facts) -> Recipe:
        """Return the other's recipe, with its optimizer watched."""
        recipe = self.method.recipe(facts)
        self.seen[:] = [(Watched(recipe.optimizer, self.most), recipe.sample_prob)]
        return replace(recipe, optimizer=self.seen[0][0])

    def plan(self, facts: Facts) -> Plan:
        """Return the other's plan."""
        return self.method.plan(facts)

    def filter(self, facts: Facts) -> Filter:
        """Return the other's filter."""
        return self.method.filter(facts)


@dataclass(frozen=True)
class PlainSGD(PlannedMethod):
    """Mini-batches without noise or clipping. NOT PRIVATE. Runs only on ``Purse.not_private()``.

    Parameters
    ----------
    epochs : float
        Mean number of times that each record is used.
    batch_size : int, default 128
        Expected size of a Poisson sample.
    step_size, momentum : float
        Not given in the paper.
    """

    epochs: float
    batch_size: int = 128
    step_size: float = 0.05
    momentum: float = 0.9
    name: ClassVar[str] = "sgd-without-privacy"

    def recipe(self, facts: Facts) -> Recipe:
        """Plan the epochs."""
        facts.require_declared(self.name)
        rate = min(1.0, self.batch_size / facts.records)
        descent = GradientDescent(
            self.step_size, records=rate * facts.records, clip_norm=facts.clip_norm, momentum=self.momentum
        )
        return Recipe(descent, AsItIs(), max(1, round(self.epochs / rate)), sample_prob=rate, notes=("NOT PRIVATE.",))

    def filter(self, facts: Facts) -> Filter:
        """Return the filter without a limit."""
        return DeclaredNonPrivate(facts.delta, facts.neighbouring)


@dataclass(frozen=True)
class AsItIs:
    """Schedule of releases without noise. NOT PRIVATE."""

    def propose(self, query: Query, past: Sequence[Released], budget: Budget) -> NonPrivateRelease:
        """Return the declared non-private release."""
        return _AS_IT_IS


class Measured:
    """Exact training loss and accuracies of a network at any parameters. NOT PRIVATE."""

    def __init__(self, module: Any, train: tuple[Any, Any], test: tuple[Any, Any]) -> None:
        from torch import nn

        from privypurse.pytorch._fitting import ModuleOracle

        self._purse = Purse.not_private()
        self._asked = {
            # One copy for each: a module serves one oracle at a time.
            name: (
                ModuleOracle(copy.deepcopy(module), data, loss=loss, records=len(data[1]), **computed(len(train[1]))),
                len(data[1]),
            )
            for name, data, loss in (
                ("train_loss", train, nn.CrossEntropyLoss()),
                ("train_accuracy", train, right),
                ("test_accuracy", test, right),
            )
        }

    def at(self, point: FloatArray) -> dict[str, float]:
        """Return loss and accuracies, in percent."""
        from privypurse.pytorch._clipping import MARGIN

        query = LossesAlong(point=point, direction=np.zeros_like(point), steps=np.zeros(1), clip_loss=1e9)
        found = {}
        for name, (oracle, records) in self._asked.items():
            # Scores are negative losses, scaled by a margin for rounding.
            total = -self._purse.release(oracle.answer(query), EXACT, what=name).value[0] / (1 - MARGIN)
            found[name] = float(total) / records * (1 if name == "train_loss" else 100)
        return found


def right(outputs: Any, target: Any) -> Any:
    """Return 1 for a correct prediction, else 0: a loss whose mean is the accuracy."""
    return (outputs.argmax(-1) == target).to(outputs.dtype).mean()


def followed_run(
    method: Method,
    *,
    epsilon: float | None,
    clip_norm: float,
    seed: int,
    train: int | None,
    test: int | None,
    set_aside: int | None = None,
    most: int = 40,
) -> Result:
    """Train the network with a method, and measure it at some points of the run.

    Parameters
    ----------
    method : Method
        The method.
    epsilon : float or None
        Budget at delta 1e-5 under add/remove; None for a purse declared not private.
    clip_norm : float
        Clip norm of per-sample gradients.
    seed : int
        Seed of initial parameters and noise.
    train, test : int or None
        Number of images; None for all.
    set_aside : int, optional
        Measure on so many training images after those trained on, in place of the test images.
    most : int, default 40
        Largest number of points, evenly spread; at least half as many are measured.
    """
    import torch
    from torch import nn

    from privypurse.pytorch._fitting import fit

    torch.manual_seed(seed)
    data = images("train", 0, train)
    unseen = images("train", len(data[1]), len(data[1]) + set_aside) if set_aside else images("test", 0, test)
    module = network().to(device())
    noise = NoiseSource(seed=seed)
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "noise": noise}
    if epsilon is None:
        budget = {"purse": Purse.not_private(delta=DELTA, noise=noise)}
    watched = WatchedMethod(method, most)
    measured = Measured(module, data, unseen)
    start = measured.at(_parameters(module))
    records = len(data[1])
    how: dict[str, Any] = {"method": watched, "clip_norm": clip_norm, **computed(records), **budget}
    fitted = fit(module, data, loss=nn.CrossEntropyLoss(), records=records, **how)
    ((optimizer, rate),) = watched.seen
    end = (len([step for step in fitted.trace.steps if step.query == "GradientAt"]), _parameters(module))
    places = [place for place in optimizer.kept if place[0] < end[0]] + [end]
    path = [{"epochs": 0.0, **start}, *({"epochs": number * rate, **measured.at(point)} for number, point in places)]
    spent = fitted.purse.spent
    private = not isinstance(fitted.purse.filter, DeclaredNonPrivate)
    return {
        "path": path,
        "private": private,
        "spent": spent.epsilon if private else None,
        "releases": spent.releases,
        "gradients": end[0],
    }


def _parameters(module: Any) -> FloatArray:
    import torch

    parts = [parameter.detach().flatten().double().cpu() for parameter in module.parameters()]
    return np.asarray(torch.cat(parts).numpy())
