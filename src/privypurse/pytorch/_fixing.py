"""[RAW DATA] Layers that cannot be trained privately: one report of all, and what replaces them."""

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn.modules import batchnorm, instancenorm

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument

_MOST_NAMED = 3  # layers with one fault that are named


def check_module(module: Any) -> nn.Module:
    """Return the module, unwrapped; raise InvalidArgument for non-modules, and for all layers that mix records."""
    whole = _unwrapped(module)
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, layer in whole.named_modules():
        for why, remedy in _faults(layer):
            found.setdefault((type(layer).__name__, why), []).append((name, remedy))
    problems = [_problem(kind, why, places) for (kind, why), places in found.items()]
    if problems:
        listed = "; ".join(problems)
        raise InvalidArgument(f"module has {listed}. Replace them, as module = privypurse.pytorch.fix(module) does.")
    return whole


def _unwrapped(module: Any) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise InvalidArgument(f"module must be a torch.nn.Module; got {shown(module)}. Pass the module to train.")
    whole: nn.Module = module
    if isinstance(module, nn.parallel.DistributedDataParallel):
        whole = module.module
    if hasattr(whole, "_orig_mod"):
        raise InvalidArgument("module was compiled with torch.compile; the engine does so itself. Pass the original.")
    if any(hasattr(parameter, "placements") for parameter in whole.parameters()):
        what = "module is sharded over processes (FSDP), but gradients of records need whole parameters"
        raise InvalidArgument(f"{what}. Pass it before fully_shard, as to DistributedDataParallel.")
    return whole


def _problem(kind: str, why: str, places: list[tuple[str, str]]) -> str:
    names = [name for name, _ in places[:_MOST_NAMED] if name]
    more = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    where = f"{', '.join(names)}{more} ({kind})" if names else kind
    return f"{where}, {why}: use {places[0][1]}"


def _faults(layer: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield why a layer is refused, and what to replace it with."""
    if isinstance(layer, batchnorm._BatchNorm):
        parameters = list(layer.parameters())
        frozen = not any(parameter.requires_grad for parameter in parameters) if parameters else not layer.training
        if layer.running_mean is None or not frozen:  # else its statistics are fixed, and records stay apart
            why = "which normalises over the records of a batch: each record's gradient depends on the others"
            yield why, f"nn.GroupNorm({_groups(layer)}, {layer.num_features})"
    if isinstance(layer, instancenorm._InstanceNorm) and layer.track_running_stats:
        yield "which keeps a mean over records, without privacy", "the same layer with track_running_stats=False"
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and (
        layer.max_norm is not None or layer.sparse or layer.scale_grad_by_freq
    ):
        why = "with max_norm, sparse or scale_grad_by_freq, which depend on the batch"
        yield why, f"a plain nn.{type(layer).__name__}"


def _groups(layer: batchnorm._BatchNorm) -> int:
    """Return a number of groups of more than one channel, at most 32."""
    channels = layer.num_features
    return next((groups for groups in (32, 16, 8, 4, 2) if channels % groups == 0 and channels > groups), 1)


def fix(module: nn.Module) -> nn.Module:
    """Replace layers that cannot be trained privately, and print what was replaced.

    `BatchNorm` becomes `GroupNorm`, with the same scale and shift. `InstanceNorm` no longer keeps
    running statistics, and embeddings lose ``max_norm``, ``sparse`` and ``scale_grad_by_freq``.

    Parameters
    ----------
    module : Module
        The module. Its layers are replaced in place.

    Returns
    -------
    Module
        The module; another one only if it is such a layer itself. Make the optimizer afterwards.

    Examples
    --------
    >>> module = fix(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()))
    1 (BatchNorm2d) is now nn.GroupNorm(4, 8)
    """
    module = _unwrapped(module)
    for name, layer in list(module.named_modules(remove_duplicate=False)):
        remedies = [remedy for _, remedy in _faults(layer)]
        if not remedies:
            continue
        kind, after = type(layer).__name__, _plain(layer)
        if name:
            holder, _, last = name.rpartition(".")
            setattr(module.get_submodule(holder), last, after)
        else:
            module = after
        print(f"{name or 'module'} ({kind}) is now {remedies[0]}")
    return module


def _plain(layer: nn.Module) -> nn.Module:
    """Return a layer to use in place of one that has faults."""
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        layer.max_norm, layer.sparse, layer.scale_grad_by_freq = None, False, False
        return layer
    if not isinstance(layer, batchnorm._BatchNorm):
        layer.track_running_stats = False  # type: ignore[assignment]
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(layer, name, None)
        return layer
    new = nn.GroupNorm(_groups(layer), layer.num_features, eps=layer.eps, affine=layer.affine).train(layer.training)
    for name in ("weight", "bias"):
        value = getattr(layer, name, None)  # without affine both are None
        kept = None if value is None else nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)
        new.register_parameter(name, kept)
    return new
