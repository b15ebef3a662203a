"""A medium of our own: a file system in an image file behind a loop device, which can be throttled alone.

All of it lies in one folder of the scratch folder, under one name: whoever finds a loop device or a mount on a file
there knows whose it is (`tare device clean`, trial/undo/restoration.py). There is one at a time: a run owns its device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from tare.base import processes
from tare.base.errors import TrialError
from tare.base.files import state_dir
from tare.base.host import Host
from tare.base.processes import mounts
from tare.drivers import layers
from tare.drivers.places import comes_true

_LEAST_BYTES = 64 << 20  # so that a measured read does not go over the same blocks again and again
_SPARE_INODES = 1024
_INODE_BYTES = 256
_GONE_WITHIN_S = 10.0
_DELETED = " (deleted)"
_FILLED_WITHIN_S = 3600.0


def site(state: Path | None = None) -> str:
    """The name that all of it goes by; runs with another state folder, which is rare but happens, have another."""
    return f"{layers.MEDIA}{hashlib.sha256(str(state or state_dir()).encode()).hexdigest()[:8]}"


def folder() -> Path:
    return state_dir() / "scratch" / site()


def image() -> Path:
    return folder() / "medium.img"


def point() -> Path:
    """Where the file system is mounted, whole; what a workload reads are parts of it, bound over its own folders."""
    return folder() / "medium"


def pieces(host: Host) -> list[str]:
    """What there is of it: the image (its folder is made first and goes last), the loop device, the mount."""
    found = []
    if host.run(["test", "-e", str(folder())]).code == 0:
        found.append("image")
    if device(host) is not None:
        found.append("loop")
    if _is_mounted(host):
        found.append("mount")
    return found


def device(host: Host) -> str | None:
    """The loop device that shows the image."""
    return next(_devices(host), None)


def _devices(host: Host) -> Iterator[str]:
    """Those that show it; not one that was let go of, which ends with the last mount namespace that holds a copy."""
    listed = host.run(["losetup", "--list", "--noheadings", "--raw", "--output", "NAME,AUTOCLEAR,BACK-FILE"])
    for line in listed.out.splitlines():
        name, goes_by_itself, file = line.strip().split(" ", 2)
        file = file.replace("\\x20", " ").strip()
        let_go = goes_by_itself == "1" and file.endswith(_DELETED)
        if file.removesuffix(_DELETED) == str(image()) and not let_go:
            yield name


def device_number(host: Host, device: str) -> str:
    """`7:0`, as control groups name a block device."""
    return host.read(f"/sys/block/{Path(device).name}/dev").strip()


def facts(host: Host, device: str) -> dict[str, object]:
    """How the device is set up, as it says itself."""
    queue = f"/sys/block/{Path(device).name}"
    return {
        "device": device,
        "direct_io": host.read(f"{queue}/loop/dio").strip() == "1",
        "read_ahead_kib": int(host.read(f"{queue}/queue/read_ahead_kb")),
    }


def size_for(content_bytes: int, files: int, room_bytes: int) -> int:
    """How large an image must be for so much content in so many files, and for what is written beside it."""
    inodes = (files + _SPARE_INODES) * _INODE_BYTES
    size = max(_LEAST_BYTES, round(1.03 * (content_bytes + inodes + room_bytes)) + (16 << 20))
    return size + (-size) % (1 << 20)


def make(host: Host, size_bytes: int, files: int, *, journal: bool, read_ahead_kib: int) -> str:
    """Make it, empty and mounted to be filled; the loop device's name."""
    processes.lease_name(site())
    host.run(["mkdir", "-p", "-m", "700", "--", str(folder())]).checked()
    host.run(["mkdir", "-p", "--", str(point())]).checked()
    reserved = host.run(["fallocate", "-l", str(size_bytes), "--", str(image())], limit_s=_FILLED_WITHIN_S)
    if reserved.code != 0:
        reported = (reserved.err or reserved.out).strip()
        raise TrialError(
            f"storage: no room for an image of {size_bytes / 2**20:.0f} MiB in {folder()}: {reported}\n"
            "Make room there, or set TARE_STATE to a folder on a larger disk."
        )
    features = [] if journal else ["-O", "^has_journal"]
    whole = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"  # or the kernel would go on making it during the trial
    inodes = ["-N", str(files + _SPARE_INODES)]
    command = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", *features, *inodes, "-E", whole, str(image())]
    host.run(command, limit_s=_FILLED_WITHIN_S).checked()
    made = host.run(["losetup", "--find", "--show", "--direct-io=on", str(image())]).checked().out.strip()
    host.write(f"/sys/block/{Path(made).name}/queue/read_ahead_kb", str(read_ahead_kib))
    host.run(["mount", "-t", "ext4", "-o", "noatime", made, str(point())]).checked()
    return made


def shut(host: Host) -> None:
    """It is full: from now on it is only read."""
    host.run(["mount", "-o", "remount,ro", "--", str(point())]).checked()


def remove(host: Host) -> None:
    """Take all of it away, whatever there is.

    A mount namespace that was made meanwhile, with private mounts, holds a copy of ours: then the loop device is let
    go of, and the kernel removes it when that namespace ends. Nobody can reach it any more, and its file is gone.
    """
    while _is_mounted(host):
        layers.unmount(host, str(point()))
    for name in list(_devices(host)):
        host.run(["losetup", "--detach", name]).checked()
    host.run(["rm", "-rf", "--one-file-system", "--", str(folder())]).checked()
    if not comes_true(host.clock, lambda: device(host) is None, _GONE_WITHIN_S, 0.02):
        left = device(host)
        raise TrialError(f"storage: the loop device {left} does not go: `losetup --detach {left}` says why.")
    processes.drop_name(site())


def _is_mounted(host: Host) -> bool:
    return any(mount.point == str(point()) for mount in mounts(host))
