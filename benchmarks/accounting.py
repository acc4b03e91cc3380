"""How long accounting takes, and what the durable ledger adds to a training loop.

Two claims, each measured side by side in one run:

1. Ten thousand releases with ten thousand distinct noise levels are accounted in under a second in
   memory (dp-accounting's RDP and PLD accountants on the same machine, on far fewer levels, beside
   it).
2. With reservations the durable ledger adds less than 5 % to a loop of one-millisecond steps.

And what one durable release takes, beside the `fsync` of a small file on the same disk
(docs/proofs/ledger.md counts them).

Run: ``python benchmarks/accounting.py [--json FILE]``
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import tempfile
import time

import dp_accounting
import numpy as np
from dp_accounting import pld, rdp

from privypurse import Gaussian, Neighbouring, NoiseSource, Norm, Purse, Sensitive
from privypurse.accounting._filters import GdpFilter, RdpFilter
from privypurse.core.charges import GaussianCharge

LEVELS = 10_000
BOX = Sensitive(np.zeros(124), norm=Norm.L2, add_remove=1.0, replace_one=2.0)


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def multipliers(count):
    return np.linspace(900.0, 1_100.0, count)


def through_the_gate():
    """Charge, record on the hash chain, draw 124 normals: the whole release."""
    purse = Purse(1.0, 1e-6, neighbouring="add-remove")
    for multiplier in multipliers(LEVELS):
        purse.release(BOX, Gaussian(float(multiplier)))
    assert 0 < purse.spent.epsilon < 1


def filter_only():
    rule = GdpFilter(1.0, 1e-6, "add-remove")
    spent = rule.start()
    for multiplier in multipliers(LEVELS):
        spent = rule.admit(spent, GaussianCharge(float(multiplier)))
    assert rule.epsilon_of(spent, 1e-6) < 1


def sampled_rdp(count):
    rule = RdpFilter(1.0, 1e-6, "add-remove", reference=GaussianCharge(4.0, 0.01))
    spent = rule.start()
    for multiplier in np.linspace(3.9, 4.1, count):
        spent = rule.admit(spent, GaussianCharge(float(multiplier), 0.01))
    assert rule.epsilon_of(spent, 1e-6) < 1


def reference(make, levels, sample_prob):
    accountant = make()
    for multiplier in levels:
        event = dp_accounting.GaussianDpEvent(float(multiplier))
        if sample_prob < 1:
            event = dp_accounting.PoissonSampledDpEvent(sample_prob, event)
        accountant.compose(event)
    assert accountant.get_epsilon(1e-6) > 0


def busy_millisecond():
    """One step of work that holds the processor for a millisecond, as a gradient does."""
    until = time.perf_counter() + 1e-3
    while time.perf_counter() < until:
        pass


def loop(steps, act, context=None):
    """Run a training loop: a millisecond of work, then one noisy answer, and again."""
    with context or contextlib.nullcontext():
        for k in range(steps):
            busy_millisecond()
            act(Gaussian(5_000.0 + k))


def ledger_overhead(steps=2_000, repeats=5):
    """Time of each kind of loop divided by the same loop with the same noise and no accounting at all, per repeat."""
    noise, relation = NoiseSource(), Neighbouring.ADD_REMOVE
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(repeats):

            def purse(ledger=None):
                return Purse(1.0, 1e-6, neighbouring=relation, ledger=ledger)

            in_memory, reserved, single = (
                purse(),
                purse(pathlib.Path(folder) / f"{repeat}-reserved.db"),
                purse(pathlib.Path(folder) / f"{repeat}-single.db"),
            )
            unpaid = seconds(lambda: loop(steps, lambda mechanism: mechanism.draw(BOX, relation, noise)))
            kinds = {
                "no noise, no accounting": seconds(lambda: loop(steps, lambda mechanism: None)),
                "in memory": seconds(lambda p=in_memory: loop(steps, lambda m: p.release(BOX, m))),
                "durable, reserved in blocks of 1,000": seconds(
                    lambda p=reserved: loop(steps, lambda m: p.release(BOX, m), p.reserve(1_000))
                ),
                "durable, each release on its own": 10
                * seconds(lambda p=single: loop(steps // 10, lambda m: p.release(BOX, m))),
            }
            assert reserved.spent.releases == in_memory.spent.releases == steps
            for name, taken in kinds.items():
                ratios.setdefault(name, []).append(taken / unpaid)
    return {name: (statistics.median(values), min(values), max(values)) for name, values in ratios.items()}


def durable_release(repeats=200):
    """Median seconds of appending 600 bytes to a file and `fsync`, and of a durable release, in turn on one disk."""
    taken = {"fsync": [], "release": [], "in memory": []}
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "small", "ab", buffering=0) as small:

        def fsync():
            small.write(bytes(600))
            os.fsync(small.fileno())

        durable = Purse(1.0, 1e-6, neighbouring="add-remove", ledger=pathlib.Path(folder) / "budget.db")
        in_memory = Purse(1.0, 1e-6, neighbouring="add-remove")
        for _ in range(repeats):
            taken["fsync"].append(seconds(fsync))
            taken["release"].append(seconds(lambda: durable.release(BOX, Gaussian(5_000.0))))
            taken["in memory"].append(seconds(lambda: in_memory.release(BOX, Gaussian(5_000.0))))
    return {name: statistics.median(values) for name, values in taken.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="also write the results to this file")
    arguments = parser.parse_args()

    filter_only()  # warm up
    rows = [
        ("privypurse, GDP filter alone", LEVELS, min(seconds(filter_only) for _ in range(3))),
        ("privypurse, whole releases through the gate", LEVELS, min(seconds(through_the_gate) for _ in range(3))),
        ("privypurse, RDP filter, Poisson-sampled", 1_000, seconds(lambda: sampled_rdp(1_000))),
        ("dp-accounting RDP", 200, seconds(lambda: reference(rdp.RdpAccountant, multipliers(200), 1.0))),
        (
            "dp-accounting RDP, Poisson-sampled",
            50,
            seconds(lambda: reference(rdp.RdpAccountant, np.linspace(3.9, 4.1, 50), 0.01)),
        ),
        (
            "dp-accounting PLD, Poisson-sampled",
            20,
            seconds(lambda: reference(pld.PLDAccountant, np.linspace(3.9, 4.1, 20), 0.01)),
        ),
    ]
    print(f"{'distinct noise levels':<46}{'levels':>8}{'seconds':>10}{'us each':>10}")
    for name, count, taken in rows:
        print(f"{name:<46}{count:>8}{taken:>10.3f}{1e6 * taken / count:>10.1f}")
    gate = rows[1][2]
    print(f"10,000 distinct levels through the gate: {gate:.2f} s (claim: under 1 s): {'ok' if gate < 1 else 'MISSED'}")

    overhead = ledger_overhead()
    print(
        "\nLoop of 1 ms steps with one noisy answer each, against the same loop with the same noise and no accounting"
    )
    print(f"{'2,000 steps, 5 repeats: ratio of times':<46}{'median':>8}{'min':>8}{'max':>8}")
    for name, (median, low, high) in overhead.items():
        print(f"{name:<46}{median:>8.3f}{low:>8.3f}{high:>8.3f}")
    added = overhead["durable, reserved in blocks of 1,000"][0] - 1
    verdict = "ok" if added < 0.05 else "MISSED"
    print(f"the durable ledger with reservations adds {100 * added:.1f} % (claim: under 5 %): {verdict}")
    one = durable_release()
    print(
        f"\nfsync of a small file {1e3 * one['fsync']:.2f} ms, a durable release {1e3 * one['release']:.2f} ms: "
        f"{one['release'] / one['fsync']:.1f} times as long; a release in memory {1e3 * one['in memory']:.2f} ms"
    )
    if arguments.json:
        results = {"levels": rows, "overhead": overhead, "durable release": one}
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
