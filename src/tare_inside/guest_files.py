"""What lies on a desk in a virtual machine, and how to tell that it has changed."""

import os
import stat
import zlib


def names(desk):
    """Folders and plain files on a desk, outer ones first; anything else is not the device's business."""
    found = []
    for folder, folders, files in os.walk(desk):
        names = folders + [name for name in files if stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode)]
        found += [os.path.relpath(os.path.join(folder, name), desk) for name in names]
    return found


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
