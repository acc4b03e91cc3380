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
        trial = _Trial(taps, trained, call)
        in_company = trial.gradients(three, [1.0, 1.0, 0.0])
        if not torch.equal(in_company, trial.gradients(three, [1.0, 1.0, 0.0])):
            module.eval()  # chance that is not in a dropout layer
            in_company = trial.gradients(three, [1.0, 1.0, 0.0])
        _check_apart(in_company, trial.gradients(other, [1.0, 1.0, 0.0]))
        _check_apart(in_company, trial.gradients(two, [1.0, 1.0]))
        trial.check_heard(module, three)
    return True


class _Trial:
    """Gradients of made-up records, as the taps hear them."""

    def __init__(self, taps: Taps, trained: dict[str, nn.Parameter], call: Call) -> None:
        self._taps, self._trained, self._call = taps, trained, call

    def gradients(self, made: Any, weights: list[float]) -> Tensor:
        """Return the sum of the gradients of some of the records."""
        self._taps.take()
        sizes = {name: parameter.shape for name, parameter in self._trained.items()}
        device = next(iter(self._trained.values())).device
        try:
            with torch.enable_grad(), self._taps.open(quietly=True):
                total = _something(self._call(made), len(weights))
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
        with self._taps.deaf(), torch.enable_grad():
            grads = _plain_gradients(module, lambda: _something(self._call(made), 3), list(self._trained.values()))
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
    if float((first - second).norm()) > 0.02 * float(first.norm()) + 1e-6:
        raise InvalidArgument(
            "module mixes records: the gradients of made-up records depend on the other records in the batch. Each record's "
            "gradient must be its own: take out what is computed over the first dimension. Nothing was spent."
        )


def _call(module: nn.Module, made: Any) -> Call | None:
    """Return how to run the module on a batch, by trying; None where no way works."""
    for call in _ways(module, made):
        try:
            with torch.no_grad():
                if _outputs(call(made)):
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


def _outputs(answer: Any) -> list[Tensor]:
    """Return what a module answers with for each record; its loss, where it answers with nothing else."""
    floats = [x for x in tree_leaves(answer) if isinstance(x, Tensor) and x.is_floating_point()]
    return [x for x in floats if x.dim() > 0] or floats


def _something(answer: Any, count: int) -> Tensor:
    """Return a number that depends on all outputs, on each place in its own way."""
    outputs = _outputs(answer)
    total = outputs[0].new_zeros((), dtype=torch.float64)
    for output in outputs:
        if output.dim() == 0:
            total = total + count * output.double()  # a mean over records
        else:
            places = torch.arange(output[:1].numel(), device=output.device, dtype=torch.float64)
            total = total + (output.double().flatten(1) * torch.cos(places + 1)).sum()
    return total


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
            rows = [torch.randn(shape, generator=generator) for generator in generators]
        else:
            rows = [torch.randint(0, 2, shape, generator=generator) for generator in generators]
        return torch.stack(rows).to(device, x.dtype)

    if isinstance(batch, dict):
        return {name: tree_map(lambda x, name=name: one(x, name), value) for name, value in batch.items()}
    return tree_map(one, batch)


@contextlib.contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Run a module in training mode without dropout, and leave it, and chance, as they were; refuse one whose buffers change."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    state, training = torch.get_rng_state(), {layer: layer.training for layer in module.modules()}
    module.train()
    for layer in module.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd | nn.MultiheadAttention):
            layer.training = False
    try:
        yield
        changed = [name for name, buffer in module.named_buffers() if not torch.equal(buffer, buffers[name])]
    finally:
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
        for layer, mode in training.items():
            layer.training = mode
        torch.set_rng_state(state)
    if changed:
        raise changing_buffer(changed[0])


def changing_buffer(name: str) -> InvalidArgument:
    """Return the refusal of a module that keeps something of the records it is run on."""
    return InvalidArgument(
        f"module changes its buffers ({name}) when it is run: that would keep a trace of records that nobody paid for. Take it "
        "out, or keep it from changing in training. Nothing was spent."
    )
