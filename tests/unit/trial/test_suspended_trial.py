"""Whole trials of a suspended device: a pretended kernel sleeps, and a pretended meter at the socket counts on.

No machine is suspended: `mem` is written to a pipe in a folder, and only the clocks that the trial reads jump.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sshd_devices import until
from tare.base.host import LocalHost
from tare.figures import power_series
from tare.figures.rederive import rederive
from tare.parts.probes.external import External
from tare.parts.workloads import idle
from tare.parts.workloads.idle import Idle
from tare.plan.matrix import Cell, Trial
from tare.records.model import Record
from tare.records.store import Store
from tare.trial import facts
from tare.trial.engine import Bench, run_trial
from tare.trial.undo.journal import Journal

AWAKE_W, ASLEEP_W = 5.0, 1.0
METER = """
import os, sys, time
begin = time.monotonic()
while True:
    slept_j = float(open(sys.argv[1]).read())
    print(f"{5.0},{1000 + slept_j + 5.0 * (time.monotonic() - begin):.3f}", flush=True)
    time.sleep(0.02)
"""


class Kernel:
    """Its files below a folder, and its clocks; who writes to its state has slept for so long."""

    CLOCK_MONOTONIC, CLOCK_BOOTTIME = time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME

    def __init__(self, folder: Path, slept_s: float) -> None:
        self.clock, self.state, self.counted = folder / "rtc0", folder / "state", folder / "counted"
        self.clock.mkdir(parents=True)
        (self.clock / "wakealarm").write_text("")
        (self.clock / "device/power").mkdir(parents=True)
        (self.clock / "device/power/wakeup").write_text("enabled\n")
        (folder / "wakeup_count").write_text("1\n")
        (self.clock / "since_epoch").write_text("1700000000\n")
        self.counted.write_text("0")
        os.mkfifo(self.state)
        self.slept_s, self.alarms, self.lag_s = slept_s, [], 0.0
        threading.Thread(target=self._sleep, daemon=True).start()

    def _sleep(self) -> None:
        pipe = os.open(self.state, os.O_RDWR | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while True:
                os.write(pipe, bytes(1 << 16))
        with suppress(OSError):
            while not (at := (self.clock / "wakealarm").read_text()):
                time.sleep(0.01)
            until(self._is_written_to, "the device is suspended", 60)
            self.lag_s = self.slept_s
            draft = self.counted.with_suffix(".draft")
            draft.write_text(str(ASLEEP_W * self.slept_s))
            draft.replace(self.counted)
            self.alarms.append(at)
            os.set_blocking(pipe, True)
            os.read(pipe, 1 << 20)
            assert os.read(pipe, 1 << 20) == b"mem"

    def _is_written_to(self) -> bool:
        """Whether the program has opened its state; it then waits, since there is no room in the pipe."""
        for opened in Path("/proc").glob("[0-9]*/fd/*"):
            with suppress(OSError):
                if opened.readlink() == self.state and str(self.state) in (opened.parents[1] / "cmdline").read_text():
                    return True
        return False

    def clock_gettime(self, clock: int) -> float:
        return 1000.0 + (self.lag_s if clock == self.CLOCK_BOOTTIME else 0.0)

    def time(self) -> float:
        return 1_700_000_000.0 + self.lag_s


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def run(slept_s: float = 1800.0, *, counts: bool = True) -> tuple[Record, Kernel, Store]:
        kernel = Kernel(tmp_path / "kernel", slept_s)
        monkeypatch.setattr(idle, "LEAST_SETTLE_S", 0.0)
        monkeypatch.setattr(idle, "waking_clock", lambda host: str(kernel.clock))
        monkeypatch.setattr(idle, "POWER_STATE", str(kernel.state))
        monkeypatch.setattr(idle, "_others", lambda host: "")
        monkeypatch.setattr(power_series, "STALE_S", 0.1)
        monkeypatch.setattr(facts, "time", kernel)
        (tmp_path / "meter.py").write_text(METER)
        meter = External(
            command=(sys.executable, str(tmp_path / "meter.py"), str(kernel.counted)),
            energy=2 if counts else None,
            energy_unit="J",
        )
        cell = Cell((), Idle(state="suspended", duration=1800.0, settle=0.7), probes=(meter,))
        store = Store.create(tmp_path / "store", {"study": "s", "platform": "bare", "workload": "idle"}, "")
        bench = Bench(LocalHost(), store, Journal(tmp_path / "device"), tmp_path / "scratch", period_s=0.05)
        return run_trial(Trial("s", cell, 0, 0, 1, 60.0), bench), kernel, store

    return run


def test_the_power_of_the_sleep_is_what_the_meter_counted_over_the_time_that_passed(ran) -> None:
    record, kernel, store = ran()
    assert (record.state, record.reasons) == ("ok", ())
    assert kernel.alarms == ["1700001800"]
    assert (kernel.clock / "wakealarm").read_text() == "0"
    assert record.metrics["power_mean_w"] == pytest.approx(ASLEEP_W, rel=0.02)
    assert record.metrics["energy_window_s"] == 1800
    assert record.metrics["energy_bound_share"] < 0.02
    assert record.facts["energy"]["window"] == "the time asleep"
    assert rederive(store, record).differences == ()


@pytest.mark.parametrize("slept_s", [40.0, 1900.0])
def test_a_device_that_something_else_woke_is_invalid(ran, slept_s: float) -> None:
    record, _, _ = ran(slept_s)
    assert record.state == "invalid"
    assert [each.code for each in record.reasons] == ["clock.woke"]
    assert f"was to sleep for 1800 s and slept {slept_s:.0f} s" in str(record.reasons[0])


def test_a_meter_that_does_not_count_says_nothing_of_the_sleep(ran) -> None:
    record, _, _ = ran(counts=False)
    assert record.state == "ok"
    assert not [name for name in record.metrics if name.startswith(("energy", "power"))]
    assert [each.code for each in record.notes if "energy" in each.code] == ["energy.asleep"]
    assert "no meter at the socket counted on" in " ".join(map(str, record.notes))


def test_a_device_that_the_kernel_does_not_suspend_is_a_failed_trial_with_its_reason(ran, monkeypatch) -> None:
    monkeypatch.setattr(os, "mkfifo", lambda path: Path(path).symlink_to("/dev/full"))
    monkeypatch.setattr(Kernel, "_sleep", lambda self: None)
    record, kernel, _ = ran()
    assert record.state == "failed"
    assert "refused to suspend the device" in str(record.reasons[0])
    assert (kernel.clock / "wakealarm").read_text() == "0"
