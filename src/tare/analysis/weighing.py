"""What a store, or a table, says: every comparison with what supports it and what there is to doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tare.analysis import sentences
from tare.analysis.blame import where_it_lies
from tare.analysis.cells import Cells, baseline_level, cells, join, resolve_factor
from tare.analysis.compare import Contest, compare, contests, judge, pick_baseline, unknown_name
from tare.analysis.energy.baseload import records_of
from tare.analysis.model import Comparison, Difference, Estimate, Left, Measurement, Weighing
from tare.analysis.noise import drift, loud_levels, malloc_lottery, throttled
from tare.analysis.parity import differences, taints
from tare.analysis.population import mixed_populations, not_deterministic, other_computation
from tare.analysis.question import question
from tare.analysis.request import DEFAULT_MARGIN, Request, request
from tare.analysis.stall_parts import stall_parts
from tare.analysis.stats import FLOOR, median_estimate, outliers
from tare.analysis.stopping import family_enough, reached
from tare.analysis.table import measurements_from_table
from tare.analysis.trials import (
    Trials,
    level_medians,
    level_phases,
    marked_outliers,
    measurements,
    pick_metric,
    sort_out,
    why_not,
)
from tare.errors import StudyError
from tare.records.model import USABLE, Record, State

# Compared next to the headline, without a claim.
BESIDE = ("compute_s", "stall_s", "cpu_step_s", "cpu_s", "wall_s", "energy_step_j", "power_mean_w")


class RecordSource(Protocol):
    """The part of a store that a weighing reads."""

    @property
    def study(self) -> Mapping[str, Any]: ...

    def records(self) -> list[Record]: ...
    def states(self) -> dict[str, State]: ...


@dataclass(frozen=True)
class Scene:
    """A store's records, sorted for one question."""

    asked: Request
    label: Cells
    against: str | None  # None where there is nothing to compare
    metric: str
    records: tuple[Record, ...]  # those that have the factor
    trials: Trials


def weigh(
    store: RecordSource,
    *,
    by: str | None = None,
    against: str | None = None,
    margin: float | None = None,
    metric: str | None = None,
) -> Weighing:
    """Everything that a report says about a store; what the caller leaves open the study decides."""
    records = records_of(store)
    asked = request(store.study, records, by=by, against=against, margin=margin, metric=metric)
    scene = _scene(records, asked)
    family = _family(scene, scene.metric, scene.trials.used)
    judged = judge(family, margin=asked.margin, metric=scene.metric, alpha=asked.alpha)
    found = {(each.level, each.against): _differences(scene, each) for each in judged}
    comparisons = tuple(_tainted(scene, each, found[each.level, each.against]) for each in judged)
    used, values = scene.trials.used, measurements(scene.trials.used, scene.label, scene.metric)
    levels = list(dict.fromkeys(scene.label.level(record) for record in scene.records))
    others, skipped = _beside(scene)
    stop_note, met = _stop_rule(scene, comparisons)
    return Weighing(
        study=_study_name(store.study, scene.records),
        question=question(
            [each for each in levels if each != scene.against], scene.against or "", scene.label.by, used
        ),
        by=scene.label.by,
        against=scene.against or "",
        metric=scene.metric,
        comparisons=comparisons,
        others=others,
        differences=tuple(dict.fromkeys(each for several in found.values() for each in several)),
        left_out=scene.trials.left_out,
        outliers=tuple(marked_outliers(used, scene.label, scene.metric)),
        notes=(*_blamed(scene, judged), *_notes(scene, values), *skipped, *stop_note, *_not_measured(store.study)),
        counts=_counts(store.states(), met),
        measurements=tuple(values),
        medians=level_medians(used, scene.label),
        phases=level_phases(used, scene.label),
        facts=next((dict(record.facts["device"]) for record in scene.records if record.facts.get("device")), {}),
    )


def is_enough(store: RecordSource, *, until: float, floor: int = FLOOR) -> bool:
    """The stop rule on a store, as the runner asks it after each block."""
    records = records_of(store)
    scene = _scene(records, request(store.study, records))
    return family_enough(_family(scene, scene.metric, scene.trials.used), until=until, floor=floor)


