"""The anatomy of every pipeline of a source, as one answer.

What binds an input pipeline, how many workers hide the stall, and how slow a medium may be.

model      what is said, as values
parts      rows in, the trials of each pipeline out, by number of workers
hiding     whether the stall is hidden, in the four words of a comparison; measured and predicted
binding    disk, CPU or GPU: by what a warm cache and a faster medium take off the fetch
study      all of it, as one answer
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from tare.analysis.cells import CACHE, COLD, EMULATED
from tare.analysis.choose.columns import Column as SourceColumn
from tare.analysis.choose.columns import column_for, need_column
from tare.analysis.choose.configurations import setting_text
from tare.analysis.compare import Contest, judge
from tare.analysis.labels import make_labels, setting_words, text
from tare.analysis.model import Comparison, Estimate, Measurement, Word
from tare.analysis.numeric.medians import FLOOR, Floats, median_estimate
from tare.analysis.observations import Setting, columns_of, observations
from tare.analysis.resources.bottlenecks import ADVICE
from tare.analysis.resources.bottlenecks import binds as gpu_binds
from tare.analysis.sections import Answer, Cell, Column, Note, Section, Sentence, Shown, Table, anchor
from tare.base.declare import Group, Role
from tare.base.errors import StudyError
from tare.base.text import count_text, share_text
from tare.records.model import EPOCH_COUNT, TrialRow, grouped
from tare.records.schema import is_store
from tare.records.store import Store

STALL_SHARE = "stall_share"

# "input": disk or CPU, which cannot be told apart here; "compute": what the GPU did meanwhile is not known.
Binds: TypeAlias = Literal["disk", "cpu", "input", "compute", "gpu", "copy", "launch", "sync"]

HIDDEN: Mapping[Word, str] = {  # the step with its stall, against the step without it
    "equivalent": "hidden",
    "slower": "not hidden",
    "faster": "hidden",
    "cannot_tell": "cannot tell",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A pipeline at one number of workers."""

    workers: float
    n: int
    step_s: Estimate
    stall_s: Estimate
    rest_s: Estimate  # of the step without its stall: what the workers can hide behind
    stall_share: Estimate  # of the step
    predicted_stall_s: float | None  # from the fetch without workers; None where that was not measured
    hidden: str  # "hidden", "not hidden" or "cannot tell"
    by_median: bool  # whether the median stall is below the share
    shares: Mapping[str, float]  # compute, copy, overhead: of the step, where they are measured
    binds: Binds


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One medium and state of the cache, in otherwise equal settings."""

    cell: str  # what else is fixed
    medium: str | None
    cache: str | None
    parts: tuple[Part, ...]  # by rising number of workers
    fetch_s: Estimate | None  # fetch and pre-process of a step, without workers
    disk_s: float | None  # of it, what a warm cache or the fastest medium takes off
    disk_at_least: bool  # the disk's part may be larger: no warm cache was measured
    workers_predicted: Estimate | None
    workers_measured: float | None  # the fewest that surely hide the stall
    workers_by_median: float | None  # the fewest whose median does


@dataclass(frozen=True, slots=True)
class Media:
    """The slowest medium that still hides the stall, at a number of workers."""

    cell: str
    cache: str | None
    workers: float
    slowest_predicted: str | None
    slowest_measured: str | None  # surely
    slowest_by_median: str | None


@dataclass(frozen=True, slots=True)
class Anatomy:
    """All pipelines of a source."""

    share: float  # a stall below this share of the step counts as hidden
    pipelines: tuple[Pipeline, ...]
    media: tuple[Media, ...]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


# What a factor is usually called: the setting's whole name in our own stores, else the last part of it.
FACTORS: Mapping[str, tuple[str, ...]] = {
    "workers": ("workers", "num_workers", "loader_workers"),
    "storage": (EMULATED, "control.storage.path", "storage", "medium", "media", "disk"),
    "cache": (CACHE, "cache", "page_cache"),
}
_MEMORY = "platform.memory"
_DECIDE_CACHE = (CACHE, EPOCH_COUNT, _MEMORY)  # whether the measured epochs find the data in memory
KEPT = "warm after epoch 0"  # `cold` of our own stores: epoch 0, which is kept apart, has filled the cache
OPTIONAL = {
    "compute": "compute", "copy": Role.COPY.metric, "overhead": Role.OVERHEAD.metric,
    **{name: name for name in Group.GPU_TIME.metrics},
}  # fmt: skip
SIGNED = ("overhead",)  # a difference: it may lie a little below zero


@dataclass(frozen=True)
class PipelineTrials:
    """The trials of one pipeline, by number of workers."""

    cell: str
    medium: str | None
    cache: str | None
    trials: Mapping[float, Sequence[TrialRow]]

    def values(self, workers: float, figure: str) -> Floats:
        return np.array([trial.metrics[figure] for trial in self.trials[workers]])

    def rest(self, workers: float) -> Floats:
        """The step without its stall."""
        return self.values(workers, "step") - self.values(workers, "stall")


def pipeline_rows(
    source: Path, *, settings: Sequence[str] | None, columns: Mapping[str, str], factors: Mapping[str, str]
) -> list[TrialRow]:
    """Rows with step, stall and, where they are there, compute, copy and overhead, in seconds.

    Their settings are called workers, storage and cache, whatever the source calls them; the others keep their names.
    """
    known = columns_of(source)
    if is_store(source) and "stall" not in columns and column_for("stall", known) is None:
        raise StudyError(f"{source}: no trial has a fetch stall: none has a data loader that was timed.")
    figures = {
        "step": need_column(columns.get("step", "time"), known, "`--columns step=COLUMN`", source),
        "stall": need_column(columns.get("stall", "stall"), known, "`--columns stall=COLUMN`", source),
    }
    for word, usual in OPTIONAL.items():
        if (found := column_for(columns.get(word, usual), known)) is not None:
            figures[word] = found
    asked = settings if is_store(source) else _table_settings(known, settings, factors)
    signed = [column.name for word, column in figures.items() if word in SIGNED]
    names = list(dict.fromkeys(column.name for column in figures.values()))
    loader = {factors["workers"].rpartition(".")[2]} if "workers" in factors else set(FACTORS["workers"])
    fixed = loader | {name.rpartition(".")[2] for name in _DECIDE_CACHE}
    rows = observations(source, settings=asked, values=names, signed=signed, fixed=fixed)
    alike = [name for name in _DECIDE_CACHE if len({row.settings.get(name) for row in rows}) == 1 and name != CACHE]
    return [_renamed(row, figures, factors, alike) for row in rows if _whole(row, figures)]


def groups(rows: Sequence[TrialRow], source: Path | str) -> list[PipelineTrials]:
    """The pipelines that the rows hold, in the order in which they appear."""
    if not any("workers" in row.settings for row in rows):
        raise StudyError(f"{source}: no setting is called workers; `--columns workers=COLUMN` names the loader's.")
    for row in rows:
        workers = row.settings.get("workers")
        if not isinstance(workers, float) or workers < 0:
            raise StudyError(f"{source}, {row.trial}: {workers!r} is not a number of workers.")
        if row.metrics["stall"] >= row.metrics["step"]:
            raise StudyError(f"{source}, {row.trial}: its stall is not below its step, of which it is a part.")
    names = dict.fromkeys(name for row in rows for name in row.settings if name not in FACTORS)
    labels = make_labels([_known(row) for row in rows], list(names))

    def pipeline_of(row: TrialRow) -> tuple[str, str | None, str | None]:
        """Everything but the number of workers: the rest of the settings, the medium, and the state of the cache."""
        rest = str(labels.words(_known(row))) if names else ""
        return rest, _told(row.settings.get("storage")), _told(row.settings.get("cache"))

    found = sorted(grouped(rows, pipeline_of).items(), key=lambda each: tuple(part or "" for part in each[0]))
    return [
        PipelineTrials(*key, dict(sorted(grouped(its, lambda row: float(row.settings["workers"])).items())))
        for key, its in found
    ]


def _known(row: TrialRow) -> dict[str, Setting]:
    """Its settings without those that were left alone."""
    return {name: value for name, value in row.settings.items() if value != text(None)}


def _table_settings(known: Sequence[str], settings: Sequence[str] | None, factors: Mapping[str, str]) -> list[str]:
    """Of a table: the loader's own columns, and those that the caller names beside them."""
    own = [
        factors.get(word) or next((name for name in usual if name in known), None) for word, usual in FACTORS.items()
    ]
    return list(dict.fromkeys([*(name for name in own if name is not None), *(settings or ())]))


