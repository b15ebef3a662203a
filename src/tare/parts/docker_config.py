"""What is asked of the Docker engine for one container: plain data from plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tare.parts.cgroups import PIDS_LIMIT
from tare.parts.gpu_files import GpuFile
from tare.parts.hostroot import Bind
from tare.parts.limits import PERIOD_US, Limits
from tare.parts.oci import SLEEPER
from tare.parts.protocols import Json


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything that differs from one container to the next."""

    image: str
    user: str
    limits: Limits
    shm_bytes: int
    cgroup_parent: str
    binds: Sequence[Bind] = ()
    hidden: Sequence[str] = ()  # folders that are covered by an empty one
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    seccomp: bool = True
    writable: bool = False
    open_files: tuple[int, int] | None = None
    gpus: Sequence[GpuFile] = ()
    runtime: str = ""  # the engine's own choice by default


def config(wanted: Wanted) -> dict[str, Json]:
    """The body of a create request: no network, no capability, a read-only root (faults.md S14, S15)."""
    return {
        "Image": wanted.image,
        "Cmd": list(SLEEPER),
        "Entrypoint": [],  # an image's own would swallow the sleeper
        "User": wanted.user,
        "Hostname": "tare",
        "Env": [f"{name}={value}" for name, value in wanted.env.items()],
        "Labels": dict(wanted.labels),
        "WorkingDir": "/",
        "Healthcheck": {"Test": ["NONE"]},  # an image's own would run beside the measurement
        "HostConfig": _host_config(wanted),
    }


def _host_config(wanted: Wanted) -> dict[str, Json]:
    return {
        "NetworkMode": "none",
        "IpcMode": "private",
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", *([] if wanted.seccomp else ["seccomp=unconfined"])],
        "Privileged": False,
        "ReadonlyRootfs": not wanted.writable,
        "PidsLimit": PIDS_LIMIT,
        "ShmSize": wanted.shm_bytes,
        "CgroupParent": wanted.cgroup_parent,
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
        "Mounts": [_mount(bind) for bind in wanted.binds],
        "Tmpfs": {
            # As on the device, a program may be run from /tmp: compilers of kernels put theirs there.
            "/tmp": "rw,nosuid,nodev,exec,mode=1777",
            "/run": "rw,nosuid,nodev,noexec,mode=755,size=65536k",
            **dict.fromkeys(wanted.hidden, "ro,nosuid,nodev,noexec,mode=000,size=4k"),
        },
        **_ulimits(wanted.open_files),
        **({"Runtime": wanted.runtime} if wanted.runtime else {}),
        **_gpus(wanted.gpus),
        **_resources(wanted.limits),
    }


def _mount(bind: Bind) -> dict[str, Json]:
    return {
        "Type": "bind",
        "Source": bind.source,
        "Target": bind.target,
        "ReadOnly": not bind.writable,
        # The read-only flag does not reach what is mounted further down, so that nothing further down is shown.
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }


def _gpus(files: Sequence[GpuFile]) -> dict[str, Json]:
    there = [{"PathOnHost": file.path, "PathInContainer": file.path, "CgroupPermissions": "rwm"} for file in files]
    return {"Devices": there} if there else {}


def _ulimits(open_files: tuple[int, int] | None) -> dict[str, Json]:
    if open_files is None:
        return {}
    return {"Ulimits": [{"Name": "nofile", "Soft": open_files[0], "Hard": open_files[1]}]}


def _resources(limits: Limits) -> dict[str, Json]:
    # CpuQuota, not NanoCpus: a container made with the latter cannot be updated with the former.
    resources: dict[str, Json] = {}
    if limits.quota is not None:
        resources |= {"CpuQuota": limits.quota_us(), "CpuPeriod": PERIOD_US}
    if limits.cpuset is not None:
        resources["CpusetCpus"] = limits.cpuset
    if limits.mems is not None:
        resources["CpusetMems"] = limits.mems
    if limits.memory is not None:
        resources |= {"Memory": limits.memory, "MemorySwap": limits.memory}  # together: no swap
    return resources
