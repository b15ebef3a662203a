"""The locks of a device without tare, the same that tare on the device takes: root's or the user's, and that of all."""

import fcntl
import json
import os
import re
import stat
import time

from tare_inside.device_places import lock_dir, shared_folder

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
    said = {"pid": os.getpid(), "started": _started(), "since": time.time(), "run": RUN + run}
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(said).encode("utf-8") + b"\n", 0)


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
