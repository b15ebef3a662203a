"""What a store, or a user's own table, says: every comparison with what supports it and what there is to doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from tare.analysis import sentences
from tare.analysis.cells import Cells
from tare.analysis.compare import Contest, compare, contests, judge, pick_baseline
from tare.analysis.contrast import contrasts, of_processors, tested_family
from tare.analysis.hidden import doubts, dropped_notes, interactions, withhold
from tare.analysis.model import Comparison, Difference, Measurement, Weighing
from tare.analysis.noise import LOOKING_ALPHA, drift, loud_levels, malloc_lottery, reached, throttled
from tare.analysis.numeric.medians import FLOOR
from tare.analysis.observations import records_of
from tare.analysis.outside import JUDGED, held_to_it
from tare.analysis.parity import (
    differences,
    in_memory,
    mixed_populations,
    not_deterministic,
    other_computation,
    other_rounding,
    other_tokens,
    taints,
)
from tare.analysis.questions.forms import headline
from tare.analysis.questions.step_parts import stall_parts, where_it_lies
from tare.analysis.questions.titles import question
from tare.analysis.resources.bottlenecks import RATE, by_goal, goal_sentence, has_goal, knee_sentences
from tare.analysis.selection import (
    DEFAULT_MARGIN,
    GOAL_RATE,
    RUN,
    Request,
    Selection,
    level_medians,
    level_phases,
    marked_outliers,
    measurements,
    never_ran,
    pick_metric,
    request,
    select,
    why_not,
)
from tare.analysis.table_doubts import with_doubts
from tare.analysis.tables.table import (
    JOINED,
    Table,
    joined,
    label_column,
    read_table,
    rows_to_compare,
    run_order,
    with_error_rates,
    with_joined,
)
from tare.analysis.work import Work, like_rows, like_work
from tare.base.declare import Group
from tare.base.errors import StudyError
from tare.base.rulings import read_rulings
from tare.records.model import TYPE, Record, State

UNMARKED = frozenset(
    f"script.{why}"
    for why in ("marking-failed", "no-loop", "no-python", "no-torch", "no-backward", "grad-only", "other-thread",
                "few-calls", "runs-ahead")
)  # fmt: skip


class RecordSource(Protocol):
    """The part of a store that a weighing reads."""

    @property
    def study(self) -> Mapping[str, Any]: ...

    def records(self) -> list[Record]: ...
    def rehearsals(self) -> list[Record]: ...
    def states(self) -> dict[str, State]: ...


def weigh(
    store: RecordSource,
    *,
    by: str | None = None,
    against: str | None = None,
    margin: float | None = None,
    metric: str | None = None,
    rises: bool | None = None,
) -> Weighing:
    """Everything that a report says about a store; what the caller leaves open the study decides."""
    records = records_of(store)
    asked = request(store.study, records, by=by, against=against, margin=margin, metric=metric, rises=rises)
    of = contrasts(_judged(records, asked), asked)
    selected, work = of.selected, of.work
    judged = withhold(selected, of.headline)
    doubted = doubts(selected, judged)
    judged = tuple(replace(each, notes=(*each.notes, *doubted.unlike.get(each.level, ()))) for each in judged)
    judged, further = held_to_it(selected, judged, of.further, of.refused)
    found = {(each.level, each.against): _differences(selected, each) for each in judged}
    comparisons = tuple(work.on(_tainted(selected, each, found[each.level, each.against])) for each in judged)
    used, values = selected.used, selected.measurements()
    unshown = {selected.metric, *(each.metric for each in further), *(JUDGED if of.refused else ())}
    others, skipped = _beside(selected, work, unshown)
    stop_note, met = _stop_rule(selected, comparisons)
    weighing = Weighing(
        study=_study_name(store.study, selected.attempts),
        question=question(
            [each for each in selected.levels if each != selected.against],
            selected.against or "",
            selected.label.by,
            used,
        ),
        by=selected.label.by,
        against=selected.against or "",
        metric=selected.metric,
        comparisons=comparisons,
        tested=further,
        interactions=() if work.refused else interactions(selected),
        others=others,
        differences=tuple(dict.fromkeys(each for several in found.values() for each in several)),
        left_out=selected.left_out,
        outliers=tuple(marked_outliers(used, selected.label, selected.metric)),
        marked=doubted.marked,
        notes=(
            *_blamed(selected, judged),
            *doubted.notes,
            *_notes(selected, values, comparisons),
            *_of_scripts(selected, found.values()),
            *skipped,
            *stop_note,
            *_not_measured(store.study),
        ),
        never_ran=tuple(never_ran(records, store.rehearsals())),
        counts=_counts(store.states(), met),
        measurements=tuple(values),
        medians=level_medians(used, selected.label),
        phases=level_phases(used, selected.label),
        facts=next((dict(record.facts["device"]) for record in selected.attempts if record.facts.get("device")), {}),
        unit=selected.unit,
        knees=goal_sentence(records) if selected.metric == GOAL_RATE else knee_sentences(selected.attempts),
    )
    return replace(weighing, headline=headline(asked, records, selected, weighing))


def weigh_table(
    path: Path | str | Table,
    *,
    by: str,
    value: str,
    block: str | None = None,
    against: str | None = None,
    margin: float | None = None,
    rises: bool | None = None,
    order: str | None = None,
    within: str | None = None,
) -> Weighing:
    """The same of a table of the user's own, which has neither facts nor other metrics.

    `within` names a column of things that are not compared with each other: the levels are, for each of them.
    """
    name = path.path if isinstance(path, Table) else Path(path)
    column = by
    if within is not None:
        path, column = with_joined(read_table(path), within, by), JOINED
    rows, label, asked = rows_to_compare(path, column, value, block), Cells(column), value
    if rises is not False:
        rows, value = with_error_rates(rows, value)
        rises = rises if value == asked else None
    by_errors, columns = value != asked, read_table(path).columns
    rows, value, work = like_rows(rows, columns, column, value)
    values = measurements(rows, label, value)
    places = run_order(path, order)
    values = [replace(each, place=at) for each, at in zip(values, places, strict=True)] if places else values
    try:
        allowed = DEFAULT_MARGIN if margin is None else margin
        if within is None:
            found = compare(values, against=against, margin=allowed, metric=value, rises=rises)
            base, named = found[0].against, [each.level for each in found]
        else:
            base, family = _family_within(values, read_table(path), within, by, against)
            found = judge(family, margin=allowed, metric=value, rises=rises)
            named = [level for level in dict.fromkeys(label_column(read_table(path), by)) if level != base]
        found = [work.on(with_doubts(each, values, columns)) for each in found]
    except StudyError as error:
        raise StudyError(f"{name}, column {by!r}: {error}") from None
    drifted = drift(values)
    return Weighing(
        study=name.name,
        question=question(named, base, by, []),
        by=by,
        against=base,
        metric=value,
        comparisons=tuple(found),
        outliers=tuple(marked_outliers(rows, label, value)),
        notes=(
            *([sentences.by_error_rate(asked)] if by_errors else []),
            *loud_levels(values),
            *([drifted] if drifted else []),
        ),
        counts={"planned": len(values), "ok": len(values)},
        measurements=tuple(values),
        medians=level_medians(rows, label),
    )


def _family_within(
    values: Sequence[Measurement], table: Table, within: str, by: str, against: str | None
) -> tuple[str, list[Contest]]:
    """The baseline, and every level against it for each value of `within`; one that lacks either side is left out."""
    levels, groups = label_column(table, by), label_column(table, within)
    base = pick_baseline(list(dict.fromkeys(levels)), against)
    notes = () if against is not None else (sentences.baseline_chosen(base),)
    family: list[Contest] = []
    for group in dict.fromkeys(groups):
        its = [value for value, other in zip(values, groups, strict=True) if other == group]
        if (theirs := joined(group, base)) in {value.level for value in its}:
            family += contests(its, theirs, notes)
    if not family:
        raise StudyError(f"There is nothing to compare: no {within} has a run both of {base!r} and of another level.")
    return base, family


def is_enough(store: RecordSource, *, until: float, floor: int = FLOOR) -> bool:
    """The stop rule on a store, as the runner asks it after each block."""
    records = records_of(store)
    asked = request(store.study, records)
    selected, work = like_work(select(_judged(records, asked), asked))
    family = tested_family(selected, work)
    if not all(each.ours and each.theirs for each in family):
        return False
    judged = judge(family, margin=selected.request.margin, metric=selected.metric, alpha=LOOKING_ALPHA, resamples=0)
    headline = [each for each in judged if each.metric == selected.metric]
    return reached(headline, until=until, floor=max(floor, FLOOR))


def _judged(records: Sequence[Record], asked: Request) -> Sequence[Record]:
    """The trials; of a server with a goal at several rates each side of a block as one, unless another is named."""
    return by_goal(records) if has_goal(records) and asked.metric in (None, GOAL_RATE) and asked.by != RATE else records


def _differences(selected: Selection, found: Comparison) -> list[Difference]:
    ours, theirs = selected.sides(found.level, found.against)
    return differences(ours, theirs, level=found.level, against=found.against, by=selected.label.by)


def _tainted(selected: Selection, found: Comparison, differing: Sequence[Difference]) -> Comparison:
    ours, theirs = selected.sides(found.level, found.against)
    words = [*taints(differing), *mixed_populations(found.level, ours), *mixed_populations(found.against, theirs)]
    notes = other_tokens(ours, theirs, level=found.level, against=found.against)
    if not selected.label.by.startswith("workload"):  # another workload is another computation by intent
        words += other_computation(ours, theirs, level=found.level, against=found.against)
        notes += other_rounding(ours, theirs, level=found.level, against=found.against)
    return replace(found, tainted=tuple(words), notes=(*found.notes, *notes))


def _blamed(selected: Selection, judged: Sequence[Comparison]) -> list[str]:
    """For each difference that is there, the part of a step that holds most of it."""
    found = [where_it_lies(each, *selected.sides(each.level, each.against)) for each in judged]
    return [sentence for sentence in found if sentence is not None]


def _beside(selected: Selection, work: Work, tested: Collection[str]) -> tuple[tuple[Comparison, ...], list[str]]:
    """The other metrics, each a family of its own; one that is zero somewhere cannot be a ratio, and is said."""
    made: list[Comparison] = []
    skipped = []
    for metric in Group.BESIDE.metrics:
        having = [record for record in selected.used if metric in record.metrics]
        if metric in {selected.metric, *tested} or not having or work.hides(metric):
            continue
        used = [record for record in having if not why_not(record, metric)]
        if zeros := sum(record.metrics[metric] == 0 for record in having):
            skipped.append(sentences.not_a_ratio(metric, zeros))
        if len(used) < len(having):  # of others it is said where the trials are listed: times next to a tracer, say
            continue
        family = [each for each in selected.family(metric, used) if each.ours and each.theirs]
        made += judge(family, margin=selected.request.margin, metric=metric, alpha=selected.request.alpha, resamples=0)
    return tuple(made), skipped


def _of_scripts(selected: Selection, found: Iterable[Sequence[Difference]]) -> list[str]:
    """What a user's own program may trip over; of ours it is known that they do not."""
    if not any(record.settings.get("workload") == "command" for record in selected.used):
        return []
    return list(dict.fromkeys(sentence for several in found for sentence in in_memory(several)))