def weigh_table(
    path: Path | str,
    *,
    by: str,
    value: str,
    block: str | None = None,
    against: str | None = None,
    margin: float | None = None,
) -> Weighing:
    """The same for a user's own table, which has neither facts nor other metrics."""
    values = measurements_from_table(path, by, value, block)
    try:
        found = compare(values, against=against, margin=DEFAULT_MARGIN if margin is None else margin, metric=value)
    except StudyError as error:
        raise StudyError(f"{path}, column {by!r}: {error}") from None
    base = found[0].against
    drifted = drift(values)
    return Weighing(
        study=Path(path).name,
        question=question([each.level for each in found], base, by, []),
        by=by,
        against=base,
        metric=value,
        comparisons=tuple(found),
        outliers=tuple(_table_outliers(values, value)),
        notes=(*loud_levels(values), *([drifted] if drifted else [])),
        counts={"planned": len(values), "ok": len(values)},
        measurements=tuple(values),
        medians=_table_medians(values, value),
    )


def _scene(records: Sequence[Record], asked: Request) -> Scene:
    """Levels come from every record, usable or not: a level whose trials all failed must not vanish."""
    by = resolve_factor(records, asked.by) if records else asked.by
    having = tuple(record for record in records if by in record.settings)
    label = cells(having, by)
    metric = pick_metric(having, asked.metric)
    trials = sort_out(having, label, metric)
    without = tuple(
        Left(record.trial, "", record.block, record.state, (f"it has no {by}.",))
        for record in records
        if by not in record.settings
    )
    trials = replace(trials, left_out=(*trials.left_out, *without))
    return Scene(replace(asked, by=by), label, _baseline(having, label, asked), metric, having, trials)


def _baseline(records: Sequence[Record], label: Cells, asked: Request) -> str | None:
    """The level to compare against, or None where there is nothing to compare yet."""
    levels = list(dict.fromkeys(label.level(record) for record in records))
    if asked.against is None:
        return pick_baseline(levels, None) if len(levels) > 1 else None
    base = baseline_level(records, label, asked.against)
    if asked.named and base not in levels and levels:
        raise StudyError(unknown_name("level", base, levels))
    # A baseline that the study declares and that has not run yet stays the baseline: the words will say so.
    return base if len({*levels, base}) > 1 and levels else None


def _family(scene: Scene, metric: str, used: Sequence[Record]) -> list[Contest]:
    """Every level against the baseline, within equal settings of all other factors: one family."""
    if scene.against is None:
        return []
    levels: dict[str, dict[str, None]] = {}  # a dict as a set that keeps the order
    here: dict[str, list[Record]] = {}
    for record in scene.records:
        levels.setdefault(scene.label.surroundings(record), {})[scene.label.label(record)] = None
    for record in used:
        here.setdefault(scene.label.surroundings(record), []).append(record)
    family: list[Contest] = []
    for around, names in levels.items():
        figures = measurements(here.get(around, []), scene.label, metric)
        family += contests(figures, join(scene.against, around), levels=list(names))
    # A study runs one cell twice; what that shows of the noise holds for the cells that were not.
    known = max((each.floor for each in family if each.floor is not None), default=None)
    return [each if each.floor is not None else replace(each, floor=known) for each in family]


def _differences(scene: Scene, found: Comparison) -> list[Difference]:
    ours, theirs = _sides(scene, found)
    return differences(ours, theirs, level=found.level, against=found.against, by=scene.label.by)


def _tainted(scene: Scene, found: Comparison, differing: Sequence[Difference]) -> Comparison:
    ours, theirs = _sides(scene, found)
    words = [*taints(differing), *mixed_populations(found.level, ours), *mixed_populations(found.against, theirs)]
    if not scene.label.by.startswith("workload"):  # another workload is another computation by intent
        words += other_computation(ours, theirs, level=found.level, against=found.against)
    return replace(found, tainted=tuple(words))


def _sides(scene: Scene, found: Comparison) -> tuple[list[Record], list[Record]]:
    """The records behind a comparison; a twin only makes the noise floor, and speaks for neither side."""
    labels = [(scene.label.label(record), record) for record in scene.trials.used if not record.twin]
    ours = [record for label, record in labels if label == found.level]
    return ours, [record for label, record in labels if label == found.against]


