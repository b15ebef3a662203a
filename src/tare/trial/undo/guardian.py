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
import time
from pathlib import Path
from typing import Self

OFF = "TARE_GUARDIAN"  # `off`: a dead run is cleaned up after by the next command only
_WELL = b"well"
_ENDS_WITHIN_S = 5.0
_FIRST = -20  # as nice as it goes the other way
GROUP = "guardian"  # how the group of a guardian begins; never a name of a site, which `tare device clean` empties
SPARED = "-1000"
AGAIN_S = (2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 240.0)  # after these pauses it tries again


class Guardian:
    """The runner's end of it, for the length of a run."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None
        self.groups: dict[str, str] = {}
        self.protection = ""  # what is in force for it, as the kernel reports

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
            self._protect(self._child.pid, descriptor)
        finally:
            os.close(descriptor)
        return self

    def _protect(self, pid: int, log: int) -> None:
        """A group of its own, outside of the runner's, and an OOM score that spares it; what is in force is logged."""
        from tare.base.host import LocalHost
        from tare.drivers.cgroups import tree

        host = LocalHost()
        self.groups, refused = {}, ""
        for folder in dict.fromkeys(tree.own_folders(host, GROUP).values()):
            for dead in Path(folder).parent.glob(f"{GROUP}-*"):  # of guardians that were killed themselves
                with contextlib.suppress(OSError):
                    dead.rmdir()  # one with a process in it stays
        try:
            self.groups = tree.make(host, f"{GROUP}-{pid}")
            for folder in dict.fromkeys(self.groups.values()):
                host.write(f"{folder}/cgroup.procs", str(pid))
        except Exception as error:  # without root, or in a container: the guardian is worth having anyway
            refused = f" ({error})"
        try:
            Path(f"/proc/{pid}/oom_score_adj").write_text(SPARED)
        except OSError as error:
            refused += f" (oom_score_adj: {error.strerror})"
        self.protection = protection(pid)
        os.write(log, f"guarding pid {os.getpid()}: {self.protection}{refused}\n".encode())

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
        if self.groups:
            from tare.base.errors import TareError
            from tare.base.host import LocalHost
            from tare.drivers.cgroups import tree

            with contextlib.suppress(TareError, OSError):
                tree.remove(LocalHost(), self.groups)


def main() -> int:
    """Wait for the runner's word; if it goes without one, put back what it left."""
    heard = b""
    while piece := os.read(0, 64):
        heard += piece
    if heard == _WELL:
        return 0
    _leave_group()
    with contextlib.suppress(OSError):  # others may keep every core busy, and nothing is measured any more
        os.setpriority(os.PRIO_PROCESS, 0, _FIRST)
    return put_back()


def protection(pid: int) -> str:
    """The OOM score and the memory group of a process, read from the kernel: what was written is not what counts."""
    try:
        score = Path(f"/proc/{pid}/oom_score_adj").read_text().strip()
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError as error:
        return f"unknown ({error.strerror})"
    named = [line.split(":", 2)[2] for line in lines if line.split(":", 2)[1] == "memory"]
    group = (named or [line.split(":", 2)[2] for line in lines if line.startswith("0::")] or ["unknown"])[0]
    return f"oom_score_adj {score}, group {group}"


def _leave_group() -> None:
    """Out of the group that was made for this process, which would share a core with all others; its runner is dead."""
    top = Path("/sys/fs/cgroup")
    for hierarchy in (top,) if (top / "cgroup.procs").exists() else (*top.glob("*/"), top):
        own = hierarchy / "tare" / f"{GROUP}-{os.getpid()}"
        with contextlib.suppress(OSError):
            if own.is_dir():
                (hierarchy / "cgroup.procs").write_text(str(os.getpid()))
                own.rmdir()
                own.parent.rmdir()


def put_back() -> int:
    """What `tare device restore` does, again and again until the journal is empty; the log says how it went."""
    code = 0
    for pause_s in (*AGAIN_S, None):
        code, done = _put_back_once()
        if done or pause_s is None:
            break
        _log(f"tries again in {pause_s:g} s.")
        time.sleep(pause_s)
    return code


def _put_back_once() -> tuple[int, bool]:
    """How it went as an exit code, and whether there is nothing left to do."""
    from tare.base.errors import TareError
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.trial.device import GUARDIAN, DeviceLock, device_id
    from tare.trial.undo.journal import Journal
    from tare.trial.undo.restoration import restore

    host = LocalHost()
    try:
        state, device = state_dir(), device_id(host)
        journal = Journal(state / "devices" / device, GUARDIAN)
        if not journal.pending():
            return 0, True
        with DeviceLock(state, device, GUARDIAN):
            report = restore(host, journal, scratch=state / "scratch")
    except TareError as error:  # also where another command has the device: whether it restores is looked at later
        _log(str(error))
        return error.exit_code, False
    for sentence in report.sentences():
        _log(sentence)
    return (0, True) if report.clean else (70, bool(report.foreign) and not report.failed)


def _log(sentence: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
