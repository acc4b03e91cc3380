"""[RAW DATA] Per-sample gradients, and the sum of clipped ones: the bound of what the engine releases.

A rule for each kind of layer computes squared norms, a weighted sum, and single gradients where
there is no shortcut. The sum needs no single gradients; for most layers the norms need none either
(Goodfellow 2015; Li et al. 2022, arXiv:2110.05679; Bu et al. 2023, arXiv:2210.00038).
"""

import contextlib
import contextvars
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privypurse.core._checks import positive
from privypurse.core._errors import InvalidArgument

# Relative margin of clipping, so that rounding in single precision stays within the stated bound.
MARGIN = 2.0**-10
LEAST_CLIP_NORM, MOST_CLIP_NORM = 1e-12, 1e12  # set by single precision
LEAST_FACTOR = 2.0**-100
# Norms from products of Gram matrices cancel. This share of the sum of norms over places, which is
# an upper bound, is added; single precision loses less.
GRAM_GUARD = 2.0**-20
GRAM_GAIN = 8  # Gram matrices are used where they are this much smaller than the gradients
TINY = 1e-15  # below this, squares may underflow in single precision
LARGEST = 1e25  # above this, products of inputs and gradients could overflow before they are scaled
BLOCK = 256  # records per block summed in single precision; blocks are summed in double
# Whether a layer is being run a second time, with hooks off.
RUNNING_AGAIN = contextvars.ContextVar("RUNNING_AGAIN", default=False)


class NotByRecords(InvalidArgument):
    """A layer was run on something else than records, in its first dimension."""

    def __init__(self, message: str, layer: nn.Module) -> None:
        super().__init__(message)
        self.layer = layer


def check_clip_norm(**named: float) -> float:
    """Raise InvalidArgument for a clip norm at which norms could underflow or overflow."""
    number, (name,) = positive(**named), named
    if not LEAST_CLIP_NORM <= number <= MOST_CLIP_NORM:
        raise InvalidArgument(f"{name} must be from 1e-12 to 1e12; got {number!r}. Pass for example {name}=1.0.")
    return number


@dataclass(eq=False)
class Use:
    """One use of a layer in a forward pass."""

    rule: "Rule"
    layer: nn.Module
    names: dict[str, str]  # full names of trained parameters, by name in the rule
    inputs: tuple[Any, ...]
    output_grads: list[Tensor | None]  # of the summed loss
    kept: dict[str, Tensor] = field(default_factory=dict)  # what the rule needs again for the sum
    broken: Tensor | None = None  # mask of records with infinite inputs, which norms would not show

    @property
    def grad(self) -> Tensor:
        """Gradient of the only output, in single precision."""
        (grad,) = self.output_grads
        assert grad is not None
        return grad.float()


