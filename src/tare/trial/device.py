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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tare.base import processes
from tare.base.errors import BusyError, NotPermittedError, TareError
from tare.base.files import ROOT_STATE, state_dir
from tare.base.host import Host
from tare.base.processes import Owner

__all__ = [
    "DeviceLock", "device_id", "in_use", "lock_dir", "out_of_sight", "private_folder", "restore_command", "state_dir",
    "trusted_owners",
]  # fmt: skip

ROOT_LOCKS = Path("/run/tare/locks")  # in a folder where only root can make one: /run/lock is everybody's
_PLACEHOLDERS = frozenset(
    {"none", "notspecified", "unknown", "uninitialized", "defaultstring", "systemserialnumber", "tobefilledbyo.e.m."}
)
_SOURCES = (
    ("board", "/proc/device-tree/serial-number"),
    ("machine", "/etc/machine-id"),
    ("dmi", "/sys/class/dmi/id/product_uuid"),
)
GUARDIAN = "guardian"  # the run that holds the lock while what a dead run left is put back
GUARDIAN_MODULE = "tare.trial.undo.guardian"  # and its process
GUARDIAN_NEEDS_S = 60.0  # so long a command waits for it
LOOK_EVERY_S = 1.0  # whether another run has ended


def lock_dir(state: Path) -> Path:
    """Where the device's lock lies: one place for all of root's runs, whatever their state folder is."""
    if named := os.environ.get("TARE_LOCK_DIR"):
        return Path(named).absolute()
    return ROOT_LOCKS if os.geteuid() == 0 else state


def restore_command(force: bool = False, *, as_root: bool = False) -> str:
    """The one command that puts back what this user's journal holds, from any folder, as the user can paste it.

    What a user could change, the same user can put back; `as_root` is for where that was refused. Root has a journal
    of its own, and has to be told of the user's.
    """
    through_sudo = as_root and os.geteuid() != 0
    state, locks = os.environ.get("TARE_STATE"), os.environ.get("TARE_LOCK_DIR")
    settings = [f"TARE_STATE={state_dir()}"] if state or through_sudo else []
    settings += [f"TARE_LOCK_DIR={Path(locks).absolute()}"] if locks else []
    words = ["env", *settings] if settings else []
    words += ["tare", "device", "restore", *(["--force"] if force else [])]
    return shlex.join(["sudo", *words] if through_sudo else words)


def out_of_sight() -> str | None:
    """What to tell an ordinary user for whom there is nothing to restore: root's journal may say otherwise."""
    if os.geteuid() == 0 or os.environ.get("TARE_STATE") or not ROOT_STATE.exists():
        return None
    return f"what root's runs left is noted in {ROOT_STATE}, readable only by root: see `sudo tare device restore`."


def device_id(host: Host, state: Path | None = None) -> str:
    """A short id of the hardware, so that a cloned card or a copied state folder is not taken for this device."""
    for source, path in _SOURCES:
        if (value := _identity(host, path)) is not None:
            return _hashed(source, value)
    return _hashed("random", _kept_random(state or state_dir()))


def trusted_owners() -> set[int]:
    """Whose files may steer us: root's, our own, and those of the user who had sudo show us their state folder."""
    named = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 and os.environ.get("TARE_STATE") else ""
    return {0, os.geteuid(), *([int(named)] if named.isdecimal() else [])}


