"""Reduction of the loop's loss over records, read from the autograd graph."""

import gc
from typing import Any

import torch
from torch import Tensor

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
    """Return the reduction over records of the loss of the current backward pass.

    "mean" or "sum", where all operations from the node `outputs` to the loss are known; "weighted
    mean" where it divides by the class weights of the batch; else None.
    `scaled`: the loss was multiplied by the scale of a `GradScaler`. `recent`: look for it among
    recent objects only, which is fast.
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
                nodes = _below(node, outputs)
                if outputs in nodes:
                    roots[node] = nodes
    tops = [node for node in roots if not any(node in nodes for other, nodes in roots.items() if other is not node)]
    return _reduction(tops[0], outputs, scaled=scaled) if len(tops) == 1 else None


def _below(top: Any, end: Any) -> set[Any]:
    found: set[Any] = set()
    stack = [top]
    while stack and len(found) < _MOST_NODES:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += [] if node is end else [child for child, _ in node.next_functions if child is not None]
    return found


def _reduction(top: Any, end: Any, *, scaled: bool) -> str | None:
    reductions: set[str | None] = set()
    records = _rows(end)
    seen: set[Any] = set()
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
            if not records or _rows(node) % records or (records == 1 and name in _SHAPES):
                return None  # rows are not records, or a single record leaves it open
            if not (name in _ON_ROWS or reduction == 0 or _within_rows(name, node)):
                return None
        elif reduction in (_AVERAGED, _ADDED) or name in ("Mean", "Sum"):
            if reduction == _AVERAGED and name.startswith("NllLoss") and node._saved_weight is not None:
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
    wrapped = [dim - 2**64 if dim >= 2**63 else dim for dim in (dims if isinstance(dims, tuple) else (dims,))]
    return bool(wrapped) and all(dim % len(sizes) != 0 for dim in wrapped)


def _rows(node: Any) -> int:
    """Return the length of the first dimension of an operation's result, 0 for scalars."""
    return int(next(iter(node._input_metadata[0].shape), 0))
