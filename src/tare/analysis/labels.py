"""Labels for people: `MobileNetV3-L training in runc, batch 64`, made of the settings that differ and of no others.

The order is platform, workload, other settings. No two different sets of settings get the same label.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from tare.base.command_words import option_words, script_and_options
from tare.base.declare import before
from tare.base.sides import Neighbours
from tare.records.model import COMMAND, LABEL, MODEL, grouped
from tare_inside import named

Settings: TypeAlias = Mapping[str, Any]

LONGEST = 72  # characters of one setting in a label
SHORTEST = 12  # characters that a shortened text keeps at least
_SHORT_TITLES = {"MobileNetV3-large": "MobileNetV3-L"}
_DECODERS = ("generate", "finetune")  # known by the size of their network, or by the folder of its weights
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Words:
    """The words of a label by their place in it."""

    platform: str = ""
    workload: str = ""
    others: tuple[str, ...] = ()

    def __add__(self, more: Words) -> Words:
        return Words(self.platform or more.platform, self.workload or more.workload, self.others + more.others)

    def __str__(self) -> str:
        if self.platform and self.workload:
            where = "on bare metal" if self.platform == "bare" else f"in {self.platform}"
            head = f"{self.workload} {where}"
        else:
            head = self.platform or self.workload
        return ", ".join(filter(None, (head, *self.others)))


@dataclass(frozen=True)
class Labels:
    """What each combination of the settings `names` is called; made for all combinations that are to be told apart."""

    names: tuple[str, ...]
    found: Mapping[tuple[str | None, ...], Words] = field(default_factory=dict)

    def words(self, settings: Settings) -> Words:
        known = self.found.get(signature(settings, self.names))
        return known if known is not None else Namer([settings], self.names).words(settings)


def make_labels(several: Iterable[Settings], names: Sequence[str], beside: Sequence[str] = ()) -> Labels:
    """The words of every combination of `names` that there is, where no two read the same.

    `beside` are other settings that a label may name too: one with the same last name must not look like ours.
    """
    distinct = {signature(settings, names): settings for settings in several}
    namer = Namer(list(distinct.values()), names, beside)
    found = {key: namer.words(settings) for key, settings in distinct.items()}
    for held in grouped(found, lambda key: str(found[key])).values():
        if len(held) > 1:
            differing = [n for n in range(len(names)) if len({key[n] for key in held}) > 1]
            for key in held:
                added = tuple(f"{names[n]}={key[n]}" for n in differing if key[n] is not None)
                found[key] += Words(others=added)
    return Labels(tuple(names), found)


class Namer:
    """Puts settings into words, knowing which other settings they have to be told from."""

    def __init__(self, several: Sequence[Settings], names: Sequence[str], beside: Sequence[str] = ()):
        self._names = names
        last = [name.rpartition(".")[2] for name in (*names, *beside)]
        self._shared = {name for name in names if last.count(name.rpartition(".")[2]) > 1}
        self._commands = _command_names([s[COMMAND] for s in several if _is_command(s.get(COMMAND))])
        self._beside = any(Neighbours.read(s.get("tenants")) for s in several)
        self._texts: dict[tuple[str, str], str] = {}
        for name in names:
            known = list(dict.fromkeys(self.setting(name, s[name]) for s in several if name in s))
            self._texts |= {(name, one): short for one, short in zip(known, shortened(known, LONGEST), strict=True)}

    def words(self, settings: Settings) -> Words:
        titles = [name for name in {*self._names, *settings} if "title" in before().setting(name).says]
        has_title = any(name in self._names for name in titles) and any(name in settings for name in titles)
        title, options = self._title(settings) if has_title else ("", ())
        told = set(before().saying("title") if title else ()) | {"platform"}
        if LABEL in settings and any(name.startswith("workload.") for name in self._names):
            title, options = text(settings[LABEL]), ()
            told |= {name for name in self._names if name.startswith("workload.")}
        others = sorted((name for name in self._names if name in settings and name not in told), key=place)
        texts = [self.setting(name, settings[name]) for name in others]
        return Words(
            text(settings["platform"]) if "platform" in self._names and "platform" in settings else "",
            title,
            (*options, *(self._texts.get((name, one), one) for name, one in zip(others, texts, strict=True))),
        )

    def _title(self, settings: Settings) -> tuple[str, tuple[str, ...]]:
        """What the workload is called, and the options of a command that tell it from others."""
        if _is_command(settings.get(COMMAND)):
            return self._commands[tuple(settings[COMMAND])]
        part = text(settings.get("workload", ""))
        application = settings.get("workload.name" if part == "application" else "workload.application")
        model = settings.get(MODEL)
        if application is not None:
            subject = title_of("applications", application)
        elif model is not None:
            subject = title_of("models", model)
        elif part in _DECODERS:
            subject = _decoder(settings)
        else:
            subject = ""
        if subject:
            return f"{subject} {before().part('workload', part).does}".rstrip(), ()
        return workload_kind(part), ()

    def setting(self, name: str, value: Any) -> str:
        if name in self._shared and not before().setting(name).words:
            group, _, last = name.rpartition(".")
            return f"{group.rpartition('.')[2]} {setting_words(last, value)}".strip().replace("_", " ")
        if name == "tenants" and self._beside and value in (1, "1"):
            return "alone"
        return setting_words(name, value)


def workload_kind(part: str) -> str:
    """What a workload does, where its model is told elsewhere: `training`."""
    declared = before().part("workload", part)
    return declared.words or declared.does or part.replace("_", " ")


def _decoder(settings: Settings) -> str:
    """`GPT-2 small`, or `GPT-2 of my-weights`."""
    if weights := settings.get("workload.weights"):
        return f"GPT-2 of {PurePosixPath(text(weights)).name}"
    size = settings.get("workload.size")
    return "GPT-2" if size is None else f"GPT-2 {text(size)}"


def name_words(name: str) -> str:
    """`batch`, of a store's `workload.batch`; a table's column is called as it is."""
    return name.rpartition(".")[2].replace("_", " ") if is_of_store(name) else name


def is_of_store(name: str) -> bool:
    return name.partition(".")[0] in ("platform", "workload", "control", "tenants", "device")


def setting_words(name: str, value: Any) -> str:
    """One setting: `batch 64`, `2 workers`, `cold page cache`, `seccomp off`, `GPU 990 MHz`."""
    last, declared = name.rpartition(".")[2], before().setting(name)
    if name in ("platform", "workload"):
        return text(value)
    if name == "tenants" and (beside := Neighbours.read(value)):
        return _beside(beside)
    if name == "workload.data":
        title = title_of("data", value)
        return title if " " in title else f"{title} data"
    if name == MODEL:
        return title_of("models", value)
    if isinstance(value, bool) or value in ("true", "false"):
        return f"{_spaced(last)} {'on' if value in (True, 'true') else 'off'}"
    if value is None or value == "null":
        return f"{_spaced(last)} not set"
    if isinstance(value, int | float) or (before().setting(last).counts and str(value).isdecimal()):
        return _number_words(declared.words, last, float(value))
    if declared.words:
        return declared.levels.get(text(value)) or declared.words.replace("{}", _plain(value))
    return f"{_spaced(last)} {_plain(value)}"


def _beside(level: Neighbours) -> str:
    """`beside fine-tuning on bare metal (cpu shares 2)`."""
    declared, bare = before(), level.platforms[:1] and level.platforms[0][0] == "bare"
    words = {"bare": declared.part("platform", "bare").words}
    return level.worded(
        lambda one: words.get(one) or declared.part("workload", one).does or _spaced(one), "on" if bare else "in"
    )


def _number_words(words: str, last: str, value: float) -> str:
    number, declared = f"{value:.12g}", before().setting(last)
    if declared.counts:
        return f"{number} {declared.counts[value != 1]}"
    if words:
        return words.replace("{}", number)
    if declared.unit == "bytes" or last.endswith("_bytes"):
        return f"{_spaced(last.removesuffix('_bytes'))} {_size(value)}"
    head, _, unit = last.rpartition("_")
    if head and unit in ("s", "w", "mhz"):
        return f"{_spaced(head)} {number} {({'w': 'W', 'mhz': 'MHz'}).get(unit, unit)}"
    return f"{_spaced(last)} {number} {declared.unit}".rstrip()


def _size(value: float) -> str:
    power = 0
    while value >= 1024 and power < len(_SIZES) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.4g} {_SIZES[power]}"


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_plain(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "+".join(map(_plain, value)) or "none"
    return text(value)


@cache
def title_of(kind: str, name: str) -> str:
    """The title of a built-in model, data set or application; another's name is its title."""
    try:
        title = str(named.find(kind, name).TITLE)
    except ValueError:
        return name if "/" not in name else PurePosixPath(name).name
    return _SHORT_TITLES.get(title, title)


