"""Rows to decide from: the trials of a store, or the rows of any table, each with its settings and its figures."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tare.analysis.cells import cells, placed, resolve_factor
from tare.analysis.labels import text
from tare.analysis.model import Estimate
from tare.analysis.numeric.medians import median_estimate
from tare.analysis.tables.table import Table, label_column, read_table
from tare.base.declare import STEP, Role
from tare.base.errors import StudyError, unknown_name
from tare.base.text import count_text, unit_of
from tare.records.model import (
    COMMAND,
    Record,
    TrialRow,
    counted_attempts,
    device_of,
    grouped,
    has_most_of,
    is_usable,
    usable_trials,
    varied,
)
from tare.records.schema import PACK_SUFFIX, is_pack, is_store

if TYPE_CHECKING:
    from tare.records.store import Store


# The records of a store, with baseload and incremental energy beside each trial's own.
#
# Idle power is measured by `tare device baseload`, before the study or after it, and sealed trials never change: so the
# split is made where records are read, and not where they are written (docs/decisions/0010-baseload.md).

IDLE = "idle"  # the workload
LOGGING = "workload.logging"
ASLEEP = ("workload.state", "suspended")  # a device that slept was idle in a mode of its own
POWER = Role.POWER.metric
# What an idle device does not feel: controls of the data, and limits of a workload that has nothing to do.
OF_DATA = ("page_cache", "storage", "dirty")
OF_LIMITS = ("quota", "cpuset", "memory", "cores", "pin", "numa", "leave_idle")

Key: TypeAlias = tuple[str | None, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class IdlePower:
    """What the device draws on one platform, in one mode, with nothing to do."""

    label: str  # platform and mode
    logging: bool  # whether a logging script ran on the platform meanwhile
    power_w: Estimate
    scope: str
    values_w: tuple[float, ...]  # of each trial
    trials: tuple[str, ...]
    key: Key


def is_idle(record: Record) -> bool:
    """Whether nothing was done: by the `idle` workload, or by a command that only sleeps."""
    argv = record.settings.get(COMMAND)
    sleeps = isinstance(argv, list) and len(argv) == 2 and str(argv[0]).rpartition("/")[2] == "sleep"
    return record.settings.get("workload") == IDLE or sleeps


def key_of(record: Record) -> Key:
    """The device, what was measured of it, and its platform and mode: only like may be taken from like."""
    mode = tuple(sorted((name, text(value)) for name, value in _mode(record).items() if value is not None))
    return device_of(record), str(energy_facts(record).get("source", "")), mode


def energy_facts(record: Record) -> Mapping[str, Any]:
    """What the trial says of its energy; empty where it has seen no power."""
    facts = record.facts.get("energy")
    return facts if isinstance(facts, Mapping) else {}


def idle_powers(records: Iterable[Record]) -> list[IdlePower]:
    """One for each platform and mode of the usable idle trials; A/A repeats are the same thing again, and count."""
    usable = [each for each in usable_trials(records) if is_idle(each) and POWER in each.compared]
    if not usable:
        return []
    quiet = [_without_workload(record) for record in usable]
    label = cells(quiet, "platform")
    groups = grouped(usable, lambda record: (key_of(record), bool(record.settings.get(LOGGING))))
    found = [
        _idle_power(key, logging, label.label(_without_workload(group[0])), group)
        for (key, logging), group in groups.items()
    ]
    return sorted(found, key=lambda each: (each.label, each.logging))


def by_mode(found: Iterable[IdlePower]) -> dict[Key, IdlePower]:
    """The idle power to hold a trial's energy against: without a logging script beside it."""
    return {each.key: each for each in found if not each.logging}


def _idle_power(key: Key, logging: bool, label: str, group: Sequence[Record]) -> IdlePower:
    values = tuple(record.compared[POWER] for record in group)
    return IdlePower(
        label=label,
        logging=logging,
        power_w=median_estimate(values),
        scope=str(energy_facts(group[0]).get("scope", "")),
        values_w=values,
        trials=tuple(record.trial for record in group),
        key=key,
    )


