"""From the trials of a study on one machine to the two sides of a row, or in words why there are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from pathlib import Path
from typing import Any, TypeAlias

from tare.base import strict_json
from tare.base.errors import StoreError
from tare.base.rulings import Ruling, read_rulings
from tare.ext.analysis import (
    CACHE,
    EMULATED,
    SOURCES,
    Cells,
    Contest,
    Measurement,
    Record,
    Store,
    StoreTrials,
    blocks_reach_s,
    cells,
    contests,
    doubt_about_energy,
    flat,
    grouped,
    is_board,
    is_usable,
    measurements,
    placed,
    setting_words,
    stores_in,
    usable_trials,
)
from tare.ext.analysis import label_text as text
from tare.papers.claims.deciding import source_of
from tare.papers.tables.model import Change, Scalar, Value, Within

# A folder of results: RESULTS/MACHINE/STUDY.tare, or the same as store folders; what each machine has.
#
# A folder that holds a store itself is one machine with all that lies below it, named after the folder. Stores of a
# baseload lie beside the study's own and are read with it. `not-run.json` beside a machine's stores says which studies
# the machine refused, and why (see `refused`).
#
# Studies that a machine refused: `not-run.json` beside its stores, {"study": [obstacle, ...]} as `--json` shows them.
#
# A study that cannot be run leaves no store behind, and would look forgotten.

Refused: TypeAlias = Mapping[str, tuple[Ruling, ...]]  # study -> the obstacles
NOT_RUN_FILE = "not-run.json"
_BASELOAD = "-baseload"  # how the name of what `tare device baseload` runs ends, and of two studies of the papers
_PROBE = "probe "  # how the subject of a probe's obstacle begins
_REASONS_SHOWN = 3
_FORM = (
    'It is written {"s3-dvfs": ["this kernel sets no clocks."]}: a study, and what stood in its way, as sentences or '
    "as the `obstacles` of `tare plan STUDY --json`"
)


def refused(folder: Path) -> dict[str, tuple[Ruling, ...]]:
    """What the file of a machine's folder says; nothing where there is none."""
    path = folder / NOT_RUN_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{path}: it cannot be read: {error.strerror}.") from None
    try:
        written = strict_json.load(data)
    except ValueError as error:
        raise StoreError(f"{path}: this is not JSON: {error}. {_FORM}.") from None
    if not isinstance(written, dict):
        raise StoreError(f"{path}: there is no object in it. {_FORM}.")
    return {study: _obstacles(path, study, said) for study, said in written.items()}


def _obstacles(path: Path, study: str, said: Any) -> tuple[Ruling, ...]:
    try:
        found = read_rulings(said, "obstacle") if isinstance(said, list) else ()
    except ValueError:
        found = ()
    if not found or not all(each.sentence.strip() for each in found):
        raise StoreError(f"{path}: {study!r} has no list of obstacles. {_FORM}.")
    return found


def cannot_be_run(study: str, obstacles: Sequence[Ruling]) -> str:
    """`s3-dvfs cannot be run there: control dvfs: this device has no clocks that could be fixed`.

    A probe that is missing is left out and stops no study, so it is told only where there is nothing else.
    """
    told = [each for each in obstacles if not each.subject.startswith(_PROBE)] or list(obstacles)
    more = f"; and {len(told) - _REASONS_SHOWN} more" if len(told) > _REASONS_SHOWN else ""
    shown = "; ".join(str(each).strip().rstrip(".") for each in told[:_REASONS_SHOWN])
    return f"{study} cannot be run there: {shown}{more}"


