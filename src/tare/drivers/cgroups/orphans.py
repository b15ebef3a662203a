"""Processes that a dead run left behind on the device, found by the name that every job of ours carries."""

from __future__ import annotations

from tare.base.host import Host
from tare.base.processes import identity
from tare.drivers.cgroups.tree import kill

VARIABLE = "TARE_NAME"  # of every job
KEEPER = "TARE_KEEPER"  # of what keeps a container open, which is no job


def kill_all(host: Host, name: str, *, within_s: float = 5.0) -> None:
    """Kill what carries `TARE_NAME=<name>` and belongs to our own user; nobody else's process is touched."""
    deadline_ns = host.clock.now_ns() + round(within_s * 1e9)
    while found := processes_of(host, name):
        kill(host, found)
        if host.clock.now_ns() >= deadline_ns:
            return
        host.clock.sleep_until(host.clock.now_ns() + 10_000_000)


def processes_of(host: Host, name: str, variable: str = VARIABLE) -> set[int]:
    """The living processes of our own user that were started with `TARE_NAME=<name>`, ourselves left out."""
    found = host.run(
        ["find", "/proc", "-mindepth", "2", "-maxdepth", "2", "-path", "/proc/[0-9]*/environ",
         "-exec", "grep", "-lszxF", "-e", f"{variable}={name}", "--", "{}", "+"]
    )  # fmt: skip
    pids = {int(path.split("/")[2]) for path in found.out.splitlines() if path.count("/") == 3}
    if not pids:
        return set()
    us, ours = _pid(host), identity(host).uid
    return {pid for pid in pids if pid != us and _uid(host, pid) == ours}


def _pid(host: Host) -> int:
    return int(host.read("/proc/self/stat").split()[0])


def _uid(host: Host, pid: int) -> int | None:
    """The effective user of a process that still runs; a zombie waits for its parent, not for us."""
    try:
        lines = host.read(f"/proc/{pid}/status").splitlines()
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    return None if values["State"].strip().startswith("Z") else int(values["Uid"].split()[1])
