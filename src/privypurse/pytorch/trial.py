"""A trial on made-up records, before anything is spent: whether the module keeps records apart, and the taps hear everything."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from privypurse.core.errors import InvalidArgument
from privypurse.pytorch.clipping import check_records, clipped_sum
from privypurse.pytorch.taps import Taps

tree_map, tree_leaves = torch.utils._pytree.tree_map, torch.utils._pytree.tree_leaves


def try_out(module: nn.Module, taps: Taps, trained: dict[str, nn.Parameter], batch: Any) -> None:
    """Run made-up records through a module, together and alone, with and without taps; refuse what does not agree.

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

    Notes
    -----
    Made-up records need not make sense to every module: where it fails on them, nothing is checked here.
    """
    device = next(iter(trained.values())).device
    inputs, keywords = _inputs(batch)
    if inputs is None:
        return
    with _unchanged(module), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for count in (2, 3):
            made = tree_map(lambda x, count=count: _made_up(x, count, device), inputs)
            if keywords:  # what masked places say is nobody's business, and differs
                made |= {name: torch.ones_like(value) for name, value in made.items() if "mask" in name}
            try:
                with torch.no_grad():
                    if not _repeats_itself(module, made, keywords):
                        module.eval()  # chance that is not in a dropout layer
                    together = _run(module, made, keywords)
                    alone = _run(module, tree_map(lambda x: x[:1], made), keywords)
            except Exception:
                return
            if together is None or alone is None or any(len(x) != count for x in together):
                return
            _check_apart(together, alone)
            _check_heard(module, taps, trained, made, keywords, count)


def _repeats_itself(module: nn.Module, made: Any, keywords: bool) -> bool:
    first, second = (_run(module, made, keywords) or [] for _ in range(2))
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def _check_apart(together: list[Tensor], alone: list[Tensor]) -> None:
    for whole, single in zip(together, alone, strict=True):
        if not torch.allclose(whole[:1], single, rtol=1e-2, atol=1e-3, equal_nan=True):
            raise InvalidArgument(
                "module mixes records: what it says about a made-up record depends on the other records in the batch. Each "
                "record's gradient must be its own: take out what is computed over the first dimension. Nothing was spent."
            )


def _check_heard(
    module: nn.Module, taps: Taps, trained: dict[str, nn.Parameter], made: Any, keywords: bool, count: int
) -> None:
    """Compare the sum of gradients that the taps hear with the one that autograd computes."""
    device = next(iter(trained.values())).device
    taps.take()
    try:
        with torch.enable_grad():
            with taps.open(quietly=True):
                outputs = _run(module, made, keywords) or []
                torch.autograd.grad(_something(outputs), [taps.anchor], allow_unused=True)
            uses = taps.take()
            check_records(uses, count)
            sizes = {name: parameter.shape for name, parameter in trained.items()}
            heard = clipped_sum(uses, sizes, torch.ones(count, device=device), 1e12).flat
            with taps.deaf():
                grads = _plain_gradients(module, made, keywords, list(trained.values()))
    except InvalidArgument:
        raise
    except Exception as error:
        raise InvalidArgument(
            f"the gradients of single records could not be computed for this module ({type(error).__name__}: {error}). Write it "
            "with the layers of torch.nn, without activation checkpointing. Nothing was spent."
        ) from error
    pairs = zip(grads, trained.values(), strict=True)
    right = [(p.new_zeros(p.shape) if grad is None else grad).double().flatten() for grad, p in pairs]
    if not all(bool(torch.isfinite(part).all()) for part in right):
        return
    whole = float(torch.cat(right).norm())
    for name, wrong, part in zip(trained, torch.split(heard, [len(part) for part in right]), right, strict=True):
        if float((wrong - part).norm()) > 0.02 * whole + 1e-6:
            raise InvalidArgument(
                f"module uses {name} in a way that its layer does not show (by hand, as in F.linear(x, layer.weight), by "
                "activation checkpointing, or on something else than the records as they come): gradients of single records "
                "would be wrong. Put each use of a parameter in a layer. Nothing was spent."
            )


def _plain_gradients(
    module: nn.Module, made: Any, keywords: bool, parameters: list[nn.Parameter]
) -> list[Tensor | None]:
    """Return what a plain backward pass puts in ``.grad``; by that name, since checkpointing tells no other way."""
    before = {parameter: parameter.grad for parameter in module.parameters()}
    try:
        for parameter in before:
            parameter.grad = None
        _something(_run(module, made, keywords) or []).backward()  # type: ignore[no-untyped-call]
        return [parameter.grad for parameter in parameters]
    finally:
        for parameter, grad in before.items():
            parameter.grad = grad


def _something(outputs: list[Tensor]) -> Tensor:
    """Return a number that depends on all outputs, on each place in its own way."""
    total = outputs[0].new_zeros((), dtype=torch.float64)
    for output in outputs:
        places = torch.arange(output[0].numel(), device=output.device, dtype=torch.float64)
        total = total + (output.double().flatten(1) * torch.cos(places + 1)).sum()
    return total


def _run(module: nn.Module, made: Any, keywords: bool) -> list[Tensor] | None:
    made = tree_map(lambda x: x.detach().clone(), made)  # a module may change its inputs
    outputs = module(**made) if keywords else module(*made)
    kept = [x for x in tree_leaves(outputs) if isinstance(x, Tensor) and x.is_floating_point() and x.dim() > 0]
    return kept or None


def _inputs(batch: Any) -> tuple[Any, bool]:
    """Return what a module is given of a batch, and whether by keyword."""
    if isinstance(batch, dict) and all(isinstance(part, Tensor) for part in batch.values()):
        return dict(batch), True
    if isinstance(batch, tuple | list) and len(batch) > 1 and all(isinstance(part, Tensor) for part in batch):
        return list(batch[:-1]), False
    return None, False


def _made_up(part: Tensor, count: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    shape = (count, *part.shape[1:])
    if part.is_floating_point():
        return torch.randn(shape, generator=generator).to(device, part.dtype)
    return torch.randint(0, 2, shape, generator=generator).to(device, part.dtype)


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
        raise InvalidArgument(
            f"module changes its buffers ({changed[0]}) when it is run: that would keep a trace of records that nobody paid for. "
            "Take it out, or keep it from changing in training. Nothing was spent."
        )
