"""Who holds the device, or left something on it: a process, told apart from a later one with the same number.

What is mounted where, as /proc/self/mountinfo of a host says it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tare.base.errors import BusyError
from tare.base.files import state_dir
from tare.base.host import Host

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo, as far as we need it."""

    point: str
    root: str  # the folder of the file system that is shown at `point`
    kind: str  # ext4, overlay, cgroup, cgroup2, ...
    source: str
    options: tuple[str, ...]  # of the file system: for cgroup v1 these are its controllers


def mounts(host: Host, pid: int | str = "self") -> list[Mount]:
    """Everything that is mounted for a process, in the order of mounting; nothing where it cannot be read."""
    try:
        lines = host.read(f"/proc/{pid}/mountinfo").split("\n")
    except OSError:
        return []
    return [mount for line in lines if (mount := _parsed(line)) is not None]


def _parsed(line: str) -> Mount | None:
    """`36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/vda rw`: the optional fields end at the dash."""
    before, dash, after = line.partition(" - ")
    left, right = before.split(" "), after.split(" ")  # a path may hold any other kind of blank
    if not dash or len(left) < 5 or len(right) < 3:
        return None
    return Mount(
        point=_plain(left[4]),
        root=_plain(left[3]),
        kind=right[0],
        source=_plain(right[1]),
        options=tuple(right[2].split(",")),
    )


def _plain(field: str) -> str:
    """Without the kernel's escapes: a blank in a path is written `\\040`; what is not ASCII is written as it is."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def holding(mounted: Iterable[Mount], path: str) -> Mount | None:
    """The mount that `path` lies on: the deepest one, and of two at the same place the later."""
    best: Mount | None = None
    for mount in mounted:
        inside = PurePosixPath(path).is_relative_to(mount.point)
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


_PROC = Path("/proc")
_OWNER = re.compile(r"([0-9]{1,10}):([0-9]{1,20})")
_ENDED = frozenset("ZX")  # a zombie has ended: only its parent has not noticed yet


class Owner(NamedTuple):
    """One process of this boot."""

    pid: int
    started: int  # clock ticks after boot: a reused pid has another one

    @classmethod
    def me(cls) -> Owner:
        """The process that asks."""
        _, started = _state_and_start(os.getpid()) or ("", 0)
        return cls(os.getpid(), started)

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The reverse of `str`, or None if it is not one."""
        found = _OWNER.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}"

    def is_alive(self) -> bool:
        """True if this very process still runs, not merely one with its number."""
        seen = _state_and_start(self.pid)
        return seen is not None and seen[0] not in _ENDED and seen[1] == self.started


