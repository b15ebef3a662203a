"""Clocks and limits of a made-up H200: set, seen, put back; ignored, rounded, refused, forgotten, cut off."""

import json
import sys
from pathlib import Path

import pytest

from pretend_h200 import kept_in, put_in
from tare.base.errors import ControlNotHeld, DeviceLost, TareError
from tare.base.files import state_dir
from tare.drivers import nvidia as nvml
from tare.drivers.power import nvidia
from tare.drivers.power.backend import NO_LIMIT, PowerRequest
from tare.drivers.power.nvidia import BACKEND
from tare.testing import FakeHost

CLOCK = PowerRequest(gpu_mhz=990)
FREE = {"gpu.0.persistence": "on", "gpu.0.graphics_mhz": "free"}
AT_990 = {"gpu.0.persistence": "on", "gpu.0.graphics_mhz": "990"}


@pytest.fixture
def library(monkeypatch):
    return put_in(monkeypatch)


@pytest.fixture
def host():
    return FakeHost(files={nvml.DRIVER: "NVRM", "/proc/sys/kernel/random/boot_id": "one\n"})


def test_it_offers_what_the_gpu_can_be_set_to(library, host):
    values = BACKEND.values(host)

    assert BACKEND.offers(host) == {"gpu_mhz", "mem_mhz", "power_w"}
    assert (values["gpu_mhz"][0], values["gpu_mhz"][-1], len(values["gpu_mhz"])) == (345.0, 1980.0, 110)
    assert values["power_w"] == (200.0, 700.0)


def test_a_host_without_a_gpu_offers_nothing(library):
    assert BACKEND.offers(FakeHost()) == frozenset()
    assert BACKEND.values(FakeHost()) == {}


def test_a_clock_is_locked_read_back_and_freed(library, host):
    assert BACKEND.read(host, CLOCK) == FREE
    BACKEND.write(host, BACKEND.target(host, CLOCK))
    assert library.state()["lock"] == [990, 990]
    assert BACKEND.read(host, CLOCK) == BACKEND.target(host, CLOCK) == AT_990
    BACKEND.write(host, FREE)

    assert library.state()["lock"] is None
    assert BACKEND.read(host, CLOCK) == FREE


def test_the_nearest_supported_clock_is_meant(library, host):
    assert BACKEND.target(host, PowerRequest(gpu_mhz=1000))["gpu.0.graphics_mhz"] == "1005"
    assert BACKEND.obstacles(host, PowerRequest(gpu_mhz=1000)) == []


def test_a_clock_that_is_not_there_is_an_obstacle_with_its_neighbours(library, host):
    (sentence,) = map(str, BACKEND.obstacles(host, PowerRequest(gpu_mhz=2500)))

    assert "1980" in sentence
    with pytest.raises(TareError, match="1980"):
        BACKEND.target(host, PowerRequest(gpu_mhz=2500))


def test_a_power_limit_outside_its_ends_is_an_obstacle(library, host):
    (sentence,) = map(str, BACKEND.obstacles(host, PowerRequest(power_w=100)))

    assert "200 to 700 W" in sentence
    assert BACKEND.obstacles(host, PowerRequest(power_w=400, gpu_mhz=990)) == []


def test_a_power_limit_is_held_and_put_back_to_the_milliwatt(library, host):
    library.change(limit_mw=650001)
    request = PowerRequest(power_w=399.999)
    before = BACKEND.read(host, request)
    BACKEND.write(host, BACKEND.target(host, request))
    assert library.state()["limit_mw"] == 399999
    BACKEND.write(host, before)

    assert library.state()["limit_mw"] == 650001


def test_no_limit_is_free_clocks_and_the_default_power(library, host):
    wanted = BACKEND.target(host, PowerRequest(gpu_mhz=NO_LIMIT, power_w=NO_LIMIT))

    assert wanted == {**FREE, "gpu.0.power_mw": "700000"}


