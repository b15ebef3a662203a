"""All that a store says about energy: each cell, what differences are made of, the idle device, and what is missing.

Why one cell takes more energy than another: it ran longer, the idle device draws more there, or it did more work.

With idle power P, time t and energy E = P t + W, of the cell (1) and of what it is held against (0):

    ran longer          P0 (t1 - t0)      the longer time, at the idle power of what it is held against
    idle power differs  (P1 - P0) t1      the other idle power, over the whole of the cell's own time
    more work           W1 - W0           the rest, so that the three add up to E1 - E0 exactly

How much more it is, and how sure that is, is what `compare` finds of the same energy. The parts are of the difference
of the means, since medians do not add up; their intervals are of mean differences, over blocks where both sides have
them. Idle power is of other trials: its own uncertainty is in the interval of every part.

What the energy of a store's trials is made of.

idle         idle power by platform and mode, from trials of the `idle` workload
baseload     the same records, with baseload and incremental energy where the idle power is known
cells        joules and watts of each cell, with intervals over trials
differences  a difference between two cells as *ran longer*, *idle power differs* and *more work*
doubts       why energy that was read is not claimed
findings     all of it for one store
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from tare.analysis.answer import medians_disagree, several_sentences, some_names
from tare.analysis.cells import Cells
from tare.analysis.contrast import contrasts
from tare.analysis.estimators import Shift, mann_whitney, paired_t, welch_t
from tare.analysis.model import Comparison, Estimate
from tare.analysis.numeric.medians import ALPHA, FLOOR, Floats, floats, median_estimate
from tare.analysis.observations import (
    BASELOAD,
    ENERGY,
    INCREMENTAL,
    POWER,
    WINDOW,
    HasRecords,
    IdlePower,
    Key,
    by_mode,
    energy_facts,
    idle_of,
    is_idle,
    key_of,
    with_baseload,
)
from tare.analysis.questions.jobs import places_of
from tare.analysis.resources.parts import range_of
from tare.analysis.sections import (
    Answer,
    Chart,
    Column,
    List,
    Note,
    Section,
    Sentence,
    Shown,
    Table,
    anchor,
    stack_chart,
)
from tare.analysis.selection import Request, request, select
from tare.analysis.sentences import contrast_sentence, open_reason
from tare.analysis.work import samples_of
from tare.base.declare import Role
from tare.base.errors import StudyError
from tare.base.rulings import Ruling, read_rulings
from tare.base.text import count_text
from tare.records.model import Record, grouped, is_usable, usable_trials

UNITS = ("step", "token", "sample", "epoch", "request")
FIGURES = (ENERGY, POWER, WINDOW, BASELOAD, INCREMENTAL, *(f"energy_{unit}_j" for unit in UNITS))
SHARE = "energy_baseload_share"
POWER_PROBES: Mapping[str, str] = {
    "external": "a wall meter",
    "power_rails": "a Jetson's own sensors",
    "power_rapl": "the CPU's counters on x86",
    "gpu": "an NVIDIA GPU's own",
}


def need_energy(words: Iterable[str], known: Iterable[str], store: object) -> None:
    """Refuse to decide by energy or power what has neither: no column brings it, a probe does."""
    if {*words} & {"energy", "power", ENERGY} and not any(name.startswith(("energy", "power")) for name in known):
        probes = "; ".join(f"`{name}` ({what})" for name, what in POWER_PROBES.items())
        raise StudyError(
            f"{store}: no energy was measured in it. To measure it, name a probe in the study's `probes` and run it: "
            f"{probes}. `tare doctor` says which of them work here. `--minimise` with other figures needs no energy."
        )


@dataclass(frozen=True, slots=True)
class CellEnergy:
    """One cell of the study, in joules. A figure that no trial has is absent."""

    label: str
    n: int  # trials with energy
    scope: str
    figures: Mapping[str, Estimate]  # by metric
    trials: tuple[str, ...]
    shared_by: int = 1  # tenants; above one it is the device's energy, and nobody's own
    doubts: tuple[Ruling, ...] = ()  # why trials of this cell have no energy, each reason once
    without: int = 0  # so many trials have none


def cell_energies(
    records: Sequence[Record], label: Cells, left_out: Sequence[str] = (), idle: Mapping[Key, IdlePower] | None = None
) -> list[CellEnergy]:
    """One for each cell, in the order in which they appear; `left_out` names probes that the device lacks.

    `idle` is the idle power that was subtracted: its own uncertainty is in what is left.
    """
    return [_cell(name, group, left_out, idle or {}) for name, group in grouped(records, label.label).items()]


def power_left_out(study: Mapping[str, object]) -> dict[str, list[Ruling]]:
    """Of what a study left out here, the power probes, each with the reasons."""
    listed = study.get("left_out")
    found = read_rulings(listed, "obstacle") if isinstance(listed, list | tuple) else ()
    told = {name: [each for each in found if each.subject == f"probe {name}"] for name in POWER_PROBES}
    return {name: why for name, why in told.items() if why}


def _cell(name: str, group: Sequence[Record], left_out: Sequence[str], idle: Mapping[Key, IdlePower]) -> CellEnergy:
    held = [record for record in group if ENERGY in record.compared]
    others = [record for record in group if ENERGY not in record.compared]
    scopes = dict.fromkeys(str(energy_facts(record).get("scope", "")) for record in held)
    shared = [int(energy_facts(record).get("shared_by", 1)) for record in group]
    return CellEnergy(
        label=name,
        n=len(held),
        scope=" or ".join(scopes),
        figures=_figures(held, idle),
        trials=tuple(record.trial for record in held),
        shared_by=max(shared, default=1),
        doubts=tuple(dict.fromkeys(reason for record in others for reason in why_no_energy(record, left_out))),
        without=len(others),
    )


def _figures(held: Sequence[Record], idle: Mapping[Key, IdlePower]) -> dict[str, Estimate]:
    found = {}
    for metric in FIGURES:
        values = [record.compared[metric] for record in held if metric in record.compared]
        if values:
            found[metric] = median_estimate(values)
    if Role.ENERGY_TOKEN.metric in found:
        found.pop("energy_sample_j", None)  # a sample of a step is a token there
    for metric in (BASELOAD, INCREMENTAL):
        if metric in found:
            found[metric] = _less_sure(found[metric], held, idle)
    shares = [record.compared[BASELOAD] / record.compared[ENERGY] for record in held if BASELOAD in record.compared]
    if shares:
        found[SHARE] = _less_sure(median_estimate(shares), held, idle, lambda record: 1 / record.compared[ENERGY])
    return found


def _less_sure(
    estimate: Estimate,
    held: Sequence[Record],
    idle: Mapping[Key, IdlePower],
    scale: Callable[[Record], float] = lambda _: 1.0,
) -> Estimate:
    """The interval, wider by what is not known of the idle power, over the time that the energy is of.

    Both add up, since the same idle power is taken off every trial; without an interval of it there is none here.
    """
    known = [
        (idle[key_of(record)].power_w, record.compared[WINDOW] * scale(record))
        for record in held
        if key_of(record) in idle and BASELOAD in record.compared
    ]
    if not known or estimate.low is None or estimate.high is None:
        return estimate
    wider = float(np.median([_off(each) * window_s for each, window_s in known]))
    method = f"{estimate.method}, and that of the idle power"
    if math.isnan(wider):
        return replace(estimate, low=None, high=None, method=f"{method}: too few idle trials for one")
    return replace(estimate, low=estimate.low - wider, high=estimate.high + wider, method=method)


def why_no_energy(record: Record, left_out: Sequence[str] = ()) -> list[Ruling]:
    """Why a trial has no energy: nothing watched power, what did was lost, or what it said may not be claimed.

    `left_out`: the power probes that the study requests and this device lacks.
    """
    if record.traced and ENERGY in record.metrics:
        return [Ruling("energy.traced", "note", "", "a tracer was running, which itself costs power.")]
    facts = energy_facts(record)
    if facts:
        doubts = read_rulings(facts.get("doubts") or (), "note")
        return list(doubts) or [Ruling("energy.no-source", "note", "", "no source of power covers the device.")]
    asked = [name for name in str(record.settings.get("probes") or "").split(",") if name in POWER_PROBES]
    lost = read_rulings((record.facts.get("sampler") or {}).get("lost", ()), "note")
    if of_power := [each for each in lost if each.subject in asked]:
        return of_power
    if asked:
        sentence = f"{', '.join(asked)} reported no power on this device."
        return [Ruling("energy.no-reading", "note", ",".join(asked), sentence)]
    if left_out:
        sentence = f"the power probes are not available on this device ({', '.join(left_out)})."
        return [Ruling("energy.left-out", "note", ",".join(left_out), sentence)]
    return [Ruling("energy.no-probe", "note", "", f"no power probe is enabled; add {probes_text()}.")]


def probes_text() -> str:
    """`external` (a wall meter), `power_rails` (...) or `gpu` (...)."""
    *most, last = (f"`{name}` ({what})" for name, what in POWER_PROBES.items())
    return f"{', '.join(most)} or {last}"


RUN = "run"


@dataclass(frozen=True, slots=True)
class EnergyDifference:
    """One cell against another: what `compare` finds, and in joules a step the difference of the means in its parts."""

    level: str
    against: str
    unit: str  # "step", "token" or "sample" where batches differ, or "run" where steps are not marked
    contrast: Comparison
    theirs_j: float  # mean of what it is held against
    total: Estimate
    longer: Estimate | None  # None where the idle power of a side is not known
    idle: Estimate | None
    work: Estimate | None
    trials: tuple[str, ...]

    @property
    def share(self) -> float | None:
        """By how much it is more, as a share of what it is held against."""
        return self.contrast.effect


def unit_of_difference(ours: Sequence[Record], theirs: Sequence[Record]) -> str:
    """What their energy is compared per: a step, or what is of equal work where the steps are not; else the run."""
    both = (*ours, *theirs)
    unlike = (
        len({samples_of(record.settings) for record in both}) > 1
    )  # a step of 64 samples is more work than one of 1
    units = ("token", "sample", "step") if unlike else ("step",)
    return next((unit for unit in units if all(_metric(unit) in record.compared for record in both)), RUN)


def _difference(
    contrast: Comparison, unit: str, ours: Sequence[Record], theirs: Sequence[Record], idle: Mapping[Key, IdlePower]
) -> EnergyDifference:
    total = _mean_difference(ours, theirs, lambda record: _energy(record, unit))
    longer, idling, work = _parts(ours, theirs, unit, total, idle) or (None, None, None)
    return EnergyDifference(
        level=contrast.level,
        against=contrast.against,
        unit=unit,
        contrast=contrast,
        theirs_j=float(np.mean([_energy(record, unit) for record in theirs])),
        total=total,
        longer=longer,
        idle=idling,
        work=work,
        trials=tuple(record.trial for record in (*ours, *theirs)),
    )


def _source(records: Iterable[Record]) -> set[str]:
    return {str(energy_facts(record).get("source")) for record in records}


def _parts(
    ours: Sequence[Record], theirs: Sequence[Record], unit: str, total: Estimate, idle: Mapping[Key, IdlePower]
) -> tuple[Estimate, Estimate, Estimate] | None:
    """The three parts; None where the idle power of a side is not known, or where a side is of several devices."""
    if any(WINDOW not in record.compared for record in (*ours, *theirs)):
        return None
    keys = [{key_of(record) for record in side} for side in (ours, theirs)]
    if any(len(of_side) > 1 or not of_side <= idle.keys() for of_side in keys):
        return None
    mine, base = (idle[of_side.pop()] for of_side in keys)
    longer = _mean_difference(ours, theirs, lambda record: base.power_w.value * _time(record, unit))
    mean_s, base_s = (float(np.mean(each)) for each in _lined_up(ours, theirs, lambda record: _time(record, unit))[:2])
    idling = _idle_part((mine.power_w.value - base.power_w.value) * mean_s, mean_s, mine, base)
    work = _mean_difference(
        ours, theirs, lambda record: _energy(record, unit) - idle[key_of(record)].power_w.value * _time(record, unit)
    )
    rest = total.value - longer.value - idling.value  # but for rounding the same as `work.value`
    apart = [(base, mean_s - base_s)] if mine.key == base.key else [(mine, mean_s), (base, base_s)]
    return _with_doubt(longer, [(base, mean_s - base_s)]), idling, _with_doubt(replace(work, value=rest), apart)


def _with_doubt(part: Estimate, over: Sequence[tuple[IdlePower, float]]) -> Estimate:
    """The interval, wider by what is not known of each idle power over so many seconds; these are independent."""
    if part.low is None or part.high is None:
        return part
    method = f"{part.method}, and that of the idle power"
    if any(idle.power_w.low is None for idle, _ in over):
        return replace(part, low=None, high=None, method=f"{method}: too few idle trials for one")
    doubt = math.hypot(*(_off(idle.power_w) * seconds for idle, seconds in over))
    low, high = math.hypot(part.value - part.low, doubt), math.hypot(part.high - part.value, doubt)
    return replace(part, low=part.value - low, high=part.value + high, method=method)


def _off(power_w: Estimate) -> float:
    """How far an idle power may be from what it is taken as; no interval has no doubt to give."""
    if power_w.low is None or power_w.high is None:
        return math.nan
    return max(power_w.high - power_w.value, power_w.value - power_w.low)


def _idle_part(value: float, mean_s: float, mine: IdlePower, base: IdlePower) -> Estimate:
    """The second part; its interval is that of the difference in idle power, from the idle trials."""
    if mine.key == base.key:
        return Estimate(0.0, 0.0, 0.0, len(mine.values_w), "the same idle power on both sides", 1 - ALPHA)
    n = min(len(mine.values_w), len(base.values_w))
    if n < FLOOR:
        return Estimate(value, None, None, n, f"{n} idle trials are too few for an interval", 1 - ALPHA)
    shift = mann_whitney(floats(mine.values_w), floats(base.values_w))
    low, high = (edge * mean_s for edge in shift.interval(1 - ALPHA))
    method = "difference of the medians of idle power, Mann-Whitney interval"
    return Estimate(value, min(low, value), max(high, value), n, method, 1 - ALPHA)


def _mean_difference(ours: Sequence[Record], theirs: Sequence[Record], figure: Callable[[Record], float]) -> Estimate:
    """The difference of the means with its t interval, paired by block where both sides share blocks."""
    left, right, paired = _lined_up(ours, theirs, figure)
    value, n = float(np.mean(left) - np.mean(right)), min(len(left), len(right))
    how = "mean difference of blocks" if paired else "difference of means"
    if n < FLOOR:
        return Estimate(value, None, None, n, f"{how}; {n} trials are too few for an interval", 1 - ALPHA)
    shift: Shift = paired_t(left - right) if paired else welch_t(left, right)
    low, high = shift.interval(1 - ALPHA)
    return Estimate(value, low, high, n, f"{how}, t interval", 1 - ALPHA)


def _lined_up(
    ours: Sequence[Record], theirs: Sequence[Record], figure: Callable[[Record], float]
) -> tuple[Floats, Floats, bool]:
    left, right = (_by_block(side, figure) for side in (ours, theirs))
    both = sorted(left.keys() & right.keys())
    if both:
        return floats([left[block] for block in both]), floats([right[block] for block in both]), True
    return floats([figure(each) for each in ours]), floats([figure(each) for each in theirs]), False


def _by_block(side: Sequence[Record], figure: Callable[[Record], float]) -> dict[int, float]:
    blocks = grouped(side, lambda record: record.block)
    return {block: float(np.mean([figure(record) for record in inside])) for block, inside in blocks.items()}


def _energy(record: Record, unit: str) -> float:
    return record.compared[_metric(unit)]


def _metric(unit: str) -> str:
    return ENERGY if unit == RUN else f"energy_{unit}_j"


def _time(record: Record, unit: str) -> float:
    """Seconds that the energy of one unit was taken over."""
    return record.compared[WINDOW] * _energy(record, unit) / record.compared[ENERGY]


class Studied(HasRecords, Protocol):
    """The part of a store that is read here."""

    @property
    def study(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class EnergyFindings:
    """What the energy of one store is made of."""

    cells: tuple[CellEnergy, ...]
    differences: tuple[EnergyDifference, ...]
    idle: tuple[IdlePower, ...]
    notes: tuple[str, ...]
    jobs: Mapping[str, str] = field(default_factory=dict)  # label of a cell -> the job that it does

    def as_json(self) -> dict[str, Any]:
        differences = [{**asdict(each), "share": each.share} for each in self.differences]
        idle = [{name: value for name, value in asdict(each).items() if name != "key"} for each in self.idle]
        return {"cells": [asdict(each) for each in self.cells], "differences": differences, "idle": idle,
                "notes": list(self.notes)}  # fmt: skip


def _no_idle_power(records: Sequence[Record]) -> str:
    read = (read_rulings((record.facts.get("energy") or {}).get("doubts", ()), "note") for record in records)
    doubts = [doubt for found in read for doubt in found]
    why = str(doubts[0]) if doubts else "no power probe was enabled."
    return f"every trial of this store is of the idle device, and none has a usable power reading: {why}"


def energy_findings(store: Studied, *, by: str | None = None, against: str | None = None) -> EnergyFindings:
    """From the usable trials of a store; the factor and the baseline are the study's unless the caller says."""
    everything = store.records()
    idle = idle_of(store, everything)
    known = by_mode(idle)
    records = with_baseload(usable_trials(everything, repeats=False), known)
    if not records:
        raise StudyError("there is no usable trial in it. `tare show STORE` lists how each one ended.")
    work = [record for record in records if not is_idle(record)]
    if not work:
        return EnergyFindings((), (), tuple(idle), () if idle else (_no_idle_power(records), *_left_out_notes(store)))
    asked = request(store.study, work, by=by, against=against)
    if not any(asked.by in record.settings for record in work):
        raise StudyError(f"no trial of this store has the factor {asked.by!r}.")
    every = with_baseload([each for each in everything if not is_idle(each)], known)
    label, found = _differences(every, asked, known)
    # Cells that are compared have the trials that are compared: a table of others would tell another story.
    compared = {trial for each in found for trial in each.trials}
    sides = {name for each in found for name in (each.level, each.against)}
    held = [each for each in work if asked.by in each.settings]
    held = [
        each for each in held if each.trial in compared or ENERGY not in each.compared or label.label(each) not in sides
    ]
    told = tuple(cell_energies(held, label, list(power_left_out(store.study)), known))
    why = () if any(each.n for each in told) else _left_out_notes(store)
    jobs = {name: place.job for name, place in places_of(_settings_of(held, label), asked.by).items()}
    return EnergyFindings(told, tuple(found), tuple(idle), (*_notes(told, known), *why), jobs)


