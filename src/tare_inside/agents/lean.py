"""On a device without tare: does what the controller asks over one line, and cleans up when that line is gone.

It is the agent of virtual machines (`guest_agent`) on a machine that is not ours alone: the device's lock is taken
through it, and whatever was begun over a line ends with that line, or when nothing was heard over it for too long. It
runs on nothing but the standard library of Python 3.6 and newer.
"""

import contextlib
import ctypes
import fcntl
import glob
import json
import os
import platform
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import time

from tare_inside.agents import device, guest, guest_jobs
from tare_inside.agents.device import HELLO, copies_dir, lock_dir, shared_folder, state_dir
from tare_inside.agents.guest_jobs import Channel
from tare_inside.jobs import may_pass, remove_tree

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """What loses its parent below us becomes our child, so that nothing escapes by forking twice."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children():
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                words = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == os.getpid():
            found.append(int(path.split("/")[2]))
    return found


def end_all_children(within_s=10.0):
    """Kill our children, then what comes to us when they are gone, until there is none."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        left = children()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):  # it is gone, or another user's: sudo starts such
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def end_site(name):
    """The control groups of one site: emptied, and removed."""
    for folder in glob.glob("/sys/fs/cgroup/tare/" + name) + glob.glob("/sys/fs/cgroup/*/tare/" + name):
        for _ in range(100):
            with contextlib.suppress(OSError):
                with open(folder + "/cgroup.procs") as file:
                    pids = [int(pid) for pid in file.read().split()]
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.02)
                continue
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(folder))
            break


RUN = "driven from "  # how the holder of a device's lock says that it is one of us
_NAME = re.compile(r"[0-9a-f]{1,64}")


class Untrusted(Exception):
    """Someone else could put another lock in the place of this one."""


def opened(device):
    """The locks of this device, as descriptors; its own is the first."""
    if not _NAME.fullmatch(device):
        raise ValueError("%r is no name of a device" % device)
    path = os.path.join(private_folder(lock_dir()), device + ".lock")
    found = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)]
    place = shared_folder()
    if place is not None:  # it is locked as it is: nothing in it is made or written
        found.append(os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    return found


def private_folder(path):
    """As `tare.trial.device` has it: made if missing, and refused if anyone but root and us could write there."""
    if not os.path.lexists(path):
        os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise Untrusted(
            "%s there is not a folder that only its owner can write to, so the device's lock in it is not trusted. "
            "Look at it with `ls -ld %s`; remove it, or `chmod 700` it if it is yours." % (path, path)
        )
    return path


def taken(locks, within_s):
    """None once all are ours; else what the holder of the first says of itself. One of us that ends is waited for."""
    end_s = time.monotonic() + within_s
    while not all(_is_taken(lock) for lock in locks):
        holder = _said_by(locks[0])
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_UN)
        ends_soon = str(holder.get("run", "")).startswith((RUN, "guardian"))
        if not ends_soon or time.monotonic() > end_s:
            return holder
        time.sleep(0.1)
    return None


def say(lock, run):
    """Who has it, for whoever finds it held."""
    reported = {"pid": os.getpid(), "started": _started(), "since": time.time(), "run": RUN + run}
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(reported).encode("utf-8") + b"\n", 0)


def _is_taken(lock):
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _said_by(lock):
    try:
        found = json.loads(os.pread(lock, 4096, 0).decode("utf-8"))
        return found if isinstance(found, dict) else {}
    except ValueError:
        return {}


