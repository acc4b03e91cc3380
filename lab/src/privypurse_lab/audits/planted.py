"""Planted bugs: contexts in which the library has a bug. All of them are NOT PRIVATE.

Each is a mistake that a real library made or could have made. Tests check that audits find them.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from privypurse.accounting import _gdp as gdp
from privypurse.accounting._additive import AdditiveFilter
from privypurse.core._neighbouring import Neighbouring
from privypurse.core._randomness import NoiseSource
from privypurse.core._sensitive import Norm, Sensitive
from privypurse.core.queries import GradientAt, Released
from privypurse.estimators import _search_trial as search_trial
from privypurse.mechanisms import _exact_gaussian as exact_noise
from privypurse.mechanisms import _exact_selection as exact_selection
from privypurse.mechanisms._base import Mechanism
from privypurse.mechanisms._exact_gaussian import exact_gaussian
from privypurse.mechanisms._selection import ExponentialSelection
from privypurse.oracles._linear import LinearOracle
from privypurse.oracles._partitions import DensePartition, Frame, GradientWork
from privypurse.purse._purse import Purse
from privypurse.training import _loop

Planted = Iterator[None]


def _itself(part: Any) -> Any:
    return part


@contextlib.contextmanager
def noise_halved() -> Planted:
    """Draw noise of half the charged standard deviation."""
    normal = NoiseSource.normal
    with mock.patch.object(NoiseSource, "normal", lambda self, shape: 0.5 * normal(self, shape)):
        yield


@contextlib.contextmanager
def exact_noise_halved() -> Planted:
    """Draw exact noise of half the charged standard deviation."""

    def halved(count: int, std: int, discrete: bool, noise: NoiseSource) -> Any:
        return exact_gaussian(count, max(1, std // 2), discrete, noise)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(exact_noise, "exact_gaussian", halved))
        # Tensor noise imports the function by name; without PyTorch the module must not be loaded.
        on_tensors = sys.modules.get("privypurse.mechanisms._torch_gaussian")
        if on_tensors is not None:
            stack.enter_context(mock.patch.object(on_tensors, "exact_gaussian", halved))
        yield


@contextlib.contextmanager
def clip_after_the_sum() -> Planted:
    """Clip the sum of gradients instead of each, to the bound times the number of records."""

    def gradient(self: Any, query: GradientAt, sample_prob: float, noise: NoiseSource | None) -> Sensitive:
        bound = self._loss.lipschitz * self._frame.row_limit
        weights = self._weights(query.point, "point")
        total, rows = np.zeros(self.dimension), 0
        for part in self._each(_itself, sample_prob, noise):
            loose = DensePartition(
                part._table, part._target, replace(self._frame, row_limit=np.inf), by_column=part._by_column
            )
            total += loose.sum(GradientWork(self._loss, weights, np.inf, self._loss.lipschitz), 1)[: self.dimension]
            rows += part.rows
        total *= min(1.0, rows * bound / max(float(np.linalg.norm(total)), 1e-300))
        return Sensitive(total, norm=Norm.L2, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

    with mock.patch.object(LinearOracle, "_gradient", gradient):
        yield


@contextlib.contextmanager
def scored_on_training_records() -> Planted:
    """Train each trial of a search on the records that score it."""

    def both(rows: int, validation: float, noise: NoiseSource) -> Any:
        return np.arange(rows), np.arange(rows)

    with mock.patch.object(search_trial, "split", both):
        yield


@contextlib.contextmanager
def bias_after_normalisation() -> Planted:
    """Scale rows to their limit before adding the constant column."""

    def gradient(self: Any, query: GradientAt, sample_prob: float, noise: NoiseSource | None) -> Sensitive:
        bound, limit = self._loss.lipschitz * self._frame.row_limit, self._frame.row_limit
        frame = Frame(self._frame.features + 1, 0.0, np.inf)
        # Kernels always have a last place for the weight of the constant.
        weights = np.append(query.point, 0.0)
        total = np.zeros(self.dimension)
        for part in self._each(_itself, sample_prob, noise):
            lengths = np.linalg.norm(part._table, axis=1, keepdims=True)
            table = np.column_stack([part._table * (limit / np.maximum(lengths, limit)), np.ones(part.rows)])
            work = GradientWork(self._loss, weights, np.inf, self._loss.lipschitz)
            total += DensePartition(table, part._target, frame).sum(work, 1)[: self.dimension]
        return Sensitive(total, norm=Norm.L2, add_remove=bound, replace_one=2 * bound, sample_prob=sample_prob)

    with mock.patch.object(LinearOracle, "_gradient", gradient):
        yield


@contextlib.contextmanager
def redraw_not_charged() -> Planted:
    """Do not charge the second gradient after a selection of "do not move"."""
    draw, pay, last = vars(ExponentialSelection)["draw"], Purse._pay, {"refused": False}

    def drawn(self: Any, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> Any:
        chosen = draw(self, box, neighbouring, noise)
        last["refused"] = int(chosen) == 0
        return chosen

    def paid(self: Purse, charge: Any, other: Any, what: str, **how: Any) -> None:
        if what == "GradientAt" and last["refused"]:
            last["refused"] = False
            return
        pay(self, charge, other, what, **how)

    with mock.patch.object(ExponentialSelection, "draw", drawn), mock.patch.object(Purse, "_pay", paid):
        yield


@contextlib.contextmanager
def sign_of_selection_flipped() -> Planted:
    """Subtract Gumbel noise instead of adding it."""
    with _selecting(lambda scores, noise: np.argmax(scores - noise.gumbel(scores.shape))):
        yield


@contextlib.contextmanager
def free_argmin() -> Planted:
    """Select as in published ADP-SGD: the least exact loss, without noise."""
    with _selecting(lambda scores, noise: np.argmax(scores)):
        yield


@contextlib.contextmanager
def noisy_minimum() -> Planted:
    """Select as in published DP-AGD: exponential noise added to losses that are minimised."""
    with _selecting(lambda scores, noise: np.argmin(-scores + noise.exponential(scores.shape))):
        yield


@contextlib.contextmanager
def exact_selection_too_sharp() -> Planted:
    """Draw exact selections at twice the charged epsilon."""
    rate = exact_selection._rate
    with mock.patch.object(exact_selection, "_rate", lambda *public: 2 * rate(*public)):
        yield


@contextlib.contextmanager
def exact_free_argmin() -> Planted:
    """Select the best score where exact noise was charged."""
    with mock.patch.object(exact_selection, "select", lambda gaps, log_prior, noise: int(gaps.units.argmin())):
        yield


@contextlib.contextmanager
def _selecting(choose: Any) -> Planted:
    def drawn(self: ExponentialSelection, box: Sensitive, neighbouring: Neighbouring, noise: NoiseSource) -> Any:
        return np.asarray(choose(self._scaled_scores(box, neighbouring) + self._weights, noise))

    with mock.patch.object(ExponentialSelection, "draw", drawn):
        yield


@contextlib.contextmanager
def conversions_mixed_up() -> Planted:
    """Price releases in rho of zCDP, mu^2/2, against a limit in mu^2."""
    mu_squared = gdp.mu_squared
    with mock.patch.object(gdp, "mu_squared", lambda charge: mu_squared(charge) / 2):
        yield


@contextlib.contextmanager
def filter_after_release() -> Planted:
    """Draw the answer before checking the filter."""

    def release(self: Purse, box: Sensitive, mechanism: Mechanism, what: str) -> Released:
        answer = getattr(mechanism, "draw")(box, self.neighbouring, self.noise)  # noqa: B009
        charge = mechanism.charge(box, self.neighbouring)
        self._pay(charge, None, what)
        return Released(answer, charge)

    with mock.patch.object(Purse, "_release", release):
        yield


@contextlib.contextmanager
def noise_reused_across_classes() -> Planted:
    """Reuse the noise of one class for the other two."""
    normal = NoiseSource.normal

    def repeated(self: NoiseSource, shape: tuple[int, ...]) -> Any:
        count = int(np.prod(shape))
        return normal(self, shape) if count % 3 else np.repeat(normal(self, (count // 3,)), 3).reshape(shape)

    with mock.patch.object(NoiseSource, "normal", repeated):
        yield


@contextlib.contextmanager
def noise_reused_across_processes() -> Planted:
    """Seed the generator before processes are forked, so that each has a copy."""
    generator = np.random.Philox()
    with mock.patch.object(NoiseSource, "words", lambda self, count: generator.random_raw(count)):
        yield


@contextlib.contextmanager
def seed_left_fixed() -> Planted:
    """Leave a seed from debugging: every source has the same undeclared state."""
    streams: dict[int, np.random.Philox] = {}
    kept: list[NoiseSource] = []  # keeps sources alive, so that ids stay unique

    def words(self: NoiseSource, count: int) -> Any:
        if id(self) not in streams:
            kept.append(self)
            streams[id(self)] = np.random.Philox(7)
        return streams[id(self)].random_raw(count)

    with mock.patch.object(NoiseSource, "words", words):
        yield


@contextlib.contextmanager
def small_integers_tried() -> Planted:
    """Try modules on the integers 0 and 1 only."""
    with mock.patch.object(importlib.import_module("privypurse.pytorch._trial"), "INTEGERS", (1,)):
        yield


@contextlib.contextmanager
def other_calls_untried() -> Planted:
    """Try modules before the loop in a guessed way, not in the ways the loop calls them."""
    trials = importlib.import_module("privypurse.pytorch._trial").Trials
    with mock.patch.object(trials, "at_call", return_value=[]):
        yield


@contextlib.contextmanager
def reduction_unread() -> Planted:
    """Assume that the loss is a mean over records, without checking."""
    engine = importlib.import_module("privypurse.pytorch._engine")
    with mock.patch.object(engine, "reduction_of_loss", return_value=None):
        yield


@contextlib.contextmanager
def private_divisor() -> Planted:
    """Use the true number of rows as the public one."""
    facts_for = _loop.facts_for

    def facts(oracle: Any, purse: Purse, *, records: float, **others: Any) -> Any:
        return facts_for(oracle, purse, records=float(sum(part.rows for part in oracle._parts())), **others)

    with mock.patch.object(_loop, "facts_for", facts):
        yield


@contextlib.contextmanager
def add_remove_from_replace_one() -> Planted:
    """Claim the limit of replace-one for add/remove too, though the number of records was used."""

    def limit(self: Any, neighbouring: Neighbouring) -> tuple[float, float]:
        return self.epsilon, self.delta

    pay = Purse._pay

    def paid(self: Purse, charge: Any, other: Any, what: str, **how: Any) -> None:
        pay(self, charge, charge, what, **how)

    with (
        mock.patch.object(AdditiveFilter, "guarantee_under", limit),
        mock.patch.object(Purse, "_pay", paid),
    ):
        yield


@contextlib.contextmanager
def empty_batch_skipped() -> Planted:
    """Skip the step of an empty sample, without charge or noise."""
    each, release, empty = LinearOracle._each, Purse._release, {"now": False}

    def of_each(self: Any, call: Any, sample_prob: float, noise: Any) -> Any:
        chosen = each(self, _itself, sample_prob, noise)
        empty["now"] = sample_prob < 1 and not any(part.rows for part in chosen)
        return [call(part) for part in chosen]

    def skipping(self: Purse, box: Sensitive, mechanism: Mechanism, what: str) -> Released:
        if empty["now"]:
            return Released(np.zeros(box.shape), mechanism.charge(box, self.neighbouring), 0.0)
        return release(self, box, mechanism, what)

    with mock.patch.object(LinearOracle, "_each", of_each), mock.patch.object(Purse, "_release", skipping):
        yield


@contextlib.contextmanager
def state_not_watched() -> Planted:
    """Do not check the state that a module stores. Needs PyTorch."""
    state = importlib.import_module("privypurse.pytorch._module_state").ModuleState
    with mock.patch.multiple(state, changed=lambda self: "", restore=lambda self: True):
        yield
