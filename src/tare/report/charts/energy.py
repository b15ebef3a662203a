"""Energy as what the idle device would have drawn in the same time, and what the work took beyond it."""

from __future__ import annotations

from collections.abc import Mapping

from tare.analysis.energy.baseload import BASELOAD, ENERGY, INCREMENTAL
from tare.analysis.energy.idle import energy_facts
from tare.analysis.model import Estimate
from tare.report.charts.bars import Parts, bars_figure
from tare.report.charts.naming import level_names, some_of
from tare.report.evidence import Evidence
from tare.report.figure import Figure, in_words
from tare.report.words import quantity_text, safe_text, share_text

_STEP = "energy_step_j"
_NAMES = {
    BASELOAD: "baseload: the idle device in the same time",
    INCREMENTAL: "incremental: beyond it",
    ENERGY: "not split: no baseload is known",
}


def energy_figure(evidence: Evidence) -> Figure | None:
    """A lane for each level that has energy: a step's where all have steps, else the run's; None where none has."""
    held = {level: found for level, found in evidence.weighing.medians.items() if ENERGY in found}
    ordered = {level: held[level] for level in dict.fromkeys([*evidence.level_hrefs, *held]) if level in held}
    if not ordered:
        return None
    a_step = all(_STEP in found for found in ordered.values())
    parts = {level: _parts(found, a_step) for level, found in ordered.items()}
    title = f"Energy of a {'step' if a_step else 'run'}: baseload and incremental"
    reading = f"{_told(evidence, parts)} Measured: {in_words(_scopes(evidence))}."
    return bars_figure("energy", title, reading, evidence.weighing, parts, _NAMES, evidence.level_hrefs, ENERGY)


def _parts(found: Mapping[str, Estimate], a_step: bool) -> dict[str, float]:
    """The two parts, in the proportion that they have in the run; the whole where the idle power is not known."""
    whole = found[_STEP if a_step else ENERGY].value
    if BASELOAD not in found or INCREMENTAL not in found:
        return {ENERGY: whole}
    both = found[BASELOAD].value + found[INCREMENTAL].value
    return {name: whole * found[name].value / both for name in (BASELOAD, INCREMENTAL)}


def _told(evidence: Evidence, parts: Parts) -> str:
    called = level_names(parts, evidence.weighing.by)
    split = [
        f"{share_text(known[BASELOAD] / sum(known.values()))} of {quantity_text(ENERGY, sum(known.values()))} with "
        f"{called[level]}"
        for level, known in parts.items()
        if BASELOAD in known
    ]
    if split:
        return f"The idle device would have drawn {some_of(split)}."
    whole = [f"{called[level]} {quantity_text(ENERGY, known[ENERGY])}" for level, known in parts.items()]
    return f"Medians of {some_of(whole)}; `tare baseload` tells what of it the idle device draws."


def _scopes(evidence: Evidence) -> list[str]:
    """What the joules are of: a module, a GPU, all behind a wall meter."""
    held = [record for records in evidence.usable().values() for record in records if ENERGY in record.metrics]
    told = dict.fromkeys(safe_text(energy_facts(record).get("scope") or "what is not said") for record in held)
    return list(told) or ["what is not said"]
