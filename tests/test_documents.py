"""Documents keep their promises: examples run, numbers and links point at something."""

import pathlib
import re
import runpy

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda p: p.name)
def test_examples_run(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert "differentially private" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_named_in_pages_exist(page):
    for name in re.findall(r"`((?:tests|benchmarks|docs|examples|src)/[\w./:]+)", page.read_text(encoding="utf-8")):
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), f"{page.name} names {path}"
        assert not test or test in (ROOT / path).read_text(encoding="utf-8")


def test_the_changelog_has_its_heading():
    assert "### Changes to guarantees" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
