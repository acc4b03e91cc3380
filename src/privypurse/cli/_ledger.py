"""`privypurse ledger`."""

import csv
import io
import json as json_module
import pathlib
import sys
from typing import Annotated, Any

import typer

from privypurse.cli import _options as options
from privypurse.cli._output import EXIT_CODES, answer, checked, emit, say, stderr, table, warn
from privypurse.core._errors import FileUnusable, InvalidArgument, LedgerCorrupt, PrivypurseError
from privypurse.core._formats import counted, rounded_down, rounded_up, short

HELP = """\
Show, check and export a ledger: what was spent on each data set, and what is left.

Examples:

    privypurse ledger show

    privypurse ledger verify --ledger budget.db --certificate model/certificate.json
"""

app = typer.Typer(help=HELP, no_args_is_help=True, epilog=EXIT_CODES)

FORMATS = ("json", "markdown", "registry", "events")
_FORMAT_HELP = f"Everything that is asked, as one of {', '.join(FORMATS)}. Default: the certificate alone."
NOT_CHECKED = 8  # exit code: a part of the certificate does not hold or was not checked
NOT_UPHELD = (
    "NOT UPHELD: the certificate's guarantee under add-remove. Its purse is under replace-one, where the number of records is "
    "public, so it guarantees nothing under add-remove. Issue a new one: privypurse ledger certificate."
)

Dataset = Annotated[str, options.dataset(help="Name of the data set.")]
OneDataset = Annotated[str | None, options.dataset(help="Name of a data set. Default: all of them.")]
# An earlier way to name the ledger, which scripts may use.
Path = Annotated[pathlib.Path | None, typer.Argument(hidden=True)]


def open_ledger(ledger: pathlib.Path | None, path: pathlib.Path | None = None) -> Any:
    from privypurse.purse._sqlite_ledger import SqliteLedger
    from privypurse.runs._account import Account

    if ledger is not None and path is not None:
        raise InvalidArgument(f"expected one ledger, got {str(ledger)!r} and {str(path)!r}. Pass --ledger only.")
    return SqliteLedger(Account(ledger=ledger or path, dataset="any").path, must_exist=True)


def _names(ledger: Any) -> list[str]:
    return sorted({entry.dataset for entry in ledger.entries()})


def accounts_on(ledger: Any, dataset: str | None) -> list[Any]:
    """Return the purses on a ledger, or that of one data set. Raise InvalidArgument if it is not there."""
    from privypurse.purse._purse import Purse

    names = _names(ledger)
    if dataset is not None and dataset not in names:
        where = f"is not on the ledger {ledger.path.name!r}, which has {names!r}"
        raise InvalidArgument(f"dataset {dataset!r} {where}. Pass one of them.")
    return [Purse.reopen(ledger, name) for name in ([dataset] if dataset is not None else names)]


@app.command("show", epilog=EXIT_CODES)
@checked
def show(
    ledger: options.LedgerHere = None, path: Path = None, dataset: OneDataset = None, json: options.Json = False
) -> None:
    """Show the data sets of a ledger: limit, spent, left, people and dates.

    Examples:

        privypurse ledger show

        privypurse ledger show --ledger budget.db --dataset "survey 2026"
    """
    from privypurse.runs._describe import describe_budget

    book = open_ledger(ledger, path)
    accounts = [describe_budget(purse) | _details(purse) for purse in accounts_on(book, dataset)]
    if json:
        lines, digest = book.head()
        emit({"ledger": book.location, "lines": lines, "digest": digest, "datasets": accounts})
        return
    if not accounts:
        say(f"{book.location}: no data set yet")
        return
    rows = []
    for account in accounts:
        spent, limit = rounded_up(account["spent_epsilon"]), short(account["epsilon"])
        left = "frozen" if account["frozen"] else rounded_down(account["remaining_epsilon"])
        others = f"{account['releases']:,}", ", ".join(account["people"]), account["last"][:10]
        rows.append([account["dataset"], spent, limit, left, *others])
    table(("data set", "spent", "of", "left for one run", "releases", "by", "last"), rows)
    for account in accounts:
        if account["frozen"]:
            say(f"{account['dataset']!r} is frozen: {account['frozen_because']}")
        if account["simulation"]:
            say(f"{account['dataset']!r} has releases with seeded noise: SIMULATION, NOT PRIVATE")
    if dataset is None:
        return
    (account,) = accounts
    terms = f"epsilon {account['epsilon']:g}, delta {account['delta']:g}, {account['neighbouring']}"
    say(f"terms: {terms}, opened {account['opened'][:10]}")
    for run in account["runs"]:
        cost = "" if run["epsilon"] is None else f", epsilon {rounded_up(run['epsilon'])}"
        ended = "" if run["finished"] else ", NOT FINISHED"
        when, releases = run["when"][:16].replace("T", " "), counted(run["releases"], "release")
        say(f"{when}  {run['who']}: {run['what']}; {releases}{cost}{ended}")
    for what in account["uncovered"]:
        say(f"not covered: {what}")