def _not_measured(study: Mapping[str, Any]) -> list[str]:
    """What the device could not run, as the study said before it began."""
    return [f"not measured here: {obstacle}" for obstacle in read_rulings(study.get("left_out", ()), "obstacle")]


def _why_whole(selected: Selection) -> list[str]:
    """Why a command has no steps, where its whole run is judged: each reason once."""
    if selected.metric != RUN:
        return []
    found = {note.code: note.sentence for record in selected.used for note in record.notes if note.code in UNMARKED}
    return list(found.values())


def _as_root(levels: Mapping[str, Sequence[Record]]) -> list[str]:
    """Which levels ran as root in a container, in one sentence."""
    codes = {level: {note.code for record in records for note in record.notes} for level, records in levels.items()}
    rooted = [level for level, found in codes.items() if "container.root" in found]
    return [sentences.ran_as_root(rooted)] if rooted else []


def _notes(selected: Selection, values: Sequence[Measurement], judged: Sequence[Comparison]) -> list[str]:
    """Whatever there is to know about the run as a whole."""
    notes = [sentences.LOOKING] if selected.request.until is not None and selected.against is not None else []
    if selected.request.seen and selected.against is not None:
        notes.append(sentences.added(selected.request.seen, selected.request.alpha))
    if selected.against is None and selected.attempts:
        notes.append(sentences.no_baseline(selected.label.by, selected.levels))
    elif selected.request.against is None and selected.against is not None:
        notes.append(str(sentences.baseline_chosen(selected.against)))
    if selected.repeated:
        notes.append(sentences.run_again(selected.repeated))
    notes += dropped_notes(selected)
    levels = selected.by_label()
    if not any(each.code == "compare.throttled" for found in judged for each in found.withheld):
        notes += throttled(levels)  # on all sides alike
    for level, records in levels.items():
        notes += not_deterministic(level, records)
        if selected.against is None:  # else it taints the comparison itself
            notes += mixed_populations(level, records)
    notes += _why_whole(selected)
    notes += _as_root(levels)
    hidden = [each.level for each in judged if (each.more_trials or 0) > sentences.MANY_BLOCKS]
    if hidden:
        notes.append(sentences.noisy(hidden if len(hidden) < len(judged) else ()))
    notes += sentences.in_turns([each.facts for each in selected.used])
    if of_processors(selected):
        notes.append(sentences.CPU_TIME)
    found = [stall_parts(selected.used), malloc_lottery(selected.attempts), drift(values)]
    return [*notes, *(note for note in found if note), *loud_levels(values)]


def _stop_rule(selected: Selection, comparisons: Sequence[Comparison]) -> tuple[list[str], bool]:
    asked = selected.request
    usual = asked.metric in (None, asked.its_metric or pick_metric(selected.attempts, None))
    looked_at = asked.declared and usual
    if asked.until is None or not looked_at or not comparisons:
        return [], False
    met = reached(comparisons, until=asked.until, floor=max(FLOOR, asked.least_blocks or 0))
    used = max(each.n for each in comparisons)
    run = (
        used if selected.label.by == TYPE else len({record.block for record in selected.attempts})
    )  # n is of devices there
    return [sentences.stop_rule(asked.until, asked.most_blocks, used, run, met)], met


def _counts(states: Mapping[str, State], stopped: bool) -> dict[str, int]:
    """How much of the plan is there; what a stop rule that was met left undone is not missing."""
    done: Counter[str] = Counter(state for state in states.values() if state != "planned")
    return {"planned": sum(done.values()) if stopped else len(states), **done}


def _study_name(study: Mapping[str, Any], records: Sequence[Record]) -> str:
    return str(study.get("study") or (records[0].study if records else ""))
