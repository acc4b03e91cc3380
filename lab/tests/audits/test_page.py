"""The pages of an audit: everything is on them, no network is asked, and they are readable on a
phone and in the dark.
"""

import json
import re
import shutil

import pytest

from privypurse.audit import Line
from privypurse.core._errors import FileUnusable
from privypurse_lab.audits import as_expected
from privypurse_lab.audits.html_page import as_html
from privypurse_lab.audits.page import AuditReport, as_json, as_markdown, evidence, number, planted_bugs, write_pages

NASTY = "</script><b>&\"'|`name"


def bounded(subject, kind="method", audit="white box", mu=3.0, shown=2.0, verdict="holds", **more):
    numbers = {"claimed_epsilon": 18.16, "shown_epsilon": 1.7, "ceiling_mu": 3.116, "trials": 120}
    given = numbers | {"delta": 1e-6, "confidence": 0.95} | more
    return Line(subject, kind, audit, claimed_mu=mu, shown_mu=shown, verdict=verdict, **given)


LINES = (
    bounded("nesterov", mu=1.0, shown=0.62, claimed_epsilon=4.89, ceiling_mu=5.009, trials=1_200),
    bounded("nesterov", shown=2.347),
    bounded("nesterov", audit="black box", shown=0.9),
    bounded("nesterov", audit="one run", shown=1.36, trials=1_200),
    bounded("perturbed", audit="black box", shown=0.4, ceiling_mu=2.393, verdict="too small"),
    Line("perturbed", "method", "noise", verdict="not run", findings=("no Gaussian release",)),
    Line("nesterov", "method", "gray box", trials=156),
    Line("nesterov", "method", "noise", trials=1_872),
    bounded(NASTY, kind="estimator", shown=1.9),
    Line("pytorch", "pytorch", "not run", verdict="not run", findings=("PyTorch is not here",)),
    Line(
        "permute-and-flip (3)", "mechanism", "enumeration", claimed_epsilon=1, shown_epsilon=1, delta=0.0, confidence=1
    ),
    bounded("noise-halved", kind="mutant", shown=4.1, verdict="REFUTED"),
    bounded("noise-halved", kind="without the bug", shown=2.1),
    Line("private-divisor", "mutant", "gray box", trials=9, verdict="REFUTED", findings=("first", "second", "third")),
    Line("private-divisor", "without the bug", "gray box", trials=9),
    Line("ADP-SGD", "as published", "white box", claimed_epsilon=1.0, shown_epsilon=2.1, verdict="REFUTED"),
    Line("Gaussian noise", "naive", "rounding", claimed_epsilon=1.0, shown_epsilon=6.0, verdict="REFUTED"),
    Line("Gaussian noise, exact", "exact noise", "rounding", claimed_epsilon=1.0, shown_epsilon=0.2),
)


def report(*more, lines=LINES, secure=True, floating=("perturbed",), waived=()):
    return AuditReport(
        (*lines, *more),
        "privypurse audit all",
        7,
        False,
        secure,
        "ab" * 32,
        (1.0, 3.0),
        (1_200, 400),
        "2026-01-02",
        floating,
        waived,
    )


@pytest.mark.parametrize("write", [as_markdown, as_html], ids=["markdown", "html"])
def test_bounds_claims_and_how_it_was_made_are_on_the_page(write):
    page = write(report(), as_expected)
    for said in (
        "nesterov",
        "0.62",
        "2.34",
        "1.36",
        "0.90",
        "2.34 of at most 3.11",
        "156 releases",
        "1,872 numbers",
        "mu 3 (epsilon 18.2)",
        "95 %",
    ):
        assert said in page
    for said in (
        "half of the standard deviation",
        "mu is at least 4.10, claimed 3",
        "first; and 2 more",
        "PyTorch is not here",
    ):
        assert said in page
    for said in (
        "epsilon is at least 2.10, claimed 1",
        "2026-01-02",
        "privypurse audit all",
        "abababab",
        "1,200 at mu 1 and 120 at mu 3",
        "not run: no Gaussian release",
        "perturbed (plain noise)",
        "secure: exact arithmetic; but plain, in floating point, where there is no exact one: perturbed",
        "0.40 of at most 2.39",
        "too small",
        "caught, silent without it",
    ):
        assert said in page
    assert "does not prove the claim" in page
    assert (
        "8 of 8 audits of what is claimed to be private hold (7 are of whole subjects, 1 of single mechanisms)" in page
    )
    assert "; 1 more was too small to say anything;" in page
    assert "2 of 2 planted bugs are caught" in page
    assert "1 of 1 unsound publications are refuted" in page
    assert "2 of 2 attacks on last digits" in page


