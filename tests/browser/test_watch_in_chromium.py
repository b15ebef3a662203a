"""The dashboard in a real browser: it updates while a store fills, asks for nothing else, and disturbs nobody."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from fleet_stores import fleet_store, write_line
from hostile import PAYLOADS

pytestmark = pytest.mark.machine("chromium")
TESTS = Path(__file__).parent.parent
BLOCKS = "200"
ARTEFACTS = os.environ.get("TARE_ARTEFACTS")  # a folder: screenshots are kept there


@dataclass
class Watching:
    """`tare watch` as a process, and where it listens."""

    process: subprocess.Popen[str]
    url: str


def start_watching(store: Path) -> Watching:
    line = [sys.executable, "-m", "tare.cli", "watch", str(store)]
    env = {**os.environ, "TARE_STATE": str(store.parent / "state")}
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr is not None
    found = re.search(r"http://\S+", process.stderr.readline())
    assert found is not None
    return Watching(process, found[0])


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A store that a process fills, a trial every 0.7 s, for longer than these tests take."""
    store = tmp_path_factory.mktemp("filling") / "store"
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    line = [sys.executable, str(TESTS / "pretended_run.py"), str(store), "0.7", BLOCKS]
    run = subprocess.Popen(line, env=env)
    try:
        until = time.monotonic() + 30
        while not (store / "spool").is_dir() and time.monotonic() < until:
            time.sleep(0.05)
        yield store, run
    finally:
        run.kill()
        run.wait()


@pytest.fixture(scope="module")
def watching(filling: tuple[Path, subprocess.Popen[bytes]]) -> Iterator[Watching]:
    """One dashboard of it for all tests that leave it alone."""
    started = start_watching(filling[0])
    yield started
    started.process.kill()
    started.process.wait()


@dataclass
class Seen:
    """What the browser met on a page."""

    console: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


def visit(browser: Any, url: str, width: int = 1280) -> tuple[Page, Seen]:
    page, seen = browser.new_page(viewport={"width": width, "height": 900}), Seen()
    page.on("console", lambda message: seen.console.append(message.text))
    page.on("pageerror", lambda error: seen.console.append(str(error)))
    page.on("request", lambda request: seen.asked.append(request.url))
    page.goto(url, timeout=120_000)
    return page, seen


def wait_for(page: Page, what: str, least: float, limit_s: float = 90) -> float:
    """Until a figure of the page is at least this; the page's policy forbids the driver's own way to wait."""
    until = time.monotonic() + limit_s
    while (value := float(page.evaluate(f"() => {what} || 0"))) < least:
        assert time.monotonic() < until, f"{what} is {value} and should be {least}"
        page.wait_for_timeout(200)
    return value


DONE = "document.querySelector('progress').value"
SEEN = "document.documentElement.dataset.seen"
LABELS = """() => [...document.querySelector('.verdicts tbody tr').cells].map(
  cell => JSON.parse(getComputedStyle(cell, '::before').content))"""


BLANK = """() => [...document.querySelectorAll('td')].filter(cell => !cell.textContent.trim()).map(
  cell => cell.closest('table').parentElement.getAttribute('aria-label') + ': ' + cell.dataset.label)"""
DEVICE = "() => [...document.querySelectorAll('.device tbody tr')].map(row => row.cells[0].textContent)"
NAMED = """() => [...document.querySelectorAll('[role=region], [role=img], progress, section')].every(
  each => each.getAttribute('aria-label') || document.getElementById(each.getAttribute('aria-labelledby')))"""


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.deep), 360])
def test_a_live_run_updates_the_page(browser: Any, watching: Watching, width: int) -> None:
    page, seen = visit(browser, watching.url, width)
    wait_for(page, SEEN, 2)
    first = float(page.evaluate(f"() => {DONE}"))
    wait_for(page, DONE, first + 2)
    wait_for(page, "document.querySelectorAll('.panel svg path').length", 3)
    wait_for(page, "document.querySelectorAll('.verdicts td').length", 5)
    assert page.url.endswith("/")  # the token has left the address bar
    assert seen.console == []
    assert {re.sub(r"\?.*", "", url).rpartition("/")[2] for url in seen.asked} == {"", "events"}
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    if width == 360:  # where the header is hidden, each figure says what it is
        assert page.evaluate(LABELS) == ["level", "effect", "interval", "verdict", "n"]
    assert page.evaluate(BLANK) == []
    assert page.evaluate(DEVICE) == ["clocks", "temperature", "power", "restored"]
    assert re.match(r"\d+ % · weigh · tare watch$", page.title())
    if ARTEFACTS:
        page.screenshot(path=f"{ARTEFACTS}/watch-{width}.png", full_page=True)
    page.close()


@pytest.mark.parametrize(("devices", "width"), [(3, 360), (300, 1280)])
def test_every_device_of_a_fleet_has_a_row_that_changes_with_it(
    browser: Any, tmp_path: Path, devices: int, width: int
) -> None:
    root = tmp_path / "store"
    with fleet_store(root, devices):
        watching = start_watching(root)
        try:
            page, seen = visit(browser, watching.url, width)
            wait_for(page, "document.querySelectorAll('.fleet tbody tr').length", devices)
            first = page.evaluate("() => document.querySelector('.fleet tbody tr').innerText")
            assert "dev-0" in first
            assert "vanished: dev-0: no line to 10.0.0.1" in first
            words = "document.querySelector('.fleet .summary').textContent"
            assert page.evaluate(f"() => {words}").startswith(f"{devices} devices: 1 vanished, 1 skipped")
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width
            page.evaluate("() => { document.querySelector('.fleet .rows').scrollTop = 200; }")
            top = page.evaluate("() => document.querySelector('.fleet .rows').scrollTop")
            write_line(root, "dev-2", "skipped", text="it burns.")
            wait_for(page, f"{words}.includes('2 skipped')", 1)
            assert page.evaluate("() => document.querySelector('.fleet .rows').scrollTop") == top
            assert seen.console == []
            if ARTEFACTS:
                page.screenshot(path=f"{ARTEFACTS}/watch-fleet-{devices}-{width}.png", full_page=True)
            page.close()
        finally:
            watching.process.kill()
            watching.process.wait()