def _whole(row: TrialRow, figures: Mapping[str, SourceColumn]) -> bool:
    return figures["step"].name in row.metrics and figures["stall"].name in row.metrics


def _renamed(
    row: TrialRow, figures: Mapping[str, SourceColumn], factors: Mapping[str, str], alike: Sequence[str]
) -> TrialRow:
    values = {
        word: row.metrics[column.name] * column.factor for word, column in figures.items() if column.name in row.metrics
    }
    settings = {_word(name, factors): each for name, each in row.settings.items() if name not in alike}
    if row.settings.get(CACHE) == COLD and _rereads(row):
        settings["cache"] = KEPT
    return replace(row, settings=settings, metrics=values)


def _rereads(row: TrialRow) -> bool:
    """Whether measured epochs find in memory what epoch 0 has read: there are several, and memory is not limited."""
    epochs, memory = row.settings.get(EPOCH_COUNT), row.settings.get(_MEMORY)
    return (epochs is None or float(epochs) > 1) and memory in (None, text(None))


def _word(name: str, factors: Mapping[str, str]) -> str:
    """`workers` for `workload.workers`."""
    for word, usual in FACTORS.items():
        if name == factors.get(word) or (word not in factors and (name in usual or name.rpartition(".")[2] in usual)):
            return word
    return name


