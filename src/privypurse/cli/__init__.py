"""The command line: `privypurse`."""

import os
import sys


def main() -> None:
    """Run a command and leave with its exit code."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        sys.exit("privypurse: the command line needs more packages. Install them: pip install 'privypurse[cli]'")
    # Arrow's own allocators keep what was read; a table's matrix needs the room.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        from privypurse.cli._app import run
    except KeyboardInterrupt:  # before there is anything to clean up
        sys.exit(130)
    sys.exit(run())
