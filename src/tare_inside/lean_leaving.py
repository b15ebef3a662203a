"""What the agent on a device without tare ends when it leaves: every process below it, and its control groups."""

import contextlib
import ctypes
import glob
import os
import signal
import time

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
