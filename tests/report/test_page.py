"""The page as text: every section is there, nothing that people wrote becomes markup, and odd runs
have a report too.
"""

import dataclasses
import html
import html.parser
import itertools
import json
import math
import pathlib
import re

import numpy as np
import pytest

from privypurse.core._formats import NO_PROTECTION_EPSILON, WEAK_EPSILON, grouped
from privypurse.report import _figures as figures
from privypurse.report import _html as markup
from privypurse.report import _words as words
from privypurse.report._comparisons import render_comparison
from privypurse.report._content import Coefficient, Comparison, Entry, Estimate, Measurement, Term
from privypurse.report._page import render
from privypurse.runs._estimates import Cells, Noise, class_estimates, errors
from privypurse.training._trace import Step, Trace
from tests.report.contents import NASTY, content, fitted, not_private

pytest.importorskip("plotly")
VOID = {"meta", "link", "br", "rect", "input"}


class Reader(html.parser.HTMLParser):
    """Collects the text that people see, the tags, and whether every tag that opens also closes."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.texts, self.ids = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, text):
        if not {"script", "style", "title"} & set(self.open):
            self.texts.append(text)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.texts))


@pytest.fixture(scope="module")
def plain():
    return Reader(render(content()))


def test_released_values_have_their_sensitivity_and_noise_and_answers_are_shown(plain):
    group = next(one for one in fitted("plain").certificate_.groups if one.kind == "gaussian")
    row = f"{group.count} {grouped(group.smallest)} {grouped(group.least_sensitivity)} {grouped(group.least_noise_std)}"
    assert row in plain.text
    assert "What people stated" not in plain.text
    certificate = dataclasses.replace(fitted("plain").certificate_, statement={"unit": "one patient <b>"})
    stated = Reader(render(content(certificate=certificate)))
    assert "What one record is, and how many of them one person may have one patient <b>" in stated.text
    assert "Why this epsilon not stated" in stated.text


def drawn(page):
    """The figures as the script reads them."""
    return json.loads(re.search(r'id="figures">(.*?)</script>', page).group(1))


def test_the_first_thing_said_is_the_status_and_the_guarantee(plain):
    text = plain.text
    assert text.index("PRIVATE") < text.index("income, from a table") < text.index("Whatever an attacker already knows")
    assert "at most a factor of 1.65, apart from a chance of at most 1 in 1,000,000." in text
    assert "adding or taking away one person's record" in text
    assert "at most 62.3 % of the time" in text
    assert "(0.5, 0.000001)-differentially private under the relation add-remove" in text


def test_every_section_is_there(plain):
    for heading in (
        *(
            "What the guarantee covers",
            "It does not cover",
            "Quality of the model",
            "Spending of the training",
            "The model",
        ),
        *(
            "The budget of the data set",
            "Released or declared before training",
            "Settings to reproduce it",
            "How to verify it",
        ),
    ):
        assert heading in plain.text
    certificate = fitted().certificate_
    for uncovered in certificate.uncovered:
        assert words.sentence(uncovered) in plain.text
    assert "privypurse ledger verify --ledger budget.db" in plain.text
    assert certificate.ledger_digest in plain.text
    assert "privypurse fit table.csv --epsilon 0.5" in plain.text
    assert 'kind = "number"' in plain.text
    assert "2,004 (noisy release, within about 60)" in plain.text
    assert "Rehearsed 200 times." in plain.text
    assert "made all planned steps" in plain.text


def test_it_is_well_formed(plain):
    assert plain.open == []
    assert len(plain.ids) == len(set(plain.ids))
    linked = [attributes["href"][1:] for tag, attributes in plain.tags if tag == "a"]
    assert set(linked) <= set(plain.ids)
    headings = [int(tag[1]) for tag, _ in plain.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(headings))


def test_every_plot_has_its_words_and_its_table(plain):
    figures_drawn = drawn(render(content()))
    assert [one["key"] for one in figures_drawn] == [
        *("plot-classes-0", "plot-calibration-0"),
        *("plot-budget", "plot-noise", "plot-steps", "plot-coefficients", "plot-runs"),
    ]
    for one in figures_drawn:
        assert one["drawings"][0]["caption"] in plain.text
        label = next(attributes["aria-label"] for _, attributes in plain.tags if attributes.get("id") == one["key"])
        assert one["drawings"][0]["caption"] in label
        for series, said in zip(one["drawings"][0]["data"], one["drawings"][0]["spoken"], strict=True):
            assert len(series["x"]) == len(series["y"]) == len(said)
    assert "Noise on each sum (gradient) is even" in plain.text
    assert "the step size falls from 4 to 1" in plain.text
    assert sum(tag == "table" for tag, _ in plain.tags) == 10


def test_the_budget_is_what_the_purse_says(plain):
    found = figures.spent_before_and_after(fitted().trace_, fitted().certificate_)
    assert found is not None
    steps, spent = found
    assert steps[0] == 0
    assert 0 < spent[0] < spent[-1]
    assert spent[-1] == pytest.approx(fitted().privacy_spent_.epsilon, rel=1e-6)
    assert all(after >= before for before, after in itertools.pairwise(spent))


def test_nothing_that_people_wrote_becomes_markup():
    model = fitted()
    certificate = dataclasses.replace(
        model.certificate_,
        **{
            "dataset": NASTY,
            "people": (NASTY,),
            "issued_by": NASTY,
            "uncovered": (NASTY,),
            "theorem": NASTY,
            "noise": NASTY,
        },
        **{"ledger": NASTY, "part_of": NASTY, "ledger_digest": NASTY},
        groups=tuple(dataclasses.replace(group, what=NASTY) for group in model.certificate_.groups),
    )
    steps = [dataclasses.replace(step, query=NASTY) for step in model.trace_.steps]
    run = {"when": NASTY, "who": NASTY, "what": NASTY, "releases": 3}
    measurement = Measurement(
        **{"metric": NASTY, "value": 0.5, "on": NASTY, "paid": False, "when": NASTY},
        compared_with=((NASTY, 0.4),),
        details=((NASTY, 0.3),),
    )
    page = render(
        content(
            **{
                "title": NASTY,
                "task": NASTY,
                "certificate": certificate,
                "trace": Trace(steps, NASTY),
                "method": NASTY,
            },
            budget={**content().budget, "dataset": NASTY, "ledger": NASTY, "runs": [run]},
            prepared=((NASTY, NASTY),),
            measurements=(measurement,),
            coefficients=(
                Coefficient(name=NASTY, output=NASTY, value=1.0),
                Coefficient(name="b", output="c", value=2.0),
            ),
            **{"coefficients_note": NASTY, "settings": (("command", NASTY), (NASTY, NASTY)), "schema": NASTY},
        )
    )
    reader = Reader(page)
    assert reader.open == []
    # The data, the drawing library, the page's own two scripts; and no tag that came in with a
    # name.
    assert sum(tag == "script" for tag, _ in reader.tags) == 4
    assert not any(
        tag == "b" and reader for tag, _ in reader.tags[reader.tags.index(("main", {"id": "main", "tabindex": "-1"})) :]
    )
    assert page.count("<script>alert") == 0
    assert reader.text.count("<script>alert('x')</script>") > 20
    assert drawn(page)


def test_a_label_that_plotly_would_read_as_markup_is_escaped():
    figure = figures.coefficients(content(coefficients=(Coefficient(name="<b>x</b> & y", value=1.0),)))
    assert figure.drawings[0].layout["yaxis"]["ticktext"] == ["&lt;b&gt;x&lt;/b&gt; &amp; y"]


def test_scripts_and_data_cannot_end_their_element():
    assert "</" not in markup.embedded_json({"a": "</script><!--"})
    assert json.loads(markup.embedded_json({"a": "</script>", "b": math.inf})) == {"a": "</script>", "b": None}
    assert "</script" not in markup.embedded_script('x = "</script>"').lower()


def test_it_allows_its_own_scripts_and_no_network(plain):
    policy = next(a["content"] for tag, a in plain.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert policy.count("'sha256-") == 3
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    assert not any("src" in attributes for _, attributes in plain.tags)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "replace-one",
            ("changing what one person's record says", "Under add-remove: not stated; the number of records is public"),
        ),
        ("weak", ("very large, so this guarantee is weak", "factor of 163,000")),
        ("simulation", ("NOT PRIVATE: simulation", "No guarantee: the noise was seeded", "would count if")),
        ("allowance", ("one part of what was released", "a purse with epsilon 1, which had spent 0.1")),
        ("line search", ("No standard deviation is shown for", "another step did not fit")),
        ("classes", ("Output 0 1 2", "coefficients of output 0")),
    ],
)
def test_runs_of_other_kinds(kind, said):
    text = Reader(render(content(kind))).text
    for words_of_it in said:
        assert words_of_it in text


def test_a_run_that_is_not_private_says_so_first():
    text = Reader(render(not_private())).text
    assert text.index("NOT PRIVATE") < text.index("No guarantee: values were released without a limit")
    assert "This purse has no limit, so there is no budget to plot." in text
    assert "It covers Nothing: there is no guarantee." in text
    assert "differentially private" not in text.partition("How to verify it")[0]


def test_nothing_measured_tells_how():
    assert (
        "The quality of this model was not measured. Score it on records"
        in Reader(render(content(measurements=()))).text
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"paid": True, "epsilon": 0.05}, "paid for from this budget, epsilon 0.05"),
        ({"paid": False, "public": True}, "on public records: costs nothing"),
        ({"paid": False}, "NOT covered by the guarantee"),
    ],
)
def test_who_paid_for_a_measurement(settings, said):
    measurement = Measurement(metric="accuracy", value=0.7, on="test.csv", **settings)
    text = Reader(render(content(measurements=(measurement,)))).text
    assert text.count(said) == 2
    assert ("Measured exactly" in text) == (not settings["paid"] and not settings.get("public", False))


def test_a_comparison_that_shows_no_difference_says_so():
    settings = {"metric": "accuracy", "value": 0.7, "on": "x", "paid": True, "low": 0.6, "high": 0.8}
    assert "shows no difference" in words.comparison(Measurement(**settings), "majority", 0.62)
    assert "20.0 points HIGHER" in words.comparison(Measurement(**settings), "majority", 0.9)
    error = Measurement(**{**settings, "metric": "mean absolute error", "value": 3.5, "low": 3.0, "high": 4.0})
    assert words.comparison(error, "the mean", 5.0) == "the mean: 5"


def test_classes_are_shown_with_intervals_a_matrix_and_their_calibration(plain):
    text = plain.text
    assert "Accuracy is 76.7 %, and with 95 % confidence between 73.1 % and 79.9 %" in text
    assert "Always the most frequent class: 60.0 % (56.0 % to 63.8 %). The model is better by 16.7 points" in text
    for said in ("91.7 % (88.4 % to 94.1 %)", "81.2 % (74.5 % to 86.5 %)", "predicted low", "55.0 %", "18.3 %"):
        assert said in text
    assert "Of the records with a predicted probability of 'low' in a range" in text
    assert "Too few records, or too noisy, to say: 1 more range." in text
    calibration = next(one for one in drawn(render(content())) if one["key"] == "plot-calibration-0")
    boxes = [shape for shape in calibration["drawings"][0]["layout"]["shapes"] if shape["type"] == "rect"]
    assert [(box["x0"], box["x1"]) for box in boxes] == [(0, 10), (10, 30), (30, 50), (50, 70)]
    assert boxes[0]["y0"] < 100 * 20 / 220 < boxes[0]["y1"]


def a_measurement(classes, table, cells, **settings):
    figures = class_estimates(classes, np.array(table, dtype=float), cells, Noise.none(np.shape(table)))
    return Measurement(metric="accuracy", on="t", paid=True, **figures, **settings)


def test_a_class_without_records_is_named_and_not_drawn():
    table = [[50, 5, 0], [9, 40, 0], [0, 0, 0]]
    page = render(content(measurements=(a_measurement(["a", "b", NASTY], table, Cells(np.arange(3))),)))
    text = Reader(page).text
    assert f"Too few records, or too noisy, to say: {NASTY}." in text
    assert f"predicted {NASTY}" in text
    (bars,) = (one for one in drawn(page) if one["key"] == "plot-classes-0")
    assert bars["drawings"][0]["data"][0]["x"][2] == 0
    assert "&lt;script&gt;" in bars["drawings"][0]["layout"]["yaxis"]["ticktext"][2]


def test_counts_of_right_and_wrong_answers_only_have_no_matrix():
    measured = a_measurement(["a", "b", "c"], [[50, 5], [9, 40], [3, 4]], Cells(None))
    text = Reader(render(content(measurements=(measured,)))).text
    assert "too many classes for so few records" in text
    assert "Confusion matrix" not in text
    assert "Precision" not in text


def test_a_regression_is_compared_with_its_median():
    sums = np.array([0.4 * 1_000, 200.0, 57.6, 150.0, 150.0, 130.0])
    found = errors(sums, 5.0, 0.0, 0.0)
    estimates = (Estimate(kind="R2", **found["r2"]), Estimate(kind="always the median", **found["constant"]))
    measured = Measurement(
        **{
            "metric": "mean absolute error",
            "on": "t",
            "paid": True,
            "estimates": estimates,
            "note": "Errors above 5 count as 5.",
        },
        **{**found["error"], "compared_with": (("always the median", found["constant"]["value"]),)},
    )
    text = Reader(render(content(measurements=(measured,)))).text
    assert "Mean absolute error is 1, and with 95 % confidence between 0.958" in text
    assert "Always the median: 1.5 (1.438 to 1.562)." in text
    assert "R\u00b2, the share of the variance of the target that the model explains: 0.56 (" in text
    assert "Errors above 5 count as 5." in text


def test_a_measurement_of_an_earlier_version_is_shown():
    earlier = Measurement(
        **{"metric": "accuracy", "value": 0.81, "low": 0.78, "high": 0.84, "on": "t", "paid": True, "epsilon": 0.05},
        compared_with=(("always the most frequent class", 0.62),),
        details=(("found among 'high'", 0.61),),
    )
    text = Reader(render(content(measurements=(earlier,)))).text
    assert "62.0 %, which is 19.0 points lower" in text.replace("\u00a0", " ")
    assert "found among 'high'" in text


def test_a_schema_nobody_declared_is_a_warning():
    warning = "The description of the columns was not declared public."
    assert warning not in Reader(render(content())).text
    assert warning in Reader(render(content(schema_declared=False))).text


def test_selections_only_and_nothing_else():
    charge = {"kind": "bounded-range", "epsilon": 0.01, "sample_prob": 1.0}
    trace = Trace([Step(place + 1, "LossesAt", charge, None, 1.0, 0.9 - 0.1 * place) for place in range(5)], "steps")
    page = render(content(trace=trace, step_sizes=(), measurements=()))
    text = Reader(page).text
    assert "No release of this training has Gaussian noise to plot" in text
    assert "There are no step sizes to plot" in text
    assert "10.0 % of the limit was spent after the first step, 50.0 % after step 5" in text
    assert [one["key"] for one in drawn(page)] == ["plot-budget", "plot-coefficients", "plot-runs"]


def test_no_step_at_all():
    page = render(content(trace=Trace([], "budget"), step_sizes=(), measurements=()))
    assert [one["key"] for one in drawn(page)] == ["plot-coefficients", "plot-runs"]
    assert "No step is on record" in page


def test_long_runs_and_wide_models_stay_small():
    step = fitted().trace_.steps[0]
    steps = [dataclasses.replace(step, number=place + 1, fraction_left=1 - place / 10_000) for place in range(10_000)]
    wide = tuple(Coefficient(name=f"column {place}", value=math.sin(place)) for place in range(500))
    page = render(content(trace=Trace(steps, "steps"), step_sizes=tuple(range(10_000)), coefficients=wide))
    by_key = {one["key"]: one["drawings"][0]["data"][0] for one in drawn(page)}
    assert len(by_key["plot-noise"]["x"]) <= 1000
    assert by_key["plot-steps"]["x"][-1] == 10_000
    assert len(by_key["plot-coefficients"]["x"]) == 25
    assert "60 of 10,000 steps, evenly spread" in page
    text = Reader(page).text
    assert "The 25 largest of 500 coefficients" in text
    assert "column 499" in text
    assert len(page) - len(render(content())) < 500_000


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.1])
def test_the_bound_on_guesses_is_reached_and_never_passed(epsilon, delta):
    bound, e = words.right_guesses(epsilon, delta), math.exp(epsilon)
    assert bound == pytest.approx((e + delta) / (1 + e))
    grid = [place / 400 for place in range(401)]
    allowed = [(p + 1 - q) / 2 for p in grid for q in grid if p <= e * q + delta and 1 - q <= e * (1 - p) + delta]
    assert bound - 0.01 <= max(allowed) <= bound + 1e-12


def test_numbers_are_never_on_the_flattering_side():
    assert words.rounded_up(0.50001) == "0.5001"
    assert words.factor(1.0) == "2.72"
    assert words.percent_up(0.73101).split() == ["73.2", "%"]
    assert words.chance(3e-6).split() == ["1", "in", "333,000"]
    assert words.right_guesses(5000.0, 0.0) == 1.0


@pytest.mark.parametrize(
    ("epsilon", "declared", "badge", "style"),
    [
        (WEAK_EPSILON, True, "PRIVATE", "calm"),
        (9.0, True, "WEAK: epsilon 9 protects little", "caution"),
        (1.0, False, "WEAK: schema read from the data", "caution"),
        (9.0, False, "WEAK: epsilon 9 protects little, schema read from the data", "caution"),
        (NO_PROTECTION_EPSILON, True, "WEAK: epsilon 50 protects little", "caution"),
        (1e6, True, "NOT PRIVATE: epsilon 1,000,000 protects nothing", "alarm"),
        (1e6, False, "NOT PRIVATE: epsilon 1,000,000 protects nothing", "alarm"),
    ],
)
def test_the_badge_has_three_states(epsilon, declared, badge, style):
    certificate = dataclasses.replace(fitted().certificate_, epsilon=epsilon)
    page = render(content(certificate=certificate, schema_declared=declared))
    assert f'<span class="badge {style}">{badge}</span>' in page
    for said in ("No protection: with epsilon 1,000,000", "Nothing: epsilon 1,000,000 protects nothing."):
        assert (said in page) == (epsilon > NO_PROTECTION_EPSILON)


def test_documents_state_the_limits_of_the_badge():
    docs = pathlib.Path(__file__).parents[2] / "docs"
    limits = f"epsilon {WEAK_EPSILON:g}", f"epsilon {NO_PROTECTION_EPSILON:g}"
    for page in ("epsilon.md", "command_line.md"):
        text = (docs / page).read_text(encoding="utf-8").partition("badge")[2]
        assert all(limit in text for limit in limits), page


def test_a_comparison_at_one_epsilon_has_a_line_for_each_method():
    entries = (Entry("auto", 0.5, 0.84, 0.01), Entry("dp-agd", 0.5, 0.83, 0.02), Entry("plain", None, 0.85, 0.0))
    page = render_comparison(Comparison("accuracy", False, "NOT PRIVATE", 3, entries), "income")
    (figure,) = drawn(page)
    (drawing,) = figure["drawings"]
    assert figure["title"] == "Methods at epsilon 0.5"
    assert [series["y"] for series in drawing["data"]] == [[0], [1], [2]]
    assert drawing["layout"]["yaxis"]["ticktext"] == ["auto", "dp-agd", "plain"]
    assert drawing["spoken"][2] == ["plain, not private: 85"]
    assert "The best of the private ones is auto, with 84." in drawing["caption"]


def test_one_large_coefficient_does_not_squash_the_others():
    small = [Coefficient(name=f"column {place}", value=0.1 * place - 0.5, low=-0.6, high=0.6) for place in range(11)]
    for large in (400.0, -400.0):
        added = Coefficient(name="income", value=large, low=large - 9, high=large + 9)
        drawing = figures.coefficients(content(coefficients=(added, *small))).drawings[0]
        left, right = drawing.layout["xaxis"]["range"]
        assert -3 < left < drawing.data[0]["x"][0] < right < 3
        assert [one["text"] for one in drawing.layout["annotations"]] == [grouped(large)]
        assert "Triangles mark 1 beyond the edge" in drawing.caption
        assert f"income: {grouped(large)}" in drawing.spoken[0][0]
    zeros = [Coefficient(name=f"column {place}", value=0.0) for place in range(9)]
    mostly_zero = figures.coefficients(content(coefficients=(Coefficient(name="one", value=7.0), *zeros))).drawings[0]
    assert mostly_zero.data[0]["x"][0] == 7.0
    plain = figures.coefficients(content(coefficients=tuple(small))).drawings[0]
    assert not plain.layout["annotations"]
    assert "Triangles" not in plain.caption


def test_knots_of_dates_are_written_as_dates():
    days = Term(name="admitted", first=1, count=1, at=(0.0, 86_400.0 * 366), dates=True, shares=(0.5, 0.5))
    assert figures._places(days) == ["1970-01-01", "1971-01-02"]
    assert figures._places(dataclasses.replace(days, dates=False, at=(0.0, 31_622.4))) == ["0", "31,622"]
