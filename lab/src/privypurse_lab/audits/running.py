"""Running audits on several processes; finished results are kept while the rest runs."""

import contextlib
import difflib
import functools
import hashlib
import importlib.util
import itertools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privypurse.audit._verdicts import HOLDS, NOT_RUN, REFUTED, TOO_SMALL, Line, black_box_line, white_box_line
from privypurse.audit.white_box import Scores
from privypurse.core._checks import positive, positive_integer
from privypurse.core._errors import FileUnusable, InvalidArgument
from privypurse.oracles._partitions import default_threads
from privypurse.runs._progress import Progress, Silent
from privypurse_lab.audits import cells
from privypurse_lab.audits.page import AuditReport, write_pages
from privypurse_lab.papers.cells import Cell, Result, Results, run_cells

FULL_MUS, QUICK_MUS = (1.0, 2.0, 3.0, 4.0), (3.0,)
FULL_RUNS, QUICK_RUNS = 400, 120
# With 400 runs at mu 1 chance hides half of the claim in one audit of five; with 1,200 it does not.
SMALL_MU, MORE_AT_SMALL = 1.5, 3
# The black box counts half of the runs: 400 can show at most 3.59, 800 at most 4.18.
LARGE_MU, MORE_AT_LARGE = 3.5, 2
# Budget of the one-run audit where it could refute none of those given.
ONE_RUN_MU = 1.0
FEWEST_RUNS = 32  # fewer show nothing
LARGEST_MU = 8.0  # would need 232,946 runs
RUNS_IN_A_CELL = 40

GROUPS = (*cells.SUBJECTS, "exact", "mutants", "published", "rounding")
LIGHT_FIRST = ("methods", "exact", "mutants", "published", "rounding", "estimators", "pytorch")
# Noise multiplier, a record's curvature relative to the ridge, epsilon.
PERTURBED = ((5.0, 0.05, 1.0), (3.0, 0.1, 2.0), (10.0, 0.02, 0.5), (20.0, 0.02, 0.25), (2.0, 0.1, 3.0))
# Attacks on these must succeed: planted bugs, non-private algorithms, floating-point noise.
MUST_FALL = ("mutant", "as published", "naive")


@dataclass(frozen=True)
class Settings:
    """Extent of an audit.

    Parameters
    ----------
    mus : tuple of float
        Budgets of the attacks.
    runs : tuple of int
        Runs at each of them, with and without the canary together.
    quick, secure : bool
        Fewer cases; exact noise.
    seed : int
        First seed.
    """

    mus: tuple[float, ...]
    runs: tuple[int, ...]
    quick: bool
    secure: bool
    seed: int


@dataclass(frozen=True)
class Task:
    """Named task: cells, and the lines computed from them."""

    name: str
    cells: Sequence[Cell]
    finish: Callable[[Sequence[Result]], list[Line]]


def as_expected(line: Line) -> bool:
    """Return whether an audit ended as expected: sound subjects hold, others are refuted.

    An audit that is too small or was not run is no evidence against a sound subject. A white box
    that is too small is not as expected: nothing was audited, and more runs are needed.

    Examples
    --------
    >>> as_expected(Line("nesterov", "method", "white box", verdict="holds"))
    True
    >>> as_expected(Line("noise-halved", "mutant", "white box", verdict="holds"))
    False
    """
    if line.kind in MUST_FALL:
        return line.verdict == REFUTED
    return line.verdict in (HOLDS, NOT_RUN) or (line.verdict == TOO_SMALL and line.audit != "white box")


