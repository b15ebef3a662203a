"""Jobs in a virtual machine: started in a control group of their own, and ended with all of it.

What they print goes in frames between the device and the first process of the machine.

A frame is two u32 (big-endian: length of the header, length of the data), a header in JSON, and data. The device asks
with `{"id": 7, "do": "read", ...}`; an answer carries the same id, and an error is `{"id", "error", "errno"}`. A job
(`do: spawn`) answers several times: `stream` with output, `ended` with its code, then `closed`.
"""

import contextlib
import json
import os
import signal
import stat
import struct
import subprocess
import zlib

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
