"""What a judged figure may hide: stops by a quota, faults that read the disk, a few long steps, time between steps.

Where the sides differ in one of these, no level is called equivalent and no gate passes it, whatever the interval says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from tare.analysis import sentences
from tare.analysis.compare import judge
from tare.analysis.model import Comparison
from tare.analysis.selection import OF_RUN, START_UP, Selection, why_not
from tare.base.rulings import Ruling
from tare.records.model import Record, depends_on_speed

MEAN, MEDIAN, EPOCH = "step_mean_s", "step_s", "epoch_s"
STOPPED_SHARE = 0.001  # of a run: a difference in time throttled below this is no finding
FAULT_S = 1e-3  # what a major fault may cost, and from which share of a run that counts
FAULTS_SHARE, LEAST_FAULTS, MORE_FAULTS = 0.005, 10, 2.0
_FAULTS = ("major_faults_training", "major_faults_inference", "major_faults")  # the nearest to the steps first

_STEPS = (MEAN, MEDIAN, EPOCH)

Pair = tuple[str, str]


def withhold(selected: Selection, judged: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """The comparisons, each with what its metric may hide; one that was called equivalent then cannot be told."""
    by_metric = {name: _compared(selected, name) for name in (MEAN, MEDIAN, EPOCH)}
    return tuple(_withheld(each, [*_of_steps(each, by_metric), *_of_runs(selected, each)]) for each in judged)


def _withheld(found: Comparison, reasons: Sequence[Ruling]) -> Comparison:
    of_steps = depends_on_speed(found.metric) and found.metric not in (START_UP, *OF_RUN)
    if not reasons or not of_steps or found.effect is None:
        return found
    word = "cannot_tell" if found.verdict == "equivalent" else found.verdict
    return replace(found, verdict=word, withheld=tuple(reasons))


def _compared(selected: Selection, metric: str) -> dict[Pair, Comparison]:
    used = [record for record in selected.used if not why_not(record, metric)]
    if not used:
        return {}
    found = judge(selected.family(metric, used), margin=selected.request.margin, metric=metric, resamples=0)
    return {(each.level, each.against): each for each in found}


def _of_steps(found: Comparison, by_metric: Mapping[str, Mapping[Pair, Comparison]]) -> list[Ruling]:
    pair = (found.level, found.against)
    mean, middle, epoch = (found if found.metric == name else by_metric[name].get(pair) for name in _STEPS)
    made = []
    if mean is not None and middle is not None and _apart(mean, middle, found.margin):
        made.append(sentences.mean_and_median(mean, middle))
    if mean is not None and epoch is not None and _apart(epoch, mean, found.margin):
        made.append(sentences.epoch_tail(epoch, mean))
    return made


def _apart(one: Comparison, other: Comparison, margin: float) -> bool:
    if one.effect is None or other.effect is None:
        return False
    return abs(math.log1p(one.effect) - math.log1p(other.effect)) > math.log1p(margin)


def _of_runs(selected: Selection, found: Comparison) -> list[Ruling]:
    ours, theirs = selected.sides(found.level, found.against)
    if not ours or not theirs:
        return []
    level, against = found.level, found.against
    run_s = min(filter(None, (_median(side, "wall_s") for side in (ours, theirs))), default=0.0)
    made = []
    stopped_s = [_median(side, "cgroup_throttled_s") or 0.0 for side in (ours, theirs)]
    if abs(stopped_s[0] - stopped_s[1]) > STOPPED_SHARE * run_s:
        times = max(_median(side, "cgroup_nr_throttled") or 0.0 for side in (ours, theirs))
        made.append(sentences.throttled_sides(level, against, stopped_s[0], stopped_s[1], times))
    known = next((name for name in _FAULTS if all(_median(side, name) is not None for side in (ours, theirs))), None)
    if known is not None:
        few, many = sorted(faults := [_median(side, known) or 0.0 for side in (ours, theirs)])
        costly = (many - few) * FAULT_S > FAULTS_SHARE * run_s
        if many - few >= LEAST_FAULTS and many >= MORE_FAULTS * few and costly:
            made.append(sentences.major_faults(level, against, faults[0], faults[1]))
    return made


def _median(records: Sequence[Record], metric: str) -> float | None:
    values = [record.metrics[metric] for record in records if metric in record.metrics]
    return median(values) if values else None
