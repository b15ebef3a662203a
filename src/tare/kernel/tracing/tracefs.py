"""tracefs: where it is, what this kernel can trace, and an instance of our own that nobody else's tracing touches.

An instance is called after the process that made it (`tare-<pid>-<start>-<what>`), so that one whose maker has died is
known by its name. Where tracefs is not mounted, it is mounted in a folder of ours for as long as the instance lives.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tare.base.errors import TrialError
from tare.base.host import Host, Scope
from tare.base.processes import Owner, holding, mounts
from tare.base.rulings import Ruling, obstacle
from tare.ext.parts import STATE_FOLDER as STATE
from tare.ext.parts import Leftover, own_groups, threads_file
from tare.kernel.traces.roles import HOST, TARE, Snapshot, tenant_role

USUAL = "/sys/kernel/tracing"
_OURS = re.compile(r"tare-(\d+)-(\d+)-[a-z0-9]+(?:-(\d+))?")  # process, its start, what for, its PID namespace
_PRIVATE = Path(STATE) / "tracefs"
_GONE_WITHIN_S = 5.0
# What is looked at is given as paths relative to tracefs; those that are there come back. A mount in a namespace of
# its own is seen by nobody else and goes with the command.
_LOOK = (
    'if [ "$1" = - ]; then mount -t tracefs tare /mnt || exit 9; root=/mnt; else root=$1; fi; shift; '
    'cd "$root" || exit 8; for path do [ -e "$path" ] && echo "$path"; done; exit 0'
)


def mounted_at(host: Host) -> str | None:
    """Where tracefs is, whole and for all; None where it is not mounted."""
    points = [mount.point for mount in mounts(host) if mount.kind == "tracefs" and mount.root == "/"]
    return USUAL if USUAL in points else next(iter(points), None)


def obstacles(host: Host) -> list[Ruling]:
    """Why nothing can be traced here at all."""
    try:
        known = "tracefs" in host.read("/proc/filesystems").split()
    except OSError:
        known = False
    if not known:
        return [obstacle("needs.kernel", "this kernel has no tracefs (CONFIG_FTRACE), so it cannot be traced.")]
    if host.run(["id", "-u"]).out.strip() != "0":
        return [obstacle("needs.root", "only root may trace the kernel; run tare as root, or leave this probe away.")]
    return []


def present(host: Host, paths: Sequence[str]) -> set[str] | None:
    """Which of these files of tracefs this kernel has; None where it cannot be seen. Nothing is changed by asking."""
    where = mounted_at(host)
    look = ["sh", "-c", _LOOK, "look", where or "-", *paths]
    done = host.run(look if where else ["unshare", "--mount", "--propagation", "private", *look])
    return set(done.out.splitlines()) if done.code == 0 else None


class Instance:
    """A trace buffer of our own, with its events, until it is removed."""

    def __init__(self, host: Host, root: Path, what: str, private: Path | None = None) -> None:
        self._host = host
        self.name = instance_name(what)
        self.root, self.path, self._private = root, root / "instances" / self.name, private
        try:
            self.path.mkdir()
        except OSError as error:
            self._unmount()
            raise TrialError(f"no trace instance can be made in {root}: {error.strerror}.") from error

    def read(self, file: str) -> str:
        return (self.path / file).read_text(errors="backslashreplace")

    def write(self, file: str, text: str) -> None:
        try:
            _write(self.path / file, text)
        except OSError as error:
            raise TrialError(f"tracefs did not take {text!r} as {file}: {error.strerror}.") from error

    def has(self, file: str) -> bool:
        return (self.path / file).exists()

    def cores(self) -> list[int]:
        found = [path.name.removeprefix("cpu") for path in (self.path / "per_cpu").iterdir()]
        return sorted(int(number) for number in found if number.isdigit())

    def others(self) -> list[str]:
        """Who else traces: sentences about what costs time beside ours, and is left alone."""
        reported = []
        tracer = (self.root / "current_tracer").read_text().strip()
        if tracer != "nop":
            reported.append(
                f"someone else's tracer ({tracer}) is active on this device; it was left alone, and costs time."
            )
        events = [line for line in (self.root / "set_event").read_text().split() if line]
        if events:
            reported.append(
                f"someone else traces {len(events)} events on this device; they were left alone, and cost time."
            )
        return reported

    def remove(self) -> None:
        """Turn it off and remove it; then unmount what was mounted for it."""
        remove_instance(self.path)
        self._unmount()

    def _unmount(self) -> None:
        if self._private is not None:
            _unmount(self._host, self._private)


def instance_name(what: str) -> str:
    """Of an instance that this process makes."""
    owner = Owner.me()
    return f"tare-{owner.pid}-{owner.started}-{what}-{_namespace()}"


def _namespace() -> str:
    """Of process numbers. Tracefs is one for all: a number of another namespace says nothing of who lives there."""
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def open_instance(host: Host, what: str) -> Instance:
    """An instance for this process; tracefs is mounted for it in our own folder, where it is not yet."""
    where = mounted_at(host)
    if where is not None:
        return Instance(host, Path(where), what)
    folder = _PRIVATE / instance_name(what)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    done = host.run(["mount", "-t", "tracefs", f"tare:{folder.name}", str(folder)])
    if done.code != 0:
        _unmount(host, folder)
        raise TrialError(f"tracefs cannot be mounted at {folder}: {done.err.strip()}")
    return Instance(host, folder, what, private=folder)


def leftovers(host: Host) -> list[Leftover]:
    """Our instances, of living processes and dead ones."""
    where = mounted_at(host)
    return [
        Leftover(path.name, f"the trace instance {path}", owner=_owner(path.name))
        for path in _ours(where)
        if path.is_dir()
    ]


def sweep(host: Host, name: str) -> None:
    """Remove the instance of this name, if there is one; `name` is one of ours."""
    where = mounted_at(host)
    if where is not None and _OURS.fullmatch(name) and (path := Path(where) / "instances" / name).is_dir():
        remove_instance(path)
    if _OURS.fullmatch(name) and (_PRIVATE / name).is_dir():
        _unmount(host, _PRIVATE / name)


def remove_dead(host: Host) -> list[str]:
    """Remove the instances whose makers have ended; a sentence for each. Others' are not ours to touch."""
    reported = []
    for path in _ours(mounted_at(host)):
        owner = Owner.parse(_owner(path.name))
        if owner is not None and not owner.is_alive():
            with contextlib.suppress(FileNotFoundError, TrialError):
                remove_instance(path)
                reported.append(f"{path.name}: a trace instance that a dead run left was removed.")
    if os.access(_PRIVATE, os.R_OK | os.X_OK):  # an ordinary user may not be allowed to look there
        for folder in sorted(_PRIVATE.iterdir()):
            owner = Owner.parse(_owner(folder.name))
            if owner is not None and not owner.is_alive():
                _unmount(host, folder)
    return reported


