"""A trial as a log of lines, whole and broken at each step: what was opened is closed, and the record says why."""

from __future__ import annotations

import gc
import resource
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tare.base.errors import TrialError
from tare.base.host import Exit, Host, Job, Scope, Site
from tare.parts.protocols import Control, Platform, Workload
from tare.plan.matrix import Cell, Trial
from tare.records.store import Store
from tare.testing import FakeHost, FakeProcess
from tare.trial import engine
from tare.trial.engine import Bench, run_trial
from tare.trial.sampler_report import SamplerReport
from tare.trial.undo.journal import COMPACT_BYTES, Journal

WHOLE = [
    "prepare",
    "sampler started",
    "write knob new",
    "open box",
    "job",
    "sampler began",
    "spawn work",
    "sampler ended",
    "spawn fingerprint.py",
    "close box",
    "write knob old",
    "sampler stopped",
]


# A failure to close or to put back has a test of its own: it stays in the journal.
BREAKABLE = [line for line in WHOLE if line not in ("close box", "write knob old")]


class Broken(Exception):
    """Not one of ours: what a part raises when something happens that nobody foresaw."""


class Log(list[str]):
    """Lines, one of which may raise when it is written."""

    def __init__(self, break_at: str = "", error: BaseException | None = None) -> None:
        self._break_at, self._error = break_at, error

    def append(self, line: str) -> None:
        super().append(line)
        if line == self._break_at and self._error is not None:
            error, self._error = self._error, None
            raise error


class Device(FakeHost):
    """One knob, and a log that everything writes to."""

    lines: ClassVar[Log]
    counted: ClassVar[bool] = True  # whether the launcher leaves what it counted
    worked: ClassVar[Callable[[], None]] = staticmethod(lambda: None)  # what the workload does

    def write(self, path: Any, text: str) -> None:
        self.files[str(path)] = text
        Device.lines.append(f"write knob {text}")


class Knob(Control):
    def obstacles(self, host: Host) -> list[str]:
        return []

    def target(self, host: Any, inputs: Any) -> Any:
        return "new"

    def read(self, host: Host) -> Any:
        return host.read("knob")

    def write(self, host: Host, state: Any) -> None:
        host.write("knob", state)


class Box(Platform):
    def obstacles(self, host: Host) -> list[str]:
        return []

    def open(self, host: Host, site: Site) -> Host:
        assert site.scratch.is_dir()
        assert (site.writes[0] / "inside" / "tare_inside" / "marks.py").exists()
        Device.lines.append("open box")
        return Inside()

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        Device.lines.append("sweep box")


class Inside(FakeHost):
    def spawn(self, job: Job) -> Any:
        Device.lines.append(f"spawn {Path(job.argv[-1]).name}")
        if job.argv == ("work",) and Device.counted:
            Path(job.cwd, "result.json").write_text('{"wall_s": 0.01}')
            Device.worked()
        return super().spawn(job)

    def close(self) -> None:
        Device.lines.append("close box")


class Work(Workload):
    def obstacles(self, host: Host) -> list[str]:
        return []

    def title(self) -> str:
        return "work"

    def prepare(self, host: Host) -> None:
        Device.lines.append("prepare")

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        Device.lines.append("job")
        return Job(("work",), cwd=str(workdir))


