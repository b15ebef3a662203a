"""Trials of the same settings, together: what is placed on a front, recommended, or compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from tare.analysis.compare import unknown_name
from tare.analysis.observations import Observation, Setting, number
from tare.analysis.ranks import Floats
from tare.errors import StudyError


@dataclass(frozen=True, slots=True)
class Configuration:
    """One set of settings and every trial of it that has all the figures that are asked about."""

    settings: Mapping[str, Setting]
    trials: tuple[Observation, ...]
    group: str | None = None

    @property
    def n(self) -> int:
        return len(self.trials)

    @property
    def label(self) -> str:
        return settings_text(self.settings)

    def values(self, figure: str) -> Floats:
        return np.array([trial.values[figure] for trial in self.trials], dtype=np.float64)

    def centre(self, figure: str) -> float:
        """The median over the trials: the trial is the unit (validity.md M1)."""
        return median([trial.values[figure] for trial in self.trials])  # numpy costs ten times as much for a few


def configurations(rows: Iterable[Observation], figures: Sequence[str]) -> list[Configuration]:
    """The rows by group and settings; rows that lack a figure are left out.

    Groups come in the order in which they appear. Within a group all is sorted: chance draws by place, and what it
    draws must not depend on the order of the rows.
    """
    held: dict[str | None, dict[tuple[tuple[str, Setting], ...], list[Observation]]] = {}
    for row in rows:
        if all(figure in row.values for figure in figures):
            held.setdefault(row.group, {}).setdefault(tuple(sorted(row.settings.items())), []).append(row)
    return [
        Configuration(group_rows[key][0].settings, tuple(_sorted_trials(group_rows[key], figures)), group)
        for group, group_rows in held.items()
        for key in sorted(group_rows, key=_sort_key)
    ]


def by_group(found: Iterable[Configuration]) -> dict[str | None, list[Configuration]]:
    """The configurations of each group, in the order in which the groups appear."""
    groups: dict[str | None, list[Configuration]] = {}
    for each in found:
        groups.setdefault(each.group, []).append(each)
    return groups


def centres(found: Sequence[Configuration], figures: Sequence[str]) -> Floats:
    """Configurations x figures: the median of each."""
    return np.array([[each.centre(figure) for figure in figures] for each in found], dtype=np.float64).reshape(
        len(found), len(figures)
    )


def copied_rows(found: Iterable[Configuration], figures: Sequence[str]) -> tuple[str, ...]:
    """A sentence where trials of a configuration are equal to the last digit: a copy is no repeat."""
    count = sum(
        len({tuple(trial.values[figure] for figure in figures) for trial in each.trials}) < each.n for each in found
    )
    if not count:
        return ()
    few = "1 configuration has" if count == 1 else f"{count} configurations have"
    return (f"{few} trials with the very same figures. Were rows copied? A copy looks like a sure repeat and is none.",)


def settings_text(settings: Mapping[str, Setting]) -> str:
    """`gpu_mhz=1980, cores=8`."""
    return ", ".join(f"{name}={setting_text(value)}" for name, value in settings.items()) or "the only configuration"


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
    fitting = [each for each in found if all(_same(each.settings.get(name), value) for name, value in wanted.items())]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        among = "; ".join(each.label for each in fitting[:4]) + (" ..." if len(fitting) > 4 else "")
        raise StudyError(f"{source}: {settings_text(wanted)} fits {len(fitting)} configurations ({among}). Name more.")
    spreads = {name: _spread(found, name) for name in wanted}
    nearest = min(
        found, key=lambda each: sum(_distance(each.settings.get(name), v, spreads[name]) for name, v in wanted.items())
    )
    raise StudyError(
        f"{source}: {settings_text(wanted)} was not measured{_of(nearest.group)}. The nearest is {nearest.label}."
    )


def _spread(found: Sequence[Configuration], name: str) -> float:
    """From the least to the greatest number that a setting has; 1 where that is no distance."""
    numbers = [value for each in found if isinstance(value := each.settings.get(name), float)]
    return (max(numbers) - min(numbers) if numbers else 0.0) or 1.0


def _distance(ours: Setting | None, theirs: Setting, spread: float) -> float:
    """How far a setting is from the one asked for, in spreads; texts that differ are one apart."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) / spread
    return 0.0 if _same(ours, theirs) else 1.0


def _sorted_trials(trials: Sequence[Observation], figures: Sequence[str]) -> list[Observation]:
    return sorted(trials, key=lambda trial: [trial.values[figure] for figure in figures])


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


def _of(group: str | None) -> str:
    return "" if group is None else f" for {group}"


def _same(ours: Setting | None, theirs: Setting) -> bool:
    """A number that was written in a column of text is still that text."""
    return ours is not None and (ours == theirs or setting_text(ours) == setting_text(theirs))