def run_audits(
    names: Sequence[str] = ("all",),
    *,
    mus: Sequence[float] | None = None,
    runs: int | None = None,
    quick: bool = False,
    secure: bool = True,
    jobs: int | None = None,
    seed: int = 0,
    output: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    remark: Callable[[str], None] = lambda text: None,
) -> list[Line]:
    """Audit the library.

    Parameters
    ----------
    names : sequence of str
        Names of subjects, or of groups: "methods", "estimators", "pytorch", "exact", "mutants",
        "published", "rounding", "all".
    mus : sequence of float, optional
        Budgets of the attacks; by default 1, 2, 3 and 4, or 3 for a quick audit.
    runs : int, optional
        Runs at each of them; by default 400, 1,200 at a mu below 1.5 and 800 at one from 3.5 on;
        120 for a quick audit.
    quick : bool, default False
        Fewer runs, pairs and cases.
    secure : bool, default True
        Whether subjects draw exact noise rather than floating-point noise.
    jobs : int, optional
        Number of processes; by default the number of cores.
    seed : int, default 0
        First seed. Audits of the noise use real noise without a seed.
    output : path, optional
        Folder for ``audit.json``, ``audit.md`` and ``audit.html``. An interrupted audit is resumed
        there, unless the library has changed.
    progress : Progress, optional
        Called with the progress.
    remark : callable
        Called with a message when an audit is resumed.

    Returns
    -------
    list of Line
        Results in the order of the groups.

    Examples
    --------
    >>> [line.verdict for line in run_audits(["permute-and-flip"], quick=True, jobs=1)]
    ['holds']
    """
    settings = _settings(mus, runs, quick, secure, seed)
    chosen = chosen_names(names)
    tasks = [task for group, members in chosen.items() for task in _tasks(group, members, settings)]
    workers = default_threads() if jobs is None else positive_integer(jobs=jobs)
    digest = source_digest()
    lines: list[Line] = []
    with _kept(output, digest) as results:
        pieces = {cell.key: cell in results for task in tasks for cell in task.cells}
        if any(pieces.values()):
            remark(f"{sum(pieces.values()):,} of {len(pieces):,} pieces were finished before, and are not run again")
        for task in tasks:
            # Finished results are not announced, as if they ran again.
            if not all(cell in results for cell in task.cells):
                run_cells(task.cells, results, workers=workers, progress=progress or Silent(), what=task.name)
            lines += task.finish([results[cell] for cell in task.cells])
        if output is not None:
            command = _command(names, settings, mus, runs)
            floating = _in_floating_point(chosen) if secure else ()
            about = (command, seed, quick, secure, digest, settings.mus, settings.runs)
            report = AuditReport(tuple(lines), *about, floating=floating, waived=waived(chosen, lines))
            write_pages(report, pathlib.Path(output), as_expected)
    return lines


