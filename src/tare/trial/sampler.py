"""The runner's end of the sampler, which is a process of its own: the observer must not disturb.

    start    launches it; it imports while the platform is being made
    begin    tells it where the workload is; returns after the first tick
    end      takes one last tick while the platform still stands, and reports

`python -m tare.trial.sampler` is the process itself. It ends when its runner does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from tare.base.errors import TrialError
from tare.base.host import MonotonicClock, Scope
from tare.base.rulings import Ruling
from tare.parts.protocols import Probe
from tare.trial.sampler_report import Line, SamplerReport, SamplerSpec

__all__ = ["Sampler", "SamplerReport", "Sampling", "spare_core"]

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


class Sampler:
    """The probes of one trial, watched from another process. As a context it is started, and never left behind."""

    def __init__(self, probes: Sequence[Probe], spool: Path, period_s: float = 0.1) -> None:
        self._spec = SamplerSpec(
            probes=tuple((probe.part_name(), probe.fields()) for probe in probes),
            spool=str(spool),
            period_ns=round(period_s * 1e9),
            core=spare_core(os.sched_getaffinity(0)),
            runner=os.getpid(),
        )
        self._clock = MonotonicClock()
        self._begin_ns = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._line: Line | None = None
        self._complaints: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Launch the process and return at once."""
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        self._child = subprocess.Popen(
            # -P: a file of the user's that is called like a module of ours must not be imported.
            [sys.executable, "-P", "-m", "tare.trial.sampler"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the runner, which then takes the last tick
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._line = Line(hears=self._child.stdout.fileno(), says=self._child.stdin.fileno())
        self._line.say(replace(self._spec, runner=os.getpid()).as_json())

    def begin(self, scope: Scope, neighbours: Sequence[Scope] = ()) -> None:
        """Open every feed on `scope`, and those that watch one tenant on each neighbour; returns after a first tick."""
        line = self._started()
        self._expect("ready", START_LIMIT_S)
        line.say({"scopes": [{"pid": one.pid, "cgroups": dict(one.cgroups)} for one in (scope, *neighbours)]})
        self._expect("watching", START_LIMIT_S)
        self._begin_ns = self._clock.now_ns()

    def end(self) -> SamplerReport:
        """One last tick, and what was done. A sampler that died costs its series, not the trial."""
        line = self._started()
        line.say({"state": "end"})
        try:
            report = SamplerReport.from_json(self._expect("ended", END_LIMIT_S)["report"])
        except TrialError as error:
            report = self._report_from_spool(str(error))
        self.close()
        return report

    def close(self) -> None:
        """End the process, if it still runs; the closed pipe tells it to finish what it is writing."""
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            with suppress(OSError):
                pipe and pipe.close()
        try:
            child.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            with suppress(subprocess.TimeoutExpired):  # a thread in a read of hardware that hangs does not even die
                child.wait(END_LIMIT_S)
        if self._complaints is not None:
            self._complaints.close()

    def _started(self) -> Line:
        if self._line is None or self._child is None:
            raise TrialError("the sampler is not running; `start` it first.")
        return self._line

    def _expect(self, state: str, limit_s: float) -> dict[str, Any]:
        try:
            reported = self._started().hear(limit_s)
        except TimeoutError:
            raise TrialError(f"the sampler gave no answer within {limit_s:g} s.") from None
        except ValueError as error:
            raise TrialError(f"the sampler's answer cannot be understood: {error}.") from None
        if reported is None:
            raise TrialError(f"the sampler ended by itself{self._complaint()}.")
        if reported.get("state") != state:
            raise TrialError(f"the sampler could not go on: {reported.get('why', reported)}.")
        return reported

    def _complaint(self) -> str:
        if self._complaints is None:
            return ""
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

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

    sys.exit(main())
