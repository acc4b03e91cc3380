"""`privypurse audit`."""

import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from privypurse.cli import options
from privypurse.cli.output import emit, note, say, table, warn
from privypurse.cli.progress import shown_progress
from privypurse.core.version import __version__

if TYPE_CHECKING:
    from privypurse.audit.results import Line

# Something was refuted that should hold, was not refuted that should be, or was attacked too weakly.
NOT_PASSED = 7


def audit(
    subjects: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names, or methods, estimators, pytorch, exact, mutants, published, rounding or all.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs, at mu 3: minutes.")] = False,
    mu: Annotated[
        str | None, typer.Option("--mu", help="Budgets to attack, such as 1,2. Default: 1,2,3,4.", show_default=False)
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option("--runs", help="Runs at each mu. Default: 400, 1200 at mu 1; quick 120.", show_default=False),
    ] = None,
    noise: Annotated[str, typer.Option("--noise", help="secure (exact arithmetic) or plain.")] = "secure",
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes; one for each core by default.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Where seeds begin.")] = 0,
    output: Annotated[
        pathlib.Path | None,
        typer.Option("--output", "-o", help="Folder for audit.html, audit.md and audit.json.", show_default=False),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List what can be audited, and stop.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Attack the library's own training code on made-up tables; report lower bounds on mu and epsilon beside what is claimed.

    Examples:

        privypurse audit nesterov --quick

        privypurse audit mutants

        privypurse audit all --output audit

    A bound above the claim refutes it; a bound below it proves nothing by itself. With --output an audit that was cut short goes
    on where it ended. Exit code 7: something ended otherwise than it should, a planted bug that was missed among others.
    """
    from privypurse.audit import running

    if listing:
        found = [(group, name) for group in running.GROUPS for name in running.members(group)]
        if json:
            emit({"subjects": [{"group": group, "name": name} for group, name in found]})
        else:
            table(("group", "name"), found)
        return
    if noise not in ("plain", "secure"):
        raise typer.BadParameter(f"--noise must be plain or secure; got {noise!r}.")
    names = subjects or ["all"]
    with shown_progress(quiet) as progress:
        lines = running.run_audits(
            names,
            mus=_numbers(mu),
            runs=runs,
            quick=quick,
            secure=noise == "secure",
            jobs=jobs,
            seed=seed,
            output=output,
            progress=progress,
        )
    passed = all(map(running.as_it_should, lines))
    if json:
        emit(
            {
                "passed": passed,
                "version": __version__,
                "quick": quick,
                "seed": seed,
                "noise": noise,
                "output": None if output is None else str(output),
                "lines": [line.to_json() for line in lines],
            }
        )
    else:
        _show(lines, passed, output)
    if not passed:
        raise typer.Exit(NOT_PASSED)


def _show(lines: "list[Line]", passed: bool, output: pathlib.Path | None) -> None:
    from privypurse.audit.page import evidence, row
    from privypurse.audit.running import as_it_should

    # Narrow heads, so that names stay whole on 80 columns.
    shown = [row(line) for line in lines]
    table(
        ("subject", "audit", "mu", "shown", "epsilon", "shown", "verdict"), [(*cells[:6], cells[7]) for cells in shown]
    )
    for line in lines:
        if line.findings:
            note(f"{line.subject}, {line.audit}: {evidence(line)}")
    for line in lines:
        if not as_it_should(line):
            warn(f"not as it should be: {line.subject}, {line.audit}: {line.verdict}")
    note("shown: lower bounds beside the claims, at 95 % confidence each; they can refute a claim, and not prove it")
    say("every audit ended as it should" if passed else "NOT every audit ended as it should")
    if output is not None:
        say(f"page: {output / 'audit.html'}")


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"--mu must be numbers with commas between them, such as 1,2; got {text!r}."
        ) from error
