"""The kernel's own events, recorded raw in a trace instance of ours and decoded after the trial.

Tables: one for each event, under the event's name; every row has `t_ns` (CLOCK_MONOTONIC), `cpu`, `pid` (the thread),
`comm`, `role` (`workload`, `tenant1`..., `daemon`, `tare`, `host`; see `tare.traces.roles`), and the event's own fields
under the kernel's names, with these exceptions: `ino` is `inode`, a page's `index` is `page`, a bdi's `name` is `bdi`
with `dev` beside it, a field called like one of the five is `event_<name>`, arguments of system calls are left out.
`dev` is the kernel's number, major x 2^20 + minor (0 where a bdi is no block device).

writeback    writeback_start, writeback_written: bdi, dev, nr_pages (still to be written: before and after), sb_dev,
             sync_mode, for_kupdate, range_cyclic, for_background, reason (a word), cgroup_ino
             writeback_dirty_folio: bdi, dev, inode, page (of the file; the first of a large folio); on kernels until
             5.17 the event is writeback_dirty_page, the table has the same name
             writeback_single_inode_start, writeback_single_inode: bdi, dev, inode, state, dirtied_when,
             writeback_index, nr_to_write, wrote, cgroup_ino
             writeback_pages_written: pages; block_bio_queue: see below
             page_writes: dev, inode, page (of the device), reason, role: one row for each page that was handed to a
             disk, made by joining the above; `tare.traces.writeback` says how, and what it cannot know
block        block_touch_buffer, block_dirty_buffer: dev, sector, size
             block_rq_insert, block_rq_issue, block_rq_complete: dev, sector, nr_sector, bytes, rwbs, ...
             block_bio_queue, block_bio_backmerge, block_bio_frontmerge: dev, sector, nr_sector, rwbs
faults       page_fault_user, page_fault_kernel: address, ip, error_code (x86 and RISC-V kernels only)
sched        sched_switch: prev_*, next_*; sched_migrate_task: event_pid, orig_cpu, dest_cpu
syscalls     sys_enter: id; sys_exit: id, ret
lost         lost: cpu, events: what each core's buffer overwrote before it was read; absent where nothing was

Figures are those of `tare.traces.writeback.figures`; `system_calls` and `page_faults` of the workload alone, with
`system_calls_step` and `page_faults_step`, for the families that count them; and `trace_lost_events`: made from a trace
that lost some, each count is "at least".

`Syscalls` records every entry and exit raw in an instance of its own (raw_syscalls), and sums them up after the trial.
Its tables: `syscalls`: t_ns, role, name, count, total_s, max_s, errors. Sums of a tenth of a second each, which begins
at t_ns; a call belongs to the one in which it was entered. `total_s` and `max_s` are from entry to exit, waiting
included, and need the exit to have been seen; `errors` are calls that returned an error. Names are those of this
architecture (tare.traces.syscalls), `#<number>` where it is not known there; calls of 32-bit programs on a 64-bit
kernel are named as if they were 64-bit ones. `lost`: what, events, only where the buffer was too small.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import Field as Setting

from tare.base.errors import ObstacleError
from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, obstacle
from tare.base.units import Channel, SizeBytes
from tare.drivers.tracing import tracefs
from tare.parts.protocols import Feed, Reading, Recorder, Table

Family: TypeAlias = Literal["writeback", "block", "faults", "sched", "syscalls"]

# Each event with the names that it has had; the first that a kernel has is traced.
FAMILIES: Mapping[Family, tuple[tuple[str, ...], ...]] = {
    "writeback": (
        ("writeback/writeback_start",),
        ("writeback/writeback_written",),
        ("writeback/writeback_dirty_folio", "writeback/writeback_dirty_page"),
        ("writeback/writeback_single_inode_start",),
        ("writeback/writeback_single_inode",),
        ("writeback/writeback_pages_written",),
        ("block/block_bio_queue",),
    ),
    "block": tuple(
        (f"block/{name}",)
        for name in (
            "block_touch_buffer", "block_dirty_buffer", "block_rq_insert", "block_rq_issue", "block_rq_complete",
            "block_bio_queue", "block_bio_backmerge", "block_bio_frontmerge",
        )
    ),
    "faults": (("exceptions/page_fault_user",), ("exceptions/page_fault_kernel",)),
    "sched": (("sched/sched_switch",), ("sched/sched_migrate_task",)),
    "syscalls": (("raw_syscalls/sys_enter",), ("raw_syscalls/sys_exit",)),
}  # fmt: skip
_ABOUT_TASKS = ("sched/sched_process_fork", "cgroup/cgroup_attach_task", "task/task_rename")
_NONE_SEEN = ("writeback_count", "writeback_background_count", "writeback_pages", "written_pages")
_ELSE = {"faults": " (kernels for ARM have none: the perf probe samples page faults there)"}


class Ftrace(Recorder):
    """Events of the kernel: write-backs, block I/O, page faults, scheduling, system calls."""

    short: ClassVar[str | None] = "families"

    families: tuple[Family, ...] = Setting(default=("writeback",), min_length=1)
    """Which events: writeback, block, faults, sched, syscalls."""

    buffer: SizeBytes = 16 << 20
    """Memory for each core's trace until it is copied; events are lost, and counted, where it is too small."""

    limit: SizeBytes = 4 << 30
    """The trace ends early where its raw files get larger than this."""

    def obstacles(self, host: Host) -> list[Ruling]:
        if found := tracefs.obstacles(host):
            return found
        here = self._present(host)
        if here is None:
            return [obstacle("needs.kernel", "tracefs cannot be mounted here, so the kernel's events cannot be seen.")]
        return [
            obstacle(
                "needs.kernel",
                f"this kernel has no event {' or '.join(map(_colon, names))}{_ELSE.get(family, '')}; "
                f"leave {family} out of `families`.",
            )
            for family in self.families
            for names in FAMILIES[family]
            if here.isdisjoint(names)
        ]

    def record(self, host: Host, scopes: Sequence[Scope], folder: Path) -> Feed:
        from tare.drivers.tracing import ftrace_feed

        tracefs.remove_dead(host)
        instance = tracefs.open_instance(host, "ftrace")
        missing = [names for names in self._wanted() if not any(instance.has(f"events/{name}") for name in names)]
        if missing:
            instance.remove()
            raise ObstacleError("ftrace cannot record what is requested.", self.obstacles(host))
        chosen = [next(name for name in names if instance.has(f"events/{name}")) for names in self._wanted()]
        chosen += [name for name in _ABOUT_TASKS if instance.has(f"events/{name}")]
        return ftrace_feed.start(
            host, scopes, folder, instance, list(dict.fromkeys(chosen)),
            buffer_bytes=self.buffer, limit_bytes=self.limit,
        )  # fmt: skip

    def tables(self, folder: Path) -> Iterator[Table]:
        import numpy as np

        from tare.traces.decode import lost_events
        from tare.traces.recording import ABOUT_TASKS, open_folder, tables

        recording = open_folder(folder)
        for chunk in tables(recording, without=ABOUT_TASKS):
            yield Table(chunk.name, chunk.columns)
        seen = {source.cpu: lost_events(source, recording.layout).events for source in recording.sources}
        lost = {cpu: max(seen.get(cpu, 0), recording.lost.get(cpu, 0)) for cpu in {*seen, *recording.lost}}
        if any(lost.values()):
            cpus = np.array(sorted(lost), np.int32)
            yield Table("lost", {"cpu": cpus, "events": np.array([lost[cpu] for cpu in cpus.tolist()], np.int64)})

    def figures(self, tables: Mapping[str, Mapping[str, Any]], steps: int | None) -> dict[str, float]:
        from tare.traces import writeback

        found: dict[str, float] = {}
        if "writeback" in self.families:
            found |= {**dict.fromkeys(_NONE_SEEN, 0.0), **writeback.figures(tables)}
        if "syscalls" in self.families:
            found |= _of_workload("system_calls", tables, ("sys_enter",), steps)
        if "faults" in self.families:
            found |= _of_workload("page_faults", tables, ("page_fault_user", "page_fault_kernel"), steps)
        found["trace_lost_events"] = float(sum(tables["lost"]["events"])) if "lost" in tables else 0.0
        return found

    def _wanted(self) -> list[tuple[str, ...]]:
        return list(dict.fromkeys(names for family in self.families for names in FAMILIES[family]))

    def _present(self, host: Host) -> set[str] | None:
        paths = [f"events/{name}" for names in self._wanted() for name in names]
        found = tracefs.present(host, paths)
        return None if found is None else {path.removeprefix("events/") for path in found}


def _of_workload(
    name: str, tables: Mapping[str, Mapping[str, Any]], events: Sequence[str], steps: int | None
) -> dict[str, float]:
    """How many events of the measured workload's own there were, and how many in a step."""
    import numpy as np

    from tare.traces.roles import WORKLOAD

    count = sum(int((np.asarray(tables[event]["role"]) == WORKLOAD).sum()) for event in events if event in tables)
    return {name: float(count)} | ({f"{name}_step": count / steps} if steps else {})


def _colon(path: str) -> str:
    return path.replace("/", ":")


EVENTS = ("raw_syscalls/sys_enter", "raw_syscalls/sys_exit")
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
