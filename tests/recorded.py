"""Devices that were written down: /proc and /sys trees at two moments, served by a fake host.

`tests/recordings/<device>/first` is the whole tree, `later` holds the files that had changed after a while.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tare.base.host import Scope
from tare.testing import FakeHost

FOLDER = Path(__file__).parent / "recordings"
_CGROUP = "/sys/fs/cgroup"
SCOPES = {
    "hybrid_6_18": Scope(
        pid=4211,
        cgroups={
            **{name: f"{_CGROUP}/{name}/tare/t1" for name in ("cpu", "cpuacct", "memory", "blkio", "pids")},
            "": f"{_CGROUP}/unified/tare/t1",
        },
    ),
    "unified_6_12": Scope(pid=900, cgroups={"": f"{_CGROUP}/tare/t1"}),
    "board_4_9": Scope(
        pid=771,
        cgroups={
            "cpu": f"{_CGROUP}/cpu,cpuacct/tare/t1",
            "cpuacct": f"{_CGROUP}/cpu,cpuacct/tare/t1",
            "memory": f"{_CGROUP}/memory/tare/t1",
            "blkio": f"{_CGROUP}/blkio/tare/t1",
        },
    ),
}


def recorded_host(device: str) -> FakeHost:
    return FakeHost(files=dict(_files(device, "first")), name=device, scope_value=SCOPES[device])


def let_time_pass(host: FakeHost, seconds: float = 2.0) -> None:
    """The device as it was found later."""
    host.files |= _files(host.name, "later")
    host.clock.advance(seconds)


@cache
def _files(device: str, when: str) -> dict[str, str]:
    tree = FOLDER / device / when
    return {f"/{path.relative_to(tree)}": path.read_text() for path in tree.rglob("*") if path.is_file()}