def boot_id() -> str:
    """The id of this boot; it changes when, and only when, the kernel starts anew."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """Fields 3 and 22 of /proc/<pid>/stat; the name before them may hold spaces and brackets."""
    try:
        after_name = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return after_name[0], int(after_name[19])


_CAP_SYS_ADMIN = 21


@dataclass(frozen=True, slots=True)
class Identity:
    """The user that the runner is, and whether it may mount."""

    uid: int
    gid: int
    can_mount: bool

    @property
    def user(self) -> str:
        return f"{self.uid}:{self.gid}"


def identity(host: Host) -> Identity:
    """From /proc/self/status; raises OSError where a host has no /proc."""
    return _identity(host, "self")


def user_of(host: Host, pid: int) -> Identity | None:
    """The user of another process; None where it cannot be told."""
    try:
        return _identity(host, str(pid))
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _identity(host: Host, pid: str) -> Identity:
    values = dict(line.split(":", 1) for line in host.read(f"/proc/{pid}/status").splitlines() if ":" in line)
    return Identity(
        uid=int(values["Uid"].split()[1]),  # the second number is the effective one
        gid=int(values["Gid"].split()[1]),
        can_mount=bool(int(values.get("CapEff", "0").strip(), 16) >> _CAP_SYS_ADMIN & 1),
    )


def is_root(host: Host) -> bool:
    """Whether commands there run as root and may mount; False where nobody can tell."""
    try:
        who = identity(host)
    except (OSError, KeyError, ValueError):
        return False
    return who.uid == 0 and who.can_mount


ULIMITS = {
    "nofile": "Max open files",
    "memlock": "Max locked memory",
    "stack": "Max stack size",
    "core": "Max core file size",
    "nproc": "Max processes",
}


def ulimits(host: Host, pid: int | str = "self") -> dict[str, tuple[int, int]]:
    """Limits of a process, soft and hard, -1 is none; ours are for a container to have the same.

    It would otherwise get the engine's: a million open files as a rule, and programs that walk over all possible
    descriptors pay for that.
    """
    try:
        lines = host.read(f"/proc/{pid}/limits").splitlines()
    except OSError:
        return {}
    found = {}
    for name, label in ULIMITS.items():
        words = next((line.removeprefix(label).split()[:2] for line in lines if line.startswith(label)), [])
        numbers = [-1 if word == "unlimited" else int(word) for word in words if word == "unlimited" or word.isdigit()]
        if len(numbers) == 2:
            found[name] = (numbers[0], numbers[1])
    return found


# One lock of the device that root's runs and everybody else's both see: the kernel's, on a folder that all can open.
#
# Root's own lock file is hidden from users, and theirs lie in their homes. A folder can be locked by whoever may read
# it, nobody but root can put another in its place, and nothing has to be made, trusted or cleaned up.

LOCK_FOLDERS = (Path("/run/lock"), Path("/run"), Path("/"))  # the first that is there, on every system the same one
_LOCKS = Path("/proc/locks")
_FLOCK = re.compile(r"FLOCK\s+\w+\s+WRITE\s+(\d+)\s+([0-9a-f]+):([0-9a-f]+):(\d+)\s")


def lock_folder() -> Path | None:
    """Whose lock it is; None where the user has set these locks apart (TARE_LOCK_DIR)."""
    if os.environ.get("TARE_LOCK_DIR"):
        return None
    return next((each for each in LOCK_FOLDERS if each.is_dir() and os.access(each, os.R_OK)), None)


def locked(place: Path) -> int | None:
    """The lock as a descriptor to be closed; None where another one has it."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:  # a file system without locks: each user has only the own one
        pass
    return descriptor


def lock_holder(place: Path) -> int | None:
    """The process that has the lock, as far as the kernel tells."""
    found = place.stat()
    at = (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino)
    with contextlib.suppress(OSError):
        for pid, major, minor, inode in _FLOCK.findall(_LOCKS.read_text()):
            if (int(major, 16), int(minor, 16), int(inode)) == at and int(pid) > 0:
                return int(pid)
    return None


