"""The `perf` probe while it runs: counters of every CPU read at each switch, and `perf record` beside them."""

from __future__ import annotations

import contextlib
import json
import resource
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tare.errors import TrialError
from tare.host import Host, Scope
from tare.measures import Channel
from tare.parts import perf_counters, tracefs
from tare.parts.perf_events import TRACEPOINT, CpuCounters, Event
from tare.parts.perf_record import PerfRecord
from tare.parts.process_roles import sightings, snapshot
from tare.parts.protocols import Reading

META = "counters.json"
_RING_BYTES = 2 << 20  # holds a tenth of a second of some ten thousand switches
_MANY_CPUS = 32
_ATTACH = "cgroup/cgroup_attach_task"


class PerfFeed:
    """What is open; `close` ends it and writes down what is needed to read the files."""

    channels: tuple[Channel, ...] = ()

    def __init__(
        self,
        host: Host,
        scopes: Sequence[Scope],
        folder: Path,
        *,
        events: Sequence[str],
        limit_bytes: int,
    ) -> None:
        self.lost: list[str] = []
        self._host, self._scopes, self._folder, self._limit_bytes = host, scopes, folder, limit_bytes
        self._cpus: list[CpuCounters] = []
        self._told = ""
        self._full = False
        with ExitStack() as stack:
            self._open_counters(stack, self._tracefs(stack))
            self._files = {cpu.cpu: stack.enter_context(self._ring_file(cpu).open("wb")) for cpu in self._cpus}
            for cpu in self._cpus:
                cpu.enable()
            self._start = snapshot(host, scopes)  # after the first forks are noted, so that nobody slips through
            self._seen = {thread: None for thread, _, role in self._start.tasks if role not in ("host", "tare")}
            self._sightings: list[tuple[int, int, str]] = []
            self._record = PerfRecord(folder, events, limit_bytes) if events else None
            self._opened = stack.pop_all()

    def _tracefs(self, stack: ExitStack) -> Path | None:
        """Where tracefs is, for as long as we record: `perf record` would mount it by itself, and leave it."""
        try:
            instance = tracefs.open_instance(self._host, "perf")
        except (TrialError, OSError) as error:
            self.lost.append(f"perf: block events are not counted: {str(error).rstrip('.')}.")
            return None
        stack.callback(instance.remove)
        return instance.root

    def _open_counters(self, stack: ExitStack, root: Path | None) -> None:
        _allow_many_files()
        types = perf_counters.core_types(self._host)
        shared = [*perf_counters.SOFTWARE_EVENTS, *perf_counters.block_events(self._host, root)]
        cpus = perf_counters.online(self._host)
        size = _RING_BYTES if len(cpus) <= _MANY_CPUS else _RING_BYTES // 4
        told = self._attach_event(root)
        hardware: dict[str, list[list[Event]]] = {}
        for cpu in cpus:
            unit = next((name for name, cores in types.items() if cpu in cores), "")
            if unit not in hardware:
                hardware[unit] = perf_counters.hardware_groups(cpu, unit or "cpu", f"{unit}/" if unit else "")
            opened = CpuCounters(cpu, [shared, *hardware[unit]], size, told)
            stack.callback(opened.close)
            self._cpus.append(opened)
        missing = dict.fromkeys(name for cpu in self._cpus for name in cpu.missing)
        self.lost += [f"perf: {name} cannot be counted here." for name in missing]

    def _attach_event(self, root: Path | None) -> Event | None:
        """The kernel's word that a task joined a group; without it members are only looked for now and then."""
        if root is None:
            return None
        try:
            self._told = self._host.read(f"{root}/events/{_ATTACH}/format")
            return Event("cgroup_attach_task", TRACEPOINT, int(self._host.read(f"{root}/events/{_ATTACH}/id")))
        except (OSError, ValueError):
            self._told = ""
            return None

    def _ring_file(self, cpu: CpuCounters) -> Path:
        return self._folder / f"cpu{cpu.cpu}.ring"

    def poll(self) -> list[Reading]:
        """Take over what the rings hold and look for new members of the groups."""
        found = sightings(self._host, self._scopes, self._seen)
        self._sightings += found
        self._seen |= dict.fromkeys(thread for _, thread, _ in found)
        if not self._full:
            for cpu in self._cpus:
                cpu.copy(self._files[cpu.cpu])
            self._full = sum(file.tell() for file in self._files.values()) > self._limit_bytes
            if self._full:
                self.lost.append(f"perf: counters stop early: their files reached {self._limit_bytes >> 20} MiB.")
        if self._record is not None:
            self._record.watch()
        return []

    def close(self) -> list[Reading]:
        with self._opened:
            for cpu in self._cpus:
                cpu.disable()
                if not self._full:
                    cpu.copy(self._files[cpu.cpu], all_of_it=True)
            self._sightings += sightings(self._host, self._scopes, self._seen)
            (self._folder / META).write_text(json.dumps(self._meta()))
            if self._record is not None:
                self._record.close()
                if self._record.ended_early:
                    self.lost.append(f"perf: faults and call graphs end early: {self._record.ended_early}.")
        self._cpus = []
        self._record = None
        return []

    def _meta(self) -> dict[str, Any]:
        return {
            "groups": [{"ids": one.ids, "events": one.events} for cpu in self._cpus for one in cpu.groups],
            "told": {"ids": [cpu.told_id for cpu in self._cpus if cpu.told_id is not None], "format": self._told},
            "roles": replace(self._start, sightings=tuple(self._sightings)).as_json(),
        }


def _allow_many_files() -> None:
    """A counter is a file: twenty of them on each of a hundred cores are more than a process may open by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if soft != resource.RLIM_INFINITY else (soft, hard))
