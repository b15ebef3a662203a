"""Decoding a kernel trace: ours to columns against `trace-cmd report` to text, on the same trace.dat.

    python -m benchmarks.trace_decode [ROUNDS [EVENTS]]

A trace of write-backs, scheduling and system calls is recorded here by the ftrace probe, until it has so many events,
and made a trace.dat by `trace-cmd restore`. Each side is a process of its own, from its start to its end, interleaved
in shuffled order; both must count the same events. Memory is the peak of the whole process, also for a trace of a
quarter of the length: it must not grow with the trace. Needs root, tracefs and trace-cmd.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.rounds import Rounds
from tare.analysis.numeric.medians import median_estimate
from tare.base.host import LocalHost, Scope, WatchingHost
from tare.kernel.parts.probes.ftrace import Ftrace
from tare.kernel.tracing import tracefs

ROUNDS = 7
EVENTS = 2_000_000
_BUSY = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for turn in range(20_000):
    os.pwrite(file, bytes(4096), turn % 64 * 4096)
    os.getppid()
    if turn % 2000 == 0:
        os.fsync(file)
    if turn % 50 == 0:
        os.sched_yield()
"""
_OURS = """
import sys, tempfile, time
from pathlib import Path
begin = time.perf_counter()
from tare.kernel.traces.decode import pieces
from tare.kernel.traces.importing import open_trace_dat
with tempfile.TemporaryDirectory() as spill:
    trace = open_trace_dat(Path(sys.argv[1]), Path(spill))
    loaded = time.perf_counter()
    found = (kind for piece in pieces(trace.sources, trace.layout, trace.formats) for kind in piece)
    print(sum(len(kind.columns["t_ns"]) for kind in found))
    print(time.perf_counter() - loaded, file=sys.stderr)
"""


class Spent(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_bytes: int
    events: int
    decode_s: float | None = None


def measure(rounds: int = ROUNDS, events: int = EVENTS) -> dict[str, Any]:
    """Seconds of both sides, their ratio, and the peak of memory."""
    with tempfile.TemporaryDirectory(prefix="tare-bench-") as folder:
        whole, quarter = _traces(Path(folder), events)
        sides = {"tare": lambda: ours(whole), "trace-cmd report": lambda: theirs(whole)}
        spent: dict[str, list[Spent]] = {name: [] for name in sides}
        kept = Rounds(sides)
        for _ in range(rounds):
            for name in random.sample(list(sides), len(sides)):
                spent[name].append(sides[name]())
                kept.add(name, spent[name][-1].cpu_s / spent[name][-1].events * 1e6)  # a million events
        kept.keep("trace_decode")
        counted = {name: {one.events for one in many} for name, many in spent.items()}
        assert len(set.union(*counted.values())) == 1, counted
        mine, other = spent["tare"], spent["trace-cmd report"]
        return {
            "events": mine[0].events,
            "trace_bytes": whole.stat().st_size,
            "wall_s": {name: _figure([one.wall_s for one in many]) for name, many in spent.items()},
            "events_per_s": {name: _figure([one.events / one.wall_s for one in many]) for name, many in spent.items()},
            "decode_only_events_per_s": _figure([one.events / one.decode_s for one in mine if one.decode_s]),
            "ratio_wall": _figure([b.wall_s / a.wall_s for a, b in zip(mine, other, strict=True)]),
            "ratio_cpu": _figure([b.cpu_s / a.cpu_s for a, b in zip(mine, other, strict=True)]),
            "peak_bytes": {name: max(one.peak_bytes for one in many) for name, many in spent.items()},
            "peak_bytes_of_a_quarter": {
                "tare": ours(quarter).peak_bytes,
                "trace-cmd report": theirs(quarter).peak_bytes,
            },
        }


def ours(path: Path) -> Spent:
    """Open, decode every field of every event to columns, count."""
    return _run([sys.executable, "-c", _OURS, str(path)])


def theirs(path: Path) -> Spent:
    return _run(["trace-cmd", "report", "-i", str(path)])


def _run(command: list[str]) -> Spent:
    """One process from its start to its end; lines of text are counted as they come, and not kept."""
    begin_s = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    out, lines, peak_bytes = b"", 0, 0
    while piece := os.read(child.stdout.fileno(), 1 << 20):
        peak_bytes = max(peak_bytes, _peak_bytes(child.pid))
        lines += piece.count(b"\n")
        out = (out + piece)[-64:]
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, said
    wall_s, cpu_s = time.perf_counter() - begin_s, usage.ru_utime + usage.ru_stime
    mine = command[0] == sys.executable
    events = int(out) if mine else lines - 1  # trace-cmd's first line is the number of cores
    return Spent(wall_s, cpu_s, peak_bytes, events, float(said) if mine else None)


def _peak_bytes(pid: int) -> int:
    """The most memory of a process so far; what `wait` reports holds the memory of whoever started it, too."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _traces(folder: Path, events: int) -> tuple[Path, Path]:
    """A trace.dat of about so many events, and one of a quarter of its pages."""
    raw = folder / "raw"
    raw.mkdir()
    feed = Ftrace.model_validate({"families": ["writeback", "sched", "syscalls"], "buffer": 32 << 20}).record(
        WatchingHost(), [Scope(pid=os.getpid())], raw
    )
    bytes_wanted, quiet = events * 48, 0
    try:
        while sum(path.stat().st_size for path in raw.glob("cpu*.raw")) < bytes_wanted and quiet < 200:
            subprocess.run([sys.executable, "-c", _BUSY, str(folder / "file")], check=True)
            feed.poll()
            quiet += 1
    finally:
        feed.close()
    pages = sorted(raw.glob("cpu*.raw"), key=lambda path: int(path.stem.removeprefix("cpu")))
    parts = []
    for path in pages:
        part = folder / f"quarter-{path.name}"
        part.write_bytes(path.read_bytes()[: path.stat().st_size // 4 // 4096 * 4096 or 4096])
        parts.append(part)
    head = folder / "head.dat"
    with _tracefs(folder) as root:
        _quietly("trace-cmd", "restore", "-c", "-t", root, "-o", head)
    for name, files in (("whole.dat", pages), ("quarter.dat", parts)):
        _quietly("trace-cmd", "restore", "-i", head, "-o", folder / name, *files)
    return folder / "whole.dat", folder / "quarter.dat"


class _tracefs:  # noqa: N801  (a context, used like a function)
    """tracefs at some place, for trace-cmd to take the kernel's formats from."""

    def __init__(self, folder: Path) -> None:
        self._own = None if tracefs.mounted_at(LocalHost()) else folder / "tracefs"

    def __enter__(self) -> str:
        if self._own is None:
            return str(tracefs.mounted_at(LocalHost()))
        self._own.mkdir()
        _quietly("mount", "-t", "tracefs", "bench", self._own)
        return str(self._own)

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            _quietly("umount", self._own)


def _quietly(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


def _figure(values: list[float]) -> dict[str, float | None]:
    estimate = median_estimate(values)
    return {"median": estimate.value, "low": estimate.low, "high": estimate.high}


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:])), indent=2))
