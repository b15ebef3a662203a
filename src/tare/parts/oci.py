"""The configuration of a container as the OCI runtime specification writes it: plain data from plain data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tare.parts import isolation
from tare.parts.cgroups import PARENT, PIDS_LIMIT
from tare.parts.gpu_files import GpuFile, oci_devices, oci_rules
from tare.parts.hostroot import Bind
from tare.parts.identity import Identity
from tare.parts.isolation import USUAL
from tare.parts.limits import PERIOD_US, Limits
from tare.parts.protocols import Json

SLEEPER = ("sleep", "2147483647")  # keeps the place open; the jobs come by exec
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_QUIET = ["nosuid", "noexec", "nodev"]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything that differs from one bundle to the next."""

    name: str
    rootfs: str
    user: Identity
    limits: Limits
    binds: Sequence[Bind]
    shm_bytes: int
    swap_is_counted: bool = True
    layers: Collection[str] = USUAL
    seccomp: Json | None = None
    writable: bool = False
    gpus: Sequence[GpuFile] = ()
    held: Collection[str] = ()  # the runner's own capabilities, for a container that keeps them


def config(bundle: Bundle) -> dict[str, Json]:
    """config.json of a long-lived container with its root, and with the layers that were asked for."""
    return {
        "ociVersion": "1.0.2",
        **({"hostname": "tare"} if "uts" in bundle.layers else {}),
        "process": process(bundle, SLEEPER, {"PATH": PATH}, "/"),
        "root": {"path": bundle.rootfs, "readonly": not bundle.writable},
        "mounts": [*_own_mounts(bundle.shm_bytes), *(_bind(bind) for bind in bundle.binds)],
        "linux": {
            "cgroupsPath": f"/{PARENT}/{bundle.name}",
            "resources": _resources(bundle),
            "devices": oci_devices(bundle.gpus),
            **isolation.linux(bundle.layers),
            **({} if bundle.seccomp is None else {"seccomp": bundle.seccomp}),
        },
    }


def process(bundle: Bundle, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> dict[str, Json]:
    """One process inside: this environment and no other, and the rights that the layers leave it."""
    return {
        "terminal": False,
        "user": {"uid": bundle.user.uid, "gid": bundle.user.gid},
        "args": list(argv),
        "env": [f"{name}={value}" for name, value in env.items()],
        "cwd": cwd,
        **isolation.process(bundle.layers, bundle.held),
    }


def _own_mounts(shm_bytes: int) -> list[dict[str, Json]]:
    """What every container has of its own. No cgroup mount: on a hybrid machine runc refuses it."""
    return [
        _mount("/proc", "proc", _QUIET),
        _mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        _mount("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        _mount("/dev/mqueue", "mqueue", _QUIET),
        _mount("/dev/shm", "tmpfs", [*_QUIET, "mode=1777", f"size={shm_bytes}"]),
        _mount("/sys", "sysfs", [*_QUIET, "ro"]),
        _mount("/run", "tmpfs", [*_QUIET, "mode=755", "size=65536k"]),
        # As on the device, a program may be run from /tmp: compilers of kernels put theirs there.
        _mount("/tmp", "tmpfs", ["nosuid", "nodev", "mode=1777"]),
    ]


def _mount(destination: str, kind: str, options: list[str]) -> dict[str, Json]:
    return {"destination": destination, "type": kind, "source": kind, "options": options}


def _bind(bind: Bind) -> dict[str, Json]:
    # Not recursive: the read-only flag does not reach what is mounted further down.
    options = ["bind", "rw" if bind.writable else "ro", "rprivate"]
    return {"destination": bind.target, "type": "bind", "source": bind.source, "options": options}


def _resources(bundle: Bundle) -> dict[str, Json]:
    limits = bundle.limits
    resources: dict[str, Json] = {"devices": [{"allow": False, "access": "rwm"}, *oci_rules(bundle.gpus)]}
    if "pids" in bundle.layers:
        resources["pids"] = {"limit": PIDS_LIMIT}
    cpu: dict[str, Json] = {}
    if limits.quota is not None:
        cpu |= {"quota": limits.quota_us(), "period": PERIOD_US}
    if limits.cpuset is not None:
        cpu |= {"cpus": limits.cpuset}
    if limits.mems is not None:
        cpu |= {"mems": limits.mems}
    if cpu:
        resources["cpu"] = cpu
    if limits.memory is not None:
        # What OCI calls swap is memory and swap together: the same number means no swap.
        resources["memory"] = {"limit": limits.memory} | ({"swap": limits.memory} if bundle.swap_is_counted else {})
    return resources
