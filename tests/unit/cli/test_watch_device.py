"""What `tare watch` reads of the machine itself."""

from __future__ import annotations

from tare.cli.watch import sensors
from tare.testing import FakeHost

CPU = "/sys/devices/system/cpu"
ZONE = "/sys/class/thermal/thermal_zone"


def test_clocks_and_temperatures_are_what_the_kernel_reports_now() -> None:
    files = {
        f"{CPU}/present": "0-1\n", f"{CPU}/cpu0/cpufreq/scaling_cur_freq": "1200000\n",
        f"{CPU}/cpu1/cpufreq/scaling_cur_freq": "2400000\n",
        f"{ZONE}0/type": "CPU-therm\n", f"{ZONE}0/temp": "48500\n",
        f"{ZONE}1/type": "GPU-therm\n", f"{ZONE}1/temp": "61250\n",
    }  # fmt: skip
    assert sensors(FakeHost(files)) == {
        "clocks": "cores 1.20 GHz to 2.40 GHz",
        "temperature": "61 °C (gpu_therm, the hottest of 2)",
    }


def test_a_machine_without_sensors_reports_none() -> None:
    assert sensors(FakeHost()) == {}
