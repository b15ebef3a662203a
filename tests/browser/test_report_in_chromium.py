"""The report in a real browser: every figure drawn, nothing in the console, nothing asked for, on every screen."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

import some_weighings as some
from figure_stores import STORES, report
from hostile import PAYLOADS, hostile_sample
from metered import kept
from pretended_run import new_store, run
from tare.report.html import render
from tare.report.layout import MOST_LANES

pytestmark = pytest.mark.machine("chromium")

DESKTOP, TELEPHONE = 1280, 360
ROWS = MOST_LANES + 4  # more than a figure has
ARTEFACTS = os.environ.get("TARE_ARTEFACTS")  # a folder: screenshots are kept there
STUDY = {"study": "weigh", "compare": {"against": {"platform": "bare"}, "margin": 0.05}}

# What is drawn, with how many pieces of it; and how far the page reaches.
CHARTS = """() => Object.fromEntries([...document.querySelectorAll("[data-chart]")].map(each => {
  const drawn = each.querySelector("svg.marks");
  const tall = drawn ? drawn.getBoundingClientRect().height : 0;
  return [each.dataset.chart, tall > 40 ? drawn.querySelectorAll("path, text, line").length : 0];
}))"""
CARDS = """() => {
  const table = document.querySelector("table.cards"), box = table.parentElement;
  return [box.scrollWidth, box.clientWidth, getComputedStyle(table).display];
}"""
WIDE = "() => document.documentElement.scrollWidth"
OPEN = "() => document.querySelectorAll('details').forEach(each => { each.open = true; })"
DONE = (
    "() => [...document.querySelectorAll('[data-chart]')].every(each => ['yes', 'failed'].includes(each.dataset.drawn))"
)


@dataclass
class Seen:
    """What the browser made of a page."""

    charts: dict[str, int] = field(default_factory=dict)  # figure -> pieces that were drawn
    wide: int = 0
    console: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


def look(browser: Any, page: str, folder: Path, width: int = DESKTOP, scheme: str = "light", name: str = "") -> Seen:
    """Open the page as a file, and say what came of it."""
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    seen = Seen()
    tab: Page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab.on("console", lambda message: seen.console.append(message.text))
    tab.on("pageerror", lambda error: seen.console.append(str(error)))
    tab.on("request", lambda request: seen.asked.append(request.url))
    tab.goto(file.as_uri())
    tab.evaluate(OPEN)
    for _ in range(300):  # the page's policy forbids the driver's own way to wait
        if tab.evaluate(DONE):
            break
        tab.wait_for_timeout(100)
    seen.charts, seen.wide = tab.evaluate(CHARTS), tab.evaluate(WIDE)
    if ARTEFACTS and name:
        tab.screenshot(path=f"{ARTEFACTS}/report-{name}-{width}-{scheme}.png", full_page=True, timeout=120_000)
    tab.close()
    return seen


@cache
def sample(name: str) -> str:
    made = some.SAMPLES[name]()
    return render(made.weighing, made.records, some.GENERATED, study_text=some.STUDY_TEXT)


def well(seen: Seen, width: int) -> None:
    assert seen.console == []
    assert len(seen.asked) == 1  # the page itself
    assert seen.wide <= width
    assert all(pieces > 3 for pieces in seen.charts.values()), seen.charts


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("tainted", DESKTOP, "light"),
        ("several", TELEPHONE, "dark"),
        ("half_finished", DESKTOP, "dark"),
        ("empty", TELEPHONE, "light"),
    ],
)
def test_a_report_is_drawn_on_every_screen(browser: Any, tmp_path: Path, name: str, width: int, scheme: str) -> None:
    seen = look(browser, sample(name), tmp_path, width, scheme, name)

    well(seen, width)
    drawn = {"tainted": 3, "several": 3, "half_finished": 3, "empty": 0}  # the effects are the page's own
    assert len(seen.charts) == drawn[name]


@pytest.mark.parametrize("trials", [0, 1, 10])
def test_a_store_with_few_trials_or_none_has_a_report(browser: Any, tmp_path: Path, trials: int) -> None:
    planned = [each for each in some.records(blocks=5) if not each.twin]
    with new_store(tmp_path / "store", planned) as store:
        assert len(list(run(store, planned[:trials], 0))) == trials
    seen = look(browser, report(tmp_path / "store"), tmp_path, TELEPHONE, "light", f"{trials}-trials")

    well(seen, TELEPHONE)
    assert ("trials-by-block" in seen.charts) == (trials > 0)


ALL_HAVE = {
    "phased": {"training-parts", "request-parts", "claims"},
    "modes": {"energy", "time-energy", "predicted-time", "predicted-energy", "curve-control-power-mode-gpu-mhz"},
    "fleet": {"devices"},
    "traced": {"counters", "page-faults", "write-backs", "write-back-intervals", "page-writes", "flushing-layer"},
}  # fmt: skip


@pytest.mark.parametrize(  # test_report_pictures.py draws all of them
    "name", [pytest.param(name, marks=[] if name in ("traced", "modes") else [pytest.mark.deep]) for name in STORES]
)
def test_every_figure_is_drawn(browser: Any, tmp_path: Path, name: str, page_of: Callable[[str], str]) -> None:
    for width, scheme in ((DESKTOP, "dark"), (TELEPHONE, "light")):
        seen = look(browser, page_of(name), tmp_path, width, scheme, name)

        well(seen, width)
        assert all(any(each.startswith(one) for each in seen.charts) for one in ALL_HAVE[name])  # or of a job


@pytest.mark.parametrize(
    "level",
    [
        pytest.param("docker", marks=pytest.mark.deep),
        "docker-with-a-name-that-is-as-long-as-names-of-images-are:latest",
    ],
)
def test_further_metrics_are_cards_on_a_telephone_and_nothing_of_them_is_cut(
    browser: Any, tmp_path: Path, level: str
) -> None:
    trials = [
        replace(each, settings={**each.settings, "platform": level}) if each.settings["platform"] == "docker" else each
        for each in some.records(blocks=6)
    ]
    (tmp_path / "report.html").write_text(report(kept(tmp_path / "store", trials, STUDY)), encoding="utf-8")
    for width, cards in ((390, True), (DESKTOP, False)):
        tab = browser.new_page(viewport={"width": width, "height": 900})
        tab.goto((tmp_path / "report.html").as_uri())
        tab.evaluate(OPEN)
        wide, room, shown = tab.evaluate(CARDS)
        tab.close()
        assert wide <= room
        assert (shown == "block") is cards


def test_on_paper_it_has_pages_and_its_charts_and_no_wider_than_them(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(sample("several"), encoding="utf-8")
    tab = browser.new_page(viewport={"width": DESKTOP, "height": 900}, color_scheme="dark")
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.goto(file.as_uri())
    tab.evaluate(OPEN)
    tab.emulate_media(media="print")
    for _ in range(300):
        if tab.evaluate(DONE):
            break
        tab.wait_for_timeout(100)
    ink = tab.evaluate("() => getComputedStyle(document.body).color")
    printed = tab.pdf(format="A4", path=f"{ARTEFACTS}/report-several.pdf" if ARTEFACTS else None)
    tab.close()

    assert said == []
    assert ink == "rgb(27, 28, 30)"  # dark on white, although the screen is dark
    assert printed.startswith(b"%PDF")
    assert len(printed) > 40_000


@pytest.mark.parametrize("payload", PAYLOADS[:2])
def test_hostile_labels_run_nothing(browser: Any, tmp_path: Path, payload: str) -> None:
    made = hostile_sample(payload)

    seen = look(browser, render(made.weighing, made.records, some.GENERATED, study_text="</pre><script>a()"), tmp_path)

    well(seen, DESKTOP)


@pytest.mark.parametrize(  # tests/unit/report has every payload in every chart, without a browser
    "name", ["traced", pytest.param("modes", marks=pytest.mark.deep)]
)
def test_hostile_labels_run_nothing_in_the_figures_of_a_store(browser: Any, tmp_path: Path, name: str) -> None:
    page = report(STORES[name](tmp_path / "store", PAYLOADS[1]))

    assert "onerror" in page
    well(look(browser, page, tmp_path, TELEPHONE), TELEPHONE)


def test_the_look_notices_what_the_policy_forbids(browser: Any, tmp_path: Path) -> None:
    broken = sample("empty").replace("<main>", "<main><script>document.title = 'ran'</script><p style='color:red'>")

    assert any("Content Security Policy" in line for line in look(browser, broken, tmp_path).console)


def test_the_look_notices_what_is_too_wide(browser: Any, tmp_path: Path) -> None:
    long_word = sample("empty").replace("<main>", f"<main><table><tr><td>{'m' * 400}</td></tr></table>")

    seen = look(browser, long_word.replace("overflow-wrap: anywhere", ""), tmp_path, TELEPHONE)
    assert seen.wide > TELEPHONE


def test_the_look_notices_a_chart_that_is_not_drawn(browser: Any, tmp_path: Path) -> None:
    made = some.SAMPLES["tainted"]()
    page = render(made.weighing, made.records, some.GENERATED)
    assert '"step-parts":{' in page

    seen = look(browser, page.replace('"step-parts":{', '"step-parts":null,"gone":{', 1), tmp_path)
    assert seen.charts["step-parts"] == 0
    assert seen.console


def test_levels_with_long_names_leave_the_page_as_narrow_as_it_is(browser: Any, tmp_path: Path) -> None:
    trials = [
        replace(each, settings={**each.settings, "workload.data": "cifar10-with-a-long-name", "workload.model": model})
        for model in ("resnet18", "mobilenet_v3_large")
        for each in [replace(one, trial=f"{one.trial[:12]}{model[:3]}") for one in some.records(blocks=6)]
    ]
    seen = look(browser, report(kept(tmp_path / "store", trials, STUDY)), tmp_path, TELEPHONE, "dark", "long-names")

    well(seen, TELEPHONE)


def test_a_report_of_many_cells_is_filtered_sorted_and_leads_to_its_trials(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tare.report.html.available", lambda: False)  # the first screen has no chart of the library's
    trials = [
        replace(each, trial=f"{each.trial[:10]}{rate:03}x", settings={**each.settings, "workload.rate": rate})
        for rate in range(ROWS)
        for each in some.records(blocks=2)
    ]
    assert len({(each.settings["platform"], each.settings["workload.rate"]) for each in trials}) == 2 * ROWS
    file = tmp_path / "report.html"
    file.write_text(report(kept(tmp_path / "store", trials, STUDY)), encoding="utf-8")
    tab = browser.new_page(viewport={"width": 390, "height": 844})
    tab.set_default_timeout(120_000)
    tab.goto(file.as_uri())
    shown = tab.locator("tr.level:visible")
    assert shown.count() == ROWS
    assert tab.evaluate(WIDE) <= 390

    tab.locator("[data-sort]").select_option("most")
    sizes = tab.evaluate("() => [...document.querySelectorAll('tr.level')].map(row => Number(row.dataset.size))")
    assert sizes == sorted(sizes, reverse=True)
    tab.locator("[data-factor]").first.select_option(index=7)
    assert shown.count() == 1
    assert tab.locator(".controls .count").text_content() == f"1 of {ROWS} shown"

    tab.locator("tr.level:visible svg.lane").hover()
    assert "%" in tab.locator("#told").text_content()
    dot = tab.locator("tr.level:visible svg.lane a").first
    aim = dot.get_attribute("href")
    dot.dispatch_event("click")
    assert tab.url.endswith(aim)
    assert tab.locator(aim).is_visible()  # in a part that was folded
    tab.close()


# Without a script, on a telephone, at night: the first screen and every folded part are there, and nothing is too wide.
KEPT = sorted((Path(__file__).parents[2] / "studies-results").glob("*/*.tare"))


@pytest.mark.parametrize(
    "pack",
    [
        pytest.param(pack, marks=[] if place % 8 == 0 else [pytest.mark.deep], id=f"{pack.parent.name}-{pack.stem}")
        for place, pack in enumerate(KEPT)
    ],
)
def test_the_report_of_every_kept_study_opens_without_a_script(browser: Any, tmp_path: Path, pack: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report(pack), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    for width, scheme in ((DESKTOP, "light"), (390, "dark")):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme=scheme)
        tab.goto(file.as_uri())
        assert tab.locator("svg.static").count() == tab.locator(".chart").count()
        lanes = tab.locator("svg.lane")
        assert lanes.count() > 0 or "variability" in pack.stem  # one level, and nothing to compare
        box = tab.locator("main").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
    context.close()