class Rule:
    """Per-sample gradients of a kind of layer."""

    def squared_lengths(self, use: Use) -> Tensor:
        """Return the squared norm of each record's gradient, over all trained parameters."""
        use.kept = self.gradients(use)
        return torch.stack([_squared(each) for each in use.kept.values()]).sum(0)

    def weighted_sums(self, use: Use, weights: Tensor, fit: Tensor) -> dict[str, Tensor]:
        """Return the weighted sum over records that are `fit`; called after `squared_lengths`."""
        return {name: weigh(masked(each, fit), weights) for name, each in use.kept.items()}

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return the per-sample gradients of each trained parameter."""
        raise NotImplementedError


class OuterProducts(Rule):
    """Layers whose gradient is a sum of outer products over places: linear and convolution.

    The gradient of a record is ``sum_t g_t a_t'`` over its places t (words, pixels), with a_t the
    input and g_t the output gradient. Inputs of `broken` records count as zeros.
    """

    def places(self, use: Use, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and output gradients, each as (records, groups, places, features)."""
        raise NotImplementedError

    def squared_lengths(self, use: Use) -> Tensor:
        """Return squared norms by the cheapest of three ways."""
        seen, back = self._placed(use)
        use.kept = {"seen": seen, "back": back}
        lengths = back.new_zeros(back.shape[0], dtype=torch.float64)
        if "bias" in use.names:
            # Summed once in double precision and kept: places may cancel.
            use.kept["bias"] = back.sum(2, dtype=torch.float64).flatten(1)
            lengths = lengths + use.kept["bias"].square().sum(1)
        if "weight" not in use.names:
            return lengths
        count = seen.shape[2]
        if count == 1:
            # In double precision: tiny inputs may meet huge gradients.
            squares = [x.double().square().sum((2, 3)) for x in (seen, back)]
            return lengths + (squares[0] * squares[1]).sum(1)
        if GRAM_GAIN * 2 * count**2 <= seen.shape[3] * back.shape[3]:
            return lengths + self._by_grams(seen, back)
        use.kept["weight"] = back.mT @ seen
        return lengths + _squared(use.kept["weight"])

    @staticmethod
    def _by_grams(seen: Tensor, back: Tensor) -> Tensor:
        """Return upper bounds on squared norms, from inner products of all pairs of places."""
        grams = ((seen @ seen.mT) * (back @ back.mT)).sum((2, 3), dtype=torch.float64)
        # The squared sum of norms over places: rounding is relative to it. It stands where squares underflow.
        loose = (seen.double().square().sum(3) * back.double().square().sum(3)).sqrt().sum(2).square()
        tiny = [(x.abs().amax((2, 3)) < TINY) & (x != 0).flatten(2).any(2) for x in (seen, back)]
        return torch.where(tiny[0] | tiny[1], loose, grams.clamp(min=0) + GRAM_GUARD * loose).sum(1)

    def weighted_sums(self, use: Use, weights: Tensor, fit: Tensor) -> dict[str, Tensor]:
        """Return weighted sums, as matrix products over blocks; a weight has its outputs as rows."""
        sums = {}
        if "bias" in use.names:
            sums["bias"] = weights.double() @ masked(use.kept["bias"], fit)
        if "weight" in use.kept:
            sums["weight"] = weigh(masked(use.kept["weight"], fit), weights).flatten(0, 1)  # groups and their outputs
        elif "weight" in use.names:
            weighted = masked(use.kept["back"], fit) * weights[:, None, None, None]
            left, right = (_blocks(x).transpose(1, 2).flatten(2, 3) for x in (weighted, use.kept["seen"]))
            sums["weight"] = (left.mT @ right).sum(0, dtype=torch.float64).flatten(0, 1)
        return sums

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return the per-sample gradients."""
        seen, back = self._placed(use)
        each = {}
        if "bias" in use.names:
            each["bias"] = back.sum(2, dtype=torch.float64).flatten(1)
        if "weight" in use.names:
            weight = getattr(use.layer, "weight", None)  # linear maps of attention have no layer
            shape = weight.shape if isinstance(weight, Tensor) else (back.shape[3], seen.shape[3])
            each["weight"] = (back.mT @ seen).reshape(-1, *shape)
        return each

    def _placed(self, use: Use) -> tuple[Tensor, Tensor]:
        inputs = use.inputs[0].float()
        finite = (inputs.abs() <= LARGEST).flatten(1).all(1)  # false for NaN
        use.broken = ~finite
        return self.places(use, masked(inputs, finite))


class LinearRule(OuterProducts):
    """`nn.Linear`, on inputs (records, ..., features)."""

    def places(self, use: Use, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Flatten the dimensions between records and features."""
        seen, back = (x.reshape(x.shape[0], 1, math.prod(x.shape[1:-1]), x.shape[-1]) for x in (inputs, use.grad))
        return seen, back


