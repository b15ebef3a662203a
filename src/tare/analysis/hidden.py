"""What a judged figure may hide: stops by a quota, faults that read the disk, a few long steps, time between steps.

Where the sides differ in one of these, no level is called equivalent and no gate passes it, whatever the interval says.

Which trials are suspect in a way that can bias a comparison, and whether a word hangs on them.

What all sides share alike is a note about the run. What one side has and the other has not is a mark.

Does a level cost more in one cell than in another? The ratio of its two effects, paired by block.

For every other factor that varies: in each block, the effect of the level at the factor's first value and at another
one (the mean of its logarithms over what else varies, as far as that was run at both), and those two effects against
each other. All are one family.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from tare.analysis import sentences
from tare.analysis.compare import Contest, contests, judge
from tare.analysis.labels import make_labels, signature, text
from tare.analysis.model import Comparison, FlaggedTrial, Interaction, Marked, Measurement
from tare.analysis.selection import MEAN_STEP, MEDIAN_STEP, RUN, START_UP, WHOLE, Selection, block_of, why_not
from tare.analysis.work import is_per_sample, samples_of, with_per_sample
from tare.base.declare import Group, Role
from tare.base.rulings import LEGACY, Ruling
from tare.records.model import (
    FAILED,
    LATER_STEPS,
    LONG_STEPS,
    LONGEST_STEPS,
    TYPE,
    Record,
    depends_on_speed,
    grouped,
)

WATCHED = frozenset({"gpu.power-limit"})  # notes of a trial that can bias a comparison if one side alone has them
ALIKE = 0.5  # the side that has it less often has it at least this often, as a share of the other


@dataclass(frozen=True)
class Doubts:
    """What there is to say of the marks of a selection's trials."""

    marked: tuple[Marked, ...] = ()
    notes: tuple[str, ...] = ()  # of the run as a whole
    unlike: Mapping[str, tuple[Ruling, ...]] = field(default_factory=dict)  # level -> what it does not share


def doubts(selected: Selection, judged: Sequence[Comparison]) -> Doubts:
    """The marks of the trials that are compared, told apart into those that all sides share and those that differ."""
    first = [record for record in selected.used if not record.twin]
    levels = grouped(first, selected.label.label)
    codes = {code: _shares(levels, code) for code in dict.fromkeys(code for record in first for code in _codes(record))}
    shared = {code for code, shares in codes.items() if _is_alike(shares.values())}
    biased = {record.trial for record in first if record.state == "suspect" and not _suspect_codes(record) <= shared}
    notes = [_shared_note(code, first) for code in codes if code in shared]
    marked = _marked(selected, levels, judged, biased)
    if marked:
        notes.append(sentences.marked_sentence(marked, judged))
    unlike = {each.level: _unlike(each, codes, shared) for each in judged}
    return Doubts(marked, tuple(notes), unlike)


def _suspect_codes(record: Record) -> set[str]:
    """What a suspect trial is marked for; a sentence of before there were codes stands for itself."""
    if record.state != "suspect":
        return set()
    return {each.code if each.code != LEGACY else each.sentence for each in record.reasons} or {"not recorded"}


def _codes(record: Record) -> set[str]:
    return _suspect_codes(record) | {each.code for each in record.notes if each.code in WATCHED}


def _shares(levels: Mapping[str, Sequence[Record]], code: str) -> dict[str, float]:
    return {level: sum(code in _codes(each) for each in trials) / len(trials) for level, trials in levels.items()}


def _is_alike(shares: Iterable[float]) -> bool:
    found = list(shares)
    return len(found) > 1 and min(found) >= ALIKE * max(found) > 0


def _shared_note(code: str, records: Sequence[Record]) -> str:
    having = [record for record in records if code in _codes(record)]
    told = [str(each) for each in (*having[0].reasons, *having[0].notes) if each.code == code]
    return sentences.shared_condition(code, len(having), len(records), *told[:1])


