"""What the sides report of their steps, held against the time of their runs as the device saw it.

Marks are a program's own words. The run's time from outside is not. Per step, that time is the reported step and a
rest: the start-up, the end, checkpoints, whatever lies between steps. A verdict on steps does not stand where

- the rest differs between the sides by more than the margin, and neither start-up nor evaluation nor checkpoints nor
  exit, as reported, say why;
- the rest takes back what the steps gain or lose, and the whole run does not change as the steps do by more than the
  margin of a step: a time that was moved and a longer start-up for quicker steps look the same then;
- so many steps are open at once on one side and not on the other;
- the sides did other numbers of steps, and their runs are not of a fixed time.

A difference counts where its own interval lies on one side of zero, and not within the margin: noise of whole runs is
no reason. `benchmarks/forgeries.py` counts what honest programs lose by it, and what forgeries gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from tare.analysis import sentences
from tare.analysis.compare import judge
from tare.analysis.model import Comparison
from tare.analysis.selection import (
    AT_ONCE,
    COVERED,
    MEAN_STEP,
    RUN,
    START_UP,
    WHOLE,
    Selection,
    why_not,
)
from tare.base.declare import Group, Role
from tare.base.rulings import Ruling
from tare.records.model import Record

Pair = tuple[str, str]
JUDGED = Group.SPEEDS.metrics
SURE = 0.01  # so seldom is an honest pair of sides refused by chance
FEW = 3.0  # times the margin: what counts where trials are too few for an interval
LAG_S = 0.1  # by so much the end of a run is seen late, by an engine that is asked for it
TWICE = 2.0  # times as many steps: more than any platform makes of a fixed time, unless the study sets the time
_MOST_LOG = 30.0  # times what is usual: more is as telling, and a ratio of two of them is still a number


def contradicted(selected: Selection, judged: Sequence[Comparison]) -> dict[Pair, Ruling]:
    """Of the pairs that are compared by what they report, those that the time from outside contradicts, and why."""
    if selected.metric not in JUDGED:
        return {}
    used = [record for record in selected.used if _is_known(record, selected.metric)]
    if not used:
        return {}
    reported = _step if selected.metric != RUN else _whole
    usual_s = median(_per_unit(record, reported) for record in used)
    rest = _differences(selected, used, lambda record: _per_unit(record, reported) - reported(record), usual_s)
    unexplained = _differences(
        selected, used, lambda record: _per_unit(record, reported) - _told(record, reported), usual_s
    )
    whole = _differences(selected, used, lambda record: _per_unit(record, reported), usual_s)
    found = {}
    for each in judged:
        pair = each.level, each.against
        ours, theirs = ([record for record in side if record in used] for side in selected.sides(*pair))
        if pair in rest and ours and theirs:
            unit_s = usual_s * (_steps(ours) + _steps(theirs)) / 2 if reported is _step else usual_s
            why = _why(selected, each, (ours, theirs), (rest[pair], unexplained[pair], whole[pair]), unit_s)
            if why is not None:
                found[pair] = sentences.outside_time(each, why, _change(ours, theirs, WHOLE))
    return found


def _timed_runs(selected: Selection, found: Comparison) -> Ruling | None:
    """Of sides that did other numbers of steps in the same time, which is their own statement."""
    sides = selected.sides(found.level, found.against)
    if selected.metric not in JUDGED[:2] or not all(any(_is_known(each, MEAN_STEP) for each in side) for side in sides):
        return None
    ours, theirs = (_steps([each for each in side if _is_known(each, MEAN_STEP)]) for side in sides)
    return sentences.timed_runs(found, ours, theirs) if _apart(ours, theirs) > math.log1p(found.margin) else None


def _start_up_moved(selected: Selection, found: Comparison) -> Ruling | None:
    """Whether what a side gains in its start-up comes back in what no other part of its run accounts for."""
    if found.metric != START_UP or not found.sure or found.effect is None or _of_other_work(selected):
        return None
    used = [each for each in selected.used if not why_not(each, START_UP) and _is_timed_from_outside(each)]
    if not used:
        return None
    usual_s = median(record.metrics[START_UP] for record in used)
    # Steps count at their mean: first steps that take longer are where a start-up goes that ends too early.
    rest = _differences(selected, used, lambda each: each.metrics[WHOLE] - _steady_s(each) - _beside_s(each), usual_s)
    apart = rest.get((found.level, found.against))
    if apart is None or not _counts(apart, usual_s) or (apart.effect or 0.0) * found.effect >= 0:
        return None
    return sentences.outside_start_up(found)


def of_whole_runs(selected: Selection) -> Selection:
    """The same question, judged by the time of whole runs from outside."""
    return replace(selected, metric=WHOLE, used=tuple(each for each in selected.used if not why_not(each, WHOLE)))


def held_to_it(
    selected: Selection, judged: Sequence[Comparison], further: Sequence[Comparison], refused: Mapping[Pair, Ruling]
) -> tuple[tuple[Comparison, ...], tuple[Comparison, ...]]:
    """The comparisons, each with what the time from outside says of it: a note, or why there is no verdict."""
    headline = []
    for each in judged:
        why, timed = refused.get((each.level, each.against)), _timed_runs(selected, each)
        if why is not None and each.metric == WHOLE:
            headline.append(replace(each, notes=(*each.notes, why)))
        elif why is not None:
            headline.append(_withheld(each, why))
        else:
            headline.append(each if timed is None else replace(each, notes=(*each.notes, timed)))
    reasons = [
        (refused.get((each.level, each.against)) if each.metric in JUDGED else None) or _start_up_moved(selected, each)
        for each in further
    ]
    return tuple(headline), tuple(
        each if why is None else _withheld(each, why) for each, why in zip(further, reasons, strict=True)
    )


def _withheld(found: Comparison, why: Ruling) -> Comparison:
    return replace(found, verdict="cannot_tell", withheld=(*found.withheld, why))


def _why(
    selected: Selection, found: Comparison, sides: tuple[list[Record], list[Record]],
    apart: tuple[Comparison, Comparison, Comparison], unit_s: float,
) -> str | None:  # fmt: skip
    (ours, theirs), (rest, unexplained, whole) = sides, apart
    if _counts(unexplained, unit_s):
        return "the time that neither steps nor start-up, evaluation, checkpoints or exit account for differs"
    if found.metric == RUN or _of_other_work(selected):
        return None
    gains = (found.effect or 0.0) * (-1 if found.direction.rises else 1)
    taken_back = (rest.effect or 0.0) * gains < 0 and _counts(rest, unit_s)
    borne_out = (whole.effect or 0.0) * gains > 0 and _counts(whole, unit_s)
    if found.verdict != "equivalent" and abs(gains) > found.margin and taken_back and not borne_out:
        return "the rest of the run takes the difference back"
    at_once = [median(record.metrics.get(AT_ONCE, 1.0) for record in side) for side in sides]
    if _apart(*at_once) > math.log1p(found.margin):
        return f"{at_once[0]:.2g} steps were open at once, and {at_once[1]:.2g} of the baseline"
    steps = _steps(ours), _steps(theirs)
    if (more := _apart(*steps)) > math.log1p(found.margin) and not _is_timed(selected, sides, more):
        return f"the sides did {steps[0]:g} and {steps[1]:g} steps, and their runs are not known to be of a fixed time"
    return None


def _of_other_work(selected: Selection) -> bool:
    """Whether the sides do other work: then other times are expected."""
    return selected.label.by.startswith("workload")


def _is_timed(selected: Selection, sides: Sequence[Sequence[Record]], more: float) -> bool:
    """Whether runs are of a fixed time: the study says so, or they took alike and did not do twice the steps."""
    if all(record.settings.get("workload.minutes") is not None for side in sides for record in side):
        return True
    whole_s = [median(record.metrics[WHOLE] for record in side) for side in sides]
    return more < math.log(TWICE) and _apart(*whole_s) < more / 2


def _is_known(record: Record, metric: str) -> bool:
    """Whether its run was timed from outside, and its steps account for one: not where others ran beside it."""
    metrics = record.metrics
    if why_not(record, metric) or not _is_timed_from_outside(record):
        return False
    return metric == RUN or (metrics.get(MEAN_STEP, 0.0) > 0 and metrics.get("steps", 0.0) > 0)


def _is_timed_from_outside(record: Record) -> bool:
    """Whether its whole run has a time, and its steps a share of it: an export may hold any number."""
    return record.metrics.get(WHOLE, 0.0) > 0 and record.metrics.get(AT_ONCE, 1.0) > 0


def _step(record: Record) -> float:
    """Seconds from one step to the next, as the marks have it; of steps that lie side by side their share."""
    return record.metrics[MEAN_STEP] / record.metrics.get(AT_ONCE, 1.0)


def _whole(record: Record) -> float:
    return record.metrics[RUN]


def _per_unit(record: Record, reported: Callable[[Record], float]) -> float:
    """Seconds from outside for a step, or for the whole run."""
    return record.metrics[WHOLE] / (record.metrics["steps"] if reported is _step else 1.0)


def _told(record: Record, reported: Callable[[Record], float]) -> float:
    """All that the run reports of its time, for a step."""
    if reported is not _step:
        return reported(record)
    return (_beside_s(record) + record.metrics.get(COVERED, 0.0)) / record.metrics["steps"]


def _beside_s(record: Record) -> float:
    """Seconds that the run reports of its start-up and end, of checkpoints and evaluation."""
    metrics = record.metrics
    start_s = max(0.0, metrics.get(START_UP, 0.0) - metrics.get(Role.PLATFORM_OPEN.metric, 0.0))
    return start_s + sum(metrics.get(name, 0.0) for name in Group.OUTSIDE_STEPS.metrics)


def _steady_s(record: Record) -> float:
    """Seconds of all its steps, as if each took the mean; none where it has no mean."""
    return record.metrics.get("steps", 0.0) * _step(record) if MEAN_STEP in record.metrics else 0.0


def _differences(
    selected: Selection, used: Sequence[Record], seconds: Callable[[Record], float], usual_s: float
) -> Mapping[Pair, Comparison]:
    """Each pair of sides compared by these seconds, as a share of what is usual: of logarithms, as ratios are."""
    name = "outside_rest"
    logs = ((record, max(-_MOST_LOG, min(seconds(record) / usual_s, _MOST_LOG))) for record in used)
    made = [replace(record, metrics={**record.metrics, name: math.exp(log)}) for record, log in logs]
    family = [replace(each, floor=None, floor_most=None) for each in selected.family(name, made)]
    found = judge(family, margin=selected.request.margin, metric=name, alpha=SURE, resamples=0, power=False)
    return {(each.level, each.against): each for each in found}


def _counts(apart: Comparison, unit_s: float) -> bool:
    """Whether the sides are apart: surely, by more than the margin, and by more than an engine's lateness."""
    if apart.effect is None or abs(math.log1p(apart.effect)) * unit_s <= LAG_S:
        return False
    if apart.low is None:
        return abs(math.log1p(apart.effect)) > FEW * apart.margin
    return apart.verdict in ("slower", "faster")


def _steps(records: Sequence[Record]) -> float:
    return median(record.metrics["steps"] for record in records)


def _apart(one: float, other: float) -> float:
    return abs(math.log(one / other))


def _change(ours: Sequence[Record], theirs: Sequence[Record], metric: str) -> float:
    return median(each.metrics[metric] for each in ours) / median(each.metrics[metric] for each in theirs) - 1
