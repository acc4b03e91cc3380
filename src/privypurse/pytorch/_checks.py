"""Checks of module and optimizer before anything is spent: gradients must belong to records."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import batchnorm, instancenorm, rnn

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument


def check_module(module: Any) -> nn.Module:
    """Return the module; raise InvalidArgument for non-modules and layers that mix records."""
    if not isinstance(module, nn.Module):
        raise InvalidArgument(f"module must be a torch.nn.Module; got {shown(module)}. Pass the module to train.")
    if isinstance(module, nn.parallel.DistributedDataParallel):
        module = module.module
    if hasattr(module, "_orig_mod"):
        raise InvalidArgument(
            "module was compiled with torch.compile, but the engine compiles it itself. Pass the original module."
        )
    for name, layer in module.named_modules():
        where = f"{name} ({type(layer).__name__})" if name else type(layer).__name__
        for why, remedy in _faults(layer):
            raise InvalidArgument(f"module has {where}, {why}. Replace it with {remedy}.")
    return module  # type: ignore[no-any-return]


def _faults(layer: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield why a layer is refused, and what to replace it with."""
    if isinstance(layer, batchnorm._BatchNorm) and not _is_frozen(layer):
        why = "which normalises over the records of a batch, so that each record's gradient depends on the others"
        yield why, _norm_of_one_record(layer)
    if isinstance(layer, instancenorm._InstanceNorm) and layer.track_running_stats:
        why = "which keeps a mean over records outside of the privacy accounting"
        yield why, "the same layer with track_running_stats=False"
    if isinstance(layer, rnn.RNNBase):
        yield "for which there are no per-sample gradients", "nn.TransformerEncoderLayer, or cells of nn.Linear"
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.sparse or layer.scale_grad_by_freq):
        yield "with max_norm, sparse or scale_grad_by_freq, which depend on the batch", "a plain nn.Embedding"


def trained_parameters(module: nn.Module, optimizer: Any) -> dict[str, nn.Parameter]:
    """Return the optimizer's parameters by name; raise unless they are the module's."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgument(
            f"optimizer must be a torch.optim.Optimizer; got {shown(optimizer)}. Pass for example torch.optim.SGD(...)."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidArgument(
            "optimizer uses the loss itself (LBFGS), which is not private. Use SGD, Adam or another that needs gradients "
            "only."
        )
    known = {id(parameter): name for name, parameter in module.named_parameters()}
    moved = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(id(parameter) not in known for parameter in moved):
        raise InvalidArgument(
            "optimizer has parameters that are not the module's: their gradients would not be private. Make the optimizer "
            "from module.parameters(), after the module was moved to its device."
        )
    wanted = {id(parameter) for parameter in moved if parameter.requires_grad}
    trained = {name: parameter for name, parameter in module.named_parameters() if id(parameter) in wanted}
    if not trained:
        raise InvalidArgument("optimizer has nothing to train: no parameter requires a gradient. Unfreeze some.")
    if len({parameter.device for parameter in trained.values()}) > 1:
        raise InvalidArgument("module has trained parameters on several devices. Move the module to one.")
    if any(not parameter.is_floating_point() for parameter in trained.values()):
        raise InvalidArgument("module has trained parameters that are not real numbers. Freeze these, or convert them.")
    return trained


def _is_frozen(layer: batchnorm._BatchNorm) -> bool:
    """Whether a batch norm is not trained and has fixed statistics, so that records stay apart."""
    parameters = list(layer.parameters())
    frozen = not any(parameter.requires_grad for parameter in parameters) if parameters else not layer.training
    return layer.running_mean is not None and frozen


def _norm_of_one_record(layer: Any) -> str:
    """Suggest a layer that normalises each record over at least two numbers."""
    channels = layer.num_features
    if isinstance(layer, nn.BatchNorm1d):
        return f"nn.LayerNorm({channels})"
    groups = next((groups for groups in (32, 16, 8, 4, 2) if channels % groups == 0 and channels > groups), 1)
    return f"nn.GroupNorm({groups}, {channels})"
