"""[RAW DATA] Gradients of single records, layer by layer, from what went into a layer and what came back at its output.

For each kind of layer there is a rule, with three questions: the squared length of each record's gradient, the weighted sum of
the records' gradients, and (where neither has a shortcut) the gradients one by one. The sum needs no gradients one by one;
for most layers the lengths do not either (Goodfellow 2015; Li et al. 2022, arXiv:2110.05679; Bu et al. 2023, arXiv:2210.00038).
"""

import contextvars
import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Lengths from products of Gram matrices cancel: this much of the sum of all lengths, which is never less than the length itself,
# is added to what they give. Single precision loses less.
GRAM_GUARD = 2.0**-20

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
        return int(use.inputs[0].shape[0])

    def squared_lengths(self, use: Use) -> Tensor:
        """Return the squared length of each record's gradient, over all trainable parameters of the layer."""
        each = self.gradients(use)
        use.kept = each
        return torch.stack([g.flatten(1).square().sum(1) for g in each.values()]).sum(0)

    def weighted_sums(self, use: Use, weights: Tensor, fit: Tensor) -> dict[str, Tensor]:
        """Return the sum of the records' gradients times their weights; records that are not `fit` count as zero."""
        each = use.kept or self.gradients(use)
        return {name: _weigh(masked(g, fit), weights) for name, g in each.items()}

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return each record's gradient, for each trainable parameter."""
        raise NotImplementedError


class OuterProducts(Rule):
    """Layers whose gradient is a sum of outer products over places: linear layers and convolutions.

    Records have places (words, pixels); the gradient is ``sum_t g_t a_t'`` with a_t what the layer saw at place t and g_t what
    came back there. `places` returns both, as (records, groups, places, features).
    """

    def places(self, use: Use) -> tuple[Tensor, Tensor]:
        """Return what the layer saw and what came back, at each place."""
        raise NotImplementedError

    def squared_lengths(self, use: Use) -> Tensor:
        """Return squared lengths by the cheapest of three ways."""
        seen, back = self._placed(use)
        lengths = back.new_zeros(back.shape[0])
        if "bias" in use.names:
            lengths = lengths + back.sum(2).flatten(1).square().sum(1)
        if "weight" not in use.names:
            return lengths
        count = seen.shape[2]
        if count == 1:
            return lengths + (seen.square().sum((2, 3)) * back.square().sum((2, 3))).sum(1)
        if 2 * count**2 <= seen.shape[3] * back.shape[3]:
            grams = (seen @ seen.mT) * (back @ back.mT)
            # Never less than the truth: rounding is relative to the sum of the lengths, not to the length of the sum.
            loose = (seen.square().sum(3) * back.square().sum(3)).sqrt().sum(2).square()
            return lengths + (grams.sum((2, 3)).clamp(min=0) + GRAM_GUARD * loose).sum(1)
        use.kept["weight"] = back.mT @ seen
        return lengths + use.kept["weight"].flatten(1).square().sum(1)

    def weighted_sums(self, use: Use, weights: Tensor, fit: Tensor) -> dict[str, Tensor]:
        """Return weighted sums: one matrix product over all records and places."""
        seen, back = self._placed(use)
        back = masked(back, fit) * weights[:, None, None, None]
        sums = {}
        if "bias" in use.names:
            sums["bias"] = back.sum((0, 2)).flatten()
        if "weight" in use.names:
            shape = _weight_shape(use, seen, back)
            if "weight" in use.kept:
                sums["weight"] = _weigh(masked(use.kept["weight"], fit), weights).reshape(shape)
            else:
                groups = seen.shape[1]
                flat = [masked(x, fit).transpose(0, 1).reshape(groups, -1, x.shape[3]) for x in (back, seen)]
                sums["weight"] = (flat[0].mT @ flat[1]).reshape(shape)
        return sums

    def gradients(self, use: Use) -> dict[str, Tensor]:
        """Return each record's gradient."""
        seen, back = self._placed(use)
        each = {}
        if "bias" in use.names:
            each["bias"] = back.sum(2).flatten(1)
        if "weight" in use.names:
            shape = _weight_shape(use, seen, back)
            each["weight"] = (back.mT @ seen).reshape(-1, *shape)
        return each

    def _placed(self, use: Use) -> tuple[Tensor, Tensor]:
        if "seen" not in use.kept:
            use.kept["seen"], use.kept["back"] = self.places(use)
        return use.kept["seen"], use.kept["back"]


