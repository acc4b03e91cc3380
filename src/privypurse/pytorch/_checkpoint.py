"""Saving and resuming a run: module, optimizer, purse, schedule, sampler and noise in one file."""

import io
import json
import math
import os
import pathlib
import warnings
from typing import Any

import numpy as np
import torch

from privypurse.core._checks import positive, shown
from privypurse.core._errors import InvalidArgument
from privypurse.core._reading import refusing
from privypurse.pytorch._engine import Engine
from privypurse.pytorch._private_loop import Private
from privypurse.training._checkpoint import check_durable, check_ledger, head_from, restore_noise, write_whole
from privypurse.training._trace import Trace

FORMAT = 1
# Optimizer state that has one number per parameter tensor.
_SINGLE = ("step", "mu_product", "eta", "mu")


def save(private: Private, path: str | os.PathLike[str], **others: Any) -> None:
    """Save a run between two steps.

    Parameters
    ----------
    private : Private
        Result of `make_private`.
    path : str or path
        The file, written atomically.
    **others
        Other objects of the loop with a ``state_dict``, such as ``scheduler=scheduler``.

    Guarantees
    ----------
    The file holds public values only and is read without running code (``weights_only=True``).
    """
    engine, where = private.engine, _path(path)
    check_durable(engine.purse)
    if engine._drawn.chunk is not None:
        raise InvalidArgument("a run can be saved only between two steps. Call save after optimizer.step().")
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
    """Resume a saved run if the file exists; return whether it did.

    Call it right after `make_private`, with a purse that has the ledger of the saved run.

    Parameters
    ----------
    private, path, **others
        As for `save`.

    Guarantees
    ----------
    * Resuming never lowers what was spent: the ledger must continue the saved one, with all later
      releases. (A simulation may use a ledger in memory; its releases are then charged again.)
    * A simulation on the CPU continues bit for bit, if the budget also covers releases that were
      made after the file was written, and no worker processes fetch samples ahead.
    """
    where = _path(path)
    if not where.exists():
        return False
    content, facts = _read(where)
    engine = private.engine
    if engine.trace.steps or engine.in_sample:
        raise InvalidArgument("resume must be called before the first step, but this run has begun.")
    now = _facts(engine)
    for name in ("settings", "schedule", "clip", "parameters", "terms", "dataset"):
        if facts.get(name) != now[name]:
            why = f"checkpoint {where.name!r} was made with another {name}: {facts.get(name)!r}; got {now[name]!r}"
            raise InvalidArgument(f"{why}. Use the same.")
    strangers = sorted(set(content["others"]) ^ set(_stateful(others)))
    if strangers:
        raise InvalidArgument(f"checkpoint and call must name the same objects; {strangers} is in one of them only.")
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
    """Raise ValueError for a state that does not fit the optimizer and would fail at a step."""
    groups = optimizer.state_dict()["param_groups"]
    # A learning rate scheduler changes numbers and adds settings.
    pairs = zip(groups, state["param_groups"], strict=True)
    if not all(_is_setting(saved[name], own) for group, saved in pairs for name, own in group.items()):
        raise ValueError("the settings are not those of the optimizer")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = [set(memory) for memory in state["state"].values()]
    for place, memory in state["state"].items():
        for name, value in memory.items():
            single, own = name in _SINGLE, parameters[place].shape
            right = isinstance(value, int | float) if single else value is None
            if isinstance(value, torch.Tensor):
                right = value.shape == own or (single and value.shape == ())
            if right and name == "step":
                counted = torch.as_tensor(value)
                right = bool(((counted >= 0) & counted.isfinite()).all())
            if not right:
                raise ValueError("a memory of the optimizer does not fit its parameter")
    if any(one != names[0] for one in names):
        raise ValueError("parameters have different memories")


def _is_setting(saved: Any, own: Any) -> bool:
    """Whether a saved setting fits: equal, or a number of at least 0, below 1 in sequences."""
    if isinstance(own, list | tuple):
        if not isinstance(saved, list | tuple) or len(saved) != len(own):
            return False
        return all(one == other or (_is_setting(one, other) and one < 1) for one, other in zip(saved, own, strict=True))
    if isinstance(own, torch.Tensor) or isinstance(saved, torch.Tensor):
        return type(saved) is type(own) and saved.shape == own.shape
    if type(own) is float:
        return type(saved) in (int, float) and 0 <= saved < math.inf
    return type(saved) is type(own) and bool(saved == own)


def _facts(engine: Engine) -> dict[str, Any]:
    return {
        **engine.payments.state(),
        "parameters": [[name, list(size)] for name, size in engine.sizes.items()],
        "terms": engine.purse.filter.terms(),
        "dataset": engine.purse.dataset,
        "head": engine.purse.ledger.head(),
        "noise": engine.purse.noise.state(),
    }


def _read(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of a file and its facts; refuse anything else without running it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about foreign files
            content = torch.load(io.BytesIO(path.read_bytes()), weights_only=True, map_location="cpu")
        form, facts = content["format"], json.loads(content["facts"])
        missing = {"module", "optimizer", "others", "vectors", "chance", "device_chance"} - set(content)
        if missing or not isinstance(facts, dict) or not isinstance(content["others"], dict):
            raise ValueError("parts are missing")
    except Exception as error:
        what = f"{path.name!r} is not a checkpoint of the engine ({type(error).__name__})"
        raise InvalidArgument(f"{what}. Pass another file.") from error
    if form != FORMAT:
        raise InvalidArgument(f"{path.name!r} has format {form!r}, not {FORMAT}. Use the version that wrote it.")
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
        raise InvalidArgument(f"path must be a file in a writable folder; got {str(path)!r}. Create the folder first.")
    return where
