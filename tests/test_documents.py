"""Documents keep their promises: examples run, numbers and links point at something."""

import dataclasses
import doctest
import os
import pathlib
import re
import runpy
import subprocess
import sys

import pytest

from privypurse import methods
from privypurse import methods as baselines
from tests.each import each

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILT = {"_build", "api", "jupyter_execute"}  # what building the site leaves in docs/
PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for page in ROOT.glob("docs/**/*.md") if not BUILT & set(page.relative_to(ROOT).parts))]
)


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda p: p.name)
def test_examples_run(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert "differentially private" in capsys.readouterr().out


@each("page", PAGES)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


GLOSSARY = runpy.run_path(str(DOCS / "link_glossary.py"))


@each("page", GLOSSARY["pages"]())
def test_the_first_use_of_a_term_links_to_the_glossary(page):
    text = page.read_text(encoding="utf-8")
    unlinked = {term: use[0] for term, use in GLOSSARY["unlinked"](text).items()}
    assert not unlinked, f"{page.name}: run `python docs/link_glossary.py`"
    headings = [term.replace(" ", "-") for term in GLOSSARY["terms"]()]
    assert set(re.findall(r"glossary\.md#([\w-]+)", text)) <= set(headings)


def test_a_first_use_without_a_link_is_found_and_mended():
    text = "# Budget\n\nA budget of `epsilon` 1, *and a Purse*. Two\nclip norms, one budget.\n"
    assert list(GLOSSARY["unlinked"](text)) == ["budget", "clip norm"]
    mended = GLOSSARY["linked"](text, "glossary.md")
    assert "A [budget] of `epsilon` 1, *and a Purse*. Two\n[clip norms][clip norm], one budget." in mended
    assert mended.endswith("\n\n[budget]: glossary.md#budget\n[clip norm]: glossary.md#clip-norm\n")
    assert not GLOSSARY["unlinked"](mended)


@each("page", PAGES)
def test_files_named_in_pages_exist(page):
    for name in re.findall(r"`((?:tests|benchmarks|docs|examples|src)/[\w./:]+)", page.read_text(encoding="utf-8")):
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), f"{page.name} names {path}"
        assert not test or test in (ROOT / path).read_text(encoding="utf-8")


NAMED = {
    "adp_sgd": [methods.ADPSGD],
    "auto": [methods.Auto],
    "baselines": [
        baselines.ObjPert,
        baselines.OutPert,
        baselines.PrivGene,
        baselines.FiniteModels,
        baselines.NonPrivate,
    ],
    "dp_agd": [methods.DPAGD],
    "dp_sgd": [methods.DPSGD],
    "dynamic": [methods.Dynamic],
    "nesterov": [methods.Nesterov],
    "noisy_pgd": [methods.NoisyPGD],
    "pur": [methods.PUR, methods.AdaptivePUR, methods.OraclePUR],
}


def test_every_method_has_a_page():
    assert {page.stem for page in ROOT.glob("docs/methods/*.md")} == set(NAMED)
    described = {method.__name__ for listed in NAMED.values() for method in listed}
    assert described == {*methods.__all__, *baselines.__all__} - {"Majority"}  # which has no settings


@pytest.mark.parametrize("page", NAMED)
def test_a_page_lists_the_settings_of_its_method_with_their_defaults(page):
    text = (DOCS / "methods" / f"{page}.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| setting[^\n]*\n\|[ \-|]+\n((?:\|[^\n]*\n)+)", text, flags=re.MULTILINE)
    listed = [re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`)?", table, flags=re.MULTILINE) for table in tables]
    expected = [[(field.name, _default(field)) for field in dataclasses.fields(method)] for method in NAMED[page]]
    assert listed == expected


def _default(field):
    if field.default is dataclasses.MISSING:
        return ""
    return f'"{field.default}"' if isinstance(field.default, str) else repr(field.default)


@each("page", PAGES)
def test_figures_say_in_words_what_they_show(page):
    for words in re.findall(r"!\[([^\]]*)\]\(", page.read_text(encoding="utf-8")):
        assert len(words) > 15, f"{page.name} has a figure without words"


def test_every_page_is_in_the_menu():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {line for line in index.splitlines() if re.fullmatch(r"[\w/-]+", line)}
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES if DOCS in page.parents}
    notebooks = {f"notebooks/{path.stem}" for path in ROOT.glob("docs/notebooks/*.ipynb")}
    assert listed == (pages | notebooks) - {"index"}


def test_the_changelog_has_its_heading():
    assert "### Changes to guarantees" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


CONSOLE = re.compile(
    r"(?:<!-- (?:needs: (?P<needs>\S+)|(?P<one_run>numbers of one run)) -->\s+)?^```console\n(?P<lines>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
WITH_COMMANDS = [page for page in PAGES if CONSOLE.search(page.read_text(encoding="utf-8"))]


def commands(text):
    """What is typed, and what it should print: as in a doctest, three dots stand for anything."""
    for block in CONSOLE.finditer(text):
        for part in re.split(r"^\$ ", block["lines"], flags=re.MULTILINE)[1:]:
            typed, _, printed = part.partition("\n")
            command, _, remark = typed.partition("    # ")
            code = re.search(r"exit code (\d+)", remark)
            yield block["needs"], bool(block["one_run"]), command, printed, int(code[1]) if code else 0


NUMBER = re.compile(r"\d[\d,]*\.?\d*")


def nearly(printed, output):
    """Whether texts are equal but for numbers, and these differ by no more than noise may."""
    texts, numbers = zip(
        *(([*NUMBER.sub("#", each).split()], NUMBER.findall(each)) for each in (printed, output)), strict=True
    )
    pairs = [[float(number.replace(",", "")) for number in pair] for pair in zip(*numbers, strict=False)]
    return texts[0] == texts[1] and all(abs(a - b) <= 0.1 + 0.15 * max(a, b) for a, b in pairs)


def test_numbers_of_one_run_may_differ_and_words_may_not():
    assert nearly("accuracy 84.1 % (81.0 % to 87.2 %) of 2,950", "accuracy 83.3 % (80.2 % to\n86.4 %) of 3,012")
    assert not nearly("accuracy 84.1 %", "accuracy 24.1 %")
    assert not nearly("accuracy 84.1 %", "recall 84.1 %")
    assert not nearly("spent 1 of 3", "spent 1")


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_in_pages_run_and_print_what_they_say(page, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    ran = 0
    for needs, one_run, command, printed, code in commands(page.read_text(encoding="utf-8")):
        if needs and not (pathlib.Path(os.environ.get("PRIVYPURSE_DATA", "")) / needs).exists():
            continue
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1_800,
            check=False,
        )
        assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
        same = checker.check_output(printed, done.stdout, flags) or (one_run and nearly(printed, done.stdout))
        assert same, f"{command}\n{done.stdout}\ninstead of\n{printed}"
        ran += 1
    assert ran >= 3
