"""The command line: `privypurse`."""

import sys


def main() -> None:
    """Run a command and leave with its exit code."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        sys.exit("privypurse: the command line needs more packages. Install them: pip install 'privypurse[cli]'")
    from privypurse.cli.app import run

    sys.exit(run())
