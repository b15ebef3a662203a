"""One question to a device: the agent is sent there over ssh, asked once, and its answer read.

OpenSSH's own client does the talking, with its files and rules: `~/.ssh/config`, agents, jump hosts. A host key that is
not known is refused, never learnt.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tare.errors import ObstacleError, TareError
from tare.fleet.inventory import Device
from tare.parts.inside import SOURCE

HERE = ""  # the address of a device that is this machine: a worker of a cluster runs its own trials
CONNECT_WITHIN_S = 15
_AGENT = SOURCE / "device_agent.py"
_HELLO = b"tare-agent\n"
_REFUSED = ("Host key verification failed", "Permission denied", "No such identity", "Could not resolve hostname")
_MOST_NOISE_LINES = 1000  # what a login script printed before the agent spoke

# Reads the agent from standard input, keeps it beside the user's other caches, and becomes it. What follows on standard
# input is the question, so not a byte too much may be read.
_BOOT = """\
import os, sys
folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tare")
size, name = int(sys.argv[1]), os.path.join(folder, sys.argv[2])
text = b""
while len(text) < size:
    piece = os.read(0, size - len(text))
    if not piece:
        sys.exit(3)
    text += piece
try:
    with open(name, "rb") as file:
        there = file.read() == text
except OSError:
    there = False
if not there:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    draft = "%s.%d" % (name, os.getpid())
    with open(draft, "wb") as file:
        file.write(text)
    os.rename(draft, name)
os.execv(sys.executable, [sys.executable, "-E", "-s", name])
"""


class Unreachable(TareError):
    """The device did not answer, or the line to it broke; asking again may help."""


class Refused(TareError):
    """The device, or its host key, said no; asking again does not help."""


@dataclass(frozen=True)
class Answer:
    """What the agent said, and the records it sent, as a tar file."""

    said: Mapping[str, Any]
    records: bytes = b""


def ask(device: Device, question: Mapping[str, Any], *, alive_s: float = 10.0) -> Answer:
    """One question, one answer; `alive_s` is how often a silent line is tried, and three times in vain ends it."""
    if device.address != HERE and shutil.which("ssh") is None:
        raise ObstacleError("devices are reached by ssh, and there is no ssh on this machine: install openssh-client.")
    agent = _AGENT.read_bytes()
    name = f"device_agent-{hashlib.sha256(agent).hexdigest()[:12]}.py"
    boot = [device.python, "-c", _BOOT, str(len(agent)), name]
    with tempfile.TemporaryDirectory(prefix="tare-ssh-") as folder, tempfile.TemporaryFile() as err:
        argv = [sys.executable, *boot[1:]] if device.address == HERE else command_line(device, boot, alive_s, folder)
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err)
        with _ended(child):
            assert child.stdin is not None
            assert child.stdout is not None
            with contextlib.suppress(BrokenPipeError):  # what it said instead of listening is read below
                child.stdin.write(agent + json.dumps(dict(question)).encode() + b"\n")
                child.stdin.close()
            answer = _read(child.stdout)
            code = child.wait()
        err.seek(0)
        words = err.read().decode("utf-8", "replace").strip()
    if answer is None or code != 0:
        raise _trouble(device, code, words)
    if "error" in answer.said:
        raise Refused(f"{device.name}: {answer.said['error']}")
    return answer


def command_line(device: Device, argv: list[str], alive_s: float, folder: str) -> list[str]:
    """The ssh command; the remote side hands one string to a shell, so every word is quoted."""
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "ConnectTimeout": str(CONNECT_WITHIN_S),
        "ServerAliveInterval": str(max(1, round(alive_s))),
        "ServerAliveCountMax": "3",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "UpdateHostKeys": "no",
    }
    if device.host_key is not None:
        known = Path(folder, "known_hosts")
        known.write_text(f"{_known_as(device)} {device.host_key}\n")
        options |= {"UserKnownHostsFile": str(known), "GlobalKnownHostsFile": "/dev/null"}
    elif device.known_hosts is not None:
        options |= {"UserKnownHostsFile": str(device.known_hosts), "GlobalKnownHostsFile": "/dev/null"}
    if device.key is not None:
        options |= {"IdentityFile": str(device.key), "IdentitiesOnly": "yes"}
    words = ["ssh", "-T", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    words += ["-p", str(device.port)] if device.port is not None else []
    words += ["-l", device.user] if device.user is not None else []
    words += ["-J", device.jump] if device.jump is not None else []
    return [*words, "--", device.address, shlex.join(argv)]


def _known_as(device: Device) -> str:
    return device.address if device.port in (None, 22) else f"[{device.address}]:{device.port}"


def _read(pipe: IO[bytes]) -> Answer | None:
    """The answer; None where the line ended before it."""
    for _ in range(_MOST_NOISE_LINES):
        line = pipe.readline()
        if not line:
            return None
        if line == _HELLO:
            break
    try:
        said = json.loads(pipe.readline())
    except ValueError:
        return None
    return Answer(said, pipe.read() if said.get("sends") is not None else b"")


def _trouble(device: Device, code: int, words: str) -> TareError:
    last = " ".join(words.splitlines()[-3:]) or "it said nothing"
    if any(text in words for text in _REFUSED):
        return Refused(f"{device.name}: ssh was refused: {last}")
    if code == 255 or code < 0:
        return Unreachable(f"{device.name}: no line to {device.address}: {last}")
    return Refused(
        f"{device.name}: {device.python} there did not run what was sent (code {code}): {last}\n"
        "It has to be Python 3.6 or newer; 'python' in the inventory names it."
    )


@contextlib.contextmanager
def _ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """However the caller leaves, no ssh of ours stays behind."""
    try:
        yield
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
