"""The public names: one list, in docs/reference.md, which the packages export and the documents
use.
"""

import importlib
import pathlib
import re

from tests.each import each

import privypurse

ROOT = pathlib.Path(__file__).parents[2]
SOURCE = pathlib.Path(privypurse.__file__).parent
LISTED = re.findall(r"^   ([\w.]+)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
# Where a name stands that needs a package which `make test` does not install.
NEEDS_MORE = ("oracles.DaskOracle", "pytorch.integrations.hugging_face", "pytorch.integrations.lightning")
# A page shows how to make a table of that delta.
ALSO_IN_DOCUMENTS = {"audit.subjects.DELTA", "audit.subjects.Subject", "accounting.calibrate", "__version__"}


def exported():
    """Return the names in `__all__` of each package, by package."""
    for path in sorted(SOURCE.rglob("__init__.py")):
        package = ".".join(path.parent.relative_to(SOURCE.parent).parts)
        names = re.search(r"^__all__ = \[(.*?)\]", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        if names:
            yield package, re.findall(r'"(\w+)"', names[1])


def found(name):
    module, _, last = f"privypurse.{name}".rpartition(".")
    return getattr(importlib.import_module(module), last)


def test_the_list_is_short_and_names_nothing_twice():
    assert len(LISTED) == len(set(LISTED)) <= 144


@each("name", [name for name in LISTED if not name.startswith(NEEDS_MORE)])
def test_listed_names_exist_and_are_documented(name):
    assert found(name).__doc__


def test_packages_export_what_is_listed():
    """A name that the top package exports is listed once, there."""
    for package, names in exported():
        inner = package.removeprefix("privypurse").lstrip(".")
        own = [name for name in LISTED if name.rpartition(".")[0] == inner and name != "training.schedules.shapes"]
        missing = {f"{inner}.{name}".lstrip(".") for name in names} - set(own) - {"__version__"}
        assert all(name.rpartition(".")[2] in privypurse.__all__ for name in missing), f"{package}: {missing}"
        assert {name.rpartition(".")[2] for name in own} <= set(names), package


def test_documents_use_listed_names_only():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.ipynb"), *ROOT.glob("examples/*.py")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(r"from privypurse((?:\.\w+)*) import ([\w, ]+)", text):
            for name in names.split(", "):
                full = f"{module}.{name.strip()}".lstrip(".")
                listed = full in LISTED or full in ALSO_IN_DOCUMENTS or full.rpartition(".")[2] in privypurse.__all__
                assert listed, f"{page.name} uses {full}, which docs/reference.md does not list"
