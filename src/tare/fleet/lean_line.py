"""The line to a device without tare: an agent that is sent there over ssh, and hears from us as long as we live."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from tare.drivers.guests.channel import GuestGone, GuestSilent, Link
from tare.fleet.inventory import Device
from tare.fleet.ssh import (
    ARRIVING,
    Unreachable,
    code_of,
    command_line,
    ended,
    ended_after,
    last_words,
    whole,
    why_silent,
)

UP_WITHIN_S = 60.0
BEATS_UNHEARD = 3  # after so many the agent takes us for gone
_RETRY_S = 5.0
_MOST_NOISE_LINES = 1000
_MOST_LINE_BYTES = 1 << 20
_HAS, _WANTS, _READY = b"tare-agent has\n", b"tare-agent wants\n", b"tare-agent\n"

# Keeps the package beside the user's other caches, under the hash of what is in it; reads it from standard input where
# it is not there, or is not whole. What runs is a copy of it in memory, which goes with the agent, also where a signal
# ends that before it has begun.
_BOOT = f"""{ARRIVING}
import hashlib, io, shutil, signal, tempfile, zipfile
name, size, silent_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
path = os.path.join(cache, "inside-" + name + ".zip")
data = kept(path)
there = hashlib.sha256(data).hexdigest() == name
os.write(1, b"tare-agent has\\n" if there else b"tare-agent wants\\n")
if not there:
    data = arrived(size)
    keep(path, data)
for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: sys.exit(0))
memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
folder = tempfile.mkdtemp(prefix="tare-lean-", dir=memory)
try:
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        package.extractall(folder)
    sys.path.insert(0, folder)
    from tare_inside.agents.lean import main
    main(silent_s, folder)
finally:
    shutil.rmtree(folder, ignore_errors=True)
"""


@dataclass(frozen=True)
class Line:
    """An agent that has said what the device is, and how to ask it."""

    device: Device
    link: Link
    said: dict[str, Any]
    alive_s: float  # how often each side hears of the other


@contextmanager
def opened(device: Device, patience_s: float) -> Iterator[Line]:
    """A line, for which a device that is out of reach is waited for as long as our patience lasts."""
    end_s = time.monotonic() + patience_s
    alive_s = max(1.0, min(10.0, patience_s / 4))
    while True:
        with ExitStack() as stack:
            try:
                line = stack.enter_context(_opened(device, alive_s))
            except Unreachable:
                if time.monotonic() + min(_RETRY_S, alive_s) > end_s:
                    raise
                time.sleep(min(_RETRY_S, alive_s))
                continue
            yield line
            return


@contextmanager
def _opened(device: Device, alive_s: float) -> Iterator[Line]:
    package = whole()
    # -I: what lies in the home folder there, or in PYTHONPATH, is not ours to run.
    boot = [device.python, "-I", "-B", "-c", _BOOT, hashlib.sha256(package).hexdigest(), str(len(package))]
    with tempfile.TemporaryDirectory(prefix="tare-ssh-") as folder, tempfile.TemporaryFile() as err:
        argv = command_line(device, [*boot, str(BEATS_UNHEARD * alive_s + 1)], alive_s, folder)
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, bufsize=0)
        with ended(child):
            with ended_after(child, UP_WITHIN_S):
                up = _started(child, package)
            if not up:
                raise _why(device, child, err)
            link = Link(_Pipes(child))
            try:
                said = link.hello(UP_WITHIN_S)
            except (GuestGone, GuestSilent) as error:
                raise _why(device, child, err) from error
            with _beating(link, alive_s):
                yield Line(device, link, said, alive_s)
            _say_goodbye(child)


def _started(child: subprocess.Popen[bytes], package: bytes) -> bool:
    """Whether the agent is up; what a login script says before it is passed over."""
    assert child.stdin is not None
    assert child.stdout is not None
    for _ in range(_MOST_NOISE_LINES):
        line = child.stdout.readline(_MOST_LINE_BYTES)
        if line == _WANTS:
            with suppress(OSError):  # that nobody reads is seen at the next line
                _write(child.stdin.fileno(), package)
        elif line == _READY:
            return True
        elif not line:
            return False
    return False


def _why(device: Device, child: subprocess.Popen[bytes], err: IO[bytes]) -> Exception:
    assert child.stdin is not None
    with suppress(OSError):
        child.stdin.close()
    return why_silent(device, code_of(child), last_words(err))


def _say_goodbye(child: subprocess.Popen[bytes]) -> None:
    """A closed line is the agent's sign to clean up; it is given the time for that, so that the next finds it done."""
    assert child.stdin is not None
    with suppress(OSError, subprocess.TimeoutExpired):
        child.stdin.close()
        child.wait(UP_WITHIN_S)


@contextmanager
def _beating(link: Link, every_s: float) -> Iterator[None]:
    """While this lasts the agent hears from us, whatever else is said."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every_s):
            link.tell("beat")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Pipes:
    """The two pipes of an ssh as one wire."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._says, self._hears = child.stdin, child.stdout

    def recv(self, size: int, /) -> bytes:
        return os.read(self._hears.fileno(), size)

    def sendall(self, data: bytes, /) -> None:
        try:
            _write(self._says.fileno(), data)
        except ValueError as error:  # it was closed by whoever leaves
            raise BrokenPipeError from error

    def close(self) -> None:
        self._says.close()


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
