"""Accuracy on MNIST of a small convolutional network, trained by one rule for every budget; several seeds, with the spread.

The network is that of the ADP-SGD paper: two convolutions and one linear layer, ReLU, 14,394
parameters. Pixels are scaled to [-1, 1], which needs no look at the data. Nothing is tuned: `fit`
with its defaults.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
from torch import nn

from privypurse import NoiseSource
from privypurse.pytorch import fit
from privypurse.training._progress import ProgressBar
from privypurse_lab.data import load

DELTA = 1e-5


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def images(part, device, limit=None):
    table = load("mnist", part)
    pixels = torch.from_numpy(table.X[:limit]).reshape(-1, 1, 28, 28)
    assert 0 <= float(pixels.min()) <= float(pixels.max()) <= 1
    return (2 * pixels - 1).to(device), torch.from_numpy(table.y[:limit]).to(device)


def accuracy(module, data):
    inputs, labels = data
    module.eval()
    with torch.no_grad():
        right = [
            (module(inputs[k : k + 2_000]).argmax(1) == labels[k : k + 2_000]).sum()
            for k in range(0, len(labels), 2_000)
        ]
    return 100 * float(sum(right)) / len(labels)


def one_run(epsilon, seed, train, test, records):
    torch.manual_seed(seed)
    module = network().to(train[0].device)
    start = time.perf_counter()
    fitted = fit(
        module,
        train,
        loss=nn.CrossEntropyLoss(),
        records=records,
        epsilon=epsilon,
        delta=DELTA,
        noise=NoiseSource(seed=seed),
        callbacks=[ProgressBar()],
    )
    return accuracy(module, test), len(fitted.trace.steps), fitted.purse.spent.epsilon, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 2.0, 8.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[20, 21, 22, 23, 24])
    parser.add_argument("--records", type=int, default=60_000, help="train on the first so many")
    parser.add_argument("--json", help="write the figures to this file")
    chosen = parser.parse_args()
    if not os.environ.get("PRIVYPURSE_DATA"):
        print("skipped: PRIVYPURSE_DATA is not set, and MNIST is not here")
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, test = images("train", device, chosen.records), images("test", device)
    print(f"Test accuracy in percent, delta {DELTA:g}, add/remove, {len(chosen.seeds)} seeds; {device}")
    figures = []
    for epsilon in chosen.epsilons:
        runs = [one_run(epsilon, seed, train, test, len(train[0])) for seed in chosen.seeds]
        found = [run[0] for run in runs]
        spread = statistics.stdev(found) if len(found) > 1 else float("nan")
        _, steps, spent, seconds = runs[-1]
        print(
            f"epsilon {epsilon:g}: {statistics.mean(found):.2f} (sd {spread:.2f}, worst {min(found):.2f}), "
            f"{steps} steps, epsilon spent {spent:.4f}, {seconds:.0f} s a run"
        )
        sys.stdout.flush()
        figures.append({"epsilon": epsilon, "accuracies": found, "steps": steps, "spent": spent})
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
