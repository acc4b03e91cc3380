"""Two processes that train one module: one pays, one draws the noise, and both make the same steps."""

import contextlib
import copy
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from privypurse import InvalidArgument, NoiseSource, Purse  # noqa: E402
from privypurse.pytorch import AdaptiveClip, DeepNesterov, fit, make_private, open_purse, resume, save  # noqa: E402
from privypurse.training.schedules._base import ConstantNoise  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="two processes need torch.distributed with gloo"
)

MULTIPLIER, CLIP, RECORDS = 4.0, 1.5, 40


def data_of():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(RECORDS, 6, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


def module_of(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def flat(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).double().numpy().copy()


def given(module):
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters()]).double().numpy().copy()


def train(private, module, until=None):
    """Train to the end; returns what the optimizer was given."""
    _, optimizer, loader = private
    seen = []
    while not private.engine.stop_reason:
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs), targets).backward()
            optimizer.step()
            if next(private.module.parameters()).grad is not None:
                seen.append(given(private.module))
            if until is not None and len(seen) == until:
                return seen
    return seen


# What a process does; each returns something that can be compared between them.


def report(private, seen, purse):
    trace = private.engine.trace
    return {
        "point": flat(private.module),
        "given": np.array(seen),
        "stop": private.engine.stop_reason,
        "gradients": private.engine.gradients,
        "releases": len(trace.steps),
        "queries": [step.query for step in trace.steps],
        "clip_norm": private.engine.clip_norm,
        "spent": purse.spent.releases,
        "entries": [(entry.kind, entry.what) for entry in purse.ledger.entries()],
    }


def plain_run(rank, folder, wrapped=False):
    """Samples, each process with a module and a purse of its own."""
    module = module_of(seed=rank)  # different at first
    given_module = nn.parallel.DistributedDataParallel(module) if wrapped else module
    purse = Purse(1e3, 1e-2, neighbouring="add-remove", filter="rdp", noise=NoiseSource(seed=20 + rank))
    private = make_private(
        given_module,
        torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9),
        data_of(),
        purse=purse,
        records=RECORDS,
        batch_size=8,
        steps=12,
        clip_norm=CLIP,
        schedule=ConstantNoise(MULTIPLIER),
    )
    return report(private, train(private, given_module if wrapped else private.module), purse)


def wrapped_run(rank, folder):
    return plain_run(rank, folder, wrapped=True)


def noise_run(rank, folder):
    """A loss without a gradient, on all records: what comes is the noise."""
    module = nn.Linear(30, 30)
    purse = Purse(1e3, 1e-2, neighbouring="add-remove", noise=NoiseSource(seed=rank))
    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), lr=0.0),
        (torch.ones(RECORDS, 30), torch.zeros(RECORDS, 30)),
        purse=purse,
        records=RECORDS,
        full_batch=True,
        steps=12,
        clip_norm=CLIP,
        schedule=ConstantNoise(MULTIPLIER),
    )
    seen = []
    while not private.engine.stop_reason:
        for inputs, _ in private.loader:
            (module(inputs) * 0).sum().backward()
            private.optimizer.step()
            seen.append(given(module))
    return report(private, seen, purse)


def loud_run(rank, folder, how="hooks"):
    """All records with next to no noise: the sum itself."""
    module = module_of(seed=3)
    purse = Purse(1e12, 1e-5, neighbouring="add-remove", noise=NoiseSource(seed=rank))
    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), lr=0.1),
        tuple(part[:39] for part in data_of()),  # which two processes cannot share evenly
        purse=purse,
        records=RECORDS,
        full_batch=True,
        steps=3,
        clip_norm=0.2,
        loss=nn.CrossEntropyLoss(),
        compile=False,
    )
    seen = []
    while not private.engine.stop_reason:
        for inputs, targets in private.loader:
            if how == "hooks":
                nn.functional.cross_entropy(module(inputs), targets).backward()
            else:
                private.engine.backward(inputs, targets)
            private.optimizer.step()
            seen.append(given(module))
    return report(private, seen, purse)


def loud_backward_run(rank, folder):
    return loud_run(rank, folder, how="backward")


def budget_run(rank, folder):
    """A purse that does not pay for all steps, on one ledger file that both can open."""
    module = module_of(seed=3)
    purse = Purse(1.0, 1e-5, neighbouring="add-remove", ledger=folder / "budget.db")
    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), lr=0.1),
        data_of(),
        purse=purse,
        records=RECORDS,
        full_batch=True,
        steps=500,
        block=1,
        schedule=ConstantNoise(8.0),
    )
    seen = train(private, module)
    dist.barrier()
    return report(private, seen, purse)