def _settings_of(records: Sequence[Record], label: Cells) -> dict[str, Mapping[str, Any]]:
    """Cell -> the settings of its first trial."""
    return {name: its[0].settings for name, its in grouped(records, label.label).items()}


def _left_out_notes(store: Studied) -> Iterator[str]:
    """Why each power probe was left out when the study was run."""
    for sentences in power_left_out(store.study).values():
        yield from (f"left out: {sentence}" for sentence in sentences)


def _differences(
    records: Sequence[Record], asked: Request, idle: Mapping[Key, IdlePower]
) -> tuple[Cells, list[EnergyDifference]]:
    """Each other level against the baseline, within the same surroundings; only energy of the same source."""
    if not any(is_usable(record) and ENERGY in record.compared for record in records):
        return select(records, replace(asked, metric=None)).label, []
    selected = select(records, replace(asked, metric=ENERGY))
    made: dict[str, dict[tuple[str, str], Comparison]] = {}
    found = []
    for each in selected.family():
        ours, theirs = selected.in_common(each.level, each.against)
        if not (ours and theirs) or _source(ours) != _source(theirs):
            continue  # a GPU's joules and a wall meter's are not of the same thing
        unit = unit_of_difference(ours, theirs)
        if unit not in made:
            judged = contrasts(records, replace(asked, metric=_metric(unit))).headline
            made[unit] = {(one.level, one.against): one for one in judged}
        found.append(_difference(made[unit][each.level, each.against], unit, ours, theirs, idle))
    return selected.label, found


