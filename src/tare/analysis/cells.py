"""Which trials may be compared with which: the same in everything but the factor that is asked about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.compare import unknown_name
from tare.analysis.devices import DEVICE, TYPE
from tare.errors import StudyError
from tare.records.model import Record


@dataclass(frozen=True)
class Cells:
    """How records fall into levels of one factor, within equal settings of the others."""

    by: str
    own: tuple[str, ...]  # settings of the factor itself, where one level comes in several (two docker images)
    rest: tuple[str, ...]  # other factors that the records differ in

    def level(self, record: Record) -> str:
        """`docker`, or `docker, platform.seccomp=off` where docker was run in several ways."""
        return ", ".join([text(record.settings[self.by]), *_assignments(record.settings, self.own)])

    def surroundings(self, record: Record) -> str:
        """`workload.batch=64`: what else tells this record's cell from others; empty where nothing does."""
        return ", ".join(_assignments(record.settings, self.rest))

    def label(self, record: Record) -> str:
        return join(self.level(record), self.surroundings(record))


def join(level: str, surroundings: str) -> str:
    return f"{level}, {surroundings}" if surroundings else level


def cells(records: Sequence[Record], by: str) -> Cells:
    """The levels of `by` and the other factors that vary, each told by as few settings as possible."""
    names = sorted({name for record in records for name in record.settings}, key=lambda name: (name.count("."), name))
    own = [name for name in names if name.startswith(f"{by}.")]
    rest = [name for name in names if name != by and name not in own and not (by == TYPE and name == DEVICE)]
    rest = [name for name in rest if name not in _other_names(records, by, rest)]
    return Cells(by, _telling(records, own, (by,)), _telling(records, rest, ()))


def _other_names(records: Sequence[Record], by: str, names: Sequence[str]) -> set[str]:
    """Fields of the same control that only say `by` again: a power mode has a name beside its clocks.

    Only there: a workload's data that goes with its model is a difference that a reader must see.
    """
    part, _, _ = by.rpartition(".")
    if not part.startswith("control."):
        return set()
    beside = [name for name in names if name.rpartition(".")[0] == part]
    again = {name for name in beside if _tells(records, (by,), name)}
    kept = [name for name in beside if name not in again]
    for name in sorted(kept, key=lambda each: -len({_signature(record.settings, (each,)) for record in records})):
        others = tuple(each for each in kept if each != name)
        if others and _tells(records, (by, *others), name):
            kept.remove(name)
            again.add(name)
    return again


def _tells(records: Sequence[Record], names: tuple[str, ...], name: str) -> bool:
    """Whether whoever knows `names` of a record knows `name` of it."""
    known = {_signature(record.settings, names) for record in records}
    return len({_signature(record.settings, (*names, name)) for record in records}) == len(known)


def resolve_factor(records: Iterable[Record], name: str) -> str:
    """The setting that `name` means: itself, or the one setting that ends in it (`batch` for `workload.batch`)."""
    known = sorted({setting for record in records for setting in record.settings})
    if name in known:
        return name
    ending = [setting for setting in known if setting.endswith(f".{name}")]
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise StudyError(f"{name!r} could be any of {', '.join(ending)}. Write the whole name.")
    raise StudyError(f"{unknown_name('factor', name, known)} `tare show STORE --json` has all of them.")


def baseline_level(records: Sequence[Record], label: Cells, against: Any) -> str:
    """The level that `against` names: by its whole label, by its name, or with fields (`{docker: {cpus: 1}}`)."""
    name, fields = _named(against)
    levels = {label.level(record): record for record in records}
    if name in levels:
        return name
    of_name = [level for level, record in levels.items() if _means(text(record.settings[label.by]), name)]
    exact = [level for level in of_name if _has(levels[level].settings, label.by, fields)]
    found = exact if fields and exact else of_name
    if len(found) > 1:
        raise StudyError(f"{name!r} was run in several ways; name one of them: {'; '.join(found)}.")
    return found[0] if found else name


def _means(level: str, name: str) -> bool:
    """`2` means the level 2.0 of a setting that takes fractions."""
    try:
        return level == name or float(level) == float(name)
    except ValueError:
        return False


def _named(against: Any) -> tuple[str, Mapping[str, Any]]:
    """A level as a study writes it: the name that records have, and the fields that it fixes."""
    if isinstance(against, Mapping) and against:
        name, fields = next(iter(against.items()))
        return str(name), fields if isinstance(fields, Mapping) else {}
    if isinstance(against, list) and against:
        stack = against[0] if isinstance(against[0], list) else against
        return "+".join(_named(storey)[0] for storey in stack), {}
    return text(against), {}


def _has(settings: Mapping[str, Any], by: str, fields: Mapping[str, Any]) -> bool:
    return all(settings.get(f"{by}.{name}") == value for name, value in fields.items())


def text(value: Any) -> str:
    """A setting as a label: words as they are, several names joined (`cpu+pids`), the rest as in JSON."""
    if isinstance(value, list) and all(isinstance(each, str) and each.isidentifier() for each in value):
        return "+".join(value) or "none"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _telling(records: Sequence[Record], names: Iterable[str], start: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `names` that tell records apart which the names before them do not."""
    groups = {_signature(record.settings, start) for record in records}
    told = start
    for name in names:
        finer = {_signature(record.settings, (*told, name)) for record in records}
        if len(finer) > len(groups):
            told, groups = (*told, name), finer
    return told[len(start) :]


def _signature(settings: Mapping[str, Any], names: Iterable[str]) -> tuple[str | None, ...]:
    return tuple(text(settings[name]) if name in settings else None for name in names)


def _assignments(settings: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    return [f"{name}={text(settings[name])}" for name in names if name in settings]
