"""Is the work of a step the same on both sides? Where it is not, time and energy are per sample, or not compared.

The one rule for `compare`, `recommend` and `front`: a step of 64 images is not slower than one of 16, it is more work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tare.analysis.directions import is_amount, words_of
from tare.analysis.labels import text
from tare.analysis.model import Comparison
from tare.analysis.observations import number
from tare.analysis.selection import Selection
from tare.base.declare import declared
from tare.base.errors import StudyError
from tare.base.rulings import Ruling
from tare.base.text import has_unit, metric_name
from tare.records.model import Record, TrialRow, grouped

# Settings of the work of a step, by the words of the last part of their name. How many samples a step has is known of
# the first three alone.
_WORKERS = "gpu|device|node|rank|worker|core|replica|process|tenant|host"
_KINDS = {  # compiled where they are first asked for
    "batch": rf"(\w+_)?(?<!per_)(?<!every_)((mini|micro|u)?batch(_?size)?|bs)(_per_({_WORKERS}))?"
    rf"|samples_per_({_WORKERS}|step|batch)",
    "accumulation": r"(\w+_)?(accumulate|accumulation|accum)(_(steps?|count|factor|(grad_)?batches))?"
    r"|(grad_)?acc_steps",
    "tenants": r"(\w+_)?tenants",
    "resolution": r"(\w+_)?(px|pixels|imgsz)|(\w+_)?(?<!timer_)(?<!clock_)(?<!time_)resolution"
    r"|((train|val|eval|test|max|min)_)?(image|img|input|crop|frame|resize)_?(size|res|width|height)",
    "sequence length": r"length|seqlen|block_size|(max_)?new_tokens|max_tokens"
    r"|((n|num|max|min)_)?(ctx|context)(_size|_window)?"
    r"|(\w+_)?(seq|sequence|ctx|context|prompt|input|output|model|source|target|max|min|text|block)_?(len|length)",
}
_SAMPLES = ("batch", "accumulation", "tenants")
_WHOLE = re.compile(r"global|total|effective")  # a batch of all devices and passes
MODELS = ("model", "network", "net", "arch", "architecture")  # columns and settings that say which work is done
_ONE_PER_STEP = re.compile(r"step|batch|iter|stall|compute|copy|forward|backward|optimi[sz]er|overhead", re.IGNORECASE)
_ONE_PER_SAMPLE = re.compile(r"sample|item|image|token|request|epoch|_per_|/", re.IGNORECASE)

UNLIKE_WORK = "compare.unlike-work"

Settings = Mapping[str, Any]
Columns = Mapping[str, Sequence[str | None]]  # of a table: name -> cells, row by row


def per_sample(metric: str) -> str | None:
    """What a figure of a step is called for one sample: as declared, else by its name; None where it is no amount."""
    if (known := declared(metric)) is not None and known.sample:
        return known.sample
    if not is_per_step(metric) or not is_amount(metric):
        return None
    name, _, unit = metric.rpartition("_")
    return f"{name}_sample_{unit}" if has_unit(metric) else f"{metric}_per_sample"


def is_per_step(metric: str) -> bool:
    """Whether a figure is of one step, whatever that step holds."""
    return bool(_ONE_PER_STEP.search(metric)) and not _ONE_PER_SAMPLE.search(metric)


def is_per_sample(metric: str) -> bool:
    """Whether a figure is of equal work by its name: of a sample, a token, an epoch."""
    return bool(_ONE_PER_SAMPLE.search(metric))


def unlike_work(several: Iterable[Settings]) -> dict[str, list[str]]:
    """Setting of the work of a step -> its values, where there is more than one; who else works beside is none."""
    values: dict[str, dict[str, None]] = {}
    for settings in several:
        for name, value in settings.items():
            if (kind := _kind(name)) and not (kind == "tenants" and isinstance(value, str) and not value.isdigit()):
                values.setdefault(name, {})[text(value)] = None
    return {name: list(found) for name, found in values.items() if len(found) > 1}


@lru_cache(maxsize=1 << 16)  # a wide table has as many names, asked for again in each row
def _kind(name: str) -> str | None:
    """Which setting of the work of a step it is, if any: `batch` of `workload.batch` and `train_batch_size`."""
    words = "_".join(words_of(name.rpartition(".")[2]))
    return next((kind for kind, pattern in _KINDS.items() if re.fullmatch(pattern, words)), None)


def is_counted(names: Iterable[str]) -> bool:
    """Whether the samples of a step follow from these settings: of a batch they do, of a resolution they do not."""
    return all(_kind(name) in _SAMPLES for name in names)


def samples_of(settings: Settings) -> float | None:
    """How many samples the device works on in a step: the batch, of all tenants together.

    None where that is not known: also of two settings that count the same samples.
    """
    found = {name: value for name, value in settings.items() if _kind(name) in _SAMPLES}
    kinds = [_kind(name) for name in found]
    if len(kinds) > len(set(kinds)) or (len(kinds) > 1 and any(map(_WHOLE.search, found))):
        return None
    product = 1.0
    for value in found.values():
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            return None
        product *= value
    return product if found else None


def with_per_sample(record: Record, metric: str, name: str) -> Record:
    """The trial with a figure of a step as one of a sample, under that name."""
    return replace(
        record, metrics={**record.metrics, name: record.metrics[metric] / (samples_of(record.settings) or 1.0)}
    )


def what_differs(unlike: Mapping[str, Sequence[str]]) -> str:
    """`workload.batch (16, 64)`."""
    return ", ".join(f"{name} ({', '.join(values[:4])})" for name, values in unlike.items())


def per_sample_note(metric: str, unlike: Mapping[str, Sequence[str]]) -> Ruling:
    sentence = f"the sides differ in the work of a step, {what_differs(unlike)}: {metric_name(metric)} is compared."
    return Ruling("compare.per-sample", "note", "", f"{sentence[:1].upper()}{sentence[1:]}")


def as_requested_note(metric: str, unlike: Mapping[str, Sequence[str]]) -> Ruling:
    sentence = (
        f"The sides differ in the work of a step, {what_differs(unlike)}, and {metric} is "
        f"{'of one step, as requested' if is_per_step(metric) else 'not known to be of equal work'}: more of it is "
        "more work as well."
    )
    return Ruling(UNLIKE_WORK, "note", "", sentence)


def refused_note(metric: str, unlike: Mapping[str, Sequence[str]]) -> Ruling:
    sentence = (
        f"Not compared: the sides differ in the work of a step, {what_differs(unlike)}, and {metric} is of one step. "
        "Compare within equal settings, or name a metric per sample or per epoch with --metric."
    )
    return Ruling(UNLIKE_WORK, "note", "", sentence)


@dataclass(frozen=True)
class Work:
    """What is said of comparisons of unlike work."""

    notes: tuple[Ruling, ...] = ()
    refused: bool = False

    def hides(self, metric: str) -> bool:
        """Whether a further metric is left out: of one step, where the steps are of unlike work."""
        return bool(self.notes) and is_per_step(metric)

    def on(self, found: Comparison) -> Comparison:
        """The comparison with these notes; where it is refused, without an effect and without a word."""
        if not self.notes:
            return found
        if not self.refused:
            return replace(found, notes=(*found.notes, *self.notes))
        kept = (each for each in found.notes if each.code != UNLIKE_WORK)  # what a figure would mean says nothing here
        return replace(
            found, notes=(*kept, *self.notes), effect=None, low=None, high=None, mde=None, p=None, tost_p=None,
            more_trials=None, verdict="cannot_tell", ratio_of_medians=None,
        )  # fmt: skip


def like_work(selected: Selection) -> tuple[Selection, Work]:
    """The selection with a figure per sample where sides differ in the samples of a step; else why it is refused.

    One of several tenants that the caller or the study names is compared as it is, with a note: its step is asked for.
    """
    cells: dict[str, list[Settings]] = {}
    for record in selected.used:
        cells.setdefault(selected.label.surroundings(record), []).append(record.settings)
    unlike = {name: values for held in cells.values() for name, values in unlike_work(held).items()}
    asked = selected.request.question.get("per") == "sample"
    if not (unlike or asked) or selected.against is None or not is_per_step(selected.metric):
        return selected, Work()
    if selected.request.metric is not None and _of_tenants(unlike):
        return selected, Work((as_requested_note(selected.metric, unlike),))
    name = per_sample(selected.metric)
    if name is None or not is_counted(unlike) or any(samples_of(record.settings) is None for record in selected.used):
        return selected, Work((refused_note(selected.metric, unlike),), refused=True) if unlike else Work()
    used = tuple(with_per_sample(record, selected.metric, name) for record in selected.used)
    return replace(selected, used=used, metric=name), Work((per_sample_note(name, unlike),) if unlike else ())


def per_sample_records(
    records: Sequence[Record], metric: str, job: Callable[[Record], str]
) -> tuple[Sequence[Record], str]:
    """Trials with a metric of a step as one of a sample, and its name, where those of a job differ in their samples.

    Where the samples of a step do not follow from the settings there is nothing to compare, and no trial.
    """
    jobs = grouped(records, job).values()
    unlike = {name: values for its in jobs for name, values in unlike_work(each.settings for each in its).items()}
    if not unlike or not is_per_step(metric):
        return records, metric
    name = per_sample(metric)
    if name is None or not is_counted(unlike) or any(samples_of(each.settings) is None for each in records):
        return (), metric
    having = [each for each in records if metric in each.metrics]
    return [with_per_sample(each, metric, name) for each in having], name


def like_rows(rows: list[TrialRow], columns: Columns, by: str, metric: str) -> tuple[list[TrialRow], str, Work]:
    """The same of a table's rows, whose levels are in `by`: the rows, what is compared of them, and what is said."""
    levels = grouped(range(len(rows)), lambda row: rows[row].settings[by])
    works = unlike_work({name: cells[row] for name, cells in columns.items()} for row in range(len(rows)))
    unlike = {
        name: values
        for name, values in works.items()
        if len({_shares(columns[name][row] for row in its) for its in levels.values()}) > 1
    }
    if not unlike or not is_per_step(metric) or _of_tenants(unlike):
        return rows, metric, Work()
    samples = [
        samples_of({name: number(cells[row] or "") for name, cells in columns.items() if _kind(name)})
        for row in range(len(rows))
    ]
    name = per_sample(metric)
    if name is None or not is_counted(unlike) or None in samples:
        return rows, metric, Work((refused_note(metric, unlike),), refused=True)
    counted = zip(rows, samples, strict=True)
    used = [replace(row, metrics={name: row.metrics[metric] / (count or 1.0)}) for row, count in counted]
    return used, name, Work((per_sample_note(name, unlike),))


