"""Which trials may be compared with which: the same in everything but the factor that is asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from tare.analysis.labels import LABEL, Labels, Levels, Words, distinguishing, make_labels, place, text
from tare.base.errors import StudyError, unknown_name
from tare.records.model import Record
from tare.records.trials import DEVICE, TYPE, grouped

COMMAND = "workload.argv"


class SeveralWays(StudyError):
    """A baseline of which there are several."""


@dataclass(frozen=True)
class Cells:
    """How records fall into levels of one factor, within equal settings of the others.

    Levels, surroundings and labels are texts for people, each unique among these records (labels.py).
    """

    by: str
    own: tuple[str, ...] = ()  # settings of the factor itself, where one level comes in several (two docker images)
    rest: tuple[str, ...] = ()  # other factors that the records differ in
    levels: Labels | None = None
    around: Labels | None = None
    known: Mapping[tuple[str, str], str] = field(default_factory=dict)  # level, surroundings -> label
    words: Mapping[str, Words] = field(default_factory=dict)  # of each level and of each surroundings

    def level(self, record: Record) -> str:
        """`docker`, or `docker, seccomp off` where docker was run in several ways."""
        return text(record.settings[self.by]) if self.levels is None else str(self.levels.words(record.settings))

    def surroundings(self, record: Record) -> str:
        """`batch 64`: what else tells this record's cell from others; empty where nothing does."""
        return "" if self.around is None else str(self.around.words(record.settings))

    def label(self, record: Record) -> str:
        return self.joined(self.level(record), self.surroundings(record))

    def joined(self, level: str, surroundings: str) -> str:
        """The label of a level within surroundings; neither need have been run."""
        if (level, surroundings) in self.known:
            return self.known[level, surroundings]
        as_platform = Words(platform=level) if self.by == "platform" else Words(others=(level,))
        return str(self.words.get(level, as_platform) + self.words.get(surroundings, Words(others=(surroundings,))))


def join(level: str, surroundings: str) -> str:
    return f"{level}, {surroundings}" if surroundings else level


def cells(records: Sequence[Record], by: str) -> Cells:
    """The levels of `by` and the other factors that vary, each told by as few settings as possible."""
    names = sorted({name for record in records for name in record.settings}, key=place)
    own = [name for name in names if name.startswith(f"{by}.")]
    rest = [name for name in names if name != by and name not in own and not (by == TYPE and name == DEVICE)]
    again = _other_names(records, by, rest)
    rest = [name for name in rest if name not in again]
    several = [record.settings for record in records]
    return _labelled(records, Cells(by, distinguishing(several, own, (by,)), distinguishing(several, rest)))


def _labelled(records: Sequence[Record], plain: Cells) -> Cells:
    having = [record.settings for record in records if plain.by in record.settings]
    ours = (plain.by, *plain.own)
    levels, around = make_labels(having, ours, plain.rest), make_labels(having, plain.rest, ours)
    pairs = {(levels.words(settings), around.words(settings)) for settings in having}
    called = grouped(pairs, lambda pair: str(pair[0] + pair[1]))
    known = {
        (str(level), str(where)): label if len(held) == 1 else f"{level}; {where or '-'}"
        for label, held in called.items()
        for level, where in held
    }
    words = {str(each): each for pair in pairs for each in pair}
    return replace(plain, levels=levels, around=around, known=known, words=words)


def _other_names(records: Sequence[Record], by: str, names: Sequence[str]) -> set[str]:
    """Fields of the same control that only say `by` again: a power mode has a name beside its clocks.

    Only there: a workload's data that goes with its model is a difference that a reader must see.
    """
    part, _, _ = by.rpartition(".")
    levels = Levels([record.settings for record in records])
    if part == "workload" and any(COMMAND in record.settings for record in records):
        return _said_by_others(levels, by, names)
    if not part.startswith("control."):
        return set()
    beside = [name for name in names if name.rpartition(".")[0] == part]
    again = {name for name in beside if _determines(levels, (by,), name)}
    kept = [name for name in beside if name not in again]
    for name in sorted(kept, key=lambda each: -levels.count([each])):
        others = tuple(each for each in kept if each != name)
        if others and _determines(levels, (by, *others), name):
            kept.remove(name)
            again.add(name)
    return again