def remove_instance(path: Path) -> None:
    """Off, then away; it stays busy for a moment after the last file of it was closed."""
    with contextlib.suppress(OSError):
        _write(path / "tracing_on", "0")
    deadline = time.monotonic() + _GONE_WITHIN_S
    while True:
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() >= deadline:
                raise TrialError(f"the trace instance {path} cannot be removed: {error.strerror}.") from error
        time.sleep(0.02)


def _ours(where: str | None) -> Iterator[Path]:
    folder = Path(where) / "instances" if where is not None else None
    try:
        names = sorted(folder.iterdir()) if folder is not None else []
    except OSError:  # not mounted, or root's alone
        return
    yield from (path for path in names if _owner(path.name))


def _write(path: Path, text: str) -> None:
    """One write, as tracefs wants it, into a file that is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _owner(name: str) -> str:
    """`pid:start`, as `Owner` writes it; nothing for a name that is not one of ours, or of another PID namespace."""
    found = _OURS.fullmatch(name)
    return f"{found[1]}:{found[2]}" if found and found[3] in (None, _namespace()) else ""


def _unmount(host: Host, folder: Path) -> None:
    """Nothing there is no error. A mount that someone still looks into (`df`, an indexer) goes when they have ended."""
    if folder.is_mount() and host.run(["umount", "--", str(folder)]).code != 0:
        host.run(["umount", "--lazy", "--", str(folder)])
    with contextlib.suppress(OSError):
        folder.rmdir()
        _PRIVATE.rmdir()  # unless another run's is in it


_WORKER = re.compile(r"^(kworker/\S+?)[-+].*")  # what a worker does just now is no part of its name


class _Thread(NamedTuple):
    thread: int
    pid: int
    parent: int
    name: str


def snapshot(host: Host, scopes: Sequence[Scope]) -> Snapshot:
    """Every thread that runs now; the sampler, its runner and what descends from them are our own."""
    threads = _threads(host)
    parents = {one.pid: one.parent for one in threads}
    ours = _descendants(parents, {os.getpid(), os.getppid()} - {0, 1})
    theirs = dict(_members(host, scopes))
    makers = []
    for index, scope in enumerate(scopes):
        if scope.pid is not None and not own_groups(host, scope.cgroups):
            if scope.pid in ours:  # a place without a group of its own: whatever the runner starts is its job
                makers.append((scope.pid, tenant_role(index)))
            else:
                theirs |= dict.fromkeys(_descendants(parents, {scope.pid}), tenant_role(index))
    tasks = [
        (one.thread, one.name, theirs.get(one.thread) or theirs.get(one.pid) or (TARE if one.pid in ours else HOST))
        for one in threads
    ]
    return Snapshot(tuple(tasks), tuple(_group_paths(host, scopes)), tuple(makers))


def sightings(host: Host, scopes: Sequence[Scope], known: Iterable[int] = ()) -> list[tuple[int, int, str]]:
    """Threads in the tenants' groups now, without the known ones: some are made inside a group and never moved."""
    now_ns, seen = host.clock.now_ns(), set(known)
    return [(now_ns, thread, role) for thread, role in _members(host, scopes) if thread not in seen]


