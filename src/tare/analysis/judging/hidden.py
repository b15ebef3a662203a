"""What a judged figure may hide: stops by a quota, faults that read the disk, a few long steps, time between steps.

Where the sides differ in one of these, no level is called equivalent and no gate passes it, whatever the interval says.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from tare.analysis import sentences
from tare.analysis.compare import judge
from tare.analysis.judging.work import is_per_sample, samples_of, with_per_sample
from tare.analysis.model import Comparison
from tare.analysis.selection import OF_RUN, START_UP, Selection, why_not
from tare.base.rulings import Ruling
from tare.records.model import Record, depends_on_speed
from tare.records.trials import FAILED

MEAN, MEDIAN, EPOCH, REST = "step_mean_s", "step_s", "epoch_s", "epoch_rest_s"
IN_STEPS = "epoch_in_steps_s"
OUTSIDE, WITH_REST = ("evaluation_s", "checkpoints_s", "exit_s"), "run_with_rest_s"  # of a run, neither step nor start
STOPPED_SHARE, STOPPED_MEAN = 0.001, 0.005  # of a run, in the median trial and in the mean: less is no finding
FAULT_S = 1e-3  # what a major fault may cost, and from which share of a run that counts
FAULTS_SHARE, LEAST_FAULTS, MORE_FAULTS = 0.005, 10, 2.0
LEAST_FAILED, FAILED_SHARE, MORE_FAILED = 2, 0.1, 2.0  # trials, share of its side's, times as many as the other's
_FAULTS = ("major_faults_training", "major_faults_inference", "major_faults")  # the nearest to the steps first

CPU_LIMITS = ("cores", "quota", "cpus")  # of a platform: where one is compared, stops by a quota are what it does

Pair = tuple[str, str]


def withhold(selected: Selection, judged: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """The comparisons, each with what its metric may hide; one that was called equivalent then cannot be told."""
    mean, middle = (_compared(selected, name, _of_equal_work(selected, name)) for name in (MEAN, MEDIAN))
    several = any(samples_of(record.settings) not in (None, 1) for record in selected.used)
    per = " per sample" if several and is_per_sample(selected.metric) else ""
    epochs = _epochs(selected)
    epoch, in_steps = (_compared(epochs, name) for name in (EPOCH, IN_STEPS))
    long_steps, between = _ratios(selected, MEAN, MEDIAN), _ratios(epochs, EPOCH, IN_STEPS)
    made = []
    for each in judged:
        pair, reasons = (each.level, each.against), []
        by_quota = _by_quota(selected, each)
        if not by_quota and pair in mean and pair in middle and _disagree(long_steps.get(pair), each):
            reasons.append(sentences.mean_and_median(mean[pair], middle[pair], per))
        if pair in epoch and pair in in_steps and _disagree(between.get(pair), each):
            reasons.append(sentences.epoch_tail(epoch[pair], in_steps[pair]))
        reasons += [*_outside(selected, each), *_of_runs(selected, each, by_quota), *_failures(selected, each)]
        made.append(_withheld(each, reasons))
    return tuple(made)


def _by_quota(selected: Selection, found: Comparison) -> bool:
    """Whether a CPU limit is what is compared, and made a sure difference: its stops are then no hidden reason."""
    name = selected.label.by
    compared = name.startswith("platform.") and name.rpartition(".")[2] in CPU_LIMITS
    return compared and found.verdict in ("slower", "faster")


def _withheld(found: Comparison, reasons: Sequence[Ruling]) -> Comparison:
    of_steps = depends_on_speed(found.metric) and found.metric not in (START_UP, *OF_RUN)
    if not reasons or not of_steps or found.effect is None:
        return found
    word = "cannot_tell" if found.verdict == "equivalent" else found.verdict
    return replace(found, verdict=word, withheld=(*found.withheld, *reasons))


def _compared(selected: Selection, metric: str, used: Sequence[Record] | None = None) -> dict[Pair, Comparison]:
    used = [record for record in selected.used if not why_not(record, metric)] if used is None else used
    if not used:
        return {}
    found = judge(selected.family(metric, used), margin=selected.request.margin, metric=metric, resamples=0)
    return {(each.level, each.against): each for each in found}


def _epochs(selected: Selection) -> Selection:
    """The trials with epochs, each with how much of an epoch lies in its steps: of the same epochs, however long."""
    used = tuple(
        replace(record, metrics={**record.metrics, IN_STEPS: record.metrics[EPOCH] - record.metrics[REST]})
        for record in selected.used
        if EPOCH in record.metrics and REST in record.metrics
    )
    return replace(selected, used=used)


def _outside(selected: Selection, found: Comparison) -> list[Ruling]:
    """Whether evaluation, checkpoints and exit make a whole run longer by more than the margin: the baseline's run with
    those of each trial, so that nothing else that differs is in it."""
    sides = [[each for each in side if _has_rest(each)] for side in selected.sides(found.level, found.against)]
    if not all(sides):
        return []
    inside_s = median(record.metrics["wall_s"] - _outside_s(record) for record in sides[1])
    if inside_s <= 0:
        return []
    used = [
        replace(record, metrics={**record.metrics, WITH_REST: inside_s + _outside_s(record)})
        for record in selected.used
        if _has_rest(record)
    ]
    more = _compared(selected, WITH_REST, used).get((found.level, found.against))
    if more is None or more.effect is None or not more.sure or more.effect <= more.margin:
        return []
    ours_s, theirs_s = (median(map(_outside_s, side)) for side in sides)
    return [sentences.outside_of_steps(found.level, found.against, ours_s, theirs_s, more)]


def _has_rest(record: Record) -> bool:
    return "wall_s" in record.metrics and any(name in record.metrics for name in OUTSIDE)


def _outside_s(record: Record) -> float:
    return sum(record.metrics.get(name, 0.0) for name in OUTSIDE)


def _of_equal_work(selected: Selection, metric: str) -> list[Record] | None:
    """The trials with this figure per sample, where that is judged: else its effect would be of another work."""
    if not is_per_sample(selected.metric):
        return None
    return [with_per_sample(record, metric, metric) for record in selected.used if not why_not(record, metric)]


def _ratios(selected: Selection, one: str, other: str) -> dict[Pair, Comparison]:
    """Each pair of sides compared by one figure over another of the same trial: how far their effects are apart."""
    name = f"{one}_over_{other}"
    used = [
        replace(record, metrics={**record.metrics, name: record.metrics[one] / record.metrics[other]})
        for record in selected.used
        if not (why_not(record, one) or why_not(record, other))
    ]
    return _compared(selected, name, used)


def _disagree(apart: Comparison | None, found: Comparison) -> bool:
    """Beyond the margin; where no one says equivalent, also surely: noise alone is no reason to fail a gate."""
    if apart is None or apart.effect is None or abs(math.log1p(apart.effect)) <= math.log1p(found.margin):
        return False
    return found.verdict == "equivalent" or apart.low is None or apart.sure


def _of_runs(selected: Selection, found: Comparison, by_quota: bool) -> list[Ruling]:
    ours, theirs = selected.sides(found.level, found.against)
    if not ours or not theirs:
        return []
    level, against = found.level, found.against
    run_s = min(filter(None, (_median(side, "wall_s") for side in (ours, theirs))), default=0.0)
    made = []
    stopped_s = [_median(side, "cgroup_throttled_s") or 0.0 for side in (ours, theirs)]
    stops = [sentences.Stops.of(side) for side in (ours, theirs)]
    apart_s = abs(stopped_s[0] - stopped_s[1]), abs(stops[0].seconds - stops[1].seconds)
    if not by_quota and (apart_s[0] > STOPPED_SHARE * run_s or apart_s[1] > STOPPED_MEAN * run_s):
        made.append(sentences.throttled_sides(level, against, *stops, unit=selected.unit))
    known = next((name for name in _FAULTS if all(_median(side, name) is not None for side in (ours, theirs))), None)
    if known is not None:
        few, many = sorted(faults := [_median(side, known) or 0.0 for side in (ours, theirs)])
        costly = (many - few) * FAULT_S > FAULTS_SHARE * run_s
        if many - few >= LEAST_FAULTS and many >= MORE_FAULTS * few and costly:
            made.append(sentences.major_faults(level, against, faults[0], faults[1]))
    return made


def _failures(selected: Selection, found: Comparison) -> list[Ruling]:
    """Trials that failed, on one side far more than on the other: the others alone make no side as good.

    Of either side: a baseline of which only the lucky half came to its end is no measure of anything.
    """
    failed = Counter(each.label for each in selected.left_out if each.state in FAILED)
    kept = dict(zip((found.level, found.against), selected.sides(found.level, found.against), strict=True))
    made = []
    for level, against in ((found.level, found.against), (found.against, found.level)):
        mine, other = failed[level], failed[against]
        whole, whole_other = len(kept[level]) + mine, max(len(kept[against]) + other, 1)
        if mine >= max(LEAST_FAILED, FAILED_SHARE * whole, MORE_FAILED * other * whole / whole_other):
            made.append(replace(sentences.failed_trials(level, against, mine, other, whole), subject=found.level))
    return made


def _median(records: Sequence[Record], metric: str) -> float | None:
    values = [record.metrics[metric] for record in records if metric in record.metrics]
    return median(values) if values else None