@dataclass(frozen=True)
class Machine:
    """What was kept of one machine."""

    name: str
    held: tuple[StoreTrials, ...]
    not_run: Refused = field(default_factory=dict)  # study -> what the machine said when it was asked to run it

    def of(self, study: str) -> list[StoreTrials]:
        return [each for each in self.held if each.study_name == study]

    def has_any(self, studies: Collection[str]) -> bool:
        """Whether it has run any of these studies, or refused it."""
        return any(each.study_name in studies for each in self.held) or any(study in studies for study in self.not_run)

    @property
    def device(self) -> Mapping[str, Any]:
        """Board or processor, cores, memory, GPU and kernel, as the first usable trial tells."""
        record = self._first("device")
        facts = flat(record.facts["device"]) if record is not None else {}
        told = {"board": facts.get("board"), "cpu": facts.get("cpu"), "cores": facts.get("cores")}
        told |= {"memory_bytes": facts.get("memory_bytes"), "gpu": self._gpu(), "kernel": facts.get("kernel")}
        return {name: value for name, value in told.items() if value is not None}

    @property
    def is_board(self) -> bool:
        """Whether the device says which board it is; a server says nothing, a virtual machine that it is one."""
        return is_board(text(self.device.get("board", "")))

    @property
    def software(self) -> Mapping[str, str]:
        """Python and torch on bare metal, as the first usable trial that says it."""
        record = self._first("inside")
        facts = flat(record.facts["inside"]) if record is not None else {}
        wanted = ("python.version", "torch.version", "torch.cuda")
        return {name: text(facts[name]) for name in wanted if facts.get(name) is not None}

    def _gpu(self) -> str | None:
        for record in self._usable():
            found = flat(record.facts.get("inside") or {}).get("torch.gpu.name")
            if found:
                return text(found)
        return None

    def _first(self, facts: str) -> Record | None:
        having = [record for record in self._usable() if record.facts.get(facts)]
        bare = [record for record in having if record.settings.get("platform") == "bare"]
        return next(iter(bare or having), None)

    def _usable(self) -> list[Record]:
        return [record for held in self.held for record in held.records if is_usable(record)]


def machines(results: Path, studies: Mapping[str, Collection[str]]) -> list[Machine]:
    """Every machine that has run any of these studies or refused it, with their stores read, and these figures."""
    found = []
    for name, (folder, places) in _by_machine(results, studies).items():
        read = (_held(path, shown, studies) for path, shown in places)
        held = tuple(each for each in read if each is not None)
        not_run = {study: why for study, why in refused(folder).items() if study in studies}
        if held or not_run:
            found.append(Machine(name, held, not_run))
    return found


def _held(path: Path, shown: str, studies: Mapping[str, Collection[str]]) -> StoreTrials | None:
    """A store of one of these studies, with the figures that are asked of it; None for any other."""
    if (study := _study_at(path)) not in studies:
        return None
    with Store.open(path) as store:
        return source_of(store, shown, studies[study])


def _study_at(path: Path) -> str:
    about = Store.header_at(path).study
    return str(about.get("study", "")) if isinstance(about, Mapping) else ""


Places: TypeAlias = list[tuple[Path, str]]  # each store, and what it is called


def _by_machine(results: Path, studies: Collection[str]) -> dict[str, tuple[Path, Places]]:
    """Machine -> its folder, and its stores and packs in order; those of a baseload go with the study's own."""
    whole = results.resolve()
    found = stores_in(whole)
    if found == [whole]:
        return {whole.parent.name: (whole.parent, [(whole, f"{whole.parent.name}/{whole.name}")])}
    kept = [path for path in found if (name := _study_at(path)) in studies or not name.endswith(_BASELOAD)]
    if not kept:
        raise StoreError(f"{results}: there are stores of baseloads alone in this folder; their studies lie elsewhere.")
    if any(path.parent == whole for path in kept):
        return {whole.name: (whole, [(path, f"{whole.name}/{path.relative_to(whole)}") for path in kept])}
    made: dict[str, tuple[Path, Places]] = {}
    for path in kept:
        below = path.relative_to(whole)
        made.setdefault(below.parts[0], (whole / below.parts[0], []))[1].append((path, str(below)))
    return made


# What a figure takes: how its name begins, in words, and the parts that give it.
_TAKES: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (("energy_baseload", "energy_incremental"), "no idle power was measured (`tare device baseload`)", ()),
    (("energy", "power"), "no power sensor", ("power_rails", "power_rapl", "external")),
    (("gpu_",), "no GPU that reports it", ("gpu", "frequency")),
    (("count_", "cycles", "instructions", "cache_misses", "loads", "stores"), "perf does not count it", ("perf",)),
    (("fault_",), "no page faults were recorded", ("perf",)),
    (("system_calls",), "no system calls were traced", ("syscalls",)),
    (("writeback_", "written_", "flush_"), "no write-backs were traced", ("ftrace",)),
    (("page_cache",), "the page cache was not looked at", ("page_cache",)),
)  # fmt: skip
_SHOWN = 4
_OF_THE_IDLE_DEVICE = _TAKES[0][0]
_ENERGY = "energy_j"  # what a baseload is taken from
BETWEEN_WRITE_BACKS, WRITE_BACKS = "writeback_interval", "writeback_count"


