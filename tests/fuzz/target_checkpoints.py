"""Checkpoints of runs, with numpy and with PyTorch: read without running code, and going on is paid
for.
"""

import io
import json
import os
import pathlib
import pickle
import shutil
import zipfile
from random import Random
from typing import Any

import numpy as np

from privypurse import NoiseSource, Purse, SqliteLedger
from privypurse.losses import Logistic
from privypurse.oracles._linear import DenseOracle
from privypurse.training import Checkpoint, train
from privypurse.training.optimizers import GradientDescent
from privypurse.training.schedules import EvenSplit
from tests.fuzz.guard import Finding
from tests.fuzz.mutations import spoil_bytes, spoil_json, spoil_tree

STEPS, DONE = 7, 4


class Bomb:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("true # a checkpoint ran this",)


class Counted:
    """Counts steps, and interrupts after some."""

    def __init__(self, most: int | None = None) -> None:
        self.steps, self._most = 0, most

    def on_start(self, steps: int, done: int) -> None:
        """Do nothing."""

    def on_step(self, step: Any) -> None:
        """Count."""
        self.steps += 1
        if self.steps == self._most:
            raise KeyboardInterrupt

    def on_end(self, trace: Any) -> None:
        """Do nothing."""


class _Paid:
    """What both targets share: a ledger as it was when the run was interrupted."""

    _ledgers: dict[bool, pathlib.Path]
    _ledger: pathlib.Path

    def _purse(self, seeded: bool) -> Purse:
        shutil.copyfile(self._ledgers[seeded], self._ledger)
        return Purse.reopen(self._ledger, noise=NoiseSource(seed=3) if seeded else None)

    def _check_paid(self, before: Any, released: int) -> None:
        ledger = SqliteLedger(self._ledger, must_exist=True)
        after = ledger.totals("default")
        if after.releases < before.releases + released or not before.fits_within(after):
            raise Finding("a run went on from a checkpoint without paying")


class CheckpointTarget(_Paid):
    """The first byte says whether the run was a simulation; the rest is the file."""

    name, seconds = "checkpoint", 10.0

    def prepare(self, folder: pathlib.Path) -> None:
        rng = np.random.default_rng(3)
        X = rng.standard_normal((50, 3)) / 2
        self._oracle = DenseOracle(X, (X[:, 0] > 0).astype(int), loss=Logistic(clip_derivative=0.5))
        self._path, self._ledger = folder / "run.npz", folder / "budget.db"
        self._ledgers = {seeded: folder / f"seed-{seeded}.db" for seeded in (False, True)}
        self._seeds = {}
        for seeded, ledger in self._ledgers.items():
            noise = NoiseSource(seed=3) if seeded else None
            purse = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, noise=noise)
            self._path.unlink(missing_ok=True)
            try:
                self._train(purse, Counted(DONE))
            except KeyboardInterrupt:
                self._seeds[seeded] = self._path.read_bytes()
            self.check(bytes([seeded]) + self._seeds[seeded])

    def _train(self, purse: Purse, counted: Counted) -> None:
        optimizer = GradientDescent(step_size=4.0, records=50.0, momentum=0.5)
        checkpoint = Checkpoint(self._path, every=1)
        train(
            self._oracle,
            optimizer,
            EvenSplit(),
            purse,
            steps=STEPS,
            checkpoint=checkpoint,
            callbacks=[counted],
            block=2,
        )

    def make(self, random: Random) -> bytes:
        seeded = random.random() < 0.5
        seed = self._seeds[seeded]
        if random.random() < 0.3:
            return bytes([seeded]) + spoil_bytes(random, seed)
        with np.load(io.BytesIO(seed)) as file:
            arrays = {name: file[name] for name in file.files}
        facts = json.loads(arrays.pop("facts").tobytes())
        kind = random.randrange(10)
        if kind < 6:
            text = spoil_json(random, facts)
        elif kind == 6:
            text = json.dumps(
                facts | {"trace": spoil_json(random, json.loads(facts["trace"])).decode("utf-8", "replace")}
            ).encode()
        else:
            text = json.dumps(facts).encode()
            name = random.choice(list(arrays))
            arrays[name] = _other_array(random, arrays[name])
        content = io.BytesIO()
        np.savez(content, facts=np.frombuffer(text, dtype=np.uint8), **arrays)
        return bytes([seeded]) + content.getvalue()

    def check(self, content: bytes) -> None:
        seeded = bool(content[:1] == b"\x01")
        self._path.write_bytes(content[1:])
        purse, counted = self._purse(seeded), Counted()
        before = purse.totals
        try:
            Checkpoint(self._path).began_at(purse)
            self._train(purse, counted)
        finally:
            self._check_paid(before, counted.steps)


