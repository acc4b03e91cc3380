"""`privypurse audit`."""

import pathlib
import textwrap
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from privypurse.cli import _options as options
from privypurse.cli._output import emit, note, say, shown_progress, stderr, table, warn
from privypurse.core._version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privypurse.audit._verdicts import Line

# Exit code: a sound subject was refuted or attacked too weakly, or a planted bug was missed.
NOT_PASSED = 7
INTERRUPTED = 130

# Widths of the columns after the names of audits; lines then fit into 80 columns.
HEADS = (("mu claimed", 10), ("mu >=", 5), ("at most", 7), ("eps claimed", 11), ("eps >=", 6))


def audit(
    subjects: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names, or methods, estimators, pytorch, exact, mutants, published, rounding; all, in full, by default.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer runs, at mu 3: some minutes for all, seconds for one method.")
    ] = False,
    mu: Annotated[
        str | None,
        typer.Option(
            "--mu",
            help="Budgets to attack, each above 0 and at most 8, with commas: 1,2. Default: 1,2,3,4.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            help="Runs at each mu: even, 32 or more. Default: 400; 1200 at mu 1, 800 at mu 4; quick 120. At least 108 could "
            "refute mu 3, 322 mu 4, 1186 mu 5, and from final models twice as many; to show half of mu 1 takes about 1200.",
            show_default=False,
        ),
    ] = None,
    noise: Annotated[
        str, typer.Option("--noise", help="secure (exact arithmetic) or plain (floating point).")
    ] = "secure",
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes; one for each core by default.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Where seeds begin.")] = 0,
    out: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for audit.html, audit.md and audit.json.",
            writable=True,
            file_okay=False,
            show_default=False,
        ),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List what can be audited, all of it or what the names mean, and stop.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Attack the library's training code on synthetic tables; report lower bounds on mu, epsilon.

    Examples:

        privypurse audit nesterov --quick

        privypurse audit mutants

        privypurse audit all --out audit

    A bound above the claim refutes it; a bound below it proves nothing by itself. Everything in
    full takes about two hours on two cores. With --out an interrupted audit is resumed. Exit
    code 7: a sound subject was refuted or attacked too weakly, or something was missed that must be
    found, such as a planted bug.
    """
    from privypurse_lab.audits import running

    if listing:
        found = [(group, name) for group, some in running.chosen_names(subjects or ["all"]).items() for name in some]
        if json:
            emit({"subjects": [{"group": group, "name": name} for group, name in found]})
        else:
            table(("group", "name"), found)
        return
    if noise not in ("plain", "secure"):
        raise typer.BadParameter(f"--noise must be plain or secure; got {noise!r}. Pass --noise secure.")
    names = subjects or ["all"]
    mus = _checked(mu, runs, jobs, seed)
    try:
        with shown_progress(quiet) as progress:
            lines = running.run_audits(
                names,
                mus=mus,
                runs=runs,
                quick=quick,
                secure=noise == "secure",
                jobs=jobs,
                seed=seed,
                output=out,
                progress=progress,
                remark=_silent if quiet else note,
            )
    except KeyboardInterrupt:
        _interrupted(out is not None, json)
    passed = all(map(running.as_expected, lines))
    if json:
        emit(
            {
                "passed": passed,
                "version": __version__,
                "quick": quick,
                "seed": seed,
                "noise": noise,
                "output": None if out is None else str(out),
                "lines": [line.to_json() for line in lines],
            }
        )
    else:
        _show(lines, out, quiet, running.waived(running.chosen_names(names), lines))
    if not passed:
        raise typer.Exit(NOT_PASSED)


def _show(lines: "list[Line]", output: pathlib.Path | None, quiet: bool, waived: "Sequence[str]") -> None:
    from privypurse_lab.audits.page import evidence, planted_bugs
    from privypurse_lab.audits.running import MUST_FALL, as_expected

    bugs = planted_bugs(lines)
    fall = [line for line in lines if line.kind in MUST_FALL and line.kind != "mutant"]
    _bounds("Claimed to be private", [line for line in lines if line.kind not in (*MUST_FALL, "without the bug")])
    _bounds("Not private: must be REFUTED", fall)
    if bugs:
        say("Planted bugs: must be caught")
        width, audits = (max(len(getattr(line, name)) for line, _ in bugs) for name in ("subject", "audit"))
        for line, verdict in bugs:
            say(f"  {line.subject:<{width}}  {line.audit:<{audits}}  {verdict}")
        say("")
    for line in lines:
        if (line.findings or line.kind in MUST_FALL) and as_expected(line) and not quiet:
            _wrapped(note, f"{line.subject}, {line.audit}: {evidence(line)}")
    for line in lines:
        if not as_expected(line):
            _wrapped(warn, f"not as expected: {line.subject}, {line.audit}: {line.verdict}: {evidence(line)}")
    if not quiet:
        for text in _footnotes(lines, waived):
            _wrapped(note, text)
    say(_last_line(lines))
    if output is not None:
        say(f"page: {output / 'audit.html'}")


def _footnotes(lines: "list[Line]", waived: "Sequence[str]") -> list[str]:
    """Explain columns that are used and verdicts that need it."""
    from privypurse_lab.audits.page import ABOUT_EPSILON, too_small_in_words, waived_in_words

    # Planted bugs have their own table, without bounds.
    audits = {line.audit for line in lines if line.kind not in ("mutant", "without the bug") and line.trials}
    made = []
    if audits & {"white box", "black box", "one run"}:
        made.append(
            "mu >= and eps >= are lower bounds, at 95 % confidence each; they can refute a claim, and not prove it. at most: "
            "what the bound on mu would be if the attack had always been right."
        )
        made.append(ABOUT_EPSILON)
    made += [waived_in_words(waived), too_small_in_words(lines)]
    return [text for text in made if text]


def _bounds(title: str, lines: "list[Line]") -> None:
    """Print a line for each audit under the name of its subject."""
    from privypurse_lab.audits.page import claim, number

    if not lines:
        return
    say(f"{title}:")
    say(f"  {'audit':<12}" + "".join(f"  {name:>{width}}" for name, width in HEADS) + "  verdict")
    for place, line in enumerate(lines):
        if not place or line.subject != lines[place - 1].subject:
            say(line.subject)
        of_mu = (claim(line.claimed_mu), number(line.shown_mu), number(line.ceiling_mu))
        cells = (*of_mu, claim(line.claimed_epsilon), number(line.shown_epsilon))
        aligned = "".join(f"  {cell:>{width}}" for cell, (_, width) in zip(cells, HEADS, strict=True))
        say(f"  {line.audit:<12}{aligned}  {line.verdict}")
    say("")


def _last_line(lines: "list[Line]") -> str:
    """Summarise the result in one line."""
    from privypurse.audit._verdicts import HOLDS, NOT_RUN, REFUTED, TOO_SMALL, WEAK
    from privypurse_lab.audits.running import MUST_FALL, as_expected

    bad = [line for line in lines if not as_expected(line)]
    # Audits without a planted bug belong to those with it, unless they are wrong.
    sound = [
        line.verdict
        for line in lines
        if line.kind not in MUST_FALL and (line.kind != "without the bug" or not as_expected(line))
    ]
    counts = [
        (sound.count(HOLDS), "held"),
        (sound.count(REFUTED), "refuted that should hold"),
        (sound.count(WEAK), "weak"),
        (sum(line.kind == "mutant" for line in bad), "missed that should be caught"),
        (sum(line.kind in MUST_FALL and line.kind != "mutant" for line in bad), "missed that should be refuted"),
        (sum(line.kind == "mutant" and line.verdict == REFUTED for line in lines), "caught"),
        (
            sum(line.kind in MUST_FALL and line.kind != "mutant" and line.verdict == REFUTED for line in lines),
            "refuted as expected",
        ),
        (sound.count(TOO_SMALL), "too small to say anything"),
        (sound.count(NOT_RUN), "not run"),
    ]
    ended = "NOT every audit ended as expected" if bad else "every audit ended as expected"
    return f"{ended}: {', '.join(f'{count} {what}' for count, what in counts if count)}"


def _wrapped(how: "Callable[[str], None]", text: str) -> None:
    """Print text line by line."""
    wrapper = textwrap.TextWrapper(max(stderr.width, 40), subsequent_indent="  ")
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    how(wrapper.fill(text))


def _interrupted(kept: bool, json: bool) -> NoReturn:
    # An audit spends nothing, so no ledger is mentioned.
    what = (
        "What was finished is kept: run the same command again to go on."
        if kept
        else "Nothing was kept: with --out an audit goes on where it ended."
    )
    message = f"Interrupted. {what}"
    if json:
        emit({"error": {"kind": "interrupted", "message": message}, "exit_code": INTERRUPTED})
    warn(f"privypurse: {message}")
    raise typer.Exit(INTERRUPTED)


def _silent(text: str) -> None:
    """Ignore a message."""


def _checked(mu: str | None, runs: int | None, jobs: int | None, seed: int) -> "tuple[float, ...] | None":
    """Check arguments under the names of the options; return the budgets."""
    from privypurse.core._checks import positive_integer
    from privypurse_lab.audits import running

    running.check_seed(seed, "--seed")
    if runs is not None:
        running.checked_runs(runs, "--runs")
    if jobs is not None:
        positive_integer(**{"--jobs": jobs})
    return None if mu is None else _numbers(mu)


def _numbers(text: str) -> tuple[float, ...]:
    from privypurse.core._errors import InvalidArgument
    from privypurse_lab.audits import running

    try:
        return running.checked_mus([float(part) for part in text.split(",")])
    except ValueError as error:  # from float, or InvalidArgument
        raise InvalidArgument(
            f"--mu must be comma-separated numbers above 0 and at most {running.LARGEST_MU:g}; got {text!r}. "
            "Pass for example --mu 1,2."
        ) from error
