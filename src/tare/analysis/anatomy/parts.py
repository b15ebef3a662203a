"""The trials of each pipeline: rows in, grouped by everything but the number of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tare.analysis.configurations import setting_text
from tare.analysis.observations import Observation, Setting, columns_of, observations
from tare.analysis.quantities import Column, column_for, need_column
from tare.analysis.ranks import Floats
from tare.errors import StudyError
from tare.records.unpacking import is_store

# What a factor is usually called: the last part of the setting's name.
FACTORS: Mapping[str, tuple[str, ...]] = {
    "workers": ("workers", "num_workers", "loader_workers"),
    "storage": ("storage", "medium", "media", "disk"),
    "cache": ("cache", "page_cache"),
}
OPTIONAL = {"compute": "compute", "copy": "copy_s", "overhead": "overhead_s"}
SIGNED = ("overhead",)  # a difference: it may lie a little below zero


@dataclass(frozen=True)
class Group:
    """The trials of one pipeline, by number of workers."""

    cell: str
    medium: str | None
    cache: str | None
    trials: Mapping[float, Sequence[Observation]]

    def values(self, workers: float, figure: str) -> Floats:
        return np.array([trial.values[figure] for trial in self.trials[workers]])

    def rest(self, workers: float) -> Floats:
        """The step without its stall."""
        return self.values(workers, "step") - self.values(workers, "stall")


def pipeline_rows(
    source: Path, *, settings: Sequence[str] | None, columns: Mapping[str, str], factors: Mapping[str, str]
) -> list[Observation]:
    """Rows with step, stall and, where they are there, compute, copy and overhead, in seconds.

    Their settings are called workers, storage and cache, whatever the source calls them; the others keep their names.
    """
    known = columns_of(source)
    figures = {
        "step": need_column(columns.get("step", "time"), known, "--step", source),
        "stall": need_column(columns.get("stall", "stall"), known, "--stall", source),
    }
    for word, usual in OPTIONAL.items():
        if (found := column_for(columns.get(word, usual), known)) is not None:
            figures[word] = found
    asked = settings if is_store(source) else _table_settings(known, settings, factors)
    signed = [column.name for word, column in figures.items() if word in SIGNED]
    names = list(dict.fromkeys(column.name for column in figures.values()))
    loader = {factors["workers"].rpartition(".")[2]} if "workers" in factors else FACTORS["workers"]
    rows = observations(source, settings=asked, values=names, signed=signed, fixed=loader)
    return [_renamed(row, figures, factors) for row in rows if _whole(row, figures)]


def groups(rows: Sequence[Observation], source: Path | str) -> list[Group]:
    """The pipelines that the rows hold, in the order in which they appear."""
    if not any("workers" in row.settings for row in rows):
        raise StudyError(f"{source}: no setting is called workers; --workers names the one that is the loader's.")
    held: dict[tuple[str, str | None, str | None], dict[float, list[Observation]]] = {}
    for row in rows:
        workers = row.settings.get("workers")
        if not isinstance(workers, float) or workers < 0:
            raise StudyError(f"{source}, {row.trial}: {workers!r} is not a number of workers.")
        if row.values["stall"] >= row.values["step"]:
            raise StudyError(f"{source}, {row.trial}: its stall is not below its step, of which it is a part.")
        rest = ", ".join(f"{name}={setting_text(value)}" for name, value in row.settings.items() if name not in FACTORS)
        key = (rest, _told(row.settings.get("storage")), _told(row.settings.get("cache")))
        held.setdefault(key, {}).setdefault(workers, []).append(row)
    return [Group(*key, dict(sorted(trials.items()))) for key, trials in held.items()]


def _table_settings(known: Sequence[str], settings: Sequence[str] | None, factors: Mapping[str, str]) -> list[str]:
    """Of a table: the loader's own columns, and those that the caller names beside them."""
    own = [
        factors.get(word) or next((name for name in usual if name in known), None) for word, usual in FACTORS.items()
    ]
    return list(dict.fromkeys([*(name for name in own if name is not None), *(settings or ())]))


def _whole(row: Observation, figures: Mapping[str, Column]) -> bool:
    return figures["step"].name in row.values and figures["stall"].name in row.values


def _renamed(row: Observation, figures: Mapping[str, Column], factors: Mapping[str, str]) -> Observation:
    values = {
        word: row.values[column.name] * column.factor for word, column in figures.items() if column.name in row.values
    }
    return replace(row, settings={_word(name, factors): each for name, each in row.settings.items()}, values=values)


def _word(name: str, factors: Mapping[str, str]) -> str:
    """`workers` for `workload.workers`."""
    for word, usual in FACTORS.items():
        if name == factors.get(word) or (word not in factors and name.rpartition(".")[2] in usual):
            return word
    return name


def _told(value: Setting | None) -> str | None:
    return None if value is None else setting_text(value)
