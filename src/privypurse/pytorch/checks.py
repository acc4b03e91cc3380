"""What a module must be like, so that gradients belong to single records; refused, with the remedy, before anything is spent."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import batchnorm, rnn

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
        if isinstance(layer, batchnorm._BatchNorm) and not isinstance(layer, nn.modules.instancenorm._InstanceNorm):
            _refuse(
                where,
                "which normalises over the records of a batch, so that each record's gradient depends on the others",
                f"nn.GroupNorm({_groups(layer.num_features)}, {layer.num_features})",
            )
        if isinstance(layer, batchnorm._NormBase) and layer.track_running_stats:
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


def check_independence(module: nn.Module, batch: Any) -> None:
    """Run made-up records together and alone: a module that mixes them gives different answers.

    Parameters
    ----------
    module : Module
        The module.
    batch : Any
        One record, for shapes and types; its values are not used.
    """
    if not isinstance(batch, tuple | list) or not all(isinstance(part, Tensor) for part in batch) or len(batch) < 2:
        return
    device = next(module.parameters()).device
    generator = torch.Generator().manual_seed(0)
    made = [_made_up(part, generator).to(device) for part in batch[:-1]]
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    state = torch.get_rng_state()
    training = {name: layer.training for name, layer in module.named_modules()}
    try:
        for layer in module.modules():
            if isinstance(layer, nn.modules.dropout._DropoutNd | nn.MultiheadAttention):
                layer.training = False
        with torch.no_grad():
            together = module(*made)
            alone = module(*[part[:1] for part in made])
        if not isinstance(together, Tensor) or together.shape[:1] != (3,) or alone.shape[:1] != (1,):
            return
    except Exception:  # made-up records need not make sense to every module
        return
    finally:
        for name, layer in module.named_modules():
            layer.training = training[name]
        torch.set_rng_state(state)
    if not torch.allclose(together[:1], alone, rtol=1e-2, atol=1e-3, equal_nan=True):
        raise InvalidArgument(
            "module mixes records: what it says about a made-up record depends on the other records in the batch. Each record's "
            "gradient must be its own: take out what is computed over the first dimension. Nothing was spent."
        )
    changed = [name for name, buffer in module.named_buffers() if not torch.equal(buffer, buffers[name])]
    if changed:
        raise InvalidArgument(
            f"module changes its buffers ({changed[0]}) when it is run: that would keep a trace of records that nobody paid for. "
            "Take it out, or keep it from changing in training. Nothing was spent."
        )


def _made_up(part: Tensor, generator: torch.Generator) -> Tensor:
    shape = (3, *part.shape[1:])
    if part.is_floating_point():
        return torch.randn(shape, generator=generator).to(part.dtype)
    return torch.randint(0, 2, shape, generator=generator).to(part.dtype)


def _groups(channels: int) -> int:
    return next(groups for groups in (32, 16, 8, 4, 2, 1) if channels % groups == 0)


def _refuse(where: str, why: str, remedy: str) -> None:
    raise InvalidArgument(f"module has {where}, {why}. Replace it with {remedy}. Nothing was spent.")