def _told(value: Setting | None) -> str | None:
    return None if value is None else setting_text(value)


WARM = ("warm", "cached", "hot", "synthetic", KEPT)


def fetch_s(group: PipelineTrials) -> float | None:
    """Fetch and pre-process of a step: what it waits for when nothing fetches beside it."""
    return float(np.median(group.values(0.0, "stall"))) if 0.0 in group.trials else None


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk's part of a fetch."""

    seconds: float
    at_least: bool  # measured against a faster medium, which has a part of its own


def disk_part(group: PipelineTrials, all_of_them: Sequence[PipelineTrials]) -> Disk | None:
    """What a warm cache, or else the fastest medium, takes off the fetch; None where neither was measured."""
    ours = fetch_s(group)
    if ours is None:
        return None
    if _is_warm(group):
        return Disk(0.0, at_least=False)
    peers = [other for other in all_of_them if other.cell == group.cell and other is not group]
    warm = _fetches([other for other in peers if other.medium == group.medium and _is_warm(other)])
    if warm:
        return Disk(max(0.0, ours - min(warm)), at_least=False)
    faster = [found for found in _fetches([each for each in peers if each.cache == group.cache]) if found < ours]
    return Disk(ours - min(faster), at_least=True) if faster else None


def binds(hidden: bool, fetch: float | None, disk: Disk | None) -> Binds:
    """The computation where the stall is hidden, else the larger part of what is waited for, where that is known."""
    if hidden:
        return "compute"
    if fetch is None or disk is None:
        return "input"
    if disk.seconds > fetch - disk.seconds:
        return "disk"
    return "input" if disk.at_least else "cpu"


def _is_warm(group: PipelineTrials) -> bool:
    return (group.cache or "").lower() in WARM


def _fetches(found: Sequence[PipelineTrials]) -> list[float]:
    return [fetch for each in found if (fetch := fetch_s(each)) is not None]


RESAMPLES = 1_999
_SEED = 20_240_229


def hidden_words(group: PipelineTrials, share: float) -> dict[float, str]:
    """Workers -> hidden, not hidden or cannot tell; all numbers of workers are one family."""
    return {float(each.level): HIDDEN[each.verdict] for each in _compared(group, share)}


