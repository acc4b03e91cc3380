"""The command line: every command, with arguments that nobody would type and some that somebody
might.
"""

import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import sys
import warnings
from random import Random
from typing import Any

from privypurse import SqliteLedger
from privypurse.cli._app import run as run_command
from privypurse.core._errors import LedgerError
from privypurse.datasets import make_census
from privypurse.runs._demo import census_schema
from privypurse.tables._schema import write_schema
from tests.fuzz.guard import Finding
from tests.fuzz.mutations import spoil_text

CODES = (0, 1, 2, 3, 4, 5, 6, 130)
# A refusal with one of these leaves every ledger as it was.
NOTHING_SPENT = (2, 3)
LEDGER = "privypurse-ledger.db"
FILES = (
    "census.csv", "census.toml", "model", "model/certificate.json", LEDGER, "other.db", "bad.csv", "empty", "nowhere/x", ".", "",
    "model2", "new.csv", "link", "dangling", "a\x00b", "x" * 300, "é\udcff", "-", "--", "budget.txt",
)  # fmt: skip
NUMBERS = (
    "0",
    "1",
    "-1",
    "0.5",
    "3",
    "1e-9",
    "1e-6",
    "1e308",
    "1e309",
    "nan",
    "inf",
    "-inf",
    "1e-320",
    "x",
    "",
    "٣",
    "1_0",
    "0x10",
)
COUNTS = ("0", "1", "-1", "2", "100", "300", "x", "", "1.5", "9" * 30, "-0", "٣")
NAMES = (
    "high_income",
    "age",
    "nobody",
    "",
    " ",
    "census.csv",
    "\x00",
    "é",
    "a" * 2_000,
    "'; --",
    "\udcff",
    "\n",
    "[red]x",
    "=1+1",
)
METHODS = (
    "auto",
    "nesterov",
    "noisy-pgd",
    "dp-sgd",
    "dp-agd",
    "adp-sgd",
    "dynamic",
    "pur-convex",
    "pur-oracle",
    "x",
    "",
)
WORDS = ("add-remove", "replace-one", "add_remove", "x", "")
ACCOUNT: dict[str, tuple[str, ...]] = {
    "--ledger": FILES, "--dataset": NAMES, "--budget": NUMBERS, "--delta": NUMBERS, "--neighbouring": WORDS, "--who": NAMES,
    "--delimiter": (",", ";", "tab", "\\t", "", "ab", '"', "\x00", "é"),
    "--encoding": ("utf-8", "latin-1", "utf-16", "utf-7", "hex", "rot13", "idna", "zip", "", "x", "\x00", "undefined"),
}  # fmt: skip
# The command, its arguments, and its options with what may stand behind them (None: a flag).
COMMANDS: tuple[tuple[tuple[str, ...], tuple[tuple[str, ...], ...], dict[str, Any]], ...] = (
    (
        ("train", "--quiet", "--no-intervals"),
        (("census.csv", *FILES),),
        ACCOUNT | {
            "--target": NAMES, "--epsilon": NUMBERS, "--schema": FILES, "--out": FILES, "--overwrite": None, "--buy-ranges": None,
            "--model": ("logistic", "svm", "ridge", "huber", "x"), "--method": METHODS, "--hold-out": NUMBERS, "--test": FILES,
            "--test-public": None, "--simulate": COUNTS, "--dry-run": None,
        },
    ),
    (("predict", "--quiet"), (FILES, FILES), {"--out": FILES, "--overwrite": None, "--keep": NAMES} | ACCOUNT),
    (("evaluate", "--quiet"), (FILES, FILES), ACCOUNT | {"--epsilon": NUMBERS, "--public": None}),
    (
        ("plan", "--no-rehearse", "--quiet"),
        (),
        {
            "--records": COUNTS, "--features": COUNTS, "--epsilon": NUMBERS, "--delta": NUMBERS, "--method": METHODS,
            "--schema": FILES, "--neighbouring": WORDS, "--classes": COUNTS, "--plot": FILES, "--compare": None,
            "--overwrite": None, "--ledger": FILES, "--dataset": NAMES,
        },
    ),
    (
        ("compare", "--quiet", "--repeats", "2", "--methods", "auto", "--epsilons", "1"),
        (("census.csv", *FILES),),
        ACCOUNT | {
            "--target": NAMES, "--schema": FILES, "--methods": ("auto", "auto,nesterov", ",", "", "x", "auto,auto"),
            "--epsilons": ("1", "0.5,1", "", ",", "nan", "1e309", "-1", "0"), "--pay": None, "--plot": FILES,
            "--overwrite": None,
        },
    ),
    (
        ("schema", "--quiet"),
        (FILES,),
        {"--target": NAMES, "--out": FILES, "--overwrite": None, "--check": FILES, "--buy-ranges": None},
    ),
    (("report",), (FILES,), {"--out": FILES, "--overwrite": None}),
    (("ledger", "show"), (FILES,), {"--dataset": NAMES}),
    (("ledger", "certificate"), (FILES,), {"--dataset": NAMES, "--out": FILES, "--overwrite": None}),
    (("ledger", "verify"), (FILES,), {"--certificate": FILES}),
    (("ledger", "export"), (FILES,), {"--dataset": NAMES, "--out": FILES, "--overwrite": None}),
    (("ledger", "freeze"), (FILES,), {"--dataset": NAMES, "--why": NAMES, "--who": NAMES, "--yes": None}),
    (
        ("data",),
        (("census", "iris", "x", "", "../x"),),
        {
            "--out": FILES, "--part": ("all", "train", "x"), "--rows": COUNTS, "--seed": COUNTS, "--schema": FILES,
            "--overwrite": None,
        },
    ),
    (("demo", "--quiet", "--rows", "300"), (), {"--out": FILES, "--epsilon": NUMBERS, "--rows": COUNTS}),
    (
        ("reproduce", "--list"),
        (("pur", "x", ""),),
        {"--figure": NAMES, "--table": NAMES, "--seed": COUNTS, "--jobs": COUNTS, "--out": FILES},
    ),
    ((), (NAMES,), {"--version": None, "--help": None, "--install-completion": None}),
)  # fmt: skip
USUAL = {
    "--target": "high_income", "--epsilon": "0.5", "--schema": "census.toml", "--dataset": "census.csv", "--records": "1000",
    "--features": "10", "--why": "done", "--ledger": LEDGER,
}  # fmt: skip


