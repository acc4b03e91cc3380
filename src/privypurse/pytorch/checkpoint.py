"""Saving a run of the engine so that it can go on: module, optimizer, purse, schedule, sampler and noise, in one file."""

import io
import json
import math
import os
import pathlib
import warnings
from typing import Any

import numpy as np
import torch

from privypurse.core.checks import positive, shown
from privypurse.core.errors import InvalidArgument
from privypurse.core.reading import refusing
from privypurse.pytorch.engine import Engine
from privypurse.pytorch.private_loop import Private
from privypurse.training.checkpoint import check_durable, check_ledger, head_from, restore_noise, write_whole
from privypurse.training.trace import Trace

FORMAT = 1
# What optimizers remember as one number for each parameter, and not as one for each of its entries.
_SINGLE = ("step", "mu_product", "eta", "mu")


def save(private: Private, path: str | os.PathLike[str], **others: Any) -> None:
    """Save a run between two steps.

    Parameters
    ----------
    private : Private
        What `make_private` returned.
    path : str or path
        The file. It appears whole or not at all.
    **others
        Anything with a ``state_dict`` that belongs to the loop, such as ``scheduler=scheduler``.

    Guarantees
    ----------
    The file holds public values only, and is read without running code (``weights_only=True``).
    """
    engine, where = private.engine, _path(path)
    check_durable(engine.purse)
    if engine.in_sample:
        raise InvalidArgument(
            "a run can be saved between two steps: call save after optimizer.step(). Nothing was saved."
        )
    content: dict[str, Any] = {
        "format": FORMAT,
        "facts": json.dumps(_facts(engine)),
        "module": private.module.state_dict(),
        "optimizer": private.optimizer.state_dict(),
        "others": {name: value.state_dict() for name, value in _stateful(others).items()},
        "vectors": [torch.from_numpy(np.array(vector)) for vector in engine.payments.vectors],
        "chance": torch.get_rng_state(),
        "device_chance": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    if engine.pays:
        buffer = io.BytesIO()
        torch.save(content, buffer)
        write_whole(where, buffer.getvalue())


def resume(private: Private, path: str | os.PathLike[str], **others: Any) -> bool:
    """Go on with a saved run, if the file is there; returns whether it was.

    Call it right after `make_private`, with a purse that has the ledger the run was saved with.

    Parameters
    ----------
    private, path, **others
        As for `save`.

    Guarantees
    ----------
    * Going on never lowers what was spent: the ledger must be the saved one, continued; what was released after the file was
      written is still on it. (A simulation may do with a ledger in memory; its releases are then charged again.)
    * A simulation on the CPU goes on bit for bit as if it had not been interrupted, as long as the purse can also pay for what
      was released and lost.
    """
    where = _path(path)
    if not where.exists():
        return False
    content, facts = _read(where)
    engine = private.engine
    if engine.trace.steps:
        raise InvalidArgument("resume must be called before the first step; this run has begun. Nothing was changed.")
    now = _facts(engine)
    for name in ("settings", "schedule", "clip", "parameters", "terms", "dataset"):
        if facts.get(name) != now[name]:
            raise InvalidArgument(
                f"checkpoint {where.name!r} was made with another {name}: {facts.get(name)!r}; got {now[name]!r}. Go on with the "
                "same, or pass another file to start anew. Nothing was spent."
            )
    if not isinstance(content["others"], dict):
        raise InvalidArgument(f"checkpoint {where.name!r} is damaged or was edited. Pass another file.")
    strangers = set(content["others"]) ^ set(_stateful(others))
    if strangers:
        raise InvalidArgument(
            f"checkpoint and call must name the same others; {sorted(strangers)} is in one of them only."
        )
    damaged = f"checkpoint {where.name!r} is damaged or was edited. Pass another file, or start anew without it."
    with refusing(damaged, also=(RuntimeError,)):
        trace = Trace.from_json(facts["trace"])
        if engine.pays:
            check_ledger(engine.purse, head_from(facts["head"]), trace)
            restore_noise(engine.purse.noise, facts["noise"])
        _check_optimizer(private.optimizer, content["optimizer"])
        private.module.load_state_dict(content["module"])
        private.optimizer.load_state_dict(content["optimizer"])
        for name, value in others.items():
            value.load_state_dict(content["others"][name])
        torch.set_rng_state(content["chance"])
        if content["device_chance"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(content["device_chance"])
        positive(clip_norm=facts["clip_norm"])
        if type(facts["look_noise"]) not in (int, float) or not facts["look_noise"] >= 0:
            raise ValueError("noise below zero")
        engine.payments.go_on(facts, [vector.numpy() for vector in content["vectors"]])
    return True


def _check_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Refuse a state with settings or memories of another kind than the optimizer's: it would fail when a step is paid."""
    groups = optimizer.state_dict()["param_groups"]
    # A scheduler of learning rates changes numbers, and leaves settings of its own.
    pairs = zip(groups, state["param_groups"], strict=True)
    if not all(_is_setting(saved[name], own) for group, saved in pairs for name, own in group.items()):
        raise ValueError("the settings are not those of the optimizer")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = [set(memory) for memory in state["state"].values()]
    for place, memory in state["state"].items():
        for name, value in memory.items():
            if name in _SINGLE:
                shapes: tuple[Any, ...] = ((), parameters[place].shape)
                right = isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.shape in shapes)
            else:
                right = value is None or (isinstance(value, torch.Tensor) and value.shape == parameters[place].shape)
            if not right:
                raise ValueError("a memory of the optimizer has another shape than its parameter")
            if name == "step":
                counted = torch.as_tensor(value)
                if not bool(((counted >= 0) & counted.isfinite()).all()):
                    raise ValueError("a number of steps is below zero")
    if any(one != names[0] for one in names):
        raise ValueError("parameters have different memories")


def _is_setting(saved: Any, own: Any) -> bool:
    """Whether a setting may have come from this one: the same, or a number of 0 or more; below 1 where there are several."""
    if isinstance(own, list | tuple):
        alike = isinstance(saved, list | tuple) and len(saved) == len(own)
        return alike and all(
            one == other or (_is_setting(one, other) and one < 1) for one, other in zip(saved, own, strict=True)
        )
    if isinstance(own, torch.Tensor) or isinstance(saved, torch.Tensor):
        return type(saved) is type(own) and saved.shape == own.shape
    if type(own) is float:
        return type(saved) in (int, float) and 0 <= saved < math.inf
    return type(saved) is type(own) and bool(saved == own)


def _facts(engine: Engine) -> dict[str, Any]:
    return {
        **engine.payments.state(),
        "parameters": engine.parameters,
        "terms": engine.purse.filter.terms(),
        "dataset": engine.purse.dataset,
        "head": engine.purse.ledger.head(),
        "noise": engine.purse.noise.state(),
    }


def _read(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is in a file, and its facts; whatever else it is, it is refused and nothing of it is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own about strange files
            content = torch.load(io.BytesIO(path.read_bytes()), weights_only=True, map_location="cpu")
        form, facts = content["format"], json.loads(content["facts"])
        missing = {"module", "optimizer", "others", "vectors", "chance", "device_chance"} - set(content)
        if missing or not isinstance(facts, dict):
            raise ValueError("parts are missing")
    except Exception as error:
        raise InvalidArgument(
            f"{path.name!r} is not a checkpoint of the engine ({type(error).__name__}). Pass another file."
        ) from error
    if form != FORMAT:
        raise InvalidArgument(f"checkpoint {path.name!r} has format {form!r}; this version reads {FORMAT}.")
    return content, facts


def _stateful(others: dict[str, Any]) -> dict[str, Any]:
    for name, value in others.items():
        if not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
            raise InvalidArgument(f"{name} must have state_dict and load_state_dict; got {shown(value)}.")
    return others


def _path(path: str | os.PathLike[str]) -> pathlib.Path:
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise InvalidArgument(f"path must be a file name; got {shown(path)}. Pass for example 'run.pt'.")
    where = pathlib.Path(path).expanduser().absolute()
    if where.is_dir() or not os.access(where.parent, os.W_OK):
        raise InvalidArgument(
            f"path must be a file in a folder that can be written to; got {str(path)!r}. Make it first."
        )
    return where
