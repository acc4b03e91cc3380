"""[RAW DATA] Outputs of a private module: double precision inside, the module's own towards the loop."""

import functools
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from privypurse.core._errors import InvalidArgument

_WIDE = torch.float64
_DTYPE = Tensor.dtype.__get__  # type: ignore[attr-defined]
_CASTS = {
    **{Tensor.float: torch.float32, Tensor.half: torch.float16},
    **{Tensor.bfloat16: torch.bfloat16, Tensor.double: _WIDE},
}
# These take tensors to differentiate by, which must not be replaced by converted ones.
_PASSED_ON = (Tensor.backward, torch.autograd.backward, torch.autograd.grad)
_NARROWED = (
    "outputs of the module, or values computed from them, were {}: rounding to it would tell how many records there "
    "are. Use tensors of torch.float64, torch.stack or torch.cat, or pass loss_reduction='sum'."
)
_IN_PLACE = re.compile(r"__i\w+__|__setitem__|(?!__).*[^_]_")


class Output(Tensor):
    """An output of a module in training, or a value with a gradient that a loop computes from it.

    It holds double precision, and `dtype` names the precision of the module. Other floating-point
    operands are converted to double, and casts change the named precision only, so any loss takes it
    beside targets of that precision. Results without a gradient are ordinary tensors of that
    precision.
    """

    named: torch.dtype

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function of PyTorch in double precision."""
        given = {} if kwargs is None else dict(kwargs)
        named: list[torch.dtype] = []
        casts = [_CASTS[func]] if func in _CASTS else []

        def widened(x: Any) -> Any:
            """Return a floating-point tensor, or the name of such a precision, as double."""
            if isinstance(x, Output):
                named.append(x.named)
            elif isinstance(x, torch.dtype):
                if x.is_floating_point:
                    casts.append(x)
                    return _WIDE
            elif x.is_floating_point():
                return x.double()
            return x

        with torch._C.DisableTorchFunctionSubclass():
            wide, own = _mapped(args, widened), _mapped(given, widened)
            kind = casts[-1] if casts else functools.reduce(torch.promote_types, named)
            if func == _DTYPE:
                return kind
            if func in _CASTS:
                return as_output(args[0], kind)
            if func in _PASSED_ON:
                wide, own = args, given
            elif _IN_PLACE.fullmatch(getattr(func, "__name__", "")):
                if torch.is_grad_enabled() and _is_narrow(args[0]) and any(map(_has_gradient, args[1:])):
                    raise InvalidArgument(_NARROWED.format(f"written into a tensor of {args[0].dtype}"))
                wide = (args[0], *wide[1:])
            if "out" in given:
                own["out"] = given["out"]
            result = func(*wide, **own)
            if _is_narrow(result) and result.requires_grad and func not in _PASSED_ON:
                raise InvalidArgument(_NARROWED.format(f"converted to {result.dtype}"))
            return _mapped(result, functools.partial(_shown, kind=kind))

    def __format__(self, spec: str) -> str:
        return format(_plain(self), spec)

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(_plain(self))


def as_output(values: Tensor, named: torch.dtype) -> Tensor:
    """Return values in double precision as an `Output` of the named precision."""
    if named == _WIDE:
        return values.as_subclass(Tensor)
    compiler = sys.modules.get("torch._dynamo.config")
    if compiler is not None:  # a compiled loss is then run as it is written: it would not see the wider numbers
        getattr(compiler, "nontraceable_tensor_subclasses", set[type]()).add(Output)
    output = values.as_subclass(Output)
    output.named = named
    return output


def _mapped(x: Any, change: Callable[[Any], Any]) -> Any:
    """Change the tensors and precisions in arguments or results."""
    if isinstance(x, Tensor | torch.dtype):
        return change(x)
    if type(x) in (tuple, list):
        return type(x)([_mapped(one, change) for one in x])
    if type(x) is dict:
        return {name: _mapped(one, change) for name, one in x.items()}
    return torch.utils._pytree.tree_map_only(Tensor, change, x) if isinstance(x, tuple) else x


def _is_narrow(x: Any) -> bool:
    return isinstance(x, Tensor) and not isinstance(x, Output) and x.is_floating_point() and x.dtype != _WIDE


def _has_gradient(x: Any) -> bool:
    return isinstance(x, Output) and x.requires_grad


def _shown(x: Any, kind: torch.dtype) -> Any:
    """Return a result; an ordinary tensor where it carries no gradient, unless none is recorded here."""
    if isinstance(x, Output):
        return x if x.named == kind else as_output(x, kind)
    if isinstance(x, torch.dtype) or x.dtype != _WIDE:
        return x
    return as_output(x, kind) if x.requires_grad or not torch.is_grad_enabled() else x.to(kind)


def _plain(output: Output) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return output.detach().as_subclass(Tensor).to(output.named)


class MeanUndone(torch.autograd.Function):
    """Undoes the mean of a loss: multiplies gradients by the number of records, if there is one.

    `look` is called with the node first. The mean divides by the number of records N, which other
    records change, and rounds.

    Guarantees
    ----------
    Each operation of the loss is in double precision (see `Output`). So after k of them and the product
    with N, each element g of a record's output gradient is within ``e = (k + 1) 2^-52 s`` of what it
    would be without a mean, whatever N is. Here s is the largest term that the loss adds up in g, which
    is g unless its terms cancel. It is then rounded to 37 leading bits (Veltkamp). Hence it is the same
    number for all N, unless it lies within e of the middle between two such numbers; then it moves by
    at most ``2^-36 |g| + 2 e``. In float32 it would move by ``2^-23 s`` for any g, and layers whose
    outputs cancel would make that as large as the clip norm. A record's own contribution is within the
    clip norm in any case: `clipped_sum` measures the gradient that it adds.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, records: float | None, look: Callable[[Any], None]) -> Tensor:
        """Return the output, in double precision where a mean is undone."""
        ctx.records, ctx.kind, ctx.look = records, output.dtype, look
        return output.detach().double() if output.dim() and records else output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Return the gradient of the sum over records."""
        ctx.look(ctx)
        if ctx.records is None:
            return grad, None, None
        whole = grad.double() * ctx.records
        spread = whole * (2.0**16 + 1)
        rounded = spread - (spread - whole)
        # Overflow leaves values that are not finite, or far beyond single precision.
        return torch.where(torch.isfinite(rounded), rounded, whole).to(ctx.kind), None, None
