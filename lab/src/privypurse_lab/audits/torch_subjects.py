"""The PyTorch engine as a subject of an audit. Needs PyTorch."""

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privypurse import training
from privypurse.accounting._totals import Filter
from privypurse.accounting.convert import gdp_epsilon
from privypurse.audit.subjects import COLUMNS, DELTA, RECORDS, Subject, gaussian_purse
from privypurse.core._checks import FloatArray
from privypurse.core._errors import InvalidArgument
from privypurse.core._randomness import NoiseSource
from privypurse.estimators import PrivateImageClassifier
from privypurse.methods._dp_agd import DPAGD
from privypurse.methods._nesterov import Nesterov
from privypurse.purse._purse import Purse
from privypurse.pytorch._clip_norms import AdaptiveClip
from privypurse.pytorch._fitting import DeepNesterov, fit
from privypurse.pytorch._opening import open_purse
from privypurse.pytorch._private_loop import make_private
from privypurse.pytorch._views import ViewsOracle
from privypurse.training._plan import Method
from privypurse_lab.audits.canaries import on_last_column, with_canary

# Far below any gradient norm, so that the canary is clipped at every step.
CLIP_NORM = 0.05
# Large samples and many steps: the loss is then nearly that of a Gaussian release.
SAMPLE_SIZE, STEPS = 58, 20
# Learning rate for gradients no longer than the clip norm.
STEP_SIZE = 2.0
IMAGES = 32
# The default method with fewer steps: an audit trains thousands of times.
FEW_STEPS = DeepNesterov(steps=12)


def table(present: bool) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, with the canary as the last record or without it."""
    return _tensors(*with_canary(present))


def table_in_place(present: bool) -> tuple[Tensor, Tensor]:
    """Return the same with a record of NaN, which contributes nothing, for an absent canary."""
    return _tensors(*with_canary(present, in_place=True))


def _tensors(rows: FloatArray, labels: FloatArray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(rows).float(), torch.from_numpy(labels).float()[:, None]


def linear() -> nn.Module:
    """Return a logistic regression without bias, whose last weight the canary raises."""
    module = nn.Linear(COLUMNS, 1, bias=False)
    nn.init.zeros_(module.weight)
    return module


def network() -> nn.Module:
    """Return a fixed network of two layers with an untrained norm between them."""
    norm = nn.BatchNorm1d(4).eval().requires_grad_(False)
    layers = nn.Sequential(nn.Linear(COLUMNS, 4), norm, nn.Tanh(), nn.Linear(4, 1))
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in layers.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.from_numpy(0.5 * rng.standard_normal(parameter.shape)))
    return layers


def trained(module: nn.Module) -> list[Tensor]:
    """Return the trained parameters of a module."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def fitted(name: str, make: Callable[[], nn.Module], method: Method, **settings: Any) -> Subject:
    """Return a call of `fit` on full batches as a subject."""
    declared: dict[str, Any] = {
        "records": RECORDS,
        "clip_norm": CLIP_NORM,
        "method": method,
        "compile": False,
    } | settings

    def run(data: Any, purse: Purse) -> list[Tensor]:
        module = make()
        loss = nn.BCEWithLogitsLoss()
        fit(module, data, loss=loss, purse=purse, **declared)
        return trained(module)

    return Subject(name, "pytorch", run, table, gaussian_purse, score=on_last_column)


