"""The knee of a server: the highest rate of an open loop up to which goodput follows the rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tare.analysis.labels import distinguishing, make_labels
from tare.analysis.statistics import median_estimate
from tare.records.model import Record
from tare.records.trials import grouped, usable_trials

RATE, GOODPUT, OFFERED = "workload.rate", "goodput_per_s", "offered_per_s"
FEWEST = 3  # rates; of two it is not known where between them
FOLLOWS = 0.95  # of the rate: goodput that is as high follows it


def knee_sentences(records: Sequence[Record]) -> tuple[str, ...]:
    """One for each server that was driven at three rates or more, all else being the same: its platforms, say."""
    served = [
        at_rate(record)
        for record in usable_trials(records, repeats=False)
        if GOODPUT in record.metrics and isinstance(record.settings.get(RATE), int | float)
    ]
    names = [name for name in distinguishing([record.settings for record in served]) if name != RATE]
    labels = make_labels([record.settings for record in served], names)
    found = []
    for series, its in grouped(served, lambda record: str(labels.words(record.settings))).items():
        places = grouped(its, lambda record: float(str(record.settings[RATE])))
        if len(places) >= FEWEST:
            goodput = {rate: [each.metrics[GOODPUT] for each in here] for rate, here in places.items()}
            found.append(knee_sentence(series or "the server", goodput))
    return tuple(sorted(found))


def at_rate(record: Record) -> Record:
    """With the goodput that it would have at just its rate: requests that come at random are a few more or fewer."""
    offered, rate = record.metrics.get(OFFERED), record.settings.get(RATE)
    if not offered or not isinstance(rate, int | float):
        return record
    return replace(record, metrics={**record.metrics, GOODPUT: record.metrics[GOODPUT] * rate / offered})


def knee(goodput: Mapping[float, Sequence[float]]) -> float | None:
    """The highest rate up to which the goodput of every rate follows it; None where it never does."""
    found = None
    for rate, values in sorted(goodput.items()):
        if median_estimate(values).value < FOLLOWS * rate:
            break
        found = rate
    return found


def knee_sentence(series: str, goodput: Mapping[float, Sequence[float]]) -> str:
    at, lowest, highest = knee(goodput), min(goodput), max(goodput)
    if at is None:
        return f"{series}: goodput is behind even the lowest rate, {lowest:g}/s."
    if at == highest:
        return f"{series}: goodput follows the rate up to the highest, {highest:g}/s: the knee lies above."
    after = min(rate for rate in goodput if rate > at)
    return (
        f"{series}: goodput follows the rate up to {at:g}/s, the knee; at {after:g}/s it is "
        f"{median_estimate(goodput[after]).value:.3g}/s."
    )
