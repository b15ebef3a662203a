"""Writes so many files of one MiB each into a new folder on the disk, syncs, and removes them again."""

import os
import sys
import tempfile
import time
from pathlib import Path

with tempfile.TemporaryDirectory(prefix="written-", dir="/var/tmp") as folder:  # /tmp is memory in a container
    for number in range(int(sys.argv[1])):
        Path(folder, str(number)).write_bytes(os.urandom(1 << 20))
        time.sleep(0.2)  # long beside the moments by which tenants start and end apart
    os.sync()  # so that all of it is written back while it is traced