def ledger_run(rank, folder):
    """The usual way: epsilon, a calibrated schedule, a ledger file for each process."""
    module = module_of(seed=3)
    purse = open_purse(
        epsilon=2.0,
        delta=1e-5,
        neighbouring="add-remove",
        steps=6,
        sample_prob=0.2,
        ledger=folder / f"budget-{rank}.db",
    )
    private = make_private(
        module,
        torch.optim.Adam(module.parameters(), lr=0.1),
        data_of(),
        purse=purse,
        records=RECORDS,
        batch_size=8,
        steps=6,
        block=1,
    )
    seen = train(private, module, until=3)
    save(private, folder / "run.pt")
    dist.barrier()
    private.engine.close()
    torch.manual_seed(50 + rank)
    module = module_of(seed=4 + rank)
    private = make_private(
        module,
        torch.optim.Adam(module.parameters(), lr=0.1),
        data_of(),
        purse=purse,
        records=RECORDS,
        batch_size=8,
        steps=6,
        block=1,
    )
    assert resume(private, folder / "run.pt")
    seen += train(private, module)
    return report(private, seen, purse)


def adaptive_run(rank, folder):
    module = module_of(seed=3)
    clip = AdaptiveClip(start=5.0, every=2)
    purse = Purse(50.0, 1e-5, neighbouring="add-remove", noise=NoiseSource(seed=rank))
    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), lr=0.1),
        data_of(),
        purse=purse,
        records=RECORDS,
        full_batch=True,
        steps=6,
        clip_norm=clip,
    )
    return report(private, train(private, module), purse)


def few_run(rank, folder):
    """Samples of one record or none: one process, or both, have nothing to do."""
    module = module_of(seed=3)
    purse = Purse(1e3, 1e-2, neighbouring="add-remove", filter="rdp", noise=NoiseSource(seed=rank))
    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), lr=0.1),
        data_of(),
        purse=purse,
        records=RECORDS,
        batch_size=1,
        steps=10,
        schedule=ConstantNoise(MULTIPLIER),
    )
    return report(private, train(private, module), purse)


def extended_run(rank, folder):
    """Samples that worker processes fetch ahead, clip norms by step, and a run that is extended, once too far."""
    module = module_of(seed=3)
    private = make_private(
        module,
        torch.optim.SGD(module.parameters(), lr=0.1),
        DataLoader(list(zip(*data_of(), strict=True)), batch_size=8, num_workers=1),
        records=RECORDS,
        epsilon=4.0,
        delta=1e-2,
        noise_multiplier=MULTIPLIER,
        steps=3,
        clip_norm=lambda step: 1 / (1 + step),
    )
    seen = train(private, private.module)
    private.engine.extend(steps=2)
    with contextlib.suppress(InvalidArgument):
        private.engine.extend(steps=10**6)
    seen += train(private, private.module)
    return report(private, seen, private.purse)


def fit_run(rank, folder):
    """`fit` knows nothing of other processes: it must say so, or both would pay and release of
    their own.
    """
    module = module_of(seed=3)
    try:
        fitted = fit(
            module,
            data_of(),
            loss=nn.CrossEntropyLoss(),
            records=RECORDS,
            epsilon=1.0,
            delta=1e-5,
            method=DeepNesterov(steps=3),
            compile=False,
        )
    except InvalidArgument:
        return {"refused": True, "spent": 0, "point": flat(module_of(seed=3))}
    return {"refused": False, "spent": fitted.purse.spent.releases, "point": flat(module)}


RUNS = [
    plain_run,
    wrapped_run,
    noise_run,
    loud_run,
    loud_backward_run,
    budget_run,
    ledger_run,
    adaptive_run,
    few_run,
    extended_run,
]


