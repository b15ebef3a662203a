"""What the device is, and what it can do, in plain data and sentences."""

from __future__ import annotations

import os
import platform
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tare.base.errors import TrialError
from tare.base.host import Host, Job, RemoteDevice, Site
from tare.drivers.cgroups.tree import hierarchies
from tare.drivers.places import built_in_env
from tare.drivers.power.everything import running
from tare.parts.protocols import Platform
from tare.trial.tenants import prepare_workdir, read_json, remove_folders
from tare.trial.undo.journal import Journal

_SYSCTLS = {
    "vm.dirty_ratio": "/proc/sys/vm/dirty_ratio",
    "vm.dirty_background_ratio": "/proc/sys/vm/dirty_background_ratio",
    "vm.dirty_expire_centisecs": "/proc/sys/vm/dirty_expire_centisecs",
    "vm.dirty_writeback_centisecs": "/proc/sys/vm/dirty_writeback_centisecs",
    "vm.swappiness": "/proc/sys/vm/swappiness",
    "kernel.randomize_va_space": "/proc/sys/kernel/randomize_va_space",
    "transparent_hugepage": "/sys/kernel/mm/transparent_hugepage/enabled",
    "cpu.governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "cpu.online": "/sys/devices/system/cpu/online",
    "cpu.socket": "/sys/devices/system/cpu/cpu0/topology/core_siblings_list",
    "board": "/proc/device-tree/model",
    "mem_sleep": "/sys/power/mem_sleep",  # which sleep `idle: {state: suspended}` is: `s2idle [deep]`
}


def device_facts(host: Host) -> dict[str, Any]:
    """The population that a record belongs to: cells from different devices or kernels are not pooled."""
    memory, system = _after(host, "/proc/meminfo", "MemTotal:"), _after(host, "/etc/os-release", "PRETTY_NAME=")
    facts: dict[str, Any] = {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_model(host),
        "cores": len(os.sched_getaffinity(0)),
        "boot_id": _line(host, "/proc/sys/kernel/random/boot_id"),
        "memory_bytes": None if memory is None else int(memory.split()[0]) * 1024,
        "cgroups": cgroup_layout(host),
        "os": None if system is None else system.strip().strip('"'),
    }
    for name, path in _SYSCTLS.items():
        if (value := _line(host, path)) is not None:
            facts[name] = value.strip("\0")
    if isinstance(host, RemoteDevice):
        facts |= host.machine_facts
    # Whoever else turns the device's knobs: where a study turns them too, it ran with --ignore-managers.
    facts["managers"] = ", ".join(one.name for one in running(host)) or None
    return {name: value for name, value in facts.items() if value is not None}


def clocks() -> dict[str, float]:
    """Three clocks at one moment: how they move apart tells of a sleep, or of a wall clock that was set."""
    return {
        "monotonic_s": time.clock_gettime(time.CLOCK_MONOTONIC),
        "boottime_s": time.clock_gettime(time.CLOCK_BOOTTIME),
        "realtime_s": time.time(),
    }


def cgroup_layout(host: Host) -> str | None:
    """`v1`, `v2` or `hybrid`, by what is mounted."""
    try:
        found = set(hierarchies(host))
    except OSError:
        return None
    if not found:
        return None
    return "v2" if found == {""} else "hybrid" if "" in found else "v1"


def abilities(host: Host) -> list[tuple[str, bool, str]]:
    """What this device can and cannot do beyond the parts: (what, yes or no, the sentence)."""
    return [(name, *look(host)) for name, look in _ABILITIES.items()]


def _root(host: Host) -> tuple[bool, str]:
    if os.geteuid() == 0:
        return True, "tare runs as root: controls, cgroups and overlays can be used."
    missing = "no controls, no layers over the host's files, no control group for bare; root brings them."
    return False, f"tare does not run as root: {missing}"


def _spare_core(host: Host) -> tuple[bool, str]:
    cores = len(os.sched_getaffinity(0))
    if cores > 2:
        return True, f"{cores} cores: the sampler gets one of its own."
    return False, f"{cores} cores: none to spare for the sampler, which shares them with the workload."


