"""What a store says: every comparison with what supports it and what there is to doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from tare.analysis import sentences
from tare.analysis.blame import where_it_lies
from tare.analysis.compare import judge
from tare.analysis.devices import TYPE
from tare.analysis.energy.baseload import records_of
from tare.analysis.model import Comparison, Difference, Measurement, Weighing
from tare.analysis.noise import drift, loud_levels, malloc_lottery, throttled
from tare.analysis.parity import differences, in_memory, taints
from tare.analysis.population import mixed_populations, not_deterministic, other_computation
from tare.analysis.question import question
from tare.analysis.request import request
from tare.analysis.scene import Scene, family_of, scene_of
from tare.analysis.stall_parts import stall_parts
from tare.analysis.stats import FLOOR
from tare.analysis.stopping import family_enough, reached
from tare.analysis.trials import (
    BESIDE,
    level_medians,
    level_phases,
    marked_outliers,
    measurements,
    pick_metric,
    why_not,
)
from tare.records.model import Record, State


class RecordSource(Protocol):
    """The part of a store that a weighing reads."""

    @property
    def study(self) -> Mapping[str, Any]: ...

    def records(self) -> list[Record]: ...
    def states(self) -> dict[str, State]: ...


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
    scene = scene_of(records, asked)
    family = family_of(scene, scene.metric, scene.trials.used)
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
        notes=(
            *_blamed(scene, judged),
            *_notes(scene, values),
            *_of_scripts(scene, found.values()),
            *skipped,
            *stop_note,
            *_not_measured(store.study),
        ),
        counts=_counts(store.states(), met),
        measurements=tuple(values),
        medians=level_medians(used, scene.label),
        phases=level_phases(used, scene.label),
        facts=next((dict(record.facts["device"]) for record in scene.records if record.facts.get("device")), {}),
    )


def is_enough(store: RecordSource, *, until: float, floor: int = FLOOR) -> bool:
    """The stop rule on a store, as the runner asks it after each block."""
    records = records_of(store)
    scene = scene_of(records, request(store.study, records))
    return family_enough(family_of(scene, scene.metric, scene.trials.used), until=until, floor=floor)


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
        family = [each for each in family_of(scene, metric, used) if each.ours and each.theirs]
        made += judge(family, margin=scene.asked.margin, metric=metric, alpha=scene.asked.alpha, resamples=0)
    return tuple(made), skipped


def _of_scripts(scene: Scene, found: Iterable[Sequence[Difference]]) -> list[str]:
    """What a user's own program may trip over; of ours it is known that they do not."""
    if not any(record.settings.get("workload") == "command" for record in scene.trials.used):
        return []
    return list(dict.fromkeys(sentence for several in found for sentence in in_memory(several)))


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
    used = max(each.n for each in comparisons)
    run = used if scene.label.by == TYPE else len({record.block for record in scene.records})  # n is of devices there
    return [sentences.stop_rule(asked.until, asked.most_blocks, used, run, met)], met


def _counts(states: Mapping[str, State], stopped: bool) -> dict[str, int]:
    """How much of the plan is there; what a stop rule that was met left undone is not missing."""
    done: Counter[str] = Counter(state for state in states.values() if state != "planned")
    return {"planned": sum(done.values()) if stopped else len(states), **done}


def _study_name(study: Mapping[str, Any], records: Sequence[Record]) -> str:
    return str(study.get("study") or (records[0].study if records else ""))