def _compared(group: PipelineTrials, share: float) -> list[Comparison]:
    """Each trial's step with its stall, against the same step without it: equivalent within the share is hidden."""
    family = []
    for workers, trials in group.trials.items():
        level, bare = f"{workers:g}", f"{workers:g}, without its stall"
        ours = [Measurement(level, row.metrics["step"], row.trial, trial=row.trial) for row in trials]
        theirs = [
            Measurement(bare, row.metrics["step"] - row.metrics["stall"], row.trial, trial=row.trial) for row in trials
        ]
        family.append(Contest(level, bare, ours, theirs))
    # A stall of `share` of the step is share / (1 - share) of the step without it.
    return judge(family, margin=share / (1 - share), metric=Role.STEP_MEDIAN.metric, resamples=0)


def predicted_stall(fetch_s: float, rest_s: float, workers: float) -> float:
    """Workers fetch side by side, behind the rest of the step; without workers the step waits for all of it."""
    return fetch_s if workers == 0 else max(0.0, fetch_s / workers - rest_s)


def predicted_workers(fetch_s: float, rest_s: float, share: float) -> int:
    """The fewest whose predicted stall is below this share of the step; none where the fetch itself is."""
    if fetch_s <= share * (fetch_s + rest_s):
        return 0
    return max(1, math.ceil(fetch_s * (1 - share) / rest_s - 1e-9))


def workers_estimate(group: PipelineTrials, share: float) -> Estimate | None:
    """The predicted number of workers, with the percentiles of it when trials are drawn again."""
    if 0.0 not in group.trials:
        return None
    fetch, rest = group.values(0.0, "stall"), rest_of(group)
    value = predicted_workers(float(np.median(fetch)), float(np.median(rest)), share)
    n = min(len(fetch), len(rest))
    if n < FLOOR:
        return Estimate(
            value, None, None, n, f"fetch over the rest of the step; {n} trials are too few for an interval"
        )
    drawn = [predicted_workers(f, r, share) for f, r in zip(_medians(fetch, 1), _medians(rest, 2), strict=True)]
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    return Estimate(value, float(low), float(high), n, f"fetch over the rest of the step, bootstrap ({RESAMPLES})")


def rest_of(group: PipelineTrials) -> Floats:
    """The rest of the step while nothing fetches beside it; with workers it may grow, for want of cores."""
    return group.rest(0.0) if 0.0 in group.trials else group.rest(min(group.trials))


def _medians(values: Floats, seed: int) -> Sequence[float]:
    generator = np.random.default_rng(_SEED + seed)
    drawn: list[float] = np.median(
        values[generator.integers(0, len(values), (RESAMPLES, len(values)))], axis=1
    ).tolist()
    return drawn


HIDDEN_SHARE = 0.05
PARTS = ("compute", "copy", "overhead")


def anatomy(rows: Sequence[TrialRow], *, share: float = HIDDEN_SHARE, source: Path | str = "") -> Anatomy:
    """What binds each pipeline, and what hides its stall; a stall below `share` of the step is hidden."""
    found = groups(rows, source)
    pipelines = [_pipeline(group, found, share) for group in found]
    return Anatomy(share, tuple(pipelines), tuple(_media(found, pipelines, share)), tuple(_notes(found)))


def _pipeline(group: PipelineTrials, all_of_them: Sequence[PipelineTrials], share: float) -> Pipeline:
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


def _part(
    group: PipelineTrials, workers: float, word: str, share: float, fetch: float | None, disk: Disk | None
) -> Part:
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
        _binds(group, workers, binds(word == "hidden" or (word == "cannot tell" and by_median), fetch, disk)),
    )


def _binds(group: PipelineTrials, workers: float, found: Binds) -> Binds:
    """Where the stall is hidden and the GPU's activity is known: what the GPU itself waited for."""
    if found != "compute":
        return found
    known = [name for name in Group.GPU_TIME.metrics if all(name in trial.metrics for trial in group.trials[workers])]
    word = gpu_binds({name: float(np.median(group.values(workers, name))) for name in known})
    return found if word is None or word == "data" else word


