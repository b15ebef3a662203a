"""What one trial leaves behind, and the table of trials: which attempt counts, which device it ran on, in which rows.

A trial is a `Record` everywhere. Where trials of several stores, or the rows of a foreign table, are looked at
together, each is a `TrialRow`: the same record, with its device, its group, and a block that no other store shares.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, Self, TypeAlias, TypeVar, get_args

from tare.base.declare import before, learn
from tare.base.rulings import Ruling, Weight, read_rulings
from tare.base.sides import side_of
from tare.base.text import unit_of

Json: TypeAlias = Any
State: TypeAlias = Literal["planned", "running", "ok", "suspect", "invalid", "failed", "timeout", "oom", "interrupted"]
AA_REPEAT = "A/A repeat"  # the baseline, run a second time in the same block
LONGEST_STEPS, LATER_STEPS = "longest_steps_s", "later_steps_s"  # facts: figures/steps.py says of what
LONG_STEPS = 5
USABLE: tuple[State, ...] = ("ok", "suspect")  # their times may be compared; a suspect one is marked
# What a resume does not run again, but for an invalid one that has reruns left.
FINISHED: tuple[State, ...] = ("ok", "suspect", "invalid", "failed", "timeout", "oom")
FAILED: tuple[State, ...] = ("failed", "timeout", "oom")
DEVICE, TYPE = "device", "device.type"  # the settings that a fleet's trials have
UNTYPED = "untyped"

_KINDS: dict[str, type] = {
    "trial": str, "attempt": int, "study": str, "block": int, "position": int, "twin": int, "settings": dict,
    "state": str, "metrics": dict, "phases": dict, "facts": dict, "declared": dict, "start_ns": int, "end_ns": int,
}  # fmt: skip
_STATES = frozenset(get_args(State))
_WEIGHTS: dict[str, Weight] = {"invalid": "invalid", "suspect": "suspect"}  # of reasons from before there were codes
_PHASES_BEFORE = {"open.furnish": "open.prepare"}  # phases by the names that an older tare gave them
_NO_FACTORS = ("probes",)
COMMAND, LABEL, MODEL = "workload.argv", "workload.label", "workload.model"  # a label: what the user calls a command
EPOCH_COUNT, COMPUTES_ON, ISOLATION = "workload.epochs", "workload.device", "platform.isolation"
_LINES = (COMMAND, LABEL)
_DESCRIBES_DEVICE = ("board", "cpu", "machine")  # what makes two devices of one type
_NOT_BOARDS = ("linux,dummy-virt", "qemu")


@lru_cache(maxsize=4096)
def depends_on_speed(metric: str) -> bool:
    """Whether a figure is how long the workload took, or what it drew meanwhile; tracing changes both."""
    declared = before().metric(metric)
    return metric.endswith(("_s", "_w", "_j")) and not (declared is not None and declared.traced)


@dataclass(frozen=True, slots=True)
class Record:
    """One attempt at one trial: settings, what was found, how it ended. Series and marks lie beside it."""

    trial: str  # the hash of what was asked: the same trial in another run has the same id
    attempt: int
    study: str
    block: int
    position: int  # place in the block's shuffled order
    twin: int  # 1: the baseline run a second time under another name, for the A/A noise floor
    settings: Mapping[str, Json]  # flat: {"platform": "docker", "workload": "torch_train", "workload.batch": 16}
    state: State
    reasons: tuple[Ruling, ...] = ()  # why it is not plainly ok
    notes: tuple[Ruling, ...] = ()  # worth knowing, without doubt on the numbers
    metrics: Mapping[str, float] = field(default_factory=dict)  # base units: {"step_s": 0.00184, "cpu_s": 3.1}
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds: {"open": 0.31, "run": 4.2, "close": 0.2}
    facts: Mapping[str, Json] = field(default_factory=dict)  # {"device": {...}, "inside": {...software...}}
    started_utc: str = ""
    start_ns: int = 0  # monotonic clock of the device
    end_ns: int = 0
    tare_version: str = ""
    declared: Mapping[str, Json] = field(default_factory=dict)  # metric -> words, unit, better: those of channels

    @property
    def traced(self) -> bool:
        """Whether a tracer ran beside it: then its times are not compared (docs/explanation/verdicts.md)."""
        return "traced" in self.facts

    @property
    def compared(self) -> Mapping[str, float]:
        """The figures that may be compared with other trials': beside a tracer all but times, power and energy."""
        if not self.traced:
            return self.metrics
        return {name: value for name, value in self.metrics.items() if not depends_on_speed(name)}

    @property
    def unit(self) -> str:
        """What its steps are for people: steps, requests or decode steps."""
        return unit_of([self.settings.get("workload")])

    def as_json(self) -> dict[str, Json]:
        """Its fields as plain data; what is in them is not copied."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "declared" or self.declared}
        return told | {name: tuple(each.as_json() for each in told[name]) for name in ("reasons", "notes")}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Record:
        """The reverse of `as_json`; keys that a newer tare added are ignored."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        known["reasons"] = read_rulings(known.get("reasons", ()), _WEIGHTS.get(known.get("state", ""), "failed"))
        known["notes"] = read_rulings(known.get("notes", ()), "note")
        for name, kind in _KINDS.items():
            if not isinstance(known.get(name, kind()), kind):
                raise ValueError(f"its {name} is a {type(known[name]).__name__}")
        if known.get("state") not in _STATES:
            raise ValueError(f"its state is {known.get('state')!r:.80}")
        for name in ("metrics", "phases"):
            for key, value in known.get(name, {}).items():
                if not isinstance(value, int | float) or isinstance(value, bool):
                    raise ValueError(f"its {name}.{key:.80} is a {type(value).__name__}, not a number")
        learn(known.get("declared", {}))
        if "phases" in known:
            known["phases"] = {_PHASES_BEFORE.get(name, name): value for name, value in known["phases"].items()}
        return cls(**known)


