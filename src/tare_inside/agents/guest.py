"""The first process of a virtual machine: does what the device asks over one channel, and reaps what is left behind.

`guest_frames` says how it is asked. It runs on nothing but the standard library of Python 3.6 and newer, and imports
little: every module costs time where everything is emulated.
"""

import contextlib
import errno
import fcntl
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time

from tare_inside.agents import guest_jobs
from tare_inside.agents.guest_jobs import JOBS, Channel, tell

_VSOCK_ANY = 0xFFFFFFFF


def words():
    """`tare.NAME=VALUE` of the kernel's command line."""
    with open("/proc/cmdline") as file:
        pairs = [word[5:].split("=", 1) for word in file.read().split() if word.startswith("tare.") and "=" in word]
    return dict(pairs)


def open_port(address):
    """The channel: `virtio:NAME` or `vsock:PORT`."""
    kind, _, value = address.partition(":")
    return {"virtio": _virtio, "vsock": _vsock}[kind](value)


def _virtio(name):
    ports = "/sys/class/virtio-ports"
    for _ in range(100):
        for port in os.listdir(ports) if os.path.isdir(ports) else []:
            with open("%s/%s/name" % (ports, port)) as file:
                if file.read().strip() == name:
                    return os.open("/dev/" + port, os.O_RDWR)
        time.sleep(0.05)
    raise OSError(errno.ENODEV, "no virtio port called " + name)


def _vsock(port):
    door = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    door.bind((_VSOCK_ANY, int(port)))
    door.listen(1)
    line, _ = door.accept()
    return line.detach()


def settle():
    """What the start-up script cannot do: groups for jobs, the loopback interface, a name, our own safety."""
    for attempt in (lambda: socket.sethostname("tare"), _loopback_up, lambda: os.mkdir(JOBS)):
        try:
            attempt()
        except OSError as error:
            sys.stderr.write("tare: %s\n" % error)
    with contextlib.suppress(OSError):
        tell("/proc/self/oom_score_adj", "-1000")


def _loopback_up():
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        requested = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(line, get_flags, requested), 16)
        fcntl.ioctl(line, set_flags, struct.pack("16sh14x", b"lo", flags | up))


OUTPUT_LIMIT_BYTES = 1 << 20
VERSION = 1

_CHUNK_BYTES = 65536
_LINGER_S = 2.0  # the same as on the device: how long the output of something that has ended is waited for


def now_ns():
    if hasattr(time, "monotonic_ns"):
        return time.monotonic_ns()
    return int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)  # Python 3.6