def _other_array(random: Random, array: Any) -> Any:
    return random.choice(
        (
            array[:-1] if array.ndim else array,
            np.concatenate([array, array]) if array.ndim else array,
            np.full(array.shape, np.nan),
            np.full(array.shape, 1e308),
            array.astype(np.int8),
            array.astype("U5"),
            array.astype(np.complex128),
            np.array([Bomb()], dtype=object),
            np.zeros((2, 2, 2)),
            np.float64(3.0),
        )
    )


class TorchCheckpointTarget(_Paid):
    """The same for PyTorch's engine."""

    name, seconds = "torch-checkpoint", 10.0

    def prepare(self, folder: pathlib.Path) -> None:
        self._path, self._ledger = folder / "run.pt", folder / "budget.db"
        self._ledgers = {seeded: folder / f"seed-{seeded}.db" for seeded in (False, True)}
        self._seeds = {}
        from privypurse.pytorch import save

        for seeded, ledger in self._ledgers.items():
            noise = NoiseSource(seed=3) if seeded else None
            private = self._begin(Purse(1.0, 1e-6, neighbouring="add-remove", ledger=ledger, noise=noise))
            _go(private, DONE)
            save(private, self._path)
            self._seeds[seeded] = self._path.read_bytes()
            private.engine.detach()
            self.check(bytes([seeded]) + self._seeds[seeded])

    def _begin(self, purse: Purse) -> Any:
        import torch

        from privypurse.pytorch import make_private

        torch.manual_seed(0)
        module = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
        inputs = torch.randn(20, 3)
        data = inputs, (inputs[:, 0] > 0).long()
        return make_private(module, optimizer, data, records=20, purse=purse, full_batch=True, steps=STEPS)

    def make(self, random: Random) -> bytes:
        import torch

        seeded = random.random() < 0.5
        seed = self._seeds[seeded]
        if random.random() < 0.3:
            return bytes([seeded]) + spoil_bytes(random, seed)
        content = torch.load(io.BytesIO(seed), weights_only=True)
        kind = random.randrange(10)
        if kind < 4:
            content["facts"] = spoil_json(random, json.loads(content["facts"])).decode("utf-8", "replace")
        elif kind < 8:
            content = _spoil_state(random, content)
        elif kind == 8:
            content[random.choice(list(content))] = Bomb()
        else:
            return bytes([seeded]) + _bomb_in_zip(seed)
        written = io.BytesIO()
        try:
            torch.save(content, written)
        except Exception:  # what cannot be written is no input
            return bytes([seeded]) + seed
        return bytes([seeded]) + written.getvalue()

    def check(self, content: bytes) -> None:
        from privypurse.pytorch import resume

        seeded = bool(content[:1] == b"\x01")
        self._path.write_bytes(content[1:])
        purse = self._purse(seeded)
        before, private = purse.totals, self._begin(purse)
        made = 0
        try:
            if resume(private, self._path):
                made = -len(private.engine.trace.steps)
                _go(private, STEPS)
                made += len(private.engine.trace.steps)
        finally:
            private.engine.detach()
            self._check_paid(before, max(0, made))


def _go(private: Any, until: int) -> None:
    from torch.nn import functional

    for _ in range(STEPS):
        for inputs, targets in private.loader:
            private.optimizer.zero_grad()
            functional.cross_entropy(private.module(inputs), targets).backward()
            private.optimizer.step()
            if private.engine.stop_reason or len(private.engine.trace.steps) >= until:
                return


def _spoil_state(random: Random, content: dict[str, Any]) -> dict[str, Any]:
    import torch

    def other(tensor: Any) -> Any:
        makers = (
            torch.zeros(7),
            torch.zeros(2, 3),
            tensor.double(),
            tensor * float("nan") if tensor.is_floating_point() else tensor,
        )
        return random.choice((*makers, tensor.reshape(-1)[:-1], torch.tensor([True]), torch.tensor(3), 5, None))

    name = random.choice([name for name in content if name != "facts"])
    part = content[name]
    if isinstance(part, torch.Tensor):
        return content | {name: other(part)}
    if name == "module":
        key = random.choice(list(part))
        return content | {name: dict(part) | {key: other(part[key])}}
    return content | {name: spoil_tree(random, part)}


def _bomb_in_zip(seed: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(seed)) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, pickle.dumps(Bomb()) if name.endswith("data.pkl") else old.read(name))
    return target.getvalue()