class LinearRule(OuterProducts):
    """`nn.Linear`, on inputs (records, ..., features)."""

    def places(self, use: Use) -> tuple[Tensor, Tensor]:
        """Flatten whatever lies between records and features."""
        seen, back = use.inputs[0].float(), use.grad
        return _one_group(seen), _one_group(back)


class ConvolutionRule(OuterProducts):
    """`nn.Conv1d` and `nn.Conv2d`: the patches under the kernel are what the layer saw at each place."""

    def places(self, use: Use) -> tuple[Tensor, Tensor]:
        """Cut the input into patches."""
        layer, image, back = use.layer, use.inputs[0].float(), use.grad
        assert isinstance(layer, nn.Conv1d | nn.Conv2d)
        kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
        padding = layer._reversed_padding_repeated_twice
        if any(padding):
            image = F.pad(image, padding, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)
        if isinstance(layer, nn.Conv1d):
            image, kernel, stride, dilation = image.unsqueeze(2), (1, *kernel), (1, *stride), (1, *dilation)
        patches = F.unfold(image, kernel, dilation=dilation, stride=stride)
        groups, count = layer.groups, patches.shape[2]
        seen = patches.reshape(image.shape[0], groups, patches.shape[1] // groups, count).mT
        return seen, back.reshape(back.shape[0], groups, layer.out_channels // groups, count).mT


class EmbeddingRule(Rule):
    """`nn.Embedding`: rows that occur more than once in a record add up before they are measured."""

    def squared_lengths(self, use: Use) -> Tensor:
        """Return squared lengths by comparing every two words of a record."""
        words, back = self._words(use)
        same = (words[:, :, None] == words[:, None, :]).float()
        grams = ((back @ back.mT) * same).sum((1, 2)).clamp(min=0)
        loose = (back.square().sum(2).sqrt()).sum(1).square()
        return grams + GRAM_GUARD * loose

    def weighted_sums(self, use: Use, weights: Tensor, fit: Tensor) -> dict[str, Tensor]:
        """Add the weighted gradients into the rows they belong to."""
        words, back = self._words(use)
        back = masked(back, fit) * weights[:, None, None]
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
        layer = use.layer
        fixed = dict(layer.named_parameters()) | dict(layer.named_buffers())
        moving = {name: fixed.pop(name).detach() for name in use.names}
        grads = [grad for grad in use.output_grads if grad is not None]
        which = [k for k, grad in enumerate(use.output_grads) if grad is not None]

        def one(inputs: tuple[Tensor, ...], back: list[Tensor]) -> dict[str, Tensor]:
            def run(values: dict[str, Tensor]) -> list[Tensor]:
                single = tuple(x.unsqueeze(0) if isinstance(x, Tensor) else x for x in inputs)
                outputs = torch.func.functional_call(layer, {**values, **fixed}, single)
                listed = [outputs] if isinstance(outputs, Tensor) else [o for o in outputs if isinstance(o, Tensor)]
                return [listed[k] for k in which]

            _, pull = torch.func.vjp(run, moving)  # type: ignore[misc]
            (values,) = pull([g.unsqueeze(0) for g in back])
            return {name: value.float() for name, value in values.items()}

        dims = tuple(0 if isinstance(x, Tensor) else None for x in use.inputs)
        again = RUNNING_AGAIN.set(True)
        try:
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


def _weigh(each: Tensor, weights: Tensor) -> Tensor:
    return (weights @ each.flatten(1)).reshape(each.shape[1:])


def _weight_shape(use: Use, seen: Tensor, back: Tensor) -> tuple[int, ...]:
    weight = getattr(use.layer, "weight", None)  # a linear map of an attention layer has no layer of its own
    return tuple(weight.shape) if isinstance(weight, Tensor) else (back.shape[3], seen.shape[3])


def _one_group(values: Tensor) -> Tensor:
    return values.reshape(values.shape[0], 1, math.prod(values.shape[1:-1]), values.shape[-1])
