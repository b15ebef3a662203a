"""Settings that were varied over numbers: how the headline goes with cores, workers or batch, pinned and vanilla apart.

Of a server under several rates also the latency, and the knee: the highest rate up to which goodput follows the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

from tare.analysis.labels import setting_words
from tare.analysis.numeric.medians import median_estimate
from tare.analysis.resources.bottlenecks import FEWEST_RATES, GOODPUT, RATE, at_rate, knee, knee_sentence
from tare.analysis.sections import Cell, Chart, Column, Line, Section, Sentence, Shown, Table, anchor
from tare.analysis.selection import MEDIAN_STEP, SHORT_TAIL, TAIL
from tare.base.text import metric_name
from tare.records.model import Record, grouped, varied

FEWEST = 3  # numbers of any other setting than a server's rate: two are a comparison
MOST = 12  # curves in one chart
QUANTILES = {MEDIAN_STEP: "median", TAIL: "99th percentile", SHORT_TAIL: "90th percentile"}

Curves: TypeAlias = Mapping[str, Mapping[float, list[float]]]  # what else was set -> place -> values


def curve_sections(records: Sequence[Record], metric: str, unit: str) -> list[Section]:
    """A chart for each setting that was varied over at least three numbers, with the others as they were."""
    having = [record for record in records if metric in record.metrics]
    factors = varied([record.settings for record in having])
    found = {factor: curves_of(metric, factor, having, factors) for factor in factors if is_number(having, factor)}
    called = metric_name(metric, unit)
    return [
        Section(
            anchor("curve", factor), f"{called} against {last_part(factor)}".capitalize(),
            partial(_chart, metric, called, factor, curves),
        )
        for factor, curves in found.items()
        if curves
    ]  # fmt: skip


def latency_sections(records: Sequence[Record]) -> list[Section]:
    """Median and tail of the latency against the rate, where a server was driven at several rates."""
    served = [record for record in records if GOODPUT in record.metrics]
    if not served or not is_number(served, RATE):
        return []
    factors = varied([record.settings for record in served])
    tail = next((name for name in (TAIL, SHORT_TAIL) if all(name in each.metrics for each in served)), "")
    curves = {
        f"{series}, {QUANTILES[metric]}": places
        for metric in filter(None, (MEDIAN_STEP, tail))
        for series, places in curves_of(metric, RATE, served, factors).items()
    }
    goodput = curves_of(GOODPUT, RATE, served, factors)
    nominal = curves_of(GOODPUT, RATE, [at_rate(record) for record in served], factors)
    words = " ".join([knee_sentence(series, places, nominal[series]) for series, places in goodput.items()][:MOST])
    knees = [at for places in nominal.values() if (at := knee(places)) is not None]

    def latency() -> Chart:
        every = [value for places in curves.values() for values in places.values() for value in values]
        marks = tuple(Line(((at, min(every)), (at, max(every)))) for at in knees)
        reading = (f"{words} Dashed lines are the knees.",)
        return _curves_chart(MEDIAN_STEP, "latency", RATE, curves, reading, marks)

    return [Section("curve-latency", "Latency against the rate", latency)] if curves else []


def is_number(records: Sequence[Record], factor: str) -> bool:
    """Whether every trial has a number here, and there are enough different ones; a setting may also be a list."""
    values = [record.settings.get(factor) for record in records]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return False
    return len(set(values)) >= _fewest(factor)


def last_part(factor: str) -> str:
    """`workers` of `workload.workers`."""
    return factor.rpartition(".")[2]


def _fewest(factor: str) -> int:
    return FEWEST_RATES if factor == RATE else FEWEST


def curves_of(metric: str, factor: str, records: Sequence[Record], factors: Sequence[str]) -> Curves:
    """The curves that have places enough: a number that changes only with something else has none."""
    others = _apart(records, factor, [each for each in factors if each != factor])
    series = grouped(
        records, lambda record: ", ".join(setting_words(each, record.settings.get(each)) for each in others)
    )
    curves = {}
    for name, its in series.items():
        places = grouped(its, lambda record: float(record.settings[factor]))
        if len(places) >= _fewest(factor):
            curves[name or "all trials"] = {at: [each.metrics[metric] for each in here] for at, here in places.items()}
    return curves


def _apart(records: Sequence[Record], factor: str, others: Sequence[str]) -> list[str]:
    """Those of the other factors that tell curves apart: what only follows from the factor, or from these, does not."""
    kept: list[str] = []
    for other in others:
        if not (_follows(records, other, [factor]) or _follows(records, other, kept)):
            kept.append(other)
    return kept


def _follows(records: Sequence[Record], one: str, others: Sequence[str]) -> bool:
    """Whether a setting has one value for each combination of others."""
    seen: dict[tuple[str, ...], str] = {}
    return all(
        seen.setdefault(tuple(str(record.settings.get(each)) for each in others), value) == value
        for record in records
        for value in [str(record.settings.get(one))]
    )


def _chart(metric: str, called: str, factor: str, curves: Curves) -> Chart:
    first, places = next(iter(curves.items()))
    low, high = min(places), max(places)
    reading: Sentence = (
        f"From {setting_words(factor, low)} to {setting_words(factor, high)} the median of {first} goes from ",
        _figure(metric, first, low, places[low]), " to ", _figure(metric, first, high, places[high]), ".",
    )  # fmt: skip
    return _curves_chart(metric, called, factor, curves, reading)


def _curves_chart(
    metric: str, called: str, factor: str, curves: Curves, reading: Sentence, marks: tuple[Line, ...] = ()
) -> Chart:
    where = last_part(factor)
    rows: list[tuple[Cell, ...]] = [
        (series, Shown(where, place), _figure(metric, series, place, values), Shown("trials", float(len(values))))
        for series, places in list(curves.items())[:MOST]
        for place, values in sorted(places.items())
    ]
    columns = (Column("series"), Column(where), Column(called, "95 % interval"), Column("trials"))
    return Chart("lines", Table(columns, tuple(rows)), where, (called,), reading, series="series", marks=marks)


def _figure(metric: str, series: str, place: float, values: Sequence[float]) -> Shown:
    return Shown(metric, median_estimate(values), f"{series} at {place:g}")
