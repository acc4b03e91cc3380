"""Reproduction of papers: run the cells of items, write CSV files, figures and pages."""

import functools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from privypurse.core._checks import positive_integer
from privypurse.core._errors import DataUnavailable, FileUnusable, InvalidArgument
from privypurse.oracles._partitions import default_threads
from privypurse.runs._progress import Progress, Silent
from privypurse_lab.papers import drawing, pages, prepared_data
from privypurse_lab.papers.catalogue import NAMES, paper_named
from privypurse_lab.papers.cells import Results, run_cells
from privypurse_lab.papers.entries import check_entries
from privypurse_lab.papers.items import SEEDS_APART, Finished, Item, Paper, Settings

CELLS = ".cells.jsonl"


@dataclass(frozen=True)
class Outcome:
    """Outcome of one table or figure."""

    paper: str
    item: str
    title: str
    reached: str
    ranking: str
    why: str
    files: tuple[pathlib.Path, ...] = ()


def reproduce(
    paper: str = "all",
    *,
    figure: str | None = None,
    table: str | None = None,
    quick: bool = False,
    output: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    seed: int = 0,
    also: Mapping[str, Any] | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Run the tables and figures of a paper, and write a page with published numbers beside ours.

    Parameters
    ----------
    paper : str
        "pur", "adp-sgd", "dp-agd", "dynamic-noise", "lecture", "summary" or "all".
    figure, table : str, optional
        Only this one.
    quick : bool, default False
        Few repetitions and small problems.
    output : path, optional
        Folder for pages, figures and CSV files; by default "reproduction", or "reproduction-quick"
        for a quick run. Cells finished there are not run again. A run of all papers packs their
        results into ``cells.jsonl.xz``: beside it, a later run only writes the pages.
    workers : int, optional
        Number of processes; by default the number of cores.
    seed : int, default 0
        First seed.
    also : mapping of str to object, optional
        Your own schedules or methods, for every comparison that takes them.
    fresh : bool, default False
        Run everything again.
    progress : Progress, optional
        Called with the progress.

    Returns
    -------
    list of Outcome
        One for each table and figure.

    Raises
    ------
    DataUnavailable
        Nothing could be run for lack of data.
    """
    papers, kind, number = _chosen(paper, figure, table)
    check_entries(also or {})
    for each in papers:
        if taken := sorted(set(also or {}) & set(each.reserved)):
            raise InvalidArgument(f"also names {taken[0]!r}, which {each.name} has a line of. Rename yours.")
    settings = Settings(quick, SEEDS_APART * _seed(seed), dict(also or {}))
    workers = default_threads() if workers is None else positive_integer(workers=workers)
    drawing.require_matplotlib()
    output = output or ("reproduction-quick" if quick else "reproduction")
    folder, progress = _folder(output, quick), progress or Silent()
    results = Results(folder / CELLS)
    outcomes = []
    for each in papers:
        items = [item for item in each.items if (kind, number) in ((None, None), (item.kind, item.number))]
        outcomes += [_reproduce_item(each, item, settings, results, folder, workers, fresh, progress) for item in items]
        _write_page(each, settings, folder)
    items = [item for each in papers for item in each.items]
    if paper == "all" and all(prepared_data.is_here(name) for item in items for name in (*item.needs, *item.wants)):
        results.pack([cell for item in items for cell in item.cells(settings)])
    if outcomes and all(outcome.reached == "not run" for outcome in outcomes):
        raise DataUnavailable(f"nothing could be run. {outcomes[0].why}")
    return outcomes


def _chosen(paper: str, figure: str | None, table: str | None) -> tuple[list[Paper], str | None, str | None]:
    if paper not in (*NAMES, "all"):
        raise InvalidArgument(f"paper must be one of {', '.join(NAMES)} or all; got {paper!r}. Pass for example pur.")
    if figure is not None and table is not None:
        raise InvalidArgument(f"figure and table cannot both be chosen; got {figure!r} and {table!r}. Leave one out.")
    kind, number = ("figure", figure) if figure is not None else ("table", table) if table is not None else (None, None)
    number = None if number is None else str(number).removeprefix(f"{kind}-").removeprefix(f"{kind} ")
    if kind is not None and paper == "all":
        raise InvalidArgument(f"{kind} {number} needs a paper, got all. Pass one of {', '.join(NAMES)}.")
    papers = [paper_named(name) for name in (NAMES if paper == "all" else (paper,))]
    if kind is not None and not any((item.kind, item.number) == (kind, number) for item in papers[0].items):
        known = ", ".join(f"--{item.kind} {item.number}" for item in papers[0].items)
        raise InvalidArgument(f"{papers[0].name} has no {kind} {number}. It has: {known}.")
    return papers, kind, number


def _seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise InvalidArgument(f"seed must be a whole number of at least 0; got {seed!r}. Pass for example 0.")
    return seed


def _folder(output: str | os.PathLike[str], quick: bool) -> pathlib.Path:
    """Create the folder; a quick run must not overwrite the pages of a full one."""
    folder = pathlib.Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        state = _read(folder / ".scale.json")
        if state.get("quick", quick) != quick:
            have, want = ("quick", "full") if state["quick"] else ("full", "quick")
            raise InvalidArgument(
                f"output {str(folder)!r} holds a {have} run, but this is a {want} one, which would overwrite its pages. "
                "Pass another folder as output."
            )
        (folder / ".scale.json").write_text(json.dumps({"quick": quick}))
    except OSError as error:
        raise FileUnusable(
            f"output {str(folder)!r} cannot be written ({error.strerror}). Pass another folder."
        ) from error
    return folder


def _reproduce_item(
    paper: Paper,
    item: Item,
    settings: Settings,
    results: Results,
    folder: pathlib.Path,
    workers: int,
    fresh: bool,
    progress: Progress,
) -> Outcome:
    missing = [name for name in item.needs if not prepared_data.is_here(name)]
    said = _read(_state(paper, folder))
    if missing:
        why = f"{' and '.join(missing)} is not here: set PRIVYPURSE_DATA, or run `privypurse data {missing[0]}` first."
        if "torch" in missing:
            why = "PyTorch is not here: pip install 'privypurse[torch]'."
        if item.name not in said:
            said[item.name] = {"why": why, "section": pages.skipped(item, missing)}
            _save(_state(paper, folder), said)
        return Outcome(paper.name, item.name, item.title, "not run", "not run", why)
    cells = list(item.cells(settings))
    if fresh:
        results.forget(cells)
    run_cells(cells, results, workers=workers, progress=progress, what=f"{paper.name} {item.kind} {item.number}")
    finished = _with_what_is_missing(item, item.finish(settings, results))
    stem = folder / f"{paper.name}-{item.name}"
    files = [stem.with_name(f"{stem.name}.csv")]
    files[0].write_text(pages.csv_text(finished.rows), encoding="utf-8")
    files += drawing.save(finished.picture, stem)
    section = pages.section(paper, item, finished, settings, results.date_of(cells))
    said = _read(_state(paper, folder))  # another run may have written it in the meantime
    verdict = asdict(finished.verdict)
    said[item.name] = {**verdict, **asdict(finished.short), "section": section}
    _save(_state(paper, folder), said)
    return Outcome(paper.name, item.name, item.title, **verdict, files=tuple(files))


def _with_what_is_missing(item: Item, finished: Finished) -> Finished:
    """Name the data sets that a verdict does not cover."""
    missing = [name for name in item.wants if not prepared_data.is_here(name)]
    if not missing:
        return finished
    said = f"Without {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not here. "
    return replace(finished, verdict=replace(finished.verdict, why=said + finished.verdict.why))


def _write_page(paper: Paper, settings: Settings, folder: pathlib.Path) -> None:
    said = _read(_state(paper, folder))
    sections = {name: entry["section"] for name, entry in said.items()}
    board = pages.board(paper, said)
    if paper.name == "summary":  # the page of all papers
        every = [paper_named(name) for name in NAMES]
        board = [row for each in every for row in pages.board(each, _read(_state(each, folder)), linked=True)] or board
    drawing.save(functools.partial(drawing.verdicts, board), folder / f"{paper.name}-verdicts")
    (folder / f"{paper.name}.md").write_text(pages.page(paper, settings, sections, board), encoding="utf-8")


def _state(paper: Paper, folder: pathlib.Path) -> pathlib.Path:
    return folder / f".{paper.name}.json"


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _save(path: pathlib.Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def listed() -> list[tuple[str, str, str]]:
    """Return paper, item and title of all items."""
    found: Sequence[Paper] = [paper_named(name) for name in NAMES]
    return [(paper.name, f"{item.kind} {item.number}", item.title) for paper in found for item in paper.items]