def _notes(found: Sequence[CellEnergy], idle: dict[Any, IdlePower]) -> Iterator[str]:
    scopes = {each.scope for each in found if each.n}
    if len(scopes) > 1:
        yield f"energy is not of the same thing everywhere ({'; '.join(sorted(scopes))}): compare within one of them."
    bare = [each.label for each in found if each.n and BASELOAD not in each.figures]
    if bare:
        of = f" of {'; '.join(bare)}" if idle else ""
        yield f"no baseload is known{of}: `tare device baseload` measures what the idle device draws."


def doubt_about_energy(records: Sequence[Record]) -> str:
    """Why the sensor that was there gave no energy: most often the trial was too short for it; empty without any."""
    read = [record.facts.get("energy") or {} for record in records]
    told = (doubt for facts in read if facts.get("source") for doubt in read_rulings(facts.get("doubts", ()), "note"))
    return next((str(doubt).rstrip(".") for doubt in told), "")


@dataclass(frozen=True, slots=True)
class Energy:
    """What energy each cell takes, and why one takes more than another."""

    by: str | None = None
    against: str | None = None

    def answer(self, store: Studied) -> Answer[EnergyFindings]:
        found = energy_findings(store, by=self.by, against=self.against)
        charts = (
            Section(anchor("energy", job), _title(job, its), partial(_chart, its))
            for job, its in _by_job(found).items()
        )
        return Answer(
            sentence=_sentence(found),
            result=found,
            contrasts=tuple(each.contrast for each in found.differences),
            sections=(
                Section("energy-cells", "Energy by cell", partial(_cells, found.cells)),
                Section("energy-units", "Energy per unit of work", partial(_per_unit, found.cells)),
                *charts,
                Section("energy-differences", "Differences", partial(_told, found.differences)),
                Section("energy-missing", "Cells without energy", partial(_missing, found.cells)),
                Section("energy-idle", "Idle power", partial(idle_table, found.idle)),
                Section("energy-notes", "", partial(Note, tuple((note,) for note in found.notes))),
            ),
        )


