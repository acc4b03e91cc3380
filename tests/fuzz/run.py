"""Fuzz one target, or all in turn: `python -m tests.fuzz.run --target schema --seconds 60 --seed
1`.

Inputs are numbered, and made from seed, target and number alone: `--only 1234` tries number 1234
again. Each new kind of finding is saved with its input; a summary in JSON is written at the end.
The exit code is 1 if anything was found.
"""

import argparse
import collections
import faulthandler
import json
import logging
import os
import pathlib
import sys
import tempfile
import time
import traceback
import warnings
from typing import Any

from tests.fuzz.guard import limited_memory
from tests.fuzz.targets import Found, Target, by_name, examine, numbered

# Where a whole process hangs outside Python, so that no signal reaches it, it is ended with a
# trace.
STUCK_S = 300


def fuzz(
    target: Target,
    scratch: pathlib.Path,
    *,
    seed: int,
    first: int,
    seconds: float,
    inputs: int | None,
    out: pathlib.Path | None,
) -> dict[str, Any]:
    """Try inputs until the time is over; return a summary."""
    began, processor, number = time.monotonic(), time.process_time(), first
    outcomes: collections.Counter[str] = collections.Counter()
    findings: dict[str, dict[str, Any]] = {}
    slowest, shown = 0.0, 0.0
    while time.monotonic() - began < seconds and (inputs is None or number - first < inputs):
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
        if out is not None:
            (out / f"{target.name}.running").write_text(f"seed {seed}, number {number}\n")
        content = target.make(numbered(seed, target.name, number))
        start = time.monotonic()
        try:
            outcomes[examine(target, content, scratch)] += 1
        except Found as found:
            outcomes["finding"] += 1
            if found.kind not in findings:
                findings[found.kind] = {"seed": seed, "number": number, "message": str(found), "times": 0}
                _keep(out, target, number, content, found)
            findings[found.kind]["times"] += 1
        slowest = max(slowest, time.monotonic() - start)
        number += 1
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            _show(
                f"{target.name}: {number - first:,} inputs, {shown - began:.0f} of {seconds:.0f} s, {len(findings)} findings"
            )
    faulthandler.cancel_dump_traceback_later()
    return {
        "target": target.name,
        "seed": seed,
        "first": first,
        "inputs": number - first,
        "seconds": round(time.monotonic() - began, 1),
        "processor_s": round(time.process_time() - processor, 1),
        "slowest_s": round(slowest, 2),
        "outcomes": dict(outcomes.most_common()),
        "findings": findings,
    }


def _keep(out: pathlib.Path | None, target: Target, number: int, content: bytes, found: Found) -> None:
    if out is None:
        return
    (out / f"{target.name}-{number}.input").write_bytes(content)
    trace = "".join(traceback.format_exception(found.__cause__ or found))
    (out / f"{target.name}-{number}.txt").write_text(f"{found}\n\n{trace}", errors="backslashreplace")


def _show(line: str) -> None:
    sys.__stderr__.write(line + "\n")  # type: ignore[union-attr]
    sys.__stderr__.flush()  # type: ignore[union-attr]


def main() -> int:
    """Read the arguments and fuzz."""
    kinds = by_name()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", choices=[*kinds, "all"], help="may be repeated; all by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", type=int, help="try this number alone")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "privypurse-fuzz")
    arguments = parser.parse_args()
    names = list(kinds) if arguments.target is None or "all" in arguments.target else arguments.target
    arguments.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    summaries = []
    for name in names:
        # In memory where there is such a place: ledgers wait for the disk at every line.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="privypurse-fuzzing-", dir=memory) as folder:
            scratch, target = pathlib.Path(folder), kinds[name]()
            tempfile.tempdir = folder
            target.prepare(scratch)
            first, inputs = (arguments.first, None) if arguments.only is None else (arguments.only, 1)
            with limited_memory():
                summary = fuzz(
                    target,
                    scratch,
                    seed=arguments.seed,
                    first=first,
                    seconds=arguments.seconds,
                    inputs=inputs,
                    out=arguments.out,
                )
            tempfile.tempdir = None
        summaries.append(summary)
        found = f", {len(summary['findings'])} KINDS OF FINDINGS" if summary["findings"] else ""
        _show(f"{name}: {summary['inputs']:,} inputs in {summary['seconds']} s{found}")
        for kind, finding in summary["findings"].items():
            _show(f"  number {finding['number']}, {finding['times']} times: {kind}")
        (arguments.out / f"summary-{arguments.seed}.json").write_text(json.dumps(summaries, indent=1) + "\n")
        (arguments.out / f"{name}.running").unlink(missing_ok=True)
    return int(any(summary["findings"] for summary in summaries))


if __name__ == "__main__":
    sys.exit(main())