def place(name: str) -> tuple[int, int, str]:
    """Where a setting stands in a label: the platform's and the workload's first, and first what they are known by."""
    known_by = before().saying("title")
    if name in known_by:
        return 1, known_by.index(name) - len(known_by), name
    groups = ("platform", "workload")
    group = name.partition(".")[0]
    return groups.index(group) if group in groups else len(groups), name.count("."), name


# Commands


def _is_command(argv: Any) -> bool:
    return isinstance(argv, list | tuple) and bool(argv) and all(isinstance(word, str) for word in argv)


def _command_names(argvs: Iterable[Sequence[str]]) -> dict[tuple[str, ...], tuple[str, tuple[str, ...]]]:
    """Command -> its script's name, and in words the options that not all of them have: `main.py`, `batch-size 16`."""
    commands = list(dict.fromkeys(tuple(argv) for argv in argvs))
    split = {argv: script_and_options(argv) for argv in commands}
    common = set.intersection(*(set(options) for _, options in split.values())) if commands else set()
    names = {
        argv: (script, tuple(shortened([option_words(each) for each in options if each not in common], LONGEST // 2)))
        for argv, (script, options) in split.items()
    }
    times = Counter(names.values())
    whole = {argv: " ".join(argv) for argv, name in names.items() if times[name] > 1}
    short = dict(zip(whole, shortened(list(whole.values()), LONGEST), strict=True))
    return {argv: (short[argv], ()) if argv in short else name for argv, name in names.items()}


# Texts


_as_json = json.JSONEncoder(sort_keys=True, default=str).encode  # made once: that takes longer than a short text


def text(value: Any) -> str:
    """A setting as text for programs: words as they are, several names joined (`cpu+pids`), the rest as in JSON."""
    if type(value) is int:  # as JSON has it, many times as fast
        return str(value)
    if isinstance(value, list) and all(isinstance(each, str) and each.isidentifier() for each in value):
        return "+".join(value) or "none"
    return value if isinstance(value, str) else _as_json(value)


def signature(settings: Settings, names: Iterable[str]) -> tuple[str | None, ...]:
    """The values of `names`, to compare by; None where there is no such setting."""
    return tuple(text(settings[name]) if name in settings else None for name in names)


class Levels:
    """Settings as texts to compare by, one column a name: for one who counts many combinations of them."""

    def __init__(self, several: Sequence[Settings]) -> None:
        self._several = several
        self._columns: dict[str, list[str | None]] = {}

    def count(self, names: Iterable[str]) -> int:
        """How many combinations of the values of these names there are."""
        columns = [self._column(name) for name in names]
        return len(set(zip(*columns, strict=True))) if columns else min(1, len(self._several))

    def _column(self, name: str) -> list[str | None]:
        if name not in self._columns:
            self._columns[name] = [text(each[name]) if name in each else None for each in self._several]
        return self._columns[name]


def distinguishing(
    several: Sequence[Settings], names: Iterable[str] | None = None, start: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Those of `names`, or of all settings in their order, that tell settings apart which the names before them do not.

    A model that comes with data, a batch and a number of items of its own is told by the model alone. Of all settings
    the platform is always one where it varies, even if its memory limit tells as much.
    """
    levels = Levels(several)
    if names is None:
        names = sorted({name for settings in several for name in settings}, key=place)
        platform = ("platform",) if levels.count(["platform"]) > 1 else ()
        return (*platform, *distinguishing(several, names, platform))
    told, groups = start, levels.count(start)
    for name in names:
        if (finer := levels.count((*told, name))) > groups:
            told, groups = (*told, name), finer
    for name in reversed(told[len(start) :]):  # one that later ones have made needless is left out
        fewer = tuple(each for each in told if each != name)
        if levels.count(fewer) == groups:
            told = fewer
    return told[len(start) :]


def shortened(texts: Sequence[str], most: int, width: Callable[[str], int] = len) -> list[str]:
    """Each text in at most `most` characters, cut in the middle; longer where two would read the same."""
    short = [_middle_cut(one, most) if width(one) > most else one for one in texts]
    whole = len(set(texts))
    while len(set(short)) < whole:
        twice = {one for one in short if len({full for full, cut in zip(texts, short, strict=True) if cut == one}) > 1}
        most *= 2
        short = [_middle_cut(full, most) if one in twice else one for full, one in zip(texts, short, strict=True)]
    return short


def _middle_cut(one: str, most: int) -> str:
    if len(one) <= most:
        return one
    most = max(most, SHORTEST)
    tail = (most - 1) // 2
    return f"{one[: most - 1 - tail].rstrip()}…{one[-tail:].lstrip()}"