def _sentence(found: EnergyFindings) -> Sentence:
    """The differences: one with its parts, several by their words."""
    if len(found.differences) == 1:
        return difference_sentence(found.differences[0])
    by_metric = grouped([each.contrast for each in found.differences], lambda each: each.metric)
    return (" ".join(sentence for its in by_metric.values() for sentence in several_sentences(its)),)


_COLUMNS = {"power": POWER, "energy": ENERGY, "baseload": BASELOAD, "incremental": INCREMENTAL, "share": SHARE}


def _cells(cells: Sequence[CellEnergy]) -> Table:
    measured = [each for each in cells if each.n]
    columns = [Column(title, "95 % interval" if metric == ENERGY else "") for title, metric in _COLUMNS.items()]
    rows = [
        (
            each.label,
            *(_figure(each, metric) for metric in _COLUMNS.values()),
            Shown("trials", float(each.n), each.label),
        )
        for each in measured
    ]
    notes: list[Sentence] = []
    if len(scopes := {each.scope for each in measured}) == 1:
        notes.append((f"Measured: {scopes.pop() or 'not recorded'}.",))
    else:
        notes += [(f"{each.label}: measured is {each.scope or 'not recorded'}.",) for each in measured]
    notes += [
        (f"{each.label}: {each.shared_by} tenants shared it, and what each of them used is not measured.",)
        for each in measured
        if each.shared_by > 1
    ]
    if any(SHARE in each.figures for each in measured):
        notes.append(("Baseload: what the idle device would have drawn in the same time; share: of the energy.",))
    return Table((Column("cell"), *columns, Column("trials")), tuple(rows), tuple(notes))


