"""Commands of the lab, which join `privypurse` through the entry point ``privypurse.commands``."""

from typing import Any

import typer

from privypurse.cli import _data as data
from privypurse.cli._output import EXIT_CODES, checked
from privypurse_lab.cli import audit, reproduce

TABLES = {
    "adult": "census income, one-hot (LIBSVM a9a)",
    "adult-raw": "census income, raw columns of mixed types",
    "bank": "bank marketing, one-hot",
    "bank-raw": "bank marketing, raw columns (download only)",
    "ipums-br": "census of Brazil, one-hot",
    "kddcup99": "network connections, KDD Cup 1999, ten per cent, one-hot",
    "kddcup99-sf": "network connections, KDD Cup 1999, SF",
    "mnist": "handwritten digits, 28 x 28",
    "iris": "three kinds of iris; comes with scikit-learn",
    "breast-cancer": "comes with scikit-learn",
    "digits": "handwritten digits, 8 x 8; comes with scikit-learn",
}


def join(app: typer.Typer) -> None:
    """Add the commands and the data sets of the lab to the command line."""
    how: Any = {"epilog": EXIT_CODES, "context_settings": {"token_normalize_func": _current_name}}
    app.command("reproduce", **how)(checked(reproduce.reproduce))
    app.command("audit", **how)(checked(audit.audit))
    data.ABOUT.update(TABLES)
    data.LOADERS.update(dict.fromkeys(TABLES, _load))


def _current_name(option: str) -> str:
    """Return the name of an option that scripts may still call by an earlier name."""
    return {"output": "out", "workers": "jobs"}.get(option, option)


def _load(name: str, part: str) -> object:
    from privypurse_lab.data import load

    return load(name, part)