def _counters(host: Host) -> tuple[bool, str]:
    found = _line(host, "/sys/bus/event_source/devices/cpu/type") or _line(
        host, "/sys/bus/event_source/devices/armv8_pmuv3_0/type"
    )
    if found is not None:
        return True, "the CPU's hardware counters are there."
    return False, "no hardware counters (a guest without a virtual PMU): only the kernel's own counts."


def _frequency(host: Host) -> tuple[bool, str]:
    if _line(host, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") is not None:
        return True, "CPU clocks can be read."
    return False, "no cpufreq: CPU clocks can be neither read nor set, so a change of clock goes unseen."


def _tracefs(host: Host) -> tuple[bool, str]:
    known = _line(host, "/proc/filesystems", whole=True) or ""
    if "tracefs" in known and os.geteuid() == 0:
        return True, "tracefs is there: the kernel's events can be traced."
    if "tracefs" in known:
        return False, "tracefs is there, but tracing needs root."
    return False, "this kernel has no tracefs."


def _pressure(host: Host) -> tuple[bool, str]:
    if _line(host, "/proc/pressure/cpu") is not None:
        return True, "pressure stall information is there: a busy neighbour on this machine is noticed."
    return False, "no pressure stall information (CONFIG_PSI): a busy neighbour is noticed by CPU time only."


def _malloc(host: Host) -> tuple[bool, str]:
    if os.confstr("CS_GNU_LIBC_VERSION") is None:
        return True, "not glibc: its malloc lottery does not apply."
    return True, (
        "glibc: whether malloc gives memory back flips between identical runs and moves page faults by orders of "
        "magnitude; built-in workloads run with the thresholds fixed (`malloc: fixed`), your own command does not."
    )


_ABILITIES: dict[str, Callable[[Host], tuple[bool, str]]] = {
    "root": _root,
    "spare core": _spare_core,
    "hardware counters": _counters,
    "clocks": _frequency,
    "tracefs": _tracefs,
    "pressure": _pressure,
    "malloc": _malloc,
}


def _line(host: Host, path: str, *, whole: bool = False) -> str | None:
    try:
        text = host.read(path)
    except OSError:
        return None
    return text if whole else text.strip()


def _cpu_model(host: Host) -> str | None:
    text = _line(host, "/proc/cpuinfo", whole=True) or ""
    named = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    values = {key.strip(): value.strip() for key, value in named.items()}
    if "model name" in values:
        return values["model name"]
    if "CPU part" in values:
        return f"implementer {values.get('CPU implementer', '?')} part {values['CPU part']}"
    return None


def _after(host: Host, path: str, word: str) -> str | None:
    """What stands behind this word, in the first line that begins with it."""
    lines = (_line(host, path, whole=True) or "").splitlines()
    return next((line.removeprefix(word) for line in lines if line.startswith(word)), None)


_ANSWER_WITHIN_S = 120.0
# torch is imported first, so that its libraries are there to be compared.
_ASK = """
import json
try:
    import torch, numpy
except ImportError:
    pass
from tare_inside import fingerprint
print(json.dumps(fingerprint.gather()))
"""


def software_of(platform: Platform, host: Host, journal: Journal, scratch_root: Path) -> dict[str, Any]:
    """The fingerprint from inside this platform; it is opened for that, and noted in the journal before."""
    name = f"tare-software-{secrets.token_hex(4)}"
    noted = journal.note_site(platform.part_name(), name)
    scratch = scratch_root / name
    scratch.mkdir(mode=0o700, parents=True)
    workdir = prepare_workdir(name, scratch)

    def leave() -> None:
        remove_folders(name, scratch_root)
        journal.retire(noted, "removed")

    try:
        place = platform.open(host, Site(name=name, scratch=scratch, writes=(workdir,)))
    except BaseException:
        leave()  # it has cleaned up after itself
        raise
    try:
        return _asked(place, workdir)
    finally:
        place.close()  # if that fails the note stays, and `tare device restore` takes over
        leave()


def _asked(place: Host, workdir: Path) -> dict[str, Any]:
    job = Job((place.python, "-c", _ASK), env=built_in_env(workdir, "fixed"), cwd="/")
    ended = place.spawn(job).wait(_ANSWER_WITHIN_S)
    reported = read_json(ended.out)
    if not reported:
        raise TrialError(f"{place.python} in {place.name} did not say what it is: {ended.err.strip()[-800:]}")
    return reported
