"""[RAW DATA] Gradients of single records, layer by layer, from what went into a layer and what came back at its output.

For each kind of layer there is a rule, with three questions: the squared length of each record's gradient, the weighted sum of
the records' gradients, and (where neither has a shortcut) the gradients one by one. The sum needs no gradients one by one;
for most layers the lengths do not either (Goodfellow 2015; Li et al. 2022, arXiv:2110.05679; Bu et al. 2023, arXiv:2210.00038).
"""

import contextvars
import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Lengths from products of Gram matrices cancel: this much of the sum of all lengths, which is never less than the length itself,
# is added to what they give. Single precision loses less.
GRAM_GUARD = 2.0**-20
# Gram matrices are taken where they are this much smaller than the gradients one by one.
GRAM_GAIN = 8
# Below this, squares may vanish in single precision.
TINY = 1e-15
# Above this, products of what went in and what came back could overflow on their way to a bounded sum.
LARGEST = 1e25
# Records that are added up in single precision; sums of these are added in double. More would round by more than a record adds.
BLOCK = 256

# Whether a layer is being run a second time, for its gradients: taps are closed then.
RUNNING_AGAIN = contextvars.ContextVar("RUNNING_AGAIN", default=False)


@dataclass(eq=False)
class Use:
    """One use of a layer in a forward pass.

    Parameters
    ----------
    rule : Rule
        What kind of layer it is.
    layer : Module
        The layer, for its settings.
    names : dict of str
        Full name of each trainable parameter, by the name the rule knows it by.
    inputs : tuple
        What went in.
    output_grads : list of Tensor or None
        Gradients of the sum of losses with respect to what came out; None until the backward pass has been here.
    """

    rule: "Rule"
    layer: nn.Module
    names: dict[str, str]
    inputs: tuple[Any, ...]
    output_grads: list[Tensor | None]
    kept: dict[str, Tensor] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """How many records there were, by the layer's input."""
        return self.rule.records(self)

    @property
    def grad(self) -> Tensor:
        """The gradient at the only output, in single precision."""
        (grad,) = self.output_grads
        assert grad is not None
        return grad.float()


class Rule:
    """A kind of layer."""

    def records(self, use: Use) -> int:
        """Return the number of records in the input."""
        first = next(x for x in torch.utils._pytree.tree_leaves(use.inputs) if isinstance(x, Tensor))
        return int(first.shape[0])

    def broken(self, use: Use) -> Tensor | None:
        """Return which records went in with something that is not a finite number, where the other answers would not show it."""
        return None

    def squared_lengths(self, use: Use) -> Tensor:
        """Return the squared length of each record's gradient, over all trainable parameters of the layer."""
        use.kept = self.gradients(use)
        return torch.stack([_squared(each) for each in use.kept.values()]).sum(0)

    def weighted_sums(self, use: Use, weights: Tensor, fit: Tensor) -> dict[str, Tensor]:
        """Return the sum of the records' gradients times their weights; records that are not `fit` count as zero."""
        each = use.kept or self.gradients(use)
        return {name: weigh(masked(g, fit), weights) for name, g in each.items()}

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return each record's gradient, for each trainable parameter."""
        raise NotImplementedError


