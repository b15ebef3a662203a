"""Jobs in a virtual machine: started in a control group of their own, and ended with all of it.

What they and connections say goes in frames between the device and the first process of the machine.

A frame is two u32 (big-endian: length of the header, length of the data), a header in JSON, and data. The device asks
with `{"id": 7, "do": "read", ...}`; an answer carries the same id, and an error is `{"id", "error", "errno"}`. A job
(`do: spawn`) answers several times: `stream` with output, `ended` with its code, then `closed`. So does a connection
(`do: reach`), as is said below.

Connections to sockets in a virtual machine, carried over the one channel to the device, each under a number.

The device opens one with `do: reach`. What its own side says then comes as `do: relay`, with data, with `took` (so many
bytes of ours were handed on) and at last with `end`: `half` where it only has no more to say, `whole` where it is gone.
We answer under the number with data, `deaf` (nobody takes what is said), `ended` (no more will be said) and at last
`closed`; and under the number `news` with `took`. Neither side has more than `WINDOW_BYTES` on the way, so that a slow
reader stops its own writer and nobody else.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import stat
import struct
import subprocess
import zlib

WINDOW_BYTES = 1 << 18
CHUNK_BYTES = 1 << 16


class _Stream:
    """One connection, and how far each of its directions has come."""

    def __init__(self, number, news, line):
        self.number = number
        self.news = news
        self.line = line
        self.kept = bytearray()  # what the device said and the socket has not taken
        self.on_the_way = 0  # what was sent and the device has not handed on
        self.end = None  # what the device said last
        self.deaf = False
        self.ended = False

    def is_over(self):
        said_all = self.end is not None and not self.kept
        return said_all and (self.ended or self.end == "whole")

    def events(self):
        wants_more = not self.ended and self.end != "whole" and self.on_the_way < WINDOW_BYTES
        return (selectors.EVENT_READ if wants_more else 0) | (selectors.EVENT_WRITE if self.kept else 0)


class Streams:
    """All connections; `watch` is the agent's own selector."""

    def __init__(self, channel, watch):
        self._channel = channel
        self._watch = watch
        self._open = {}

    def reach(self, header):
        """Connect to a socket here; an error is the caller's to tell."""
        line = socket.socket(socket.AF_UNIX)
        try:
            line.setblocking(False)
            line.connect(header["path"])
            stream = _Stream(header["id"], header["news"], line)
        except BaseException:
            line.close()
            raise
        self._open[stream.number] = stream
        self._watch_for(stream)

    def relay(self, header, data):
        """What the device's side of a connection said; one that is over here has nobody to tell."""
        stream = self._open.get(header["stream"])
        if stream is None:
            return
        stream.kept += data
        stream.on_the_way -= header.get("took", 0)
        stream.end = header.get("end", stream.end)
        self._go_on(stream)

    def _go_on(self, stream):
        """Move what can be moved without waiting."""
        if stream.number not in self._open:
            return  # it ended while the news of it was on its way through the agent's loop
        self._hand_on(stream)
        if stream.events() & selectors.EVENT_READ:
            self._fetch(stream)
        if stream.end is not None and stream.end != "whole" and not stream.kept and not stream.deaf:
            self._say_no_more(stream)
        self._watch_for(stream)
        if stream.is_over():
            del self._open[stream.number]
            stream.line.close()
            self._channel.send({"id": stream.number, "closed": True})

    def _hand_on(self, stream):
        taken = 0
        try:
            while stream.kept and not stream.deaf:
                count = stream.line.send(stream.kept[:CHUNK_BYTES])
                del stream.kept[:count]
                taken += count
        except BlockingIOError:
            pass
        except OSError:
            stream.deaf = True
            self._channel.send({"id": stream.number, "deaf": True})
        if stream.deaf:  # what nobody will take is let go of, or the device would wait for ever
            taken += len(stream.kept)
            stream.kept.clear()
        if taken:
            self._channel.send({"id": stream.news, "took": taken})

    def _fetch(self, stream):
        try:
            chunk = stream.line.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:  # whoever was there died with our words unread
            chunk = b""
        if chunk:
            stream.on_the_way += len(chunk)
            self._channel.send({"id": stream.number}, chunk)
        else:
            stream.ended = True
            self._channel.send({"id": stream.number, "ended": True})

    def _say_no_more(self, stream):
        """The other side of a half-closed connection: it may still answer."""
        stream.deaf = True  # nothing is left to be said
        try:
            stream.line.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is gone, which reading will show

    def _watch_for(self, stream):
        """Have the agent's loop look at what this connection waits for, and no more."""
        if stream.line in self._watch.get_map():
            self._watch.unregister(stream.line)
        if stream.events() and not stream.is_over():
            self._watch.register(stream.line, stream.events(), lambda _, stream=stream: self._go_on(stream))