def _without_workload(record: Record) -> Record:
    """As labels should tell it: by its platform and mode, for how long it was watched and by what is the same."""
    return replace(record, settings=_mode(record))


def _mode(record: Record) -> dict[str, Any]:
    """Its platform and mode; asleep is one too."""
    return {name: value for name, value in record.settings.items() if _is_mode(name) or (name, value) == ASLEEP}


def _is_mode(name: str) -> bool:
    head, _, rest = name.partition(".")
    if head == "platform":
        return rest.rpartition(".")[2] not in OF_LIMITS
    return head == "control" and rest.partition(".")[0] not in OF_DATA


BASELOAD, INCREMENTAL = Role.BASELOAD.metric, Role.INCREMENTAL.metric
ENERGY, WINDOW = Role.ENERGY.metric, Role.ENERGY_WINDOW.metric
_BESIDE = "-baseload"


class HasRecords(Protocol):
    """The part of a store that is read here; where it lies is known of real ones only."""

    def records(self) -> list[Record]: ...


def baseload_folder(store: Path) -> Path:
    """Where the idle trials of a store's platforms and modes are kept: beside it; a pack's are in another pack."""
    whole = store.resolve() if store.name in ("", "..") else store
    ending = PACK_SUFFIX if is_pack(whole) and whole.suffix == PACK_SUFFIX else ""
    return whole.with_name(f"{whole.name.removesuffix(ending)}{_BESIDE}{ending}")


def records_of(store: HasRecords) -> list[Record]:
    """Every record of the store as analyses read it: a stack has one placement, and energy is split where the idle
    power of the platform and mode is known."""
    records = store.records()
    return [placed(record) for record in with_baseload(records, by_mode(idle_of(store, records)))]


def idle_of(store: HasRecords, records: Sequence[Record]) -> list[IdlePower]:
    """Idle power from idle trials of the study itself, and from the baseload beside the store."""
    from tare.records.store import Store  # a table has none

    beside = _beside(store.path if isinstance(store, Store) else None)
    return idle_powers([*records, *beside])


def with_baseload(records: Iterable[Record], idle: Mapping[Key, IdlePower]) -> list[Record]:
    """The same records; baseload is idle power times the time that the energy was taken over, and the rest is work."""
    return [_split(record, idle) for record in records]


def _split(record: Record, idle: Mapping[Key, IdlePower]) -> Record:
    energy_j, window_s = record.metrics.get(ENERGY), record.metrics.get(WINDOW)
    if energy_j is None or window_s is None or is_idle(record) or (found := idle.get(key_of(record))) is None:
        return record
    baseload_j = found.power_w.value * window_s
    more = {BASELOAD: baseload_j, INCREMENTAL: energy_j - baseload_j}
    return replace(record, metrics={**record.metrics, **more})


def _beside(path: Path | None) -> list[Record]:
    if path is None:
        return []
    beside = baseload_folder(path)
    if not is_pack(beside) and not (beside / "store.json").exists():
        return []
    from tare.records.store import Store

    with Store.open(beside) as store:
        return store.records()


Setting = str | float
NOTHING_USABLE = "there is no usable trial to decide from. `tare show STORE` lists how each one ended."


def observations(
    source: Path,
    *,
    settings: Sequence[str] | None,
    values: Sequence[str],
    group: str | None = None,
    signed: Collection[str] = (),
    fixed: Collection[str] = (),
) -> list[TrialRow]:
    """The usable trials of a store, or the rows of a table; `settings` None with a store means all that vary.

    `fixed` are the last words of settings that are taken as well where they do not vary (`workers`).

    Figures are finite and not negative, but for those in `signed`; every asked one is there in at least one row.
    """
    if is_store(source):
        with _store(source) as store:
            rows = record_observations(records_of(store), settings=settings, values=values, group=group, fixed=fixed)
    else:
        rows = table_observations(read_table(source), settings=settings, values=values, group=group)
    _check_figures(source, rows, values, signed)
    return rows


