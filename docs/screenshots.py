"""Take the pictures of a report that the documentation shows: a real fit on a made-up table, in a real browser.

Run from the root of the repository: ``python docs/screenshots.py``. It needs playwright and Chromium. With ``--html FILE``
it only writes the demo report.
"""

import argparse
import dataclasses
import pathlib
import shutil
import tempfile

import numpy as np

from privypurse.core.version import __version__
from privypurse.estimators import PrivateLogisticRegression
from privypurse.report import Coefficient, Measurement, ReportContent, render

FIGURES = pathlib.Path(__file__).parent / "figures"
CHROMIUM_SETTINGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# Name, width, height and scheme of each picture.
PICTURES = (
    ("report_desktop.png", 1280, 2300, "light"),
    ("report_dark.png", 1280, 1500, "dark"),
    ("report_phone.png", 390, 1700, "light"),
)
COLUMNS = (
    *("age", "hours a week", "years in the job", "years at school", "commute, minutes", "rooms", "children"),
    *("region = north", "region = south", "region = coast", "work = employed", "work = self-employed", "work = none"),
    *("owns a car", "lives alone", "studies"),
)
WEIGHTS = (0.4, 0.9, 0.5, 1.1, -0.3, 0.5, -0.1, 0.0, -0.2, 0.3, 0.6, 0.2, -1.2, 0.3, -0.4, -0.7)
SCHEMA = """[columns.age]
kind = "number"
lower = 18
upper = 90

[columns.region]
kind = "category"
categories = ["north", "south", "coast"]

[columns.income]
kind = "target"
classes = ["low", "high"]
"""


def demo() -> ReportContent:
    """Fit on a made-up table and describe the run. Step sizes, earlier runs and the ledger's name are made up as well."""
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((24_000, len(COLUMNS)))
    high = (rows @ WEIGHTS + rng.logistic(size=len(rows)) > 0.8).astype(int)
    train, test = slice(None, 20_000), slice(20_000, None)
    # The table is made up, so fitting it again and again costs nobody anything, and shows how far noise moves a coefficient.
    fits = [PrivateLogisticRegression(epsilon=0.5, classes=[0, 1]).fit(rows[train], high[train]) for _ in range(21)]
    model, again = fits[0], np.array([np.append(fit.coef_[0], fit.intercept_) for fit in fits])
    low, up = np.quantile(again, [0.025, 0.975], axis=0)
    accuracy, most = model.score(rows[test], high[test]), max(high[test].mean(), 1 - high[test].mean())
    give = 1.96 * np.sqrt(accuracy * (1 - accuracy) / 4_000)
    certificate = dataclasses.replace(
        model.certificate_, dataset="survey 2026", people=("ana", "joris"), issued_by="ana", ledger="survey.db"
    )
    steps = len(model.trace_.steps)
    return ReportContent(
        title="High income, from a made-up survey",
        task="Says from sixteen answers whether a household has a high income.",
        certificate=certificate,
        trace=model.trace_,
        method="Auto (accelerated descent)",
        step_sizes=tuple(4.0 * min(1.0, 2.0 - 1.8 * step / steps) for step in range(steps)),
        budget={
            **{"dataset": "survey 2026", "ledger": "survey.db", "epsilon": 2.0, "delta": 1e-6},
            **{"spent_epsilon": 1.02, "fraction_left": 0.71},
            "runs": [
                {"when": "2026-03-02T09:12:00+00:00", "who": "joris", "what": "ranges of columns", "releases": 32},
                {"when": "2026-03-05T15:40:00+00:00", "who": "ana", "what": "first model", "releases": 231},
                {
                    "when": "2026-03-09T11:03:00+00:00",
                    "who": "ana",
                    "what": "this model",
                    "releases": certificate.releases,
                },
            ],
        },
        prepared=(
            ("records", "20,012 (bought, give or take 91)"),
            ("classes", "low, high (declared)"),
            ("centre and spread of columns", "bought"),
            ("length of rows", "bought"),
        ),
        measurements=(
            Measurement(
                metric="accuracy",
                value=accuracy,
                low=accuracy - give,
                high=accuracy + give,
                on="4,000 records that were declared public",
                paid=False,
                public=True,
                when="2026-03-09T11:09:00+00:00",
                compared_with=(("always the most frequent class", most),),
                details=(
                    ("found among 'high'", float(model.predict(rows[test])[high[test] == 1].mean())),
                    ("found among 'low'", float(1 - model.predict(rows[test])[high[test] == 0].mean())),
                ),
            ),
        ),
        coefficients=tuple(
            Coefficient(name=name, value=float(value), low=float(min(a, value)), high=float(max(b, value)))
            for name, value, a, b in zip((*COLUMNS, "intercept"), again[0], low, up, strict=True)
        ),
        coefficients_note="The lines reach as far as 95 of 100 runs on the same data would: how far noise alone moves them.",
        settings=(
            ("command", "privypurse fit survey.csv --target income --epsilon 0.5 --ledger survey.db"),
            ("epsilon", "0.5"),
            ("delta", "1e-06"),
            ("privypurse", __version__),
        ),
        schema=SCHEMA,
    )


def take(page_file: pathlib.Path, folder: pathlib.Path) -> None:
    """Open the page at each width and keep what is seen."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(CHROMIUM_SETTINGS))
        for name, width, height, scheme in PICTURES:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.goto(page_file.as_uri())
            page.locator(".plot .main-svg").last.wait_for()
            clip = {"x": 0, "y": 0, "width": width, "height": height}
            page.screenshot(path=folder / name, full_page=True, clip=clip)
            # A few hundred shades are enough for a page, and a third of the bytes.
            Image.open(folder / name).convert("RGB").quantize(192).save(folder / name, optimize=True)
            print(f"{name}: {(folder / name).stat().st_size / 1000:.0f} kB")
            page.close()
        browser.close()


def main() -> None:
    """Write the demo report, and take its pictures unless only the report is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--html", type=pathlib.Path, help="write the demo report here and take no pictures")
    chosen = parser.parse_args()
    if chosen.html is not None:
        chosen.html.write_text(render(demo()), encoding="utf-8")
        return
    with tempfile.TemporaryDirectory() as folder:
        page_file = pathlib.Path(folder) / "report.html"
        page_file.write_text(render(demo()), encoding="utf-8")
        take(page_file, FIGURES)


if __name__ == "__main__":
    main()