def _marked(
    selected: Selection, levels: Mapping[str, Sequence[Record]], judged: Sequence[Comparison], biased: set[str]
) -> tuple[Marked, ...]:
    if not biased:
        return ()
    kept = [record for record in selected.used if record.trial not in biased]
    asked = selected.request
    again = judge(
        selected.family(used=kept), margin=asked.margin, metric=selected.metric, alpha=asked.alpha, resamples=0,
        rises=asked.rises,
    )  # fmt: skip
    compared = {name for each in judged for name in (each.level, each.against)}
    levels_judged = {each.level for each in judged}
    words = {each.level: each.verdict for each in again if each.low is not None and each.level in levels_judged}
    return tuple(
        Marked(level, sum(record.trial in biased for record in trials), len(trials), words.get(level))
        for level, trials in levels.items()
        if level in compared
    )


def _unlike(found: Comparison, codes: Mapping[str, Mapping[str, float]], shared: set[str]) -> tuple[Ruling, ...]:
    made = []
    for code, shares in codes.items():
        ours, theirs = shares.get(found.level), shares.get(found.against)
        if code in shared or ours is None or theirs is None or ours == theirs:
            continue
        sentence = (
            f"{code}: {ours:.0%} of the trials of {found.level!r} and {theirs:.0%} of those of {found.against!r} are "
            "marked, so a difference may come from that."
        )
        made.append(Ruling("compare.unlike-conditions", "note", found.level, sentence))
    return tuple(made)


Key = tuple[str | None, ...]


def interactions(selected: Selection) -> tuple[Interaction, ...]:
    """Of every level against the baseline, for each factor beside; empty where only one cell was run."""
    if selected.against is None or not selected.label.rest or selected.label.by == TYPE:
        return ()
    first = [record for record in selected.used if not record.twin and block_of(record) is not None]
    if not first:
        return ()
    places: list[tuple[str, str]] = []  # the factor and the level of each contest
    family: list[Contest] = []
    floor = max((each.floor for each in selected.family() if each.floor is not None), default=None)
    runs = grouped(first, selected.label.level)
    for factor in selected.label.rest:
        names = _names(first, factor)
        for level in (level for level in selected.levels if level != selected.against):
            base, *others = _effects(selected, runs, factor, names, level)
            for other in others:
                if held := _crossed(names, base, other):
                    made = contests(held, names[base.value], levels=[names[base.value], names[other.value]])
                    family += [replace(each, floor=floor, unit=selected.unit) for each in made]
                    places += [(factor, level)] * len(made)
    asked = selected.request
    judged = judge(
        family, margin=asked.margin, metric=selected.metric, alpha=asked.alpha, resamples=0, rises=asked.rises
    )
    return tuple(
        Interaction(factor, level, selected.against, each.level, each.against, each, _gains(contest, each))
        for (factor, level), contest, each in zip(places, family, judged, strict=True)
    )


def _gains(contest: Contest, found: Comparison) -> bool:
    """Whether the level is better than the baseline by more than the margin in both cells."""
    middles = (median(each.value for each in side) for side in (contest.ours, contest.theirs) if side)
    harms = [math.log(middle) * (-1 if found.direction.rises else 1) for middle in middles]
    return bool(harms) and max(harms) < -math.log1p(found.margin)


def _names(records: Sequence[Record], factor: str) -> dict[Key, str]:
    """What each value of the factor is called, numbers by their size: the first is what the others are held against."""
    values = {signature(record.settings, (factor,)): {factor: record.settings.get(factor)} for record in records}
    words = make_labels(list(values.values()), (factor,))
    return {
        key: _name(str(words.words(values[key])), values[key].get(factor), factor) for key in sorted(values, key=_size)
    }


def _name(words: str, value: object, factor: str) -> str:
    """In words; also of a value that labels leave out, since the others have a name."""
    if factor == "platform" and words == "bare":
        return "bare metal"
    return words or (f"no {factor}" if value is None else f"{factor} {text(value)}")


def _size(key: Key) -> tuple[float, str]:
    try:
        return float(str(key[0])), ""
    except ValueError:
        return math.inf, str(key[0])


@dataclass(frozen=True)
class _Effects:
    """The logarithms of the level's ratios to the baseline at one value of the factor: by block, then by what else
    varies."""

    value: Key
    logs: Mapping[str | None, Mapping[Key, float]]


