"""Why one store is slower than another: two machines, or one machine at two times.

The trials of a side that both stores have are two samples: they were not run in turn, so that what changed between the
two times, and was not recorded, is part of the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tare.analysis.compare import Contest, judge
from tare.analysis.model import Comparison, Difference, Measurement
from tare.analysis.parity import differences, flat
from tare.analysis.why.causes import Phase, judged_metric, metrics_of, phases, words_of
from tare.analysis.why.layers import Moved, moved
from tare.base.errors import StudyError
from tare.base.text import script_and_options, unit_of
from tare.records.model import Record
from tare.records.trials import grouped, usable_trials

_NOT_THE_WORK = ("workload.env", "workload.cwd", "workload.reads", "workload.writes")
_SAME_DEVICE = ("machine", "cpu", "cores", "memory_bytes")
_NO_DIFFERENCE = ("boot_id", "cpu.online")


@dataclass(frozen=True)
class Pair:
    """The slower store and the other one, in the side that both have."""

    slow: str
    quick: str
    side: str  # `runc, train.py`
    total: Comparison
    phases: tuple[Phase, ...]
    counters: tuple[Moved, ...]
    software: tuple[Difference, ...]
    device: Mapping[str, tuple[Any, Any]]  # what the slow side's device has, and the other's
    settings: Mapping[str, tuple[Any, Any]]  # what was set differently
    records: tuple[Sequence[Record], Sequence[Record]]

    def as_json(self) -> dict[str, Any]:
        return {
            "slower": self.slow,
            "quicker": self.quick,
            "side": self.side,
            "total": self.total.as_json(),
            "phases": [asdict(each) for each in self.phases],
            "counters": [asdict(each) for each in self.counters],
            "software": [asdict(each) for each in self.software],
            "device": self.device,
            "settings": self.settings,
        }


def pair(stores: Mapping[str, Sequence[Record]], *, margin: float, metric: str | None = None) -> Pair:
    """Two stores by their names: the side that both have with the most trials, and which store is slower in it."""
    (one, first), (other, second) = stores.items()
    usable = [usable_trials(each, repeats=False) for each in (first, second)]
    groups = [grouped(each, _work) for each in usable]
    if not groups[0].keys() & groups[1].keys():  # an option of the command may be the difference
        groups = [_of_one_command(grouped(each, _program)) for each in usable]
    common = [work for work in groups[0] if work in groups[1]]
    if not common:
        raise StudyError(
            f"{one} and {other} have no platform with the same workload: {_listed(groups[0])}; {_listed(groups[1])}."
        )
    work = max(common, key=lambda each: min(len(groups[0][each]), len(groups[1][each])))
    sides = {one: groups[0][work], other: groups[1][work]}
    name = metric or judged_metric([*sides[one], *sides[other]])
    total = _judged(one, other, sides, name, margin)
    slow, quick = (one, other) if (total.effect or 0.0) >= 0 else (other, one)
    total = _judged(slow, quick, sides, name, margin)
    ours, theirs = sides[slow], sides[quick]
    return Pair(
        slow, quick, _called(work, ours), total,
        phases(metrics_of(ours), metrics_of(theirs), name),
        moved(ours, theirs),
        tuple(differences(ours, theirs, level=slow, against=quick, by="store")),
        _differing(_device(ours), _device(theirs)),
        _differing(ours[0].settings, theirs[0].settings),
        (ours, theirs),
    )  # fmt: skip


def is_here(records: Sequence[Record], here: Mapping[str, Any]) -> bool:
    """Whether these trials ran on a device like this one, by its CPU, cores and memory."""
    device = records[0].facts.get("device") or {}
    return all(device.get(key) == here.get(key) for key in _SAME_DEVICE)


def _work(record: Record) -> str:
    """Platform and program: not their limits, variables and folders, which may be the difference."""
    words = {key: value for key, value in record.settings.items() if key.startswith("workload.")}
    told = words.get("workload.argv") or [value for key, value in sorted(words.items()) if key not in _NOT_THE_WORK]
    plain = told if isinstance(told, str) else " ".join(map(str, told))
    return f"{record.settings['platform']}, {record.settings.get('workload')} {plain}"


def _called(work: str, records: Sequence[Record]) -> str:
    """The same for people: a built-in workload by its title."""
    title = records[0].facts.get("title")
    if not title or "workload.argv" in records[0].settings:
        return work
    return f"{records[0].settings['platform']}, {title}"


def _program(record: Record) -> str:
    """Platform, script and the words that are no option of it; code on the command line is a program of its own."""
    words = words_of(record)
    if not words or "-c" in words[1:3]:
        return _work(record)
    script, options = script_and_options(words)
    plain = [script, *(each for each in options if not each.startswith("-"))]
    return f"{record.settings['platform']}, {record.settings.get('workload')} {' '.join(plain)}"


def _of_one_command(groups: Mapping[str, list[Record]]) -> dict[str, list[Record]]:
    """Those in which a store has one command line: of several, the mean of them all would stand for each."""
    return {name: held for name, held in groups.items() if len({tuple(words_of(each)) for each in held}) == 1}


def _listed(groups: Mapping[str, Any]) -> str:
    return "; ".join(groups) or "no usable trial"


def _judged(ours: str, theirs: str, sides: Mapping[str, Sequence[Record]], metric: str, margin: float) -> Comparison:
    values = {
        name: [Measurement("", each.metrics[metric], trial=each.trial) for each in records if metric in each.metrics]
        for name, records in sides.items()
    }
    unit = unit_of(each.settings.get("workload") for records in sides.values() for each in records)
    contest = Contest(ours, theirs, values[ours], values[theirs], unit=unit)
    (found,) = judge([contest], margin=margin, metric=metric, resamples=0)
    return found


def _device(records: Sequence[Record]) -> dict[str, Any]:
    return {k: v for k, v in flat(records[0].facts.get("device") or {}).items() if k not in _NO_DIFFERENCE}


def _differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    keys = dict.fromkeys((*ours, *theirs))
    return {key: (ours.get(key), theirs.get(key)) for key in keys if ours.get(key) != theirs.get(key)}