def _per_unit(cells: Sequence[CellEnergy]) -> Table:
    rows = [(each.label, *(_figure(each, f"energy_{unit}_j") for unit in UNITS)) for each in cells]
    held = [row for row in rows if any(row[1:])]
    return Table((Column("cell"), *(Column(f"per {unit}") for unit in UNITS)), tuple(held))


def _figure(cell: CellEnergy, metric: str) -> Shown | None:
    return Shown(metric, cell.figures[metric], cell.label) if metric in cell.figures else None


def _by_job(found: EnergyFindings) -> dict[str, list[CellEnergy]]:
    """Cells of different jobs take amounts that do not fit one axis."""
    return grouped([each for each in found.cells if each.n], lambda each: found.jobs.get(each.label, ""))


_PER_WORK = {Role.ENERGY_TOKEN.metric: "token", Role.ENERGY_STEP.metric: "step"}  # in the order of preference
_PARTS = {
    BASELOAD: "baseload: the idle device in the same time",
    INCREMENTAL: "incremental: beyond it",
    ENERGY: "not split: no baseload is known",
}


def _title(job: str, cells: Sequence[CellEnergy]) -> str:
    of = _PER_WORK.get(_metric_of_all(cells), "run")
    return f"{f'{job}: ' if job else ''}Energy per {of}: baseload and incremental"


