"""A store as OpenMetrics text: for Prometheus from `tare watch` (/metrics), for node_exporter as a file.

Everything is a gauge, since a resumed or repaired study may count down. Labels are what people wrote: they are escaped
as the format demands. An unknown value is absent, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tare.analysis.model import Comparison, Weighing, Word
from tare.base.text import safe_text

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
WORDS: tuple[Word, ...] = ("slower", "faster", "equivalent", "cannot_tell")

_FAMILIES = {
    "tare_trials": "Trials by state.",
    "tare_trials_planned": "Trials that the study plans.",
    "tare_effect_ratio": "Effect on the metric, as a share of the level compared with.",
    "tare_effect_low_ratio": "Lower end of the effect's interval.",
    "tare_effect_high_ratio": "Upper end of the effect's interval.",
    "tare_margin_ratio": "Differences below this count as equivalent.",
    "tare_blocks": "Blocks that hold both sides.",
    "tare_verdict": "1 for the word of the verdict, 0 for the others.",
    "tare_median": "Median of the metric, in its own unit.",
}


@dataclass(frozen=True)
class Numbers:
    """What is exposed of one store."""

    study: str
    states: Mapping[str, int] = field(default_factory=dict)  # without "planned"
    planned: int = 0
    weighing: Weighing | None = None  # None before there is a verdict


def as_openmetrics(stores: Iterable[Numbers]) -> str:
    """The whole text; the samples of a family stand together, as the format demands."""
    samples: dict[str, list[str]] = {name: [] for name in _FAMILIES}
    for each in stores:
        for name, labels, value in _samples(each):
            samples[name].append(f"{name}{{{_labelled(labels)}}} {value!r}")
    lines = [
        line
        for name, held in samples.items()
        if held
        for line in (f"# TYPE {name} gauge", f"# HELP {name} {_FAMILIES[name]}", *dict.fromkeys(held))
    ]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _samples(store: Numbers) -> Iterator[tuple[str, dict[str, str], float]]:
    study = {"study": store.study}
    yield "tare_trials_planned", study, store.planned
    for state, count in store.states.items():
        yield "tare_trials", {**study, "state": state}, count
    if store.weighing is None:
        return
    for each in (*store.weighing.comparisons, *store.weighing.tested):
        labels = {**study, "metric": each.metric, "level": each.level, "against": each.against}
        yield from _judged(each, labels)
    for level, medians in store.weighing.medians.items():
        for metric, median in medians.items():
            yield "tare_median", {**study, "metric": metric, "level": level}, median.value


def _judged(each: Comparison, labels: dict[str, str]) -> Iterator[tuple[str, dict[str, str], float]]:
    found = {
        "tare_effect_ratio": each.effect, "tare_effect_low_ratio": each.low, "tare_effect_high_ratio": each.high,
        "tare_margin_ratio": each.margin, "tare_blocks": each.n,
    }  # fmt: skip
    for name, value in found.items():
        if value is not None:
            yield name, labels, value
    for word in WORDS:
        yield "tare_verdict", {**labels, "verdict": word}, int(word == each.verdict)


def _labelled(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return safe_text(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