def _shares(group: PipelineTrials, workers: float) -> dict[str, float]:
    """What else the step is made of, as shares of it."""
    return {
        name: float(np.median(group.values(workers, name) / group.values(workers, "step")))
        for name in PARTS
        if all(name in trial.metrics for trial in group.trials[workers])
    }


def _media(found: Sequence[PipelineTrials], pipelines: Sequence[Pipeline], share: float) -> list[Media]:
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
    cell: str, cache: str | None, workers: float, slow_first: Sequence[tuple[PipelineTrials, Pipeline]], share: float
) -> Media:
    def part_of(each: Pipeline) -> Part | None:
        return next((part for part in each.parts if part.workers == workers), None)

    known = [(group, each, part) for group, each in slow_first if (part := part_of(each)) is not None]
    predicted = next((each.medium for group, each, _ in known if _should_hide(group, workers, share)), None)
    measured = next((each.medium for _, each, part in known if part.hidden == "hidden"), None)
    by_median = next((each.medium for _, each, part in known if part.by_median), None)
    return Media(cell, cache, workers, predicted, measured, by_median)


def _should_hide(group: PipelineTrials, workers: float, share: float) -> bool:
    fetch = fetch_s(group)
    return fetch is not None and predicted_workers(fetch, float(np.median(rest_of(group))), share) <= workers


def _slowness(each: Pipeline) -> float:
    """A medium is slow by its fetch without workers, or else by its longest stall."""
    if each.fetch_s is not None:
        return each.fetch_s.value
    return max(part.stall_s.value for part in each.parts)


def _notes(found: Sequence[PipelineTrials]) -> list[str]:
    notes = []
    if any(0.0 not in group.trials for group in found):
        notes.append("Without trials at 0 workers the fetch is not known, so nothing is predicted: measure them.")
    if any(len(trials) < FLOOR for group in found for trials in group.trials.values()):
        notes.append(
            f"Fewer than {FLOOR} trials are too few to decide whether a stall is hidden; their medians are shown."
        )
    if len({group.cache for group in found}) < 2 and len({group.medium for group in found}) < 2:
        notes.append("Disk and CPU cannot be separated: vary the cache (cold, warm) or the medium to do so.")
    return notes


@dataclass(frozen=True, slots=True)
class Loader:
    """What binds each input pipeline, and how many workers hide its stall."""

    settings: Sequence[str] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, str] = field(default_factory=dict)
    share: float = HIDDEN_SHARE

    def answer(self, source: Path | Store) -> Answer[Anatomy]:
        path = source if isinstance(source, Path) else source.path
        rows = pipeline_rows(path, settings=self.settings, columns=self.columns, factors=self.factors)
        return anatomy_answer(anatomy(rows, share=self.share, source=path))


def anatomy_answer(found: Anatomy) -> Answer[Anatomy]:
    """A table for each pipeline, then the media, then what there is to doubt."""
    tables = (
        Section(anchor("pipeline", name), name, partial(_table, each, found.share))
        for each, name in ((each, pipeline_name(each)) for each in found.pipelines)
    )
    return Answer(
        sentence=_sentence(found),
        result=found,
        sections=(
            *tables,
            Section("pipeline-media", "Slowest medium that hides the stall", partial(_media_table, found.media)),
            Section("pipeline-notes", "", partial(Note, tuple((note,) for note in found.notes))),
        ),
    )


def pipeline_name(each: Pipeline) -> str:
    named = [each.cell, each.medium and f"on {each.medium}", each.cache and setting_words(CACHE, each.cache)]
    return ", ".join(filter(None, named)) or "the pipeline"


def _sentence(found: Anatomy) -> Sentence:
    """How many workers each pipeline takes."""
    told = [f"{_measured(each)} ({pipeline_name(each)})" for each in found.pipelines]
    if len(found.pipelines) == 1:
        told = [_measured(found.pipelines[0])]
    return (f"Fewest workers that hide the stall (below {share_text(found.share)} of the step): {'; '.join(told)}.",)


