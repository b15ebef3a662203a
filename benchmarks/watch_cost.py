"""What `tare watch` costs a machine that runs a study: CPU time with no page open, and with one.

python -m benchmarks.watch_cost [SECONDS]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

TESTS = Path(__file__).parent.parent / "tests"
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mib(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def measured(store: Path, seconds: float) -> None:
    watch = subprocess.Popen([sys.executable, "-m", "tare.cli", "watch", str(store)], stderr=subprocess.PIPE, text=True)
    try:
        assert watch.stderr is not None
        found = re.search(r"http://\S+", watch.stderr.readline())
        assert found is not None
        time.sleep(2)
        before_s = cpu_s(watch.pid)
        time.sleep(seconds)
        print(f"no page: {cpu_s(watch.pid) - before_s:.2f} s of CPU in {seconds:g} s")
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(found[0], timeout=120_000)
            page.wait_for_timeout(3000)
            before_s = cpu_s(watch.pid)
            page.wait_for_timeout(seconds * 1000)
            spent_s, peak = cpu_s(watch.pid) - before_s, peak_mib(watch.pid)
            print(f"one page: {spent_s:.2f} s of CPU in {seconds:g} s, {peak:.0f} MiB")
            browser.close()
    finally:
        watch.kill()
        watch.wait()


def main(seconds: float) -> None:
    with TemporaryDirectory() as folder:
        store, env = Path(folder, "store"), {**os.environ, "PYTHONPATH": str(TESTS)}
        run = subprocess.Popen([sys.executable, str(TESTS / "pretended_run.py"), str(store), "2"], env=env)
        try:
            while not (store / "spool").is_dir():
                time.sleep(0.1)
            time.sleep(5)
            measured(store, seconds)
        finally:
            run.kill()
            run.wait()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20)
