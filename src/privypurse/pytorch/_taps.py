"""[RAW DATA] Hooks that record input and output gradient of each layer."""

import contextlib
import functools
import gc
import inspect
import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.pytorch._clipping import RUNNING_AGAIN, AnyRule, EmbeddingRule, LinearRule, Rule, Use, padded, rule_for
from privypurse.pytorch._outputs import MeanUndone, as_output

_TAPPED: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()  # modules with hooks


class _Tap(torch.autograd.Function):
    """Identity on a layer's output that records its gradient."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor, use: Use, place: int, taps: "Taps | None") -> Tensor:
        ctx.use, ctx.place, ctx.taps = use, place, taps
        # Not a view: later operations may change it in place.
        return output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        earlier = ctx.use.output_grads[ctx.place]
        ctx.use.output_grads[ctx.place] = grad if earlier is None else earlier + grad
        if ctx.taps is not None and not ctx.taps.queued:
            ctx.taps.queued = True
            torch.autograd.Variable._execution_engine.queue_callback(ctx.taps.on_backward)
        return grad, None, None, None, None


class Taps:
    """Hooks on the layers of a module, active while it runs in training mode with gradients on.

    Meanwhile no parameter requires a gradient: the batch's own gradient is never computed, and the
    backward pass never writes to ``parameter.grad``.
    """

    def __init__(self, module: nn.Module, trained: dict[str, nn.Parameter]) -> None:
        if module in _TAPPED:
            raise InvalidArgument("module is private already. Make a new one, or call private.engine.detach().")
        self._module = module
        self._names = {id(parameter): name for name, parameter in trained.items()}
        self.anchor = torch.zeros((), requires_grad=True)  # all recorded outputs depend on it
        self.on_call: Callable[[tuple[Any, ...], dict[str, Any]], None] = lambda *_: None  # before a recorded pass
        self.on_end: Callable[[], None] = lambda: None  # after it, also if it failed
        self.on_outputs: Callable[[Any], None] = lambda _: None  # an output got a gradient; with its node
        self.on_backward: Callable[[], None] = lambda: None  # after a backward pass that recorded gradients
        self.queued = self._quiet = False  # for the current backward pass; without that callback
        self._depth, self._records = 0, 1
        self._removals = contextlib.ExitStack()
        self.uses: list[Use] = []
        self.listening = True
        self.averaged_over: float | None = None
        try:
            self._tap_layers(module, "")
        except InvalidArgument:
            self.remove()
            raise
        _TAPPED.add(module)
        for layer in module.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                # Accepted because it is frozen: it must stay so in training mode.
                freeze = layer.register_forward_pre_hook(lambda frozen, _: frozen.train(False) and None)
                self._removals.callback(freeze.remove)
        self._tap_root(module)

    def take(self) -> list[Use]:
        """Return the uses that have gradients, and clear all."""
        uses, self.uses = self.uses, []
        return [use for use in uses if any(grad is not None for grad in use.output_grads)]

    def remove(self) -> None:
        """Remove the hooks."""
        self._removals.close()
        _TAPPED.discard(self._module)

    @contextlib.contextmanager
    def open(self, *, quietly: bool = False) -> Iterator[None]:
        """Record in any mode of the module; `quietly`: without the callback of `on_backward`."""
        before, required = self._quiet, [p for p in self._module.parameters() if p.requires_grad]
        self._quiet = before or quietly
        self._depth += 1
        for parameter in required:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in required:
                parameter.requires_grad_(True)
            self._depth -= 1
            self._quiet = before

    def _tap_layers(self, layer: nn.Module, path: str) -> None:
        """Put a hook on each layer that has a rule; other layers with parameters get `AnyRule`."""
        own = self._own(layer)
        if not own:
            return
        if isinstance(layer, nn.MultiheadAttention) and type(layer).forward is nn.MultiheadAttention.forward:
            if not layer._qkv_same_embed_dim or layer.bias_k is not None or layer.add_zero_attn:
                unusual = "a MultiheadAttention with kdim, vdim, add_bias_kv or add_zero_attn"
                raise InvalidArgument(f"module has {path or 'a layer'}, {unusual}. Use one without.")

            def tap(rule: Rule, wanted: dict[str, str], x: Tensor, out: Tensor) -> Tensor:
                names = {short: own[name] for short, name in wanted.items() if name in own}
                return self._tap(rule, nn.Identity(), names, (x,), out) if names else out

            layer.__class__ = TappedAttention
            _LISTENERS[layer] = lambda: tap if self._depth and not RUNNING_AGAIN.get() else None
            self._removals.callback(setattr, layer, "__class__", nn.MultiheadAttention)
            self._removals.callback(_LISTENERS.pop, layer, None)  # holds the layer, and through it the records
            return
        rule = AnyRule() if parametrize.is_parametrized(layer) or layer._forward_pre_hooks else rule_for(layer)
        if rule is None:
            for name, child in layer.named_children():
                self._tap_layers(child, f"{path}.{name}".lstrip("."))
            return
        if isinstance(rule, AnyRule):
            for name, child in layer.named_modules():
                if isinstance(child, nn.modules.dropout._DropoutNd) and child.p > 0:
                    what = (
                        f"{path or 'a layer'} ({type(layer).__name__}), with parameters of its own and dropout ({name})"
                    )
                    raise InvalidArgument(f"module has {what}: it runs twice, with two masks. Move these to nn.Linear.")
            own = self._own(layer, once=True)

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            if not self._depth or RUNNING_AGAIN.get() or module is not layer:  # hooks are copied along with modules
                return None
            if kwargs and isinstance(rule, AnyRule):
                what = f"{path or 'the module'} ({type(layer).__name__})"
                raise InvalidArgument(f"{what} was called with keywords {sorted(kwargs)}. Pass its inputs by position.")
            return self._tap(rule, layer, own, args or tuple(kwargs.values()), output)

        def expand(module: nn.Module, args: tuple[Any, ...]) -> Any:
            """Look positions up once per record, where a model does so once per batch."""
            if self._depth and module is layer and args and args[0].dim() > 1 and len(args[0]) == 1 != self._records:
                return (args[0].expand(self._records, *args[0].shape[1:]), *args[1:])
            return None

        self._removals.callback(layer.register_forward_hook(hook, with_kwargs=True).remove)
        if isinstance(rule, EmbeddingRule):
            self._removals.callback(layer.register_forward_pre_hook(expand).remove)

    def _own(self, layer: nn.Module, *, once: bool = False) -> dict[str, str]:
        """Return full names of a layer's trained parameters by local name."""
        named = layer.named_parameters(remove_duplicate=once)
        return {name: self._names[id(parameter)] for name, parameter in named if id(parameter) in self._names}

    def _tap(self, rule: Rule, layer: nn.Module, names: dict[str, str], inputs: tuple[Any, ...], output: Any) -> Any:
        kept = tuple(x.detach() if isinstance(x, Tensor) else x for x in inputs)
        outputs = [output] if isinstance(output, Tensor) else list(output)
        tensors = [out for out in outputs if isinstance(out, Tensor)]
        use = Use(rule, layer, names, kept, [None] * len(tensors))
        self.uses.append(use)
        if self.anchor.device != tensors[0].device:
            self.anchor = torch.zeros((), device=tensors[0].device, requires_grad=True)
        taps = None if self._quiet else self
        tapped: list[Any] = [_Tap.apply(out, self.anchor, use, k, taps) for k, out in enumerate(tensors)]  # type: ignore[no-untyped-call]
        mixed = [tapped.pop(0) if isinstance(out, Tensor) else out for out in outputs]
        if isinstance(output, Tensor):
            return mixed[0]
        kind = type(output)
        return kind(mixed) if kind in (tuple, list) else kind(*mixed)

    def _tap_root(self, root: nn.Module) -> None:
        """Activate the hooks while the module runs; a copied module shares them without effect."""
        passes: list[contextlib.ExitStack | None] = []  # None where nothing is recorded

        def begin(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
            if module is not root or RUNNING_AGAIN.get():
                return
            leaves = torch.utils._pytree.tree_leaves((args, kwargs))
            opens = self.listening and module.training and torch.is_grad_enabled() and not self._depth
            stack = contextlib.ExitStack() if opens else None
            passes.append(stack)
            if stack is not None:
                self.on_call(args, kwargs)
                if any(isinstance(x, Tensor) and x.requires_grad for x in leaves):
                    what = "inputs require a gradient: layers before the module would train without noise"
                    raise InvalidArgument(f"{what}. Detach them.")
                stack.enter_context(self.open())
            self._records = next((len(x) for x in leaves if isinstance(x, Tensor) and x.dim()), 1)

        def end(module: nn.Module, args: Any, output: Any) -> Any:
            stack = None if module is not root or RUNNING_AGAIN.get() else passes.pop()
            if stack is None:
                return None
            stack.close()
            self.on_end()
            if output is None:
                return None
            leaves, shape = torch.utils._pytree.tree_flatten(output)
            places = [
                k for k, x in enumerate(leaves) if isinstance(x, Tensor) and x.is_floating_point() and x.requires_grad
            ]
            if self.averaged_over and not places:
                what = f"the module's output ({shown(type(output))}) holds no tensors that require a gradient"
                raise InvalidArgument(f"{what}. Return tensors, dicts or tuples of them, or use loss_reduction='sum'.")
            for k in places:
                own = leaves[k].dtype
                leaves[k] = MeanUndone.apply(leaves[k], self.averaged_over, self.on_outputs)  # type: ignore[no-untyped-call]
                if leaves[k].dtype != own:
                    leaves[k] = as_output(leaves[k], own)
            return torch.utils._pytree.tree_unflatten(leaves, shape)

        self._removals.callback(root.register_forward_pre_hook(begin, prepend=True, with_kwargs=True).remove)
        self._removals.callback(root.register_forward_hook(end, always_call=True).remove)


# Operations on a scalar that keep it up to sign; operations on rows that act on each record alone.
_SHAPES = {"View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze"}
_ON_NUMBERS = _SHAPES | {"Add", "Sub", "Neg", "ToCopy", "Clone", "Alias"}
_ON_ROWS = _ON_NUMBERS | {
    *("Abs", "Pow", "Square", "Exp", "Log", "Log1P", "Softplus", "LogSigmoid", "Sigmoid", "Tanh", "Relu", "Clamp"),
    *("ClampMin", "LogSoftmax", "Softmax", "Logsumexp", "Gather", "Rsub", "Sqrt"),
}
_AVERAGED, _ADDED = 1, 2  # PyTorch's codes of reductions
_MOST_NODES = 10_000


def reduction_of_loss(outputs: Any, *, scaled: bool, recent: bool = False) -> str | None:
    """Return the reduction over records of the loss of the current backward pass, read from its graph.

    "mean", "sum" or "weighted mean" (by class weights), where all operations from the node `outputs`
    to the loss are known, else None. `scaled`: by a `GradScaler`. `recent`: search recent objects only.
    """
    roots: dict[Any, set[Any]] = {}
    for generation in range(2 if recent else 3):  # the loss is mostly among the youngest
        if roots:
            break
        # Nodes of scalar tensors at which this backward pass may have started: it runs all below.
        objects = gc.get_objects(generation)
        tensors = {kind for kind in set(map(type, objects)) if issubclass(kind, Tensor)}
        numbers = [one for one in objects if type(one) in tensors and one.dim() == 0]
        for node in {one.grad_fn for one in numbers} - {None}:
            if all(torch._C._will_engine_execute_node(child) for child, _ in node.next_functions if child is not None):
                nodes, stack = set[Any](), [node]
                while stack and len(nodes) < _MOST_NODES:
                    below = stack.pop()
                    if below not in nodes:
                        nodes.add(below)
                        children = () if below is outputs else below.next_functions
                        stack += [child for child, _ in children if child is not None]
                if outputs in nodes:
                    roots[node] = nodes
    tops = [node for node in roots if not any(node in nodes for other, nodes in roots.items() if other is not node)]
    return _reduction(tops[0], outputs, scaled=scaled) if len(tops) == 1 else None


def _reduction(top: Any, end: Any, *, scaled: bool) -> str | None:
    reductions: set[str | None] = set()
    # Length of the first dimension of an operation's result; 0 for scalars.
    records = next(iter(end._input_metadata[0].shape), 0)
    seen: set[Any] = set()
    while top.name() == "AliasBackward0":  # of an `Output`
        top = top.next_functions[0][0]
    stack = [(top, False)]
    while stack:
        node, in_rows = stack.pop()
        if (node, in_rows) in seen:
            continue
        seen.add((node, in_rows))
        if node is end:
            if not in_rows:
                return None  # the module's own loss
            continue
        name = str(node.name()).removeprefix("_").split("Backward")[0]
        reduction = getattr(node, "_saved_reduction", None)
        below = [child for child, _ in node.next_functions if child is not None]
        if scaled and node is top and name == "Mul":  # by the loss scale
            below = below[:1]
        elif in_rows:
            rows = next(iter(node._input_metadata[0].shape), 0)
            if not records or rows % records or (records == 1 and name in _SHAPES):
                return None  # rows are not records, or a single record leaves it open
            if not (name in _ON_ROWS or reduction == 0 or _within_rows(name, node)):
                return None
        elif reduction in (_AVERAGED, _ADDED) or name in ("Mean", "Sum"):
            if reduction == _AVERAGED and name.startswith("NllLoss"):
                try:
                    weighted = node._saved_weight is not None
                except RuntimeError:  # there is one, freed when the node ran
                    weighted = True
                if weighted:
                    return "weighted mean"
            reductions.add("mean" if name == "Mean" or reduction == _AVERAGED else "sum")
            in_rows = True
        elif name not in _ON_NUMBERS:
            return None
        stack += [(child, in_rows) for child in below]
    return reductions.pop() if len(reductions) == 1 else None


def _within_rows(name: str, node: Any) -> bool:
    """Whether an operation over some dimensions leaves the first one alone."""
    dims, sizes = getattr(node, "_saved_dim", None), getattr(node, "_saved_self_sym_sizes", None)
    if name == "Permute":
        return int(node._saved_dims[0]) == 0
    if name == "Transpose":
        dims, sizes = (node._saved_dim0, node._saved_dim1), node._input_metadata[0].shape
    elif name not in ("Mean", "Sum", "Select") or dims is None or sizes is None:
        return False
    # PyTorch saves a negative dimension as an unsigned number.
    wrapped = [dim - 2**64 if dim >= 2**63 else dim for dim in (dims if isinstance(dims, tuple) else (dims,))]
    return bool(wrapped) and all(dim % len(sizes) != 0 for dim in wrapped)


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


class TappedAttention(nn.MultiheadAttention):
    """Attention that is written out while a tap is active."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run `attend` with an active tap, the original forward otherwise."""
        tap = _LISTENERS[self]() if self in _LISTENERS else None
        return super().forward(*args, **kwargs) if tap is None else attend(self, tap, args, kwargs)


# Taps of attention layers; not attributes, which copies of a layer would share.
_LISTENERS: "weakref.WeakKeyDictionary[nn.Module, Callable[[], Tap | None]]" = weakref.WeakKeyDictionary()
_ATTENTION = inspect.signature(nn.MultiheadAttention.forward)


def attend(layer: nn.MultiheadAttention, tap: Tap, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute the layer's forward, with taps on its linear maps."""
    given = _ATTENTION.bind(layer, *args, **kwargs).arguments
    query, key, value = (given[name] for name in ("query", "key", "value"))
    if query.dim() != 3:
        raise InvalidArgument("attention expects inputs with a dimension for records; got none. Add it with unsqueeze.")
    same = query is key is value
    if not layer.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    width, weight, bias = layer.embed_dim, layer.in_proj_weight, layer.in_proj_bias

    def project(x: Tensor, first: int, rows: int) -> Tensor:
        part = slice(first, first + rows)
        out = F.linear(x, weight[part], None if bias is None else bias[part])
        rule = LinearRule() if rows == 3 * width else RowsOfLinear(first, 3 * width)
        return tap(rule, {"weight": "in_proj_weight", "bias": "in_proj_bias"}, x, out)

    if same:
        q, k, v = project(query, 0, 3 * width).chunk(3, dim=-1)
    else:
        q, k, v = (project(x, k * width, width) for k, x in enumerate((query, key, value)))
    q, k, v = (torch.unflatten(x, -1, (layer.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
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
