"""The plan of the house, enforced: who may import whom, who opens the box, who decides."""

import ast
import pathlib
import subprocess
import sys

import pytest

import privypurse

SOURCE = pathlib.Path(privypurse.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Room -> what it may import from privypurse, besides itself. Nothing imports upward.
MAY_IMPORT = {
    "core": set(),
    "datasets": {"core"},
    "report": {"core", "accounting", "purse.certificate", "training.trace", "planning.plan"},
    "tables": {"core", "preprocessing"},
    "store": {"core", "estimators", "methods.by_name", "purse", "tables", "training.trace"},
    "accounting": {"core"},
    "losses": {"core"},
    "mechanisms": {"core"},
    "optimizers": {"core"},
    "oracles": {"core", "losses"},
    "schedules": {"core", "mechanisms", "accounting"},
    "planning": {"core", "losses", "accounting", "optimizers.base", "schedules"},
    "methods": {"core", "accounting", "mechanisms", "optimizers", "schedules", "planning"},
    "baselines": {"core", "accounting", "mechanisms", "optimizers", "schedules", "planning", "methods.base"},
    "purse": {"core", "accounting", "mechanisms.base"},
    "preprocessing": {"core", "accounting", "mechanisms", "oracles", "purse", "schedules.base"},
    "training": {
        "core",
        "accounting",
        "losses.bounds",
        "mechanisms.base",
        "optimizers.base",
        "schedules.base",
        "planning.facts",
        "planning.plan",
        "purse",
    },
    "estimators": {
        "core",
        "accounting",
        "losses",
        "mechanisms",
        "oracles",
        "optimizers",
        "schedules",
        "planning",
        "methods",
        "baselines",
        "purse",
        "training",
        "preprocessing",
    },
}
MAY_IMPORT["pytorch"] = {
    "core",
    "accounting",
    "losses.bounds",
    "mechanisms.gaussian",
    "mechanisms.torch_gaussian",
    "oracles.sampling",
    "optimizers",
    "schedules",
    "planning",
    "methods",
    "purse",
    "training",
}
# Whole jobs and the command line put everything together.
BELOW_JOBS = set(MAY_IMPORT)
MAY_IMPORT["jobs"] = BELOW_JOBS
# The papers are whole jobs too: they use everything, and nothing uses them.
MAY_IMPORT["papers"] = BELOW_JOBS | {"jobs.progress"}
# Audits attack everything, also what was published and is not private; nothing but the command line uses them.
MAY_IMPORT["audit"] = BELOW_JOBS | {
    "jobs.progress",
    "papers.cells",
    "papers.published_adp_sgd",
    "papers.published_dp_agd",
}
MAY_IMPORT["cli"] = BELOW_JOBS | {"jobs", "papers", "audit"}
# The core is words: it needs arrays and nothing else from outside.
CORE_THIRD_PARTY = {"numpy"}
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
                # `from privypurse.accounting import gdp` imports the module gdp.
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


@pytest.mark.parametrize("path", [path for path in FILES if room(path)], ids=lambda p: str(p.relative_to(SOURCE)))
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
    """And by the audits' ear at the gate, on made-up tables, outside of any guarantee."""
    openers = {
        str(path.relative_to(SOURCE)) for path in FILES if any(node.attr == "_value" for node in attributes(path))
    }
    assert {opener for opener in openers if not opener.startswith("mechanisms")} == {
        "core/sensitive.py",
        "audit/listening.py",
    }
    assert openers - {"core/sensitive.py", "audit/listening.py"} == {
        "mechanisms/gaussian.py",
        "mechanisms/torch_gaussian.py",
        "mechanisms/selection.py",
        "mechanisms/non_private.py",
        "mechanisms/perturbed_minimiser.py",
        "mechanisms/repeat_and_select.py",
    }


def test_nobody_reaches_for_the_box_by_another_name():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if path.relative_to(SOURCE).parts != ("core", "sensitive.py"):
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
    """`draw` is called in one place: after payment. Audits listen in between: the purse draws through their ear."""
    callers = {str(path.relative_to(SOURCE)) for path in FILES if any(node.attr == "draw" for node in attributes(path))}
    assert callers == {"purse/purse.py", "audit/listening.py"}


def test_help_is_quick():
    """A person who asks for help does not wait for compilers."""
    code = "import sys, privypurse.cli.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not (HEAVY - {"typer", "rich"}) & {module.split(".")[0] for module in loaded}


def test_no_file_is_too_long_to_find_your_way():
    for path in FILES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 450, path


def test_importing_the_library_loads_nothing_heavy():
    code = "import sys, privypurse; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not HEAVY & {module.split(".")[0] for module in loaded}