def looped(
    name: str,
    make: Callable[[], nn.Module],
    *,
    sampled: bool = True,
    compiled: bool = False,
    clip_norm: float | AdaptiveClip = CLIP_NORM,
) -> Subject:
    """Return a private training loop as a subject.

    Parameters
    ----------
    name : str
        Name in reports.
    make : callable
        Makes the module.
    sampled : bool
        Whether steps use Poisson samples rather than full batches.
    compiled : bool
        Whether gradients come from ``engine.backward`` rather than hooks.
    clip_norm : float or AdaptiveClip
        Of gradients.
    """
    loss = nn.BCEWithLogitsLoss()

    def run(data: Any, purse: Purse) -> list[Tensor]:
        module = make()
        optimizer = torch.optim.SGD(trained(module), lr=STEP_SIZE)
        settings: dict[str, Any] = {"batch_size": SAMPLE_SIZE} if sampled else {"full_batch": True}
        private = make_private(
            module,
            optimizer,
            data,
            records=RECORDS,
            purse=purse,
            clip_norm=clip_norm,
            steps=STEPS,
            loss=loss if compiled else None,
            compile=False,
            **settings,
        )
        for inputs, targets in private.loader:
            if compiled:
                private.engine.backward(inputs, targets)
            else:
                loss(module(inputs), targets).backward()
            optimizer.step()
        private.engine.detach()
        return trained(module)

    @functools.cache  # calibrating a schedule for samples takes a second
    def rule(mu: float) -> Filter:
        budget: dict[str, Any] = {"epsilon": gdp_epsilon(mu, DELTA), "delta": DELTA, "neighbouring": "add-remove"}
        rate = SAMPLE_SIZE / RECORDS
        return open_purse(**budget, steps=STEPS, sample_prob=rate, clip_norm=clip_norm, records=RECORDS).filter

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return Purse.with_filter(rule(mu), noise=noise) if sampled else gaussian_purse(mu, noise)

    tables = table_in_place if sampled else table
    direction = -np.eye(COLUMNS)[-1] if sampled else None
    return Subject(name, "pytorch", run, tables, purse, direction=direction, score=on_last_column)


class RunningMean(nn.Module):
    """Identity that stores the mean of its inputs in an untrained parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(COLUMNS), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Store the mean and return the input."""
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x


def keeping() -> Subject:
    """Return a module that stores values of records; its state is the result."""

    def run(data: Any, purse: Purse) -> list[Tensor]:
        module, loss = nn.Sequential(RunningMean(), linear()), nn.BCEWithLogitsLoss()
        with contextlib.suppress(InvalidArgument):
            fit(module, data, loss=loss, records=RECORDS, purse=purse, method=FEW_STEPS, compile=False)
        return list(module.parameters())

    return Subject("torch-keeping", "pytorch", run, table, gaussian_purse)


