"""The commands, and the exit code of each kind of error."""

import contextlib
import logging
import os
import signal
import sys
import warnings
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from privypurse.cli import _data, _ledger, _models, _plan, _train
from privypurse.cli._output import EXIT_CODES, checked, emit, stderr, warn
from privypurse.core import _errors as errors
from privypurse.core._errors import InvalidArgument, PrivypurseError
from privypurse.core._version import __version__

# Typer has its own copy of click. Find the base class of its errors.
UsageTrouble = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

OK, FAILED, WRONG_INPUT, BUDGET_REFUSED = 0, 1, 2, 3
LEDGER_TROUBLE, FILE_TROUBLE, SPENT_IN_VAIN, INTERRUPTED = 4, 5, 6, 130

HELP = """\
Train models under differential privacy, within a budget recorded on a ledger.

Examples:

    privypurse data census --out census.csv --schema census.toml

    privypurse train census.csv --target high_income --schema census.toml --epsilon 1 --budget 3

    privypurse ledger show
"""


class Interrupted(Exception):
    """SIGINT or SIGTERM."""


class ReaderGone(Exception):
    """stdout was closed (broken pipe)."""


class Commands(TyperGroup):  # type: ignore[misc]
    """Commands that raise their interrupts. Typer handles some of them itself, silently."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command and flush its output."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except KeyboardInterrupt as error:
            raise Interrupted(*error.args) from error
        except BrokenPipeError as error:
            raise ReaderGone from error


_LOOK: Any = {"rich_markup_mode": "markdown", "pretty_exceptions_enable": False}
app = typer.Typer(cls=Commands, help=HELP, no_args_is_help=True, epilog=EXIT_CODES, **_LOOK)
for _one in (_train.train, _models.predict, _models.evaluate, _plan.plan, _plan.compare, _data.schema, _models.report):
    app.command(_one.__name__, epilog=EXIT_CODES)(checked(_one))
app.add_typer(_ledger.app, name="ledger")
app.add_typer(_data.app, name="data")
app.command("demo", epilog=EXIT_CODES)(checked(_train.demo))


def _needs_the_lab(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Needs another distribution: pip install privypurse-lab."""
    raise InvalidArgument("this command is in another distribution. Install it: pip install privypurse-lab")


# Add the commands of other installed distributions. Without the lab, name it instead.
_others = entry_points(group="privypurse.commands")
for _other in _others:
    _other.load()(app)
if "lab" not in _others.names:
    for _name in ("reproduce", "audit"):
        app.command(_name, hidden=True, context_settings={"ignore_unknown_options": True})(_needs_the_lab)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"privypurse {__version__}")
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")


@app.callback()
def _top(version: Annotated[bool, _VERSION] = False) -> None: ...


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error."""
    codes: list[tuple[tuple[type[BaseException], ...], int]] = [
        ((errors.SpentInVain,), SPENT_IN_VAIN),
        ((errors.BudgetExhausted,), BUDGET_REFUSED),
        ((errors.LedgerError,), LEDGER_TROUBLE),
        ((errors.FileUnusable, errors.DataUnavailable), FILE_TROUBLE),
        ((InvalidArgument, FileNotFoundError), WRONG_INPUT),
        ((OSError, MemoryError), FILE_TROUBLE),
    ]
    return next((code for kinds, code in codes if isinstance(error, kinds)), FAILED)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line. Return the exit code."""
    warnings.showwarning = lambda message, *_, **__: warn(f"privypurse: {message}")
    # Do not log interrupts that arrive while a connection is being closed.
    logging.getLogger("sqlalchemy").setLevel(logging.CRITICAL)
    # SIGTERM does what Ctrl-C does: settle blocks and leave no partial files.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Names of files may not be valid text, and terminals may not be able to encode them.
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
    except (Interrupted, KeyboardInterrupt, typer.Abort) as error:
        spent = str(error) or "What was finished is kept. What was spent is on the ledger, if there is one."
        return _failed("interrupted", f"Interrupted. {spent}", INTERRUPTED, as_json)
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
        # The message of another library may quote a record.
        advice = "PRIVYPURSE_DEBUG=1 prints a traceback, which may contain data."
        return _failed("internal", f"internal error: {type(error).__name__}. {advice}", FAILED, as_json)


def _failed(kind: str, message: str, code: int, as_json: bool) -> int:
    if as_json:
        _emit_error(kind, message, code)
    stderr.print(f"privypurse: {message}", markup=False, style="red")
    return code


def _emit_error(kind: str, message: str, code: int) -> None:
    try:
        emit({"error": {"kind": kind, "message": message}, "exit_code": code})
        sys.stdout.flush()
    except OSError:  # stdout is closed or full
        _forget_stdout()


def _forget_stdout() -> None:
    """Redirect stdout to the null device, so that Python does not fail to flush it at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
