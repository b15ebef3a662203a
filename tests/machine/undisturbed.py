"""`tare`, but a load generator that is late makes no trial invalid: for tests beside others that read the results.

By variables of the environment: with STRICT it does. A run writes a report only with WITH_REPORT. The sampler is a fork
of the runner, and not an interpreter of its own that imports all anew (a third of a trial's CPU), but with OWN_SAMPLER.
With WITHOUT_TORCH the built-in programs are program_without_torch.py, which takes a fraction of their time; everything
around them is real.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from without_report import leave_out_the_report, main

from tare.base.host import Host, Job
from tare.drivers.torch_programs import TorchWorkload
from tare.fleet import local
from tare.parts.protocols import Json
from tare.trial import rules, sampler
from tare.trial.sampler import Sampler, SamplerProcess

_real_program = TorchWorkload.program


def _program(self: TorchWorkload, place: Host, workdir: Path, module: str, asked: Mapping[str, Json]) -> Job:
    job = _real_program(self, place, workdir, module, asked)
    script = shutil.copy(Path(__file__).with_name("program_without_torch.py"), workdir)
    *launch, _, _, order = job.argv
    return replace(job, argv=(*launch, str(script), module, order))


class _Fork:
    """What a sampler needs of its process, as of a `Popen`."""

    def __init__(self, complaints: int) -> None:
        (theirs, ours), (ours_too, theirs_too) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setsid()
                for number, each in enumerate((theirs, theirs_too, complaints)):
                    os.dup2(each, number)
                os.closerange(3, 1024)
                code = sampler.main(os.getppid())
            finally:
                os._exit(code)
        os.close(theirs)
        os.close(theirs_too)
        self.stdin, self.stdout = os.fdopen(ours, "wb", 0), os.fdopen(ours_too, "rb", 0)

    def wait(self, limit_s: float) -> int:
        end_s = time.monotonic() + limit_s
        while (ended := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > end_s:
                raise subprocess.TimeoutExpired("sampler", limit_s)
            time.sleep(0.002)
        return os.waitstatus_to_exitcode(ended[1])

    def kill(self) -> None:
        os.kill(self.pid, 9)


class _ForkedProcess(SamplerProcess):
    def launched(self, complaints: int) -> subprocess.Popen[bytes]:
        return _Fork(complaints)  # type: ignore[return-value]


class ForkedSampler(Sampler):
    def start(self) -> None:
        self._process = _ForkedProcess()
        self._process.line.say(self._spec.as_json())


def relax() -> None:
    """For this process: a load generator may be as slow as it is beside others."""
    rules.LOAD_CPU_SHARE = rules.LOAD_LATE_S = float("inf")


def change_tare() -> None:
    """All of the above, for this process."""
    if not os.environ.get("STRICT"):
        relax()
    if not os.environ.get("WITH_REPORT"):
        leave_out_the_report()
    if not os.environ.get("OWN_SAMPLER"):
        local.run_study.__kwdefaults__["sampler"] = ForkedSampler
    if os.environ.get("WITHOUT_TORCH"):
        TorchWorkload.program = _program  # type: ignore[method-assign]


if __name__ == "__main__":
    change_tare()
    sys.exit(main())
