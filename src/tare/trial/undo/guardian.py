"""Watches over a run from a process of its own: when the runner dies, what it left on the device is put back.

It sleeps on a pipe whose other end only the runner holds, in a session of its own, and imports nothing before it is
needed (hence the imports in `put_back`): beside a measurement it costs some memory and no time.
`python -m tare.trial.undo.guardian` is the process itself.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

OFF = "TARE_GUARDIAN"  # `off`: a dead run is cleaned up after by the next command only
_WELL = b"well"
_ENDS_WITHIN_S = 5.0


class Guardian:
    """The runner's end of it, for the length of a run."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if os.environ.get(OFF) == "off":
            return self
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=descriptor,
                stderr=descriptor,
                cwd="/",
                start_new_session=True,  # whoever ends the runner's group does not end this
            )
        finally:
            os.close(descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        """The run is over and the device as it was found, or its owner has been told that it is not."""
        child, self._child = self._child, None
        if child is None or child.stdin is None:
            return
        with contextlib.suppress(OSError):
            child.stdin.write(_WELL)
            child.stdin.close()
        try:
            child.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def main() -> int:
    """Wait for the runner's word; if it goes without one, put back what it left."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-1000")  # who must clean up is not to be the one that is ended
    if _heard() == _WELL:
        return 0
    return put_back()


def _heard() -> bytes:
    reported = b""
    while piece := os.read(0, 64):
        reported += piece
    return reported


def put_back() -> int:
    """What `tare device restore` does, unless another command has the device already: that one does it first thing."""
    from tare.base.errors import BusyError, TareError
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.trial.device import GUARDIAN, DeviceLock, device_id
    from tare.trial.undo.journal import Journal
    from tare.trial.undo.restoration import restore

    host = LocalHost()
    try:
        state, device = state_dir(), device_id(host)
        with DeviceLock(state, device, GUARDIAN):
            report = restore(host, Journal(state / "devices" / device, GUARDIAN), scratch=state / "scratch")
    except BusyError:
        return 0
    except TareError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stderr.write("".join(f"{sentence}\n" for sentence in report.sentences()))
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