class QuietSampler:
    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> QuietSampler:
        Device.lines.append("sampler started")
        return self

    def begin(self, scope: Scope, neighbours: Sequence[Scope] = ()) -> None:
        Device.lines.append("sampler began")

    def end(self) -> SamplerReport:
        Device.lines.append("sampler ended")
        return SamplerReport(ticks=1, missed=0, late_p99_s=0.0, cpu_s=0.0, seconds=0.0)

    def __exit__(self, *_: object) -> None:
        Device.lines.append("sampler stopped")


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "Sampler", QuietSampler)
    monkeypatch.setattr("tare.trial.tenants.SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.setattr("tare.base.processes.LEASES", tmp_path)  # names are alike in tests with a clock of their own
    (tmp_path / "shm").mkdir()
    with Store.create(tmp_path / "store", {"study": "s"}, "study: s") as store:
        host = Device(files={"knob": "old"})
        yield Bench(host, store, Journal(tmp_path / "state" / "devices" / "here"), tmp_path / "scratch")


def a_trial(block: int = 0) -> Trial:
    cell = Cell(platforms=(Box(),), workload=Work(), controls=(Knob(),))
    return Trial(study="s", cell=cell, block=block, position=0, seed=1, limit_s=5.0)


def run(bench: Bench, log: Log) -> Any:
    Device.lines = log
    return run_trial(a_trial(), bench)


def left_behind(bench: Bench, tmp_path: Path) -> list[str]:
    """Everything that a trial must not leave: pending journal lines, folders, a changed knob."""
    found = [str(entry) for entry in bench.journal.pending()]
    found += [str(path) for folder in ("shm", "scratch") for path in (tmp_path / folder).glob("*")]
    return found + ([] if bench.host.files["knob"] == "old" else ["the knob"])


def test_a_whole_trial_opens_everything_once_and_closes_it_in_reverse(bench, tmp_path):
    log = Log()
    record = run(bench, log)
    assert log == WHOLE
    assert record.state == "ok"
    assert left_behind(bench, tmp_path) == []
    assert set(record.phases) >= {"prepare", "open", "run", "close", "sampler"}


def test_a_trial_that_ends_well_and_whose_time_nobody_counted_is_invalid(bench, monkeypatch):
    monkeypatch.setattr(Device, "counted", False)
    record = run(bench, Log())
    assert (record.state, [each.code for each in record.reasons]) == ("invalid", ["workdir.no-result"])
    assert "wall_s" not in record.metrics


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_in_a_day_of_trials_nothing_grows_but_the_records(bench, tmp_path, monkeypatch, deep):
    """24 hours by the device's clock, which only the workloads move on: 24 trials of an hour.

    Memory is what Python has; over thousands of trials all that the process has, which costs nothing to ask for.
    """
    trials = 2880 if deep else 24
    clock = bench.host.clock
    begun_ns = clock.now_ns()
    monkeypatch.setattr(Device, "worked", staticmethod(lambda: clock.advance(86400 / trials)))
    looks = []
    if not deep:
        tracemalloc.start()
    try:
        for block in range(trials):
            Device.lines = Log()
            record = run_trial(a_trial(block), bench)
            assert (record.state, left_behind(bench, tmp_path)) == ("ok", [])
            if block in (trials // 4, trials - 1):
                gc.collect()
                held = _resident() if deep else tracemalloc.get_traced_memory()[0]
                path = bench.journal.path  # none right after it was compacted
                looks.append((held, len(list(Path("/proc/self/fd").iterdir())), threading.active_count(),
                              path.stat().st_size if path.exists() else 0))  # fmt: skip
    finally:
        tracemalloc.stop()
    assert (clock.now_ns() - begun_ns) / 3.6e12 == pytest.approx(24, rel=0.01)
    assert len(bench.store.records()) == trials
    (memory, files, threads, journal), (memory_after, files_after, threads_after, journal_after) = looks
    assert (memory_after - memory) / (trials * 3 / 4) < 16 << 10, "bytes of memory a trial, with its record"
    assert (files_after, threads_after) <= (files, threads)
    assert journal_after < journal + COMPACT_BYTES


@pytest.mark.parametrize("line", BREAKABLE)
def test_a_trial_that_fails_at_any_step_leaves_the_device_as_it_was(bench, tmp_path, line):
    record = run(bench, Log(line, TrialError("it broke here")))
    assert record.state == "failed"
    assert "it broke here" in str(record.reasons[0])
    assert left_behind(bench, tmp_path) == []
    assert bench.store.find(record.trial).state == "failed"


def test_a_knob_that_cannot_be_put_back_stays_in_the_journal_for_the_runner_to_find(bench, tmp_path):
    record = run(bench, Log("write knob old", TrialError("it broke here")))
    assert record.state == "failed"
    assert "NOT left as it was found" in str(record.reasons[0])
    assert len(left_behind(bench, tmp_path)) == 1


@pytest.mark.parametrize("line", BREAKABLE)
def test_a_trial_that_is_cut_off_at_any_step_is_kept_as_interrupted(bench, tmp_path, line):
    with pytest.raises(KeyboardInterrupt):
        run(bench, Log(line, KeyboardInterrupt()))
    assert left_behind(bench, tmp_path) == []
    (record,) = bench.store.records()
    assert record.state == "interrupted"


@pytest.mark.parametrize("line", BREAKABLE)
def test_a_part_that_raises_anything_costs_one_trial_and_leaves_its_traceback(bench, tmp_path, line):
    record = run(bench, Log(line, Broken("no space left on device")))
    assert record.state == "failed"
    assert "Broken: no space left on device" in str(record.reasons[0])
    assert "test_trial_order.py" in record.facts["traceback"]
    assert left_behind(bench, tmp_path) == []


def test_an_early_end_of_the_workload_is_in_the_record_with_its_last_words(bench, monkeypatch):
    died = Exit(code=3, seconds=0.1, err="no such data set")
    monkeypatch.setattr(Inside, "spawn", lambda self, job: FakeProcess(died))
    record = run(bench, Log())
    assert record.state == "failed"
    assert "no such data set" in str(record.reasons[0])
    assert bench.store.output(record.trial, record.attempt)[1] == "no such data set"


def test_a_platform_that_cannot_be_closed_stays_in_the_journal_for_restore(bench, tmp_path):
    def stuck(self):
        raise TrialError("the container does not stop")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Inside, "close", stuck)
        record = run(bench, Log())
    assert record.state == "failed"
    assert [entry.platform for entry in bench.journal.pending()] == ["test_trial_order"]
