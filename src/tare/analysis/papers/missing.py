"""Why a row has no figure on a machine, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tare.analysis.beside.figures import SOURCES, WRITE_BACKS
from tare.analysis.cells import text
from tare.analysis.energy.doubts import doubt_about_energy
from tare.analysis.papers.machines import Held, Machine
from tare.analysis.papers.model import Scalar
from tare.analysis.papers.refused import cannot_be_run
from tare.records.model import Record

# What a figure takes: how its name begins, in words, and the parts that give it.
_TAKES: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (("energy_baseload", "energy_incremental"), "no idle power was measured (`tare baseload`)", ()),
    (("energy", "power"), "no power sensor", ("power_rails", "power_rapl", "external")),
    (("gpu_",), "no GPU that tells it", ("gpu", "frequency")),
    (("count_", "cycles", "instructions", "cache_misses", "loads", "stores"), "perf does not count it", ("perf",)),
    (("fault_",), "no page faults were recorded", ("perf",)),
    (("system_calls",), "no system calls were traced", ("syscalls",)),
    (("writeback_", "written_", "flush_"), "no write-backs were traced", ("ftrace",)),
    (("page_cache",), "the page cache was not looked at", ("page_cache",)),
)  # fmt: skip
_SHOWN = 4
_OF_THE_IDLE_DEVICE = _TAKES[0][0]
_ENERGY = "energy_j"  # what a baseload is taken from
BETWEEN_WRITE_BACKS = "writeback_interval"


def not_run(machine: Machine, study: str) -> str:
    """There is no store of the study: the machine refused it, or nobody asked."""
    said = machine.not_run.get(study)
    return f"{study} was not run" if said is None else cannot_be_run(study, said)


def missing_figure(held: Held, metric: str, records: Sequence[Record]) -> str:
    """No trial has the figure: what it takes, and what the machine said when it was asked for it."""
    if any(metric in record.metrics for record in records):
        return f"a tracer ran beside the trials of {held.study}, so their {metric} is not compared"
    if told := [words for record in records if (words := (record.facts.get(SOURCES) or {}).get(metric))]:
        return f"{told[0]} of {held.study} ({metric})"
    lacks_idle_power = metric.startswith(_OF_THE_IDLE_DEVICE) and any(_ENERGY in record.metrics for record in records)
    if metric.startswith("energy") and not lacks_idle_power and (doubt := doubt_about_energy(records)):
        return f"energy was read and is not claimed ({metric}): {doubt}"
    if metric.startswith(_OF_THE_IDLE_DEVICE) and not lacks_idle_power:
        return missing_figure(held, _ENERGY, records)
    if metric.startswith(BETWEEN_WRITE_BACKS) and any(WRITE_BACKS in record.metrics for record in records):
        return f"too few write-backs in the trials of {held.study} ({metric})"
    for starts, words, parts in _TAKES:
        if metric.startswith(starts):
            return _with_reason(f"{words} ({metric})", held, parts)
    return f"no trial of {held.study} has {metric}"


def missing_level(held: Held, name: str, levels: Sequence[Scalar]) -> str:
    """No trial of the study has the setting that the row is about."""
    wanted = " or ".join(text(level) for level in levels if level is not None)
    return _with_reason(f"no trial of {held.study} has {_last(name)} {wanted}", held, map(text, levels))


def only_levels(held: Held, by: str, run: Sequence[Any]) -> str:
    """The factor that the row is about has one level only, or none that it means."""
    levels = list(dict.fromkeys(map(text, run)))
    words = (_last(by), *by.split("."))
    if not levels:
        return _with_reason(f"no trial of {held.study} sets {_last(by)}", held, words)
    shown = ", ".join(levels[:_SHOWN]) + (" ..." if len(levels) > _SHOWN else "")
    return _with_reason(f"the trials of {held.study} have {_last(by)} {shown} only", held, words)


def nothing_to_share(held: Held, whole: str, records: Sequence[Record]) -> str:
    """What a share would be of is zero in every trial."""
    return f"{whole} is zero in all {len(records)} trials of {held.study}, and nothing has a share in it"


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _with_reason(why: str, held: Held, words: Any) -> str:
    """The first sentence of what the study had to leave out that names any of these."""
    told = tuple(words)
    reason = next((said for said in held.left_out if any(word in said.split(":")[0].split() for word in told)), None)
    return why if reason is None else f"{why}: {reason.rstrip('.')}"
