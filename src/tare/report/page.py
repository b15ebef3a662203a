"""What is on the page, as values: the template only puts them in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare import __version__
from tare.analysis.model import Comparison, Left, Weighing
from tare.records.model import Record
from tare.records.store import Store
from tare.report.answers import Answer, answers_of, notes_of
from tare.report.devices_section import DevicesSection, devices_section
from tare.report.evidence import Evidence
from tare.report.figure import Cell, Figure
from tare.report.figures import figures
from tare.report.listing import SHORT_ID, flat_pairs
from tare.report.shown import Shown, level_order, shown_trials
from tare.report.software import SoftwareLine, parity_sentence, software_lines
from tare.report.verdicts import (
    NO_TRIAL,
    baseline_of,
    baselines,
    counts_text,
    coverage_text,
    difference_text,
    effect_of,
    floor_of,
    interval_of,
    is_complete,
    left_text,
    median_text,
    medians_of,
    sensitivity_of,
    taints,
    verdict_phrase,
)
from tare.report.words import metric_name, quantity_texts, safe_text


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One line of the verdict table."""

    level: str
    href: str
    median: str
    spread: str
    effect: str = ""
    interval: str = ""
    phrase: str = "baseline"
    word: str = ""
    sensitivity: str = ""
    floor: str = ""
    n: str = ""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One line of the table of all trials."""

    shown: Shown
    short: str
    figures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrialGroup:
    """The trials of one level."""

    anchor: str
    level: str
    rows: tuple[TrialRow, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the template needs."""

    weighing: Weighing
    question: str
    generated_utc: str
    metric: str
    counts: str
    complete: bool
    coverage: str
    answers: tuple[Answer, ...]
    verdicts: tuple[VerdictRow, ...]
    other_headers: tuple[str, ...]
    others: tuple[tuple[Cell, ...], ...]
    left_out: tuple[Cell, ...]
    outliers: tuple[Cell, ...]
    taints: tuple[str, ...]
    differences: tuple[str, ...]
    parity: str
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    devices: DevicesSection | None
    figures: tuple[Figure, ...]
    trial_metrics: tuple[str, ...]
    groups: tuple[TrialGroup, ...]
    methods: tuple[str, ...]
    device: tuple[tuple[str, str], ...]
    software: tuple[SoftwareLine, ...]
    study_lines: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]


def page(
    weighing: Weighing,
    records: Sequence[Record],
    generated_utc: str,
    study_text: str,
    problems: Sequence[str],
    store: Store | None = None,
) -> Page:
    """The page of one weighing; with its store also figures of the series."""
    shown = shown_trials(weighing, records)
    levels = level_order(weighing, shown)
    hrefs = {level: f"#level-{place}" for place, level in enumerate(levels)}
    anchors = {each.trial: f"#{each.anchor}" for each in shown}
    metrics = _trial_metrics(weighing, shown)
    evidence = Evidence(weighing, shown, hrefs, records, store)
    return Page(
        weighing=weighing,
        question=weighing.question or weighing.study,
        generated_utc=generated_utc,
        metric=metric_name(weighing.metric),
        counts=counts_text(weighing.counts),
        complete=is_complete(weighing.counts),
        coverage=coverage_text(weighing.comparisons),
        answers=tuple(answers_of(weighing)),
        verdicts=tuple(_verdict_rows(weighing, hrefs)),
        other_headers=_other_headers(weighing),
        others=tuple(_other_rows(weighing, hrefs)),
        left_out=tuple(_listed(left, anchors) for left in weighing.left_out),
        outliers=tuple(_listed(left, anchors) for left in weighing.outliers),
        taints=tuple(taints(weighing)),
        differences=tuple(difference_text(each) for each in weighing.differences if not each.matters),
        parity=parity_sentence(weighing, shown, records),
        notes=tuple(notes_of(weighing)),
        problems=tuple(problems),
        devices=None if evidence.fleet is None else devices_section(evidence.fleet),
        figures=tuple(figures(evidence)),
        trial_metrics=tuple(metric_name(metric) for metric in metrics),
        groups=tuple(_group(level, hrefs, shown, metrics) for level in levels),
        methods=tuple(dict.fromkeys(each.method for each in weighing.comparisons if each.method)),
        device=tuple(flat_pairs(weighing.facts.get("device", weighing.facts))),
        software=tuple(software_lines(shown, records)),
        study_lines=tuple(study_text.splitlines()),
        versions=tuple(_versions(records)),
    )


