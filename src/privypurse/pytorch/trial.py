"""A trial on made-up records, before anything is spent: whether the module keeps records apart, and the taps hear everything."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from privypurse.core.errors import InvalidArgument
from privypurse.pytorch.clipping import check_records, clipped_sum
from privypurse.pytorch.taps import Taps

tree_map, tree_leaves = torch.utils._pytree.tree_map, torch.utils._pytree.tree_leaves
Call = Callable[[Any], Any]


def try_out(module: nn.Module, taps: Taps, trained: dict[str, nn.Parameter], batch: Any) -> bool:
    """Run made-up records through a module, in company of others and of fewer, with and without taps; refuse what does not agree.

    Parameters
    ----------
    module : Module
        The module.
    taps : Taps
        Taps on it.
    trained : dict of Parameter
        What is trained.
    batch : Any
        One record as the loader gives it, for shapes and types; its values are not used.

    Returns
    -------
    bool
        Whether the trial could be made: made-up records need not make sense to every module.
    """
    device = next(iter(trained.values())).device
    with _unchanged(module), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        three, other, two = (_made_up(batch, count, device, odd) for count, odd in ((3, False), (3, True), (2, False)))
        call = _call(module, three)
        if call is None:
            return False
        for part in (_loss_of, _outputs):
            if part(_quietly(call, three)):
                _try_part(module, _Trial(taps, trained, call, part), three, other, two)
    return True


def _try_part(module: nn.Module, trial: "_Trial", three: Any, other: Any, two: Any) -> None:
    """Compare the gradients of two made-up records in different company, and with plain ones."""
    kept = [1.0, 1.0, 0.0]
    in_company = trial.gradients(three, kept)
    _check_apart(in_company, trial.gradients(other, kept))
    trial.check_heard(module, three)
    mode = module.training
    if not torch.equal(in_company, trial.gradients(three, kept, seed=1)):
        module.eval()  # chance that is not in a dropout layer: two records draw other numbers than three
        in_company = trial.gradients(three, kept)
    _check_apart(in_company, trial.gradients(two, [1.0, 1.0]))
    if mode and not module.training:
        _train_without_dropout(module)


class _Trial:
    """Gradients of made-up records, as the taps hear them, of a part of what the module answers."""

    def __init__(
        self, taps: Taps, trained: dict[str, nn.Parameter], call: Call, part: Callable[[Any], list[Tensor]]
    ) -> None:
        self._taps, self._trained, self._call, self._part = taps, trained, call, part

    def gradients(self, made: Any, weights: list[float], seed: int = 0) -> Tensor:
        """Return the sum of the gradients of some of the records; chance is the same each time."""
        torch.manual_seed(seed)
        self._taps.take()
        sizes = {name: parameter.shape for name, parameter in self._trained.items()}
        device = next(iter(self._trained.values())).device
        try:
            with torch.enable_grad(), self._taps.open(quietly=True):
                total = _something(self._part(self._call(made)), len(weights))
                torch.autograd.grad(total, [self._taps.anchor], allow_unused=True)
            uses = self._taps.take()
            check_records(uses, len(weights))
            return clipped_sum(uses, sizes, torch.tensor(weights, device=device), 1e12).flat
        except InvalidArgument:
            raise
        except Exception as error:
            raise InvalidArgument(
                f"the gradients of single records could not be computed for this module ({type(error).__name__}: {error}). "
                "Write it with the layers of torch.nn, without activation checkpointing. Nothing was spent."
            ) from error

    def check_heard(self, module: nn.Module, made: Any) -> None:
        """Compare the sum of gradients that the taps hear with the one that autograd computes."""
        heard = self.gradients(made, [1.0, 1.0, 1.0])
        torch.manual_seed(0)
        with self._taps.deaf(), torch.enable_grad():
            total = lambda: _something(self._part(self._call(made)), 3)  # noqa: E731
            grads = _plain_gradients(module, total, list(self._trained.values()))
        right = [
            (parameter.new_zeros(parameter.shape) if grad is None else grad).double().flatten()
            for grad, parameter in zip(grads, self._trained.values(), strict=True)
        ]
        if not all(bool(torch.isfinite(part).all()) for part in right):
            return
        whole = float(torch.cat(right).norm())
        parts = torch.split(heard, [len(part) for part in right])
        for name, wrong, part in zip(self._trained, parts, right, strict=True):
            if float((wrong - part).norm()) > 0.02 * whole + 1e-6:
                raise InvalidArgument(
                    f"module uses {name} in a way that its layer does not show (by hand, as in F.linear(x, layer.weight), by "
                    "activation checkpointing, or on something else than the records as they come): gradients of single records "
                    "would be wrong. Put each use of a parameter in a layer. Nothing was spent."
                )


def _check_apart(first: Tensor, second: Tensor) -> None:
    if float((first - second).norm()) > 1e-3 * float(first.norm()) + 1e-6:
        raise InvalidArgument(
            "module mixes records: the gradients of made-up records depend on the other records in the batch. Each record's "
            "gradient must be its own: take out what is computed over the first dimension. Nothing was spent."
        )


def _call(module: nn.Module, made: Any) -> Call | None:
    """Return how to run the module on a batch, by trying; None where no way works."""
    for call in _ways(module, made):
        try:
            if _floats(_quietly(call, made)):
                return call
        except Exception:
            continue
    return None


def _ways(module: nn.Module, made: Any) -> list[Call]:
    def fresh(x: Any) -> Any:
        return tree_map(lambda part: part.detach().clone() if isinstance(part, Tensor) else part, x)

    if hasattr(module, "on_batch"):  # a module that knows what to do with a whole batch
        return [lambda batch: module.on_batch(fresh(batch))]  # type: ignore[operator]
    if isinstance(made, dict):
        labels = {"labels", "label", "targets", "target", "y"}
        return [
            lambda batch: module(**fresh(batch)),
            lambda batch: module(**{name: x for name, x in fresh(batch).items() if name not in labels}),
            *(lambda batch, name=name: module(fresh(batch)[name]) for name in made),
        ]
    if isinstance(made, tuple | list) and len(made) > 1:
        return [
            lambda batch: module(*fresh(batch)[:-1]),
            lambda batch: module(*fresh(batch)),
            lambda batch: module(fresh(batch)[0]),
        ]
    return [lambda batch: module(*fresh(batch)) if isinstance(batch, tuple | list) else module(fresh(batch))]


def _floats(answer: Any) -> list[Tensor]:
    return [x for x in tree_leaves(answer) if isinstance(x, Tensor) and x.is_floating_point()]


def _outputs(answer: Any) -> list[Tensor]:
    """Return what a module answers with for each record."""
    return [x for x in _floats(answer) if x.dim() > 0]


def _loss_of(answer: Any) -> list[Tensor]:
    """Return the loss that a module computes by itself, if it does."""
    return [x for x in _floats(answer) if x.dim() == 0]


def _something(outputs: list[Tensor], count: int) -> Tensor:
    """Return a number that depends on all outputs, on each place in its own way."""
    total = outputs[0].new_zeros((), dtype=torch.float64)
    for output in outputs:
        if output.dim() == 0:
            total = total + count * output.double()  # a mean over records
        else:
            places = torch.arange(output[:1].numel(), device=output.device, dtype=torch.float64)
            total = total + (output.double().flatten(1) * torch.cos(places + 1)).sum()
    return total


def _quietly(call: Call, made: Any) -> Any:
    with torch.no_grad():
        return call(made)


def _plain_gradients(
    module: nn.Module, total: Callable[[], Tensor], parameters: list[nn.Parameter]
) -> list[Tensor | None]:
    """Return what a plain backward pass puts in ``.grad``; by that name, since checkpointing tells no other way."""
    before = {parameter: parameter.grad for parameter in module.parameters()}
    try:
        for parameter in before:
            parameter.grad = None
        total().backward()  # type: ignore[no-untyped-call]
        return [parameter.grad for parameter in parameters]
    finally:
        for parameter, grad in before.items():
            parameter.grad = grad


def _made_up(batch: Any, count: int, device: torch.device, odd: bool) -> Any:
    """Make records up in the shape of one; the odd batch has another last record."""

    def one(x: Any, name: str = "") -> Any:
        if not isinstance(x, Tensor) or x.dim() == 0:
            return x
        generators = [torch.Generator().manual_seed(17 * odd + k if k == 2 else k) for k in range(count)]
        shape = x.shape[1:]
        if "mask" in name:  # what masked places say is nobody's business, and differs
            return torch.ones((count, *shape), dtype=x.dtype, device=device)
        if x.is_floating_point():
            # The odd record is far out: what is computed over the batch has to show.
            far = [1e4 if odd and k == 2 else 1.0 for k in range(count)]
            rows = [size * torch.randn(shape, generator=g) for g, size in zip(generators, far, strict=True)]
        else:
            rows = [torch.randint(0, 2, shape, generator=generator) for generator in generators]
        return torch.stack(rows).to(device, x.dtype)

    if isinstance(batch, dict):
        return {name: tree_map(lambda x, name=name: one(x, name), value) for name, value in batch.items()}
    return tree_map(one, batch)


def _train_without_dropout(module: nn.Module) -> None:
    module.train()
    for layer in module.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd | nn.MultiheadAttention):
            layer.training = False


@contextlib.contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Run a module in training mode without dropout, and leave it, and chance, as they were; refuse one whose buffers change."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    training = {layer: layer.training for layer in module.modules()}
    devices = {parameter.device for parameter in module.parameters() if parameter.is_cuda}
    _train_without_dropout(module)
    try:
        with torch.random.fork_rng(list(devices)):
            yield
        changed = [name for name, buffer in module.named_buffers() if not torch.equal(buffer, buffers[name])]
    finally:
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
        for layer, mode in training.items():
            layer.training = mode
    if changed:
        raise changing_buffer(changed[0])


def changing_buffer(name: str) -> InvalidArgument:
    """Return the refusal of a module that keeps something of the records it is run on."""
    return InvalidArgument(
        f"module changes its buffers ({name}) when it is run: that would keep a trace of records that nobody paid for. Take it "
        "out, or keep it from changing in training. Nothing was spent."
    )