def _of_tenants(unlike: Iterable[str]) -> bool:
    return any(_kind(name) == "tenants" for name in unlike)


def _shares(cells: Iterable[object]) -> frozenset[tuple[object, Fraction]]:
    """Each value and its share of all."""
    counts = Counter(cells)
    return frozenset((value, Fraction(n, counts.total())) for value, n in counts.items())


def per_sample_rows(
    rows: Sequence[TrialRow], figures: Sequence[str]
) -> tuple[list[TrialRow], tuple[str, ...], list[str]]:
    """Figures of a step as those of a sample, where the configurations of a group differ in the samples of a step.

    Rows, figures and notes; all as they were where the samples of a step are not known, or where nothing differs.
    """
    groups = grouped(rows, lambda row: row.group).values()
    unlike = {name: values for its in groups for name, values in unlike_work(row.settings for row in its).items()}
    names = {figure: per_sample(figure) for figure in figures if is_per_step(figure)}
    counts = [samples_of(row.settings) for row in rows]
    if not unlike or not names or not all(names.values()) or not is_counted(unlike) or not all(counts):
        return list(rows), tuple(figures), []
    made = [
        replace(row, metrics={**row.metrics, **{str(name): row.metrics[figure] / (count or 1.0)
                                                for figure, name in names.items() if figure in row.metrics}})
        for row, count in zip(rows, counts, strict=True)
    ]  # fmt: skip
    notes = [str(per_sample_note(str(name), unlike)) for name in names.values()]
    return made, tuple(str(names.get(figure, figure)) for figure in figures), notes