def test_persistence_comes_first_and_goes_last(library, host):
    library.change(persistence=0)
    nvml.gpus(host)
    calls = []
    for name in ("nvmlDeviceSetPersistenceMode", "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"):
        call = getattr(library, name)
        setattr(library, name, lambda *given, call=call, name=name: (calls.append(name[10:]), call(*given)))
    before = BACKEND.read(host, CLOCK)
    BACKEND.write(host, AT_990)
    BACKEND.write(host, before)

    assert before == {"gpu.0.persistence": "off", "gpu.0.graphics_mhz": "free"}
    assert calls == ["SetPersistenceMode", "SetGpuLockedClocks", "ResetGpuLockedClocks", "SetPersistenceMode"]


def test_a_wish_for_other_hardware_is_none_of_its(library, host):
    assert BACKEND.target(host, PowerRequest(cores=4)) == BACKEND.read(host, PowerRequest(cores=4)) == {}


def test_every_gpu_is_set(library, host):
    library.change(gpus=2)

    assert BACKEND.target(host, CLOCK).keys() == {
        f"gpu.{index}.{name}" for index in (0, 1) for name in ("persistence", "graphics_mhz")
    }


def test_a_gpu_that_ignores_the_lock_is_found_out(library, host):
    library.change(ignores=True)

    with pytest.raises(ControlNotHeld, match="requested 990 MHz, the device reports 345 MHz"):
        BACKEND.write(host, AT_990)


def test_a_gpu_that_rounds_is_found_out_and_what_it_did_is_taken_for_ours(library, host):
    library.change(off_by_mhz=15)
    with pytest.raises(ControlNotHeld, match="requested 990 MHz, the device reports 1005 MHz"):
        BACKEND.write(host, AT_990)
    assert BACKEND.read(host, CLOCK) == AT_990  # so that it is put back
    BACKEND.write(host, FREE)

    assert library.state()["lock"] is None


def test_a_lock_that_is_refused_is_not_noted(library, host):
    library.change(root=False)
    with pytest.raises(PermissionError):
        BACKEND.write(host, AT_990)

    assert BACKEND.read(host, CLOCK) == FREE


def test_a_refused_lock_leaves_the_note_of_the_one_before(library, host):
    BACKEND.write(host, AT_990)
    library.change(root=False)
    with pytest.raises(PermissionError):
        BACKEND.write(host, {"gpu.0.graphics_mhz": "1200"})

    assert BACKEND.read(host, CLOCK) == AT_990


def test_memory_clocks_that_cannot_be_locked_are_said(library, host):
    request = PowerRequest(mem_mhz=3201)

    with pytest.raises(TareError, match="nvmlDeviceSetMemoryLockedClocks is not supported"):
        BACKEND.write(host, BACKEND.target(host, request))
    assert BACKEND.read(host, request)["gpu.0.memory_mhz"] == "free"


def test_one_setting_that_is_refused_does_not_keep_the_others_from_being_put_back(library, host):
    request = PowerRequest(power_w=400)
    before = BACKEND.read(host, request)
    BACKEND.write(host, BACKEND.target(host, request))
    with pytest.raises(TareError, match="nvmlDeviceSetMemoryLockedClocks is not supported"):
        BACKEND.write(host, {**before, "gpu.0.memory_mhz": "3201"})  # sorted before the power limit

    assert BACKEND.read(host, request) == before


def test_a_lock_that_the_driver_forgot_reads_as_free(library, host):
    BACKEND.write(host, AT_990)
    library.change(lock=None)

    assert BACKEND.read(host, CLOCK) == FREE


def test_a_lock_that_is_not_met_for_want_of_power_is_still_a_lock(library, host):
    BACKEND.write(host, AT_990)
    library.change(reasons=nvml.REASON_SW_POWER)

    assert library.nvmlDeviceGetClockInfo(0, 0) == 525
    assert BACKEND.read(host, CLOCK) == AT_990


def test_a_note_of_before_the_reboot_counts_for_nothing(library, host):
    BACKEND.write(host, AT_990)
    host.files["/proc/sys/kernel/random/boot_id"] = "two\n"

    assert BACKEND.read(host, CLOCK) == FREE


