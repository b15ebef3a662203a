"""Trials that start as warm as the first one, and end before the device harms itself."""

import threading
import time
from dataclasses import replace

import pytest

from some_records import draft as a_record
from tare.base.host import Exit, Job, LocalHost
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.temperature import Temperature
from tare.testing import FakeClock
from tare.trial import conditions
from tare.trial.conditions import HeatGuard, cooled, guarded_from_heat
from tare.trial.tenants import Tenant, run_together
from trees import sensors


class CoolingClock(FakeClock):
    """Time passes by sleeping, and the board cools down meanwhile."""

    def __init__(self, root, degrees_a_second):
        super().__init__()
        self.root, self.rate, self.celsius = root, degrees_a_second, 60.0
        self.tell()

    def sleep_until(self, t_ns):
        self.celsius -= self.rate * (t_ns - self.ns) / 1e9
        super().sleep_until(t_ns)
        self.tell()

    def tell(self):
        (self.root / "sys/class/thermal/thermal_zone1/temp").write_text(f"{self.celsius * 1000:.0f}\n")


def board(root, degrees_a_second=1.0):
    sensors.nano(root)
    return LocalHost(root=root, clock=CoolingClock(root, degrees_a_second))


def record_at(cpu_c, started="2026-01-01T00:00:00"):
    return replace(a_record(), started_utc=started, facts={"warmth": {"reference_c": {"cpu_therm": cpu_c}}})


def test_the_first_trial_waits_for_nothing_and_is_the_reference(tmp_path):
    found = cooled(board(tmp_path), [Temperature()], [])["warmth"]
    assert found["waited_s"] == 0
    assert found["start_c"] == found["reference_c"] == {"ao_therm": 39.5, "cpu_therm": 60.0, "gpu_therm": 36.0}


def test_a_later_trial_waits_until_the_board_is_as_cool_as_at_the_start(tmp_path):
    records = [record_at(55.0, "2026-01-02T00:00:00"), record_at(40.0)]
    found = cooled(board(tmp_path), [Temperature()], records)["warmth"]
    assert found["reference_c"] == {"cpu_therm": 40.0}
    assert found["start_c"]["cpu_therm"] == pytest.approx(43.0)
    assert found["waited_s"] == pytest.approx(17.0)


def test_a_board_that_does_not_cool_down_is_not_waited_for_for_ever(tmp_path):
    found = cooled(board(tmp_path, 0.0), [Temperature(wait="30s")], [record_at(40.0)])["warmth"]
    assert found["waited_s"] == pytest.approx(30.0)
    assert found["start_c"]["cpu_therm"] == 60.0


def test_a_study_without_the_probe_is_left_alone(tmp_path):
    assert cooled(board(tmp_path), [Cpu()], [record_at(1.0)]) == {}
    with guarded_from_heat(board(tmp_path), [Cpu()], {}) as guard:
        assert guard is None


@pytest.fixture
def quick_looks(monkeypatch):
    monkeypatch.setattr(conditions, "LOOK_EVERY_S", 0.01)


@pytest.mark.usefixtures("quick_looks")
@pytest.mark.parametrize(
    ("limit_c", "degrees", "stops"),
    [(97.0, 98.0, True), (97.0, 96.9, False), (None, 99.6, True), (None, 99.4, False)],
)
def test_the_guard_stops_at_the_declared_limit_or_below_the_devices_own(tmp_path, limit_c, degrees, stops):
    host = LocalHost(root=sensors.nano(tmp_path))  # critical at 102.5
    (tmp_path / "sys/class/thermal/thermal_zone1/temp").write_text(f"{degrees * 1000:.0f}\n")
    guard, stopped = HeatGuard(host, Temperature(limit_c=limit_c)), threading.Event()
    with guard.watching(stopped.set):
        assert stopped.wait(5.0 if stops else 0.2) is stops
    if stops:
        assert guard.stopped_by == {"name": "cpu_therm", "degrees_c": degrees, "limit_c": limit_c or 99.5}


@pytest.mark.usefixtures("quick_looks")
@pytest.mark.parametrize("count", [1, 2])
def test_an_overheating_device_ends_every_workload(tmp_path, count):
    root = sensors.nano(tmp_path / "root")
    (root / "sys/class/thermal/thermal_zone1/temp").write_text("98000\n")
    facts: dict = {}
    tenants = []
    for number in range(count):
        workdir = tmp_path / f"workdir{number}"
        workdir.mkdir()
        (workdir / "ready").touch()
        job = Job(("sleep", "60"), {"PATH": "/usr/bin:/bin"})
        tenants.append(Tenant(Waits(), LocalHost(), workdir, job))
    begin = time.monotonic()
    with guarded_from_heat(LocalHost(root=root), [Temperature(limit_c=97.0)], facts) as guard:
        run_together(tenants, 30.0, LocalHost().clock, guard)
    assert time.monotonic() - begin < 10
    assert all(isinstance(tenant.exit, Exit) and tenant.exit.code != 0 for tenant in tenants)
    assert facts["warmth"]["stopped_by"]["degrees_c"] == 98.0


class Waits:
    meets = "launch"

    def title(self):
        return "waits"


@pytest.mark.usefixtures("quick_looks")
def test_a_cool_device_disturbs_nobody(tmp_path):
    facts: dict = {}
    tenant = Tenant(Waits(), LocalHost(), tmp_path, Job(("true",), {"PATH": "/usr/bin:/bin"}))
    host = LocalHost(root=sensors.nano(tmp_path / "root"))
    with guarded_from_heat(host, [Temperature(limit_c=97.0)], facts) as guard:
        run_together([tenant], 30.0, host.clock, guard)
    assert tenant.exit.code == 0
    assert facts == {}
