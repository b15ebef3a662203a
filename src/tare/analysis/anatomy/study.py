"""The anatomy of every pipeline of a source, as one answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tare.analysis.anatomy.binding import Disk, binds, disk_part, fetch_s
from tare.analysis.anatomy.hiding import (
    hidden_words,
    predicted_stall,
    predicted_workers,
    rest_of,
    workers_estimate,
)
from tare.analysis.anatomy.model import Anatomy, Media, Part, Pipeline
from tare.analysis.anatomy.parts import Group, groups
from tare.analysis.observations import Observation
from tare.analysis.stats import FLOOR, median_estimate

HIDDEN_SHARE = 0.05
PARTS = ("compute", "copy", "overhead")


def anatomy(rows: Sequence[Observation], *, share: float = HIDDEN_SHARE, source: Path | str = "") -> Anatomy:
    """What binds each pipeline, and what hides its stall; a stall below `share` of the step is hidden."""
    found = groups(rows, source)
    pipelines = [_pipeline(group, found, share) for group in found]
    return Anatomy(share, tuple(pipelines), tuple(_media(found, pipelines, share)), tuple(_notes(found)))


def _pipeline(group: Group, all_of_them: Sequence[Group], share: float) -> Pipeline:
    words = hidden_words(group, share)
    fetch, disk = fetch_s(group), disk_part(group, all_of_them)
    parts = tuple(_part(group, workers, words[workers], share, fetch, disk) for workers in group.trials)
    return Pipeline(
        group.cell,
        group.medium,
        group.cache,
        parts,
        median_estimate(group.values(0.0, "stall").tolist()) if fetch is not None else None,
        None if disk is None else disk.seconds,
        disk is not None and disk.at_least,
        workers_estimate(group, share),
        next((part.workers for part in parts if part.hidden == "hidden"), None),
        next((part.workers for part in parts if part.by_median), None),
    )


def _part(group: Group, workers: float, word: str, share: float, fetch: float | None, disk: Disk | None) -> Part:
    step, stall = group.values(workers, "step"), group.values(workers, "stall")
    stall_share = median_estimate((stall / step).tolist())
    by_median = stall_share.value <= share
    predicted = None if fetch is None else predicted_stall(fetch, float(np.median(rest_of(group))), workers)
    return Part(
        workers,
        len(step),
        median_estimate(step.tolist()),
        median_estimate(stall.tolist()),
        median_estimate((step - stall).tolist()),
        stall_share,
        predicted,
        word,
        by_median,
        _shares(group, workers),
        binds(word == "hidden" or (word == "cannot tell" and by_median), fetch, disk),
    )


def _shares(group: Group, workers: float) -> dict[str, float]:
    """What else the step is made of, as shares of it."""
    return {
        name: float(np.median(group.values(workers, name) / group.values(workers, "step")))
        for name in PARTS
        if all(name in trial.values for trial in group.trials[workers])
    }


def _media(found: Sequence[Group], pipelines: Sequence[Pipeline], share: float) -> list[Media]:
    """For each number of workers, where several media were measured: the slowest that hides the stall."""
    made = []
    sets = dict.fromkeys((each.cell, each.cache) for each in pipelines)
    for cell, cache in sets:
        pairs = [
            (group, each)
            for group, each in zip(found, pipelines, strict=True)
            if (each.cell, each.cache) == (cell, cache) and each.medium is not None
        ]
        if len(pairs) < 2:
            continue
        slow_first = sorted(pairs, key=lambda pair: -_slowness(pair[1]))
        for workers in sorted({part.workers for _, each in pairs for part in each.parts}):
            made.append(_slowest(cell, cache, workers, slow_first, share))
    return made


def _slowest(
    cell: str, cache: str | None, workers: float, slow_first: Sequence[tuple[Group, Pipeline]], share: float
) -> Media:
    def part_of(each: Pipeline) -> Part | None:
        return next((part for part in each.parts if part.workers == workers), None)

    known = [(group, each, part) for group, each in slow_first if (part := part_of(each)) is not None]
    predicted = next((each.medium for group, each, _ in known if _should_hide(group, workers, share)), None)
    measured = next((each.medium for _, each, part in known if part.hidden == "hidden"), None)
    by_median = next((each.medium for _, each, part in known if part.by_median), None)
    return Media(cell, cache, workers, predicted, measured, by_median)


def _should_hide(group: Group, workers: float, share: float) -> bool:
    fetch = fetch_s(group)
    return fetch is not None and predicted_workers(fetch, float(np.median(rest_of(group))), share) <= workers


def _slowness(each: Pipeline) -> float:
    """A medium is slow by its fetch without workers, or else by its longest stall."""
    if each.fetch_s is not None:
        return each.fetch_s.value
    return max(part.stall_s.value for part in each.parts)


def _notes(found: Sequence[Group]) -> list[str]:
    notes = []
    if any(0.0 not in group.trials for group in found):
        notes.append("Without trials at 0 workers the fetch is not known, so nothing is predicted: measure them.")
    if any(len(trials) < FLOOR for group in found for trials in group.trials.values()):
        notes.append(
            f"Fewer than {FLOOR} trials cannot tell surely whether a stall is hidden; their medians are shown."
        )
    if len({group.cache for group in found}) < 2 and len({group.medium for group in found}) < 2:
        notes.append("Disk and CPU cannot be told apart: vary the cache (cold, warm) or the medium to do so.")
    return notes