@pytest.mark.parametrize("text", ["", "[]", "{", '{"boot": "one", "locks": 5}', '{"boot": "one", "locks": {"x": 1}}'])
def test_a_spoilt_note_counts_for_nothing(library, host, text):
    state_dir().mkdir(parents=True)
    (state_dir() / "gpu-locks.json").write_text(text)

    assert BACKEND.read(host, CLOCK) == FREE


def test_what_cannot_be_noted_is_not_locked(library, host, monkeypatch):
    Path(state_dir()).write_text("a file where the folder should be")
    with pytest.raises(TareError, match="Nothing was locked"):
        BACKEND.write(host, AT_990)

    assert library.state()["lock"] is None


def test_cut_off_between_the_note_and_the_lock_it_is_freed_again(library, host):
    nvidia.note_lock(host, library.nvmlDeviceGetUUID(0) if nvml.gpus(host) else "", "graphics_mhz", "990", held=False)
    assert BACKEND.read(host, CLOCK) == AT_990
    BACKEND.write(host, FREE)

    assert BACKEND.read(host, CLOCK) == FREE


@pytest.mark.parametrize(
    "settings",
    [{"gpu.7.graphics_mhz": "990"}, {"gpu.0.fan": "0"}, {"/etc/passwd": "x"}, {"gpu.0.graphics_mhz": "990; rm"}],
)
def test_settings_that_it_would_never_have_written_are_refused(library, host, settings):
    with pytest.raises(TareError, match="is no setting of this device"):
        BACKEND.write(host, settings)
    assert library.state()["lock"] is None


def test_a_lost_gpu_is_said_as_such(library, host):
    library.change(lost=True)

    with pytest.raises(DeviceLost):
        BACKEND.read(host, CLOCK)
    assert "gpu_mhz" in BACKEND.offers(host)  # or it would be taken for a device that never had one
    assert BACKEND.values(host) == {}
    assert "is lost" in str(BACKEND.obstacles(host, CLOCK)[0])


def test_without_dvfs_the_clock_stands_at_its_upper_end(library, host):
    assert BACKEND.clocks(host) == FREE == BACKEND.free(host)
    BACKEND.write(host, BACKEND.fixed(host))
    assert library.state()["lock"] == [1980, 1980]
    BACKEND.write(host, AT_990)

    assert BACKEND.fixed(host) == AT_990
    assert BACKEND.free(host) == {**FREE, "gpu.0.graphics_mhz": "345-990"}


def test_a_range_of_clocks_is_held_too(library, host):
    BACKEND.write(host, {"gpu.0.graphics_mhz": "345-990"})
    library.change(busy=True)

    assert library.nvmlDeviceGetClockInfo(0, 0) == 990
    assert BACKEND.read(host, CLOCK)["gpu.0.graphics_mhz"] == "345-990"


def test_the_note_of_a_killed_process_is_read_by_the_next(tmp_path, monkeypatch):
    import subprocess

    kept_in(tmp_path / "nvml.json", monkeypatch)
    locks = (
        "import os; from tare.base.host import LocalHost; from tare.drivers.power.nvidia import BACKEND; "
        "BACKEND.write(LocalHost(), {'gpu.0.persistence': 'on', 'gpu.0.graphics_mhz': '990'}); os.kill(os.getpid(), 9)"
    )
    reads = (
        "import json; from tare.base.host import LocalHost; from tare.drivers.power.nvidia import BACKEND; "
        "from tare.drivers.power.backend import PowerRequest; "
        "print(json.dumps(BACKEND.read(LocalHost(), PowerRequest(gpu_mhz=1))))"
    )
    killed = subprocess.run([sys.executable, "-c", locks], check=False)
    found = subprocess.run([sys.executable, "-c", reads], check=True, capture_output=True, text=True)

    assert killed.returncode == -9
    assert json.loads(found.stdout) == AT_990
