"""The PyTorch engine as a subject of an audit. Needs PyTorch, which nothing else of the audit does."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privypurse.accounting.convert import gdp_epsilon
from privypurse.accounting.totals import Filter
from privypurse.audit.subjects import COLUMNS, DELTA, RECORDS, Subject, gaussian_purse, on_last_column, with_canary
from privypurse.core.checks import FloatArray
from privypurse.core.randomness import NoiseSource
from privypurse.methods.dp_agd import DPAGD
from privypurse.planning.plan import Method
from privypurse.purse.purse import Purse
from privypurse.pytorch.adaptive_clip import AdaptiveClip
from privypurse.pytorch.budgets import open_purse
from privypurse.pytorch.deep_nesterov import DeepNesterov
from privypurse.pytorch.fitting import fit
from privypurse.pytorch.private_loop import make_private

# Far below the length of any record's gradient: the canary's is cut to it at every step.
CLIP_NORM = 0.05
# Large samples and many steps: what a sampled run may leak is then nearly what a Gaussian release may.
SAMPLE_SIZE, STEPS = 58, 20
# Steps of the optimizer of gradients no longer than the clip norm.
STEP_SIZE = 2.0
# The default method, in fewer steps than it would plan: an audit trains thousands of times.
FEW_STEPS = DeepNesterov(steps=12)


def table(present: bool) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, with the canary as the last record or without it."""
    return _tensors(*with_canary(present))


def table_in_place(present: bool) -> tuple[Tensor, Tensor]:
    """Return the same with a record that is not finite, and so contributes nothing, where the canary is absent."""
    return _tensors(*with_canary(present, in_place=True))


def _tensors(rows: FloatArray, labels: FloatArray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(rows).float(), torch.from_numpy(labels).float()[:, None]


def linear() -> nn.Module:
    """Return a module without a bias: a logistic regression, whose last weight the canary pulls up."""
    module = nn.Linear(COLUMNS, 1, bias=False)
    nn.init.zeros_(module.weight)
    return module


def network() -> nn.Module:
    """Return a network of two layers with a norm between them that is not trained; the same each time."""
    norm = nn.BatchNorm1d(4).eval().requires_grad_(False)
    layers = nn.Sequential(nn.Linear(COLUMNS, 4), norm, nn.Tanh(), nn.Linear(4, 1))
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in layers.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.from_numpy(0.5 * rng.standard_normal(parameter.shape)))
    return layers


def trained(module: nn.Module) -> list[Tensor]:
    """Return what is trained of a module."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def fitted(name: str, make: Callable[[], nn.Module], method: Method) -> Subject:
    """Turn a call of `fit`, over all records, into a subject."""

    def run(data: Any, purse: Purse) -> list[Tensor]:
        module = make()
        loss = nn.BCEWithLogitsLoss()
        fit(module, data, loss=loss, records=RECORDS, purse=purse, method=method, clip_norm=CLIP_NORM, compile=False)
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
    """Turn a training loop made private into a subject.

    Parameters
    ----------
    name : str
        What to call it.
    make : callable
        Makes the module.
    sampled : bool
        Whether each step takes a Poisson sample; all records otherwise.
    compiled : bool
        Whether gradients come from one call of the engine, with the loss given to it, and not from hooks.
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

    @functools.cache  # a schedule for samples takes a second to calibrate
    def rule(mu: float) -> Filter:
        budget: dict[str, Any] = {"epsilon": gdp_epsilon(mu, DELTA), "delta": DELTA, "neighbouring": "add-remove"}
        rate = SAMPLE_SIZE / RECORDS
        return open_purse(**budget, steps=STEPS, sample_prob=rate, clip_norm=clip_norm, records=RECORDS).filter

    def purse(mu: float, noise: NoiseSource) -> Purse:
        return Purse.with_filter(rule(mu), noise=noise) if sampled else gaussian_purse(mu, noise)

    tables = table_in_place if sampled else table
    direction = -np.eye(COLUMNS)[-1] if sampled else None
    return Subject(name, "pytorch", run, tables, purse, direction=direction, score=on_last_column)


TORCH: dict[str, Callable[[], Subject]] = {
    "torch-fit": lambda: fitted("torch-fit", linear, FEW_STEPS),
    "torch-fit-dp-agd": lambda: fitted("torch-fit-dp-agd", linear, DPAGD(rounds=8)),
    "torch-fit-network": lambda: fitted("torch-fit-network", network, FEW_STEPS),
    "torch-hooks": lambda: looped("torch-hooks", linear),
    "torch-loss": lambda: looped("torch-loss", linear, compiled=True),
    "torch-hooks-network": lambda: looped("torch-hooks-network", network, sampled=False),
    "torch-adaptive-clip": lambda: looped("torch-adaptive-clip", linear, clip_norm=AdaptiveClip(CLIP_NORM)),
    "torch-adaptive-clip-all-records": lambda: looped(
        "torch-adaptive-clip-all-records", linear, sampled=False, clip_norm=AdaptiveClip(CLIP_NORM)
    ),
}
