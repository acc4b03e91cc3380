"""Layers with parameters of their own, run for each record alone with a copy of these parameters."""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from privypurse.pytorch._clipping import RUNNING_AGAIN, NotByRecords

_SHARED = (
    "Keep records, each once, as the first dimension of each, and give what all share a first dimension of length 1"
)
_APART = "Put these parameters into layers of torch.nn, or let it treat one record as it treats several"


class _Bare(nn.Module):
    """A layer that runs as its own class says, without its hooks."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the layer: the class it has now is a subclass that taps gave it."""
        return super(type(self.layer), self.layer).forward(*args, **kwargs)  # type: ignore[misc]


def run_for_each(
    layer: nn.Module,
    called: str,
    names: Sequence[str],
    places: Mapping[str, str],
    tap: Callable[[tuple[Tensor, ...]], Sequence[Tensor]],
    otherwise: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run a layer for each record alone by `vmap`, with copies of its parameters of some names.

    `called`: its name in messages. `places`: names of parameters, by each place in which they are.
    `tap` is given the copies and returns those to use. `otherwise`: the number of records where no
    argument shows it.
    """
    leaves, shape = torch.utils._pytree.tree_flatten((args, kwargs))
    sizes = {len(x) for x in leaves if isinstance(x, Tensor) and x.dim()} - {1}
    if len(sizes) > 1:
        wrong = f"{called} was called with tensors whose first dimensions have lengths {sorted(sizes)}"
        raise NotByRecords(f"{wrong}. {_SHARED}.", layer)
    records = sizes.pop() if sizes else otherwise
    for x in (*args, *kwargs.values()):
        if isinstance(x, list | np.ndarray) and len(x) == records > 1 and not any(isinstance(one, Tensor) for one in x):
            wrong = f"{called} was called with a {type(x).__name__} of {records} entries, one for each record"
            raise NotByRecords(f"{wrong}. Pass a tensor.", layer)
    each = [isinstance(x, Tensor) and x.dim() > 0 and len(x) == records for x in leaves]
    values: list[Any] = [functools.reduce(getattr, name.split("."), layer) for name in names]
    copies = tap(tuple(value.detach().expand(records, *value.shape) for value in values))
    where, kind = values[0].device.type, values[0].dtype
    if torch.is_autocast_enabled(where):  # which `vmap` does not know
        leaves = [x.to(kind) if isinstance(x, Tensor) and x.is_floating_point() else x for x in leaves]
    answers: list[Any] = []

    def one(own: dict[str, Tensor], given: list[Tensor]) -> list[Tensor]:
        single = iter(given)
        filled = [next(single).unsqueeze(0) if alone else x for alone, x in zip(each, leaves, strict=True)]
        again, more = torch.utils._pytree.tree_unflatten(filled, shape)
        answer = torch.func.functional_call(_Bare(layer), own, again, more, tie_weights=False)
        answers[:] = torch.utils._pytree.tree_flatten(answer)
        return [x for x in answers[0] if isinstance(x, Tensor)]

    running = RUNNING_AGAIN.set(True)
    try:
        with warnings.catch_warnings(), torch.autocast(where, enabled=False), sdpa_kernel(SDPBackend.MATH):
            warnings.filterwarnings("ignore", "There is a performance drop")
            copy_of = dict(zip(names, copies, strict=True))
            own = {f"layer.{place}": copy_of[name] for place, name in places.items()}
            given = [x for x, alone in zip(leaves, each, strict=True) if alone]
            found = torch.func.vmap(one, randomness="different")(own, given)
    except Exception as error:
        if torch._C._current_graph_task_id() != -1:  # a checkpoint of activations stops what it runs again by an error
            raise
        cause = f"{type(error).__name__}: {str(error).split(chr(10))[0][:200]}"
        raise NotByRecords(f"{called} could not be run for each record alone ({cause}). {_APART}.", layer) from error
    finally:
        RUNNING_AGAIN.reset(running)
    if any(x.shape[1:2] != (1,) for x in found):
        wrong = f"{called} returned a tensor whose first dimension is not that of records, when run for one record"
        raise NotByRecords(f"{wrong}. Let it return one row for each record.", layer)
    rows = iter(found)
    return torch.utils._pytree.tree_unflatten(
        [next(rows).squeeze(1) if isinstance(x, Tensor) else x for x in answers[0]], answers[1]
    )