class CommandsTarget:
    """An input is a list of arguments in JSON. They run in a folder with a table, a model and a
    ledger.
    """

    name, seconds = "commands", 30.0

    def prepare(self, folder: pathlib.Path) -> None:
        self._seed, self._work = folder / "seed", folder / "work"
        self._seed.mkdir()
        census = make_census(300, 1)
        census.to_csv(self._seed / "census.csv")
        (self._seed / "census.toml").write_text(write_schema(census_schema(census)), encoding="utf-8")
        (self._seed / "bad.csv").write_bytes(b"age,high_income\n\xff,\x00\n" * 20)
        (self._seed / "empty").touch()
        (self._seed / "budget.txt").write_text("not a ledger")
        (self._seed / "link").symlink_to("census.csv")
        (self._seed / "dangling").symlink_to("gone")
        self._work = self._seed
        common = [
            "census.csv",
            "--target",
            "high_income",
            "--schema",
            "census.toml",
            "--epsilon",
            "0.5",
            "--budget",
            "3",
        ]
        self._in_folder(["train", "--quiet", "--no-intervals", *common], self._seed)
        self._work = folder / "work"
        self.check(json.dumps(["ledger", "verify", "--certificate", "model/certificate.json"]).encode())

    def make(self, random: Random) -> bytes:
        command, positional, options = random.choice(COMMANDS)
        arguments = list(command)
        good = random.random() < 0.6  # mostly right, with a mistake or two
        for choices in positional:
            if random.random() < 0.95:
                arguments.append(choices[0] if good and random.random() < 0.8 else random.choice(choices))
        if good and positional and command and command[0] in ("predict", "evaluate", "report"):
            arguments[-len(positional) :] = ["model", "census.csv"][: len(positional)]
        if good and command and command[0] == "ledger":
            arguments[2:] = random.choice([[LEDGER], ["--ledger", LEDGER]])
        for name, choices in options.items():
            if name in USUAL and good and random.random() < 0.85:
                arguments += [name, USUAL[name]]
            elif random.random() < (0.15 if good else 0.35):
                arguments += [name] if choices is None else [name, random.choice(choices)]
        if random.random() < 0.3:
            arguments.append("--json")
        if random.random() < 0.1 and arguments:
            at = random.randrange(len(arguments))
            arguments[at] = spoil_text(random, arguments[at])
        if random.random() < 0.05:
            random.shuffle(arguments)
        # These run code, a browser or hours of work, because they were asked to.
        return json.dumps(
            [each for each in arguments if not each.startswith(("--open", "--also", "--install", "--show-"))]
        ).encode()

    def check(self, content: bytes) -> None:
        # Commands write where they are told to: never outside their folder, whoever runs this and
        # with whatever rights.
        arguments = [
            str(each).replace("..", "__").replace("/", "_", _slashes(str(each))) for each in json.loads(content)
        ]
        if arguments[:1] == ["reproduce"] and "--list" not in arguments:
            return
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._seed, self._work, symlinks=True)
        before, models = _spent(self._work), _models(self._work)
        code, printed = self._in_folder(arguments, self._work)
        after = _spent(self._work)
        if code not in CODES:
            raise Finding(f"the exit code {code!r} is not a documented one")
        if "Traceback (most recent call last)" in printed:
            raise Finding("a traceback was printed")
        for name, (releases, quanta) in before.items():
            now = after.get(name, (-1, (-1,)))
            if now[0] < releases or any(a < b for a, b in zip(now[1], quanta, strict=True)):
                raise Finding(f"the ledger shows less than before: {name}")
        spent = sum(releases for releases, _ in after.values()) - sum(releases for releases, _ in before.values())
        if spent and code in NOTHING_SPENT:
            raise Finding(f"refused with {code}, and yet something was spent")
        new = _models(self._work) - models
        if new and spent < sum(releases for _, _, releases in new):
            raise Finding("a model was written, and its releases are not on a ledger")

    def _in_folder(self, arguments: list[str], folder: pathlib.Path) -> tuple[Any, str]:
        here, handler, shown, debug = (
            os.getcwd(),
            signal.getsignal(signal.SIGTERM),
            warnings.showwarning,
            "PRIVYPURSE_DEBUG",
        )
        old, stdin = os.environ.get(debug), sys.stdin
        os.chdir(folder)
        os.environ[debug] = "1"
        sys.stdin = io.StringIO("")
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
        err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run_command(arguments)
                out.flush()
                err.flush()
        finally:
            os.chdir(here)
            sys.stdin, warnings.showwarning = stdin, shown
            signal.signal(signal.SIGTERM, handler)
            os.environ.pop(debug) if old is None else os.environ.update({debug: old})
        return code, err.buffer.getvalue().decode()  # type: ignore[attr-defined]


def _slashes(argument: str) -> int:
    """Return how many slashes to take out of an argument: all of them, but for names in the folder."""
    return 0 if argument in ("model/certificate.json", "nowhere/x") else argument.count("/")


def _spent(folder: pathlib.Path) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return releases and totals of every data set on every ledger in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink() or not path.read_bytes()[:16].startswith(b"SQLite format 3"):
            continue
        with contextlib.suppress(LedgerError):
            ledger = SqliteLedger(path, must_exist=True)
            for name in {entry.dataset for entry in ledger.entries()}:
                totals = ledger.totals(name)
                found[f"{path.relative_to(folder)}: {name}"] = (totals.releases, totals.quanta)
    return found


def _models(folder: pathlib.Path) -> set[tuple[str, str, int]]:
    """Return the models in a folder, with what their certificates say was released for them."""
    found = set()
    for path in folder.glob("**/certificate.json"):
        with contextlib.suppress(ValueError, LookupError):  # something was written over it, as asked
            described = json.loads(path.read_text())
            found.add((str(path), described["ledger_digest"], described["releases"]))
    return found
