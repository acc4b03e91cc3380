"""Networks of the dynamic-noise paper: digits 3 and 5 (Figure 3), all digits (Figure 2, right).

The paper does not give, or the scan does not show: activation (here ReLU), loss (cross-entropy),
initialisation (PyTorch's) and momentum (0.9, as in its theory). The use of 60 components for all
ten digits is a guess; "two layers" is read as two linear layers.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from privypurse.core._checks import FloatArray
from privypurse.core._randomness import NoiseSource
from privypurse.methods.dynamic import quadratic_influences
from privypurse.purse._purse import Purse
from privypurse.pytorch._fitting import ModuleOracle
from privypurse.pytorch._opening import shape
from privypurse.training._loop import train
from privypurse.training.optimizers._base import Optimizer, StartingAt
from privypurse.training.optimizers._gradient_descent import GradientDescent, SmoothedDescent
from privypurse.training.schedules import shapes
from privypurse.training.schedules._base import Schedule, Weighted
from privypurse_lab.data import load
from privypurse_lab.papers.cells import Result
from privypurse_lab.papers.dynamic_noise.problems import (
    CLIP_NORM,
    COMPONENTS,
    DELTA,
    EPSILON,
    PUBLIC,
    RECORDS,
    STEP_SIZE,
    Records,
)

HIDDEN, MOMENTUM = 100, 0.9
REHEARSAL = 90_000
# Public images for initial curvatures; epsilon at which noise is negligible.
CURVED, NO_LIMIT = 150, 1e4


class Part(NamedTuple):
    """Images, as vectors, and their digits."""

    inputs: Tensor
    targets: Tensor


def network(seed: int, classes: int) -> nn.Sequential:
    """Return the initialised network."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(COMPONENTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))


def one_run(
    schedule: Schedule,
    part: Part,
    purse: Purse,
    steps: int,
    seed: int,
    *,
    classes: int = 10,
    momentum: float = MOMENTUM,
) -> tuple[nn.Sequential, list[float]]:
    """Train on a part; return the network and the noise of each step."""
    module = network(seed, classes)
    oracle = ModuleOracle(module, tuple(part), loss=nn.CrossEntropyLoss(), records=RECORDS, clip_norm=CLIP_NORM)
    descent: Optimizer = GradientDescent(STEP_SIZE, RECORDS)
    if momentum:
        descent = SmoothedDescent(STEP_SIZE, RECORDS, momentum=momentum)
    result = train(oracle, StartingAt(descent, oracle.point), schedule, purse, steps=steps)
    oracle.set_point(result.point)
    oracle.release_module()
    return module, [float(step.noise_std or 0.0) for step in result.trace.steps]


def loss_and_accuracy(module: nn.Module, part: Part) -> tuple[float, float]:
    """Return exact loss, and accuracy in percent. NOT PRIVATE on the training part."""
    with torch.no_grad():
        scores = module(part.inputs)
    right = (scores.argmax(1) == part.targets).double().mean()
    return float(nn.functional.cross_entropy(scores, part.targets)), 100 * float(right)


class PairProblem:
    """The network on digits 3 and 5, without momentum, with the interface of `LinearProblem`."""

    def __init__(self, data: Records) -> None:
        torch.set_num_threads(1)
        self._part = Part(torch.from_numpy(data.rows.astype(np.float32)), torch.from_numpy(data.labels))

    def train(self, schedule: Schedule, purse: Purse, steps: int, seed: int) -> tuple[float, list[float]]:
        """Return the exact final loss (NOT PRIVATE) and the noise of each step on the sum."""
        module, noise = one_run(schedule, self._part, purse, steps, seed, classes=2, momentum=0.0)
        return loss_and_accuracy(module, self._part)[0], noise

    def curvatures(self) -> FloatArray | None:
        """Return None: they change during training."""
        return None


class Images(NamedTuple):
    """All of MNIST, prepared by its public part, and a mask of public rows."""

    inputs: np.ndarray
    targets: np.ndarray
    longest: float
    public: np.ndarray
    private: np.ndarray

    def part(self, rows: np.ndarray, scale: float) -> Part:
        """Return some rows, of norm at most the data scale."""
        inputs = self.inputs[rows]
        lengths = np.maximum(np.linalg.norm(inputs, axis=1, keepdims=True), self.longest)
        scaled = (scale * inputs / lengths).astype(np.float32)
        return Part(torch.from_numpy(scaled), torch.from_numpy(self.targets[rows]))

    def split(self, seed: int, scale: float, test_rows: int) -> tuple[Part, Part]:
        """Return 1,000 private images for training, and up to 50,000 others for testing."""
        order = np.random.default_rng(seed).permutation(self.private)
        return self.part(order[:RECORDS], scale), self.part(order[RECORDS:][:test_rows], scale)

    def rehearsal(self, seed: int, scale: float) -> Part:
        """Return 1,000 public images for training."""
        return self.part(np.random.default_rng(seed).permutation(self.public)[:RECORDS], scale)


