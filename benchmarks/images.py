"""Accuracy on MNIST of `PrivateImageClassifier` with its defaults, beside the bars that it must reach; several seeds.

Everything is paid: the number of images, the centre of the features and the gradients. The settings
were chosen on the last 10,000 images of the training part (`--validate`). Five seeds take minutes on a
GPU; on two CPU cores a run takes some minutes, so that there is one.
"""

import argparse
import gzip
import os
import pathlib
import statistics
import sys
import time
import warnings

import numpy as np
import torch

from privypurse.estimators import PrivateImageClassifier, SimulationWarning

DELTA = 1e-5
SEEDS = [20, 21, 22, 23, 24]
BARS = {0.5: 98.2, 2.0: 98.7, 8.0: 99.0}


def mnist(folder, part):
    """Return images and labels in the IDX format."""
    names = ("images-idx3-ubyte", "labels-idx1-ubyte")
    images, labels = (gzip.decompress((folder / f"{part}-{name}.gz").read_bytes()) for name in names)
    return np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28), np.frombuffer(labels, np.uint8, offset=8)


def one_run(epsilon, seed, train, test, **settings):
    start = time.perf_counter()
    model = PrivateImageClassifier(epsilon, delta=DELTA, classes=range(10), random_state=seed, **settings)
    model.fit(*train)
    return 100 * model.score(*test), model.n_iter_, model.privacy_spent_.epsilon, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("PRIVYPURSE_DATA"), help="folder with mnist/*.gz")
    parser.add_argument("--device", help="such as cuda; by default a GPU if there is one")
    parser.add_argument("--views", type=int, help="views of an image; by default as the classifier chooses")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(BARS))
    parser.add_argument("--seeds", type=int, nargs="+", help="by default five on a GPU, else one")
    parser.add_argument("--records", type=int, default=60_000, help="train on the first so many")
    parser.add_argument("--validate", action="store_true", help="test on the last 10,000 images of the training part")
    chosen = parser.parse_args()
    if not chosen.data:
        print("skipped: PRIVYPURSE_DATA is not set, and MNIST is not here")
        return 0
    warnings.simplefilter("ignore", SimulationWarning)
    folder = pathlib.Path(chosen.data) / "mnist"
    images, labels = mnist(folder, "train")
    test = (images[50_000:], labels[50_000:]) if chosen.validate else mnist(folder, "t10k")
    count = min(chosen.records, 50_000) if chosen.validate else chosen.records
    train, missed = (images[:count], labels[:count]), False
    on_gpu = "cuda" in chosen.device if chosen.device else torch.cuda.is_available()
    seeds = chosen.seeds or SEEDS[: len(SEEDS) if on_gpu else 1]
    settings = {"device": chosen.device, "views": chosen.views, "verbose": sys.stderr.isatty()}
    print(f"Accuracy in percent, delta {DELTA:g}, add/remove, {len(seeds)} seeds, {count:,} images")
    for epsilon in chosen.epsilons:
        runs = [one_run(epsilon, seed, train, test, **settings) for seed in seeds]
        found, (_, steps, spent, seconds) = [run[0] for run in runs], runs[-1]
        mean, spread = statistics.mean(found), statistics.stdev(found) if len(found) > 1 else float("nan")
        bar = BARS.get(epsilon, 0.0)
        missed |= mean < bar
        print(
            f"epsilon {epsilon:g}: {mean:.2f} (sd {spread:.2f}, worst {min(found):.2f}), bar {bar:g}, "
            f"{steps} steps, epsilon spent {spent:.4f}, {seconds:.0f} s a run",
            flush=True,
        )
    return int(missed and not chosen.validate and count == 60_000)


if __name__ == "__main__":
    sys.exit(main())
