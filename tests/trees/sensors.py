"""Sensors of pretended machines, as files: power monitors, thermal zones, energy counters, throttle counts."""

from __future__ import annotations

from pathlib import Path

from trees.files import CPUS, lay

HWMON = "/sys/class/hwmon"
THERMAL = "/sys/class/thermal"
POWERCAP = "/sys/class/powercap"


def monitor(hwmon: int, rails: dict[str, tuple[int, int]]) -> dict[str, str]:
    """An INA3221 in hwmon: (millivolts, milliamperes) of each rail; the shunts' drops are there too, in microvolts."""
    folder = f"{HWMON}/hwmon{hwmon}"
    files = {f"{folder}/name": "ina3221\n", f"{folder}/in7_input": "880\n", f"{folder}/in7_label": "sum of shunts\n"}
    for channel, (label, (millivolts, milliamperes)) in enumerate(rails.items(), start=1):
        files |= {
            f"{folder}/in{channel}_label": f"{label}\n",
            f"{folder}/in{channel}_input": f"{millivolts}\n",
            f"{folder}/in{channel}_enable": "1\n",
            f"{folder}/curr{channel}_input": f"{milliamperes}\n",
            f"{folder}/in{channel + 3}_input": "440\n",
            f"{folder}/curr{channel}_crit_alarm": "0\n",
            f"{folder}/curr{channel}_max_alarm": "0\n",
        }
    return files


def old_monitor(folder: str, rails: dict[str, tuple[int, int]]) -> dict[str, str]:
    """The same chip as JetPack 4 shows it, through iio."""
    files = {}
    for channel, (label, (millivolts, milliamperes)) in enumerate(rails.items()):
        files |= {
            f"{folder}/rail_name_{channel}": f"{label}\n",
            f"{folder}/in_voltage{channel}_input": f"{millivolts}\n",
            f"{folder}/in_current{channel}_input": f"{milliamperes}\n",
            f"{folder}/in_power{channel}_input": f"{millivolts * milliamperes // 1000}\n",
        }
    return files


def zone(number: int, name: str, milli_c: int, critical: int | None = None) -> dict[str, str]:
    folder = f"{THERMAL}/thermal_zone{number}"
    trips = {"trip_point_0_type": "passive\n", "trip_point_0_temp": "97000\n"}
    if critical is not None:
        trips |= {"trip_point_1_type": "critical\n", "trip_point_1_temp": f"{critical}\n"}
    return {f"{folder}/{file}": text for file, text in {"type": f"{name}\n", "temp": f"{milli_c}\n", **trips}.items()}


def cooling(number: int, name: str, state: int = 0) -> dict[str, str]:
    folder = f"{THERMAL}/cooling_device{number}"
    return {f"{folder}/type": f"{name}\n", f"{folder}/cur_state": f"{state}\n"}


def nano(root: Path) -> Path:
    """JetPack 4: POM_5V_IN is the module."""
    rails = {"POM_5V_IN": (4800, 500), "POM_5V_GPU": (4800, 40), "POM_5V_CPU": (4800, 100)}
    return lay(
        root,
        old_monitor("/sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0", rails)
        | zone(0, "AO-therm", 39500)
        | zone(1, "CPU-therm", 36500, 102_500)
        | zone(2, "GPU-therm", 36000, 102_500)
        | zone(3, "PMIC-Die", 100_000, 120_000)
        | cooling(0, "pwm-fan", 2)
        | cooling(1, "thermal-cpufreq-0")
        | {"/sys/kernel/debug/clk/emc/clk_rate": "1600000000\n"},
    )


def agx_xavier(root: Path) -> Path:
    """JetPack 4: six rails on two monitors, and no total."""
    first = {"GPU": (19000, 0), "CPU": (19000, 20), "SOC": (19000, 50)}
    second = {"CV": (19000, 0), "VDDRQ": (19000, 30), "SYS5V": (5000, 300)}
    return lay(
        root,
        old_monitor("/sys/bus/iio/devices/iio:device0", first)
        | old_monitor("/sys/bus/iio/devices/iio:device1", second),
    )


def agx_orin(root: Path, shift: int = 0) -> Path:
    """JetPack 5: three rails that make the module, and one that is a part of the third; `shift` renumbers hwmon."""
    rails = {"VDD_GPU_SOC": (19808, 160), "VDD_CPU_CV": (19808, 40), "VIN_SYS_5V0": (4992, 900)}
    files = {
        f"{HWMON}/hwmon{shift}/name": "tmp451\n",
        **monitor(1 + shift, rails),
        **monitor(3 + shift, {"NC": (0, 0), "VDDQ_VDD2_1V8AO": (4992, 200), "NC ": (0, 0)}),
        f"{HWMON}/hwmon{4 + shift}/name": "soctherm_oc\n",
        f"{HWMON}/hwmon{4 + shift}/oc1_event_cnt": "0\n",
        f"{HWMON}/hwmon{4 + shift}/oc3_event_cnt": "7\n",
        **zone(0, "cpu-thermal", 48_500, 104_500),
        **zone(1, "gpu-thermal", -256_000, 104_500),
        **zone(2, "tj-thermal", 49_000, 104_500),
        **cooling(0, "pwm-fan", 1),
        **cooling(1, "cpufreq-cpu0"),
        **cooling(2, "devfreq-17000000.ga10b"),
        "/sys/kernel/debug/bpmp/debug/clk/emc/rate": "2133000000\n",
    }
    return lay(root, files)


def x86(root: Path, packages: int = 2) -> Path:
    """RAPL with cores and memory in each package, psys, the mmio twin of the first, and throttle counts."""
    files = {}
    for package in range(packages):
        here = f"{POWERCAP}/intel-rapl:{package}"
        files |= _zone(here, f"package-{package}", 262_143_328_850)
        files |= _zone(f"{here}:0", "core", 262_143_328_850) | _zone(f"{here}:1", "dram", 65_712_999_613)
    files |= _zone(f"{POWERCAP}/intel-rapl:{packages}", "psys", 262_143_328_850)
    files |= _zone(f"{POWERCAP}/intel-rapl-mmio:0", "package-0", 262_143_328_850)
    for core in range(4):
        files |= {
            f"{CPUS}/cpu{core}/thermal_throttle/core_throttle_count": "3\n",
            f"{CPUS}/cpu{core}/thermal_throttle/package_throttle_count": "5\n",
            f"{CPUS}/cpu{core}/topology/core_id": f"{core}\n",
            f"{CPUS}/cpu{core}/topology/physical_package_id": f"{core // 2}\n",
        }
    return lay(root, files | zone(0, "x86_pkg_temp", 45_000) | cooling(0, "Processor") | cooling(1, "TCC Offset", 10))


def _zone(folder: str, name: str, range_uj: int) -> dict[str, str]:
    return {
        f"{folder}/name": f"{name}\n",
        f"{folder}/energy_uj": "1000000\n",
        f"{folder}/max_energy_range_uj": f"{range_uj}\n",
    }