def _measured(each: Pipeline) -> str:
    if each.workers_measured is not None:
        return f"{each.workers_measured:g}"
    if each.workers_by_median is not None:
        return f"{each.workers_by_median:g} by the median, not surely"
    return f"none of {', '.join(f'{part.workers:g}' for part in each.parts)}"


BOUND: Mapping[Binds, str] = {
    "disk": "disk", "cpu": "CPU", "input": "input", "compute": "compute", "gpu": "GPU", "copy": "copies",
    "launch": "launches", "sync": "waiting calls",
}  # fmt: skip
_YES_NO = {"hidden": "yes", "not hidden": "no"}  # else the median alone speaks


def _table(each: Pipeline, share: float) -> Table:
    rows = tuple(_row(each, part) for part in each.parts)
    heads = ("workers", "trials", "step", "stall", "predicted", "of step", "hidden", "binds")
    # What to change where it is the GPU that something waits for, or that waits.
    binding = dict.fromkeys(part.binds for part in each.parts)
    advice = [(f"{BOUND[word]}: {ADVICE[word]}",) for word in binding if word in ADVICE]
    return Table(tuple(map(Column, heads)), rows, (_fetch(each), _predicted(each), *_failed(each, share), *advice))


def _row(each: Pipeline, part: Part) -> tuple[Cell, ...]:
    of = f"{pipeline_name(each)}, {part.workers:g} workers"
    stall = part.predicted_stall_s
    return (
        Shown("workers", part.workers, of),
        Shown("trials", float(part.n), of),
        Shown(Role.STEP_MEDIAN.metric, part.step_s, of),
        Shown(Role.STALL.metric, part.stall_s, of),
        None if stall is None else Shown(Role.STALL.metric, stall, f"{of}, predicted"),
        Shown(STALL_SHARE, part.stall_share, of),
        _YES_NO.get(part.hidden) or ("perhaps" if part.by_median else "perhaps not"),
        BOUND[part.binds],
    )


def _fetch(each: Pipeline) -> Sentence:
    if each.fetch_s is None:
        return ("Fetch and pre-process: not measured (no trial at 0 workers).",)
    of = f"{pipeline_name(each)}, fetch"
    told: Sentence = ("Fetch and pre-process of a step: ", Shown(Role.STALL.metric, each.fetch_s, of))
    if each.disk_s is None:
        return (*told, ".")
    least = "at least " if each.disk_at_least else ""
    return (*told, f", of which the disk takes {least}", Shown(Role.STALL.metric, each.disk_s, f"{of}, disk"), ".")


def _predicted(each: Pipeline) -> Sentence:
    if each.workers_predicted is None:
        return (f"Fewest workers that hide the stall: predicted is unknown; measured {_measured(each)}.",)
    workers = Shown("workers", each.workers_predicted, f"{pipeline_name(each)}, predicted")
    return ("Fewest workers that hide the stall: predicted ", workers, f"; measured {_measured(each)}.")


def _failed(each: Pipeline, share: float) -> Iterator[Sentence]:
    """Where the prediction fails."""
    for part in each.parts:
        hoped = part.predicted_stall_s is not None and part.predicted_stall_s < share * part.step_s.value
        if hoped and part.workers and part.hidden == "not hidden":
            of = f"{pipeline_name(each)}, {part.workers:g} workers"
            yield (
                f"The prediction fails with {count_text(int(part.workers), 'worker')}: ",
                Shown(Role.STALL.metric, part.stall_s, of),
                " are left. It leaves out what workers cost themselves, such as handing batches over.",
            )
            return


def _media_table(media: Sequence[Media]) -> Table:
    heads = ("pipeline", "workers", "predicted", "measured", "by the median")
    rows = tuple(
        (
            ", ".join(filter(None, (each.cell, each.cache and setting_words(CACHE, each.cache)))),
            Shown("workers", each.workers),
            each.slowest_predicted or "none",
            each.slowest_measured or "none",
            each.slowest_by_median or "none",
        )
        for each in media
    )
    return Table(tuple(map(Column, heads)), rows)


__all__ = ["Anatomy", "Loader", "Part", "Pipeline", "anatomy", "pipeline_rows"]