def _metric_of_all(cells: Sequence[CellEnergy]) -> str:
    """Energy per token or step where all cells have it, else of the run."""
    return next((name for name in _PER_WORK if all(name in each.figures for each in cells)), ENERGY)


def _chart(cells: Sequence[CellEnergy]) -> Chart:
    """The two parts, in the proportion that they have in the run; the whole where the idle power is not known."""
    metric = _metric_of_all(cells)
    parts = {}
    for cell in cells:
        whole = cell.figures[metric].value
        split = {name: cell.figures[name].value for name in (BASELOAD, INCREMENTAL) if name in cell.figures}
        parts[cell.label] = {name: whole * part / sum(split.values()) for name, part in split.items()} or {
            ENERGY: whole
        }
    shares = [Shown(SHARE, each.figures[SHARE], each.label) for each in cells if SHARE in each.figures]
    reading: Sentence = (
        "Without a baseload the part of the idle device is unknown; `tare device baseload` measures it.",
    )
    if shares:
        reading = ("The idle device takes ", *range_of(shares), ".")
    return stack_chart(parts, _PARTS, metric, reading)


def difference_sentence(each: EnergyDifference) -> Sentence:
    """What `compare` finds, and, where that is a difference, of what it is made: the three parts add up to it."""
    told = contrast_sentence(each.contrast)
    if not each.contrast.sure or each.total.low is None or each.total.value * (each.share or 0.0) <= 0:
        return (told,)
    if each.longer is None or each.idle is None or each.work is None:
        return (f"{told} What of it is the idle device's is unknown without its baseload.",)
    name = f"{each.level} against {each.against}"
    parts = {
        f"it ran {'longer' if each.longer.value >= 0 else 'shorter'}": each.longer,
        "idle power differs": each.idle,
        f"it did {'more' if each.work.value >= 0 else 'less'} work": each.work,
    }
    sentence: list[str | Shown] = [f"{told} On average ", Shown(ENERGY, each.total, name, signed=True)]
    for place, (why, part) in enumerate(parts.items()):
        sentence += ["; " if place else f" per {each.unit}: ", Shown(ENERGY, part, f"{name}, {why}", signed=True)]
        sentence.append(f" because {why}")
    return (*sentence, ".")