def columns_of(source: Path) -> list[str]:
    """The figures and settings that a store's usable trials have, or the columns of a table."""
    if not is_store(source):
        return list(read_table(source).columns)
    with _store(source) as store:
        usable = [record for record in records_of(store) if is_usable(record)]
    if not usable:
        raise StudyError(f"{source}: {NOTHING_USABLE}")
    return list(dict.fromkeys(name for record in usable for name in (*record.metrics, *record.settings)))


def unit_in(source: Path) -> str:
    """What a step of a store's trials is for people; of a table it is a step."""
    if not is_store(source):
        return STEP
    with _store(source) as store:
        return unit_of(record.settings.get("workload") for record in store.records())


def source_notes(source: Path) -> list[str]:
    """What a store has that is not used, in sentences: damaged trials, and those that ended badly."""
    if not is_store(source):
        return []
    with _store(source) as store:
        newest = counted_attempts(store.records())
        left_out = [record for record in newest if not is_usable(record)]
        doubted = sum(record.state == "suspect" for record in newest)
        notes = list(store.problems)
    if left_out:
        notes.append(
            f"{len(left_out)} of {count_text(len(newest), 'trial')} {_are(len(left_out))} excluded as invalid: "
            f"`tare show {shlex.quote(str(source))}` lists them."
        )
    if doubted:
        are = _are(doubted)
        notes.append(
            f"{doubted} of {count_text(len(newest), 'trial')} {are} suspect and {are} included: "
            f"`tare show {shlex.quote(str(source))}` says why."
        )
    return notes


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _store(source: Path) -> Store:
    from tare.records.store import Store  # a table needs nothing of it

    return Store.open(source)


# Tables


def table_observations(
    table: Table, *, settings: Sequence[str] | None, values: Sequence[str], group: str | None = None
) -> list[TrialRow]:
    """One row each. Settings are numbers where the whole column is numeric, else text."""
    if settings is None:
        others = [name for name in table.columns if name not in values and name != group]
        raise StudyError(
            f"{table.path}: name the columns that are settings: --settings with some of {', '.join(others)}."
        )
    setting_columns = {name: setting_column(table, name) for name in settings}
    value_columns = {name: figure_column(table, name) for name in values}
    groups = label_column(table, group) if group is not None else [None] * len(table)
    each_settings, each_values = _by_row(setting_columns, len(table)), _by_row(value_columns, len(table))
    rows = zip(each_settings, each_values, groups, strict=True)
    return [
        TrialRow.foreign(its_settings, figures, f"row {place}", group=its_group)
        for place, (its_settings, figures, its_group) in enumerate(rows, start=1)
    ]


def _by_row(columns: Mapping[str, Sequence[Any]], rows: int) -> Iterable[dict[str, Any]]:
    """The cells of each row by name, without the empty ones."""
    if not columns:
        return ({} for _ in range(rows))
    cells = (zip(columns, row, strict=True) for row in zip(*columns.values(), strict=True))
    if any(None in column for column in columns.values()):
        return ({name: cell for name, cell in row if cell is not None} for row in cells)
    return map(dict, cells)


def figure_column(table: Table, name: str) -> list[float | None]:
    """A column of finite numbers; an empty cell is None, anything else is refused with its row."""
    return [
        None if cell is None or not cell.strip() else _figure(table, row, name, cell)
        for row, cell in enumerate(table.column(name), start=1)
    ]