def _verdict_rows(weighing: Weighing, hrefs: Mapping[str, str]) -> list[VerdictRow]:
    rows = []
    for against, held in baselines(weighing.comparisons).items():
        theirs = baseline_of(held)
        median, spread = median_text(weighing.metric, theirs) if theirs is not None else (NO_TRIAL, "")
        n = str(theirs.n) if theirs is not None else "0"
        rows.append(VerdictRow(against, hrefs.get(against, ""), median, spread, n=n))
        rows += [_verdict_row(each, hrefs.get(each.level, "")) for each in held]
    return rows


def _verdict_row(each: Comparison, href: str) -> VerdictRow:
    median, spread = median_text(each.metric, each.ours) if each.ours is not None else (NO_TRIAL, "")
    return VerdictRow(
        level=each.level,
        href=href,
        median=median,
        spread=spread,
        effect=effect_of(each),
        interval=interval_of(each),
        phrase=verdict_phrase(each),
        word=each.verdict,
        sensitivity=sensitivity_of(each),
        floor=floor_of(each),
        n=str(each.n),
    )


def _other_rows(weighing: Weighing, hrefs: Mapping[str, str]) -> list[tuple[Cell, ...]]:
    rows = []
    for each in weighing.others:
        theirs, ours = medians_of(each)
        who = (Cell(each.level, hrefs.get(each.level, "")),) if len(weighing.comparisons) > 1 else ()
        figures = (
            Cell(metric_name(each.metric)),
            Cell(theirs, hrefs.get(each.against, ""), numeric=True),
            Cell(ours, hrefs.get(each.level, ""), numeric=True),
            Cell(effect_of(each), "#trials", numeric=True),
            Cell(interval_of(each), numeric=True),
        )
        rows.append((*who, *figures))
    return rows


def _other_headers(weighing: Weighing) -> tuple[str, ...]:
    if len(weighing.comparisons) > 1:
        return "level", "metric", weighing.against, "level", "effect", "interval"
    level = weighing.comparisons[0].level if weighing.comparisons else "level"
    return "metric", weighing.against, level, "effect", "interval"


def _listed(left: Left, anchors: Mapping[str, str]) -> Cell:
    return Cell(left_text(left), anchors.get(left.trial, ""))


def _trial_metrics(weighing: Weighing, shown: Sequence[Shown]) -> list[str]:
    """The metrics that the report speaks of, where any trial has them."""
    wanted = dict.fromkeys([weighing.metric, *(each.metric for each in weighing.others)])
    return [metric for metric in wanted if any(metric in each.metrics for each in shown)]


def _group(level: str, hrefs: Mapping[str, str], shown: Sequence[Shown], metrics: Sequence[str]) -> TrialGroup:
    held = [each for each in shown if each.level == level]
    columns = [_figures_of(metric, held) for metric in metrics]
    rows = (
        TrialRow(each, safe_text(each.trial)[:SHORT_ID], tuple(column[place] for column in columns))
        for place, each in enumerate(held)
    )
    return TrialGroup(hrefs[level].removeprefix("#"), level, tuple(rows))


def _figures_of(metric: str, shown: Sequence[Shown]) -> list[str]:
    texts = iter(quantity_texts(metric, [each.metrics[metric] for each in shown if metric in each.metrics]))
    return [next(texts) if metric in each.metrics else "" for each in shown]


def _versions(records: Sequence[Record]) -> list[tuple[str, str]]:
    measured = sorted({record.tare_version for record in records if record.tare_version})
    started = [record.started_utc for record in records if record.started_utc]
    told = [("this report made by", f"tare {__version__}")]
    told += [("trials run by", f"tare {', '.join(measured)}")] if measured else []
    told += [("first trial started", min(started)), ("last trial started", max(started))] if started else []
    return told