def _told(differences: Sequence[EnergyDifference]) -> List:
    """Each of several differences, why others are open, and where two medians tell another story."""
    told: list[Sentence] = []
    if len(differences) > 1:
        unknown = [c for each in differences if (c := each.contrast).verdict == "cannot_tell" and c.effect is not None]
        told += [difference_sentence(each) for each in differences if each.contrast not in unknown]
        told += [
            (f"{some_names([each.level for each in alike])}: {why}.",)
            for why, alike in grouped(unknown, open_reason).items()
        ]
    told += [(text,) for each in differences if (text := medians_disagree(each.contrast))]
    return List(tuple(told))


def _missing(cells: Sequence[CellEnergy]) -> List:
    """Cells without energy, and why: one sentence for all that lack it for the same reason, with the figures of one."""
    lacking = {c.label: {(why.code, why.subject or str(why)): why for why in reversed(c.doubts)} for c in cells}
    without = [each for each in cells if each.without]
    told: list[Sentence] = []
    for alike in grouped(without, lambda each: frozenset(lacking[each.label])).values():
        reason = " ".join(map(str, reversed(lacking[alike[0].label].values())))
        if len(alike) == len(cells) > 1 and not any(each.n for each in cells):
            told.append((f"no energy in any cell: {reason}",))
            continue
        some = [f" in {count_text(each.without, 'trial')} of {each.n + each.without}" * bool(each.n) for each in alike]
        which = "; ".join(f"{each.label}: no energy{part}" for each, part in zip(alike, some, strict=True))
        told.append((f"{which}: {reason}" if len(alike) == 1 else f"{which}. Of the first: {reason}",))
    return List(tuple(told))


def idle_table(found: Sequence[IdlePower]) -> Table:
    """Idle power by platform and mode, and what logging adds to it."""
    several = len({each.logging for each in found}) > 1

    def power(each: IdlePower) -> Shown:
        return Shown(POWER, each.power_w, f"{each.label}, logging {_logging(each)}")

    rows = [
        (each.label, _logging(each) if several else None, power(each), Shown("trials", float(each.power_w.n)))
        for each in found
    ]
    columns = (Column("idle device"), Column("logging"), Column("power", "95 % interval"), Column("trials"))
    quiet = {each.key: each for each in found if not each.logging}
    notes = tuple(
        (f"{each.label}: ", power(each), " with a logging script, ", power(quiet[each.key]), " without.")
        for each in found
        if each.logging and each.key in quiet
    )
    return Table(columns, tuple(rows), notes)


def _logging(each: IdlePower) -> str:
    return "on" if each.logging else "off"