def _effects(
    selected: Selection, runs: Mapping[str, Sequence[Record]], factor: str, names: Mapping[Key, str], level: str
) -> list[_Effects]:
    """One for each value of the factor, in the order of their names; `runs` are the trials of each level."""
    base = str(selected.against)
    rest = tuple(name for name in selected.label.rest if name != factor)
    sides: dict[tuple[Key, str | None, Key], dict[str, list[float]]] = {}
    for whose in (level, base):
        for record in runs.get(whose, ()):
            key = (signature(record.settings, (factor,)), block_of(record), signature(record.settings, rest))
            sides.setdefault(key, {}).setdefault(whose, []).append(record.metrics[selected.metric])
    logs: dict[Key, dict[str | None, dict[Key, float]]] = {value: {} for value in names}
    for (value, block, other), found in sides.items():
        if len(found) == 2:
            ratio = math.log(median(found[level])) - math.log(median(found[base]))
            logs[value].setdefault(block, {})[other] = ratio
    return [_Effects(value, logs[value]) for value in names]


def _crossed(names: Mapping[Key, str], base: _Effects, other: _Effects) -> list[Measurement]:
    """One ratio for each block and value, over what else was run at both values in that block."""
    made = []
    for block in base.logs:
        both = base.logs[block].keys() & other.logs.get(block, {}).keys()
        for each in (base, other) if both else ():
            made.append(Measurement(names[each.value], math.exp(fmean(each.logs[block][key] for key in both)), block))
    return made


EPOCH, REST = Role.EPOCH.metric, Role.EPOCH_REST.metric
IN_STEPS = "epoch_in_steps_s"
WITH_REST = "run_with_rest_s"
LONG_SHARE = 0.5  # of the margin: what the longest steps of a side may take beyond as many usual ones
STOPPED_SHARE, STOPPED_MEAN = 0.001, 0.005  # of a run, in the median trial and in the mean: less is no finding
FAULT_S = 1e-3  # what a major fault may cost, and from which share of a run that counts
FAULTS_SHARE, LEAST_FAULTS, MORE_FAULTS = 0.005, 10, 2.0
ALONE = "trial.throttled-alone"
DROPPED_SHARE = 0.1  # of a side's trials
LEAST_FAILED, FAILED_SHARE, MORE_FAILED = 2, 0.1, 2.0  # trials, share of its side's, times as many as the other's

CPU_LIMITS = ("cores", "quota", "cpus")  # of a platform: where one is compared, stops by a quota are what it does

Pair = tuple[str, str]


