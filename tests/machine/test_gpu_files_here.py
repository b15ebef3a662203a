"""Real containers get the device files of a GPU: here one that leads to the kernel's null device."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tare.base.host import LocalHost, Site
from tare.parts import find

CONTAINERS = [pytest.param(name, marks=pytest.mark.machine(name, "root")) for name in ("docker", "podman", "runc")]
NULL = os.makedev(1, 3)
WRITE = 'printf x > "$1" && stat -c "%t %T" -- "$1"'


@pytest.fixture
def pretended_gpu() -> Iterator[str]:
    path = Path(f"/dev/nvidia{10_000 + secrets.randbelow(90_000)}")
    os.mknod(path, 0o666 | stat.S_IFCHR, NULL)
    path.chmod(0o666)
    yield str(path)
    path.unlink()


@pytest.mark.parametrize("name", CONTAINERS)
def test_what_leads_to_a_gpu_is_there_and_opens(name: str, pretended_gpu: str, tmp_path: Path) -> None:
    for wanted in (None, False):
        site = Site(name=f"tare-test-{secrets.token_hex(4)}", scratch=tmp_path)
        place = find.find("platforms", name)(gpu=wanted).open(LocalHost(), site)  # type: ignore[attr-defined]
        try:
            done = place.run(["sh", "-c", WRITE, "write", pretended_gpu])
        finally:
            place.close()
        if wanted is None:
            assert (done.code, done.out) == (0, "1 3\n")
            assert place.facts.get("gpu_files", 1) >= 1
        else:
            assert done.out != "1 3\n"  # a plain file in the container's own /dev, at most