def test_a_keyboard_and_a_screen_reader_find_their_way_and_keep_their_place(browser: Any, watching: Watching) -> None:
    page, _ = visit(browser, watching.url)
    wait_for(page, "document.querySelectorAll('.newest td').length", 5)
    landmarks = [page.locator(name).count() for name in ("h1", "main", "header", "h2")]
    assert landmarks == [1, 1, 1, 1]
    assert page.evaluate(NAMED)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.evaluate("() => document.querySelector('.device .scroll').focus()")
    seen = float(page.evaluate(f"() => {SEEN}"))
    wait_for(page, SEEN, seen + 2)
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "state of the device"
    page.close()


class CutLine:
    """A line to a port that can be cut and mended, as that of ssh -L is when a laptop sleeps."""

    def __init__(self, port: int) -> None:
        self.port, self._to, self._open, self._door = 0, port, [], socket.socket()
        self.mend()

    def mend(self) -> None:
        self._door = socket.create_server(("127.0.0.1", self.port))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._serve, args=(self._door,), daemon=True).start()

    def cut(self) -> None:
        for each in (self._door, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open = []

    def _serve(self, door: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = door.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._to))
                self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


def test_a_page_that_lost_its_line_connects_again_by_itself(browser: Any, watching: Watching) -> None:
    line = CutLine(int(re.findall(r":(\d+)/", watching.url)[0]))
    try:
        page, _ = visit(browser, re.sub(r":\d+/", f":{line.port}/", watching.url))
        wait_for(page, SEEN, 2)
        line.cut()
        status = "document.getElementById('line').textContent"
        wait_for(page, f"{status}.startsWith('not connected')", 1)
        seen = float(page.evaluate(f"() => {SEEN}"))
        line.mend()
        wait_for(page, SEEN, seen + 2)
        assert page.evaluate(f"() => {status}") == "live"
        page.close()
    finally:
        line.cut()


def test_neither_a_reload_nor_a_second_viewer_nor_its_death_disturbs_the_run(browser: Any, filling: Any) -> None:
    store, run = filling
    watching = start_watching(store)
    page, _ = visit(browser, watching.url)
    wait_for(page, SEEN, 2)
    second, _ = visit(browser, watching.url)
    wait_for(second, SEEN, 2)
    page.reload()
    wait_for(page, SEEN, 1)
    watching.process.send_signal(signal.SIGKILL)
    watching.process.wait()
    sealed = len(list((store / "trials").iterdir()))
    until = time.monotonic() + 20
    while len(list((store / "trials").iterdir())) < sealed + 2:
        assert time.monotonic() < until
        time.sleep(0.2)
    assert run.poll() is None
    page.close()
    second.close()


HOSTILE = """
import sys
from dataclasses import replace
from pathlib import Path
import some_weighings as some
from some_records import because
from pretended_run import new_store, run
payload = sys.argv[2]
trials = [replace(r, settings={**r.settings, "platform": payload if r.settings["platform"] != "bare" else "bare"},
                  reasons=(because(payload, "suspect"),), state="suspect") for r in some.records()]
with new_store(Path(sys.argv[1]), trials) as store:
    list(run(store, trials, 0))
"""


def test_hostile_labels_stay_text(browser: Any, tmp_path: Path) -> None:
    payload = PAYLOADS[1]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    subprocess.run([sys.executable, "-c", HOSTILE, str(tmp_path / "store"), payload], env=env, check=True)
    watching = start_watching(tmp_path / "store")
    try:
        page, seen = visit(browser, watching.url)
        wait_for(page, SEEN, 1)
        wait_for(page, "document.querySelectorAll('.newest td').length", 5)
        assert "onerror" in page.evaluate("() => document.querySelector('.newest').textContent")
        assert page.evaluate("() => document.querySelectorAll('img, iframe').length") == 0
        assert seen.console == []
        page.close()
    finally:
        watching.process.kill()
        watching.process.wait()


def test_a_stranger_gets_nothing_and_a_taken_port_is_another_one(filling: Any, watching: Watching) -> None:
    import http.client

    store, _ = filling
    port = int(re.findall(r":(\d+)/", watching.url)[0])
    for path, headers, status in [
        ("/", {}, 403), ("/data", {}, 403), ("/events", {}, 403), ("/", {"Host": "evil.example"}, 421),
    ]:  # fmt: skip
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        line.request("GET", path, headers=headers)
        assert line.getresponse().status == status
        line.close()
    second = subprocess.Popen(
        [sys.executable, "-m", "tare.cli", "watch", str(store), "--port", str(port)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert second.stderr is not None
    said = second.stderr.readline() + second.stderr.readline()
    second.kill()
    second.wait()
    assert f"port {port} cannot be had" in said
    assert "watching on http://127.0.0.1:" in said
