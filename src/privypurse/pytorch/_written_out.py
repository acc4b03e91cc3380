"""Layers that are written out as linear maps and lookups while taps are active: attention, recurrence, bags."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from privypurse.core._errors import InvalidArgument
from privypurse.pytorch._clipping import CopiesRule, EmbeddingRule, LinearRule, RowsOfLinear, Rule, StepsRule

# Records a use: its rule, names of parameters in the rule and in the layer, input and output; returns the output.
Tap = Callable[[Rule, dict[str, str], Any, Tensor], Tensor]
WrittenOut = Callable[[Any, Tap, tuple[Any, ...], dict[str, Any]], Any]


def written_out(layer: nn.Module) -> WrittenOut | None:
    """Return the function that runs a layer with taps on its parts, if there is one."""
    for kinds, run in _WRITTEN_OUT:
        if any(isinstance(layer, kind) and type(layer).forward is kind.forward for kind in kinds):
            return run
    return None


def _given(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(type(layer).forward).bind(layer, *args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _linear(layer: nn.Module, tap: Tap, names: tuple[str, str], x: Tensor) -> Tensor:
    """Apply the linear map whose weight and bias have these names in the layer."""
    weight, bias = (getattr(layer, name, None) for name in names)
    assert weight is not None
    return tap(LinearRule(), {"weight": names[0], "bias": names[1]}, x, F.linear(x, weight, bias))


def attend(layer: nn.MultiheadAttention, tap: Tap, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute `nn.MultiheadAttention`."""
    given = _given(layer, args, kwargs)
    query, key, value = (given[name] for name in ("query", "key", "value"))
    if query.dim() != 3:
        raise InvalidArgument("attention expects inputs with a dimension for records; got none. Add it with unsqueeze.")
    same = query is key is value and layer._qkv_same_embed_dim
    if not layer.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    width, bias = layer.embed_dim, layer.in_proj_bias

    def project(x: Tensor, first: int, rows: int) -> Tensor:
        part, name = slice(first, first + rows), "in_proj_weight"
        if not layer._qkv_same_embed_dim:
            name = ("q_proj_weight", "k_proj_weight", "v_proj_weight")[first // width]
        weight = getattr(layer, name) if name != "in_proj_weight" else layer.in_proj_weight[part]
        out = F.linear(x, weight, None if bias is None else bias[part])
        if name != "in_proj_weight":
            out = tap(LinearRule(), {"weight": name}, x, out)
            return tap(RowsOfLinear(first, 3 * width), {"bias": "in_proj_bias"}, x, out)
        rule = LinearRule() if rows == 3 * width else RowsOfLinear(first, 3 * width)
        return tap(rule, {"weight": name, "bias": "in_proj_bias"}, x, out)

    if same:
        q, k, v = project(query, 0, 3 * width).chunk(3, dim=-1)
    else:
        q, k, v = (project(x, k * width, width) for k, x in enumerate((query, key, value)))
    if layer.bias_k is not None:
        k, v = (_one_more_place(layer, tap, name, x) for name, x in (("bias_k", k), ("bias_v", v)))
    if layer.add_zero_attn:
        k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))
    q, k, v = (torch.unflatten(x, -1, (layer.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
    mask = _mask(given, q, (layer.bias_k is not None) + layer.add_zero_attn)
    dropout = layer.dropout if layer.training else 0.0
    if given["need_weights"]:
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        shares = F.dropout(torch.softmax(scores if mask is None else scores + mask, dim=-1), dropout)
        mixed = shares @ v
        seen = shares.mean(1) if given["average_attn_weights"] else shares
    else:
        mixed, seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout), None
    mixed = mixed.transpose(1, 2).flatten(2)
    out = F.linear(mixed, layer.out_proj.weight, layer.out_proj.bias)
    out = tap(LinearRule(), {"weight": "out_proj.weight", "bias": "out_proj.bias"}, mixed, out)
    return (out if layer.batch_first else out.transpose(0, 1)), seen


def _one_more_place(layer: nn.Module, tap: Tap, name: str, x: Tensor) -> Tensor:
    """Append a parameter of shape (1, 1, width) as a place of each record."""
    copies = getattr(layer, name).expand(len(x), 1, 1, -1)
    return torch.cat([x, tap(CopiesRule(), {name: name}, copies, copies).flatten(1, 2).to(x.dtype)], dim=1)


def _mask(given: dict[str, Any], q: Tensor, more: int) -> Tensor | None:
    """Return both masks as one to add to scores of shape (records, heads, places, places and `more`)."""
    mask, padding = given["attn_mask"], given["key_padding_mask"]
    if mask is not None and mask.dim() == 3:
        mask = mask.reshape(q.shape[0], q.shape[1], *mask.shape[1:])
    if padding is not None:
        padding = padding.reshape(q.shape[0], 1, 1, padding.shape[-1])
    parts = [
        F.pad(
            q.new_zeros(part.shape).masked_fill(part, -math.inf) if part.dtype == torch.bool else part.to(q.dtype),
            (0, more),
        )
        for part in (mask, padding)
        if part is not None
    ]
    return functools.reduce(torch.add, parts) if parts else None


def _next_state(kind: str, seen: Tensor, before: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the next state of a cell: `seen` and `before` are the maps of its input and of its last state."""
    if kind == "LSTM":
        i, f, g, o = (seen + before).chunk(4, dim=-1)
        memory = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(memory), memory
    if kind == "GRU":
        (r, z, n), (r_before, z_before, n_before) = seen.chunk(3, dim=-1), before.chunk(3, dim=-1)
        new = torch.tanh(n + torch.sigmoid(r + r_before) * n_before)
        return (new + torch.sigmoid(z + z_before) * (state[0] - new),)
    return ((torch.tanh if kind == "RNN_TANH" else torch.relu)(seen + before),)


def cell(layer: nn.RNNCellBase, tap: Tap, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute one step of a recurrent cell."""
    x, state = (_given(layer, args, kwargs)[name] for name in ("input", "hx"))
    if x.dim() != 2:
        raise InvalidArgument("a cell expects an input with a dimension for records; got none. Add it with unsqueeze.")
    kind = f"RNN_{layer.nonlinearity.upper()}" if isinstance(layer, nn.RNNCell) else type(layer).__name__[:-4]
    seen = _linear(layer, tap, ("weight_ih", "bias_ih"), x)
    if state is None:
        state = (x.new_zeros(len(x), layer.hidden_size),) * (2 if kind == "LSTM" else 1)
    state = state if isinstance(state, tuple) else (state,)
    state = _next_state(kind, seen, _linear(layer, tap, ("weight_hh", "bias_hh"), state[0]), state)
    return state if kind == "LSTM" else state[0]


def recur(layer: nn.RNNBase, tap: Tap, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute `nn.LSTM`, `nn.GRU` and `nn.RNN`, also on packed sequences."""
    given, lengths = _given(layer, args, kwargs), None
    whole, start = given["input"], given["hx"]
    if isinstance(whole, PackedSequence):
        x, lengths = pad_packed_sequence(whole, batch_first=True)
    elif whole.dim() == 3:
        x = whole if layer.batch_first else whole.transpose(0, 1)
    else:
        raise InvalidArgument("recurrence expects a dimension for records in its input. Add it with unsqueeze.")
    records, length = x.shape[:2]
    there = None if lengths is None else (torch.arange(length) < lengths[:, None]).to(x.device).unbind(1)
    ways = 2 if layer.bidirectional else 1
    if start is None:
        widths = (layer.proj_size or layer.hidden_size, layer.hidden_size)[: 2 if layer.mode == "LSTM" else 1]
        start = tuple(x.new_zeros(layer.num_layers * ways, records, width) for width in widths)
    start = start if isinstance(start, tuple) else (start,)
    ends: list[tuple[Tensor, ...]] = []
    for level in range(layer.num_layers):
        outs = []
        for way in range(ways):
            states, end = _one_way(layer, tap, level, way, x, tuple(part[len(ends)] for part in start), there)
            outs.append(states)
            ends.append(end)
        x = torch.cat(outs, dim=-1)
        if level < layer.num_layers - 1:
            x = F.dropout(x, layer.dropout, layer.training)
    last = [torch.stack(parts) for parts in zip(*ends, strict=True)]
    if lengths is not None:
        order = whole.sorted_indices
        rows = (x, lengths) if order is None else (x[order], lengths[order.cpu()])
        packed = pack_padded_sequence(*rows, batch_first=True)
        out: Any = PackedSequence(packed.data, packed.batch_sizes, order, whole.unsorted_indices)
    else:
        out = x if layer.batch_first else x.transpose(0, 1)
    return out, (tuple(last) if layer.mode == "LSTM" else last[0])


def _one_way(
    layer: nn.RNNBase, tap: Tap, level: int, way: int, x: Tensor, state: tuple[Tensor, ...], there: Any
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run one level in one direction; return all outputs, and the last state of each record."""
    length, name = x.shape[1], f"_l{level}{'_reverse' * way}"
    weights = getattr(layer, f"weight_hh{name}"), getattr(layer, f"bias_hh{name}", None)
    seen = _linear(layer, tap, (f"weight_ih{name}", f"bias_ih{name}"), x)
    before = _Steps(tap, {"weight": f"weight_hh{name}", "bias": f"bias_hh{name}"}, seen, seen.shape[-1])
    shrink = _Steps(tap, {"weight": f"weight_hr{name}"}, seen, layer.proj_size) if layer.proj_size else None
    outs: list[Tensor] = [state[0]] * length
    for place in reversed(range(length)) if way else range(length):
        mapped = before.map(place, state[0], *weights)
        new = _next_state(layer.mode, seen[:, place], mapped, state)
        if shrink is not None:
            new = (shrink.map(place, new[0], getattr(layer, f"weight_hr{name}")), *new[1:])
        if there is not None:  # the state of a record stays as it is beyond its end
            new = tuple(torch.where(there[place][:, None], *pair) for pair in zip(new, state, strict=True))
        state, outs[place] = new, new[0]
    return torch.stack(outs, dim=1), state


class _Steps:
    """One linear map that is applied at each step, as one use: its gradient is that of a zero added to its outputs."""

    def __init__(self, tap: Tap, names: dict[str, str], like: Tensor, width: int) -> None:
        self._inputs: list[Tensor] = [like[:, 0].detach()] * like.shape[1]
        self._nothing = tap(StepsRule(), names, self._inputs, like.new_zeros(*like.shape[:2], width)).unbind(1)

    def map(self, place: int, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Apply the map at one step."""
        self._inputs[place] = x.detach()
        return F.linear(x, weight, bias) + self._nothing[place]


def look_up(layer: nn.EmbeddingBag, tap: Tap, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Compute `nn.EmbeddingBag`, on bags of one size or on one list of words with offsets."""
    given = _given(layer, args, kwargs)
    words, offsets, shares = (given[name] for name in ("input", "offsets", "per_sample_weights"))
    there = torch.ones_like(words, dtype=torch.bool)
    if words.dim() == 1:
        if layer.include_last_offset:
            offsets = offsets[:-1]
        lengths = torch.diff(offsets, append=offsets.new_tensor([len(words)]))
        places = torch.arange(int(lengths.max()), device=words.device)
        there = places < lengths[:, None]
        where = (offsets[:, None] + places).clamp(max=max(len(words) - 1, 0))
        words, shares = words[where], None if shares is None else shares[where]
    if layer.padding_idx is not None:
        there = there & (words != layer.padding_idx)
    found = tap(EmbeddingRule(), {"weight": "weight"}, words, F.embedding(words, layer.weight))
    if layer.mode == "max":
        found = found.masked_fill(~there[:, :, None], -math.inf).amax(1) if words.shape[1] else found.sum(1)
        return torch.where(there.any(1, keepdim=True), found, found.new_zeros(()))
    # Zeros before the product: its gradient at places of other bags would be theirs times zero, NaN too.
    shares = there if shares is None else torch.where(there, shares, 0.0)
    weighted = torch.where(there[:, :, None], found, 0.0) * shares[:, :, None]
    total = weighted.sum(1)
    return total if layer.mode == "sum" else total / there.sum(1, keepdim=True).clamp(min=1)


_WRITTEN_OUT: tuple[tuple[tuple[type[nn.Module], ...], WrittenOut], ...] = (
    ((nn.MultiheadAttention,), attend),
    ((nn.LSTM, nn.GRU, nn.RNN), recur),
    ((nn.LSTMCell, nn.GRUCell, nn.RNNCell), cell),
    ((nn.EmbeddingBag,), look_up),
)