def missing_figure(held: StoreTrials, metric: str, records: Sequence[Record]) -> str:
    """No trial has the figure: what it takes, and what the machine said when it was asked for it."""
    if any(metric in record.metrics for record in records):
        return f"a tracer was running in the trials of {held.study_name}, so their {metric} is not compared"
    if told := [words for record in records if (words := (record.facts.get(SOURCES) or {}).get(metric))]:
        return f"{told[0]} of {held.study_name} ({metric})"
    lacks_idle_power = metric.startswith(_OF_THE_IDLE_DEVICE) and any(_ENERGY in record.metrics for record in records)
    if metric.startswith("energy") and not lacks_idle_power and (doubt := doubt_about_energy(records)):
        return f"energy was read and is not claimed ({metric}): {doubt}"
    if metric.startswith(_OF_THE_IDLE_DEVICE) and not lacks_idle_power:
        return missing_figure(held, _ENERGY, records)
    if metric.startswith(BETWEEN_WRITE_BACKS) and any(WRITE_BACKS in record.metrics for record in records):
        return f"too few write-backs in the trials of {held.study_name} ({metric})"
    for starts, words, parts in _TAKES:
        if metric.startswith(starts):
            return _with_reason(f"{words} ({metric})", held, parts)
    return f"no trial of {held.study_name} has {metric}"


def missing_level(held: StoreTrials, name: str, levels: Sequence[Scalar]) -> str:
    """No trial of the study has the setting that the row is about."""
    wanted = " or ".join(text(level) for level in levels if level is not None)
    return _with_reason(f"no trial of {held.study_name} has {_last(name)} {wanted}", held, map(text, levels))


def only_levels(held: StoreTrials, by: str, run: Sequence[Any]) -> str:
    """The factor that the row is about has one level only, or none that it means."""
    levels = list(dict.fromkeys(map(text, run)))
    words = (_last(by), *by.split("."))
    if not levels:
        return _with_reason(f"no trial of {held.study_name} sets {_last(by)}", held, words)
    shown = ", ".join(levels[:_SHOWN]) + (" ..." if len(levels) > _SHOWN else "")
    return _with_reason(f"the trials of {held.study_name} have {_last(by)} {shown} only", held, words)


def nothing_to_share(held: StoreTrials, whole: str, records: Sequence[Record]) -> str:
    """What a share would be of is zero in every trial."""
    return f"{whole} is zero in all {len(records)} trials of {held.study_name}, and nothing has a share in it"


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _with_reason(why: str, held: StoreTrials, words: Any) -> str:
    """The first obstacle among what the study had to leave out that is about any of these."""
    told = set(words)
    reason = next((said for said in held.left_out if not told.isdisjoint(said.subject.split())), None)
    return why if reason is None else f"{why}: {str(reason).rstrip('.')}"


LEAST, MOST = "least", "most"
ABSENT = object()  # no level at all: null is one, of a setting that was left alone
_PLATFORM = "platform"
_CALLED: Mapping[tuple[str, Any], str] = {  # the name of a setting, and its value where that is a word of its own
    ("gpu_mhz", None): "GPU {} MHz", ("cpu_mhz", None): "CPU {} MHz", ("mem_mhz", None): "memory {} MHz",
    ("cores", None): "{} cores", ("cores", 1): "1 core", ("workers", None): "{} workers", ("workers", 1): "1 worker",
    ("items", None): "{} items", ("tenants", None): "{} tenants", ("tenants", 1): "1 tenant",
    ("leave_idle", None): "{} idle", ("pin", False): "vanilla", ("pin", True): "pinned",
    ("seccomp", False): "without seccomp", ("seccomp", True): "with seccomp",
}  # fmt: skip
_PLAIN = ("platform", "workload", "model", "mode", "emulate", "device", "state")  # levels that say what they are