JOBS = "/sys/fs/cgroup/tare.jobs"
HERE = "/run/tare"  # in the guest's memory


def new_group(number):
    """A group for one job; None where the guest has none."""
    if not os.path.isdir(JOBS):
        return None
    group = "%s/%d" % (JOBS, number)
    os.mkdir(group)
    return group


class Job:
    """A process that the device asked for, and what is left of its output."""

    def __init__(self, number, child, group):
        self.number = number
        self.pid = child.pid
        self.group = group
        self.pipes = {child.stdout.fileno(): "out", child.stderr.fileno(): "err"}
        self.sent = {"out": 0, "err": 0}
        self.truncated = False
        self.ended_s = None
        self._child = child  # its pipes stay open as long as it is known here

    def close(self):
        self._child.returncode = 0  # it was reaped by us: subprocess must not look for it
        for pipe in (self._child.stdout, self._child.stderr):
            pipe.close()


def started(header, data, group):
    with _nameless(data) as stdin:
        return subprocess.Popen(
            header["argv"],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=header["env"],
            cwd=header["cwd"],
            start_new_session=True,
            preexec_fn=lambda: _enter(group),
        )


def _nameless(data):
    """What a job reads, as a file without a name; the module that makes such files takes seconds to load here."""
    path = HERE + "/stdin"
    file = open(path, "w+b")  # noqa: SIM115 (the caller closes it)
    os.unlink(path)
    file.write(data)
    file.seek(0)
    return file


def _enter(group):
    """In the child: into its group, and with the memory killer's usual eye on it."""
    if group is not None:
        tell(group + "/cgroup.procs", "0")
    with contextlib.suppress(OSError):  # who is not root may not make it less likely
        tell("/proc/self/oom_score_adj", "0")


def kill(job):
    """All of its group; without groups, its session's processes."""
    if job.group is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        return
    try:
        tell(job.group + "/cgroup.kill", "1")
    except OSError:  # Linux before 5.14
        with open(job.group + "/cgroup.procs") as procs:
            for pid in procs.read().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def remove_group(group):
    if group is not None:
        with contextlib.suppress(OSError):  # what a job left behind keeps its group
            os.rmdir(group)


def exit_code(status):
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def oom_kills():
    """How often this kernel killed for want of memory; None where it does not say."""
    try:
        with open("/proc/vmstat") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), None)
    except OSError:
        return None


def tell(path, text):
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


def names(workdir):
    """Folders and plain files in a workdir, outer ones first; anything else is not the device's business."""
    found, todo = [], [""]
    while todo:  # os.walk calls itself for each folder in a folder, and a job makes as many as it likes
        folder = todo.pop()
        with contextlib.suppress(OSError):  # deeper than a path can be long
            for name in os.listdir(os.path.join(workdir, folder)):
                below = os.path.join(folder, name)
                mode = os.lstat(os.path.join(workdir, below)).st_mode
                if stat.S_ISDIR(mode):
                    todo.append(below)
                if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                    found.append(below)
    return sorted(found, key=lambda name: name.count("/"))


def looks(path):
    """Mode, size and check sum: a file that is written through a mapping keeps its time, which tells nothing."""
    seen = os.lstat(path)
    mode = stat.S_IMODE(seen.st_mode)
    if stat.S_ISDIR(seen.st_mode):
        return mode, None, None
    total = 0
    with open(path, "rb") as file:
        while True:
            chunk = file.read(1 << 20)
            if not chunk:
                return mode, seen.st_size, total
            total = zlib.crc32(chunk, total)


_HEAD = struct.Struct(">II")


class Channel:
    """Frames to and from the device; a write blocks until the device has taken it, and the device always does."""

    def __init__(self, descriptor, says=None):
        self._descriptor = descriptor
        self._says = descriptor if says is None else says  # two pipes, where there is no line for both ways
        self._kept = bytearray()

    def fileno(self):
        return self._descriptor

    def send(self, header, data=b""):
        text = json.dumps(header).encode("utf-8")
        left = memoryview(_HEAD.pack(len(text), len(data)) + text + bytes(data))
        while left:
            left = left[self._write(left) :]

    def _write(self, left):
        """As much of it as goes now; how much that was."""
        return os.write(self._says, left)

    def receive(self):
        """The frames that are whole now; None when the device has gone."""
        chunk = os.read(self._descriptor, 1 << 20)
        if not chunk:
            return None
        self._kept += chunk
        return list(self._frames())

    def _frames(self):
        while len(self._kept) >= _HEAD.size:
            head, body = _HEAD.unpack_from(self._kept)
            end = _HEAD.size + head + body
            if len(self._kept) < end:
                return
            header = json.loads(self._kept[_HEAD.size : _HEAD.size + head].decode("utf-8"))
            yield header, bytes(self._kept[_HEAD.size + head : end])
            del self._kept[:end]
