"""[RAW DATA] Hooks that record input and output gradient of each layer."""

import contextlib
import functools
import gc
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument
from privypurse.pytorch._clipping import RUNNING_AGAIN, CopiesRule, EmbeddingRule, Rule, Use, places_of, rule_for
from privypurse.pytorch._each_record import run_for_each
from privypurse.pytorch._outputs import MeanUndone, as_output
from privypurse.pytorch._written_out import WrittenOut, written_out

_OF_PLACES = (nn.Linear, nn.LayerNorm, nn.RMSNorm)  # layers that models run on flattened records
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
        self._removals, self._of_layers = contextlib.ExitStack(), contextlib.ExitStack()
        self._removals.callback(self._of_layers.close)
        self.learning = False  # in a trial: layers may be found to run on flattened records
        self.flattened: set[nn.Module] = set()  # those layers
        self._each: set[nn.Module] = set()  # layers that are run for each record alone
        self._reached: set[nn.Module] = set()
        changing = [x for x in module.modules() if x._forward_pre_hooks and self._has_own_parameters(x)]
        # Modules that run for each record alone as a whole: at first those whose parameters change on the way.
        self._whole = {*changing, *filter(parametrize.is_parametrized, module.modules())}
        self.uses: list[Use] = []
        self.listening = True
        self.averaged_over: float | None = None
        self._ways = {layer: (rule_for(layer), written_out(layer)) for layer in module.modules()}
        try:
            self._make_replaceable()
            self._tap_layers(module)
        except BaseException:
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

    def _make_replaceable(self) -> None:
        """Give layers that have no rule, or may be run whole, a class that may run in another way.

        At once: later it would be a change of the module's state.
        """
        for layer, (rule, run) in self._ways.items():
            other = (rule is None or layer in self._whole) and not isinstance(layer, torch.jit.ScriptModule)
            if other and (run is not None or self._own(layer)):
                kind = type(layer)
                layer.__class__ = _replaceable(kind)
                self._removals.callback(setattr, layer, "__class__", kind)

    def _recomputes(self) -> bool:
        """Whether a layer is run in a backward pass of the loop, as by checkpoints of activations."""
        return (
            self.listening and not self._depth and not RUNNING_AGAIN.get() and torch._C._current_graph_task_id() != -1
        )

    def widen(self, layer: nn.Module) -> nn.Module | None:
        """Run the module that holds a layer for each record alone from now on; return it, if there is one."""
        holds = next((one for one in self._module.modules() if layer in one.children()), None)
        while holds in self._whole:
            holds = next((one for one in self._module.modules() if holds in one.children()), None)
        if holds is not None:
            self._whole.add(holds)
            self._of_layers.close()
            for found in (self._each, self._reached, self.flattened):
                found.clear()
            self._tap_layers(self._module)
        return holds

    def name_of(self, layer: nn.Module) -> str:
        """Return the name of a layer for messages."""
        name = next((name for name, one in self._module.named_modules() if one is layer), "")
        return f"{name} ({type(layer).__name__})" if name else type(layer).__name__

    def runs_for_each(self, name: str) -> bool:
        """Whether a parameter is used for each record alone."""
        paths = (path for path, layer in self._module.named_modules() if layer in self._each)
        return any(not path or name.startswith(f"{path}.") for path in paths)

    def _tap_layers(self, layer: nn.Module) -> None:
        """Put a hook on each layer that has a rule, or run it in another way: written out, or for each record."""
        own = self._own(layer)
        if not own or layer in self._reached:  # two modules may hold one layer
            return
        self._reached.add(layer)
        whole = layer in self._whole
        rule, run = (None, None) if whole else self._ways[layer]
        if run is not None:
            self._run_instead(layer, functools.partial(self._write_out, run, layer, own))
        elif rule is not None:
            self._listen(rule, layer, own)
        elif whole or self._has_own_parameters(layer):
            own = self._own(layer, once=True)
            self._each.add(layer)
            places = places_of(layer, {id(layer.get_parameter(name)): name for name in own})
            copied = functools.partial(self._tap, CopiesRule(), layer, own)

            def run_each(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                tap = lambda copies: copied(copies[:1], copies)  # noqa: E731
                return run_for_each(layer, self.name_of(layer), list(own), places, tap, self._records, args, kwargs)

            self._run_instead(layer, run_each)
            for child in layer.modules():
                if child is not layer and (within := self._ways[child][1]) is not None:  # most fail in `vmap`
                    self._run_instead(child, functools.partial(self._write_out, within, child, {}))
        else:
            for child in layer.children():
                self._tap_layers(child)

    def _listen(self, rule: Rule, layer: nn.Module, own: dict[str, str]) -> None:
        """Put a hook on a layer that has a rule."""
        opened = contextlib.ExitStack()

        def begin(module: nn.Module, args: tuple[Any, ...]) -> None:
            if module is layer and self._recomputes():
                opened.enter_context(self.open(quietly=True))

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            if not self._depth or RUNNING_AGAIN.get() or module is not layer:  # hooks are copied along with modules
                return None
            with opened:
                return None if output is None else record(args, kwargs, output)

        def record(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            inputs, records = args or tuple(kwargs.values()), self._records
            of_places = isinstance(layer, _OF_PLACES) and (self.learning or layer in self.flattened)
            if of_places and output.dim() > 1 and len(output) > records > 0 == len(output) % records:
                self.flattened.add(layer)  # on all places of all records: the trial confirms it, or refuses
                apart = [x.unflatten(0, (records, -1)) for x in (inputs[0], output)]
                return self._tap(rule, layer, own, (apart[0],), apart[1]).flatten(0, 1)
            return self._tap(rule, layer, own, inputs, output)

        def expand(module: nn.Module, args: tuple[Any, ...]) -> Any:
            """Look positions up once per record, where a model does so once per batch."""
            if self._depth and module is layer and args and args[0].dim() > 1 and len(args[0]) == 1 != self._records:
                return (args[0].expand(self._records, *args[0].shape[1:]), *args[1:])
            return None

        self._of_layers.callback(layer.register_forward_pre_hook(begin).remove)
        # Also where it failed: a checkpoint stops a layer once it has what it needs.
        self._of_layers.callback(layer.register_forward_hook(hook, with_kwargs=True, always_call=True).remove)
        if isinstance(rule, EmbeddingRule):
            self._of_layers.callback(layer.register_forward_pre_hook(expand).remove)

    def _run_instead(self, layer: nn.Module, run: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> None:
        """Replace the forward of a layer while taps are active."""
        if layer in _INSTEAD:
            return

        def run_opened(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            with self.open(quietly=True):
                return run(args, kwargs)

        _INSTEAD[layer] = lambda: run if self._depth else run_opened if self._recomputes() else None
        self._of_layers.callback(_INSTEAD.pop, layer, None)  # holds the layer, and through it the records

    def _write_out(
        self, run: WrittenOut, layer: nn.Module, own: dict[str, str], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a layer written out, with taps on its parts."""

        def tap(rule: Rule, wanted: dict[str, str], x: Any, out: Tensor) -> Tensor:
            names = {short: own[name] for short, name in wanted.items() if name in own}
            return self._tap(rule, layer, names, (x,), out) if names and not RUNNING_AGAIN.get() else out

        return run(layer, tap, args, kwargs)

    def _own(self, layer: nn.Module, *, once: bool = False) -> dict[str, str]:
        """Return full names of a layer's trained parameters by local name."""
        named = layer.named_parameters(remove_duplicate=once)
        return {name: self._names[id(parameter)] for name, parameter in named if id(parameter) in self._names}

    def _has_own_parameters(self, layer: nn.Module) -> bool:
        """Whether trained parameters are in the layer itself, not in layers within it."""
        lists = [child for child in layer.children() if isinstance(child, nn.ParameterList | nn.ParameterDict)]
        return any(id(p) in self._names for one in (layer, *lists) for p in one.parameters(recurse=False))

    def _tap(self, rule: Rule, layer: nn.Module, names: dict[str, str], inputs: tuple[Any, ...], output: Any) -> Any:
        if not torch.is_grad_enabled():  # as in the first run of a reentrant checkpoint
            return output
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
            beside = [x for x in leaves if _holds_gradients(x)]
            if beside and not type(beside[0]).__module__.startswith("transformers."):
                held = "complex numbers" if isinstance(beside[0], Tensor) else shown(type(beside[0]))
                remedy = "Return real tensors, such as mean and scale, and build other things of them in the loop"
                raise InvalidArgument(f"the module's output holds {held}, which cannot be tried. {remedy}.")
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


def _holds_gradients(x: Any, depth: int = 4) -> bool:
    """Whether an output is complex with a gradient, or an object that holds tensors with one."""
    if isinstance(x, Tensor):
        return x.requires_grad and (x.is_complex() or depth < 4)
    held = (
        x.values()
        if isinstance(x, dict)
        else x
        if isinstance(x, list | tuple | set)
        else getattr(x, "__dict__", {}).values()
    )
    return depth > 0 and not isinstance(x, nn.Module | type) and any(_holds_gradients(one, depth - 1) for one in held)


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

    "mean", "sum", "weighted mean" (by class weights) or "broadcast" (of all records with all), where all
    operations from the node `outputs` to the loss are known, else None. `scaled`: by a `GradScaler`.
    `recent`: search recent objects only.
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
        after = [pair for pair in node.next_functions if pair[0] is not None]
        below = [child for child, _ in after]
        if records > 1 and any(_spreads(node, child, place, records) for child, place in after):
            return "broadcast"
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


def _spreads(node: Any, child: Any, place: int, records: int) -> bool:
    """Whether an operation repeats values for each record: it broadcasts (records, 1) against (records,)."""
    shape, below = node._input_metadata[0].shape, child._input_metadata[place].shape
    return list(shape).count(records) > 1 and math.prod(shape) == records * math.prod(below)


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


# How layers run while taps are active; not attributes, which copies of a layer would share.
_INSTEAD: "weakref.WeakKeyDictionary[nn.Module, Callable[[], Callable[..., Any] | None]]" = weakref.WeakKeyDictionary()


def _replaceable(kind: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass that runs as `_INSTEAD` says, if it says so."""

    @functools.wraps(kind.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        run = _INSTEAD[self]() if self in _INSTEAD else None
        return kind.forward(self, *args, **kwargs) if run is None else run(args, kwargs)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