class ConvolutionRule(OuterProducts):
    """`nn.Conv1d` and `nn.Conv2d`: the input at each place is the patch under the kernel."""

    def places(self, use: Use, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Extract the patches."""
        layer, image = use.layer, inputs
        assert isinstance(layer, nn.Conv1d | nn.Conv2d)
        kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
        padding = layer._reversed_padding_repeated_twice
        if any(padding):
            image = F.pad(image, padding, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)
        if isinstance(layer, nn.Conv1d):
            image, kernel, stride, dilation = image.unsqueeze(2), (1, *kernel), (1, *stride), (1, *dilation)
        records, groups = image.shape[0], layer.groups
        if set(dilation) == {1}:
            # A view and one copy: F.unfold loops over records on GPUs.
            patches = image.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])
            split = torch.unflatten(patches, 1, (groups, -1)).permute(0, 1, 3, 4, 2, 5, 6)
            seen = split.flatten(4).flatten(2, 3)
        else:
            columns = F.unfold(image, kernel, dilation=dilation, stride=stride)
            seen = torch.unflatten(columns, 1, (groups, -1)).mT
        return seen, use.grad.reshape(records, groups, layer.out_channels // groups, seen.shape[2]).mT


class EmbeddingRule(Rule):
    """`nn.Embedding`: gradients of repeated rows are added before the norm is taken."""

    def squared_lengths(self, use: Use) -> Tensor:
        """Return squared norms by comparing all pairs of words of a record."""
        words, back, _ = self._words(use)
        same = (words[:, :, None] == words[:, None, :]).float()
        grams = ((back @ back.mT) * same).sum((1, 2), dtype=torch.float64).clamp(min=0)
        loose = back.double().square().sum(2).sqrt().sum(1).square()
        return grams + GRAM_GUARD * loose

    def weighted_sums(self, use: Use, weights: Tensor, fit: Tensor) -> dict[str, Tensor]:
        """Add the weighted gradients to their rows."""
        words, back, table = self._words(use)
        back = (masked(back, fit) * weights[:, None, None]).double()
        return {"weight": back.new_zeros(table).index_add(0, words.flatten(), back.flatten(0, 1))}

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return a table for each record."""
        words, back, table = self._words(use)
        tables = back.new_zeros(words.shape[0], *table)
        return {"weight": tables.scatter_add(1, words[:, :, None].expand_as(back), back)}

    def _words(self, use: Use) -> tuple[Tensor, Tensor, tuple[int, int]]:
        layer, words = use.layer, use.inputs[0]
        assert isinstance(layer, nn.Embedding | nn.EmbeddingBag)
        words = words.flatten(1) if words.dim() > 1 else words[:, None]
        back = use.grad.reshape(*words.shape, -1)
        if layer.padding_idx is not None:
            back = back * (words != layer.padding_idx)[:, :, None]
        return words, back, (layer.num_embeddings, layer.embedding_dim)


class AffineRule(Rule):
    """Scale and shift of `LayerNorm`, `GroupNorm`, `InstanceNorm` and `RMSNorm`."""

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return the normalised input times the output gradient, summed over places."""
        layer, inputs, back = use.layer, use.inputs[0].float(), use.grad
        places = list(range(2, inputs.dim()))
        if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
            normalise: Any = F.layer_norm if isinstance(layer, nn.LayerNorm) else F.rms_norm
            normal = normalise(inputs, layer.normalized_shape, eps=layer.eps)
            places = list(range(1, inputs.dim() - len(layer.normalized_shape)))
        elif isinstance(layer, nn.GroupNorm):
            normal = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
        else:
            normal = F.instance_norm(inputs, eps=layer.eps)  # type: ignore[arg-type]
        values = {"weight": normal * back, "bias": back}
        return {name: values[name].sum(places) if places else values[name] for name in use.names}


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


class StepsRule(LinearRule):
    """Linear map applied step by step; its inputs are listed while it runs."""

    def _placed(self, use: Use) -> tuple[Tensor, Tensor]:
        if isinstance(use.inputs[0], list):
            use.inputs = (torch.stack(use.inputs[0], dim=1),)
        return super()._placed(use)


class CopiesRule(Rule):
    """Parameters of which each record has a copy: the gradients of these are those of the records."""

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return the gradients of the copies."""
        pairs = zip(use.names, use.output_grads, strict=True)
        return {name: grad.float() for name, grad in pairs if grad is not None}


RULES: tuple[tuple[tuple[type[nn.Module], ...], Rule], ...] = (
    ((nn.Linear,), LinearRule()),
    ((nn.Conv1d, nn.Conv2d), ConvolutionRule()),
    ((nn.Embedding,), EmbeddingRule()),
    ((nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), AffineRule()),
)


def rule_for(layer: nn.Module) -> Rule | None:
    """Return the rule of a layer, if it has one."""
    for kinds, rule in RULES:
        if isinstance(layer, kinds) and type(layer).forward in (kind.forward for kind in kinds):
            return rule
    return None


def places_of(module: nn.Module, names: dict[int, str]) -> dict[str, str]:
    """Return the name in `names`, by id, of each parameter in each module: one that is held twice counts once.

    For `functional_call`, which leaves other tensors in a module that is held twice where it ties weights.
    """
    layers = module.named_modules()
    found = [pair for path, layer in layers for pair in layer.named_parameters(path, recurse=False)]
    return {place: names[id(value)] for place, value in found if id(value) in names}


def masked(values: Tensor, fit: Tensor) -> Tensor:
    """Set values of records that are not fit to zero, also where they are infinite."""
    return torch.where(fit.reshape(-1, *(1,) * (values.dim() - 1)), values, values.new_zeros(()))


def _squared(each: Tensor) -> Tensor:
    return each.flatten(1).square().sum(1, dtype=torch.float64)


def _blocks(values: Tensor) -> Tensor:
    """Split records into blocks of equal size, the last one padded with zeros."""
    count = max(1, math.ceil(len(values) / BLOCK))
    size = math.ceil(len(values) / count)
    full = values if count * size == len(values) else padded(values, 0, count * size)
    return full.reshape(count, size, *values.shape[1:])


def padded(values: Tensor, dim: int, size: int, first: int = 0) -> Tensor:
    """Return values with zeros added to a dimension, up to a size, with the values at `first`."""
    missing = size - values.shape[dim]
    return F.pad(values, (*(0, 0) * (values.dim() - dim - 1), first, missing - first)) if missing else values


def weigh(each: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum over records: single precision within blocks, double across them."""
    blocks = _blocks(weights.to(each.dtype)).unsqueeze(1) @ _blocks(each.flatten(1))
    return blocks.sum((0, 1), dtype=torch.float64).reshape(each.shape[1:])


@dataclass(frozen=True, eq=False)
class ClippedSum:
    """Sum of clipped gradients, concatenated over parameters, and number within the clip norm."""

    flat: Tensor
    within: Tensor  # sum over records of 1/2 if the norm was within the bound, else -1/2


def clipped_sum(
    uses: list[Use],
    sizes: dict[str, torch.Size],
    weights: Tensor,
    clip_norm: Tensor | float,
    scale: float = 1.0,
    parts: Mapping[str, int] | None = None,
) -> ClippedSum:
    """Clip each record's gradient and add them up, in the order of `sizes`.

    `weights` is 1 for a record, 0 for padding. `scale`: factor for gradients before clipping, such as
    the inverse of a loss scale. `parts`: which part of the module a parameter belongs to, where each
    part is clipped by itself; `clip_norm` then has one row for each.

    Guarantees
    ----------
    Each record adds a vector of norm at most `clip_norm`, in each part, and zero where its gradient is
    not finite. It depends on other records through rounding alone. Products are in single precision
    whatever the module's precision; norms, and sums of more than a few hundred records, in double.
    """
    records = weights.shape[0]
    check_rows(uses, records)
    times = Counter(name for use in uses for name in use.names.values())
    parts = dict.fromkeys(sizes, 0) if parts is None else parts
    with torch.autocast(weights.device.type, enabled=False), torch.no_grad(), full_precision():
        squared = [weights.new_zeros(records, dtype=torch.float64) for _ in range(max(parts.values()) + 1)]
        # Gradients of parameters used repeatedly are added before the norm is taken: uses may cancel.
        shared: dict[str, Tensor] = {}
        for use in uses:
            part, *others = {parts[name] for name in use.names.values()}
            if all(times[name] == 1 for name in use.names.values()) and not others:
                squared[part] = squared[part] + use.rule.squared_lengths(use)
            else:
                for short, each in use.rule.gradients(use).items():
                    name = use.names[short]
                    shared[name] = each if name not in shared else shared[name] + each
            if use.broken is not None:
                squared[part] = squared[part].masked_fill(use.broken, math.inf)
        for name, each in shared.items():
            squared[parts[name]] = squared[parts[name]] + each.flatten(1).double().square().sum(1)
        lengths = torch.stack(squared).sqrt() * scale
        bound = clip_norm * (1 - MARGIN)
        # `scale` is part of the factor, so that the sums below need not apply it.
        shrunk = scale * (bound / lengths.clamp(min=1e-100)).clamp(max=1.0)
        # A factor that underflows in single precision would not bound the product.
        fit = (torch.isfinite(lengths) & (shrunk >= LEAST_FACTOR)).all(0) & (weights > 0)
        factors = torch.where(fit, shrunk, lengths.new_zeros(())).float()
        sums = {name: weigh(masked(each, fit), factors[parts[name]]) for name, each in shared.items()}
        for use in uses:
            if not shared.keys() & set(use.names.values()):
                own = factors[parts[next(iter(use.names.values()))]]
                sums |= {use.names[short]: total for short, total in use.rule.weighted_sums(use, own, fit).items()}
            use.kept = {}
        nothing = lengths.new_zeros(())
        each_sum = [
            sums[name].flatten() if name in sums else nothing.expand(size.numel()) for name, size in sizes.items()
        ]
        within = (torch.where((lengths <= bound).all(0), 0.5, -0.5) * weights).sum()
        return ClippedSum(torch.cat(each_sum), within)


def check_rows(uses: list[Use], records: int) -> None:
    """Raise NotByRecords where a layer was run on another number of rows than there are records."""
    for use in uses:
        found = next(x.shape[0] for x in torch.utils._pytree.tree_leaves(use.inputs) if isinstance(x, Tensor))
        if found != records:
            name = next(iter(use.names.values())).rpartition(".")[0] or "module"
            run = f"{name} ({type(use.layer).__name__}) was run on {found} records, but the batch has {records}"
            remedy = "Keep records, each once, as the first dimension of each layer's input"
            if isinstance(use.layer, nn.Embedding):
                remedy = (
                    f"Look up positions once for each record, as in {name}(torch.arange(length).expand(len(x), -1))"
                )
            raise NotByRecords(f"{run}. {remedy}.", use.layer)


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Disable reduced precision (TF32) in matrix products."""
    before = torch.get_float32_matmul_precision()
    if before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
