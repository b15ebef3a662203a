"""Is the work of a step the same on both sides? Where it is not, time and energy are per sample, or not compared.

The one rule for `compare`, `recommend` and `front`: a step of 64 images is not slower than one of 16, it is more work.

What a user's own table may mislead by: rounded values, copied rows, unlike work, works that are mixed, two units.

A store has none of these: its times are nanoseconds, its trials have names, and its settings say what was run.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from statistics import median
from typing import Any, TypeGuard

from tare.analysis.compare import compare
from tare.analysis.labels import Namer, make_labels, signature, text
from tare.analysis.model import Comparison, Measurement, is_amount, kind_of, words_of
from tare.analysis.observations import number
from tare.analysis.selection import Selection
from tare.base.declare import before, declared
from tare.base.errors import StudyError
from tare.base.rulings import Ruling
from tare.base.text import effect_text, has_unit, metric_name, share_text
from tare.records.model import Record, TrialRow, grouped, varied

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
    if not unlike or selected.against is None or not is_per_step(selected.metric):
        return selected, Work()
    if selected.request.metric is not None and _of_tenants(unlike):
        return selected, Work((as_requested_note(selected.metric, unlike),))
    name = per_sample(selected.metric)
    if name is None or not is_counted(unlike) or any(samples_of(record.settings) is None for record in selected.used):
        return selected, Work((refused_note(selected.metric, unlike),), refused=True)
    used = tuple(with_per_sample(record, selected.metric, name) for record in selected.used)
    return replace(selected, used=used, metric=name), Work((per_sample_note(name, unlike),))


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


COARSE, COPIED, UNITS = "compare.coarse-values", "compare.copied-rows", "compare.units"
COPIED_SIDE, MIXED = "compare.copied-side", "compare.mixed-work"
DECIMALS = 9
FAR = 50.0  # times as much: who compares such things means a unit
FEWEST_COPIED = 3  # different values of a side: fewer may tie by chance
LEAST_DIGITS = 4  # decimals or significant digits of a clock's value that no two trials share by chance, all of them
_JOBS = (*MODELS, "workload", "dataset")
_MACHINES = ("host", "hostname", "node", "machine", "device", "gpu", "gpu_name", "cpu")

Columns = Mapping[str, Sequence[str | None]]


def with_doubts(found: Comparison, values: Sequence[Measurement], columns: Columns) -> Comparison:
    """The comparison with what its table gives reason to doubt; `columns` are all of it, row by row as `values`."""
    sides = {name: [each for each in values if each.level == name] for name in (found.level, found.against)}
    rows = [place for place, each in enumerate(values) if each.level in sides]
    found = _apart_in_unit(_other_jobs(_unlike(found, values, columns, rows), values, columns, rows))
    found = _mixed(found, values, columns, rows)
    if copied(*sides.values()):
        sentence = (
            "Every value is there more than once, to its last digit: were rows copied, or one run written several "
            "times? A copy is no further trial, so nothing is claimed. Keep one row per trial, or name "
            "the run with --block."
        )
        found = replace(found, verdict="cannot_tell", more_trials=None,
                        notes=(*found.notes, Ruling(COPIED, "note", found.level, sentence)))  # fmt: skip
    elif kind_of(found.metric) == "speed" and same_values(*sides.values()):
        sentence = (
            "the values are the same on both sides, to their last digit: was one side copied from the other? No clock "
            "reads the same twice."
        )
        withheld = (*found.withheld, Ruling(COPIED_SIDE, "note", found.level, sentence))
        found = replace(found, verdict="cannot_tell", mde=None, more_trials=None, withheld=withheld)
    step = coarseness([each.value for each in values], found.metric)
    centre = median(each.value for side in sides.values() for each in side)
    if found.verdict == "equivalent" and step is not None and step > found.margin * centre:
        sentence = (
            f"the values are written in steps of {step:g}, {share_text(step / centre)} of their median: a difference "
            f"of {share_text(found.margin)} is rounded away."
        )
        withheld = (*found.withheld, Ruling(COARSE, "note", found.level, sentence))
        found = replace(found, verdict="cannot_tell", mde=None, withheld=withheld)
    return found


def same_values(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> bool:
    """Whether both sides have the same values, several, and with more digits than chance repeats."""
    left, right = (Counter((each.block, each.value) for each in side) for side in (ours, theirs))
    different = {value for _, value in left}
    fine = any(len(f"{value:.15g}".replace(".", "").strip("0")) >= LEAST_DIGITS for value in different)
    return left == right and len(different) >= FEWEST_COPIED and fine


def coarseness(values: Sequence[float], metric: str) -> float | None:
    """The step in which values are written, `0.1` of 0.1 and 0.2; None where they have all digits, or are counts."""
    for decimals in range(DECIMALS + 1):
        if all(round(value, decimals) == value for value in values):
            if decimals == 0 and not is_amount(metric):
                return None
            return math.gcd(*map(int, values)) if decimals == 0 and len(set(values)) > 1 else 10.0**-decimals
    return None


def copied(*sides: Sequence[Measurement]) -> bool:
    """Whether each value of each side stands there twice or more, without a block that would make them one."""
    if any(each.block is not None for side in sides for each in side):
        return False
    counts = [Counter(each.value for each in side) for side in sides]
    return all(len(count) >= FEWEST_COPIED and min(count.values()) > 1 for count in counts)


def _unlike(found: Comparison, values: Sequence[Measurement], columns: Columns, rows: Sequence[int]) -> Comparison:
    """With a note where a column that says how much work a step holds differs between the sides."""
    if is_per_sample(found.metric):
        return found
    several = unlike_work({name: cells[row] for name, cells in columns.items()} for row in rows)
    unlike = {name: its for name, its in several.items() if _differs(found, values, columns[name], rows)}
    return replace(found, notes=(*found.notes, as_requested_note(found.metric, unlike))) if unlike else found


def _other_jobs(found: Comparison, values: Sequence[Measurement], columns: Columns, rows: Sequence[int]) -> Comparison:
    """With a note where the sides ran another model, or on another machine, and that is not what is compared."""
    notes = list(found.notes)
    for code, names in ((UNLIKE_WORK, _JOBS), ("compare.unlike-conditions", _MACHINES)):
        unlike = {
            name: list(dict.fromkeys(str(cells[row]) for row in rows))
            for name, cells in columns.items()
            if name.rpartition(".")[2].lower() in names
            and any(cells[row] != values[row].level for row in rows)
            and _differs(found, values, cells, rows)
        }
        if unlike:
            sentence = f"The sides differ in {what_differs(unlike)}, so a difference may come from that."
            notes.append(Ruling(code, "note", found.level, sentence))
    return replace(found, notes=tuple(notes))


def _differs(
    found: Comparison, values: Sequence[Measurement], cells: Sequence[str | None], rows: Sequence[int]
) -> bool:
    """Whether a column has other values on one side than on the other, or the same in other shares."""
    ours, theirs = (Counter(cells[row] for row in rows if values[row].level == level)
                    for level in (found.level, found.against))  # fmt: skip
    return {key: n * theirs.total() for key, n in ours.items()} != {key: n * ours.total() for key, n in theirs.items()}


def _mixed(found: Comparison, values: Sequence[Measurement], columns: Columns, rows: Sequence[int]) -> Comparison:
    """Kept back where the sides mix several works, and one of these by itself has another answer than all together."""
    works = unlike_work({name: cells[row] for name, cells in columns.items()} for row in rows)
    jobs = [name for name in columns if name.rpartition(".")[2].lower() in _JOBS]
    names = [
        name
        for name in dict.fromkeys([*works, *jobs])
        if _varies_within(values, columns[name], rows) and 2 * len({columns[name][row] for row in rows}) <= len(rows)
    ]  # one with a value of its own in most rows was measured, and is no work
    if not names:
        return found
    cells = grouped(rows, lambda row: ", ".join(str(columns[name][row]) for name in names))
    alone = {cell: _alone(found, [replace(values[row], place=None) for row in its]) for cell, its in cells.items()}
    apart = [f"{cell}: {effect_text(one.effect or 0.0)}" for cell, one in alone.items() if _contradicts(one, found)]
    if not apart:
        return found
    sentence = (
        f"each side mixes rows of several works ({', '.join(names)}), and one figure for all hides what each costs: "
        f"by itself {'; '.join(apart[:4])}. Compare the rows of each in a table of its own."
    )
    withheld = (*found.withheld, Ruling(MIXED, "note", found.level, sentence))
    return replace(found, verdict="cannot_tell", mde=None, more_trials=None, withheld=withheld)


def _varies_within(values: Sequence[Measurement], cells: Sequence[str | None], rows: Sequence[int]) -> bool:
    """Whether a column has several values in one block of one side."""
    sides = grouped(rows, lambda row: (values[row].level, values[row].block))
    return any(len({cells[row] for row in its}) > 1 for its in sides.values())


def _alone(found: Comparison, values: Sequence[Measurement]) -> Comparison | None:
    """The same comparison of these rows; None where they are of one side."""
    if len({each.level for each in values}) < 2:
        return None
    rises = found.direction.rises
    return compare(
        values, against=found.against, margin=found.margin, metric=found.metric, rises=rises, resamples=0
    )[0]  # fmt: skip


def _contradicts(one: Comparison | None, found: Comparison) -> TypeGuard[Comparison]:
    """Whether it surely has another answer: where all together have none, a harm."""
    if one is None or one.effect is None or one.verdict == "cannot_tell":
        return False
    return one.verdict == "slower" if found.verdict == "cannot_tell" else one.verdict != found.verdict


def _apart_in_unit(found: Comparison) -> Comparison:
    if found.effect is None or abs(math.log1p(found.effect)) <= math.log(FAR):
        return found
    sentence = f"One side has more than {FAR:g} times as much as the other. Are both in the same unit?"
    return replace(found, notes=(*found.notes, Ruling(UNITS, "note", found.level, sentence)))


# Jobs: what is asked to be done. A job is workload x model x data; levels are compared within a job, never across.


@dataclass(frozen=True, slots=True)
class Place:
    """Where a level belongs: its job, what it is called within it, and its factors in words."""

    job: str  # empty where there is only one
    name: str
    factors: tuple[tuple[str, str], ...] = ()  # (factor, value in words), in the order in which the study has them


def places_of(levels: Mapping[str, Settings], by: str = "") -> dict[str, Place]:
    """Level -> its place. `by` is what the study compares: where that is a model, it makes no other job."""
    several = list(levels.values())
    identity = job_names(several, by)
    factors = [by] if by in varied(several) else []
    for name in varied(several):
        if name not in identity and name not in factors and not _follows(several, name, [*identity, *factors]):
            factors.append(name)
    if len({str(settings.get("platform")) for settings in several}) == 1:
        factors = [name for name in factors if name != "platform"]
    jobs, within = make_labels(several, identity), make_labels(several, factors)
    namer = Namer(several, factors)
    found = {}
    for level, settings in levels.items():
        name = re.sub(r"^bare(?=,|$)", "bare metal", str(within.words(settings)))
        told = tuple((each, namer.setting(each, settings[each])) for each in factors if each in settings)
        found[level] = Place(str(jobs.words(settings)) if identity else "", name or level, told)
    return found


def job_names(several: Sequence[Settings], by: str = "") -> list[str]:
    """The settings that make different jobs of these; none where there is one job, or where jobs are compared."""
    identity = before().saying("job")
    if by in identity:
        return []
    kept: list[str] = []
    for name in identity:  # a data set that follows from the model makes no further job
        if name in varied(several) and not (kept and _follows(several, name, kept)):
            kept.append(name)
    return kept


def _follows(several: Sequence[Settings], name: str, others: Sequence[str]) -> bool:
    """Whether a setting changes only with others: the number of classes with the data set."""
    seen: dict[tuple[str | None, ...], str | None] = {}
    return all(
        seen.setdefault(signature(settings, others), value) == value
        for settings in several
        for (value,) in [signature(settings, [name])]
    )
