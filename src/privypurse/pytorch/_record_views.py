"""[RAW DATA] Several views of each record in `fit`: its gradient is the mean of theirs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.pytorch._clipping import EmbeddingRule, LinearRule, Rule, Use
from privypurse.pytorch._rows import Record, made_up, moved

Views = Callable[..., Any]
# The views of the first two records must not depend on other records of a batch, nor on their number.
FIRST = Record(0), Record(1)
COMPANIES = (Record(2),), (Record(3, side=1),), (Record(4, side=-1),)
CROWD = tuple(Record(5 + number) for number in range(4))


def in_views(views: Views, batch: Sequence[Tensor], count: int | None = None) -> tuple[list[Tensor], int]:
    """Return a batch with a row for each view of each record, those of a record together, and their number."""
    *inputs, target = batch
    made = [each if isinstance(each, tuple | list) else (each,) for each in views(*inputs)]
    parts = [[part for part in each if isinstance(part, Tensor)] for each in made]
    shapes = {tuple(part.shape for part in each) for each in parts}
    whole = all(shape[:1] == target.shape[:1] for each in shapes for shape in each)
    if len(shapes) != 1 or not whole or [len(each) for each in made] != [len(each) for each in parts] or () in shapes:
        found = f"views must return versions of a batch, each with one row for each of {len(target)} records"
        raise InvalidArgument(f"{found}; got shapes {shown(sorted(map(str, shapes)))}. Return a list of such tensors.")
    if count is not None and len(made) != count:
        raise InvalidArgument(
            f"views must return {count} versions of every batch, as on the first; got {len(made)}. Return as many."
        )
    rows = [torch.stack(versions, dim=1).flatten(0, 1) for versions in zip(*parts, strict=True)]
    return [*rows, target.repeat_interleave(len(made), dim=0)], len(made)


def try_views(views: Views, one: Sequence[Tensor], device: torch.device) -> tuple[list[Tensor], int]:
    """Try a function on synthetic records; return one record as the module sees it, and the number of views.

    `one`: a batch of one record, of which only shapes and types are used. Raise InvalidArgument if the
    views of a record depend on others.
    """
    if not callable(views):
        raise InvalidArgument(f"views must be a function of a batch of inputs; got {shown(views)}.")

    def of_first(company: tuple[Record, ...], seed: int = 0) -> tuple[list[Tensor], int]:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            rows, count = in_views(views, moved(made_up(tuple(one), 1, (*FIRST, *company)), device))
        return [part[: len(FIRST) * count] for part in rows], count

    alone, count = of_first(COMPANIES[0])
    # Random numbers are drawn for a whole batch, so that they depend on its size.
    random = not _equal(alone, of_first(COMPANIES[0], seed=1)[0])
    others = [of_first(company)[0] for company in (*COMPANIES[1:], *(() if random else (CROWD,)))]
    if not all(_equal(alone, other) for other in others):
        raise InvalidArgument(
            "views must not mix records: the views of a record depend on others in its batch. "
            "Change each record by itself, by numbers fixed in advance or drawn for each."
        )
    return [part[:1] for part in alone], count


def _equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True) for a, b in pairs)


@dataclass(frozen=True, eq=False)
class _OfViews(Rule):
    """Rule of a layer that was run on all views, as of a layer that was run on records."""

    views: Use
    count: int

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Add up the gradients of the views of each record."""
        each = self.views.rule.gradients(self.views)
        if self.views.broken is not None:
            use.broken = torch.unflatten(self.views.broken, 0, (-1, self.count)).any(1)
        return {name: torch.unflatten(value, 0, (-1, self.count)).sum(1) for name, value in each.items()}


def of_records(use: Use, count: int) -> Use:
    """Return the use of a layer on `count` views of each record as a use on records, whose gradients are sums."""
    if type(use.rule) in (LinearRule, EmbeddingRule):  # views are places
        inputs, back = (_apart(part, count) for part in (use.inputs, use.output_grads))
        return replace(use, inputs=inputs, output_grads=back)
    firsts = torch.utils._pytree.tree_map(lambda x: x[::count] if isinstance(x, Tensor) else x, use.inputs)
    return Use(_OfViews(use, count), use.layer, use.names, firsts, [])


def _apart(values: Any, count: int) -> Any:
    return torch.utils._pytree.tree_map(
        lambda x: torch.unflatten(x, 0, (-1, count)) if isinstance(x, Tensor) else x, values
    )