def _members(host: Host, scopes: Sequence[Scope]) -> Iterator[tuple[int, str]]:
    for index, scope in enumerate(scopes):
        file = threads_file(own_groups(host, scope.cgroups))
        if file is not None:
            yield from ((thread, tenant_role(index)) for thread in _numbers(host, file))


def _group_paths(host: Host, scopes: Sequence[Scope]) -> Iterator[tuple[str, str]]:
    """Each tenant's groups as the kernel's events call them: the path within the hierarchy."""
    mounted = mounts(host)
    for index, scope in enumerate(scopes):
        paths = set()
        for folder in own_groups(host, scope.cgroups).values():
            mount = holding(mounted, folder)
            if mount is not None:
                below = PurePosixPath(folder).relative_to(mount.point)
                paths.add(str(PurePosixPath(mount.root) / below))
        yield from ((path, tenant_role(index)) for path in sorted(paths - {"/"}))


def _threads(host: Host) -> list[_Thread]:
    listed = host.run(["ps", "-eLo", "lwp=,pid=,ppid=,comm="])
    rows = (line.split(maxsplit=3) for line in listed.out.splitlines())
    return [
        _Thread(int(row[0]), int(row[1]), int(row[2]), _WORKER.sub(r"\1", row[3].removesuffix(" <defunct>")))
        for row in rows
        if len(row) == 4
    ]


def _descendants(parents: dict[int, int], roots: set[int]) -> set[int]:
    found, grown = set(roots), True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found


def _numbers(host: Host, path: str) -> list[int]:
    try:
        return [int(word) for word in host.read(path).split()]
    except OSError:
        return []
