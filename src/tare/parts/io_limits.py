"""Limits on what a control group reads from and writes to one block device: blkio of version 1, io.max of version 2."""

from __future__ import annotations

from collections.abc import Mapping

from tare.errors import ControlNotHeld
from tare.host import Host
from tare.parts.cgroups import Located, locate, offered
from tare.parts.media import Rates

_CONTROLLERS = ("blkio", "io")
_V2 = {"read_bps": "rbps", "read_iops": "riops", "write_bps": "wbps", "write_iops": "wiops"}


def obstacles(host: Host) -> list[str]:
    """Why no group can be limited here."""
    have = offered(host)
    if have & set(_CONTROLLERS):
        return []
    here = ", ".join(sorted(have)) or "no control groups"
    return [f"storage: emulating a medium needs the cgroup controller blkio or io, and this kernel has {here}."]


def group_of(host: Host, folders: Mapping[str, str]) -> Located:
    """Where the files are that limit this group."""
    for controller in _CONTROLLERS:
        if (found := locate(host, folders, controller)) is not None:
            return found
    raise ControlNotHeld("storage", asked="a limit on the workload's reads", found="no control group of its own")


def limit(host: Host, group: Located, number: str, rates: Rates) -> None:
    """Limit the group on the device of this number (`7:0`), and read back that it is."""
    for path, text in _files(group, number, rates):
        try:
            host.write(path, text)
        except OSError as error:
            raise ControlNotHeld(path, asked=text, found=error.strerror or error) from error
        if not _holds(found := host.read(path), text):
            raise ControlNotHeld(path, asked=text, found=found.strip() or "nothing")


def _files(group: Located, number: str, rates: Rates) -> list[tuple[str, str]]:
    if group.version == 2:
        words = " ".join(f"{_V2[name]}={value}" for name, value in rates.given().items())
        return [(f"{group.folder}/io.max", f"{number} {words}")]
    return [
        (f"{group.folder}/blkio.throttle.{name}_device", f"{number} {value}") for name, value in rates.given().items()
    ]


def _holds(found: str, text: str) -> bool:
    """Whether a line for this device has every word that was written; the kernel adds `max` for the others."""
    number, *wanted = text.split()
    lines = [line.split() for line in found.splitlines()]
    return any(line[:1] == [number] and set(wanted) <= set(line) for line in lines)