def words_of(pid: int) -> tuple[str, ...]:
    """The command line of a process; nothing where that is hidden."""
    try:
        return tuple(Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0"))
    except OSError:
        return ()


def is_unprivileged(pid: int | None) -> bool:
    """Whether the lock is held by somebody who could take it to keep root out: anyone but root.

    The kernel names the holder where it can be seen at all; one that cannot be (another pid namespace) may be anyone.
    """
    if pid is None:
        return True
    try:
        return Path(f"/proc/{pid}").stat().st_uid != 0
    except OSError:
        return True


def lock_busy(place: Path) -> str:
    """Who has the device, and what to do."""
    if lock_holder(place) is None:
        return f"{lock_owner(place)}\n`fuser {place}` names its process, as root."
    advice = "Wait until it ends (`tare run STUDY --wait` does), or ask its owner to stop it: it then "
    advice += "restores the device by itself."
    return f"{lock_owner(place)}\n{advice}"


def lock_owner(place: Path) -> str:
    """Who has the device."""
    pid = lock_holder(place)
    return f"another user's run owns this device{'' if pid is None else f': pid {pid}{_whose(pid)}'}."


def _whose(pid: int) -> str:
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return ""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    line = " ".join(words_of(pid))
    return f", of {name}" + (f" (`{line[:80]}`)" if line else "")


# Which names are in use: a run locks the file of a name before it makes anything under that name.
#
# The lock is the kernel's: it ends with its process, and holds for every user and in every pid namespace that sees the
# folder. The file lies beside the workdirs, never in one, and only its owner and root can open it: neither a workload
# nor another user can hold it. A container, group, mount or folder whose name is free is what a dead run left behind.

LEASES = Path("/dev/shm")
_LEASE = ".lock"
_PATIENCE_S = 60.0  # for a removal, which holds the name as well
_held: dict[str, int] = {}


class Lease(NamedTuple):
    """A name in use: by which process, as far as that can be read, and of which user."""

    owner: Owner
    uid: int


def lease_name(name: str) -> None:
    """Lock a name, or find that this process has it, alone or with all that begin with it."""
    if _over(name, _held) is not None:
        return
    if not _held:
        remove_stale_leases()  # so that the folder does not fill up
    path = _lease_path(name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    end_s = time.monotonic() + _PATIENCE_S
    while (descriptor := _locked_lease(path, make=True)) is None:
        if time.monotonic() > end_s:
            raise BusyError(f"another process uses or removes {name}: `fuser {path}` names it, as root.")
        time.sleep(0.01)
    os.pwrite(descriptor, f"{Owner.me()}".encode(), 0)
    _held[name] = descriptor


def drop_name(name: str) -> None:
    """What had this name is gone: the file of a dead run goes too, one that another process holds stays."""
    own = _held.pop(name, None)
    for path in (folder / f"{name}{_LEASE}" for folder in _lease_folders()):
        if own is not None and _is_at(path, own):
            path.unlink()  # before the lock goes: whoever opened it meanwhile looks again
        else:
            _remove_free(path)
    if own is not None:
        os.close(own)


@contextlib.contextmanager
def name_kept_free(name: str) -> Iterator[bool]:
    """Nobody can make anything under this name meanwhile; False where somebody has it."""
    path = _lease_path(name)
    descriptor = _locked_lease(path, make=True)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            path.unlink(missing_ok=True)
            os.close(descriptor)


def leased_names() -> dict[str, Lease]:
    """Every name that a living process has locked."""
    found = {}
    for path in _lease_files():
        with contextlib.suppress(FileNotFoundError):  # it was let go of just now
            if (lease := _lease_at(path)) is not None:
                found[path.name.removesuffix(_LEASE)] = lease
    return found


def lease_over(name: str, leases: Mapping[str, Lease]) -> Lease | None:
    """The lease of this name, or of the place that it is inside of: that has its name before its own."""
    over = _over(name, leases)
    return None if over is None else leases[over]


def remove_stale_leases() -> None:
    """Remove the files that no process has locked."""
    for path in _lease_files():
        _remove_free(path)


def _remove_free(path: Path) -> None:
    with contextlib.suppress(OSError):  # another user's
        if (descriptor := _locked_lease(path)) is not None:
            path.unlink()
            os.close(descriptor)


def _over(name: str, names: Iterable[str]) -> str | None:
    return next((each for each in names if name == each or name.startswith(f"{each}-")), None)


def _lease_path(name: str) -> Path:
    first, own = _lease_folders()
    return (first if os.access(first, os.W_OK) else own) / f"{name}{_LEASE}"


def _lease_folders() -> tuple[Path, Path]:
    """One that all users see; where it cannot be written, the workdirs lie in our own state folder as well."""
    return LEASES, state_dir() / "owners"


def _lease_files() -> list[Path]:
    folders = [folder for folder in _lease_folders() if os.access(folder, os.R_OK | os.X_OK)]
    return [path for folder in folders for path in sorted(folder.glob(f"tare-*{_LEASE}"))]


def _locked_lease(path: Path, *, make: bool = False) -> int | None:
    """The file of a name, locked; None where another process has it, or where it is not there and not to be made."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            if not make:
                return None
            # Made apart from being opened: the kernel refuses O_CREAT on a file of another user, even to root.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600))
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # removed after it was opened


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _lease_at(path: Path) -> Lease | None:
    """Who has locked this file, as it wrote itself; pid 0 where that cannot be seen from here."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError:  # only its user can tell; what carries the name is not ours to remove
        return Lease(Owner(lock_holder(path) or 0, 0), found.st_uid)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = Owner.parse(os.pread(descriptor, 64, 0).decode("ascii", "replace"))
        return Lease(owner or Owner(0, 0), found.st_uid)
    finally:
        os.close(descriptor)
    return None
