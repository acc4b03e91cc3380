"""Take the pictures of a report that the documentation shows: that of ``privypurse demo``, in a real browser.

Run from the root of the repository: ``python docs/screenshots.py``. It needs playwright and
Chromium.
"""

import pathlib
import shutil
import tempfile

from privypurse.runs._demo import MODEL, run_demo
from privypurse.runs._progress import Silent

FIGURES = pathlib.Path(__file__).parent / "figures"
CHROMIUM_SETTINGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# Name, width, height and scheme of each picture.
PICTURES = (
    ("report_desktop.png", 1280, 1250, "light"),
    ("report_dark.png", 1280, 1250, "dark"),
    ("report_phone.png", 390, 1700, "light"),
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
    """Run the demo and take the pictures of its report."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "demo"
        run_demo(folder, rows=30_000, epsilon=1.0, progress=Silent())
        take(folder / MODEL / "report.html", FIGURES)


if __name__ == "__main__":
    main()
