"""`tare`, but what else the machine does makes no trial invalid: for tests beside others that read the results.

With WITHOUT_REPORT in the environment a run writes no report. With WITHOUT_TORCH the built-in programs are
program_without_torch.py, which takes a fraction of their time; everything around them is real.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from without_report import leave_out_the_report, main

from tare.base.host import Host, Job
from tare.drivers.workloads.torch import TorchWorkload
from tare.fleet import local
from tare.parts.protocols import Json
from tare.trial import verdict

_real_program = TorchWorkload.program


def _program(self: TorchWorkload, place: Host, workdir: Path, module: str, asked: Mapping[str, Json]) -> Job:
    job = _real_program(self, place, workdir, module, asked)
    script = shutil.copy(Path(__file__).with_name("program_without_torch.py"), workdir)
    *launch, _, _, order = job.argv
    return replace(job, argv=(*launch, str(script), module, order))


def relax() -> None:
    """For this process: whatever else runs, no trial is invalid for it."""
    verdict.THRESHOLDS = replace(verdict.THRESHOLDS, foreign_invalid_share=1.0, steal_invalid_share=1.0)
    local.THRESHOLDS = replace(local.THRESHOLDS, rerun_limit=0)


if __name__ == "__main__":
    relax()
    if os.environ.get("WITHOUT_REPORT"):
        leave_out_the_report()
    if os.environ.get("WITHOUT_TORCH"):
        TorchWorkload.program = _program  # type: ignore[method-assign]
    sys.exit(main())