def chosen_names(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the chosen subjects by group; raise InvalidArgument for an unknown name."""
    names = tuple(names) or ("all",)
    wanted: dict[str, dict[str, None]] = {group: {} for group in GROUPS}
    for name in names:
        if name in ("all", *GROUPS):
            for group in GROUPS if name == "all" else (name,):
                wanted[group].update(dict.fromkeys(members(group)))
            continue
        # Groups that load slowly are searched last.
        group_of_it = next((group for group in LIGHT_FIRST if name in members(group)), None)
        if group_of_it is None:
            raise InvalidArgument(f"names must be of subjects or groups; got {name!r}. {_nearest(name)}")
        wanted[group_of_it][name] = None
    if "pytorch" in names and not _has_torch():
        raise InvalidArgument("names has 'pytorch', which needs PyTorch. Install it: pip install 'privypurse[torch]'.")
    return {group: tuple(some) for group, some in wanted.items() if some}


def _nearest(name: str) -> str:
    known = ["all", *GROUPS, *(one for group in GROUPS for one in members(group))]
    small = {one.lower(): one for one in known}
    near = [name.lower()] if name.lower() in small else difflib.get_close_matches(name.lower(), small)
    near = [small[one] for one in near]
    meant = f"Did you mean {' or '.join(near)}? " if near else f"Groups are {', '.join(GROUPS)}. "
    return f"{meant}`privypurse audit --list` names all."


def _in_floating_point(chosen: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the subjects that cannot use exact noise."""
    some = ((group, name) for group in cells.SUBJECTS for name in chosen.get(group, ()))
    subjects = (cells.subject_named(group, name) for group, name in some if name != group)
    return tuple(subject.name for subject in subjects if not subject.exact)


def waived(chosen: Mapping[str, Sequence[str]], lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the subjects whose white box was run and need not show half of mu."""
    run = {line.subject for line in lines if line.audit == "white box" and line.verdict != NOT_RUN}
    some = ((group, name) for group in cells.SUBJECTS for name in chosen.get(group, ()) if name in run)
    return tuple(name for group, name in some if not cells.subject_named(group, name).shows_half)


def members(group: str) -> tuple[str, ...]:
    """Return the names in a group; without PyTorch its group has one placeholder."""
    if group == "pytorch" and not _has_torch():
        return ("pytorch",)
    if group in cells.SUBJECTS:
        return tuple(cells.makers(group))
    if group == "mutants":
        return tuple(cells.found("mutants", "MUTANTS"))
    if group == "published":
        return tuple(f"{name}{cells.AS_PUBLISHED_SUFFIX}" for name in cells.found("published", "AS_PUBLISHED"))
    return (*cells.SELECTIONS, cells.DRAWN, cells.INTEGRATED) if group == "exact" else ("rounding-attacks",)


def source_digest() -> str:
    """Return a digest of the library's sources."""
    root = pathlib.Path(__file__).parents[1]
    said = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        said.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return said.hexdigest()


def check_seed(seed: int, name: str = "seed") -> None:
    """Raise InvalidArgument for an invalid seed, under the name of the option."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise InvalidArgument(
            f"{name} must be a whole number from 0 to {2**31 - 1}; got {seed!r}. Pass for example {name}=0."
        )


def checked_mus(mus: Sequence[float]) -> tuple[float, ...]:
    """Return the budgets without duplicates."""
    try:
        distinct = tuple(dict.fromkeys(positive(mu=mu) for mu in mus))
    except InvalidArgument:
        distinct = ()
    if not distinct or max(distinct) > LARGEST_MU:
        raise InvalidArgument(
            f"mus must be numbers above 0 and at most {LARGEST_MU:g}; got {list(mus)}. Pass for example mus=[1, 2]."
        )
    return distinct


def checked_runs(runs: int, name: str = "runs") -> int:
    """Return a valid number of runs; raise InvalidArgument under the name of the option."""
    try:
        number = positive_integer(runs=runs)
    except InvalidArgument:
        number = 0
    if number < FEWEST_RUNS or number % 2:
        raise InvalidArgument(
            f"{name} must be an even number of {FEWEST_RUNS} or more, half of them without the canary; got {runs!r}. "
            f"Pass for example {name}=400."
        )
    return number


def _settings(mus: Sequence[float] | None, runs: int | None, quick: bool, secure: bool, seed: int) -> Settings:
    check_seed(seed)
    distinct = checked_mus(mus) if mus is not None else QUICK_MUS if quick else FULL_MUS
    number = checked_runs(runs) if runs is not None else QUICK_RUNS if quick else FULL_RUNS
    scaled = runs is None and not quick
    numbers = tuple(number * (_more_at(mu) if scaled else 1) for mu in distinct)
    return Settings(distinct, numbers, quick, secure, seed)


def _more_at(mu: float) -> int:
    return MORE_AT_SMALL if mu < SMALL_MU else MORE_AT_LARGE if mu >= LARGE_MU else 1


def _command(names: Sequence[str], settings: Settings, mus: Sequence[float] | None, runs: int | None) -> str:
    """Return the command that repeats the audit."""
    words = ["privypurse audit", *(f"'{name}'" if " " in name else name for name in names or ("all",))]
    words += ["--quick"] if settings.quick else []
    words += ["--mu " + ",".join(f"{mu:g}" for mu in settings.mus)] if mus is not None else []
    words += [f"--runs {runs}"] if runs is not None else []
    words += [] if settings.secure else ["--noise plain"]
    words += [f"--seed {settings.seed}"] if settings.seed else []
    return " ".join(words)


@contextlib.contextmanager
def _kept(output: str | os.PathLike[str] | None, digest: str) -> Iterator[Results]:
    """Keep finished results in the folder until the end; results of other sources are ignored."""
    if output is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Results(pathlib.Path(folder) / "cells.jsonl")
        return
    folder_of_pages = pathlib.Path(output)
    try:
        folder_of_pages.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileUnusable(f"output {str(output)!r} cannot be made ({error.strerror}). Pass another folder.") from error
    yield Results(folder_of_pages / f".cells-{digest[:16]}.jsonl")
    for path in folder_of_pages.glob(".cells-*.jsonl"):
        path.unlink(missing_ok=True)


def _tasks(group: str, names: Sequence[str], settings: Settings) -> list[Task]:
    if group == "pytorch" and not _has_torch():
        said = "PyTorch is not here: pip install 'privypurse[torch]'"
        return [Task("pytorch", (), lambda _: [Line("pytorch", "pytorch", NOT_RUN, verdict=NOT_RUN, findings=(said,))])]
    if group in cells.SUBJECTS:
        return [_subject_task(group, name, settings) for name in names]
    if group == "exact":
        return [Task(name, _exact_cells(name, settings), _all_lines) for name in names]
    function = {"mutants": cells.mutant_cell, "published": cells.published_cell, "rounding": cells.rounding_cell}[group]
    arguments: list[dict[str, Any]] = [{"name": name, "quick": settings.quick} for name in names]
    return [Task(group, [Cell(function, each) for each in arguments], _all_lines)]


def _all_lines(results: Sequence[Result]) -> list[Line]:
    return [Line.from_json(described) for result in results for described in result["lines"]]


def _subject_task(group: str, name: str, settings: Settings) -> Task:
    common = {"group": group, "name": name, "secure": settings.secure}
    # Neither bounds nor the noise distribution depend on mu: use the middle one.
    mu = settings.mus[len(settings.mus) // 2]
    begin = settings.seed * 10**6
    first = [
        Cell(cells.gray_box_cell, {**common, "mu": mu, "pairs": 2 if settings.quick else 8, "seed": begin}),
        Cell(cells.noise_cell, {**common, "mu": mu, "runs": 4 if settings.quick else 16, "seed": settings.seed}),
    ]
    if name in cells.ONE_RUN and group == "methods":
        first += [
            Cell(cells.one_run_cell, {"name": name, "secure": settings.secure, "mu": each, "seed": begin})
            for each in _one_run_mus(settings)
        ]
    attacks: dict[float, list[Cell]] = {}
    for each, wanted in zip(settings.mus, settings.runs, strict=True):
        # Where preprocessing takes a share of the budget, a quick audit needs more runs.
        runs = 2 * wanted if settings.quick and group != "methods" and wanted == QUICK_RUNS else wanted
        parts = range(0, runs, RUNS_IN_A_CELL)
        arguments = ({"mu": each, "runs": min(RUNS_IN_A_CELL, runs - part), "seed": begin + part} for part in parts)
        attacks[each] = [Cell(cells.attack_cell, {**common, **some}) for some in arguments]

    def finish(results: Sequence[Result]) -> list[Line]:
        lines = _all_lines(results[: len(first)])
        subject, rest = cells.subject_named(group, name), iter(results[len(first) :])
        for each, own in attacks.items():
            scores = functools.reduce(Scores.joined, [_scores(next(rest)) for _ in own])
            lines.append(white_box_line(subject, scores, each))
            if scores.models_absent.size >= 8 and scores.models_present.size >= 8:
                models = black_box_line(subject, scores, each)
                # A quick audit has half the runs that this needs: omit it.
                lines += [models] if models.verdict != TOO_SMALL or not settings.quick else []
        return lines

    return Task(name, [*first, *itertools.chain.from_iterable(attacks.values())], finish)


def _one_run_mus(settings: Settings) -> tuple[float, ...]:
    """Return the budgets that a one-run audit could refute."""
    from privypurse_lab.audits.one_run import ceiling_mu

    return tuple(mu for mu in settings.mus if mu < ceiling_mu()) or (ONE_RUN_MU,)


def _scores(result: Result) -> Scores:
    names = ("absent", "present", "models_absent", "models_present")
    arrays = {name: np.array(result[name], dtype=np.float64) for name in names}
    return Scores(**arrays, findings=tuple(result["findings"]))


def _exact_cells(name: str, settings: Settings) -> list[Cell]:
    if name in cells.SELECTIONS:
        epsilons, counts = ((1.0,), (3,)) if settings.quick else ((0.25, 0.5, 1.0, 2.0, 4.0), (2, 3, 4))
        return [
            Cell(cells.enumeration_cell, {"name": name, "epsilon": epsilon, "candidates": count})
            for epsilon in epsilons
            for count in counts
        ]
    if name == cells.DRAWN:
        return [Cell(cells.drawn_cell, {"quick": settings.quick, "seed": settings.seed})]
    points = PERTURBED[:1] if settings.quick else PERTURBED
    names = ("noise_multiplier", "curvature_ratio", "epsilon")
    return [Cell(cells.integration_cell, dict(zip(names, point, strict=True))) for point in points]


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None
