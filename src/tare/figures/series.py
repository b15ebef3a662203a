"""The metrics that are made of channels, as their probes declare them: over the measured steps, or the whole run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tare.base.declare import Metric, before, can_be_declared
from tare.base.units import LONGEST_WORDS, Channel, Take
from tare.figures.evidence import Evidence
from tare.figures.power_series import Span, Values, span_of
from tare.figures.steps import Steps, windows_of

_WORDS: dict[Take, str] = {"mean": "mean {}", "max": "highest {}", "rate": "{} per second"}
_OF_COUNTERS: frozenset[Take] = frozenset({"rate"})


def declared_metrics(channels: Iterable[Mapping[str, Any]], reported: Iterable[Metric] = ()) -> dict[str, Metric]:
    """Name -> the metric, of all that the channels of a trial are declared to give, and its workload to report."""
    told = (*reported, *(metric for _, _, metric in _taken(channels)))
    return {metric.name: metric for metric in told if metric.name not in before().metrics}


def channel_metrics(evidence: Evidence, steps: Steps | None) -> dict[str, float]:
    """Their values. In slices the channels of the device are those of all sides, and give none."""
    if windows_of(evidence.facts) is not None or evidence.neighbours:
        return {}
    found: dict[str, float] = {}
    for channel, take, metric in _taken(evidence.channels):
        if channel.name not in evidence.series:
            continue
        span = span_of(evidence.marks, steps, evidence.result)
        value = None if span is None else _value(take, *evidence.series[channel.name], span)
        if value is not None:
            found[metric.name] = value
    return found


def _taken(channels: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Channel, Take, Metric]]:
    for channel in map(Channel.of, channels):
        for take in channel.takes:
            name = channel.name if take == "mean" else f"{channel.name}.{take}"
            fits = (take in _OF_COUNTERS) == (channel.kind == "counter")
            if fits and can_be_declared(channel.name) and can_be_declared(name):
                words = _WORDS[take].format(channel.words or channel.name.replace(".", " ").replace("_", " "))
                unit = channel.drawn_unit or "1"
                yield channel, take, Metric(name=name, words=words[:LONGEST_WORDS], unit=unit, better=channel.better)


def _value(take: Take, t_ns: Any, values: Values, span: Span) -> float | None:
    inside = (t_ns >= span.begin_ns) & (t_ns <= span.end_ns)
    seen, at_ns = values[inside], t_ns[inside]
    if take == "rate":
        spent_s = float(at_ns[-1] - at_ns[0]) / 1e9 if len(at_ns) else 0.0
        return float(seen[-1] - seen[0]) / spent_s if spent_s > 0 else None
    if not len(seen):
        return None
    return float(seen.mean() if take == "mean" else seen.max())
