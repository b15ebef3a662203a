"""The runner's end of the sampler, which is a process of its own: the observer must not disturb.

    start    takes a process that waits for work, or launches one, which imports while the platform is being made
    begin    tells it where the workload is; returns after the first tick
    end      takes one last tick while the platform still stands, and reports

`python -m tare.trial.sampler RUNNER` is the process. It watches each trial in a fork of its own, which has nothing of
the trial before, and ends when its runner does or when a fork did not end well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tare.base.errors import TrialError
from tare.base.host import MonotonicClock, Scope
from tare.base.rulings import Ruling
from tare.parts.protocols import Probe
from tare.trial.sampler_report import Line, SamplerReport, SamplerSpec

__all__ = ["Sampler", "SamplerReport", "Samplers", "Sampling", "spare_core"]

START_LIMIT_S = 60.0  # a board with a slow card takes long to import
END_LIMIT_S = 20.0


class Sampling(Protocol):
    """Whatever watches the probes of one trial: `Sampler`, or what has a device without tare watch itself."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...
    def begin(self, scope: Scope, neighbours: Sequence[Scope] = ()) -> None: ...
    def end(self) -> SamplerReport: ...


class SamplerProcess:
    """A process that waits for trials to watch, and the line to it."""

    def __init__(self) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        self.child = self.launched(self._complaints.fileno())
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.line = Line(hears=self.child.stdout.fileno(), says=self.child.stdin.fileno())

    def launched(self, complaints: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            # -P: a file of the user's that is called like a module of ours must not be imported.
            [sys.executable, "-P", "-m", "tare.trial.sampler", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the runner, which then takes the last tick
        )

    def is_free(self) -> bool:
        """Whether its last fork has ended, as it reports then, and it still runs."""
        try:
            told = self.line.hear(END_LIMIT_S)
        except (TimeoutError, ValueError):
            return False
        return told == {"state": "free"} and self.child.poll() is None

    def complaint(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def forget_complaints(self) -> None:
        """What was printed in an earlier trial explains nothing in the next."""
        self._complaints.seek(0)
        self._complaints.truncate()

    def close(self) -> None:
        """End it, if it still runs; the closed pipe tells it to finish what it is writing."""
        for pipe in (self.child.stdin, self.child.stdout):
            with suppress(OSError):
                pipe and pipe.close()
        try:
            self.child.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)  # it and its fork
            with suppress(subprocess.TimeoutExpired):  # a thread in a read of hardware that hangs does not even die
                self.child.wait(END_LIMIT_S)
        self._complaints.close()


class Samplers:
    """Makes the samplers of one run. What one of them started watches the next trial too: importing takes longer than
    all else that a trial costs. As a context it leaves no process behind."""

    def __init__(self) -> None:
        self._idle: list[SamplerProcess] = []

    def __call__(self, probes: Sequence[Probe], spool: Path, period_s: float) -> Sampler:
        return Sampler(probes, spool, period_s, self)

    def take(self) -> SamplerProcess:
        """One that is free, or a new one."""
        while self._idle:
            process = self._idle.pop()
            if process.is_free():
                process.forget_complaints()
                return process
            process.close()
        return SamplerProcess()

    def give_back(self, process: SamplerProcess) -> None:
        self._idle.append(process)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sampler:
    """The probes of one trial, watched from another process. As a context it is started, and never left behind."""

    def __init__(
        self, probes: Sequence[Probe], spool: Path, period_s: float = 0.1, samplers: Samplers | None = None
    ) -> None:
        self._spec = SamplerSpec(
            probes=tuple((probe.part_name(), probe.fields()) for probe in probes),
            spool=str(spool),
            period_ns=round(period_s * 1e9),
            core=spare_core(os.sched_getaffinity(0)),
        )
        self._clock = MonotonicClock()
        self._begin_ns = 0
        self._samplers = samplers
        self._process: SamplerProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Have a process that prepares to watch, and return at once."""
        self._process = SamplerProcess() if self._samplers is None else self._samplers.take()
        self._process.line.say(self._spec.as_json())

    def begin(self, scope: Scope, neighbours: Sequence[Scope] = ()) -> None:
        """Open every feed on `scope`, and those that watch one tenant on each neighbour; returns after a first tick."""
        self._expect("ready", START_LIMIT_S)
        scopes = [{"pid": one.pid, "cgroups": dict(one.cgroups)} for one in (scope, *neighbours)]
        self._started().line.say({"scopes": scopes})
        self._expect("watching", START_LIMIT_S)
        self._begin_ns = self._clock.now_ns()

    def end(self) -> SamplerReport:
        """One last tick, and what was done. A sampler that died costs its series, not the trial."""
        self._started().line.say({"state": "end"})
        try:
            report = SamplerReport.from_json(self._expect("ended", END_LIMIT_S)["report"])
        except TrialError as error:
            report = self._report_from_spool(str(error))
        else:
            if self._samplers is not None:
                self._samplers.give_back(self._started())
                self._process = None
        self.close()
        return report

    def close(self) -> None:
        """End the process, unless it has reported and waits for the next trial."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _started(self) -> SamplerProcess:
        if self._process is None:
            raise TrialError("the sampler is not running; `start` it first.")
        return self._process

    def _expect(self, state: str, limit_s: float) -> dict[str, Any]:
        process = self._started()
        try:
            reported = process.line.hear(limit_s)
        except TimeoutError:
            raise TrialError(f"the sampler gave no answer within {limit_s:g} s.") from None
        except ValueError as error:
            raise TrialError(f"the sampler's answer cannot be understood: {error}.") from None
        if reported is None:
            raise TrialError(f"the sampler ended by itself{process.complaint()}.")
        if reported.get("state") != state:
            raise TrialError(f"the sampler could not go on: {reported.get('why', reported)}.")
        return reported

    def _report_from_spool(self, why: str) -> SamplerReport:
        """What the spool shows of a sampler that can no longer be asked."""
        from tare.records.spool import read_spool

        seconds = (self._clock.now_ns() - self._begin_ns) / 1e9
        series = read_spool(Path(self._spec.spool))
        late_s, cpu_s = (
            list(series[name][1]) if name in series else [] for name in ("sampler.late_s", "sampler.cpu_s")
        )
        planned = round(seconds * 1e9 / self._spec.period_ns)
        end_s = len(late_s) * self._spec.period_ns / 1e9
        return SamplerReport(
            ticks=len(late_s),
            missed=max(0, planned - len(late_s)),
            late_p99_s=max(late_s, default=0.0),
            cpu_s=cpu_s[-1] - cpu_s[0] if cpu_s else 0.0,
            seconds=seconds,
            lost=[Ruling("sampler.ended", "note", "sampler", f"{why} The series end {end_s:.1f} s after their start.")],
            core=self._spec.core,
        )


def spare_core(allowed: Collection[int]) -> int | None:
    """The last core, if the workload keeps at least two without it; otherwise none is to spare."""
    return max(allowed) if len(allowed) > 2 else None


if __name__ == "__main__":
    from tare.trial.sampler_loop import main

    sys.exit(main(int(sys.argv[1])))
