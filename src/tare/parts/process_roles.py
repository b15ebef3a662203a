"""Who is who on the device when a trace begins, for `tare.traces.roles`: every thread, its name, its tenant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from tare.host import Host, Scope
from tare.parts.cgroup_files import own_groups, threads_file
from tare.parts.mounts import holding, mounts
from tare.traces.roles import HOST, TARE, Snapshot, tenant_role

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
