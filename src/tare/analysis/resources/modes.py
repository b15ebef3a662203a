"""Modes of a device as points: time against energy with the front, time against power, predicted against measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tare.analysis.answer import some_names
from tare.analysis.choose.configurations import Configuration, centres, configurations, models_apart
from tare.analysis.choose.pareto import on_front
from tare.analysis.labels import setting_words
from tare.analysis.observations import ENERGY, POWER, record_observations
from tare.analysis.resources.curves import last_part
from tare.analysis.sections import Chart, Column, Line, Section, Sentence, Shown, Table, anchor
from tare.analysis.selection import MEDIAN_STEP, RUN
from tare.analysis.work import is_counted, is_per_sample, per_sample, samples_of, unlike_work, with_per_sample
from tare.base.declare import Role
from tare.base.errors import TareError
from tare.base.text import count_text, metric_name
from tare.records.model import Record, TrialRow, grouped, varied

if TYPE_CHECKING:
    from tare.analysis.choose.modes import Columns, ModeTable
    from tare.analysis.choose.predictions import Predictions

FEWEST = 3  # two points make a comparison, and no front
PAIRS = (
    (Role.TOKEN_TIME.metric, Role.ENERGY_TOKEN.metric),
    (MEDIAN_STEP, Role.ENERGY_STEP.metric),
    (Role.WHOLE_RUN.metric, ENERGY),
)
ALL = "all configurations"
TIMES = (MEDIAN_STEP, RUN)  # of time against power: the first that the trials have
# The last parts of settings that are a resource of the device, and what people call them.
RESOURCES = {
    "cores": "cores", "quota": "CPU quota", "cpu_mhz": "CPU clock", "gpu_mhz": "GPU clock", "mem_mhz": "memory clock",
    "power_limit_w": "power limit",
}  # fmt: skip
TEACH, FEWEST_PREDICTED = 4, 8  # the papers' four modes; fewer held out than taught would show little
MOST = 400  # modes of a workload: more take too long for a report
CLOCKS = ("_mhz", "_khz", "_hz")
FIGURES = ("time", "energy")
MEASURED: tuple[tuple[str, str | None], ...] = (*PAIRS, *((time, None) for time, _ in PAIRS))  # time alone is enough


class Spot(NamedTuple):
    """One configuration of one job, where it lies, and whether it is on the front of that job."""

    job: str
    where: str
    time_s: float
    energy_j: float
    n: int
    on_front: bool


def front_sections(records: Sequence[Record], unit: str) -> list[Section]:
    """Time against energy; none where fewer than three configurations have both figures."""
    for time, energy in PAIRS:
        having = [record for record in records if time in record.compared and energy in record.compared]
        if unlike_work(record.settings for record in having) and not is_per_sample(time):
            having, time, energy = _of_samples(having, time, energy)
        spots = _spots(having, time, energy) if having else []
        if len(spots) >= FEWEST:
            called = metric_name(time, unit), metric_name(energy, unit)
            title = f"{called[0]} against {called[1]}, with the front".capitalize()
            return [Section("time-energy", title, partial(_front_chart, spots, time, energy, called))]
    return []


def _of_samples(records: Sequence[Record], time: str, energy: str) -> tuple[list[Record], str, str]:
    """Steps of unlike work by their samples; none where these are not known, or a run is what was measured."""
    unlike = unlike_work(record.settings for record in records)
    names = per_sample(time), per_sample(energy)
    if None in names or not is_counted(unlike) or any(samples_of(each.settings) is None for each in records):
        return [], time, energy
    for name, of_sample in zip((time, energy), map(str, names), strict=True):
        records = [with_per_sample(record, name, of_sample) for record in records]
    return list(records), str(names[0]), str(names[1])


def _by_job(records: Sequence[Record], ways: Sequence[str], values: Sequence[str]) -> list[TrialRow]:
    """A row for each trial, with its job as the group and these settings; jobs are never compared with each other."""
    factors = varied([record.settings for record in records])
    told, _ = models_apart(record_observations(records, settings=[*dict.fromkeys([*ways, *factors])], values=values))
    return [
        replace(each, settings={name: each.settings[name] for name in ways if name in each.settings}) for each in told
    ]


def _spots(records: Sequence[Record], time: str, energy: str) -> list[Spot]:
    told = _by_job(records, varied([record.settings for record in records]), (time, energy))
    found: list[Spot] = []
    for group, held in grouped(configurations(told, (time, energy)), lambda each: each.group).items():
        places = centres(held, (time, energy))
        name = ALL if group is None else str(group)
        for each, place, flag in zip(held, places.tolist(), on_front(places).tolist(), strict=True):
            found.append(Spot(name, _where(each, held), place[0], place[1], each.n, flag))
    return found


def _where(each: Configuration, among: Sequence[Configuration]) -> str:
    """What sets it apart from the others of its job."""
    own = {
        name: value
        for name, value in each.settings.items()
        if any(other.settings.get(name) != value for other in among)
    }
    return ", ".join(setting_words(name, value) for name, value in own.items())


def _front_chart(spots: Sequence[Spot], time: str, energy: str, called: tuple[str, str]) -> Chart:
    fronts = grouped([spot for spot in spots if spot.on_front], lambda spot: spot.job)
    rows = tuple(
        (
            spot.job, spot.where, Shown(time, spot.time_s, f"{spot.job}, {spot.where}"),
            Shown(energy, spot.energy_j, f"{spot.job}, {spot.where}"), Shown("trials", float(spot.n)),
            "yes" if spot.on_front else "no",
        )
        for spot in spots
    )  # fmt: skip
    columns = ("job", "configuration", *called, "trials", "on the front")
    count = sum(map(len, fronts.values()))
    reading = (
        f"{count} of {count_text(len(spots), 'configuration')} are on the front, the dashed line: no other is better "
        "in both. `tare choose front` shows how sure that is."
    )
    return Chart(
        "scatter", Table(tuple(map(Column, columns)), rows), called[0], (called[1],), (reading,), series="job",
        marks=tuple(_steps(sorted((spot.time_s, spot.energy_j) for spot in its)) for its in fronts.values()),
    )  # fmt: skip


def _steps(points: Sequence[tuple[float, float]]) -> Line:
    """A front as stairs: from a point on, its energy holds until the next one."""
    corners = [corner for (_, level), (at, below) in pairwise(points) for corner in ((at, level), (at, below))]
    return Line((*points[:1], *corners))


# Time against power over modes: as S3's figures 11 and 13 to 16, a point is a mode, its colour the level of the
# resource, and a line joins modes that differ in nothing else, so that one sees what the resource alone does to both.


class Mode(NamedTuple):
    """One combination of settings, and what it takes."""

    level: float  # of the resource
    rest: str  # the other settings that vary
    time_s: float
    power_w: float
    n: int


def power_sections(records: Sequence[Record], unit: str) -> list[Section]:
    """A chart for each resource that has two levels or more in trials with time and power; none without power."""
    having = [record for record in records if POWER in record.compared]
    time = next((name for name in TIMES if having and all(name in record.compared for record in having)), None)
    if time is None:
        return []
    factors, called = varied([record.settings for record in having]), metric_name(time, unit)
    found = {factor: _modes(having, factor, factors, time) for factor in factors if _is_resource(having, factor)}
    return [
        Section(
            anchor("time-power", last_part(factor)),
            f"{called} against power, by {RESOURCES[last_part(factor)]}".capitalize(),
            partial(_power_chart, factor, modes, time, called),
        )
        for factor, modes in found.items()
        if _chains(modes)
    ]


def _is_resource(records: Sequence[Record], factor: str) -> bool:
    values = [record.settings.get(factor) for record in records]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return last_part(factor) in RESOURCES and numbers


def _modes(records: Sequence[Record], factor: str, factors: Sequence[str], time: str) -> list[Mode]:
    others = [
        name for name in factors if name != factor and len({str(record.settings.get(name)) for record in records}) > 1
    ]

    def place(record: Record) -> tuple[float, str]:
        rest = ", ".join(setting_words(name, record.settings.get(name)) for name in others)
        return float(record.settings[factor]), rest

    return [
        Mode(level, rest, median(r.compared[time] for r in held), median(r.compared[POWER] for r in held), len(held))
        for (level, rest), held in sorted(grouped(records, place).items())
    ]


def _chains(modes: Sequence[Mode]) -> dict[str, list[Mode]]:
    """Modes that differ in the resource alone, by all else that they have; two levels make a line."""
    return {rest: held for rest, held in grouped(modes, lambda mode: mode.rest).items() if len(held) > 1}


def _power_chart(factor: str, modes: Sequence[Mode], time: str, called: str) -> Chart:
    resource, chains = RESOURCES[last_part(factor)], _chains(modes)

    def figures(mode: Mode) -> tuple[Shown, Shown]:
        of = f"{mode.rest}, {setting_words(factor, mode.level)}"
        return Shown(time, mode.time_s, of), Shown(POWER, mode.power_w, of)

    rest, held = next(iter(chains.items()))
    (first_s, first_w), (last_s, last_w) = figures(held[0]), figures(held[-1])
    ends = f"From {setting_words(factor, held[0].level)} to {setting_words(factor, held[-1].level)}"
    reading: Sentence = (
        f"{ends}{f' ({rest})' if rest else ''} time goes from ", first_s, " to ", last_s, " and power from ", first_w,
        " to ", last_w, f"; a line joins modes that differ in {resource} alone.",
    )  # fmt: skip
    rows = tuple(
        (
            setting_words(factor, mode.level), mode.rest or "none", *figures(mode),
            Shown(ENERGY, mode.time_s * mode.power_w), Shown("trials", float(mode.n)),
        )
        for mode in modes
    )  # fmt: skip
    columns = (resource, "other settings", called, metric_name(POWER), "energy, power times time", "trials")
    return Chart(
        "scatter", Table(tuple(map(Column, columns)), rows), called, (metric_name(POWER),), reading, series=resource,
        marks=tuple(Line(tuple((mode.time_s, mode.power_w) for mode in its)) for its in chains.values()),
    )  # fmt: skip


# Predicted against measured


def predicted_sections(records: Sequence[Record], store: Path, unit: str) -> list[Section]:
    """Time and, if measured, energy of the held-out modes; none where no clock was varied or modes are few."""
    features = _features(records)
    known = {metric for record in records for metric in record.compared}
    pair = next((pair for pair in MEASURED if known.issuperset(filter(None, pair))), None)
    if pair is None or not any(name.endswith(CLOCKS) for name in features):
        return []
    from tare.analysis.choose.modes import Columns  # only here: what predicts is not for every report
    from tare.analysis.choose.predictions import predict

    columns = Columns(tuple(features), *pair)
    try:
        table = _table(store, records, columns)
        answers = predict(table, measured=TEACH, count_next=0) if table is not None else []
    except TareError:  # modes from which nothing can be told: `tare choose predict` says why
        return []
    if table is None or not answers:
        return []
    return [
        Section(
            f"predicted-{name}", f"{metric_name(metric, unit)}: predicted against measured".capitalize(),
            partial(_predicted_chart, name, metric, table.columns.features, answers),
        )
        for name, metric in zip(FIGURES, columns.figures, strict=False)  # time may be the only one
    ]  # fmt: skip


def _features(records: Sequence[Record]) -> list[str]:
    """What makes a mode: numbers that a control was set to, and how many cores there were."""
    factors = varied([record.settings for record in records])
    return [
        name
        for name in factors
        if (name.startswith("control.") or name == "platform.cores")
        and all(isinstance(record.settings.get(name), int | float) for record in records)
    ]


def _table(store: Path, records: Sequence[Record], columns: Columns) -> ModeTable | None:
    from tare.analysis.choose.modes import modes_of

    told = _by_job(records, columns.features, columns.figures)
    whole = [each for each in told if all(metric in each.metrics for metric in columns.figures)]
    modes = Counter(group for group, _ in {(each.group, tuple(sorted(each.settings.items()))) for each in whole})
    enough = [each for each in whole if FEWEST_PREDICTED <= modes[each.group] <= MOST]
    return modes_of(store, enough, columns) if enough else None


def _predicted_chart(name: str, metric: str, features: Sequence[str], answers: Sequence[Predictions]) -> Chart:
    rows = tuple(row for answer in answers for row in _held_out(name, metric, features, answer))
    ends = [figure.numbers[0] for _, _, measured, predicted, _ in rows for figure in (measured, predicted)]
    errors = [f"{Shown('error_share', each.errors[name])} ({_job(each)})" for each in answers if each.errors]
    reading = (
        f"From {TEACH} measured modes of a workload its others ({len(rows)} in all) are predicted with a mean error of "
        f"{some_names(errors)}; on the dashed line they would be exact."
    )
    columns = (Column("workload"), Column("mode"), Column("measured"), Column("predicted", "between"), Column("off by"))
    diagonal = Line(((min(ends), min(ends)), (max(ends), max(ends))))
    return Chart(
        "scatter", Table(columns, rows), "measured", ("predicted",), (reading,), series="workload", marks=(diagonal,)
    )


def _held_out(
    name: str, metric: str, features: Sequence[str], answer: Predictions
) -> list[tuple[str, str, Shown, Shown, Shown]]:
    found = []
    for each in answer.predictions:
        if each.measured is None:
            continue
        estimate, measured = each.figures[name], each.measured[name]
        mode = ", ".join(f"{last_part(one)} {value:g}" for one, value in zip(features, each.mode, strict=True))
        off = Shown("error_share", abs(estimate.value / measured - 1))
        found.append((_job(answer), mode, Shown(metric, measured), Shown(metric, estimate), off))
    return found


def _job(answer: Predictions) -> str:
    return "all" if answer.group is None else str(answer.group)
