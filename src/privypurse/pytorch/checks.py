"""What a module must be like, so that gradients belong to single records; refused, with the remedy, before anything is spent."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules import batchnorm, instancenorm, rnn

from privypurse.core.checks import shown
from privypurse.core.errors import InvalidArgument


def check_module(module: Any) -> nn.Module:
    """Refuse what is not a module, and layers that mix records."""
    if not isinstance(module, nn.Module):
        raise InvalidArgument(f"module must be a torch.nn.Module; got {shown(module)}. Nothing was spent.")
    if isinstance(module, nn.parallel.DistributedDataParallel):
        module = module.module
    if hasattr(module, "_orig_mod"):
        raise InvalidArgument(
            "module was compiled with torch.compile; the engine compiles by itself. Pass the module as it was before."
        )
    for name, layer in module.named_modules():
        where = f"{name} ({type(layer).__name__})" if name else type(layer).__name__
        if isinstance(layer, batchnorm._BatchNorm) and not _is_frozen(layer):
            _refuse(
                where,
                "which normalises over the records of a batch, so that each record's gradient depends on the others",
                f"nn.GroupNorm({_groups(layer.num_features)}, {layer.num_features})",
            )
        if isinstance(layer, instancenorm._InstanceNorm) and layer.track_running_stats:
            _refuse(
                where,
                "which keeps a mean over records that nobody pays for",
                "the same layer with track_running_stats=False",
            )
        if isinstance(layer, rnn.RNNBase):
            _refuse(
                where,
                "for which there are no gradients of single records here",
                "nn.TransformerEncoderLayer, or cells of nn.Linear",
            )
        if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.sparse or layer.scale_grad_by_freq):
            _refuse(
                where, "with max_norm, sparse or scale_grad_by_freq, which depend on the batch", "a plain nn.Embedding"
            )
    return module  # type: ignore[no-any-return]


def trained_parameters(module: nn.Module, optimizer: Any) -> dict[str, nn.Parameter]:
    """Return the parameters that the optimizer moves, by name, tied ones once; refuses an optimizer of something else."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgument(
            f"optimizer must be a torch.optim.Optimizer; got {shown(optimizer)}. Pass for example torch.optim.SGD(...)."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidArgument(
            "optimizer steps by the loss itself (LBFGS), which nobody pays for. Use SGD, Adam or another that needs gradients "
            "only. Nothing was spent."
        )
    known = {id(parameter): name for name, parameter in module.named_parameters()}
    moved = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(id(parameter) not in known for parameter in moved):
        raise InvalidArgument(
            "optimizer moves parameters that are not the module's: their gradients would not be private. Make the optimizer from "
            "module.parameters(), after the module was moved to its device. Nothing was spent."
        )
    wanted = {id(parameter) for parameter in moved if parameter.requires_grad}
    trained = {name: parameter for name, parameter in module.named_parameters() if id(parameter) in wanted}
    if not trained:
        raise InvalidArgument(
            "optimizer has no parameters that require a gradient: there is nothing to train. Nothing was spent."
        )
    if len({parameter.device for parameter in trained.values()}) > 1:
        raise InvalidArgument(
            "module lies on several devices; the engine needs its trained parameters on one. Nothing was spent."
        )
    if any(not parameter.is_floating_point() for parameter in trained.values()):
        raise InvalidArgument("module has trained parameters that are not real numbers. Nothing was spent.")
    return trained


def _is_frozen(layer: batchnorm._BatchNorm) -> bool:
    """Whether a normalisation is not trained and has statistics of its own: it then treats each record by itself."""
    parameters = list(layer.parameters())
    frozen = not any(parameter.requires_grad for parameter in parameters) if parameters else not layer.training
    return layer.running_mean is not None and frozen


def _groups(channels: int) -> int:
    return next(groups for groups in (32, 16, 8, 4, 2, 1) if channels % groups == 0)


def _refuse(where: str, why: str, remedy: str) -> None:
    raise InvalidArgument(f"module has {where}, {why}. Replace it with {remedy}. Nothing was spent.")
