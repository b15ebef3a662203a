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

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tare.measures import parse_quantity

_BYTES_A_SECOND = {
    "B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "KiB/s": 2.0**10, "MiB/s": 2.0**20, "GiB/s": 2.0**30,
}  # fmt: skip
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
        raise ValueError(f"there is no medium {value!r}; there is {', '.join(MEDIA)}, or say {{read_bps: 80 MB/s}}")
    if unknown := set(value) - set(_NAMES):
        raise ValueError(f"{sorted(unknown)[0]!r} is no figure of a medium; there is {', '.join(_NAMES)}")
    found = Rates(**{str(name): _rate(str(name), given) for name, given in value.items()})
    if not found.given():
        raise ValueError(f"say how fast it is: one of {', '.join(_NAMES)} at least")
    return found


def read_ahead_kib(rates: Rates) -> int:
    """How far to read ahead: the kernel's usual 128 KiB, or more where the limits ask for it.

    A limit on requests cannot tell a seek from the next block. A disk streams at its full rate all the same, because
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
        number = float(value) if plain else parse_quantity(value, _BYTES_A_SECOND, "rate in bytes")
    else:
        number = parse_quantity(value, _A_SECOND, "number of requests a second", bare_unit="/s")
    if number < 1 or number != round(number):
        raise ValueError(f"{name} is a whole number, one or more, not {value!r}")
    return round(number)
