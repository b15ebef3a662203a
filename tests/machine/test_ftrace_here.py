"""The `ftrace` probe on the real kernel: what happens is in the trace, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tare.base.host import Job, LocalHost, Scope, Site, WatchingHost
from tare.kernel.parts.probes.ftrace import Ftrace
from tare.kernel.traces.recording import open_folder
from tare.kernel.tracing import ftrace_feed, tracefs
from tare.kernel.tracing.tracefs import instance_name
from tare.parts.find import find
from tare.trial.undo.restoration import find_remains, remove

pytestmark = [pytest.mark.machine("tracefs"), pytest.mark.holds("tracing", "dirty")]
HERE = LocalHost()
PERIOD = Path("/proc/sys/vm/dirty_writeback_centisecs")
RECORDER = """
import sys
from pathlib import Path
from tare.base.host import Scope, WatchingHost
from tare.kernel.parts.probes.ftrace import Ftrace
feed = Ftrace().record(WatchingHost(), [Scope()], Path(sys.argv[1]))
print("recording", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def mounted() -> Iterator[Path]:
    """tracefs somewhere, for a look at it."""
    if (point := tracefs.mounted_at(HERE)) is not None:
        yield Path(point)
        return
    folder = Path("/run") / f"look-{secrets.token_hex(4)}"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tracefs", "look", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def our_instances() -> set[str]:
    with mounted() as root:
        return {path.name for path in (root / "instances").iterdir() if path.name.startswith("tare-")}


class Recording:
    """What a probe kept of a stretch of time."""

    def __init__(self, probe: Ftrace, folder: Path, scopes: Sequence[Scope]) -> None:
        self._probe, self._folder = probe, folder
        self.feed: Any = probe.record(WatchingHost(), scopes, folder)
        self.tables: dict[str, dict[str, Any]] = {}
        self.figures: dict[str, float] = {}

    def end(self) -> None:
        self.feed.close()
        found: dict[str, list[Any]] = {}
        for table in self._probe.tables(self._folder):
            found.setdefault(table.name, []).append(table.columns)
        self.tables = {
            name: {key: np.concatenate([one[key] for one in many]) for key in many[0]} for name, many in found.items()
        }
        self.figures = self._probe.figures(self.tables, None)


@contextlib.contextmanager
def recording(
    tmp_path: Path, *families: str, buffer: int = 8 << 20, scopes: Sequence[Scope] | None = None
) -> Iterator[Recording]:
    folder = tmp_path / f"raw-{secrets.token_hex(3)}"
    folder.mkdir()
    probe = Ftrace.model_validate({"families": families, "buffer": buffer})
    made = Recording(probe, folder, scopes or [Scope(pid=os.getpid())])
    try:
        yield made
    except BaseException:
        made.feed.close()
        raise
    made.end()


def write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.write(os.urandom(1 << 16) * (size >> 16))


def test_a_sync_shows_up_under_reason_sync(tmp_path: Path):
    with recording(tmp_path, "writeback") as seen:
        subprocess.run([sys.executable, "-c", WRITE_AND_SYNC, str(tmp_path / "file")], check=True)

    pages = seen.tables["page_writes"]
    ours = pages["role"] == "workload"
    assert "sync" in set(seen.tables["writeback_start"]["reason"])
    assert seen.figures["writeback_sync_count"] > 0
    # 8 MiB, but for metadata; on a busy machine the flusher may have come for some of them before the sync.
    assert (ours & (pages["reason"] != "outside")).sum() == pytest.approx(8 * 256, rel=0.1)
    assert (ours & (pages["reason"] == "sync")).any()
    assert seen.figures["writeback_pages"] >= 8 * 256
    assert seen.feed.lost == []


WRITE_AND_SYNC = "import os, sys; open(sys.argv[1], 'wb').write(bytes(8 << 20)); os.sync()"
FSYNC_IN_PLACE = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for _ in range(20):
    os.pwrite(file, os.urandom(4096 * 16), 0)
    os.fsync(file)
"""


def test_pages_that_are_overwritten_in_place_are_counted_outside_the_flusher(tmp_path: Path):
    file = tmp_path / "checkpoint"
    write(file, 1 << 20)
    os.sync()
    with recording(tmp_path, "writeback") as seen:
        subprocess.run([sys.executable, "-c", FSYNC_IN_PLACE, file], check=True)

    pages = seen.tables["page_writes"]
    ours = (pages["role"] == "workload") & (pages["reason"] == "outside")
    times = np.unique(pages["page"][ours], return_counts=True)[1]
    assert ours.sum() >= 20 * 16
    assert (times >= 20).sum() >= 16  # the same sixteen pages of the disk, again and again
    assert seen.figures["writeback_pages_outside"] >= 20 * 16


@pytest.fixture
def flusher_wakes_each_second() -> Iterator[float]:
    before = PERIOD.read_text()
    PERIOD.write_text("100")
    os.sync()  # the flusher takes the new period when it goes to sleep again
    yield 1.0
    PERIOD.write_text(before)


def test_an_idle_writer_is_written_back_periodically(tmp_path: Path, flusher_wakes_each_second: float):
    with recording(tmp_path, "writeback") as seen, (tmp_path / "drip").open("wb", buffering=0) as file:
        for _ in range(40):
            file.write(os.urandom(4096))
            time.sleep(0.2)
            seen.feed.poll()

    start = seen.tables["writeback_start"]
    dirtied = seen.tables["writeback_dirty_folio"]
    (disk,) = set(dirtied["dev"][dirtied["inode"] == (tmp_path / "drip").stat().st_ino].tolist())
    ours = (start["reason"] == "periodic") & (start["dev"] == disk)
    times_s = np.sort(start["t_ns"][ours]) / 1e9
    wakings_s = times_s[np.diff(times_s, prepend=0) > 0.3]  # one waking may be several write-backs
    assert len(wakings_s) >= 4
    usual_s = np.quantile(np.diff(wakings_s), 0.25)
    assert usual_s < 2.5 * flusher_wakes_each_second  # not every 5 s; late where it is busy with what others wrote


def test_system_calls_are_counted_to_the_last(tmp_path: Path):
    number = {"aarch64": 173, "x86_64": 110}[os.uname().machine]  # getppid
    program = "import os\nfor _ in range(5000): os.getppid()"
    with recording(tmp_path, "syscalls") as seen:
        child = subprocess.Popen([sys.executable, "-S", "-c", program])
        child.wait()

    enter = seen.tables["sys_enter"]
    assert ((enter["id"] == number) & (enter["pid"] == child.pid)).sum() == 5000
    assert set(enter["role"][enter["pid"] == child.pid]) <= {"tare", "workload"}  # ours until it is another program
    assert seen.figures["system_calls"] >= 5000


def test_faults_of_a_program_that_touches_fresh_pages_are_so_many_or_the_kernel_has_no_such_event(tmp_path: Path):
    area = "import mmap\narea = mmap.mmap(-1, 1 << 26)\narea.madvise(mmap.MADV_NOHUGEPAGE)\n"
    touch = area + "for page in range({}): area[page * 4096] = 1"
    if obstacles := Ftrace.model_validate({"families": ["faults"]}).obstacles(HERE):
        assert "exceptions:page_fault_user" in str(obstacles[0])
        assert "perf probe" in str(obstacles[0])
        return
    faults = []
    for pages in (0, 10_000):
        with recording(tmp_path, "faults") as seen:
            subprocess.run([sys.executable, "-S", "-c", touch.format(pages)], check=True)
        faults.append(seen.figures["page_faults"])
    assert faults[1] - faults[0] == pytest.approx(10_000, rel=0.01)


def test_a_full_buffer_is_counted_and_said(tmp_path: Path):
    busy = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=50000", "status=none"]
    with recording(tmp_path, "syscalls", buffer=8 << 10) as seen:
        subprocess.run(busy, check=True)

    lost = seen.tables["lost"]
    assert lost["events"].sum() > 10_000
    assert seen.figures["trace_lost_events"] == lost["events"].sum()
    assert any("at least" in sentence for sentence in map(str, seen.feed.lost))
    assert seen.figures["system_calls"] < 100_000


def test_a_trace_that_outgrows_its_limit_ends_and_says_so(tmp_path: Path):
    folder = tmp_path / "raw"
    folder.mkdir()
    feed: Any = Ftrace.model_validate({"families": ["syscalls"], "limit": 1 << 16}).record(
        WatchingHost(), [Scope()], folder
    )
    subprocess.run(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=20000", "status=none"], check=True)
    feed.poll()
    size = sum(path.stat().st_size for path in folder.glob("cpu*.raw"))
    subprocess.run(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=20000", "status=none"], check=True)
    feed.close()

    assert any("ends early" in sentence for sentence in map(str, feed.lost))
    # What came while it was being stopped is kept; the second program's calls, some 2 MiB, are not.
    assert sum(path.stat().st_size for path in folder.glob("cpu*.raw")) - size < 1 << 20


def test_where_tracefs_is_not_mounted_it_is_for_as_long_as_the_trace_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tracefs, "mounted_at", lambda host: None)
    with recording(tmp_path, "sched") as seen:
        mount = Path("/run/tare/tracefs") / instance_name("ftrace")
        assert mount.is_mount()
        subprocess.run(["true"], check=True)

    assert len(seen.tables["sched_switch"]["t_ns"])
    assert not mount.exists()
    assert mount.name not in Path("/proc/self/mountinfo").read_text()
    monkeypatch.undo()
    assert not named_after(os.getpid())


def test_larger_pages_of_the_buffer_are_read_too(tmp_path: Path):
    """Kernels from 6.8 on can have them; older ones keep to the page size."""
    instance = tracefs.open_instance(HERE, "ftrace")
    larger = instance.has("buffer_subbuf_size_kb")
    if larger:
        instance.write("buffer_subbuf_size_kb", "16")
    feed = ftrace_feed.start(
        HERE, [Scope()], tmp_path, instance, ["raw_syscalls/sys_exit"], buffer_bytes=8 << 20, limit_bytes=1 << 30
    )
    child = subprocess.Popen(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=3000", "status=none"])
    child.wait()
    feed.close()

    returned = [table.columns for table in Ftrace().tables(tmp_path) if table.name == "sys_exit"]
    ours = sum(((one["pid"] == child.pid) & (one["ret"] == 1)).sum() for one in returned)
    assert ours >= 6000  # each byte is read once and written once
    assert open_folder(tmp_path).layout.page_bytes == (16384 if larger else os.sysconf("SC_PAGE_SIZE"))


def test_a_full_disk_ends_the_trace_and_not_the_trial(tmp_path: Path):
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    try:
        probe = Ftrace.model_validate({"families": ["syscalls"]})
        feed: Any = probe.record(WatchingHost(), [Scope()], folder)
        subprocess.run(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=50000", "status=none"], check=True)
        feed.poll()
        feed.close()

        assert any("is full" in sentence for sentence in map(str, feed.lost))
        assert sum(len(table.columns["t_ns"]) for table in probe.tables(folder) if table.name == "sys_enter") > 1000
    finally:
        subprocess.run(["umount", folder], check=True)
    assert not named_after(os.getpid())


def test_someone_elses_tracing_is_left_alone_and_mentioned(tmp_path: Path):
    with mounted() as root:
        theirs = root / "instances" / f"someone-{secrets.token_hex(3)}"
        theirs.mkdir()
        (root / "set_event").write_text("sched:sched_process_exit")
        try:
            with recording(tmp_path, "sched") as seen:
                pass
            tracefs.remove_dead(HERE)
            assert theirs.is_dir()
            assert (root / "set_event").read_text().split() == ["sched:sched_process_exit"]
        finally:
            (root / "set_event").write_text("!sched:sched_process_exit")
            theirs.rmdir()

    assert any("someone else traces 1 events" in sentence for sentence in map(str, seen.feed.lost))


@pytest.mark.parametrize("switch", ["tracing_on", "events/enable"])
def test_a_trace_that_someone_else_switched_off_says_so_once(tmp_path: Path, switch: str):
    """As `trace-cmd reset` does to every instance there is."""
    with recording(tmp_path, "sched") as seen, mounted() as root:
        (name,) = named_after(os.getpid())
        (root / "instances" / name / switch).write_text("0")
        seen.feed.poll()

    assert len([sentence for sentence in map(str, seen.feed.lost) if "switched our tracing off" in sentence]) == 1
    assert any("at least" in sentence for sentence in map(str, seen.feed.lost))


@contextlib.contextmanager
def recorder(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", RECORDER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"recording\n"
        yield child


def named_after(pid: int) -> set[str]:
    return {name for name in our_instances() if name.startswith(f"tare-{pid}-")}


def test_after_a_kill_the_next_start_removes_the_instance_and_its_mount(tmp_path: Path):
    with recorder(tmp_path / "raw") as child:
        tracefs.remove_dead(HERE)
        assert named_after(child.pid)  # a living one's stays
        os.kill(child.pid, signal.SIGKILL)

    there = named_after(child.pid)  # unless another run on this machine came first
    said = tracefs.remove_dead(HERE)

    assert not named_after(child.pid)
    assert not there or any(f"tare-{child.pid}-" in sentence for sentence in said)
    assert not list(Path("/run/tare").glob(f"tracefs/tare-{child.pid}-*"))
    assert f"tare-{child.pid}-" not in Path("/proc/self/mountinfo").read_text()


def test_clean_finds_and_removes_the_instance_of_a_dead_run_and_leaves_a_living_ones(tmp_path: Path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with recorder(tmp_path / "raw") as child:
        (alive,) = [one for one in find_remains(HERE, scratch) if one.site.startswith(f"tare-{child.pid}-")]
        assert alive.owner is not None
        assert alive.owner.pid == child.pid
        os.kill(child.pid, signal.SIGKILL)
    dead = [one for one in find_remains(HERE, scratch) if one.site.startswith(f"tare-{child.pid}-")]

    assert all(one.owner is None for one in dead)  # none, if another run on this machine came first
    assert remove(HERE, dead, scratch) == []
    assert not named_after(child.pid)
    assert f"tare-{child.pid}-" not in Path("/proc/self/mountinfo").read_text()


def test_what_cannot_be_set_up_leaves_no_instance(tmp_path: Path):
    with pytest.raises(Exception, match=r"buffer_size_kb|cannot be traced"):
        Ftrace.model_validate({"buffer": 1 << 50}).record(WatchingHost(), [Scope()], tmp_path)

    assert not named_after(os.getpid())


@pytest.mark.machine("root")
@pytest.mark.parametrize("platform", ["bare", pytest.param("runc", marks=pytest.mark.machine("runc"))])
def test_a_jobs_rows_are_the_workloads_and_a_neighbours_are_its_own(tmp_path: Path, platform: str):
    places, name = [], f"tare-trace-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        for index in (0, 1):
            scratch = tmp_path / f"scratch{index}"
            scratch.mkdir()
            part: Any = find("platforms", platform)()
            place = part.open(HERE, Site(f"{name}-{index}", scratch, writes=(scratch,)))
            stack.callback(place.close)
            places.append((place, scratch))
        with recording(tmp_path, "writeback", "sched", scopes=[place.scope() for place, _ in places]) as seen:
            for place, scratch in places:
                argv = ("/bin/sh", "-c", f"dd if=/dev/zero of={scratch}/file bs=64k count=16 conv=fsync 2>/dev/null")
                place.spawn(Job(argv, env={"PATH": "/usr/bin:/bin", "HOME": "/"})).wait(30)
            seen.feed.poll()

    dirtied = seen.tables["writeback_dirty_folio"]
    for role, (_, scratch) in zip(("workload", "tenant1"), places, strict=True):
        file = dirtied["inode"] == (scratch / "file").stat().st_ino  # others may have had that number before
        assert set(dirtied["role"][file & (dirtied["comm"] == "dd")]) == {role}
    pages = seen.tables["page_writes"]
    for role in ("workload", "tenant1"):
        assert (pages["role"] == role).sum() >= 256  # 1 MiB each


@pytest.mark.machine("trace-cmd")
def test_trace_cmd_reads_the_same_from_our_pages_as_we_do(tmp_path: Path):
    from tare.kernel.traces.importing import Summary, opened

    with recording(tmp_path, "sched", "syscalls") as seen:
        subprocess.run(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=2000", "status=none"], check=True)
    (raw,) = tmp_path.glob("raw-*")
    with mounted() as root:
        subprocess.run(["trace-cmd", "restore", "-c", "-t", root, "-o", tmp_path / "head.dat"], check=True)
    pages = sorted(raw.glob("cpu*.raw"), key=lambda path: int(path.stem.removeprefix("cpu")))
    command = ["trace-cmd", "restore", "-i", tmp_path / "head.dat", "-o", tmp_path / "trace.dat", *pages]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    report = subprocess.run(
        ["trace-cmd", "report", "-i", tmp_path / "trace.dat"], check=True, capture_output=True, text=True
    ).stdout

    summary = Summary()
    with opened(tmp_path / "trace.dat") as trace:
        for chunk in trace.chunks:
            summary.add(chunk)

    assert summary.rows["sys_enter"] == report.count(" sys_enter: ")
    assert summary.rows["sched_switch"] == report.count(" sched_switch: ")
    assert summary.rows["sys_enter"] == len(seen.tables["sys_enter"]["t_ns"])