def _details(purse: Any) -> dict[str, Any]:
    from privypurse.purse._entries import FREEZE, declared_uncovered

    entries = list(purse.ledger.entries(purse.dataset))
    frozen = [f"{entry.what} ({entry.who}, {entry.when[:10]})" for entry in entries if entry.kind == FREEZE]
    left = {"remaining_epsilon": 0.0 if frozen else purse.remaining.epsilon, "releases": purse.spent.releases}
    by = {"people": sorted({entry.who for entry in entries}), "opened": entries[0].when, "last": entries[-1].when}
    state = {"frozen_because": frozen[0] if frozen else "", "uncovered": list(declared_uncovered(entries))}
    return {**left, **by, **state}


@app.command("certificate", epilog=EXIT_CODES)
@checked
def certificate(
    dataset: Dataset,
    ledger: options.LedgerHere = None,
    path: Path = None,
    out: Annotated[pathlib.Path | None, options.output("--out", "-o", help="File to write; .json for JSON.")] = None,
    overwrite: options.Overwrite = False,
    format: Annotated[str | None, options.option("--format", help=_FORMAT_HELP)] = None,
    schema: Annotated[
        pathlib.Path | None,
        options.option(
            "--schema", help="Schema whose [statement] to put on the ledger first.", complete=options.complete_schema
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Issue the certificate for all releases of a data set.

    Examples:

        privypurse ledger certificate --dataset "survey 2026"

        privypurse ledger certificate --dataset "survey 2026" --format registry --out survey.yaml

    `--format json` and `markdown` have everything that is asked of a use of differential privacy, and `registry` is an entry
    for OpenDP's registry of deployments. `events` are the charges for Google's dp_accounting.
    """
    from privypurse.runs.folder import replace_file
    from privypurse.tables._schema import read_schema

    if format is not None and (format not in FORMATS or json):
        got = "--json too" if json else repr(format)
        raise InvalidArgument(f"expected --format to be one of {', '.join(FORMATS)}, got {got}. Leave one out.")
    stated = () if schema is None else read_schema(schema).statement
    if schema is not None and not stated:
        raise InvalidArgument(
            f"expected a table [statement] in --schema {str(schema)!r}, got none. Leave --schema out."
        )
    (purse,) = accounts_on(open_ledger(ledger, path), dataset)
    if stated:
        purse.note("statement", {"statement": dict(stated)})
    issued = purse.certificate()
    text = str(issued) if format is None else _written(issued, format, purse.ledger)
    if out is not None and format is None:
        issued.save(out)
    elif out is not None:
        replace_file(out, text)
    if json:
        emit(json_module.loads(issued.to_json()))
    elif out is None:
        sys.stdout.write(text)
    else:
        say(f"certificate: {out}")


def _written(issued: Any, format: str, ledger: Any) -> str:
    from privypurse.purse import _certificate_formats as formats

    if format in ("markdown", "registry"):
        return formats.markdown(issued) if format == "markdown" else formats.registry(issued)
    found = formats.complete(issued) if format == "json" else formats.dp_events(issued, ledger)
    return json_module.dumps(found, indent=2, allow_nan=False) + "\n"


@app.command("verify", epilog=EXIT_CODES)
@checked
def verify(
    ledger: options.LedgerHere = None,
    path: Path = None,
    certificate: Annotated[
        pathlib.Path | None, options.option("--certificate", help="Also check this certificate against the ledger.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check the hash chain and recompute every payment. Exit code 4 if the ledger was changed.

    All data sets are checked, even if one fails.

    Examples:

        privypurse ledger verify

        privypurse ledger verify --ledger budget.db --certificate model/certificate.json

    A certificate is recomputed, or compared with the hash that its run recorded on the ledger.
    """
    from privypurse.purse._certificate import check_certificate, states_too_much
    from privypurse.purse._purse import Purse
    from privypurse.purse._replay import replay

    book = open_ledger(ledger, path)
    known = None if certificate is None else _read_certificate(certificate)
    checked, too_much = True, known is not None and states_too_much(known)
    try:
        lines = book.verify()
        if known is not None:
            checked = check_certificate(book, known)
    except LedgerCorrupt as error:
        named = book.path.name if known is None else pathlib.PurePath(known.ledger).name
        if named == book.path.name:
            raise
        raise LedgerCorrupt(f"{error} The certificate names {named!r}; this is {book.path.name!r}.") from error
    names = _names(book)
    failed: dict[str, str] = {}
    for name in names:
        try:
            replay(book, name, Purse.reopen(book, name).filter)
        except PrivypurseError as error:
            failed[name] = str(error)
    if failed:
        if not json:
            table(("data set", "payments"), [[name, failed.get(name, "counted again")] for name in names])
        wrong = " ".join(f"{name!r}: {why}" for name, why in failed.items())
        verb = "does" if len(failed) == 1 else "do"
        raise LedgerCorrupt(f"{len(failed)} of {counted(len(names), 'data set')} {verb} not add up. {wrong}")
    digest = book.head()[1]
    if json:
        about: dict[str, Any] = {} if certificate is None else {"certificate_checked": checked and not too_much}
        about |= {"not_upheld": ["add-remove"]} if too_much else {}
        found = {"ledger": book.location, "lines": lines, "digest": digest, "datasets": len(names)}
        emit(found | {"intact": True} | about)
    else:
        pinned = "" if certificate is None else ", and continues the one the certificate was made from"
        say(f"intact: {counted(lines, 'line')}, {counted(len(names), 'data set')}, every payment counted again{pinned}")
        if certificate is not None and checked:
            say(f"the certificate says what the ledger says{', but for one line' if too_much else ''}")
        elif certificate is not None:
            warn("NOT CHECKED: the certificate is about a part that was not put on record on this ledger")
        if too_much:
            warn(NOT_UPHELD)
        say(f"last SHA-256: {digest}")
    if not checked or too_much:
        raise typer.Exit(NOT_CHECKED)


def _read_certificate(path: pathlib.Path) -> Any:
    """Read a certificate. Name the file, and the commands that write one, in the errors."""
    from privypurse.purse._certificate import Certificate

    try:
        return Certificate.load(path)
    except FileUnusable:  # names the file
        raise
    except InvalidArgument as error:
        why = f": {error}"
        if "to_json" in str(error):  # errors about other formats have their own remedy
            command = "`privypurse ledger certificate --dataset NAME --out certificate.json`"
            why = f" is not one in JSON. Pass the certificate.json of a model, or the output of {command}."
        raise InvalidArgument(f"--certificate {str(path)!r}{why}") from error


@app.command("export", epilog=EXIT_CODES)
@checked
def export(
    ledger: options.LedgerHere = None,
    path: Path = None,
    out: Annotated[pathlib.Path | None, options.output("--out", "-o", help="File to write. Default: stdout.")] = None,
    overwrite: options.Overwrite = False,
    dataset: OneDataset = None,
    json: Annotated[bool, typer.Option("--json", help="Write JSON instead of CSV.")] = False,
) -> None:
    """Write every line of a ledger as CSV or JSON.

    Examples:

        privypurse ledger export --out ledger.csv

        privypurse ledger export --ledger budget.db --json
    """
    from privypurse.purse._entries import totals_to_text
    from privypurse.runs.folder import replace_file

    book = open_ledger(ledger, path)
    book.verify()
    text_of = str if json else _harmless
    lines = [
        {"line": entry.seq, "dataset": text_of(entry.dataset), "kind": entry.kind, "who": text_of(entry.who)}
        | {"when": entry.when, "what": text_of(entry.what), "details": entry.details if json else entry.body}
        | {"totals": totals_to_text(entry.totals), "previous": entry.previous, "sha256": entry.digest}
        for entry in book.entries(dataset)
    ]
    if json:
        text = json_module.dumps({"ledger": book.location, "entries": lines}, indent=1) + "\n"
    else:
        buffer = io.StringIO(newline="")
        writer = csv.DictWriter(buffer, list(lines[0]) if lines else ["line"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        text = buffer.getvalue()
    if out is None:
        sys.stdout.write(text)
        return
    replace_file(out, text)
    found = {"ledger": book.location, "lines": len(lines), "out": str(out)}
    answer(json, found, f"{counted(len(lines), 'line')}: {out}")


@app.command("freeze", epilog=EXIT_CODES)
@checked
def freeze(
    dataset: Dataset,
    why: Annotated[str, options.option("--why", help="Reason to record.")],
    ledger: options.LedgerHere = None,
    path: Path = None,
    who: options.Who = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    json: options.Json = False,
) -> None:
    """Close the account of a data set permanently: what is left can no longer be spent.

    Examples:

        privypurse ledger freeze --dataset "survey 2026" --why "study ended"
    """
    from privypurse.purse._purse import Purse

    purse = Purse.reopen(open_ledger(ledger, path), dataset, who=who)
    already = purse.ledger.is_frozen(dataset)
    if not already:
        if not yes:
            left = rounded_down(purse.remaining.epsilon)
            stderr.print(f"Freeze {dataset!r}, with epsilon {left} left, for good? [y/N]", markup=False, end=" ")
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise PrivypurseError("not frozen: the answer was not yes. Pass --yes to freeze without a question.")
        purse.freeze(why)
    said = f"frozen: {dataset!r}, after epsilon {rounded_up(purse.spent.epsilon)} of {purse.epsilon:g}"
    found = {"dataset": dataset, "frozen": True, "already": already, "spent_epsilon": purse.spent.epsilon}
    answer(json, found, f"{dataset!r} is frozen already" if already else said)


def _harmless(text: str) -> str:
    """Quote text that a spreadsheet would take for a formula."""
    return f"'{text}" if text[:1] in "=+-@\t\r" and text else text
