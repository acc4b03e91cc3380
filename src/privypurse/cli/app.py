"""The commands, and what becomes of errors: one exit code for each kind, so that scripts can tell them apart."""

import contextlib
import logging
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from privypurse.cli import audit, compare, data, demo, evaluate, ledger, plan, predict, report, reproduce, schema, train
from privypurse.cli.output import emit, stderr, warn
from privypurse.core.errors import (
    BudgetExhausted,
    DataUnavailable,
    FileUnusable,
    InvalidArgument,
    LedgerError,
    PrivypurseError,
    SpentInVain,
)
from privypurse.core.version import __version__

# Typer brought its own click at some point; its errors are found from one that it names.
UsageTrouble = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

OK, FAILED, WRONG_INPUT, BUDGET_REFUSED, LEDGER_TROUBLE, FILE_TROUBLE, SPENT_IN_VAIN, INTERRUPTED = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    130,
)

HELP = """\
Train models under differential privacy, with a budget that is kept.

Examples:

    privypurse data census --out census.csv --schema census.toml

    privypurse train census.csv --target high_income --schema census.toml --epsilon 1 --budget 3

    privypurse ledger show

Exit codes: 0 done; 2 wrong arguments or input; 3 budget refused; 4 trouble with the ledger; 5 a file cannot be read or written;
6 failed after something was spent; 7 an audit did not end as it should; 130 interrupted; 1 anything else.
"""


class Interrupted(Exception):
    """Ctrl-C, or a polite request to end."""


class ReaderGone(Exception):
    """Whoever read our output has had enough."""


class Commands(TyperGroup):  # type: ignore[misc]
    """Commands whose interrupts come out as they are: typer would answer some of them itself, without a word."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and see its output off."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except KeyboardInterrupt as error:
            raise Interrupted from error
        except BrokenPipeError as error:
            raise ReaderGone from error


app = typer.Typer(
    name="privypurse",
    cls=Commands,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("evaluate")(evaluate.evaluate)
app.command("plan")(plan.plan)
app.command("compare")(compare.compare)
app.command("schema")(schema.schema)
app.command("report")(report.report)
app.add_typer(ledger.app, name="ledger")
app.command("data")(data.data)
app.command("demo")(demo.demo)
app.command("reproduce")(reproduce.reproduce)
app.command("audit")(audit.audit)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"privypurse {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def exit_code(error: BaseException) -> int:
    """Return the exit code that tells of an error."""
    for kind, code in (
        (SpentInVain, SPENT_IN_VAIN),
        (BudgetExhausted, BUDGET_REFUSED),
        (LedgerError, LEDGER_TROUBLE),
        (FileUnusable, FILE_TROUBLE),
        (InvalidArgument, WRONG_INPUT),
        (DataUnavailable, FILE_TROUBLE),
        (FileNotFoundError, WRONG_INPUT),
        (OSError, FILE_TROUBLE),
        (MemoryError, FILE_TROUBLE),
    ):
        if isinstance(error, kind):
            return code
    return FAILED


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    warnings.showwarning = _show_warning
    # An interrupt that arrives while a connection is being closed is of no interest to anybody.
    logging.getLogger("sqlalchemy").setLevel(logging.CRITICAL)
    # Whoever ends a job with a polite signal wants what Ctrl-C does: blocks settled, nothing half written.
    signal.signal(signal.SIGTERM, _terminate)
    # Names of files may hold bytes that are no text, and a terminal may know few letters: neither ends a command.
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="privypurse", standalone_mode=False)
        return code if isinstance(code, int) else OK
    except typer.Exit as done:
        return int(done.exit_code)
    except UsageTrouble as error:
        if as_json:
            _emit_error("usage", error.format_message(), WRONG_INPUT)
        error.show()
        return WRONG_INPUT
    except (Interrupted, KeyboardInterrupt, typer.Abort):
        return _failed(
            "interrupted",
            "Interrupted. What was finished is kept. What was spent is on the ledger, if there is one.",
            INTERRUPTED,
            as_json,
        )
    except ReaderGone:
        _forget_stdout()
        return OK
    except (PrivypurseError, OSError, MemoryError) as error:
        message = str(error) or "out of memory"
        if isinstance(error, OSError) and not isinstance(error, PrivypurseError):
            message = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        code = _failed(type(error).__name__, message, exit_code(error), as_json)
        try:
            sys.stdout.flush()
        except OSError:
            _forget_stdout()
        return code
    except Exception as error:
        if os.environ.get("PRIVYPURSE_DEBUG"):
            raise
        # A message of somebody else's may quote a record.
        message = f"an error that should not happen: {type(error).__name__}. PRIVYPURSE_DEBUG=1 shows where, and maybe records."
        return _failed("internal", message, FAILED, as_json)


def _failed(kind: str, message: str, code: int, as_json: bool) -> int:
    if as_json:
        _emit_error(kind, message, code)
    stderr.print(f"privypurse: {message}", markup=False, style="red")
    return code


def _emit_error(kind: str, message: str, code: int) -> None:
    try:
        emit({"error": {"kind": kind, "message": message}, "exit_code": code})
        sys.stdout.flush()
    except OSError:  # nobody reads it, or there is no room for it
        _forget_stdout()


def _forget_stdout() -> None:
    """Let what could not be printed go, or Python would try once more on its way out."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    warn(f"privypurse: {message}")