def level_run(records: Sequence[Record], name: str, wanted: Sequence[Scalar]) -> Any:
    """The first of the wanted levels that was run; ABSENT where none was."""
    run: list[Any] = [setting(record, name) for record in records]
    numbers: list[Any] = [value for value in run if is_number(value)]
    ends: Mapping[Scalar, Any] = {LEAST: min(numbers), MOST: max(numbers)} if numbers else {}
    for level in wanted:
        if level in ends:
            return ends[level]
        if level not in (LEAST, MOST) and any(is_at(record, name, level) for record in records):
            return level
    return ABSENT


def setting(record: Record, name: str) -> Any:
    """A setting; one of the platform, of the outermost platform of a stack that has it (`platform.1.docker.image`)."""
    part, _, last = name.partition(".")
    settings = placed(record).settings
    if name in settings or part != _PLATFORM:
        return settings.get(name)
    depths = sorted(key for key in settings if key.startswith(f"{_PLATFORM}.") and key.endswith(f".{last}"))
    return next((settings[key] for key in depths if settings[key] is not None), None)


def is_at(record: Record, name: str, level: Scalar) -> bool:
    """Whether the trial has this level of a setting: numbers by value, all else as it is written; null: it has none."""
    value = setting(record, name)
    if value is None or level is None:
        return value is level
    return bool(value == level) if is_number(value) and is_number(level) else text(value) == text(level)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def called(name: str, value: Any) -> str:
    """`docker`, `2 workers`, `GPU 345 MHz`: a level as people call it."""
    last = name.rpartition(".")[2]
    shown = f"{value:g}" if is_number(value) else text(value)
    if name == "tenants" and isinstance(value, str):  # `beside inference`, where others have a number of tenants
        return setting_words(name, value)
    if last in _PLAIN or isinstance(value, str):
        return shown
    words = _CALLED.get((last, value)) or _CALLED.get((last, None))
    return f"{last} {shown}" if words is None else words.format(shown)


Measured: TypeAlias = Change | Within | Value


@dataclass(frozen=True)
class RowSelection:
    """What one row compares in one store: two sides, or the values of one."""

    held: StoreTrials
    metric: str
    names: tuple[str, ...]  # of the sides, as people call them
    records: tuple[Record, ...]
    around: str = ""  # what tells it from others that the row could mean as well
    contest: Contest | None = None
    values: tuple[tuple[float, ...], ...] = ()  # of each name, where there is no contest
    zeros: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # name -> trials with nothing, of how many
    by: str = ""  # the factor whose levels are the sides
    about: tuple[str, ...] = ()  # the settings that the row itself names
    figures: tuple[str, ...] = ()  # of the trials, that it is made of
    told: tuple[str, ...] = ()  # what else to know: levels that are a second choice, trials that lack the figure

    @property
    def key(self) -> tuple[object, ...]:
        """Rows that compare the very same trials have the same."""
        return self.held.name, self.metric, *self._sides

    @property
    def pair(self) -> frozenset[object]:
        """Rows that compare them the other way round have the same, too."""
        return frozenset(self._sides)

    def of_sides(self, contest: Contest) -> list[list[Record]]:
        """The records of the level that the other is compared with, and of that other."""
        trials = [{one.trial for one in side} for side in (contest.theirs, contest.ours)]
        return [[each for each in self.records if each.trial in those] for those in trials]

    @property
    def _sides(self) -> tuple[object, ...]:
        if self.contest is None:
            return ()
        sides = {self.contest.level: self.contest.ours, self.contest.against: self.contest.theirs}
        return tuple((name, *(one.trial for one in side)) for name, side in sides.items())


def pick(question: Measured, machine: Machine) -> list[RowSelection] | str:
    """Everything that the question can mean on this machine, the first being meant; or why it means nothing."""
    refused_by = machine.not_run.get(question.study)
    why = f"{question.study} was not run" if refused_by is None else cannot_be_run(question.study, refused_by)
    for held in machine.of(question.study):
        found = _pick(question, held)
        if not isinstance(found, str):
            return found
        why = found
    return why


