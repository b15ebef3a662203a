"""The `perf` probe while it runs: counters of every CPU read at each switch, and `perf record` beside them."""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from tare.base.errors import TareError, TrialError
from tare.base.host import Host, Scope
from tare.base.rulings import Ruling, probe_note
from tare.base.units import Channel
from tare.ext.parts import Reading
from tare.kernel.traces.perf import Lost, Sample, samples
from tare.kernel.tracing import perf_events, tracefs
from tare.kernel.tracing.perf_events import TRACEPOINT, CpuCounters, Event
from tare.kernel.tracing.tracefs import sightings, snapshot

DATA, SAID = "perf.data", "perf.err"
_FIELDS = "comm,pid,tid,cpu,time,event,addr,ip,sym,dso"
_RING = "4M"  # for each core: a burst of faults must not be lost while perf waits for its turn
_MOST_THREADS = 10_000  # on a command line
_START_S, _END_S = 20.0, 15.0
# perf starts its command once every event is on, and ends with it: so `on` is the word that it records, and our end
# of the pipe is what stops it, also when we are killed.
_HOLD = ("sh", "-c", "echo on; exec cat > /dev/null")


class PerfRecord:
    """A running `perf record`; it stops at `close`, at the size limit, or with the process that began it."""

    def __init__(self, folder: Path, events: Sequence[str], limit_bytes: int) -> None:
        self.data = folder / DATA
        self._said = folder / SAID
        self._limit_bytes = limit_bytes
        self.ended_early: str | None = None
        options = ["-q", "-a", "-B", "-N", "-m", _RING, "-k", "CLOCK_MONOTONIC", "-d", "-g", "-o", str(self.data)]
        chosen = [word for event in events for word in ("-e", event)]
        with self._said.open("wb") as complaints:
            self._child = subprocess.Popen(
                ["perf", "record", *options, *chosen, "--", *_HOLD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
                env={**os.environ, "PERF_CONFIG": os.devnull},
            )
        try:
            self._wait_until_it_records()
        except BaseException:
            self._end()
            raise

    def _wait_until_it_records(self) -> None:
        assert self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], _START_S)
        if not ready or os.read(self._child.stdout.fileno(), 16) != b"on\n":
            raise TareError(f"`perf record` could not start: {self.complaint() or 'it printed nothing'}")

    def complaint(self) -> str:
        """Its last words."""
        lines = self._said.read_text(errors="replace").strip().splitlines()
        return " ".join(line.strip() for line in lines[-3:])

    def watch(self) -> None:
        """Stop it where the file has become too large; to be called now and then."""
        if self.ended_early is not None:
            return
        if self._child.poll() is not None:
            self.ended_early = f"`perf record` ended by itself: {self.complaint() or 'it printed nothing'}"
        elif self._size() > self._limit_bytes:
            self.ended_early = f"its file reached {self._limit_bytes >> 20} MiB (`limit`)"
            self._hang_up()

    def close(self) -> None:
        """Let it write what it has, and end."""
        self._hang_up()
        self._end()

    def _size(self) -> int:
        try:
            return self.data.stat().st_size
        except FileNotFoundError:
            return 0

    def _hang_up(self) -> None:
        if self._child.stdin is not None:
            with suppress(BrokenPipeError):
                self._child.stdin.close()

    def _end(self) -> None:
        self._hang_up()
        try:
            self._child.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            self.ended_early = self.ended_early or "`perf record` did not end in time and was killed"
        if self._child.stdout is not None:
            self._child.stdout.close()


def read(data: Path, threads: Sequence[int] = ()) -> Iterator[Sample | Lost]:
    """What was recorded, symbolised by `perf script`; it must be the machine on which it was recorded.

    Of these threads alone, if any are named: to find the symbols of a busy host's other programs takes minutes.
    """
    reported = data.with_name("perf-script.err")
    with reported.open("wb") as complaints:
        child = _script(data, threads, complaints)
    assert child.stdout is not None
    try:
        yield from samples(child.stdout)
        code = child.wait()
    finally:
        child.stdout.close()
        if child.poll() is None:
            child.kill()
            child.wait()
    if code != 0:
        raise TareError(f"`perf script` failed: {reported.read_text(errors='replace').strip()[-500:]}")


def _script(data: Path, threads: Sequence[int], complaints: IO[bytes]) -> subprocess.Popen[str]:
    chosen = ["--tid", ",".join(map(str, threads))] if 0 < len(threads) <= _MOST_THREADS else []
    options = ["--ns", "--show-lost-events", "--max-stack", "32", "-F", _FIELDS, *chosen]
    return subprocess.Popen(
        ["perf", "script", *options, "-i", str(data)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=complaints,
        start_new_session=True,  # Ctrl-C is for the runner: half a table would look like a whole one
        text=True,
        errors="replace",
        env={**os.environ, "PERF_CONFIG": os.devnull, "PERF_BUILDID_DIR": os.devnull, "DEBUGINFOD_URLS": ""},
    )


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
        self.lost: list[Ruling] = []
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
            self.lost.append(
                probe_note("probe.limited", "perf", f"block events are not counted: {str(error).rstrip('.')}.")
            )
            return None
        stack.callback(instance.remove)
        return instance.root

    def _open_counters(self, stack: ExitStack, root: Path | None) -> None:
        # A counter is a file: twenty of them on each of a hundred cores are more than a process may open by default.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if soft != resource.RLIM_INFINITY else (soft, hard))
        types = perf_events.core_types(self._host)
        shared = [*perf_events.SOFTWARE_EVENTS, *perf_events.block_events(self._host, root)]
        cpus = perf_events.online(self._host)
        size = _RING_BYTES if len(cpus) <= _MANY_CPUS else _RING_BYTES // 4
        reported = self._attach_event(root)
        hardware: dict[str, list[list[Event]]] = {}
        for cpu in cpus:
            unit = next((name for name, cores in types.items() if cpu in cores), "")
            if unit not in hardware:
                hardware[unit] = perf_events.hardware_groups(cpu, unit or "cpu", f"{unit}/" if unit else "")
            opened = CpuCounters(cpu, [shared, *hardware[unit]], size, reported)
            stack.callback(opened.close)
            self._cpus.append(opened)
        missing = dict.fromkeys(name for cpu in self._cpus for name in cpu.missing)
        self.lost += [probe_note("probe.limited", "perf", f"{name} cannot be counted here.") for name in missing]

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
                self.lost.append(
                    probe_note(
                        "probe.ended",
                        "perf",
                        f"counters stop early: their files reached {self._limit_bytes >> 20} MiB.",
                    )
                )
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
                    self.lost.append(
                        probe_note(
                            "probe.ended", "perf", f"faults and call graphs end early: {self._record.ended_early}."
                        )
                    )
        self._cpus = []
        self._record = None
        return []

    def _meta(self) -> dict[str, Any]:
        return {
            "groups": [{"ids": one.ids, "events": one.events} for cpu in self._cpus for one in cpu.groups],
            "told": {"ids": [cpu.told_id for cpu in self._cpus if cpu.told_id is not None], "format": self._told},
            "roles": replace(self._start, sightings=tuple(self._sightings)).as_json(),
        }
