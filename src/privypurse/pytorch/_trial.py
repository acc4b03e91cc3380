"""Trials on synthetic records: that a module keeps records apart, and hooks record its gradients."""

import contextlib
import copy
import functools
import math
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privypurse.core._errors import InvalidArgument
from privypurse.purse._purse import Purse
from privypurse.pytorch import _rows as synthetic
from privypurse.pytorch._clipping import NotByRecords, check_rows, clipped_sum, full_precision
from privypurse.pytorch._module_state import COMPARED, ModuleState, kept_modes
from privypurse.pytorch._rows import (
    Arguments,
    Integers,
    Reach,
    Record,
    Way,
    each_part,
    floats,
    made_up,
    moved,
    seed_all,
    way_of_calling,
    ways_to_call,
)
from privypurse.pytorch._taps import Taps

UNTRIED = "that the module keeps records apart: it could not be tried out on synthetic records"
SMALL_INTEGERS = "that the module keeps records apart for integers other than 0 and 1: it was not tried out on others"
COUNTED = "that {} of the module, which it changes when it is run, does not depend on records: on synthetic records it did not"
NUMBERS = (
    "that the module keeps records apart whatever whole numbers it is called with: it was tried out with the first ten"
)
CHANCE = (
    "that the module keeps records apart wherever they are in a batch: it draws random numbers in eval mode too, so that records "
    "could not be moved"
)

# Gradients of the records KEPT are compared in batches with different other records.
KEPT, COMPANY = (Record(0), Record(1)), Record(2)
ABOVE, BELOW, IGNORED = Record(3, side=1), Record(4, side=-1), Record(5, ignored=True)
BROKEN = Record(6, broken=True)  # no more than its own gradient may be lost by it
# Records with one integer throughout, and another record, which changes a minimum or a presence.
UNIFORM = tuple((tuple(Record(k, integers=one) for k in range(3)), other) for one, other in ((0, ABOVE), (1, BELOW)))
# Largest integers to try in turn, and the largest number of records in a trial batch.
INTEGERS, MOST = (10_000, 1_000, 100, 10, 3, 2), 32
# For modules that draw random numbers: other records in the batch, and number of seeds.
CROWD, TIMES = tuple(Record(10 + k) for k in range(6)), 3
FAR_CROWD = tuple(Record(record.seed, side=1 - 2 * (record.seed % 2)) for record in CROWD)
MOST_NUMBERS = 10  # distinct integer arguments that get a trial each


