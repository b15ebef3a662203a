"""A part of dask as a process of ours, which ends with its starter: `python -m tare.fleet.servant PID worker`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

# A worker as it comes looks at itself a hundred times a second; these make that five (docs/decisions/0015-fleet.md).
TUNED = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL": "1h",
    "DASK_DISTRIBUTED__WORKER__PROFILE__CYCLE": "1h",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "2s",
    "DASK_DISTRIBUTED__ADMIN__TICK__CYCLE": "60s",
    "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "1h",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
    # Nothing is run again, or elsewhere, unless we say so.
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
}


def main() -> None:
    """Become what was asked for, after having made sure that we do not outlive our starter."""
    starter = int(sys.argv.pop(1))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:
        return  # it died before we had asked to be told
    from dask.cli import cli
    from distributed.cli import dask_scheduler, dask_worker

    for each in (dask_scheduler.main, dask_worker.main):
        if each.name not in cli.commands:
            cli.add_command(each)
    cli(prog_name="dask")


if __name__ == "__main__":
    main()
