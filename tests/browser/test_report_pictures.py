"""Golden images: the first screen and every chart on fixed data, as chromium draws them, on each kind of screen.

Kept are 24 x 16 grey values of each picture, not the picture: small, and fonts of another version do not matter.
`TARE_ACCEPT_GOLDEN=1` writes them anew; look at the pictures (`TARE_ARTEFACTS=FOLDER`) before you accept them.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import some_weighings as some
from figure_stores import STORES, report
from some_layers import container
from tare.report.html import render

pytestmark = pytest.mark.machine("chromium")
GOLDEN = Path(__file__).parent.parent / "golden" / "report" / "pictures.json"
ARTEFACTS = os.environ.get("TARE_ARTEFACTS")
GRID = (24, 16)
SCREENS: dict[str, dict[str, Any]] = {
    "1280": {"viewport": {"width": 1280, "height": 900}},
    "390": {"viewport": {"width": 390, "height": 844}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "print": {"viewport": {"width": 1280, "height": 900}},
    "still": {"viewport": {"width": 1280, "height": 900}, "java_script_enabled": False},
}


SERIES = Path(__file__).parents[2] / "studies-results" / "h200" / "s0-phase-breakup.tare"


def pages() -> dict[str, str]:
    several, tainted = some.several(), some.tainted()
    layers = container({"cpu": 0.3})
    return {
        "several": render(several.weighing, several.records, some.GENERATED, study_text=some.STUDY_TEXT),
        "tainted": render(tainted.weighing, tainted.records, some.GENERATED),
        "layers": render(some.weighing(), layers, some.GENERATED),
    }


def fingerprint(image: Image.Image) -> dict[str, Any]:
    small = image.convert("L").resize(GRID, Image.Resampling.BOX)
    return {"size": list(image.size), "grey": small.tobytes().hex()}


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """About the same size, and about as dark everywhere: a mark that is gone, moved or of another colour is not."""
    if any(abs(a - b) > 0.04 * b + 4 for a, b in zip(one["size"], other["size"], strict=True)):
        return False
    apart = [abs(a - b) for a, b in zip(bytes.fromhex(one["grey"]), bytes.fromhex(other["grey"]), strict=True)]
    return sum(apart) / len(apart) <= 3 and sum(each > 24 for each in apart) <= len(apart) * 0.03


def drawn(browser: Any, page: str, folder: Path, screen: str, name: str) -> dict[str, dict[str, Any]]:
    """What each piece of a page looks like, with everything unfolded."""
    file = folder / "report.html"
    file.write_text(page.replace('<details class="part"', '<details open class="part"'), encoding="utf-8")
    context = browser.new_context(**SCREENS[screen])
    tab = context.new_page()
    tab.set_default_timeout(120_000)
    if screen == "print":
        tab.emulate_media(media="print")
    tab.goto(file.as_uri())
    for _ in range(300):
        if screen == "still" or tab.locator("[data-chart]:not([data-drawn=yes])").count() == 0:
            break
        tab.wait_for_timeout(100)
    of_a_store = name == "series" or name in STORES
    pieces = [] if of_a_store else [("answer", tab.locator("#answer"))]  # the first screens of stores are alike
    if name not in ("tainted", "layers"):  # which have the charts of every report
        charts = [(str(each.get_attribute("data-chart")), each) for each in tab.locator(".chart").all()]
        pieces += [each for each in charts if name != "series" or each[0].startswith(("spread", "over-time"))]
    # One picture of the page, cut up: a picture of each piece takes several times as long.
    boxes = {piece: place.bounding_box() for piece, place in pieces}
    found = {}
    with Image.open(io.BytesIO(tab.screenshot(full_page=True))) as whole:
        for piece, box in boxes.items():
            assert box is not None and box["y"] + box["height"] <= whole.height, (name, piece, screen)
            corner = (box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"])
            picture = whole.crop(tuple(map(round, corner)))
            if ARTEFACTS:
                picture.save(Path(ARTEFACTS, f"{name}-{piece}-{screen}.png"))
            found[f"{name}/{piece}/{screen}"] = fingerprint(picture)
    context.close()
    return found


def screens_of(place: int, every: bool) -> list[str]:
    """Each page on one screen, so that each screen is some page's; all pages on all screens in `make deep`."""
    names = list(SCREENS)
    return names if every else [names[place % len(names)]]


def test_pages_and_charts_look_as_they_did(
    browser: Any, tmp_path: Path, page_of: Callable[[str], str], deep: bool
) -> None:
    accepted = bool(os.environ.get("TARE_ACCEPT_GOLDEN"))
    found: dict[str, dict[str, Any]] = {}
    everything = pages() | {name: page_of(name) for name in STORES} | {"series": report(SERIES)}
    shown = {name: screens_of(place, deep or accepted) for place, name in enumerate(everything)}
    assert set().union(*shown.values()) == set(SCREENS)
    for name, page in everything.items():
        for screen in shown[name]:
            found |= drawn(browser, page, tmp_path, screen, name)
    if accepted:
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(held)}" for name, held in sorted(found.items()))
        GOLDEN.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    kept = json.loads(GOLDEN.read_text("utf-8"))
    assert found.keys() == {name for name in kept if name.rpartition("/")[2] in shown[name.partition("/")[0]]}
    assert [name for name in found if not alike(found[name], kept[name])] == []
    # The comparison can fail: at night the page is another one, and no two charts are alike.
    assert not alike(kept["several/answer/1280"], kept["several/answer/dark"])
    assert not alike(kept["several/trials-by-block/1280"], kept["several/phases/1280"])
