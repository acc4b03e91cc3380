"""Time and memory of one private training step, beside plain PyTorch (eager and compiled) and Opacus, in one run.

The private step is the whole of it: a fresh Poisson sample, fetching it, forward, backward,
clipping, paying, noise, optimizer. The others train on one batch that is already in place.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from torch import nn

from privypurse.pytorch import make_private

RECORDS = 60_000


class Convolutions(nn.Module):
    """The MNIST network of Abadi et al.: two convolutions and two linear layers, 26,010 parameters."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 8, 2, padding=3), nn.Conv2d(16, 32, 4, 2)
        self.third, self.fourth = nn.Linear(512, 32), nn.Linear(32, 10)

    def forward(self, x):  # noqa: D102
        x = F.max_pool2d(F.relu(self.first(x)), 2, 1)
        x = F.max_pool2d(F.relu(self.second(x)), 2, 1)
        return self.fourth(F.relu(self.third(x.flatten(1))))


class Transformer(nn.Module):
    """A stack of encoder layers over 28 rows of 28 pixels."""

    def __init__(self, width=64, layers=2):
        super().__init__()
        self.embed = nn.Linear(28, width)
        # Opacus needs attention of its own, which has no dropout here either.
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.out = nn.Linear(width, 10)

    def forward(self, x):  # noqa: D102
        x = self.embed(x.squeeze(1))
        for layer in self.layers:
            x = layer(x)
        return self.out(x.mean(1))


MODELS = {"convolutions": Convolutions, "transformer": Transformer}


def data(device):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(RECORDS, 1, 28, 28, generator=generator)
    return images.to(device), torch.randint(10, (RECORDS,), generator=generator).to(device)


def optimizer_for(module):
    return torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9)


def plain(kind, batch, device, images, labels, compiled):
    module = MODELS[kind]().to(device)
    optimizer = optimizer_for(module)
    run = (
        torch.compile(lambda x, y: F.cross_entropy(module(x), y))
        if compiled
        else lambda x, y: F.cross_entropy(module(x), y)
    )
    x, y = images[:batch].clone(), labels[:batch].clone()

    def step():
        optimizer.zero_grad()
        run(x, y).backward()
        optimizer.step()

    return step


def private(kind, batch, device, images, labels, hooks):
    module = MODELS[kind]().to(device)
    run = make_private(
        module,
        optimizer_for(module),
        (images, labels),
        records=RECORDS,
        epsilon=8.0,
        delta=1e-5,
        batch_size=batch,
        steps=1_000,
        loss=nn.CrossEntropyLoss(),
        compile=not hooks,
        micro_batch=max(4 * batch, 64),
    )
    module, optimizer, loader = run

    def batches():
        while not run.engine.stop_reason:
            yield from loader

    going = batches()

    def step():
        x, y = next(going)
        optimizer.zero_grad()
        if hooks:
            F.cross_entropy(module(x), y).backward()
        else:
            run.engine.backward(x, y)
        optimizer.step()

    return step


def opacus(kind, batch, device, images, labels, mode):
    from opacus import PrivacyEngine
    from opacus.validators import ModuleValidator

    module = ModuleValidator.fix(MODELS[kind]()).to(device)
    optimizer = optimizer_for(module)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=batch)
    x, y = images[:batch].clone(), labels[:batch].clone()
    given = {"criterion": nn.CrossEntropyLoss()} if mode == "ghost" else {}
    made = PrivacyEngine().make_private(
        module=module,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode=mode,
        **given,
    )
    module, optimizer = made[0], made[1]
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        criterion(module(x), y).backward()
        optimizer.step()

    return step


WAYS = {
    "plain eager": lambda *a: plain(*a, False),
    "plain compiled": lambda *a: plain(*a, True),
    "private, compiled": lambda *a: private(*a, False),
    "private, by hooks": lambda *a: private(*a, True),
    "opacus, hooks": lambda *a: opacus(*a, "hooks"),
    "opacus, ghost clipping": lambda *a: opacus(*a, "ghost"),
}


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(step, device, seconds):
    """Return the median time of a step in milliseconds, over blocks of steps, and the most memory it took."""
    for _ in range(5):
        step()
    synchronise(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    step()
    synchronise(device)
    block = max(1, min(50, int(seconds / 10 / (time.perf_counter() - start))))
    times = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(block):
            step()
        synchronise(device)
        times.append((time.perf_counter() - start) / block)
    memory = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else float("nan")
    return 1e3 * statistics.median(times), memory


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--seconds", type=float, default=1.0, help="for each measurement, about")
    parser.add_argument("--json", help="write the figures to this file")
    chosen = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batches = chosen.batches or ([256, 1_024, 4_096, 16_384] if device.type == "cuda" else [256])
    images, labels = data(device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"One training step in milliseconds, and MiB of memory at most; {name}, torch {torch.__version__}")
    figures = []
    for kind in chosen.models:
        for batch in batches:
            found = {}
            for way in chosen.ways:
                torch.manual_seed(0)
                torch.compiler.reset()
                try:
                    with warnings.catch_warnings(), contextlib.ExitStack():
                        warnings.simplefilter("ignore")
                        found[way] = measure(WAYS[way](kind, batch, device, images, labels), device, chosen.seconds)
                except ImportError:
                    print(f"  {way}: not installed")
                except Exception as error:  # a peer that refuses a model is a result too
                    print(f"  {way}: {type(error).__name__}: {str(error)[:100]}")
            report(kind, batch, found)
            sys.stdout.flush()
            figures += [
                {"model": kind, "batch": batch, "way": way, "ms": ms, "mib": mib} for way, (ms, mib) in found.items()
            ]
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump({"device": name, "figures": figures}, file, indent=1)


def report(kind, batch, found):
    print(f"\n{kind}, batch {batch}")
    against = found.get("plain compiled", (float("nan"), float("nan")))
    for way, (ms, mib) in found.items():
        print(f"  {way:24} {ms:8.2f} ms   {ms / against[0]:6.2f} x plain compiled   {mib:8.0f} MiB")


if __name__ == "__main__":
    main()
