"""Storage media by name: how fast each reads and writes, and who says so.

| medium | reads | writes | source |
|---|---|---|---|
| hdd | 120 MB/s, 125 a second | as it reads | 8 ms an access: S2 6 (Toshiba DT01ACA1). The 1.05 GB/s of S3 4.1 is the \
interface of a USB disk, so 120 MB/s is assumed: what a 2.5" disk of 5400 rpm gives |
| sd | 100 MB/s, 1500 a second | 20 MB/s, 500 a second | 100 MB/s: S3 4.1 (Samsung EVO Plus); 1500 and 500 a second: \
the floor of the SD Association's class A1; 20 MB/s assumed |
| ssd | 550 MB/s, 12500 a second | as it reads | 100 times the requests of an hdd: S4 V-E. 550 MB/s is assumed: what \
SATA carries. The 3.5 GB/s of S0 and S3 4.1 (Samsung 980, NVMe) are more than most disks can emulate |

A name is a shorthand for these figures, not a claim about a product: the record has the figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from tare.base.errors import ControlNotHeld, TrialError
from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle
from tare.base.units import BYTES_PER_SECOND, parse_quantity
from tare.drivers.cgroups.tree import Located, locate, offered
from tare.drivers.storage import read_rate

_A_SECOND = {"/s": 1.0}
_READ_AHEAD_KIB, _MOST_READ_AHEAD_KIB = 128, 1024


@dataclass(frozen=True, slots=True)
class Rates:
    """The most that a medium reads and writes in a second, in bytes and in requests; None: no limit."""

    read_bps: int | None = None
    read_iops: int | None = None
    write_bps: int | None = None
    write_iops: int | None = None

    def given(self) -> dict[str, int]:
        """Those that are limited."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def shared(self, among: int) -> Rates:
        """An equal part of it for each of so many."""
        return Rates(**{name: max(1, value // among) for name, value in self.given().items()})

    def text(self) -> str:
        """As it stands in a record: one word a limit, the same for equal limits."""
        return " ".join(f"{name}={value}" for name, value in self.given().items())


_NAMES = tuple(field.name for field in fields(Rates))
MEDIA: Mapping[str, Rates] = {
    "hdd": Rates(120_000_000, 125, 120_000_000, 125),
    "sd": Rates(100_000_000, 1_500, 20_000_000, 500),
    "ssd": Rates(550_000_000, 12_500, 550_000_000, 12_500),
}


def level(value: Any) -> str:
    """What a study may write for a medium, as records have it: a name, or its figures in one form."""
    if isinstance(value, str) and value in MEDIA:
        return value
    return rates(value).text()


def rates(value: Any) -> Rates:
    """The figures of a medium: by its name, as a mapping, or as a record has them."""
    if isinstance(value, str) and value in MEDIA:
        return MEDIA[value]
    if isinstance(value, str) and "=" in value:
        value = dict(word.partition("=")[::2] for word in value.split())
    if not isinstance(value, Mapping):
        raise ValueError(f"no medium {value!r}. Available: {', '.join(MEDIA)}, or {{read_bps: 80 MB/s}}")
    if unknown := set(value) - set(_NAMES):
        raise ValueError(f"{sorted(unknown)[0]!r} is no figure of a medium; there is {', '.join(_NAMES)}")
    found = Rates(**{str(name): _rate(str(name), given) for name, given in value.items()})
    if not found.given():
        raise ValueError(f"say how fast it is: one of {', '.join(_NAMES)} at least")
    return found


def read_ahead_kib(rates: Rates) -> int:
    """How far to read ahead: the kernel's usual 128 KiB, or more where the limits ask for it.

    A limit on requests cannot tell a seek from the next block. A disk streams at its full rate anyway, because
    it reads ahead itself; so requests of a stream must be as large as the two limits together need, and no larger: a
    read-ahead of megabytes would let a stream of small files escape the limit on requests.
    """
    if rates.read_bps is None or rates.read_iops is None:
        return _READ_AHEAD_KIB
    needed = math.ceil(rates.read_bps / rates.read_iops / 1024)
    return min(_MOST_READ_AHEAD_KIB, max(_READ_AHEAD_KIB, 1 << (needed - 1).bit_length()))


def _rate(name: str, value: Any) -> int:
    """`80 MB/s` as bytes a second; requests a second are a plain number."""
    if name.endswith("_bps"):
        plain = isinstance(value, str) and value.isdecimal()  # as a record has it
        number = float(value) if plain else parse_quantity(value, BYTES_PER_SECOND, "rate in bytes")
    else:
        number = parse_quantity(value, _A_SECOND, "number of requests per second", bare_unit="/s")
    if number < 1 or number != round(number):
        raise ValueError(f"{name} is a whole number, one or more, not {value!r}")
    return round(number)


_CONTROLLERS = ("blkio", "io")
_V2 = {"read_bps": "rbps", "read_iops": "riops", "write_bps": "wbps", "write_iops": "wiops"}


def obstacles(host: Host) -> list[Ruling]:
    """Why no group can be limited here."""
    have = offered(host)
    if have & set(_CONTROLLERS):
        return []
    here = ", ".join(sorted(have)) or "no control groups"
    return [
        obstacle(
            "needs.cgroup", f"emulating a medium needs the cgroup controller blkio or io, and this kernel has {here}."
        )
    ]


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


WITHIN = 0.10  # of the limit, either way
_TRIES = 3  # a neighbour may have been at the disk; only a throttle that does not work, or a slow disk, fails each time
_SMALL, _LARGE = 4096, 1 << 19
_PROGRAM = Path(read_rate.__file__)
_LONGEST_S = 60.0


class Wanted(NamedTuple):
    """One measurement, and what it should give."""

    name: str  # read_bps, read_iops, write_bps, write_iops
    path: str
    block: int
    order: str
    figure: str  # of the program's answer: bps, iops
    value: float


def wanted(name: str, rates: Rates, path: str) -> Wanted:
    """How to measure one limit: large requests one after the other for bytes, small ones here and there for requests.

    The limit on bytes is measured before there is one on requests, which large requests may meet first.
    """
    value = rates.given()[name]
    if name.endswith("_bps"):
        block = min(_LARGE, max(_SMALL, -(-(value // 200) // _SMALL) * _SMALL))
        return Wanted(name, path, block, "sequential", "bps", value)
    bytes_too = rates.given().get(name.replace("_iops", "_bps"))
    reached = value if bytes_too is None else min(value, bytes_too / _SMALL)
    return Wanted(name, path, _SMALL, "random", "iops", reached)


def check(host: Host, group: Located, each: Wanted) -> dict[str, float]:
    """What was measured, within a tenth of what it should be; otherwise the trial is not what the study says."""
    seen: list[float] = []
    for _ in range(_TRIES):
        answer = _measured(host, group, each)
        seen.append(answer[each.figure])
        if abs(seen[-1] / each.value - 1) <= WITHIN:
            return {each.name: seen[-1], f"{each.name}_expected": each.value}
    nearest = min(seen, key=lambda value: abs(value / each.value - 1))
    why = (
        "the limit does not hold"
        if nearest > each.value
        else "the disk below is slower than the medium that is to be emulated, or others are using this machine"
    )
    raise ControlNotHeld(f"storage: {each.name}", asked=f"{each.value:.0f}", found=f"{nearest:.0f}; {why}")


def _measured(host: Host, group: Located, each: Wanted) -> Mapping[str, float]:
    order = {
        "path": each.path,
        "block": each.block,
        "order": each.order,
        "write": each.name.startswith("write"),
        "groups": [f"{group.folder}/cgroup.procs"],
    }
    done = host.run([host.python, "-I", "-S", str(_PROGRAM), json.dumps(order)], limit_s=_LONGEST_S)
    try:
        found: Mapping[str, float] = json.loads(done.out)
    except ValueError:
        reported = (done.err or done.out).strip()[-500:]
        raise TrialError(f"storage: how fast {each.path} is could not be measured: {reported}") from None
    return found
