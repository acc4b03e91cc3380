"""The plan of the house, enforced: who may import whom, who opens the box, who decides."""

import ast
import pathlib
import subprocess
import sys

from tests.each import each

import privypurse

SOURCE = pathlib.Path(privypurse.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Room -> what it may import from privypurse, besides itself. Nothing imports upward.
MAY_IMPORT = {
    "core": set(),
    "accounting": {"core"},
    "datasets": {"core"},
    "losses": {"core"},
    "mechanisms": {"core"},
    "oracles": {"core", "losses"},
    "purse": {"core", "accounting", "mechanisms._base"},
    "training": {"core", "accounting", "losses._bounds", "mechanisms", "purse"},
    "methods": {"core", "accounting", "losses", "mechanisms", "training"},
    "preprocessing": {"core"},
    "estimators": {
        "core",
        "accounting",
        "losses",
        "mechanisms",
        "oracles",
        "preprocessing",
        "purse",
        "pytorch._views",
        "training",
        "methods",
    },
    "tables": {"core", "estimators"},
    "report": {"core", "accounting", "purse._certificate", "training._trace", "training._plan"},
    "pytorch": {
        "core",
        "accounting",
        "losses._bounds",
        "mechanisms._gaussian",
        "mechanisms._torch_gaussian",
        "oracles._sampling",
        "purse",
        "training",
        "methods",
    },
}
# Whole runs, audits and the command line put everything together.
MAY_IMPORT["runs"] = MAY_IMPORT["audit"] = set(MAY_IMPORT)
MAY_IMPORT["cli"] = set(MAY_IMPORT)
# The core is words: it needs arrays, and a cipher for its random numbers.
CORE_THIRD_PARTY = {"cryptography", "numpy"}
OPTIONAL = {
    "opendp",
    "torch",
    "dask",
    "distributed",
    "plotly",
    "pandas",
    "polars",
    "pyarrow",
    "typer",
    "rich",
    "matplotlib",
    "joblib",
}
HEAVY = OPTIONAL | {"dp_accounting", "numba", "sklearn"}


def room(path):
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


def imports(path):
    """Every module a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                # `from privypurse.accounting import _gdp as gdp` imports the module _gdp as gdp.
                dotted = SOURCE.parent.joinpath(*node.module.split("."), alias.name)
                is_module = dotted.with_suffix(".py").exists() or dotted.is_dir()
                yield f"{node.module}.{alias.name}" if is_module else node.module


def allowed(importer, module):
    inside = module.removeprefix("privypurse.")
    return inside.split(".")[0] == importer or any(
        inside == permitted or inside.startswith(permitted + ".") for permitted in MAY_IMPORT[importer]
    )


def test_every_room_is_in_the_plan():
    assert {room(path) for path in FILES} - {""} <= set(MAY_IMPORT)


@each("path", [path for path in FILES if room(path)])
def test_rooms_import_only_what_the_plan_allows(path):
    for module in imports(path):
        if module.split(".")[0] == "privypurse":
            assert allowed(room(path), module), f"{room(path)} may not import {module}"
        elif room(path) == "core" and module.split(".")[0] not in sys.stdlib_module_names:
            assert module.split(".")[0] in CORE_THIRD_PARTY, f"core may not import {module}"


def attributes(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            yield node


def test_the_box_is_opened_only_by_mechanisms():
    """And by the audits' ear at the gate, on synthetic tables, outside of any guarantee."""
    openers = {
        str(path.relative_to(SOURCE)) for path in FILES if any(node.attr == "_value" for node in attributes(path))
    }
    assert {opener for opener in openers if not opener.startswith("mechanisms")} == {"audit/_listening.py"}
    assert openers - {"audit/_listening.py"} == {
        "mechanisms/_gaussian.py",
        "mechanisms/_torch_gaussian.py",
        "mechanisms/_selection.py",
        "mechanisms/_non_private.py",
        "mechanisms/_perturbed_minimiser.py",
        "mechanisms/_repeat_and_select.py",
    }


def test_nobody_reaches_for_the_box_by_another_name():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if path.relative_to(SOURCE).parts != ("core", "_sensitive.py"):
            assert "'_value'" not in text
            assert '"_value"' not in text
            assert "object.__getattribute__" not in text


def test_only_the_purse_admits_charges():
    for path in FILES:
        for node in attributes(path):
            if node.attr in ("admit", "admit_ahead") and isinstance(node.value, ast.Name) and node.value.id == "self":
                assert room(path) == "accounting", f"{path}: a filter's own helper"
            elif node.attr in ("admit", "admit_ahead"):
                assert room(path) == "purse", f"{path}:{node.lineno} decides outside the purse"


def test_only_the_purse_draws_noise_into_the_open():
    """`draw` is called in one place: after payment. Audits listen in between: the purse draws
    through their ear.
    """
    callers = {str(path.relative_to(SOURCE)) for path in FILES if any(node.attr == "draw" for node in attributes(path))}
    assert callers == {"purse/_purse.py", "audit/_listening.py"}


def test_only_audits_observe_purses():
    """The observer is set in one way, and read by the purse alone."""
    users = {
        str(path.relative_to(SOURCE)) for path in FILES if any(node.attr == "observed_by" for node in attributes(path))
    }
    assert users == {"audit/_listening.py"}
    readers = {
        str(path.relative_to(SOURCE)) for path in FILES if any(node.attr == "observer" for node in attributes(path))
    }
    assert readers == {"purse/_purse.py"}


def test_help_is_quick():
    """A person who asks for help does not wait for compilers."""
    code = "import sys, privypurse.cli._app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not (HEAVY - {"typer", "rich"}) & {module.split(".")[0] for module in loaded}


def test_importing_the_library_loads_nothing_heavy():
    code = "import sys, privypurse; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY & {module.split(".")[0] for module in loaded}
