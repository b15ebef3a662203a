"""`tare` in a fork of a process that has it loaded: loading takes more CPU time than most commands do.

`run` is as `subprocess.run`, `start` as `subprocess.Popen`. The process is clean: it imports tare and nothing of the
tests but what `like` names, and each command is a fork of it that ends as an interpreter does. It is started by the
first call, and ends with the test process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO

# What a run, a weighing and the verbs that read its store import when they are used.
LOADED = (
    "analysis.weighing", "api.running", "api.studies", "cli.compare", "cli.device", "cli.run", "cli.show", "cli.weigh",
    "drivers.power.everything", "fleet.local", "plan.check", "plan.matrix", "report.progress", "report.text.trials",
    "report.text.verdict", "trial.sampler",
)  # fmt: skip
_REQUEST_BYTES = 1 << 20


class Started:
    """A command that was begun, as a `Popen`."""

    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status, "rb", 0)
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("tare", timeout or 0.0)
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    *words: object,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    out: IO[bytes] | None = None,
    err: IO[bytes] | None = None,
    like: str = "undisturbed",
) -> Started:
    """Begin `tare WORDS...`; `like`: the file here that makes it another than the user's tare, if any."""
    request = {
        "words": list(map(str, words)),
        "cwd": str(cwd),
        "env": dict(os.environ if env is None else env),
        "like": like,
    }
    hears, says = os.pipe()
    with Path(os.devnull).open("wb") as nothing:
        files = [(out or nothing).fileno(), (err or nothing).fileno(), says]
        socket.send_fds(_server()[0], [json.dumps(request).encode()], files)
    os.close(says)
    return Started(hears)


def run(
    *words: object, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 300, like: str = "undisturbed"
) -> subprocess.CompletedProcess[str]:
    """`tare WORDS...` to its end, with what it printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = start(*words, cwd=cwd, env=env, out=out, err=err, like=like)
        try:
            code = begun.wait(timeout)
        finally:
            begun.kill()
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read().decode())
    return subprocess.CompletedProcess(["tare", *map(str, words)], code, *printed)


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The line to it, and the process: it ends when the line is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
    # -P and no variable of a test's: what it finds later, each request says.
    line = [sys.executable, "-P", __file__, str(theirs.fileno())]
    process = subprocess.Popen(line, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd="/")
    theirs.close()
    atexit.register(_end, ours, process)
    return ours, process


def _end(line: socket.socket, process: subprocess.Popen[bytes]) -> None:
    line.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:  # a test that failed has left a command running
        process.kill()


def serve(line: socket.socket) -> None:
    """A child for each request, and one above it that reports its pid and how it ended; in a child it returns."""
    while True:
        data, files, _, _ = socket.recv_fds(line, _REQUEST_BYTES, 3)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG if data else 0)[0]:
                pass
        if not data:
            os._exit(0)
        if os.fork() == 0:
            line.close()
            *printed, status = files
            if (pid := os.fork()) == 0:
                os.close(status)
                return become(json.loads(data), *printed)
            os.write(status, b"%d\n" % pid)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.write(status, b"%d\n" % code)
            os._exit(0)
        for each in files:
            os.close(each)


def become(request: dict[str, object], out: int, err: int) -> None:
    """What a shell sets up before it begins a command."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    os.chdir(str(request["cwd"]))
    tempfile.tempdir = None  # TMPDIR may be another
    sys.argv = ["tare", *request["words"]]  # type: ignore[misc]
    if request["like"]:
        importlib.import_module(str(request["like"])).change_tare()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from tare.cli import main
    from tare.cli.scaffold import numpy_on_one_thread

    numpy_on_one_thread()
    for each in LOADED:
        importlib.import_module(f"tare.{each}")
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(main())
