"""Trials of the same settings, together: what is placed on a front, recommended, or compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median

import numpy as np

from tare.analysis.labels import Namer, is_of_store, name_words, setting_words
from tare.analysis.numeric.medians import Floats
from tare.analysis.observations import Setting, number
from tare.analysis.work import MODELS
from tare.base.declare import before
from tare.base.errors import StudyError, unknown_name
from tare.records.model import TrialRow, collected, grouped


@dataclass(frozen=True, slots=True)
class Configuration:
    """One set of settings and every trial of it that has all the figures that are asked about."""

    settings: Mapping[str, Setting]
    trials: tuple[TrialRow, ...]
    group: str | None = None

    @property
    def n(self) -> int:
        return len(self.trials)

    @property
    def label(self) -> str:
        return settings_text(self.settings)

    def values(self, figure: str) -> Floats:
        return np.array([trial.metrics[figure] for trial in self.trials], dtype=np.float64)

    def centre(self, figure: str) -> float:
        """The median over the trials: the trial is the unit."""
        if len(self.trials) == 1:
            return self.trials[0].metrics[figure]
        return median([trial.metrics[figure] for trial in self.trials])  # numpy costs ten times as much for a few


def configurations(rows: Iterable[TrialRow], figures: Sequence[str]) -> list[Configuration]:
    """The rows by group and settings; rows that lack a figure are left out.

    Groups come in the order in which they appear. Within a group all is sorted: chance draws by place, and what it
    draws must not depend on the order of the rows.
    """
    whole = (row for row in rows if all(figure in row.metrics for figure in figures))
    made = []
    for group, its in grouped(whole, lambda row: row.group).items():
        settings = collected(zip(settings_keys(its), its, strict=True))
        for key in sorted(settings, key=_sort_key):
            trials = settings[key]
            if len(trials) > 1:
                trials = sorted(trials, key=lambda row: [row.metrics[figure] for figure in figures])
            made.append(Configuration(settings[key][0].settings, tuple(trials), group))
    return made


def settings_keys(rows: Sequence[TrialRow]) -> list[tuple[tuple[str, Setting], ...]]:
    """The settings of each row, by name: equal where they are the same."""
    names = sorted(rows[0].settings) if rows else []
    if all(len(row.settings) == len(names) and all(map(row.settings.__contains__, names)) for row in rows):
        return [tuple([(name, row.settings[name]) for name in names]) for row in rows]
    return [tuple(sorted(row.settings.items())) for row in rows]


def configurations_of_jobs(
    rows: Sequence[TrialRow], figures: Sequence[str], source: Path | str
) -> tuple[Sequence[TrialRow], list[Configuration], tuple[str, ...]]:
    """The rows with a group for each job, their configurations (there are some), and what to say of the jobs."""
    rows, apart = models_apart(rows)
    found = configurations(rows, figures)
    if not found:
        raise StudyError(f"{source}: no row has all of {', '.join(figures)}.")
    return rows, found, apart


def models_apart(rows: Sequence[TrialRow]) -> tuple[list[TrialRow], tuple[str, ...]]:
    """The rows with a group for each job (workload, model, data, load), and a note, where nobody has grouped them.

    The lightest model, and the lowest rate, would always be recommended: which one to run is no question of speed.
    """
    if any(row.group is not None for row in rows):
        return list(rows), ()
    known = dict.fromkeys(name for row in rows for name in row.settings)
    names = [*filter(names_work, known), *(name for name in before().saying("condition") if name in known)]
    several: list[str] = []
    for name in names:
        if len({row.settings.get(name) for row in rows}) > 1 and not (several and _follows(rows, name, several)):
            several.append(name)
    if not several:
        return list(rows), ()
    made = [
        replace(
            row,
            group=", ".join(_value_words(name, row.settings[name]) for name in several if name in row.settings)
            or ", ".join(f"no {name_words(name)}" for name in several),
        )
        for row in rows
    ]
    told = " and ".join(name_words(name.removesuffix(".state")) for name in several)
    return made, (f"the trials differ in {told}: each is answered by itself, and none is ranked against another.",)


def shared_settings(found: Sequence[Configuration]) -> dict[str, Setting]:
    """What all of them have alike; of a single one, what is no choice."""
    first, *others = (each.settings for each in found)
    return {
        name: value
        for name, value in first.items()
        if (all(each.get(name) == value for each in others) if others else _is_given(name))
    }


def _is_given(name: str) -> bool:
    """Whether nobody chooses it for speed."""
    return names_work(name) or "condition" in before().setting(name).says


@lru_cache(maxsize=1024)
def names_work(name: str) -> bool:
    """Whether a setting says which work is done: what another model takes says nothing about this one."""
    return "work" in before().setting(name).says or name.rpartition(".")[2].lower() in MODELS


def _follows(rows: Sequence[TrialRow], name: str, others: Sequence[str]) -> bool:
    """Whether a setting changes only with others: a data set that each model brings makes no further job."""
    seen: dict[tuple[object, ...], object] = {}
    return all(
        seen.setdefault(tuple(map(row.settings.get, others)), row.settings.get(name)) == row.settings.get(name)
        for row in rows
    )


def default_among(
    found: Sequence[Configuration], every: Sequence[Configuration], wanted: Mapping[str, Setting], source: Path | str
) -> Configuration | None:
    """The default, in a group that has it; None where another group of `every` has it."""
    try:
        return find_configuration(found, wanted, source)
    except StudyError:
        known = list(dict.fromkeys(name for each in every for name in each.settings))
        named = {_known_as(name, known, source): value for name, value in wanted.items()}
        if any(_fits(each, named) for each in found) or not any(_fits(each, named) for each in every):
            raise
        return None


def centres(found: Sequence[Configuration], figures: Sequence[str]) -> Floats:
    """Configurations x figures: the median of each."""
    return np.array([[each.centre(figure) for figure in figures] for each in found], dtype=np.float64).reshape(
        len(found), len(figures)
    )


def copied_rows(found: Iterable[Configuration], figures: Sequence[str]) -> tuple[str, ...]:
    """A sentence where trials of a configuration are equal to the last digit: a copy is no repeat."""
    several = (each.trials for each in found if len(each.trials) > 1)
    count = sum(
        len({tuple(trial.metrics[figure] for figure in figures) for trial in trials}) < len(trials)
        for trials in several
    )
    if not count:
        return ()
    few = "1 configuration has" if count == 1 else f"{count} configurations have"
    return (f"{few} trials with exactly the same values. Were rows copied? A copy is not a repeat.",)


def settings_text(settings: Mapping[str, Setting]) -> str:
    """`gpu_mhz=1980, cores=8`."""
    return ", ".join(f"{name}={setting_text(value)}" for name, value in settings.items()) or "the only configuration"


def settings_words(settings: Mapping[str, Setting]) -> str:
    """The same for people: `docker, batch 8` of a store, and of a table its columns."""
    own = Namer([settings], [name for name in settings if is_of_store(name)])
    words = (own.setting(n, each) if is_of_store(n) else f"{n}={setting_text(each)}" for n, each in settings.items())
    return ", ".join(words) or settings_text(settings)


def _value_words(name: str, value: Setting) -> str:
    return setting_words(name, value) if is_of_store(name) else setting_text(value)


def setting_text(value: Setting) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"


def assignments(written: str) -> dict[str, Setting]:
    """`gpu_mhz=1980,cores=8` as settings; numbers where they are numbers."""
    found: dict[str, Setting] = {}
    for part in written.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not (name and sign and value):
            raise StudyError(f"{written!r} is not a list of settings; write it like 'gpu_mhz=1980,cores=8'.")
        parsed = number(value)
        found[name] = value if parsed is None else parsed
    return found


def find_configuration(
    found: Sequence[Configuration], wanted: Mapping[str, Setting], source: Path | str
) -> Configuration:
    """The one configuration that has these settings; a sentence where there is none, or more than one."""
    known = list(dict.fromkeys(name for each in found for name in each.settings))
    wanted = {_known_as(name, known, source): value for name, value in wanted.items()}
    fitting = [each for each in found if _fits(each, wanted)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        among = "; ".join(each.label for each in fitting[:4]) + (" ..." if len(fitting) > 4 else "")
        raise StudyError(f"{source}: {settings_text(wanted)} fits {len(fitting)} configurations ({among}). Name more.")
    spreads = {name: _spread(found, name) for name in wanted}
    nearest = min(
        found, key=lambda each: sum(_distance(each.settings.get(name), v, spreads[name]) for name, v in wanted.items())
    )
    where = "" if nearest.group is None else f" for {nearest.group}"
    raise StudyError(f"{source}: {settings_text(wanted)} was not measured{where}. The nearest is {nearest.label}.")


def _fits(one: Configuration, wanted: Mapping[str, Setting]) -> bool:
    return all(_same(one.settings.get(name), value) for name, value in wanted.items())


def _spread(found: Sequence[Configuration], name: str) -> float:
    """From the least to the greatest number that a setting has; 1 where that is no distance."""
    numbers = [value for each in found if isinstance(value := each.settings.get(name), float)]
    return (max(numbers) - min(numbers) if numbers else 0.0) or 1.0


def _distance(ours: Setting | None, theirs: Setting, spread: float) -> float:
    """How far a setting is from the one asked for, in spreads; texts that differ are one apart."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) / spread
    return 0.0 if _same(ours, theirs) else 1.0


def _sort_key(settings: Sequence[tuple[str, Setting]]) -> list[tuple[str, str, float]]:
    """Numbers by their size, texts by their letters, also where a setting has both."""
    return [(name, value, 0.0) if isinstance(value, str) else (name, "", value) for name, value in settings]


def _known_as(name: str, known: Sequence[str], source: Path | str) -> str:
    """`workload.batch` for `batch`, where only one setting ends so."""
    if name in known:
        return name
    ending = [each for each in known if each.rpartition(".")[2] == name]
    if len(ending) != 1:
        raise StudyError(f"{source}: {unknown_name('setting', name, ending or known)}")
    return ending[0]


def _same(ours: Setting | None, theirs: Setting) -> bool:
    """A number that was written in a column of text is still that text."""
    return ours is not None and (ours == theirs or setting_text(ours) == setting_text(theirs))
