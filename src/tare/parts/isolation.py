"""What a container is made of, layer by layer: each can be switched on or off by itself, to see what it costs.

The mount namespace with an overlay as the root is what makes it a container at all; everything else is a layer here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias, get_args

from tare.host import Host
from tare.parts.protocols import Json

Layer: TypeAlias = Literal[
    "pid", "ipc", "uts", "network",
    "cpu", "cpuset", "memory", "pids",
    "masked_paths", "capabilities", "no_new_privileges", "seccomp",
    "user",
]  # fmt: skip
LAYERS: tuple[Layer, ...] = get_args(Layer)
USUAL: tuple[Layer, ...] = tuple(layer for layer in LAYERS if layer != "user")
"""Those of a container as Docker makes it."""

NAMESPACES: tuple[Layer, ...] = ("pid", "ipc", "uts", "network", "user")
NEEDED_BY_USER = frozenset({"pid", "ipc", "network"})
"""What is mounted inside a user namespace (/proc, /sys, /dev/mqueue) must belong to it."""

_CAPABILITY_SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
_IDS = 65536

# What a container must not see or change of the kernel; the same lists as Docker's.
_MASKED = [
    "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware",
]  # fmt: skip
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]

# In the order of their numbers, as linux/capability.h has them.
_CAPABILITIES = (  # noqa: SIM905  (a table of forty lines is no easier to read)
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE "
    "NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN "
    "SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE "
    "MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
).split()


def linux(layers: Collection[str]) -> dict[str, Json]:
    """The `linux` part of a bundle's config.json, as far as layers decide it."""
    kinds = [kind for kind in NAMESPACES if kind in layers]
    made: dict[str, Json] = {"namespaces": [{"type": kind} for kind in (*kinds, "mount")]}
    if "masked_paths" in layers:
        made |= {"maskedPaths": _MASKED, "readonlyPaths": _READ_ONLY}
    if "user" in layers:
        # Each id stands for itself: the files of the root keep their owners, and only the namespace is added.
        mapping = [{"containerID": 0, "hostID": 0, "size": _IDS}]
        made |= {"uidMappings": mapping, "gidMappings": mapping}
    return made


def process(layers: Collection[str], held: Collection[str]) -> dict[str, Json]:
    """What layers decide about each process inside; `held` are the capabilities that the runner itself has."""
    kept = [] if "capabilities" in layers else sorted(held)
    return {
        "capabilities": dict.fromkeys(_CAPABILITY_SETS, kept),
        "noNewPrivileges": "no_new_privileges" in layers,
    }


def held_capabilities(host: Host) -> list[str]:
    """The capabilities that a process of ours can pass on."""
    status = dict(line.split(":", 1) for line in host.read("/proc/self/status").splitlines() if ":" in line)
    bits = int(status.get("CapBnd", "0").strip() or "0", 16)
    return [f"CAP_{name}" for number, name in enumerate(_CAPABILITIES) if bits >> number & 1]
