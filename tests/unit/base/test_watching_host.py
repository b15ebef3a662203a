import os
import subprocess
from pathlib import Path

import pytest

from tare.base.host import WatchingHost


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_kernel_file_that_is_handed_out_a_page_at_a_time_is_read_whole():
    host = WatchingHost()
    path = "/proc/self/smaps"
    descriptor = os.open(path, os.O_RDONLY)
    first = os.pread(descriptor, 1 << 20, 0)
    os.close(descriptor)
    assert b"[stack]" not in first  # one read is not all of it, however much is asked for
    assert "[stack]" in host.read(path)
    host.close()


def test_the_file_of_a_process_that_ended_does_not_stay_open():
    host = WatchingHost()
    with subprocess.Popen(["sleep", "60"]) as child:
        host.read(f"/proc/{child.pid}/status")
        before = open_files()
        child.kill()
    with pytest.raises(OSError):
        host.read(f"/proc/{child.pid}/status")
    assert open_files() == before - 1
    with pytest.raises(FileNotFoundError):
        host.read(f"/proc/{child.pid}/status")
    host.close()
