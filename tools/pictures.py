"""Make the pictures of the docs: the first screen of reports of kept studies, in chromium.

    .venv/bin/python tools/pictures.py [NAME...]

They are made from `studies-results`, so that what people see first is real. Takes some seconds for each.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tare.analysis.weighing import weigh
from tare.records.store import Store
from tare.report import html

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "pictures"
STUDIES = {"container-tax-cpu2": "cpu2/s0-container-tax"}
TALL = {1280: 820}  # pixels, by width
# That this page has tables in place of charts, which is so only here.
WITHOUT_THE_NOTE = (
    "[...document.querySelectorAll('p.quiet')].forEach(p => /^Charts are/.test(p.textContent) && p.remove())"
)
NO_SANDBOX = ["--no-sandbox", "--force-color-profile=srgb"]


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    html.available = lambda: False  # the first screen has no chart of the library's
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=NO_SANDBOX)
        for name in names or STUDIES:
            with Store.open(ROOT / "studies-results" / f"{STUDIES[name]}.tare") as store:
                made = html.render(weigh(store), store.records(), store.records()[-1].started_utc, store=store)
            file = Path(folder) / f"{name}.html"
            file.write_text(made, encoding="utf-8")
            for width, height in TALL.items():
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
                page.set_default_timeout(300_000)
                page.goto(file.as_uri())
                page.evaluate(WITHOUT_THE_NOTE)
                page.screenshot(path=FOLDER / f"{name}-{width}.png", timeout=300_000)
                page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
