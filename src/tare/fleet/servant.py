"""A part of dask as a process of ours, which ends with its starter: `python -m tare.fleet.servant PID scheduler`."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

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
    # A thousand workers that come at once are let in one after another.
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "120s",
}

# Beside these, workers that share a process: what looks at the process itself need not do so for each of them.
SHARED = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "60s",
    "DASK_DISTRIBUTED__ADMIN__TICK__CYCLE": "1h",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10m",
}


def main() -> None:
    """Become what was asked for, after having made sure that we do not outlive our starter."""
    starter = int(sys.argv.pop(1))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:
        return  # it died before we had asked to be told
    allow_many_files()
    if sys.argv[1] == "workers":
        from tare.fleet.hosting import serve

        serve(Path(sys.argv[2]))
    from dask.cli import cli
    from distributed.cli import dask_scheduler

    if dask_scheduler.main.name not in cli.commands:
        cli.add_command(dask_scheduler.main)
    cli(prog_name="dask")


def allow_many_files() -> None:
    """A device is some eight connections and pipes; the usual 1024 would end at a hundred of them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