class Agent:
    """One thread, one loop: the channel, the output of jobs, and children that ended."""

    def __init__(self, channel):
        self._channel = channel
        self._jobs = {}
        self._watch = selectors.DefaultSelector()
        self._watch.register(channel, selectors.EVENT_READ, self._from_device)
        self._seen = {}  # workdir -> name -> what the device knows of that file

    def serve(self):
        self._wake_on_children()
        hello = {"id": 0, "hello": VERSION, "kernel": os.uname()[2], "python": sys.version.split()[0]}
        self._channel.send(dict(hello, **self._about()))
        while True:
            for key, _ in self._watch.select(self._pause_s()):
                key.data(key.fileobj)
            self._reap()
            self._close_ended()

    def _about(self):
        """What else is said at first; nothing is needed of a machine that was made for this."""
        return {}

    def _pause_s(self):
        return 0.2 if any(job.ended_s is not None for job in self._jobs.values()) else None

    def _wake_on_children(self):
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._watch.register(read, selectors.EVENT_READ, lambda fd: os.read(fd, 4096))

    # What the device asks

    def _from_device(self, channel):
        frames = channel.receive()
        if frames is None:
            raise SystemExit(0)
        for header, data in frames:
            self._answer(header, data)

    def _answer(self, header, data):
        number = header.get("id")
        try:
            reported, sent = getattr(self, "_do_" + header["do"])(header, data)
        except OSError as error:
            self._channel.send({"id": number, "error": str(error), "errno": error.errno})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._channel.send({"id": number, "error": "%s: %s" % (type(error).__name__, error), "errno": errno.EINVAL})
        else:
            if reported is not None:
                reported["id"] = number
                self._channel.send(reported, sent)

    def _do_clock(self, header, data):
        return {"ns": now_ns()}, b""

    def _do_read(self, header, data):
        with open(header["path"], "rb") as file:
            return {}, file.read()

    def _do_write(self, header, data):
        # One write call and no O_CREAT: a kernel file takes a value whole, and is never made by us.
        descriptor = os.open(header["path"], os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
        return {}, b""

    def _do_spawn(self, header, data):
        number = header["id"]
        group = guest_jobs.new_group(number)
        try:
            child = guest_jobs.started(header, data, group)
        except OSError as error:
            guest_jobs.remove_group(group)
            text = "%s: %s" % (header["argv"][0], error.strerror)
            self._channel.send({"id": number, "stream": "err"}, text.encode("utf-8", "replace") + b"\n")
            self._channel.send(
                {
                    "id": number,
                    "ended": 127 if error.errno == errno.ENOENT else 126,
                    "oom_kills": guest_jobs.oom_kills(),
                }
            )
            self._channel.send({"id": number, "closed": True, "truncated": False})
            return None, b""
        job = self._jobs[number] = guest_jobs.Job(number, child, group)
        for descriptor in job.pipes:
            self._watch.register(descriptor, selectors.EVENT_READ, lambda fd, job=job: self._drain(job, fd))
        return {"pid": job.pid, "oom_kills": guest_jobs.oom_kills()}, b""

    def _do_kill(self, header, data):
        job = self._jobs.get(header["job"])
        if job is not None:
            guest_jobs.kill(job)
        return {}, b""

    # Jobs

    def _drain(self, job, descriptor):
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            self._watch.unregister(descriptor)
            del job.pipes[descriptor]
            return
        stream = job.pipes[descriptor]
        room = OUTPUT_LIMIT_BYTES - job.sent[stream]
        job.truncated = job.truncated or len(chunk) > room
        if room > 0:
            job.sent[stream] += len(chunk[:room])
            self._channel.send({"id": job.number, "stream": stream}, chunk[:room])

    def _reap(self):
        """Every child that ended: jobs of ours, and orphans that came to the first process."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for job in self._jobs.values():
                if job.pid == pid and job.ended_s is None:
                    job.ended_s = time.monotonic()
                    self._channel.send(
                        {"id": job.number, "ended": guest_jobs.exit_code(status), "oom_kills": guest_jobs.oom_kills()}
                    )

    def _close_ended(self):
        """Let go of jobs whose output has ended, or whom a child that holds it open would keep for ever."""
        for job in list(self._jobs.values()):
            if job.ended_s is None or (job.pipes and time.monotonic() - job.ended_s < _LINGER_S):
                continue
            for descriptor in job.pipes:
                self._watch.unregister(descriptor)
            job.close()
            del self._jobs[job.number]
            guest_jobs.remove_group(job.group)
            self._channel.send({"id": job.number, "closed": True, "truncated": job.truncated})

    # The workdir: a folder that the device and the guest keep alike

    def _do_workdir(self, header, data):
        path = header["path"]
        os.makedirs(path, exist_ok=True)
        subprocess.check_call(["mount", "-t", "tmpfs", "-o", "mode=%o" % header["mode"], "tare", path])
        self._seen[path] = {}
        return {}, b""

    def _do_put(self, header, data):
        workdir, name = header["workdir"], header["name"]
        path = os.path.join(workdir, name)
        if header.get("folder"):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if header["at"] == 0 else 0), 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.seek(header["at"])
                file.write(data)
        os.chmod(path, header["mode"])
        self._seen[workdir][name] = guest_jobs.looks(path)
        return {}, b""

    def _do_changes(self, header, data):
        """What is new or different in the workdir since the device last knew, and what is gone."""
        workdir = header["workdir"]
        found = {name: guest_jobs.looks(os.path.join(workdir, name)) for name in guest_jobs.names(workdir)}
        before, self._seen[workdir] = self._seen[workdir], found
        changed = [
            {"name": name, "mode": looks[0], "folder": looks[1] is None, "size": looks[1] or 0}
            for name, looks in found.items()
            if before.get(name) != looks
        ]
        return {"changed": changed, "gone": [name for name in before if name not in found]}, b""

    def _do_get(self, header, data):
        with open(os.path.join(header["workdir"], header["name"]), "rb") as file:
            file.seek(header["at"])
            return {}, file.read(header["size"])


def main():
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    settle()
    Agent(Channel(open_port(words()["port"]))).serve()


if __name__ == "__main__":
    main()
