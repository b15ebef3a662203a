"""The report in a real browser: nothing in the console, nothing asked for, nothing wider than a telephone."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import some_weighings as some
from hostile import hostile_sample
from tare.report.html import render

pytestmark = pytest.mark.machine("chromium")

TELEPHONE = 360

# The report lies in a frame as wide as a telephone; the script is the wrapper's, not the report's.
WRAPPER = """<!doctype html><meta charset="utf-8"><body>
<iframe id="page" width="{width}" height="800" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const root = document.getElementById("page").contentDocument.documentElement;
  const told = () => {{
    if (root.querySelector("[data-chart]") && root.dataset.drawn !== "yes") return setTimeout(told, 50);
    document.title = `wide=${{root.scrollWidth}} drawn=${{[...root.querySelectorAll("figure svg.marks")]
      .filter(each => each.getBoundingClientRect().height > 40 && each.querySelectorAll("path").length > 3).length}}`;
  }};
  told();
}});
</script></body>"""


@dataclass(frozen=True)
class Seen:
    """What the browser made of a page."""

    wide: int
    drawn: int
    console: list[str]


def look(page: str, folder: Path, width: int = TELEPHONE) -> Seen:
    """Open `page` in a frame of this width, and say what came of it."""
    chromium = shutil.which("chromium")
    assert chromium is not None
    wrapper = folder / "wrapper.html"
    wrapper.write_text(WRAPPER.format(width=width, page=html.escape(page)), encoding="utf-8")
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", *quiet, f"--user-data-dir={folder / 'profile'}",
         "--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom", wrapper.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = re.search(r"<title>wide=(\d+) drawn=(\d+)", done.stdout)
    assert found is not None, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Seen(int(found[1]), int(found[2]), console)


def report(name: str) -> str:
    sample = some.SAMPLES[name]()
    return render(sample.weighing, sample.records, some.GENERATED, study_text=some.STUDY_TEXT)


@pytest.mark.parametrize("name", ["tainted", "several", "empty"])
def test_a_report_fits_a_telephone_and_leaves_the_console_empty(name: str, tmp_path: Path) -> None:
    seen = look(report(name), tmp_path)

    assert seen.console == []
    assert seen.wide <= TELEPHONE
    assert seen.drawn == (0 if name == "empty" else 4)


def test_hostile_labels_run_nothing(tmp_path: Path) -> None:
    sample = hostile_sample("</script></style><img src=x onerror=alert(1)><script>alert(2)</script>")

    seen = look(render(sample.weighing, sample.records, some.GENERATED, study_text="</pre><script>a()"), tmp_path, 1280)

    assert seen.console == []


def test_the_look_notices_what_the_policy_forbids(tmp_path: Path) -> None:
    broken = report("empty").replace("<main>", "<main><script>document.title = 'ran'</script><p style='color:red'>")

    assert any("Content Security Policy" in line for line in look(broken, tmp_path).console)


def test_the_look_notices_what_is_too_wide(tmp_path: Path) -> None:
    long_word = report("empty").replace("<main>", f"<main><table><tr><td>{'m' * 400}</td></tr></table>")

    assert look(long_word.replace("overflow-wrap: anywhere", ""), tmp_path).wide > TELEPHONE