def varied(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The platform, and what tells these settings apart beyond it.

    `platform.image` of a container is no factor because bare metal has none: it is one if it differs between
    containers of the same platform. The same goes for the fields of a workload.
    """
    seen: dict[str, dict[str, set[str]]] = {"platform": {}}
    for each in settings:
        for name, value in each.items():
            of = str(each.get(name.partition(".")[0], "")) if "." in name else ""
            seen.setdefault(name, {}).setdefault(of, set()).add(str(value))
    found = [
        name
        for name, values in seen.items()
        if name == "platform" or (name not in _NO_FACTORS and any(len(of_one) > 1 for of_one in values.values()))
    ]
    for name in _LINES:  # a command's levels stand alone too, where the study names them (`vary`)
        others = [each for each in found if each not in _LINES]
        if name in found and _combinations(settings, others) == _combinations(settings, [*others, name]):
            found.remove(name)
    return found


def _combinations(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int:
    return len({tuple(str(each.get(name)) for name in names) for each in settings})


# Which attempts there are

Item = TypeVar("Item")
Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)
Attempt = TypeVar("Attempt", bound=Record)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items by their key; groups and what is in them come in the order of the items."""
    return collected((key(item), item) for item in items)


def collected(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """The values of each key, in the order of the pairs."""
    found: dict[Key, list[Item]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


# Rehearsals, which are not data


def sides_that_never_ran(records: Iterable[Attempt], rehearsals: Iterable[Attempt]) -> list[Attempt]:
    """Of each side that was tried, and that never came to its end, the newest attempt: it says why."""
    tried = grouped((*rehearsals, *records), lambda record: side_of(record.settings))
    ended = {side: [each for each in attempts if each.state in FINISHED] for side, attempts in tried.items()}
    return [attempts[-1] for attempts in ended.values() if attempts and all(each.state in FAILED for each in attempts)]


# Which attempt counts


def is_usable(record: Record) -> bool:
    return record.state in USABLE


def has_most_of(figures: Sequence[str]) -> Callable[[Record], int]:
    """How fit an attempt is for someone who wants these figures: 0 where it is not usable at all."""
    return lambda record: is_usable(record) and 1 + sum(name in record.compared for name in figures)


def counted_attempts(records: Iterable[Attempt], fitness: Callable[[Record], int] = is_usable) -> list[Attempt]:
    """Of each trial the attempt that counts: the fittest, of equals the newest. Attempts come oldest first.

    A trial of which no attempt is fit is there with its newest, which says why.
    """
    chosen: dict[str, tuple[Attempt, int]] = {}
    for record in records:
        fit = fitness(record)
        if record.trial not in chosen or fit >= chosen[record.trial][1]:
            chosen[record.trial] = (record, fit)
    return [record for record, _ in chosen.values()]


def usable_trials(
    records: Iterable[Attempt], fitness: Callable[[Record], int] = is_usable, *, repeats: bool = True
) -> list[Attempt]:
    """The same, of those trials only that have a fit attempt; `repeats`: the A/A repeats, which tell the noise, too."""
    counted = counted_attempts(records, fitness)
    return [record for record in counted if fitness(record) and (repeats or not record.twin)]


# Which device it ran on


def device_of(record: Record) -> str | None:
    """What tells this device from others: the fleet's name for it, its own name or serial, else board or processor."""
    known = _facts(record)
    described = (record.settings.get(DEVICE), *(known.get(key) for key in ("id", "serial", "name", "board", "cpu")))
    found = next((each for each in described if each), None)
    return None if found is None else str(found)


def is_named(record: Record) -> bool:
    """Whether the device is told from others of its kind, which have the same board and processor."""
    return bool(record.settings.get(DEVICE)) or any(_facts(record).get(key) for key in ("id", "serial", "name"))


def device_type_of(record: Record) -> str:
    """The fleet's name for the type, else board, or processor and architecture."""
    named = record.settings.get(TYPE)
    if named is not None:
        return str(named)
    return " ".join(kind_of_device(record)) or UNTYPED


def kind_of_device(record: Record) -> tuple[str, ...]:
    """Board, or processor and architecture; empty where the record does not say."""
    known = _facts(record)
    return tuple(str(known[key]) for key in _DESCRIBES_DEVICE if key in known)


def is_board(board: str) -> bool:
    """Whether this names an edge board: a server names none, a virtual machine with a device tree itself."""
    return bool(board) and not board.lower().startswith(_NOT_BOARDS)


def started_s(record: Record) -> float | None:
    """When the trial began, in seconds since 1970; None where the record does not say."""
    try:
        return datetime.fromisoformat(record.started_utc.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def _facts(record: Record) -> Mapping[str, object]:
    facts = record.facts.get("device")
    return facts if isinstance(facts, Mapping) else {}


def _boot(record: Record) -> str:
    return str(_facts(record).get("boot_id") or "")


# Tables


@dataclass(frozen=True)
class StoreTrials:
    """The trials of one store, read: every attempt in the order of the plan, and what the study says of them."""

    name: str
    records: Sequence[Record]
    study: Mapping[str, Any] = field(default_factory=dict)
    epochs: Mapping[str, Sequence[float]] = field(default_factory=dict)  # trial -> mean step of each epoch, of some
    notes: tuple[str, ...] = ()

    @property
    def study_name(self) -> str:
        return str(self.study.get("study", ""))

    @property
    def left_out(self) -> tuple[Ruling, ...]:
        """What the device could not run, as the study said before it began."""
        return read_rulings(self.study.get("left_out") or (), "obstacle")


@dataclass(frozen=True, slots=True)
class TrialRow(Record):
    """An attempt at a trial in a table of several stores, or one row of a foreign table."""

    device: str | None = None
    device_type: str = UNTYPED
    block_id: str | None = None  # unique among the stores: their blocks have nothing in common; None: no block is known
    group: str | None = None  # of the rows that are judged by themselves
    store: int = 0  # which of the stores it lies in
    epochs: tuple[float, ...] = ()  # mean step of each epoch, where the marks were read

    @classmethod
    def of(cls, record: Record, **place: Any) -> Self:
        """The record with its place; what it says of its own device is kept unless `place` says otherwise."""
        known = {"device": device_of(record), "device_type": device_type_of(record), "block_id": str(record.block)}
        return cls(**{name: getattr(record, name) for name in Record.__dataclass_fields__}, **{**known, **place})

    @classmethod
    def foreign(
        cls,
        settings: Mapping[str, Any],
        metrics: Mapping[str, float],
        trial: str,
        *,
        group: str | None = None,
        block: str | None = None,
    ) -> Self:
        """A row that comes from no store: it counts, and has nothing but settings and figures."""
        number = int(block) if block is not None and block.isdecimal() else 0
        return cls(trial, 1, "", number, 0, 0, settings, "ok", metrics=metrics, group=group, block_id=block)


def rows_of_stores(stores: Sequence[StoreTrials]) -> list[TrialRow]:
    """Every attempt of the named stores once: a copy of a store is no further evidence.

    The settings are without the device, which stands beside them.
    """
    names = _device_names(stores)
    made = []
    for number, records in enumerate(without_copies(store.records for store in stores)):
        for record in records:
            row = TrialRow.of(
                record,
                device=str(device_of(record)) if is_named(record) else names[number],
                block_id=f"{number}:{record.block}" if len(stores) > 1 else str(record.block),
                store=number,
            )
            rest = {name: value for name, value in record.settings.items() if name not in (DEVICE, TYPE)}
            made.append(replace(row, settings=rest))
    return made


def without_copies(stores: Iterable[Iterable[Record]]) -> list[list[Record]]:
    """The records of each store that no store before it has."""
    seen: set[tuple[object, ...]] = set()
    made = []
    for records in stores:
        keyed = [((r.trial, r.attempt, r.started_utc, r.start_ns, _boot(r)), r) for r in records]
        made.append([record for key, record in keyed if not record.started_utc or key not in seen])
        seen.update(key for key, _ in keyed)
    return made


def _device_names(stores: Sequence[StoreTrials]) -> list[str]:
    """What the device of each store is called where its records do not name it.

    Two boards of one kind look alike in their facts, so stores tell them apart; stores that were made within one
    boot of a kernel are of one device, and have its first store's name.
    """
    boots: dict[str, str] = {}
    names: list[str] = []
    for place, store in enumerate(stores):
        its = {boot for record in store.records if (boot := _boot(record))}
        free = store.name if store.name not in names else f"{store.name} ({place + 1})"
        called = next((boots[boot] for boot in sorted(its) if boot in boots), free)
        boots |= dict.fromkeys(its, called)
        names.append(called)
    return names


# What is looked up by name


class MadeWhenAsked(Mapping[str, Value]):
    """What has a name, and is made each time that it is asked for."""

    def __init__(self, made: Mapping[str, Callable[[], Value]]) -> None:
        self._made = made

    def __getitem__(self, name: str) -> Value:
        return self._made[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


class MadeOnce(MadeWhenAsked[Value]):
    """The same, kept when it has been made."""

    def __init__(self, made: Mapping[str, Callable[[], Value]]) -> None:
        super().__init__(made)
        self._found: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._found:
            self._found[name] = super().__getitem__(name)
        return self._found[name]