def _blamed(scene: Scene, judged: Sequence[Comparison]) -> list[str]:
    """For each difference that is there, the part of a step that holds most of it."""
    found = [where_it_lies(each, *_sides(scene, each)) for each in judged]
    return [sentence for sentence in found if sentence is not None]


def _beside(scene: Scene) -> tuple[tuple[Comparison, ...], list[str]]:
    """The other metrics, each a family of its own; one that is zero somewhere cannot be a ratio, and is said."""
    made: list[Comparison] = []
    skipped = []
    for metric in BESIDE:
        having = [record for record in scene.trials.used if metric in record.metrics]
        if metric == scene.metric or not having:
            continue
        used = [record for record in having if why_not(record, metric) is None]
        if len(used) < len(having):
            skipped.append(sentences.not_a_ratio(metric, len(having) - len(used)))
            continue
        family = [each for each in _family(scene, metric, used) if each.ours and each.theirs]
        made += judge(family, margin=scene.asked.margin, metric=metric, alpha=scene.asked.alpha, resamples=0)
    return tuple(made), skipped


def _not_measured(study: Mapping[str, Any]) -> list[str]:
    """What the device could not run, as the study said before it began."""
    return [f"not measured here: {sentence}" for sentence in study.get("left_out", ())]


def _notes(scene: Scene, values: Sequence[Measurement]) -> list[str]:
    """Whatever there is to know about the run as a whole."""
    notes = [sentences.LOOKING] if scene.asked.until is not None and scene.against is not None else []
    if scene.against is None and scene.records:
        notes.append(sentences.one_level(scene.label.by, scene.label.level(scene.records[0])))
    elif scene.asked.against is None and scene.against is not None:
        notes.append(sentences.baseline_chosen(scene.against))
    if suspects := sum(record.state == "suspect" for record in scene.trials.used):
        notes.append(sentences.suspects_kept(suspects))
    if scene.trials.repeated:
        notes.append(sentences.run_again(scene.trials.repeated))
    levels: dict[str, list[Record]] = {}
    for record in scene.trials.used:
        levels.setdefault(scene.label.label(record), []).append(record)
    notes += throttled(levels)
    for level, records in levels.items():
        notes += not_deterministic(level, records)
        if scene.against is None:  # else it taints the comparison itself
            notes += mixed_populations(level, records)
    found = [stall_parts(scene.trials.used), malloc_lottery(scene.records), drift(values)]
    return [*notes, *(note for note in found if note), *loud_levels(values)]


def _stop_rule(scene: Scene, comparisons: Sequence[Comparison]) -> tuple[list[str], bool]:
    asked = scene.asked
    looked_at = asked.declared and scene.metric == (asked.its_metric or pick_metric(scene.records, None))
    if asked.until is None or not looked_at or not comparisons:
        return [], False
    met = reached(comparisons, until=asked.until, floor=max(FLOOR, asked.least_blocks or 0))
    return [sentences.stop_rule(asked.until, asked.most_blocks, max(each.n for each in comparisons), met)], met


def _counts(states: Mapping[str, State], stopped: bool) -> dict[str, int]:
    """How much of the plan is there; what a stop rule that was met left undone is not missing."""
    done: Counter[str] = Counter(state for state in states.values() if state != "planned")
    return {"planned": sum(done.values()) if stopped else len(states), **done}


def _study_name(study: Mapping[str, Any], records: Sequence[Record]) -> str:
    return str(study.get("study") or (records[0].study if records else ""))


def _table_outliers(values: Sequence[Measurement], metric: str) -> list[Left]:
    levels: dict[str, list[Measurement]] = {}
    for m in values:
        levels.setdefault(m.level, []).append(m)
    why = sentences.stands_out(metric)
    return [
        Left(trials[place].trial, level, _block_number(trials[place]), USABLE[0], (why,))
        for level, trials in levels.items()
        for place in outliers([m.value for m in trials])
    ]


def _block_number(m: Measurement) -> int:
    return int(m.block) if m.block is not None and m.block.isdecimal() else 0


def _table_medians(values: Sequence[Measurement], metric: str) -> dict[str, Mapping[str, Estimate]]:
    levels: dict[str, list[float]] = {}
    for m in values:
        levels.setdefault(m.level, []).append(m.value)
    return {level: {metric: median_estimate(figures)} for level, figures in levels.items()}