def need_like_work(rows: Sequence[Any], figures: Sequence[str], source: object, *, per_job: bool = False) -> list[str]:
    """Refuse to choose between configurations by a figure of a step where they do unlike work in it.

    `rows` have `settings` and `group`; `per_job`: the figures are scaled to a job of so many samples. Returns notes
    where the name of a figure does not tell whether it is of a step.
    """
    notes: dict[str, None] = {}
    of_step = [name for name in figures if is_per_step(name)]
    unclear = [name for name in figures if name not in of_step and not _ONE_PER_SAMPLE.search(name)]
    for group in () if per_job else dict.fromkeys(row.group for row in rows):
        unlike = unlike_work(row.settings for row in rows if row.group == group)
        if unlike and unclear:
            notes[
                f"the configurations differ in the work of a step, {what_differs(unlike)}: {', '.join(unclear)} is "
                "taken as of equal work; --samples or --group keeps unlike work apart."
            ] = None
        if unlike and of_step:
            ways = "--samples N makes it a job of N samples, or name" if is_counted(unlike) else "Name"
            of_one = "are" if len(of_step) > 1 else "is"
            raise StudyError(
                f"{source}: the configurations differ in the work of a step, {what_differs(unlike)}, and "
                f"{', '.join(of_step)} {of_one} of one step: the least work would win. {ways} a figure per sample or "
                f"per epoch, or keep them apart with --group {next(iter(unlike))}."
            )
    return list(notes)
