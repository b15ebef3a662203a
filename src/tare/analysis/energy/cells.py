"""Joules and watts of each cell: medians over its trials, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.cells import Cells
from tare.analysis.energy.baseload import BASELOAD, ENERGY, INCREMENTAL, WINDOW
from tare.analysis.energy.idle import POWER, energy_facts
from tare.analysis.model import Estimate
from tare.analysis.stats import median_estimate
from tare.records.model import Record

UNITS = ("step", "sample", "epoch", "request")
FIGURES = (ENERGY, POWER, WINDOW, BASELOAD, INCREMENTAL, *(f"energy_{unit}_j" for unit in UNITS))
SHARE = "energy_baseload_share"
POWER_PROBES: Mapping[str, str] = {
    "external": "a wall meter",
    "power_rails": "a Jetson's own sensors",
    "power_rapl": "the CPU's counters on x86",
    "gpu": "an NVIDIA GPU's own",
}


@dataclass(frozen=True, slots=True)
class CellEnergy:
    """One cell of the study, in joules. A figure that no trial has is absent."""

    label: str
    n: int  # trials with energy
    scope: str
    figures: Mapping[str, Estimate]  # by metric
    trials: tuple[str, ...]
    shared_by: int = 1  # tenants; above one it is the device's energy, and nobody's own
    doubts: tuple[str, ...] = ()  # why trials of this cell have no energy, each reason once
    without: int = 0  # so many trials have none


def cell_energies(records: Sequence[Record], label: Cells, left_out: Sequence[str] = ()) -> list[CellEnergy]:
    """One for each cell, in the order in which they appear; `left_out` names probes that the device lacks."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(label.label(record), []).append(record)
    return [_cell(name, group, left_out) for name, group in groups.items()]


def power_left_out(study: Mapping[str, object]) -> dict[str, list[str]]:
    """Of what a study left out here, the probes that tell power, each with the sentences that say why."""
    listed = study.get("left_out")
    sentences = [str(each) for each in listed] if isinstance(listed, list | tuple) else []
    told = {name: [each for each in sentences if each.startswith(f"probe {name}:")] for name in POWER_PROBES}
    return {name: why for name, why in told.items() if why}


def _cell(name: str, group: Sequence[Record], left_out: Sequence[str]) -> CellEnergy:
    held = [record for record in group if ENERGY in record.compared]
    others = [record for record in group if ENERGY not in record.compared]
    scopes = dict.fromkeys(str(energy_facts(record).get("scope", "")) for record in held)
    shared = [int(energy_facts(record).get("shared_by", 1)) for record in group]
    return CellEnergy(
        label=name,
        n=len(held),
        scope=" or ".join(scopes),
        figures=_figures(held),
        trials=tuple(record.trial for record in held),
        shared_by=max(shared, default=1),
        doubts=tuple(dict.fromkeys(reason for record in others for reason in why_no_energy(record, left_out))),
        without=len(others),
    )


def _figures(held: Sequence[Record]) -> dict[str, Estimate]:
    found = {}
    for metric in FIGURES:
        values = [record.compared[metric] for record in held if metric in record.compared]
        if values:
            found[metric] = median_estimate(values)
    shares = [record.compared[BASELOAD] / record.compared[ENERGY] for record in held if BASELOAD in record.compared]
    return found | ({SHARE: median_estimate(shares)} if shares else {})


def why_no_energy(record: Record, left_out: Sequence[str] = ()) -> list[str]:
    """Why a trial has no energy: nothing watched power, what did was lost, or what it said may not be claimed.

    `left_out`: the probes that tell power, and that the study asked for and this device lacks.
    """
    if record.traced and ENERGY in record.metrics:
        return ["a tracer ran beside it, which costs power itself."]
    facts = energy_facts(record)
    if facts:
        return list(facts.get("doubts") or ["no source of power covers the device."])
    asked = [name for name in str(record.settings.get("probes") or "").split(",") if name in POWER_PROBES]
    lost = (record.facts.get("sampler") or {}).get("lost", [])
    said = [sentence for sentence in lost if str(sentence).startswith(tuple(asked))] if asked else []
    if said:
        return [str(sentence) for sentence in said]
    if asked:
        return [f"{', '.join(asked)} told no power of this device."]
    if left_out:
        return [f"what tells power was left out on this device ({', '.join(left_out)})."]
    return [f"no probe that tells power was asked for: {probes_text()} would."]


def probes_text() -> str:
    """`external` (a wall meter), `power_rails` (...) or `gpu` (...)."""
    *most, last = (f"`{name}` ({what})" for name, what in POWER_PROBES.items())
    return f"{', '.join(most)} or {last}"
