"""[RAW DATA] Attention written out, so that hooks record its linear maps."""

import functools
import inspect
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privypurse.core._errors import InvalidArgument
from privypurse.pytorch._clipping import LinearRule, Use, padded

Tap = Callable[[LinearRule, dict[str, str], Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class RowsOfLinear(LinearRule):
    """Linear map by some rows of a larger matrix, such as packed queries, keys and values."""

    first: int
    rows: int

    def weighted_sums(self, use: Use, weights: Tensor, fit: Tensor) -> dict[str, Tensor]:
        """Return weighted sums, with zeros for the other rows."""
        sums = super().weighted_sums(use, weights, fit)
        return {name: padded(value, 0, self.rows, self.first) for name, value in sums.items()}

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return each record's gradient, with zeros for the other rows."""
        return {name: padded(value, 1, self.rows, self.first) for name, value in super().gradients(use).items()}


def check_attention(layer: nn.MultiheadAttention, name: str) -> None:
    """Raise InvalidArgument for settings that `attend` does not support."""
    if not layer._qkv_same_embed_dim or layer.bias_k is not None or layer.add_zero_attn:
        raise InvalidArgument(
            f"module has {name or 'a layer'}, a MultiheadAttention with kdim, vdim, add_bias_kv or add_zero_attn, for which "
            "there are no per-sample gradients. Use one without, or write it with nn.Linear layers."
        )


class TappedAttention(nn.MultiheadAttention):
    """Attention that is written out while a tap is active; copies have none."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run `attend` with an active tap, the original forward otherwise."""
        tap = _LISTENERS[self]() if self in _LISTENERS else None
        return super().forward(*args, **kwargs) if tap is None else attend(self, tap, args, kwargs)


_LISTENERS: "weakref.WeakKeyDictionary[nn.Module, Callable[[], Tap | None]]" = weakref.WeakKeyDictionary()
_ATTENTION = inspect.signature(nn.MultiheadAttention.forward)


class Listening:
    """Replaces the forward of one attention layer until it is removed."""

    def __init__(self, layer: nn.MultiheadAttention, tap: "Callable[[], Tap | None]") -> None:
        self._layer = layer
        layer.__class__ = TappedAttention
        _LISTENERS[layer] = tap

    def remove(self) -> None:
        """Restore the class of the layer."""
        _LISTENERS.pop(self._layer, None)
        self._layer.__class__ = nn.MultiheadAttention


def attend(layer: nn.MultiheadAttention, tap: Tap, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute the layer's forward, with taps on its linear maps."""
    given = _ATTENTION.bind(layer, *args, **kwargs).arguments
    query, key, value = given["query"], given["key"], given["value"]
    if query.dim() != 3:
        raise InvalidArgument("attention expects inputs with a dimension for records; got none. Add it with unsqueeze.")
    same = query is key and key is value
    if not layer.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    width = layer.embed_dim
    weight, bias = layer.in_proj_weight, layer.in_proj_bias

    def project(x: Tensor, first: int, rows: int) -> Tensor:
        part = slice(first, first + rows)
        out = F.linear(x, weight[part], None if bias is None else bias[part])
        rule = LinearRule() if rows == 3 * width else RowsOfLinear(first, 3 * width)
        return tap(rule, {"weight": "in_proj_weight", "bias": "in_proj_bias"}, x, out)

    if same:
        q, k, v = project(query, 0, 3 * width).chunk(3, dim=-1)
    else:
        q, k, v = (project(x, k * width, width) for k, x in enumerate((query, key, value)))
    heads = layer.num_heads
    q, k, v = (x.reshape(x.shape[0], x.shape[1], heads, width // heads).transpose(1, 2) for x in (q, k, v))
    mask = _mask(given, q)
    dropout = layer.dropout if layer.training else 0.0
    if given.get("need_weights", True):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        shares = F.dropout(torch.softmax(scores if mask is None else scores + mask, dim=-1), dropout)
        mixed = shares @ v
        seen = shares.mean(1) if given.get("average_attn_weights", True) else shares
    else:
        mixed, seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout), None
    mixed = mixed.transpose(1, 2).flatten(2)
    out = F.linear(mixed, layer.out_proj.weight, layer.out_proj.bias)
    out = tap(LinearRule(), {"weight": "out_proj.weight", "bias": "out_proj.bias"}, mixed, out)
    return (out if layer.batch_first else out.transpose(0, 1)), seen


def _mask(given: dict[str, Any], q: Tensor) -> Tensor | None:
    """Return both masks as one to add to scores of shape (records, heads, places, places)."""
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    if mask is not None and mask.dim() == 3:
        mask = mask.reshape(q.shape[0], q.shape[1], *mask.shape[1:])
    if padding is not None:
        padding = padding.reshape(q.shape[0], 1, 1, padding.shape[-1])
    parts = [
        q.new_zeros(part.shape).masked_fill(part, -math.inf) if part.dtype == torch.bool else part.to(q.dtype)
        for part in (mask, padding)
        if part is not None
    ]
    return functools.reduce(torch.add, parts) if parts else None