def private_folder(path: Path) -> Path:
    """`path` as a folder that only its owner can change: made if missing, refused if someone else could write there.

    The folders above it, where they are made too, may be read by all: /run/tare has things that every user looks at.
    """
    missing = path
    try:
        for missing in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
            missing.mkdir(mode=0o700 if missing == path else 0o755, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise TareError(
            f"{missing} cannot be made or read: {error.strerror}. "
            "Set TARE_STATE to a folder of yours (HOME may be another's)."
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in trusted_owners() or found.st_mode & 0o022:
        raise TareError(
            f"{path} is not a folder that only its owner can write to, so tare does not trust it.\n"
            f"Look at it with `ls -ld {path}`; remove it, or `chmod 700` it if it is yours."
        )
    return path


class DeviceLock:
    """One owner at a time. The kernel's lock is the truth; what the file says is only information.

    The file is never removed, and a holder that is killed frees it at once: there is nothing to clean up. Runs of other
    users have files of their own: a second lock, on a folder, is between those.
    """

    def __init__(
        self, state: Path, device: str, run: str = "", *, wait_s: float = 0.0, say: Callable[[str], None] | None = None
    ) -> None:
        """`wait_s`: so long another run is waited for, which `say` hears of once."""
        self.path = lock_dir(state) / f"{device}.lock"
        self._run = run
        self._wait_s, self._say_once = wait_s, say
        self._descriptor = -1
        self._shared: int | None = None
        self.overruled = ""  # whose lock on the shared folder root went past

    def __enter__(self) -> Self:
        private_folder(self.path.parent)
        descriptor = self._open()
        self._began_s = time.monotonic()
        try:
            while not _locked(descriptor):
                reported = os.pread(descriptor, 4096, 0)
                self._wait(_busy(self.path, reported), guardian=_is_guardians(reported))
            self._shared = self._shared_with_others()
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        me = Owner.me()
        self._say({"pid": me.pid, "started": me.started, "since": time.time(), "run": self._run})
        return self

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = -1
        if self._shared is not None:
            os.close(self._shared)
            self._shared = None

    def _wait(self, busy: str, *, guardian: bool) -> None:
        """A moment, as long as the one who has the device is waited for; else it is an error.

        A guardian is always waited for: it puts back what a dead run left, and is gone then.
        """
        if time.monotonic() - self._began_s >= max(self._wait_s, GUARDIAN_NEEDS_S if guardian else 0.0):
            raise BusyError(busy)
        if self._say_once is not None and not guardian:
            self._say_once(f"{busy.partition(chr(10))[0]} Waiting until it ends, up to {self._wait_s:.0f} s.")
            self._say_once = None
        time.sleep(0.1 if guardian else LOOK_EVERY_S)

    def _shared_with_others(self) -> int | None:
        """The lock that other users' runs take too. A guardian goes on without: nobody else does its work.

        Anybody can take that lock and keep it. So root's commands take it where it is free, and otherwise go on: only
        root's own lock, which nobody else can open, keeps root out.
        """
        place = processes.lock_folder()
        if place is None:
            return None
        while (descriptor := processes.locked(place)) is None and self._run != GUARDIAN:
            pid = processes.lock_holder(place)
            if os.geteuid() == 0 and processes.is_unprivileged(pid):
                self.overruled = f"{processes.lock_owner(place)[:-1]}; root's command continues."
                return None
            is_guardian = pid is not None and GUARDIAN_MODULE in processes.words_of(pid)
            self._wait(processes.lock_busy(place), guardian=is_guardian)
        return descriptor

    def _open(self) -> int:
        # CLOEXEC: a workload that outlives us must not go on holding the device in our name.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self.path, flags, 0o600)
        except PermissionError as error:
            raise NotPermittedError(
                f"the device's lock {self.path} is another user's. Root may take it: `{restore_command(as_root=True)}`."
            ) from error
        except OSError as error:
            what = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
            raise TareError(f"the device's lock {self.path} {what}. Look at it with `ls -l {self.path}`.") from error

    def _say(self, content: dict[str, Any]) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(content).encode() + b"\n", 0)


def in_use(state: Path, device: str) -> str | None:
    """Who has the device now, in a sentence; None where nobody has. Takes nothing."""
    path, place = lock_dir(state) / f"{device}.lock", processes.lock_folder()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
        reported = json.loads(path.read_bytes())
        if Owner(int(reported["pid"]), int(reported["started"])).is_alive():
            run = f", run {str(reported['run'])[:200]!r}" if reported.get("run") else ""
            return f"pid {reported['pid']}{run}, owns this device since {_clock(reported['since'])}."
    if place is not None and processes.lock_holder(place) is not None:
        return processes.lock_owner(place)
    return None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_guardians(reported: bytes) -> bool:
    """Whether the holder is the guardian of a run that died."""
    try:
        return bool(json.loads(reported)["run"] == GUARDIAN)
    except (ValueError, KeyError, TypeError):
        return False


def _busy(path: Path, reported: bytes) -> str:
    """Who has the device, as far as the holder has said."""
    try:
        content = json.loads(reported)
        holder = Owner(int(content["pid"]), int(content["started"]))
        since = _clock(content["since"])
        run = f", run {str(content['run'])[:200]!r}" if content.get("run") else ""
    except (ValueError, KeyError, TypeError, OverflowError):
        return f"another run owns this device, and has not named itself.\n`fuser {path}` names its process."
    if not holder.is_alive():  # a holder between taking the lock and saying so, or one in another pid namespace
        return (
            f"another run owns this device, and is not pid {holder.pid} of before.\n`fuser {path}` names its process."
        )
    return (
        f"another run owns this device: pid {holder.pid}, since {since}{run}.\n"
        f"Wait until it ends (`tare run STUDY --wait` does), or stop it with `kill {holder.pid}`: it "
        "then restores the device by itself."
    )


def _clock(since_s: object) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(str(since_s))))


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
