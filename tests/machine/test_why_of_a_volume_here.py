"""Data on a FUSE file system in somebody's own line: the volume is named, by the same line with a copy in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from planted_images import PYTHON
from test_own_line_here import Run, archive, called, tare

__all__ = ["archive", "tare"]
READS = """\
import os, sys
from tare_inside import marks
names = [os.path.join(sys.argv[1], name) for name in sorted(os.listdir(sys.argv[1]))]
for step in range(8):
    marks.begin("step", step)
    for name in names:
        with open(name, "rb") as file:
            file.read()
        os.stat(name)
    sum(range(100_000))
    marks.end("step", step)
"""


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Small files, and the same through FUSE."""
    if shutil.which("fuse-overlayfs") is None:
        pytest.skip("there is no fuse-overlayfs")
    plain, through = tmp_path / "plain", tmp_path / "through"
    for each in (plain, through, tmp_path / "upper", tmp_path / "work"):
        each.mkdir()
    for number in range(400):
        (plain / str(number)).write_text("x" * 500)
    options = f"lowerdir={plain},upperdir={tmp_path}/upper,workdir={tmp_path}/work,allow_other,attr_timeout=0,timeout=0"
    called("fuse-overlayfs", "-o", options, str(through))
    yield plain, through
    subprocess.run(["umount", "-l", str(through)], capture_output=True, check=False)


@pytest.mark.machine("docker", "root")
@pytest.mark.alone
def test_a_volume_on_fuse_is_named(archive: Path, folders: tuple[Path, Path], tare: Run, tmp_path: Path) -> None:
    plain, through = folders
    image = f"localhost/tare/volume:{os.getpid()}"
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "reads.py").write_text(READS)
    called("docker", "import", str(archive), image)
    try:
        line = ["docker", "run", "-v", f"{through}:/data:ro", "-v", f"{tmp_path}/program:/program:ro",
                f"--entrypoint={PYTHON}", image, "/program/reads.py", "/data"]  # fmt: skip
        bare = f"{PYTHON} {tmp_path}/program/reads.py {plain}"
        done = tare("why", "--set", "compare.margin=20%", "-o", "out", "--set", f"workload.argv={bare}", "--", *line)
    finally:
        subprocess.run(["docker", "rmi", "--force", image], capture_output=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    cause = [row for row in done.stdout.splitlines() if row.startswith(("Cause: ", "Part: "))]
    assert cause and "the file system of `/data`" in cause[0], done.stdout + done.stderr[-3000:]
    assert f"{through}, mounted there, lies on fuse" in " ".join(done.stdout.split())
    assert not [*Path("/dev/shm").glob("tare-*/*/399")]  # the copies
