"""The door to NVML: what is absent is absent, what is lost says so, and nothing needs a GPU to be found out."""

import importlib
import inspect
import sys

import pytest

from pretend_h200 import put_in
from tare.base.errors import DeviceLost, TareError
from tare.base.host import LocalHost
from tare.base.installed import pip_install
from tare.drivers import nvidia
from tare.testing import FakeHost


@pytest.fixture
def library(monkeypatch):
    return put_in(monkeypatch)


def the_gpu():
    return nvidia.gpus(LocalHost())[0]


def test_a_gpu_says_what_it_is_and_does_in_base_units(library):
    gpu = the_gpu()

    assert (gpu.name(), gpu.label) == ("NVIDIA H200", "gpu")
    assert gpu.energy_j() == pytest.approx(2936.251)
    assert gpu.power_w() == pytest.approx(79.158)
    assert gpu.memory_used_bytes() == 644939776
    assert gpu.fields(nvidia.POWER_INSTANT) == {nvidia.POWER_INSTANT: 79476}
    assert (gpu.clock_mhz(), gpu.clock_mhz(nvidia.MEMORY)) == (345, 3201)
    assert len(gpu.graphics_clocks_mhz()) == 110
    assert gpu.graphics_clocks_mhz()[0] == 345


def test_what_a_gpu_does_not_have_is_none(library):
    library.change(refused={"nvmlDeviceGetTotalEnergyConsumption": 3, "nvmlDeviceGetUtilizationRates": 13})

    assert the_gpu().energy_j() is None
    assert the_gpu().util() is None


def test_a_field_that_the_driver_does_not_know_is_left_out(library):
    assert the_gpu().fields(nvidia.POWER_INSTANT, 9999) == {nvidia.POWER_INSTANT: 79476}


def test_an_unforeseen_error_is_not_taken_for_absence(library):
    library.change(refused={"nvmlDeviceGetTotalEnergyConsumption": 999})

    with pytest.raises(TareError, match="Unknown Error"):
        the_gpu().energy_j()


def test_a_lost_gpu_is_told_from_every_other_trouble(library):
    gpu = the_gpu()
    library.change(lost=True)

    with pytest.raises(DeviceLost, match="GPU 0 is lost"):
        gpu.clock_mhz()


def test_setting_without_root_is_a_permission_error_as_with_files(library):
    gpu = the_gpu()
    library.change(root=False)

    with pytest.raises(PermissionError):
        gpu.lock_graphics_mhz(990, 990)


def test_an_old_library_that_lacks_a_call_lacks_the_figure(library):
    del library.nvmlDeviceGetTotalEnergyConsumption

    assert the_gpu().energy_j() is None


def test_throttle_reasons_are_found_under_their_old_name(library):
    library.nvmlDeviceGetCurrentClocksThrottleReasons = library.nvmlDeviceGetCurrentClocksEventReasons
    del library.nvmlDeviceGetCurrentClocksEventReasons

    assert the_gpu().reasons() == 0x1  # idle


def test_no_driver_is_a_sentence(library):
    library.change(no_driver=True)

    assert "kernel driver is not loaded" in nvidia.trouble(LocalHost())


def test_no_nvidia_ml_py_is_a_sentence_that_says_what_to_install(monkeypatch):
    monkeypatch.setattr(nvidia, "_opened", {})
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert f"`{pip_install('nvidia')}`" in nvidia.trouble(LocalHost())


def test_a_driver_without_a_gpu_is_a_sentence(library):
    library.change(gpus=0)

    assert "has no GPU" in nvidia.trouble(LocalHost())


def test_another_host_has_no_gpu_of_ours_unless_it_has_the_driver(library):
    assert "no NVIDIA driver on fake" in nvidia.trouble(FakeHost())
    assert nvidia.trouble(FakeHost(files={nvidia.DRIVER: "NVRM version"})) is None


def test_a_second_gpu_has_a_label_of_its_own(library):
    library.change(gpus=2)

    assert [gpu.label for gpu in nvidia.gpus(LocalHost())] == ["gpu", "gpu1"]


def test_settings_are_lost_with_the_last_client_when_persistence_is_off(library):
    gpu = the_gpu()
    gpu.persist(False)
    gpu.lock_graphics_mhz(990, 990)
    assert gpu.clock_mhz() == 990
    library.nvmlShutdown()
    nvidia._opened.clear()

    assert the_gpu().clock_mhz() == 345


@pytest.fixture
def real(monkeypatch):
    """nvidia-ml-py itself."""
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setattr(nvidia, "_opened", {})
    return importlib.import_module("pynvml")


def test_the_pretended_library_takes_what_the_real_one_takes(real, library):
    calls = {name: call for name, call in vars(library).items() if name.startswith("nvml") and callable(call)}

    assert len(calls) > 25
    for name, call in calls.items():
        ours, theirs = (list(inspect.signature(each).parameters) for each in (call, getattr(real, name)))
        assert ours == theirs, name


def test_the_numbers_of_fields_and_reasons_are_those_of_the_real_library(real):
    assert real.NVML_FI_DEV_POWER_INSTANT == nvidia.POWER_INSTANT
    assert nvidia.SW_POWER_CAP == real.NVML_FI_DEV_PERF_POLICY_POWER
    assert (real.nvmlClocksEventReasonGpuIdle, real.nvmlClocksEventReasonSwPowerCap) == (1, nvidia.REASON_SW_POWER)
    assert (real.NVML_CLOCK_GRAPHICS, real.NVML_CLOCK_MEM) == (nvidia.GRAPHICS, nvidia.MEMORY)
    assert (real.NVML_ERROR_GPU_IS_LOST, real.NVML_ERROR_NO_PERMISSION) == (nvidia._LOST, nvidia._NO_PERMISSION)


def test_the_real_library_on_a_machine_without_a_driver_is_a_sentence(real):
    why = nvidia.trouble(LocalHost())
    assert why is None or "NVIDIA" in why
