"""System calls by name: how many, how long, how many failed, of the workload, the engine's daemons and the host.

Every entry and exit is recorded raw in a trace instance of ours (raw_syscalls) and summed up after the trial.

Tables:

- `syscalls`: t_ns, role, name, count, total_s, max_s, errors. Sums of a tenth of a second each, which begins at t_ns
  (CLOCK_MONOTONIC); a call belongs to the one in which it was entered. `total_s` and `max_s` are from entry to exit,
  waiting included, and need the exit to have been seen; `errors` are calls that returned an error. Names are those of
  this architecture (tare.traces.syscalls); a number that is not known there is `#<number>`. Calls of 32-bit
  programs on a 64-bit kernel are named as if they were 64-bit ones.
- `lost`: what, events. Only where the buffer was too small: then all counts are at least.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.base.errors import ObstacleError
from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle
from tare.base.units import Channel, SizeBytes
from tare.drivers.tracing import tracefs
from tare.parts.protocols import Feed, Reading, Recorder, Table

EVENTS = ("raw_syscalls/sys_enter", "raw_syscalls/sys_exit")
_ABOUT_TASKS = ("sched/sched_process_fork", "cgroup/cgroup_attach_task", "task/task_rename")
BIN_NS = 100_000_000
_MACHINE = "machine.json"


class Syscalls(Recorder):
    """System calls by name, counted and timed."""

    buffer: SizeBytes = 16 << 20
    """Memory for each core's trace until it is copied; calls are lost, and counted, where it is too small."""

    limit: SizeBytes = 4 << 30
    """The trace ends early where its raw files get larger than this."""

    def obstacles(self, host: Host) -> list[Ruling]:
        if found := tracefs.obstacles(host):
            return found
        here = tracefs.present(host, [f"events/{event}" for event in EVENTS])
        if here is None:
            return [obstacle("needs.kernel", "tracefs cannot be mounted here, so system calls cannot be seen.")]
        if len(here) < len(EVENTS):
            return [obstacle("needs.kernel", "this kernel has no raw_syscalls events (CONFIG_FTRACE_SYSCALLS).")]
        return []

    def record(self, host: Host, scopes: Sequence[Scope], folder: Path) -> Feed:
        from tare.drivers.tracing import ftrace_feed

        tracefs.remove_dead(host)
        instance = tracefs.open_instance(host, "syscalls")
        if not all(instance.has(f"events/{event}") for event in EVENTS):
            instance.remove()
            raise ObstacleError("system calls cannot be recorded.", self.obstacles(host))
        (folder / _MACHINE).write_text(json.dumps(platform.machine()))
        chosen = [*EVENTS, *(event for event in _ABOUT_TASKS if instance.has(f"events/{event}"))]
        trace = ftrace_feed.start(
            host, scopes, folder, instance, chosen,
            buffer_bytes=self.buffer, limit_bytes=self.limit, probe=self.part_name(),
        )  # fmt: skip
        return UnderOurName(trace)

    def tables(self, folder: Path) -> Iterator[Table]:
        from tare.traces.decode import lost_events
        from tare.traces.recording import open_folder
        from tare.traces.syscalls import syscall_columns

        recording = open_folder(folder)
        yield Table("syscalls", syscall_columns(recording, json.loads((folder / _MACHINE).read_text()), BIN_NS))
        seen = {source.cpu: lost_events(source, recording.layout).events for source in recording.sources}
        lost = sum(max(seen.get(cpu, 0), recording.lost.get(cpu, 0)) for cpu in {*seen, *recording.lost})
        if lost:
            yield Table("lost", {"what": ["events"], "events": [lost]})

    def figures(self, tables: Mapping[str, Mapping[str, Any]], steps: int | None) -> dict[str, float]:
        """Calls of the workload, and of them those in a step."""
        import numpy as np

        table = tables["syscalls"]
        count = float(np.asarray(table["count"])[np.asarray(table["role"], dtype=str) == "workload"].sum())
        return {"system_calls": count} | ({"system_calls_step": count / steps} if steps else {})


class UnderOurName:
    """A trace's feed without its readings; the `ftrace` probe may run beside it with readings of its own."""

    channels: tuple[Channel, ...] = ()

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def lost(self) -> list[Ruling]:
        found: list[Ruling] = self._inner.lost
        return found

    def poll(self) -> list[Reading]:
        self._inner.poll()
        return []

    def close(self) -> list[Reading]:
        self._inner.close()
        return []