class _Divided(nn.Module):
    """Divides by the largest integer of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.map = linear()

    def forward(self, rows: Tensor) -> Tensor:
        """Apply the linear map to scaled rows."""
        return self.map(rows.float() / rows.max())  # type: ignore[no-any-return]


class _Centred(nn.Module):
    """Centres by the batch when called with targets."""

    def __init__(self) -> None:
        super().__init__()
        self.map = linear()

    def forward(self, rows: Tensor, targets: Tensor | None = None) -> Tensor:
        """Apply the linear map."""
        return self.map(rows if targets is None else rows - rows.mean(0))  # type: ignore[no-any-return]


def _refused(
    make: Callable[[], nn.Module],
    canary: Callable[[Tensor], Tensor],
    *,
    scale: float = 1.0,
    whole: bool = False,
    reduction: str = "mean",
) -> Subject:
    """Return a loop that must be refused as a subject; if it is refused, a plain loop runs instead.

    Parameters
    ----------
    make : callable
        Makes the module.
    canary : callable
        Changes the rows of a table with the canary.
    scale : float
        Factor for all rows.
    whole : bool
        Whether the module is called with rows and targets rather than rows alone.
    reduction : str
        Actual reduction of the loss, which is declared as a mean.
    """

    def train(module: nn.Module, data: Any, purse: Purse, whole: bool, reduction: str) -> list[Tensor]:
        optimizer = torch.optim.SGD(trained(module), lr=STEP_SIZE)
        private = make_private(
            module, optimizer, data, records=RECORDS, purse=purse, clip_norm=CLIP_NORM, steps=STEPS, full_batch=True
        )
        loss = nn.BCEWithLogitsLoss(reduction=reduction)
        try:
            for inputs, targets in private.loader:
                loss(module(inputs, targets) if whole else module(inputs), targets).backward()
                optimizer.step()
        finally:
            private.engine.detach()
        return trained(module)

    def run(data: Any, purse: Purse) -> list[Tensor]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "a batch was taken from the private loader")
            try:
                return train(make(), data, purse, whole, reduction)
            except InvalidArgument:
                plain = linear()
                return train(plain, (data[0].float(), data[1]), purse, False, "mean")

    def changed(present: bool) -> tuple[Tensor, Tensor]:
        rows, targets = table(present)
        return canary(scale * rows) if present else canary(torch.cat([scale * rows, rows[:1]]))[:-1], targets

    return Subject("torch-refused", "pytorch", run, changed, gaussian_purse)


def _longer(rows: Tensor, times: float) -> Tensor:
    return torch.cat([rows[:-1], times * rows[-1:]])


# Loops that must be refused, by the planted bug that disables the check.
REFUSED: dict[str, Callable[[], Subject]] = {
    "small-integers-tried": lambda: _refused(
        _Divided, lambda rows: (10 * _longer(rows, 100.0)).round().long().clamp(min=-10)
    ),
    "other-calls-untried": lambda: _refused(_Centred, lambda rows: _longer(rows, 100.0), whole=True),
    "reduction-unread": lambda: _refused(linear, lambda rows: _longer(rows, -1e6), scale=1e-3, reduction="sum"),
}


def three_versions(rows: Tensor) -> list[Tensor]:
    """Return versions of rows; those of the canary, which has one column, differ most."""
    other = rows.roll(1, dims=1)
    return [rows, (rows + other) / 2, (rows - other) / 2]


def several_views() -> Subject:
    """Return softmax regression on three views of each record as a subject."""

    def run(data: Any, purse: Purse) -> FloatArray:
        rows, targets = data
        oracle = ViewsOracle(torch.stack(three_versions(rows)), targets[:, 0].long(), classes=2, constant=0.1)
        return training.fit(oracle, Nesterov(steps=12), purse, records=RECORDS, clip_norm=CLIP_NORM).point

    # Two columns of weights, one for each class.
    return Subject(
        "torch-views", "pytorch", run, table, gaussian_purse, score=lambda point: float(point[2 * COLUMNS - 1])
    )


def images(present: bool) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Return images with a line across or down; the canary's line contradicts its class."""
    rng, kinds = np.random.default_rng(0), np.arange(IMAGES + 1) % 2
    pixels = rng.integers(0, 60, (IMAGES + 1, 8, 8), dtype=np.uint8)
    pixels[kinds == 0, 2] += 190
    pixels[kinds == 1, :, 2] += 190
    kinds[-1] = 1
    count = IMAGES + present
    return pixels[:count], kinds[:count]


def image_classifier() -> Subject:
    """Return the classifier of images, with three views of each."""

    def run(data: Any, purse: Purse) -> list[FloatArray]:
        model = PrivateImageClassifier(None, purse=purse, classes=[0, 1], views=3, device="cpu").fit(*data)
        return [model.coef_, model.intercept_]

    return Subject("image-classifier", "pytorch", run, images, gaussian_purse)


TORCH: dict[str, Callable[[], Subject]] = {
    "image-classifier": image_classifier,
    "torch-views": several_views,
    "torch-fit": lambda: fitted("torch-fit", linear, FEW_STEPS),
    "torch-fit-dp-agd": lambda: fitted("torch-fit-dp-agd", linear, DPAGD(rounds=8)),
    "torch-fit-network": lambda: fitted("torch-fit-network", network, FEW_STEPS),
    "torch-fit-views": lambda: fitted("torch-fit-views", network, FEW_STEPS, views=three_versions),
    "torch-hooks": lambda: looped("torch-hooks", linear),
    "torch-loss": lambda: looped("torch-loss", linear, compiled=True),
    "torch-hooks-network": lambda: looped("torch-hooks-network", network, sampled=False),
    "torch-adaptive-clip": lambda: looped("torch-adaptive-clip", linear, clip_norm=AdaptiveClip(CLIP_NORM)),
    "torch-adaptive-clip-all-records": lambda: looped(
        "torch-adaptive-clip-all-records", linear, sampled=False, clip_norm=AdaptiveClip(CLIP_NORM)
    ),
}
