"""Pretended servers: `x86(root)` has cpufreq with a driver of intel_pstate's kind, `acpi(root)` one with a table."""

from __future__ import annotations

from pathlib import Path

from trees.files import CPUS, V2_MOUNTS, core_files, lay, policy_files

X86_MIN_KHZ, X86_MAX_KHZ = 800_000, 3_600_000
ACPI_KHZ = (1_200_000, 1_800_000, 2_400_000)
NO_TURBO = f"{CPUS}/intel_pstate/no_turbo"
BOOST = f"{CPUS}/cpufreq/boost"


def x86(root: Path, cores: int = 4) -> Path:
    """A policy a core, any clock between two limits, governors powersave and performance, `no_turbo`."""
    files = {**core_files(cores), **_machine()}
    for core in range(cores):
        own = policy_files([core], (X86_MIN_KHZ, X86_MAX_KHZ), "powersave")
        own.pop(f"{CPUS}/cpufreq/policy{core}/scaling_available_frequencies")
        own[f"{CPUS}/cpufreq/policy{core}/scaling_available_governors"] = "performance powersave\n"
        files |= own
    return lay(root, {**files, NO_TURBO: "0\n"})


def acpi(root: Path, cores: int = 4) -> Path:
    """Two policies of two cores each, three clocks, `boost`."""
    files = {**core_files(cores), **_machine(), BOOST: "1\n"}
    for first in range(0, cores, 2):
        files |= policy_files((first, first + 1), ACPI_KHZ, "ondemand")
    return lay(root, files)


def _machine() -> dict[str, str]:
    return {
        "/proc/self/mountinfo": V2_MOUNTS,
        "/etc/machine-id": "4b1f0a6d5c2e4f8e9d7c6b5a49382716\n",
        "/sys/fs/cgroup/cpuset.cpus.effective": "0-3\n",
    }