def _said_by_others(levels: Levels, by: str, names: Sequence[str]) -> set[str]:
    """Of a command its line and its label, where the levels in it stand alone as well (`vary` of a study)."""
    own = [name for name in names if name.startswith("workload.")]
    again: set[str] = set()
    for name in (COMMAND, LABEL, *own):
        others = tuple(each for each in own if each not in (name, COMMAND, LABEL, *again))
        if name in own and name not in again and _determines(levels, (by, *others), name):
            again.add(name)
    return again


def _determines(levels: Levels, names: tuple[str, ...], name: str) -> bool:
    """Whether whoever knows `names` of a record knows `name` of it."""
    return levels.count((*names, name)) == levels.count(names)


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
    """The level that `against` names: by its label, settings or name, or with fields (`{docker: {cpus: 1}}`)."""
    name, fields = level_name(against)
    levels = {label.level(record): record for record in records}
    if name in levels:
        return name
    written = {assigned(record.settings, label.by, label.own): level for level, record in levels.items()}
    if name in written:
        return written[name]
    of_name = [level for level, record in levels.items() if _means(text(record.settings[label.by]), name)]
    exact = [level for level in of_name if _has(levels[level].settings, label.by, fields)]
    found = exact if fields and exact else of_name
    if len(found) > 1:
        raise SeveralWays(f"{name!r} was run in several ways; name one of them: {'; '.join(found)}.")
    return found[0] if found else name


def _means(level: str, name: str) -> bool:
    """`2` means the level 2.0 of a setting that takes fractions."""
    try:
        return level == name or float(level) == float(name)
    except ValueError:
        return False


def level_name(against: Any) -> tuple[str, Mapping[str, Any]]:
    """A level as a study writes it: the name that records have, and the fields that it fixes."""
    if isinstance(against, Mapping) and against:
        name, fields = next(iter(against.items()))
        return str(name), fields if isinstance(fields, Mapping) else {}
    if isinstance(against, list) and against and not all(isinstance(each, str) for each in against):
        stack = against[0] if isinstance(against[0], list) else against
        return "+".join(level_name(platform)[0] for platform in stack), {}
    return text(against), {}


def _has(settings: Mapping[str, Any], by: str, fields: Mapping[str, Any]) -> bool:
    return all(settings.get(f"{by}.{name}") == value for name, value in fields.items())


def assigned(settings: Mapping[str, Any], by: str, own: Iterable[str]) -> str:
    """A level in the words of a study: `docker, platform.seccomp=false`."""
    return ", ".join([text(settings[by]), *(f"{name}={text(settings[name])}" for name in own if name in settings)])


# Where a trial ran

PLACEMENT = ("cores", "pin", "numa", "leave_idle", "quota", "cpuset")  # settings of a platform


def placed(record: Record) -> Record:
    """A stack has one placement, its outermost platform's: `platform.0.qemu.cores` becomes `platform.cores`.

    A container in a machine of four cores runs on four cores, even without a setting of its own. What an inner
    platform limits further keeps its name. Whatever compares trials by their placement reads this.
    """
    if "+" not in str(record.settings.get("platform", "")):
        return record
    settings = dict(record.settings)
    for name in PLACEMENT:
        layers = sorted(key for key in settings if key.startswith("platform.") and key.endswith(f".{name}"))
        whole = next((key for key in layers if settings[key] is not None), None)
        value = None if whole is None else settings[whole]
        for key in layers:
            if key == whole or not settings[key]:
                del settings[key]
        if layers:
            settings[f"platform.{name}"] = value
    return replace(record, settings=settings)


CACHE, EMULATED, WORKERS = "control.page_cache.state", "control.storage.emulate", "workload.workers"
ALWAYS_COLD, COLD, WARM = "cold_every_epoch", "cold", "warm"

When: TypeAlias = Literal["in every epoch", "in the first epoch", "never"]
EVERY: When = "in every epoch"
FIRST: When = "in the first epoch"  # later ones find in the page cache what it has read
NEVER: When = "never"  # all of it was in the page cache before
_WHEN: Mapping[object, When] = {ALWAYS_COLD: EVERY, COLD: FIRST, WARM: NEVER}


def reads(cache: object) -> When | None:
    """When the medium is read under this state of the page cache; None where it was left alone, and nobody knows."""
    return _WHEN.get(cache)
