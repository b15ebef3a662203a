"""`perf record` beside a trial: every event on every core with its call stack, until it is told to stop."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from tare.errors import TareError
from tare.traces.perf_script import Lost, Sample, samples

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
            raise TareError(f"`perf record` could not start: {self.complaint() or 'it said nothing'}")

    def complaint(self) -> str:
        """Its last words."""
        lines = self._said.read_text(errors="replace").strip().splitlines()
        return " ".join(line.strip() for line in lines[-3:])

    def watch(self) -> None:
        """Stop it where the file has become too large; to be called now and then."""
        if self.ended_early is not None:
            return
        if self._child.poll() is not None:
            self.ended_early = f"`perf record` ended by itself: {self.complaint() or 'it said nothing'}"
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
    said = data.with_name("perf-script.err")
    with said.open("wb") as complaints:
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
        raise TareError(f"`perf script` failed: {said.read_text(errors='replace').strip()[-500:]}")


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
