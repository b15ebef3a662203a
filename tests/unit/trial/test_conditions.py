"""The conditions of a trial: as warm as the first one, on a device that is not busy, from the same image."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from some_records import draft as a_record
from tare.base.errors import TrialError
from tare.base.host import Exit, Job, LocalHost
from tare.parts.probes.cpu import Cpu
from tare.parts.probes.thermal import Temperature
from tare.records.model import Record
from tare.testing import FakeClock
from tare.trial import conditions
from tare.trial.conditions import Glance, HeatGuard, advice, cooled, glance, guarded_from_heat, refuse_another
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
        job = Job(("sleep", "3600"), {"PATH": "/usr/bin:/bin"})
        tenants.append(Tenant(Waits(), LocalHost(), workdir, job))
    with guarded_from_heat(LocalHost(root=root), [Temperature(limit_c=97.0)], facts) as guard:
        run_together(tenants, 3600.0, LocalHost().clock, guard)
    for tenant in tenants:
        assert isinstance(tenant.exit, Exit) and tenant.exit.code != 0 and not tenant.exit.timed_out
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


ME, OTHER, THIRD = (os.getpid(), "tare"), (4_000_001, "cc1plus"), (4_000_002, "cc1plus")
BEFORE = Glance(1000, 500, 50, {ME: 50, OTHER: 100})


def later(foreign: int, ours: int = 0, capacity: int = 200) -> Glance:
    return Glance(1000 + capacity, 500 + foreign + ours, 50 + ours, {ME: 50 + ours, OTHER: 100 + foreign, THIRD: 7})


def test_who_uses_the_cores_is_named_before_the_first_trial():
    said = str(advice(BEFORE, later(120)))
    assert "other processes use 60%" in said
    assert "(cc1plus)" in said
    assert "the intervals get wider and the trials are marked" in said
    assert "above 25% a trial of this study is invalid" in str(advice(BEFORE, later(120), strict=True))


def test_less_than_that_makes_no_trial_of_a_strict_study_invalid():
    assert "invalid" not in str(advice(BEFORE, later(20), strict=True))


@pytest.mark.parametrize("after", [later(0), later(3), later(9), later(0, ours=190), later(10, capacity=1000)])
def test_a_quiet_device_and_our_own_work_are_nothing_to_say(after: Glance):
    assert advice(BEFORE, after) is None


def test_two_glances_in_the_same_tick_say_nothing():
    assert advice(BEFORE, BEFORE) is None


def test_a_glance_reads_what_the_kernel_says(tmp_path: Path):
    (tmp_path / "stat").write_text("cpu  10 1 20 300 5 2 3 4 0 0\ncpu0 1 2\n")
    for pid, name, ticks in ((7, "a (b) c", "40 2 0 0"), (os.getpid(), "me", "1 2 3 4")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 20 0 1 0 99")
    (tmp_path / "8").mkdir()  # gone since
    assert glance(tmp_path) == Glance(345, 36, 10, {(7, "a (b) c"): 42, (os.getpid(), "me"): 3})
    assert glance().capacity > 0


SETTINGS = {"platform": "docker", "platform.image": "pt:1", "workload": "null"}


def record(image: str, state: str = "ok", **settings: object) -> Record:
    place = {"root": "image", "image_id": image}
    return Record("t", 1, "s", 0, 0, 0, {**SETTINGS, **settings}, state, facts={"place": place})  # type: ignore[arg-type]


def test_a_tag_that_moved_between_two_repeats_is_refused():
    with pytest.raises(TrialError, match="sha256:a then, sha256:b now"):
        refuse_another(SETTINGS, {"root": "image", "image_id": "sha256:b"}, [record("sha256:a")])


def test_the_same_image_another_platform_and_failed_trials_are_no_reason():
    earlier = [record("sha256:b"), record("sha256:a", **{"platform.image": "pt:2"}), record("sha256:a", state="failed")]

    refuse_another(SETTINGS, {"root": "image", "image_id": "sha256:b"}, earlier)


def test_the_hosts_own_root_has_no_image_that_could_move():
    refuse_another(SETTINGS, {"root": "overlay", "image_id": "sha256:b"}, [record("sha256:a")])