class OuterProducts(Rule):
    """Layers whose gradient is a sum of outer products over places: linear layers and convolutions.

    Records have places (words, pixels); the gradient is ``sum_t g_t a_t'`` with a_t what the layer saw at place t and g_t what
    came back there. `places` returns both, as (records, groups, places, features).
    """

    def places(self, use: Use, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the layer saw and what came back, at each place."""
        raise NotImplementedError

    def broken(self, use: Use) -> Tensor:
        """Return which records' inputs are not finite; they are replaced by zeros in all that follows."""
        self._placed(use)
        return use.kept["broken"]

    def squared_lengths(self, use: Use) -> Tensor:
        """Return squared lengths by the cheapest of three ways."""
        seen, back = self._placed(use)
        lengths = torch.zeros(back.shape[0], dtype=torch.float64, device=back.device)
        if "bias" in use.names:
            # In double precision, and kept: places may cancel, and what is measured must be what is added.
            use.kept["bias"] = back.sum(2, dtype=torch.float64).flatten(1)
            lengths = lengths + use.kept["bias"].square().sum(1)
        if "weight" not in use.names:
            return lengths
        count = seen.shape[2]
        if count == 1:
            # In double precision: what went in may be tiny where what came back is huge.
            squares = [x.double().square().sum((2, 3)) for x in (seen, back)]
            return lengths + (squares[0] * squares[1]).sum(1)
        if GRAM_GAIN * 2 * count**2 <= seen.shape[3] * back.shape[3]:
            return lengths + self._by_grams(seen, back)
        use.kept["weight"] = back.mT @ seen
        return lengths + _squared(use.kept["weight"])

    @staticmethod
    def _by_grams(seen: Tensor, back: Tensor) -> Tensor:
        """Return squared lengths from the inner products of all pairs of places; never less than the truth.

        Rounding is relative to the sum of the lengths at all places, `loose`, not to the length of the sum; and where squares
        could vanish in single precision, `loose` itself is the answer.
        """
        grams = ((seen @ seen.mT) * (back @ back.mT)).sum((2, 3), dtype=torch.float64)
        loose = (seen.double().square().sum(3) * back.double().square().sum(3)).sqrt().sum(2).square()
        tiny = [(x.abs().amax((2, 3)) < TINY) & (x != 0).flatten(2).any(2) for x in (seen, back)]
        return torch.where(tiny[0] | tiny[1], loose, grams.clamp(min=0) + GRAM_GUARD * loose).sum(1)

    def weighted_sums(self, use: Use, weights: Tensor, fit: Tensor) -> dict[str, Tensor]:
        """Return weighted sums: matrix products over blocks of records and all places."""
        seen, back = self._placed(use)
        weighted = masked(back, fit) * weights[:, None, None, None]
        sums = {}
        if "bias" in use.names:
            sums["bias"] = weights.double() @ masked(use.kept["bias"], fit)
        if "weight" in use.names:
            shape = _weight_shape(use, seen, back)
            kept = use.kept.get("weight")
            total = _products(weighted, seen) if kept is None else weigh(masked(kept, fit), weights)
            sums["weight"] = total.reshape(shape)
        return sums

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return each record's gradient."""
        seen, back = self._placed(use)
        each = {}
        if "bias" in use.names:
            each["bias"] = back.sum(2, dtype=torch.float64).flatten(1)
        if "weight" in use.names:
            shape = _weight_shape(use, seen, back)
            each["weight"] = (back.mT @ seen).reshape(-1, *shape)
        return each

    def _placed(self, use: Use) -> tuple[Tensor, Tensor]:
        if "seen" not in use.kept:
            inputs = use.inputs[0].float()
            finite = (inputs.abs() <= LARGEST).flatten(1).all(1)  # not true of what is not a number
            use.kept["broken"] = ~finite
            use.kept["seen"], use.kept["back"] = self.places(use, masked(inputs, finite))
        return use.kept["seen"], use.kept["back"]


class LinearRule(OuterProducts):
    """`nn.Linear`, on inputs (records, ..., features)."""

    def places(self, use: Use, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Flatten whatever lies between records and features."""
        return _one_group(inputs), _one_group(use.grad)


class ConvolutionRule(OuterProducts):
    """`nn.Conv1d` and `nn.Conv2d`: the patches under the kernel are what the layer saw at each place."""

    def places(self, use: Use, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Cut the input into patches."""
        layer, image, back = use.layer, inputs, use.grad
        assert isinstance(layer, nn.Conv1d | nn.Conv2d)
        kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
        padding = layer._reversed_padding_repeated_twice
        if any(padding):
            image = F.pad(image, padding, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)
        if isinstance(layer, nn.Conv1d):
            image, kernel, stride, dilation = image.unsqueeze(2), (1, *kernel), (1, *stride), (1, *dilation)
        records, groups = image.shape[0], layer.groups
        features = layer.in_channels // groups * kernel[0] * kernel[1]
        if set(dilation) == {1}:
            # A view, and one copy; F.unfold works record by record on GPUs.
            patches = image.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])
            count = patches.shape[2] * patches.shape[3]
            split = patches.reshape(records, groups, layer.in_channels // groups, *patches.shape[2:])
            seen = split.permute(0, 1, 3, 4, 2, 5, 6).reshape(records, groups, count, features)
        else:
            columns = F.unfold(image, kernel, dilation=dilation, stride=stride)
            count = columns.shape[2]
            seen = columns.reshape(records, groups, features, count).mT
        return seen, back.reshape(records, groups, layer.out_channels // groups, count).mT


class EmbeddingRule(Rule):
    """`nn.Embedding`: rows that occur more than once in a record add up before they are measured."""

    def squared_lengths(self, use: Use) -> Tensor:
        """Return squared lengths by comparing every two words of a record."""
        words, back = self._words(use)
        same = (words[:, :, None] == words[:, None, :]).float()
        grams = ((back @ back.mT) * same).sum((1, 2), dtype=torch.float64).clamp(min=0)
        loose = back.double().square().sum(2).sqrt().sum(1).square()
        return grams + GRAM_GUARD * loose

    def weighted_sums(self, use: Use, weights: Tensor, fit: Tensor) -> dict[str, Tensor]:
        """Add the weighted gradients into the rows they belong to."""
        words, back = self._words(use)
        back = (masked(back, fit) * weights[:, None, None]).double()
        assert isinstance(use.layer, nn.Embedding)
        table = back.new_zeros(use.layer.num_embeddings, use.layer.embedding_dim)
        return {"weight": table.index_add(0, words.flatten(), back.flatten(0, 1))}

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return a table for each record."""
        words, back = self._words(use)
        assert isinstance(use.layer, nn.Embedding)
        table = back.new_zeros(words.shape[0], use.layer.num_embeddings, use.layer.embedding_dim)
        return {"weight": table.scatter_add(1, words[:, :, None].expand_as(back), back)}

    def _words(self, use: Use) -> tuple[Tensor, Tensor]:
        words = use.inputs[0].flatten(1) if use.inputs[0].dim() > 1 else use.inputs[0][:, None]
        back = use.grad.reshape(*words.shape, -1)
        assert isinstance(use.layer, nn.Embedding)
        if use.layer.padding_idx is not None:
            back = back * (words != use.layer.padding_idx)[:, :, None]
        return words, back


class AffineRule(Rule):
    """Scale and shift after a normalisation within each record: `LayerNorm`, `GroupNorm`, `InstanceNorm`, `RMSNorm`."""

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return each record's gradient: the normalised input times what came back, summed over places."""
        layer, inputs, back = use.layer, use.inputs[0].float(), use.grad
        if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
            if isinstance(layer, nn.LayerNorm):
                normal = F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
            else:
                normal = F.rms_norm(inputs, layer.normalized_shape, eps=layer.eps)
            keep = len(layer.normalized_shape)
            places = list(range(1, inputs.dim() - keep))
        else:
            if isinstance(layer, nn.GroupNorm):
                normal = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
            else:
                normal = F.instance_norm(inputs, eps=layer.eps)  # type: ignore[arg-type]
            places = list(range(2, inputs.dim()))
        values = {"weight": normal * back, "bias": back}
        return {name: values[name].sum(places) if places else values[name] for name in use.names}


class AnyRule(Rule):
    """Whatever else: the layer is run again on each record on its own. Slow, for layers without a rule of their own."""

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return each record's gradient by `vmap` over a second run of the layer."""
        layer, tree_map = use.layer, torch.utils._pytree.tree_map
        fixed = dict(layer.named_parameters()) | dict(layer.named_buffers())
        moving = {name: fixed.pop(name).detach() for name in use.names}
        kind = next(iter(moving.values())).dtype
        grads = [grad for grad in use.output_grads if grad is not None]
        which = [k for k, grad in enumerate(use.output_grads) if grad is not None]

        def single(x: Any) -> Any:
            # Under autocast inputs have another precision than the parameters.
            return (x.to(kind) if x.is_floating_point() else x).unsqueeze(0) if isinstance(x, Tensor) else x

        def one(inputs: tuple[Any, ...], back: list[Tensor]) -> dict[str, Tensor]:
            def run(values: dict[str, Tensor]) -> list[Tensor]:
                outputs = torch.func.functional_call(layer, {**values, **fixed}, tree_map(single, inputs))
                listed = [outputs] if isinstance(outputs, Tensor) else [o for o in outputs if isinstance(o, Tensor)]
                return [listed[k] for k in which]

            outputs, pull = torch.func.vjp(run, moving)  # type: ignore[misc]
            (values,) = pull([g.unsqueeze(0).to(out.dtype) for g, out in zip(back, outputs, strict=True)])
            return {name: value.float() for name, value in values.items()}

        dims = tree_map(lambda x: 0 if isinstance(x, Tensor) else None, use.inputs)
        again = RUNNING_AGAIN.set(True)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop")
                return torch.func.vmap(one, in_dims=(dims, 0))(use.inputs, grads)
        finally:
            RUNNING_AGAIN.reset(again)


def rule_for(layer: nn.Module) -> Rule | None:
    """Return the rule for a layer, or None where its parameters belong to layers within it."""
    for kinds, rule in RULES:
        if isinstance(layer, kinds) and type(layer).forward in (kind.forward for kind in kinds):
            return rule
    return AnyRule() if list(layer.parameters(recurse=False)) else None


RULES: tuple[tuple[tuple[type[nn.Module], ...], Rule], ...] = (
    ((nn.Linear,), LinearRule()),
    ((nn.Conv1d, nn.Conv2d), ConvolutionRule()),
    ((nn.Embedding,), EmbeddingRule()),
    ((nn.LayerNorm, nn.GroupNorm, nn.RMSNorm), AffineRule()),
    ((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), AffineRule()),
)


def masked(values: Tensor, fit: Tensor) -> Tensor:
    """Put zeros in place of what belongs to records that are not fit: nothing times infinity would not be nothing."""
    return torch.where(fit.reshape(-1, *(1,) * (values.dim() - 1)), values, values.new_zeros(()))


def _squared(each: Tensor) -> Tensor:
    return each.flatten(1).square().sum(1, dtype=torch.float64)


def _blocks(values: Tensor) -> Tensor:
    """Cut records into blocks of equal size, the last one filled up with zeros."""
    records = values.shape[0]
    count = max(1, math.ceil(records / BLOCK))
    size = math.ceil(records / count)
    if count * size > records:
        values = F.pad(values, (0, 0) * (values.dim() - 1) + (0, count * size - records))
    return values.reshape(count, size, *values.shape[1:])


def weigh(each: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum over records: in single precision within blocks, in double beyond."""
    blocks = _blocks(weights.to(each.dtype)).unsqueeze(1) @ _blocks(each.flatten(1))
    return blocks.sum((0, 1), dtype=torch.float64).reshape(each.shape[1:])


def _products(back: Tensor, seen: Tensor) -> Tensor:
    """Return the sum of outer products over records and places, for each group: in blocks as well."""

    def stacked(values: Tensor) -> Tensor:
        return _blocks(values).transpose(1, 2).flatten(2, 3)

    return (stacked(back).mT @ stacked(seen)).sum(0, dtype=torch.float64)


def _weight_shape(use: Use, seen: Tensor, back: Tensor) -> tuple[int, ...]:
    weight = getattr(use.layer, "weight", None)  # a linear map of an attention layer has no layer of its own
    return tuple(weight.shape) if isinstance(weight, Tensor) else (back.shape[3], seen.shape[3])


def _one_group(values: Tensor) -> Tensor:
    return values.reshape(values.shape[0], 1, math.prod(values.shape[1:-1]), values.shape[-1])
