"""A side: a platform and a workload, each with its fields; the rehearsal, in which each side is tried once; neighbours.

Both halves of tare need the rules below: whoever plans and runs, and whoever reads the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

REHEARSAL = "r"  # how the id of a rehearsal begins; that of a trial is hexadecimal
_ID = re.compile(rf"{REHEARSAL}[0-9a-f]+")


def is_rehearsal(trial: str) -> bool:
    """Whether this is the id of a rehearsal: the run of a side before the blocks, which is no data.

    `Store.records` and `Store.states` leave rehearsals out, so that no reader counts one; `Store.rehearsals` has them.
    """
    return _ID.fullmatch(trial) is not None


def side_of(settings: Mapping[str, Any]) -> str:
    """What a rehearsal stands for, as one text: the settings of the platform and of the workload, and no others."""
    own = {name: value for name, value in settings.items() if name.partition(".")[0] in ("platform", "workload")}
    return json.dumps(own, sort_keys=True, default=str)


Told: TypeAlias = tuple[str, str]  # the name of a part, and those of its fields that tell it from another level's


@dataclass(frozen=True)
class Neighbours:
    """A level of tenants: who works beside the measured workload. Its text is the level's name in records."""

    workloads: tuple[Told, ...]
    platforms: tuple[Told, ...] = ()  # outermost first; none where they run on the measured one's

    def __str__(self) -> str:
        return self.worded(str, "in")

    def worded(self, word: Callable[[str], str], where: str) -> str:
        """With each name and its fields in these words, and `where` before the platforms."""
        who, on = ([f"{word(name)} ({word(fields)})" if fields else word(name) for name, fields in each]
                   for each in (self.workloads, self.platforms))  # fmt: skip
        return f"beside {', '.join(who)}" + (f" {where} {'+'.join(on)}" if on else "")

    @classmethod
    def read(cls, level: object) -> Neighbours | None:
        """Of such a name; None for another level. Older stores have `bare(cpu_shares=2)`."""
        if not isinstance(level, str) or not level.startswith("beside "):
            return None
        told: dict[bool, list[Told]] = {False: [], True: []}  # by whether it is a platform
        rest = level.removeprefix("beside ")
        while part := _PART.match(rest):
            before, name, opened = part.groups()
            fields, rest = _fields(rest[part.end() :]) if opened else ("", rest[part.end() :])
            told[before in (" in ", "+")].append((name, fields.replace("=", " ") if opened == "(" else fields))
        return cls(tuple(told[False]), tuple(told[True]))


_NAME, _BETWEEN = r"[^\s(,+]+", r"(?:, | in |\+)"
_PART = re.compile(rf"({_BETWEEN}|)({_NAME})( ?\()?")
_END = re.compile(rf"\)(?=$|{_BETWEEN}{_NAME}(?:$| ?\(|{_BETWEEN}))")


def _fields(text: str) -> tuple[str, str]:
    """What stands in the bracket, and behind it. It ends before another part; if it can, where brackets are paired."""
    ends = [found.start() for found in _END.finditer(text)] or [len(text)]
    end = next((at for at in ends if text.count("(", 0, at) == text.count(")", 0, at)), ends[0])
    return text[:end], text[end + 1 :]