def is_set_by_any(question: Measured, machine: Machine) -> bool:
    """Whether any trial sets what the question compares by; what asks for no such thing needs none."""
    if not isinstance(question, Change):
        return True
    records = [record for held in machine.of(question.study) for record in held.records]
    return any(record.settings.get(question.by) is not None for record in records)


def _pick(question: Measured, held: StoreTrials) -> list[RowSelection] | str:
    usable = [record for record in held.records if is_usable(record)]
    if not usable:
        return f"no trial of {held.study_name} ended well"
    where = question.where.get("platform")
    if where is not None and level_run(usable, "platform", where) is ABSENT:
        return missing_level(held, "platform", where)
    if isinstance(question, Change) and all(record.settings.get(question.by) is None for record in usable):
        return only_levels(held, question.by, [])
    records: Sequence[Record] = usable
    second: dict[str, Any] = {}  # settings whose first choice was not run -> the level that was
    for name, levels in question.where.items():
        level = level_run(records, name, levels)
        if level is ABSENT:
            return missing_level(held, name, levels)
        if level_run(records, name, levels[:1]) is ABSENT:
            second[name] = level
        records = [record for record in records if is_at(record, name, level)]
    metric = next((name for name in question.metric if any(name in record.compared for record in records)), None)
    if metric is None:
        return missing_figure(held, question.metric[0], records)
    found = _sides(question, held, records, metric)
    if isinstance(found, str):
        return found
    figures = (metric, *question.figures[len(question.metric) :])
    # The settings that the row itself names; an emulated medium and the state of the cache are told anyway.
    by = [question.by] if isinstance(question, Change) else []
    named = [name for name in question.where if name not in (*second, CACHE)]
    about = tuple(name for name in (*by, *named) if name != EMULATED)
    return [replace(each, about=about, figures=figures, told=_told(each, second, records)) for each in found]


@singledispatch
def _sides(question: object, held: StoreTrials, records: Sequence[Record], metric: str) -> list[RowSelection] | str:
    raise TypeError(f"{question!r} is no question to a store")


@_sides.register
def _(question: Change, held: StoreTrials, records: Sequence[Record], metric: str) -> list[RowSelection] | str:
    having = [record for record in records if record.settings.get(question.by) is not None]
    label = cells(having, question.by)
    used = usable_trials(having, lambda record: _has(record, metric))
    made = []
    for around, group in _told_apart(used, label.surroundings).items():
        levels = [level_run(group, question.by, wanted) for wanted in (question.start, question.end)]
        if ABSENT in levels or levels[0] == levels[1]:
            continue
        made.append(_change(question, held, _at_levels(group, question.by, label, levels), label, metric, around))
    run = [record.settings[question.by] for record in having]
    return made or only_levels(held, question.by, run)


def _change(
    question: Change,
    held: StoreTrials,
    sides: tuple[list[Record], list[Record]],
    label: Cells,
    metric: str,
    around: str,
) -> RowSelection:
    start, end = sides
    both = (*start, *end)
    names = [label.label(side[0]) for side in sides]
    shown = tuple(called(question.by, side[0].settings[question.by]) for side in sides)
    picked = RowSelection(held, metric, shown, both, around, by=question.by)
    values = [tuple(record.compared[metric] for record in side if not record.twin) for side in sides]
    if all(values) and _any_zero(values):
        return _without_ratio(picked, values)
    told = [record for record in both if _positive(record, metric)]  # a twin with nothing does not tell the noise
    figures = measurements(told, label, metric, blocks_reach_s(held.records))
    (contest,) = contests(figures, names[0], levels=names)
    return replace(picked, contest=contest)


def _any_zero(values: Sequence[Sequence[float]]) -> bool:
    return any(value <= 0 for side in values for value in side)


def _without_ratio(picked: RowSelection, values: Sequence[tuple[float, ...]]) -> RowSelection:
    """The values of both sides alone: without the trials that have nothing, a ratio would be of the others only."""
    named = zip(picked.names, values, strict=True)
    zeros = {name: (sum(value <= 0 for value in side), len(side)) for name, side in named}
    return replace(picked, values=tuple(values), zeros={name: count for name, count in zeros.items() if count[0]})