class Trials:
    """Trials of a module, one for each way in which it is called, before anything is spent.

    `records`: public expected number in a batch. `mean_loss`: a loss that the module returns is a
    mean over records, not a sum. `counters`: paths of numbers that each call changes, whatever the
    records. Values of records do not decide; the module and random number generators are restored.
    """

    def __init__(
        self, module: nn.Module, taps: Taps, trained: dict[str, nn.Parameter], *, records: float, mean_loss: bool = True
    ) -> None:
        self.module, self.taps, self.trained, self.mean_loss = module, taps, trained, mean_loss
        self.device = next(iter(trained.values())).device
        self.many = min(MOST, round(records))
        self.counters: set[Any] = set()
        self._state = ModuleState(module)
        self._tried: dict[Any, dict[Any, list[dict[str, int | None]]]] = {}  # lengths, by kind and numbers
        self.known: set[Way] = set()  # ways of calling that need no other trial
        self._said: set[str] = set()

    def ahead(self, batch: Any, *, with_loss: bool, modes: Sequence[bool] = (True,)) -> list[str]:
        """Try the module in the first way that works; return certificate lines on what was not verified.

        `with_loss`: it is called with all parts but the last, and in no other way.
        """
        like, records = moved(batch, self.device), synthetic.records_in(batch)
        ways = ways_to_call(self.module, batch)
        if with_loss:
            ways = [lambda made: (tuple(made[:-1]), {})] if isinstance(like, tuple | list) else []
        unknown: list[str] = []
        for mode in modes:
            with kept_modes(self.module):
                self.module.train(mode)
                arguments: Any = next(
                    (made for made in (way(like) for way in ways) if self._works(made, records)), None
                )
                found = [UNTRIED]
                try:
                    if arguments is not None:
                        found = self._widening(functools.partial(self._try, arguments, records, exactly=with_loss))
                except InvalidArgument:
                    raise
                except Exception as error:
                    if not self._works(arguments, records, backward=True):
                        failed = f"per-sample gradients could not be computed ({type(error).__name__}: {error})"
                        raise InvalidArgument(f"{failed}. Use layers of torch.nn.") from error
                if UNTRIED in found and with_loss and ways:
                    self._widening(functools.partial(self._count_rows, ways[0](like), records))
                if UNTRIED not in found and not synthetic.has_opaque_parts(arguments):
                    self._note(way_of_calling(self.module, arguments, records))
                unknown += found
        return self._news(unknown if with_loss else [line for line in unknown if line != UNTRIED])

    def at_call(self, arguments: Arguments, records: int) -> list[str]:
        """Try the module on the first call of each kind; return new certificate lines, as `ahead` does."""
        way = way_of_calling(self.module, arguments, records)
        earlier = self._tried.get(way.kind, {})
        unknown = []
        if way.numbers not in earlier and len(earlier) >= MOST_NUMBERS:
            unknown, way = [NUMBERS], way._replace(numbers=())
        for lengths in earlier.get(way.numbers, ()):
            # An earlier call with the same per-record parts covers this one. A part that is per-record
            # now only because its fixed length equals the batch size counts as the same, this time.
            others = [name for name, now in way.lengths if (lengths[name] is None) != (now is None)]
            if all(lengths[name] == records for name in others):
                if not (others or unknown):
                    self.known.add(way)
                return self._news(unknown)
        if not any(synthetic.of_records(x, records) for x in synthetic.tensors_in(arguments)):
            # If only lengths differ, the backward pass refuses the call.
            return self._news(unknown if earlier else [UNTRIED])
        arguments = moved(arguments, self.device)
        found = [UNTRIED]
        if self._works(arguments, records):
            try:
                found = self._widening(lambda: self._try(arguments, records, exactly=True))
            except InvalidArgument:
                raise
            except Exception:
                pass  # synthetic records are not valid inputs of every module
        if UNTRIED in found:
            self._widening(lambda: self._count_rows(arguments, records))
        self._note(way)
        return self._news([*unknown, *found, *[UNTRIED] * synthetic.has_opaque_parts(arguments)])

    def _widening(self, attempt: Callable[[], Any]) -> Any:
        """Run an attempt; where layers are not run by records, run the modules that hold them for each alone."""
        first, slow = None, ""
        while True:
            try:
                result = attempt()
            except NotByRecords as error:
                first, holds = first or error, self.taps.widen(error.layer)
                if holds is None:
                    raise first from error
                slow = f"{self.taps.name_of(holds)} is run for each record alone, which is slow and takes memory"
                continue
            if first is not None:
                warnings.warn(f"{slow}, because {first}", RuntimeWarning, stacklevel=4)
            return result

    def _count_rows(self, arguments: Arguments, records: int) -> None:
        """Check that layers run on as many rows as there are records, with copies of some of the batch's own."""
        for count in (2, 3):
            rows = torch.arange(count) % records
            pick = lambda x, _, rows=rows: x[rows] if synthetic.of_records(x, records) else x  # noqa: E731
            with self._aside(self._state.put_back()), torch.enable_grad(), self.taps.open(quietly=True):
                self.taps.learning = False  # nothing confirms it
                try:
                    self.module(*(made := each_part(arguments, pick))[0], **made[1])
                except NotByRecords:
                    raise
                except Exception:
                    return
                check_rows(self.taps.uses, count)

    def _note(self, way: Way) -> None:
        self._tried.setdefault(way.kind, {}).setdefault(way.numbers, []).append(dict(way.lengths))

    def _news(self, unknown: list[str]) -> list[str]:
        news = [line for line in dict.fromkeys(unknown) if line not in self._said]
        self._said |= set(news)
        return news

    def _works(self, arguments: Arguments, records: int, *, backward: bool = False) -> bool:
        """Whether the module returns floats for synthetic records, and these have gradients."""
        with self._aside(self._state.put_back()):
            try:
                made = made_up(arguments, records, (*KEPT, COMPANY))
                if backward:
                    self.heard(lambda: sum(x.sum() for x in floats(self.module(*made[0], **made[1]))), [1.0] * 3)
                return bool(floats(self.quietly(made)))
            except Exception:
                return False

    def _try(self, arguments: Arguments, records: int, *, exactly: bool) -> list[str]:
        """Try the module; return certificate lines on what was not verified."""
        # Ignored labels mix records in a model's own loss, which a loop may not use: tried if `exactly` so called.
        told = unfinished = False
        unknown: list[str] = []
        with self._aside(self._state.unchanged()):
            unknown += self._count_along(arguments, records)
            self._check_derived(made_up(arguments, records, (*KEPT, COMPANY)))
            reach, whole = self._reach(arguments, records)
            make = lambda made: made_up(arguments, records, made, reach)  # noqa: E731
            leaves_out = any(integers.ignored for integers in reach.values())
            of_records = [x for x in synthetic.tensors_in(arguments) if synthetic.of_records(x, records)]
            has_integers = not all(map(synthetic.has_numbers, of_records))
            for of_loss in (True, False):
                batches = (made_up(arguments, records, made) for made in (KEPT, (*KEPT, COMPANY)))
                two, three = (floats(self.quietly(batch), scalar=of_loss) for batch in batches)
                if two:
                    unfinished |= of_loss and leaves_out and not exactly
                    trial = _Trial(self, of_loss, two, three, make)
                    told |= trial.run(leaves_out=leaves_out and exactly)
                    trial.run_on_unusual(with_integers=has_integers)
                    unknown += trial.unknown
        return [*unknown, *[UNTRIED] * (not told or unfinished), *[SMALL_INTEGERS] * (not whole)]

    def heard(self, total: Callable[[], Any], weights: Sequence[float]) -> Tensor:
        """Return the weighted sum of per-sample gradients of a scalar, as hooks record them."""
        self.taps.take()
        with torch.enable_grad(), self.taps.open(quietly=True):
            number = total()
            if number.requires_grad:
                number.backward()  # plain, which checkpoints of activations support
                self.taps.anchor.grad = None
        sizes = {name: value.shape for name, value in self.trained.items()}
        return clipped_sum(self.taps.take(), sizes, torch.tensor(weights, device=self.device), 1e12).flat

    def _count_along(self, arguments: Arguments, records: int) -> list[str]:
        """Find counters and refuse other changes; return certificate lines on counters."""
        companies = (*KEPT, COMPANY), (*KEPT, ABOVE), KEPT[::-1], (BELOW, COMPANY, ABOVE)
        made = [made_up(arguments, records, company) for company in companies]
        made.append(each_part(made[0], lambda x, _: torch.zeros_like(x) if isinstance(x, Tensor) else x))
        self._state.find_counters(functools.partial(self.quietly, one) for one in made)
        with contextlib.suppress(Exception):
            self.quietly(made[0])
        self._state.check()
        self.counters |= self._state.counters
        return [COUNTED.format(path[0]) for path in self._state.counters]

    def _check_derived(self, made: Arguments) -> None:
        """Refuse a module that stores values derived from its parameters."""
        state = ModuleState(self.module, self._state.counters)
        before = {p: p.detach().clone() for p in self.trained.values() if p.numel() <= COMPARED}
        try:
            for parameter in before:
                parameter.data.mul_(1.01).add_(0.01)
            state.take()
            with contextlib.suppress(Exception):
                self.quietly(made)
            name = state.changed()
            state.restore()
        finally:
            for parameter, value in before.items():
                parameter.data.copy_(value)
        if name:
            stores = f"module stores {name}, which it computes from its parameters, as torch.nn.utils.weight_norm does"
            raise InvalidArgument(f"{stores}. Use torch.nn.utils.parametrizations, or compute it without storing.")

    def _reach(self, arguments: Arguments, records: int) -> tuple[Reach, bool]:
        """Return the integers that the module accepts for each part or column, and whether all were tried."""
        parts = synthetic.integer_parts(arguments, records)
        module = self.module
        if parts and self.device.type != "cpu":
            # An index out of range raises on the CPU, and ends the process elsewhere.
            try:
                module, arguments = copy.deepcopy(module).cpu(), moved(arguments, torch.device("cpu"))
            except Exception:
                return {}, False

        def takes(reach: Reach, *others: Record) -> bool:
            args, kwargs = made_up(arguments, records, (*KEPT, *others), reach)
            try:
                with torch.no_grad():
                    return bool(floats(module(*args, **kwargs)))
            except Exception:
                return False

        def reached(name: str, *, some_left_out: bool = False) -> Integers:
            return Integers(
                next((size for size in (-INTEGERS[0], 0, 1) if takes({name: Integers(smallest=size)}, BELOW)), 0),
                next((size for size in INTEGERS if takes({name: Integers(largest=size)}, ABOVE)), 1),
                some_left_out and takes({name: Integers(ignored=True)}, IGNORED),
            )

        reach, whole = {}, True
        for name, (columns, some_left_out) in parts.items():
            reach[name] = reached(name, some_left_out=some_left_out)
            if reach[name].largest <= 1 < columns:
                whole &= columns <= MOST
                for one in synthetic.column_names(name, columns if columns <= MOST else 0):
                    reach[one] = reached(one)._replace(ignored=reach[name].ignored)
        # Ranges accepted one by one may not be accepted together.
        return (reach, whole) if not reach or takes(reach, ABOVE, BELOW) else ({}, False)

    @contextlib.contextmanager
    def _aside(self, guard: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        """Run the module without dropout and side effects; `guard` restores its state."""
        uses, self.taps.uses = self.taps.uses, []
        self.taps.learning = True
        silent = getattr(self.module, "silent", contextlib.nullcontext)
        devices = {parameter.device for parameter in self.module.parameters() if parameter.is_cuda}
        drawn, drawn_by_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            with kept_modes(self.module), torch.random.fork_rng(list(devices)), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for layer in self.module.modules():
                    if isinstance(layer, nn.modules.dropout._DropoutNd | nn.MultiheadAttention | nn.RNNBase):
                        layer.training = False
                # `silent` sets attributes of the module, so it comes before the state is taken.
                with silent(), full_precision(), guard, torch.autocast(self.device.type, enabled=False):
                    yield
        finally:
            self.taps.uses, self.taps.learning = uses, False
            random.setstate(drawn)
            np.random.set_state(drawn_by_numpy)  # noqa: NPY002

    def quietly(self, made: Arguments) -> Any:
        """Run the module without gradients."""
        with torch.no_grad():
            return self.module(*made[0], **made[1])


class _Trial:
    """Comparison of per-sample gradients of synthetic records, for losses or other outputs of a module.

    `two`, `three`: outputs for as many records. `unknown`: certificate lines on what was not verified.
    """

    def __init__(
        self, its: Trials, of_loss: bool, two: list[Tensor], three: list[Tensor], make: Callable[[Any], Arguments]
    ) -> None:
        self._its, self._of_loss, self._make, self._mean = its, of_loss, make, its.mean_loss
        self.unknown: list[str] = []
        # The dimension of each output that grows with the number of records, and its scale.
        self._dimensions = [
            next((k for k, (a, b) in enumerate(zip(one.shape, other.shape, strict=False)) if 3 * a == 2 * b), None)
            for one, other in zip(two, three, strict=True)
        ]
        largest = [float(x.detach().abs().max()) if x.numel() else 1.0 for x in two]
        self._sizes = [size if 1 < size < math.inf else 1.0 for size in largest]
        low = any(value.dtype in (torch.float16, torch.bfloat16) for value in its.trained.values())
        # Relative to the gradient of a parameter, and to the whole gradient.
        self._tolerance = (0.05, 0.01) if low else (1e-3, 1e-5)

    def run(self, *, leaves_out: bool) -> bool:
        """Compare gradients across batches and with autograd; return whether any is nonzero."""
        there = self._gradients((*KEPT, COMPANY))
        self._check_apart(there, [(*KEPT, ABOVE), (*KEPT, BELOW)])
        self._check_heard()
        with contextlib.ExitStack() as stack:
            if not torch.equal(there, self._gradients((*KEPT, COMPANY), seed=1)):
                for seed in range(TIMES):  # positions stay fixed: random numbers depend on them
                    self._check_apart(self._gradients((*KEPT, *CROWD), seed), [(*KEPT, *FAR_CROWD)], seed)
                # Randomness outside of dropout layers may be off in eval mode.
                stack.enter_context(kept_modes(self._its.module))
                self._its.module.train(False)
                if not torch.equal(self._gradients(KEPT), self._gradients(KEPT, seed=1)):
                    self.unknown.append(CHANCE)
                    return bool(there.any())
            companies: list[tuple[Record, ...]] = [(ABOVE, *KEPT), (BELOW, ABOVE, KEPT[0], BELOW, KEPT[1])]
            if self._its.many > 5:
                others = tuple(Record(10 + k) for k in range(self._its.many - 5))
                companies.append((KEPT[0], ABOVE, *others, KEPT[1], BELOW, ABOVE))
            if leaves_out and self._of_loss:
                companies.append((*KEPT, IGNORED))
            if self.unknown:
                companies.append((COMPANY, KEPT[0], *CROWD, KEPT[1]))  # ordinary records
            alone = self._gradients(KEPT)
            try:
                self._check_apart(alone, companies)
            except InvalidArgument:
                if self._of_loss:
                    self._check_reduction(companies)
                raise
        return bool(there.any()) or bool(alone.any())

    def run_on_unusual(self, *, with_integers: bool) -> None:
        """Compare gradients beside a record without numbers, and of records with equal integers."""
        held = (*self._its.module.parameters(), *self._its.module.buffers())
        small = [x for x in held if not nn.parameter.is_lazy(x) and x.numel() <= COMPARED]
        for records, other in [((*KEPT, COMPANY), BROKEN), *(UNIFORM if with_integers else ())]:
            kept, before = records[:2], [x.detach().clone() for x in small]
            try:
                alone, found = (self._gradients((*kept, one), kept=kept) for one in (records[2], other))
            except Exception:
                continue  # such records may not be valid inputs
            finally:
                # Also here: an average that took in a NaN would stay NaN for good.
                for x, value in zip(small, before, strict=True):
                    x.data.copy_(value)
            self._compare(alone, found)

    def _check_reduction(self, companies: Sequence[tuple[Record, ...]]) -> None:
        """Refuse a loss that keeps records apart only with the other reduction."""
        self._mean = not self._mean
        try:
            self._check_apart(self._gradients(KEPT), companies)
        except InvalidArgument:
            return
        finally:
            self._mean = not self._mean
        raise wrong_reduction("the loss that the module computes", self._its.mean_loss)

    def _gradients(self, made: Sequence[Record], seed: int = 0, *, kept: Sequence[Record] = KEPT) -> Tensor:
        """Return the sum of the gradients of the records in `kept`, with a fixed seed."""
        seed_all(seed)
        return self._its.heard(lambda: self._total(made), [float(record in kept) for record in made])

    def _total(self, made: Sequence[Record]) -> Tensor:
        """Return a scalar that depends differently on each output, record and place."""
        args, kwargs = self._make(made)
        outputs = floats(self._its.module(*args, **kwargs), scalar=self._of_loss)
        total = torch.zeros((), dtype=torch.float64, device=self._its.device)
        for output, dimension, size in zip(outputs, self._dimensions, self._sizes, strict=True):
            values = output.double() / size
            if output.dim() == 0:
                total = total + (len(made) if self._mean else 1) * values
                continue
            rows = values.reshape(1, -1) if dimension is None else values.movedim(dimension, 0).reshape(len(made), -1)
            places = torch.cos(torch.arange(rows.shape[1], device=rows.device, dtype=torch.float64) + 1)
            each = torch.tensor([1 + record.seed % 7 / 2 for record in made], device=rows.device, dtype=torch.float64)
            # Nonlinear, so that a constant added to outputs changes the gradient too.
            total = total + ((rows + torch.asinh(rows)) * places * (1 if dimension is None else each[:, None])).sum()
        return total

    def _check_apart(self, alone: Tensor, companies: Sequence[tuple[Record, ...]], seed: int = 0) -> None:
        """Refuse gradients that differ with other records in the batch."""
        for company in companies:
            try:
                self._compare(alone, self._gradients(company, seed))
            except InvalidArgument:
                raise
            except Exception:
                self.unknown.append(UNTRIED)

    def _compare(self, alone: Tensor, found: Tensor) -> None:
        lengths, (of_own, of_whole) = [x.numel() for x in self._its.trained.values()], self._tolerance
        floor = of_whole * float(alone.norm()) + 1e-6
        parts = torch.split(alone, lengths), torch.split(found - alone, lengths)
        for name, own, difference in zip(self._its.trained, *parts, strict=True):
            if not float(difference.norm()) <= of_own * float(own.norm()) + floor:
                what = f"module mixes records: gradients of {name} depend on others in the batch"
                what += ". Compute nothing over the first dimension."
                for layer in self._its.taps.flattened:  # places may have been taken for records
                    raise NotByRecords(what, layer)
                raise InvalidArgument(what)

    def _check_heard(self) -> None:
        """Compare the sum of per-sample gradients with the gradient of autograd."""
        made, trained, taps = (*KEPT, COMPANY), self._its.trained, self._its.taps
        heard = self._gradients(made, kept=made)
        seed_all(0)
        before, listening = {p: p.grad for p in self._its.module.parameters()}, taps.listening
        try:
            for parameter in before:
                parameter.grad = None
            taps.listening = False
            with torch.enable_grad():
                number = self._total(made)
                if number.requires_grad:
                    number.backward()  # type: ignore[no-untyped-call]
            right = [(torch.zeros_like(p) if p.grad is None else p.grad).double().flatten() for p in trained.values()]
        finally:
            taps.listening = listening
            for parameter, grad in before.items():
                parameter.grad = grad
        whole = float(torch.cat(right).norm())
        for name, wrong, part in zip(trained, torch.split(heard, [len(x) for x in right]), right, strict=True):
            if math.isfinite(whole) and float((wrong - part).norm()) > 0.02 * whole + 1e-6:
                if taps.runs_for_each(name):
                    alone = f"{name} gets other gradients where its layer is run for each record alone"
                    raise InvalidArgument(f"module mixes records: {alone}. Compute nothing over the first dimension.")
                used = (
                    f"module uses {name} outside of its layer, as in F.linear(x, layer.weight), or on reshaped records"
                )
                layer = self._its.module.get_submodule(name.rpartition(".")[0])
                raise NotByRecords(f"{used}. Put each use in a layer.", layer)


def put_untried(purse: Purse, unknown: Sequence[str]) -> None:
    """Declare on the certificate what a trial could not verify."""
    for line in unknown:
        purse.declare_uncovered(line)
    if UNTRIED in unknown:
        warning = (
            "the module could not be tried out on synthetic records, so it is not verified that it keeps records apart; the "
            "certificate says so. Let it accept the loader's batches, with records in the first dimension of each part."
        )
        warnings.warn(warning, UserWarning, stacklevel=3)


def wrong_reduction(what: str, mean: bool) -> InvalidArgument:
    """Return the error for a loss whose reduction is not `loss_reduction`."""
    said, is_one = ("mean", "sum") if mean else ("sum", "mean")
    wrong = f"{what} is a {is_one} over the records of a batch, but loss_reduction is {said!r}"
    return InvalidArgument(f"{wrong}. Pass loss_reduction={is_one!r}, or make it a {said}.")
