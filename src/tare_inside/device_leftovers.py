"""What is left behind on a device where a disk was full or a version is no longer used: it goes after a day."""

import contextlib
import os
import shutil
import time

from tare_inside.device_claims import DRAFT, is_held
from tare_inside.device_places import claims_dir, copies_dir

OLD_S = 86400
_COPIES = ("device_agent-", "inside-")  # of either kind of agent, with the drafts of them


def sweep():
    """Remove copies of ours that nobody has used for a day, and drafts of claims that nobody is at."""
    for path in _below(copies_dir(), lambda name: name.startswith(_COPIES)):
        with contextlib.suppress(OSError):
            os.remove(path)  # a copy that is used is touched by whoever starts it
    for path in _below(claims_dir(), lambda name: name.endswith(DRAFT)):
        if not is_held(path):
            shutil.rmtree(path, ignore_errors=True)


def _below(folder, is_ours):
    """What there is of ours that is old."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if is_ours(name) and time.time() - os.lstat(path).st_mtime > OLD_S:
                found.append(path)
    return found