def _told(picked: RowSelection, second: Mapping[str, Any], records: Sequence[Record]) -> tuple[str, ...]:
    """`2 workers`, where the row would have four; and how many trials are not among those that it compares."""
    levels = [called(name, level) for name, level in second.items() if is_number(level)]
    return (*levels, *_too_few(picked, records))


def _too_few(picked: RowSelection, records: Sequence[Record]) -> list[str]:
    """`2 of 12 trials had too few write-backs for an interval`: one alone has none to the next."""
    if not picked.metric.startswith(BETWEEN_WRITE_BACKS):
        return []
    traced = [record for record in records if WRITE_BACKS in record.metrics and not record.twin]
    of_the_row = [record.settings for record in picked.records]
    asked = {record.trial for record in traced if record.settings in of_the_row}
    lacking = asked - {record.trial for record in picked.records}
    return [f"{len(lacking)} of {len(asked)} trials had too few write-backs for an interval"] if lacking else []


def _at_levels(
    group: Sequence[Record], by: str, label: Cells, levels: Sequence[Scalar]
) -> tuple[list[Record], list[Record]]:
    """The trials of both levels; of a level that was run in several ways, of its first."""
    found = []
    for level in levels:
        having = [record for record in group if is_at(record, by, level)]
        first = label.level(having[0])
        found.append([record for record in having if label.level(record) == first])
    return found[0], found[1]


@_sides.register
def _(question: Within, held: StoreTrials, records: Sequence[Record], metric: str) -> list[RowSelection] | str:
    names = (question.than, metric)
    having = usable_trials(records, lambda record: all(_has(record, name) for name in names), repeats=False)
    if not having:
        return missing_figure(held, question.than, records)
    made = []
    for around, group in _by_cell(having).items():
        picked = RowSelection(held, metric, names, tuple(group), around)
        values = [tuple(record.compared[name] for record in group) for name in names]
        if _any_zero(values):
            made.append(_without_ratio(picked, values))
            continue
        theirs, ours = (
            [Measurement(name, record.compared[name], str(record.block), trial=record.trial) for record in group]
            for name in names
        )
        made.append(replace(picked, contest=Contest(metric, question.than, ours, theirs)))
    return made


@_sides.register
def _(question: Value, held: StoreTrials, records: Sequence[Record], metric: str) -> list[RowSelection] | str:
    whole = question.part_of
    wanted = [metric] if whole is None else [metric, whole]
    having = usable_trials(records, lambda record: all(_has(record, name) for name in wanted), repeats=False)
    if not having:
        return missing_figure(held, whole or metric, records)
    if whole is not None and not any(_positive(record, whole) for record in having):
        return nothing_to_share(held, whole, having)
    made = []
    for around, group in _by_cell(having).items():
        if whole is None:
            values = tuple(record.compared[metric] for record in group)
            made.append(RowSelection(held, metric, ("",), tuple(group), around, values=(values,)))
            continue
        # Where there is nothing, nothing has a share in it.
        having_any = [record for record in group if _positive(record, whole)]
        shares = tuple(record.compared[metric] / record.compared[whole] for record in having_any)
        lacking = len(group) - len(shares)
        zeros = {whole: (lacking, len(group))} if lacking else {}
        share = f"{metric.rpartition('_')[0]}_share"
        if shares:
            made.append(RowSelection(held, share, (whole,), tuple(group), around, values=(shares,), zeros=zeros))
    return made


def _by_cell(records: Sequence[Record]) -> dict[str, list[Record]]:
    return _told_apart(records, cells(records, "platform").label)


def _told_apart(records: Sequence[Record], key: Callable[[Record], str]) -> dict[str, list[Record]]:
    """The records by what tells them apart, which is nothing where they are all alike."""
    found = grouped(records, key)
    return found if len(found) > 1 else {"": list(records)}


def _has(record: Record, metric: str) -> bool:
    return math.isfinite(record.compared.get(metric, math.nan))


def _positive(record: Record, metric: str) -> bool:
    return record.compared.get(metric, 0.0) > 0