def test_runs_are_said_in_words():
    not_run = bounded("blind", mu=2.0, shown=float("nan"), trials=0, verdict="not run")
    lines = [bounded("one", mu=mu, trials=runs) for mu, runs in ((1.0, 1_200), (2.0, 400), (3.0, 400), (4.0, 800))]
    said = dict(report(lines=(not_run, *lines)).about())["runs"]
    assert said == "of each subject, 1,200 at mu 1, 400 at mu 2 and 3 and 800 at mu 4; delta 1e-06"
    said = dict(report(bounded("two", trials=240), lines=[bounded("one")]).about())["runs"]
    assert said == "of each subject, 120 to 240, by its kind, at mu 3; delta 1e-06"


@pytest.mark.parametrize("write", [as_markdown, as_html], ids=["markdown", "html"])
def test_what_is_waived_or_too_small_is_said_beside_the_white_box(write):
    page = write(report(waived=("range-scaler", "priv-gene")), as_expected)
    beside = page[page.index("White box: lower") : page.index("Black box: lower")]
    assert "charged for: range-scaler, priv-gene." in beside
    assert "would need at least 216 runs in the black box at mu 3." in beside
    assert "Not asked to show half" not in write(report(), as_expected)


def test_only_what_was_run_is_named():
    bugs = [line for line in LINES if line.kind in ("mutant", "without the bug")]
    page = as_markdown(report(lines=bugs, floating=()), as_expected)
    assert "Result: 2 of 2 planted bugs are caught." in page
    assert "| runs |" not in page
    assert "unsound publications" not in page
    assert "plain, in floating point, where" not in page
    assert "| noise | `plain: floating point` |" in as_markdown(report(secure=False, floating=()), as_expected)


@pytest.mark.parametrize(
    ("with_it", "without", "verdict"),
    [
        ("REFUTED", "holds", "caught, silent without it"),
        ("REFUTED", "REFUTED", "caught, but also found without it"),
        ("holds", "holds", "MISSED"),
        ("weak", "REFUTED", "MISSED"),
        ("REFUTED", "weak", "caught, but not known to be silent without it"),
        ("REFUTED", "too small", "caught, but not known to be silent without it"),
        ("REFUTED", "not run", "caught, but not known to be silent without it"),
        ("REFUTED", None, "caught, but not known to be silent without it"),
    ],
)
def test_one_verdict_for_each_planted_bug(with_it, without, verdict):
    control = () if without is None else (bounded("bug", kind="without the bug", verdict=without),)
    lines = (bounded("bug", kind="mutant", verdict=with_it), *control)
    assert [said for _, said in planted_bugs(lines)] == [verdict]
    assert f"{int(verdict == 'caught, silent without it')} of 1 planted bugs" in as_markdown(
        report(lines=lines), as_expected
    )


