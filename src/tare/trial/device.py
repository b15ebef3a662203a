"""This device: what it is called, where tare keeps what must outlive a run, and who owns it now."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shlex
import stat
import time
from pathlib import Path
from typing import Any, Self

from tare.errors import BusyError, TareError
from tare.host import Host
from tare.trial.owner import Owner

ROOT_STATE = Path("/var/lib/tare")
ROOT_LOCKS = Path("/run/lock/tare")
_PLACEHOLDERS = frozenset(
    {"none", "notspecified", "unknown", "uninitialized", "defaultstring", "systemserialnumber", "tobefilledbyo.e.m."}
)
_SOURCES = (
    ("board", "/proc/device-tree/serial-number"),
    ("machine", "/etc/machine-id"),
    ("dmi", "/sys/class/dmi/id/product_uuid"),
)


def state_dir() -> Path:
    """Where tare keeps what must outlive a run: $TARE_STATE, the system's place for root, the user's for others."""
    if named := os.environ.get("TARE_STATE"):
        return Path(named).absolute()
    if os.geteuid() == 0:
        return ROOT_STATE
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "tare"


def lock_dir(state: Path) -> Path:
    """Where the device's lock lies: one place for all of root's runs, whatever their state folder is."""
    if named := os.environ.get("TARE_LOCK_DIR"):
        return Path(named).absolute()
    return ROOT_LOCKS if os.geteuid() == 0 else state


def restore_command(force: bool = False) -> str:
    """The one command that puts this device back, as the user can paste it."""
    words = ["tare", "restore", *(["--force"] if force else [])]
    if named := os.environ.get("TARE_STATE"):
        words = ["env", f"TARE_STATE={named}", *words]
    return shlex.join(words if os.geteuid() == 0 else ["sudo", *words])


def out_of_sight() -> str | None:
    """What to tell an ordinary user for whom there is nothing to restore: root's journal may say otherwise."""
    if os.geteuid() == 0 or os.environ.get("TARE_STATE") or not ROOT_STATE.exists():
        return None
    return (
        f"what root's runs left is noted in {ROOT_STATE}, which only root can read: `{restore_command()}` looks there."
    )


def device_id(host: Host, state: Path | None = None) -> str:
    """A short id of the hardware, so that a cloned card or a copied state folder is not taken for this device."""
    for source, path in _SOURCES:
        if (value := _identity(host, path)) is not None:
            return _hashed(source, value)
    return _hashed("random", _kept_random(state or state_dir()))


def private_folder(path: Path) -> Path:
    """`path` as a folder that only its owner can change: made if missing, refused if someone else could write there."""
    for missing in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
        try:
            missing.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise TareError(
                f"{missing} cannot be made: {error.strerror}. Set TARE_STATE to a folder of yours."
            ) from error
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise TareError(
            f"{path} is not a folder that only its owner can write to, so tare does not trust it.\n"
            f"Look at it with `ls -ld {path}`; remove it, or `chmod 700` it if it is yours."
        )
    return path


class DeviceLock:
    """One owner at a time. The kernel's lock is the truth; what the file says is only information.

    The file is never removed, and a holder that is killed frees it at once: there is nothing to clean up.
    """

    def __init__(self, state: Path, device: str, run: str = "") -> None:
        self.path = lock_dir(state) / f"{device}.lock"
        self._run = run
        self._descriptor = -1

    def __enter__(self) -> Self:
        private_folder(self.path.parent)
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.pread(descriptor, 4096, 0)
            os.close(descriptor)
            raise BusyError(_busy(self.path, said)) from None
        self._descriptor = descriptor
        me = Owner.me()
        self._say({"pid": me.pid, "started": me.started, "since": time.time(), "run": self._run})
        return self

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = -1

    def _open(self) -> int:
        # CLOEXEC: a workload that outlives us must not go on holding the device in our name.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self.path, flags, 0o600)
        except OSError as error:
            what = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
            raise TareError(f"the device's lock {self.path} {what}. Look at it with `ls -l {self.path}`.") from error

    def _say(self, content: dict[str, Any]) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(content).encode() + b"\n", 0)


def _busy(path: Path, said: bytes) -> str:
    """Who has the device, as far as the holder has said."""
    try:
        content = json.loads(said)
        holder = Owner(int(content["pid"]), int(content["started"]))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(content["since"])))
        run = f", run {str(content['run'])[:200]!r}" if content.get("run") else ""
    except (ValueError, KeyError, TypeError, OverflowError):
        return f"another run owns this device, and has not said which it is.\n`fuser {path}` names its process."
    if not holder.is_alive():  # a holder between taking the lock and saying so, or one in another pid namespace
        return (
            f"another run owns this device, and is not pid {holder.pid} of before.\n`fuser {path}` names its process."
        )
    return (
        f"another run owns this device: pid {holder.pid}, since {since}{run}.\n"
        f"Wait until it ends, or stop it with `kill {holder.pid}`: it then puts the device back by itself."
    )


def _identity(host: Host, path: str) -> str | None:
    """What a file says about the hardware, unless it says nothing that tells two devices apart."""
    try:
        value = host.read(path).strip(" \t\r\n\0")
    except OSError:
        return None
    told_apart = len(set(value) - set("-0 ")) > 1 and "".join(value.lower().split()) not in _PLACEHOLDERS
    return value if told_apart else None


def _hashed(source: str, value: str) -> str:
    # Hashed: a serial number or a machine-id has no place in file names and reports.
    return hashlib.sha256(f"tare device {source} {value}".encode()).hexdigest()[:16]


def _kept_random(state: Path) -> str:
    """A random id, made once and kept, for a device that has no name of its own."""
    path = private_folder(state) / "device-id"
    if path.exists():
        return path.read_text().strip()
    draft = path.with_name(f"device-id.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, f"{secrets.token_hex(16)}\n".encode())
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):  # the first to link it has named the device
            path.hardlink_to(draft)
    finally:
        os.close(descriptor)
        draft.unlink()
    return path.read_text().strip()
