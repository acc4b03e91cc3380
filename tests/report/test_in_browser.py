"""The page in a real browser, offline: drawn, usable by keyboard, readable on a phone, in the dark
and on paper.
"""

import dataclasses
import re
import shutil
import time

import pytest

from privypurse.report._content import Coefficient
from privypurse.report._page import render
from tests.report.contents import NASTY, content, fitted

pytest.importorskip("plotly")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
LONG_MS = 600_000  # against a browser that never answers
SETTINGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
PLOTS = [
    *("plot-classes-0", "plot-calibration-0"),
    *("plot-budget", "plot-noise", "plot-steps", "plot-coefficients", "plot-runs"),
]

# For every text that is seen: its contrast with the nearest ground that is not see-through. Returns
# what is below 4.5.
LOW_CONTRAST = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, w, i) => {
    const v = c[i] / 255; return sum + w * (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); }, 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const c = parse(getComputedStyle(at).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), low = [], seen = [];
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName) || !element.checkVisibility()) continue;
    const style = getComputedStyle(element), inSvg = element instanceof SVGElement;
    const a = luminance(parse(inSvg ? style.fill : style.color)), b = luminance(ground(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen.push(text);
    if (ratio < 4.5) low.push([text.slice(0, 40), ratio.toFixed(2)]);
  }
  return [seen.length, low];
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=SETTINGS, timeout=LONG_MS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pages to open, each written once."""
    folder = tmp_path_factory.mktemp("reports")
    made = {
        "plain": content(),
        "classes": content("classes"),
        "alarm": content("simulation", schema_declared=False),
        "nasty": content(
            title="word" * 60,
            certificate=dataclasses.replace(fitted().certificate_, dataset="d" * 90, people=(NASTY,)),
            coefficients=tuple(Coefficient(name=NASTY * 3, output=NASTY, value=float(place)) for place in range(40)),
            settings=(("command", "privypurse " + "x" * 300), ("y" * 80, "z" * 300)),
        ),
    }
    for name, what in made.items():
        (folder / f"{name}.html").write_text(render(what), encoding="utf-8")
    return folder


@pytest.fixture
def visit(browser, files):
    """Open pages offline; afterwards nothing may have failed, and nothing but the file may have
    been asked for.
    """
    contexts, troubles, requests = [], [], []

    def opened(name="plain", width=1280, **settings):
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **settings)
        context.set_default_timeout(LONG_MS)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((files / f"{name}.html").as_uri())
        if settings.get("java_script_enabled", True):
            for plot in page.locator(".plot").all():
                plot.locator(".main-svg").first.wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert sum(url.startswith("file:") for url in requests) == len(contexts)


def until(holds):
    """Wait for what the page does by itself. Its policy forbids the browser to evaluate a text
    again and again.
    """
    end = time.monotonic() + LONG_MS / 1e3
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def drawn_width(page):
    """Width of the first plot; 0 in the moment in which it is drawn anew."""
    return page.evaluate("document.querySelector('#plot-budget .main-svg')?.getBoundingClientRect().width ?? 0")


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.mark.parametrize("width", [360, 1280])
def test_every_plot_is_drawn_and_nothing_is_wider_than_the_screen(visit, width):
    page = visit(width=width)
    assert page.locator(".js-plotly-plot").count() == len(PLOTS)
    for key in PLOTS:
        marks = page.locator(f"#{key} .scatterlayer .trace path, #{key} .barlayer .point path")
        assert marks.count() > 0, key
        box = page.locator(f"#{key} .main-svg").first.bounding_box()
        assert box["width"] > 0.7 * min(width, 500) - 30
        assert box["height"] >= 200
        whole = page.locator(f"#{key}").bounding_box()
        assert box["x"] >= whole["x"] - 1
        assert box["x"] + box["width"] <= whole["x"] + whole["width"] + 1
    assert overflow(page) <= 0


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["nasty", "alarm", "classes"])
def test_long_and_hostile_texts_stay_inside_and_are_only_text(visit, width, name):
    page = visit(name, width=width)
    assert overflow(page) <= 0
    for summary in page.locator("summary").all():
        summary.click()
    assert overflow(page) <= 0
    if name == "nasty":
        assert "<script>alert" in page.locator("#plot-coefficients .ytick text").first.text_content()
        assert page.locator("#plot-coefficients a, #plot-coefficients b").count() == 0


def test_plots_follow_the_width_of_the_window(visit):
    page = visit()
    before = drawn_width(page)
    page.set_viewport_size({"width": 500, "height": 800})
    until(lambda: 0 < drawn_width(page) < before - 100)
    assert overflow(page) <= 0


def focused(page):
    return page.evaluate(
        "[document.activeElement.tagName, document.activeElement.id, document.activeElement.className]"
    )


def test_tab_reaches_everything_and_what_has_focus_is_seen(visit):
    page = visit()
    reached, outlined = [], []
    for _ in range(120):
        page.keyboard.press("Tab")
        tag, key, style = focused(page)
        if tag == "BODY":
            break
        reached.append((tag, key, style))
        outlined.append(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
    assert reached[0][2] == "skip"
    assert [key for _, key, _ in reached if key.startswith("plot-")] == PLOTS
    assert sum(tag == "SUMMARY" for tag, _, _ in reached) == page.locator("summary").count()
    assert sum(tag == "BUTTON" for tag, _, _ in reached) >= 3
    assert set(outlined) == {"solid"}


def test_the_skip_link_leads_past_the_links(visit):
    page = visit()
    page.keyboard.press("Tab")
    assert page.locator(".skip").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert focused(page)[:2] == ["MAIN", "main"]


def test_enter_opens_what_is_closed(visit):
    page = visit()
    details = page.locator("#plot-noise-figure details")
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    assert details.get_attribute("open") is not None
    assert details.locator("td").first.is_visible()


def test_arrows_walk_through_points_and_say_their_values(visit):
    page = visit()
    live = page.locator("#plot-budget-live")
    assert live.get_attribute("aria-live") == "polite"
    page.locator("#plot-budget").focus()
    page.keyboard.press("ArrowRight")
    assert live.text_content().startswith("before training: epsilon 0.")
    page.keyboard.press("ArrowRight")
    assert live.text_content().startswith("after step 1: epsilon 0.")
    assert page.locator("#plot-budget .hovertext").count() == 1
    page.keyboard.press("End")
    assert live.text_content() == f"after step {len(fitted().trace_.steps)}: epsilon 0.5"
    page.keyboard.press("Home")
    assert live.text_content().startswith("before training")
    page.keyboard.press("Escape")
    assert live.text_content() == ""


@pytest.mark.parametrize("key", PLOTS)
def test_each_plot_speaks(visit, key):
    page = visit()
    page.locator(f"#{key}").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(f"#{key}-live").text_content()
    assert page.locator(f"#{key} .hovertext").count() == 1


def test_one_of_several_outputs_is_chosen(visit):
    page = visit("classes")
    page.get_by_role("combobox", name="Output").select_option(label="2")
    assert "coefficients of output 2" in page.locator("#plot-coefficients-caption").text_content()
    assert "coefficients of output 2" in page.locator("#plot-coefficients").get_attribute("aria-label")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["plain", "alarm"])
def test_texts_can_be_read_in_either_scheme(visit, scheme, name):
    page = visit(name, color_scheme=scheme)
    for summary in page.locator("summary").all():
        summary.click()
    count, low = page.evaluate(LOW_CONTRAST)
    assert count > 200
    assert low == []


def test_schemes_differ_and_plots_follow_a_change(visit):
    page = visit(color_scheme="light")
    look = """() => [getComputedStyle(document.body).backgroundColor,
      getComputedStyle(document.querySelector('#plot-budget .js-line')).stroke,
      getComputedStyle(document.querySelector('#plot-budget .xtick text')).fill]"""
    light = page.evaluate(look)
    page.emulate_media(color_scheme="dark")
    until(lambda: page.evaluate(look)[1] != light[1])
    assert all(before != after for before, after in zip(light, page.evaluate(look), strict=True))


def test_paper_is_light_and_has_nothing_to_press(visit):
    page = visit(width=700, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    until(lambda: drawn_width(page) == 620)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for unwanted in (".modebar", "nav", ".copy", ".skip", ".live"):
        assert not any(one.is_visible() for one in page.locator(unwanted).all()), unwanted
    assert page.locator("details[data-printed] pre").last.is_visible()
    assert page.evaluate(LOW_CONTRAST)[1] == []
    page.emulate_media(media="screen", color_scheme="dark")
    until(lambda: drawn_width(page) not in (0, 620))
    assert not page.locator("details[data-printed] pre").last.is_visible()


def test_it_prints(visit):
    printed = visit().pdf(format="A4", print_background=True)
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12


def test_without_scripts_all_words_and_numbers_are_there(visit):
    page = visit(java_script_enabled=False)
    assert page.locator("#guarantee").is_visible()
    assert "at most a factor of 1.65" in page.locator("#guarantee").text_content()
    assert page.get_by_text("Scripts are off.").is_visible()
    assert page.locator("table").count() == 10
    for unwanted in (".plot", ".copy", ".chooser"):
        assert not any(one.is_visible() for one in page.locator(unwanted).all())
    page.locator("#plot-noise-figure summary").click()
    assert page.locator("#plot-noise-figure td").first.is_visible()
    assert overflow_without_scripts(page) <= 1280


def overflow_without_scripts(page):
    return max(box["x"] + box["width"] for box in (one.bounding_box() for one in page.locator("section").all()))


def test_the_command_can_be_copied(visit):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the command", exact=True).click()
    page.get_by_role("button", name="Copied the command", exact=True).wait_for()