def withhold(selected: Selection, judged: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """The comparisons, each with what its metric may hide; one that was called equivalent then cannot be told."""
    mean, middle = (_compared(selected, name, _of_equal_work(selected, name)) for name in (MEAN_STEP, MEDIAN_STEP))
    several = any(samples_of(record.settings) not in (None, 1) for record in selected.used)
    per = " per sample" if several and is_per_sample(selected.metric) else ""
    epochs = _epochs(selected)
    epoch, in_steps = (_compared(epochs, name) for name in (EPOCH, IN_STEPS))
    long_steps, between = _ratios(selected, MEAN_STEP, MEDIAN_STEP), _ratios(epochs, EPOCH, IN_STEPS)
    later = _compared(_with_later(selected), LATER_STEPS) if selected.metric == MEAN_STEP else {}
    longer, failed = _with_rest(selected), Counter(each.label for each in selected.left_out if each.state in FAILED)
    made = []
    for each in judged:
        pair, reasons = (each.level, each.against), []
        by_quota = _by_quota(selected, each)
        if not by_quota and pair in mean and pair in middle and _disagree(long_steps.get(pair), each):
            reasons.append(sentences.mean_and_median(mean[pair], middle[pair], per))
        if each.metric == MEAN_STEP and each.verdict == "equivalent":
            reasons += _long_steps(selected, each)
        if pair in epoch and pair in in_steps and _disagree(between.get(pair), each):
            reasons.append(sentences.epoch_tail(epoch[pair], in_steps[pair]))
        reasons += [*_outside(selected, longer.get(pair)), *_of_runs(selected, each, by_quota)]
        failures = _failures(selected, each, failed)
        held = _withheld(each, [*reasons, *failures], () if failures else _few_left(selected, each))
        made.append(_held_to_later(held, later.get(pair)))
    return tuple(made)


def _with_later(selected: Selection) -> Selection:
    """The trials in turns, each with the mean of its steps after the first of each turn."""
    used = [each for each in selected.used if LATER_STEPS in each.facts]
    return replace(
        selected,
        used=tuple(replace(each, metrics={**each.metrics, LATER_STEPS: each.facts[LATER_STEPS]}) for each in used),
    )


def _held_to_later(found: Comparison, later: Comparison | None) -> Comparison:
    """What a partner leaves behind in caches is in the first steps of a turn: it must not make the verdict.

    It does where the later steps lie outside the interval, and on the other side of zero or of the margin.
    """
    if later is None or later.effect is None or found.low is None or found.high is None or found.metric != MEAN_STEP:
        return found
    if found.low <= later.effect <= found.high or not _changes_the_verdict(found, later.effect):
        return found
    withheld = (*found.withheld, sentences.carried_over(found, later))
    return replace(found, verdict="cannot_tell", withheld=withheld)


def _changes_the_verdict(found: Comparison, effect: float) -> bool:
    """Whether this effect in its place has another word; what cannot be told has none to lose."""
    within = abs(effect) <= found.margin
    if found.verdict not in ("slower", "faster") or found.effect is None:
        return found.verdict == "equivalent" and not within
    return effect * found.effect <= 0 or (within and abs(found.effect) > found.margin)


def _long_steps(selected: Selection, found: Comparison) -> list[Ruling]:
    """A few steps that hold so much of a side's time say that the next run may have one more, or one less."""
    reasons = []
    sides = selected.sides(found.level, found.against)
    for level, records in zip((found.level, found.against), sides, strict=True):
        both = {MEAN_STEP, MEDIAN_STEP}
        known = [each for each in records if LONGEST_STEPS in each.facts and both <= each.metrics.keys()]
        total_s = sum(each.metrics[MEAN_STEP] * _counted_steps(each) for each in known)
        beyond = [step_s - each.metrics[MEDIAN_STEP] for each in known for step_s in each.facts[LONGEST_STEPS]]
        longest_s = sum(sorted(beyond)[-LONG_STEPS:])
        if total_s > 0 and longest_s > LONG_SHARE * found.margin * total_s:
            reasons.append(sentences.long_steps(found, level, longest_s / total_s))
    return reasons


def _counted_steps(record: Record) -> float:
    """The steps that its mean is of."""
    told = record.facts.get("turns")
    if told is not None:
        return float(told["done"] * told["steps"])
    return record.metrics.get("steps", 0.0) - record.metrics.get("warm_up_steps", 0.0)


def _by_quota(selected: Selection, found: Comparison) -> bool:
    """Whether a CPU limit is what is compared, and made a sure difference: its stops are then no hidden reason."""
    name = selected.label.by
    compared = name.startswith("platform.") and name.rpartition(".")[2] in CPU_LIMITS
    return compared and found.verdict in ("slower", "faster")


def _withheld(found: Comparison, of_steps: Sequence[Ruling], of_trials: Sequence[Ruling]) -> Comparison:
    """`of_trials`: what counts whatever the metric is."""
    is_of_steps = depends_on_speed(found.metric) and found.metric not in (START_UP, WHOLE, *Group.RUN_PHASES.metrics)
    reasons = [*(of_steps if is_of_steps else ()), *of_trials]
    if not reasons or found.effect is None:
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


def _with_rest(selected: Selection) -> dict[Pair, Comparison]:
    """Whole runs: the run of a trial's baseline with the trial's own evaluation, checkpoints and exit, so that nothing
    else that differs is in it."""
    label, used = selected.label, [record for record in selected.used if _has_rest(record)]
    first = grouped((record for record in used if not record.twin), label.label)
    inside = {level: median(each.metrics[RUN] - _outside_s(each) for each in its) for level, its in first.items()}
    runs = []
    for record in used:
        base_s = inside.get(label.joined(str(selected.against), label.surroundings(record)), 0.0)
        if base_s > 0:
            runs.append(replace(record, metrics={**record.metrics, WITH_REST: base_s + _outside_s(record)}))
    return _compared(selected, WITH_REST, runs)


def _outside(selected: Selection, more: Comparison | None) -> list[Ruling]:
    """Whether evaluation, checkpoints and exit make a whole run longer by more than the margin."""
    if more is None or more.effect is None or not more.sure or more.effect <= more.margin:
        return []
    sides = selected.sides(more.level, more.against)
    ours_s, theirs_s = (median(_outside_s(each) for each in side if _has_rest(each)) for side in sides)
    return [sentences.outside_of_steps(more.level, more.against, ours_s, theirs_s, more)]


def _has_rest(record: Record) -> bool:
    return RUN in record.metrics and any(name in record.metrics for name in Group.OUTSIDE_STEPS.metrics)


def _outside_s(record: Record) -> float:
    return sum(record.metrics.get(name, 0.0) for name in Group.OUTSIDE_STEPS.metrics)


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
    run_s = min(filter(None, (_median(side, RUN) for side in (ours, theirs))), default=0.0)
    made = []
    stopped_s = [_median(side, Role.THROTTLED.metric) or 0.0 for side in (ours, theirs)]
    stops = [sentences.Stops.of(side) for side in (ours, theirs)]
    apart_s = abs(stopped_s[0] - stopped_s[1]), abs(stops[0].seconds - stops[1].seconds)
    if not by_quota and (apart_s[0] > STOPPED_SHARE * run_s or apart_s[1] > STOPPED_MEAN * run_s):
        made.append(sentences.throttled_sides(level, against, *stops, unit=selected.unit))
    faulted = Group.MAJOR_FAULTS.metrics
    known = next((name for name in faulted if all(_median(side, name) is not None for side in (ours, theirs))), None)
    if known is not None:
        few, many = sorted(faults := [_median(side, known) or 0.0 for side in (ours, theirs)])
        costly = (many - few) * FAULT_S > FAULTS_SHARE * run_s
        if many - few >= LEAST_FAULTS and many >= MORE_FAULTS * few and costly:
            made.append(sentences.major_faults(level, against, faults[0], faults[1]))
    return made


def _failures(selected: Selection, found: Comparison, failed: Counter[str]) -> list[Ruling]:
    """Trials that failed, on one side far more than on the other: the others alone make no side as good.

    Of either side: a baseline of which only the lucky half came to its end is no measure of anything.
    """
    kept = dict(zip((found.level, found.against), selected.sides(found.level, found.against), strict=True))
    made = []
    for level, against in ((found.level, found.against), (found.against, found.level)):
        mine, other = failed[level], failed[against]
        whole, whole_other = len(kept[level]) + mine, max(len(kept[against]) + other, 1)
        if mine >= max(LEAST_FAILED, FAILED_SHARE * whole, MORE_FAILED * other * whole / whole_other):
            made.append(replace(sentences.failed_trials(level, against, mine, other, whole), subject=found.level))
    return made


def dropped(selected: Selection) -> dict[str, Counter[str]]:
    """By side the trials that ran and could not be used, by the code of their first reason."""
    lost = [
        each
        for each in selected.left_out
        if each.label and (each.state in ("invalid", *FAILED) or each.reasons[0].code == ALONE)
    ]
    return {side: Counter(each.reasons[0].code for each in its) for side, its in grouped(lost, _label).items()}


def _label(flagged: FlaggedTrial) -> str:
    return flagged.label


def dropped_notes(selected: Selection) -> list[str]:
    """Of each side that lost any: how many trials, and why."""
    kept, found = selected.by_label(), dropped(selected)
    return [
        f"{sentences.dropped_text(side, codes, len(kept.get(side, ())) + codes.total())}."
        for side, codes in found.items()
    ]


def _few_left(selected: Selection, found: Comparison) -> list[Ruling]:
    """Whether so many trials of a side were dropped that the others may be the lucky ones."""
    kept, lost = selected.by_label(), dropped(selected)
    made = []
    for side in (found.level, found.against):
        codes = lost.get(side, Counter())
        whole = len(kept.get(side, ())) + codes.total()
        if codes.total() > DROPPED_SHARE * whole:
            made.append(sentences.dropped_trials(found.level, side, codes, whole))
    return made


def _median(records: Sequence[Record], metric: str) -> float | None:
    values = [record.metrics[metric] for record in records if metric in record.metrics]
    return median(values) if values else None