def work(rank, folder):
    """All runs, one after the other: a process takes longer to start than a run."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        reports = {}
        for run in RUNS:
            reports[run.__name__] = run(rank, folder)
            dist.barrier()
        reports["fit_run"] = fit_run(rank, folder)
        torch.save(reports, folder / f"reports-{rank}.pt")
        dist.barrier()  # gloo may abort a process whose partner leaves first
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What both processes say about each run."""
    folder = tmp_path_factory.mktemp("processes")
    commands = [[sys.executable, "-W", "error", __file__, str(rank), str(folder)] for rank in range(2)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        said = [process.communicate(timeout=900)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    return [torch.load(folder / f"reports-{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("run", [run.__name__ for run in RUNS])
def test_both_processes_end_with_the_same_parameters_for_the_same_reason(reports, run):
    first, second = (some[run] for some in reports)
    assert np.array_equal(first["point"], second["point"])
    assert np.isfinite(first["point"]).all()
    assert np.array_equal(first["given"], second["given"]), "and were given the same at each step"
    for name in ("stop", "gradients", "releases", "queries", "clip_norm"):
        assert first[name] == second[name]


@pytest.mark.statistical
def test_noise_was_added_once(reports):
    """The scale of one process, and neither 2/3 nor 3/2 of it, nor the square root of two that two
    draws would have.
    """
    right = MULTIPLIER * CLIP / RECORDS
    samples = reports[0]["noise_run"]["given"].ravel()
    alone = noise_run(0, None)["given"].ravel()
    for drawn in (samples, alone):
        assert stats.kstest(drawn, stats.norm(scale=right).cdf).pvalue > 1e-4
        for factor in (2 / 3, 3 / 2, math.sqrt(2), 1 / math.sqrt(2), 2.0, 0.5):
            assert stats.kstest(drawn, stats.norm(scale=factor * right).cdf).pvalue < 1e-9
    assert samples.var() == pytest.approx(alone.var(), rel=0.06)


def test_only_the_first_process_pays(reports):
    for run in ("plain_run", "wrapped_run", "noise_run", "adaptive_run", "few_run"):
        first, second = (some[run] for some in reports)
        assert first["spent"] == first["releases"] > 0, run
        assert second["spent"] == 0, run


def test_the_ledger_has_each_release_once(reports):
    first, second = (some["ledger_run"] for some in reports)
    assert first["spent"] == first["releases"] == 6
    assert second["spent"] == 0
    assert {kind for kind, _ in second["entries"]} == {"open", "uncovered"}, "it pays for nothing"


@pytest.mark.parametrize("run", ["loud_run", "loud_backward_run"])
def test_the_sum_of_both_parts_is_the_sum_of_one_process(reports, run):
    alone = loud_run(0, None)
    assert np.allclose(reports[0][run]["given"], alone["given"], atol=1e-5)
    module, (inputs, targets) = module_of(seed=3), data_of()
    total = 0
    for k in range(39):
        one = copy.deepcopy(module)
        nn.functional.cross_entropy(one(inputs[k : k + 1]), targets[k : k + 1]).backward()
        gradient = given(one)
        total = total + gradient * min(1.0, 0.2 / np.linalg.norm(gradient))
    assert np.allclose(reports[0][run]["given"][0] * RECORDS, total, rtol=5e-3, atol=5e-3)


def test_the_run_stops_in_both_when_the_budget_ends(reports):
    first, second = (some["budget_run"] for some in reports)
    assert first["stop"] == second["stop"] == "budget"
    assert 0 < first["gradients"] < 500
    assert first["spent"] == first["gradients"] == second["gradients"], "on one ledger, each release once"


def test_a_wrapped_module_is_accepted_and_does_the_same(reports):
    """DDP's own hooks would add up gradients that nobody paid for; here they find none."""
    assert np.array_equal(reports[0]["wrapped_run"]["given"], reports[0]["plain_run"]["given"])
    assert np.array_equal(reports[0]["wrapped_run"]["point"], reports[0]["plain_run"]["point"])


def test_an_adaptive_clip_norm_moves_alike_in_both(reports):
    first, second = (some["adaptive_run"] for some in reports)
    assert first["queries"].count("ShareWithin") == 3
    assert first["clip_norm"] == second["clip_norm"] != 5.0


def test_a_run_of_two_processes_goes_on_from_its_file(reports):
    for some in reports:
        assert some["ledger_run"]["stop"] == "steps"
        assert some["ledger_run"]["gradients"] == len(some["ledger_run"]["given"]) == 6


def test_a_run_is_extended_in_both_and_no_further_than_the_budget_of_the_first(reports):
    first, second = (some["extended_run"] for some in reports)
    assert first["gradients"] == second["gradients"] == 5
    assert (first["spent"], second["spent"]) == (5, 0)
    assert first["clip_norm"] == second["clip_norm"] == 1 / 5


def test_fit_is_refused_or_releases_once(reports):
    first, second = (some["fit_run"] for some in reports)
    assert np.array_equal(first["point"], second["point"])
    assert second["spent"] == 0


if __name__ == "__main__":
    work(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