def setting_column(table: Table, name: str) -> list[Setting | None]:
    """A column as numbers where each of its cells is one, else as text."""
    cells = [cell.strip() if cell is not None and cell.strip() else None for cell in table.column(name)]
    numbers = [number(cell) if cell is not None else None for cell in cells]
    if any(parsed is None for cell, parsed in zip(cells, numbers, strict=True) if cell is not None):
        return list(cells)
    for row, parsed in enumerate(numbers, start=1):
        if parsed is not None and not math.isfinite(parsed):
            raise table.error(row, name, f"{cells[row - 1]!r} is not a finite number.")
    return list(numbers)


def number(cell: str) -> float | None:
    """The number that a text is; None where it is none (`1_000` is none, although Python would read it)."""
    try:
        return float(cell) if "_" not in cell else None
    except ValueError:
        return None


def _figure(table: Table, row: int, name: str, cell: str) -> float:
    parsed = number(cell)
    if parsed is None:
        with_point = cell.strip().replace(",", ".")
        hint = f" Did you mean {with_point}?" if with_point != cell and number(with_point) is not None else ""
        raise table.error(row, name, f"{cell!r} is not a number.{hint}")
    if not math.isfinite(parsed):
        raise table.error(
            row, name, f"{cell!r} is not a finite number; leave the cell empty where nothing was measured."
        )
    return parsed


# Stores


def record_observations(
    records: Sequence[Record],
    *,
    settings: Sequence[str] | None,
    values: Sequence[str],
    group: str | None = None,
    fixed: Collection[str] = (),
) -> list[TrialRow]:
    """One row a trial: its newest usable attempt that has most of the figures. A/A repeats are not pooled in."""
    used = usable_attempts(records, values)
    if not used:
        raise StudyError(NOTHING_USABLE)
    group_name = resolve_factor(used, group) if group is not None else None
    names = _setting_names(used, settings, group_name, fixed)
    numeric = {name for name, factor in names.items() if _is_numeric(used, factor)}
    return [
        replace(
            TrialRow.of(record, group=None if group_name is None else _text_of(record, group_name)),
            settings={
                name: float(record.settings[factor]) if name in numeric else text(record.settings[factor])
                for name, factor in names.items()
                if factor in record.settings
            },
            metrics={name: float(record.compared[name]) for name in values if name in record.compared},
        )
        for record in used
    ]


def _text_of(record: Record, name: str) -> str | None:
    return text(record.settings[name]) if name in record.settings else None


def usable_attempts(records: Iterable[Record], figures: Sequence[str]) -> list[Record]:
    """Of each trial the attempt that counts for these figures; A/A repeats are not pooled in."""
    return usable_trials(records, has_most_of(figures), repeats=False)


def _setting_names(
    records: Sequence[Record], asked: Sequence[str] | None, group: str | None, fixed: Collection[str]
) -> dict[str, str]:
    """What the caller calls a setting -> what the records call it."""
    if asked is not None:
        return {name: resolve_factor(records, name) for name in asked}
    known = dict.fromkeys(name for record in records for name in record.settings)
    apart = varied([record.settings for record in records])
    also = [name for name in known if name.rpartition(".")[2] in fixed]
    return {name: name for name in (*apart, *also) if name in known and name != group}


def _is_numeric(records: Iterable[Record], factor: str) -> bool:
    found = [record.settings[factor] for record in records if factor in record.settings]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in found)


def _check_figures(source: Path, rows: Sequence[TrialRow], values: Sequence[str], signed: Collection[str]) -> None:
    for name in values:
        if not any(name in row.metrics for row in rows):
            known = [column for column in columns_of(source) if column != name]
            if name in columns_of(source):
                raise StudyError(f"{source}: {name!r} has no figure in any row.")
            raise StudyError(f"{source}: {unknown_name('figure', name, known)}")
        below = next((row for row in rows if name not in signed and row.metrics.get(name, 0.0) < 0), None)
        if below is not None:
            raise StudyError(
                f"{source}, {below.trial}: {name} is {below.metrics[name]:g}, and cannot be less than zero."
            )
