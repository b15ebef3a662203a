"""One question to a device: the agent is sent there over ssh, asked once, and its answer read.

OpenSSH's own client does the talking, with its files and rules: `~/.ssh/config`, agents, jump hosts. A host key that is
not known is refused, never learnt.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tare.base.errors import ObstacleError, TareError
from tare.base.untrusted import stranger_json
from tare.drivers.places import SOURCE
from tare.fleet.inventory import Device, jump_of

_WHEN = (1980, 1, 1, 0, 0, 0)
_MAIN = {"__main__.py": b"from tare_inside.agents.device import main\n\nmain()\n"}

# What either kind of agent begins with on a device, before anything of ours is there: not a byte too much may be read
# from standard input, since the talk itself follows, and a copy appears under its name only when it is whole. One that
# is used is touched: those that nobody has touched for a day go (`tare_inside.agents.device`).
ARRIVING = """\
import os, sys
cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tare")
def kept(path):
    try:
        with open(path, "rb") as file:
            data = file.read()
        os.utime(path)
        return data
    except OSError:
        return b""
def arrived(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit(3)
        data += piece
    return data
def keep(path, data):
    os.makedirs(cache, mode=0o700, exist_ok=True)
    draft = path + "." + str(os.getpid())
    try:
        with open(draft, "wb") as file:
            file.write(data)
        os.rename(draft, path)
    except OSError:
        os.path.exists(draft) and os.remove(draft)
        raise
"""

# Reads the agent from standard input, keeps it beside the user's other caches, and becomes it.
BOOT = f"""{ARRIVING}
data, path = arrived(int(sys.argv[1])), os.path.join(cache, sys.argv[2])
if kept(path) != data:
    keep(path, data)
os.execv(sys.executable, [sys.executable, "-I", "-B", path])
"""


def whole() -> bytes:
    """All of it: what a device without tare runs on."""
    return packed(SOURCE.rglob("*.py"))


def device_agent() -> bytes:
    """The agent that looks at a device, begins trials and hands records over, as a file that Python runs."""
    return packed([SOURCE / name for name in ("__init__.py", "agents/__init__.py", "agents/device.py")], _MAIN)


def packed(paths: Iterable[Path], others: Mapping[str, bytes] | None = None) -> bytes:
    """These files of `tare_inside`, and others with their content."""
    files = {str(Path("tare_inside") / path.relative_to(SOURCE)): path.read_bytes() for path in paths}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted({**files, **(others or {})}.items()):
            info = zipfile.ZipInfo(name, _WHEN)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()


HERE = ""  # the address of a device that is this machine: a worker of a cluster runs its own trials
CONNECT_WITHIN_S = 15.0
MOST_RECORD_BYTES = 512 << 20  # in one answer: a device is not to be trusted with our memory
_MOST_LINE_BYTES = 16 << 20
_MOST_ERR_BYTES = 1 << 16  # the end of what ssh said
_PIECE_BYTES = 1 << 20
_HELLO = b"tare-agent\n"
_REFUSED = ("Host key verification failed", "Permission denied", "No such identity")
_SSH_FAILED = 255  # the code of ssh itself; any other is that of the command there
_ENDS_WITHIN_S = 5.0  # an ssh whose pipes are closed
_MOST_NOISE_LINES = 1000  # what a login script printed before the agent spoke


class DeviceError(TareError):
    """Something is wrong with one device of a fleet, or with the line to it."""

    def __init__(self, device: str, what: str) -> None:
        super().__init__(f"{device}: {what}")
        self.what = what  # for whoever names the device anyway


class Unreachable(DeviceError):
    """The device did not answer, or the line to it broke; asking again may help."""

    exit_code = 69
    code = "fleet.unreachable"

    def __init__(self, device: str, what: str, *, heard: bool = False) -> None:
        super().__init__(device, what)
        self.heard = heard  # the agent had spoken over this line before it broke


class Refused(DeviceError):
    """The device, or its host key, said no; asking again does not help."""

    exit_code = 68
    code = "fleet.refused"


@dataclass(frozen=True)
class Answer:
    """What the agent said, and the records it sent, as a tar file."""

    said: Mapping[str, Any]
    records: bytes = b""


def ask(device: Device, question: Mapping[str, Any], *, alive_s: float = 10.0, within_s: float | None = None) -> Answer:
    """One question, one answer; `alive_s` is how often a silent line is tried, and three times in vain ends it."""
    if device.address != HERE and shutil.which("ssh") is None:
        raise ObstacleError("devices are reached by ssh, and there is no ssh on this machine: install openssh-client.")
    with _line(device, question, alive_s, within_s) as line:
        line.said_all()
        heard = _greeted(line.out)
        answer = _read(device, line.out) if heard else None
        if answer is None or line.child.wait() != 0:
            raise line.trouble(heard=heard)
    if "error" in answer.said:
        raise Refused(device.name, str(answer.said["error"]))
    return answer


def clock(device: Device, within_s: float | None = None, times: int = 5) -> tuple[float, float]:
    """How far its clock is ahead of ours, and how sure that is: half of the quickest way there and back."""
    found = []
    with _line(device, {"do": "clock"}, alive_s=10.0, within_s=within_s) as line:
        if not _greeted(line.out):
            raise line.trouble()
        for _ in range(times):
            sent_s = time.time()
            line.say(b"\n")
            there = line.out.readline(_MOST_LINE_BYTES)
            back_s = time.time()
            if not there:
                raise line.trouble()
            found.append(((back_s - sent_s) / 2, _seconds(device, there) - (sent_s + back_s) / 2))
    within_s, offset_s = min(found)
    return offset_s, within_s


def _seconds(device: Device, said: bytes) -> float:
    with contextlib.suppress(ValueError):
        if math.isfinite(found := float(said)):
            return found
    raise Refused(device.name, f"its answer to a request for the time was {said[:80]!r}.")


class _Line:
    """An agent that runs on the device, at the other end of an ssh of ours."""

    def __init__(self, device: Device, child: subprocess.Popen[bytes], err: IO[bytes], within_s: float | None) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self.device, self.child, self.out = device, child, child.stdout
        self._stdin, self._err = child.stdin, err
        self._within_s, self._until_s = within_s, time.monotonic() + (within_s or math.inf)

    def say(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # what it said instead of listening is read by whoever waits for it
            self._stdin.write(data)
            self._stdin.flush()

    def said_all(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def trouble(self, *, heard: bool = False) -> TareError:
        """Why there is no answer; `heard` is that the agent had spoken."""
        self.said_all()
        if time.monotonic() >= self._until_s:
            return Unreachable(self.device.name, f"it gave no answer within {self._within_s:.0f} s.", heard=heard)
        return why_silent(self.device, code_of(self.child), last_words(self._err), heard=heard)


@contextlib.contextmanager
def _line(device: Device, question: Mapping[str, Any], alive_s: float, within_s: float | None) -> Iterator[_Line]:
    """The agent, started there and told the question; however the caller leaves, no ssh of ours stays behind."""
    agent = device_agent()
    name = f"device_agent-{hashlib.sha256(agent).hexdigest()[:12]}.zip"
    # -I: what lies in the home folder there, or in PYTHONPATH, is not ours to run.
    boot = [device.python, "-I", "-c", BOOT, str(len(agent)), name]
    with tempfile.TemporaryDirectory(prefix="tare-ssh-") as folder, tempfile.TemporaryFile() as err:
        argv = [sys.executable, *boot[1:]] if device.address == HERE else command_line(device, boot, alive_s, folder)
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err)
        line = _Line(device, child, err, within_s)  # first: who is ended after its time is known to be late
        with ended(child), ended_after(child, within_s):
            line.say(agent + json.dumps(dict(question)).encode() + b"\n")
            yield line


def command_line(device: Device, argv: list[str], alive_s: float, folder: str) -> list[str]:
    """The ssh command; the remote side hands one string to a shell, so every word is quoted."""
    options = _rules(alive_s)
    if device.host_key is not None:
        known = Path(folder, "known_hosts")
        alias = f"tare-{device.name}"  # the address may be a Host of ~/.ssh/config, whose name is another
        known.write_text(f"{alias} {device.host_key}\n")
        options |= {"HostKeyAlias": alias, "CheckHostIP": "no"}
        options |= {"UserKnownHostsFile": _quoted(known), "GlobalKnownHostsFile": "/dev/null"}
    elif device.known_hosts is not None:
        options |= {"UserKnownHostsFile": _quoted(device.known_hosts), "GlobalKnownHostsFile": "/dev/null"}
    if device.key is not None:
        options |= {"IdentityFile": _quoted(device.key), "IdentitiesOnly": "yes"}
    words = ["ssh", "-T", *_said(options)]
    words += ["-p", str(device.port)] if device.port is not None else []
    words += ["-l", device.user] if device.user is not None else []
    words += _by_way_of(device, alive_s, folder)
    return [*words, "--", device.address, shlex.join(argv)]


def _rules(alive_s: float) -> dict[str, str]:
    """What holds for the device and for the jump host before it, whatever `~/.ssh/config` says."""
    return {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "ConnectTimeout": str(round(CONNECT_WITHIN_S)),
        "ServerAliveInterval": str(max(1, round(alive_s))),
        "ServerAliveCountMax": "3",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "UpdateHostKeys": "no",
        "ControlPath": "none",  # a connection that is shared has been let in by another key
    }


def _said(options: Mapping[str, str]) -> list[str]:
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]


def _by_way_of(device: Device, alive_s: float, folder: str) -> list[str]:
    """Through the jump host: not by `-J`, which keeps our rules from it. With its key goes the device's own login."""
    if device.jump is None:
        return []
    login, port = jump_of(device.jump)
    options = _rules(alive_s)
    if device.jump_host_key is not None:
        known, alias = Path(folder, "jump_known_hosts"), "tare-jump"
        known.write_text(f"{alias} {device.jump_host_key}\n")
        options |= {"HostKeyAlias": alias, "CheckHostIP": "no"}
        options |= {"UserKnownHostsFile": _quoted(known), "GlobalKnownHostsFile": "/dev/null"}
        options |= {} if device.key is None else {"IdentityFile": _quoted(device.key), "IdentitiesOnly": "yes"}
    words = ["ssh", *_said(options), *([] if port is None else ["-p", port]), "-W"]
    # ssh puts the address in, and hands the line to a shell.
    called = shlex.join(words).replace("%", "%%")
    return ["-o", f"ProxyCommand={called} '[%h]:%p' {shlex.quote(login)}"]


def _quoted(path: Path) -> str:
    """A path as ssh reads it in an option: one word, in which % is no sign of its own."""
    return '"{}"'.format(str(path).replace("%", "%%"))


def _greeted(pipe: IO[bytes]) -> bool:
    """Whether the agent speaks; what a login script says before it is passed over."""
    for _ in range(_MOST_NOISE_LINES):
        line = pipe.readline(_MOST_LINE_BYTES)
        if not line or line == _HELLO:
            return bool(line)
    return False


def _read(device: Device, pipe: IO[bytes]) -> Answer | None:
    """The answer; None where the line ended before it."""
    line = pipe.readline(_MOST_LINE_BYTES)
    if len(line) == _MOST_LINE_BYTES:
        raise Refused(device.name, f"its answer is longer than {_MOST_LINE_BYTES >> 20} MiB, and is not taken.")
    try:
        said = stranger_json(line)
    except json.JSONDecodeError:
        return None
    except ValueError as error:
        raise Refused(device.name, f"its answer makes no sense: {error}.") from None
    if not isinstance(said, dict):
        raise Refused(device.name, f"its answer makes no sense: {said!r:.80}.")
    return Answer(said, _records(device, pipe) if said.get("sends") is not None else b"")


def _records(device: Device, pipe: IO[bytes]) -> bytes:
    """What comes until the line ends, as far as there is to be room for it."""
    kept = bytearray()
    while piece := pipe.read(_PIECE_BYTES):
        kept += piece
        if len(kept) > MOST_RECORD_BYTES:
            raise Refused(
                device.name,
                f"it sends more than {MOST_RECORD_BYTES >> 20} MiB of records at once, and they are not "
                "taken.\nIts own copy lies there under fleet/stores in tare's state folder (/var/lib/tare for root): "
                "bring that store here, put it in by `tare store merge`, and run again.",
            )
    return bytes(kept)


def last_words(err: IO[bytes]) -> str:
    """The end of what ssh said, without the rest."""
    err.seek(max(0, err.seek(0, os.SEEK_END) - _MOST_ERR_BYTES))
    return err.read().decode("utf-8", "replace").strip()


def why_silent(device: Device, code: int, words: str, *, heard: bool = False) -> TareError:
    """What an ssh that has ended says of the device, from which we had `heard` or not."""
    last = " ".join(words.splitlines()[-3:]) or "it printed nothing"
    if code == _SSH_FAILED and any(text in words for text in _REFUSED):
        return Refused(device.name, f"ssh was refused: {last}")
    if code == _SSH_FAILED or code < 0:
        return Unreachable(device.name, f"no line to {device.address}: {last}", heard=heard)
    return Refused(
        device.name,
        f"{device.python} there did not run what was sent (code {code}): {last}\n"
        "It has to be Python 3.6 or newer; 'python' in the inventory names it.",
    )


def code_of(child: subprocess.Popen[bytes]) -> int:
    """How a child ended that nothing more is expected of; one that does not end by itself is ended."""
    try:
        return child.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


@contextlib.contextmanager
def ended_after(child: subprocess.Popen[bytes], within_s: float | None) -> Iterator[None]:
    """A line may hold with nobody at its other end who says a word: then it is ended from here."""
    if within_s is None:
        yield
        return
    overdue = threading.Timer(within_s, child.kill)
    overdue.daemon = True
    overdue.start()
    try:
        yield
    finally:
        overdue.cancel()


@contextlib.contextmanager
def ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """However the caller leaves, the child is gone then."""
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
