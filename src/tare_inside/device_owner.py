"""Who owns a device now: asked of the kernel's list of locks, so that nobody's lock is disturbed."""

import json
import os
import pwd

from tare_inside.device_places import lock_dir, shared_folder

_MOST_WORDS = 200  # characters of a command line


def owner_now():
    """What the holder of the device's lock said of itself, or what can be seen of it; None where nobody has it."""
    return _of_this_user() or _of_another_user()


def holder(path):
    """The process that holds this file, or folder, alone; None where nobody does, or nobody that we can see."""
    status = os.stat(path)
    wanted = "%02x:%02x:%d" % (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    with open("/proc/locks") as file:
        for words in (line.split() for line in file):
            if wanted in words and "FLOCK" in words and "WRITE" in words and "->" not in words:
                return int(words[words.index(wanted) - 1])
    return None


def _of_this_user():
    """By the lock files, which say more; each user has those of the own runs."""
    try:
        names = [name for name in sorted(os.listdir(lock_dir())) if name.endswith(".lock")]
    except OSError:
        return None
    for name in names:
        path = os.path.join(lock_dir(), name)
        try:
            if holder(path) is not None:
                with open(path) as file:
                    return json.load(file)
        except (OSError, ValueError):
            continue
    return None


def _of_another_user():
    """By the folder that the runs of all users lock (`tare.trial.shared_lock`)."""
    place = shared_folder()
    try:
        pid = None if place is None else holder(place)
    except OSError:
        return None
    return None if pid is None else dict(_looks(pid), pid=pid)


def _looks(pid):
    """Whose process it is and what it was called with, as far as that is shown to us."""
    said = {}
    try:
        uid = os.stat("/proc/%d" % pid).st_uid
        said["user"] = str(uid)
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read().decode("utf-8", "replace").replace("\0", " ").strip()
        if words:
            said["run"] = words[:_MOST_WORDS]
        said["user"] = pwd.getpwuid(uid).pw_name
    except (OSError, KeyError):
        pass
    return said