def _started():
    """When this process began, in ticks since the boot: with its number, its name for good."""
    with open("/proc/self/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


_CLOCK_BOOTTIME = 7  # which the time module of Python 3.6 does not name
_SITE = re.compile(r"tare-[A-Za-z0-9._-]{1,120}")
_CHUNK_BYTES = 4 << 20


class Line(Channel):
    """Two pipes to a controller that may be gone without a word: a write waits for it as long as we listen for it."""

    def __init__(self, hears, says, silent_s):
        Channel.__init__(self, hears, says)
        self._silent_s = silent_s

    def _write(self, left):
        return written(self._says, left, self._silent_s)


class LeanAgent(guest.Agent):
    """One line, one trial: jobs, files, the clock, a sampler, and the lock."""

    def __init__(self, channel, folder, silent_s):
        guest.Agent.__init__(self, channel)
        self._folder = folder
        self._silent_s = silent_s
        self._heard_s = time.monotonic()
        self._made = []  # folders that go with us
        self._parents = []  # those that were made to hold them
        self._sites = []
        self._sampler = None
        self._locks = []
        self._owns = False

    def _about(self):
        return {
            "machine": platform.machine(),
            "executable": sys.executable,
            "cores": len(os.sched_getaffinity(0)),
            "root": os.geteuid() == 0,
            "environ": {name: text for name, text in os.environ.items() if may_pass(name)},
            "data": os.path.join(os.environ.get("TARE_CACHE") or copies_dir(), "data"),
            "scratch": os.path.join(state_dir(), "scratch"),
            "inside": os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            "free_bytes": shutil.disk_usage(self._folder).free,
        }

    # The line

    def _pause_s(self):
        """Until something has to be looked at; raises where the controller has been silent for too long."""
        left_s = self._silent_s - (time.monotonic() - self._heard_s)
        if left_s <= 0 and not select.select([self._channel], [], [], 0)[0]:  # it may have spoken while we were busy
            raise SystemExit(0)
        soon_s = guest.Agent._pause_s(self)
        return max(0.0, left_s if soon_s is None else min(left_s, soon_s))

    def _from_device(self, channel):
        self._heard_s = time.monotonic()
        guest.Agent._from_device(self, channel)

    def _do_beat(self, header, data):
        return None, b""

    def _do_clock(self, header, data):
        """With the clock that runs on while the device sleeps: how they move apart tells of that."""
        slept_s = time.clock_gettime(_CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
        return {"ns": guest.now_ns(), "slept_s": slept_s}, b""

    # Whose the device is

    def _do_lock(self, header, data):
        """Take the device's own lock, the one that tare on the device takes too; one of us that ends is waited for."""
        try:
            self._locks = opened(header["device"])
        except Untrusted as error:
            return {"refused": str(error)}, b""
        holder = taken(self._locks, header["within_s"])
        self._heard_s = time.monotonic()  # the wait was ours
        if holder is not None:
            return {"busy": holder}, b""
        say(self._locks[0], header["run"])
        self._owns = True
        return {}, b""

    # Folders: those of the trial are made here, and go with it

    def _do_workdir(self, header, data):
        path = header["path"]
        self._parents += missing_folders(os.path.dirname(path))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkdir(path, header["mode"])  # what is there already is not ours to empty
        self._made.append(path)
        self._seen[path] = {name: guest_jobs.looks(os.path.join(path, name)) for name in guest_jobs.names(path)}
        return {}, b""

    def _do_site(self, header, data):
        """A name under which the controller makes control groups here, and a job may make folders."""
        if not _SITE.fullmatch(header["name"]):
            raise ValueError("%r is no name of a site" % header["name"])
        self._sites.append(header["name"])
        self._made += [path for path in header["folders"] if header["name"] in os.path.basename(path)]
        return {}, b""

    def _do_copied(self, header, data):
        """What is in the workdir already because it came with the package: the controller need not send it again."""
        shutil.copytree(
            os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            os.path.join(header["workdir"], "inside", "tare_inside"),
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        self._seen[header["workdir"]] = {
            name: guest_jobs.looks(os.path.join(header["workdir"], name))
            for name in guest_jobs.names(header["workdir"])
        }
        return {}, b""

    # Sampling

    def _do_sample(self, header, data):
        """Start the sampler, a process of its own; answers when its first tick is taken."""
        script = "import sys; sys.path.insert(0, sys.argv[1]); from tare_inside.agents.lean_sampler import main; main()"
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        self._sampler = subprocess.Popen(
            [sys.executable, "-I", "-B", "-c", script, package, self._samples()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        left = memoryview(data + b"\n")
        while left:
            left = left[written(self._sampler.stdin.fileno(), left, self._silent_s) :]
        if not self._from_sampler():
            raise OSError(0, "the sampler did not start")
        return {}, b""

    def _do_sampled(self, header, data):
        """Have it take a last tick and end; how large the file is that it leaves."""
        self._sampler.stdin.close()
        while self._from_sampler():  # until it has closed it, which is its last act
            pass
        return {"bytes": os.path.getsize(self._samples())}, b""

    def _from_sampler(self):
        """What it says next. One that hangs in a sensor would keep us from hearing that the line is gone: we leave."""
        if not select.select([self._sampler.stdout], [], [], self._silent_s)[0]:
            raise SystemExit(0)
        return self._sampler.stdout.read(4096)

    def _do_samples(self, header, data):
        with open(self._samples(), "rb") as file:
            file.seek(header["at"])
            return {}, file.read(_CHUNK_BYTES)

    def _samples(self):
        return os.path.join(self._folder, "samples")

    # The end

    def leave(self):
        """End everything that was begun over this line, and remove what was made for it; the lock goes last."""
        end_all_children()
        for site in self._sites:
            end_site(site)
        for path in self._made:
            remove_tree(path)
        for path in sorted(self._parents, key=len, reverse=True):
            with contextlib.suppress(OSError):  # it has been used by another meanwhile
                os.rmdir(path)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._owns:
            os.ftruncate(self._locks[0], 0)
        for lock in self._locks:
            os.close(lock)


def missing_folders(path):
    """This folder and those above it, as far as they are not there."""
    found = []
    while not os.path.isdir(path) and path != os.path.dirname(path):
        found.append(path)
        path = os.path.dirname(path)
    return found


def written(descriptor, data, within_s):
    """How much of it went into this pipe at once; who does not read for so long is taken for gone, and we leave."""
    if not select.select([], [descriptor], [], within_s)[1]:
        raise SystemExit(0)
    return os.write(descriptor, data[: select.PIPE_BUF])  # for so much there is room


def main(silent_s, folder):
    """Serve standard input and output until the line is gone; whatever happens, leave nothing behind."""
    hears, says = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)  # what is printed by accident must not be taken for a frame
    os.set_inheritable(hears, False)
    os.set_inheritable(says, False)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        guest_jobs.tell("/proc/self/oom_score_adj", "-1000")  # who must clean up is not to be the one that is ended
    device.sweep()
    adopt_orphans()
    guest_jobs.HERE = folder
    agent = LeanAgent(Line(hears, says, silent_s), folder, silent_s)
    try:
        os.write(says, HELLO)
        agent.serve()
    except OSError:
        pass  # nobody hears us any more
    finally:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        agent.leave()
