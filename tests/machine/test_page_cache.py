"""Cold and warm on a real overlay, where cachestat(2) sees no page at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OVERLAY = """
set -e
cd "$1"
mkdir lower upper work merged
head -c 2000000 /dev/urandom > lower/data.bin
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
exec "$2" -c "$3" merged/data.bin lower/data.bin
"""

BODY = """
import os, sys
from pathlib import Path
from tare.base.host import LocalHost
from tare.parts.controls.page_cache import PageCache
from tare.drivers.storage.residency import cachestat, residency

def share(path):
    with open(path, "rb") as file:
        return residency(file.fileno()).share

merged, lower = (Path(name).absolute() for name in sys.argv[1:])
for state, wanted in (("warm", 1.0), ("cold", 0.0), ("warm", 1.0)):
    control = PageCache(state=state)
    control.write(LocalHost(), control.target(LocalHost(), [merged]))
    print(state, share(merged) == wanted, share(lower) == wanted)
with open(merged, "rb") as file:
    seen = cachestat(file.fileno())
    print("cachestat", seen is None or seen.resident)
"""


@pytest.mark.machine("root")
def test_cold_and_warm_are_told_apart_on_an_overlay(tmp_path: Path):
    argv = ["unshare", "-m", "sh", "-c", OVERLAY, "sh", str(tmp_path), sys.executable, BODY]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    *states, by_cachestat = ended.stdout.splitlines()
    assert states == ["warm True True", "cold True True", "warm True True"]
    assert by_cachestat in ("cachestat 0", "cachestat True")  # if the kernel learns to see through, so much the better