@functools.lru_cache(maxsize=1)
def images() -> Images:
    """Project and normalise MNIST by 9,000 images that are taken as public."""
    table = load("mnist", download=False)
    order = np.random.default_rng(0).permutation(len(table.X))
    public, private = order[:PUBLIC], order[PUBLIC:]
    mean = table.X[public].mean(axis=0)
    _, directions = np.linalg.eigh(np.cov((table.X[public] - mean).T))
    # In single precision, as the network: in double MNIST takes half a gigabyte.
    inputs = (table.X - mean) @ directions[:, -COMPONENTS:].astype(np.float32)
    inputs /= inputs[public].std(axis=0)
    longest = float(np.linalg.norm(inputs[public], axis=1).max())
    return Images(inputs, table.y, longest, public, private)


def curvatures(part: Part, classes: int = 10) -> FloatArray:
    """Return initial curvatures of the mean loss, by the Gauss-Newton matrix of these images."""
    module = network(0, classes)
    values = {name: value.detach() for name, value in module.named_parameters()}
    slopes = vmap(jacrev(lambda point, row: functional_call(module, point, (row,))), (None, 0))(values, part.inputs)
    joined = torch.cat([slope.flatten(2) for slope in slopes.values()], dim=2)
    chances = module(part.inputs).softmax(1).detach()
    # diag(p) - p p' is R'R with R = diag(sqrt p)(1 - 1 p').
    roots = chances.sqrt()[:, :, None] * (torch.eye(classes) - chances[:, None, :])
    rows = (roots @ joined).flatten(0, 1).double() / len(part.inputs) ** 0.5
    found = torch.linalg.eigvalsh(rows @ rows.T).numpy()
    return np.asarray(found[found > 1e-6 * found.max()])


def momentum_at_scale(
    scale: float,
    steps: int,
    ratios: Sequence[float],
    rehearsals: int,
    runs: int,
    test_rows: int,
    seed: int,
    also: Mapping[str, Any],
) -> Result:
    """Cell: choose schedules on public images, then train. Sound, except for measurements."""
    torch.set_num_threads(1)
    data = images()
    result: Result = {"schedules": {}, "no_noise": []}
    for name, (schedule, ratio) in _schedules(data, scale, steps, ratios, rehearsals, also).items():
        row: dict[str, Any] = {"ratio": ratio, "losses": [], "test_losses": [], "accuracies": [], "spent": 0.0}
        for run in range(seed, seed + runs):
            part, test = data.split(run, scale, test_rows)
            purse = _purse(EPSILON, run)
            module, row["noise"] = one_run(schedule, part, purse, steps, run)
            row["losses"].append(loss_and_accuracy(module, part)[0])
            loss, accuracy = loss_and_accuracy(module, test)
            row["test_losses"].append(loss)
            row["accuracies"].append(accuracy)
            row["spent"] = max(row["spent"], purse.spent.epsilon)
        result["schedules"][name] = row
    for run in range(seed, seed + runs):
        part, _ = data.split(run, scale, 0)
        module, _ = one_run(shape("uniform", steps), part, _purse(NO_LIMIT, run), steps, run)
        result["no_noise"].append(loss_and_accuracy(module, part)[0])
    return result


def _schedules(
    data: Images, scale: float, steps: int, ratios: Sequence[float], rehearsals: int, also: Mapping[str, Any]
) -> dict[str, tuple[Schedule, float | None]]:
    """Return the schedules to compare, each with its ratio, if any.

    A ratio is the budget of the last step over that of the first, for "momexpinfl" before
    averaging; below 1 the noise grows.
    """
    influences = quadratic_influences(curvatures(data.part(data.public[:CURVED], scale)), STEP_SIZE, steps, MOMENTUM)
    found: dict[str, tuple[Schedule, float | None]] = {
        "uniform": (shape("uniform", steps), None),
        "expinfl": _searched("exponential", data, scale, steps, ratios, rehearsals),
        "momexpinfl": _searched("momentum", data, scale, steps, ratios, rehearsals),
        "dynamic": (Weighted(shapes.influence(influences.tolist())), None),
    }
    return found | {name: (schedule, None) for name, schedule in also.items()}


def _searched(
    name: str, data: Images, scale: float, steps: int, ratios: Sequence[float], rehearsals: int
) -> tuple[Schedule, float]:
    """Return the schedule of this name and ratio with the least loss on public images."""
    found: dict[float, tuple[float, Schedule]] = {}
    for ratio in ratios:
        schedule = shape(name, steps, ratio=ratio, momentum=MOMENTUM)
        losses = []
        for seed in range(REHEARSAL, REHEARSAL + rehearsals):
            part = data.rehearsal(seed, scale)
            module, _ = one_run(schedule, part, _purse(EPSILON, seed), steps, seed)
            losses.append(loss_and_accuracy(module, part)[0])
        found[ratio] = float(np.mean(losses)), schedule
    best = min(found, key=lambda ratio: found[ratio][0])
    return found[best][1], best


def _purse(epsilon: float, seed: int) -> Purse:
    return Purse(epsilon, DELTA, neighbouring="add-remove", noise=NoiseSource(seed=seed))