def test_markdown_tables_are_whole():
    for block in re.findall(r"(?:^\|.*\|$\n?)+", as_markdown(report(), as_expected), flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block


def test_json_has_every_line():
    said = json.loads(as_json(report(), as_expected))
    assert [Line.from_json(one).subject for one in said["lines"]] == [line.subject for line in LINES]
    assert said["passed"] is True
    assert json.loads(as_json(report(bounded("x", verdict="weak")), as_expected))["passed"] is False


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (bounded("leaky", shown=3.4, verdict="REFUTED"), "leaky, white box: refuted: mu is at least 3.40, claimed 3"),
        (
            bounded("quiet", shown=0.3, verdict="weak"),
            "quiet, white box: weak: mu is at least 0.30, claimed 3; run more",
        ),
        (bounded("missed", kind="mutant", shown=0.3), "missed, white box: should have been refuted, and was not"),
    ],
    ids=["refuted", "weak", "missed"],
)
def test_what_is_wrong_stands_at_the_top(wrong, said):
    page = as_html(report(wrong), as_expected)
    assert "NOT AS EXPECTED" in page
    assert said in page[: page.index("<nav")]
    assert "NOT AS EXPECTED" not in as_html(report(), as_expected)


def test_names_are_escaped_and_nothing_is_asked_of_a_network():
    page = as_html(report(), as_expected)
    assert NASTY not in page
    assert "&lt;/script&gt;&lt;b&gt;" in page
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)
    assert "default-src 'none'" in page
    assert len(page) < 100_000  # no library is in it


def test_numbers_on_the_page_say_what_they_count():
    page = as_html(report(), as_expected)
    assert "claimed to be private, in 8 audits; besides, single mechanisms in 1" in page
    assert "what is not private included, 8 give such a bound" in page
    assert "Every bound, in mu and epsilon: 6" in page
    assert "in one run it is converted from the bound on mu" in page


def test_a_bound_is_never_rounded_up():
    assert (number(2.9999), number(0.0), number(float("nan")), number(123.9)) == ("2.99", "0.00", "", "123")
    assert evidence(Line("x", "method", "gray box")) == "nothing"


def test_a_page_with_one_line_has_no_empty_section(tmp_path):
    (folder := tmp_path / "out").mkdir()
    write_pages(report(lines=[line for line in LINES if line.kind == "mechanism"]), folder, as_expected)
    page = (folder / "audit.html").read_text(encoding="utf-8")
    assert re.findall(r"<h2[^>]*>([^<]*)", page) == ["Enumerated and integrated", "Made with"]
    with pytest.raises(FileUnusable, match="Pass another folder"):
        write_pages(report(), tmp_path / "nowhere", as_expected)


# Of each table with a verdict that is not folded away: where its column ends, where the visible
# part of the table does, and how
# high the table may get.
VERDICTS = """[...document.querySelectorAll("main section > .scroll")].flatMap(box => {
  const head = [...box.querySelectorAll("thead th")].find(one => one.textContent === "verdict");
  return head ? [[head.getBoundingClientRect().right, box.getBoundingClientRect().right, getComputedStyle(box).maxHeight]] : [];
})"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_it_fits_a_phone_and_can_be_read(scheme, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    from tests.report.test_in_browser import CHROMIUM, LOW_CONTRAST, SETTINGS

    path = tmp_path / "audit.html"
    path.write_text(as_html(report(bounded("leaky", shown=3.4, verdict="REFUTED")), as_expected), encoding="utf-8")
    troubles, asked = [], []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=SETTINGS)
        for width in (360, 1280):
            context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, color_scheme=scheme)
            page = context.new_page()
            page.on("console", lambda message: troubles.append(message.text))
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on("request", lambda request: asked.append(request.url))
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            seen, low = page.evaluate(LOW_CONTRAST)
            assert seen > 100
            assert low == []
            bars = [bar.bounding_box() for bar in page.locator(".bars .scale").all()]
            assert len(bars) == 4
            assert all(bar["width"] > 90 for bar in bars)
            assert page.get_by_role("img", name="nesterov: mu at least 2.34 of 3; from final models 0.90").count() == 1
            assert not page.get_by_text("Arrow keys").first.is_visible()
            verdicts = page.evaluate(VERDICTS)
            assert len(verdicts) == 7
            assert all(right <= edge for right, edge, _ in verdicts), verdicts
            assert all(grows == "none" for _, _, grows in verdicts)
            context.close()
        browser.close()
    assert troubles == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
