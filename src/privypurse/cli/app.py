"""The commands, and what becomes of errors: one exit code for each kind, so that scripts can tell them apart."""

import signal
import sys
import warnings
from types import FrameType
from typing import Any

import typer

from privypurse.cli import compare, data, demo, evaluate, ledger, plan, predict, report, schema, train
from privypurse.cli.output import emit, stderr, warn
from privypurse.core.errors import BudgetExhausted, InvalidArgument, LedgerError, PrivypurseError
from privypurse.core.version import __version__

# Newer releases of typer bring a click of their own, so its classes are found through typer's.
UsageTrouble = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

OK, FAILED, WRONG_INPUT, BUDGET_REFUSED, LEDGER_TROUBLE, FILE_TROUBLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

HELP = """\
Train models under differential privacy, with a budget that is kept.

Exit codes: 0 done; 2 wrong arguments or input; 3 budget refused; 4 trouble with the ledger; 5 a file cannot be read or written;
130 interrupted; 1 anything else.
"""

app = typer.Typer(
    name="privypurse", help=HELP, no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False
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
        (BudgetExhausted, BUDGET_REFUSED),
        (LedgerError, LEDGER_TROUBLE),
        (InvalidArgument, WRONG_INPUT),
        (PrivypurseError, FAILED),
        (OSError, FILE_TROUBLE),
        (MemoryError, FILE_TROUBLE),
    ):
        if isinstance(error, kind):
            return code
    return FAILED


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    warnings.showwarning = _show_warning
    # Whoever ends a job with a polite signal wants what Ctrl-C does: blocks settled, nothing half written.
    signal.signal(signal.SIGTERM, _terminate)
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="privypurse", standalone_mode=False)
        return code if isinstance(code, int) else OK
    except typer.Exit as done:
        return int(done.exit_code)
    except UsageTrouble as error:
        error.show()
        return WRONG_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return _failed(
            "interrupted",
            "Interrupted. What was spent is on the ledger; `privypurse ledger show` tells.",
            INTERRUPTED,
            as_json,
        )
    except BrokenPipeError:  # whoever read our output has had enough
        sys.stderr.close()
        return OK
    except (PrivypurseError, OSError, MemoryError) as error:
        message = str(error) or "out of memory"
        if isinstance(error, OSError) and not isinstance(error, PrivypurseError):
            message = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        return _failed(type(error).__name__, message, exit_code(error), as_json)


def _failed(kind: str, message: str, code: int, as_json: bool) -> int:
    if as_json:
        emit({"error": {"kind": kind, "message": message}, "exit_code": code})
    stderr.print(f"privypurse: {message}", markup=False, style="red")
    return code


def _terminate(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    warn(f"privypurse: {message}")
